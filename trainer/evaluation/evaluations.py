"""Evaluations: when and with which weights; their episodes are played and reported on alone.

An evaluation is a list of *tickets*. A ticket fixes the seeds of its episodes by (root seed,
training iteration behind the weights, ticket number); who plays it, and when, changes nothing. So
the weights of an iteration get the same numbers whether they are evaluated after the training step,
beside the next one, by hand, or from a checkpoint. Training's episodes, metrics and streams of
randomness are never touched.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import numbers
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, Protocol

from callbacks import CallbackChain
from checkpoints import StateError, check_shape, encode, state_array
from trainer.config import AlgorithmConfig
from trainer.config.validation import check_same_spaces
from trainer.connectors import Normalization
from trainer.connectors.encoding import RewardTransform
from trainer.env_runners import Assignment
from trainer.env_runners.messages import (
    ModuleWeights,
    PolicySnapshot,
    SlotPosition,
    Weights,
    share_out,
)
from trainer.errors import EvaluationError, TrainerError
from trainer.metrics import EpisodeStatistics, MetricsLogger, ResultDict, comparable
from trainer.metrics.logger import LOGGER_STATE
from trainer.metrics.result import HiddenMetrics, overlaid
from trainer.modules import ByModule
from trainer.modules.module_table import TABLE_RECORD
from trainer.runner_group import EnvRunnerGroup, GroupSample, TicketPlay
from trainer.runner_group.slot_states import CALLBACK_STATES
from trainer.runner_group.user_calls import OnMetrics
from trainer.types import State
from trainer_toolkit import checks
from trainer_toolkit.arguments import require_keys
from trainer_toolkit.plain_classes import check_of, to_plain
from trainer_toolkit.undo import Undo

# ---- subject


@dataclass(frozen=True)
class Subject:
    """What is evaluated.

    Attributes:
        policy: how to act; its table is None if modules have never changed in the run.
        iteration: training iterations behind it.
    """

    policy: PolicySnapshot
    iteration: int

    def get_state(self) -> State:
        """Plain data, from which the same evaluation can begin again."""
        return {"iteration": self.iteration, **self.policy.to_state(state_array)}

    @classmethod
    def from_state(cls, state: State, now: PolicySnapshot) -> Subject:
        """The subject that `get_state` was called on; `now` is what is evaluated now."""
        return cls(PolicySnapshot.from_state(state, now), state["iteration"])


# ---- evaluator

_LOGGER = logging.getLogger(__name__)

AUTO: Final = "auto"

_TIMES_LOGGED: Final = 3
_NOT_LOGGED_AGAIN: Final = (
    " This is not told again: evaluation/num_episodes_missing and num_env_steps_missing in each "
    "result count them."
)


@dataclass(frozen=True)
class EvaluationSettings:
    """How long an evaluation is, and who is waited for.

    Attributes:
        duration: so many episodes or steps, > 0; "auto": until it is told to end.
        unit: "episodes" or "timesteps".
        counts_agent_steps: with several agents, timesteps are agent steps: a ticket is played until
            it has its share, in whole env steps.
        steps_per_chunk: with "auto", the least and most env steps of one `sample()` of a runner.
        has_fixed_seed: every evaluation plays the same episodes (`fixed_evaluation_seed`).
        waits_for_all: an evaluation ends when every ticket was played. Else the tickets of runners
            that are stuck or fail are handed to others, and are left out if those fail, too.
        episode_limit_s: an episode that does not end is waited for so long; None: without limit.
        reporting: arguments of `EpisodeStatistics`.
    """

    duration: int | str
    unit: str
    counts_agent_steps: bool = False
    steps_per_chunk: tuple[int, int] = (100, 2000)
    has_fixed_seed: bool = False
    waits_for_all: bool = True
    episode_limit_s: float | None = None
    reporting: Mapping[str, Any] = field(default_factory=dict)

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
        self._hidden = HiddenMetrics()
        self._is_started = False
        self._num_missing_warnings = 0

    def start(self, training_group: EnvRunnerGroup, subject: Subject) -> None:
        """Makes the runners, if they are not there yet.

        A ConfigError if what the other group trains cannot act in this one's env.
        """
        if self._is_started:
            return
        # Without weights, which other spaces could not take: that is told below.
        self.group.act_with(PolicySnapshot(table=subject.policy.table))
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
        group.act_with(subject.policy)
        if waits:
            group.start()
            group.bring_up_to_date()

    # ---- playing

    def begin(self, subject: Subject, *, is_beside_training: bool) -> RunningEvaluation:
        """Lets the runners play, and does not wait.

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
        self._warn_of_missing_tickets(play.missing)
        self._metrics.aggregate(sample.metrics)
        # By ticket, so that sums and windows do not depend on who played what.
        by_number = sorted(zip(sample.numbers, sample.records, strict=True), key=itemgetter(0))
        missing = self._without_end(play, ended={number for number, _ in by_number}) + play.missing
        records = [record for _, record in by_number]
        self.num_evaluations += 1
        return {
            "env_runners": self._over_logged(
                {
                    **self._statistics(records, sample.num_env_steps),
                    **self._steps_of_agents(sample),
                    **sample.counts.times.entries(),
                }
            ),
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
        records = self.group.take_records()  # first: it fetches what the local runner has played
        num_episodes = self.group.calls.num_recorded
        self.num_evaluations += 1
        num_env_steps = sum(record.length for record in records)
        # What the function took for itself it reports as it likes.
        played = self._over_logged(self._statistics(records, num_env_steps) if records else {})
        found = {"env_runners": played} if played else {}
        counted = {"num_episodes": num_episodes} if num_episodes else {}
        return overlaid({**found, **counted, **self._date(subject)}, metrics)

    def tickets(self, subject: Subject) -> list[Assignment]:
        """The tickets of an evaluation.

        Exactly `duration` episodes; steps are rounded up to a multiple of the number of
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
        counts_agents = settings.counts_agent_steps and group.agents is not None
        unit = "num_agent_steps" if counts_agents and not settings.is_auto else "num_env_steps"
        return [
            # The numbers of a ticket's later episodes step over all other tickets.
            Assignment(stream, ticket, num_slots, **dict[str, Any]({unit: share}))
            for ticket, share in enumerate(shares)
            if share or settings.is_auto
        ]

    def _stream(self, subject: Subject) -> int:
        return 0 if self.settings.has_fixed_seed else subject.iteration

    # ---- reporting

    def _over_logged(self, standard: Mapping[str, Any]) -> dict[str, Any]:
        """Standard values over what was logged in the runners since the last evaluation."""
        self._hidden.warn(self._metrics.peek(), standard)
        logged, self._metrics = self._metrics.compile(), MetricsLogger()
        return overlaid(logged, standard)

    def _statistics(self, records: Sequence[Any], num_env_steps: int) -> dict[str, Any]:
        statistics = EpisodeStatistics(**self.settings.reporting)
        statistics.add(records)
        return {**statistics.result(), "num_env_steps_sampled": num_env_steps}

    def _steps_of_agents(self, sample: GroupSample) -> dict[str, Any]:
        """With several agents: what they and the modules did, and what happened to them."""
        if self.group.agents is None:
            return {}
        return {
            "num_agent_steps_sampled": dict(sample.counts.num_agent_steps),
            "num_module_steps_sampled": dict(sample.counts.num_module_steps),
            **sample.counts.agent_counts,
        }

    @staticmethod
    def _date(subject: Subject) -> dict[str, int]:
        return {
            "weights_version": subject.policy.version,
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
        num_agent_steps = sum(ticket.num_agent_steps or 0 for ticket in tickets)
        return {
            "num_episodes_missing": sum(ticket.num_episodes or 0 for ticket in tickets),
            "num_env_steps_missing": sum(ticket.num_env_steps or 0 for ticket in tickets),
            **({"num_agent_steps_missing": num_agent_steps} if num_agent_steps else {}),
            "num_evaluations_left_out": self.num_left_out,
        }

    def _warn_of_missing_tickets(self, tickets: Sequence[Assignment]) -> None:
        if tickets and not self.settings.is_auto and self._num_missing_warnings < _TIMES_LOGGED:
            self._num_missing_warnings += 1
            is_last = self._num_missing_warnings == _TIMES_LOGGED
            _LOGGER.warning(
                "%d of the tickets of an evaluation are missing in its result: the env failed or "
                "hung each time they were played. They are number %s.%s",
                len(tickets),
                ", ".join(str(ticket.ticket) for ticket in tickets),
                _NOT_LOGGED_AGAIN if is_last else "",
            )

    def add_metrics(self, metrics: Sequence[Any]) -> None:
        """Adds what users' functions logged, by runner; the next evaluation reports it."""
        self._metrics.aggregate(metrics)

    # ---- state

    def begins_from(self, running: RunningEvaluation | None) -> bool:
        """Whether `get_state` gives the state from which a running evaluation would begin again.

        Not if the runners were asked for something else when they had played all of it.
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
            "callbacks": self.group.slot_states.get_callback_states(),
            **self.group.slot_states.known_modules(),
            "slots": self.group.tasks.positions(),
        }

    def set_state(self, state: State) -> None:
        """Goes on where `get_state` was called."""
        self.num_evaluations = state["num_evaluations"]
        self.num_left_out = state["num_left_out"]
        self._metrics = MetricsLogger()
        if "metrics" in state:  # not before the first evaluation
            self._metrics.set_state(state["metrics"])
        self.group.set_state(
            {
                "slots": state["slots"],
                "callbacks": state["callbacks"],
                "is_continued": self.num_evaluations > 0,
                **{name: state[name] for name in ("known_modules",) if name in state},
            }
        )


# ---- state shape
#
# What the saved state of evaluation looks like, to be compared before it is taken.


def _tasks_of_a_slot(slot: Any, place: str) -> Iterator[str]:
    problems = list(check_of(SlotPosition)(slot, place))
    yield from problems
    running = () if problems else ("env_seed", "observation", "episode")
    yield from (f"{place}[{name!r}] is of an episode" for name in running if slot[name] is not None)


# Reported metrics, perhaps made by a function of users: nothing is computed from them.
_LAST: Final = checks.of_type(dict)

_EVALUATOR: Final = checks.fields(
    {
        "num_evaluations": checks.COUNT,
        "num_left_out": checks.COUNT,
        "callbacks": CALLBACK_STATES,
        "slots": checks.list_of(checks.by_place("a slot without an episode", _tasks_of_a_slot)),
    },
    optional={  # not before the first evaluation; where modules have changed
        "metrics": LOGGER_STATE,
        "known_modules": checks.list_of(checks.TEXT),
    },
)


def _module_weights_like(weights: ModuleWeights) -> checks.Check:
    parts = {name: checks.like(part) for name, part in to_plain(weights).items()}
    # A strategy's own is of any kind.
    return checks.fields({**parts, "exploration": checks.anything()})


def _normalization_like(normalization: Normalization) -> checks.Check:
    of_now = to_plain(normalization)
    observations = {name: checks.like(of_now[name]) for name in of_now if name == "observations"}
    # Restoring may change whether rewards are clipped, so they need not be like those of now.
    return checks.fields(observations, optional={"rewards": check_of(RewardTransform)})


def _by_id(like_now: ByModule[checks.Check]) -> checks.Check:
    """The check for what belongs to modules; an only one may have another id."""
    if len(like_now) == 1:
        return checks.dict_of(like_now.only, length=1)
    return checks.fields(like_now)


def policy_state(now: PolicySnapshot) -> dict[str, checks.Check]:
    """The checks for what `PolicySnapshot.to_state` gives, by key: of the same modules as now.

    Args:
        now: with weights and normalisation, which those of the other have to be like.
    """
    assert now.weights is not None and now.normalization is not None  # noqa: S101, PT018
    modules = _by_id(now.weights.modules.map(_module_weights_like))
    weights = checks.fields(
        {"modules": modules, "timestep": checks.COUNT},
        optional={"connectors": checks.of_type(dict)},
    )
    normalization = _by_id(now.normalization.map(_normalization_like))
    return {"weights": weights, "normalization": normalization}


def evaluation_state(now: PolicySnapshot) -> checks.Check:
    """The check for the component `evaluation`.

    Args:
        now: the newest policy, which that of an evaluation under way has to be like.
    """
    of_these = checks.fields({"iteration": checks.COUNT, **policy_state(now)})
    # Of modules that there may not be any more; what does not fit is refused when it is made.
    of_others = checks.fields(
        {
            "iteration": checks.COUNT,
            "weights": check_of(Weights),
            "normalization": checks.dict_of(check_of(Normalization)),
            "table": TABLE_RECORD,
        }
    )
    return checks.fields(
        {
            "evaluator": _EVALUATOR,
            "last": _LAST,
            "reported_at": checks.either(checks.COUNT, checks.NOTHING),
        },
        optional={"running": checks.either(of_these, of_others)},
    )


# ---- evaluation function
#
# A user's own evaluation: checked when it is configured, called instead of playing tickets.

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


# ---- evaluations
#
# The evaluations of an algorithm: when, with which weights, and what they report.
#
#     after the training step      the default: `evaluate()`, then the result
#     beside it                    begun before the training step, ended after it
#     asynchronously               begun, and ended in whichever iteration it is over

MakeGroup = Callable[[OnMetrics], EnvRunnerGroup]
"""Makes the evaluation runners; what it is given is called with what users' functions log."""


class EvaluatedAlgorithm(Protocol):
    """What evaluations need of the algorithm."""

    @property
    def config(self) -> AlgorithmConfig:
        """The settings of the run."""

    @property
    def callbacks(self) -> CallbackChain:
        """All callbacks."""

    @property
    def metrics(self) -> MetricsLogger:
        """What is logged comes out in the next result."""

    @property
    def env_runner_group(self) -> EnvRunnerGroup:
        """The training runners."""

    @property
    def training_iteration(self) -> int:
        """Results of `train()` so far."""

    def policy_to_evaluate(self) -> PolicySnapshot:
        """What an evaluation that begins now is of: the newest policy."""


class Evaluations:
    """The evaluations of one algorithm: the last one, the one under way, the runners that play.

    Attributes:
        evaluator: plays episodes and reports on them; None until it is first needed.
        running: what was begun beside training and is not over; None if nothing was.
    """

    def __init__(self, algorithm: EvaluatedAlgorithm, make_group: MakeGroup) -> None:
        """Begins without an evaluation.

        Args:
            algorithm: what is evaluated; callbacks and custom functions are given it.
            make_group: makes the evaluation runners, given what is called with logged metrics.
        """
        self.evaluator: Evaluator | None = None
        self.running: RunningEvaluation | None = None
        self._algorithm = algorithm
        self._make_group = make_group
        self._interrupted: Subject | None = None
        self._is_evaluating = False
        self._last: dict[str, Any] = {}
        self._reported_at: int | None = None
        # Of the evaluator, until there is one.
        self._evaluator_state: State = {
            "num_evaluations": 0,
            "num_left_out": 0,
            "callbacks": {},
            "slots": [],
        }

    def get_evaluator(self) -> Evaluator:
        """The evaluator, made when it is first needed."""
        if self.evaluator is None:
            group = self._make_group(lambda logged: self.get_evaluator().add_metrics(logged))
            self.evaluator = Evaluator(group, evaluation_settings(self._config))
            self.evaluator.set_state(self._evaluator_state)
        return self.evaluator

    @property
    def group(self) -> EnvRunnerGroup | None:
        """The evaluation runners; None until evaluation is configured or used."""
        return self.evaluator.group if self.evaluator is not None else None

    @property
    def is_interrupted(self) -> bool:
        """A checkpoint left an evaluation under way, which is still to begin again."""
        return self._interrupted is not None

    @property
    def _config(self) -> AlgorithmConfig:
        return self._algorithm.config

    @property
    def _iteration(self) -> int:
        return self._algorithm.training_iteration

    def _fire(self, event: str, **arguments: Any) -> None:
        algorithm = self._algorithm
        algorithm.callbacks.fire(
            event, algorithm=algorithm, metrics_logger=algorithm.metrics, **arguments
        )

    # ---- evaluating

    def evaluate(self) -> ResultDict:
        """Evaluates the newest weights, and waits for it; a TrainerError within an evaluation."""
        with self._no_other_evaluation():
            evaluator, subject = self._prepare_evaluation()
            function = self._config.custom_evaluation_function
            if function is not None:
                returned = call_evaluation_function(function, self._algorithm, evaluator.group)
                return self._report(evaluator.end_function(subject, returned))
            evaluation = evaluator.begin(subject, is_beside_training=False)
            evaluation.play.finish()
            return self._report(evaluator.end(evaluation))

    @contextlib.contextmanager
    def _no_other_evaluation(self) -> Iterator[None]:
        if self._is_evaluating:
            raise TrainerError(
                "evaluate() was called while an evaluation begins, is made, or is reported (by a "
                "custom evaluation function, or a callback for on_evaluate_start or "
                "on_evaluate_end); it would call itself for ever. Let the runners sample instead: "
                "`algorithm.eval_env_runner_group.foreach_env_runner(lambda r: r.sample())`."
            )
        self._is_evaluating = True
        try:
            yield
        finally:
            self._is_evaluating = False

    def end_iteration(self, *, is_due: bool) -> None:
        """Ends what was begun, and evaluates the newest weights if that is due now."""
        self._end()
        if not is_due or self._config.evaluation_parallel_to_training:
            return
        if self._config.enable_async_evaluation:
            self._begin()
        else:
            self.evaluate()

    def _prepare_evaluation(self) -> tuple[Evaluator, Subject]:
        """Brings the runners up to the newest weights and tells the callbacks."""
        evaluator, subject = self.get_evaluator(), self._newest()
        evaluator.start(self._algorithm.env_runner_group, subject)
        is_looked_at = self._algorithm.callbacks.listens_to("on_evaluate_start")
        has_function = self._config.custom_evaluation_function is not None
        evaluator.prepare(subject, waits=is_looked_at or has_function)
        self._fire("on_evaluate_start")
        return evaluator, subject

    def _newest(self) -> Subject:
        return Subject(self._algorithm.policy_to_evaluate(), self._iteration)

    def begin_iteration(self, *, is_due: bool) -> None:
        """Begins what is to be evaluated while the next training step is made, if anything is."""
        is_due = is_due and self._config.evaluation_parallel_to_training
        interrupted, self._interrupted = self._interrupted, None
        if interrupted is not None and (self._config.enable_async_evaluation or not is_due):
            # No event: it was told before the checkpoint, and what it changed is in there.
            evaluator = self.get_evaluator()
            evaluator.start(self._algorithm.env_runner_group, interrupted)
            evaluator.prepare(interrupted, waits=False)
            self.running = evaluator.begin(interrupted, is_beside_training=True)
        if is_due:
            self._begin()

    def _begin(self) -> None:
        """Lets the runners evaluate the newest weights while training goes on."""
        self._end_if_over(shown_in=self._iteration + 1)
        if self.running is not None:
            self.get_evaluator().leave_out()
            return
        evaluator, subject = self._prepare_evaluation()
        self.running = evaluator.begin(subject, is_beside_training=True)

    def look_after(self) -> None:
        """Takes what evaluation runners have played, and repairs them, without waiting."""
        running = self.running
        if running is None:
            return
        if running.play.is_abandoned:  # with an error that was raised elsewhere
            evaluator = self.get_evaluator()
            evaluator.prepare(running.subject, waits=False)
            running = self.running = evaluator.begin(running.subject, is_beside_training=True)
        running.play.advance()

    def _end(self) -> None:
        """Reports what was begun; with asynchronous evaluation only if it is over."""
        self.look_after()
        running = self.running
        if running is not None and self.get_evaluator().settings.is_auto:
            running.play.request_end()
        if running is not None and not self._config.enable_async_evaluation:
            running.play.finish()
        self._end_if_over(shown_in=self._iteration)

    def _end_if_over(self, *, shown_in: int) -> None:
        self.look_after()
        running = self.running
        if running is None or not running.play.advance():
            return
        # A result shows one evaluation: another one that is over already waits for the next.
        if not self._config.enable_async_evaluation or self._reported_at != shown_in:
            self.running = None
            with self._no_other_evaluation():
                self._report(self.get_evaluator().end(running), shown_in=shown_in)

    def mark(self) -> Undo:
        """What puts everything back to now.

        An evaluation that is running now goes on, and what it has found out by then stays.
        """
        running, num_answers, state = self.running, 0, self.get_state()
        last, interrupted, evaluator = self._last, self._interrupted, self.evaluator
        if running is not None and not self.get_evaluator().begins_from(running):
            num_answers = running.play.num_answers  # the state holds these
        policy = None if evaluator is None else evaluator.group.policy

        def undo() -> None:
            self.running = None
            if self.evaluator is not None:
                self.evaluator.group.abandon_play(but=None if running is None else running.play)
            if self.evaluator is not None and policy is not None:
                self.evaluator.group.act_with(policy)
            self.set_state(state)
            self.running, self._last, self._interrupted = running, last, interrupted
            if running is not None:
                running.play.commit_again(since=num_answers)

        return undo

    def _report(self, found: dict[str, Any], *, shown_in: int | None = None) -> ResultDict:
        """Fires the event, keeps the metrics for results.

        Args:
            found: the metrics.
            shown_in: the iteration whose result shows them as fresh; None is the present one.
        """
        group = self.get_evaluator().group
        metrics = ResultDict(found)
        metrics["num_healthy_workers"] = group.num_healthy_remote_workers()
        metrics["num_remote_worker_restarts"] = group.num_remote_worker_restarts()
        metrics["num_sub_environment_restarts"] = group.num_sub_environment_restarts()
        self._fire("on_evaluate_end", evaluation_metrics=metrics)
        self._last = copy.deepcopy(metrics)
        iteration = self._iteration
        self._reported_at = iteration if shown_in is None else shown_in
        return metrics

    # ---- when

    def is_due(self, iteration: int) -> bool:
        """Whether the result of that iteration is to have an evaluation."""
        interval = self._config.evaluation_interval
        return interval is not None and interval > 0 and iteration % interval == 0

    @property
    def is_new(self) -> bool:
        """Whether the newest result is the first one to show its evaluation."""
        return self._reported_at == self._iteration

    def to_show(self) -> dict[str, Any]:
        """The evaluation that a result shows: the last one, or nothing if only fresh ones count."""
        if self.is_new or self._config.always_attach_evaluation_results:
            return copy.deepcopy(self._last)
        return {}

    # ---- state

    def get_state(self) -> State:
        """Where evaluation stands: plain data."""
        evaluator, running = self.evaluator, self.running
        state = self._evaluator_state if evaluator is None else evaluator.get_state(running)
        subject = self._interrupted if running is None else running.subject
        # Without times and repairs, which no two runs share.
        last = comparable({"evaluation": self._last})["evaluation"]
        return {
            "evaluator": state,
            "last": copy.deepcopy(last),
            "reported_at": self._reported_at,
            **({} if subject is None else {"running": subject.get_state()}),
        }

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it."""
        check_shape(state, evaluation_state(self._algorithm.policy_to_evaluate()))

    def set_state(self, state: State) -> None:
        """Goes on where `get_state` was called.

        What is running now ends. What was running then begins again with the next iteration, with
        the weights that it had.
        """
        keys = ("last", "evaluator", "reported_at")
        require_keys("the evaluation's set_state()", "state", state, keys)
        running, self.running = self.running, None
        if running is not None and self.evaluator is not None:
            self.evaluator.group.abandon_play()
        self._interrupted = None
        if "running" in state:
            now = self._algorithm.policy_to_evaluate()
            self._interrupted = Subject.from_state(state["running"], now)
        self._evaluator_state = state["evaluator"]
        self._last = copy.deepcopy(state["last"])
        self._reported_at = state["reported_at"]
        if self.evaluator is not None:
            self.evaluator.set_state(state["evaluator"])


def evaluation_settings(config: AlgorithmConfig) -> EvaluationSettings:
    """How long an evaluation is, who is waited for, and how it is reported."""
    of_runners = config.get_evaluation_config_object()
    return EvaluationSettings(
        duration=config.evaluation_duration,
        unit=config.evaluation_duration_unit,
        counts_agent_steps=config.counts_agent_steps,
        steps_per_chunk=(
            config.evaluation_auto_duration_min_env_steps_per_sample,
            config.evaluation_auto_duration_max_env_steps_per_sample,
        ),
        has_fixed_seed=config.fixed_evaluation_seed is not None,
        waits_for_all=not config.enable_async_evaluation,
        episode_limit_s=config.evaluation_sample_timeout_s,
        reporting={
            "smoothing": of_runners.metrics_num_episodes_for_smoothing,
            "keep_per_episode_custom_metrics": of_runners.keep_per_episode_custom_metrics,
        },
    )
