"""MARWIL: imitates recorded actions, those that paid more than expected above all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.random import Generator

from trainer.algorithms.marwil.loss import MARWILLoss, marwil_loss
from trainer.algorithms.marwil.training_section import MARWILTrainingSection
from trainer.algorithms.offline import OfflineAlgorithm, OfflineConfig
from trainer.config import AlgorithmConfig
from trainer.config.settings import Problem, assignment
from trainer.config.validation import Rule
from trainer.connectors import Chunks, explained_variance, generalized_advantages
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTIONS,
    OBS,
    VALUE_TARGETS,
    VF_PREDS,
)
from trainer.errors import ModuleError
from trainer.learners import (
    NOT_IN_TORCH,
    Columns,
    EpisodeLearner,
    LearnerSettings,
    TrainBatchEvent,
    means_of_losses,
)
from trainer.modules.memory import state_form
from trainer.types import Array, ModuleId, State
from trainer_toolkit.arguments import require_keys

# ---- learner

_SQUARE = "moving_avg_sqd_adv_norm"


@dataclass(frozen=True, kw_only=True)
class MARWILSettings(LearnerSettings):
    """The settings of `MARWILConfig.training()` that its learner reads."""

    beta: float
    vf_coeff: float
    lambda_: float
    moving_average_sqd_adv_norm_start: float
    moving_average_sqd_adv_norm_update_rate: float


class MARWILLearner(EpisodeLearner):
    """Exponentially weighted imitation (Wang et al. 2018); with β = 0 behaviour cloning.

    Metrics are means over the minibatches of the last pass, except `vf_explained_var` (of the
    values before the update), `moving_avg_sqd_adv_norm` (c² after it), `weight_max`,
    `default_optimizer_learning_rate` and `num_module_steps_trained`.

    Attributes:
        moving_square: c², the moving mean of squared advantages.
    """

    settings_class: ClassVar[type[LearnerSettings]] = MARWILSettings
    never_called: ClassVar[Mapping[str, str]] = NOT_IN_TORCH
    needs_policy: ClassVar[bool] = False
    settings: MARWILSettings
    moving_square: float

    def __init__(self, **arguments: Any) -> None:
        """See `Learner`; settings are MARWIL's."""
        super().__init__(**arguments)
        self.moving_square = float(self.settings.moving_average_sqd_adv_norm_start)

    def learn(
        self, columns: Columns, *, rng: Generator, num_env_steps: int, event: TrainBatchEvent
    ) -> dict[str, Any]:
        """One update; see `EpisodeLearner.learn`."""
        settings, lr = self.settings, self._lr.value_at(num_env_steps)
        if self.module.is_stateful():  # recordings do not say what was remembered: nothing
            form = state_form(self.module)
            columns = replace(columns, state_in=form.repeated(len(columns.rewards)))
        values, targets = self.value_targets(columns)
        rows = event.fire(
            {
                **columns.extras,
                **self.batching.state_rows(columns),
                OBS: columns.obs,
                ACTIONS: columns.actions,
                VALUE_TARGETS: targets.astype(np.float32),
            }
        )
        record, num_rows_trained = self.learn_in_minibatches(
            rows, columns.lengths, partial(self._step, lr=lr), rng=rng
        )
        names = ("policy_loss", "vf_loss", "entropy", "total_loss")
        metrics: dict[str, Any] = means_of_losses(record, names)
        metrics["weight_max"] = max(float(loss.weights.max()) for loss, _ in record)
        if settings.beta:
            metrics["vf_explained_var"] = explained_variance(targets, values)
            metrics[_SQUARE] = self.moving_square
        metrics["default_optimizer_learning_rate"] = lr
        metrics["num_module_steps_trained"] = num_rows_trained
        return metrics

    def value_targets(self, columns: Columns) -> tuple[Array, Array]:
        """Values and the returns that they learn, float64 [B] each; zeros with β = 0.

        What would have followed a chunk is worth 0 if its episode terminated, else its value: after
        a time limit, and where recording stopped.
        """
        num_rows = len(columns.rewards)
        if not self.settings.beta:
            return np.zeros(num_rows), np.zeros(num_rows)
        values = np.asarray(self.batching.values(self.module, columns), np.float64)
        chunks = Chunks(
            rewards=columns.rewards,
            values=values[:num_rows],
            lengths=columns.lengths,
            bootstrap_values=np.where(columns.is_terminated, 0.0, values[num_rows:]),
        )
        settings = self.settings
        estimate = generalized_advantages(chunks, gamma=settings.gamma, lambda_=settings.lambda_)
        given = columns.given.get(VALUE_TARGETS)
        targets = estimate.value_targets
        return chunks.values, targets if given is None else given.put_into(targets)

    def _step(self, minibatch: dict[str, Array], *, lr: float) -> tuple[MARWILLoss, float]:
        """One gradient step; the loss before it and the gradient's norm."""
        needed = (ACTION_DIST_INPUTS, VF_PREDS) if self.settings.beta else (ACTION_DIST_INPUTS,)
        outputs = self.module.training_outputs(minibatch, *needed)
        loss = self.compute_loss(minibatch, outputs)
        if np.isinf(loss.weights).any():
            raise ModuleError(
                "A weight exp(β A / c) is not finite: some advantage A is more than 88 times the "
                f"norm c, whose square is {loss.moving_square:.6g}. Give "
                "`moving_average_sqd_adv_norm_start` the square of what returns differ by."
            )
        self.module.backward(
            d_action_dist_inputs=loss.d_action_dist_inputs, d_vf_preds=loss.d_vf_preds
        )
        norm = self.apply_gradients(loss=loss.total_loss, lr=lr, batch=minibatch)
        self.moving_square = loss.moving_square
        return loss, norm

    def compute_loss(self, batch: Mapping[str, Array], outputs: Mapping[str, Array]) -> MARWILLoss:
        """The loss of a minibatch and its gradients, for subclasses to change.

        Args:
            batch: the columns "obs", "actions", "value_targets", and those of callbacks, [B, …]
                each.
            outputs: what the network gives for them: "action_dist_inputs" [B, K], and with β > 0
                "vf_preds" [B].
        """
        settings, inputs = self.settings, outputs[ACTION_DIST_INPUTS]
        no_values = np.zeros(len(inputs), self.module.parameters.dtype)
        return marwil_loss(
            batch[VALUE_TARGETS],
            terms=self.module.action_distribution.evaluate(inputs, batch[ACTIONS]),
            values=outputs[VF_PREDS] if settings.beta else no_values,
            beta=settings.beta,
            vf_coeff=settings.vf_coeff,
            moving_square=self.moving_square,
            update_rate=settings.moving_average_sqd_adv_norm_update_rate,
        )

    def extra_state(self) -> State:
        """The moving mean of squared advantages."""
        return {_SQUARE: self.moving_square}

    def set_extra_state(self, state: State) -> None:
        """Takes back what `extra_state` gave."""
        require_keys("MARWILLearner.set_extra_state()", "state", state, (_SQUARE,))
        self.moving_square = float(state[_SQUARE])


