"""What forged and damaged files are made of, and what is watched while they are read.

*Damaged* is what disks and networks do to bytes: bits flipped, ends cut off, blocks repeated, pages
of zeros. *Forged* is what somebody writes who knows the format: values of other types, huge
numbers, deep nesting, long texts, NaN, the names of modules and functions, with checksums that fit.
The names lead to a canary: a module that leaves a file behind when it is imported or called.
"""

import dataclasses
import json
import os
import random
import time
from pathlib import Path

import numpy as np

from tests.mutated_states import at

MODULE = "canary_of_hostile_checkpoints"
PROOF = "canary was run"
"""The file that it leaves behind."""
MAX_SECONDS = 5.0
MAX_BYTES = 200 * 2**20
Rng = random.Random


def write_canary(folder):
    """Writes the module into a folder, which the caller puts on `sys.path`."""
    text = (
        f"def run(*arguments, **more):\n    open({str(folder / PROOF)!r}, 'w').close()\n\n\n"
        "Env = run\nrun()\n"
    )
    (folder / f"{MODULE}.py").write_text(text)


# ---- what is planted


def hostile_values(rng):
    """Something that is not expected at this place, and that is plain data all the same."""
    name = rng.choice([f"{MODULE}.Env", f"{MODULE}:Env-v0", "os.system", "pydoc.pipepager"])
    choices = [
        lambda: name,
        lambda: {"type": name, "cmd": "true", "text": ""},
        lambda: {"type": "Curiosity", "sub_exploration": {"type": name}},
        lambda: {"env": name, "exploration_config": {"type": name}},
        lambda: "trainer.testing.envs.FailingEnv",
        lambda: rng.choice([2**31, 2**62, 2**64, 2**1000, 10**5000, -1, -(2**63), 0]),
        lambda: rng.choice([float("nan"), float("inf"), -0.0, 1e308, 5e-324]),
        lambda: rng.choice([None, True, "", "\x1b[2J", "../../etc", b"\x00", 1j, (), [], {}]),
        lambda: rng.choice([np.float32(1), np.int64(-1), np.str_(name), np.datetime64(3, "s")]),
        lambda: np.zeros(rng.choice([(0,), (2**20, 0), (1,), (3, 4)]), rng.choice(["S0", "f8"])),
        lambda: np.zeros(3, [("a", "i4"), ("b", "S0")]),
        lambda: nested(rng.randrange(1, 60)),
        lambda: {n: n for n in range(rng.randrange(300))},
        lambda: set(range(rng.randrange(300))),
        lambda: "x" * rng.randrange(100_000),
        lambda: [0.5] * rng.randrange(100_000),
        lambda: {"__class__": name, "__reduce__": name, "__dict__": {}},
    ]
    return rng.choice(choices)()


TAGS = (
    *("$tuple", "$range", "$float", "$dict", "$domain", "$part", "$seconds", "$distribution"),
    *("$config", "$code", "$unknown"),
)


def hostile_json(rng):
    """A hostile value that JSON can hold."""
    while True:
        value = hostile_values(rng)
        if rng.random() < 0.2:  # as `trainer_toolkit.plain_json` and the journal's header write it
            value = {rng.choice(TAGS): value}
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            continue
        return value


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def leaves(state, place=()):
    """All places in dicts and lists, those of containers included."""
    if place:
        yield place
    pairs = ()
    if isinstance(state, dict):
        pairs = state.items()
    elif isinstance(state, list):
        pairs = enumerate(state)
    for key, value in pairs:
        yield from leaves(value, (*place, key))


def hostile_key(rng):
    return rng.choice(["type", "env", "__class__", "\x1b[2J", "env_config", "sub_exploration"])


def plant(state, place, rng, values=hostile_values):
    """Puts a hostile value at a place of a state, or beside it."""
    try:
        parent = at(state, place[:-1])
        if rng.random() < 0.15 and isinstance(parent, dict):
            parent[hostile_key(rng)] = values(rng)
        else:
            parent[place[-1]] = values(rng)
    except (KeyError, IndexError, TypeError, ValueError):
        return  # an earlier value has taken the place of what led there


def spoilt_bytes(data, rng):
    """Bytes with one to three small changes."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(changed))
        kind = rng.randrange(4)
        if kind == 0:
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[place] = rng.randrange(256)
        elif kind == 2:
            part = changed[place : place + rng.randrange(1, 20)]
            changed[place:place] = part
        else:
            del changed[place : place + rng.randrange(1, 5)]
        if not changed:
            return b""
    return bytes(changed)


def damaged_bytes(data, rng):
    """Bytes after a fault of a disk or a network: of bits, an end, a block, a page."""
    changed = bytearray(data)
    place = rng.randrange(len(changed))
    kind = rng.randrange(4)
    if kind == 0:
        for _ in range(rng.randrange(1, 9)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del changed[place:]
    elif kind == 2:
        changed[place:place] = changed[place : place + rng.choice([1, 64, 512, 4096])]
    else:
        end = min(len(changed), place + rng.choice([16, 512, 4096]))
        changed[place:end] = bytes(end - place)
    return bytes(changed)


# ---- what is watched

PROGRAMS = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork")


@dataclasses.dataclass
class Watch:
    """Notes what the interpreter does while `is_on`, if it is none of our business."""

    folder: Path
    is_on: bool = False
    seen: list[str] = dataclasses.field(default_factory=list)

    def __call__(self, event, arguments):
        if not self.is_on:
            return
        if event == "import" and str(arguments[0]).startswith(MODULE):
            self.seen.append(f"import {arguments[0]}")
        elif event in PROGRAMS or (event == "pickle.find_class" and MODULE in str(arguments)):
            self.seen.append(f"{event} {arguments!r:.100}")
        elif event in ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link"):
            self._note_outside(event, arguments[0])
        elif event == "open" and isinstance(arguments[0], str | bytes):
            is_written = set("wax+") & set(str(arguments[1] or "")) or (
                isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            )
            if is_written and arguments[0] != os.devnull:
                self._note_outside(event, arguments[0])

    def _note_outside(self, event, path):
        if isinstance(path, int):  # an open file, which was judged when it was opened
            return
        if not Path(os.fsdecode(path)).absolute().is_relative_to(self.folder):
            self.seen.append(f"{event} {path!r}")


class Cost:
    """Seconds of the processor, and how far the process's peak of memory rose in between.

    Where the peak can't be reset (a container may refuse it), memory below the former peak goes
    unseen.
    """

    def __enter__(self):
        try:
            Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is used now
        except OSError:
            pass
        self._before, self._start = memory("VmHWM"), time.process_time()
        return self

    def __exit__(self, *_):
        self.seconds = time.process_time() - self._start
        self.num_bytes = memory("VmHWM") - self._before


def memory(field):
    """Bytes in use now (`VmRSS`) or at the peak (`VmHWM`); 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
