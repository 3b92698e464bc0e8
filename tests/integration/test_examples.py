"""The examples run, are short, and show what they say."""

import ast
import csv
import importlib
import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from checkpoints import encode
from trainer import PPO, PPOConfig

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.name for path in ROOT.glob("examples/*.py"))
LONG = {"custom_module.py", "popular_envs.py", "tuning.py"}
"""Two networks with their gradients; several envs; several searches, each an example."""

Run = Callable[..., list[str]]


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Runs an example in this process, in an empty folder; gives the lines that it printed."""
    monkeypatch.chdir(tmp_path)

    def run_example(name, *arguments):
        monkeypatch.setattr("sys.argv", [name, "--num-env-runners", "0", *arguments])
        capsys.readouterr()
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run_example


def numbers_in(line):
    return [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", line)]


def test_examples_are_short_and_listed():
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for name in EXAMPLES:
        text = (ROOT / "examples" / name).read_text(encoding="utf-8")
        assert len(text.splitlines()) < 100 or name in LONG, name
        assert f"]({name})" in page


def test_td3_swings_the_pendulum_up_and_its_file_acts_the_same(run):
    *returns, alone, difference = run("td3_pendulum.py")
    assert numbers_in(returns[0])[0] < -900  # at random
    assert alone.startswith("without noise: return ")
    assert numbers_in(alone)[0] > -400
    assert numbers_in(difference)[0] < 1e-5


def test_imitation_of_what_paid_beats_what_was_recorded(run):
    recorded, cloned, better = map(numbers_in, run("learn_from_recordings.py", "--updates", "60"))
    assert 100 < recorded[0] < 250
    assert cloned[0] > 0.7 * recorded[0]
    assert better[0] > recorded[0]


def test_memory_solves_what_guessing_does_not(run):
    without, learnt, alone = run("memory.py", "--iterations", "9")
    assert without.startswith("without memory: return ")
    assert numbers_in(without)[0] < 15  # a third of 31 by guessing
    assert numbers_in(learnt)[0] > 28
    assert numbers_in(alone)[0] > 28


def test_networks_in_torch_learn(run):
    pytest.importorskip("torch")
    lines = run("torch_module.py", "--iterations", "4")
    assert lines[0].startswith("Convolution: return ")
    assert numbers_in(lines[0])[0] > 0.2  # -0.04 without learning
    assert lines[1].startswith("Wrapped_Existing: return ")
    assert numbers_in(lines[1])[1] == 8


def test_two_agents_learn_with_networks_of_two_kinds(run):
    pytest.importorskip("torch")
    names, returns = run("torch_two_agents.py", "--iterations", "4")
    assert names == "learnt: in_numpy, in_torch"
    assert min(numbers_in(returns)) > 7.0  # 3 by chance
    names, _ = run("torch_two_agents.py", "--iterations", "1", "--frozen")
    assert names == "learnt: in_torch"


def test_modules_of_users_are_checked_and_learn_with_ppo_and_dqn(run):
    returns = dict(line.split(": return ") for line in run("custom_module.py"))
    assert float(returns["PPO, convolution"]) > 0.5  # -0.3 without learning
    assert float(returns["DQN, recurrence"]) > 0.9  # 0.5 without memory


def test_quickstart_trains_evaluates_and_saves(run):
    lines = run("quickstart.py", "--iterations", "1", "--checkpoint", "saved")
    assert numbers_in(lines[0])[:2] == [1, 2048]
    assert numbers_in(lines[1])[0] > 8
    with PPO.from_checkpoint("saved") as algo:
        assert algo.training_iteration == 1


def test_metrics_and_images_are_logged(run):
    pytest.importorskip("tensorboardX")
    arguments = ("--iterations", "2", "--train-batch-size", "600", "--logs", "logs")
    lines = run("callbacks_and_metrics.py", *arguments, "--tensorboard")
    assert lines[-1].endswith("(24, 24)")
    rows = [json.loads(line) for line in Path("logs/results.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        (visits,), (image,) = row["env_runners"]["visits"], row["visit_map"]
        assert 600 < np.sum(visits) < 604  # the observations behind last steps count as well
        assert np.max(image) == 255
        assert (np.array(visits) > 0).mean() == row["share_of_angles_visited"]
    assert 0 < rows[1]["env_runners"]["theta1_mean"] < 180
    with Path("logs/results.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [json.loads(cells["visit_map"]) for cells in table] == [row["visit_map"] for row in rows]
    images = [
        value
        for file in Path("logs").glob("events.out.tfevents.*")
        for event in events_of(file)
        for value in event.summary.value
        if value.HasField("image")
    ]
    assert [image.tag for image in images] == ["visit_map", "visit_map"]
    assert [(image.image.height, image.image.width) for image in images] == [(24, 24)] * 2


def events_of(file):
    event = importlib.import_module("tensorboardX.proto.event_pb2").Event
    data, found = file.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return found


def test_backdated_rewards_are_learnt_from_faster_and_add_nothing(run):
    as_paid, backdated, returns = map(
        numbers_in, run("rewriting_trajectories.py", "--iterations", "4")
    )
    assert backdated[0] > as_paid[0] + 2
    assert returns[0] == returns[1]


def test_the_curiosity_bonus_finds_what_nobody_finds_by_chance_and_decays(run):
    doors, bonus, returns = zip(
        *map(numbers_in, run("curiosity_callback.py", "--iterations", "9")), strict=True
    )
    assert doors[0] < 10 == doors[-1]
    assert bonus[-1] < 0.01 * bonus[0]
    assert returns[-1] > 0.1
    without = run("curiosity_callback.py", "--iterations", "4", "--scale", "0")
    assert all(numbers_in(line)[1:] == [0, 0] for line in without)
    assert max(numbers_in(line)[0] for line in without) < 10


def test_the_model_of_the_curiosity_callback_is_saved_and_restored(tmp_path):
    names = runpy.run_path(str(ROOT / "examples" / "curiosity_callback.py"))
    made = PPOConfig().environment(names["Doors"]).env_runners(num_env_runners=0)
    made.training(train_batch_size=50, minibatch_size=50, num_epochs=1)
    made.training(model={"fcnet_hiddens": [4]}).debugging(seed=0)
    made.callbacks(names["CuriosityBonus"](0.1))

    def outcome(algo):
        algo.train()
        (model,) = algo.env_runner_group.foreach_env_runner(
            lambda runner: runner.callbacks.objects[0].hidden
        )
        return encode([model, algo.get_state()["learner"]])

    with made.build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "saved")
        expected = outcome(algo)
    with made.build_algo() as other:
        assert outcome(other) != expected
        other.restore_from_path(tmp_path / "saved")
        assert outcome(other) == expected


def test_a_run_that_was_stopped_goes_on_with_the_same_numbers(run):
    whole = run("resume_and_evaluate.py", "--iterations", "4", "--directory", "whole")
    first = run("resume_and_evaluate.py", "--iterations", "3", "--directory", "parts")
    second = run("resume_and_evaluate.py", "--iterations", "4", "--directory", "parts")
    assert second[0].endswith("000002"), "the third iteration was not saved"
    assert first[:2] + second[1:] == whole
    assert re.match(r"000004, evaluated on 10 episodes: return \d+", whole[-1])


def test_the_custom_evaluation_says_what_the_documents_print(run):
    lines = run("custom_evaluation.py", "--iterations", "1")
    assert lines[:6] == [
        "Update corridor length to 4",
        "Update corridor length to 7",
        *(f"Custom evaluation round {number}" for number in (1, 2, 3, 4)),
    ]
    evaluation = ast.literal_eval(lines[6])
    assert evaluation["foo"] == 1
    assert evaluation["episodes_this_iter"] == 40
    assert 4 <= evaluation["episode_len_mean"] <= 30
    without = run("custom_evaluation.py", "--iterations", "1", "--no-custom-eval")
    assert "foo" not in without[0]
    assert "'num_episodes': 10" in without[0]


def test_agents_share_a_module(run):
    lines = run("multi_agent_shared.py", "--iterations", "2")
    together, alone = numbers_in(lines[-1])[1], numbers_in(lines[-1])[3]
    assert together > 2 * alone  # the return of an episode is the sum over four agents


def test_two_modules_learn_and_one_is_loaded_alone(run):
    lines = run("multi_agent_two_modules.py", "--iterations", "3", "--checkpoint", "saved")
    caught = [numbers_in(line)[0] for line in lines[:-1]]
    assert len(caught) == 3
    assert lines[-1].startswith("hare to the right: the hunter goes ")


def test_a_rule_is_learnt_against(run):
    lines = run("multi_agent_heuristic.py", "--iterations", "5")
    earned, lost = numbers_in(lines[-1])[:2]
    assert earned == -lost
    assert earned > numbers_in(lines[0])[0]


def test_a_group_finds_the_best_return_of_the_two_step_game(run):
    assert run("multi_agent_groups.py", "--iterations", "5") == ["return 8.0, and 8 is the most"]


@pytest.mark.filterwarnings("ignore")  # of PettingZoo's envs
def test_a_game_of_pettingzoo_is_played(run):
    pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    lines = run("multi_agent_pettingzoo.py", "--iterations", "1")
    assert -1.0 <= numbers_in(lines[-1])[1] <= 1.0


def test_a_frozen_opponent_stays_as_it_was(run):
    lines = run("frozen_opponent.py", "--iterations", "2")
    assert [line.split(":")[0] for line in lines] == [
        "Against random play",
        "Against its former self",
        "The former self is as it was",
    ]
    assert lines[2].endswith("True.")


def test_a_league_goes_on_where_it_was(run):
    alone = run("self_play_league.py", "--iterations", "5", "--directory", "alone")
    run("self_play_league.py", "--iterations", "3")
    resumed = run("self_play_league.py", "--iterations", "5")
    assert resumed[0] == "Goes on with copy_0, copy_1, main."
    assert resumed[1:] == alone


def test_slow_envs_of_uneven_speed_are_learnt_from(run):
    lines = run("uneven_envs.py", "--num-iterations", "2")
    assert [line.split(":")[0].strip() for line in lines] == ["PPO", "APPO"]
    assert all(numbers_in(line)[0] > 25 for line in lines)  # 25 steps of more than 1 ms
