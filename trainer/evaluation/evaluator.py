"""Plays evaluation episodes and reports on them alone.

An evaluation is a list of *tickets*. A ticket fixes the seeds of its episodes by (root seed,
training iteration behind the weights, ticket number); who plays it, and when, changes nothing. So
the weights of an iteration get the same numbers whether they are evaluated after the training step,
beside the next one, by hand, or from a checkpoint. Training's episodes, metrics and streams of
randomness are never touched.
For custom evaluation functions: the episodes that were played, and what they come to.
def evaluate(algorithm, workers):
workers.foreach_worker(lambda worker: worker.sample(num_episodes=5))
return {**summarize_episodes(collect_episodes(workers)), "foo": 1}
"""

from __future__ import annotations

import copy
import itertools
import logging
import math
import numbers
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import gymnasium
from gymnasium import spaces

from checkpoints import StateError, encode, state_array
from checkpoints.state_shapes import (
    FLAG,
    NOTHING,
    TEXT,
    ShapeCheck,
    anything,
    count,
    fields,
    like,
    list_of,
    number,
    of_type,
    one_of,
)
from trainer.connectors import Normalization, ObservationNormalizer, RewardTransform
from trainer.env_runners import Assignment, Weights
from trainer.env_runners.messages import ModuleWeights, share_out
from trainer.errors import ConfigError, EvaluationError
from trainer.metrics import EpisodeStatistics, MetricsLogger
from trainer.metrics.logger import LOGGER_STATE
from trainer.metrics.result import overlaid
from trainer.modules import ByModule, ModuleTable
from trainer.modules.module_table import TABLE_RECORD, table_from_record, table_record
from trainer.runner_group import EnvRunnerGroup, TicketPlay
from trainer.runner_group.slot_states import CALLBACK_STATES
from trainer.types import State

# ---- evaluator

# ---- subject
#
# What is evaluated: weights of some moment, as long as an evaluation of them is under way.


@dataclass(frozen=True)
class Subject:
    """What is evaluated: weights, as they were after some iteration.

    Attributes:
        weights: what to act with.
        normalization: what is done to observations on their way to the networks, by module.
        iteration: training iterations behind them.
        table: the modules and whom they act for, if they have changed in the run.
    """

    weights: Weights
    normalization: ByModule[Normalization]
    iteration: int
    table: ModuleTable | None = None

    def get_state(self) -> State:
        """Plain data, from which the same evaluation can begin again."""
        return {
            "iteration": self.iteration,
            "weights": self.weights.to_state(state_array),
            "normalization": self.normalization.map(_normalization_state).to_state(),
            **({} if self.table is None else {"table": table_record(self.table)}),
        }

    @classmethod
    def from_state(cls, state: State, now: Subject) -> Subject:
        """The subject that `get_state` was called on.

        Args:
            state: the plain data.
            now: what an evaluation that begins now would be of.
        """
        table, ids = None, now.weights.modules.ids
        if "table" in state and now.table is not None:
            table = table_from_record(state["table"], now=now.table)
            ids = table.specs.ids
        return cls(
            Weights.from_state(state["weights"], ids),
            ByModule.from_state(state["normalization"], ids).map(_normalization_from),
            state["iteration"],
            table,
        )


def _normalization_state(normalization: Normalization) -> State:
    """What differs from no normalisation at all."""
    observations, rewards = normalization.observations, normalization.rewards
    state: State = {}
    if observations is not None:
        state["observations"] = {
            "mean": state_array(observations.mean),
            "factors": state_array(observations.factors),
            "limits": state_array(observations.limits),
        }
    if rewards is not None:
        state["rewards"] = {"clip": rewards.clip, "factor": rewards.factor}
    return state


def _normalization_from(state: State) -> Normalization:
    observations, rewards = state.get("observations"), state.get("rewards")
    return Normalization(
        None if observations is None else ObservationNormalizer(**observations),
        None if rewards is None else RewardTransform(**rewards),
    )


# ---- same spaces
#
# Checks that what is trained in one env can act in the other.


