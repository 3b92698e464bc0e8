"""What RLlib's own tests and examples ask of env runners, groups, policies, callbacks and results.

Each test is the behaviour of one or more of RLlib's test functions or scripts, written anew.
"""

import copy
import shutil

import gymnasium as gym
import numpy as np
import pytest

from checkpoints import encode
from tests.small_runs import small_ppo
from trainer import (
    COMPONENT_LEARNER,
    COMPONENT_LEARNER_GROUP,
    COMPONENT_RL_MODULE,
    DEFAULT_MODULE_ID,
    DEFAULT_POLICY_ID,
    ENV_RUNNER_RESULTS,
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MEAN,
    EVALUATION_RESULTS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    PPO,
    TRAINING_ITERATION,
    AlgorithmConfig,
    Columns,
    ConfigError,
    DefaultCallbacks,
    DQNConfig,
    EnvError,
    EnvRunnerGroup,
    MultiRLModule,
    MultiRLModuleSpec,
    PPOConfig,
    RLlibCallback,
    RLModule,
    RLModuleSpec,
    RolloutWorker,
    SACConfig,
    SampleBatch,
    SingleAgentEnvRunner,
    UnknownSettingError,
    get_trainable_cls,
)
from trainer.modules import ActorCriticModule, QModule
from trainer.rllib_names import metrics as constants
from trainer.testing import MultiAgentCartPole


def ppo(**env_runners):
    return small_ppo(env="CartPole-v1", **{"num_envs_per_env_runner": 1, **env_runners})


def weights(algorithm):
    return encode(algorithm.get_weights()["default_policy"])


# ---- names


def test_the_constants_are_the_keys_of_results():
    config = ppo().evaluation(evaluation_interval=1, evaluation_duration=1)
    with config.build_algo() as algorithm:
        result = algorithm.train()
    runners = result[ENV_RUNNER_RESULTS]
    assert result[TRAINING_ITERATION] == 1
    assert result[NUM_ENV_STEPS_SAMPLED_LIFETIME] == 60
    assert runners[NUM_ENV_STEPS_SAMPLED_LIFETIME] == 60
    assert runners[EPISODE_RETURN_MEAN] == runners[EPISODE_LEN_MEAN]
    assert result[EVALUATION_RESULTS][ENV_RUNNER_RESULTS][EPISODE_RETURN_MEAN] > 0
    assert result[LEARNER_RESULTS][DEFAULT_MODULE_ID]["total_loss"] is not None
    assert result[LEARNER_RESULTS]["__all_modules__"][NUM_ENV_STEPS_TRAINED_LIFETIME] == 60
    assert f"{ENV_RUNNER_RESULTS}/{EPISODE_RETURN_MEAN}" in result
    assert DEFAULT_POLICY_ID == DEFAULT_MODULE_ID == "default_policy"


def test_every_constant_is_a_plain_string_and_can_be_imported_from_the_top():
    import trainer

    names = [
        name for name, value in vars(constants).items() if type(value) is str and name.isupper()
    ]
    assert len(names) > 40
    for name in names:
        if name != "DEFAULT_AGENT_ID":
            assert getattr(trainer, name) == getattr(constants, name)
    assert Columns.OBS == vars(SampleBatch)["OBS"] == "obs"


def test_an_algorithm_is_found_by_its_name():
    assert get_trainable_cls("PPO") is PPO
    config = get_trainable_cls("PPO").get_default_config()
    assert isinstance(config, PPOConfig)
    with pytest.raises(ConfigError, match="PPO solves such tasks"):
        get_trainable_cls("APPO")


# ---- env runners made directly


def test_a_runner_of_ones_own_samples_what_it_is_asked_for():
    config = AlgorithmConfig().environment("CartPole-v1")
    config.env_runners(num_envs_per_env_runner=5, rollout_fragment_length=64)
    runner = SingleAgentEnvRunner(config=config)
    with pytest.raises(ConfigError, match="given twice"):
        runner.sample(num_timesteps=10, num_episodes=10, random_actions=True)
    for _ in range(5):
        episodes = runner.sample(num_episodes=10, random_actions=True)
        assert len(episodes) == 10
        assert all(episode.is_done and episode.t_started == 0 for episode in episodes)
    runner.sample(random_actions=True)
    for number in (20, 22):
        episodes = runner.sample(num_timesteps=number, random_actions=True)
        assert sum(map(len, episodes)) == number
        assert any(episode.t_started > 0 for episode in episodes)
    assert sum(map(len, runner.sample(random_actions=True))) == 5 * 64
    fresh = runner.sample(num_timesteps=20, random_actions=True, force_reset=True)
    assert any(episode.t_started == 0 for episode in fresh)
    assert isinstance(runner.env, gym.vector.VectorEnv)
    runner.stop()


