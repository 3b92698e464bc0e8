"""Exploration in training. That it is exact whatever happens is in the contract suites."""

import numpy as np
import pytest

from checkpoints import encode
from tests.small_runs import small_ppo
from trainer import DQNConfig
from trainer.errors import ConfigError, UnsupportedSpaceError
from trainer.exploration import Exploration, uniforms_per_row
from trainer.testing.envs import ContinuousEnv, CountdownEnv

_TINY = {"feature_dim": 4, "feature_net_config": {"fcnet_hiddens": [6]}}
_SAMPLING = {"type": "StochasticSampling"}
STRATEGIES = {
    "EpsilonGreedy": (CountdownEnv, {"type": "EpsilonGreedy", "epsilon_timesteps": 200}),
    "SoftQ": (CountdownEnv, {"type": "SoftQ", "temperature": 0.7}),
    "OrnsteinUhlenbeckNoise": (
        ContinuousEnv,
        {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 60, "scale_timesteps": 200},
    ),
    "StateDependentNoise": (ContinuousEnv, {"type": "StateDependentNoise", "sample_freq": 5}),
    "Curiosity": (CountdownEnv, {"type": "Curiosity", "sub_exploration": _SAMPLING, **_TINY}),
    "RE3": (
        CountdownEnv,
        {
            "type": "RE3",
            "embeds_dim": 4,
            "encoder_net_config": {"fcnet_hiddens": [6]},
            "k_nn": 5,
            "random_timesteps": 60,
        },
    ),
}


def config(num_env_runners, strategy, *, num_envs=4):
    env, exploration = STRATEGIES[strategy]
    by_feature = {"free_log_std": True, "log_std_by_feature": True}
    more = by_feature if strategy == "StateDependentNoise" else {}
    # 57 steps on 4 slots leave a remainder, and episodes are cut wherever they stand.
    model = {"fcnet_hiddens": [8], **more}
    made = small_ppo(num_env_runners, env=env, num_slots=num_envs, batch=57, lr=1e-2, model=model)
    return made.training(minibatch_size=32).env_runners(exploration_config=exploration)


def facts(algo):
    """What must not depend on how slots are spread, as bytes."""
    state = algo.get_state()
    return encode(
        [
            state["learner"],
            state.get("exploration"),
            state["env_runners"]["slots"],
            state["counters"],
        ]
    )


def run(algo, iterations):
    for _ in range(iterations):
        algo.train()


def test_dqn_follows_its_epsilon_until_an_exploration_config_names_a_type():
    made = DQNConfig().environment(CountdownEnv).env_runners(num_env_runners=0)
    made.training(epsilon=[[0, 1.0], [200, 0.1]], model_config={"fcnet_hiddens": [8]})
    with made.build_algo() as algo:
        strategy = algo.explorations.only.strategy
        assert [strategy.epsilon(t) for t in (0, 100, 200, 900)] == pytest.approx(
            [1.0, 0.55, 0.1, 0.1]
        )
    made.exploration(exploration_config={"type": "EpsilonGreedy", "initial_epsilon": 0.5})
    with made.build_algo() as algo:
        strategy = algo.explorations.only.strategy
        assert strategy.epsilon(0) == 0.5


@pytest.mark.parametrize("exploration", ["StochasticSampling", "SoftQ"])
def test_steps_without_exploration_leave_the_noise_in_step(exploration, tmp_path):
    made = config(0, "SoftQ").exploration(exploration_config=exploration)
    outcomes = []
    with made.build_algo() as algo:
        run(algo, 1)
        algo.env_runner_group.foreach_env_runner(
            lambda runner: runner.sample(num_timesteps=9, explore=False)
        )
        algo.save_to_path(tmp_path / "checkpoint")
        run(algo, 1)
        outcomes.append(facts(algo))
    with made.build_algo() as other:
        other.restore_from_path(tmp_path / "checkpoint")
        run(other, 1)
        outcomes.append(facts(other))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("strategy", ["Curiosity", "RE3"])
def test_intrinsic_rewards_reach_the_learner_and_not_the_reported_returns(strategy):
    """CountdownEnv pays 1 per step, so the return of an episode is its length."""
    sampled = []
    with config(0, strategy).build_algo() as algo:
        learn = algo.learn_from_sample

        def learn_and_keep(sample):
            sampled.append(sample)
            learn(sample)

        algo.learn_from_sample = learn_and_keep
        result = algo.train()
        statistics = result["env_runners"]
    rewards = np.concatenate([episode.get_rewards() for episode in sampled[0].episodes])
    assert len(rewards) == 57
    assert (rewards >= 1.0).all()
    assert (rewards > 1.0).mean() > 0.9, "the bonus is in what is learnt from"
    assert statistics["episode_return_mean"] == statistics["episode_len_mean"]
    for episode in sampled[0].episodes:
        assert episode.get_return() == episode.t, "the return stays what the env paid"


def test_schedules_follow_the_steps_of_the_whole_run():
    seen = []

    class Recording(Exploration):
        def __init__(self, action_space, **context):
            super().__init__(action_space, **context)
            self.noise_width = uniforms_per_row(self.distribution)

        def get_exploration_action(self, *, action_distribution, timestep, explore=True):
            seen.append(timestep)
            return action_distribution.sample(), None

    made = config(0, "SoftQ").evaluation(evaluation_num_env_runners=0, evaluation_duration=1)
    made.exploration(exploration_config={"type": Recording})
    with made.build_algo() as algo:
        run(algo, 3)
        assert sorted(set(seen)) == [0, 57, 114]
        algo.evaluate()
        assert seen[-1] == 171
        algo.env_runner_group.foreach_env_runner(lambda runner: runner.sample(num_timesteps=4))
        assert seen[-1] == 171
        algo.compute_single_action(np.zeros(2, np.float32), explore=True)
        assert seen[-1] == 171
        algo.compute_single_action(np.zeros(2, np.float32), explore=True, timestep=7)
        assert seen[-1] == 7


