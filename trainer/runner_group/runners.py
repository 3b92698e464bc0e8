"""The runners of a group, which can be asked: they are made, repaired and asked again as need be.

    runners.begin()                                         what is in flight is finished first
    pending = runners.ask(1, Ask("sample", (request,)))     returns at once
    runners.wait()                                          until it is over
    runners.drop()                                          kills workers that are at work

    a call:        (start → report) → request → answer
    a failure:      restart → report → the same request again

Each runner goes through this by itself: one that has answered waits for no other, and is never
asked twice. Nothing is committed here: whoever asked takes the answers.
"""

from __future__ import annotations

import contextlib
import math
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, Protocol

from trainer.actors.registry import registry_to_inherit
from trainer.env_runners.env_runner import EnvRunner
from trainer.env_runners.messages import PolicySnapshot, RunnerReport, Sync
from trainer.errors import AlgorithmStoppedError, TrainerError
from trainer.modules import RLModule, TorchRLModule
from trainer.runner_group.agreement import Agreement
from trainer.runner_group.crash_files import CrashFiles
from trainer.runner_group.pending import Ask, Pending
from trainer.runner_group.records import RunnerRecords
from trainer.runner_group.repair import Repair
from trainer.runtime.engine import Engine, StallLimit
from trainer.runtime.inline_engine import InlineEngine, InlinePlace
from trainer.runtime.machine_facts import cpu_kinds
from trainer.runtime.messages import Failed, Lost, Outcome, Success
from trainer.runtime.restart_policy import RestartPolicy
from trainer.runtime.threads import OneThread, single_threaded_blas
from trainer.runtime.worker import refuse_while_unpacking
from trainer.runtime.worker_pool import WorkerPool
from trainer_toolkit.interrupts import signals_deferred

OnRecreated = Callable[[list[int]], None]
"""Called with the numbers of runners that were made again."""

CLOSING_S: Final = 2.0
"""Seconds that envs have to be closed in, and that runners have to end what they are at."""

_PRELOADED = ("trainer.env_runners.worker_service", "trainer.runtime.worker")
"""Ours first: it imports the others, and no garbage is looked for meanwhile."""


class Owner(Protocol):
    """What has calls in flight while the main process does something else."""

    def finish(self) -> None:
        """Waits until they are over, because the runners are to be asked for something else."""

    def dropped(self) -> None:
        """Hears that nothing will come of them."""