# ---- config


def advantages_have_values(config: MARWILConfig) -> Iterator[Problem]:
    """Weights follow from values, which something has to move."""
    if config.beta and not config.vf_coeff:
        yield Problem(
            assignment("vf_coeff", 0),
            f"with beta={config.beta} actions are weighed by how much more they paid than the "
            "value function expects, which then never learns.",
            "Give vf_coeff above 0; or beta=0 (BC), which needs no values.",
            ("vf_coeff", "beta"),
        )


class MARWILConfig(MARWILTrainingSection, OfflineConfig):
    """The settings of MARWIL (Wang et al. 2018, "Exponentially weighted imitation learning …").

    Example:
        `MARWILConfig().environment("CartPole-v1").offline_data(input_="recordings").build_algo()`
    """

    if TYPE_CHECKING:

        def _builds(self) -> MARWIL: ...

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            **OfflineConfig.changed_defaults,
            "lr": 1e-4,
            "train_batch_size": 2000,
            "model_config": {"vf_share_layers": False},
        }
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *OfflineConfig.rules,
        Rule(("vf_coeff", "beta"), advantages_have_values),
    )


# ---- algorithm


class MARWIL(OfflineAlgorithm):
    """Monotonic advantage re-weighted imitation learning (Wang et al. 2018), from recordings.

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = MARWILConfig

    def make_learner(self, module_id: ModuleId | None = None) -> MARWILLearner:
        """The learner with the settings of `MARWILConfig.training()`."""
        return self.new_learner(MARWILLearner, module_id)
