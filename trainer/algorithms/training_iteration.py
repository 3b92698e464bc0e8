"""One training iteration: sampling and learning, evaluation when due, and the result.

With what looks at a sample on the way: callbacks that see batches, and the exploration strategy.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import numpy as np

from callbacks import CallbackChain
from callbacks.chain import ResultPhases
from checkpoints import check_shape
from trainer.algorithms.time_split import CALLBACKS, TimeBetween, split_of
from trainer.config import AlgorithmConfig
from trainer.connectors import before_decoding
from trainer.env_runners.messages import PlayCounts, added_by_id
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.conversion import with_rewards
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS
from trainer.errors import TrainerError
from trainer.evaluation.evaluations import EvaluatedAlgorithm, Evaluations
from trainer.exploration import Exploration, ExplorationSpec, ExploredChunk, ExploredSample
from trainer.learners import BatchListener, Blame, Learner, TrainBatch
from trainer.learners.learning_checks import (
    OF_RUN,
    SECTION,
    LearningWatch,
    Situation,
    signs_of,
)
from trainer.metrics import EpisodeStatistics, ResultDict
from trainer.metrics.result import HiddenMetrics, overlaid
from trainer.modules import RLModule
from trainer.modules.actor_critic import ActorCriticModule
from trainer.modules.recurrent_module import RecurrentModule
from trainer.runner_group import EnvRunnerGroup
from trainer.types import DEFAULT_AGENT_ID, AgentId, Array, ModuleId, State
from trainer_toolkit import checks
from trainer_toolkit.trees import same

# ---- counters
#
# The counts of a run. They are kept in the main process alone, and advanced from committed
# answers alone.

_LOGGER = logging.getLogger(__name__)

_PLAIN: Final = (
    "training_iteration",
    "num_training_steps",
    "num_actions_computed",
    "num_rows_owed",
)


@dataclass(frozen=True)
class UpdateCounts:
    """What updates were made from: in an iteration, or in a run.

    Attributes:
        num_env_steps: env steps.
        num_agent_steps: actions of agents.
        num_rows: rows of all minibatches, by module.
    """

    num_env_steps: int = 0
    num_agent_steps: int = 0
    num_rows: Mapping[ModuleId, int] = field(default_factory=dict)

    def __add__(self, more: UpdateCounts) -> UpdateCounts:
        return UpdateCounts(
            self.num_env_steps + more.num_env_steps,
            self.num_agent_steps + more.num_agent_steps,
            added_by_id(self.num_rows, more.num_rows),
        )


def _problems_of_counts(value: Any, place: str) -> Iterator[str]:
    """The problems of counts by id; ids of agents may be ints."""
    by_text = value
    if type(value) is dict:
        by_text = {str(id_): steps for id_, steps in value.items()}
    yield from checks.dict_of(checks.COUNT)(by_text, place)


_COUNTS_BY_ID: Final = checks.by_place("counts by id", _problems_of_counts)


@dataclass
class Counters:
    """Lifetime counts of one run.

    Attributes:
        training_iteration: results of `train()`.
        num_training_steps: calls of `training_step()`.
        num_actions_computed: actions drawn by `compute_single_action`: where its random numbers
            stand.
        num_rows_owed: rows that sampled steps have paid for and no update has used yet
            (`training_intensity`), below one batch.
        played: what reached the learner; of seconds, and of what happened to agents, that since the
            last restore.
        trained: what updates were made from; by agent and module with several of them only.
    """

    module_ids: InitVar[Collection[ModuleId]]
    training_iteration: int = 0
    num_training_steps: int = 0
    num_actions_computed: int = 0
    num_rows_owed: float = 0.0
    played: PlayCounts = field(default_factory=PlayCounts)
    trained: UpdateCounts = field(default_factory=UpdateCounts)

    def __post_init__(self, module_ids: Collection[ModuleId]) -> None:
        self.take_modules(module_ids)

    def take_modules(self, module_ids: Collection[ModuleId]) -> None:
        """Counts for these modules from now on; what others did stays counted."""
        self._module_ids = tuple(module_ids)

    @property
    def num_env_steps_sampled(self) -> int:
        """Env steps that reached the learner."""
        return self.played.num_env_steps

    def get_state(self) -> State:
        """All counts by name; without steps by agent and module that follow from the env steps."""
        played, trained = self.played, self.trained
        steps = (dict(played.num_agent_steps), dict(played.num_module_steps))
        state: State = {
            "training_iteration": self.training_iteration,
            "num_training_steps": self.num_training_steps,
            "num_env_steps_sampled": played.num_env_steps,
            "num_env_steps_trained": trained.num_env_steps,
            "num_episodes": played.num_episodes,
            "num_episodes_lost": played.num_episodes_lost,
            "num_env_steps_lost": played.num_env_steps_lost,
            "num_actions_computed": self.num_actions_computed,
            "num_rows_owed": self.num_rows_owed,
        }
        if steps != self._steps_of_one_agent(played.num_env_steps):
            state |= {"num_agent_steps_sampled": steps[0], "num_module_steps_sampled": steps[1]}
        if trained.num_agent_steps or trained.num_rows:
            state |= {
                "num_agent_steps_trained": trained.num_agent_steps,
                "num_module_steps_trained": dict(trained.num_rows),
            }
        return state

    def _steps_of_one_agent(self, steps: int) -> tuple[dict[AgentId, int], dict[ModuleId, int]]:
        """The steps by agent and by module where a single agent acts in every env step."""
        if len(self._module_ids) > 1 or not steps:
            return {}, {}
        return {DEFAULT_AGENT_ID: steps}, dict.fromkeys(self._module_ids, steps)

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it; changes nothing."""
        optional = {
            "num_agent_steps_sampled": _COUNTS_BY_ID,
            "num_module_steps_sampled": _COUNTS_BY_ID,
            "num_agent_steps_trained": checks.COUNT,
            "num_module_steps_trained": checks.dict_of(checks.COUNT),
        }
        whole = dict.fromkeys(self.get_state().keys() - optional.keys(), checks.COUNT)
        check_shape(
            state, checks.fields({**whole, "num_rows_owed": checks.ANY_NUMBER}, optional=optional)
        )

    def set_state(self, state: State) -> None:
        for name in _PLAIN:
            setattr(self, name, state[name])
        num_env_steps = state["num_env_steps_sampled"]
        of_agents, of_modules = self._steps_of_one_agent(num_env_steps)
        self.played = PlayCounts(
            num_env_steps=num_env_steps,
            num_episodes=state["num_episodes"],
            num_episodes_lost=state["num_episodes_lost"],
            num_env_steps_lost=state["num_env_steps_lost"],
            num_agent_steps=dict(state.get("num_agent_steps_sampled", of_agents)),
            num_module_steps=dict(state.get("num_module_steps_sampled", of_modules)),
        )
        self.trained = UpdateCounts(
            state["num_env_steps_trained"],
            state.get("num_agent_steps_trained", 0),
            dict(state.get("num_module_steps_trained", {})),
        )


