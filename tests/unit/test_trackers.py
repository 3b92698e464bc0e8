"""Trackers: rows reach a service or are counted, the run goes on after a resume, nothing waits."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from callbacks import CallbackConfigError, PeriodicCheckpoint, RLlibCallback, TrackerLogger
from callbacks.ready_made import trackers
from callbacks.ready_made.result_loggers import objects_beside
from callbacks.ready_made.tracker_services import AimService, Artifact
from callbacks.ready_made.trackers import ServiceSender, TrackedRows, numbers_of
from tests.steered_algorithm import SteeredAlgorithm, result_of

FACTS = {"name": "PPO on x", "experiment": "PPO-x", "folder": ".", "params": {"lr": 0.1}}


class Store:
    """What a service has, shared by all copies of its client."""

    runs: dict[str, list[tuple[int, Mapping[str, float]]]]

    def __init__(self) -> None:
        self.runs = {}
        self.events: list[str] = []
        self.files: list[tuple[str, str, str, int]] = []
        self.answers = threading.Event()
        self.answers.set()
        self.failures_to_come = 0

    def __deepcopy__(self, memo: Any) -> Store:
        return self

    def __reduce__(self) -> Any:
        return _store, ()


_STORES: list[Store] = []


def _store() -> Store:
    return _STORES[-1]


class Service:
    """A client of a `Store`."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def open_run(self, run_id: str, facts: Mapping[str, Any]) -> str:
        self.store.answers.wait(60)
        self.store.events.append("open")
        self.store.runs.setdefault(run_id, [])
        return run_id

    def log_row(self, run: str, row: Mapping[str, float], step: int) -> None:
        self.store.answers.wait(60)
        if self.store.failures_to_come:
            self.store.failures_to_come -= 1
            raise ConnectionError("no route")
        self.store.runs[run].append((step, row))

    def close_run(self, run: str, *, failed: bool) -> None:
        self.store.events.append("failed" if failed else "close")


class FilingService(Service):
    """Takes files, too."""

    def log_artifact(self, run: str, artifact: Artifact, step: int) -> None:
        self.store.answers.wait(60)
        self.store.files.append((run, artifact.kind, artifact.name, step))


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    _STORES.append(made)
    yield made
    made.answers.set()
    _STORES.pop()


def row(iteration: int, **changes: Any) -> dict[str, Any]:
    steps = 100 * iteration
    return {"training_iteration": iteration, "num_env_steps_sampled_lifetime": steps, **changes}


def sent(store: Store) -> list[list[int]]:
    """The steps of each run."""
    return [[step for step, _ in rows] for rows in store.runs.values()]


def test_numbers_are_sent_by_path_and_everything_else_stays() -> None:
    values = row(1, a={"b": 2, "c": float("nan"), "d": True}, e="text", f=[1, 2])
    assert numbers_of(values) == {
        "training_iteration": 1.0, "num_env_steps_sampled_lifetime": 100.0, "a/b": 2.0
    }  # fmt: skip


def test_a_resumed_run_goes_on_with_the_same_run_and_sends_nothing_twice(
    store: Store, tmp_path: Path
) -> None:
    def sink() -> TrackedRows:
        return TrackedRows(Service(store), tmp_path / "t", max_waiting=10)

    first = sink()
    first.start_anew(row(1))
    for iteration in (1, 2, 3, 4):
        first.append(row(iteration))
    assert first.sender.flush(10)
    again = sink()  # a process that goes on with the checkpoint of iteration 2
    for iteration in (3, 4, 5):
        again.append(row(iteration))
    assert again.sender.flush(10)
    assert sent(store) == [[100, 200, 300, 400, 500]]
    kept = (tmp_path / "t" / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["training_iteration"] for line in kept] == [1, 2, 3, 4, 5]
    anew = sink()  # a new run in the same folder
    anew.start_anew(row(1))
    anew.append(row(1))
    assert anew.sender.flush(10)
    assert sent(store) == [[100, 200, 300, 400, 500], [100]]
    assert (tmp_path / "t" / "rows.jsonl.1").exists()


def test_a_sender_ends_the_run_of_the_service_before_another_one_opens_it(
    store: Store, tmp_path: Path
) -> None:
    first = ServiceSender(Service(store), tmp_path / "run.json")
    store.answers.clear()
    for iteration in (1, 2):
        first.send(row(iteration), FACTS, [])
    again = ServiceSender(Service(store), tmp_path / "run.json")  # reads how far the first one is
    again.send(row(3), FACTS, [row(1), row(2)])
    store.answers.set()
    assert again.flush(10)
    assert sent(store) == [[100, 200, 300]]
    assert store.events == ["open", "close", "open"]


