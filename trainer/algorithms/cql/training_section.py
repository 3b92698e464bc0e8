"""The settings of CQL in `training()`, each declared once."""

from __future__ import annotations

from trainer.config.config_values import ConfigValues
from trainer.config.settings import Setting
from trainer_toolkit.checks import boolean, integer, number


class CQLTrainingSection(ConfigValues, section="training"):
    """Say how CQL learns."""

    bc_iters = Setting(
        20_000,
        integer(0),
        "so many updates at the beginning let the policy imitate recorded actions, while critics "
        "learn already.",
        unit="updates",
    )
    min_q_weight = Setting[float](
        5.0,
        number(0),
        "how much critics are held down where nothing was recorded; 0 leaves SAC.",
    )
    num_actions = Setting(
        10,
        integer(1),
        "actions that the critics are held down at, of each of three kinds: drawn uniformly, by "
        "the policy, and by the policy at the next observation.",
    )
    temperature = Setting[float](
        1.0,
        number(above=0),
        "of the softmax over these actions: the smaller, the more the most overrated one counts.",
    )
    deterministic_backup = Setting(
        True,
        boolean(),
        "leave the entropy out of the targets of the critics.",
    )