# ---- training iteration

AfterResult = Callable[[ResultDict], object]


class _Algorithm(EvaluatedAlgorithm, Protocol):
    """What an iteration needs of the algorithm, besides what evaluations do."""

    @property
    def counters(self) -> Counters: ...
    @property
    def episode_statistics(self) -> EpisodeStatistics: ...
    @property
    def learners(self) -> Mapping[ModuleId, Learner]: ...
    def is_trained(self, module_id: ModuleId) -> bool: ...
    def config_for(self, module_id: ModuleId) -> AlgorithmConfig: ...
    def step(self) -> ResultDict: ...
    def training_step(self) -> None: ...
    def apply_normalization(self) -> None: ...
    def add_to_result(self, result: IterationResult) -> None: ...


class TrainingIterations:
    """Makes the iterations of one algorithm, one at a time.

    Attributes:
        is_under_way: `train()` makes one now.
        is_in_training_step: runners play or modules learn now.
        clock: wall-clock time of the run.
        between: what happened since the last result was put together.
    """

    def __init__(self, algorithm: _Algorithm, evaluations: Evaluations) -> None:
        """Begins before the first iteration; evaluations are begun and ended within iterations."""
        self.is_under_way = self.is_in_training_step = False
        self._result: IterationResult | None = None
        self.clock = RunClock()
        self.between = TimeBetween()
        self._algorithm = algorithm
        self._evaluations = evaluations
        self._after_result: ResultPhases | None = None
        self._hidden = HiddenMetrics()
        self._has_warned_of_agents = False
        self._watch = LearningWatch()

    @property
    def result(self) -> IterationResult:
        """What the iteration under way adds up to."""
        if not self.is_under_way or self._result is None:
            raise TrainerError(
                f"A part of {type(self._algorithm).__name__}.train() was called by itself "
                "(training_step(), sample_env_steps() or learn_from_sample()): there is no "
                "iteration that it belongs to. Call train(); to do something else in an "
                "iteration, override training_step()."
            )
        return self._result

    def refuse_nested(self) -> None:
        """Raises a TrainerError if a callback calls `train()` while it runs."""
        if self.is_under_way:
            raise TrainerError(
                "train() was called by a callback while train() runs; an iteration cannot be a "
                "part of another one. Leave a note in the callback, and call it in your own loop."
            )

    def make(self) -> ResultDict:
        """Makes one iteration; its caller undoes it if it raises."""
        self.note(is_under_way=True)
        before = self._algorithm.counters.training_iteration
        result = self._checked(self._algorithm.step(), before)
        self._set_tasks(result)
        self._fire_result(result)
        self.note(is_under_way=False)
        return result

    def _checked(self, result: Any, iteration_before: int) -> ResultDict:
        """What `step()` returned, if a subclass left a whole iteration in it."""
        name, iteration = (
            type(self._algorithm).__name__,
            self._algorithm.counters.training_iteration,
        )
        if iteration != iteration_before + 1:
            raise TrainerError(
                f"{name}.step() made {iteration - iteration_before} iterations; expected one. Call "
                "super().step() once in it; what is sampled and learnt is changed in "
                "training_step(). Restore other states in on_train_result, not while it runs."
            )
        if not isinstance(result, Mapping):
            raise TrainerError(
                f"{name}.step() returned {result!r:.80}; expected the result. Write `result = "
                "super().step()`, add to it, and `return result`."
            )
        return result if isinstance(result, ResultDict) else ResultDict(result)

    def note(self, *, is_under_way: bool) -> None:
        """Notes whether an iteration is under way, here and in the group."""
        self.is_under_way = self._algorithm.env_runner_group.is_training = is_under_way

    def step(self) -> ResultDict:
        """Makes the middle of an iteration; see `Algorithm.step`."""
        if not self.is_under_way:
            raise TrainerError(
                f"{type(self._algorithm).__name__}.step() was called by itself. It is a part of an "
                "iteration, which train() completes, and undoes if it fails. Call train()."
            )
        algorithm, evaluations, config = self._algorithm, self._evaluations, self._algorithm.config
        counters, started_at = algorithm.counters, time.monotonic()
        result = self._result = IterationResult(
            counters, algorithm.env_runner_group.module_specs.ids, has_several=self._has_several()
        )
        algorithm.episode_statistics.begin_iteration()
        is_due = evaluations.is_due(counters.training_iteration + 1)
        if evaluations.is_interrupted or (is_due and config.evaluation_parallel_to_training):
            with result.time("evaluation_iteration"):
                evaluations.begin_iteration(is_due=is_due)
        has_done_enough = _limits_of(algorithm)
        while not has_done_enough(result, time.monotonic() - started_at):
            self._make_training_step()
            result.num_training_steps += 1
            counters.num_training_steps += 1
        counters.training_iteration += 1
        if is_due or evaluations.running is not None:
            with result.time("evaluation_iteration"):
                evaluations.end_iteration(is_due=is_due)
        return self._compile(result, time.monotonic() - started_at)

    def _make_training_step(self) -> None:
        self.is_in_training_step = True
        try:
            self._algorithm.training_step()
            self._algorithm.apply_normalization()
            self._evaluations.look_after()
        finally:
            self.is_in_training_step = False

    def _set_tasks(self, result: ResultDict) -> None:
        """Lets `env_task_fn` choose the task of each training env."""
        function = self._algorithm.config.env_task_fn
        if function is not None:
            results = ResultDict({key: value for key, value in result.items() if key != "config"})
            self._algorithm.env_runner_group.set_tasks_by(function, results, name="env_task_fn")

    def _fire_result(self, result: ResultDict) -> None:
        """Fires `on_train_result`, then calls those who wait for the complete result."""
        algorithm, metrics = self._algorithm, self._algorithm.metrics
        peeked = metrics.peek()
        waiting = self._after_result = ResultPhases()
        try:
            with self.between.spent_on(CALLBACKS):
                algorithm.callbacks.fire(
                    "on_train_result", algorithm=algorithm, metrics_logger=metrics, result=result
                )
            self._hidden.warn(metrics.peek(), result, but=peeked)
            merge_late_values(result, before=peeked, after=metrics.compile())
            self._hidden.warn_of_one_path(result)
            waiting.run(result)
        finally:
            self._after_result = None

    def after_result(self, function: AfterResult, phase: str | None) -> None:
        if self._after_result is None:
            raise TrainerError(
                "after_train_result() was called while no on_train_result runs; no result is on "
                "its way. Call it in on_train_result, or just call the function."
            )
        if not callable(function):
            raise TrainerError(
                f"after_train_result() got {function!r}; expected a function that takes the "
                "result. Give the function itself, without calling it: "
                "`algorithm.after_train_result(save)`."
            )
        try:
            self._after_result.add(function, phase)
        except ValueError as error:
            raise TrainerError(
                f"after_train_result({function!r:.80}, phase={phase!r}): {error}."
            ) from error

    def _compile(self, result: IterationResult, elapsed_s: float) -> ResultDict:
        algorithm = self._algorithm
        self.clock.add(elapsed_s)
        result.add_group(algorithm.env_runner_group)
        self._warn_of_agents(result)
        algorithm.add_to_result(result)
        standard = result.compile(
            episodes=algorithm.episode_statistics.result(),
            evaluation=self._evaluations.to_show(),
            modules=self._modules(),
            clock=self.clock,
            elapsed_s=elapsed_s,
            since=self.between.take(),
        )
        self._look_at_learning(standard)
        logged = algorithm.metrics.peek()
        for id_, learner in algorithm.learners.items():
            if of_users := learner.logged():
                logged = overlaid(logged, {"learners": {id_: of_users}})
        self._hidden.warn(logged, standard)
        shown = ResultDict(overlaid(logged, standard))
        shown["config"] = dict(algorithm.config.items())
        return shown

    def _look_at_learning(self, standard: dict[str, Any]) -> None:
        """Adds the signs that learning goes wrong, and logs what is found from them."""
        modules = [id_ for id_ in self._algorithm.learners if self._algorithm.is_trained(id_)]
        looked = {}
        if modules:
            looked[OF_RUN] = signs_of(self._situation(modules[0], standard), of_run=True)
        looked |= {id_: signs_of(self._situation(id_, standard)) for id_ in modules}
        if signs := {id_: found for id_, found in looked.items() if found}:
            standard[SECTION] = signs
        for finding in self._watch.take(standard):
            _LOGGER.warning("Check of learning: %s Said once.", finding)

    def _situation(self, module_id: ModuleId, standard: Mapping[str, Any]) -> Situation:
        algorithm = self._algorithm
        learner, config = algorithm.learners[module_id], algorithm.config_for(module_id)
        module = learner.module
        emitted = before_decoding(module.action_space, normalize_actions=config.normalize_actions)
        return Situation(
            metrics=standard["learners"].get(module_id, {}),
            env_runners=standard["env_runners"],
            num_updates=learner.num_updates,
            num_env_slots=algorithm.config.num_env_slots,
            setting=config.get,
            action_space=emitted if module.action_masks is None else None,
            shares_layers=_may_share_layers(module),
        )

    def _has_several(self) -> bool:
        """Whether there are several agents or modules."""
        algorithm = self._algorithm
        return algorithm.env_runner_group.agent_ids is not None or len(algorithm.learners) > 1

    def _modules(self) -> dict[ModuleId, Mapping[str, Any]]:
        """How each module is, where there are several agents or modules."""
        algorithm = self._algorithm
        if not self._has_several():
            return {}
        return {
            id_: {
                "is_trained": algorithm.is_trained(id_),
                "num_updates_lifetime": learner.num_updates,
            }
            for id_, learner in algorithm.learners.items()
        }

    def _warn_of_agents(self, result: IterationResult) -> None:
        """Warns, once in a run, of agents that a limit ended without a last observation."""
        number = result.played.agent_counts.get("num_truncations_without_observation", 0)
        if number and not self._has_warned_of_agents:
            self._has_warned_of_agents = True
            _LOGGER.warning(
                "Env %r: %d agent(s) were truncated without a last observation. What they would "
                "still have earned is taken from their last own observation, which may be old. Let "
                "the env give an observation to every agent that it truncates. Said once; the "
                "result counts them as num_truncations_without_observation.",
                self._algorithm.env_runner_group.env_name,
                number,
            )


