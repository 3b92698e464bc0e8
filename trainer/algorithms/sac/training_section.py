"""The settings of SAC in `training()`, each declared once."""

from __future__ import annotations

from typing import Any, Final

from trainer.config.config_values import ConfigValues
from trainer.config.settings import GivenSchedule, Setting, schedule
from trainer_toolkit.checks import Check, boolean, either, mapping, number, one_of, optional

_NO_LR: Final = Check(
    "None, because SAC has three learning rates: `actor_lr`, `critic_lr` and `alpha_lr`",
    lambda value: value is None,
)


class SACTrainingSection(ConfigValues, section="training"):
    """Say how SAC learns."""

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
    alpha_lr = Setting[GivenSchedule](
        0.0003,
        schedule(0),
        "learning rate of the temperature, likewise; 0 keeps it at `initial_alpha`.",
    )
    twin_q = Setting(
        True,
        boolean(),
        "learn two critics and believe the smaller value (Fujimoto et al. 2018).",
    )
    initial_alpha = Setting[float](
        1.0,
        number(above=0),
        "the first temperature α, what a nat of entropy is worth in reward, > 0.",
    )
    target_entropy = Setting[float | str | None](
        "auto",
        optional(either(number(), one_of("auto"))),
        'the mean entropy of the policy in nats that the temperature aims at. "auto" (or None): '
        "minus the number of action dimensions, or 0.98 ln n for n Discrete actions.",
    )
    td_error_loss_fn = Setting(
        "huber",
        one_of("huber", "mse"),
        'ours for SAC: the loss of the critics, "huber" or "mse", which is that of the paper.',
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
