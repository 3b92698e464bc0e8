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
        "must stay None: there are `actor_lr` and `critic_lr`.",
    )
    actor_lr = Setting[GivenSchedule](
        3e-05,
        schedule(0),
        "the learning rate of the policy.",
    )
    critic_lr = Setting[GivenSchedule](
        0.0003,
        schedule(0),
        "the learning rate of the critics.",
    )
    twin_q = Setting(
        True,
        boolean(),
        "learn two critics and take the smaller value (Fujimoto et al. 2018).",
    )
    td_error_loss_fn = Setting(
        "huber",
        one_of("huber", "mse"),
        'the loss of the critics; "mse" is that of the papers.',
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
