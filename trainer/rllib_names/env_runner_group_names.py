"""Older names of an env runner group's members (RLlib's `WorkerSet`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class _EnvRunnerGroup(Protocol):
    local_env_runner: Any

    def foreach_env_runner(self, func: Any, **options: Any) -> list[Any]: ...
    def foreach_env_runner_with_id(self, func: Any, **options: Any) -> list[Any]: ...
    def healthy_env_runner_ids(self) -> list[int]: ...


class EnvRunnerGroupNames:
    """Adds the older names to an env runner group."""

    def foreach_worker(
        self: _EnvRunnerGroup,
        func: Callable[..., Any] | str,
        *,
        local_worker: bool = True,
        healthy_only: bool = False,
        remote_worker_ids: Sequence[int] | None = None,
    ) -> list[Any]:
        """Older name of `foreach_env_runner`."""
        return self.foreach_env_runner(
            func,
            local_env_runner=local_worker,
            healthy_only=healthy_only,
            remote_worker_ids=remote_worker_ids,
        )

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

    def local_worker(self: _EnvRunnerGroup) -> Any:
        """Older name of `local_env_runner`."""
        return self.local_env_runner

    def healthy_worker_ids(self: _EnvRunnerGroup) -> list[int]:
        """Older name of `healthy_env_runner_ids`."""
        return self.healthy_env_runner_ids()


class _OfEnvs:
    """Calls the user's function with each sub-env of a runner."""

    def __init__(self, function: Callable[..., Any], *, with_context: bool) -> None:
        self._function = function
        self._with_context = with_context

    def __call__(self, env_runner: Any) -> Any:
        if self._with_context:
            return env_runner.foreach_env_with_context(self._function)
        return env_runner.foreach_env(self._function)