class Runners:
    """Asks the runners of one group and repairs them; owns their processes.

    Attributes:
        agreement: what all runners have in common.
        limit: how long a runner may go without an env step.
        owner: of the calls in flight; None if there are none, or they are waited for.
        num_restarts: runners that were replaced after failures so far.
        is_stopped: the runners are gone for good.
    """

    def __init__(
        self,
        records: RunnerRecords,
        *,
        restart_policy: RestartPolicy,
        crash_files: CrashFiles,
        on_recreated: OnRecreated,
        engine: Engine | None = None,
        one_thread: OneThread | None = None,
    ) -> None:
        """Makes empty places; a runner is made when it is first asked.

        `on_recreated` is called after a request with the numbers of the runners that were replaced.
        Without an engine, remote runners are processes of this machine.
        """
        self._one_thread = one_thread or OneThread()
        self.agreement = Agreement(records)
        is_evaluation = records.spec.in_evaluation
        setting = "evaluation_sample_timeout_s" if is_evaluation else "sample_timeout_s"
        self.limit = StallLimit(restart_policy.stall_limit_s, setting)
        self.owner: Owner | None = None
        self.num_restarts = 0
        self.is_stopped = False
        self._records = records
        self._repair = Repair(restart_policy, crash_files)
        self._start_limit = StallLimit(
            restart_policy.start_limit_s,
            "env_runner_restore_timeout_s",
            at_work=None if restart_policy.stall_limit_s is None else self.limit,
        )
        self._engine = engine
        self._on_recreated = on_recreated
        self._in_flight: dict[int, Pending] = {}
        self._ended: list[Pending] = []
        # Of whom the event has not told yet: they have answered since, or may still be made.
        self._recreated: set[int] = set()
        self._replaced: set[int] = set()
        self._inline: InlinePlace | None = None
        self._deferred: Callable[[], AbstractContextManager[object]] = signals_deferred
        self._pool = self._make_pool()

    # ---- asking

    def run(self, asks: Mapping[int, Ask | None]) -> list[Pending]:
        """Asks, and waits until all calls are over; runners that were given up are left out.

        Raises:
            Exception: as of `begin` and `advance`.
        """
        with self.alone():
            self.begin()
            by_index = self._records.by_index
            pendings = [
                self.ask(index, ask)
                for index, ask in asks.items()
                if not by_index[index].is_given_up
            ]
            try:
                self.wait()
            except BaseException:
                self._keep_replaced(pendings)
                raise
            return pendings

    def alone(self) -> AbstractContextManager[None]:
        """Surrounds what changes or copies what runners hold; a TrainerError as of `begin`."""
        return self._one_thread.alone("A method of the env runners")

    def begin(self, owner: Owner | None = None) -> None:
        """Lets runners be asked for something new, once what is in flight is over.

        Args:
            owner: of what they are asked now; None if it is waited for.

        Raises:
            AlgorithmStoppedError: the runners are gone.
            TrainerError: another thread asks them, or trains.
        """
        self._one_thread.refuse_others("A method of the env runners")
        if self.is_stopped:
            raise AlgorithmStoppedError(
                "The env runners were asked after stop(): they are gone. Build a new algorithm, "
                "or restore one with from_checkpoint()."
            )
        if self.is_local_busy:
            raise TrainerError(
                "The env runners were asked by a callback of the env runner of the main process, "
                "which is at work itself. Ask between two iterations, or in a callback of the "
                "algorithm, such as on_train_result."
            )
        if self.owner is not None:
            self.finish()
        # Nothing, unless an interrupt came between two calls, or a play ended while a runner that
        # it needs no more was made again.
        if self._in_flight:
            self.drop()
        if self._records.is_remote:
            self._pool.kill_busy()  # likewise, unless a second one has cut `drop` short
        self.owner = owner

    def ask(
        self,
        index: int,
        ask: Ask | None,
        *,
        policy: PolicySnapshot | None = None,
        is_wanted: bool = True,
    ) -> Pending:
        """Asks a runner that has nothing else in flight, and does not wait.

        A runner that is being made again is asked afterwards; the one of this process is asked when
        it is waited for.

        Args:
            index: its number.
            ask: the call; None only sees to it that the runner is there.
            policy: how it acts; None is as all runners do now.
            is_wanted: see `Pending`.
        """
        pending = self._in_flight.get(index)
        if pending is not None:
            assert pending.ask is None  # noqa: S101 - it is made again, for nobody so far
            pending.ask = ask
            return pending
        record = self._records.by_index[index]
        pending = Pending(index, record, policy or self._records.policy, ask, is_wanted)
        if ask is None and self._pool[index].is_running:
            pending.is_over = True
            return pending
        self._in_flight[index] = pending
        if self._records.is_remote:
            try:
                with signals_deferred():
                    self._send(pending)
            except BaseException:
                self.abandon()
                raise
        return pending

    def wait(self, timeout_s: float = math.inf) -> None:
        """Waits until nothing is in flight, or for a while; see `advance`."""
        until = self.now_s() + timeout_s
        while self._in_flight:
            self.advance(max(0.0, until - self.now_s()))
            if self.now_s() >= until:
                return

    def advance(self, timeout_s: float) -> list[Pending]:
        """Takes what has come in, and repairs what has failed.

        If it raises, nothing is in flight any more.

        Args:
            timeout_s: how long to wait if nothing has come in; 0 looks only.

        Returns:
            the calls that are over since this was last called, in the order in which they ended.

        Raises:
            Exception: what the user's code raised in a runner that may not be repaired; see
                `Repair`.
        """
        try:
            self._advance(timeout_s)
        except BaseException:
            self.abandon()
            raise
        ended, self._ended = self._ended, []
        return ended

    def _advance(self, timeout_s: float) -> None:
        now = self._pool.now_s()
        until = now + timeout_s
        while self._in_flight:
            dues = self._send_who_is_due(now)
            wait_s = max(0.0, min([until, *dues]) - now)
            found = self._outcome_within(wait_s, all_wait=len(dues) == len(self._in_flight))
            if found is not None:
                with self._deferred():
                    self._take_outcome(*found)
                until = now  # now only what else is there already
            elif self._pool.now_s() >= until:
                return
            now = self._pool.now_s()

    def _send_who_is_due(self, now: float) -> list[float]:
        """Makes or asks runners that are due; returns when others will be."""
        later = []
        for pending in self._in_flight.values():
            if pending.due_at is None:
                continue
            if pending.due_at > now:
                later.append(pending.due_at)
                continue
            with self._deferred():
                self._send(pending)
        return later

    def _outcome_within(self, timeout_s: float, *, all_wait: bool) -> tuple[int, Outcome] | None:
        if all_wait:  # for their replacement
            self._pool.sleep(timeout_s)
            return None
        try:
            return self._pool.outcome_within(timeout_s)
        except Exception as error:
            self._keep_what_raised(error)
            raise

    def _keep_what_raised(self, error: Exception) -> None:
        """Keeps what the runner of this process was asked when it raised."""
        pending = self._in_flight.get(0)
        if pending is not None and not pending.is_starting:
            self._repair.keep(pending, "".join(traceback.format_exception(error)), log="failed")

    def _send(self, pending: Pending) -> None:
        record, place = pending.record, self._pool[pending.index]
        pending.due_at = None
        if pending.is_starting or not place.is_running:
            # If there was one, it was ended when an earlier call was cut short, or died in one that
            # could not go on.
            pending.is_replaced |= record.had_runner
            pending.is_starting = True
            bootstrap = record.bootstrap(pending.policy)
            factory: Any = bootstrap.packed() if self._records.is_remote else bootstrap.here
            place.start(factory, self._start_limit)
        elif pending.ask is not None:
            self._submit(pending, pending.ask)

    def _submit(self, pending: Pending, ask: Ask) -> None:
        place, sync = self._pool[pending.index], pending.record.sync(pending.policy)
        if self._records.is_remote:
            sync = self._published(sync)
        place.submit(ask.method, (sync, *ask.arguments), ask.limit)
        if pending.must_end:
            place.request_end()

    def _published(self, sync: Sync) -> Sync:
        """The same, with what is large and goes to all runners packed once."""
        policy = sync.policy
        if policy.weights is None and policy.normalization is None:
            return sync
        weights = self._pool.publish("weights", policy.weights)
        normalization = self._pool.publish("normalization", policy.normalization)
        return replace(sync, policy=replace(policy, weights=weights, normalization=normalization))

    def _end(self, pending: Pending) -> None:
        pending.is_over = True
        del self._in_flight[pending.index]
        self._ended.append(pending)

    # ---- outcomes

    def _take_outcome(self, index: int, outcome: Outcome) -> None:
        pending = self._in_flight[index]
        if not isinstance(outcome, Success):
            self._take_failure(pending, outcome)
        elif pending.is_starting:
            self._take_report(pending, outcome.value)
        else:
            pending.answer = outcome.value
            pending.record.num_excess_failures = max(0, pending.record.num_excess_failures - 1)
            self._end(pending)

    def _take_report(self, pending: Pending, report: RunnerReport) -> None:
        pending.is_starting, pending.report = False, report
        trouble = pending.trouble
        if trouble is not None and trouble.noticed_at is not None:
            pending.repair_s += self._pool.now_s() - trouble.noticed_at
            trouble.noticed_at = None
        with signals_deferred():
            pending.add_losses(*pending.record.take_report(report))
        if pending.ask is None:
            self._end(pending)
        else:
            self._submit(pending, pending.ask)

    def _take_failure(self, pending: Pending, outcome: Failed | Lost) -> None:
        now_s, place = self._pool.now_s(), self._pool[pending.index]
        try:
            delay_s = self._repair.after(pending, outcome, place, now_s=now_s)
        except Exception as error:
            if pending.is_wanted:
                raise
            pending.error, delay_s = error, None
        if delay_s is None:
            self._end(pending)
            return
        pending.is_replaced = True
        if pending.attempt is not None:  # handed back; the runner is made again, for nobody so far
            self._end(pending)
            pending = pending.for_nobody()
            self._in_flight[pending.index] = pending
        pending.is_starting, pending.due_at = True, now_s + delay_s

    # ---- what is in flight

    def request_end(self) -> None:
        """Lets calls in flight that have no end of their own come to one."""
        for index, pending in self._in_flight.items():
            pending.must_end = True
            self._pool[index].request_end()

    def is_stuck(self, index: int, *, for_s: float) -> bool:
        """Whether a runner that owes an answer has made no progress for so long."""
        return self._pool[index].idle_s() >= for_s

    def finish(self) -> None:
        """Waits for what is in flight, as its owner does it."""
        if self.owner is None:
            return
        try:
            self.owner.finish()
        except BaseException:
            self.abandon()
            raise
        self.owner = None

    def abandon(self) -> None:
        """Ends what is in flight, and its owner hears of it."""
        with signals_deferred():
            owner, self.owner = self.owner, None
            self.drop()
            if owner is not None:
                owner.dropped()

    def drop(self) -> None:
        """Ends what is in flight: nothing comes of it, and workers that are at it are killed."""
        # Neither cut short nor, as the end of a context manager might be, put off until later:
        # no worker may go on with a call that is over.
        with signals_deferred():
            in_flight, ended = self._in_flight, self._ended
            self._in_flight, self._ended = {}, []
            self._keep_replaced((*in_flight.values(), *ended))
            self._pool.kill_busy()
            for index, pending in in_flight.items():
                pending.is_over = True
                if pending.is_starting:
                    # A process whose runner was not made could not answer the next call.
                    self._pool[index].kill()
                elif pending.due_at is None:
                    pending.record.sent = None  # it may not have arrived, or not as a whole
                if not pending.is_wanted:
                    pending.record.had_runner = False  # who comes next replaces none that failed

    def _keep_replaced(self, pendings: Collection[Pending]) -> None:
        """Lets the next event tell of runners that were made again for calls that nobody notes."""
        self._replaced |= {one.index for one in pendings if one.is_replaced and one.is_wanted}

    # ---- what came out

    def note(self, pendings: Collection[Pending], *, are_dropped: bool = False) -> float:
        """Notes what repairs of calls that are over have cost, and what new runners report.

        Args:
            pendings: the calls.
            are_dropped: episodes that were given up in them were put back.

        Returns:
            the seconds of the repairs.

        Raises:
            EnvContractError, ConfigError: as of `Agreement.take`.
        """
        repair_s = 0.0
        for pending in pendings:
            if pending.is_replaced:
                has_answered = pending.answer is not None
                (self._recreated if has_answered else self._replaced).add(pending.index)
            self.num_restarts += pending.num_restarts
            repair_s += pending.repair_s
            if not are_dropped:
                self._records.add_losses(pending.num_episodes_lost, pending.num_env_steps_lost)
        reports = {each.index: each.report for each in pendings if each.report is not None}
        if reports:
            self.agreement.take(reports)
        return repair_s

    def fire_recreated(self) -> None:
        """Fires the event that tells which runners were replaced since it was fired last."""
        recreated = self._recreated | {
            index
            for index in self._replaced
            if index not in self._in_flight and self._pool[index].is_running
        }
        self._recreated = set()
        if recreated:
            self._replaced -= recreated
            self._on_recreated(sorted(recreated))

    # ---- processes

    @property
    def local(self) -> EnvRunner | None:
        """The runner of this process; None if there is none, or was none made."""
        handler = None if self._inline is None else self._inline.handler
        return None if handler is None else handler.runner

    @property
    def is_local_busy(self) -> bool:
        """Whether the runner of this process is being made or is at work."""
        return self._inline is not None and self._inline.is_busy

    def _make_pool(self) -> WorkerPool:
        names = [record.name for record in self._records]
        if not self._records.is_remote:
            # The same number of BLAS threads as in a worker process, so that both compute the same
            # bytes.
            engine = InlineEngine(around=single_threaded_blas)
            pool = WorkerPool(names, engine=engine, first=0)
            (self._inline,) = engine.places
            self._deferred = contextlib.nullcontext  # an interrupt leaves no process half way
            return pool
        self._inline, self._deferred = None, signals_deferred
        refuse_while_unpacking("Workers")
        classes = [spec.module_class or RLModule for spec in self.agreement.module_specs.values()]
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
        return self._pool.pids()

    def num_cpu_kinds(self) -> int:
        """How many kinds of CPU there are among the machines of the runners and this one."""
        machines = self._pool.engine.machines() if self._records.is_remote else ()
        return max(1, len(cpu_kinds(machines)))

    def now_s(self) -> float:
        """The clock by which runners are waited for; only differences mean something."""
        return self._pool.now_s()

    def make_anew(self, num_env_runners: int) -> None:
        """Ends all runners; there is room for others, which are made when they are asked."""
        spec = self._records.spec
        self._pool.stop()
        self._records.make_anew(spec, num_env_runners)
        self._recreated, self._replaced = set(), set()
        self._pool = self._make_pool()

    def end_runner(self, index: int) -> None:
        """Ends one runner; another is made when it is asked."""
        if self._records.is_remote:
            self._pool[index].kill()
        else:
            self._pool[index].stop(0.0)

    def cancel(self) -> None:
        """Refuses all calls to come, and ends the wait of another thread for answers."""
        self.is_stopped = True
        if self._records.is_remote:
            self._pool.cancel_waits()

    def stop(self) -> None:
        """Closes all envs and ends all processes. Idempotent; nothing can be asked afterwards."""
        self.is_stopped = True
        self.abandon()
        self._pool.stop(grace_s=min(CLOSING_S, self.limit.seconds or CLOSING_S))
        self._pool.engine.close()

    def kill(self) -> None:
        """Ends all processes at once; like `stop`, but no env is closed."""
        self.is_stopped = True
        self._pool.kill()
        self._pool.engine.close()