def _may_share_layers(module: RLModule) -> bool:
    """Whether policy and value function read the same layers; of users' networks nobody knows."""
    is_ready_made = isinstance(module, ActorCriticModule | RecurrentModule)
    return not is_ready_made or any(
        name.startswith("encoder/") for name in module.parameters.shapes
    )


def _limits_of(algorithm: _Algorithm) -> Callable[[IterationResult, float], bool]:
    """Says whether an iteration has done enough, from its numbers so far and its seconds.

    The settings are read once: an iteration of short rounds has hundreds of training steps.
    """
    config = algorithm.config
    least_s, by_agent = config.min_time_s_per_iteration or 0, config.counts_agent_steps
    count_by = config.count_steps_by
    least_sampled = config.min_sample_timesteps_per_iteration or 0
    least_trained = config.min_train_timesteps_per_iteration or 0

    def are_reached(result: IterationResult, elapsed_s: float) -> bool:
        if not result.num_training_steps or elapsed_s < least_s:
            return False
        if result.played.num_steps(count_by) < least_sampled:
            return False
        trained = result.trained
        num_trained = trained.num_agent_steps if by_agent else trained.num_env_steps
        is_trained = map(algorithm.is_trained, algorithm.learners)
        return num_trained >= least_trained or not any(is_trained)

    return are_reached


