"""Restoring with other settings: they take effect, the rest goes on, and what cannot be is told."""

import logging

import numpy as np
import pytest

from checkpoints import CheckpointMismatchError, encode, load_weights
from tests.resume_cells import Cell, restored

PPO_CELL = Cell("PPO", "own np_random", 0)
DQN_CELL = Cell("DQN", "CartPole", 0)
SAC_CELL = Cell("SAC", "own np_random", 0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Checkpoints after four iterations."""
    folder = tmp_path_factory.mktemp("runs")
    paths = {}
    for cell in (PPO_CELL, DQN_CELL, SAC_CELL):
        with cell.config().build_algo() as algo:
            for _ in range(4):
                algo.train()
            paths[cell] = algo.save_to_path(folder / cell.algorithm)
    return paths


def known(algo):
    return encode(algo.get_state(not_components=["config", "evaluation"]))


@pytest.fixture(scope="module")
def known_at_save(saved):
    with restored(saved[PPO_CELL], PPO_CELL) as algo:
        return known(algo)


@pytest.mark.parametrize(
    ("settings", "shown", "expected"),
    [
        ({"train_batch_size": 90}, "env_runners/num_env_steps_sampled", 90),
        ({"lr": 1e-5}, "learners/default_policy/default_optimizer_learning_rate", 1e-5),
        ({"entropy_coeff": 0.25}, "learners/default_policy/curr_entropy_coeff", 0.25),
        ({"metrics_num_episodes_for_smoothing": 3}, "num of returns", 3),
        ({"evaluation_interval": 1, "evaluation_duration": 3}, "evaluation/num_episodes", 3),
        ({"min_sample_timesteps_per_iteration": 100}, "num_training_step_calls_per_iteration", 2),
    ],
)
def test_a_setting_takes_effect_and_all_the_rest_is_restored(
    settings, shown, expected, saved,
    known_at_save):  # fmt: skip
    with restored(saved[PPO_CELL], PPO_CELL, **settings) as algo:
        assert all(algo.config[name] == value for name, value in settings.items())
        if shown != "num of returns":  # its window is a part of the state
            assert known(algo) == known_at_save
        result = algo.train()
        assert result["training_iteration"] == 5
        assert result["fault_tolerance/num_episodes_lost"] == 0
        told = {"num of returns": len(result["env_runners/hist_stats/episode_reward"])}
        assert {**result.flat(), **told}[shown] == expected


def test_settings_that_do_not_change_what_is_computed_leave_the_bytes_alone(saved):
    outcomes = []
    for settings in ({}, {"num_gpus": 0, "log_level": "INFO", "sample_timeout_s": 50.0}):
        with restored(saved[PPO_CELL], PPO_CELL, **settings) as algo:
            algo.train()
            outcomes.append(known(algo))
    assert outcomes[0] == outcomes[1]


def test_a_seed_that_is_given_is_that_of_all_randomness_to_come(saved):
    found = {}
    for name, settings in {"own": {}, "same": {"seed": 7}, "other": {"seed": 8}}.items():
        with restored(saved[PPO_CELL], PPO_CELL, **settings) as algo:
            before = algo.get_state()["env_runners"]["slots"]
            assert algo.root_seed == settings.get("seed", 7)
            assert algo.train()["fault_tolerance/num_episodes_lost"] == 0
            found[name] = (encode(before), known(algo))
    assert found["own"] == found["same"]
    assert found["own"][0] == found["other"][0], "running episodes go on"
    assert found["own"][1] != found["other"][1]


def test_another_env_config_reaches_the_envs_and_running_episodes_start_anew(saved, caplog):
    with restored(saved[PPO_CELL], PPO_CELL, env_config={"push": 3.0}) as algo:
        running = [s for s in algo.get_state()["env_runners"]["slots"] if s["env_seed"] is not None]
        steps = sum(len(chunk) for slot in running for chunk in slot["actions"])
        assert running
        group = algo.env_runner_group
        assert group.foreach_env(lambda env: env.unwrapped.push) == [[3.0] * 4]
        told = algo.train()["fault_tolerance"]
    assert told["num_episodes_lost"] == len(running)
    assert told["num_env_steps_lost"] == steps
    assert f"{len(running)} running episode(s)" in caplog.text


@pytest.mark.parametrize(
    ("cell", "settings", "expected"),
    [
        (PPO_CELL, {"env_config": {"continuous": True}},
         r"action_space: the checkpoint has 'Discrete\(2\)', this algorithm 'Box"),
        (PPO_CELL, {"model_config": {"fcnet_hiddens": [9]}},
         r"fcnet_hiddens: the checkpoint has \[8\], this algorithm \[9\]"),
        (PPO_CELL, {"observation_filter": "MeanStdFilter"},
         "it lacks 'connectors'.*depends on: observation_filter='MeanStdFilter', norm"),
        (PPO_CELL, {"exploration_config": {"type": "ParameterNoise"}},
         "it lacks 'exploration'.*depends on: exploration_config={'type': 'ParameterNoise'}"),
        (DQN_CELL, {"replay_buffer_config": {"capacity": 200}},
         "up to 150 steps, this one 200.*previous state back"),
        (DQN_CELL, {"replay_buffer_config": {"type": "EpisodeReplayBuffer"}},
         "a PrioritizedReplayBuffer, this one a ReplayBuffer"),
        (DQN_CELL, {"replay_buffer_config": {"alpha": 0.9}}, "alpha=0.6, this one 0.9"),
        (DQN_CELL, {"dueling": False}, "dueling: the checkpoint has True, this algorithm False"),
        (SAC_CELL, {"twin_q": False}, "twin_q: the checkpoint has True, this algorithm False"),
    ],
)  # fmt: skip
def test_what_cannot_be_restored_is_told_with_both_values(cell, settings, expected, saved):
    with pytest.raises(CheckpointMismatchError, match=expected):
        restored(saved[cell], cell, **settings)


def test_another_network_of_the_same_shapes_is_told(saved, caplog):
    same = {"fcnet_hiddens": [8], "fcnet_activation": "tanh", "initializer": "uniform"}
    with caplog.at_level(logging.WARNING):
        restored(saved[PPO_CELL], PPO_CELL, model_config=same).stop()
        restored(saved[SAC_CELL], SAC_CELL, initial_alpha=0.3).stop()
        assert "model_config" not in caplog.text, "first weights are no matter any more"
        other = {**same, "fcnet_activation": "relu"}
        restored(saved[PPO_CELL], PPO_CELL, model_config=other).stop()
    text = "model_config: fcnet_activation: the checkpoint has 'tanh', this algorithm 'relu'"
    assert text in caplog.text


def test_what_has_moved_on_since_the_start_stays_where_it_is(saved):
    with restored(saved[PPO_CELL], PPO_CELL, kl_coeff=0.9) as algo:
        assert algo.get_state()["learner"]["learner"]["kl_coeff"] != 0.9


# ---- parts


def test_weights_alone_begin_a_new_run_with_everything_else_fresh(saved):
    weights = load_weights(saved[PPO_CELL])
    with PPO_CELL.config(seed=8).build_algo() as new:
        new.set_weights({"default_policy": weights})
        by_hand = known(new)
    with PPO_CELL.config(seed=8).build_algo() as algo, PPO_CELL.config(seed=8).build_algo() as new:
        algo.restore_from_path(saved[PPO_CELL], component="learner/rl_module")
        assert known(algo) == by_hand
        state, fresh = algo.get_state(), new.get_state()
        for name in ("counters", "env_runners", "metrics", "callbacks"):
            assert encode(state[name]) == encode(fresh[name]), name
        assert encode(state["learner"]["optimizer"]) == encode(fresh["learner"]["optimizer"])
        assert all(np.array_equal(state["learner"]["rl_module"][name], weights[name])
                   for name in weights)  # fmt: skip
        assert algo.train()["training_iteration"] == 1


def test_weights_go_into_another_algorithm_config_than_the_whole_does(saved):
    settings = {"observation_filter": "MeanStdFilter"}
    with PPO_CELL.config(**settings).build_algo() as algo:
        with pytest.raises(CheckpointMismatchError, match="connectors"):
            algo.restore_from_path(saved[PPO_CELL])
        algo.restore_from_path(saved[PPO_CELL], component="learner/rl_module")
        algo.train()


@pytest.mark.parametrize(
    ("cell", "component"),
    [
        (cell, component)
        for cell, components in {
            PPO_CELL: ["counters", "learner", "learner/optimizer", "learner/learner",
                       "env_runners", "evaluation", "metrics", "callbacks"],
            DQN_CELL: ["learner/target", "replay_buffer"],
        }.items()
        for component in components
    ],
)  # fmt: skip
def test_a_component_alone_changes_nothing_else(cell, component, saved):
    with cell.config(seed=8).build_algo() as algo, restored(saved[cell], cell) as whole:
        before = algo.get_state()
        algo.restore_from_path(saved[cell], component=component)
        assert encode(algo.get_state(component)) == encode(whole.get_state(component))
        rest = {"not_components": component}
        assert encode(algo.get_state(**rest)) == encode(_without(before, component))
        assert encode(before) != encode(algo.get_state()) or component == "evaluation"
        algo.train()


def _without(state, component):
    name, _, inner = component.partition("/")
    if not inner:
        return {key: value for key, value in state.items() if key != name}
    return {**state, name: _without(state[name], inner)}


@pytest.mark.parametrize("component", ["counters", "metrics", "env_runners"])
def test_parts_that_say_nothing_of_a_network_go_into_an_algorithm_with_another_one(
    component, tmp_path
):
    cell = Cell("PPO", "CartPole", 0)
    with cell.config().build_algo() as algo:
        algo.train()
        expected = encode(algo.get_state(component))
        algo.save_to_path(tmp_path / "c")
    with cell.config(model={"fcnet_hiddens": [3]}).build_algo() as algo:
        with pytest.raises(CheckpointMismatchError, match="num_parameters"):
            algo.restore_from_path(tmp_path / "c")
        algo.restore_from_path(tmp_path / "c", component=component)
        assert encode(algo.get_state(component)) == expected
        algo.train()