def test_a_sender_whose_service_hangs_holds_the_next_one_up_only_for_a_while(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "EXIT_PATIENCE_S", 0.05)
    hanging = Store()
    hanging.answers.clear()
    first = ServiceSender(Service(hanging), tmp_path / "run.json")
    first.send(row(1), FACTS, [])
    again = ServiceSender(Service(store), tmp_path / "run.json")
    again.send(row(2), FACTS, [])
    assert again.flush(10)
    assert sent(store) == [[200]]
    hanging.answers.set()
    assert first.flush(10)


def test_what_a_service_missed_at_its_end_is_sent_when_the_run_is_resumed(
    store: Store, tmp_path: Path
) -> None:
    sink = TrackedRows(Service(store), tmp_path, max_waiting=10)
    sink.append(row(1))
    assert sink.sender.flush(10)
    store.failures_to_come = 2
    for iteration in (2, 3):
        sink.append(row(iteration))
    assert sink.sender.flush(10)
    assert sink.sender.num_lost == 2
    assert sent(store) == [[100]]
    again = TrackedRows(Service(store), tmp_path, max_waiting=10)
    again.append(row(4))
    assert again.sender.flush(10)
    assert sent(store) == [[100, 200, 300, 400]]


def test_a_service_that_hangs_delays_nothing_and_is_told_once(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = TrackerLogger(Service(store), tmp_path / "t", max_waiting=5)
    algorithm = SteeredAlgorithm(logger)
    algorithm.tell_returns([1.0] * 3)
    assert algorithm.first.flush_service(10)
    store.answers.clear()
    with caplog.at_level(logging.WARNING):
        results = algorithm.tell_returns([1.0] * 20)
        assert algorithm.first.flush(10), "the rows are in the file"
        assert not algorithm.first.flush_service(0.0)
    assert len(caplog.records) == 1
    assert "5 results are waiting already" in caplog.text
    assert algorithm.first.num_rows_lost == 15
    assert algorithm.first._waited_s < 5, "for the file, never for the service"
    assert results[-1]["fault_tolerance"]["num_lost_rows_lifetime"] <= 15
    assert len((tmp_path / "t" / "rows.jsonl").read_text().splitlines()) == 23
    store.answers.set()
    assert algorithm.first.flush_service(10)
    assert len(sent(store)[0]) == 3 + 5


def test_a_service_that_was_never_there_keeps_its_run_for_later(
    store: Store, tmp_path: Path
) -> None:
    store.answers.clear()
    sender = ServiceSender(Service(store), tmp_path / "run.json")
    sender.send(row(1), FACTS, [])
    run_file = tmp_path / "run.json"
    store.answers.set()
    assert sender.flush(10)
    known = json.loads(run_file.read_text())
    assert known["sent"] == 1
    assert list(store.runs) == [known["run"]]
    assert known["run"].startswith("PPO-on-x-")


def test_a_run_file_that_cannot_be_read_is_told_and_replaced(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run.json").write_text("torn")
    sender = ServiceSender(Service(store), tmp_path / "run.json")
    with caplog.at_level(logging.WARNING):
        sender.send(row(1), FACTS, [])
        assert sender.flush(10)
    assert "gets a new run" in caplog.text
    assert json.loads((tmp_path / "run.json").read_text())["sent"] == 1


def test_the_run_of_the_service_ends_with_the_training_and_may_be_opened_again(
    store: Store, tmp_path: Path
) -> None:
    algorithm = SteeredAlgorithm(TrackerLogger(Service(store), tmp_path / "t"))
    algorithm.tell(result_of(1) | {"done": True})
    assert algorithm.first.flush_service(10)
    assert store.events == ["open", "close"]
    algorithm.tell(result_of(2))
    assert algorithm.first.flush_service(10)
    assert store.events == ["open", "close", "open"]
    assert len(store.runs) == 1


def test_the_end_of_a_run_follows_its_last_row_even_into_a_full_queue(
    store: Store, tmp_path: Path
) -> None:
    store.answers.clear()
    sink = TrackedRows(Service(store), tmp_path / "t", max_waiting=1)
    sink.append(row(1, done=True))
    sink.end()
    store.answers.set()
    assert sink.sender.flush(10)
    assert sent(store) == [[100]]
    assert store.events == ["open", "close"]
    assert sink.sender.num_lost == 0


def test_a_tracker_is_copied_and_pickled_without_its_thread(store: Store, tmp_path: Path) -> None:
    logger = TrackerLogger(Service(store), tmp_path / "t")
    algorithm = SteeredAlgorithm(logger)
    algorithm.tell()
    assert algorithm.first.flush_service(10)
    for twin in (copy.deepcopy(algorithm.first), pickle.loads(pickle.dumps(algorithm.first))):
        assert twin.sink.path == tmp_path / "t"
        assert twin.flush_service(0.0)


def test_rows_of_a_forgotten_run_never_mix_with_those_of_the_next(
    store: Store, tmp_path: Path
) -> None:
    sink = TrackedRows(Service(store), tmp_path / "t", max_waiting=10)
    sink.append(row(1))
    assert sink.sender.flush(10)
    store.answers.clear()
    sink.append(row(2))  # the service owes an answer, and goes on owing it
    sink.start_anew(row(1))
    assert not (tmp_path / "t" / "run.json").exists()
    sink.append(row(1))
    sink.append(row(2))
    store.answers.set()
    assert sink.sender.flush(10)
    assert sent(store) == [[100, 200], [100, 200]]
    assert store.events == ["open", "close", "open"], "one at a time, on one thread"
    known = json.loads((tmp_path / "t" / "run.json").read_text())
    assert (known["run"], known["sent"]) == (list(store.runs)[1], 2)


def test_a_forgotten_run_that_still_waits_for_an_answer_leaves_no_file(
    store: Store, tmp_path: Path
) -> None:
    store.answers.clear()
    sender = ServiceSender(Service(store), tmp_path / "run.json")
    sender.send(row(1), FACTS, [])
    sender.forget()
    store.answers.set()
    assert sender.flush(10)
    assert not list(tmp_path.iterdir()), "a resumed run would take the forgotten one for its own"


def recorded(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"film")


def test_videos_are_sent_once_and_by_a_resumed_run_those_that_were_not(
    store: Store, tmp_path: Path
) -> None:
    def sink() -> TrackedRows:
        made = TrackedRows(FilingService(store), tmp_path / "t", max_waiting=10)
        made.video_folders = [tmp_path / "videos"]
        return made

    recorded(tmp_path / "videos", "of-an-earlier-run.mp4")
    first = sink()
    first.start_anew(row(1))
    recorded(tmp_path / "videos", "evaluation-0-0.mp4", ".evaluation-0-1.mp4.part-episode-0.mp4")
    for iteration in (1, 2):
        first.append(row(iteration))
    assert first.sender.flush(10)
    run_id = next(iter(store.runs))
    assert store.files == [(run_id, "videos", "evaluation-0-0", 100)]
    (tmp_path / "videos" / "of-an-earlier-run.mp4").unlink()
    recorded(tmp_path / "videos", "evaluation 0-1.mp4")
    again = sink()
    again.append(row(3))
    assert again.sender.flush(10)
    assert store.files[1:] == [(run_id, "videos", "evaluation-0-1", 300)]


def test_checkpoints_are_sent_by_choice_and_one_that_is_gone_is_counted(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def files_of(*artifacts: Any) -> list[str]:
        store.files.clear()
        logger = TrackerLogger(
            FilingService(store), tmp_path / f"t{len(artifacts)}", artifacts=artifacts
        )
        algorithm = SteeredAlgorithm(logger)
        for name in ("000001", "000002"):
            (tmp_path / "best" / name).mkdir(parents=True, exist_ok=True)
            algorithm.callbacks.fire(
                "on_checkpoint_saved",
                algorithm=algorithm, metrics_logger=None, path=str(tmp_path / "best" / name),
            )  # fmt: skip
        (tmp_path / "best" / "000001").rmdir()
        algorithm.tell()
        assert algorithm.first.flush_service(10)
        assert algorithm.first.num_rows_lost == len(artifacts)
        return [name for _, _, name, _ in store.files]

    assert files_of() == []
    with caplog.at_level(logging.WARNING):
        assert files_of("checkpoints") == ["best-000002"]
    assert len(caplog.records) == 1
    assert "was removed before it could be sent" in caplog.text


@pytest.mark.parametrize("tracker_is_first", [True, False])
@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("has_end", [True, False])
def test_every_checkpoint_is_sent_the_last_one_too(
    has_end: bool, background: bool, tracker_is_first: bool, store: Store, tmp_path: Path
) -> None:
    saving = PeriodicCheckpoint(tmp_path / "run", every=1, background=background)
    tracker = TrackerLogger(FilingService(store), tmp_path / "t", artifacts=["checkpoints"])
    algorithm = SteeredAlgorithm(*((tracker, saving) if tracker_is_first else (saving, tracker)))
    (logger,) = objects_beside(algorithm, TrackerLogger)
    found = []
    for iteration in (1, 2, 3):
        algorithm.tell(done=has_end and iteration == 3)
        assert logger.flush_service(10)
        found.append([(name, step) for _, _, name, step in store.files])
    algorithm.finish_saving()  # as `stop()` does
    assert logger.flush_service(10)
    names = ["run-000001", "run-000002", "run-000003"]
    assert [name for _, _, name, _ in store.files] == names
    if not background:
        assert found[-1] == list(zip(names, (100, 200, 300), strict=True)), "with their own rows"
        assert list(map(len, found)) == [1, 2, 3]
    assert logger.num_rows_lost == 0
    assert sent(store) == [[100, 200, 300]]
    reopened = ["open", "close"] if has_end and background else []
    assert store.events == ["open", *(["close"] if has_end else []), *reopened]


def test_a_video_that_appears_while_the_last_checkpoint_is_saved_is_sent(
    store: Store, tmp_path: Path
) -> None:
    def record(**_: Any) -> None:
        recorded(tmp_path / "videos", "evaluation-0-0.mp4")

    tracker = TrackerLogger(FilingService(store), tmp_path / "t", artifacts=["videos"])
    listener = make_listener(record)
    algorithm = SteeredAlgorithm(tracker, listener, PeriodicCheckpoint(tmp_path / "run", every=1))
    algorithm.first.sink.video_folders = [tmp_path / "videos"]
    algorithm.tell(done=True)
    assert algorithm.first.flush_service(10)
    assert [name for _, _, name, _ in store.files] == ["evaluation-0-0"]
    assert store.events == ["open", "close"]


def make_listener(function: Callable[..., None]) -> type[RLlibCallback]:
    """A callback that hears of saved checkpoints."""
    return type("Listener", (RLlibCallback,), {
        "on_checkpoint_saved": lambda _, **given: function(**given)
    })  # fmt: skip


def test_artefacts_that_a_service_cannot_take_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(CallbackConfigError, match="Service has no `log_artifact`"):
        TrackerLogger(Service(store), tmp_path, artifacts=["videos"])
    with pytest.raises(CallbackConfigError, match="must be one of 'checkpoints', 'videos'"):
        TrackerLogger(FilingService(store), tmp_path, artifacts=["weights"])  # type: ignore[list-item]


class AimRun:
    """What `AimService` uses of a run of Aim."""

    hash = "0123abcd"

    def __init__(self, *_: Any, **__: Any) -> None:
        self.name = ""

    def __setitem__(self, name: str, value: Any) -> None:
        """Nothing is kept."""

    def set_artifacts_uri(self, uri: str) -> None:
        """Nothing is kept."""


def test_the_file_that_names_a_run_of_aim_is_replaced_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aim", SimpleNamespace(Run=AimRun))
    known, as_it_was = tmp_path / "aim-run", tmp_path / "as-it-was"
    known.write_text("an-earlier-run ffff")
    as_it_was.hardlink_to(known)
    AimService("aim://server:1").open_run("this-run", {**FACTS, "folder": str(tmp_path)})
    assert known.read_text() == "this-run 0123abcd"
    assert as_it_was.read_text() == "an-earlier-run ffff", "never emptied, also not for a moment"


SCRIPT = """
import pathlib, sys
from callbacks.ready_made.trackers import ServiceSender

class Service:
    def open_run(self, run_id, facts): return run_id
    def log_row(self, run, row, step): print("row", step)
    def close_run(self, run, *, failed): print("close")

sender = ServiceSender(Service(), pathlib.Path(sys.argv[1]) / "run.json")
sender.send({"training_iteration": 1}, {"name": "x"}, [])
assert sender.flush(10)
"""


SLOW_SCRIPT = """
import concurrent.futures, pathlib, sys, threading
from callbacks.ready_made import result_loggers, trackers
from callbacks.ready_made.trackers import ServiceSender

result_loggers.EXIT_PATIENCE_S = trackers.EXIT_PATIENCE_S = trackers._TOLD_AFTER_S = 0.0
trackers._LOOK_EVERY_S = 0.01
trackers.SERVICE_PATIENCE_S = float(sys.argv[2])

class Service:
    def open_run(self, run_id, facts):
        threading.Event().wait(0.5)  # as long as it starts; the process is at its end by then
        trackers.EXIT_PATIENCE_S = 30.0
        with concurrent.futures.ThreadPoolExecutor() as executor:  # services start threads
            return executor.submit(str, run_id).result()

    def log_row(self, run, row, step): print("row", step)
    def close_run(self, run, *, failed): print("close")

sender = ServiceSender(Service(), pathlib.Path(sys.argv[1]) / "run.json")
for number in (1, 2, 3):
    sender.send({"training_iteration": number}, {"name": "x"}, [])
"""


def _output_of(script: str, *arguments: object) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout, done.stderr


@pytest.mark.process
def test_the_end_of_the_process_ends_the_run_of_the_service(tmp_path: Path) -> None:
    assert _output_of(SCRIPT, tmp_path) == ("row 1\nclose\n", "")


@pytest.mark.process
def test_the_end_of_the_process_waits_for_a_service_that_is_starting(tmp_path: Path) -> None:
    output, told = _output_of(SLOW_SCRIPT, tmp_path, 30)
    assert output == "row 1\nrow 2\nrow 3\nclose\n"
    assert "Service is still busy with what it was sent; the end waits while it gets on" in told
    assert json.loads((tmp_path / "run.json").read_text())["sent"] == 3


@pytest.mark.process
def test_the_end_of_the_process_gives_up_a_service_that_never_starts(tmp_path: Path) -> None:
    output, told = _output_of(SLOW_SCRIPT.replace(".wait(0.5)", ".wait()"), tmp_path, 0.1)
    assert output == ""
    assert "Service has not answered for 0 s, and gets nothing more" in told
    assert "local-trainer track" in told


def test_ctrl_c_ends_the_wait_for_a_service(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupted(_: ServiceSender, timeout_s: float) -> bool:
        raise KeyboardInterrupt

    store.answers.clear()
    sender = ServiceSender(Service(store), tmp_path / "run.json")
    sender.send(row(1), FACTS, [])
    with monkeypatch.context() as patch:
        patch.setattr(ServiceSender, "flush", interrupted)
        assert not trackers.finish_all([sender])
    assert sender not in trackers._UNFINISHED
    assert "Ctrl-C has ended the wait" in caplog.text
    store.answers.set()
    assert sender.flush(10)


class Late(Service):
    """Cannot be opened the first times."""

    def __init__(self, store: Store, *, num_failures: int) -> None:
        super().__init__(store)
        self.num_failures = num_failures

    def open_run(self, run_id: str, facts: Mapping[str, Any]) -> str:
        self.num_failures -= 1
        if self.num_failures >= 0:
            raise ConnectionError("it is starting")
        return super().open_run(run_id, facts)


def test_rows_wait_for_a_service_that_cannot_be_opened_yet(store: Store, tmp_path: Path) -> None:
    sender = ServiceSender(Late(store, num_failures=2), tmp_path / "run.json")
    for iteration in (1, 2):
        sender.send(row(iteration), FACTS, [])
    assert sender.flush(10)
    assert (sent(store), sender.num_lost) == ([], 2)
    sender.send(row(3), FACTS, [])
    assert sender.flush(10)
    assert (sent(store), sender.num_lost) == ([[100, 200, 300]], 0)


def test_rows_of_a_service_that_opens_only_at_the_end_are_sent_then(
    store: Store, tmp_path: Path
) -> None:
    sender = ServiceSender(Late(store, num_failures=1), tmp_path / "run.json")
    sender.send(row(1), FACTS, [])
    assert trackers.finish_all([sender])
    assert sender not in trackers._UNFINISHED
    assert (sent(store), sender.num_lost, store.events) == ([[100]], 0, ["open", "close"])


@pytest.mark.parametrize("arguments", [{"folder": ""}, {"max_waiting": 0}])
def test_misuse_is_refused_at_once(store: Store, arguments: dict[str, Any]) -> None:
    with pytest.raises(CallbackConfigError, match=next(iter(arguments))):
        TrackerLogger(Service(store), **arguments)
