"""What every test gets: a check that it leaves nothing behind."""

from __future__ import annotations

import gc
import multiprocessing
import threading
from collections.abc import Iterator

import pytest

from trainer.testing.waiting import wait_until


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fails a test after which more processes or threads live than before it."""
    threads_before = set(threading.enumerate())
    yield

    def processes() -> list[str]:
        return [process.name for process in multiprocessing.active_children()]

    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread not in threads_before]

    if processes() or threads():
        gc.collect()
    assert wait_until(lambda: not processes()), f"processes are left: {processes()}"
    assert wait_until(lambda: not threads()), f"threads are left: {threads()}"
