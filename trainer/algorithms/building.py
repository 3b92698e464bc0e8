"""From what a user gave to an algorithm to its own config, and from that to its runners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from callbacks import CallbackChain
from trainer.config import AlgorithmConfig
from trainer.config.specs import env_runner_spec, module_spec, restart_policy
from trainer.env_runners import EnvRunnerGroup
from trainer.env_runners.request_round import OnRecreated
from trainer.errors import ConfigError
from trainer.evaluation import EvaluationSettings
from trainer.seeding import Role

_NOT_FIRED: Final = ("on_postprocess_trajectory", "on_learn_on_batch")


def own_config(
    config_class: type[AlgorithmConfig], config: Any, env: object, settings: Mapping[str, Any]
) -> AlgorithmConfig:
    """The algorithm's own config: a validated, frozen copy of what the user gave.

    Args:
        config_class: the algorithm's class of configs.
        config: a config, a dict of settings, or None for the defaults.
        env: the env to use instead of the config's; None keeps that.
        settings: further settings by name.

    Raises:
        ConfigError: lists everything that is wrong.
    """
    if config is None or isinstance(config, Mapping):
        own = config_class().update_from_dict(dict(config or {}))
    elif isinstance(config, config_class):
        own = config.copy(copy_frozen=False)
    elif isinstance(config, AlgorithmConfig):
        own = config_class().update_from_dict(config.given_settings())
    else:
        raise ConfigError(
            f"config={config!r} is a {type(config).__name__}; expected a {config_class.__name__} "
            "or a dict of settings."
        )
    if env is not None:
        own.environment(env)
    own.update_from_dict(settings)
    own.validate()
    if own.env is None:
        raise ConfigError(
            "There is no env to train in: `env=None`. Name one: "
            "config.environment('CartPole-v1'), or with a class: config.environment(MyEnv)."
        )
    own.freeze()
    return own


def make_callbacks(config: AlgorithmConfig) -> CallbackChain:
    """The callback objects of the main process.

    Raises:
        ConfigError: one listens to an event that this version does not fire.
    """
    chain = CallbackChain(config.callback_spec(), where="the main process")
    silent = [event for event in _NOT_FIRED if chain.listens_to(event)]
    if silent:
        raise ConfigError(
            f"A callback listens to {', '.join(silent)}, which this version does not fire yet, so "
            "it would wait in vain. Change episodes in `on_sample_end` instead."
        )
    return chain


def make_group(
    config: AlgorithmConfig, role: Role, *, root_seed: int, on_recreated: OnRecreated
) -> EnvRunnerGroup:
    """The runners of one purpose, not started yet.

    Args:
        config: of the algorithm, or for evaluation `get_evaluation_config_object()`.
        role: TRAINING or EVALUATION.
        root_seed: of the run; an `evaluation_seed` replaces it for evaluation.
        on_recreated: told the numbers of runners that were replaced.
    """
    is_evaluation = role is Role.EVALUATION
    if is_evaluation and config.evaluation_seed is not None:
        root_seed = config.evaluation_seed
    limit_s = config.evaluation_sample_timeout_s if is_evaluation else config.sample_timeout_s
    return EnvRunnerGroup(
        env_runner_spec(config, root_seed=root_seed, role=role, module=module_spec(config)),
        num_env_runners=config.num_env_runners,
        policy=restart_policy(config),
        stall_limit_s=limit_s,
        start_limit_s=config.env_runner_restore_timeout_s,
        on_recreated=on_recreated,
    )


def evaluation_settings(config: AlgorithmConfig) -> EvaluationSettings:
    """How long an evaluation is."""
    duration = config.evaluation_duration
    if isinstance(duration, str):
        raise ConfigError(f"evaluation_duration={duration!r}: expected a number.")
    return EvaluationSettings(
        duration=duration,
        unit=config.evaluation_duration_unit,
        has_fixed_seed=config.evaluation_seed is not None,
    )
