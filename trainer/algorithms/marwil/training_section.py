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
        "β, how much more an action counts that paid: each has the weight exp(β A / c), with the "
        "advantage A and its moving norm c; 0 imitates all alike.",
    )
    vf_coeff = Setting[float](
        1.0,
        number(0),
        "the coefficient of the value loss.",
    )
    lambda_ = Setting[float](
        1.0,
        number(0, maximum=1),
        "the decay λ of the returns that values learn and advantages are taken from: 1 trusts the "
        "recorded rewards, 0 the values.",
    )
    moving_average_sqd_adv_norm_start = Setting[float](
        100.0,
        number(above=0),
        "the first c², the moving mean of squared advantages.",
    )
    moving_average_sqd_adv_norm_update_rate = Setting[float](
        1e-8,
        number(0, maximum=1),
        "how far c² moves to the mean of each minibatch, in [0, 1].",
    )
