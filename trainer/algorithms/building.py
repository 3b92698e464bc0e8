"""Algorithms by name, and what one is built from: its config, callbacks, engine and env runners.

Names in checkpoints and on the command line resolve here and nowhere else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from callbacks import EVENTS, CallbackChain, RLlibCallback
from trainer.algorithms.inference import FILTER_AS_SETTING
from trainer.config import AlgorithmConfig
from trainer.config.algorithm_config import env_runner_spec, replace_env, restart_policy
from trainer.connectors import ConnectorFactories
from trainer.env_runners import TrajectoryPostprocessing
from trainer.errors import ConfigError
from trainer.old_names import OLD_NAMES
from trainer.ray_engine.engine import RayEngine
from trainer.runner_group import EnvRunnerGroup
from trainer.runner_group.crash_files import CrashFiles
from trainer.runner_group.runners import OnRecreated
from trainer.runner_group.user_calls import OnMetrics
from trainer.runtime.engine import Engine
from trainer.runtime.local_engine import LocalEngine
from trainer.runtime.threads import OneThread
from trainer.seeding import Role
from trainer_toolkit.nearest_names import did_you_mean
from trainer_toolkit.trees import same

if TYPE_CHECKING:
    from trainer.algorithms.algorithm import Algorithm


# ---- registry

# Filled by `Algorithm.__init_subclass__`: to define an algorithm is to register it.
_ALGORITHMS: Final[dict[str, type[Algorithm]]] = {}


def register_algorithm(cls: type[Algorithm]) -> None:
    """Gives an algorithm its class' name; a later class of the same name takes it over."""
    _ALGORITHMS[cls.__name__] = cls


def algorithms_of_users() -> list[type[Algorithm]]:
    """Those that are not ours."""
    return [cls for cls in _ALGORITHMS.values() if not cls.__module__.startswith("trainer.")]


def algorithm_names() -> list[str]:
    """The names of all that are registered, in order."""
    return sorted(_ALGORITHMS)


def is_registered(name: str) -> bool:
    """Whether there is an algorithm of exactly that name."""
    return name in _ALGORITHMS


def algorithm_class(name: str) -> type[Algorithm]:
    """The algorithm of that name; a ConfigError that names the nearest if there is none."""
    if name in _ALGORITHMS:
        return _ALGORITHMS[name]
    plain = re.sub("[-_]", "", name.upper())
    if plain in OLD_NAMES.algorithms:
        hint = (
            " It is one of RLlib's that are not offered; "
            f"{OLD_NAMES.algorithms[plain]} solves such tasks."
        )
    else:
        hint = did_you_mean(plain, _ALGORITHMS, similarity=0.5)
    raise ConfigError(
        f"There is no algorithm {name!r}.{hint} There are: {', '.join(algorithm_names())}."
    )


get_trainable_cls = algorithm_class
"""RLlib's name of `algorithm_class`."""


# ---- building
#
# From what a user gave to an algorithm to its own config, and from that to its runners.

_LOGGER: Final = logging.getLogger(__name__)

_ONE_MACHINE: Final = 'Nothing is reserved on a single machine; see engine="ray".'
_OF_CLUSTERS: Final = dict.fromkeys(
    ("num_cpus_per_env_runner", "custom_resources_per_env_runner", "placement_strategy"),
    _ONE_MACHINE,
)
"""Settings that have an effect on other engines than the local one, and why not there."""
_NOT_EVALUATED: Final = ("training", "reporting")
"""Sections whose settings say how is learnt and reported, so nothing in `evaluation_config`."""
_LEARNS: Final = "An evaluation learns nothing; only callbacks see it, in env_runner.config."
_BUT_EVALUATED: Final = (
    "epsilon",
    "learner_class",
    "metrics_num_episodes_for_smoothing",
    "keep_per_episode_custom_metrics",
)
"""Those of their settings that evaluations follow; the network follows from a learner's class."""
_OF_THE_RUN: Final = "The main process fires it, for the callbacks of the run: see callbacks()."
_INSTEAD_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sample_timeout_s": "evaluation_sample_timeout_s counts.",
        "env_task_fn": "`algo.eval_env_runner_group.set_task()` gives evaluation its tasks.",
        "policies_to_train": "An evaluation trains nothing.",
        "count_steps_by": "Evaluations count as training does.",
    }
)
"""Other settings that say nothing in `evaluation_config`, and what does."""


