"""Training with several agents: what one agent does, exactness, faults, modules, refusals."""

import numpy as np
import pytest

from callbacks.ready_made.recorders import load_episode
from checkpoints import encode
from tests.multi_agent_runs import OneCartPole, gaps
from trainer import (
    DQNConfig,
    EpisodeRecorder,
    MultiAgentEnvRunner,
    MultiRLModuleSpec,
    PGConfig,
    PPOConfig,
    RLModuleSpec,
    SACConfig,
    TD3Config,
)
from trainer.errors import ConfigError, EnvContractError, ModuleError
from trainer.modules import PolicySpec, RLModule
from trainer.testing.multi_agent_envs import MultiAgentPendulum, RockPaperScissors


@pytest.mark.parametrize("make", [PGConfig, DQNConfig])  # PPO: X1 of test_multi_agent_exactness
def test_one_agent_in_a_multi_agent_env_is_a_single_agent(make):
    weights = []
    for env in ("CartPole-v1", OneCartPole):
        config = make().environment(env).env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        config.training(train_batch_size=64).debugging(seed=3)
        config.rl_module(model_config={"fcnet_hiddens": [8]})
        if make is DQNConfig:
            config.training(num_steps_sampled_before_learning_starts=20)
            config.reporting(min_sample_timesteps_per_iteration=64)
        with config.build_algo() as algo:
            for _ in range(3):
                runners = algo.train()["env_runners"]
            stats = algo.episode_statistics.result()["hist_stats"]
            played = [stats["episode_reward"], stats["episode_lengths"]]
            steps = dict(runners["num_agent_steps_sampled_lifetime"])
            weights.append(encode([algo.learner.get_state(), played, steps]))
    assert weights[0] == weights[1]


_MEMORY = {
    "fcnet_hiddens": [8],
    "use_lstm": True,
    "lstm_cell_size": 4,
    "max_seq_len": 3,
    "lstm_use_prev_action": True,
    "lstm_use_prev_reward": True,
}


def test_an_agents_states_follow_from_what_it_saw_itself():
    seen = []
    config = gaps(0, 1).rl_module(model_config={**_MEMORY, "vf_share_layers": True})
    config.env_runners(observation_filter="NoFilter", batch_mode="complete_episodes")
    config.callbacks(on_sample_end=lambda *, samples, **_: seen.extend(samples))
    with config.build_algo() as algo:
        modules = {id_: algo.get_module(id_) for id_ in ("odd", "even")}
        weights = {id_: module.get_state() for id_, module in modules.items()}
        algo.train()
        for id_, module in modules.items():
            module.set_state(weights[id_])
        checked = 0
        for episode in seen:
            for chunk in episode.agent_episodes.values():
                state = modules[chunk.module_id].get_initial_state()
                for step in range(len(chunk)):
                    outputs = chunk.get_extra_model_outputs(indices=step)
                    for name, array in state.items():
                        np.testing.assert_allclose(outputs["state_in"][name], array, atol=1e-6)
                    batch = {
                        "obs": chunk.get_observations(step)[None],
                        "state_in": {name: array[None] for name, array in state.items()},
                        "prev_actions": outputs["prev_actions"][None],
                        "prev_rewards": outputs["prev_rewards"][None],
                    }
                    after = modules[chunk.module_id].forward_inference(batch)["state_out"]
                    state = {name: array[0] for name, array in after.items()}
                    expected = 0.0 if step == 0 else chunk.get_rewards(step - 1)
                    assert outputs["prev_rewards"] == pytest.approx(expected)
                    checked += 1
        assert checked > 40


def test_an_agent_that_waits_while_an_episode_is_cut_still_reads_its_own_last_step():
    seen = []
    config = gaps(0, 1).rl_module(model_config=_MEMORY)
    config.training(train_batch_size=3, minibatch_size=3, num_epochs=1)
    config.callbacks(on_sample_end=lambda *, samples, **_: seen.extend(samples))
    with config.build_algo() as algo:
        for _ in range(12):
            algo.train()
    last = {}
    num_continued = 0
    chunks = [chunk for episode in seen for chunk in episode.agent_episodes.values()]
    for chunk in filter(len, chunks):
        if chunk.t_started > 0:
            action, reward = last[chunk.id_]
            outputs = chunk.get_extra_model_outputs(indices=0)
            assert outputs["prev_actions"].argmax() == action
            assert outputs["prev_actions"].sum() == 1.0
            assert outputs["prev_rewards"] == pytest.approx(reward)
            num_continued += 1
        last[chunk.id_] = chunk.get_actions(-1), chunk.get_rewards(-1)
    assert num_continued > 5


