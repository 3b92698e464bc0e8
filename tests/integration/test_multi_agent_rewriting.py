"""Callbacks rewrite what several agents earn, and the learner learns that."""

import copy
from typing import Any

import numpy as np
import pytest

from checkpoints import encode
from tests.exact_runs import shared
from tests.multi_agent_runs import Gaps, OneCartPole, gaps, outcome
from trainer import CallbackError, MultiAgentEpisode, PPOConfig


class PlusOne(Gaps):
    """Pays every agent one more for every action of its own, with the observation that follows."""

    def reset(self, **options):
        self._acted = set[Any]()
        return super().reset(**options)

    def step(self, actions):
        self._acted |= actions.keys()
        observations, rewards, terminateds, truncateds, infos = super().step(actions)
        is_over = terminateds["__all__"]
        for agent in (self._acted if is_over else self._acted & observations.keys()) - self._gone:
            rewards[agent] = rewards.get(agent, 0.0) + 1.0
        self._acted -= observations.keys()
        return observations, rewards, terminateds, truncateds, infos

    @property
    def _gone(self):
        return {"a"} if self._t > 4 else set()


def learnt(config, iterations=3):
    """What the learners hold at the end, and the returns of all episodes."""
    with config.build_algo() as algo:
        results = [algo.train() for _ in range(iterations)]
        stats = [result["env_runners"]["hist_stats"] for result in results]
        return encode(algo.get_state(["learner"])), stats


def plus_one_in_trajectories(*, postprocessed_batch, **_):
    postprocessed_batch["rewards"] += 1.0


def plus_one_in_samples(*, samples, **_):
    for episode in samples:
        for one in episode.agent_episodes.values():
            if len(one):
                one.set_rewards(new_data=one.get_rewards() + 1.0)


def plus_one_in_copies(*, samples, **_):
    samples[:] = [copy.deepcopy(episode) for episode in samples]
    plus_one_in_samples(samples=samples)


@pytest.mark.parametrize(
    "callback",
    [
        {"on_postprocess_trajectory": plus_one_in_trajectories},
        {"on_sample_end": plus_one_in_samples},
        {"on_sample_end": plus_one_in_copies},
    ],
)
def test_rewritten_rewards_teach_what_an_env_that_pays_them_teaches(callback):
    plain = gaps(0, 2).env_runners(observation_filter="NoFilter")
    rewritten, stats = learnt(plain.copy().callbacks(**callback))
    paid, of_env = learnt(plain.copy().environment(PlusOne))
    assert rewritten == paid
    unchanged, as_paid = learnt(plain)
    assert unchanged != paid
    for one, other, same in zip(stats, of_env, as_paid, strict=True):
        assert one["episode_reward"] == same["episode_reward"]
        assert one["rewritten_return"] == pytest.approx(other["episode_reward"])


def test_rewards_shared_among_agents_do_not_depend_on_their_order():
    def config(**options):
        return gaps(0, 2, **options).callbacks(on_postprocess_trajectory=shared)

    alone = outcome(config())
    assert outcome(config(shuffles=True)) == alone
    assert outcome(gaps(0, 2)) != alone


def test_what_is_shown_of_each_agent():
    seen = []

    def look(**arguments):
        seen.append(arguments)
        for _, _, original in arguments["original_batches"].values():
            with pytest.raises(ValueError, match="read-only"):
                original["rewards"][0] = 1.0

    with gaps(0, 1).callbacks(on_postprocess_trajectory=look).build_algo() as algo:
        runner = algo.env_runner
        (episode,) = runner.sample(num_episodes=1)
        modules = dict(runner.modules)
    ranks = {3: 0, "a": 1, "late": 2}
    with_rows = [agent for agent in ranks if episode.agent_steps_of(agent)]
    assert len(with_rows) >= 2
    assert [one["agent_id"] for one in seen] == with_rows
    for one in seen:
        agent, batch = one["agent_id"], one["postprocessed_batch"]
        assert one["policy_id"] == episode.module_for(agent)
        assert one["policies"] == modules
        assert isinstance(one["episode"], MultiAgentEpisode)
        assert list(one["original_batches"]) == with_rows
        module_id, module, original = one["original_batches"][agent]
        assert (module_id, module) == (one["policy_id"], modules[one["policy_id"]])
        assert "advantages" in batch
        assert "advantages" not in original
        assert batch["agent_index"].tolist() == [ranks[agent]] * len(batch)
        assert set(batch["eps_id"].tolist()) == {episode.id_}
        acted = [t for t in range(len(episode)) if agent in episode.get_actions(t)]
        assert batch["env_t"].tolist() == acted
        assert batch["t"].tolist() == list(range(len(acted)))
        np.testing.assert_array_equal(batch["rewards"], episode.agent_episodes[agent].get_rewards())


