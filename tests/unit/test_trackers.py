"""Trackers: a service gets every row once, goes on with its run after a resume, delays nobody."""

import copy
import json
import pickle
import sys
import threading
from types import SimpleNamespace

import pytest

from callbacks import CallbackConfigError, PeriodicCheckpoint, RLlibCallback, TrackerLogger
from callbacks.ready_made.followers import Follower, FollowerThread, finish_all
from callbacks.ready_made.result_loggers import close_loggers, objects_beside
from callbacks.ready_made.rows_file import RowsFile
from callbacks.ready_made.tracker_services import AimService
from callbacks.ready_made.trackers import ServiceSink, numbers_of
from tests.steered_algorithm import SteeredAlgorithm, result_of

FACTS = {"name": "PPO on x", "experiment": "PPO-x", "folder": ".", "params": {"lr": 0.1}}


class Store:
    """What a service has, shared by all copies of its client."""

    def __init__(self):
        self.runs = {}
        self.events = []
        self.files = []
        self.answers = threading.Event()
        self.answers.set()
        self.openings_to_fail = 0

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _store, ()


_STORES = []


def _store():
    return _STORES[-1]


class Service:
    """A client of a `Store`."""

    def __init__(self, store):
        self.store = store

    def open_run(self, run_id, facts):
        self.store.answers.wait(60)
        if self.store.openings_to_fail:
            self.store.openings_to_fail -= 1
            raise ConnectionError("it is starting")
        self.store.events.append("open")
        self.store.runs.setdefault(run_id, [])
        return run_id

    def log_row(self, run, row, step):
        self.store.answers.wait(60)
        self.store.runs[run].append((step, row))

    def close_run(self, run, *, failed):
        self.store.events.append("failed" if failed else "close")


class FilingService(Service):
    """Takes files, too."""

    def log_artifact(self, run, artifact, step):
        self.store.answers.wait(60)
        self.store.files.append((run, artifact.kind, artifact.name, step))


@pytest.fixture
def store():
    made = Store()
    _STORES.append(made)
    yield made
    made.answers.set()
    _STORES.pop()


def row(iteration, **changes):
    steps = 100 * iteration
    return {"training_iteration": iteration, "num_env_steps_sampled_lifetime": steps, **changes}


def sent(store):
    """The steps of each run."""
    return [[step for step, _ in rows] for rows in store.runs.values()]


class Tracked:
    """The rows of a run and a service that follows them, as a process has both."""

    def __init__(self, folder, service, **given):
        self.rows = RowsFile(folder / "rows.jsonl")
        self.sink = ServiceSink(service, FACTS, folder, **given)
        self.thread = FollowerThread(self.sink.name)
        self.follower = Follower(self.rows, self.sink, self.thread)

    def take(self, *iterations, **changes):
        for iteration in iterations:
            self.rows.append(row(iteration, **changes))
            self.follower.wake()
        return self

    def flush(self):
        assert self.thread.flush(10)


def test_numbers_are_sent_by_path_and_everything_else_stays():
    values = row(1, a={"b": 2, "c": float("nan"), "d": True}, e="text", f=[1, 2])
    assert numbers_of(values) == {
        "training_iteration": 1.0, "num_env_steps_sampled_lifetime": 100.0, "a/b": 2.0
    }  # fmt: skip


def test_a_resumed_run_goes_on_with_the_same_run_and_sends_nothing_twice(store, tmp_path):
    Tracked(tmp_path, Service(store)).take(1, 2, 3, 4).flush()
    # A process that goes on with the checkpoint of iteration 2, with other settings.
    Tracked(tmp_path, Service(store)).take(3, 4, 5, changed=1).flush()
    assert sent(store) == [[100, 200, 300, 400, 500]]
    rows = [changed for _, changed in next(iter(store.runs.values()))]
    assert ["changed" in each for each in rows] == [False] * 4 + [True]
    anew = Tracked(tmp_path, Service(store))  # a new run in the same folder
    anew.follower.set_aside()
    anew.rows.set_aside()
    anew.take(1).flush()
    assert sent(store) == [[100, 200, 300, 400, 500], [100]]


@pytest.mark.parametrize("num_rows", [1, 3])
def test_rows_wait_for_a_service_that_cannot_be_opened_yet(store, tmp_path, num_rows):
    store.openings_to_fail = 1
    tracked = Tracked(tmp_path, Service(store))
    for iteration in range(1, num_rows + 1):
        tracked.take(iteration).flush()
    assert finish_all([tracked.thread])
    assert sent(store) == [[100 * number for number in range(1, num_rows + 1)]]
    assert store.events == ["open", "close"]


def test_the_run_is_written_down_before_the_service_is_asked_for_it(store, tmp_path):
    store.openings_to_fail = 1
    Tracked(tmp_path, Service(store)).take(1).flush()
    known = json.loads((tmp_path / "run.json").read_text())
    assert (known["sent"], known["facts"]) == (0, FACTS)
    assert known["run"].startswith("PPO-on-x-")
    Tracked(tmp_path, Service(store)).take(2).flush()
    assert list(store.runs) == [known["run"]]


