"""The settings and rules of algorithms that learn a policy and critics from replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import ClassVar

from trainer.algorithms.on_and_off_policy import OffPolicyConfig
from trainer.algorithms.policy_and_critics_section import PolicyAndCriticsTrainingSection
from trainer.config.algorithm_config import given_module_specs
from trainer.config.settings import Problem, assignment
from trainer.config.validation import Rule
from trainer.errors import ConfigError
from trainer.modules import RLModule
from trainer.modules.model_config import DefaultModelConfig
from trainer.modules.policy_and_critics import PolicyAndCritics
from trainer.modules.random_module import RandomRLModule
from trainer.types import DEFAULT_MODULE_ID


def _name(config: PolicyAndCriticsConfig) -> str:
    """The algorithm's."""
    return (config.algo_class or type(config)).__name__.removesuffix("Config")


def networks_can_be_made(config: PolicyAndCriticsConfig) -> Iterator[Problem]:
    """The settings of policy and critics fit the ready-made networks."""
    kind = config.default_module_class
    if not issubclass(kind, PolicyAndCritics):
        return
    for module_id, spec in given_module_specs(config).items():
        if spec.module_class is not None:
            continue
        given = spec.model_config or config.model_config
        if isinstance(given, DefaultModelConfig):
            given = asdict(given)
        try:
            shape = kind.config_class.from_setting({**given, **config.settings_of_module()})
            shape.layers("policy", 1)
            shape.layers("q", 1)
        except ConfigError as error:
            names = ("model_config", "policy_model_config", "q_model_config")
            of = "" if module_id == DEFAULT_MODULE_ID else f" (module {module_id!r})"
            yield Problem(f"The networks of {_name(config)}{of}", str(error), "Correct it.", names)


def own_networks_have_critics(config: PolicyAndCriticsConfig) -> Iterator[Problem]:
    """Critics are needed, which a module class of the user's own must have."""
    named = " or ".join(cls.__name__ for cls in config.own_module_classes)
    for spec in given_module_specs(config).values():
        own = spec.module_class
        if own is None or issubclass(own, (*config.own_module_classes, RandomRLModule)):
            continue
        yield Problem(
            assignment("rl_module_spec", own.__name__),
            f"{_name(config)} learns a policy and critics, and this module class is not derived "
            f"from {named}.",
            f"Derive it from {named}, or use PPO or DQN.",
            ("rl_module_spec",),
        )


def actions_are_normalized(config: PolicyAndCriticsConfig) -> Iterator[Problem]:
    """The policy chooses in [-1, 1], so the env's bounds must be applied to that."""
    if not config.normalize_actions:
        yield Problem(
            assignment("normalize_actions", False),
            f"{_name(config)}'s policy chooses in [-1, 1], which only then is scaled to the bounds "
            "of the action space.",
            "Leave it out, or give normalize_actions=True.",
            ("normalize_actions",),
        )


class PolicyAndCriticsConfig(PolicyAndCriticsTrainingSection, OffPolicyConfig):
    """What SAC and TD3 have in common: a policy and one or two critics, learnt from replay."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *OffPolicyConfig.rules,
        Rule(("model_config", "rl_module_spec"), networks_can_be_made),
        Rule(("rl_module_spec",), own_networks_have_critics),
        Rule(("normalize_actions",), actions_are_normalized),
    )
    own_module_classes: ClassVar[tuple[type[RLModule], ...]] = ()
    """What module classes of users must be derived from."""
    module_settings: ClassVar[tuple[str, ...]] = (
        "twin_q",
        "policy_model_config",
        "q_model_config",
    )
