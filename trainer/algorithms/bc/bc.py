"""BC: makes recorded actions as probable as can be; MARWIL with β = 0, without a value network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from trainer.algorithms.marwil import MARWIL, MARWILConfig
from trainer.config import AlgorithmConfig
from trainer.config.settings import Problem, assignment
from trainer.config.validation import Rule
from trainer.modules import PolicyModule, RLModule


def all_actions_count_alike(config: BCConfig) -> Iterator[Problem]:
    """BC does not look at rewards."""
    if config.beta:
        yield Problem(
            assignment("beta", config.beta),
            "behaviour cloning imitates all recorded actions alike.",
            "Leave it out, or use MARWIL, which weighs them.",
            ("beta",),
        )


class BCConfig(MARWILConfig):
    """The settings of behaviour cloning (Pomerleau 1991, "Efficient training …").

    Example:
        `BCConfig().environment("CartPole-v1").offline_data(input_="recordings").build_algo()`
    """

    if TYPE_CHECKING:

        def _builds(self) -> BC: ...

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {**MARWILConfig.changed_defaults, "beta": 0.0}
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *MARWILConfig.rules,
        Rule(("beta",), all_actions_count_alike),
    )
    default_module_class: ClassVar[type[RLModule]] = PolicyModule


class BC(MARWIL):
    """Behaviour cloning, from recordings.

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = BCConfig