class RunClock:
    """Adds up the time of iterations.

    Attributes:
        total_s: seconds spent in iterations of the whole run, restored parts included.
        since_restore_s: the same since this object was built or restored.
        iterations_since_restore: iterations since then.
    """

    def __init__(self) -> None:
        self.total_s = 0.0
        self.since_restore_s = 0.0
        self.iterations_since_restore = 0

    def add(self, elapsed_s: float) -> None:
        """Counts one iteration."""
        self.total_s += elapsed_s
        self.since_restore_s += elapsed_s
        self.iterations_since_restore += 1

    def restore(self, total_s: float) -> None:
        """Goes on from the time that a checkpoint tells."""
        self.total_s = total_s
        self.since_restore_s = 0.0
        self.iterations_since_restore = 0

    def entries(self, elapsed_s: float) -> dict[str, Any]:
        """What a result says about time and place; the iteration took `elapsed_s`."""
        now = dt.datetime.now(dt.timezone.utc).astimezone()
        return {
            "date": now.strftime("%Y-%m-%d_%H-%M-%S"),
            "timestamp": int(time.time()),
            "time_this_iter_s": elapsed_s,
            "time_total_s": self.total_s,
            "time_since_restore": self.since_restore_s,
            "iterations_since_restore": self.iterations_since_restore,
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
        }


