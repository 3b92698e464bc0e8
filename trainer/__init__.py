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
    BestCheckpoint,
    CallbackError,
    CSVLogger,
    DefaultCallbacks,
    EarlyStopping,
    EpisodeRecorder,
    JSONLinesLogger,
    MultiCallbacks,
    NonFiniteError,
    NonFiniteGuard,
    PeriodicCheckpoint,
    ProgressPrinter,
    ResultLogger,
    ResultSink,
    RLlibCallback,
    TaskLadder,
    TensorBoardLogger,
    VideoRecorder,
    load_episode,
    make_multi_callbacks,
)
from checkpoints import Checkpointable, CheckpointError, latest_checkpoint  # noqa: E402
from trainer import actors  # noqa: E402
from trainer.algorithms.algorithm import Algorithm  # noqa: E402
from trainer.algorithms.dqn import DQN, DQNConfig  # noqa: E402
from trainer.algorithms.onnx_export import export_onnx  # noqa: E402
from trainer.algorithms.pg import PG, PGConfig  # noqa: E402
from trainer.algorithms.ppo import PPO, PPOConfig  # noqa: E402
from trainer.algorithms.sac import SAC, SACConfig  # noqa: E402
from trainer.algorithms.trained_policy import TrainedPolicy  # noqa: E402
from trainer.config import AlgorithmConfig  # noqa: E402
from trainer.connectors import SampleBatch, compute_advantages  # noqa: E402
from trainer.curriculum import TaskSettableEnv  # noqa: E402
from trainer.env_runners import (  # noqa: E402
    EnvRunner,
    EnvRunnerGroup,
    SingleAgentEnvRunner,
    get_global_worker,
)
from trainer.envs import EnvContext, StatefulEnv, register_env  # noqa: E402
from trainer.episodes import SingleAgentEpisode  # noqa: E402
from trainer.errors import (  # noqa: E402
    AlgorithmStoppedError,
    ConfigError,
    EnvContractError,
    EnvCreationError,
    EnvError,
    EpisodeError,
    EpisodeIndexError,
    EvaluationError,
    FrozenConfigError,
    MetricsError,
    ModuleError,
    RemoteError,
    RunnerError,
    RunnerFailedError,
    RunnerLostError,
    SerializationError,
    TaskError,
    TrainerError,
    UnknownOutputError,
    UnknownSettingError,
    UnsupportedSpaceError,
)
from trainer.evaluation import collect_episodes, summarize_episodes  # noqa: E402
from trainer.exploration import (  # noqa: E402
    RE3,
    ActionChoice,
    Curiosity,
    EpsilonGreedy,
    Exploration,
    GaussianNoise,
    OrnsteinUhlenbeckNoise,
    ParameterNoise,
    PerWorkerEpsilonGreedy,
    PerWorkerGaussianNoise,
    PerWorkerOrnsteinUhlenbeckNoise,
    Random,
    SoftQ,
    StochasticSampling,
    uniforms_per_row,
)
from trainer.metrics import MetricsLogger, ResultDict  # noqa: E402
from trainer.modules import RLModule, RLModuleSpec  # noqa: E402
from trainer.replay import (  # noqa: E402
    PrioritizedReplayBuffer,
    ReplayBuffer,
    make_replay_buffer,
)

__all__ = [
    "DQN",
    "PG",
    "PPO",
    "RE3",
    "SAC",
    "ActionChoice",
    "Algorithm",
    "AlgorithmConfig",
    "AlgorithmStoppedError",
    "BestCheckpoint",
    "CSVLogger",
    "CallbackError",
    "CheckpointError",
    "Checkpointable",
    "ConfigError",
    "Curiosity",
    "DQNConfig",
    "DefaultCallbacks",
    "EarlyStopping",
    "EnvContext",
    "EnvContractError",
    "EnvCreationError",
    "EnvError",
    "EnvRunner",
    "EnvRunnerGroup",
    "EpisodeError",
    "EpisodeIndexError",
    "EpisodeRecorder",
    "EpsilonGreedy",
    "EvaluationError",
    "Exploration",
    "FrozenConfigError",
    "GaussianNoise",
    "JSONLinesLogger",
    "MetricsError",
    "MetricsLogger",
    "ModuleError",
    "MultiCallbacks",
    "NonFiniteError",
    "NonFiniteGuard",
    "OrnsteinUhlenbeckNoise",
    "PGConfig",
    "PPOConfig",
    "ParameterNoise",
    "PerWorkerEpsilonGreedy",
    "PerWorkerGaussianNoise",
    "PerWorkerOrnsteinUhlenbeckNoise",
    "PeriodicCheckpoint",
    "PrioritizedReplayBuffer",
    "ProgressPrinter",
    "RLModule",
    "RLModuleSpec",
    "RLlibCallback",
    "Random",
    "RemoteError",
    "ReplayBuffer",
    "ResultDict",
    "ResultLogger",
    "ResultSink",
    "RunnerError",
    "RunnerFailedError",
    "RunnerLostError",
    "SACConfig",
    "SampleBatch",
    "SerializationError",
    "SingleAgentEnvRunner",
    "SingleAgentEpisode",
    "SoftQ",
    "StatefulEnv",
    "StochasticSampling",
    "TaskError",
    "TaskLadder",
    "TaskSettableEnv",
    "TensorBoardLogger",
    "TrainedPolicy",
    "TrainerError",
    "UnknownOutputError",
    "UnknownSettingError",
    "UnsupportedSpaceError",
    "VideoRecorder",
    "actors",
    "collect_episodes",
    "compute_advantages",
    "export_onnx",
    "get_global_worker",
    "latest_checkpoint",
    "load_episode",
    "make_multi_callbacks",
    "make_replay_buffer",
    "register_env",
    "summarize_episodes",
    "uniforms_per_row",
]