def one_reward_more(samples, **_):
    column = samples[0].agent_episodes["a"].rewards
    column.data = np.append(column.data, 1.0)


def no_number(samples, **_):
    chunk = samples[0].agent_episodes["a"]
    chunk.set_rewards(new_data=[np.nan] * len(chunk))


@pytest.mark.parametrize(
    ("callback", "problem"),
    [
        ({"on_sample_end": no_number}, "column 'rewards' of '.*/a' holds NaN"),
        ({"on_sample_end": lambda samples, **_: samples.append("x")}, "samples.*is str now"),
        (
            {"on_sample_end": one_reward_more},
            "column 'rewards' of '.*/a' has",
        ),
        (
            {
                "on_postprocess_trajectory": lambda postprocessed_batch, **_: (
                    postprocessed_batch.update(env_t=postprocessed_batch["t"] + 1)
                )
            },
            "column 'env_t' was changed",
        ),
    ],
)
def test_what_callbacks_may_not_leave_is_refused(callback, problem):
    with (
        gaps(0, 1).callbacks(**callback).build_algo() as algo,
        pytest.raises(CallbackError, match=problem),
    ):
        algo.train()


# ---- rewards rewritten when an episode ends


def one_more(*, episode, **_):
    chunks = getattr(episode, "agent_episodes", {"": episode})
    for chunk in chunks.values():
        if len(chunk):
            chunk.set_rewards(new_data=[reward + 1.0 for reward in chunk.get_rewards()])


@pytest.mark.parametrize("env", ["CartPole-v1", OneCartPole])
def test_rewards_rewritten_at_the_end_of_an_episode_leave_its_return(env):
    config = PPOConfig().environment(env).env_runners(num_env_runners=0).debugging(seed=1)
    config.training(train_batch_size=100, minibatch_size=50, num_epochs=1)
    config.rl_module(model_config={"fcnet_hiddens": [4]})
    with config.callbacks(on_episode_end=one_more).build_algo() as algo:
        stats = algo.train()["env_runners"]["hist_stats"]
    assert stats["episode_reward"] == stats["episode_lengths"]
    # They all began in this sample, so nothing of them was handed out before.
    assert stats["rewritten_return"] == [2 * paid for paid in stats["episode_reward"]]


def test_agents_keep_their_own_returns_when_an_episode_that_was_cut_is_rewritten():
    def told(**callbacks):
        made = gaps(0, 2).multi_agent(policies_to_train=[]).callbacks(**callbacks)
        with made.training(train_batch_size=6, minibatch_size=4).build_algo() as algo:
            results = [algo.train()["env_runners"] for _ in range(8)]
        stats = [one["hist_stats"] for one in results]
        return [
            (
                {**one["agent_episode_return_mean"]},
                hist["episode_reward"],
                hist.get("rewritten_return"),
            )
            for one, hist in zip(results, stats, strict=True)
        ]

    plain, rewritten = told(), told(on_episode_end=one_more)
    assert [one[:2] for one in rewritten] == [one[:2] for one in plain]
    assert {one[2] for one in plain if one[2]} == set()
    pairs = [pair for _, paid, after in rewritten for pair in zip(paid, after or [], strict=True)]
    assert len(pairs) > 2
    assert all(after > paid for paid, after in pairs)
