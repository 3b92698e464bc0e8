"""The learning campaign: what is measured in a run, which runs are made, what the table says."""

import dataclasses
import threading

import gymnasium
import numpy as np
import pytest

from benchmarks.quality import __main__ as campaign
from benchmarks.quality import runs
from benchmarks.quality.ours import config_of, falling, learn
from benchmarks.quality.published import CLEANRL
from benchmarks.quality.runs import Recorded, RecordedGame, Recorder, Run, path_of
from benchmarks.quality.statistics import (
    interquartile_mean,
    interval,
    probability_of_improvement,
)
from benchmarks.quality.table import is_below, table, time_ratio
from benchmarks.quality.tasks import BY_NAME, DEFAULTS, TASKS
from trainer.testing import MultiAgentCartPole
from trainer.testing.envs import CountdownEnv

CARTPOLE = BY_NAME["PPO CartPole-v1"]


# ---- statistics


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0], 3.0), ([0.0, 1.0, 2.0, 99.0], 1.5), ([5.0, 1.0, 2.0, 3.0, -70.0], 2.0)],
)
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(values, expected):
    assert interquartile_mean(values) == expected


def test_the_interval_is_that_of_the_mean_of_normal_numbers():
    sample = np.random.default_rng(1).normal(10.0, 2.0, 100)
    low, high = interval(lambda values: float(values.mean()), sample)
    error = sample.std() / 10.0
    assert low == pytest.approx(sample.mean() - 1.96 * error, abs=0.08)
    assert high == pytest.approx(sample.mean() + 1.96 * error, abs=0.08)


def test_the_probability_of_improvement_counts_pairs():
    assert probability_of_improvement([1.0, 3.0], [0.0, 2.0]) == 0.75
    assert probability_of_improvement([1.0], [1.0]) == 0.5


# ---- a run


def test_a_curve_is_the_mean_of_the_last_episodes():
    recorder = Recorder()
    for number in range(40):  # ends at 10, 20, …, 400, with returns 0, 1, …, 39
        recorder.ends.append(10 * (number + 1))
        recorder.returns.append(float(number))
    curve = recorder.curve(400)
    assert len(curve) == 100
    assert curve[:5] == [0.0, 0.0, 0.0, 0.0, 0.5]  # the second episode ends at 20 steps
    assert curve[49] == np.mean(range(20))
    assert curve[99] == np.mean(range(20, 40))
    assert recorder.steps_to(29.5) == 400
    assert recorder.steps_to(9.5) == 200
    assert recorder.steps_to(30.0) is None


def test_returns_are_those_that_the_env_pays():
    recorder = Recorder()
    env = Recorded(gymnasium.wrappers.TimeLimit(CountdownEnv({"min_length": 9}), 4), recorder)
    paid = 0.0
    for _ in range(2):
        env.reset(seed=0)
        is_over = False
        while not is_over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            is_over = terminated or truncated
            paid += reward
    assert recorder.ends == [4, 8]
    assert sum(recorder.returns) == paid


def test_a_game_is_over_when_all_agents_are_and_pays_the_sum():
    recorder = Recorder()
    game = RecordedGame(MultiAgentCartPole({"num_agents": 2}), recorder)
    paid, lengths = 0.0, []
    for seed in range(3):
        shown, _ = game.reset(seed=seed)
        left, length = {0, 1}, 0
        while left:  # they end one after the other
            shown, rewards, terminateds, _, _ = game.step(dict.fromkeys(shown, 0))
            paid, length = paid + sum(rewards.values()), length + 1
            left -= {agent for agent, has_ended in terminateds.items() if has_ended}
        lengths.append(length)
    assert recorder.ends == np.cumsum(lengths).tolist()
    assert sum(recorder.returns) == paid
    assert len(recorder.returns) == 3


def test_a_run_of_ours_records_training_alone():
    settings = {"n_steps": 64, "batch_size": 64, "n_epochs": 1, "net_arch": [4]}
    task = dataclasses.replace(CARTPOLE, num_env_steps=600, settings=settings)
    recorder = Recorder()
    processor_s, final_return, _ = learn(task, 0, recorder)
    assert recorder.num_steps == 1024  # whole iterations; episodes of the evaluation are not in it
    assert 8.0 <= final_return <= 500.0
    assert processor_s > 0.0


# ---- both sides are told the same


def test_names_of_tasks_are_different_and_settings_known():
    assert len({task.name for task in TASKS}) == len(TASKS)
    for task in TASKS:
        assert set(task.settings) <= set(DEFAULTS[task.algorithm]) | {
            "lstm_hidden_size",
            "conv_filters",
        }
        if task.is_possible:
            config_of(task).environment(task.make_env).validate()


def test_published_figures_are_of_tasks():
    assert {figure.task for figure in CLEANRL} <= set(BY_NAME)


def test_times_are_compared_seed_by_seed():
    mine = [
        dataclasses.replace(run("ours", seed), processor_s=s) for seed, s in ((0, 4.0), (1, 2.0))
    ]
    other = [
        dataclasses.replace(run("sb3", seed), processor_s=s) for seed, s in ((1, 4.0), (2, 1.0))
    ]
    assert time_ratio(mine, other) == 0.5
    assert time_ratio(mine, other[1:]) is None


