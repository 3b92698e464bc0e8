"""The settings of APPO in `training()` that PPO has not, each declared once."""

from __future__ import annotations

from trainer.algorithms.ppo.training_section import PPOTrainingSection
from trainer.config.settings import Setting
from trainer_toolkit.checks import boolean, number


class APPOTrainingSection(PPOTrainingSection, section="training"):
    """Say how APPO and IMPALA learn."""

    vtrace = Setting(
        True,
        boolean(),
        "correct advantages and value targets for the age of a sample by V-trace; False estimates "
        "them as PPO does.",
    )
    vtrace_clip_rho_threshold = Setting[float](
        1.0,
        number(above=0, infinite=True),
        "ρ̄, the largest weight of a step in V-trace's value targets.",
    )
    vtrace_clip_pg_rho_threshold = Setting[float](
        1.0,
        number(above=0, infinite=True),
        "the largest weight of a step in V-trace's policy gradient.",
    )