def test_a_run_file_that_cannot_be_read_is_told_and_replaced(store, tmp_path, caplog):
    (tmp_path / "run.json").write_text("torn")
    Tracked(tmp_path, Service(store)).take(1).flush()
    assert "a tracker gets a new run" in caplog.text
    assert json.loads((tmp_path / "run.json").read_text())["sent"] == 1


def test_steps_may_be_counted_in_rows_and_a_run_may_fail(store, tmp_path):
    tracked = Tracked(tmp_path, Service(store), run_id="x-00003", counts_rows=True)
    tracked.take(1, 2, done=True).flush()
    assert store.events == ["open"]
    tracked.follower.end(failed=True)
    tracked.follower.wake()
    tracked.flush()
    assert (list(store.runs), sent(store)) == (["x-00003"], [[1, 2]])
    assert store.events == ["open", "failed"]


def test_a_service_that_hangs_delays_nothing(store, tmp_path, caplog):
    algorithm = SteeredAlgorithm(TrackerLogger(Service(store), tmp_path / "t"))
    algorithm.tell_returns([1.0] * 3)
    assert algorithm.first.flush(10)
    store.answers.clear()
    results = algorithm.tell_returns([1.0] * 20)
    assert not algorithm.first.flush(0.0)
    assert results[-1]["fault_tolerance"]["num_lost_rows_lifetime"] == 0
    assert len((tmp_path / "t" / "rows.jsonl").read_text().splitlines()) == 23
    close_loggers(algorithm)
    assert not algorithm.first.flush(0.0), "stop() does not wait for it"
    store.answers.set()
    assert algorithm.first.flush(10)
    assert len(sent(store)[0]) == 23
    assert store.events == ["open", "close"]
    assert not caplog.messages


def test_the_run_of_the_service_ends_with_the_training_and_may_be_opened_again(store, tmp_path):
    algorithm = SteeredAlgorithm(TrackerLogger(Service(store), tmp_path / "t"))
    algorithm.tell(result_of(1) | {"done": True})
    assert algorithm.first.flush(10)
    assert store.events == ["open", "close"]
    algorithm.tell(result_of(2))
    assert algorithm.first.flush(10)
    assert store.events == ["open", "close", "open"]
    assert len(store.runs) == 1


def test_the_run_is_open_once_in_a_process(store, tmp_path):
    for number in (1, 2):
        algorithm = SteeredAlgorithm(TrackerLogger(Service(store), tmp_path / "t"))
        if number == 2:
            algorithm.go_on(1)
        algorithm.tell()
        assert algorithm.first.flush(10)
        algorithm.is_stopped = True
    assert store.events == ["open", "close", "open"]
    assert sent(store) == [[100, 200]]


def test_a_tracker_is_copied_and_pickled_without_its_thread(store, tmp_path):
    algorithm = SteeredAlgorithm(TrackerLogger(Service(store), tmp_path / "t"))
    algorithm.tell()
    assert algorithm.first.flush(10)
    for twin in (copy.deepcopy(algorithm.first), pickle.loads(pickle.dumps(algorithm.first))):
        assert twin.rows_path == tmp_path / "t" / "rows.jsonl"
        assert twin.flush(0.0)


def test_rows_of_a_forgotten_run_never_mix_with_those_of_the_next(store, tmp_path):
    first = Tracked(tmp_path, Service(store)).take(1)
    first.flush()
    store.answers.clear()
    first.take(2)  # the service owes an answer, and goes on owing it
    anew = Tracked(tmp_path, Service(store))
    anew.follower.set_aside()
    assert not (tmp_path / "run.json").exists()
    anew.rows.set_aside()
    anew.take(1, 2)
    store.answers.set()
    anew.flush()
    first.flush()
    old, new = sent(store)
    assert new == [100, 200]
    assert old in ([100], [100, 200]), "the other row is in rows.jsonl.1"
    assert store.events == ["open", "close", "open"], "one at a time"
    known = json.loads((tmp_path / "run.json").read_text())
    assert (known["run"], known["sent"]) == (list(store.runs)[1], 2)


def recorded(folder, *names):
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"film")


def test_videos_are_sent_once_and_by_a_resumed_run_those_that_were_not(store, tmp_path):
    def tracked():
        made = Tracked(tmp_path, FilingService(store))
        made.sink.video_folders = [tmp_path / "videos"]
        return made

    recorded(tmp_path / "videos", "of-an-earlier-run.mp4")
    first = tracked()
    first.follower.set_aside()
    recorded(tmp_path / "videos", "evaluation-0-0.mp4", ".evaluation-0-1.mp4.part-episode-0.mp4")
    for iteration in (1, 2):
        first.take(iteration).flush()
    run_id = next(iter(store.runs))
    assert store.files == [(run_id, "videos", "evaluation-0-0", 100)]
    (tmp_path / "videos" / "of-an-earlier-run.mp4").unlink()
    recorded(tmp_path / "videos", "evaluation 0-1.mp4")
    tracked().take(3).flush()
    assert [film[:3] for film in store.files[1:]] == [(run_id, "videos", "evaluation-0-1")]


