"""APPO and IMPALA: PPO's update, made from samples that are some updates old.

Runners play ahead (`sample_ahead`), so that slow envs are busy all the time, however uneven their
steps are. What is learnt from is a rule and not a race: sample k is always played with the weights
that lack `sample_ahead` updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.random import Generator

from trainer.algorithms.appo.training_section import APPOTrainingSection
from trainer.algorithms.appo.vtrace import VTraceSettings, vtrace
from trainer.algorithms.ppo import PPO, PPOConfig, PPOLearner
from trainer.algorithms.ppo.ppo import PPOSettings
from trainer.config.settings import Problem, assignment
from trainer.config.validation import Rule
from trainer.connectors import AdvantageEstimate, Chunks
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, ACTIONS, ADVANTAGES, OBS
from trainer.learners import Columns, LearnerSettings, TrainBatchEvent
from trainer.types import Array, ModuleId

# ---- learner

BEHAVIOUR_LOGP: Final = "behaviour_action_logp"
"""The column of a train batch with the log-probabilities of the policy that acted, [B]."""

_LARGEST_EXPONENT: Final = 20.0
"""Of a ratio of probabilities: e^20 is beyond every bound that means something."""


@dataclass(frozen=True, kw_only=True)
class APPOSettings(PPOSettings):
    """The settings of `APPOConfig.training()` that its learner reads."""

    vtrace: bool
    vtrace_clip_rho_threshold: float
    vtrace_clip_pg_rho_threshold: float


class APPOLearner(PPOLearner):
    """PPO's update around the policy of now, from a sample that an older policy has played.

    Values are those of now, advantages are corrected by V-trace for what has changed since then,
    and the clipped ratio (and the KL divergence) is to the policy before this update. That is the
    target network of IMPACT (Luo et al. 2020, arXiv:1912.00167), renewed in every update.

    Metrics are those of PPO, and of V-trace: `mean_importance_ratio` (of the policy of now to the
    one that acted) and `clipped_importance_ratios` (the share of steps whose ratio is above ρ̄).
    """

    settings_class: ClassVar[type[LearnerSettings]] = APPOSettings
    settings: APPOSettings

    def learn(
        self, columns: Columns, *, rng: Generator, num_env_steps: int, event: TrainBatchEvent
    ) -> dict[str, Any]:
        """One update; see `Learner.learn`."""
        if not self.settings.vtrace:
            return super().learn(columns, rng=rng, num_env_steps=num_env_steps, event=event)
        columns = self._of_policy_of_now(columns)
        metrics = super().learn(columns, rng=rng, num_env_steps=num_env_steps, event=event)
        ratios, threshold = _ratios(columns), self.settings.vtrace_clip_rho_threshold
        metrics["mean_importance_ratio"] = float(ratios.mean())
        metrics["clipped_importance_ratios"] = float((ratios > threshold).mean())
        return metrics

    def _of_policy_of_now(self, columns: Columns) -> Columns:
        """The columns with what the policy before this update says of the actions.

        Values that a network gave while it acted are left out: they are of its old weights.
        """
        batch = {
            **columns.extras,
            **self.batching.state_rows(columns),
            OBS: columns.obs,
            ACTIONS: columns.actions,
        }
        batch = self.batching.whole(batch, columns.lengths)
        inputs = self.module.target_output(batch, ACTION_DIST_INPUTS)
        terms = self.module.action_distribution.evaluate(inputs, columns.actions)
        return replace(
            columns,
            action_logp=terms.logp,
            action_dist_inputs=inputs,
            vf_preds=None,
            extras={**columns.extras, BEHAVIOUR_LOGP: columns.action_logp},
        )

    def estimate(self, chunks: Chunks, columns: Columns) -> AdvantageEstimate:
        """V-trace, or PPO's estimate without it."""
        settings = self.settings
        if not settings.vtrace:
            return super().estimate(chunks, columns)
        bounds = VTraceSettings(
            gamma=settings.gamma,
            lambda_=settings.lambda_,
            clip_rho=settings.vtrace_clip_rho_threshold,
        )
        return vtrace(chunks, _ratios(columns), bounds)

    def training_rows(self, columns: Columns, estimate: AdvantageEstimate) -> dict[str, Array]:
        """PPO's columns, with advantages that weigh as much as the policy of now takes the action.

        Weighed after they are standardised: an action that it takes no more has a weight of 0, and
        a mean that is subtracted afterwards would give it one.
        """
        rows = super().training_rows(columns, estimate)
        if self.settings.vtrace:
            weights = np.minimum(self.settings.vtrace_clip_pg_rho_threshold, _ratios(columns))
            rows[ADVANTAGES] = (rows[ADVANTAGES] * weights).astype(np.float32)
        return rows


