"""`on_sample_end` rewrites episodes: the loss sees it; both returns are reported."""

import copy
import os
import signal

import pytest

from callbacks import RLlibCallback
from tests.integration.test_rewriting_trajectories import (
    PlusOneEnv,
    config,
    trained,
)
from trainer import DQNConfig
from trainer.testing.envs import CountdownEnv

pytestmark = pytest.mark.process


def plus_one_at_the_end(samples, **_):
    for episode in samples:
        episode.set_rewards(new_data=episode.get_rewards() + 1.0)


def others_at_the_end(samples, **_):
    samples[:] = [copy.deepcopy(episode) for episode in samples]
    plus_one_at_the_end(samples)


@pytest.mark.parametrize("callback", [plus_one_at_the_end, others_at_the_end])
def test_rewritten_samples_teach_what_an_env_that_pays_them_teaches(callback):
    rewritten, results = trained(config(callbacks_on_sample_end=callback))
    paid, paid_results = trained(config(env=PlusOneEnv))
    assert rewritten == paid
    for result, of_env in zip(results, paid_results, strict=True):
        stats = result["env_runners/hist_stats"]
        assert stats["episode_reward"] == stats["episode_lengths"]
        assert stats["rewritten_return"] == of_env["env_runners/hist_stats"]["episode_reward"]


def test_a_reward_written_in_its_own_step_counts_as_paid():
    def plus_one(episode, **_):
        episode.set_rewards(new_data=episode.get_rewards(-1) + 1.0, at_indices=-1)

    outcomes = [
        trained(config(callbacks_on_episode_step=plus_one)),
        trained(config(env=PlusOneEnv)),
    ]
    assert outcomes[0][0] == outcomes[1][0]
    stats = [[result["env_runners/hist_stats"] for result in results] for _, results in outcomes]
    assert stats[0] == stats[1]
    assert "rewritten_return" not in stats[0][0]


def test_rewards_that_a_callback_wrote_are_stored_for_replay():
    made = DQNConfig().environment(CountdownEnv).env_runners(num_env_runners=0)
    made.training(model={"fcnet_hiddens": [4]}).callbacks(on_sample_end=plus_one_at_the_end)
    made.reporting(min_sample_timesteps_per_iteration=40)
    with made.build_algo() as algo:
        algo.train()
        rewards = algo.local_replay_buffer.get_state()["columns"]["rewards"]
    assert len(rewards) == 40
    assert set(rewards.tolist()) == {2.0}


class Backdating(RLlibCallback):
    """Pays everything at once in the first step, in both events; kills its process if told to."""

    armed = None

    def on_postprocess_trajectory(self, *, postprocessed_batch, **_):
        rewards = postprocessed_batch["rewards"]
        rewards[0], rewards[1:] = rewards.sum(), 0.0

    def on_sample_end(self, *, samples, **_):
        plus_one_at_the_end(samples)
        if self.armed is not None and self.armed.exists():
            self.armed.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def test_rewrites_of_both_events_and_all_chunks_add_up():
    # Four slots, and less than two steps for each at a time: every episode is in many chunks.
    made = config(
        env_config={"min_length": 5, "max_length": 6},
        train_batch_size=7,
        minibatch_size=7,
        callbacks_class=Backdating,
    )
    _, results = trained(made, iterations=8)
    assert sum(result["env_runners/num_episodes"] for result in results) >= 4
    for result in results:
        stats = result["env_runners/hist_stats"]
        assert stats["episode_reward"] == stats["episode_lengths"]
        assert stats.get("rewritten_return", []) == [2 * paid for paid in stats["episode_reward"]]


def test_what_adds_nothing_up_is_reported_as_well():
    _, results = trained(
        config(callbacks_on_postprocess_trajectory=Backdating().on_postprocess_trajectory)
    )
    runners = results[-1]["env_runners"]
    assert runners["rewritten_return_mean"] == runners["episode_return_mean"]
    assert "rewritten_return_mean" not in trained(config())[1][-1]["env_runners"]


def test_returns_of_an_evaluation_are_those_of_its_env():
    made = config(callbacks_on_sample_end=plus_one_at_the_end, evaluation_duration=3)
    with made.build_algo() as algo:
        runners = algo.evaluate()["env_runners"]
    assert runners["episode_return_mean"] == runners["episode_len_mean"]
    assert runners["rewritten_return_mean"] == 2 * runners["episode_return_mean"]


def test_a_sample_that_is_taken_out_is_not_missed():
    def keep_two(samples, **_):
        plus_one_at_the_end(samples)
        del samples[2:]

    steps = []
    made = config(callbacks_on_sample_end=keep_two)
    made.callbacks(on_learn_on_batch=lambda train_batch: steps.append(train_batch.count))
    _, results = trained(made.copy(), iterations=1)
    assert 0 < steps[0] < 62
    stats = results[0]["env_runners/hist_stats"]
    assert len(stats["rewritten_return"]) == len(stats["episode_reward"]) > 2
    assert stats["rewritten_return"][2:] == stats["episode_reward"][2:]
