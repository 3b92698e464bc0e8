"""Runs and experiments from strangers may hold links: those that leave the folder are refused."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from callbacks.ready_made.checkpoint_directory import CheckpointDirectory
from checkpoints import LinkError
from checkpoints.links import check_links
from tests.command_line import run, train
from tests.small_runs import small_ppo
from trainer import Algorithm, TrainedPolicy, tune
from trainer.cli import main
from trainer.reports import read_run, write_report
from trainer.tune.checkpoint import take_in
from trainer.tune.legacy import read_grid
from trainer.tune.results import Result

SECRET = "what no report may hold"


def report_one(config):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.txt").write_text("weights")
        tune.report({"loss": config["x"]}, checkpoint=tune.Checkpoint(folder))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run, and an experiment with one trial."""
    folder = tmp_path_factory.mktemp("made")
    train(folder, "--stop-iterations", "1")
    tune.Tuner(
        report_one,
        param_space={"x": 0.5},
        tune_config=tune.TuneConfig(in_process=True, seed=0),
        run_config=tune.RunConfig(name="experiment", storage_path=folder, verbose=0),
    ).fit()
    return folder


@pytest.fixture
def folder(made, tmp_path):
    shutil.copytree(made, tmp_path / "of a stranger")
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text(SECRET)
    return tmp_path / "of a stranger"


def linked(path, target):
    """Puts a link in the place of a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


FILES = [
    "results.jsonl",
    "run.json",
    "run.lock",
    "results.jsonl.tmp",
    "videos/a.mp4",
    "episodes/a.npz",
    "tensorboard/events.out.tfevents.1",
    "progress.csv",
    "deep/er/anything.mp4",
]
FOLDERS = ["checkpoints", "videos", "tensorboard", "checkpoints/000001"]


def untouched(folder):
    others = folder.parent
    names = {path.name for path in (others / "other").iterdir()}
    return (others / "secret").read_text() == SECRET and names == {"file"}


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_resume_of_a_run_with_a_link_that_leaves_it_changes_nothing(name, folder, capsys):
    link = folder / "run" / name
    linked(link, folder.parent / ("other" if name in FOLDERS else "secret"))
    before = sorted(folder.rglob("*"))
    assert main(["resume", str(folder / "run"), "--stop-iterations", "3"]) == 1
    said = capsys.readouterr().err
    if name != "checkpoints/000001":  # which is no checkpoint then
        assert f"{link} is a link that leads out of" in said
        assert str(folder.parent / "other") in said or str(folder.parent / "secret") in said
    assert sorted(folder.rglob("*")) == before
    assert untouched(folder)


@pytest.mark.parametrize("name", ["videos/a.mp4", "results.jsonl", "checkpoints"])
def test_a_report_holds_no_file_from_outside_of_the_run(name, folder):
    target = folder.parent / ("other" if name in FOLDERS else "secret")
    linked(folder / "run" / name, target)
    page = folder.parent / "report.html"
    with pytest.raises(LinkError, match=r"leads out of .* Remove"):
        write_report(folder / "run", page)
    with pytest.raises(LinkError):
        read_run(folder / "run")
    assert not page.exists()
    listed = run("runs", folder, folder=folder).stdout
    assert "damaged" in listed


@pytest.mark.parametrize(
    "read",
    [
        Algorithm.from_checkpoint,
        TrainedPolicy.from_checkpoint,
        lambda path: main(["inspect", path]),
        lambda path: main(["verify", path]),
        lambda path: main(["resume", path]),
    ],
)
def test_the_checkpoints_of_a_run_are_those_in_its_folder(read, folder, capsys):
    (folder / "run" / "checkpoints").rename(folder.parent / "other" / "checkpoints")
    linked(folder / "run" / "checkpoints", folder.parent / "other" / "checkpoints")
    try:
        code = read(str(folder / "run"))
    except LinkError as error:
        said = str(error)
    else:
        assert code == 1
        said = capsys.readouterr().err
    assert "leads out of" in said


@pytest.mark.parametrize(
    "name",
    ["journal.jsonl", "experiment.json", "trials/00000/results.jsonl", "trials/00000/trial.json",
     "trials/00000/checkpoints/000001/more", "trials/00000", "trials", "callbacks.msgpack",
     "trials/00000/error.txt", "run.lock"],
)  # fmt: skip
def test_an_experiment_with_a_link_that_leaves_it_is_neither_restored_nor_read(name, folder):
    experiment = folder / "experiment"
    path = experiment / name
    linked(path, folder.parent / ("other" if path.is_dir() else "secret"))
    before = sorted(folder.rglob("*"))
    for open_it in (
        lambda: tune.Tuner.restore(experiment, report_one),
        lambda: read_grid(experiment),
    ):
        with pytest.raises(LinkError, match="leads out of"):
            open_it()
    for command in ("trials", "best", "tune-resume"):
        assert main([command, str(experiment)]) == 1
    if "trials/00000/" in name:
        with pytest.raises(LinkError):
            Result.from_path(experiment / "trials" / "00000")
    assert sorted(folder.rglob("*")) == before
    assert untouched(folder)


def test_links_that_stay_inside_and_links_to_the_folder_itself_work(folder):
    place = folder / "run"
    (place / "results.jsonl").rename(place / "rows")
    linked(place / "results.jsonl", Path("rows"))
    (place / "films").mkdir()
    (place / "films" / "a.mp4").write_bytes(b"film")
    linked(place / "videos" / "a.mp4", Path("../films/a.mp4"))
    (folder / "latest").symlink_to(place)
    assert main(["resume", str(folder / "latest"), "--stop-iterations", "2"]) == 0
    read = read_run(folder / "latest")
    assert len(read.rows) == 2
    assert read.videos


def test_pipes_and_loops_are_refused(tmp_path):
    os.mkfifo(tmp_path / "results.jsonl")
    with pytest.raises(LinkError, match="is a pipe, no file"):
        read_run(tmp_path)
    (tmp_path / "results.jsonl").unlink()
    (tmp_path / "a").symlink_to(tmp_path / "b" / "c")
    (tmp_path / "b").symlink_to(tmp_path.parent)
    with pytest.raises(LinkError):
        check_links(tmp_path)


def test_links_in_a_reported_checkpoint_become_what_they_lead_to(tmp_path):
    """A checkpoint that is moved with a link in it would not be whole, nor could be restored."""
    cache = tmp_path / "cache"
    cache.write_text("weights")
    source = Path(tempfile.mkdtemp())
    (source / "model").symlink_to(cache)
    (tmp_path / "trial").mkdir()
    take_in(source, tmp_path / "trial" / "000001")
    assert not (tmp_path / "trial" / "000001" / "model").is_symlink()
    assert (tmp_path / "trial" / "000001" / "model").read_text() == "weights"
    shutil.rmtree(source)
    check_links(tmp_path / "trial")


def test_a_copy_of_a_checkpoint_holds_no_file_from_outside(tmp_path):
    (tmp_path / "secret").write_text(SECRET)
    given = tmp_path / "checkpoint"
    given.mkdir()
    (given / "model").symlink_to(tmp_path / "secret")
    with pytest.raises(LinkError):
        tune.Checkpoint(given).to_directory(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_checkpoint_is_not_saved_through_a_link_that_leads_elsewhere(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "own" / "000000").symlink_to(tmp_path / "other")
    with small_ppo().build_algo() as algo, pytest.raises(LinkError, match="leads out of"):
        CheckpointDirectory(tmp_path / "own").save(algo)
    assert not list((tmp_path / "other").iterdir())
