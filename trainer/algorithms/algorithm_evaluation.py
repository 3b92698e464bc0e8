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

from trainer.algorithms.algorithm_parts import AlgorithmParts
from trainer.algorithms.building import evaluation_settings, make_group
from trainer.env_runners import EnvRunnerGroup
from trainer.env_runners.crash_files import read_crash
from trainer.episodes import SingleAgentEpisode
from trainer.evaluation import Evaluator, RunningEvaluation, Subject, call_evaluation_function
from trainer.metrics import ResultDict, comparable
from trainer.seeding import Role
from trainer.types import State

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class EvaluationsSoFar:
    """What there was of evaluations at some moment, apart from the state.

    Attributes:
        running: the one that was under way; None if none was.
        num_answers: what of it had come in.
        last: the metrics of the last one that was over, with those that no state holds.
    """

    running: RunningEvaluation | None
    num_answers: int
    last: dict[str, Any]


class AlgorithmEvaluation(AlgorithmParts):
    """Adds evaluation to an algorithm."""

    _running_evaluation: RunningEvaluation | None = None

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
        """Evaluates the newest weights, and waits for it."""
        evaluator, subject = self._prepare_evaluation()
        function = self.config.custom_evaluation_function
        if function is not None:
            returned = call_evaluation_function(function, self, evaluator.group)
            return self._report(evaluator.end_function(subject, returned))
        evaluation = evaluator.begin(subject, is_beside_training=False)
        evaluation.play.finish()
        return self._report(evaluator.end(evaluation))

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
        subject = Subject(self._weights(), self.normalization, self.counters.training_iteration)
        evaluator.prepare(subject)
        self.callbacks.fire("on_evaluate_start", algorithm=self, metrics_logger=self.metrics)
        return evaluator, subject

    def _begin_evaluation(self) -> None:
        """Lets the runners evaluate the newest weights while training goes on."""
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
            evaluator.prepare(running.subject)
            running = self._running_evaluation = evaluator.begin(
                running.subject, is_beside_training=True
            )
        running.play.advance()

    def _end_evaluation(self) -> None:
        """Reports what was begun; with asynchronous evaluation only if it is over."""
        self._look_after_evaluation()
        running = self._running_evaluation
        if running is None:
            return
        evaluator = self._get_evaluator()
        if evaluator.settings.is_auto:
            running.play.tell_to_end()
        if not self.config.enable_async_evaluation:
            running.play.finish()
        elif not running.play.advance():
            return
        self._running_evaluation = None
        self._report(evaluator.end(running))

    def _note_evaluations(self) -> EvaluationsSoFar:
        """What no state holds, for `_undoing_evaluations`."""
        running = self._running_evaluation
        num_answers = 0 if running is None else running.play.num_answers
        return EvaluationsSoFar(running, num_answers, self._last_evaluation)

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
        if running is not None:
            running.play.commit_again(since=before.num_answers)

    def _report(self, found: dict[str, Any]) -> ResultDict:
        """Fires the event, keeps the metrics for results."""
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
        self._evaluation_reported_at = self.counters.training_iteration
        return metrics

    # ---- when

    def _is_evaluation_due(self, iteration: int) -> bool:
        """Whether the result of that iteration is to have an evaluation."""
        interval = self.config.evaluation_interval
        return interval is not None and interval > 0 and iteration % interval == 0

    def _evaluation_to_show(self) -> dict[str, Any]:
        """The evaluation that a result shows: the last one, or nothing if only fresh ones count."""
        is_fresh = self._evaluation_reported_at == self.counters.training_iteration
        if is_fresh or self.config.always_attach_evaluation_results:
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
        state = self._evaluator_state if evaluator is None else evaluator.get_state()
        # Without times and repairs, which no two runs share.
        last = comparable({"evaluation": self._last_evaluation})["evaluation"]
        return {
            "evaluator": state,
            "last": copy.deepcopy(last),
            "reported_at": self._evaluation_reported_at,
            "running_of": None if running is None else running.subject.iteration,
        }

    def set_evaluation_state(self, state: State) -> None:
        """Goes on where `get_evaluation_state` was called.

        What was running then is left out, and what is running now ends: it is no part of the state.
        """
        running, self._running_evaluation = self._running_evaluation, None
        if running is not None and self._evaluator is not None:
            self._evaluator.group.abandon_play()
        last = state["last"]
        self._evaluator_state = state["evaluator"]
        self._last_evaluation = copy.deepcopy(last)
        self._evaluation_reported_at = state.get("reported_at", last.get("evaluated_at_iteration"))
        if self._evaluator is not None:
            self._evaluator.set_state(state["evaluator"])
