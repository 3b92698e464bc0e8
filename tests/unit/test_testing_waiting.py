"""Whether a process lives, however the operating system tells it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from trainer.testing import is_process_alive, processes, wait_until


@pytest.mark.parametrize("folder", [Path("/proc"), Path("/nothing/here")])
def test_a_process_lives_until_it_ends_whether_or_not_it_is_collected(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    with monkeypatch.context() as patch:
        patch.setattr(processes, "_PROCESSES", folder)
        assert is_process_alive(child.pid)
        assert is_process_alive(os.getpid())
        child.stdin.close()
        assert wait_until(lambda: not is_process_alive(child.pid)), "a zombie does not live"
        child.wait()
        assert not is_process_alive(child.pid)