def test_what_each_module_got_is_told():
    with gaps(0, 2).build_algo() as algo:
        for _ in range(3):
            result = algo.train()
        runners = result["env_runners"]
        records = algo.episode_statistics.get_state()["records"]
        assert set(result["learners"]) == {"even", "odd", "__all_modules__"}
        assert set(runners["num_agent_steps_sampled"]) == {"a", 3, "late"}
        assert sum(runners["num_agent_steps_sampled"].values()) == sum(
            runners["num_module_steps_sampled"].values()
        )
        for record in records:
            paid = sum(agent["episode_return"] for agent in record["agents"])
            assert paid == pytest.approx(record["episode_return"])
        evaluated = algo.evaluate()["env_runners"]
        assert set(evaluated["module_episode_return_mean"]) == {"even", "odd"}


def test_a_frozen_module_acts_and_does_not_learn():
    config = gaps(0, 2).multi_agent(policies_to_train=["odd"])
    with config.build_algo() as algo:
        before = encode(algo.learners["even"].get_state()), encode(algo.learners["odd"].get_state())
        algo.train()
        assert encode(algo.learners["even"].get_state()) == before[0]
        assert encode(algo.learners["odd"].get_state()) != before[1]
        assert not algo.is_trained("even")


@pytest.mark.parametrize(
    ("trained", "count_by"),
    [([], "env_steps"), (lambda module_id, batch: False, "agent_steps")],
)
def test_where_no_module_learns_no_steps_are_trained(trained, count_by):
    config = gaps(0, 2).multi_agent(policies_to_train=trained, count_steps_by=count_by)
    config.reporting(min_train_timesteps_per_iteration=50)  # nothing to wait for
    with config.build_algo() as algo:
        result = algo.train()
        assert result["num_training_step_calls_per_iteration"] == 1, "else it would never end"
        assert result["num_env_steps_trained"] == 0
        together = result["learners/__all_modules__"]
        assert {name: value for name, value in together.items() if value} == {}
        algo.set_policies_to_train(["odd"])
        result = algo.train()
    assert result["num_training_step_calls_per_iteration"] > 1
    assert result["num_env_steps_trained"] == result["env_runners/num_env_steps_sampled"]


def test_one_module_of_several_is_restored_alone(tmp_path):
    with gaps(0, 2).build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "c")
        saved = encode(algo.learners["odd"].get_state())
        module = RLModule.from_checkpoint(tmp_path / "c" / "learner" / "odd" / "rl_module")
        assert encode(module.get_state()) == encode(algo.get_weights(["odd"])["odd"])
        assert set(algo.get_weights()) == {"odd", "even"}
        with pytest.raises(ModuleError, match="asked for 'odds', and there are 'even', 'odd'"):
            algo.get_weights(["odds"])
        with pytest.raises(TypeError, match="expected a list"):
            algo.get_weights("odd")
        algo.train()
        other = encode(algo.learners["even"].get_state())
        algo.restore_from_path(tmp_path / "c", component="learner/odd")
        assert encode(algo.learners["odd"].get_state()) == saved
        assert encode(algo.learners["even"].get_state()) == other


def test_agents_share_a_module_by_default_and_a_random_one_never_learns():
    config = PPOConfig().environment(RockPaperScissors).env_runners(num_env_runners=0)
    config.training(train_batch_size=30, minibatch_size=15, num_epochs=1).debugging(seed=3)
    with config.copy().build_algo() as algo:
        result = algo.train()
        assert result["env_runners"]["num_module_steps_sampled"] == {"default_policy": 60}
    config.multi_agent(
        policies={"main": None, "random": PolicySpec("random")},
        policy_mapping_fn={"player_0": "main", "player_1": "random"},
    )
    with config.build_algo() as algo:
        learnt = algo.train()["learners"]
        assert learnt["random"] == {
            "is_trained": False,
            "num_updates_lifetime": 0,
            "num_module_steps_trained": 0,
            "num_module_steps_trained_lifetime": 0,
        }
        assert learnt["main"]["num_module_steps_trained"] > 0
        action = algo.compute_single_action(np.eye(4, dtype=np.float32)[3], policy_id="main")
        assert action in range(3)
        with pytest.raises(ConfigError, match="there is no such module"):
            algo.compute_single_action(np.eye(4, dtype=np.float32)[3], policy_id="none")


