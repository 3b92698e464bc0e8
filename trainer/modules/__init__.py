"""Networks that act and learn: the base class, the ready-made actor-critic, and their specs."""

from trainer.modules.actor_critic import ActorCriticModule
from trainer.modules.model_config import DefaultModelConfig
from trainer.modules.rl_module import VF_PREDS, RLModule
from trainer.modules.spaces import distribution_for, observation_size
from trainer.modules.spec import RLModuleSpec

__all__ = [
    "VF_PREDS",
    "ActorCriticModule",
    "DefaultModelConfig",
    "RLModule",
    "RLModuleSpec",
    "distribution_for",
    "observation_size",
]
