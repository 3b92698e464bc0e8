"""Evaluation: exactly what was asked for, the same on any runner, and no trace in training."""

import numpy as np
import pytest
from gymnasium import spaces

from callbacks import RLlibCallback
from checkpoints import encode
from tests.small_runs import small_ppo
from trainer import PPO, ConfigError
from trainer.metrics import comparable
from trainer.testing.envs import CountdownEnv, FailingEnv

pytestmark = pytest.mark.process


def config(env=CountdownEnv, **settings):
    return small_ppo(env=env, num_slots=2, batch=40, **{"evaluation_duration": 5, **settings})


def numbers(metrics):
    """What an evaluation found out, without times and repairs."""
    return comparable({"evaluation": metrics})["evaluation"]


def without_evaluation(result):
    return {k: v for k, v in comparable(result).items() if k not in {"evaluation", "config"}}


@pytest.mark.parametrize(("num_runners", "duration"), [(0, 5), (1, 1), (2, 1), (3, 5)])
def test_exactly_the_asked_number_of_episodes_is_played(num_runners, duration):
    settings = {"evaluation_num_env_runners": num_runners, "evaluation_duration": duration}
    with config(**settings).build_algo() as algo:
        metrics = algo.evaluate()
    runners = metrics["env_runners"]
    assert runners["num_episodes"] == duration
    lengths = runners["hist_stats"]["episode_lengths"]
    assert len(lengths) == duration
    assert runners["num_env_steps_sampled"] == sum(lengths), "nothing is played and thrown away"
    assert runners["episode_len_mean"] == pytest.approx(sum(lengths) / duration)


@pytest.mark.parametrize(
    ("duration", "num_runners", "expected"), [(200, 3, 201), (200, 0, 200), (7, 2, 8), (1, 3, 3)]
)
def test_time_steps_are_rounded_up_to_a_multiple_of_the_runners(duration, num_runners, expected):
    settings = {
        "evaluation_duration": duration,
        "evaluation_duration_unit": "timesteps",
        "evaluation_num_env_runners": num_runners,
    }
    with config(**settings).build_algo() as algo:
        metrics = algo.evaluate()["env_runners"]
    assert metrics["num_env_steps_sampled"] == expected
    assert sum(metrics["hist_stats"]["episode_lengths"]) <= expected


def test_the_numbers_do_not_depend_on_who_plays_time_steps():
    def log_length(episode, metrics_logger):
        metrics_logger.log_value("logged_length", episode.t)

    outcomes = []
    for num_runners in (0, 1, 2):
        settings = {
            "evaluation_num_env_runners": num_runners,
            "evaluation_duration_unit": "timesteps",
            "evaluation_duration": 6,
            # Time steps are shared out over all sub-envs: as many in each case.
            "evaluation_config": {"num_envs_per_env_runner": 1 if num_runners == 2 else 2},
        }
        with config(**settings).callbacks(on_episode_end=log_length).build_algo() as algo:
            algo.train()
            outcomes.append(encode([numbers(algo.evaluate()) for _ in range(2)]))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_every_iteration_plays_other_episodes_and_a_seed_repeats_them():
    def played(**settings):
        with config(**settings).build_algo() as algo:
            first = algo.evaluate()["env_runners/hist_stats"]
            again = algo.evaluate()["env_runners/hist_stats"]
            assert first == again, "the same weights of the same iteration play the same episodes"
            algo.train()
            return [first, algo.evaluate()["env_runners/hist_stats"]]

    first, second = played()
    assert first != second
    seeded, again = played(evaluation_seed=3)
    assert seeded["episode_lengths"] == again["episode_lengths"] != first["episode_lengths"]
    assert played(evaluation_seed=3, seed=77)[0]["episode_lengths"] == seeded["episode_lengths"]
    assert played(evaluation_seed=4)[0] != seeded
    assert played(evaluation_config={"seed": 3}) == [seeded, again], "as RLlib spells it"
    own = config().read_value("seed")
    assert played(evaluation_config={"seed": own}) == [first, second], "nothing is different"


