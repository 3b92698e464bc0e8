"""What a tracker costs training whose server has stopped answering."""

from __future__ import annotations

import http.server
import json
import logging
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, report
from trainer import Algorithm, PPOConfig, TrackerLogger

NUM_REPEATS = 200  # single pairs vary by a third: nine say nothing about two per cent


class SilentServer(http.server.ThreadingHTTPServer):
    """Answers rows until `is_silent` is set, and then never again.

    Attributes:
        num_rows: how many rows have come.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.num_rows = 0
        self.is_silent = threading.Event()
        self.is_over = threading.Event()


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        if not isinstance(server, SilentServer):
            raise TypeError(f"expected a SilentServer, not {type(server).__name__}")
        self.rfile.read(int(self.headers["Content-Length"]))
        if server.is_silent.is_set():
            server.is_over.wait()
        server.num_rows += 1
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        """Nothing is printed."""


class PostingService:
    """Posts each row, and waits for the answer as long as it takes."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/"

    def open_run(self, run_id: str, facts: Mapping[str, Any]) -> str:
        """The address of the run."""
        del facts
        return self._url + run_id

    def log_row(self, run: str, row: Mapping[str, float], step: int) -> None:
        """Posts a row."""
        del step
        request = urllib.request.Request(run, data=json.dumps(row).encode(), method="POST")
        with urllib.request.urlopen(request):
            pass

    def close_run(self, run: str, *, failed: bool) -> None:
        """Nothing is to be ended."""


def main(num_repeats: int = NUM_REPEATS) -> None:
    """Prints the ratios of iterations with a silent server to those without a tracker."""
    print("trackers: PPO on CartPole-v1, main process, 8 envs, 4,096 env steps per iteration")
    handler = _CountingHandler()
    logger = logging.getLogger("callbacks")
    logger.addHandler(handler)
    server = SilentServer()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            walls, processors, kept = measured(server, Path(folder), num_repeats)
    finally:
        server.is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()
        logger.removeHandler(handler)
    report("wall clock, silent server / no tracker", walls, target="1.0 ± 0.02")
    report("processor time, silent server / no tracker", processors, target="1.0 ± 0.02")
    print(f"  rows kept: {kept} of {num_repeats + 2}; warnings: {handler.num_warnings}")


def measured(server: SilentServer, folder: Path, num_repeats: int) -> tuple[Figure, Figure, int]:
    """Wall clock and processor time of iterations, pair by pair, and how many rows were kept.

    The order within a pair changes from pair to pair.
    """
    tracker = TrackerLogger(PostingService(server.server_port), folder / "tracker")
    walls: list[float] = []
    processors: list[float] = []
    with _config().build_algo() as alone, _config(tracker).build_algo() as tracked:
        for algo in (alone, tracked):
            algo.train()
        tracked.callbacks.objects[0].flush(30)
        server.is_silent.set()
        for algo in (alone, tracked):
            algo.train()
        for index in range(num_repeats):
            order = (alone, tracked) if index % 2 else (tracked, alone)
            times = {id(algo): _timed(algo) for algo in order}
            wall, processor = (
                times[id(tracked)][which] / times[id(alone)][which] for which in (0, 1)
            )
            walls.append(wall)
            processors.append(processor)
        server.is_over.set()  # the rest is sent before the folder is removed
        tracked.callbacks.objects[0].flush(30)
    rows = (folder / "tracker" / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    return Figure(walls, "×"), Figure(processors, "×"), len(rows)


def _timed(algo: Algorithm) -> tuple[float, float]:
    """Seconds of an iteration by the clock and of this process's processor time."""
    began_at, used_s = time.perf_counter(), time.process_time()
    algo.train()
    return time.perf_counter() - began_at, time.process_time() - used_s


def _config(tracker: TrackerLogger | None = None) -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size=4096, minibatch_size=128, num_epochs=5, lr=0.0)
        .callbacks([] if tracker is None else [tracker])
        .debugging(seed=0)
    )


class _CountingHandler(logging.Handler):
    """Counts warnings of callbacks."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.num_warnings = 0

    def emit(self, record: logging.LogRecord) -> None:
        del record
        self.num_warnings += 1
