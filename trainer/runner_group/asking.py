"""Asking the runners of a group: one round at a time, and what comes of it for all of them.

asking.run(asks)                       a round, carried through
asking.under_way = TicketPlay(…)       or something that goes on while the main process learns
asking.finish(), asking.abandon()      whatever is asked next waits for it, or ends it
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from trainer.actors.registry import registry_to_inherit
from trainer.env_runners.messages import Weights
from trainer.env_runners.worker_service import ApplyReply
from trainer.errors import AlgorithmStoppedError
from trainer.modules import ByModule, RLModule, RLModuleSpec, TorchRLModule
from trainer.runner_group.crash_files import CrashFiles
from trainer.runner_group.records import RunnerRecords
from trainer.runner_group.rounds import (
    Ask,
    LocalRound,
    OnRecreated,
    RequestRound,
    Round,
    RoundResult,
)
from trainer.runtime.engine import Engine
from trainer.runtime.machine_facts import cpu_kinds
from trainer.runtime.restart_policy import RestartPolicy
from trainer.runtime.worker_pool import WorkerPool
from trainer.types import AgentId

_CLOSING_S: Final = 2.0
_PRELOADED = (
    "numpy",
    "gymnasium",
    "trainer.env_runners.worker_service",
    "trainer.runtime.worker",
)


class UnderWay(Protocol):
    """A round that goes on while the main process does something else."""

    def finish(self) -> None:
        """Waits until it is over; its outcome stays there for who began it."""

    def abandon(self) -> None:
        """Ends it; nothing comes of it."""


class Asking:
    """Asks the runners of one group; owns their processes.

    Attributes:
        weights: what runners act with from the next request on; None before there are any.
        module_specs: what the runners' modules are made from; complete once they were made.
        agents: all possible agents of the envs; None for envs of one agent.
        crash_files: where requests that failed are kept.
        stall_limit_s: how long a runner may go without an env step; None is for ever.
        limited_by: the setting that says so.
        under_way: what goes on while the main process does something else; None if nothing does.
        num_restarts: runners that were replaced after failures so far.
    """

    def __init__(
        self,
        records: RunnerRecords,
        *,
        policy: RestartPolicy,
        stall_limit_s: float | None,
        start_limit_s: float | None,
        crash_files: CrashFiles,
        on_recreated: OnRecreated,
        engine: Engine | None = None,
    ) -> None:
        """Prepares workers for remote runners; rounds start them.

        Args:
            records: of the runners.
            policy: what to do about failures.
            stall_limit_s: a runner without an env step for so long is replaced; None waits.
            start_limit_s: the same while a runner is made and put to its position.
            crash_files: where requests that failed are kept.
            on_recreated: called after a request with the numbers of the runners that were replaced.
            engine: where remote runners live; None is for processes of this machine.
        """
        self.weights: Weights | None = None
        self.module_specs: ByModule[RLModuleSpec] = records.spec.module_specs
        self.agents: tuple[AgentId, ...] | None = None
        self.crash_files = crash_files
        self.stall_limit_s = stall_limit_s
        is_evaluation = records.spec.in_evaluation
        self.limited_by = "evaluation_sample_timeout_s" if is_evaluation else "sample_timeout_s"
        self.under_way: UnderWay | None = None
        self.num_restarts = 0
        self._records = records
        self._policy = policy
        self._start_limit_s = start_limit_s
        self._engine = engine
        self._on_recreated = on_recreated
        self._recreated: list[int] = []
        self._is_stopped = False
        self._pool = self._make_pool()

    # ---- rounds

    def run(self, asks: Mapping[int, Ask | None]) -> RoundResult:
        """Carries a round through; runners that were given up are left out."""
        round_ = self.new_round()
        places = self._records.places
        result = round_.run(
            {index: ask for index, ask in asks.items() if not places[index].is_given_up}
        )
        self.take_over(result)
        return result

    def new_round(self) -> Round:
        """A round for what is asked next; what is under way is finished first.

        Raises:
            AlgorithmStoppedError: the runners are gone.
        """
        if self._is_stopped:
            raise AlgorithmStoppedError(
                "The env runners were asked after stop(): they are gone. Build a new algorithm, "
                "or restore one with from_checkpoint()."
            )
        self.finish()
        places = self._records.places
        at_work = None if self.stall_limit_s is None else (self.stall_limit_s, self.limited_by)
        if self._pool is None:
            return LocalRound(places, weights=self.weights, crash_files=self.crash_files)
        return RequestRound(
            self._pool,
            places,
            weights=self.weights,
            policy=self._policy,
            start_limit_s=self._start_limit_s,
            limit_at_work=at_work,
            crash_files=self.crash_files,
        )

    def take_over(self, result: RoundResult) -> None:
        """Notes what came out of a round."""
        if result.reports:
            report = result.reports[min(result.reports)]
            self.module_specs, self.agents = report.module_specs, report.agents
        self.num_restarts += result.num_restarts
        self._records.add_losses(result.num_episodes_lost, result.num_env_steps_lost)
        self._recreated += result.recreated

    def tell_recreated(self) -> None:
        """Tells which runners were replaced since this was last called."""
        recreated, self._recreated = sorted(set(self._recreated)), []
        if recreated:
            self._on_recreated(recreated)

    def bring_up_to_date(self, indices: Collection[int]) -> dict[int, ApplyReply]:
        """Lets runners hold at once what they are to hold: weights, normalisation, positions."""
        ask = Ask(
            "apply",
            ("ping", {}),
            is_repeatable=False,
            stall_limit_s=self.stall_limit_s,
            limited_by=self.limited_by,
        )
        return self.run(dict.fromkeys(indices, ask)).answers

    # ---- what is under way

    def finish(self) -> None:
        """Waits for what is under way; its outcome stays there for who began it."""
        if self.under_way is None:
            return
        try:
            self.under_way.finish()
        except BaseException:
            self.abandon()
            raise
        self.under_way = None

    def abandon(self) -> None:
        """Ends what is under way; nothing comes of it."""
        if self.under_way is not None:
            self.under_way.abandon()
            self.under_way = None

    # ---- processes

    @property
    def is_stopped(self) -> bool:
        """Whether the runners are gone for good."""
        return self._is_stopped

    def _make_pool(self) -> WorkerPool | None:
        if not self._records.is_remote:
            return None
        names = [place.name for place in self._records]
        classes = [spec.module_class or RLModule for spec in self.module_specs.values()]
        # Torch takes a second or two to import: once for all workers, not once for each.
        uses_torch = any(issubclass(module_class, TorchRLModule) for module_class in classes)
        return WorkerPool(
            names,
            engine=self._engine,
            preload_modules=(*_PRELOADED, "torch") if uses_torch else _PRELOADED,
            inherit=registry_to_inherit,
        )

    def pids(self) -> dict[int, int]:
        """Process ids of the remote runners that have a process, by number."""
        return {} if self._pool is None else self._pool.pids()

    def num_cpu_kinds(self) -> int:
        """How many kinds of CPU there are among the machines of the runners and this one."""
        return 1 if self._pool is None else len(cpu_kinds(self._pool.engine.machines()))

    def now_s(self) -> float:
        """The clock by which runners are waited for; only differences mean something."""
        return time.monotonic() if self._pool is None else self._pool.now_s()

    def make_anew(self, num_env_runners: int) -> None:
        """Ends all runners; there is room for others, which the next round makes."""
        spec = self._records.spec
        if self._pool is not None:
            self._pool.stop()
        self._records.stop_runners()
        self._records.make_anew(spec, num_env_runners)
        self._pool = self._make_pool()

    def end_runner(self, index: int) -> None:
        """Ends one runner; the next round makes another."""
        if self._pool is not None:
            self._pool[index].kill()
        else:
            self._records.places[index].stop_runner()

    def stop(self) -> None:
        """Closes all envs and ends all processes. Idempotent; nothing can be asked afterwards."""
        self._is_stopped = True
        self.abandon()
        if self._pool is not None:
            self._pool.stop(grace_s=min(_CLOSING_S, self.stall_limit_s or _CLOSING_S))
            self._pool.engine.close()
        self._records.stop_runners()

    def kill(self) -> None:
        """Ends all processes at once; like `stop`, but no env is closed."""
        self._is_stopped = True
        if self._pool is not None:
            self._pool.kill()
            self._pool.engine.close()
