"""Reinforcement learning on one machine: RLlib's API, process pools, exact resume and exact repair.

    from trainer import PPOConfig

    with PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=2).build_algo() as algo:
        for _ in range(10):
            print(algo.train())
        algo.save_to_path("runs/cartpole")

Everything public is importable from here, from `callbacks` and from `checkpoints`.
"""

from trainer.sibling_packages import check_siblings

check_siblings()

from callbacks import (  # noqa: E402 - only after the check that it is ours
    CallbackError,
    DefaultCallbacks,
    MultiCallbacks,
    RLlibCallback,
    make_multi_callbacks,
)
from checkpoints import Checkpointable, CheckpointError, latest_checkpoint  # noqa: E402
from trainer.algorithms.algorithm import Algorithm  # noqa: E402
from trainer.algorithms.ppo import PPO, PPOConfig  # noqa: E402
from trainer.config import AlgorithmConfig  # noqa: E402
from trainer.env_runners import EnvRunner, EnvRunnerGroup, SingleAgentEnvRunner  # noqa: E402
from trainer.envs import EnvContext, register_env  # noqa: E402
from trainer.episodes import SingleAgentEpisode  # noqa: E402
from trainer.errors import (  # noqa: E402
    AlgorithmStoppedError,
    ConfigError,
    EnvContractError,
    EnvCreationError,
    EnvError,
    EpisodeError,
    FrozenConfigError,
    MetricsError,
    ModuleError,
    RemoteError,
    RunnerError,
    RunnerFailedError,
    RunnerLostError,
    SerializationError,
    TrainerError,
    UnknownSettingError,
    UnsupportedSpaceError,
)
from trainer.metrics import MetricsLogger, ResultDict  # noqa: E402
from trainer.modules import RLModule, RLModuleSpec  # noqa: E402

__all__ = [
    "PPO",
    "Algorithm",
    "AlgorithmConfig",
    "AlgorithmStoppedError",
    "CallbackError",
    "CheckpointError",
    "Checkpointable",
    "ConfigError",
    "DefaultCallbacks",
    "EnvContext",
    "EnvContractError",
    "EnvCreationError",
    "EnvError",
    "EnvRunner",
    "EnvRunnerGroup",
    "EpisodeError",
    "FrozenConfigError",
    "MetricsError",
    "MetricsLogger",
    "ModuleError",
    "MultiCallbacks",
    "PPOConfig",
    "RLModule",
    "RLModuleSpec",
    "RLlibCallback",
    "RemoteError",
    "ResultDict",
    "RunnerError",
    "RunnerFailedError",
    "RunnerLostError",
    "SerializationError",
    "SingleAgentEnvRunner",
    "SingleAgentEpisode",
    "TrainerError",
    "UnknownSettingError",
    "UnsupportedSpaceError",
    "latest_checkpoint",
    "make_multi_callbacks",
    "register_env",
]
