"""What a replay buffer should do, said as simply as possible: a list of all steps ever added."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from hypothesis import strategies as st

from trainer.episodes import SingleAgentEpisode, nested

KINDS = ("number", "vector", "image", "nested", "stack", "large")
"""Of observations; those of the last two are large enough to be kept as frames."""
End = Literal["terminated", "truncated", "given up", "goes on"]


@dataclass(frozen=True)
class Piece:
    """So many steps of the episode that is running in a slot, and what comes then."""

    slot: int
    length: int
    end: End = "goes on"


PIECES = st.builds(
    Piece,
    st.integers(0, 2),
    st.integers(0, 4) | st.integers(5, 30),
    st.sampled_from(["goes on", "goes on", "terminated", "truncated", "given up"]),
)
ADDS = st.lists(st.lists(PIECES, min_size=1, max_size=5), max_size=8)
"""Calls of `add`, each with several pieces."""


def observation(kind, episode, t):
    """The observation before step t; no two are equal."""
    if kind == "number":
        return np.int64(1000 * episode + t)
    if kind == "vector":
        return np.array([episode, t, 0.5], np.float32)
    if kind == "image":
        return np.array([[episode], [t // 256], [t % 256]], np.uint8)
    if kind == "stack":
        newest = [1000 * episode + max(step, 0) for step in range(t - 3, t + 1)]
        pictures = np.broadcast_to(np.array(newest, np.int32), (12, 12, 4))
        return {"camera": pictures.copy(), "speed": np.float32(t)}
    if kind == "large":
        return np.linspace(episode, t, 600, dtype=np.float32)
    return {
        "camera": np.array([[episode], [t]], np.uint8),
        "arm/joint": (np.float64(t / 7), {"x": np.array([episode, -t], np.int16)}),
    }


def action(kind, episode, t):
    """The action of step t."""
    if kind == "nested":
        return np.int64(t % 3), {"force": np.array([episode + t / 10], np.float32)}
    return np.int64((episode + t) % 5) if kind == "number" else np.array([t / 3], np.float32)


def reward(episode, t):
    """What step t pays."""
    return float((episode * 7 + t * 3) % 11 - 5.3)


def chunk(episode, t_started, length, *, end="goes on", kind="vector", lookback=0):
    """Steps of an episode, in arrays."""
    steps = range(t_started - lookback, t_started + length)
    return SingleAgentEpisode(
        f"episode {episode}",
        observations=[observation(kind, episode, t) for t in (*steps, t_started + length)],
        actions=[action(kind, episode, t) for t in steps],
        rewards=[reward(episode, t) for t in steps],
        terminated=end == "terminated",
        truncated=end == "truncated",
        t_started=t_started,
        len_lookback_buffer=lookback,
    ).to_numpy()


class World:
    """Slots that play one episode after another; it remembers every step.

    Attributes:
        steps: (episode, t, whether the episode terminated with it) of all steps, in order.
    """

    def __init__(self, kind="vector"):
        self.kind = kind
        self.steps = []
        self._num_episodes = 0
        self._running = {}

    def play(self, pieces):
        """The chunks of one call of `add`."""
        return [self._play(piece) for piece in pieces]

    def _play(self, piece):
        if piece.slot not in self._running:
            self._running[piece.slot] = self._num_episodes, 0
            self._num_episodes += 1
        episode, t = self._running[piece.slot]
        after = t + piece.length
        # An episode cannot end in a chunk without steps.
        end = piece.end if piece.length else "goes on"
        self.steps += [
            (episode, step, end == "terminated" and step == after - 1) for step in range(t, after)
        ]
        self._running[piece.slot] = episode, after
        if end != "goes on":
            del self._running[piece.slot]
        return chunk(episode, t, piece.length, end=end, kind=self.kind, lookback=min(t, 2))

    def position_in(self, row, capacity):
        """The number of the step that stands in a row of a ring."""
        last = len(self.steps) - 1
        return last - (last - row) % capacity

    def transition(self, position, *, n_step, gamma):
        """What a sample that begins with a step must hold; found by looking through all steps."""
        episode, first, _ = self.steps[position]
        rest = [step for step in self.steps[position:] if step[0] == episode][:n_step]
        total, discount = 0.0, 1.0
        for _, t, _ in rest:
            total += discount * float(np.float32(reward(episode, t)))
            discount *= gamma
        return {
            "obs": observation(self.kind, episode, first),
            "actions": action(self.kind, episode, first),
            "rewards": np.float32(total),
            "next_obs": observation(self.kind, episode, first + len(rest)),
            "discounts": np.float32(0.0 if rest[-1][2] else discount),
        }


def row_of(batch, index):
    """One row of a batch of transitions, as `World.transition` gives it."""
    names = ("obs", "actions", "rewards", "next_obs", "discounts")
    return {name: nested.take(getattr(batch, name), index) for name in names}


def same(one, other):
    """Whether two nested values have the same structure, dtypes and bits."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    one, other = np.asarray(one), np.asarray(other)
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
