"""Replay: the last steps of all episodes, stored to be learnt from many times."""

from __future__ import annotations

from trainer.replay.making import REPLAY_BUFFERS, make_replay_buffer, names_replay_buffer
from trainer.replay.replay_buffer import NStep, PrioritizedReplayBuffer, ReplayBuffer
from trainer.replay.transitions import Sequences, Transitions

__all__ = [
    "REPLAY_BUFFERS",
    "NStep",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "Sequences",
    "Transitions",
    "make_replay_buffer",
    "names_replay_buffer",
]
