"""The settings in `training()` of a policy and critics, each declared once."""

from __future__ import annotations

from typing import Any, Final

from trainer.config.config_values import ConfigValues
from trainer.config.settings import GivenSchedule, Setting, schedule
from trainer_toolkit.checks import Check, boolean, mapping, one_of

_NO_LR: Final = Check(
    "None, because policy and critics have learning rates of their own: `actor_lr`, `critic_lr`",
    lambda value: value is None,
)


class PolicyAndCriticsTrainingSection(ConfigValues, section="training"):
    """Say how a policy and its critics learn."""

    lr = Setting[Any](
        None,
        _NO_LR,
        "the learning rate: a number, or a schedule `[[env_steps, value], ...]` starting at 0.",
    )
    actor_lr = Setting[GivenSchedule](
        3e-05,
        schedule(0),
        "learning rate of the policy: a number, or a schedule `[[env_steps, value], ...]` starting "
        "at 0.",
    )
    critic_lr = Setting[GivenSchedule](
        0.0003,
        schedule(0),
        "learning rate of the critics, likewise.",
    )
    twin_q = Setting(
        True,
        boolean(),
        "learn two critics and believe the smaller value (Fujimoto et al. 2018).",
    )
    td_error_loss_fn = Setting(
        "huber",
        one_of("huber", "mse"),
        'ours: the loss of the critics, "huber" or "mse", which is that of the papers.',
    )
    policy_model_config = Setting[dict[str, Any]](
        {},
        mapping(),
        "settings of `model_config` for the policy only.",
    )
    q_model_config = Setting[dict[str, Any]](
        {},
        mapping(),
        "settings of `model_config` for the critics only.",
    )
