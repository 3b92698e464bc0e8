"""DQN: acts ε-greedily, stores what it sees, and learns from random parts of it."""

from __future__ import annotations

from typing import ClassVar

from gymnasium import spaces

from checkpoints.arguments import checked_methods
from trainer.algorithms.dqn.config import DQNConfig
from trainer.algorithms.dqn.learner import DQNLearner, DQNSettings
from trainer.algorithms.off_policy.algorithm import OffPolicyAlgorithm
from trainer.config import AlgorithmConfig
from trainer.errors import UnsupportedSpaceError
from trainer.modules import RLModuleSpec


@checked_methods()
class DQN(OffPolicyAlgorithm):
    """Deep Q-learning (Mnih et al. 2015).

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = DQNConfig

    def make_learner(self) -> DQNLearner:
        """The learner with the settings of `DQNConfig.training()`."""
        config = self.config
        check_actions(self.module_spec)
        settings = DQNSettings(
            **self.replay_settings(),
            lr=config.lr,
            adam_epsilon=config.adam_epsilon,
            double_q=config.double_q,
            td_error_loss_fn=config.td_error_loss_fn,
        )
        return DQNLearner(module_spec=self.module_spec, settings=settings, root_seed=self.root_seed)


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