def test_a_runner_of_ones_own_hands_env_config_to_its_env():
    config = AlgorithmConfig().environment("CartPole-v1", env_config={"sutton_barto_reward": True})
    runner = SingleAgentEnvRunner(config=config)
    assert runner.env.env.get_attr("_sutton_barto_reward") == (True,)
    runner.stop()


def test_runners_of_ones_own_play_what_an_algorithm_plays():
    """They are no second kind of runner: the same seed gives the same episodes."""
    runner = SingleAgentEnvRunner(config=ppo(num_envs_per_env_runner=2))
    own = runner.sample(num_timesteps=60)
    runner.stop()
    seen = []
    config = ppo(num_envs_per_env_runner=2).callbacks(
        on_sample_end=lambda samples, **_: seen.extend(samples)
    )
    with config.build_algo() as algorithm:
        algorithm.train()
    assert [episode.id_ for episode in own] == [episode.id_ for episode in seen]
    for first, second in zip(own, seen, strict=True):
        assert first.get_observations().tobytes() == second.get_observations().tobytes()


@pytest.mark.parametrize("num_agents", [None, 2])
def test_what_a_runner_sampled_counts_steps_as_batches_did(num_agents):
    seen = []

    def on_sample_end(samples, **_):
        steps = samples.count, samples.env_steps(), samples.agent_steps()
        samples[:] = [*samples]  # what is to be learnt from can still be exchanged
        seen.append((*steps, samples.count))

    config = ppo(rollout_fragment_length=60).callbacks(on_sample_end=on_sample_end)
    if num_agents is not None:
        config.environment(MultiAgentCartPole, env_config={"num_agents": num_agents})
    with config.build_algo() as algorithm:
        sample = algorithm.env_runner.sample()
        assert sample.count == sum(len(episode) for episode in sample) == 60
        agent_steps = sum(episode.agent_steps() for episode in sample)
        assert seen == [(60, 60, agent_steps, 60)]
        assert agent_steps == 60 if num_agents is None else agent_steps > 60


def test_a_config_that_makes_no_runner_is_told():
    wrong = [
        ({"config": {}}, "expected a config"),
        ({}, "expected a config"),
        ({"config": ppo(), "default_policy_class": int}, "RLModule"),
        ({"config": ppo(), "wrong": 1}, "`wrong=1` is not offered"),
    ]
    for arguments, told in wrong:
        with pytest.raises(ConfigError, match=told):
            SingleAgentEnvRunner(**arguments)
    with pytest.raises(ConfigError, match="gamma"):
        EnvRunnerGroup(config=ppo().training(gamma=2.0))


@pytest.mark.process
def test_a_group_of_ones_own_asks_all_its_runners():
    group = EnvRunnerGroup(config=ppo(), num_env_runners=2)
    try:
        assert group.num_remote_env_runners() == 2
        lengths = group.foreach_env_runner(lambda r: sum(map(len, r.sample(num_timesteps=30))))
        assert lengths == [30, 30]
        assert group.foreach_env_runner_with_id(lambda index, _: index) == [1, 2]
        assert group.foreach_worker(lambda worker: worker.worker_index) == [1, 2]
        assert sum(map(len, group.sample_env_steps(50).episodes)) == 50
    finally:
        group.stop()


def test_a_group_without_processes_has_a_local_runner():
    group = EnvRunnerGroup(config=ppo(), local_env_runner=True)
    assert group.local_env_runner is not None
    assert sum(map(len, group.local_env_runner.sample(num_timesteps=7))) == 7
    assert set(group.foreach_worker(lambda worker: worker.get_weights().keys())[0])
    group.stop()


