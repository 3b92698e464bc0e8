"""PPO: samples with the current weights, learns from that sample alone, and samples again."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import gymnasium as gym
import numpy as np
from numpy.random import Generator

from trainer.algorithms.on_and_off_policy import OnPolicyAlgorithm
from trainer.algorithms.ppo.loss import PPOCoefficients, PPOLoss, PPOTargets, ppo_loss
from trainer.algorithms.ppo.loss_in_c import LossInC
from trainer.algorithms.ppo.training_section import PPOTrainingSection
from trainer.config import AlgorithmConfig
from trainer.config.settings import Problem, assignment
from trainer.config.validation import COMMON_RULES, ON_POLICY_RULES, Rule
from trainer.connectors import (
    AdvantageEstimate,
    Chunks,
    SampleBatch,
    before_decoding,
    compute_advantages,
    estimate_advantages,
    explained_variance,
    standardize,
)
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    OBS,
    TERMINATEDS,
    VALUE_TARGETS,
    VF_PREDS,
)
from trainer.learners import (
    NOT_IN_TORCH,
    Columns,
    EpisodeLearner,
    LearnerSettings,
    TrainBatchEvent,
    means_of_losses,
)
from trainer.learners.batching import values_of_chunk
from trainer.modules import RLModule, RLModuleSpec
from trainer.nn import Schedule, ScheduleSetting
from trainer.types import Array, FloatArray, ModuleId, State
from trainer_toolkit.arguments import require_keys

# ---- learner

_LOSS_METRICS: Final = (
    "policy_loss",
    "vf_loss",
    "vf_loss_unclipped",
    "entropy",
    "mean_kl_loss",
    "clip_fraction",
    "vf_clip_fraction",
    "total_loss",
)


@dataclass(frozen=True, kw_only=True)
class PPOSettings(LearnerSettings):
    """The settings of `PPOConfig.training()` that its learner reads."""

    lambda_: float
    use_critic: bool
    use_gae: bool
    standardize_advantages: str | None
    use_kl_loss: bool
    kl_coeff: float
    kl_target: float
    vf_loss_coeff: float
    entropy_coeff: ScheduleSetting
    clip_param: ScheduleSetting
    vf_clip_param: float | None
    normalize_actions: bool


class PPOLearner(EpisodeLearner):
    """Proximal policy optimisation (Schulman et al. 2017, algorithm 1, with RLlib's KL penalty).

    Metrics are means over the minibatches of the last epoch, except: `vf_explained_var` (of the
    values that the advantages were computed with), `actions_at_bounds` (the share of numbers in the
    actions of the batch that are at or beyond the bounds of the space, if it has some),
    `obs_magnitude` (the largest root mean square of a number of the observations), `curr_kl_coeff`
    (the weight for the next update), `curr_entropy_coeff` and `default_optimizer_learning_rate`
    (used in this update), `num_module_steps_trained` (rows of all minibatches).
    """

    settings_class: ClassVar[type[LearnerSettings]] = PPOSettings
    never_called: ClassVar[Mapping[str, str]] = NOT_IN_TORCH
    settings: PPOSettings
    kl_coeff: float
    _entropy_coeff: Schedule
    _clip_param: Schedule
    _bounds: tuple[Array, Array] | None
    _loss_in_c: LossInC

    def __init__(
        self,
        *,
        module_spec: RLModuleSpec,
        settings: PPOSettings,
        root_seed: int,
        position: tuple[int, ...] = (),
    ) -> None:
        """See `Learner`; settings are PPO's."""
        super().__init__(
            module_spec=module_spec, settings=settings, root_seed=root_seed, position=position
        )
        self.kl_coeff = float(settings.kl_coeff) if settings.use_kl_loss else 0.0
        self._entropy_coeff = Schedule.from_setting(settings.entropy_coeff, name="entropy_coeff")
        self._clip_param = Schedule.from_setting(settings.clip_param, name="clip_param")
        self._bounds = _bounds_of(self.module.action_space, settings.normalize_actions)
        self._loss_in_c = LossInC()

    def learn(
        self, columns: Columns, *, rng: Generator, num_env_steps: int, event: TrainBatchEvent
    ) -> dict[str, Any]:
        """One update; see `Learner.learn`."""
        settings = self.settings
        values, estimate = self.estimate_advantages(columns)
        rows = event.fire(self.training_rows(columns, estimate), **{VF_PREDS: values})
        if type(self) is not PPOLearner:  # a loss of the user's may clip around them
            rows = {**rows, VF_PREDS: values.astype(np.float32)}
        coefficients = self._coefficients(num_env_steps)
        lr = self._lr.value_at(num_env_steps)

        def step(minibatch: dict[str, Array]) -> tuple[Any, float]:
            if settings.standardize_advantages == "minibatch":
                advantages = standardize(minibatch[ADVANTAGES])
                minibatch = {**minibatch, ADVANTAGES: advantages}
            return self._step(minibatch, coefficients=coefficients, lr=lr)

        record, num_rows_trained = self.learn_in_minibatches(rows, columns.lengths, step, rng=rng)
        metrics = self._means(record)
        self._adapt_kl_coeff(metrics.get("mean_kl_loss"))
        metrics["vf_explained_var"] = explained_variance(estimate.value_targets, values)
        metrics |= self._sizes(columns)
        metrics["curr_kl_coeff"] = self.kl_coeff
        metrics["curr_entropy_coeff"] = coefficients.entropy_coeff
        metrics["default_optimizer_learning_rate"] = lr
        metrics["num_module_steps_trained"] = num_rows_trained
        return metrics

    def _sizes(self, columns: Columns) -> dict[str, float]:
        """How large observations and actions are, for the checks of learning."""
        sizes: dict[str, float] = {}
        is_quantity = self._encoder.is_scalable
        if is_quantity.any():
            numbers = columns.obs[:, is_quantity]
            squares = np.einsum("bd,bd->d", numbers, numbers, dtype=np.float64)
            sizes["obs_magnitude"] = math.sqrt(squares.max() / max(1, len(numbers)))
        if self._bounds is not None:
            low, high = self._bounds
            at_bounds = (columns.actions <= low) | (columns.actions >= high)
            sizes["actions_at_bounds"] = float(at_bounds.mean())
        return sizes

    def extra_state(self) -> State:
        """The current weight of the KL penalty."""
        return {"kl_coeff": self.kl_coeff}

    def set_extra_state(self, state: State) -> None:
        """Takes back what `extra_state` gave."""
        require_keys("PPOLearner.set_extra_state()", "state", state, ("kl_coeff",))
        self.kl_coeff = float(state["kl_coeff"])

    def estimate_advantages(self, columns: Columns) -> tuple[Array, AdvantageEstimate]:
        """Values float64 [B] of all steps, and the advantages that follow or callbacks gave."""
        num_rows = len(columns.rewards)
        values = np.zeros(len(columns.observations))
        if self.settings.use_critic:
            values[:] = self.batching.values(self.module, columns)
        chunks = Chunks(
            rewards=columns.rewards,
            values=values[:num_rows],
            lengths=columns.lengths,
            bootstrap_values=np.where(columns.is_terminated, 0.0, values[num_rows:]),
        )
        estimate = self.estimate(chunks, columns)
        given = {
            name: columns.given[name].put_into(getattr(estimate, name)) for name in columns.given
        }
        return chunks.values, replace(estimate, **given)

    def estimate(self, chunks: Chunks, columns: Columns) -> AdvantageEstimate:
        """The advantages and value targets of all steps, for subclasses to change.

        Args:
            chunks: rewards and values.
            columns: what else is known of the steps.
        """
        del columns
        settings = self.settings
        return estimate_advantages(
            chunks,
            gamma=settings.gamma,
            lambda_=settings.lambda_,
            use_gae=settings.use_gae,
            use_critic=settings.use_critic,
        )

    def training_rows(self, columns: Columns, estimate: AdvantageEstimate) -> dict[str, Array]:
        """The columns that minibatches are made of, [B, ...] each."""
        distribution, advantages = self.module.action_distribution, estimate.advantages
        if self.settings.standardize_advantages == "batch":
            advantages = standardize(advantages)
        return {
            **columns.extras,
            **self.batching.state_rows(columns),
            OBS: columns.obs,
            ACTIONS: columns.actions,
            ACTION_LOGP: columns.action_logp,
            ACTION_DIST_INPUTS: distribution.canonical(columns.action_dist_inputs),
            ADVANTAGES: advantages.astype(np.float32),
            VALUE_TARGETS: estimate.value_targets.astype(np.float32),
        }

    def _coefficients(self, num_env_steps: int) -> PPOCoefficients:
        """The weights of the loss's parts in this update."""
        settings = self.settings
        limit = settings.vf_clip_param
        return PPOCoefficients(
            clip_param=self._clip_param.value_at(num_env_steps),
            vf_clip_param=math.inf if limit is None else limit,
            vf_loss_coeff=settings.vf_loss_coeff if settings.use_critic else 0.0,
            entropy_coeff=self._entropy_coeff.value_at(num_env_steps),
            kl_coeff=self.kl_coeff,
        )

    def _step(
        self, minibatch: dict[str, Array], *, coefficients: PPOCoefficients, lr: float
    ) -> tuple[Any, float]:
        """One gradient step; the loss before it, as `_means` reads it, and the gradient's norm.

        The inner loop; README.md says what it costs.
        """
        outputs = self.module.training_outputs(minibatch, ACTION_DIST_INPUTS, VF_PREDS)
        loss = self.compute_loss(minibatch, outputs, coefficients)
        self.module.backward(
            d_action_dist_inputs=loss.d_action_dist_inputs, d_vf_preds=loss.d_vf_preds
        )
        norm = self.apply_gradients(loss=loss.total_loss, lr=lr, batch=minibatch)
        return loss, norm

    def compute_loss(
        self,
        batch: Mapping[str, Array],
        outputs: Mapping[str, Array],
        coefficients: PPOCoefficients,
    ) -> PPOLoss:
        """The loss of a minibatch and its gradients, for subclasses to change.

        In C where that can be; see `LossInC`.

        Args:
            batch: the columns "obs", "actions", "action_logp", "action_dist_inputs" (canonical),
                "advantages", "value_targets", and those of callbacks, [B, …] each; in a class
                derived from this one "vf_preds", too, the values before the update.
            outputs: what the network gives for them: "action_dist_inputs" [B, K], "vf_preds" [B].
            coefficients: the weights of the loss's parts in this update.
        """
        inputs, values = outputs[ACTION_DIST_INPUTS], outputs[VF_PREDS]
        actions, reference = batch[ACTIONS], batch[ACTION_DIST_INPUTS]
        targets = PPOTargets(batch[ACTION_LOGP], batch[ADVANTAGES], batch[VALUE_TARGETS])
        distribution = self.module.action_distribution
        loss = self._loss_in_c(
            distribution, inputs, values, actions, reference, targets, coefficients
        )
        if loss is not None:
            return loss
        terms = distribution.evaluate(inputs, actions, reference=reference)
        return ppo_loss(targets, terms=terms, values=values, coefficients=coefficients)

    def _means(self, record: Collection[tuple[Any, float]]) -> dict[str, Any]:
        """The mean of every part of the loss and of the gradient's norm over these steps."""
        return means_of_losses(record, _LOSS_METRICS)

    def _adapt_kl_coeff(self, mean_kl: float | None) -> None:
        """Schulman et al. 2017, section 4, with RLlib's factors.

        The KL is the mean over the last epoch; RLlib uses the last minibatch only, which is a
        noisier number.
        """
        settings = self.settings
        if not settings.use_kl_loss or mean_kl is None:  # a loss of the user's may not have it
            return
        if mean_kl > 2.0 * settings.kl_target:
            self.kl_coeff *= 1.5
        elif mean_kl < 0.5 * settings.kl_target:
            self.kl_coeff *= 0.5


def _bounds_of(space: gym.Space[Any], normalize_actions: bool) -> tuple[Array, Array] | None:
    """The bounds of what a policy emits, of a Box of numbers that has some; else None."""
    emitted = before_decoding(space, normalize_actions=normalize_actions)
    if not isinstance(emitted, gym.spaces.Box):
        return None
    has_bounds = emitted.bounded_below.any() or emitted.bounded_above.any()
    return (emitted.low, emitted.high) if has_bounds else None


# ---- config

# Section methods only declare; the decorator `section` reads their arguments.


def minibatch_fits_batch(config: PPOConfig) -> Iterator[Problem]:
    """A minibatch is not larger than the batch it is taken from."""
    size, batch = config.minibatch_size, config.total_train_batch_size
    if size is not None and size > batch:
        yield Problem(
            assignment("minibatch_size", size),
            f"it is larger than train_batch_size={batch}, from which minibatches are taken.",
            f"Give minibatch_size={batch} or less, or None for the whole batch.",
            ("minibatch_size",),
        )


def cut_episodes_have_value_targets(config: PPOConfig) -> Iterator[Problem]:
    """Episodes are cut only when the last value estimate stands in for what is cut off.

    Evaluation may cut them: nothing is learnt from its episodes.
    """
    if config.in_evaluation:
        return
    if config.batch_mode == "truncate_episodes" and not config.use_gae:
        yield Problem(
            assignment("use_gae", False),
            'with batch_mode="truncate_episodes" the rest of a cut episode is unknown without '
            "value estimates.",
            'Give use_gae=True or batch_mode="complete_episodes".',
            ("use_gae",),
        )


def advantages_have_values(config: PPOConfig) -> Iterator[Problem]:
    """Generalized advantage estimation needs a value function that is learnt."""
    if config.use_gae and not config.use_critic:
        yield Problem(
            assignment("use_gae", True),
            "it needs values, but `use_critic=False` learns none.",
            'Give use_gae=False, too, with batch_mode="complete_episodes".',
            ("use_gae", "use_critic"),
        )


class PPOConfig(PPOTrainingSection, AlgorithmConfig):
    """The settings of PPO (Schulman et al. 2017, "Proximal policy optimization algorithms").

    Example:
        `PPOConfig().environment("CartPole-v1").training(lr=3e-4).build_algo()`
    """

    if TYPE_CHECKING:

        def _builds(self) -> PPO: ...

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            "lr": 5e-5,
            "train_batch_size": 4000,
            "minibatch_size": 128,
            "num_epochs": 30,
            "shuffle_batch_per_epoch": True,
            "rollout_fragment_length": "auto",
            "num_env_runners": 2,
            "model_config": {"vf_share_layers": False},
        }
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *COMMON_RULES,
        *ON_POLICY_RULES,
        Rule(("minibatch_size", "train_batch_size"), minibatch_fits_batch),
        Rule(("batch_mode", "use_gae"), cut_episodes_have_value_targets),
        Rule(("use_gae", "use_critic"), advantages_have_values),
    )


