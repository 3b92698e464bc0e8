"""Replay: the last steps of all episodes, stored to be learnt from many times."""

from __future__ import annotations

from trainer.replay.replay_buffer import (
    REPLAY_BUFFERS,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    make_replay_buffer,
    names_replay_buffer,
)
from trainer.replay.step_ring import Sequences, Transitions