def test_an_old_worker_gives_batches():
    worker = RolloutWorker(
        env_creator=lambda context: gym.make("CartPole-v1", max_episode_steps=7),
        config=AlgorithmConfig().rollouts(rollout_fragment_length=100, num_rollout_workers=0),
    )
    batch = worker.sample()
    worker.stop()
    assert isinstance(batch, SampleBatch)
    assert batch.count == 100
    for key in ("obs", "new_obs", "actions", "rewards", "terminateds", "truncateds", "t", "eps_id"):
        assert len(batch[key]) == 100
    for part in batch.split_by_episode():
        assert part.count <= 7
        assert (part["obs"][1:] == part["new_obs"][:-1]).all()
    assert batch["truncateds"].sum() >= 8


# ---- callbacks, policies, results


class Counting(DefaultCallbacks):
    def __init__(self):
        self.num_episodes = 0
        self.kinds = set()

    def on_episode_end(self, *, env, **_):
        self.num_episodes += 1
        is_vector_env = isinstance(env, gym.vector.VectorEnv)
        assert is_vector_env
        assert env.num_envs == len(env.get_attr("gravity")) == 2
        assert env.single_action_space.n == 2
        assert env.unwrapped.envs[0].unwrapped.spec.id == "CartPole-v1"


def test_the_env_of_callbacks_is_a_vector_env_and_chains_show_what_their_objects_hold():
    class Other(RLlibCallback):
        marker = "other"

    config = ppo(num_envs_per_env_runner=2).callbacks([Counting, Other])
    with config.build() as algorithm:
        algorithm.train()
        chain = algorithm.env_runner.callbacks
        assert isinstance(chain[0], Counting)
        assert chain.num_episodes == chain[0].num_episodes > 0
        assert chain.marker == "other"
        assert [type(one) for one in chain] == [Counting, Other]
        assert len(algorithm.callbacks) == 2
        with pytest.raises(AttributeError, match="Counting, Other"):
            _ = chain.nothing
        assert not hasattr(chain, "nothing")


def test_a_chain_without_objects_is_still_true():
    with ppo().callbacks(on_train_result=lambda **_: None).build() as algorithm:
        assert len(algorithm.callbacks) == 0
        assert algorithm.callbacks


@pytest.mark.process
def test_restoring_env_runners_gives_those_that_were_replaced():
    with ppo(num_env_runners=1).build() as algorithm:
        ported = algorithm
        assert ported.restore_env_runners() == []
        assert ported.restore_workers(algorithm.env_runner_group) == []


def test_a_policy_computes_actions_for_observations_that_are_ready_for_it():
    with ppo().build() as algorithm:
        ported = algorithm
        policy = ported.get_policy()
        rows = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
        actions, state, extra = policy.compute_actions(rows, explore=False)
        assert (len(actions), state) == (6, [])
        logp = policy.compute_log_likelihoods(actions, rows)
        np.testing.assert_allclose(logp, extra["action_logp"], rtol=1e-6)
        single, _, more = policy.compute_single_action(rows[2], explore=False)
        assert single == actions[2] == algorithm.compute_single_action(rows[2], explore=False)
        assert more["action_dist_inputs"].tobytes() == extra["action_dist_inputs"][2].tobytes()
        drawn = {int(policy.compute_single_action(rows[0])[0]) for _ in range(30)}
        assert drawn == {0, 1}
        assert policy.is_recurrent() is False
        assert policy.get_initial_state() == {}
        assert policy.model is policy
        with pytest.raises(Exception, match="reads 4 numbers per row"):
            policy.compute_actions(np.zeros((2, 5)))


def test_attributes_of_a_users_network_win_over_old_names():
    class Own(ActorCriticModule):
        def setup(self):
            super().setup()
            self.model, self.framework, self.dist_class = 1, "mine", int

    config = ppo().rl_module(rl_module_spec=RLModuleSpec(module_class=Own))
    with config.build() as algorithm:
        ported = algorithm
        policy = ported.get_policy()
        assert (policy.model, policy.framework, policy.dist_class) == (1, "mine", int)


def test_a_policy_of_dqn_has_no_probabilities():
    config = DQNConfig().environment("CartPole-v1").training(model={"fcnet_hiddens": [8]})
    with config.build() as algorithm:
        ported = algorithm
        policy = ported.get_policy()
        assert policy.compute_single_action(np.zeros(4))[0] in (0, 1)
        with pytest.raises(Exception, match="no probabilities"):
            policy.compute_single_action(np.zeros(4), explore=True)


