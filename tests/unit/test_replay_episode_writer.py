"""Writing episodes while they grow leaves a buffer as adding their chunks does."""

import contextlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkpoints import encode
from tests.replay_model import KINDS, PIECES, Piece, action, observation, reward
from trainer.episodes import SingleAgentEpisode
from trainer.errors import ReplayError
from trainer.replay import PrioritizedReplayBuffer, ReplayBuffer

BUFFERS = [ReplayBuffer, PrioritizedReplayBuffer]
CAPACITY = 40
ROUNDS = st.lists(st.lists(PIECES, min_size=1, max_size=3), min_size=1, max_size=6)


class Growing:
    """Slots whose episodes grow from round to round; a cut is a chunk that ends there."""

    def __init__(self, kind):
        self.kind, self.num_episodes = kind, 0
        self.running = {}

    def play(self, pieces):
        """The episodes that were played in a round, as they are then, and those that ended."""
        played = []
        for piece in pieces:
            if piece.slot not in self.running:
                self.running[piece.slot] = self._begun(self.num_episodes), self.num_episodes
                self.num_episodes += 1
            episode, number = self.running[piece.slot]
            for step in range(piece.length):
                t = episode.t
                episode.add_env_step(
                    observation(self.kind, number, t + 1),
                    action(self.kind, number, t),
                    reward(number, t),
                    terminated=piece.end == "terminated" and step == piece.length - 1,
                    truncated=piece.end == "truncated" and step == piece.length - 1,
                )
            played.append(episode)
            if episode.is_done or piece.end == "given up":
                del self.running[piece.slot]
        return played

    def _begun(self, number):
        episode = SingleAgentEpisode(f"episode {number}")
        episode.add_env_reset(observation(self.kind, number, 0))
        return episode

    def cut(self):
        """Cuts what is running, with two steps of look-back."""
        self.running = {
            slot: (episode.cut(len_lookback_buffer=2), number)
            for slot, (episode, number) in self.running.items()
        }


def distinct(rounds):
    """One piece of each slot per round, as a runner plays them."""
    return [list({piece.slot: piece for piece in pieces}.values()) for pieces in rounds]


def first_steps(buffer, kind):
    """A buffer that holds steps already, of an episode that nobody goes on with."""
    episode = SingleAgentEpisode("first")
    episode.add_env_reset(observation(kind, 99, 0))
    episode.add_env_step(observation(kind, 99, 1), action(kind, 99, 0), 1.0)
    buffer.add(episode.to_numpy())
    return buffer


def by_chunks(buffer, kind, stretches):
    world, after_rounds = Growing(kind), []
    for rounds in stretches:
        for pieces in rounds:
            played = world.play(pieces)
            world.cut()
            buffer.add([episode.to_numpy() for episode in played])
            after_rounds.append(encode(buffer.get_state()["columns"]))
    return after_rounds


def by_rows(buffer, kind, stretches):
    world, after_rounds = Growing(kind), []
    for rounds in stretches:
        seen = {}
        with buffer.writing(CAPACITY) as writer:
            for pieces in rounds:
                played = world.play(pieces)
                seen.update({episode.id_: episode for episode in played})
                writer.write(played)
                after_rounds.append(encode(buffer.get_state()["columns"]))
            world.cut()
            writer.check(episode.to_numpy() for episode in seen.values())
    return after_rounds


def short(rounds):
    """Rounds of so few steps that all of them fit into the buffer."""
    kept, num_steps = [], 0
    for pieces in rounds:
        num_steps += sum(piece.length for piece in pieces)
        if num_steps <= CAPACITY:
            kept.append(pieces)
    return kept


@pytest.mark.parametrize("buffer_class", BUFFERS)
@given(st.sampled_from(KINDS), st.lists(ROUNDS, min_size=1, max_size=3))
# An episode goes on whose last step is overwritten before the chunk ends.
@example("stack", [[[Piece(1, 1), Piece(0, 24)]], [[Piece(1, 16)]]])
def test_rows_leave_the_buffer_as_chunks_do_after_every_round(buffer_class, kind, stretches):
    stretches = [short(distinct(rounds)) for rounds in stretches]
    one, other = (first_steps(buffer_class(CAPACITY), kind) for _ in range(2))
    assert by_chunks(one, kind, stretches) == by_rows(other, kind, stretches)
    assert encode(one.get_state()) == encode(other.get_state())
    assert one.get_num_episodes() == other.get_num_episodes()


@pytest.mark.parametrize("buffer_class", BUFFERS)
@given(st.sampled_from(KINDS), ROUNDS, ROUNDS)
def test_what_was_written_is_undone(buffer_class, kind, before, rounds):
    buffer = first_steps(buffer_class(CAPACITY), kind)
    by_rows(buffer, kind, [short(distinct(before))])
    expected = encode(buffer.get_state()), buffer.get_num_episodes()
    undo = buffer.mark()
    world = Growing(kind)
    world.num_episodes = 50
    with contextlib.suppress(InterruptedError), buffer.writing(CAPACITY) as writer:
        for pieces in short(distinct(rounds)):
            writer.write(world.play(pieces))
        raise InterruptedError
    undo()
    assert (encode(buffer.get_state()), buffer.get_num_episodes()) == expected


def test_steps_of_another_kind_are_found_when_they_are_checked():
    buffer = first_steps(ReplayBuffer(CAPACITY), "vector")
    episode = SingleAgentEpisode("other")
    episode.add_env_reset(np.zeros(3, np.float64))  # in a column of float32 it looks right
    episode.add_env_step(np.zeros(3, np.float64), np.zeros(1, np.float32), 0.0)
    with buffer.writing(1) as writer:
        writer.write([episode])
        with pytest.raises(ReplayError, match="float64"):
            writer.check([episode.to_numpy()])
