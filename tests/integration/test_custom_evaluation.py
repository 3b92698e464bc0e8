"""Evaluation by a user's function: what it is given, what becomes of what it returns."""

import os
import signal

import pytest

from checkpoints import encode
from tests.small_runs import small_ppo
from trainer import (
    ConfigError,
    EvaluationError,
    PPOConfig,
    TrainerError,
    collect_episodes,
    summarize_episodes,
)
from trainer.metrics import comparable
from trainer.testing.envs import CountdownEnv

pytestmark = pytest.mark.process


def config(function, env=CountdownEnv, **settings):
    made = small_ppo(env=env, num_slots=2, batch=40)
    made.evaluation(evaluation_interval=1, custom_evaluation_function=function)
    return made.update_from_dict(settings)


def without_arguments():
    return {"a": 1}


def play_three_rounds(algorithm, workers):
    for _ in range(3):
        workers.foreach_worker(lambda worker: worker.sample(num_episodes=2))
    return {**summarize_episodes(collect_episodes(workers)), "foo": algorithm.training_iteration}


@pytest.mark.parametrize("num_runners", [0, 2])
def test_what_it_returns_is_in_the_result(num_runners):
    made = config(play_three_rounds, evaluation_num_env_runners=num_runners)
    with made.build_algo() as algo:
        result = algo.train()
        by_hand = algo.evaluate()
    evaluation = result["evaluation"]
    assert evaluation["foo"] == 1
    assert evaluation["episodes_this_iter"] == evaluation["num_episodes"] == 6 * max(1, num_runners)
    lengths = evaluation["hist_stats"]["episode_lengths"]
    assert evaluation["episode_reward_mean"] == pytest.approx(sum(lengths) / len(lengths))
    assert evaluation["episode_reward_max"] == max(lengths)
    assert evaluation["evaluated_at_iteration"] == evaluation["weights_version"] == 1
    assert comparable(by_hand) == comparable(evaluation), "the same moment, the same episodes"


def test_episodes_that_nobody_collects_are_reported_as_usual():
    def evaluate(algorithm, workers):
        episodes = workers.foreach_env_runner(lambda runner: runner.sample(num_episodes=3))
        num_steps = sum(len(episode) for of_runner in episodes for episode in of_runner)
        return {"bar": {"deep": 1}}, num_steps, num_steps

    with config(evaluate, evaluation_num_env_runners=2).build_algo() as algo:
        evaluation = algo.train()["evaluation"]
    runners = evaluation["env_runners"]
    assert evaluation["num_episodes"] == runners["num_episodes"] == 6
    assert evaluation["num_env_steps_sampled"] == runners["num_env_steps_sampled"]
    assert runners["num_env_steps_sampled"] == sum(runners["hist_stats"]["episode_lengths"])
    assert evaluation["bar/deep"] == 1


def test_metrics_can_be_taken_with_the_episodes_and_added_up_by_hand():
    def log(metrics_logger, episode):
        metrics_logger.log_value("my_length", len(episode))

    def evaluate(algorithm, workers):
        answers = workers.foreach_env_runner(
            lambda runner: (runner.sample(num_episodes=2), runner.get_metrics())
        )
        key = ("evaluation", "env_runners")
        algorithm.metrics.aggregate([metrics for _, metrics in answers], key=key)
        results = algorithm.metrics.peek(key)
        lengths = [len(episode) for episodes, _ in answers for episode in episodes]
        assert results["episode_return_mean"] == results["my_length"]
        assert results["my_length"] == pytest.approx(sum(lengths) / len(lengths))
        return results, sum(lengths), sum(lengths)

    made = config(evaluate, evaluation_num_env_runners=2).callbacks(on_episode_end=log)
    with made.build_algo() as algo:
        evaluation = algo.train()["evaluation"]
    assert evaluation["my_length"] == evaluation["env_runners/my_length"]
    assert evaluation["env_runners/num_episodes"] == 4
    assert evaluation["env_runners/episode_return_mean"] == evaluation["my_length"]


@pytest.mark.parametrize("collects", [False, True])
def test_what_callbacks_log_is_reported_whoever_takes_the_episodes(collects):
    def evaluate(algorithm, workers):
        workers.foreach_env_runner(lambda runner: runner.sample(num_episodes=2))
        return {"collected": len(collect_episodes(workers)) if collects else 0}

    def log(metrics_logger, env_runner):
        if env_runner.config.in_evaluation:
            metrics_logger.log_value("mine", 1, reduce="sum", clear_on_reduce=True)

    with config(evaluate).callbacks(on_episode_end=log).build_algo() as algo:
        evaluations = [algo.train()["evaluation"] for _ in range(2)]
    for evaluation in evaluations:
        assert evaluation["collected"] == (2 if collects else 0)
        assert evaluation["env_runners/mine"] == 2