def test_old_names_of_learner_stats_and_results_are_found():
    with ppo().training(lr=3e-4).build() as algorithm:
        result = algorithm.train()
    stats = result["info"]["learner"]["default_policy"]["learner_stats"]
    assert stats["cur_lr"] == pytest.approx(3e-4)
    assert stats["kl"] == stats["mean_kl_loss"]
    assert stats["cur_kl_coeff"] == stats["curr_kl_coeff"]
    assert stats["grad_gnorm"] > 0
    for key in ("perf", "sampler_perf", "connector_metrics"):
        assert result[key] == {}
        assert key not in dict(result)


# ---- settings


def test_sacs_old_dict_of_learning_rates_is_understood():
    rates = {
        "actor_learning_rate": 1e-4,
        "critic_learning_rate": 2e-4,
        "entropy_learning_rate": 3e-4,
    }
    for config in (
        SACConfig().training(optimization=rates),
        SACConfig().training(optimization_config=rates),
        SACConfig().update_from_dict({"optimization": rates}),
    ):
        assert (config.actor_lr, config.critic_lr, config.alpha_lr) == (1e-4, 2e-4, 3e-4)
        config.environment("Pendulum-v1").validate()
    with pytest.raises(UnknownSettingError, match="'critic_learning_rate'"):
        SACConfig().training(optimization={"critic_learning_rat": 1e-3})
    with pytest.raises(UnknownSettingError, match="It belongs to CQL and SAC"):
        PPOConfig().training(optimization=rates)


@pytest.mark.parametrize(
    ("ask", "advice"),
    [
        (lambda c: c.env_runners(env_runner_cls=RolloutWorker), "foreach_env_runner"),
        (lambda c: c.rollouts(worker_cls=RolloutWorker), "foreach_env_runner"),
        (lambda c: c.offline_data(input_="cartpole.json"), "EpisodeRecorder"),
        (lambda c: c.python_environment(extra_python_environs_for_driver={}), "Remove the call"),
        (lambda c: c.update_from_dict({"dataset_num_iters_per_learner": 1}), "recorded data"),
        (lambda c: c.framework(torch_compile_worker_dynamo_mode="x"), "NumPy"),
        (lambda c: c.env_runner_cls, "Env runners of your own"),
    ],
)
def test_settings_of_rllib_that_are_not_offered_are_no_misspelt_ones(ask, advice):
    with pytest.raises(ConfigError, match=advice) as caught:
        ask(ppo())
    for wrong in ("Did you mean", "no setting has this name", "spelling"):
        assert wrong not in str(caught.value)


def test_such_settings_may_stay_if_they_ask_for_nothing():
    ppo().env_runners(env_runner_cls=None).update_from_dict({"prelearner_class": None}).validate()


# ---- checkpoints and learners by RLlib's names


RLLIBS_PLACE = f"{COMPONENT_LEARNER_GROUP}/{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}"


@pytest.mark.parametrize("place", [f"{RLLIBS_PLACE}/default_policy", ""])
def test_a_module_is_found_where_rllib_keeps_it(place, tmp_path):
    with small_ppo().build_algo() as algorithm:
        algorithm.train()
        path = algorithm.save_to_path(tmp_path / "whole")
        expected = weights(algorithm)
    if place:
        assert encode(RLModule.from_checkpoint(f"{path}/{place}").get_state()) == expected
        place = place.removesuffix("/default_policy")
    found = MultiRLModule.from_checkpoint(tmp_path / "whole" / place)
    assert encode(found["default_policy"].get_state()) == expected


def test_a_module_of_several_is_found_where_rllib_keeps_it(tmp_path):
    mapping = {"policies": {"a", "b"}, "policy_mapping_fn": lambda agent, *_, **__: "ab"[agent]}
    asked = small_ppo(env=MultiAgentCartPole, env_config={"num_agents": 2}, **mapping)
    with asked.build_algo() as algorithm:
        path = algorithm.save_to_path(tmp_path / "whole")
        expected = algorithm.get_weights()
    for id_ in "ab":
        found = RLModule.from_checkpoint(f"{path}/{RLLIBS_PLACE}/{id_}")
        assert encode(found.get_state()) == encode(expected[id_])