def test_evaluation_plays_by_its_own_mapping():
    config = PPOConfig().environment(RockPaperScissors).env_runners(num_env_runners=0)
    config.training(train_batch_size=30, minibatch_size=15, num_epochs=1).debugging(seed=3)
    config.multi_agent(policies={"a", "b"}, policy_mapping_fn={"player_0": "a", "player_1": "b"})
    config.evaluation(
        evaluation_interval=1,
        evaluation_duration=3,
        evaluation_config={"policy_mapping_fn": {"player_0": "b", "player_1": "a"}},
    )
    with config.build_algo() as algo:
        result = algo.train()
        evaluated = result["evaluation"]["env_runners"]
        for agent, module in (("player_0", "b"), ("player_1", "a")):
            by_agent = evaluated["agent_episode_return_mean"][agent]
            assert evaluated["module_episode_return_mean"][module] == by_agent
        assert evaluated["num_episodes"] == 3


def test_callbacks_see_the_episode_of_all_agents(tmp_path):
    seen = []

    class Recorder(EpisodeRecorder):
        def on_episode_end(self, *, episode, policies=None, **rest):
            env = rest["env"].envs[rest["env_index"]]
            seen.append((sorted(policies), episode.get_agent_returns(), env.possible_agents))
            super().on_episode_end(episode=episode, **rest)

        def on_create_policy(self, *, policy_id, **_):
            seen.append(policy_id)

    config = gaps(0, 1).callbacks(lambda: Recorder(tmp_path))
    with config.build_algo() as algo:
        algo.train()
    assert seen[:2] == ["even", "odd"]
    policies, returns, agents = seen[2]
    assert policies == ["even", "odd"]
    assert set(returns) <= set(agents)
    arrays = load_episode(sorted(tmp_path.glob("*.npz"))[0])
    assert len(arrays["a/rewards"]) == len(arrays["a/observations"]) - 1


@pytest.mark.parametrize("make", [SACConfig, TD3Config])
def test_algorithms_with_critics_learn_from_a_buffer_per_module(make, tmp_path):
    def config():
        made = make().environment(MultiAgentPendulum, env_config={"num_agents": 2})
        made.multi_agent(policies=["p", "q"], policy_mapping_fn={0: "p", 1: "q"})
        made.training(train_batch_size=16, num_steps_sampled_before_learning_starts=20)
        made.rl_module(model_config={"fcnet_hiddens": [8]})
        return made.reporting(min_sample_timesteps_per_iteration=30).debugging(seed=3)

    with config().build_algo() as algo:
        for _ in range(2):
            algo.train()
        algo.save_to_path(tmp_path / "c")
        assert [len(buffer) for buffer in algo.replay_buffers.values()] == [60, 60]
        algo.train()
        undisturbed = encode(algo.get_state(["learner", "replay_buffer"]))
    with config().build_algo() as algo:
        algo.restore_from_path(tmp_path / "c")
        algo.train()
        assert encode(algo.get_state(["learner", "replay_buffer"])) == undisturbed


def test_several_modules_for_a_single_agent_are_refused():
    single = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    with pytest.raises(ConfigError, match="has a single agent"):
        single.multi_agent(policies={"p", "q"}).build_algo()


def test_a_single_agent_is_trained_under_another_id():
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    config.multi_agent(policies={"p"}, policy_mapping_fn={"default_agent": "p"})
    config.training(train_batch_size=40, minibatch_size=20, num_epochs=1)
    with config.build_algo() as algo:
        result = algo.train()
        assert set(result["learners"]) == {"p", "__all_modules__"}
        assert result["env_runners"]["num_module_steps_sampled"] == {"p": 40}


def test_a_runner_of_the_users_own_plays_with_several_agents():
    runner = MultiAgentEnvRunner(config=gaps(0, 2))
    episodes = runner.sample(num_timesteps=20)
    assert sum(map(len, episodes)) == 20
    assert {type(one).__name__ for one in episodes} == {"MultiAgentEpisode"}
    assert runner.agent_ids == (3, "a", "late")
    runner.stop()
    with pytest.raises(EnvContractError, match="possible_agents"):
        MultiAgentEnvRunner(config=PPOConfig().environment("CartPole-v1"))


def test_a_spec_of_modules_that_are_no_policies_is_refused():
    """RLlib's scripts name modules there alone; nothing may be ignored without a word."""
    spec = MultiRLModuleSpec(rl_module_specs={"p": RLModuleSpec(), "odd": RLModuleSpec()})
    with pytest.raises(ConfigError, match=r"there is no policy 'p'.*policies=\['odd', 'p'\]"):
        gaps(0, 1).rl_module(rl_module_spec=spec).build_algo()