class HasConfig(Protocol):
    """A class of algorithms."""

    config_class: ClassVar[type[AlgorithmConfig]]

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """A new config of this algorithm with all defaults."""


def require_env(config: AlgorithmConfig) -> None:
    """Raises a ConfigError that says how to name an env if a config names none to train in."""
    if config.env is None:
        raise ConfigError(
            "There is no env to train in: `env=None`. Name one: "
            "config.environment('CartPole-v1'), or with a class: config.environment(MyEnv)."
        )


def _in_the_manner_of_others(
    config: object, config_class: type[AlgorithmConfig], env: object
) -> str:
    """A hint for `PPO("MlpPolicy", "CartPole-v1")`, as Stable-Baselines3 has it."""
    if not isinstance(config, str):
        return ""
    shown = repr(env) if isinstance(env, str) else "env"
    return (
        f" Networks follow from the env, so write {config_class.__name__}().environment({shown})"
        ".build_algo(); see docs/coming-from-others.md."
    )


def own_config(
    algorithm: type[HasConfig], config: Any, env: object, settings: Mapping[str, Any]
) -> AlgorithmConfig:
    """The algorithm's own config: a validated, frozen copy of what the user gave.

    Args:
        algorithm: its class; `get_default_config()` is what a dict of settings changes.
        config: a config, a dict of settings, or None for the defaults.
        env: the env to use instead of the config's, also in evaluation; None keeps that.
        settings: further settings by name.

    Raises:
        ConfigError: lists everything that is wrong.
    """
    config_class = algorithm.config_class
    if config is None or isinstance(config, Mapping):
        own = _default_config(algorithm).update_from_dict(dict(config or {}))
    elif isinstance(config, config_class):
        own = config.copy(copy_frozen=False)
    elif isinstance(config, AlgorithmConfig):
        own = config_class().update_from_dict(config.given_settings(), source=config.source)
    else:
        raise ConfigError(
            f"config={config!r} is a {type(config).__name__}; expected a {config_class.__name__} "
            f"or a dict of settings.{_in_the_manner_of_others(config, config_class, env)}"
        )
    if env is not None:
        replace_env(own, env)
    own.update_from_dict(settings)
    own.validate()
    require_env(own)
    own.freeze()
    _log_what_has_no_effect(own)
    if ConnectorFactories.of(own) is not None:
        _LOGGER.info(
            "The config has connector pieces between env and module: the policy can be evaluated, "
            "and refuses single observations (compute_single_action, TrainedPolicy) and "
            "exports. %s",
            FILTER_AS_SETTING,
        )
    return own


def _log_what_has_no_effect(config: AlgorithmConfig) -> None:
    """Logs once per algorithm which settings were given that change nothing here."""
    of_clusters = _OF_CLUSTERS if config.engine == "local" else {}
    reasons_of_run = {**_reasons_of_unused(), **of_clusters}
    given = {**config.changed_settings(), **config.unused_settings()}
    texts = [
        f"{name}={value!r:.60} ({reasons_of_run[name]})"
        for name, value in given.items()
        if name in reasons_of_run
    ]
    if config.evaluation_config:
        reasons = without_effect_in_evaluation(type(config))
        texts += [
            f"evaluation_config: {name}={value!r:.60} ({reasons[name]})"
            for name, value in config.evaluation_config.items()
            # It may be a copy of the config: what is as in training is not meant.
            if name in reasons and not same(value, config[name])
        ]
        texts += [f"evaluation_config: {name} ({_OF_THE_RUN})" for name in _never_called(config)]
    if texts:
        _LOGGER.warning(
            "These settings have no effect here: %s Leave them out, or see docs/settings.md.",
            "; ".join(texts),
        )


