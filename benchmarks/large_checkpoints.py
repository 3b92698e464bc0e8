"""How fast a full replay buffer is saved and restored, against the disk itself, and at what memory.

The disk's own speed: the same number of bytes, in pieces of the same size, from or into one piece
of memory, by plain writes and one fsync, or plain reads. Before every reading, the file's pages are
dropped from the page cache (`posix_fadvise`), so that the disk is read and not memory.

On a virtual machine the first touch of memory that the host had taken back costs more than hashing
(here 1.4 s per GB), for the first to come. So before each measurement, the disk's own included,
twice the buffer is taken and given back.

Extra memory: how much the anonymous memory of this process (`RssAnon` in /proc/self/status, looked
at every 5 ms by a thread) grows above what it is before; for restoring into an empty buffer, above
that and what the buffer keeps in the end. The page cache, which the system takes back when anybody
needs memory, is not in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import Figure, ratio, report
from checkpoints import Checkpointable, HasState
from trainer.replay import ReplayBuffer

NUM_BYTES = 2 * 10**9
REPEATS = 5
PIECE_BYTES = 4 * 2**20
_IMAGE = (84, 84, 4)
_INTERVAL_S = 0.005


class Owner(Checkpointable):
    """What has a replay buffer and nothing else."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        return [("replay_buffer", self.buffer)]


class AnonymousMemory:
    """Samples the anonymous memory of this process. `with AnonymousMemory() as memory:` …"""

    def __enter__(self) -> AnonymousMemory:
        self.before = self.peak = anonymous_bytes()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        self.after = anonymous_bytes()

    def _watch(self) -> None:
        while not self._done.wait(_INTERVAL_S):
            self.peak = max(self.peak, anonymous_bytes())


def anonymous_bytes() -> int:
    """Anonymous memory of this process that is in RAM."""
    text = Path("/proc/self/status").read_text("ascii")
    line = next(line for line in text.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def image_buffer(num_bytes: int) -> ReplayBuffer:
    """A full buffer of one never-ending episode of images, about so large."""
    capacity = num_bytes // (int(np.prod(_IMAGE)) + 8 + 8 + 8 + 8 + 4 + 1)
    rng = np.random.default_rng(0)
    # Frame 0 is that of zeros; each later one is seen after one step and before the next.
    seen = np.arange(1, capacity + 1)[:, None]
    columns: dict[str, np.ndarray[Any, np.dtype[Any]]] = {
        "obs": seen,
        "new_obs": seen + 1,
        "actions": np.zeros(capacity, np.int64),
        "rewards": np.zeros(capacity, np.float32),
        "terminateds": np.zeros(capacity, np.bool_),
    }
    layout = {name: [a.dtype.str, list(a.shape[1:])] for name, a in columns.items()}
    layout["obs"] = layout["new_obs"] = ["|u1", list(_IMAGE)]
    frames = rng.integers(0, 256, (capacity + 2, *_IMAGE), np.uint8)
    buffer = ReplayBuffer(capacity)
    buffer.set_state(
        {
            "type": "ReplayBuffer",
            "capacity": capacity,
            "num_added": capacity,
            "following": np.arange(1, capacity + 1) % capacity,
            "layout": layout,
            "columns": columns,
            "frames": {"": {"split": [0, 1], "frames": frames}},
            "nesting": {"obs": None, "actions": None},
            "running_episodes": [],
        }
    )
    return buffer


def main() -> None:
    """Prints speeds, ratios and extra memory for a buffer of 2 GB."""
    if not Path("/proc/self/status").exists():
        print("large checkpoints: not measured, this system has no /proc")
        return
    buffer = image_buffer(NUM_BYTES)
    print(f"large checkpoints: {buffer!r}; SHA-256 of one thread {_hash_speed():,.0f} MB/s")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        _measure(buffer, Path(folder))


def _measure(buffer: ReplayBuffer, folder: Path) -> None:
    rounds = [_round(Owner(buffer), folder) for _ in range(REPEATS + 1)]
    # The first one wakes the disk.
    _report({name: [values[name] for values in rounds[1:]] for name in rounds[0]})


def _round(owner: Owner, folder: Path) -> dict[str, float]:
    """One measurement of everything: speeds in MB/s, extra memory in MB."""
    raw, path = folder / "raw", folder / "c"
    _take_memory()
    found = {"write": _speed(lambda: _write(raw))}
    _take_memory()
    with AnonymousMemory() as saving:
        found["save"] = _speed(lambda: owner.save_to_path(path))
    _drop([raw])
    _take_memory()
    found["read"] = _speed(lambda: _read(raw))
    fresh = Owner(ReplayBuffer(owner.buffer.capacity))
    _drop(path.iterdir())
    _take_memory()
    with AnonymousMemory() as restoring:
        found["restore"] = _speed(lambda: fresh.restore_from_path(path))
    with AnonymousMemory() as restoring_again:
        fresh.restore_from_path(path)
    raw.unlink()
    shutil.rmtree(path)
    found["extra of save"] = (saving.peak - saving.before) / 1e6
    found["extra of restore"] = (restoring.peak - max(restoring.before, restoring.after)) / 1e6
    found["restore into a full one"] = (restoring_again.peak - restoring_again.before) / 1e6
    return found


def _report(found: dict[str, list[float]]) -> None:
    figures = {name: Figure(found[name], "MB/s") for name in ("write", "save", "read", "restore")}
    report("disk: plain write and fsync", figures["write"])
    report("save_to_path()", figures["save"])
    report("ratio", ratio(figures["save"], figures["write"]), target="≥ 0.5")
    report("disk: plain read", figures["read"])
    report("restore_from_path() into an empty buffer", figures["restore"])
    report("ratio", ratio(figures["restore"], figures["read"]), target="≥ 0.5")
    report("extra memory: save", Figure(found["extra of save"], "MB"), target="≤ 100")
    extra = Figure(found["extra of restore"], "MB")
    report("extra memory: restore into an empty buffer", extra, target="≤ 100")
    kept = Figure(found["restore into a full one"], "MB")
    report("memory: restore into a full one, whose steps are kept", kept)


def _take_memory() -> None:
    np.ones(2 * NUM_BYTES + 2**28, np.uint8)


def _speed(act: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    act()
    return NUM_BYTES / 1e6 / (time.perf_counter() - started_at)


def _write(path: Path) -> None:
    piece = np.random.default_rng(0).bytes(PIECE_BYTES)
    with path.open("wb", buffering=0) as file:
        for _ in range(NUM_BYTES // PIECE_BYTES):
            file.write(piece)
        os.fsync(file.fileno())


def _read(path: Path) -> None:
    piece = bytearray(PIECE_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(piece):
            pass


def _drop(paths: Iterable[Path]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _hash_speed() -> float:
    piece = bytes(PIECE_BYTES)
    started_at = time.perf_counter()
    digest = hashlib.sha256()
    for _ in range(64):
        digest.update(piece)
    return 64 * PIECE_BYTES / 1e6 / (time.perf_counter() - started_at)
