"""CQL: SAC that learns from recordings, with critics held down where nothing was recorded.

The conservative term and its gradients, on arrays only. With s and a from the recordings, a_k the
candidates at s with densities p_k, T the temperature (Kumar et al. 2020, equation 4, the variant
"H" of appendix F, whose sum over all actions is estimated from samples):

    L_C = mean_s (T log Σ_k exp((Q(s, a_k) - log p_k) / T)) - mean Q(s, a)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from trainer.algorithms.cql.training_section import CQLTrainingSection
from trainer.algorithms.offline import OFFLINE_RULES, OfflineAlgorithm, OfflineConfig
from trainer.algorithms.sac.sac import SACConfig, SACLearner, SACLosses, SACSettings
from trainer.algorithms.training_iteration import batch_listener
from trainer.config import AlgorithmConfig
from trainer.config.settings import Problem, assignment
from trainer.config.validation import Rule
from trainer.errors import ConfigError
from trainer.learners import CriticLoss, LearnerSettings, ReplayBatch
from trainer.modules import ByModule
from trainer.nn import SquashedGaussian
from trainer.replay import ReplayBuffer
from trainer.types import Array, ModuleId
from trainer_toolkit.trees import same

# ---- loss


@dataclass(frozen=True)
class ConservativeLoss:
    """L_C of one critic and its gradients.

    Attributes:
        loss: L_C.
        d_recorded: derivative for Q(s, a), [B].
        d_candidates: derivative for Q(s, a_k), [K, B].
    """

    loss: float
    d_recorded: Array
    d_candidates: Array


def conservative_loss(
    recorded: Array, candidates: Array, log_densities: Array, *, temperature: float
) -> ConservativeLoss:
    """L_C of one critic.

    Args:
        recorded: Q(s, a), [B].
        candidates: Q(s, a_k), [K, B].
        log_densities: log p_k, [K, B].
        temperature: T > 0.
    """
    num_rows = len(recorded)
    scaled = (candidates - log_densities) / temperature
    highest = scaled.max(axis=0)
    shares = np.exp(scaled - highest)
    totals = shares.sum(axis=0)
    soft_maximum = temperature * (highest + np.log(totals))
    return ConservativeLoss(
        loss=float(np.mean(soft_maximum - recorded)),
        d_recorded=np.full_like(recorded, -1.0 / num_rows),
        d_candidates=shares / (totals * num_rows),
    )


# ---- learner


@dataclass(frozen=True, kw_only=True)
class CQLSettings(SACSettings):
    """The settings of `CQLConfig.training()` that its learner reads."""

    bc_iters: int
    min_q_weight: float
    num_actions: int
    temperature: float
    deterministic_backup: bool


class CQLLearner(SACLearner):
    """Conservative Q-learning (Kumar et al. 2020), for squashed Gaussian policies.

    Metrics are those of SAC; `qf_loss` and `qf_twin_loss` have the conservative term in them, which
    `cql_loss` is of the first critic, with its weight.
    """

    settings_class: ClassVar[type[LearnerSettings]] = CQLSettings
    settings: CQLSettings
    _candidates: tuple[Array, Array]
    _conservative: float

    def __init__(self, **arguments: Any) -> None:
        """See `SACLearner`.

        Raises:
            ConfigError: actions are not numbers with bounds.
        """
        super().__init__(**arguments)
        if not isinstance(self.module.action_distribution, SquashedGaussian):
            raise ConfigError(
                f"CQL holds critics down at actions drawn from a Box with bounds; the action space "
                f"is {self.module.action_space}. Use MARWIL, which takes every action space."
            )
        self._conservative = 0.0

    def losses(self, batch: ReplayBatch, *, rng: np.random.Generator) -> SACLosses:
        """See `SACLearner.losses`; candidates are drawn first."""
        self._candidates = self._drawn(batch, rng)
        return super().losses(batch, rng=rng)

    def _drawn(self, batch: ReplayBatch, rng: np.random.Generator) -> tuple[Array, Array]:
        """Candidates [K, B, A] and their log densities [K, B]; no gradient flows through them."""
        count, num_rows, dtype = self.settings.num_actions, len(batch.obs), batch.obs.dtype
        distribution: Any = self.module.action_distribution
        width = distribution.noise_width
        uniform = rng.uniform(-1.0, 1.0, (count, num_rows, width)).astype(dtype)
        actions = [uniform]
        log_densities = [np.full((count, num_rows), -width * math.log(2.0), dtype)]
        for obs in (batch.obs, batch.next_obs):
            inputs = np.tile(self._target_inputs(obs), (count, 1))
            noise = rng.standard_normal((count * num_rows, width)).astype(dtype)
            drawn = distribution.reparameterized(inputs, noise)
            actions.append(drawn.actions.reshape(count, num_rows, width))
            log_densities.append(drawn.logp.reshape(count, num_rows))
        return np.concatenate(actions), np.concatenate(log_densities)

    def _computes_pairs(self) -> bool:
        return False  # the policy's pass is another one while it imitates

    def _soft_values(
        self,
        obs: Array,
        inputs: Array,
        noise: Array,
        alpha: float,
        distribution: SquashedGaussian,
    ) -> Array:
        alpha = 0.0 if self.settings.deterministic_backup else alpha
        return super()._soft_values(obs, inputs, noise, alpha, distribution)

    def _policy(
        self,
        batch: ReplayBatch,
        inputs: Array,
        noise: Array,
        alpha: float,
        distribution: SquashedGaussian,
    ) -> tuple[float, Array, list[Array]]:
        """See `SACLearner`; in the first updates log π(a|s) stands in place of the critics."""
        if self.num_updates >= self.settings.bc_iters:
            return super()._policy(batch, inputs, noise, alpha, distribution)
        share = 1.0 / len(inputs)
        drawn = distribution.reparameterized(inputs, noise)
        terms = distribution.evaluate(inputs, batch.actions)
        d_inputs = drawn.backward(d_actions=np.zeros_like(drawn.actions), d_logp=alpha * share)
        d_inputs = d_inputs + terms.backward(d_logp=np.full_like(terms.logp, -share))
        self.module.backward(d_action_dist_inputs=d_inputs)
        loss = float(np.mean(alpha * drawn.logp - terms.logp))
        return loss, drawn.logp, self._critics.forward(self._seen(batch.obs), batch.actions)

    def _learn_critics(
        self, batch: ReplayBatch, targets: Array, outputs: list[Array]
    ) -> tuple[list[CriticLoss], Array]:
        """See `SACLearner`: L_Q and the conservative term, from one pass over all actions."""
        losses, smallest = self._critic_losses(batch, targets, outputs)
        candidates, log_densities = self._candidates
        count, num_rows, _ = candidates.shape
        seen = self._seen(batch.obs)
        values = self._critics.forward(
            np.tile(seen, (1 + count, 1)),
            np.concatenate([batch.actions, candidates.reshape(count * num_rows, -1)]),
        )
        weight, found, gradients = self.settings.min_q_weight, [], []
        for one, value in zip(losses, values, strict=True):
            held = conservative_loss(
                value[:num_rows],
                value[num_rows:].reshape(count, num_rows),
                log_densities,
                temperature=self.settings.temperature,
            )
            d_q = one.d_q + weight * held.d_recorded
            found.append(replace(one, loss=one.loss + weight * held.loss, d_q=d_q))
            gradients.append(np.concatenate([d_q, weight * held.d_candidates.ravel()]))
            if len(found) == 1:
                self._conservative = weight * held.loss
        self._critics.backward([gradient.astype(seen.dtype) for gradient in gradients])
        return found, smallest

    def _metrics(
        self, losses: SACLosses, log_alpha: float, norm: float
    ) -> Callable[[], dict[str, Any]]:
        of_sac, conservative = super()._metrics(losses, log_alpha, norm), self._conservative
        return lambda: {**of_sac(), "cql_loss": conservative}


# ---- config

_FROM_RECORDINGS: Final = "Leave it out: the buffer holds the recordings, all of them."
_PER_STEP: Final = "Leave it out: `dataset_num_iters_per_learner` says how many updates are made."
_WITHOUT_EFFECT: Final = MappingProxyType(
    {
        "replay_buffer_config": _FROM_RECORDINGS,
        "store_buffer_in_checkpoints": _FROM_RECORDINGS,
        "num_steps_sampled_before_learning_starts": _PER_STEP,
        "training_intensity": _PER_STEP,
        "target_network_update_freq": "Leave it out: targets follow after every update; choose how "
        "far with `tau`.",
    }
)


def steps_are_not_stored_as_they_are_played(config: CQLConfig) -> Iterator[Problem]:
    """No setting of SAC's is given that has nothing to say here."""
    for name, advice in _WITHOUT_EFFECT.items():
        value = config.read_value(name)
        if not same(value, config.settings_by_name()[name].default):
            yield Problem(assignment(name, value), "CQL samples no env steps.", advice, (name,))


