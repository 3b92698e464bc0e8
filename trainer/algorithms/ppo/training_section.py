"""The settings of PPO in `training()`, each declared once."""

from __future__ import annotations

from trainer.config.config_values import ConfigValues
from trainer.config.settings import GivenSchedule, Setting, schedule
from trainer_toolkit.checks import boolean, number, one_of, optional


class PPOTrainingSection(ConfigValues, section="training"):
    """Say how PPO learns."""

    use_critic = Setting(
        True,
        boolean(),
        "learn a value function; False leaves its loss out.",
    )
    use_gae = Setting(
        True,
        boolean(),
        "estimate advantages by GAE (Schulman et al. 2016); False takes discounted returns.",
    )
    lambda_ = Setting[float](
        1.0,
        number(0, maximum=1),
        "the λ of GAE.",
    )
    standardize_advantages = Setting[str | None](
        "batch",
        optional(one_of("batch", "minibatch")),
        'give advantages mean 0 and deviation 1 over the "batch", or over each "minibatch" as '
        "Stable-Baselines3 and CleanRL do; None does not.",
    )
    use_kl_loss = Setting(
        True,
        boolean(),
        "add the KL divergence between old and new policy to the loss.",
    )
    kl_coeff = Setting[float](
        0.2,
        number(0),
        "the first coefficient of that term; adapted so that the divergence stays near "
        "`kl_target`.",
    )
    kl_target = Setting[float](
        0.01,
        number(above=0),
        "the divergence aimed at.",
    )
    vf_loss_coeff = Setting[float](
        1.0,
        number(0),
        "the coefficient of the value loss.",
    )
    entropy_coeff = Setting[GivenSchedule](
        0.0,
        schedule(0),
        "the coefficient of the entropy bonus.",
    )
    clip_param = Setting[GivenSchedule](
        0.3,
        schedule(above=0),
        "ε: the probability ratio is clipped to [1 - ε, 1 + ε].",
    )
    vf_clip_param = Setting[float | None](
        10.0,
        optional(number(above=0, infinite=True)),
        "bound of the squared value error; None and infinity do not clip.",
    )
