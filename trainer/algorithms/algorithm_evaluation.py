"""What an algorithm does about evaluation: when, with which weights, and what it reports.

after the training step      the default: `evaluate()`, then the result
beside it                    begun before the training step, ended after it
asynchronously               begun, and ended in whichever iteration it is over
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoints import check_shape
from checkpoints.arguments import require_keys
from trainer.algorithms.algorithm_parts import AlgorithmParts
from trainer.algorithms.building import evaluation_settings, make_group
from trainer.env_runners import EnvRunnerGroup
from trainer.episodes import SingleAgentEpisode
from trainer.errors import TrainerError
from trainer.evaluation import Evaluator, RunningEvaluation, Subject, call_evaluation_function
from trainer.evaluation.evaluator import evaluation_state
from trainer.metrics import ResultDict, comparable
from trainer.runner_group.crash_files import read_crash
from trainer.seeding import Role
from trainer.types import State

_LOGGER = logging.getLogger(__name__)


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


class AlgorithmEvaluation(AlgorithmParts):
    """Adds evaluation to an algorithm."""

    _running_evaluation: RunningEvaluation | None = None
    _interrupted: Subject | None = None
    _is_evaluating: bool = False

    @property
    def eval_env_runner_group(self) -> EnvRunnerGroup | None:
        """The evaluation runners; None until evaluation is configured or used."""
        return self._evaluator.group if self._evaluator is not None else None

    # ---- playing again what failed

    def replay_episode(self, crash_file: str | Path) -> list[SingleAgentEpisode]:
        """Plays again, in this process, a request to an env runner that failed.

        Set a breakpoint, or call this in a debugger: the same episodes are played with the same
        seeds and actions, so what was raised is raised again, and what crashed crashes again. The
        algorithm itself stays as it is. Sub-envs are not restarted here.

        Args:
            crash_file: written where `config.fault_tolerance(crash_dir=…)` says, by a run with the
                same settings; its log names the file.

        Returns:
            what was played, if nothing failed this time. Then the failure does not follow from
            seeds and actions: look for clocks, other processes, memory.

        Raises:
            ConfigError: there is no such file.
            Exception: what the env or a callback raised.
        """
        record = read_crash(crash_file)
        is_evaluation = record["role"] == Role.EVALUATION.name
        group = self._get_evaluator().group if is_evaluation else self.env_runner_group
        reply = group.replay(record)
        return [] if reply is None else list(reply.episodes)

    # ---- evaluating

    def _evaluate(self) -> ResultDict:
        """Evaluates the newest weights, and waits for it.

        Raises:
            TrainerError: an evaluation called for another one.
        """
        with self._no_other_evaluation():
            evaluator, subject = self._prepare_evaluation()
            function = self.config.custom_evaluation_function
            if function is not None:
                returned = call_evaluation_function(function, self, evaluator.group)
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

    def _evaluate_after_training_step(self, *, is_due: bool) -> None:
        """Ends what was begun, and evaluates the newest weights if that is due now."""
        self._end_evaluation()
        if not is_due or self.config.evaluation_parallel_to_training:
            return
        if self.config.enable_async_evaluation:
            self._begin_evaluation()
        else:
            self._evaluate()

    def _prepare_evaluation(self) -> tuple[Evaluator, Subject]:
        """Brings the runners up to the newest weights and tells the callbacks."""
        evaluator = self._get_evaluator()
        evaluator.start(self.env_runner_group)
        subject = self._newest_subject()
        is_looked_at = self.callbacks.listens_to("on_evaluate_start")
        has_function = self.config.custom_evaluation_function is not None
        evaluator.prepare(subject, waits=is_looked_at or has_function)
        self.callbacks.fire("on_evaluate_start", algorithm=self, metrics_logger=self.metrics)
        return evaluator, subject

    def _newest_subject(self) -> Subject:
        return Subject(self._weights(), self.normalization, self.counters.training_iteration)

    def _begin_evaluation_beside_training(self, *, is_due: bool) -> None:
        """Begins what is to be evaluated while the next training step is made, if anything is."""
        is_due = is_due and self.config.evaluation_parallel_to_training
        interrupted, self._interrupted = self._interrupted, None
        if interrupted is not None and (self.config.enable_async_evaluation or not is_due):
            # No event: it was told before the checkpoint, and what it changed is in there.
            evaluator = self._get_evaluator()
            evaluator.start(self.env_runner_group)
            evaluator.prepare(interrupted, waits=False)
            self._running_evaluation = evaluator.begin(interrupted, is_beside_training=True)
        if is_due:
            self._begin_evaluation()

    def _begin_evaluation(self) -> None:
        """Lets the runners evaluate the newest weights while training goes on."""
        self._end_evaluation_if_over(shown_in=self.counters.training_iteration + 1)
        if self._running_evaluation is not None:
            self._get_evaluator().leave_out()
            return
        evaluator, subject = self._prepare_evaluation()
        self._running_evaluation = evaluator.begin(subject, is_beside_training=True)

    def _look_after_evaluation(self) -> None:
        """Takes what evaluation runners have played, and repairs them, without waiting."""
        running = self._running_evaluation
        if running is None:
            return
        if running.play.is_abandoned:  # with an error that somebody else was told
            evaluator = self._get_evaluator()
            evaluator.prepare(running.subject, waits=False)
            running = self._running_evaluation = evaluator.begin(
                running.subject, is_beside_training=True
            )
        running.play.advance()

    def _end_evaluation(self) -> None:
        """Reports what was begun; with asynchronous evaluation only if it is over."""
        self._look_after_evaluation()
        running = self._running_evaluation
        if running is not None and self._get_evaluator().settings.is_auto:
            running.play.tell_to_end()
        if running is not None and not self.config.enable_async_evaluation:
            running.play.finish()
        self._end_evaluation_if_over(shown_in=self.counters.training_iteration)

    def _end_evaluation_if_over(self, *, shown_in: int) -> None:
        self._look_after_evaluation()
        running = self._running_evaluation
        if running is None or not running.play.advance():
            return
        # A result shows one evaluation: another one that is over already waits for the next.
        if not self.config.enable_async_evaluation or self._evaluation_reported_at != shown_in:
            self._running_evaluation = None
            with self._no_other_evaluation():
                self._report(self._get_evaluator().end(running), shown_in=shown_in)

    def _note_evaluations(self) -> EvaluationsSoFar:
        """What no state holds, for `_undoing_evaluations`."""
        running, num_answers = self._running_evaluation, 0
        if running is not None and not self._get_evaluator().begins_from(running):
            num_answers = running.play.num_answers
        return EvaluationsSoFar(running, num_answers, self._last_evaluation, self._interrupted)

    @contextlib.contextmanager
    def _undoing_evaluations(self, before: EvaluationsSoFar) -> Iterator[None]:
        """In the block, the state is set to what it was then.

        An evaluation that was running then goes on, and what it has found out since stays.
        """
        running, self._running_evaluation = before.running, None
        if self._evaluator is not None:
            self._evaluator.group.abandon_play(but=None if running is None else running.play)
        yield
        self._running_evaluation, self._last_evaluation = running, before.last
        self._interrupted = before.interrupted
        if running is not None:
            running.play.commit_again(since=before.num_answers)

    def _report(self, found: dict[str, Any], *, shown_in: int | None = None) -> ResultDict:
        """Fires the event, keeps the metrics for results.

        Args:
            found: the metrics.
            shown_in: the iteration whose result shows them as fresh; None is the present one.
        """
        group = self._get_evaluator().group
        metrics = ResultDict(found)
        metrics["num_healthy_workers"] = group.num_healthy_remote_workers()
        metrics["num_remote_worker_restarts"] = group.num_remote_worker_restarts()
        metrics["num_sub_environment_restarts"] = group.num_sub_environment_restarts()
        self.callbacks.fire(
            "on_evaluate_end",
            algorithm=self,
            metrics_logger=self.metrics,
            evaluation_metrics=metrics,
        )
        self._last_evaluation = copy.deepcopy(metrics)
        iteration = self.counters.training_iteration
        self._evaluation_reported_at = iteration if shown_in is None else shown_in
        return metrics

    # ---- when

    def _is_evaluation_due(self, iteration: int) -> bool:
        """Whether the result of that iteration is to have an evaluation."""
        interval = self.config.evaluation_interval
        return interval is not None and interval > 0 and iteration % interval == 0

    @property
    def has_new_evaluation(self) -> bool:
        """Whether the newest result is the first one to show its evaluation."""
        return self._evaluation_reported_at == self.counters.training_iteration

    def _evaluation_to_show(self) -> dict[str, Any]:
        """The evaluation that a result shows: the last one, or nothing if only fresh ones count."""
        if self.has_new_evaluation or self.config.always_attach_evaluation_results:
            return copy.deepcopy(self._last_evaluation)
        return {}

    # ---- the evaluator and its state

    def _get_evaluator(self) -> Evaluator:
        """The evaluator, made when it is first needed."""
        if self._evaluator is None:
            group = make_group(
                self.config.get_evaluation_config_object(),
                Role.EVALUATION,
                root_seed=self.root_seed,
                on_recreated=lambda indices: self._tell_recreated(indices, is_evaluation=True),
                on_metrics=lambda logged: self._get_evaluator().add_metrics(logged),
            )
            self._evaluator = Evaluator(group, evaluation_settings(self.config))
            self._evaluator.set_state(self._evaluator_state)
        return self._evaluator

    def get_evaluation_state(self) -> State:
        """Where evaluation stands: plain data."""
        evaluator, running = self._evaluator, self._running_evaluation
        state = self._evaluator_state if evaluator is None else evaluator.get_state(running)
        subject = self._interrupted if running is None else running.subject
        # Without times and repairs, which no two runs share.
        last = comparable({"evaluation": self._last_evaluation})["evaluation"]
        return {
            "evaluator": state,
            "last": copy.deepcopy(last),
            "reported_at": self._evaluation_reported_at,
            "running_of": None if subject is None else subject.iteration,
            **({} if subject is None else {"running": subject.get_state()}),
        }

    def check_evaluation_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_evaluation_state` will take it."""
        check_shape(state, evaluation_state(self._newest_subject().get_state()))

    def set_evaluation_state(self, state: State) -> None:
        """Goes on where `get_evaluation_state` was called.

        What is running now ends. What was running then begins again with the next iteration, with
        the weights that it had.
        """
        require_keys("set_evaluation_state()", "state", state, ("last", "evaluator"))
        running, self._running_evaluation = self._running_evaluation, None
        if running is not None and self._evaluator is not None:
            self._evaluator.group.abandon_play()
        last = state["last"]
        if "running" in state:
            self._interrupted = Subject.from_state(state["running"])
        else:  # of a release that did not keep its weights: they may be the newest ones
            is_newest = state.get("running_of") == self.counters.training_iteration
            self._interrupted = self._newest_subject() if is_newest else None
        self._evaluator_state = state["evaluator"]
        self._last_evaluation = copy.deepcopy(last)
        self._evaluation_reported_at = state.get("reported_at", last.get("evaluated_at_iteration"))
        if self._evaluator is not None:
            self._evaluator.set_state(state["evaluator"])
