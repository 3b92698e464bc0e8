"""The user's own code in env runners: functions that are called where the runners live."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.env_runners.request_round import Ask, OnRecreated, RoundResult
from trainer.env_runners.runner_place import RunnerPlace
from trainer.errors import ConfigError
from trainer.runtime.worker_pool import WorkerPool

OnMetrics = Callable[[list[Any]], None]
"""Told what users' functions logged in the runners, in the order of the runners."""


class GroupFunctions:
    """Adds `foreach_env_runner` and its relatives to a group."""

    _places: dict[int, RunnerPlace]
    _pool: WorkerPool | None
    _on_recreated: OnRecreated
    _on_metrics: OnMetrics

    def _run(self, asks: Mapping[int, Ask | None]) -> RoundResult:
        raise NotImplementedError

    def foreach_env_runner(
        self,
        func: Callable[..., Any] | str | Sequence[Callable[..., Any]],
        *,
        kwargs: Mapping[str, Any] | None = None,
        local_env_runner: bool = True,
        healthy_only: bool = True,  # noqa: ARG002 - RLlib's signature; the others cannot be asked
        remote_worker_ids: Sequence[int] | None = None,
    ) -> list[Any]:
        """Calls a function with every runner, in the process where the runner lives.

        What it logs in `env_runner.metrics` is reported at once, also if it raises in another
        runner.

        Args:
            func: `func(env_runner, **kwargs)`; or the name of a runner's method; or a list, one
                function per runner.
            kwargs: keyword arguments of the call.
            local_env_runner: include the runner of the main process, if there is one.
            healthy_only: no effect.
            remote_worker_ids: numbers of the remote runners to ask; None asks all, an empty list
                none.

        Returns:
            the results in the order of the runners' numbers; a runner that was given up holds its
            place with None.

        Raises:
            Exception: what the function raised in the first runner in which it did, with the
                runner's number as cause. It has run in all the others; no runner is replaced.
            RunnerLostError: a process died twice while it ran the function.
            ConfigError: a runner number does not exist, or a list of functions has another length.
        """
        indices = self._chosen(
            local_env_runner=local_env_runner, remote_worker_ids=remote_worker_ids
        )
        functions = [func] * len(indices) if callable(func) or isinstance(func, str) else list(func)
        if len(functions) != len(indices):
            raise ConfigError(
                f"foreach_env_runner() got {len(functions)} functions for {len(indices)} env "
                f"runners {indices}; expected one for each, or one for all."
            )
        values = self._call_in_runners(
            dict(zip(indices, functions, strict=True)),
            doing="ran the function given to foreach_env_runner()",
            arguments=dict(kwargs or {}),
        )
        return [values.get(index) for index in indices]

    def _call_in_runners(
        self,
        functions: Mapping[int, Callable[..., Any] | str],
        *,
        doing: str,
        arguments: Mapping[str, Any],
    ) -> dict[int, Any]:
        """Calls a function with each of some runners, and commits what it changed there.

        Args:
            functions: by runner number.
            doing: what the runners do, for messages.
            arguments: keyword arguments of the calls.

        Returns:
            the results of the runners that were not given up, by number.
        """
        asks = {
            index: Ask("apply", (function, dict(arguments)), is_repeatable=False)
            for index, function in functions.items()
        }
        result = self._run(asks)
        metrics = []
        for index, reply in sorted(result.answers.items()):
            place = self._places[index]
            place.commit(reply.positions or place.positions, reply.callbacks)
            if reply.metrics:
                metrics.append(reply.metrics)
        if metrics:
            self._on_metrics(metrics)
        if result.recreated:
            self._on_recreated(result.recreated)
        result.raise_first_failure(doing=doing)
        return {index: reply.value for index, reply in result.answers.items()}

    def foreach_env_runner_with_id(
        self, func: Callable[[int, Any], Any], **options: Any
    ) -> list[Any]:
        """Like `foreach_env_runner`, with `func(number, env_runner)`."""
        indices = self._chosen(
            local_env_runner=options.get("local_env_runner", True),
            remote_worker_ids=options.get("remote_worker_ids"),
        )
        return self.foreach_env_runner([_WithNumber(func, index) for index in indices], **options)

    def _chosen(
        self, *, local_env_runner: bool, remote_worker_ids: Sequence[int] | None
    ) -> list[int]:
        if self._pool is None:
            return [0] if local_env_runner else []
        if remote_worker_ids is None:
            return list(self._places)
        unknown = sorted(set(remote_worker_ids) - set(self._places))
        if unknown:
            raise ConfigError(
                f"remote_worker_ids={list(remote_worker_ids)}: there is no {unknown}; "
                f"there are 1 … {len(self._places)}."
            )
        return list(remote_worker_ids)


@dataclass(frozen=True)
class _WithNumber:
    """Calls the user's function with the runner's number in front."""

    function: Callable[[int, Any], Any]
    number: int

    def __call__(self, env_runner: Any) -> Any:
        return self.function(self.number, env_runner)
