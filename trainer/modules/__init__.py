"""Networks that act and learn: the base class, the ready-made actor-critic, and their specs."""

from trainer.modules.actor_critic import ActorCriticModule, PolicyModule, RLModuleSpec
from trainer.modules.by_module import ByModule, check_module_ids, component_of, module_position
from trainer.modules.feature_noise import NOISE_LOADINGS
from trainer.modules.memory import StatefulRLModule
from trainer.modules.model_config import DefaultModelConfig, plain_names
from trainer.modules.module_table import Matchups, ModuleTable, OwnActing
from trainer.modules.multi_rl_module import MultiRLModule, MultiRLModuleSpec, PolicySpec
from trainer.modules.q_module import QModule
from trainer.modules.random_module import RandomRLModule
from trainer.modules.rl_module import RLModule
from trainer.modules.sac_module import SACModelConfig, SACModule
from trainer.modules.spaces import distribution_for, observation_size
from trainer.modules.torch_actor_critic import PPOTorchRLModule
from trainer.modules.torch_critics import TorchSACModule
from trainer.modules.torch_module import TorchRLModule