def check_same_spaces(training: EnvRunnerGroup, evaluation: EnvRunnerGroup) -> None:
    """Compares the spaces of both groups' envs by kind and size; bounds may differ.

    Args:
        training: the group that learns; its runners have been made.
        evaluation: the other one; its runners have been made.

    Raises:
        ConfigError: the spaces differ; names both.
    """
    for module_id, kind in itertools.product(
        training.module_specs, ("observation_space", "action_space")
    ):
        trained = getattr(training.module_specs[module_id], kind)
        given = getattr(evaluation.module_specs[module_id], kind)
        if _size(trained) != _size(given):
            raise ConfigError(
                f"The evaluation env {evaluation.env_name!r} has {kind}={given}, and the training "
                f"env {training.env_name!r} has {kind}={trained}: a network made for one cannot "
                "act in the other. Give evaluation_config an `env` (or `env_config`) with the "
                "spaces of the training env, or wrap it so that it has them."
            )


def _size(space: gymnasium.Space[Any]) -> Any:
    """What a network sees of a space, in a form that can be compared."""
    if isinstance(space, spaces.Dict):
        return {key: _size(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return [_size(part) for part in space.spaces]
    if isinstance(space, spaces.Discrete):
        return ("Discrete", int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return ("MultiDiscrete", space.nvec.tolist())
    return (type(space).__name__, space.shape)


# ---- evaluator

_LOGGER = logging.getLogger(__name__)

AUTO: Final = "auto"

_TIMES_TOLD: Final = 3
_NOT_TOLD_AGAIN: Final = (
    " This is not told again: evaluation/num_episodes_missing and num_env_steps_missing in each "
    "result count them."
)


@dataclass(frozen=True)
class EvaluationSettings:
    """How long an evaluation is, and who is waited for.

    Attributes:
        duration: so many episodes or env steps, > 0; "auto": until it is told to end.
        unit: "episodes" or "timesteps".
        steps_per_chunk: with "auto", the least and most env steps of one `sample()` of a runner.
        has_fixed_seed: every evaluation plays the same episodes (`evaluation_seed` is given).
        waits_for_all: an evaluation ends when every ticket was played. Else the tickets of runners
            that are stuck or fail are handed to others, and are left out if those fail, too.
    """

    duration: int | str
    unit: str
    steps_per_chunk: tuple[int, int] = (100, 2000)
    has_fixed_seed: bool = False
    waits_for_all: bool = True
    episode_limit_s: float | None = None

    @property
    def is_auto(self) -> bool:
        """Whether it lasts until it is told to end."""
        return self.duration == AUTO


@dataclass(frozen=True)
class RunningEvaluation:
    """An evaluation that was begun.

    Attributes:
        subject: what is evaluated.
        play: its tickets on their way through the runners.
        state_before: of the evaluator, when it was begun.
    """

    subject: Subject
    play: TicketPlay
    state_before: State


class Evaluator:
    """Plays evaluations with its own group of runners.

    Attributes:
        group: the evaluation runners.
        settings: how long evaluations are.
        num_evaluations: how many were played.
        num_left_out: how many were not, because the one before was not over.
    """

    def __init__(self, group: EnvRunnerGroup, settings: EvaluationSettings) -> None:
        self.group = group
        self.settings = settings
        self.num_evaluations = 0
        self.num_left_out = 0
        self._metrics = MetricsLogger()
        self._is_started = False
        self._num_told_missing = 0

    def start(self, training_group: EnvRunnerGroup, subject: Subject) -> None:
        """Makes the runners, if they are not there yet.

        Args:
            training_group: the runners that the subject is trained with.
            subject: what is evaluated next.

        Raises:
            ConfigError: what is trained by the other group cannot act in this one's env.
        """
        if self._is_started:
            return
        self._take_table(subject)
        self.group.start()
        check_same_spaces(training_group, self.group)
        self._is_started = True

    def prepare(self, subject: Subject, *, waits: bool) -> None:
        """Brings the runners up to what is evaluated next.

        Args:
            subject: what that is.
            waits: the runners hold it when this returns. Else it goes along with what they are
                asked first, and those that have to be made anew are not waited for.
        """
        group = self.group
        group.begin_evaluation(self._stream(subject))  # first: it waits for the one under way
        self._take_table(subject)
        group.set_weights(subject.weights)
        group.set_normalization(subject.normalization)
        if waits:
            group.start()
            group.bring_up_to_date()

    def _take_table(self, subject: Subject) -> None:
        if subject.table is not None and subject.table is not self.group.table:
            self.group.set_table(subject.table)

    # ---- playing

    def begin(self, subject: Subject, *, is_beside_training: bool) -> RunningEvaluation:
        """Lets the runners play, and waits for nobody.

        Args:
            subject: what to evaluate; the runners were prepared for it.
            is_beside_training: with "auto", go on until it is told to end. Without a training step
                to last as long as, every runner makes the least number of steps.
        """
        settings = self.settings
        is_open = settings.is_auto and is_beside_training
        state_before = self.get_state()
        play = self.group.begin_play(
            self.tickets(subject),
            waits_for_all=settings.waits_for_all,
            steps_per_chunk=settings.steps_per_chunk if is_open else None,
        )
        return RunningEvaluation(subject, play, state_before)

    def leave_out(self) -> None:
        """Notes that an evaluation was due while the one before it is not over."""
        if not self.num_left_out:
            _LOGGER.warning(
                "An asynchronous evaluation is due while the one before it still runs; it is left "
                "out, and counted in evaluation/num_evaluations_left_out. Evaluate less often "
                "(evaluation_interval), for a shorter time (evaluation_duration), or with more "
                "runners (evaluation_num_env_runners)."
            )
        self.num_left_out += 1

    def end(self, evaluation: RunningEvaluation) -> dict[str, Any]:
        """The metrics of an evaluation that is over, from its own episodes alone.

        Returns:
            `env_runners` with the keys that training has; `weights_version`,
            `evaluated_at_iteration`, `num_episodes`, and what could not be played.
        """
        play = evaluation.play
        sample = self.group.end_play(play)
        self._tell_failed(play.missing)
        self._metrics.aggregate(sample.metrics)
        # By ticket, so that sums and windows do not depend on who played what.
        by_number = sorted(zip(sample.numbers, sample.records, strict=True), key=_first)
        missing = self._without_end(play, ended={number for number, _ in by_number}) + play.missing
        records = [record for _, record in by_number]
        self.num_evaluations += 1
        return {
            "env_runners": {
                **self._take_logged(),
                **self._statistics(records, sample.num_env_steps),
                **sample.times.entries(),
            },
            "num_episodes": len(records),
            **self._date(evaluation.subject),
            **(self._missing(missing) if missing or not self.settings.waits_for_all else {}),
        }

    def end_function(self, subject: Subject, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics of an evaluation that a user's function made.

        Args:
            subject: what it evaluated.
            metrics: what it returned; it stands above what was noted of the episodes that the
                function let the runners play.
        """
        num_episodes, records = self.group.num_recorded, self.group.take_records()
        self.num_evaluations += 1
        played = self._take_logged()
        if records:  # what the function took for itself it reports as it likes
            played |= self._statistics(records, sum(record.length for record in records))
        found = {"env_runners": played} if played else {}
        counted = {"num_episodes": num_episodes} if num_episodes else {}
        return overlaid({**found, **counted, **self._date(subject)}, metrics)

    def tickets(self, subject: Subject) -> list[Assignment]:
        """The tickets of an evaluation.

        Exactly `duration` episodes; env steps are rounded up to a multiple of the number of
        runners. With "auto", the least number of steps of every runner.
        """
        settings, group, stream = self.settings, self.group, self._stream(subject)
        num_slots = group.num_slots
        num_runners = max(1, group.num_remote_env_runners())
        if settings.is_auto:
            duration = settings.steps_per_chunk[0] * num_runners
        else:
            duration = int(settings.duration)
        if settings.unit == "episodes" and not settings.is_auto:
            return [Assignment(stream, ticket, num_episodes=1) for ticket in range(duration)]
        shares = share_out(math.ceil(duration / num_runners) * num_runners, num_slots)
        return [
            # The numbers of a ticket's later episodes step over all other tickets.
            Assignment(stream, ticket, num_slots, num_env_steps=share)
            for ticket, share in enumerate(shares)
            if share or settings.is_auto
        ]

    def _stream(self, subject: Subject) -> int:
        return 0 if self.settings.has_fixed_seed else subject.iteration

    # ---- reporting

    def _take_logged(self) -> dict[str, Any]:
        """What was logged in the runners since the last evaluation."""
        logged, self._metrics = self._metrics.compile(), MetricsLogger()
        return dict(logged)

    @staticmethod
    def _statistics(records: Sequence[Any], num_env_steps: int) -> dict[str, Any]:
        statistics = EpisodeStatistics(smoothing=None)
        statistics.add(records)
        return {**statistics.result(), "num_env_steps_sampled": num_env_steps}

    @staticmethod
    def _date(subject: Subject) -> dict[str, int]:
        return {
            "weights_version": subject.weights.version,
            "evaluated_at_iteration": subject.iteration,
        }

    def _without_end(self, play: TicketPlay, *, ended: Collection[int]) -> list[Assignment]:
        """The tickets whose episodes did not end in time; says so."""
        tickets = [
            ticket
            for ticket in play.tickets
            if ticket.num_episodes and ticket.ticket not in ended and ticket not in play.missing
        ]
        if tickets:
            _LOGGER.warning(
                "%d of the %d episodes of an evaluation are missing in its result: no episode "
                "ended within evaluation_sample_timeout_s=%s. Limit them with "
                "gymnasium.wrappers.TimeLimit(env, max_episode_steps=…), set more time, or ask for "
                'steps: evaluation(evaluation_duration_unit="timesteps").',
                len(tickets),
                len(play.tickets),
                self.settings.episode_limit_s,
            )
        return tickets

    def _missing(self, tickets: Sequence[Assignment]) -> dict[str, int]:
        return {
            "num_episodes_missing": sum(ticket.num_episodes or 0 for ticket in tickets),
            "num_env_steps_missing": sum(ticket.num_env_steps or 0 for ticket in tickets),
            "num_evaluations_left_out": self.num_left_out,
        }

    def _tell_failed(self, tickets: Sequence[Assignment]) -> None:
        if tickets and not self.settings.is_auto and self._num_told_missing < _TIMES_TOLD:
            self._num_told_missing += 1
            is_last = self._num_told_missing == _TIMES_TOLD
            _LOGGER.warning(
                "%d of the tickets of an evaluation are missing in its result: the env failed or "
                "hung each time they were played. They are number %s.%s",
                len(tickets),
                ", ".join(str(ticket.ticket) for ticket in tickets),
                _NOT_TOLD_AGAIN if is_last else "",
            )

    def add_metrics(self, metrics: Sequence[Any]) -> None:
        """Adds what users' functions logged in the runners; the next evaluation reports it.

        Args:
            metrics: one entry per runner, in the order of the runners.
        """
        self._metrics.aggregate(metrics)

    # ---- state

    def begins_from(self, running: RunningEvaluation | None) -> bool:
        """Whether `get_state` gives the state from which a running evaluation would begin again.

        Not if somebody asked the runners for something else when they had played all of it.
        """
        return running is not None and self.group.is_playing(running.play)

    def get_state(self, running: RunningEvaluation | None = None) -> State:
        """Plain data: number of evaluations, callback state and tasks of the runners, metrics.

        The metrics are those that the next evaluation will report.

        Args:
            running: an evaluation under way: nothing that it has brought about so far is given, for
                it will begin again.
        """
        if running is not None and self.begins_from(running):
            return {**copy.deepcopy(running.state_before), "num_left_out": self.num_left_out}
        return {
            "num_evaluations": self.num_evaluations,
            "num_left_out": self.num_left_out,
            "metrics": self._metrics.get_state(),
            "callbacks": self.group.get_callback_states(),
            **self.group.told_modules(),
            "slots": self.group.get_task_positions(),
        }

    def set_state(self, state: State) -> None:
        """Goes on where `get_state` was called."""
        self.num_evaluations = state["num_evaluations"]
        self.num_left_out = state.get("num_left_out", 0)
        self._metrics = MetricsLogger()
        if "metrics" in state:  # not before the first evaluation
            self._metrics.set_state(state["metrics"])
        self.group.set_state(
            {
                "slots": state.get("slots", []),
                "callbacks": state["callbacks"],
                "is_continued": self.num_evaluations > 0,
                **{name: state[name] for name in ("told_modules",) if name in state},
            }
        )


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]


# ---- state shape
#
# What the saved state of evaluation looks like, to be compared before it is taken.

_TASKS_OF_A_SLOT: Final = fields(
    {
        "episode_number": count,
        "env_seed": NOTHING,
        "actions": list_of(anything),
        "observation": NOTHING,
        "episode": NOTHING,
        "earlier_chunks": list_of(anything),
    },
    optional={"tasks": list_of(of_type(list)), "env_state": anything},
)


# Reported metrics, perhaps made by a function of users: nothing is computed from them.
_LAST: Final = of_type(dict)

# Restoring may change whether rewards are clipped, so they need not be like those of now.
_REWARDS: Final = fields({"clip": one_of(number, FLAG, NOTHING), "factor": one_of(number, NOTHING)})

_EVALUATOR: Final = fields(
    {"num_evaluations": count, "callbacks": CALLBACK_STATES},
    optional={
        "num_left_out": count,
        "metrics": LOGGER_STATE,
        "slots": list_of(_TASKS_OF_A_SLOT),
        "told_modules": list_of(TEXT),
    },
)


def _module_weights_like(weights: ModuleWeights) -> dict[str, ShapeCheck]:
    state = weights.to_state(state_array)
    parts = {name: like(part) for name, part in state.items()}
    return {**parts, "exploration": anything}  # a strategy's own, of any kind


def _normalization_like(normalization: Normalization) -> ShapeCheck:
    of_now = _normalization_state(normalization)
    observations = {name: like(of_now[name]) for name in of_now if name == "observations"}
    return fields(observations, optional={"rewards": _REWARDS})


def evaluation_state(subject: Subject) -> ShapeCheck:
    """The check for the component `evaluation`; states of earlier releases lack what is optional.

    Args:
        subject: of the newest weights, which those of an evaluation under way have to be like.
    """
    ids = subject.weights.modules.ids
    modules = subject.weights.modules.map(_module_weights_like)
    rest = {"timestep": count}
    weights = fields(
        {**(modules.only if len(ids) == 1 else {"modules": fields(modules.map(fields))}), **rest},
        optional={"connectors": of_type(dict)},
    )
    in_force = subject.normalization.map(_normalization_like)
    normalization = ByModule.state_shape(in_force.__getitem__, ids)
    under_way = {"iteration": count, "weights": weights, "normalization": normalization}
    # Of modules that there may not be any more; what does not fit is refused when it is made.
    of_others = {
        "iteration": count,
        "weights": of_type(dict),
        "normalization": of_type(dict),
        "table": TABLE_RECORD,
    }
    return fields(
        {"evaluator": _EVALUATOR, "last": _LAST},
        optional={
            "reported_at": one_of(count, NOTHING),
            "running_of": one_of(count, NOTHING),
            "running": one_of(fields(under_way), fields(of_others)),
        },
    )


# ---- evaluation function
#
# A user's own evaluation: checked when it is configured, called instead of playing tickets.

# ---- evaluation function

_EXPECTED = (
    "Return a dict of metrics with at least one entry, or such a dict, the number of env steps and "
    "the number of agent steps."
)


def call_evaluation_function(
    function: Callable[..., Any], algorithm: Any, group: Any
) -> Mapping[str, Any]:
    """Lets a user's function evaluate.

    Args:
        function: called as `function(algorithm, group)`.
        algorithm: whose weights the group's runners hold.
        group: the evaluation runners.

    Returns:
        the metrics; step counts that the function gave are added as `num_env_steps_sampled` and
        `num_agent_steps_sampled`.

    Raises:
        EvaluationError: it returned something else.
        Exception: what the function raised.
    """
    returned = function(algorithm, group)
    name = getattr(function, "__qualname__", repr(function))
    metrics, counts = returned, {}
    if isinstance(returned, tuple):
        if len(returned) != 3:
            raise EvaluationError(
                f"custom_evaluation_function {name} returned a tuple of {len(returned)}. "
                f"{_EXPECTED}"
            )
        metrics, num_env_steps, num_agent_steps = returned
        counts = {
            "num_env_steps_sampled": num_env_steps,
            "num_agent_steps_sampled": num_agent_steps,
        }
        for what, count in counts.items():
            if not isinstance(count, numbers.Integral) or count < 0:
                raise EvaluationError(
                    f"custom_evaluation_function {name} returned {count!r:.80} as {what}. "
                    f"{_EXPECTED}"
                )
    if not isinstance(metrics, Mapping) or not metrics:
        raise EvaluationError(
            f"custom_evaluation_function {name} returned {metrics!r:.80}, a "
            f"{type(metrics).__name__}. {_EXPECTED}"
        )
    try:
        encode(metrics, name="it")
    except StateError as error:
        raise EvaluationError(
            f"custom_evaluation_function {name} returned something that no checkpoint can hold: "
            f"{error}"
        ) from error
    return {**counts, **metrics}
