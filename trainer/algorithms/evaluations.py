"""The evaluations of an algorithm: when, with which weights, and what they report.

after the training step      the default: `evaluate()`, then the result
beside it                    begun before the training step, ended after it
asynchronously               begun, and ended in whichever iteration it is over
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from callbacks import CallbackChain
from checkpoints import check_shape
from checkpoints.arguments import require_keys
from trainer.algorithms.building import evaluation_settings
from trainer.config import AlgorithmConfig
from trainer.errors import TrainerError
from trainer.evaluation import Evaluator, RunningEvaluation, Subject, call_evaluation_function
from trainer.evaluation.evaluator import evaluation_state
from trainer.metrics import MetricsLogger, ResultDict, comparable
from trainer.runner_group import EnvRunnerGroup
from trainer.runner_group.user_calls import OnMetrics
from trainer.types import State

_LOGGER = logging.getLogger(__name__)


MakeGroup = Callable[[OnMetrics], EnvRunnerGroup]
"""Makes the evaluation runners; what it is given is called with what users' functions log."""


class _Algorithm(Protocol):
    """What evaluations need of the algorithm."""

    @property
    def config(self) -> AlgorithmConfig: ...
    @property
    def callbacks(self) -> CallbackChain: ...
    @property
    def metrics(self) -> MetricsLogger: ...
    @property
    def env_runner_group(self) -> EnvRunnerGroup: ...
    @property
    def training_iteration(self) -> int: ...

    def newest_subject(self) -> Subject:
        """What an evaluation that begins now is of: the newest weights."""


@dataclass(frozen=True)
class EvaluationsSoFar:
    """What there was of evaluations at some moment, apart from the state.

    Attributes:
        running: the one that was under way; None if none was.
        num_answers: what the state of then holds of its answers.
        last: the metrics of the last one that was over, with those that no state holds.
        interrupted: what a checkpoint left under way, if that is still to begin again.
    """

    running: RunningEvaluation | None
    num_answers: int
    last: dict[str, Any]
    interrupted: Subject | None


class Evaluations:
    """The evaluations of one algorithm: the last one, the one under way, the runners that play.

    Attributes:
        evaluator: plays episodes and reports on them; None until it is first needed.
        running: what was begun beside training and is not over; None if nothing was.
    """

    def __init__(self, algorithm: _Algorithm, make_group: MakeGroup) -> None:
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
        self._evaluator_state: State = {"num_evaluations": 0, "callbacks": {}}

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
        """Evaluates the newest weights, and waits for it.

        Raises:
            TrainerError: an evaluation called for another one.
        """
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
        evaluator, subject = self.get_evaluator(), self._algorithm.newest_subject()
        evaluator.start(self._algorithm.env_runner_group, subject)
        is_looked_at = self._algorithm.callbacks.listens_to("on_evaluate_start")
        has_function = self._config.custom_evaluation_function is not None
        evaluator.prepare(subject, waits=is_looked_at or has_function)
        self._fire("on_evaluate_start")
        return evaluator, subject

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
        if running.play.is_abandoned:  # with an error that somebody else was told
            evaluator = self.get_evaluator()
            evaluator.prepare(running.subject, waits=False)
            running = self.running = evaluator.begin(running.subject, is_beside_training=True)
        running.play.advance()

    def _end(self) -> None:
        """Reports what was begun; with asynchronous evaluation only if it is over."""
        self.look_after()
        running = self.running
        if running is not None and self.get_evaluator().settings.is_auto:
            running.play.tell_to_end()
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

    def note(self) -> EvaluationsSoFar:
        """What no state holds, for `undoing`."""
        running, num_answers = self.running, 0
        if running is not None and not self.get_evaluator().begins_from(running):
            num_answers = running.play.num_answers
        return EvaluationsSoFar(running, num_answers, self._last, self._interrupted)

    @contextlib.contextmanager
    def undoing(self, before: EvaluationsSoFar) -> Iterator[None]:
        """In the block, the state is set to what it was then.

        An evaluation that was running then goes on, and what it has found out since stays.
        """
        running, self.running = before.running, None
        if self.evaluator is not None:
            self.evaluator.group.abandon_play(but=None if running is None else running.play)
        yield
        self.running, self._last = running, before.last
        self._interrupted = before.interrupted
        if running is not None:
            running.play.commit_again(since=before.num_answers)

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
            "running_of": None if subject is None else subject.iteration,
            **({} if subject is None else {"running": subject.get_state()}),
        }

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it."""
        check_shape(state, evaluation_state(self._algorithm.newest_subject()))

    def set_state(self, state: State) -> None:
        """Goes on where `get_state` was called.

        What is running now ends. What was running then begins again with the next iteration, with
        the weights that it had.
        """
        require_keys("the evaluation's set_state()", "state", state, ("last", "evaluator"))
        running, self.running = self.running, None
        if running is not None and self.evaluator is not None:
            self.evaluator.group.abandon_play()
        last = state["last"]
        if "running" in state:
            now = self._algorithm.newest_subject()
            self._interrupted = Subject.from_state(state["running"], now)
        else:  # of a release that did not keep its weights: they may be the newest ones
            is_newest = state.get("running_of") == self._iteration
            self._interrupted = self._algorithm.newest_subject() if is_newest else None
        self._evaluator_state = state["evaluator"]
        self._last = copy.deepcopy(last)
        self._reported_at = state.get("reported_at", last.get("evaluated_at_iteration"))
        if self.evaluator is not None:
            self.evaluator.set_state(state["evaluator"])
