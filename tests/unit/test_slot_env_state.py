"""The way of a slot back to its position: by the state of the env if it has one, else by replay."""

import pytest

from checkpoints import decode, encode
from tests.unit.test_env_slot import SEED, begin, cut, new_slot, play, position_after, unchanged
from trainer.env_runners.messages import SlotPosition
from trainer.episodes import SingleAgentEpisode
from trainer.testing import CountdownEnv, RestlessEnv
from trainer.testing.envs import TaskCountdownEnv
from trainer_toolkit.plain_classes import from_plain, to_plain
from trainer_toolkit.trees import same

LONG = {"min_length": 20, "max_length": 20}


def begun(env, seed=SEED, **settings):
    """A slot in its first episode."""
    slot = new_slot(env, **settings)
    begin(slot, seed)
    return slot


def restored(env, position):
    """A slot that was put back to a position that has been saved."""
    slot = new_slot(env)
    assert slot.put_back(from_plain(SlotPosition, to_plain(position)), 0, unchanged)
    return slot


class Counted(RestlessEnv):
    """Counts the steps that are made in it."""

    num_steps = 0

    def step(self, action):
        self.num_steps += 1
        return super().step(action)


class Forgetting(CountdownEnv):
    """Does not take its state back, but can be replayed."""

    def get_state(self):
        return [self.steps, self.length]

    def set_state(self, state):
        self.length = state[1]


class WithTask(TaskCountdownEnv):
    """Its state is the mixture, in which all tasks so far have left their mark."""

    env_state_attributes = ("length", "steps", "_mixture")


def test_nothing_is_played_again_if_there_is_a_state():
    slot = begun(Counted(LONG))
    whole = position_after(slot, (1, 0, 1), (0, 0, 1, 1))
    env = Counted({**LONG, "first_seed": 99})
    other = restored(env, whole)
    assert env.num_steps == 0
    assert (other.env_seed, other.episode_number, other.num_steps_played) == (123, 0, 7)
    for each in (slot, other):
        play(each, 1, 0, 1)
        cut(each)
    assert same(other.observation, slot.observation)
    assert other.take_position().env_state == slot.take_position().env_state


def test_without_the_state_the_same_episode_is_lost():
    slot = begun(Counted(LONG))
    state = to_plain(position_after(slot, (1, 0, 1)))
    del state["env_state"]  # as in checkpoints of earlier releases
    assert not new_slot(Counted({**LONG, "first_seed": 99})).put_back(
        from_plain(SlotPosition, state), 0, unchanged
    )


def test_what_an_env_carries_over_is_put_back_between_two_episodes():
    slot = begun(Counted(LONG))
    slot.finish()
    position = slot.take_position()
    other = restored(Counted({**LONG, "first_seed": 99}), position)
    assert other.env.reset(seed=7)[0].tolist() == slot.env.reset(seed=7)[0].tolist()


def test_an_env_goes_back_to_how_it_was_made():
    slot, fresh = new_slot(Counted(LONG)), Counted(LONG)
    made = slot.take_position()
    begin(slot)
    play(slot, 1, 0, 1)
    assert not slot.needs_other_env(made)
    assert slot.put_back(made, 0, unchanged)
    assert slot.env.reset(seed=7)[0].tolist() == fresh.reset(seed=7)[0].tolist()
    assert slot.env.step(1)[0].tolist() == fresh.step(1)[0].tolist()


def test_an_env_that_stands_as_it_was_made_is_not_even_reset():
    slot = new_slot(Counted(LONG))
    slot.env.reset = None
    assert slot.put_back(slot.take_position(), 0, unchanged)


class Late(Counted):
    """Has no state before its first reset."""

    def get_state(self):
        if not self.length:
            raise AttributeError("it was never reset")
        return super().get_state()


class Asking(Counted):
    """Has a state that any generator is part of, such as gymnasium makes when it is asked."""

    def get_state(self):
        return {**super().get_state(), "np_random": self.np_random.bit_generator.state}

    def set_state(self, state):
        super().set_state(state)
        self.np_random.bit_generator.state = state["np_random"]


def test_the_state_of_an_env_as_it_was_made_does_not_depend_on_chance():
    slots = [new_slot(Asking(LONG)) for _ in range(2)]
    assert slots[0].take_position() == slots[1].take_position() != SlotPosition()
    assert slots[0].env.unwrapped._np_random is None


@pytest.mark.parametrize("env", [Late, Forgetting])
def test_an_env_that_cannot_go_back_to_how_it_was_made_is_to_be_made_anew(env):
    slot = new_slot(env(LONG))
    made = slot.take_position()
    assert not slot.needs_other_env(made)
    begin(slot)
    play(slot, 1, 0, 1)
    assert slot.needs_other_env(made)
    cut(slot)
    assert not slot.needs_other_env(slot.take_position())


