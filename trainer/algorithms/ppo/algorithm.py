"""PPO: samples with the current weights, learns from that sample alone, and samples again.

PPOConfig: the settings of proximal policy optimization.

What PPO shows of its advantages in `on_postprocess_trajectory`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from checkpoints.arguments import checked_methods
from trainer.algorithms.on_policy import OnPolicyAlgorithm
from trainer.algorithms.ppo.learner import PPOLearner, PPOSettings
from trainer.config import AlgorithmConfig, NotProvided, Setting, section
from trainer.config.settings import Problem, assignment, boolean, number, optional, schedule
from trainer.config.validation import COMMON_RULES, ON_POLICY_RULES, Rule
from trainer.connectors import SampleBatch, compute_advantages
from trainer.episodes.episode_columns import OBS, TERMINATEDS, VF_PREDS
from trainer.modules import RLModule
from trainer.types import FloatArray, ModuleId

# ---- config

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002


ConfigT = TypeVar("ConfigT", bound="PPOConfig")

Schedule = float | list[list[float]]


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
    """Episodes are cut only when the last value estimate stands in for what is cut off."""
    if config.batch_mode == "truncate_episodes" and not config.use_gae:
        yield Problem(
            assignment("use_gae", False),
            'with batch_mode="truncate_episodes" the rest of a cut episode is unknown without '
            "value estimates.",
            'Give use_gae=True or batch_mode="complete_episodes".',
            ("use_gae",),
        )


class PPOConfig(AlgorithmConfig):
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
    )

    use_critic = Setting(True, boolean())
    use_gae = Setting(True, boolean())
    lambda_ = Setting[float](1.0, number(0, maximum=1))
    use_kl_loss = Setting(True, boolean())
    kl_coeff = Setting[float](0.2, number(0))
    kl_target = Setting[float](0.01, number(above=0))
    vf_loss_coeff = Setting[float](1.0, number(0))
    entropy_coeff = Setting[Schedule](0.0, schedule(0))
    clip_param = Setting[float](0.3, number(above=0))
    vf_clip_param = Setting[float | None](10.0, optional(number(above=0, infinite=True)))

    @section
    def training(
        self: ConfigT,
        *,
        use_critic: bool = NotProvided,
        use_gae: bool = NotProvided,
        lambda_: float = NotProvided,
        use_kl_loss: bool = NotProvided,
        kl_coeff: float = NotProvided,
        kl_target: float = NotProvided,
        vf_loss_coeff: float = NotProvided,
        entropy_coeff: Schedule = NotProvided,
        entropy_coeff_schedule: list[list[float]] | None = NotProvided,
        clip_param: float = NotProvided,
        vf_clip_param: float | None = NotProvided,
        lr_schedule: list[list[float]] | None = NotProvided,
        vf_share_layers: bool = NotProvided,
        **common_settings: Any,
    ) -> ConfigT:
        """Say how PPO learns.

        Args:
            use_critic: learn a value function; False leaves its loss out.
            use_gae: estimate advantages as in Schulman et al. 2016; False takes discounted returns.
            lambda_: the decay λ of that estimate, in [0, 1].
            use_kl_loss: add the KL divergence between old and new policy to the loss.
            kl_coeff: its first coefficient; adapted so that the divergence stays near `kl_target`.
            kl_target: the divergence aimed at.
            vf_loss_coeff: the coefficient of the value loss.
            entropy_coeff: the coefficient of the entropy bonus: a number, or a schedule
                `[[env_steps, value], ...]` starting at 0.
            entropy_coeff_schedule: old way to give a schedule for `entropy_coeff`; None says
                nothing.
            clip_param: ε, how far the probability ratio may move: to [1 - ε, 1 + ε].
            vf_clip_param: bound of the squared value error; None and infinity do not clip.
            lr_schedule: old way to give a schedule for `lr`; None says nothing.
            vf_share_layers: whether policy and value function share layers; stored in
                `model_config`.
            **common_settings: arguments of `AlgorithmConfig.training`, such as `lr` and
                `train_batch_size`.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self


# ---- postprocessing


@dataclass(frozen=True)
class AdvantagePostprocessing:
    """Adds `vf_preds`, `advantages` and `value_targets` to a chunk, with the weights that acted.

    The learner computes the same again for all chunks together, where the last bits of values may
    differ; so only what callbacks change is taken from here.

    Attributes:
        gamma, lambda_, use_gae, use_critic: see `PPOSettings`.
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
        """See `TrajectoryPostprocessing.add_columns`."""
        last_value = 0.0
        if self.use_critic:
            values = module.compute_values({OBS: obs})
            batch[VF_PREDS] = values[:-1]
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


@checked_methods()
class PPO(OnPolicyAlgorithm):
    """Proximal Policy Optimization (Schulman et al. 2017).

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = PPOConfig

    def make_learner(self, module_id: ModuleId | None = None) -> PPOLearner:
        """The learner with the settings of `PPOConfig.training()`."""
        settings = PPOSettings.from_config(self.config)
        return PPOLearner(settings=settings, **self.learner_arguments(module_id))

    def make_postprocessing(self) -> AdvantagePostprocessing:
        """Advantages, as the learner estimates them."""
        config = self.config
        return AdvantagePostprocessing(
            gamma=config.gamma,
            lambda_=config.lambda_,
            use_gae=config.use_gae,
            use_critic=config.use_critic,
        )
