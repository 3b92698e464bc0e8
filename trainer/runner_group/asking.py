"""Asking the runners of a group, one round at a time; and what users ask: functions and tasks.

asking.run(asks)                     a round, carried through
asking.under_way = TicketPlay(…)     or something that goes on while the main process learns
asking.finish(), asking.abandon()    whatever is asked next waits for it, or ends it
"""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from callbacks import PackingError
from callbacks.packing import pack_object
from checkpoints import StateError, encode
from trainer.actors.registry import registry_to_inherit
from trainer.env_runners.mapped_modules import policy_mapping
from trainer.env_runners.messages import RunnerReport, SlotPosition
from trainer.env_runners.policy_mapping import SAME_EVERYWHERE, PolicyMapping
from trainer.env_runners.worker_service import ApplyReply
from trainer.envs.multi_agent_env import EnvAgents
from trainer.errors import (
    AlgorithmStoppedError,
    ConfigError,
    EnvContractError,
    SerializationError,
    TaskError,
)
from trainer.metrics import EpisodeRecord
from trainer.modules import ByModule, ModuleTable, RLModule, RLModuleSpec, TorchRLModule
from trainer.runner_group.crash_files import CrashFiles
from trainer.runner_group.records import RunnerRecords
from trainer.runner_group.rounds import (
    Ask,
    LocalRound,
    OnRecreated,
    RequestRound,
    Round,
    RoundResult,
    wait_for_end,
)
from trainer.runtime.engine import Engine, StallLimit
from trainer.runtime.machine_facts import cpu_kinds
from trainer.runtime.messages import Failed, Lost
from trainer.runtime.restart_policy import RestartPolicy
from trainer.runtime.threads import OneThread
from trainer.runtime.worker_pool import WorkerPool
from trainer.types import State
from trainer_toolkit.plain_classes import to_plain
from trainer_toolkit.trees import copied_if_possible

# ---- asking

CLOSING_S: Final = 2.0
"""Seconds that envs have to be closed in, and that runners have to end what they are at."""
_PRELOADED = ("trainer.env_runners.worker_service", "trainer.runtime.worker")
"""Ours first: it imports the others, and no garbage is looked for meanwhile."""


class UnderWay(Protocol):
    """A round that goes on while the main process does something else."""

    def finish(self) -> None:
        """Waits until it is over; its outcome stays there for who began it."""

    def abandon(self) -> None:
        """Ends it; nothing comes of it."""