def test_a_restored_run_evaluates_with_the_seed_of_its_evaluation_config(tmp_path):
    with config(evaluation_config={"seed": 3}).build_algo() as algo:
        algo.save_to_path(tmp_path / "saved")
        played = numbers(algo.evaluate())
    with PPO.from_checkpoint(tmp_path / "saved", env=CountdownEnv) as restored:
        assert numbers(restored.evaluate()) == played
        restored.adopt_root_seed(99)
        lengths = restored.evaluate()["env_runners/hist_stats"]["episode_lengths"]
    assert lengths == played["env_runners"]["hist_stats"]["episode_lengths"]


def test_the_interval_says_when_and_the_last_result_stays():
    with config(evaluation_interval=2).build_algo() as algo:
        results = [algo.train() for _ in range(5)]
    shown = [r.get("evaluation/evaluated_at_iteration") for r in results]
    assert shown == [None, 2, 2, 4, 4]
    assert [r.get("evaluation/weights_version") for r in results] == [None, 2, 2, 4, 4]
    assert results[1]["evaluation"] == results[2]["evaluation"] != results[3]["evaluation"]
    assert "evaluation_iteration" in results[1]["timers"]
    assert "evaluation_iteration" not in results[2]["timers"]


def test_evaluation_config_changes_what_evaluation_does_and_nothing_else():
    settings = {
        "evaluation_config": {"explore": False, "env_config": {"min_length": 7, "max_length": 7}},
        "evaluation_interval": 1,
    }
    seen = {True: set(), False: set()}

    def note(episode, env_runner):
        inputs = episode.get_extra_model_outputs("action_dist_inputs", -1)
        is_likeliest = int(episode.get_actions(-1)) == int(inputs[1] > inputs[0])
        is_evaluation = env_runner.config.in_evaluation
        seen[is_evaluation].add((env_runner.config.explore, is_likeliest))

    with config(**settings).callbacks(on_episode_step=note).build_algo() as algo:
        result = algo.train()
    assert seen[True] == {(False, True)}
    assert seen[False] == {(True, True), (True, False)}
    assert result["evaluation/env_runners/episode_len_mean"] == 7.0
    assert result["env_runners/episode_len_max"] > 7


def test_its_metrics_are_reported_as_the_settings_of_reporting_say():
    def store(episode):
        episode.custom_metrics["length"] = episode.t

    made = config(keep_per_episode_custom_metrics=True).callbacks(on_episode_end=store)
    made.evaluation(evaluation_config={"metrics_num_episodes_for_smoothing": 2})
    with made.build_algo() as algo:
        runners = algo.evaluate()["env_runners"]
    lengths = runners["hist_stats/episode_lengths"]
    assert runners["custom_metrics"] == {"length": lengths[-2:]}
    assert runners["episode_len_mean"] == sum(lengths[-2:]) / 2
    assert len(lengths) == runners["num_episodes"] == 5


@pytest.mark.parametrize("num_runners", [0, 2])
def test_a_manual_evaluation_changes_nothing_of_training(num_runners):
    outcomes = []
    for should_evaluate in (False, True):
        with config(evaluation_num_env_runners=num_runners).build_algo() as algo:
            results = []
            for _ in range(3):
                if should_evaluate:
                    algo.evaluate()
                results.append(without_evaluation(algo.train()))
            state = algo.get_state(not_components=["evaluation", "config"])
            outcomes.append(encode([results, state]))
    assert outcomes[0] == outcomes[1]


def test_what_is_done_to_an_evaluations_result_stays_there():
    with config().build_algo() as algo:
        metrics = algo.evaluate()
        expected = numbers(metrics)
        metrics["env_runners"]["num_episodes"] = -1
        metrics["env_runners"]["hist_stats"]["episode_lengths"].append(-1)
        result = algo.train()
        assert encode(numbers(result["evaluation"])) != encode(expected)
        result["evaluation"]["env_runners"]["hist_stats"]["episode_lengths"].append(-1)
        assert algo.train()["evaluation/env_runners/num_episodes"] == 5


