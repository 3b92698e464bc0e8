"""The env runner inside a worker process: made from one value, asked through a few methods."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from callbacks import PackingError
from callbacks.packing import pack_object
from trainer.env_runners.env_runner import AtWork, EnvRunner
from trainer.env_runners.messages import (
    EnvRunnerSpec,
    RunnerReport,
    SampleReply,
    SampleRequest,
    SlotPosition,
    Sync,
)
from trainer.env_runners.multi_agent_env_runner import MultiAgentEnvRunner
from trainer.env_runners.single_agent_env_runner import SingleAgentEnvRunner
from trainer.envs import (
    packed_registrations,
    silent_wrappers,
    take_over_registrations,
    why_no_env_state,
)
from trainer.envs.env_checks import SeveralAgentsError
from trainer.envs.tasks import why_no_tasks
from trainer.errors import ConfigError, SerializationError
from trainer.metrics import EpisodeRecord
from trainer.runtime.engine import Signals, own_heartbeat
from trainer.seeding import Role, position_rng
from trainer.types import State


@dataclass(frozen=True)
class RunnerBootstrap:
    """All that makes a runner, the first time and every time after: calling it gives the handler.

    Attributes:
        spec: what to make.
        sync: where to start from.
        is_recreated: whether it replaces a runner that failed or was interrupted.
        number: how many runners were made in this place before.
        registrations: envs that are registered in the main process; empty if the runner is
            made there.
    """

    spec: EnvRunnerSpec
    sync: Sync
    is_recreated: bool = False
    number: int = 0
    registrations: bytes = b""

    def packed(self) -> bytes:
        """The bootstrap as bytes for a worker process.

        Raises:
            SerializationError: something in it cannot be pickled; names it by its place in the
                config.
        """
        try:
            travelling = replace(self, registrations=packed_registrations())
            return pack_object(travelling, name="the env runner's bootstrap")
        except PackingError as error:
            raise self._named(error) from error

    def _named(self, error: PackingError) -> SerializationError:
        """The error that names the culprit as the user wrote it in the config."""
        spec = self.spec
        parts = {
            "callbacks": spec.callbacks,
            "config.env": spec.env_factory.create,
            "config.env_config": dict(spec.env_factory.env_config),
            "config.rl_module_spec": spec.module_specs.to_state(),
            "config": dict(spec.config),
        }
        try:
            for name, part in parts.items():
                pack_object(part, name=name)
        except PackingError as found:
            error = found
        return SerializationError(
            f"Env runner {spec.worker_index} is to run in a process of its own, and {error} "
            "With num_env_runners=0 nothing has to travel."
        )

    def _seed_global_generators(self) -> None:
        """Gives each process random numbers of its own, for envs that use the global generators.

        Processes are copies of one fork server, which would otherwise all draw the same.
        """
        spec = self.spec
        rng = position_rng(spec.root_seed, Role.WORKER, spec.role, spec.worker_index, self.number)
        random.seed(int(rng.integers(2**63)))
        np.random.seed(int(rng.integers(2**32)))  # noqa: NPY002 - it is the one that others use

    def make_runner(self, signals: Signals | None = None) -> EnvRunner:
        """Makes the runner, in this process: of the kind that its env asks for."""
        how: dict[str, Any] = {
            "sync": self.sync,
            "is_recreated": self.is_recreated,
            "signals": signals,
        }
        try:
            return SingleAgentEnvRunner(self.spec, **how)
        except SeveralAgentsError as found:
            first = found.made
        return MultiAgentEnvRunner(self.spec, **how, first_env=first)

    def __call__(self, signals: Signals | None) -> RunnerHandler:
        """Makes the handler that a worker process keeps."""
        if self.registrations:  # none in the process that has them itself
            take_over_registrations(self.registrations)
        self._seed_global_generators()
        return RunnerHandler(self.make_runner(signals))

    def here(self, _: Signals) -> RunnerHandler:
        """Makes the handler in the main process, whose global generators are the user's."""
        return RunnerHandler(self.make_runner(own_heartbeat()))


@dataclass(frozen=True)
class ApplyReply:
    """What a user's function returned, and what it changed that must be committed.

    Attributes:
        value: what the function returned.
        metrics: what was logged meanwhile, for `MetricsLogger.aggregate`.
        positions: where the slots stand, if the function made the runner play or set
            tasks; else None.
        callbacks: state of the callback objects; None if they have none.
        records: evaluation runners: the episodes that the function let them play to the end.
    """

    value: Any
    metrics: Any
    positions: tuple[SlotPosition, ...] | None
    callbacks: State | None
    records: tuple[EpisodeRecord, ...] = ()


class RunnerHandler:
    """Answers the calls of a runner, in whichever process it lives.

    Attributes:
        runner: itself.
    """

    def __init__(self, runner: EnvRunner) -> None:
        self.runner = runner

    def report(self) -> RunnerReport:
        """What the main process wants to know of a fresh runner."""
        runner = self.runner
        return RunnerReport(
            module_specs=runner.module_specs,
            metrics=runner.metrics.drain(),
            lost=runner.take_lost(),
            callbacks=runner.callbacks.get_state() if runner.callbacks.has_state() else None,
            tasks=runner.first_tasks,
            env_states=runner.first_env_states,
            why_no_tasks=why_no_tasks(runner.env.envs[0]),
            why_no_env_state=why_no_env_state(runner.env.envs[0]),
            silent_wrappers=silent_wrappers(runner.env.envs[0]),
            agents=runner.agents,
            mapping_answers=() if runner.mapping is None else runner.mapping.answers,
        )

    def sample(self, sync: Sync, request: SampleRequest) -> SampleReply:
        """Plays what is asked."""
        self.runner.synchronize(sync)
        return self.runner.answer(request)

    def apply(
        self, sync: Sync, function: Callable[..., Any] | str, arguments: dict[str, Any]
    ) -> ApplyReply:
        """Calls `function(runner, **arguments)`, or the runner's method of that name.

        Episodes that it makes the runner play are its own: they never reach the learner and do not
        count as sampled. What it logs, and what callbacks log in such episodes, goes along at once:
        a runner that dies afterwards has nothing left to lose.
        """
        runner = self.runner
        runner.synchronize(sync)
        with AtWork(runner):
            if isinstance(function, str):
                value = _method_of(runner, function)(**arguments)
            else:
                value = function(runner, **arguments)
        has_played = runner.has_played
        has_moved = runner.notice_tasks() or has_played
        records = runner.take_records() if has_played else []
        return ApplyReply(
            value=value,
            metrics=runner.metrics.drain(),
            positions=runner.take_positions() if has_moved else None,
            callbacks=runner.callbacks.get_state() if runner.callbacks.has_state() else None,
            records=tuple(records) if runner.spec.in_evaluation else (),
        )

    def failure_context(self) -> dict[str, Any]:
        """Where the runner was when something raised."""
        return self.runner.failure_context()

    def close(self) -> None:
        """Closes the envs."""
        self.runner.stop()


def _method_of(runner: EnvRunner, name: str) -> Callable[..., Any]:
    method = getattr(runner, name, None)
    if not callable(method):
        raise ConfigError(
            f"An env runner has no method {name!r}; expected the name of one, such as 'sample', or "
            "a function that takes the runner. Give that as `func`."
        )
    return cast("Callable[..., Any]", method)
