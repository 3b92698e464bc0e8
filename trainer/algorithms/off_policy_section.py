"""The settings of OffPolicy in `training()`, each declared once."""

from __future__ import annotations

from typing import Any, Final

from trainer.config.config_values import ConfigValues
from trainer.config.settings import Merge, Setting
from trainer_toolkit.checks import Check, boolean, either, integer, mapping, number, optional


def _is_range(value: Any) -> bool:
    if not (isinstance(value, (tuple, list)) and len(value) == 2):
        return False
    return all(integer(1).accepts(bound) for bound in value) and value[0] <= value[1]


_STEPS: Final = either(integer(1), Check("a pair (lowest, highest) of ints ≥ 1", _is_range))


class OffPolicyTrainingSection(ConfigValues, section="training"):
    """Say how the algorithm learns from replay."""

    replay_buffer_config = Setting[dict[str, Any]](
        {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 50000, "alpha": 0.6, "beta": 0.4},
        mapping(),
        "`type` (a name of `trainer.replay`, or a class) and its arguments, such as `capacity`; "
        "merged into earlier values.",
        merge=Merge.DEEP,
        keeps_default=True,
    )
    num_steps_sampled_before_learning_starts = Setting(
        1000,
        integer(0),
        "no update before so many steps were sampled.",
        unit="env steps",
    )
    training_intensity = Setting[float | None](
        None,
        optional(number(above=0)),
        "rows learnt from per step sampled; None makes one update per round of "
        "`rollout_fragment_length` steps from every env.",
    )
    n_step = Setting[int | tuple[int, int] | list[int]](
        1,
        _STEPS,
        "env steps per transition, fewer where an episode ends; a pair draws a number for each, "
        "both ends included.",
        unit="env steps",
    )
    tau = Setting[float](
        1.0,
        number(above=0, maximum=1),
        "target networks move by this share of the way to the learning ones.",
    )
    target_network_update_freq = Setting(
        0,
        integer(0),
        "env steps between two updates of target networks; 0: after every update.",
        unit="env steps",
    )
    store_buffer_in_checkpoints = Setting(
        True,
        boolean(),
        "False leaves the replay buffer out of checkpoints; a restored run fills a new one before "
        "it learns on.",
    )
