"""The settings of SAC in `training()`, each declared once."""

from __future__ import annotations

from typing import Any, Final

from trainer.config.config_values import ConfigValues
from trainer.config.settings import GivenSchedule, Setting, schedule
from trainer_toolkit.checks import Check, either, number, one_of, optional

_NO_LR: Final = Check(
    "None, because SAC has three learning rates: `actor_lr`, `critic_lr` and `alpha_lr`",
    lambda value: value is None,
)


class SACTrainingSection(ConfigValues, section="training"):
    """Say how SAC learns."""

    lr = Setting[Any](
        None,
        _NO_LR,
        "must stay None: there are `actor_lr`, `critic_lr` and `alpha_lr`.",
    )
    alpha_lr = Setting[GivenSchedule](
        0.0003,
        schedule(0),
        "the learning rate of the temperature; 0 keeps it at `initial_alpha`.",
    )
    initial_alpha = Setting[float](
        1.0,
        number(above=0),
        "the first temperature α, what a nat of entropy is worth in reward.",
    )
    target_entropy = Setting[float | str | None](
        "auto",
        optional(either(number(), one_of("auto"))),
        'the entropy in nats that α aims at; "auto": minus the number of action dimensions, or '
        "0.98 ln n for n Discrete actions.",
    )
