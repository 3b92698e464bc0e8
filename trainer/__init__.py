"""Reinforcement learning on one machine: RLlib's API, process pools, exact resume and exact repair.

    from trainer import PPOConfig

    with PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=2).build_algo() as algo:
        for _ in range(10):
            print(algo.train())
        algo.save_to_path("runs/cartpole")

Everything public is importable from here, from `callbacks` and from `checkpoints`.
"""

from importlib.util import find_spec
from pathlib import Path

for _name in ("callbacks", "checkpoints"):
    # Such names are common: a `callbacks.py` beside a script would be imported in place of ours.
    _found = getattr(find_spec(_name), "origin", None)
    if _found is None or not Path(_found).with_name("py.typed").is_file():
        raise ImportError(
            f"local-trainer needs its own package {_name!r}, but `import {_name}` finds "
            f"{_found or 'nothing'}, which is in the way. Rename that file (or start Python from "
            "another folder), or reinstall local-trainer if it is missing."
        )

from callbacks import (
    AimLogger,
    BestCheckpoint,
    CallbackError,
    CSVLogger,
    EarlyStopping,
    EpisodeRecorder,
    JSONLinesLogger,
    MLflowLogger,
    NonFiniteError,
    NonFiniteGuard,
    PeriodicCheckpoint,
    ProgressPrinter,
    ResultLogger,
    ResultSink,
    RLlibCallback,
    TaskLadder,
    TensorBoardLogger,
    TrackerLogger,
    TrackerService,
    TrackioLogger,
    VideoRecorder,
    WandbLogger,
    load_episode,
)
from checkpoints import Checkpointable, CheckpointError, latest_checkpoint
from trainer import actors
from trainer import rllib_names as rllib_names
from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.appo import (
    APPO,
    IMPALA,
    APPOConfig,
    APPOLearner,
    APPOTorchLearner,
    IMPALAConfig,
)
from trainer.algorithms.bc import BC, BCConfig
from trainer.algorithms.building import get_trainable_cls
from trainer.algorithms.cql import CQL, CQLConfig, CQLLearner
from trainer.algorithms.dqn import DQN, DQNConfig, DQNLearner
from trainer.algorithms.marwil import MARWIL, MARWILConfig, MARWILLearner
from trainer.algorithms.pg import PG, PGConfig, PGLearner
from trainer.algorithms.policy_export import export_onnx, export_policy, export_torch
from trainer.algorithms.ppo import PPO, PPOConfig, PPOLearner, PPOTorchLearner
from trainer.algorithms.sac import SAC, SACConfig, SACLearner
from trainer.algorithms.sb3_policies import SB3Policy, load_sb3_policy
from trainer.algorithms.td3 import DDPG, TD3, DDPGConfig, TD3Config, TD3Learner
from trainer.algorithms.trained_policy import TrainedPolicy
from trainer.config import AlgorithmConfig
from trainer.config.names_elsewhere import refuse_import as _refuse_import
from trainer.connectors import (
    ConnectorPipelineV2,
    ConnectorV2,
    FlattenObservations,
    FrameStacking,
    MeanStdFilter,
    MultiAgentObservationPreprocessor,
    PrevActionsPrevRewards,
    SampleBatch,
    SingleAgentObservationPreprocessor,
    compute_advantages,
)
from trainer.env_runners import (
    EnvRunner,
    MultiAgentEnvRunner,
    SingleAgentEnvRunner,
    get_global_worker,
)
from trainer.envs import (
    AgentIndicator,
    CommonReward,
    EnvContext,
    MultiAgentEnv,
    PadObservations,
    ParallelPettingZooEnv,
    PettingZooEnv,
    StatefulEnv,
    make_multi_agent,
    register_env,
)
from trainer.envs.tasks import TaskSettableEnv
from trainer.episodes import MultiAgentEpisode, SingleAgentEpisode
from trainer.errors import (
    AlgorithmStoppedError,
    ConfigError,
    DebuggerError,
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
    UnknownModuleError,
    UnknownOutputError,
    UnknownSettingError,
    UnsupportedSpaceError,
)
from trainer.exploration import (
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
    StateDependentNoise,
    StochasticSampling,
    uniforms_per_row,
)
from trainer.learners import Learner, TorchLearner
from trainer.metrics import MetricsLogger, ResultDict
from trainer.modules import (
    DefaultModelConfig,
    Matchups,
    MultiRLModule,
    MultiRLModuleSpec,
    PolicySpec,
    PPOTorchRLModule,
    RandomRLModule,
    RLModule,
    RLModuleSpec,
    StatefulRLModule,
    TorchRLModule,
    TorchSACModule,
)
from trainer.replay import (
    PrioritizedReplayBuffer,
    ReplayBuffer,
    make_replay_buffer,
)
from trainer.rllib_names import *  # noqa: F403 - names of RLlib
from trainer.runner_group import EnvRunnerGroup
from trainer.types import DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
from trainer_toolkit.deprecation import TrainerDeprecationWarning