def test_likelihoods_of_a_strategy_of_the_users_own_are_recorded_step_by_step():
    class Saying(Exploration):
        def get_exploration_action(self, *, action_distribution, timestep, explore=True):
            best = action_distribution.deterministic_sample()
            noise = action_distribution.noise[:, 0].astype(np.float32)
            return np.where(noise < 0.5, 0, best), noise

    for num_env_runners in (0, 1):
        made = config(num_env_runners, "SoftQ").exploration(exploration_config={"type": Saying})
        with made.build_algo() as algo:
            run(algo, 2)
            (episodes,) = algo.env_runner_group.foreach_env_runner(
                lambda runner: runner.sample(num_timesteps=40)
            )
        said = np.concatenate([e.get_extra_model_outputs("action_logp") for e in episodes])
        assert len(said) == 40
        assert len(set(said.tolist())) == 40
        assert ((said >= 0.0) & (said < 1.0)).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda best: None, r"Wrong\.get_exploration_action\(\) gave None; expected a pair"),
        (lambda best: best, r"gave array\(.*; expected a pair"),
        (
            lambda best: (best + 9, None),
            r"gave array\(.*; expected integers from 0 to 1",
        ),
        (lambda best: (best * 0.5, None), r"expected integers from 0 to 1"),
        (lambda best: (best[0], None), r"the actions are .* of the shape \(4,\)"),
        (lambda best: (best, best * np.nan), r"the log-likelihoods are array\(\[nan"),
        (lambda best: (best, 0.5), r"the log-likelihoods are 0.5; .* of the shape \(4,\)"),
    ],
    ids=[
        *("nothing", "no pair", "too large", "no integers", "one number", "NaN", "one for all"),
    ],
)
def test_a_strategy_that_gives_no_actions_of_the_space_is_named(given, message):
    class Wrong(Exploration):
        def get_exploration_action(self, *, action_distribution, timestep, explore=True):
            return given(action_distribution.deterministic_sample())

    made = config(0, "SoftQ").exploration(exploration_config={"type": Wrong})
    with made.build_algo() as algo, pytest.raises(ConfigError, match=message):
        algo.train()


def test_what_acted_is_what_the_likelihoods_are_of():
    made = config(0, "EpsilonGreedy").exploration(
        exploration_config={"type": "EpsilonGreedy", "epsilon_schedule": 0.5}
    )
    with made.build_algo() as algo:
        for episode in algo.env_runner.sample(num_timesteps=100):
            best = episode.get_extra_model_outputs("action_dist_inputs").argmax(axis=1)
            expected = np.where(episode.get_actions() == best, np.log(0.75), np.log(0.25))
            np.testing.assert_allclose(
                episode.get_extra_model_outputs("action_logp"), expected, rtol=1e-5
            )


# ---- explore in compute_single_action and compute_actions


@pytest.mark.parametrize(
    ("configured", "given", "explores"),
    [
        (True, None, True),
        (True, False, False),
        (False, None, False),
        (False, True, True),
    ],
)
def test_explore_per_call_overrides_the_config(configured, given, explores):
    made = config(0, "SoftQ").exploration(
        explore=configured, exploration_config={"type": "EpsilonGreedy", "epsilon_schedule": 1.0}
    )
    with made.build_algo() as algo:
        observation = np.array([0.3, 0.6], np.float32)
        single = {int(algo.compute_single_action(observation, explore=given)) for _ in range(40)}
        many = algo.compute_actions(dict.fromkeys(range(40), observation), explore=given)
        assert (len(single), len(set(map(int, many.values())))) == ((2, 2) if explores else (1, 1))


def test_actions_can_be_fetched_with_what_they_come_from():
    with config(0, "SoftQ").build_algo() as algo:
        observation = np.array([0.3, 0.6], np.float32)
        action, state, outputs = algo.compute_single_action(observation, full_fetch=True)
        logits = outputs["action_dist_inputs"]
        expected = logits[action] - np.log(np.exp(logits).sum())
        assert state == []
        assert outputs["action_logp"] == pytest.approx(expected, rel=1e-5)
        assert outputs["action_prob"] == pytest.approx(np.exp(expected), rel=1e-5)
        assert len(algo.compute_single_action(observation, [])) == 3, "given a state, as RLlib does"
        actions, states, infos = algo.compute_actions({"a": observation}, full_fetch=True)
        assert actions.keys() == states.keys() == infos.keys() == {"a"}
        fetched = algo.compute_single_action(input_dict={"obs": observation}, explore=False)
        assert fetched == algo.compute_single_action(observation, explore=False)
        with pytest.raises(ConfigError, match="got no observation"):
            algo.compute_single_action()
        with pytest.raises(ConfigError, match="there is no such module; there is 'default_policy'"):
            algo.compute_single_action(observation, policy_id="other")


def test_actions_may_be_left_as_the_module_gives_them():
    made = config(0, "OrnsteinUhlenbeckNoise")
    with made.environment("Pendulum-v1").build_algo() as algo:
        observation = np.zeros(3, np.float32)
        raw = algo.compute_single_action(observation, explore=False, unsquash_action=False)
        scaled = algo.compute_single_action(observation, explore=False)
        np.testing.assert_allclose(scaled, 2.0 * raw, rtol=1e-6)


# ---- mistakes


def test_the_wrong_strategy_for_the_env_is_refused_when_built():
    made = config(0, "SoftQ").environment("Pendulum-v1")
    with pytest.raises(UnsupportedSpaceError, match="SoftQ explores Discrete or MultiDiscrete"):
        made.build_algo()
