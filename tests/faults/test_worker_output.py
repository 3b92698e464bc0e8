"""What two processes print at once can be read: no line within another."""

import os
import re
import subprocess
import sys

import pytest

from trainer.runtime.worker import WholeLines

_CHATTY = """
import os, sys
from trainer.runtime.messages import pack
from trainer.runtime.worker_pool import WorkerPool

class Handler:
    def __init__(self, progress): pass
    def report(self): return os.getpid()
    def failure_context(self): return {}
    def close(self): pass
    def chat(self, letter):
        for number in range(100):
            print(letter * 30, number, letter * 30)
            print("\\n".join([letter * 90] * 60), file=sys.stderr)
        print("the end of", letter, end="")  # no line, and not lost

pool = WorkerPool(["a", "b"])
for place in pool.places.values(): place.start(pack(Handler))
for _ in pool.places: pool.next_outcome()
for letter, place in zip("ab", pool.places.values()): place.submit("chat", (letter,))
for _ in pool.places: pool.next_outcome()
pool.stop()
"""


@pytest.mark.process
def test_lines_of_two_workers_do_not_mix():
    done = subprocess.run(
        [sys.executable, "-c", _CHATTY], capture_output=True, text=True, check=True, timeout=60
    )
    text = re.sub("the end of [ab]", "", done.stdout)
    assert done.stdout.count("the end of") == 2
    lines = text.splitlines()
    expected = [f"{who * 30} {n} {who * 30}" for who in "ab" for n in range(100)]
    assert sorted(lines) == sorted(expected)
    assert set(done.stderr.splitlines()) == {"a" * 90, "b" * 90}
    assert len(done.stderr.splitlines()) == 2 * 100 * 60


def written(pieces):
    """What arrives at the other end of a pipe, one entry per write (they are packets)."""
    read_end, write_end = os.pipe2(os.O_DIRECT)
    out = WholeLines(write_end)
    try:
        pieces(out)
        os.set_blocking(read_end, False)
        found = []
        while True:
            try:
                found.append(os.read(read_end, 65536))
            except BlockingIOError:
                return found
    finally:
        out.close()
        os.close(read_end)
        os.close(write_end)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a pipe that keeps writes apart")
def test_what_a_pipe_does_not_take_at_once_is_cut_between_lines():
    lines = [b"x" * 99 + b"\n"] * 100
    assert written(lambda out: out.write(b"".join(lines))) == [
        b"".join(lines[:40]),
        b"".join(lines[40:80]),
        b"".join(lines[80:]),
    ]
    long_line = b"y" * 5000 + b"\n"
    assert written(lambda out: out.write(long_line)) == [long_line[:4096], long_line[4096:]]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a pipe that keeps writes apart")
def test_the_beginning_of_a_line_waits_for_its_end_or_for_a_flush():
    def write(out):
        for part in (b"a", b" ", b"b", b"\nc\nd", b"e\n", b"rest"):
            assert out.write(part) == len(part)

    assert written(write) == [b"a b\nc\n", b"de\n"]

    def write_and_flush(out):
        write(out)
        out.flush()
        out.flush()

    assert written(write_and_flush) == [b"a b\nc\n", b"de\n", b"rest"]
