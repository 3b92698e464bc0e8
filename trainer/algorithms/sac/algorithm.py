"""SAC: plays with a policy that is rewarded for randomness, and learns from all it has seen.

SACConfig: the settings of soft actor-critic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from checkpoints.arguments import checked_methods
from trainer.algorithms.off_policy import OffPolicyAlgorithm, OffPolicyConfig, refused
from trainer.algorithms.sac.learner import SACLearner, SACSettings
from trainer.config import AlgorithmConfig, NotProvided, Setting, section
from trainer.config.settings import (
    Check,
    Problem,
    assignment,
    boolean,
    either,
    mapping,
    number,
    one_of,
    optional,
    schedule,
)
from trainer.config.validation import Rule
from trainer.errors import ConfigError
from trainer.modules import RLModule, SACModelConfig, SACModule, TorchSACModule
from trainer.types import ModuleId

# ---- config

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002


ConfigT = TypeVar("ConfigT", bound="SACConfig")

Schedule = float | list[list[float]]

_NO_LR: Final = Check(
    "None, because SAC has three learning rates: `actor_lr`, `critic_lr` and `alpha_lr`",
    lambda value: value is None,
)


def networks_can_be_made(config: SACConfig) -> Iterator[Problem]:
    """The settings of policy and critics fit the ready-made networks."""
    spec = config.rl_module_spec
    if spec is not None and spec.module_class is not None:
        return
    given = (spec.model_config if spec is not None else None) or config.model_config
    try:
        shape = SACModelConfig.from_setting({**given, **config.settings_of_module()})
        shape.layers("policy", 1)
        shape.layers("q", 1)
    except ConfigError as error:
        names = ("model_config", "policy_model_config", "q_model_config")
        yield Problem("The networks of SAC", str(error), "Correct it.", names)


def own_networks_are_sac_modules(config: SACConfig) -> Iterator[Problem]:
    """SAC needs critics, which a module class of the user's own must have."""
    spec = config.rl_module_spec
    own = None if spec is None else spec.module_class
    if own is not None and not issubclass(own, SACModule | TorchSACModule):
        yield Problem(
            assignment("rl_module_spec", own.__name__),
            "SAC learns a policy and critics, and this module class is not derived from SACModule "
            "or TorchSACModule.",
            "Derive it from SACModule or TorchSACModule, or use PPO or DQN.",
            ("rl_module_spec",),
        )


def actions_are_normalized(config: SACConfig) -> Iterator[Problem]:
    """The policy chooses in [-1, 1], so the env's bounds must be applied to that."""
    if not config.normalize_actions:
        yield Problem(
            assignment("normalize_actions", False),
            "SAC's policy chooses in [-1, 1], which only then is scaled to the bounds of the "
            "action space.",
            "Leave it out, or give normalize_actions=True.",
            ("normalize_actions",),
        )


_REFUSED: Final = {
    "_use_beta_distribution": "The policy is a squashed normal distribution; leave it out.",
    "_deterministic_loss": "The losses need actions drawn from the policy; leave it out. For an "
    "exact rerun, `debugging(seed=...)` is enough.",
}


class SACConfig(OffPolicyConfig):
    """The settings of SAC (Haarnoja et al. 2018, "Soft actor-critic algorithms and applications").

    Example:
        `SACConfig().environment("Pendulum-v1").training(actor_lr=1e-3, critic_lr=1e-3)`
    """

    if TYPE_CHECKING:

        def _builds(self) -> SAC: ...

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            **OffPolicyConfig.changed_defaults,
            "train_batch_size": 256,
            "tau": 5e-3,
            "num_steps_sampled_before_learning_starts": 1500,
            "min_sample_timesteps_per_iteration": 100,
            "replay_buffer_config": {
                **OffPolicyConfig.replay_buffer_config.default,
                "capacity": 1_000_000,
            },
        }
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *OffPolicyConfig.rules,
        Rule(("model_config", "rl_module_spec"), networks_can_be_made),
        Rule(("rl_module_spec",), own_networks_are_sac_modules),
        Rule(("normalize_actions",), actions_are_normalized),
        refused(_REFUSED),
    )
    default_module_class: ClassVar[type[RLModule]] = SACModule
    module_settings: ClassVar[tuple[str, ...]] = (
        "twin_q",
        "initial_alpha",
        "policy_model_config",
        "q_model_config",
    )

    lr = Setting[Any](None, _NO_LR)
    actor_lr = Setting[Schedule](3e-5, schedule(0))
    critic_lr = Setting[Schedule](3e-4, schedule(0))
    alpha_lr = Setting[Schedule](3e-4, schedule(0))
    twin_q = Setting(True, boolean())
    initial_alpha = Setting[float](1.0, number(above=0))
    target_entropy = Setting[float | str | None]("auto", optional(either(number(), one_of("auto"))))
    policy_model_config = Setting[dict[str, Any]]({}, mapping())
    q_model_config = Setting[dict[str, Any]]({}, mapping())
    optimization_config = Setting[dict[str, Any]]({}, mapping())
    _deterministic_loss = Setting(False, boolean())
    _use_beta_distribution = Setting(False, boolean())

    @section
    def training(
        self: ConfigT,
        *,
        actor_lr: Schedule = NotProvided,
        critic_lr: Schedule = NotProvided,
        alpha_lr: Schedule = NotProvided,
        twin_q: bool = NotProvided,
        initial_alpha: float = NotProvided,
        target_entropy: float | str | None = NotProvided,
        policy_model_config: dict[str, Any] = NotProvided,
        q_model_config: dict[str, Any] = NotProvided,
        optimization_config: dict[str, Any] = NotProvided,
        _deterministic_loss: bool = NotProvided,
        _use_beta_distribution: bool = NotProvided,
        **common_settings: Any,
    ) -> ConfigT:
        """Say how SAC learns.

        Args:
            actor_lr: learning rate of the policy: a number, or a schedule `[[env_steps, value],
                ...]` starting at 0.
            critic_lr: learning rate of the critics, likewise.
            alpha_lr: learning rate of the temperature, likewise; 0 keeps it at `initial_alpha`.
            twin_q: learn two critics and believe the smaller value (Fujimoto et al. 2018).
            initial_alpha: the first temperature α, what a nat of entropy is worth in reward, > 0.
            target_entropy: the mean entropy of the policy in nats that the temperature aims at.
                "auto" (or None): minus the number of action dimensions, or 0.98 ln n for n Discrete
                actions.
            policy_model_config: settings of `model_config` for the policy only.
            q_model_config: settings of `model_config` for the critics only.
            optimization_config: old way to give the three learning rates, as a dict with the keys
                `actor_learning_rate`, `critic_learning_rate` and `entropy_learning_rate`.
            _deterministic_loss: must be False.
            _use_beta_distribution: must be False.
            **common_settings: arguments of `OffPolicyConfig.training`, such as `n_step`, `tau` and
                `replay_buffer_config`, and of `AlgorithmConfig.training`; `lr` must stay None.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self


# ---- algorithm


@checked_methods()
class SAC(OffPolicyAlgorithm):
    """Soft actor-critic (Haarnoja et al. 2018), for bounded Box and for Discrete actions.

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = SACConfig
    config: SACConfig

    def make_learner(self, module_id: ModuleId | None = None) -> SACLearner:
        """The learner with the settings of `SACConfig.training()`."""
        settings = SACSettings.from_config(self.config, lr=self.config.critic_lr)
        return SACLearner(settings=settings, **self.learner_arguments(module_id))