class CQLConfig(CQLTrainingSection, SACConfig, OfflineConfig):
    """The settings of CQL (Kumar et al. 2020, "Conservative Q-learning for offline …").

    Example:
        `CQLConfig().environment("Pendulum-v1").offline_data(input_="recordings").build_algo()`
    """

    if TYPE_CHECKING:

        def _builds(self) -> CQL: ...  # type: ignore[override]

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            **SACConfig.changed_defaults,
            **OfflineConfig.changed_defaults,
            "actor_lr": 1e-4,
            "critic_lr": 1e-3,
            "alpha_lr": 1e-3,
            "td_error_loss_fn": "mse",
            "min_sample_timesteps_per_iteration": 0,
            "dataset_num_iters_per_learner": 100,
        }
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *(rule for rule in SACConfig.rules if "replay_buffer_config" not in rule.settings),
        *OFFLINE_RULES,
        Rule(tuple(_WITHOUT_EFFECT), steps_are_not_stored_as_they_are_played),
    )


# ---- algorithm


class CQL(OfflineAlgorithm):
    """Conservative Q-learning (Kumar et al. 2020), from recordings, for Box actions with bounds.

    The equations are in `README.md` beside this file.

    Attributes:
        buffer: the steps of all recordings; follows from them, and so is no part of the state.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = CQLConfig
    clips_actions: ClassVar[bool] = True
    config: CQLConfig
    learners: Any
    buffer: ReplayBuffer

    def make_learner(self, module_id: ModuleId | None = None) -> CQLLearner:
        """The learner with the settings of `CQLConfig.training()`."""
        lr = self.config_for(module_id).critic_lr
        return self.new_learner(CQLLearner, module_id, lr=lr)

    def setup(self, config: AlgorithmConfig) -> None:
        """Reads the recordings, and fills the buffer with them."""
        super().setup(config)
        recordings, statistics = self.reader.recordings, self.normalizations.only
        self.buffer = ReplayBuffer(capacity=recordings.num_steps)
        for number in range(len(recordings)):
            self.buffer.add(statistics.with_clipped_rewards([recordings.episode(number)]))

    def training_step(self) -> None:
        """Makes `dataset_num_iters_per_learner` updates from steps that are drawn uniformly."""
        config, result, size = self.config, self._iteration, self.config.train_batch_size
        num_updates = config.dataset_num_iters_per_learner or -(-len(self.buffer) // size)
        num_before, num_rows = self.counters.trained.num_env_steps, num_updates * size
        with result.time("learner_update_timer"):
            metrics = self.learners.update_from(
                self.trained(ByModule({self.module_specs.only_id: self.buffer})),
                num_updates=num_updates,
                num_env_steps_sampled_lifetime=num_before + num_rows,
                num_env_steps_sampled_before=num_before,
                on_batch=batch_listener(self.callbacks),
            )
        result.add_update(metrics, num_env_steps=num_rows, num_agent_steps=num_rows)
        with result.time("synch_weights"):
            self.send_policy()
