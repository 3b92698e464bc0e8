"""What was done about sub-envs that failed, as it is told to the main process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EnvRestarts:
    """Sub-envs that were made anew since the last answer, and what that cost.

    Attributes:
        count: how often one was made anew.
        num_episodes_lost, num_env_steps_lost: of their running episodes that were given up.
        repair_s: seconds spent on making envs and playing episodes again.
        texts: one line per repair, and the traceback below it.
    """

    count: int = 0
    num_episodes_lost: int = 0
    num_env_steps_lost: int = 0
    repair_s: float = 0.0
    texts: tuple[str, ...] = ()