def test_an_env_that_does_not_take_its_state_back_is_replayed_and_that_is_told_once():
    slot = begun(Forgetting(LONG))
    whole = position_after(slot, (1, 0, 1))
    assert whole.env_state_trouble == ""
    other = restored(Forgetting(LONG), whole)
    play(slot, 0)
    play(other, 0)
    assert same(other.observation, slot.observation)
    cut(other)
    told, later = other.take_position(), other.take_position()
    assert "Forgetting has another state after set_state()" in told.env_state_trouble
    assert (told.env_state, later.env_state, later.env_state_trouble) == (None, None, "")


def test_a_state_of_another_env_is_told_and_that_env_is_replayed():
    slot = begun(Counted(LONG))
    whole = position_after(slot, (1, 0))
    other = new_slot(CountdownEnv(LONG))
    assert not other.put_back(whole, 0, unchanged)
    assert "no set_state now" in other.take_position().env_state_trouble
    other = new_slot(Forgetting(LONG))
    assert not other.put_back(whole, 0, unchanged)
    assert "the layers in it are ['Counted']" in other.take_position().env_state_trouble


@pytest.mark.parametrize("num_requests", [0, 1, 2])
def test_a_new_env_goes_on_from_the_latest_state(num_requests):
    slot = begun(Counted(LONG), 5, keeps_actions=True)
    for _ in range(num_requests):
        play(slot, 1, 0, 1, 1)
        cut(slot)
        slot.take_position()
    play(slot, 0, 1)
    cut(slot)  # as a function of the user does that plays twice
    play(slot, 1)
    before = slot.env
    env = Counted(LONG)
    slot.take_env(env)
    assert slot.replay_running(unchanged)
    assert env.num_steps == 3
    assert env.step(1)[0].tolist() == before.step(1)[0].tolist()


def test_a_new_env_gets_what_was_carried_over_before_a_reset_that_failed():
    slot = new_slot(Counted(LONG), keeps_actions=True)
    for number in range(2):
        begin(slot, number)
        play(slot, 1, 0)
        if number == 0:
            slot.finish()
    # The second episode is played again from its beginning, after the end of the first one.
    env = Counted({**LONG, "first_seed": 99})
    slot.take_env(env)
    assert slot.replay_running(unchanged)
    slot.finish()
    slot.begin(SingleAgentEpisode("training-0-2"), 2)
    expected, _ = slot.reset()
    slot.take_env(Counted({**LONG, "first_seed": 17}))  # that reset failed after all
    assert slot.reset()[0].tolist() == expected.tolist()


def test_tasks_are_in_force_before_and_after_a_state():
    slot = begun(WithTask(LONG))
    slot.set_task(2)
    play(slot, 1, 0)
    slot.set_task(3)
    play(slot, 1)
    cut(slot)
    whole = slot.take_position()
    for position, task in ((whole, 3), (whole.with_task(4), 4)):
        other = restored(WithTask(LONG), position)
        assert other.env.unwrapped.get_task() == task
        assert other.take_position().tasks == position.tasks
        assert other.take_position().env_state == whole.env_state


class Derived(WithTask):
    """Its state is what it made of the task, and not the task."""

    env_state_attributes = (*WithTask.env_state_attributes, "shift")
    shift = 0.0

    def set_task(self, task):
        super().set_task(task)
        self.shift = 0.1 * task

    def noise(self):
        return (super().noise() + self.shift) % 1.0


@pytest.mark.parametrize("first_task", [0, 4])
def test_a_state_does_not_undo_a_task_that_was_set_after_it_was_taken(first_task):
    slot = new_slot(Derived(LONG))
    slot.set_task(first_task)
    begin(slot)
    slot.set_task(3)
    whole = position_after(slot, (1, 0)).with_task(4)
    slot.set_task(4)
    other = restored(Derived(LONG), whole)
    for env in (slot, other):
        play(env, 1, 1)
    assert same(other.observation, slot.observation)


class CountedDerived(Derived, Counted):
    """Counts the steps that are made in it, too."""


def test_a_new_env_gets_a_task_that_was_set_where_the_latest_state_was_taken():
    slot = begun(CountedDerived(LONG), 5, keeps_actions=True)
    play(slot, 1, 0)
    cut(slot)
    slot.take_position()
    slot.set_task(4)
    play(slot, 1, 1)
    before = slot.env
    env = CountedDerived(LONG)
    slot.take_env(env)
    assert slot.replay_running(unchanged)
    assert env.num_steps == 2, "the state and what was played since lead there"
    assert env.step(1)[0].tolist() == before.step(1)[0].tolist()


def test_a_saved_slot_holds_the_state_as_plain_data():
    slot = begun(Counted(LONG))
    whole = position_after(slot, (1,))
    state = to_plain(whole)
    assert state["env_state"] == decode(whole.env_state)
    assert state["env_state"]["layers"][0][1]["steps"] == 1
    assert encode(to_plain(from_plain(SlotPosition, state))) == encode(state)