def _never_called(config: AlgorithmConfig) -> list[str]:
    """Callbacks that evaluation alone has, of events that evaluation runners never fire."""
    of_run = config.callback_spec()
    spec = config.get_evaluation_config_object().callback_spec()
    events = [name for name, event in EVENTS.items() if event.scope == "algorithm"]
    functions = [
        f"callbacks({event}=...)"
        for event in events
        if spec.functions.get(event) != of_run.functions.get(event)
    ]
    methods = [
        f"{cls.__name__}.{event}"
        for cls in spec.classes
        if isinstance(cls, type) and cls not in of_run.classes
        for event in events
        if getattr(cls, event, None) is not getattr(RLlibCallback, event)
    ]
    return functions + methods


def without_effect_in_evaluation(config: type[AlgorithmConfig]) -> dict[str, str]:
    """The settings that change nothing where they stand in `evaluation_config`, with the reason."""
    learns = {row.name for row in config.describe_settings() if row.section in _NOT_EVALUATED}
    learns -= {*_BUT_EVALUATED, *config.module_settings}  # with another network it is refused
    return {**dict.fromkeys(sorted(learns), _LEARNS), **_INSTEAD_OF, **_reasons_of_unused()}


def _reasons_of_unused() -> dict[str, str]:
    return {name: setting.reason for name, setting in OLD_NAMES.unused_settings.items()}


def _default_config(algorithm: type[HasConfig]) -> AlgorithmConfig:
    default: Any = algorithm.get_default_config()
    if not isinstance(default, AlgorithmConfig):
        raise ConfigError(
            f"{algorithm.__name__}.get_default_config() returned {default!r:.80}; expected a "
            f"{algorithm.config_class.__name__} with the defaults."
        )
    return default.copy(copy_frozen=False)


def make_callbacks(config: AlgorithmConfig) -> CallbackChain:
    """The callback objects of the main process."""
    return CallbackChain(config.callback_spec(), where="the main process")


def make_engine(config: AlgorithmConfig) -> Engine:
    """Where remote runners live; no other place chooses an engine for them.

    Raises:
        ConfigError, ImportError, EngineError: it cannot be had; says why.
    """
    if not isinstance(config.engine, str):
        return config.engine
    if config.engine == "local":
        return LocalEngine()
    return RayEngine(
        num_cpus=config.num_cpus_per_env_runner,
        resources=config.custom_resources_per_env_runner,
        placement_strategy=config.get("placement_strategy", "PACK"),
        strict_cpus=config.strict_cpus,
    )


def make_group(
    config: AlgorithmConfig,
    role: Role,
    *,
    root_seed: int,
    on_recreated: OnRecreated,
    on_metrics: OnMetrics,
    one_thread: OneThread,
    postprocessing: TrajectoryPostprocessing | None = None,
) -> EnvRunnerGroup:
    """The runners of one purpose, not started yet.

    Args:
        config: of the algorithm, or for evaluation `get_evaluation_config_object()`.
        role: TRAINING or EVALUATION.
        root_seed: of their randomness.
        on_recreated: told the numbers of runners that were replaced.
        on_metrics: told what functions given to `foreach_env_runner` logged.
        one_thread: of the algorithm.
        postprocessing: what trajectories get before callbacks see them; None without a listener.
    """
    is_evaluation = role is Role.EVALUATION
    limit_s = config.evaluation_sample_timeout_s if is_evaluation else config.sample_timeout_s
    spec = env_runner_spec(config, root_seed=root_seed, role=role)
    return EnvRunnerGroup(
        replace(
            spec,
            postprocessing=postprocessing,
            episode_limit_s=limit_s if is_evaluation else None,
        ),
        num_env_runners=config.num_env_runners,
        restart_policy=replace(restart_policy(config), stall_limit_s=limit_s),
        crash_files=CrashFiles(
            config.crash_dir,
            about={
                "algorithm": getattr(config.algo_class, "__name__", ""),
                "config": config.get_state(),
            },
            is_own_work=config.source.is_trusted,
        ),
        on_recreated=on_recreated,
        on_metrics=on_metrics,
        engine=make_engine(config),
        one_thread=one_thread,
    )
