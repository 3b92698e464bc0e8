"""The quarantine of RLlib's old names: all that stands here can be deleted.

Nothing else imports this folder but `trainer/__init__.py`, which offers the names listed here and
calls `install()`. That adds old members to classes (`add_names`) and fills the tables of
`trainer.old_names`, where the rest looks old names up. Without the folder, and without the lines
that name it there, everything works under the present names; a test shows it.

Type checkers know the present names only.
"""
# RLlib's constants come from `metrics` in one line; `__all__` lists them.
# ruff: noqa: F403, F405

from __future__ import annotations

import functools
import os

from callbacks.rllib_names import (
    DefaultCallbacks,
    MultiCallbacks,
    make_multi_callbacks,
)
from trainer.algorithms.algorithm import Algorithm
from trainer.config.config_values import ConfigValues
from trainer.connectors import SampleBatch
from trainer.env_runners import EnvRunner
from trainer.envs import MultiAgentEnv, VectorEnv
from trainer.episodes import MultiAgentEpisode, SingleAgentEpisode
from trainer.learners import EpisodeLearner
from trainer.metrics import MetricsLogger
from trainer.modules import MultiRLModule, RLModule
from trainer.modules.q_module import QModule
from trainer.name_resolution import PROGRAM, imported_module
from trainer.nn import Parameters
from trainer.old_names import ANSWERS_RAY, OLD_NAMES
from trainer.rllib_names import algorithm, config, homes, metrics, modules
from trainer.rllib_names.episodes import EpisodeNames, SampleBatchNames
from trainer.rllib_names.installing import add_names
from trainer.rllib_names.metrics import *
from trainer.rllib_names.multi_agent import (
    GroupAgentsWrapper,
    MultiAgentBatch,
    MultiAgentEnvNames,
    MultiAgentEpisodeNames,
    concat_samples,
)
from trainer.rllib_names.runners import (
    EnvRunnerGroupNames,
    EnvRunnerNames,
    RolloutWorker,
    SampledEpisodes,
    StepFailedRecreateEnvError,
    VectorEnvNames,
    collect_episodes,
    summarize_episodes,
)
from trainer.runner_group import EnvRunnerGroup

__all__ = [
    "ALL_MODULES",
    "COMPONENT_LEARNER",
    "COMPONENT_LEARNER_GROUP",
    "COMPONENT_RL_MODULE",
    "DEFAULT_POLICY_ID",
    "DONE",
    "ENV_RUNNER_RESULTS",
    "ENV_RUNNER_SAMPLING_TIMER",
    "EPISODE_DURATION_SEC_MEAN",
    "EPISODE_LEN_MAX",
    "EPISODE_LEN_MEAN",
    "EPISODE_LEN_MIN",
    "EPISODE_RETURN_MAX",
    "EPISODE_RETURN_MEAN",
    "EPISODE_RETURN_MIN",
    "EVALUATION_ITERATION_TIMER",
    "EVALUATION_RESULTS",
    "FAULT_TOLERANCE_STATS",
    "LAST_TARGET_UPDATE_TS",
    "LEARNER_INFO",
    "LEARNER_RESULTS",
    "LEARNER_STATS_KEY",
    "LEARNER_UPDATE_TIMER",
    "NUM_AGENT_STEPS_SAMPLED",
    "NUM_AGENT_STEPS_SAMPLED_LIFETIME",
    "NUM_AGENT_STEPS_SAMPLED_THIS_ITER",
    "NUM_AGENT_STEPS_TRAINED",
    "NUM_AGENT_STEPS_TRAINED_THIS_ITER",
    "NUM_ENV_STEPS_SAMPLED",
    "NUM_ENV_STEPS_SAMPLED_LIFETIME",
    "NUM_ENV_STEPS_SAMPLED_LIFETIME_THROUGHPUT",
    "NUM_ENV_STEPS_SAMPLED_THIS_ITER",
    "NUM_ENV_STEPS_TRAINED",
    "NUM_ENV_STEPS_TRAINED_LIFETIME",
    "NUM_ENV_STEPS_TRAINED_THIS_ITER",
    "NUM_EPISODES",
    "NUM_EPISODES_LIFETIME",
    "NUM_MODULE_STEPS_SAMPLED",
    "NUM_MODULE_STEPS_SAMPLED_LIFETIME",
    "NUM_MODULE_STEPS_TRAINED",
    "NUM_TARGET_UPDATES",
    "NUM_TRAINABLE_PARAMETERS",
    "NUM_TRAINING_STEP_CALLS_PER_ITERATION",
    "PERF",
    "REPLAY_BUFFER_ADD_DATA_TIMER",
    "REPLAY_BUFFER_RESULTS",
    "SYNCH_WORKER_WEIGHTS_TIMER",
    "TD_ERROR_KEY",
    "TIMERS",
    "TIME_TOTAL_S",
    "TRAINING_ITERATION",
    "TRAINING_ITERATION_TIMER",
    "TRAINING_STEP_TIMER",
    "Columns",
    "DefaultCallbacks",
    "GroupAgentsWrapper",
    "MultiAgentBatch",
    "MultiCallbacks",
    "RolloutWorker",
    "StepFailedRecreateEnvError",
    "collect_episodes",
    "concat_samples",
    "make_multi_callbacks",
    "summarize_episodes",
]


