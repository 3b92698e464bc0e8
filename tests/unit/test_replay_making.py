"""From `replay_buffer_config` to a buffer."""

import pytest

from trainer.errors import ReplayError
from trainer.replay import (
    REPLAY_BUFFERS,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    make_replay_buffer,
)


class Own(ReplayBuffer):
    """A user's own buffer."""

    def __init__(self, capacity=7, *, colour="red", **more):
        super().__init__(capacity)
        self.colour, self.more = colour, more


@pytest.mark.parametrize("name", REPLAY_BUFFERS)
def test_every_name_and_its_path_in_rllib_makes_a_buffer(name):
    wanted = PrioritizedReplayBuffer if "Prioritized" in name else ReplayBuffer
    for path in (name, f"ray.rllib.utils.replay_buffers.{name}"):
        buffer = make_replay_buffer({"type": path, "capacity": 30, "alpha": 0.5, "beta": 0.2})
        assert type(buffer) is wanted
        assert buffer.capacity == 30


def test_a_type_alone_has_the_usual_capacity():
    assert {make_replay_buffer({"type": name}).capacity for name in REPLAY_BUFFERS} == {50_000}


def test_the_old_names_of_exponents_are_taken():
    buffer = make_replay_buffer({"prioritized_replay_alpha": 0.25, "prioritized_replay_beta": 0.5})
    assert (buffer.alpha, buffer.beta) == (0.25, 0.5)


def test_what_old_examples_spell_out_is_taken_if_it_asks_for_nothing():
    spelt_out = {
        "prioritized_replay_eps": 1e-6,
        "replay_sequence_length": 1,
        "storage_unit": "timesteps",
        "worker_side_prioritization": False,
    }
    for name in REPLAY_BUFFERS:
        assert make_replay_buffer({"type": name, "capacity": 30, **spelt_out}).capacity == 30
    own = make_replay_buffer({"type": Own, **spelt_out})
    assert own.more == spelt_out


def test_an_own_class_gets_its_own_arguments():
    buffer = make_replay_buffer({"type": Own, "colour": "blue", "size": 3, "alpha": 0.6})
    assert (buffer.capacity, buffer.colour, buffer.more) == (7, "blue", {"size": 3})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"type": "PrioritisedReplayBuffer"}, "Did you mean 'PrioritizedReplayBuffer'"),
        ({"type": "mine.ReplayBuffer"}, "subclass of ReplayBuffer"),
        ({"type": dict}, "subclass of ReplayBuffer"),
        ({"capacty": 3}, "Did you mean 'capacity'"),
        ({"batch_length_T": 20}, "sample_sequences"),
        ({"prioritized_replay_eps": 1e-3}, "It is always 1e-6"),
        ({"storage_unit": None}, "Capacity always counts env steps"),
        ({"learning_starts": 20}, "num_steps_sampled_before_learning_starts"),
        ({"capacity": 1e6}, "expected an int"),
        ({"alpha": "high"}, "alpha='high'"),
    ],
)
def test_a_wrong_config_is_refused(config, message):
    with pytest.raises(ReplayError, match=message):
        make_replay_buffer(config)


def test_all_unknown_arguments_are_told_at_once_and_idle_ones_are_taken():
    idle = {"_enable_replay_buffer_api": True, "replay_mode": "independent"}
    assert make_replay_buffer(idle).alpha == 0.6
    given = {"learning_starts": 9, "replay_mode": "lockstep", "capcity": 3}
    with pytest.raises(ReplayError) as caught:
        make_replay_buffer(given)
    for told in ("num_steps_sampled_before_learning_starts", "'replay_mode'. Leave", "'capacity'?"):
        assert told in str(caught.value)