class Timers(dict[str, float]):
    """Seconds by name.

    Attributes:
        total: of all.
    """

    total = 0.0


class Timing:
    """A block whose seconds are added to a timer, without those of timed blocks inside of it."""

    __slots__ = ("_name", "_started_at", "_timers", "_total")

    def __init__(self, timers: Timers, name: str) -> None:
        """Not begun."""
        self._timers, self._name = timers, name

    def __enter__(self) -> None:
        self._total = self._timers.total
        self._started_at = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        timers, elapsed_s = self._timers, time.perf_counter() - self._started_at
        own_s = elapsed_s - (timers.total - self._total)
        timers[self._name] = timers.get(self._name, 0.0) + own_s
        timers.total += own_s


class IterationResult:
    """One iteration's numbers, from its first sample to its result.

    Attributes:
        num_training_steps: calls of `training_step()`.
        played, trained: what runners played, and what updates were made from.
    """

    def __init__(
        self, counters: Counters, module_ids: Collection[ModuleId], *, has_several: bool
    ) -> None:
        self._counters = counters
        self._has_several = has_several
        self._module_ids = tuple(module_ids)
        self.num_training_steps = 0
        self.played = PlayCounts()
        self.trained = UpdateCounts()
        self._num_runners = 1
        self._learners: dict[ModuleId, Mapping[str, Any]] = {}
        self._timers = Timers()
        self._health: dict[str, int] = {}
        self._sections: dict[str, Mapping[str, Any]] = {}

    def time(self, name: str) -> Timing:
        """Adds the seconds of the block to the timer of that name."""
        return Timing(self._timers, name)

    def add_update(
        self,
        metrics: Mapping[ModuleId, Mapping[str, Any]],
        *,
        num_env_steps: int,
        num_agent_steps: int,
        num_rows: Mapping[ModuleId, int] | None = None,
    ) -> None:
        """Counts updates, and keeps the metrics of the last; those of a module's last are shown.

        Args:
            metrics: by module, of those that were updated.
            num_env_steps: env steps that were learnt from; none are counted if no module learnt.
            num_agent_steps: agent steps that were learnt from.
            num_rows: rows by module; None is as the metrics say, of a single call of a learner.
        """
        if num_rows is None:
            num_rows = {id_: own.get("num_module_steps_trained", 0) for id_, own in metrics.items()}
        counts = UpdateCounts(num_env_steps if metrics else 0, num_agent_steps, num_rows)
        self.trained += counts
        self._counters.trained += (
            counts if self._has_several else UpdateCounts(counts.num_env_steps)
        )
        self._learners |= metrics

    def add_section(self, name: str, values: Mapping[str, Any]) -> None:
        """Adds a section of the algorithm's own to the result; a later one replaces it."""
        self._sections[name] = values

    def add_group(self, group: EnvRunnerGroup) -> None:
        """Notes how the training runners are."""
        self._num_runners = max(group.num_healthy_remote_workers(), 1)
        self._health = {
            "num_healthy_workers": group.num_healthy_remote_workers(),
            "num_remote_worker_restarts": group.num_remote_worker_restarts(),
            "num_sub_environment_restarts": group.num_sub_environment_restarts(),
            **({"num_samples_dropped": dropped} if (dropped := group.num_dropped_ahead) else {}),
        }
        if group.num_cpu_kinds() > 1:
            self.add_section("engine", {"num_cpu_kinds": group.num_cpu_kinds()})

    def compile(
        self,
        *,
        episodes: Mapping[str, Any],
        evaluation: Mapping[str, Any],
        modules: Mapping[ModuleId, Mapping[str, Any]],
        clock: RunClock,
        elapsed_s: float,
        since: Mapping[str, float],
    ) -> dict[str, Any]:
        """The standard values of the result.

        Args:
            episodes: the statistics of finished episodes, for `env_runners`.
            evaluation: the evaluation to show; empty for none.
            modules: with several agents or modules: how each module is.
            clock: wall-clock times.
            elapsed_s: seconds of this iteration.
            since: seconds by part from the end of the iteration before; see `time_split`.
        """
        counters, played = self._counters, self.played
        return {
            "env_runners": {**episodes, **self._steps(elapsed_s), **played.times.entries()},
            "learners": {
                **{
                    id_: {
                        **self._learners.get(id_, {}),
                        **(self._rows_of(id_) if modules else {}),
                        **modules.get(id_, {}),
                    }
                    for id_ in self._module_ids
                },
                "__all_modules__": {
                    **(self._trained_rows() if modules else {}),
                    "num_env_steps_trained": self.trained.num_env_steps,
                    "num_env_steps_trained_lifetime": counters.trained.num_env_steps,
                },
            },
            **self._sections,
            **({"evaluation": evaluation} if evaluation else {}),
            "fault_tolerance": {
                **self._health,
                "num_episodes_lost": played.num_episodes_lost,
                "num_env_steps_lost": played.num_env_steps_lost,
                "num_episodes_lost_lifetime": counters.played.num_episodes_lost,
                "num_env_steps_lost_lifetime": counters.played.num_env_steps_lost,
                "repair_time_s": played.repair_s,
            },
            "timers": {
                "training_iteration": elapsed_s,
                **self._timers,
                "split": split_of(
                    elapsed_s,
                    self._timers,
                    played.times,
                    num_runners=self._num_runners,
                    since=since,
                ),
            },
            "num_training_step_calls_per_iteration": self.num_training_steps,
            # Where recordings are learnt from, nothing is sampled: runs are as long as they learn.
            "num_env_steps_sampled_lifetime": counters.num_env_steps_sampled
            or counters.trained.num_env_steps,
            "training_iteration": counters.training_iteration,
            "done": False,
            **clock.entries(elapsed_s),
            "config": None,  # takes its place
        }

    def _rows_of(self, module_id: ModuleId) -> dict[str, int]:
        lifetime = self._counters.trained.num_rows
        return {
            "num_module_steps_trained": self.trained.num_rows.get(module_id, 0),
            "num_module_steps_trained_lifetime": lifetime.get(module_id, 0),
        }

    def _trained_rows(self) -> dict[str, int]:
        trained, lifetime = self.trained, self._counters.trained
        return {
            "num_agent_steps_trained": trained.num_agent_steps,
            "num_agent_steps_trained_lifetime": lifetime.num_agent_steps,
            "num_module_steps_trained": sum(trained.num_rows.values()),
            "num_module_steps_trained_lifetime": sum(lifetime.num_rows.values()),
        }

    def _steps(self, elapsed_s: float) -> dict[str, Any]:
        played, lifetime = self.played, self._counters.played
        steps = played.num_env_steps
        agents, modules = lifetime.num_agent_steps, lifetime.num_module_steps
        return {
            "num_env_steps_sampled": steps,
            "num_env_steps_sampled_lifetime": lifetime.num_env_steps,
            "num_env_steps_sampled_lifetime_throughput": steps / elapsed_s
            if elapsed_s > 0
            else 0.0,
            "num_agent_steps_sampled": _of_all(agents, played.num_agent_steps),
            "num_agent_steps_sampled_lifetime": dict(agents),
            "num_module_steps_sampled": _of_all(modules, played.num_module_steps),
            "num_module_steps_sampled_lifetime": dict(modules),
            **played.agent_counts,
        }