@pytest.mark.parametrize("is_of_all", [False, True])
def test_a_run_begins_with_the_weights_of_another_and_goes_on_without_them(is_of_all, tmp_path):
    with small_ppo(seed=1).build_algo() as algorithm:
        path = algorithm.save_to_path(tmp_path / "first")
        expected = weights(algorithm)
    loading = RLModuleSpec(load_state_path=f"{path}/{RLLIBS_PLACE}/default_policy")
    if is_of_all:
        loading = MultiRLModuleSpec(rl_module_specs=RLModuleSpec(), load_state_path=path)
    with small_ppo(seed=2, rl_module_spec=loading).build_algo() as algorithm:
        assert weights(algorithm) == expected
        again = algorithm.save_to_path(tmp_path / "second")
    shutil.rmtree(path)
    with PPO.from_checkpoint(again) as algorithm:
        assert weights(algorithm) == expected


def test_states_to_start_with_are_not_read_again(tmp_path):
    def made(seed, spec=None):
        config = small_ppo(seed=seed, env=MultiAgentCartPole, env_config={"num_agents": 1})
        return config.multi_agent(policies={"x": spec}, policy_mapping_fn=lambda *_, **__: "x")

    with made(1).build_algo() as algorithm:
        path = algorithm.save_to_path(tmp_path / "first")
        expected = encode(algorithm.learner.get_state()["rl_module"])
    loading = RLModuleSpec(load_state_path=f"{path}/{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}")
    with made(2, loading).build_algo() as algorithm:
        again = algorithm.save_to_path(tmp_path / "second")
        shutil.rmtree(path)
        copied = copy.deepcopy(algorithm.learner)
        assert encode(copied.get_state()["rl_module"]) == expected
    with PPO.from_checkpoint(again) as algorithm:
        assert encode(algorithm.learner.get_state()["rl_module"]) == expected


def test_the_spec_of_the_ready_made_network_builds_what_an_algorithm_learns():
    spec = ppo().get_default_rl_module_spec()
    assert spec.module_class is ActorCriticModule
    weights_of = []
    for rl_module_spec in (spec, None):
        with ppo(rl_module_spec=rl_module_spec).build_algo() as algorithm:
            weights_of.append(weights(algorithm))
    assert weights_of[0] == weights_of[1]
    assert DQNConfig().get_default_rl_module_spec().module_class is QModule


def test_a_catalog_is_refused_with_what_to_write():
    with pytest.raises(ConfigError, match=r"module_class=\.\.\. names a network"):
        RLModuleSpec(catalog_class=dict)


@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_learners_counters_and_spaces_are_found_by_rllibs_names(num_env_runners):
    asked = ppo(num_env_runners=num_env_runners).evaluation(evaluation_interval=1)
    with asked.build_algo() as algorithm:
        assert set(algorithm._counters.values()) == {0}
        algorithm.train()
        assert set(algorithm._counters.values()) == {60}
        learners = algorithm.learner_group
        assert learners._learner is algorithm.learner
        answers = learners.foreach_learner(lambda learner, plus: (learner, plus), plus=1)
        assert answers == [(algorithm.learner, 1)]
        zeros = {
            name: np.zeros_like(value)
            for name, value in learners.get_weights()["default_policy"].items()
        }
        learners.set_weights({"default_policy": zeros})
        assert weights(algorithm) == encode(zeros)
        spaces = algorithm.env_runner_group.get_spaces()
        assert spaces[DEFAULT_MODULE_ID] == spaces["__env_single__"]
        assert spaces["__env__"][0].shape == (1, 4)
        if num_env_runners == 0:
            assert algorithm.eval_env_runner is algorithm.eval_env_runner_group.local_env_runner
            assert algorithm.eval_env_runner is not None


def test_the_official_curriculum_example_is_told_what_to_do_instead():
    with ppo().build() as algorithm:
        runner = algorithm.env_runner
        with pytest.raises(AttributeError, match="set_task"):
            runner.config.environment(env_config={"desc": ["SG"]})
        with pytest.raises(EnvError, match="set_task"):
            runner.make_env()
