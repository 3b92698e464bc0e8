"""Older names of an env runner group's members (RLlib's `WorkerSet`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class _EnvRunnerGroup(Protocol):
    # Properties, because type checkers compare writable members and signatures exactly.
    @property
    def local_env_runner(self) -> Any: ...
    @property
    def foreach_env_runner(self) -> Callable[..., list[Any]]: ...
    @property
    def foreach_env_runner_with_id(self) -> Callable[..., list[Any]]: ...
    @property
    def foreach_env_runner_async(self) -> Callable[..., int]: ...
    def healthy_env_runner_ids(self) -> list[int]: ...
    def num_remote_env_runners(self) -> int: ...
    def num_healthy_env_runners(self) -> int: ...
    def probe_unhealthy_env_runners(self) -> list[int]: ...


class EnvRunnerGroupNames:
    """Adds the older names to an env runner group."""

    def foreach_worker(
        self: _EnvRunnerGroup,
        func: Callable[..., Any] | str,
        *,
        local_worker: bool = True,
        **options: Any,
    ) -> list[Any]:
        """Older name of `foreach_env_runner`."""
        return self.foreach_env_runner(func, local_env_runner=local_worker, **options)

    def foreach_worker_async(self: _EnvRunnerGroup, func: Any, **options: Any) -> int:
        """Older name of `foreach_env_runner_async`."""
        return self.foreach_env_runner_async(func, **options)

    def foreach_worker_with_id(
        self: _EnvRunnerGroup, func: Callable[[int, Any], Any], **options: Any
    ) -> list[Any]:
        """Older name of `foreach_env_runner_with_id`."""
        return self.foreach_env_runner_with_id(func, **options)

    def foreach_env(self: _EnvRunnerGroup, func: Callable[[Any], Any]) -> list[list[Any]]:
        """Calls `func(env)` with every sub-env: a list of results per runner."""
        return self.foreach_env_runner(_OfEnvs(func, with_context=False))

    def foreach_env_with_context(
        self: _EnvRunnerGroup, func: Callable[[Any, Any], Any]
    ) -> list[list[Any]]:
        """Calls `func(env, context)` with every sub-env: a list of results per runner."""
        return self.foreach_env_runner(_OfEnvs(func, with_context=True))

    def foreach_policy(
        self: _EnvRunnerGroup, func: Callable[[Any, str], Any], **kwargs: Any
    ) -> list[Any]:
        """Calls `func(module, module_id, **kwargs)` in every runner: one list of all results."""
        answers = self.foreach_env_runner(_OfModules(func, kwargs))
        return [result for answer in answers for result in answer]

    def local_worker(self: _EnvRunnerGroup) -> Any:
        """Older name of `local_env_runner`."""
        return self.local_env_runner

    def num_remote_workers(self: _EnvRunnerGroup) -> int:
        """Older name of `num_remote_env_runners`."""
        return self.num_remote_env_runners()

    def num_healthy_workers(self: _EnvRunnerGroup) -> int:
        """Older name of `num_healthy_env_runners`."""
        return self.num_healthy_env_runners()

    def probe_unhealthy_workers(self: _EnvRunnerGroup) -> list[int]:
        """Older name of `probe_unhealthy_env_runners`."""
        return self.probe_unhealthy_env_runners()

    def healthy_worker_ids(self: _EnvRunnerGroup) -> list[int]:
        """Older name of `healthy_env_runner_ids`."""
        return self.healthy_env_runner_ids()


class _OfModules:
    """Calls the user's function with each module of a runner."""

    def __init__(self, function: Callable[..., Any], keywords: dict[str, Any]) -> None:
        self._function = function
        self._keywords = keywords

    def __call__(self, env_runner: Any) -> Any:
        return env_runner.foreach_policy(self._function, **self._keywords)


class _OfEnvs:
    """Calls the user's function with each sub-env of a runner."""

    def __init__(self, function: Callable[..., Any], *, with_context: bool) -> None:
        self._function = function
        self._with_context = with_context

    def __call__(self, env_runner: Any) -> Any:
        if self._with_context:
            return env_runner.foreach_env_with_context(self._function)
        return env_runner.foreach_env(self._function)