def test_a_killed_evaluation_runner_makes_no_difference(tmp_path):
    armed = tmp_path / "armed"
    settings = {
        "env": FailingEnv,
        "evaluation_num_env_runners": 2,
        "evaluation_interval": 1,
        "evaluation_config": {
            "env_config": {"where": "step", "how": "kill", "armed_file": str(armed)}
        },
    }
    outcomes = []
    for should_kill in (False, True):
        with config(**settings).build_algo() as algo:
            results = []
            for _ in range(2):
                if should_kill:
                    armed.touch()
                results.append({**comparable(algo.train()), "config": None})
                assert not armed.exists()
            restarts = algo.train()["evaluation/num_remote_worker_restarts"]
            outcomes.append(encode([results, {**algo.get_state(), "config": None}]))
        assert restarts == (2 if should_kill else 0)
    assert outcomes[0] == outcomes[1]


def test_the_events_of_an_evaluation_add_to_its_result_and_to_the_algorithms():
    class Noting(RLlibCallback):
        def on_evaluate_start(self, *, metrics_logger, **kwargs):
            metrics_logger.log_value("evaluations", 1, reduce="sum")

        def on_evaluate_end(self, *, evaluation_metrics, **kwargs):
            evaluation_metrics["mine"] = evaluation_metrics["weights_version"] + 41

        def on_episode_end(self, *, env_runner, metrics_logger, **kwargs):
            metrics_logger.log_value("is_evaluation", env_runner.config.in_evaluation)

    settings = {"evaluation_interval": 1, "evaluation_num_env_runners": 2}
    with config(**settings).callbacks(Noting).build_algo() as algo:
        result = algo.train()
    assert result["evaluation/mine"] == 42
    assert result["evaluations"] == 1
    assert result["evaluation/env_runners/is_evaluation"] == 1.0
    assert result["env_runners/is_evaluation"] == 0.0


def test_a_lost_runners_episodes_are_played_by_the_others():
    settings = {
        "evaluation_num_env_runners": 2,
        "evaluation_config": {"env_config": {"where": "reset", "worker_index": 2}},
        "restart_failed_env_runners": False,
        "ignore_env_runner_failures": True,
    }
    with config(FailingEnv, **settings).build_algo() as algo:
        metrics = algo.evaluate()
        with config(FailingEnv).build_algo() as undisturbed:
            assert encode(numbers(metrics)) == encode(numbers(undisturbed.evaluate()))
        assert metrics["num_healthy_workers"] == 1


@pytest.mark.parametrize("num_runners", [0, 1])
@pytest.mark.parametrize(
    ("env", "kind", "theirs", "ours"),
    [
        ("Acrobot-v1", "observation_space", r"Box\(\[", r"Box\(0.0, 1.0, \(2,\), float32\)"),
        ("MountainCar-v0", "action_space", r"Discrete\(3\)", r"Discrete\(2\)"),
    ],
)
def test_an_env_with_other_spaces_is_told_with_both(num_runners, env, kind, theirs, ours):
    settings = {"evaluation_num_env_runners": num_runners, "evaluation_config": {"env": env}}
    expected = f"{env}' has {kind}={theirs}.*'CountdownEnv' has {kind}={ours}"
    with (
        config(**settings).build_algo() as algo,
        pytest.raises(ConfigError, match=expected),
    ):
        algo.evaluate()


def test_an_env_with_other_bounds_is_welcome():
    class OtherBounds(CountdownEnv):
        def __init__(self, env_config):
            super().__init__(env_config)
            self.observation_space = spaces.Box(-9.0, 9.0, (2,), np.float32)

    with config(evaluation_config={"env": OtherBounds}).build_algo() as algo:
        assert algo.evaluate()["env_runners/num_episodes"] == 5
