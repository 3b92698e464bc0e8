"""What users' functions and callbacks log in runners is reported once, despite later deaths."""

import pytest

from tests.small_runs import kill, small_ppo
from trainer import PPO


def config(num_env_runners, **settings):
    return small_ppo(num_env_runners, num_envs_per_env_runner=2, batch=40, **settings)


def log_index(env_runner):
    env_runner.metrics.log_value("index", env_runner.worker_index, reduce=None)
    env_runner.metrics.log_value("calls", 1, reduce="sum")


@pytest.mark.process
@pytest.mark.parametrize("should_kill", [False, True])
def test_what_a_function_logs_survives_its_runner(should_kill):
    with config(2).build_algo() as algo:
        algo.env_runner_group.foreach_env_runner(log_index)
        assert algo.metrics.peek("env_runners/index") == [1, 2]
        if should_kill:
            kill(algo.env_runner_group, 1)
            kill(algo.env_runner_group, 2)
        first = algo.train()
        algo.env_runner_group.foreach_env_runner(log_index, remote_worker_ids=[2])
        second = algo.train()
    assert first["env_runners/index"] == [1, 2]
    assert second["env_runners/index"] == [2]
    assert [first["env_runners/calls"], second["env_runners/calls"]] == [2, 3]
    restarts = first["fault_tolerance/num_remote_worker_restarts"]
    assert restarts == (2 if should_kill else 0)


@pytest.mark.parametrize("event", ["on_algorithm_init", "on_train_result"])
def test_what_a_function_logs_inside_an_event_is_in_the_same_result(event):
    def ask(algorithm, **_):
        algorithm.env_runner_group.foreach_env_runner(log_index)

    def log_env(env):
        return float(env.unwrapped.min_length)

    with config(0).callbacks(**{event: ask}).build_algo() as algo:
        result = algo.train()
        assert algo.env_runner_group.foreach_env(log_env) == [[3.0, 3.0]]
    assert result["env_runners/index"] == [0]


@pytest.mark.process
def test_what_is_logged_before_a_function_raises_did_not_happen_there():
    def log_and_raise(env_runner):
        log_index(env_runner)
        if env_runner.worker_index == 2:
            raise ZeroDivisionError

    with config(2).build_algo() as algo:
        with pytest.raises(ZeroDivisionError):
            algo.env_runner_group.foreach_env_runner(log_and_raise)
        result = algo.train()
    assert result["env_runners/index"] == [1]


def test_what_is_logged_in_evaluation_runners_is_of_the_next_evaluation(tmp_path):
    with config(0, evaluation_interval=2, evaluation_duration=2).build_algo() as algo:
        group = algo.eval_env_runner_group
        assert group is not None
        group.foreach_env_runner(log_index)
        first = algo.train()
        assert "evaluation" not in first
        assert "index" not in first["env_runners"]
        algo.save_to_path(tmp_path / "waiting")
        second, third, fourth = (algo.train() for _ in range(3))
    assert second["evaluation/env_runners/index"] == [0]
    assert third["evaluation/env_runners/index"] == [0]  # the last evaluation stays
    assert "index" not in fourth["evaluation/env_runners"]
    with PPO.from_checkpoint(tmp_path / "waiting", allow_code=True) as restored:
        assert restored.train()["evaluation/env_runners/index"] == [0]


def test_functions_of_on_evaluate_start_are_of_this_evaluation():
    def ask(algorithm):
        algorithm.eval_env_runner_group.foreach_env_runner(log_index)

    algo_config = config(0, evaluation_duration=2).callbacks(on_evaluate_start=ask)
    with algo_config.build_algo() as algo:
        assert [algo.evaluate()["env_runners/calls"] for _ in range(2)] == [1, 1]


def play_episode(env_runner):
    """Whole episodes end the running ones; the metrics of all events are reported."""
    return len(env_runner.sample(num_episodes=2))


def play_steps(env_runner):
    return [episode.t for episode in env_runner.sample(num_timesteps=4)]


@pytest.mark.process
def test_what_a_function_played_is_where_its_successor_goes_on():
    """A killed runner and a living one sample the same after `sample(num_episodes=…)`."""

    def log_step(metrics_logger):
        metrics_logger.log_value("steps", 1, reduce="sum")

    outcomes = []
    for should_kill in (False, True):
        with config(1).callbacks(on_episode_step=log_step).build_algo() as algo:
            group = algo.env_runner_group
            algo.train()
            seen = [group.foreach_env_runner(play_steps), group.foreach_env_runner(play_episode)]
            for _ in range(2):
                if should_kill:
                    kill(group, 1)
                seen.append(group.foreach_env_runner(play_steps))
            result = algo.train()
        outcomes.append((seen, result["env_runners/steps"], result["episode_reward_mean"]))
    assert outcomes[0] == outcomes[1]


def test_an_episode_that_a_failed_function_ended_runs_on():
    """What `sample(num_episodes=…)` remembered outlived the failure of the function around it."""

    def play_and_raise(env_runner):
        env_runner.sample(num_episodes=1)
        raise ZeroDivisionError

    long = {"env_config": {"min_length": 900, "max_length": 900}}
    with config(0, **long).build_algo() as algo:
        algo.train()
        with pytest.raises(ZeroDivisionError):
            algo.env_runner_group.foreach_env_runner(play_and_raise)
        assert algo.env_runner_group.foreach_env_runner(play_steps) == [[22, 22]]
