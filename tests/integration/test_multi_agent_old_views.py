"""What scripts for RLlib's old stack read and call with several agents."""

import numpy as np
import pytest

from callbacks import RLlibCallback
from tests.multi_agent_runs import Gaps, gaps, outcome
from trainer import CallbackError, DQNConfig, MultiAgentBatch, MultiAgentEnvRunner
from trainer.errors import ConfigError, EpisodeError


def _sized(policy, policy_id):
    return policy_id, policy.num_parameters


class OldCallbacks(RLlibCallback):
    """As scripts of the old stack have it."""

    seen = []

    def on_episode_end(self, *, worker, base_env, policies, episode, **_):
        agents = episode.get_agents()
        for (agent_id, policy_id), reward in episode.agent_rewards.items():
            episode.custom_metrics[f"reward_{agent_id}"] = reward
            assert policies[policy_id] is worker.policy_map[policy_id]
            assert worker.policy_mapping_fn(agent_id, episode, worker=worker) == policy_id
            assert episode.policy_for(agent_id) == policy_id
        assert base_env.get_sub_environments() == base_env.envs
        assert base_env.get_sub_environments(as_dict=True) == {0: base_env.envs[0]}
        self.seen.append(
            {
                "agents": agents,
                "total": (episode.total_reward, sum(episode.agent_rewards.values())),
                "length": (episode.length, episode.env_t),
                "last": [episode.last_observation_for(agent) for agent in agents],
                "action": [episode.last_action_for(agent) for agent in agents],
                "number": (episode.episode_id % 2, episode.number % 2),
                "batch": episode.get_sample_batch(),
                "sizes": worker.foreach_policy(
                    lambda policy, policy_id: (policy_id, policy.num_parameters)
                ),
                "one": worker.for_policy(lambda policy, x: (policy.num_parameters, x), "odd", x=3),
                "trained": (worker.get_policies_to_train(), worker.is_policy_to_train("odd", None)),
            }
        )


def test_old_views_of_episodes_and_runners():
    OldCallbacks.seen.clear()
    with gaps(0, 1).callbacks(OldCallbacks).build_algo() as algo:
        result = algo.train()
        sizes = algo.env_runner_group.foreach_policy(  # an old name
            lambda policy, id_: (id_, policy.num_parameters)
        )
    assert [id_ for id_, _ in sizes] == ["even", "odd"]
    assert OldCallbacks.seen
    for one in OldCallbacks.seen:
        assert one["total"][0] == pytest.approx(one["total"][1])
        assert one["length"][0] == one["length"][1]
        assert one["number"][0] == one["number"][1]
        assert set(one["agents"][:2]) == {3, "a"}
        assert all(len(seen) == 3 for seen in one["last"])
        assert one["sizes"] == sizes
        assert one["one"] == (sizes[1][1], 3)
        assert one["trained"] == ({"even", "odd"}, True)
        batch = one["batch"]
        assert isinstance(batch, MultiAgentBatch)
        assert batch.env_steps() == batch.count == len(batch) == one["length"][0]
        assert set(batch.policy_batches) <= {"even", "odd"}
        assert batch.agent_steps() == sum(
            len(own["rewards"]) for own in batch.policy_batches.values()
        )
        slices = batch.timeslices(2)
        assert sum(part.agent_steps() for part in slices) == batch.agent_steps()
        assert sum(map(len, slices)) == len(batch)
        again = MultiAgentBatch.concat_samples([batch, batch.copy()])
        assert (again.agent_steps(), len(again)) == (2 * batch.agent_steps(), 2 * len(batch))
        assert batch.as_multi_agent() is batch
    metrics = result["env_runners"]["custom_metrics"]
    assert {"reward_a_mean", "reward_3_mean"} <= set(metrics)


def test_who_is_meant_must_be_said():
    def without_agent(*, episode, **_):
        episode.last_info_for()

    with (
        gaps(0, 1).callbacks(on_episode_end=without_agent).build_algo() as algo,
        pytest.raises(CallbackError, match=r"agents \[3, 'a', 'late'\]") as raised,
    ):
        algo.train()
    assert isinstance(raised.value.__cause__, EpisodeError)


@pytest.mark.parametrize(
    "method", ["add_policy", "remove_policy", "set_policy_mapping_fn", "set_is_policy_to_train"]
)
def test_a_runners_own_changes_are_refused(method):
    runner = MultiAgentEnvRunner(config=gaps(0, 1))
    with pytest.raises(ConfigError, match=r"Call algorithm\."):
        getattr(runner, method)("x")
    runner.stop()


class Paused(Gaps):
    """Says of agent `a` that it is not to be trained, in episodes of odd lengths."""

    def step(self, actions):
        observations, rewards, terminateds, truncateds, _ = super().step(actions)
        infos = {agent: {"training_enabled": agent != "a"} for agent in observations}
        return observations, rewards, terminateds, truncateds, infos


def test_agents_can_be_left_out_of_learning():
    own = gaps(0, 1).multi_agent(policy_mapping_fn={"a": "odd", 3: "even", "late": "even"})
    with own.environment(Paused).build_algo() as algo:
        first = algo.train()
        runners = first["env_runners"]
        rows = runners["num_agent_steps_sampled"]["a"]
        assert runners["num_agent_steps_not_to_learn"] == rows > 0
        assert algo.learners["odd"].num_updates == 0
        assert algo.learners["even"].num_updates == 1
        assert np.isfinite(runners["agent_episode_return_mean"]["a"])
    buffered = DQNConfig().environment(Paused).env_runners(num_env_runners=0)
    buffered.training(train_batch_size=8, num_steps_sampled_before_learning_starts=10)
    buffered.reporting(min_sample_timesteps_per_iteration=40).debugging(seed=3)
    with buffered.build_algo() as algo:
        runners = algo.train()["env_runners"]
        learnt = runners["num_agent_steps_sampled"]["late"] + runners["num_agent_steps_sampled"][3]
        assert len(algo.local_replay_buffer) == learnt
    assert outcome(gaps(0, 2).environment(Paused), 2) != outcome(gaps(0, 2), 2)
