"""What an algorithm does about evaluation: when, with which weights, and what it reports."""

from __future__ import annotations

import copy
from typing import Any

from trainer.algorithms.algorithm_parts import AlgorithmParts
from trainer.algorithms.building import evaluation_settings, make_group
from trainer.env_runners import EnvRunnerGroup
from trainer.evaluation import Evaluator
from trainer.metrics import ResultDict, comparable
from trainer.seeding import Role
from trainer.types import State


class AlgorithmEvaluation(AlgorithmParts):
    """Adds evaluation to an algorithm."""

    @property
    def eval_env_runner_group(self) -> EnvRunnerGroup | None:
        """The evaluation runners; None until evaluation is configured or used."""
        return self._evaluator.group if self._evaluator is not None else None

    def _evaluate(self) -> ResultDict:
        """Plays one evaluation, keeps its result and fires its events."""
        evaluator = self._get_evaluator()
        evaluator.start(self.env_runner_group)
        weights = self._weights()
        evaluator.group.set_weights(weights)
        evaluator.group.set_normalization(self.normalization)
        evaluator.group.start()  # callbacks of the event may ask the runners
        self.callbacks.fire("on_evaluate_start", algorithm=self, metrics_logger=self.metrics)
        metrics = ResultDict(evaluator.evaluate(weights))
        metrics["evaluated_at_iteration"] = self.counters.training_iteration
        metrics["num_healthy_workers"] = evaluator.group.num_healthy_remote_workers()
        metrics["num_remote_worker_restarts"] = evaluator.group.num_remote_worker_restarts()
        self.callbacks.fire(
            "on_evaluate_end",
            algorithm=self,
            metrics_logger=self.metrics,
            evaluation_metrics=metrics,
        )
        self._last_evaluation = copy.deepcopy(metrics)
        return metrics

    def _evaluation_to_show(self) -> dict[str, Any]:
        """The evaluation that a result shows: the last one, or nothing if only fresh ones count."""
        iteration = self._last_evaluation.get("evaluated_at_iteration")
        is_fresh = iteration == self.counters.training_iteration
        if is_fresh or self.config.always_attach_evaluation_results:
            return copy.deepcopy(self._last_evaluation)
        return {}

    def _is_evaluation_due(self) -> bool:
        interval = self.config.evaluation_interval
        return (
            interval is not None
            and interval > 0
            and self.counters.training_iteration % interval == 0
        )

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
        evaluator = self._evaluator
        state = self._evaluator_state if evaluator is None else evaluator.get_state()
        # Without times and repairs, which no two runs share.
        last = comparable({"evaluation": self._last_evaluation})["evaluation"]
        return {"evaluator": state, "last": copy.deepcopy(last)}

    def set_evaluation_state(self, state: State) -> None:
        """Goes on where `get_evaluation_state` was called."""
        self._evaluator_state = state["evaluator"]
        self._last_evaluation = copy.deepcopy(state["last"])
        if self._evaluator is not None:
            self._evaluator.set_state(state["evaluator"])
