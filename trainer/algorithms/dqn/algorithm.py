"""DQN: acts ε-greedily, stores what it sees, and learns from random parts of it.

DQNConfig: the settings of deep Q-learning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from gymnasium import spaces

from checkpoints.arguments import checked_methods
from trainer.algorithms.dqn.learner import DQNLearner, DQNSettings
from trainer.algorithms.off_policy import OffPolicyAlgorithm, OffPolicyConfig, refused
from trainer.config import AlgorithmConfig, NotProvided, Setting, section
from trainer.config.settings import (
    Problem,
    assignment,
    boolean,
    function,
    integer,
    number,
    one_of,
    optional,
    same_value,
    schedule,
)
from trainer.config.validation import Rule
from trainer.errors import UnsupportedSpaceError
from trainer.modules import QModule, RLModule, RLModuleSpec
from trainer.types import ModuleId

# ---- config

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002


ConfigT = TypeVar("ConfigT", bound="DQNConfig")

Schedule = float | list[list[float]]


def atoms_have_a_range(config: DQNConfig) -> Iterator[Problem]:
    """With atoms, the largest is above the smallest."""
    if config.num_atoms > 1 and config.v_min >= config.v_max:
        yield Problem(
            assignment("v_max", config.v_max),
            f"with num_atoms={config.num_atoms} it must be above v_min={config.v_min}.",
            "Give the range that discounted returns can have.",
            ("v_max", "v_min"),
        )


def epsilon_is_a_share(config: DQNConfig) -> Iterator[Problem]:
    """Actions are random with a probability."""
    epsilon = config.epsilon
    values = [pair[1] for pair in epsilon] if isinstance(epsilon, (list, tuple)) else [epsilon]
    if max(values) > 1:
        yield Problem(
            assignment("epsilon", epsilon),
            "it is the probability of a random action, so it must not be above 1.",
            "Give numbers in [0, 1].",
            ("epsilon",),
        )


def epsilon_is_said_once(config: DQNConfig) -> Iterator[Problem]:
    """Not both `epsilon` and arguments of ε-greedy without a type are given."""
    arguments = config.exploration_config
    is_default = same_value(config.epsilon, type(config).epsilon.default)
    if not is_default and arguments and "type" not in arguments:
        yield Problem(
            assignment("exploration_config", arguments),
            f"epsilon={config.epsilon} says already how often actions are random.",
            'Give all of it in one place: leave `epsilon` out, or add {"type": "EpsilonGreedy"} to '
            "replace it.",
            ("exploration_config", "epsilon"),
        )


def own_networks_have_no_atoms(config: DQNConfig) -> Iterator[Problem]:
    """Distributional learning needs the ready-made network, or one that is derived from it."""
    own = config.rl_module_spec.module_class if config.rl_module_spec is not None else None
    if config.num_atoms > 1 and own is not None and not issubclass(own, QModule):
        yield Problem(
            assignment("num_atoms", config.num_atoms),
            f"the module class {own.__name__} gives one value per action, no distribution.",
            "Give num_atoms=1, or derive the class from QModule.",
            ("num_atoms", "rl_module_spec"),
        )


_REFUSED: Final = {
    "noisy": "Explore with `epsilon`, or with an `exploration_config` such as ParameterNoise, "
    "which perturbs the weights.",
    "sigma0": "It belongs to noisy networks, which are not offered; leave it out.",
    "before_learn_on_batch": "Change batches in the callback `on_learn_on_batch`: "
    "`config.callbacks(on_learn_on_batch=...)`.",
    "burn_in_len": "It belongs to recurrent networks, which are not offered; leave it out.",
    "categorical_distribution_temperature": "Actions are chosen by the largest value. For a "
    'temperature, use exploration_config={"type": "SoftQ", "temperature": ...}.',
}


class DQNConfig(OffPolicyConfig):
    """The settings of DQN (Mnih et al. 2015, "Human-level control through deep RL").

    Double, dueling, prioritized, n-step and distributional learning are switches of their own, as
    in "Rainbow" (Hessel et al. 2018).

    Example:
        `DQNConfig().environment("CartPole-v1").training(lr=1e-3).build_algo()`
    """

    if TYPE_CHECKING:

        def _builds(self) -> DQN: ...

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            **OffPolicyConfig.changed_defaults,
            "lr": 5e-4,
            "train_batch_size": 32,
            "grad_clip": 40.0,
            "target_network_update_freq": 500,
            "min_sample_timesteps_per_iteration": 1000,
        }
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *OffPolicyConfig.rules,
        Rule(("num_atoms", "v_min", "v_max"), atoms_have_a_range),
        Rule(("num_atoms", "rl_module_spec"), own_networks_have_no_atoms),
        Rule(("epsilon",), epsilon_is_a_share),
        Rule(("epsilon", "exploration_config"), epsilon_is_said_once),
        refused(_REFUSED),
    )

    default_module_class: ClassVar[type[RLModule]] = QModule
    module_settings: ClassVar[tuple[str, ...]] = ("dueling", "num_atoms", "v_min", "v_max")

    double_q = Setting(True, boolean())
    dueling = Setting(True, boolean())
    num_atoms = Setting(1, integer(1))
    v_min = Setting[float](-10.0, number())
    v_max = Setting[float](10.0, number())
    epsilon = Setting[Schedule]([[0, 1.0], [10_000, 0.05]], schedule(0))
    td_error_loss_fn = Setting("huber", one_of("huber", "mse"))
    adam_epsilon = Setting[float](1e-8, number(above=0))
    noisy = Setting(False, boolean())
    sigma0 = Setting[float](0.5, number())
    before_learn_on_batch = Setting[Any](None, optional(function()))
    burn_in_len = Setting(0, integer(0))
    categorical_distribution_temperature = Setting[float](1.0, number())

    @section
    def training(
        self: ConfigT,
        *,
        double_q: bool = NotProvided,
        dueling: bool = NotProvided,
        num_atoms: int = NotProvided,
        v_min: float = NotProvided,
        v_max: float = NotProvided,
        epsilon: Schedule = NotProvided,
        td_error_loss_fn: str = NotProvided,
        adam_epsilon: float = NotProvided,
        lr_schedule: list[list[float]] | None = NotProvided,
        noisy: bool = NotProvided,
        sigma0: float = NotProvided,
        before_learn_on_batch: Any = NotProvided,
        burn_in_len: int = NotProvided,
        categorical_distribution_temperature: float = NotProvided,
        **common_settings: Any,
    ) -> ConfigT:
        """Say how DQN learns.

        Args:
            double_q: the learning network chooses the next action, the target network values it.
            dueling: separate streams for the value of a state and the advantages of actions. This
                and the next three settings shape the ready-made network only.
            num_atoms: above 1, learn the distribution of returns on so many atoms (C51).
            v_min: the smallest atom.
            v_max: the largest atom.
            epsilon: how often actions are random: a number, or a schedule `[[env_steps, value],
                ...]` starting at 0. An `exploration_config` with a type replaces it.
            td_error_loss_fn: "huber" or "mse".
            adam_epsilon: keeps Adam's steps finite.
            lr_schedule: old way to give a schedule for `lr`; None says nothing.
            noisy: noisy networks; must be False.
            sigma0: their first noise; must be left out.
            before_learn_on_batch: must be None; `on_learn_on_batch` is a callback here.
            burn_in_len: for recurrent networks; must be 0.
            categorical_distribution_temperature: must be 1.
            **common_settings: arguments of `OffPolicyConfig.training`, such as `n_step` and
                `replay_buffer_config`, and of `AlgorithmConfig.training`.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

    def default_exploration_config(self) -> dict[str, Any]:
        """ε-greedy, as `epsilon` says."""
        return {"type": "EpsilonGreedy", "epsilon_schedule": self.epsilon}


# ---- algorithm


@checked_methods()
class DQN(OffPolicyAlgorithm):
    """Deep Q-learning (Mnih et al. 2015).

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = DQNConfig

    def make_learner(self, module_id: ModuleId | None = None) -> DQNLearner:
        """The learner with the settings of `DQNConfig.training()`."""
        check_actions(self.learner_arguments(module_id)["module_spec"])
        settings = DQNSettings.from_config(self.config)
        return DQNLearner(settings=settings, **self.learner_arguments(module_id))


def check_actions(spec: RLModuleSpec) -> None:
    """Refuses what values by action cannot be learnt for; also with a network of the user's own.

    Raises:
        UnsupportedSpaceError: the actions are not Discrete.
    """
    if not isinstance(spec.action_space, spaces.Discrete):
        raise UnsupportedSpaceError(
            f"DQN learns one value per action, so it needs a Discrete action space; this env has "
            f"{spec.action_space}. Use PPO or SAC for Box actions, PPO for MultiDiscrete ones, or "
            "number the actions with an action wrapper."
        )
