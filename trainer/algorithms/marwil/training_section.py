"""The settings of MARWIL in `training()`, each declared once."""

from __future__ import annotations

from trainer.config.config_values import ConfigValues
from trainer.config.settings import Setting
from trainer_toolkit.checks import number


class MARWILTrainingSection(ConfigValues, section="training"):
    """Say how MARWIL and BC learn."""

    beta = Setting[float](
        1.0,
        number(0, maximum=1),
        "β: an action counts by exp(β A / c), with its advantage A and the norm c of advantages; 0 "
        "imitates all alike.",
    )
    vf_coeff = Setting[float](
        1.0,
        number(0),
        "the coefficient of the value loss.",
    )
    lambda_ = Setting[float](
        1.0,
        number(0, maximum=1),
        "the λ of returns: 1 trusts the recorded rewards, 0 the values.",
    )
    moving_average_sqd_adv_norm_start = Setting[float](
        100.0,
        number(above=0),
        "the first c², the moving mean of squared advantages.",
    )
    moving_average_sqd_adv_norm_update_rate = Setting[float](
        1e-8,
        number(0, maximum=1),
        "how far c² moves to the mean of each minibatch.",
    )
