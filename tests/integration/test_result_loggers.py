"""Result loggers in real runs: resumed, undone, blocked, killed; and those of the command line."""

import csv
import json
from pathlib import Path

import pytest

from callbacks.ready_made import rows_file
from tests.small_runs import small_ppo
from trainer import (
    PPO,
    CSVLogger,
    JSONLinesLogger,
    PPOConfig,
    RLlibCallback,
)
from trainer.cli import main
from trainer.metrics import comparable
from trainer.metrics.result import describe
from trainer.testing.envs import CountdownEnv

ROOT = Path(__file__).parents[2]


class Late(RLlibCallback):
    """Logs a metric from iteration 5 on."""

    def on_train_result(self, *, algorithm, metrics_logger, **kwargs):
        if algorithm.training_iteration >= 5:
            metrics_logger.log_value("late", algorithm.training_iteration, window=1)


def config(*callbacks, **settings):
    made = small_ppo(env="CartPole-v1", num_slots=1, batch=40, callbacks=list(callbacks))
    return made.update_from_dict(settings)


def loggers(folder):
    return [Late, JSONLinesLogger(folder / "results.jsonl"), CSVLogger(folder / "results.csv")]


def train(algo, iterations):
    return [algo.train() for _ in range(iterations)]


def rows(folder):
    """The rows of the JSON lines without times, as text."""
    lines = (folder / "results.jsonl").read_text().splitlines()
    return [json.dumps(comparable(json.loads(line))) for line in lines]


def table(folder):
    """The cells of the table, header included, without the columns that depend on the clock."""
    with (folder / "results.csv").open(newline="") as file:
        cells = list(csv.reader(file, strict=True))
    known = [describe(name) for name in cells[0]]
    kept = [
        index
        for index, key in enumerate(known)
        if key is None or not (key.is_wall_clock or key.is_disturbance)
    ]
    return [[line[index] for index in kept] for line in cells]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The files of a run of seven iterations that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with config(*loggers(folder)).build_algo() as algo:
        results = train(algo, 7)
    assert rows(folder) == [json.dumps(comparable(result)) for result in as_json(results)]
    return folder


def as_json(results):
    return json.loads(json.dumps(results, default=str).replace("NaN", "null"))


def test_a_metric_of_iteration_5_has_its_column_and_earlier_rows_stay(undisturbed):
    header, *lines = table(undisturbed)
    assert [line[header.index("training_iteration")] for line in lines] == list("1234567")
    late = [line[header.index("late")] for line in lines]
    assert late[:4] == ["", "", "", ""]
    assert [float(cell) for cell in late[4:]] == [5, 6, 7]
    assert "config" not in json.loads((undisturbed / "results.jsonl").read_text().splitlines()[0])
    assert not any(name.startswith("config") for name in header)


@pytest.mark.parametrize("runners", [0, pytest.param(1, marks=pytest.mark.process)])
def test_files_of_a_resumed_run_equal_those_of_an_undisturbed_one(undisturbed, runners, tmp_path):
    with config(*loggers(tmp_path), num_env_runners=runners).build_algo() as algo:
        train(algo, 3)
        algo.save_to_path(tmp_path / "checkpoint")
        train(algo, 3)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"training_iteration": 7, "torn')
    with PPO.from_checkpoint(tmp_path / "checkpoint", callbacks=loggers(tmp_path)) as algo:
        assert isinstance(algo, PPO)
        assert len(rows_or_torn(tmp_path)) == 7, "loading alone drops nothing"
        train(algo, 4)
    assert rows(tmp_path) == rows(undisturbed)
    assert table(tmp_path) == table(undisturbed)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["checkpoint", "results.csv", "results.csv.bookmark", "results.jsonl"]


def rows_or_torn(folder):
    return (folder / "results.jsonl").read_text().splitlines()


def test_a_restore_into_an_older_state_in_the_same_process_replaces_rows(undisturbed, tmp_path):
    with config(*loggers(tmp_path)).build_algo() as algo:
        train(algo, 2)
        algo.save_to_path(tmp_path / "checkpoint")
        train(algo, 4)
        algo.restore_from_path(tmp_path / "checkpoint")
        train(algo, 5)
    assert rows(tmp_path) == rows(undisturbed)
    assert table(tmp_path) == table(undisturbed)


# ---- the command line


SMALL = [
    "--env", "CartPole-v1", "--num-env-runners", "0", "--seed", "5", "--checkpoint-every", "1",
    "--set", "train_batch_size=40", "--set", "minibatch_size=20", "--set", "num_epochs=1",
    "--set", 'model={"fcnet_hiddens": [8]}',
]  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *SMALL, "--run-dir", "run", "--stop-iterations", "2"]) == 0
    return tmp_path / "run"


def resume():
    assert main(["resume", "run", "--stop-iterations", "3"]) == 0


def test_a_deleted_results_file_is_told_when_a_run_is_resumed(run, caplog):
    (run / "results.jsonl").unlink()
    resume()
    (message,) = caplog.messages
    assert "results.jsonl is gone: the results of iterations 1 to 2" in message
    assert "goes on exactly from iteration 3" in message
    assert [json.loads(row)["training_iteration"] for row in rows(run)] == [3]


def test_bytes_that_are_no_text_are_dropped_when_a_run_is_resumed(run, caplog):
    before = rows(run)
    with (run / "results.jsonl").open("ab") as file:
        file.write(b"\xff\xfe torn")
    resume()
    assert rows(run)[:2] == before
    assert len(rows(run)) == 3
    (message,) = caplog.messages
    assert "not written to its end" in message


def test_damage_within_the_results_is_told_when_a_run_is_resumed(run, caplog):
    path = run / "results.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"\xff" + lines[0] + lines[1])
    resume()
    found = path.read_bytes().splitlines(keepends=True)
    assert found[:2] == [b"\xff" + lines[0], lines[1]]
    assert json.loads(found[2])["training_iteration"] == 3
    assert "1 lines of" in caplog.messages[0]


def test_results_that_cannot_be_written_end_the_run_with_one_message(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def refuse(path, line):
        raise OSError("no space left on device")

    monkeypatch.setattr(rows_file, "append_to", refuse)
    assert main(["train", *SMALL, "--run-dir", "run", "--stop-iterations", "1"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("TrainerError: Results cannot be kept in")
    assert "no space left on device" in message
    assert "local-trainer resume run" in message


def test_a_repeated_evaluation_is_no_point_in_tables_and_curves(tmp_path):
    made = (
        PPOConfig()
        .environment(CountdownEnv)
        .env_runners(num_env_runners=0)
        .training(train_batch_size=20, minibatch_size=20, num_epochs=1)
        .evaluation(
            evaluation_interval=2,
            evaluation_duration=1,
            evaluation_num_env_runners=0,
            always_attach_evaluation_results=True,
        )
        .callbacks([lambda: CSVLogger(tmp_path / "rows.csv")])
    )
    with made.build_algo() as algo:
        shown = ["evaluation" in algo.train() for _ in range(4)]
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert shown == [False, True, True, True]
    points = [row["evaluation/evaluated_at_iteration"] for row in rows]
    assert points == ["", "2", "", "4"]
