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
        "updates at the beginning in which the policy imitates recorded actions; critics learn "
        "already.",
        unit="updates",
    )
    min_q_weight = Setting[float](
        5.0,
        number(0),
        "the weight of the term that lowers the values of actions that were not recorded; 0 leaves "
        "SAC.",
    )
    num_actions = Setting(
        10,
        integer(1),
        "actions in that term, of each of three kinds: uniform, of the policy, and of the policy "
        "at the next observation.",
    )
    temperature = Setting[float](
        1.0,
        number(above=0),
        "the temperature of the softmax over these actions.",
    )
    deterministic_backup = Setting(
        True,
        boolean(),
        "leave the entropy out of the critics' targets.",
    )