def _ratios(columns: Columns) -> Array:
    """π / μ of every action, of the policy of now to the one that acted, float64 [B]."""
    difference = columns.action_logp.astype(np.float64) - columns.extras[BEHAVIOUR_LOGP]
    ratios: Array = np.exp(np.minimum(difference, _LARGEST_EXPONENT))
    return ratios


# ---- config


def vtrace_has_values(config: APPOConfig) -> Iterator[Problem]:
    """V-trace corrects value estimates, so there must be some."""
    if not config.vtrace:
        return
    for name in ("use_critic", "use_gae"):
        if not config.read_value(name):
            yield Problem(
                assignment(name, False),
                "V-trace needs values, and estimates advantages by them.",
                "Leave it out, or give vtrace=False, too.",
                (name, "vtrace"),
            )


def weights_stay_as_they_are(config: APPOConfig) -> Iterator[Problem]:
    """Advantages are standardised before they are weighed, so over the whole batch."""
    if config.vtrace and config.standardize_advantages == "minibatch":
        yield Problem(
            assignment("standardize_advantages", "minibatch"),
            "V-trace weighs advantages by how old they are; the mean of a minibatch would be "
            "subtracted from weights, too.",
            'Give "batch" or None, or vtrace=False.',
            ("standardize_advantages", "vtrace"),
        )


class APPOConfig(APPOTrainingSection, PPOConfig):
    """The settings of APPO: PPO on samples that are `sample_ahead` updates old (Luo et al. 2020).

    Example:
        `APPOConfig().environment("CartPole-v1").training(sample_ahead=2).build_algo()`
    """

    if TYPE_CHECKING:

        def _builds(self) -> APPO: ...

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            **PPOConfig.changed_defaults,
            "lr": 5e-4,
            "train_batch_size": 500,
            "num_epochs": 1,
            "minibatch_size": None,
            "clip_param": 0.4,
            "use_kl_loss": False,
            "vf_clip_param": None,
            "vf_loss_coeff": 0.5,
            "entropy_coeff": 0.01,
            "grad_clip": 40.0,
            "sample_ahead": 2,
        }
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *PPOConfig.rules,
        Rule(("vtrace", "use_critic", "use_gae"), vtrace_has_values),
        Rule(("vtrace", "standardize_advantages"), weights_stay_as_they_are),
    )


def every_row_counts_once(config: IMPALAConfig) -> Iterator[Problem]:
    """IMPALA makes one gradient step from a sample: nothing keeps a second one near the policy."""
    size, batch = config.minibatch_size, config.total_train_batch_size
    several = {"num_epochs": config.num_epochs > 1, "minibatch_size": size and size < batch}
    for name in (name for name, is_so in several.items() if is_so):
        yield Problem(
            assignment(name, config.read_value(name)),
            "IMPALA makes one gradient step from each sample.",
            "Leave it out, or use APPO, which bounds several by clipping.",
            (name,),
        )


def nothing_bounds_the_step(config: IMPALAConfig) -> Iterator[Problem]:
    """What keeps later steps near the policy has no meaning for the first one."""
    for name, is_asked_for in (("use_kl_loss", config.use_kl_loss), ("vtrace", not config.vtrace)):
        if is_asked_for:
            yield Problem(
                assignment(name, config.read_value(name)),
                "IMPALA is the policy gradient with V-trace, from the policy before the update.",
                "Leave it out, or use APPO.",
                (name,),
            )


class IMPALAConfig(APPOConfig):
    """The settings of IMPALA (Espeholt et al. 2018): APPO with one gradient step per sample.

    The policy that learns is the one that advantages were corrected for: its ratio is 1.

    Example:
        `IMPALAConfig().environment("CartPole-v1").training(lr=1e-3).build_algo()`
    """

    if TYPE_CHECKING:

        def _builds(self) -> IMPALA: ...

    rules: ClassVar[tuple[Rule, ...]] = (
        *APPOConfig.rules,
        Rule(("num_epochs", "minibatch_size"), every_row_counts_once),
        Rule(("use_kl_loss", "vtrace"), nothing_bounds_the_step),
    )


# ---- algorithm


class APPO(PPO):
    """Asynchronous PPO with V-trace, whose lag is a rule.

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[PPOConfig]] = APPOConfig

    def make_learner(self, module_id: ModuleId | None = None) -> APPOLearner:
        """The learner with the settings of `APPOConfig.training()`."""
        return self.new_learner(APPOLearner, module_id)


class IMPALA(APPO):
    """Importance-weighted actor-learner (Espeholt et al. 2018), whose lag is a rule."""

    config_class: ClassVar[type[PPOConfig]] = IMPALAConfig
