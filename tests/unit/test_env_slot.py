"""A slot: its assignments, its episode numbers, its position, and the way back to it."""

from dataclasses import fields, replace

import numpy as np
import pytest

from trainer.env_runners.acting import Policy, Seat
from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.messages import Assignment, SlotPosition
from trainer.episodes import SingleAgentEpisode
from trainer.modules import RLModuleSpec
from trainer.seeding import Role
from trainer.testing.envs import ContinuousEnv, CountdownEnv, UnseededEnv
from trainer_toolkit.plain_classes import from_plain, to_plain

SEED = 123


def new_slot(env=None, *, keeps_actions=False):
    env = CountdownEnv({"min_length": 9}) if env is None else env
    seat = Seat(0, root_seed=0, role=Role.TRAINING)
    module = RLModuleSpec(None, env.observation_space, env.action_space).build()
    seat.take(Policy(module, normalize_actions=True, clip_actions=False))
    return EnvSlot(0, env, seat, keeps_actions=keeps_actions)


def begin(slot, seed=SEED):
    slot.begin(SingleAgentEpisode(f"training-0-{slot.episode_number}"), seed)
    slot.observation, infos = slot.reset()
    slot.episode.add_env_reset(slot.observation, infos)


def play(slot, *actions):
    for action in actions:
        slot.seat.noise.next_row()
        slot.observation, reward, terminated, truncated, infos = slot.env.step(action)
        slot.episode.add_env_step(
            slot.observation, action, reward, infos, terminated=terminated, truncated=truncated
        )


def cut(slot, *, keep_chunk=False):
    slot.remember(slot.cut(1).to_numpy(), keep_chunk=keep_chunk)


def position_after(slot, *chunks, keep_chunk=False):
    """The whole position after some chunks, as the main process puts it together."""
    whole = SlotPosition(slot.episode_number)
    for actions in chunks:
        play(slot, *actions)
        cut(slot, keep_chunk=keep_chunk)
        whole = slot.take_position().following(whole)
    return whole


def unchanged(action):
    return action


@pytest.mark.parametrize("steps", [0, 2])
def test_an_assignment_is_finished_after_exactly_its_steps(steps):
    slot = new_slot()
    slot.assign(Assignment(0, num_env_steps=steps))
    for _ in range(steps):
        assert not slot.has_finished
        slot.steps_left -= 1
    assert slot.has_finished
    slot.assign(Assignment(0, num_episodes=0))
    assert slot.has_finished


def test_whole_episodes_are_played_to_their_end_after_the_steps():
    slot = new_slot()
    slot.assign(Assignment(0, num_env_steps=1, whole_episodes=True))
    begin(slot)
    slot.steps_left -= 1
    assert not slot.has_finished
    slot.finish()
    assert slot.has_finished


def test_episodes_are_numbered_one_by_one_and_tickets_by_their_stride():
    slot = new_slot()
    slot.assign(Assignment(0, num_episodes=2))
    for number in (0, 1):
        assert (slot.episode_number, slot.has_finished) == (number, False)
        begin(slot)
        slot.finish()
    assert slot.has_finished
    slot.assign(Assignment(4, ticket=3, stride=5, num_env_steps=100))
    assert slot.episode_number == 3
    begin(slot)
    slot.finish()
    assert slot.episode_number == 8


def test_a_position_tells_only_what_is_new_and_is_put_together_again():
    slot = new_slot()
    begin(slot)
    play(slot, 1, 0)
    cut(slot, keep_chunk=True)
    first = slot.take_position()
    play(slot, 1)
    cut(slot, keep_chunk=True)
    second = slot.take_position()
    assert [first.continues, second.continues] == [False, True]
    assert [a.tolist() for a in second.actions] == [[1]]
    whole = second.following(first)
    assert [a.tolist() for a in whole.actions] == [[1, 0], [1]]
    assert whole.num_steps == 3
    assert [chunk["t"] for chunk in whole.earlier_chunks] == [2, 3]
    assert not whole.continues
    assert whole.env_seed == SEED


