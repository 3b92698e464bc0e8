"""The settings of TD3 in `training()`, each declared once."""

from __future__ import annotations

from trainer.config.config_values import ConfigValues
from trainer.config.settings import Setting
from trainer_toolkit.checks import boolean, integer, number


class TD3TrainingSection(ConfigValues, section="training"):
    """Say how TD3 learns."""

    policy_delay = Setting(
        2,
        integer(1),
        "updates of the critics per update of the policy and of the target networks.",
        unit="updates",
    )
    smooth_target_policy = Setting(
        True,
        boolean(),
        "add noise to the actions whose values are targets.",
    )
    target_noise = Setting[float](
        0.2,
        number(0),
        "standard deviation of that noise, for actions in [-1, 1].",
    )
    target_noise_clip = Setting[float](
        0.5,
        number(0),
        "bound of that noise.",
    )