def install() -> None:
    """Adds all old names to the classes and tables of this process; called once.

    In a process that a script for RLlib has started, `import ray` is answered from now on, too.
    """
    _fill_tables()
    if os.environ.get(ANSWERS_RAY):  # read only then: others need not wait for it
        hook = imported_module("trainer.rllib_scripts.import_hook", source=PROGRAM, place="")
        hook.answer_ray()
    add_names(ConfigValues, config.SectionNames)
    add_names(Algorithm, algorithm.AlgorithmNames)
    add_names(EpisodeLearner, algorithm.LearnerNames)
    add_names(EnvRunner, EnvRunnerNames)
    add_names(EnvRunnerGroup, EnvRunnerGroupNames)
    add_names(VectorEnv, VectorEnvNames)
    add_names(MetricsLogger, metrics.MetricsLoggerNames)
    add_names(SingleAgentEpisode, EpisodeNames)
    add_names(MultiAgentEpisode, MultiAgentEpisodeNames)
    add_names(MultiAgentEnv, MultiAgentEnvNames)
    add_names(SampleBatch, SampleBatchNames)
    add_names(RLModule, modules.PolicyNames)
    add_names(MultiRLModule, modules.ContainerNames)
    add_names(QModule, modules.QPolicyNames)
    add_names(Parameters, modules.ParametersNames)


def _fill_tables() -> None:
    tables = OLD_NAMES
    tables.settings.update(config.OLD_SETTINGS)
    tables.filters.update(config.OLD_FILTERS)
    tables.sections.update(config.OLD_SECTIONS)
    tables.dicts.update(config.OLD_DICTS)
    tables.refused_settings.update(config.REFUSED_NAMES)
    tables.refused_even_if_false.update(config.REFUSED_EVEN_IF_FALSE)
    tables.refused_sections.update(config.REFUSED_SECTIONS)
    tables.unused_settings.update(config.UNUSED_SETTINGS)
    tables.config_overrides.update(config.CONFIG_OVERRIDES)
    tables.replay_arguments.update(config.OLD_REPLAY_ARGUMENTS)
    tables.refused_replay_arguments.update(config.REFUSED_REPLAY_ARGUMENTS)
    tables.idle_replay_arguments.update(config.IDLE_REPLAY_ARGUMENTS)
    tables.refused_explorations.update(config.REFUSED_EXPLORATIONS)
    tables.algorithm_overrides.update(algorithm.ALGORITHM_OVERRIDES)
    tables.learner_overrides.update(algorithm.LEARNER_OVERRIDES)
    tables.algorithms.update(algorithm.NOT_OFFERED_ALGORITHMS)
    tables.homes.extend(homes.HOMES)
    tables.other_ways.update(homes.OTHER_WAYS)
    tables.not_here.update(homes.NOT_HERE)
    tables.members.update(homes.MEMBERS)
    tables.options.update(homes.OPTIONS)
    tables.model_configs.append(modules.without_old_keys)
    tables.samples.append(SampledEpisodes)
    tables.module_paths.append(modules.present_path)
    tables.reductions.update(metrics.NEWER_REDUCTIONS)
    for key in metrics.OLD_KEYS:
        tables.result_keys[key] = functools.partial(metrics.old_value, key=key)