class Asking:
    """Asks the runners of one group; owns their processes.

    Attributes:
        module_specs: what the runners' modules are made from; complete once they were made.
        agents: all possible agents of the envs, and their spaces; None for envs of one agent.
        crash_files: where requests that failed are kept.
        limit: how long a runner may go without an env step.
        under_way: what goes on while the main process does something else; None if nothing does.
        num_restarts: runners that were replaced after failures so far.
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
        """Prepares workers for remote runners; rounds start them.

        `on_recreated` is called after a request with the numbers of the runners that were replaced.
        Without an engine, runners are processes of this machine.
        """
        self._one_thread = one_thread or OneThread()
        self.module_specs: ByModule[RLModuleSpec] = records.spec.module_specs
        self.agents: EnvAgents | None = None
        self.crash_files = crash_files
        is_evaluation = records.spec.in_evaluation
        setting = "evaluation_sample_timeout_s" if is_evaluation else "sample_timeout_s"
        self.limit = StallLimit(restart_policy.stall_limit_s, setting)
        self.under_way: UnderWay | None = None
        self.num_restarts = 0
        self._records = records
        self._restart_policy = restart_policy
        self._start_limit = StallLimit(
            restart_policy.start_limit_s,
            "env_runner_restore_timeout_s",
            at_work=None if restart_policy.stall_limit_s is None else self.limit,
        )
        self._engine = engine
        self._on_recreated = on_recreated
        self._recreated: list[int] = []
        self._is_logged = False  # who the agents are
        self._mapping: tuple[ModuleTable, PolicyMapping] | None = None
        self._is_stopped = False
        self._pool = self._make_pool()

    # ---- rounds

    def run(self, asks: Mapping[int, Ask | None]) -> RoundResult:
        """Carries a round through; runners that were given up are left out."""
        with self.alone():
            round_ = self.new_round()
            by_index = self._records.by_index
            result = round_.run(
                {index: ask for index, ask in asks.items() if not by_index[index].is_given_up}
            )
            self.take_over(result)
            return result

    def alone(self) -> AbstractContextManager[None]:
        """Surrounds what changes or copies what runners hold; a TrainerError as of `new_round`."""
        return self._one_thread.alone("A method of the env runners")

    def new_round(self) -> Round:
        """A round for what is asked next; what is under way is finished first.

        Raises:
            AlgorithmStoppedError: the runners are gone.
            TrainerError: another thread asks them, or trains.
        """
        self._one_thread.refuse_others("A method of the env runners")
        if self._is_stopped:
            raise AlgorithmStoppedError(
                "The env runners were asked after stop(): they are gone. Build a new algorithm, "
                "or restore one with from_checkpoint()."
            )
        self.finish()
        by_index = self._records.by_index
        if self._pool is None:
            return LocalRound(by_index, policy=self._records.policy, crash_files=self.crash_files)
        return RequestRound(
            self._pool,
            by_index,
            policy=self._records.policy,
            restart_policy=self._restart_policy,
            start_limit=self._start_limit,
            crash_files=self.crash_files,
        )

    def take_over(self, result: RoundResult) -> None:
        """Notes what came out of a round."""
        self.num_restarts += result.num_restarts
        self._records.add_losses(result.num_episodes_lost, result.num_env_steps_lost)
        self._recreated += result.recreated
        if result.reports:
            self._check_agents(result.reports)
            self.module_specs = result.reports[min(result.reports)].module_specs
            self._check_mappings(result.reports)

    def _check_agents(self, reports: Mapping[int, RunnerReport]) -> None:
        """Raises an EnvContractError unless all runners' envs have the same agents."""
        name, first = self._records.spec.env_factory.name, "the other env runners"
        if not self._is_logged:
            first = f"env runner {min(reports)}"
            self.agents, self._is_logged = reports[min(reports)].agents, True
        for index, report in sorted(reports.items()):
            ours, theirs = self.agents, report.agents
            if ours is None and theirs is None:
                continue
            if ours is None or theirs is None:
                several, one = (first, f"env runner {index}")[:: 1 if theirs is None else -1]
                raise EnvContractError(
                    f"Env {name!r} has several agents in {several}, and a single one in {one}. All "
                    "envs of a run have the same agents, in every process. Make the same env "
                    "whatever `worker_index` is."
                )
            ours.check_same(
                theirs, first=f"Env {name!r} in {first}", second=f"the one in env runner {index}"
            )

    def _check_mappings(self, reports: Mapping[int, RunnerReport]) -> None:
        """Raises a ConfigError unless `policy_mapping_fn` answers alike in all processes."""
        mapping = self._mapping_here()
        if mapping is None:
            return
        for index, report in sorted(reports.items()):
            mapping.check_same(
                report.mapping_answers, where=f"env runner {index}", here="the main process"
            )

    def check_fingerprint(self, index: int, fingerprint: str) -> None:
        """Raises a ConfigError if a runner that played maps agents otherwise than this process."""
        mapping = self._mapping_here()
        if mapping is not None and mapping.fingerprint != fingerprint:
            raise ConfigError(
                f"policy_mapping_fn gives other answers in env runner {index} than in the main "
                f"process. {SAME_EVERYWHERE}"
            )

    def _mapping_here(self) -> PolicyMapping | None:
        """The mapping as the main process has it; None for one agent, or without processes."""
        if self.agents is None or not self._records.is_remote:
            return None
        spec, table = self._records.spec, self._records.table
        if self._mapping is None or self._mapping[0] is not table:
            made = policy_mapping(table, self.agents, root_seed=spec.root_seed, role=spec.role)
            self._mapping = table, made
        return self._mapping[1]

    def take_specs(self, specs: ByModule[RLModuleSpec]) -> None:
        """Notes which modules runners have from the next request on."""
        are_small = self.takes_inference_only
        self.module_specs = specs.map(lambda spec: replace(spec, inference_only=are_small))

    @property
    def takes_inference_only(self) -> bool:
        """Whether runners have only those parts of modules that acting needs."""
        return next(iter(self.module_specs.values())).inference_only

    def fire_recreated(self) -> None:
        """Tells which runners were replaced since this was last called."""
        recreated, self._recreated = sorted(set(self._recreated)), []
        if recreated:
            self._on_recreated(recreated)

    def bring_up_to_date(self, indices: Collection[int]) -> dict[int, ApplyReply]:
        """Lets runners hold at once what they are to hold: weights, normalisation, positions."""
        ask = Ask("apply", ("ping", {}), is_repeatable=False, limit=self.limit)
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
        names = [record.name for record in self._records]
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
            self._records.by_index[index].stop_runner()

    def cancel(self) -> None:
        """Refuses all calls to come, and ends the wait of another thread for answers."""
        self._is_stopped = True
        if self._pool is not None:
            self._pool.cancel_waits()

    def stop(self) -> None:
        """Closes all envs and ends all processes. Idempotent; nothing can be asked afterwards."""
        self._is_stopped = True
        self.abandon()
        if self._pool is not None:
            self._pool.stop(grace_s=min(CLOSING_S, self.limit.seconds or CLOSING_S))
            self._pool.engine.close()
        self._records.stop_runners()

    def kill(self) -> None:
        """Ends all processes at once; like `stop`, but no env is closed."""
        self._is_stopped = True
        if self._pool is not None:
            self._pool.kill()
            self._pool.engine.close()