def _of_all(ids: Iterable[Any], counts: Mapping[Any, int]) -> dict[Any, int]:
    return {id_: counts.get(id_, 0) for id_ in ids}


def merge_late_values(
    result: dict[str, Any], *, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Brings what was logged in `on_train_result` into the result of the same iteration.

    Args:
        result: what the callbacks were given; where they changed a value themselves, theirs stays.
        before: the logger's values when the result was made.
        after: its values after the callbacks.
    """
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping):
            section = result.setdefault(key, {})
            if isinstance(section, dict):
                merge_late_values(
                    section, before=old if isinstance(old, Mapping) else {}, after=value
                )
        elif not dict.__contains__(result, key) or (
            not same(value, old) and same(result[key], old)
        ):
            result[key] = value


# ---- batch listener


def batch_listener(callbacks: CallbackChain) -> BatchListener | None:
    """What a learner calls to fire `on_learn_on_batch`; None without a listener."""
    event = "on_learn_on_batch"
    emit = callbacks.emitter(event)
    if emit is None:
        return None

    def fire(module: RLModule, batch: TrainBatch, result: dict[str, Any]) -> Blame:
        arguments = {"policy": module, "train_batch": batch, "result": result}
        emit(**arguments)
        return partial(callbacks.blame, event, arguments)

    return fire


# ---- sample exploration
#
# The exploration strategy of the main process: sees every sample before it is learnt from. It may
# change the rewards (Curiosity, RE3) and adapt itself (ParameterNoise). Both happen in the order
# of env slots and time, after all runners have answered, so it makes no difference how slots are
# spread over runners.


class SampleExploration:
    """The strategy of the main process and its state.

    Attributes:
        strategy: one like those of the runners, with `worker_index` 0.
        changes_rewards: whether it looks at samples, and may change their rewards.
        ignores_samples: it learns nothing from samples but how many steps there were.
    """

    def __init__(
        self,
        spec: ExplorationSpec,
        learner: Learner,
        *,
        root_seed: int,
        num_workers: int,
        normalize_actions: bool,
    ) -> None:
        """Makes the strategy.

        Raises:
            UnsupportedSpaceError: it cannot serve the action space.
            ConfigError: an argument of it is wrong.
        """
        module = learner.module
        self.strategy = spec.make(
            before_decoding(module.action_space, normalize_actions=normalize_actions),
            distribution=module.action_distribution,
            num_workers=num_workers,
            worker_index=0,
        )
        self._learner = learner
        self._encoder = learner.make_encoder()
        kind = type(self.strategy)
        self.changes_rewards = kind.observe_sample is not Exploration.observe_sample
        has_runner_state = kind.runner_state is not Exploration.runner_state
        self.ignores_samples = not (has_runner_state or self.changes_rewards)
        if self.changes_rewards:
            self.strategy.prepare(obs_size=self._encoder.size, root_seed=root_seed)

    @property
    def has_state(self) -> bool:
        """Whether there is something to save."""
        return not self.strategy.state_follows and bool(self.strategy.get_state())

    def observe(
        self, chunks: Sequence[SingleAgentEpisode], *, timestep: int, iteration: int
    ) -> Sequence[SingleAgentEpisode]:
        """Shows a sample to the strategy.

        Args:
            chunks: what the module acted in, from all runners.
            timestep: env steps sampled before.
            iteration: training iterations completed before.

        Returns:
            the chunks, with the rewards that are to be learnt from. Those given stay as they are: a
            local runner goes on to use them.
        """
        self.strategy.last_timestep = timestep
        if not self.changes_rewards:
            return chunks
        self._encoder.normalizer = self._learner.normalization.observations
        rewards = self.strategy.observe_sample(
            ExploredSample(
                chunks=[self._chunk(episode) for episode in chunks],
                timestep=timestep,
                iteration=iteration,
                clean_inputs=self._clean_inputs,
            )
        )
        if rewards is None:
            return chunks
        pairs = zip(chunks, rewards, strict=True)
        return [_with_explored_rewards(episode, new) for episode, new in pairs]

    def _chunk(self, episode: SingleAgentEpisode) -> ExploredChunk:
        observations = episode.get_observations()
        inputs = None
        if ACTION_DIST_INPUTS in episode.extra_model_outputs:
            inputs = np.asarray(episode.get_extra_model_outputs(ACTION_DIST_INPUTS))
        return ExploredChunk(
            # A copy: the memory of encoded lists is used again.
            obs=self._encoder.encode(observations).copy(),
            actions=_stacked(episode.get_actions()),
            rewards=np.array(episode.get_rewards(), np.float64),
            inputs=inputs,
        )

    def _clean_inputs(self, obs: Array) -> Array:
        return self._learner.module.forward_exploration({OBS: obs})[ACTION_DIST_INPUTS]

    def get_state(self) -> State:
        """Plain data."""
        return self.strategy.get_state()

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it; changes nothing."""
        self.strategy.check_state(state)

    def set_state(self, state: State) -> None:
        self.strategy.set_state(state)


def _with_explored_rewards(episode: SingleAgentEpisode, rewards: Array) -> SingleAgentEpisode:
    """A chunk with other rewards (float64, one per step), whose return stays the env's."""
    data = np.array(episode.rewards.data, np.float64)
    data[episode.rewards.lookback :] = rewards
    return with_rewards(episode, data, keeps_return=True)


def _stacked(items: Any) -> Any:
    return nested.stack(items, name="actions") if isinstance(items, list) else items