def test_checkpoints_are_sent_by_choice_and_one_that_is_gone_is_counted(store, tmp_path, caplog):
    def files_of(*artifacts):
        store.files.clear()
        folder = tmp_path / f"t{len(artifacts)}"
        algorithm = SteeredAlgorithm(
            TrackerLogger(FilingService(store), folder, artifacts=artifacts)
        )
        for name in ("000001", "000002"):
            (tmp_path / "best" / name).mkdir(parents=True, exist_ok=True)
            algorithm.callbacks.fire(
                "on_checkpoint_saved",
                algorithm=algorithm, metrics_logger=None, path=str(tmp_path / "best" / name),
            )  # fmt: skip
        (tmp_path / "best" / "000001").rmdir()
        algorithm.tell()
        assert algorithm.first.flush(10)
        assert algorithm.first.num_rows_lost == len(artifacts)
        return [name for _, _, name, _ in store.files]

    assert files_of() == []
    assert files_of("checkpoints") == ["best-000002"]
    assert len(caplog.records) == 1
    assert "was removed before it could be sent" in caplog.text


@pytest.mark.parametrize("tracker_is_first", [True, False])
@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("has_end", [True, False])
def test_every_checkpoint_is_sent_the_last_one_too(
    has_end, background, tracker_is_first, store, tmp_path
):
    saving = PeriodicCheckpoint(tmp_path / "run", every=1, background=background)
    tracker = TrackerLogger(FilingService(store), tmp_path / "t", artifacts=["checkpoints"])
    algorithm = SteeredAlgorithm(*((tracker, saving) if tracker_is_first else (saving, tracker)))
    (logger,) = objects_beside(algorithm, TrackerLogger)
    found = []
    for iteration in (1, 2, 3):
        algorithm.tell(done=has_end and iteration == 3)
        assert logger.flush(10)
        found.append([(name, step) for _, _, name, step in store.files])
    algorithm.finish_saving()
    close_loggers(algorithm)  # both as in `stop()`
    assert logger.flush(10)
    names = ["run-000001", "run-000002", "run-000003"]
    assert [name for _, _, name, _ in store.files] == names
    if not background:
        assert found[-1] == list(zip(names, (100, 200, 300), strict=True)), "with their own rows"
        assert list(map(len, found)) == [1, 2, 3]
    assert logger.num_rows_lost == 0
    assert sent(store) == [[100, 200, 300]]
    reopened = ["open", "close"] if has_end and background else []
    assert store.events == ["open", "close", *reopened]


def test_a_video_that_appears_while_the_last_checkpoint_is_saved_is_sent(store, tmp_path):
    class Recording(RLlibCallback):
        def on_checkpoint_saved(self, **_):
            recorded(tmp_path / "videos", "evaluation-0-0.mp4")

    tracker = TrackerLogger(FilingService(store), tmp_path / "t", artifacts=["videos"])
    algorithm = SteeredAlgorithm(tracker, Recording, PeriodicCheckpoint(tmp_path / "run", every=1))
    algorithm.first.sink.video_folders = [tmp_path / "videos"]
    algorithm.tell(done=True)
    assert algorithm.first.flush(10)
    assert [name for _, _, name, _ in store.files] == ["evaluation-0-0"]
    assert store.events == ["open", "close"]


def test_misuse_is_refused_at_once(store, tmp_path):
    with pytest.raises(CallbackConfigError, match="folder"):
        TrackerLogger(Service(store), "")
    with pytest.raises(CallbackConfigError, match="Service has no `log_artifact`"):
        TrackerLogger(Service(store), tmp_path, artifacts=["videos"])
    with pytest.raises(CallbackConfigError, match="must be one of 'checkpoints', 'videos'"):
        TrackerLogger(FilingService(store), tmp_path, artifacts=["weights"])


class AimRun:
    """What `AimService` uses of a run of Aim."""

    hash = "0123abcd"

    def __init__(self, *_, **__):
        self.name = ""

    def __setitem__(self, name, value):
        """Nothing is kept."""

    def set_artifacts_uri(self, uri):
        """Nothing is kept."""


def test_the_file_that_names_a_run_of_aim_is_replaced_whole(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "aim", SimpleNamespace(Run=AimRun))
    known, as_it_was = tmp_path / "aim-run", tmp_path / "as-it-was"
    known.write_text("an-earlier-run ffff")
    as_it_was.hardlink_to(known)
    AimService("aim://server:1").open_run("this-run", {**FACTS, "folder": str(tmp_path)})
    assert known.read_text() == "this-run 0123abcd"
    assert as_it_was.read_text() == "an-earlier-run ffff", "never emptied, also not for a moment"