# ---- user calls
#
# The user's own code in env runners: functions called where the runners live, at once or later.

_LOGGER = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 0.5

OnMetrics = Callable[[list[Any]], None]
"""Told what users' functions logged in the runners, in the order of the runners."""

Function = Callable[..., Any] | str | Sequence[Callable[..., Any]]
"""What runners are to call: a function, a method's name, or one function for each runner."""


class UserCalls:
    """Calls of users' functions in a group's runners, and what they leave behind.

    Attributes:
        num_recorded: episodes that the functions let evaluation runners play to the end, since the
            evaluation began.
    """

    def __init__(self, records: RunnerRecords, asking: Asking, on_metrics: OnMetrics) -> None:
        self.num_recorded = 0
        self._records = records
        self._asking = asking
        self._on_metrics = on_metrics
        # Episodes that evaluation runners were let play, until they are taken.
        self._episodes: list[EpisodeRecord] = []
        # Answers that were not fetched yet, and calls that raised.
        self._ready: list[tuple[int, Any]] = []
        self._failed = RoundResult()

    def begin_evaluation(self) -> None:
        """Forgets the episodes of the last evaluation."""
        self.take_episodes()
        self.num_recorded = 0

    def take_episodes(self) -> list[EpisodeRecord]:
        """The episodes that functions let evaluation runners play; see `take_records`."""
        local = self._records.by_index.get(0)
        if local is not None and local.runner is not None and local.runner.has_played:
            self.run("ping", list(self._records.by_index))  # fetches what it has played
        episodes, self._episodes = self._episodes, []
        return episodes

    # ---- calls that are waited for

    def run(
        self,
        func: Function,
        indices: Sequence[int],
        *,
        kwargs: Mapping[str, Any] | None = None,
        doing: str = "ran the function given to foreach_env_runner()",
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Calls a function in some runners and waits for all answers.

        A runner may go for `timeout_s` without an env step; None is for ever. `doing` says what the
        runners do, for messages.
        """
        result = self._asking.run(asks_for(func, kwargs, indices, stall_limit_s=timeout_s))
        self.commit(result.answers)
        self._asking.fire_recreated()
        _warn_of_timeouts(result.failures, timeout_s)
        result.raise_first_failure(doing=doing)
        return [
            result.answers[index].value if index in result.answers else None for index in indices
        ]

    def commit(self, answers: Mapping[int, ApplyReply]) -> None:
        """Takes over what users' functions changed, and reports what they logged."""
        metrics = []
        for index, reply in sorted(answers.items()):
            record = self._records.by_index[index]
            record.commit(reply.positions or record.positions, reply.callbacks)
            self._episodes += reply.records
            self.num_recorded += len(reply.records)
            if reply.metrics:
                metrics.append(reply.metrics)
        if metrics:
            self._on_metrics(metrics)

    def chosen(
        self, *, local_env_runner: bool, remote_worker_ids: Sequence[int] | None
    ) -> list[int]:
        """The numbers of the runners that a user means; a ConfigError if one does not exist."""
        is_remote = self._records.is_remote
        remote = list(self._records.by_index) if is_remote else []
        local = [0] if not is_remote and local_env_runner else []
        if remote_worker_ids is None:
            return local + remote
        unknown = sorted(set(remote_worker_ids) - set(remote))
        if unknown:
            there_are = f"there are 1 … {len(remote)}" if remote else "all runs in the main process"
            raise ConfigError(
                f"remote_worker_ids={list(remote_worker_ids)}: there is no {unknown}; {there_are}."
            )
        return local + list(remote_worker_ids)

    # ---- calls that are not waited for

    @property
    def under_way(self) -> AsyncCalls | None:
        """The calls without an answer so far."""
        under_way = self._asking.under_way
        return under_way if isinstance(under_way, AsyncCalls) else None

    def finish(self) -> None:
        """Waits for all calls."""
        if self.under_way is not None:
            self._asking.finish()

    def abandon(self) -> None:
        """Ends all calls; nothing comes of them."""
        if self.under_way is not None:
            self._asking.abandon()

    def begin(
        self,
        func: Function,
        indices: Sequence[int],
        *,
        kwargs: Mapping[str, Any] | None = None,
        keeps_answers: bool = True,
    ) -> int:
        """Lets runners call a function, and waits for none of them; how many took the call.

        Answers that are not kept (`keeps_answers`) are dropped.
        """
        asks = asks_for(func, kwargs, indices)
        for ask in asks.values() if self._records.is_remote else ():
            _require_that_it_travels(
                ask.arguments, name="the arguments of a call", undone="No env runner was asked"
            )
        self._advance(0.0)
        if not keeps_answers and self.under_way is not None and self.under_way.is_busy(asks):
            self._asking.finish()  # else the message that a runner had no time is lost
        calls = self.under_way
        if calls is None:
            calls = AsyncCalls(self._asking.new_round(), self._take_ready, self._end)
            self._asking.under_way = calls
        healthy = self._records.healthy()
        wanted = {index: ask for index, ask in asks.items() if index in healthy}
        return calls.ask(wanted, keeps_answers=keeps_answers)

    def fetch(self, timeout_s: float | None) -> list[tuple[int, Any]]:
        """The answers that came in and were not fetched; waits for all, or for `timeout_s`."""
        until = self._asking.now_s() + (math.inf if timeout_s is None else timeout_s)
        while not self._advance(min(_LOOK_EVERY_S, max(0.0, until - self._asking.now_s()))):
            if self._asking.now_s() >= until:
                break
        self._asking.fire_recreated()
        failed, self._failed = self._failed, RoundResult()
        failed.raise_first_failure(doing="ran the function given to foreach_env_runner_async()")
        ready, self._ready = self._ready, []
        return ready

    def _advance(self, timeout_s: float) -> bool:
        """Takes what has come in; whether no call is under way."""
        calls = self.under_way
        if calls is None:
            return True
        try:
            is_over = calls.advance(timeout_s)
        except BaseException:
            self._asking.abandon()
            raise
        if is_over:
            self._asking.under_way = None
        return is_over

    def _take_ready(
        self, answers: Mapping[int, ApplyReply], to_be_fetched: Collection[int]
    ) -> None:
        self.commit(answers)
        self._ready += [
            (index, reply.value) for index, reply in answers.items() if index in to_be_fetched
        ]

    def _end(self, result: RoundResult, to_be_fetched: Collection[int]) -> None:
        self._asking.take_over(result)
        for index, outcome in sorted(result.failures.items()):
            if index in to_be_fetched:
                self._failed.failures.setdefault(index, outcome)
            else:
                _LOGGER.warning(
                    "Env runner %d %s in a function called without waiting.",
                    index,
                    outcome.describe(),
                )


def asks_for(
    func: Function,
    kwargs: Mapping[str, Any] | None,
    indices: Sequence[int],
    *,
    stall_limit_s: float | None = None,
) -> dict[int, Ask]:
    """The calls of a user's function in some runners.

    Raises:
        ConfigError: a list of functions has another length.
    """
    functions = [func] * len(indices) if callable(func) or isinstance(func, str) else list(func)
    if len(functions) != len(indices):
        raise ConfigError(
            f"foreach_env_runner() got {len(functions)} functions for {len(indices)} env "
            f"runners {list(indices)}; expected one for each, or one for all."
        )
    return {
        index: Ask(
            "apply",
            (function, dict(kwargs or {})),
            is_repeatable=False,
            limit=StallLimit(stall_limit_s, "timeout_seconds"),
        )
        for index, function in zip(indices, functions, strict=True)
    }


@dataclass(frozen=True)
class WithNumber:
    """Calls the user's function with the runner's number in front."""

    function: Callable[[int, Any], Any]
    number: int

    def __call__(self, env_runner: Any) -> Any:
        """What the function gives."""
        return self.function(self.number, env_runner)


@dataclass(frozen=True)
class OfEnvs:
    """Calls the user's function with each sub-env of a runner."""

    function: Callable[..., Any]
    with_context: bool

    def __call__(self, env_runner: Any) -> Any:
        """What the function gives, a list."""
        if self.with_context:
            return env_runner.foreach_env_with_context(self.function)
        return env_runner.foreach_env(self.function)


def _warn_of_timeouts(failures: dict[int, Failed | Lost], limit_s: float | None) -> None:
    """Leaves out who did not answer in time, and says so."""
    for index, outcome in list(failures.items()):
        if isinstance(outcome, Lost) and outcome.stalled_s is not None:
            del failures[index]
            _LOGGER.warning(
                "Env runner %d did not answer foreach_env_runner() within timeout_seconds=%s; "
                "it is replaced, and its result is None.",
                index,
                limit_s,
            )


def _require_that_it_travels(thing: Any, *, name: str, undone: str) -> None:
    """Refuses what cannot be sent before it is: a failing call ends all others under way."""
    try:
        pack_object(thing, name=name)
    except PackingError as error:
        raise SerializationError(f"{undone}: {error}") from error


# ---- calls under way

OnAnswers = Callable[[Mapping[int, Any], Collection[int]], None]
"""Told the answers by runner number, as they come in, and which of them will be fetched."""


class AsyncCalls:
    """One call at most under way per runner; what comes in is kept until it is fetched."""

    def __init__(
        self,
        round_: Round,
        on_answers: OnAnswers,
        on_over: Callable[[RoundResult, Collection[int]], None],
    ) -> None:
        """Begins without a call.

        `on_over` is told what came out of the round, once all answers are in, and whose last answer
        will be fetched.
        """
        self._round = round_
        self._on_answers = on_answers
        self._on_over = on_over
        self._under_way: set[int] = set()
        self._to_be_fetched: set[int] = set()
        self._is_over = False
        round_.begin({})

    @property
    def num_under_way(self) -> int:
        """Calls without an answer so far."""
        return len(self._under_way)

    def is_busy(self, indices: Collection[int]) -> bool:
        """Whether one of these runners has a call under way."""
        return not self._under_way.isdisjoint(indices)

    def ask(self, asks: Mapping[int, Ask], *, keeps_answers: bool) -> int:
        """Makes calls in those runners that have none under way.

        Returns:
            how many were made.
        """
        accepted = [index for index in asks if index not in self._under_way]
        for index in accepted:
            self._under_way.add(index)
            (self._to_be_fetched.add if keeps_answers else self._to_be_fetched.discard)(index)
            self._round.ask(index, asks[index])
        return len(accepted)

    def advance(self, timeout_s: float) -> bool:
        """Takes the answers that are there.

        Returns:
            whether no call is under way any more.
        """
        if self._is_over:
            return True
        is_idle = self._round.advance(timeout_s)
        answers = self._round.take_answers()
        self._under_way -= answers.keys()
        self._on_answers(answers, self._to_be_fetched)
        if is_idle:
            self._under_way.clear()  # who was given up will not answer
            self._is_over = True
            self._on_over(self._round.end(), self._to_be_fetched)
        return is_idle

    def finish(self) -> None:
        """Waits until no call is under way; an interrupt ends them."""
        wait_for_end(self, look_every_s=_LOOK_EVERY_S)

    def abandon(self) -> None:
        """Kills workers still busy."""
        self._is_over = True
        self._under_way.clear()
        self._round.abandon()


# ---- tasks
#
# The tasks of a group's envs: set from the main process, by number of the env slot. A task is a
# part of a slot's position. To set one changes the position at once, in the main process; the
# runner is told with the next thing that it is asked, and a replacement starts from there.


class EnvTasks:
    """The tasks of a group's envs: parts of the slots' positions."""

    def __init__(self, records: RunnerRecords) -> None:
        self._records = records

    def set(self, tasks: Sequence[Any]) -> None:
        """Gives each sub-env its task; see `EnvRunnerGroup.set_tasks`."""
        num_slots = self._records.num_slots
        if len(tasks) != num_slots:
            raise ConfigError(
                f"set_tasks() got {len(tasks)} tasks for {num_slots} sub-envs of "
                f"{len(self._records.by_index)} env runner(s). Give one for each, or one for all "
                "with set_task(task)."
            )
        self.require("set_task()")
        for task in tasks if self._records.is_remote else ():
            undone = f"The task {task!r:.80} was not set"
            _require_that_it_travels(task, name="the task", undone=undone)
        for record in self._records:
            first = record.spec.first_slot
            for index, task in enumerate(tasks[first : first + record.spec.num_envs]):
                record.set_task(index, copy.deepcopy(task))

    def get(self) -> list[Any]:
        return [
            copied_if_possible(position.tasks[-1].task) if position.tasks else None
            for position in self._records.positions()
        ]

    def positions(self) -> list[State]:
        """The tasks as slots of a state without running episodes; empty if there are none."""
        return [
            to_plain(SlotPosition(tasks=position.task_now))
            for position in self._records.positions()
            if position.tasks
        ]

    def require(self, what_for: str) -> None:
        """Raises a TaskError that says what they lack unless the envs can be given tasks."""
        for record in self._records:
            if record.why_no_tasks:
                raise TaskError(
                    f"{what_for} needs an env that can be given tasks, and "
                    f"{record.spec.env_factory.name!r} cannot: {record.why_no_tasks}. Give the "
                    "env, or a wrapper around it, set_task(task) and get_task(); "
                    "`trainer.TaskSettableEnv` shows how."
                )

    def check_can_be_saved(self) -> None:
        """Raises a StateError that names env and task unless all tasks are plain data."""
        for record in self._records:
            for index, position in enumerate(record.positions):
                where = f"sub-env {index} of {record.spec.title}"
                _check_plain([entry.task for entry in position.tasks], where)


def _check_plain(tasks: Sequence[Any], where: str) -> None:
    for task in tasks:
        try:
            encode({"task": task})
        except StateError as error:
            raise StateError(
                f"The task {task!r:.80} of {where} cannot be saved: {error}. Tasks are part of a "
                "checkpoint, so they must be plain data: numbers, texts, lists, dicts, arrays. Let "
                "get_task() and set_task() speak of such data, for example of a name or a number "
                "that stands for the task."
            ) from error
