"""Normalised observations and rewards in a whole run: the same bytes, for everyone the same."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from checkpoints import CheckpointMismatchError, encode, read_manifest
from trainer import CallbackError, ConfigError, PGConfig, PPOConfig
from trainer.algorithms.dqn import DQNConfig
from trainer.connectors import ObservationEncoder
from trainer.envs import MultiAgentEnv

pytestmark = pytest.mark.process


class Scaled(gym.Wrapper[Any, Any, Any, Any]):
    """CartPole in odd units: metres far from the origin, speeds in micrometres."""

    def __init__(self, context=None):
        del context
        super().__init__(gym.make("CartPole-v1", disable_env_checker=True))
        self.observation_space = gym.spaces.Box(-1e9, 1e9, (4,), np.float32)

    @staticmethod
    def _in_odd_units(observation):
        return (observation * [1.0, 1e6, 1e-4, 1.0] + [500.0, 0.0, 0.0, -300.0]).astype(np.float32)

    def reset(self, **arguments):
        observation, info = self.env.reset(**arguments)
        return self._in_odd_units(observation), info

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._in_odd_units(observation), 3.0 * float(reward), terminated, truncated, info


NORMALIZED = {
    "observation_filter": "MeanStdFilter",
    "normalize_rewards": True,
    "clip_rewards": 2.0,
}


def ppo():
    return PPOConfig().training(train_batch_size=102, minibatch_size=50, num_epochs=2)


def dqn():
    return (
        DQNConfig()
        .training(num_steps_sampled_before_learning_starts=20, train_batch_size=16, n_step=2)
        .reporting(min_sample_timesteps_per_iteration=50)
    )


KINDS = {"ppo": ppo, "dqn": dqn}


def config(kind="ppo", num_env_runners=0, **settings):
    made = (
        KINDS[kind]()
        .environment(Scaled)
        .env_runners(
            num_env_runners=num_env_runners, num_envs_per_env_runner=4 // max(1, num_env_runners)
        )
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=4)
    )
    made.update_from_dict({**NORMALIZED, **settings})
    return made


def known(algo):
    state = algo.get_state()
    names = ("learner", "connectors", "counters", "replay_buffer")
    return encode([state["env_runners"]["slots"], *[state.get(name) for name in names]])


def train(algo, iterations=3):
    for _ in range(iterations):
        algo.train()
    return known(algo)


# ---- rewards are scaled by statistics that include them


class ThreeThenFive(MultiAgentEnv):
    """Two steps, which pay "small" 3 and 5, and "large" a hundred times as much."""

    def __init__(self, env_config=None):
        del env_config
        self.possible_agents = ["large", "small"]
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.steps = 0
        return self._seen(), {}

    def step(self, actions):
        del actions
        self.steps += 1
        paid = 3.0 if self.steps == 1 else 5.0
        is_over = {"__all__": self.steps == 2}
        return self._seen(), {"small": paid, "large": 100.0 * paid}, is_over, {}, {}

    def _seen(self):
        return {agent: np.zeros(1, np.float32) for agent in self.possible_agents}


FIRST_BATCHES = {
    # With λ = 1, targets of values are discounted sums of rewards, whatever the critic says.
    "value_targets": lambda: PPOConfig().training(
        train_batch_size=8, minibatch_size=8, num_epochs=1, lambda_=1.0
    ),
    "advantages": lambda: PGConfig().training(train_batch_size=8),
    "rewards": lambda: (
        DQNConfig()
        .env_runners(rollout_fragment_length=8)
        .training(num_steps_sampled_before_learning_starts=8, train_batch_size=32)
    ),
}


def first_batch(column, **settings):
    """The numbers in a column of the first train batch, rounded, by module."""
    made = (
        FIRST_BATCHES[column]()
        .environment(ThreeThenFive, normalize_rewards=True)
        .env_runners(num_env_runners=0)
        .multi_agent(
            policies={"large", "small"}, policy_mapping_fn={"large": "large", "small": "small"}
        )
        .training(gamma=0.5)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .update_from_dict(settings)
    )
    batches = []

    def note(policy, train_batch):
        batches.append((policy, {round(float(each), 4) for each in train_batch[column]}))

    with made.callbacks(on_learn_on_batch=note).build_algo() as algo:
        algo.train()
        ids = {id(algo.get_module(id_)): id_ for id_ in algo.module_ids}
    return {ids[id(module)]: numbers for module, numbers in reversed(batches)}


@pytest.mark.parametrize(
    ("column", "raw"),
    [("value_targets", (5.5, 5.0)), ("advantages", (5.5, 5.0)), ("rewards", (3.0, 5.0))],
)
def test_the_first_batch_is_scaled_by_its_own_statistics(column, raw):
    # Discounted returns are 3 and 0.5 · 3 + 5 = 6.5 in every episode: their deviation is 1.75.
    scaled = {round(each / 1.75, 4) for each in raw}
    assert first_batch(column) == {"small": scaled, "large": scaled}
    # Negative control: the env's own.
    assert first_batch(column, normalize_rewards=False) == {
        "small": set(raw),
        "large": {100.0 * each for each in raw},
    }


def test_the_first_batch_is_clipped_before_it_is_scaled():
    # "small" is paid 3 and 4: discounted returns of 3 and 5.5 deviate by 1.25. "large": 4 and 4.
    clipped = first_batch("rewards", clip_rewards=4.0)
    assert clipped == {"small": {2.4, 3.2}, "large": {4.0}}


CURIOSITY = {
    "type": "Curiosity",
    "feature_dim": 4,
    "feature_net_config": {"fcnet_hiddens": [6]},
    "sub_exploration": {"type": "StochasticSampling"},
}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"exploration_config": CURIOSITY},
        {"model": {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5}},
        {"sample_ahead": True},
        {"batch_mode": "complete_episodes"},
        {"num_env_runners": 2, "num_envs_per_env_runner": 2},
    ],
    ids=lambda settings: next(iter(settings), "plain"),
)
def test_every_update_uses_the_statistics_with_its_own_sample(settings):
    used = []
    algorithms = []

    def note(**_):
        used.append(algorithms[0].normalization)

    made = config(clip_rewards=None).update_from_dict(settings)
    with made.callbacks(on_learn_on_batch=note).build_algo() as algo:
        algorithms.append(algo)
        before = [algo.normalization]
        for _ in range(3):
            algo.train()
            before.append(algo.normalization)
    assert [each.rewards for each in used] == [each.rewards for each in before[1:]]
    assert len({each.rewards for each in before}) == 4, "control: every sample changes them"
    # Observations were seen by the policy as it acted.
    for during, at_first in zip(used, before, strict=False):
        assert during.observations is at_first.observations


def test_a_first_iteration_that_fails_leaves_the_scale_as_it_was():
    with config().build_algo() as algo:
        undisturbed = train(algo)
    is_to_fail = [True]

    def fail(**_):
        if is_to_fail.pop():
            raise OSError("on purpose")
        is_to_fail.append(False)

    with config().callbacks(on_learn_on_batch=fail).build_algo() as algo:
        before, scale = encode(algo.get_state("connectors")), algo.normalization.rewards
        with pytest.raises(CallbackError, match="on purpose"):
            algo.train()
        assert encode(algo.get_state("connectors")) == before
        assert algo.normalization.rewards == scale
        is_to_fail.append(False)
        assert train(algo) == undisturbed


# ---- everyone uses the same


def test_the_learner_sees_exactly_what_the_policy_saw():
    worst = []

    def compare(policy, train_batch):
        inputs = policy.action_distribution.canonical(policy.forward_acting(train_batch["obs"]))
        worst.append(float(np.abs(inputs - train_batch["action_dist_inputs"]).max()))

    with config().callbacks(on_learn_on_batch=compare).build_algo() as algo:
        train(algo)
        assert max(worst) == 0.0
        # Negative control: with other statistics it would show.
        algo.learner.normalize_with(type(algo.normalization)())
        algo.train()
    assert worst[-1] > 1e-3


def test_replay_holds_raw_observations_and_clipped_rewards():
    made = config("dqn")
    with made.build_algo() as algo:
        train(algo)
        sampled = algo.local_replay_buffer.sample(64, rng=np.random.default_rng(0))
        batch = algo.learner._encoded_batch(sampled)
        factor = algo.normalization.rewards.factor
    assert sampled.obs[:, 0].min() > 490.0
    assert set(sampled.rewards.tolist()) == {2.0}
    assert np.abs(batch.obs).max() <= 10.0
    assert batch.obs.std(axis=0) == pytest.approx(1.0, abs=0.5)
    np.testing.assert_allclose(batch.rewards, 2.0 * factor, rtol=1e-6)


def test_single_actions_and_evaluation_use_the_statistics_and_leave_them_alone():
    made = config(evaluation_duration=2)
    with made.build_algo() as algo:
        train(algo)
        before = encode(algo.get_state()["connectors"])
        module, encoder = algo.get_module(), ObservationEncoder(Scaled().observation_space)
        observation = np.array([500.2, 4e5, 0.0, -299.5], np.float32)
        rows = algo.normalization.observations(encoder.encode([observation]))
        inputs = module.forward_inference({"obs": rows})["action_dist_inputs"]
        assert algo.compute_single_action(observation, explore=False) == int(inputs.argmax())
        algo.evaluate()
        runner = algo.eval_env_runner_group.local_env_runner
        used = runner._player.policy._encoder.normalizer
        assert used is algo.normalization.observations
        assert encode(algo.get_state()["connectors"]) == before


def test_reported_returns_are_the_envs_own():
    results = []
    both = [{}, {"clip_rewards": None, "normalize_rewards": False}]
    for settings in both:
        with config(**settings).build_algo() as algo:
            results.append(algo.train()["env_runners"])
    # Before the first update no one acts otherwise.
    assert results[0]["episode_return_mean"] == results[1]["episode_return_mean"]
    assert results[0]["episode_return_mean"] == 3.0 * results[0]["episode_len_mean"]


def test_trajectories_show_advantages_on_the_scale_of_before_their_sample():
    shown = []
    learnt = []

    def look(postprocessed_batch):
        assert set(postprocessed_batch["rewards"].tolist()) == {3.0}, "as the env paid them"
        shown.append(postprocessed_batch["advantages"].copy())

    def learn(train_batch):
        learnt.append(train_batch["advantages"].copy())

    made = PGConfig().environment(Scaled).training(train_batch_size=60).debugging(seed=1)
    made.update_from_dict(NORMALIZED)
    with made.callbacks(
        on_postprocess_trajectory=look, on_learn_on_batch=learn
    ).build_algo() as algo:
        for _ in range(2):
            shown.clear()
            before = algo.normalization.rewards
            algo.train()
            after = algo.normalization.rewards
            assert after.factor < 0.5
            rescaled = np.concatenate(shown) * (after.factor / before.factor)
            np.testing.assert_allclose(rescaled, learnt[-1], rtol=1e-5)


# ---- checkpoints and settings


def test_statistics_are_a_component_only_where_there_are_some(tmp_path):
    plain = {"observation_filter": "NoFilter", "normalize_rewards": False}
    with config(**plain).build_algo() as algo, config().build_algo() as other:
        train(algo, 1)
        algo.save_to_path(tmp_path / "plain")
        other.save_to_path(tmp_path / "normalized")
        assert "connectors" not in read_manifest(tmp_path / "plain").components
        assert "connectors" in read_manifest(tmp_path / "normalized").components
        with pytest.raises(CheckpointMismatchError, match="connectors"):
            algo.restore_from_path(tmp_path / "normalized")
        with pytest.raises(CheckpointMismatchError, match="connectors"):
            other.restore_from_path(tmp_path / "plain")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"observation_filter": "MeanStd"}, "Did you mean 'MeanStdFilter'"),
        ({"observation_filter": "ConcurrentMeanStdFilters"}, "Did you mean 'MeanStdFilter'"),
        ({"observation_filter": dict}, "expected a string"),
        ({"clip_rewards": -1.0}, "clip_rewards"),
        ({"normalize_rewards": "yes"}, "normalize_rewards"),
        ({"evaluation_config": {"observation_filter": "NoFilter"}}, "the training's running"),
    ],
)
def test_what_cannot_be_done_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        config(**settings).validate()


def test_the_filter_for_several_threads_is_the_same_filter():
    old = config().env_runners(observation_filter="ConcurrentMeanStdFilter")
    assert old == config().env_runners(observation_filter="MeanStdFilter")
    assert old.observation_filter == "MeanStdFilter"