def test_what_the_peer_has_not_is_run_by_us_alone(made):
    task = BY_NAME["DQN CartPole-v1 double"]
    campaign._campaign([task], ["ours", "sb3"], seeds=1, jobs=1)
    assert made == [("DQN CartPole-v1 double", "ours", 0)]


def test_what_falls_in_the_zoo_falls_over_the_budget():
    assert falling("lin_0.2", 1000) == [[0, 0.2], [1000, 0.0]]
    config = config_of(CARTPOLE)
    assert config.clip_param == [[0, 0.2], [100_000, 0.0]]
    assert (config.train_batch_size, config.minibatch_size) == (256, 256)


# ---- the campaign


def run(trainer, seed, area=1.0, steps=None):
    return Run(CARTPOLE.name, trainer, seed, [area] * 100, steps, area, 2.0)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The runs that a campaign makes; of seed 2, ours fails."""
    found = []

    def make(task, trainer, seed):
        found.append((task.name, trainer, seed))
        if (trainer, seed) == ("ours", 2):
            return "FAILED\nthe reason"
        dataclasses.replace(run(trainer, seed), task=task.name).save()
        return ""

    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    monkeypatch.setattr(campaign, "_in_a_process", make)
    monkeypatch.setattr(campaign.importlib.util, "find_spec", lambda _: object())
    return found


def test_a_campaign_makes_what_is_missing(made, capsys):
    run("ours", 0).save()
    assert campaign.main([CARTPOLE.name, "--seeds", "2", "--jobs", "1"]) == 0
    assert [each[1:] for each in made] == [("sb3", 0), ("ours", 1), ("sb3", 1)]
    assert campaign.main([CARTPOLE.name, "--seeds", "2"]) == 0
    assert len(made) == 3
    assert "0 runs are missing" in capsys.readouterr().out


def test_a_run_that_fails_is_told_and_the_others_are_made(made, capsys):
    assert campaign.main([CARTPOLE.name, "--seeds", "3", "--jobs", "1"]) == 1
    assert len(made) == 6
    told = capsys.readouterr().out
    assert "PPO CartPole-v1, ours, seed 2: FAILED\nthe reason" in told
    assert not path_of(CARTPOLE.name, "ours", 2).exists()
    assert "| PPO CartPole-v1 | 2, 3 |" in told


def test_an_interrupt_ends_the_campaign(made, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "as_completed", interrupted)
    begun = threading.Event()
    monkeypatch.setattr(
        campaign, "_in_a_process", lambda *each: made.append(each) or begun.wait(0.2)
    )
    with pytest.raises(KeyboardInterrupt):
        campaign.main([CARTPOLE.name, "--seeds", "50", "--jobs", "1"])
    assert len(made) <= 1


def test_an_unknown_task_is_refused(capsys):
    with pytest.raises(SystemExit):
        campaign.main(["Cartpool"])
    assert "there are: PPO CartPole-v1, " in capsys.readouterr().err


def test_a_line_compares_the_runs():
    mine = [run("ours", seed, area, 1000 * seed) for seed, area in enumerate((10.0, 20.0))]
    other = [run("sb3", seed, area) for seed, area in enumerate((15.0, 15.0))]
    assert table([(CARTPOLE, [*mine, *other])])[2] == (
        "| PPO CartPole-v1 | 2, 2 | 15.0 | 15.0 |  |  | 15.0 | 15.0 "
        "| 475 | 500, 2 of 2 | 0 of 2 | 1.00 |"
    )
    assert table([(CARTPOLE, mine)])[2].count("|") == 13


def test_a_line_is_below_if_our_mean_is_below_the_interval_of_the_peer():
    other = [run("sb3", seed, area) for seed, area in enumerate((10.0, 20.0, 30.0))]
    assert not is_below([run("ours", 0, 10.0)], other)
    assert is_below([run("ours", 0, 9.9)], other)
    mine = [run("ours", seed, 9.9) for seed in range(3)]
    assert "| 20.0 (10.0 – 30.0) | yes |" in table([(CARTPOLE, [*mine, *other])])[2]


def test_the_page_tells_what_is_below_and_what_was_found():
    pytest.importorskip("matplotlib")
    from benchmarks.quality.page import page_of

    mine = [run("ours", seed, 9.0) for seed in range(3)]
    other = [run("sb3", seed, 10.0) for seed in range(3)]
    mine[0] = dataclasses.replace(mine[0], findings=["kl_far_above_target"])
    mine[1] = dataclasses.replace(mine[1], findings=[])
    page = page_of([(CARTPOLE, [*mine, *other])])
    assert "Of 1 tasks with at least 3 seeds on both sides, 0 are not below the peer in" in page
    assert "0.2 would be below by chance" in page
    assert "- PPO CartPole-v1 is below." in page
    assert "| PPO CartPole-v1 | 490.0 ± 6.1 | 500,000 | 9.0 | 100,000 |" in page
    assert "looked at 2 of our runs, with the checks of the day of the run, and found this:" in page
    assert "- PPO CartPole-v1: `kl_far_above_target` in 1 of 2 runs" in page
    assert "No task has 3 seeds on both sides yet." in page_of([(CARTPOLE, mine)])


def test_the_page_is_that_of_the_files():
    pytest.importorskip("matplotlib")
    from benchmarks.quality.page import PAGE, campaign_so_far, page_of

    assert PAGE.read_text(encoding="utf-8") == page_of(campaign_so_far()), (
        "run: python -m benchmarks.quality.page"
    )
