"""What names of `ray` are here: the one table behind `rllib-check`, the import hook and the docs.

Pure data. It says where a name is (in `trainer`, or in a module that is named), or why it is not
here and what to write instead. Settings, overrides, algorithms and parts of tuning that are refused
have tables of their own, which are read beside it and not repeated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_TOP: Final = "trainer"
_TORCH: Final = "trainer.rllib_names.torch_names"
_SCRIPTS: Final = "trainer.rllib_scripts.example_scripts"
_SMALL: Final = "trainer.rllib_names.small_names"

# Modules of Ray, the module that holds their names here, and the names:
#   Name          under the same name
#   Name=Other    under another name
#   Name=.        the module itself
#   *             all public names of the module
#   ?=Other       whatever name is asked for
HOMES: Final = (
    ("ray", "trainer.actors", "*"),
    ("ray.actor", "trainer.actors", "ActorHandle"),
    (
        "ray.exceptions",
        "trainer.actors",
        "RayActorError=ActorDiedError GetTimeoutError=ActorTimeoutError",
    ),
    ("ray.util ray.util.debug", _SMALL, "log_once"),
    (
        "ray.util.annotations ray._common.deprecation ray.rllib.utils.deprecation",
        _SMALL,
        "PublicAPI=marker DeveloperAPI=marker Deprecated=marker",
    ),
    ("ray.tune", "trainer.tune", "*"),
    ("ray.tune.tuner", "trainer.tune", "Tuner"),
    ("ray.tune.tune_config", "trainer.tune", "TuneConfig"),
    ("ray.tune.result_grid", "trainer.tune", "ResultGrid"),
    ("ray.tune.analysis", "trainer.tune", "ExperimentAnalysis"),
    ("ray.tune.trainable", "trainer.tune", "Trainable"),
    ("ray.tune.callback", "trainer.tune", "Callback"),
    (
        "ray.tune.progress_reporter",
        "trainer.tune",
        "CLIReporter ProgressReporter JupyterNotebookReporter",
    ),
    ("ray.tune.experiment", "trainer.tune", "Experiment"),
    ("ray.tune.logger", _SMALL, "pretty_print"),
    ("ray.tune.stopper", "trainer.tune.stopper", "*"),
    ("ray.tune.logger", "trainer.tune.logger", "*"),
    (
        "ray.tune.schedulers ray.tune.schedulers.pbt ray.tune.schedulers.async_hyperband",
        "trainer.tune.schedulers",
        "*",
    ),
    (
        "ray.tune.search ray.tune.search.basic_variant ray.tune.search.sample "
        "ray.tune.search.searcher",
        "trainer.tune.search",
        "*",
    ),
    ("ray.tune.search.optuna", "trainer.tune", "OptunaSearch"),
    ("ray.tune.registry", _TOP, "get_trainable_cls register_env"),
    ("ray.tune.registry", "trainer.tune", "register_trainable"),
    ("ray.tune.result", _TOP, "TIME_TOTAL_S TRAINING_ITERATION"),
    ("ray.air ray.air.config ray.train ray.air.session ray.train.tune", "trainer.train", "*"),
    (
        "ray.air ray.air.config ray.train ray.air.session ray.train.tune",
        "trainer.tune",
        "TuneConfig Result",
    ),
    ("ray.air ray.train", "trainer.train", "session=."),
    ("ray.air.constants", _TOP, "TRAINING_ITERATION"),
    ("ray.air.integrations.wandb", "trainer.tune.logger", "WandbLoggerCallback"),
    ("ray.air.integrations.mlflow", "trainer.tune.logger", "MLflowLoggerCallback"),
    (
        "ray.rllib.algorithms.ppo ray.rllib.algorithms.ppo.ppo",
        _TOP,
        "PPO PPOConfig",
    ),
    ("ray.rllib.agents.ppo", _TOP, "PPOTrainer=PPO PPOConfig"),
    ("ray.rllib.agents.pg", _TOP, "PGTrainer=PG PGConfig"),
    ("ray.rllib.agents.dqn", _TOP, "DQNTrainer=DQN DQNConfig"),
    ("ray.rllib.agents.sac", _TOP, "SACTrainer=SAC SACConfig"),
    (
        "ray.rllib.agents.ddpg",
        _TOP,
        "DDPGTrainer=DDPG DDPGConfig TD3Trainer=TD3 TD3Config",
    ),
    ("ray.rllib.algorithms.ddpg ray.rllib.algorithms.ddpg.ddpg", _TOP, "DDPG DDPGConfig"),
    ("ray.rllib.algorithms.td3 ray.rllib.algorithms.td3.td3", _TOP, "TD3 TD3Config"),
    ("ray.rllib.agents.callbacks", _TOP, "DefaultCallbacks MultiCallbacks"),
    (
        "ray.rllib.algorithms.ppo.torch.ppo_torch_learner "
        "ray.rllib.algorithms.ppo.ppo_torch_learner",
        _TOP,
        "PPOTorchLearner",
    ),
    ("ray.rllib.algorithms.ppo.ppo_learner", _TOP, "PPOLearner"),
    ("ray.rllib.algorithms.appo.torch.appo_torch_learner", _TOP, "APPOTorchLearner"),
    (
        "ray.rllib.algorithms.impala.torch.impala_torch_learner",
        _TOP,
        "IMPALATorchLearner=APPOTorchLearner",
    ),
    ("ray.rllib.algorithms.appo.appo_learner", _TOP, "APPOLearner"),
    ("ray.rllib.algorithms.dqn.dqn_learner", _TOP, "DQNLearner"),
    ("ray.rllib.algorithms.sac.sac_learner", _TOP, "SACLearner"),
    ("ray.rllib.algorithms.bc ray.rllib.algorithms.bc.bc", _TOP, "BC BCConfig"),
    (
        "ray.rllib.algorithms.marwil ray.rllib.algorithms.marwil.marwil",
        _TOP,
        "MARWIL MARWILConfig",
    ),
    ("ray.rllib.algorithms.marwil.marwil_learner", _TOP, "MARWILLearner"),
    ("ray.rllib.algorithms.cql ray.rllib.algorithms.cql.cql", _TOP, "CQL CQLConfig"),
    ("ray.rllib.algorithms.pg ray.rllib.algorithms.pg.pg", _TOP, "PG PGConfig"),
    ("ray.rllib.algorithms.appo ray.rllib.algorithms.appo.appo", _TOP, "APPO APPOConfig"),
    (
        "ray.rllib.algorithms.impala ray.rllib.algorithms.impala.impala",
        _TOP,
        "IMPALA Impala=IMPALA IMPALAConfig ImpalaConfig=IMPALAConfig",
    ),
    ("ray.rllib.algorithms.dqn ray.rllib.algorithms.dqn.dqn", _TOP, "DQN DQNConfig"),
    ("ray.rllib.algorithms.sac ray.rllib.algorithms.sac.sac", _TOP, "SAC SACConfig"),
    (
        "ray.rllib.algorithms",
        _TOP,
        "Algorithm AlgorithmConfig APPO APPOConfig BC BCConfig CQL CQLConfig IMPALA "
        "IMPALAConfig MARWIL MARWILConfig PPO PPOConfig PG PGConfig "
        "DQN DQNConfig SAC SACConfig",
    ),
    ("ray.rllib.algorithms.algorithm", _TOP, "Algorithm AlgorithmConfig"),
    ("ray.rllib.algorithms.algorithm_config", _TOP, "AlgorithmConfig"),
    ("ray.rllib.algorithms.algorithm_config", "trainer.config.settings", "NotProvided"),
    (
        "ray.rllib.algorithms.registry",
        _TOP,
        "get_trainable_cls get_algorithm_class=get_trainable_cls",
    ),
    (
        "ray.rllib.algorithms.callbacks ray.rllib.callbacks.callbacks ray.rllib.callbacks.utils",
        _TOP,
        "RLlibCallback DefaultCallbacks MultiCallbacks make_multi_callbacks",
    ),
    (
        "ray.rllib.core",
        _TOP,
        "DEFAULT_AGENT_ID DEFAULT_MODULE_ID DEFAULT_POLICY_ID ALL_MODULES Columns "
        "COMPONENT_LEARNER COMPONENT_LEARNER_GROUP COMPONENT_RL_MODULE",
    ),
    (
        "ray.rllib.core",
        _SMALL,
        "COMPONENT_ENV_RUNNER",
    ),
    ("ray.rllib.core.columns", _TOP, "Columns"),
    (
        "ray.rllib.core.rl_module ray.rllib.core.rl_module.rl_module",
        _TOP,
        "RLModule RLModuleSpec MultiRLModule MultiRLModuleSpec DefaultModelConfig",
    ),
    ("ray.rllib.core.rl_module.default_model_config", _TOP, "DefaultModelConfig"),
    ("ray.rllib.core.rl_module.multi_rl_module", _TOP, "MultiRLModule MultiRLModuleSpec"),
    (
        "ray.rllib.core.rl_module.torch ray.rllib.core.rl_module.torch.torch_rl_module",
        _TOP,
        "TorchRLModule",
    ),
    (
        "ray.rllib.core.rl_module.apis",
        _TORCH,
        "ValueFunctionAPI TargetNetworkAPI InferenceOnlyAPI TARGET_NETWORK_ACTION_DIST_INPUTS",
    ),
    ("ray.rllib.core.rl_module.apis.value_function_api", _TORCH, "ValueFunctionAPI"),
    (
        "ray.rllib.core.rl_module.apis.target_network_api",
        _TORCH,
        "TargetNetworkAPI TARGET_NETWORK_ACTION_DIST_INPUTS",
    ),
    ("ray.rllib.core.rl_module.apis.inference_only_api", _TORCH, "InferenceOnlyAPI"),
    ("ray.rllib.core.models.base", _TORCH, "ENCODER_OUT"),
    (
        "ray.rllib.core.distribution.torch.torch_distribution "
        "ray.rllib.models.torch.torch_distributions",
        _TORCH,
        "TorchCategorical",
    ),
    ("ray.rllib.core.learner.utils ray.rllib.utils.torch_utils", _TORCH, "make_target_network"),
    ("ray.rllib.models.torch.misc", _TORCH, "normc_initializer same_padding valid_padding"),
    ("ray.rllib.connectors.connector_v2", _TOP, "ConnectorV2"),
    ("ray.rllib.connectors.connector_pipeline_v2", _TOP, "ConnectorPipelineV2"),
    ("ray.rllib.connectors", _TOP, "ConnectorV2 ConnectorPipelineV2"),
    (
        "ray.rllib.connectors.env_to_module",
        _TOP,
        "FlattenObservations MeanStdFilter SingleAgentObservationPreprocessor "
        "FrameStackingEnvToModule=FrameStacking",
    ),
    ("ray.rllib.connectors.env_to_module.flatten_observations", _TOP, "FlattenObservations"),
    ("ray.rllib.connectors.env_to_module.mean_std_filter", _TOP, "MeanStdFilter"),
    (
        "ray.rllib.connectors.env_to_module.observation_preprocessor",
        _TOP,
        "SingleAgentObservationPreprocessor",
    ),
    (
        "ray.rllib.connectors.env_to_module.frame_stacking "
        "ray.rllib.connectors.common.frame_stacking",
        _TOP,
        "FrameStackingEnvToModule=FrameStacking",
    ),
    (
        "ray.rllib.env",
        _TOP,
        "EnvContext EnvRunner EnvRunnerGroup MultiAgentEnv MultiAgentEpisode "
        "MultiAgentEnvRunner SingleAgentEnvRunner SingleAgentEpisode "
        "ParallelPettingZooEnv PettingZooEnv make_multi_agent TaskSettableEnv",
    ),
    ("ray.rllib.env", "trainer.envs", "BaseEnv=VectorEnv"),
    ("ray.rllib.env.base_env", "trainer.envs", "BaseEnv=VectorEnv"),
    ("ray.rllib.env.env_context", _TOP, "EnvContext"),
    ("ray.rllib.env.env_runner", _TOP, "EnvRunner"),
    ("ray.rllib.env.env_runner_group", _TOP, "EnvRunnerGroup"),
    ("ray.rllib.env.single_agent_env_runner", _TOP, "SingleAgentEnvRunner"),
    ("ray.rllib.env.multi_agent_env_runner", _TOP, "MultiAgentEnvRunner"),
    ("ray.rllib.env.single_agent_episode", _TOP, "SingleAgentEpisode"),
    ("ray.rllib.env.multi_agent_episode", _TOP, "MultiAgentEpisode"),
    ("ray.rllib.env.multi_agent_env", _TOP, "MultiAgentEnv make_multi_agent"),
    ("ray.rllib.env.multi_agent_env", _SMALL, "ENV_STATE"),
    ("ray.rllib.env.apis.task_settable_env", _TOP, "TaskSettableEnv"),
    ("ray.rllib.env.wrappers.pettingzoo_env", _TOP, "ParallelPettingZooEnv PettingZooEnv"),
    (
        "ray.rllib.evaluation ray.rllib.evaluation.rollout_worker",
        _TOP,
        "RolloutWorker Episode=SingleAgentEpisode collect_episodes",
    ),
    (
        "ray.rllib.evaluation.episode ray.rllib.evaluation.episode_v2",
        _TOP,
        "Episode=SingleAgentEpisode EpisodeV2=SingleAgentEpisode",
    ),
    (
        "ray.rllib.env.wrappers.atari_wrappers",
        "trainer.rllib_names.atari",
        "wrap_atari_for_new_api_stack",
    ),
    ("ray.rllib.evaluation.rollout_worker", _TOP, "get_global_worker"),
    ("ray.rllib.evaluation.metrics", _TOP, "collect_episodes summarize_episodes"),
    ("ray.rllib.policy", _TOP, "PolicySpec Policy=RLModule"),
    ("ray.rllib.policy.policy", _TOP, "PolicySpec Policy=RLModule"),
    ("ray.rllib.policy.sample_batch", _TOP, "SampleBatch MultiAgentBatch DEFAULT_POLICY_ID"),
    ("ray.rllib.utils.annotations", _TORCH, "override"),
    (
        "ray.rllib.utils.annotations",
        _SMALL,
        "OverrideToImplementCustomLogic=marker "
        "OverrideToImplementCustomLogic_CallToSuperRecommended=marker "
        "PublicAPI=marker DeveloperAPI=marker OldAPIStack=marker",
    ),
    ("ray.rllib.utils.checkpoints", _TOP, "Checkpointable"),
    ("ray.rllib.utils.error", _TOP, "EnvError UnsupportedSpaceException=UnsupportedSpaceError"),
    (
        "ray.rllib.utils.exploration "
        "ray.rllib.utils.exploration.curiosity "
        "ray.rllib.utils.exploration.epsilon_greedy "
        "ray.rllib.utils.exploration.exploration "
        "ray.rllib.utils.exploration.gaussian_noise "
        "ray.rllib.utils.exploration.ornstein_uhlenbeck_noise "
        "ray.rllib.utils.exploration.parameter_noise "
        "ray.rllib.utils.exploration.per_worker_epsilon_greedy "
        "ray.rllib.utils.exploration.per_worker_gaussian_noise "
        "ray.rllib.utils.exploration.per_worker_ornstein_uhlenbeck_noise "
        "ray.rllib.utils.exploration.random "
        "ray.rllib.utils.exploration.random_encoder "
        "ray.rllib.utils.exploration.soft_q "
        "ray.rllib.utils.exploration.stochastic_sampling",
        _TOP,
        "Exploration EpsilonGreedy GaussianNoise OrnsteinUhlenbeckNoise "
        "ParameterNoise PerWorkerEpsilonGreedy PerWorkerGaussianNoise "
        "PerWorkerOrnsteinUhlenbeckNoise Random SoftQ StochasticSampling "
        "Curiosity RE3",
    ),
    ("ray.rllib.utils.framework", _TORCH, "try_import_torch"),
    ("ray.rllib.utils.framework", _SMALL, "try_import_tf try_import_tfp try_import_jax"),
    ("ray.rllib.utils.numpy", _SMALL, "softmax convert_to_numpy"),
    ("ray.rllib.utils.spaces.space_utils", _SMALL, "batch flatten_space"),
    ("ray.rllib.utils.torch_utils", _SMALL, "FLOAT_MAX FLOAT_MIN"),
    ("ray.rllib.utils.metrics", "trainer.rllib_names.metrics", "*"),
    ("ray.rllib.utils.metrics.metrics_logger", _TOP, "MetricsLogger"),
    ("ray.rllib.utils.metrics.learner_info", _TOP, "LEARNER_INFO LEARNER_STATS_KEY"),
    (
        "ray.rllib.utils.replay_buffers "
        "ray.rllib.utils.replay_buffers.replay_buffer "
        "ray.rllib.utils.replay_buffers.prioritized_replay_buffer",
        _TOP,
        "ReplayBuffer PrioritizedReplayBuffer",
    ),
    (
        "ray.rllib.connectors.env_to_module "
        "ray.rllib.connectors.env_to_module.observation_preprocessor "
        "ray.rllib.connectors.env_to_module.prev_actions_prev_rewards",
        _TOP,
        "MultiAgentObservationPreprocessor PrevActionsPrevRewards",
    ),
    ("ray.rllib.connectors.learner", _TORCH, "ComputeReturnsToGo FrameStackingLearner"),
    ("ray.rllib.connectors.learner.compute_returns_to_go", _TORCH, "ComputeReturnsToGo"),
    ("ray.rllib.connectors.learner.frame_stacking", _TORCH, "FrameStackingLearner"),
    ("ray.rllib.env ray.rllib.env.wrappers.group_agents_wrapper", _TOP, "GroupAgentsWrapper"),
    ("ray.rllib.env.env_runner ray.rllib.env", _TOP, "StepFailedRecreateEnvError"),
    ("ray.rllib.policy.sample_batch", _TOP, "concat_samples"),
    ("ray.rllib.core.learner.torch.torch_learner", _TOP, "TorchLearner"),
    ("ray.rllib.core.learner ray.rllib.core.learner.learner", _TORCH, "DEFAULT_OPTIMIZER"),
    ("ray.rllib.core.learner ray.rllib.core.learner.learner", _TOP, "Learner"),
    (
        "ray.rllib.algorithms.ppo.torch.ppo_torch_rl_module",
        _TOP,
        "PPOTorchRLModule",
    ),
    (
        "ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module",
        _TORCH,
        "DefaultPPOTorchRLModule",
    ),
    (
        "ray.rllib.core.distribution.torch.torch_distribution",
        _TORCH,
        "TorchDeterministic TorchDiagGaussian TorchMultiCategorical TorchMultiDistribution",
    ),
    ("ray.rllib.utils.torch_utils", _TORCH, "one_hot"),
    ("ray.rllib.utils.typing", "typing", "?=Any"),
    ("ray.rllib.utils.test_utils", _SMALL, "check"),
    (
        "ray.rllib.examples.utils ray.rllib.utils.test_utils",
        _SCRIPTS,
        "add_rllib_example_script_args run_rllib_example_script_experiment "
        "should_stop check_learning_achieved",
    ),
)

_RECORDED: Final = (
    "`offline_data(input_=...)` of BC, MARWIL and CQL reads recordings itself, and "
    "`EpisodeRecorder` writes them (docs/recordings.md)"
)
_OLD_NETWORKS: Final = (
    "networks and policies of RLlib's old API stack are not here; write the network as a "
    "`TorchRLModule` (docs/modules.md)"
)
_ENCODERS: Final = (
    "catalogs and encoders are not here; a `TorchRLModule` makes its layers in `setup()` "
    "(docs/modules.md)"
)
_LEARNERS: Final = (
    "derive your learner from `TorchLearner` or `PPOTorchLearner` (docs/own-algorithm.md); "
    "`algo.learner_group` is here, its class is not"
)
_NO_EXAMPLE: Final = (
    "this file of RLlib's examples is not found; copy it beside the script and import it from "
    "there, or install Ray beside this library, which then takes the file"
)
_POLICY_OF_CHECKPOINT: Final = (
    "`TrainedPolicy.from_checkpoint(path)` acts as the policies of a checkpoint do "
    "(docs/deploying.md)"
)
_ONE_MACHINE: Final = "there is no cluster here"
_FROM_OUTSIDE: Final = "envs that connect from outside are not offered"

OTHER_WAYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ray.rllib.core.learner": _LEARNERS,
        "ray.rllib.algorithms.dqn.torch.dqn_torch_learner": "DQN has no learner in Torch: derive "
        "from `DQNLearner` (docs/own-algorithm.md)",
        "ray.rllib.examples": _NO_EXAMPLE,
        "ray.rllib.examples.envs.classes.multi_agent": "`from trainer import make_multi_agent`; "
        '`MultiAgentCartPole` is `make_multi_agent("CartPole-v1")`; copy its other envs beside '
        "the script",
        "ray.rllib.examples.rl_modules.classes.random_rlm": "`from trainer import RandomRLModule`",
        "ray.rllib.policy.Policy.from_checkpoint": _POLICY_OF_CHECKPOINT,
        "ray.rllib.policy.policy.Policy.from_checkpoint": _POLICY_OF_CHECKPOINT,
        "ray.rllib.utils.schedules": "the setting takes pairs: `[[0, 1e-3], [100_000, 1e-4]]`",
        "ray.rllib.connectors.learner": "write a piece of your own: `learner_connector` "
        "(docs/connectors.md)",
        "ray.rllib.env.vector_env": "give a `gymnasium.vector.VectorEnv` (docs/envs.md)",
        "ray.rllib.env.wrappers.atari_wrappers": "wrap the env in its creator with "
        "`gymnasium.wrappers.AtariPreprocessing` and `FrameStackObservation`",
        "ray.rllib.evaluation.postprocessing": "columns are named by plain strings, such as "
        '"advantages"; `from trainer import compute_advantages` (docs/episodes.md)',
        "ray.rllib.utils.numpy": "write it with NumPy",
        "ray.rllib.utils.spaces": "write it with gymnasium's spaces",
        "ray.rllib.utils.torch_utils": "write it with Torch",
        "ray.rllib.utils.images": "write it with Pillow or NumPy",
        "ray.rllib.utils.test_utils": "write it with `numpy.testing`",
        "ray.rllib.utils.debug": "`debugging(seed=...)` makes a run repeatable",
        "ray.rllib.core.distribution": "say what to draw from in `action_distribution`, or take "
        "actions in `_forward_exploration` (docs/modules.md)",
    }
)
"""Modules and names that are not here, and what to write instead; what is inside them, too."""

NOT_HERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ray.data": _RECORDED,
        "ray.serve": "serving is not part of this trainer; `TrainedPolicy` acts in any server "
        "(docs/deploying.md)",
        "ray.rllib.algorithms.crr": "CRR is not here; BC, MARWIL and CQL learn from recordings",
        "ray.rllib.algorithms.iql": "IQL is not here; BC, MARWIL and CQL learn from recordings",
        "ray.rllib.algorithms.dreamerv3": "DreamerV3 is not here; no algorithm learns a model of "
        "its env",
        "ray.rllib.algorithms.ppo.ppo_catalog": _ENCODERS,
        "ray.rllib.core.models": _ENCODERS,
        "ray.rllib.algorithms.ppo.ppo_tf_policy": _OLD_NETWORKS,
        "ray.rllib.algorithms.ppo.ppo_torch_policy": _OLD_NETWORKS,
        "ray.rllib.algorithms.dqn.dqn_torch_model": _OLD_NETWORKS,
        "ray.rllib.algorithms.dqn.distributional_q_tf_model": _OLD_NETWORKS,
        "ray.rllib.models": _OLD_NETWORKS,
        "ray.rllib.policy": _OLD_NETWORKS,
        "ray.rllib.env.external": _FROM_OUTSIDE,
        "ray.rllib.env.policy_client": _FROM_OUTSIDE,
        "ray.rllib.env.policy_server_input": _FROM_OUTSIDE,
        "ray.rllib.env.vector": "vector envs of several agents are not offered",
        "ray.rllib.env.wrappers": "write the wrapper as an env of your own (docs/envs.md, "
        "docs/multi-agent.md)",
        "ray.rllib.env.utils": "write the wrapper as an env of your own (docs/multi-agent.md)",
        "ray.rllib.offline": _RECORDED,
        "ray.rllib.utils.tf_utils": "there is no TensorFlow here",
        "ray.rllib.utils.actors": _ONE_MACHINE,
        "ray.util.placement_group": _ONE_MACHINE,
        "ray.util.scheduling_strategies": _ONE_MACHINE,
        "ray.available_resources": _ONE_MACHINE,
        "ray.cluster_resources": _ONE_MACHINE,
        "ray.nodes": _ONE_MACHINE,
    }
)
"""Modules and names that are not here, and why: nothing small takes their place."""


MEMBERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "_aggregator_actor_manager": "APPO and IMPALA put batches together in the main process, "
        "without actors",
        "default_resource_request": "nothing is reserved on one machine; `tune.with_resources` "
        "says what a trial takes",
        "export_policy_model": "`export_onnx` writes the policy",
        "export_policy_checkpoint": "`TrainedPolicy.from_checkpoint(path)`",
        "get_multi_agent_setup": "read `config.policies`",
        "remote_workers": "there are no handles: "
        "`foreach_env_runner(function, remote_worker_ids=[2])`",
    }
)
"""Members of RLlib's objects that are not here, and what to write instead."""


OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "run": "algo",
        "stop-timesteps": "stop-env-steps",
        "timesteps": "stop-env-steps",
        "steps": "stop-env-steps",
        "stop-iters": "stop-iterations",
        "stop-reward": "stop-return",
        "num-workers": "num-env-runners",
        "num-envs-per-worker": "num-envs-per-env-runner",
        "checkpoint-freq": "checkpoint-every",
        "local-dir": "run-dir",
        "experiment-name": "run-dir",
    }
)
"""Options of RLlib's commands and example scripts, with those of `local-trainer`."""