def test_the_runner_of_the_main_process_can_be_called_itself():
    def evaluate(algorithm, workers):
        runner = workers.local_worker()
        episodes = runner.sample(num_episodes=3)
        lengths = [record.length for record in collect_episodes(workers)]
        assert lengths == [len(episode) for episode in episodes]
        return {"lengths": lengths, "version": runner.weights_version}

    def through_the_group(algorithm, workers):
        episodes = workers.foreach_env_runner("sample", kwargs={"num_episodes": 3})[0]
        return {"lengths": [len(episode) for episode in episodes], "version": 0}

    with config(evaluate).build_algo() as algo, config(through_the_group).build_algo() as other:
        for iteration in (1, 2):
            found, expected = algo.train()["evaluation"], other.train()["evaluation"]
            assert found["version"] == found["weights_version"] == iteration
            assert found["lengths"] == expected["lengths"]


def test_what_the_runner_of_the_main_process_has_played_itself_is_counted():
    def evaluate(algorithm, workers):
        return {"played": len(workers.local_env_runner.sample(num_episodes=3))}

    with config(evaluate).build_algo() as algo:
        evaluation = algo.train()["evaluation"]
    assert evaluation["num_episodes"] == evaluation["env_runners/num_episodes"] == 3


def test_a_killed_runner_plays_the_same_episodes_again():
    def outcome(*, is_killed):
        def evaluate(algorithm, workers):
            def kill_yourself(runner):
                if not runner.env.contexts[0].recreated_worker and is_killed:
                    os.kill(os.getpid(), signal.SIGKILL)

            workers.foreach_worker(lambda worker: len(worker.sample(num_timesteps=11)))
            workers.foreach_worker(kill_yourself)
            workers.foreach_worker(lambda worker: len(worker.sample(num_timesteps=11)))
            return summarize_episodes(collect_episodes(workers))

        made = config(evaluate, evaluation_num_env_runners=2)
        with made.build_algo() as algo:
            found = [algo.train()["evaluation"] for _ in range(2)]
            assert algo.eval_env_runner_group.num_restarts == 2 * is_killed
        return encode([comparable({"evaluation": metrics}) for metrics in found])

    assert outcome(is_killed=True) == outcome(is_killed=False)


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (None, "returned None, a NoneType"),
        ({}, "returned {}, a dict"),
        (3.5, "returned 3.5, a float"),
        ({"a": object()}, "something that no checkpoint can hold"),
        (({"a": 1}, 3), "a tuple of 2"),
        (({"a": 1}, None, 3), "returned None as num_env_steps_sampled"),
        (({"a": 1}, 2, -1), "returned -1 as num_agent_steps_sampled"),
    ],
)
def test_a_wrong_answer_is_told_and_the_iteration_undone(returned, told):
    with config(lambda algorithm, workers: returned).build_algo() as algo:
        with pytest.raises(EvaluationError, match=told):
            algo.train()
        assert algo.training_iteration == 0


def test_an_evaluation_that_calls_for_another_one_is_told():
    with config(lambda algorithm, workers: algorithm.evaluate()).build_algo() as algo:
        with pytest.raises(TrainerError, match="would call itself for ever"):
            algo.train()
        assert algo.training_iteration == 0


def test_what_it_raises_comes_out_as_it_is():
    def evaluate(algorithm, workers):
        raise KeyError("mine")

    with config(evaluate).build_algo() as algo, pytest.raises(KeyError, match="mine"):
        algo.train()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"custom_evaluation_function": without_arguments}, r"it takes \(\),"),
        ({"custom_eval_function": lambda a, b, c: {}}, r"it takes \(a, b, c\)"),
        ({"custom_evaluation_function": "evaluate"}, "callable"),
        ({"evaluation_parallel_to_training": True}, "evaluation_num_env_runners=1 or more"),
        ({"enable_async_evaluation": True}, "evaluation_num_env_runners=1 or more"),
        ({"evaluation_duration": "auto"}, "evaluation_parallel_to_training=True"),
        ({"evaluation_duration": "forever"}, "auto"),
        ({"evaluation_duration": 0}, "evaluation_duration"),
        (
            {
                "custom_eval_function": play_three_rounds,
                "enable_async_evaluation": True,
                "evaluation_num_workers": 1,
            },
            "runs in the main process",
        ),
        (
            {"evaluation_auto_duration_min_env_steps_per_sample": 5000},
            "evaluation_auto_duration_max_env_steps_per_sample=2000",
        ),
    ],
)
def test_settings_that_do_not_fit_are_told(settings, told):
    with pytest.raises(ConfigError, match=told):
        PPOConfig().environment(CountdownEnv).update_from_dict(settings).validate()
