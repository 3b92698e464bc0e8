"""From a config to the specs that processes receive.

The only place where settings become values of other rooms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from trainer.connectors import ConnectorFactories, NormalizationSettings
from trainer.env_runners import EnvRunnerSpec
from trainer.env_runners.direct_runners import DirectRunners
from trainer.envs import make_env_factory
from trainer.exploration import ExplorationSpec
from trainer.modules import (
    ByModule,
    DefaultModelConfig,
    MultiRLModuleSpec,
    PolicySpec,
    RLModuleSpec,
)
from trainer.runtime.restart_policy import RestartPolicy
from trainer.seeding import Role, draw_root_seed
from trainer.types import ModuleId

if TYPE_CHECKING:
    from trainer.config.algorithm_config import AlgorithmConfig


def first_given(*values: Any) -> Any:
    """The first that is not None; an empty Dict space is false, but given."""
    return next((value for value in values if value is not None), None)


def module_specs(config: AlgorithmConfig) -> ByModule[RLModuleSpec]:
    """The networks that a config asks for; spaces stay None where the env decides them.

    This is the place that decides which modules a run has.
    """
    given = config.policies
    says = given if isinstance(given, Mapping) else dict.fromkeys(given)
    return ByModule({id_: _module_spec(config, id_, says[id_]) for id_ in says})


def _module_spec(config: AlgorithmConfig, module_id: ModuleId, policy: Any) -> RLModuleSpec:
    given = policy_spec(policy, config.rl_module_spec, module_id)
    model_config = given.model_config or config.model_config
    if isinstance(model_config, DefaultModelConfig):
        model_config = asdict(model_config)
    module_class = given.module_class or config.default_module_class
    if issubclass(module_class, config.default_module_class):
        model_config = {**model_config, **config.settings_of_module()}
    return replace(
        given,
        module_class=module_class,
        observation_space=first_given(given.observation_space, config.observation_space),
        action_space=first_given(given.action_space, config.action_space),
        model_config=model_config,
        action_mask_key=given.action_mask_key or config.action_mask_key,
    )


def policy_spec(policy: Any, rl_module_spec: Any, module_id: ModuleId) -> RLModuleSpec:
    """What `policies` says of a module, or else `rl_module_spec`."""
    if isinstance(policy, RLModuleSpec):
        return policy
    if isinstance(policy, PolicySpec) and policy.is_random:
        return policy.module_spec()
    given = rl_module_spec
    if isinstance(given, MultiRLModuleSpec):
        given = given.for_modules([module_id])
        given = given.completed(module_id) if module_id in given else None
    given = given if isinstance(given, RLModuleSpec) else RLModuleSpec()
    if isinstance(policy, PolicySpec):
        given = replace(
            given,
            observation_space=first_given(policy.observation_space, given.observation_space),
            action_space=first_given(policy.action_space, given.action_space),
        )
    return given


def env_runner_spec(config: AlgorithmConfig, *, root_seed: int, role: Role) -> EnvRunnerSpec:
    """What makes the env runners of a config; the group fills in the place of each.

    Raises:
        EnvCreationError: the env is not known.
    """
    return EnvRunnerSpec(
        env_factory=make_env_factory(config.env, config.env_config),
        module_specs=module_specs(config),
        callbacks=config.callback_spec(),
        config=settings_for_callbacks(config),
        root_seed=root_seed,
        role=role,
        worker_index=0,
        num_workers=config.num_env_runners,
        num_envs=config.num_envs_per_env_runner,
        first_slot=0,
        num_slots=config.num_envs_per_env_runner,
        explore=config.explore,
        normalize_actions=config.normalize_actions,
        clip_actions=config.clip_actions,
        lookback=config.episode_lookback_horizon,
        episodes_to_numpy=config.episodes_to_numpy,
        checks_env=not config.disable_env_checking,
        exploration=exploration_spec(config),
        connectors=ConnectorFactories.of(config),
        policy_mapping=config.policy_mapping_fn,
        rewards_after_end="error" if config.rewards_after_end == "error" else "credit",
        max_empty_steps=config.max_empty_steps,
        sub_env_tolerance=(
            config.num_consecutive_env_runner_failures_tolerance
            if config.restart_failed_sub_environments
            else None
        ),
    )


def exploration_spec(config: AlgorithmConfig) -> ExplorationSpec:
    """The exploration strategy of a config.

    Raises:
        ConfigError: there is no such strategy, or an argument is wrong.
    """
    return ExplorationSpec.from_config(config.get_exploration_config())


def normalization_settings(
    config: AlgorithmConfig, *, num_slots: int, module: RLModuleSpec
) -> NormalizationSettings:
    """What a config says about observations and rewards on their way to the networks.

    Args:
        config: of the algorithm.
        num_slots: sub-envs that are sampled.
        module: knows the spaces.

    Raises:
        ConfigError: `env_to_module_connector` cannot be called in the main process.
    """
    connectors = ConnectorFactories.of(config)
    has_filter = connectors is not None and connectors.wants_mean_std_filter(
        module.observation_space, module.action_space
    )
    return NormalizationSettings(
        observations=has_filter or config.observation_filter == "MeanStdFilter",
        rewards=config.normalize_rewards,
        clip_rewards=config.clip_rewards,
        gamma=config.gamma,
        num_slots=num_slots,
    )


def settings_for_callbacks(config: AlgorithmConfig) -> dict[str, Any]:
    """What `env_runner.config` shows: all settings but those that hold code.

    Workers do not need to see these.
    """
    code = set(config.names_of_code())
    settings = {name: value for name, value in config.to_dict().items() if name not in code}
    settings["in_evaluation"] = config.in_evaluation
    settings["rollout_fragment_length"] = config.get_rollout_fragment_length()
    return settings


def restart_policy(config: AlgorithmConfig) -> RestartPolicy:
    """What a config says about failing env runners."""
    return RestartPolicy(
        should_restart=config.restart_failed_env_runners,
        should_ignore=config.ignore_env_runner_failures,
        max_restarts=config.max_num_env_runner_restarts,
        delay_s=config.delay_between_env_runner_restarts_s,
        tolerance=config.num_consecutive_env_runner_failures_tolerance,
    )


def direct_runners(config: AlgorithmConfig) -> DirectRunners:
    """What makes env runners without an algorithm: `SingleAgentEnvRunner(config=config)`."""
    root_seed = draw_root_seed() if config.seed is None else int(config.seed)
    role = Role.EVALUATION if config.in_evaluation else Role.TRAINING
    spec = env_runner_spec(config, root_seed=root_seed, role=role)
    return DirectRunners(
        spec=spec,
        num_env_runners=config.num_env_runners,
        policy=restart_policy(config),
        stall_limit_s=config.sample_timeout_s,
        start_limit_s=config.env_runner_restore_timeout_s,
    )