# ---- postprocessing


@dataclass(frozen=True)
class AdvantagePostprocessing:
    """Adds `vf_preds`, `advantages` and `value_targets` to a chunk, with the weights that acted.

    The learner computes the same again for all chunks together, where the last bits of values may
    differ; so only what callbacks change is taken from here.

    Attributes:
        gamma, lambda_, use_gae, use_critic: see `PPOConfig.training`.
    """

    gamma: float
    lambda_: float
    use_gae: bool
    use_critic: bool

    @property
    def needs_whole_module(self) -> bool:
        """Whether values are needed."""
        return self.use_critic

    def add_columns(self, batch: SampleBatch, *, module: RLModule, obs: FloatArray) -> None:
        last_value = 0.0
        if self.use_critic:
            values = values_of_chunk(module, obs, batch)
            batch.setdefault(VF_PREDS, values[:-1])
            last_value = 0.0 if batch[TERMINATEDS][-1] else float(values[-1])
        compute_advantages(
            batch,
            last_value,
            gamma=self.gamma,
            lambda_=self.lambda_,
            use_gae=self.use_gae,
            use_critic=self.use_critic,
        )


# ---- algorithm


class PPO(OnPolicyAlgorithm):
    """Proximal Policy Optimization (Schulman et al. 2017).

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = PPOConfig

    def make_learner(self, module_id: ModuleId | None = None) -> PPOLearner:
        """The learner with the settings of `PPOConfig.training()`."""
        return self.new_learner(PPOLearner, module_id)

    def make_postprocessing(self) -> AdvantagePostprocessing:
        """Advantages, as the learner estimates them."""
        config = self.config
        return AdvantagePostprocessing(
            gamma=config.gamma,
            lambda_=config.lambda_,
            use_gae=config.use_gae,
            use_critic=config.use_critic,
        )
