"""Callbacks that keep every result as a row, and bring tables, curves and trackers up to the rows.

A row is appended by the thread that trains, before the checkpoint that counts its iteration is
complete (unless that is saved right inside `on_train_result`, before there is a result). Its turn
is after all ready-made callbacks have saved, so that what failed there is counted in it; but a save
asks for the logger's state, and that writes the row first; it is written again if it has changed.
If the process is killed between row and checkpoint, the resumed run makes the iteration again and
its row takes the place of the old one. Everything else follows the rows, see
`callbacks.ready_made.followers`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from callbacks.callback import RLlibCallback
from callbacks.chain import CallbackGroup
from callbacks.errors import CallbackConfigError
from callbacks.ready_made.claims import claim
from callbacks.ready_made.followers import EXIT_PATIENCE_S, Follower, FollowerThread, Sink
from callbacks.ready_made.metric_values import NUM_LOST_ROWS, count_fault
from callbacks.ready_made.result_files import CSVResults, TensorBoardResults
from callbacks.ready_made.rows_file import RowsFile, encoded_row, iteration_of, row_of
from callbacks.spec import name_of
from callbacks.views import AlgorithmView

_LOGGER = logging.getLogger(__name__)

# ---- siblings

CallbackT = TypeVar("CallbackT")


def objects_beside(algorithm: AlgorithmView, kind: type[CallbackT]) -> list[CallbackT]:
    """The callback objects of an algorithm that are of one kind, those in groups included.

    Stand-ins for algorithms in tests may have no chain of callbacks; they have none beside.
    """
    chain = getattr(algorithm, "callbacks", None)
    return list(_of_kind(getattr(chain, "objects", ()), kind))


def _of_kind(objects: Iterable[object], kind: type[CallbackT]) -> Iterator[CallbackT]:
    for instance in objects:
        if isinstance(instance, CallbackGroup):
            yield from _of_kind(instance.chain.objects, kind)
        elif isinstance(instance, kind):
            yield instance


# ---- rows of a run


class RunRows:
    """The rows of one run, as its loggers share them: each result is written once.

    Life: `expect` when a result is complete, `write_expected` if a checkpoint is saved meanwhile,
    `write` when all have saved.

    Attributes:
        file: where they are.
        followers: of all loggers.
        is_new_run: no checkpoint was loaded, and nothing is written yet.

    Args:
        path: of the file.
        user: the logger, for errors.
    """

    def __init__(self, path: Path, user: str) -> None:
        self.file = RowsFile(path)
        self.followers: list[Follower] = []
        self.is_new_run = True
        self._user = user
        self._expected: tuple[AlgorithmView, Mapping[str, Any]] | None = None
        self._finished: object = None
        self._is_mine = self._has_logged = False
        self._waiting: list[tuple[int, bytes]] = []
        self._num_refused = 0

    @property
    def num_lost(self) -> int:
        """Rows that are not in the file: they cannot be written, or could not until now."""
        return self._num_refused + len(self._waiting)

    def expect(self, algorithm: AlgorithmView, result: Mapping[str, Any]) -> None:
        """Takes note of a result that is complete, but for what fails when it is saved."""
        self._expected = algorithm, result

    def forget_expected(self) -> None:
        """The iteration under way is undone."""
        self._expected = None

    def write_expected(self) -> None:
        """Writes the row of the iteration under way, as a checkpoint that counts it is saved."""
        if self._expected is not None:
            self._write(*self._expected)

    def write(self, algorithm: AlgorithmView, result: Mapping[str, Any]) -> None:
        """Writes the row of a result, and wakes who follows; once, whoever asks for it.

        Raises:
            CallbackConfigError: another run writes to the file, and this one has not begun to.
        """
        if self._finished is not result:
            self._write(algorithm, result)
            self._expected, self._finished = None, result
            for follower in self.followers:
                follower.wake()

    def _write(self, algorithm: AlgorithmView, result: Mapping[str, Any]) -> None:
        try:
            number, line = iteration_of(result), encoded_row(row_of(result))
        except Exception as error:  # noqa: BLE001 - a value of the user may raise; it is counted
            self._num_refused += 1
            self._log("A row cannot be written to %s (%r). Training goes on without it", error)
            return
        self._waiting = [*(each for each in self._waiting if each[0] < number), (number, line)]
        try:
            self._claim(algorithm)
            if self.is_new_run and (number == 1 or self.file.has(number)):
                self._set_aside()
                self._claim(algorithm)
            self.is_new_run = False
            while self._waiting:
                self.file.append_line(*self._waiting[0])
                del self._waiting[0]
        except OSError as error:
            self._log("Rows cannot be written to %s now (%s). Training goes on; they wait", error)

    def _claim(self, algorithm: AlgorithmView) -> None:
        path = self.file.path
        try:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            claim(path, algorithm)
        except BlockingIOError as error:
            if self._is_mine:
                raise  # it was replaced by others
            raise CallbackConfigError(
                [
                    f"{self._user}: {path} is in use, {error} writes its rows there. Give every "
                    "run a path of its own, or stop the other one first: `stop()`, or the end of "
                    "its process"
                ]
            ) from error
        self._is_mine = True

    def _set_aside(self) -> None:
        """Makes room for a new run; one that goes on behind what is there leaves it."""
        for follower in self.followers:
            follower.set_aside()
        self.file.set_aside()

    def _log(self, text: str, error: Exception) -> None:
        if not self._has_logged:
            self._has_logged = True
            _LOGGER.warning(
                text + ". They are counted in fault_tolerance/%s, and no further warning is given.",
                self.file.path,
                error,
                NUM_LOST_ROWS,
            )


# ---- loggers


class ResultSink(Protocol):
    """Where rows go. It is copied and pickled before its first use, so open nothing before."""

    def append(self, row: Mapping[str, Any]) -> None:
        """Takes one row: a nested dict without the config, for the sink to keep.

        A row of an iteration that came already takes its place, and later rows are void.
        """

    def start_anew(self, row: Mapping[str, Any]) -> None:
        """Called before the first row of a run that goes on with no checkpoint.

        What an earlier run has written there must not be lost.
        """


class _RowsAlone(Sink):
    """No sink: who wants the rows reads their file."""

    def _place(self, path: Path) -> None:
        super()._place(path)
        self.rows_path, self.bookmark = path, None


class _OfUser(Sink):
    """An object of the user as a sink; a row that it refuses but by an OSError is left out."""

    holds_points = False

    def __init__(self, sink: ResultSink, rows: str | Path) -> None:
        self.sink = sink
        self._is_new_run = False
        super().__init__(rows)

    def _place(self, path: Path) -> None:
        self.path = self.rows_path = path
        self.name = type(self.sink).__name__
        self.bookmark = path.with_suffix(f".{self.name}.bookmark")

    def append(self, number: int, row: dict[str, Any]) -> None:
        del number  # the row says it
        try:
            if self._is_new_run:
                self.sink.start_anew(row)
                self._is_new_run = False  # not before it worked: nothing may be written over
            self.sink.append(row)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises; it is counted
            self.num_lost += 1
            if self.num_lost == 1:
                _LOGGER.warning(
                    "%s refused a row (%r), which is left out there. Training goes on; such rows "
                    "are counted in fault_tolerance/%s, and no further warning is given.",
                    self.name,
                    error,
                    NUM_LOST_ROWS,
                )

    def set_aside(self) -> None:
        self._is_new_run = True


class ResultLogger(RLlibCallback):
    """Hands every result to a sink: the files of this package, or an object of your own.

        class Tracker:                                  # a sink of your own
            def append(self, row): some_library.log(row, step=row["training_iteration"])
            def start_anew(self, row): some_library.init()

        config.callbacks([ResultLogger(Tracker(), rows="logs/rows.jsonl")])

    Whatever the sink does, training goes on, and waits for nothing. If it hangs or raises an
    OSError, it gets the rows that it lacks later; a row that it refuses otherwise is counted.

    Args:
        sink: Where rows go; it is only ever called by one thread at a time.
        rows: The file that keeps the rows, of one run: a process that goes on with the run hands
            over what the sink did not get.

    Attributes:
        sink: Where rows go.
    """

    def __init__(self, sink: ResultSink | Sink, *, rows: str | Path = "rows.jsonl") -> None:
        _check_path(type(self).__name__, rows, is_directory=False)
        self.sink: Any = sink
        self._sink = sink if isinstance(sink, Sink) else _OfUser(sink, rows)
        self._num_lost_before = 0
        self._rows: RunRows | None = None
        self._follower: Follower | None = None

    @property
    def rows_path(self) -> Path:
        """The file that keeps the rows, absolute."""
        return self._sink.rows_path

    @property
    def num_rows_lost(self) -> int:
        """How many results could not be written in this run, restored parts included."""
        return max(0, self._num_lost_before + self._num_lost_here)

    @property
    def _num_lost_here(self) -> int:
        return self._sink.num_lost + (0 if self._rows is None else self._rows.num_lost)

    def flush(self, timeout_s: float = EXIT_PATIENCE_S) -> bool:
        """Waits until the sink has all rows, or refuses them; False if that takes longer."""
        return self._follower is None or self._follower.thread.flush(timeout_s)

    def close(self) -> None:
        """Waits a little until the sink has all rows; for a run that is over."""
        if self._follower is not None:
            self._follower.thread.end()
            self.flush()

    # ---- events

    def on_algorithm_init(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """Shares rows with the loggers beside; refuses to share a path otherwise."""
        for other in objects_beside(algorithm, ResultLogger):
            shared = other._own_paths & {*self._own_paths, self.rows_path}
            if other is not self and shared:
                names = f"{name_of(type(other))} and {name_of(type(self))}"
                place = f"{names} write to the same place, {shared.pop()}"
                raise CallbackConfigError([f"{place}. Give each a path of its own"])
            if other._rows is not None and other.rows_path == self.rows_path:
                self._rows = other._rows
        self._begin()

    @property
    def _own_paths(self) -> set[Path | None]:
        """What it writes besides rows."""
        return {self._sink.path, self._sink.bookmark} - {None, self.rows_path}

    def _begin(self) -> RunRows:
        """Makes what a logger needs that is in use; a copy, such as that of a runner, has none."""
        if self._rows is None:
            self._rows = RunRows(self.rows_path, name_of(type(self)))
        if self._sink.bookmark is not None and self._follower is None:
            thread = FollowerThread(self._sink.name)
            self._follower = Follower(self._rows.file, self._sink, thread)
            self._rows.followers.append(self._follower)
        return self._rows

    def on_train_result(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """Writes when the result is complete, after all who may still change it by then."""
        algorithm.after_train_result(partial(self._on_complete, algorithm))
        # By then checkpoints are saved: a row is to say whether that failed.
        algorithm.after_train_result(partial(self._on_saved, algorithm), phase="report")

    def _on_complete(self, algorithm: AlgorithmView, result: Mapping[str, Any]) -> None:
        count_fault(result, NUM_LOST_ROWS, self.num_rows_lost)
        self._begin().expect(algorithm, result)

    def _on_saved(self, algorithm: AlgorithmView, result: Mapping[str, Any]) -> None:
        self._begin().write(algorithm, result)

    def on_checkpoint_loaded(self, **_: Any) -> None:
        """From now on, rows replace those that are there.

        Nothing is dropped yet: who loads a checkpoint to look at it or to evaluate loses no rows.
        """
        rows = self._begin()
        rows.forget_expected()
        rows.is_new_run = False

    # ---- state

    def get_state(self) -> dict[str, Any]:
        """How many rows were lost; what is written, the files themselves know.

        A checkpoint that is saved while the newest row is not written yet gets here, and a kill
        after it would lose the row for ever. So it is written now.
        """
        if self._rows is not None:
            self._rows.write_expected()
        return {"num_rows_lost": self.num_rows_lost}

    def set_state(self, state: dict[str, Any]) -> None:
        """The iteration under way is void: it was undone, or a checkpoint was loaded."""
        self._num_lost_before = state.get("num_rows_lost", 0) - self._num_lost_here
        if self._rows is not None:
            self._rows.forget_expected()

    def __getstate__(self) -> dict[str, Any]:
        """A copy, such as that for an env runner, begins without rows and follower."""
        begun = {"_rows": None, "_follower": None}
        num_lost = self.num_rows_lost - self._sink.num_lost
        return {**self.__dict__, **begun, "_num_lost_before": num_lost}


def close_loggers(algorithm: AlgorithmView) -> None:
    """Has the loggers of an algorithm that was stopped write what is left."""
    for logger in objects_beside(algorithm, ResultLogger):
        logger.close()


class JSONLinesLogger(ResultLogger):
    """Writes every result as a line of JSON; RLlib's `JsonLoggerCallback`.

    Args:
        path: The file, `results.jsonl` in the current folder by default. A run that goes on with a
            checkpoint goes on with the file; one that begins gives an older file another name.
    """

    def __init__(self, path: str | Path = "results.jsonl") -> None:
        _check_path("JSONLinesLogger", path, is_directory=False)
        super().__init__(_RowsAlone(path))


class CSVLogger(ResultLogger):
    """Writes every result as a line of a table; RLlib's `CSVLoggerCallback`.

    A metric that appears late gets its column then, and the earlier rows stay. The table is made
    from the rows in a file beside it, which ends with `.jsonl`; `JSONLinesLogger` may write the
    same one.

    Args:
        path: The file, `results.csv` in the current folder by default; see `JSONLinesLogger`.
    """

    def __init__(self, path: str | Path = "results.csv") -> None:
        _check_path("CSVLogger", path, is_directory=False)
        super().__init__(CSVResults(path))


class TensorBoardLogger(ResultLogger):
    """Writes the numbers of every result for TensorBoard, over env steps.

    RLlib's `TBXLoggerCallback`. Needs `pip install 'local-trainer[tensorboard]'`. Curves are made
    from `rows.jsonl` in the directory.

    Args:
        directory: Where the event files go, `tensorboard` in the current folder by default.

    Raises:
        ImportError: tensorboardX is not installed.
    """

    def __init__(self, directory: str | Path = "tensorboard") -> None:
        _check_path("TensorBoardLogger", directory, is_directory=True)
        super().__init__(TensorBoardResults(directory))


def _check_path(user: str, path: object, *, is_directory: bool) -> None:
    """Refuses what can never be written to, when the run is configured."""
    kind = "directory" if is_directory else "file"
    if not isinstance(path, str | Path) or str(path) in ("", "."):
        raise CallbackConfigError(
            [f"{user} got {path!r}; expected the path of a {kind}, as text or pathlib.Path"]
        )
    there = Path(path).expanduser()
    if there.exists() and not (there.is_dir() if is_directory else there.is_file()):
        raise CallbackConfigError(
            [f"{user} got {str(path)!r}, which is no {kind}; give the path of a {kind}"]
        )