def test_put_back_goes_on_exactly_like_the_slot_that_was_never_disturbed():
    slot, other = new_slot(), new_slot()
    begin(slot)
    whole = position_after(slot, (1, 0), (1,), keep_chunk=True)
    whole = from_plain(SlotPosition, to_plain(whole))  # as it comes from a checkpoint
    begin(other, seed=9)
    play(other, 0, 0)  # whatever it did before must not matter
    assert other.put_back(whole, 0, unchanged)
    assert other.env_seed == SEED
    assert [chunk.t for chunk in other.earlier_chunks] == [2, 3]
    noise = [s.seat.noise.next_row().tolist() for s in (slot, other)]
    assert noise[0] == noise[1]
    for each in (slot, other):
        play(each, 1, 1, 0)
    assert slot.observation.tolist() == other.observation.tolist()
    assert slot.episode.get_return() == other.episode.get_return() == 6.0
    assert other.take_position().continues, "what the main process has is not sent again"


def test_actions_are_decoded_on_the_way_back_as_they_were_before():
    slot = new_slot(ContinuousEnv())
    begin(slot)
    action = np.array([0.25], np.float32)
    slot.observation, reward, *_ = slot.env.step(2.0 * action)
    slot.episode.add_env_step(slot.observation, action, reward)
    cut(slot)
    whole = slot.take_position()
    other = new_slot(ContinuousEnv())
    assert other.put_back(whole, 0, lambda a: 2.0 * a)
    assert np.concatenate(other.env.unwrapped.received).tolist() == [0.5]


class _Longer(CountdownEnv):
    """Another env than the one that was recorded, with other noise."""

    def noise(self):
        return super().noise() / 2.0


class _Ends(CountdownEnv):
    """Ends earlier than what was recorded."""

    def __init__(self):
        super().__init__({"min_length": 2, "max_length": 2})


@pytest.mark.parametrize("make_other", [UnseededEnv, _Longer, _Ends])
def test_an_env_that_does_not_reproduce_is_noticed(make_other):
    slot = new_slot()
    begin(slot)
    whole = position_after(slot, (1, 0, 1))
    other = new_slot(make_other())
    assert not other.put_back(whole, 0, unchanged)
    assert other.episode is None
    assert other.env_seed is None
    assert other.episode_number == 1, "the next episode has a fresh number"


def test_negative_control_an_observation_that_differs_in_one_bit_is_noticed():
    slot = new_slot()
    begin(slot)
    whole = position_after(slot, (1, 0))
    assert new_slot().put_back(whole, 0, unchanged)
    np.asarray(whole.observation)[1] = np.nextafter(whole.observation[1], np.float32(2.0))
    assert not new_slot().put_back(whole, 0, unchanged)


def test_between_two_episodes_a_position_is_a_number_and_needs_no_env():
    slot = new_slot()
    begin(slot)
    slot.finish()
    assert slot.take_position() == SlotPosition(1)
    begin(slot)
    play(slot, 1)
    assert slot.put_back(SlotPosition(7), 0, unchanged)
    assert (slot.episode, slot.episode_number, slot.env_seed) == (None, 7, None)


def test_giving_up_an_episode_skips_numbers():
    slot = new_slot()
    begin(slot)
    assert position_after(slot, (1,)).restarted(50) == SlotPosition(50)


def test_a_position_that_follows_another_is_what_replace_makes():
    before = SlotPosition(3, 7, (1, 0), earlier_chunks=({"t": 1},))
    marks = {field.name: f"value of {field.name}" for field in fields(SlotPosition)}
    after = replace(SlotPosition(**marks), actions=(1,), earlier_chunks=({"t": 2},), continues=True)
    expected = replace(
        after, actions=(1, 0, 1), earlier_chunks=({"t": 1}, {"t": 2}), continues=False
    )
    whole = after.following(before)
    assert type(whole) is SlotPosition
    assert vars(whole) == vars(expected)
    assert list(vars(whole)) == list(vars(expected))
