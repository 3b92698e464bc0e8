"""Episodes and batches that a callback spoilt: who it was, which column, and both lengths."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.small_runs import small_ppo
from trainer import CallbackError, EnvContractError

Spoil = Callable[[Any], None]


def config(**callbacks):
    made = small_ppo(num_slots=1, batch=5, minibatch_size=5, batch_mode="complete_episodes")
    made.environment(env_config={"min_length": 5, "max_length": 5})
    return made.callbacks(**callbacks)


def _put_none(samples):
    samples[0] = None


def _add_a_number(samples):
    samples.append(3)


def _replace_rewards(samples):
    samples[0].rewards = samples[0].get_rewards()


def _drop(column):
    def drop(samples):
        getattr(samples[0], column).data = getattr(samples[0], column).data[:-1]

    return drop


def _drop_output(samples):
    output = samples[0].extra_model_outputs["action_logp"]
    output.data = output.data[:-1]


def _spoil(column, number):
    def spoil(samples):
        getattr(samples[0], column).data[2] = number

    return spoil


def _remove_output(samples):
    del samples[0].extra_model_outputs["action_logp"]


SPOILT = {
    "no episode": (_put_none, r"samples\[0\] is NoneType now; expected a SingleAgentEpisode"),
    "one too many": (_add_a_number, r"samples\[1\] is int now; expected a SingleAgentEpisode"),
    "no buffer": (_replace_rewards, r"'rewards' of 'training-0-0' is ndarray now"),
    "observations": (_drop("observations"), r"'observations' .* 5 entries .* has 5; expected 6"),
    "infos": (_drop("infos"), r"'infos' .* has 5 entries now, but 'actions' has 5; expected 6"),
    "actions": (_drop("actions"), r"'observations' .* 6 entries .* 'actions' has 4; expected 5"),
    "rewards": (_drop("rewards"), r"'rewards' .* has 4 entries now, but 'actions' has 5"),
    "reward NaN": (_spoil("rewards", math.nan), "'rewards' of 'training-0-0' holds NaN or inf"),
    "observation": (_spoil("observations", math.inf), "'observations' of .* holds NaN or inf"),
    "output": (_drop_output, r"extra_model_outputs\['action_logp'\]\" .* 4 entries .* has 5"),
    "removed": (_remove_output, r"column 'action_logp' of 'training-0-0' was removed"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_spoilt_samples_are_told_with_callback_column_and_lengths(name):
    spoil, expected = SPOILT[name]

    def spoils(samples, **_):
        spoil(samples)

    with config(on_sample_end=spoils).build_algo() as algo:
        with pytest.raises(CallbackError, match=expected) as raised:
            algo.train()
        assert "`on_sample_end[0]" in str(raised.value)
        assert "`on_sample_end` fired in env runner 0" in str(raised.value)


@pytest.mark.parametrize("action", [-1, 2])
@pytest.mark.parametrize(
    ("event", "given"),
    [
        ("on_sample_end", "samples"),
        ("on_postprocess_trajectory", "postprocessed_batch"),
        ("on_learn_on_batch", "train_batch"),
    ],
)
def test_an_action_that_there_is_not_is_told_and_not_counted_from_the_end(event, given, action):
    def spoils(**arguments):
        columns = arguments[given]
        actions = columns[0].actions.data if given == "samples" else columns["actions"]
        actions[3] = action

    told = rf"The actions hold {action} in row 3; expected integers from 0 to 1: .*{event}"
    made = config(**{event: spoils})
    with made.build_algo() as algo, pytest.raises(CallbackError, match=told):
        algo.train()


def test_a_reward_that_an_event_of_the_episode_spoilt_is_not_blamed_on_the_env_alone():
    def spoils(episode, **_):
        episode.set_rewards(new_data=[math.nan] * len(episode))

    told = r"reward .*nan.* at step 1 .* in the env, or in a callback that wrote into the episode"
    made = config(on_episode_end=spoils)
    with made.build_algo() as algo, pytest.raises(EnvContractError, match=told):
        algo.train()


def test_whole_episodes_may_be_shortened_and_left_out():
    def shorten(samples, **_):
        samples[:] = [samples[0][:3]]

    with config(on_sample_end=shorten).build_algo() as algo:
        assert algo.train()["training_iteration"] == 1


def test_infos_that_are_no_list_are_told():
    def spoils(postprocessed_batch, **_):
        postprocessed_batch["infos"] = None

    with (
        config(on_postprocess_trajectory=spoils).build_algo() as algo,
        pytest.raises(CallbackError, match=r"'infos' is NoneType now; expected a list of 5 dicts"),
    ):
        algo.train()