__all__ = [
    "APPO",
    "BC",
    "CQL",
    "DDPG",
    "DEFAULT_AGENT_ID",
    "DEFAULT_MODULE_ID",
    "DQN",
    "IMPALA",
    "MARWIL",
    "PG",
    "PPO",
    "RE3",
    "SAC",
    "TD3",
    "APPOConfig",
    "APPOLearner",
    "APPOTorchLearner",
    "ActionChoice",
    "AgentIndicator",
    "AimLogger",
    "Algorithm",
    "AlgorithmConfig",
    "AlgorithmStoppedError",
    "BCConfig",
    "BestCheckpoint",
    "CQLConfig",
    "CQLLearner",
    "CSVLogger",
    "CallbackError",
    "CheckpointError",
    "Checkpointable",
    "CommonReward",
    "ConfigError",
    "ConnectorPipelineV2",
    "ConnectorV2",
    "Curiosity",
    "DDPGConfig",
    "DQNConfig",
    "DQNLearner",
    "DebuggerError",
    "DefaultModelConfig",
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
    "FlattenObservations",
    "FrameStacking",
    "FrozenConfigError",
    "GaussianNoise",
    "IMPALAConfig",
    "JSONLinesLogger",
    "Learner",
    "MARWILConfig",
    "MARWILLearner",
    "MLflowLogger",
    "Matchups",
    "MeanStdFilter",
    "MetricsError",
    "MetricsLogger",
    "ModuleError",
    "MultiAgentEnv",
    "MultiAgentEnvRunner",
    "MultiAgentEpisode",
    "MultiAgentObservationPreprocessor",
    "MultiRLModule",
    "MultiRLModuleSpec",
    "NonFiniteError",
    "NonFiniteGuard",
    "OrnsteinUhlenbeckNoise",
    "PGConfig",
    "PGLearner",
    "PPOConfig",
    "PPOLearner",
    "PPOTorchLearner",
    "PPOTorchRLModule",
    "PadObservations",
    "ParallelPettingZooEnv",
    "ParameterNoise",
    "PerWorkerEpsilonGreedy",
    "PerWorkerGaussianNoise",
    "PerWorkerOrnsteinUhlenbeckNoise",
    "PeriodicCheckpoint",
    "PettingZooEnv",
    "PolicySpec",
    "PrevActionsPrevRewards",
    "PrioritizedReplayBuffer",
    "ProgressPrinter",
    "RLModule",
    "RLModuleSpec",
    "RLlibCallback",
    "Random",
    "RandomRLModule",
    "RemoteError",
    "ReplayBuffer",
    "ResultDict",
    "ResultLogger",
    "ResultSink",
    "RunnerError",
    "RunnerFailedError",
    "RunnerLostError",
    "SACConfig",
    "SACLearner",
    "SB3Policy",
    "SampleBatch",
    "SerializationError",
    "SingleAgentEnvRunner",
    "SingleAgentEpisode",
    "SingleAgentObservationPreprocessor",
    "SoftQ",
    "StateDependentNoise",
    "StatefulEnv",
    "StatefulRLModule",
    "StochasticSampling",
    "TD3Config",
    "TD3Learner",
    "TaskError",
    "TaskLadder",
    "TaskSettableEnv",
    "TensorBoardLogger",
    "TorchLearner",
    "TorchRLModule",
    "TorchSACModule",
    "TrackerLogger",
    "TrackerService",
    "TrackioLogger",
    "TrainedPolicy",
    "TrainerDeprecationWarning",
    "TrainerError",
    "UnknownModuleError",
    "UnknownOutputError",
    "UnknownSettingError",
    "UnsupportedSpaceError",
    "VideoRecorder",
    "WandbLogger",
    "actors",
    "compute_advantages",
    "export_onnx",
    "export_policy",
    "export_torch",
    "get_global_worker",
    "get_trainable_cls",
    "latest_checkpoint",
    "load_episode",
    "load_sb3_policy",
    "make_multi_agent",
    "make_replay_buffer",
    "register_env",
    "uniforms_per_row",
]

# Not by `def`: type checkers would take any name for one that is there.
globals()["__getattr__"] = _refuse_import
__all__ += rllib_names.__all__
rllib_names.install()
