"""The counts of a run.

They are kept in the main process alone, and advanced from committed answers alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from checkpoints import check_shape
from checkpoints.state_shapes import count, fields, number
from trainer.types import State


@dataclass
class Counters:
    """Lifetime counts of one run.

    Attributes:
        training_iteration: results of `train()`.
        num_training_steps: calls of `training_step()`.
        num_env_steps_sampled: env steps that reached the learner.
        num_env_steps_trained: env steps that updates were made from.
        num_episodes: finished training episodes.
        num_episodes_lost: running training episodes that had to be given up.
        num_env_steps_lost: their env steps, which were reported and learnt from before.
        num_actions_computed: actions drawn by `compute_single_action`: where its random numbers
            stand.
        num_rows_owed: rows that sampled steps have paid for and no update has used yet
            (`training_intensity`), below one batch.
    """

    training_iteration: int = 0
    num_training_steps: int = 0
    num_env_steps_sampled: int = 0
    num_env_steps_trained: int = 0
    num_episodes: int = 0
    num_episodes_lost: int = 0
    num_env_steps_lost: int = 0
    num_actions_computed: int = 0
    num_rows_owed: float = 0.0

    def get_state(self) -> State:
        """All counts by name."""
        return dataclasses.asdict(self)

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it; changes nothing."""
        whole = {field.name: count for field in dataclasses.fields(self)}
        check_shape(state, fields({**whole, "num_rows_owed": number}))

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, state[field.name])
