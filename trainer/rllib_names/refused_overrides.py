"""Methods of RLlib's classes that nobody calls here: an override of one would be ignored."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from trainer.errors import ConfigError

_MODULE: Final = "Name the class in the config: `config.rl_module(rl_module_spec=...)`."
_NO_LEARNER: Final = "Learners of your own come later; leave it out."
_STATE: Final = (
    "Override `get_state` and `set_state`, which every way of saving and restoring calls; or use "
    "the callbacks `on_checkpoint_saved` and `on_checkpoint_loaded`."
)

ALGORITHM_OVERRIDES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cleanup": "Override `stop`, and call `super().stop()` in it.",
        "log_result": "Use the callback `on_train_result`, or override `step`.",
        "reset_config": "Build a new algorithm with the other config.",
        "save_checkpoint": _STATE,
        "load_checkpoint": _STATE,
        "get_default_policy_class": _MODULE,
        "get_default_rl_module_spec": _MODULE,
        "get_default_learner_class": _NO_LEARNER,
        "validate_env": "Check the env where it is made, or in `on_environment_created`.",
        "_setup": "Override `setup`, and call `super().setup(config)` in it.",
        "_train": "Override `step`, and call `super().step()` in it.",
        "_stop": "Override `stop`, and call `super().stop()` in it.",
        "_save": _STATE,
        "_restore": _STATE,
    }
)
"""Of algorithms, with what to write instead."""

CONFIG_OVERRIDES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "get_default_rl_module_spec": _MODULE,
        "get_default_learner_class": _NO_LEARNER,
        "build_learner": _NO_LEARNER,
        "build_learner_group": _NO_LEARNER,
        "build_env_to_module_connector": "Change observations in env wrappers.",
        "build_module_to_env_connector": "Change actions in env wrappers.",
        "build_learner_connector": "Use the callback `on_learn_on_batch`.",
    }
)
"""Of configs, with what to write instead."""


def refuse_overrides(cls: type, advice: Mapping[str, str]) -> None:
    """Refuses a class of the user's that overrides what nobody calls.

    Args:
        cls: the new class.
        advice: what to write instead, by the name of the method.

    Raises:
        ConfigError: it does; names every such method.
    """
    if cls.__module__.startswith("trainer."):
        return
    found = [name for name in advice if name in vars(cls)]
    if found:
        raise ConfigError(
            f"{cls.__name__} overrides what nothing here calls: "
            + " ".join(f"`{name}`. {advice[name]}" for name in found)
        )
