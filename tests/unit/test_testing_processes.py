"""Whether a process lives, and what tests leave behind."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from trainer.testing import RandomKiller, is_process_alive, no_leaks, processes, wait_until


@contextmanager
def left_behind(text):
    with pytest.raises(AssertionError, match=text), no_leaks(within_s=0.05):
        yield


def test_what_leaves_nothing_behind_passes(tmp_path):
    with no_leaks(within_s=0.05):
        (tmp_path / "file").write_text("text")
        subprocess.run([sys.executable, "-c", ""], check=True)
        thread = threading.Thread(target=lambda: None)
        thread.start()


def test_a_file_that_stays_open_is_found(tmp_path):
    path = tmp_path / "log"
    with left_behind(r"files: \d+.*log"):
        file = path.open("w")
    file.close()


def test_a_thread_that_goes_on_is_found():
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait, name="endless")
    with left_behind("threads: endless"):
        thread.start()
    is_over.set()
    thread.join()


def test_processes_of_processes_are_found():
    script = "import subprocess, sys; subprocess.run(['sleep', '60'])"
    with left_behind(r"processes: \d+ \(sleep\)"):
        process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
        assert wait_until(lambda: children_of(process.pid) != [])
    (child,) = children_of(process.pid)
    process.kill()
    process.wait()
    subprocess.run(["kill", "-9", str(child)], check=True)
    assert wait_until(lambda: not is_process_alive(child))


def children_of(pid):
    told = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True).stdout
    pairs = [tuple(map(int, line.split())) for line in told.splitlines()]
    return [child for child, parent in pairs if parent == pid]


@pytest.mark.skipif(sys.platform != "linux", reason="only there it can be listed")
def test_shared_memory_that_is_not_removed_is_found():
    with left_behind("shared_memory: .*/dev/shm/"):
        block = SharedMemory(create=True, size=64)
    block.close()
    block.unlink()


def test_an_error_in_the_block_comes_out_as_it_is():
    with pytest.raises(ZeroDivisionError), no_leaks(within_s=0.05):
        assert 1 / 0


@contextmanager
def sleepers(count):
    processes = [subprocess.Popen(["sleep", "60"]) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_the_killer_hits_those_that_live_and_writes_down_whom():
    with sleepers(8) as processes:

        def living():
            return [process.pid for process in processes if process.poll() is None]

        with RandomKiller(living, seed=3, mean_delay_s=0.002, most_at_once=2) as killer:
            assert wait_until(lambda: len(living()) < 6)
        killed = {kill.pid for kill in killer.kills}
        assert wait_until(lambda: not killed & set(living()))
        assert killed == {process.pid for process in processes} - set(living())
    assert {kill.signal_number for kill in killer.kills} == {signal.SIGKILL}
    assert [kill.at_s for kill in killer.kills] == sorted(kill.at_s for kill in killer.kills)


def choices(seed):
    """Which signals are sent, of two that do nothing."""
    with (
        sleepers(1) as (process,),
        RandomKiller(
            lambda: [process.pid],
            seed=seed,
            mean_delay_s=0.0005,
            most_kills=8,
            signals=(0, signal.SIGCONT),
        ) as killer,
    ):
        assert wait_until(lambda: len(killer.kills) == 8)
    return [kill.signal_number for kill in killer.kills]


def test_the_same_seed_makes_the_same_choices():
    assert choices(1) == choices(1) != choices(2)


@pytest.mark.parametrize("folder", [Path("/proc"), Path("/nothing/here")])
def test_a_process_lives_until_it_ends_whether_or_not_it_is_collected(folder, monkeypatch):
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    with monkeypatch.context() as patch:
        patch.setattr(processes, "_PROCESSES", folder)
        assert is_process_alive(child.pid)
        assert is_process_alive(os.getpid())
        child.stdin.close()
        assert wait_until(lambda: not is_process_alive(child.pid)), "a zombie does not live"
        child.wait()
        assert not is_process_alive(child.pid)
