"""Golden episodes of several agents, played by a runner: equal to those that were built by hand."""

from collections.abc import Mapping

import numpy as np
import pytest

from checkpoints import decode, encode
from tests.multi_agent_scripts import FIRST_ACTION, G3, G4, G11, G12, GOLDEN, ends, played, rows
from trainer import EnvContractError, PPOConfig, RLModule, RLModuleSpec
from trainer.testing import ScriptedMultiAgentEnv


class CountingPlayer(RLModule):
    """Acts as the scripts expect: 5 upon observations 0, 20, 40; 6 upon 1, 21, 41; and so on."""

    def parameter_shapes(self):
        return {"bias": (1,)}

    def initialize(self, rng):
        del rng

    def forward_acting(self, obs):
        actions = FIRST_ACTION + obs.argmax(axis=1) % 20
        return np.eye(64, dtype=np.float32)[actions]

    def forward_train(self, batch):
        raise NotImplementedError

    def backward(self, **derivatives):
        raise NotImplementedError


def config(script, num_envs=1, **settings):
    made = (
        PPOConfig()
        .environment(ScriptedMultiAgentEnv, env_config={"script": script})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs, explore=False)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=CountingPlayer))
        .debugging(seed=0)
    )
    return made.update_from_dict(settings)


def sampled(script, sizes, **settings):
    """The chunks of the script's episode, of so many env steps each."""
    with config(script, **settings).build_algo() as algo:
        runner = algo.env_runner
        chunks = []
        for size in sizes:
            chunks += runner.sample(num_timesteps=size)
        return chunks


def joined(chunks):
    first, *others = chunks
    for chunk in others:
        first.concat_episode(chunk)
    return first


_OF_THE_PLAYER = {"extra_model_outputs", "outputs", "id_", "multi_agent_episode_id", "module_id"}
_OF_THE_EPISODE = {"modules", "number", "episode_ids", "lookback"}


def what_happened(value):
    """A state without names, outputs of modules and forms of columns."""
    if isinstance(value, Mapping):
        left_out = _OF_THE_PLAYER | _OF_THE_EPISODE
        return {k: what_happened(part) for k, part in value.items() if k not in left_out}
    if isinstance(value, list | tuple):
        return [what_happened(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def state_of(episode):
    return what_happened(decode(encode(episode.get_state())))


def num_steps(script):
    return len(script.steps) - 1


@pytest.mark.parametrize("name", GOLDEN)
def test_a_runner_plays_what_was_built_by_hand(name):
    script = GOLDEN[name]
    (episode,) = sampled(script, [num_steps(script)])
    assert state_of(episode) == state_of(played(script))
    assert rows(episode) == rows(played(script))
    assert ends(episode) == ends(played(script))
    for own in episode.agent_episodes.values():
        if len(own):  # who appears and ends at once was never asked
            assert len(own.get_extra_model_outputs("action_logp")) == len(own)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_runner_cuts_after_every_env_step_and_loses_nothing(name):
    script = GOLDEN[name]
    chunks = sampled(script, [1] * num_steps(script))
    assert len(chunks) == num_steps(script)
    late = name == "G11"  # the reward came when the row had been handed out
    whole = played(script)
    if late:
        assert sum(chunk.num_rewards_after_end_unlearnt for chunk in chunks) == 1
        assert chunks[-1].get_agent_returns() == whole.get_agent_returns()
    assert state_of(joined(chunks)) == state_of(whole)


def test_after_a_fragment_callbacks_see_no_agent_that_was_not_observed():
    seen = []

    def on_episode_step(episode, **_):
        seen.append(episode.get_observations(return_list=True))

    with config(G4).callbacks(on_episode_step=on_episode_step).build_algo() as algo:
        runner = algo.env_runner
        for _ in range(3):
            runner.sample(num_timesteps=1)
    # B waits at the first and the second cut.
    assert seen == [
        [{"A": 0, "B": 20}, {"A": 1}],
        [{"A": 1}, {"A": 2}],
        [{"A": 2}, {"A": 3, "B": 21}],
    ]


def test_g3_a_runner_refuses_who_comes_back():
    with pytest.raises(
        EnvContractError, match=r"'B' of episode 'training-0-0' ended at env step 1"
    ):
        sampled(G3, [3])


def test_g11_a_runner_refuses_rewards_after_the_end_if_it_is_told_to():
    with pytest.raises(EnvContractError, match=r"'B' .* ended at env step 1 and got the reward 4"):
        sampled(G11, [3], rewards_after_end="error")


def test_arrays_hold_what_lists_hold():
    (episode,) = sampled(G4, [4])
    assert episode.is_numpy
    assert [float(reward) for reward in episode.agent_episodes["B"].get_rewards()] == [1.75, 2.0]
    assert episode.env_t_to_agent_t["B"] == [0, "S", "S", 1, 2]


def test_g12_is_counted_in_the_result():
    learning = config(G12).training(train_batch_size=6, minibatch_size=2, num_epochs=1)
    learning.rl_module(rl_module_spec=RLModuleSpec(model_config={"fcnet_hiddens": [4]}))
    with learning.build_algo() as algo:
        result = algo.train()
    assert result["env_runners"]["episode_return_mean"] == played(G12).get_return()
