"""Thousands of damaged and forged checkpoints: each is refused by name, or read as it was saved.

Damage leaves the manifest as it was, so hashes find it. A forgery comes with a manifest that fits,
so that the decoder meets it: it may hold any data, but never runs code, hangs or takes memory that
its bytes do not account for.
"""

import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import ormsgpack
import pytest

from checkpoints import CheckpointError, encode, pack_code, read_checkpoint, write_checkpoint
from tests.traced_memory import takes_less

Files = dict[str, bytes]
Rng = np.random.Generator

STATES = {
    "learner/rl_module": {"w": np.arange(48, dtype=np.float32).reshape(6, 8), "b": np.zeros(2)},
    "replay_buffer": {"obs": np.ones((8, 6), np.float32), "new": [np.arange(30.0).reshape(5, 6).T]},
    "learner/optimizer": {"step": 3, "moments": (1.0, float("nan"), 2**70), "names": {"a", "b"}},
    "env_runners": {"slots": [{"seed": 5, "actions": [np.arange(4)], 7: None}], "text": "ä" * 40},
    "counters": {"env_steps": 12, "flag": True, "raw": b"\x00\xff" * 20},
}
MANIFEST = "manifest.json"
MEMORY_SLACK_BYTES = 400_000
"""What reading any small checkpoint takes: buffers, error texts, parsed JSON."""


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, marker):
        self._marker = marker

    def __reduce__(self):
        return (Path.touch, (self._marker,))


class Campaign:
    """One intact checkpoint, and a folder that holds one mutant after the other."""

    def __init__(self, folder):
        self.marker = folder / "code was run"
        self.bomb = pickle.dumps(Bomb(self.marker))
        code = pack_code({"callbacks": Bomb(self.marker)})
        intact = write_checkpoint(
            folder / "intact",
            components=STATES,
            metadata={"training_iteration": 4},
            code=code,
            large_array_bytes=100,
        )
        paths = sorted(path for path in intact.rglob("*") if path.is_file())
        self.array_files = [path.name for path in paths if path.suffix == ".array"]
        self.files = {path.name: path.read_bytes() for path in paths}
        self.content = encode(read_checkpoint(intact).components)
        self.target = folder / "mutant"
        (self.target / "files-1").mkdir(parents=True)
        self._written = {}

    def read(self, files):
        """What is read from a checkpoint of these files, as bytes; None if it is refused."""
        for name in self._written.keys() - files.keys():
            self._path(name).unlink()
        for name, data in files.items():
            if self._written.get(name) != data:
                self._path(name).write_bytes(data)
        self._written = dict(files)
        try:
            return encode(read_checkpoint(self.target).components)
        except CheckpointError:
            return None

    def _path(self, name):
        return self.target / name if name == MANIFEST else self.target / "files-1" / name

    def forged(self, files):
        """The files with a manifest that fits them, as an attacker would write it."""
        manifest = json.loads(files[MANIFEST])
        components = manifest["components"].values()
        arrays = [array for entry in components for array in entry.get("arrays", ())]
        for entry in [*components, *arrays, manifest["code"]]:
            data = files[entry["file"]]
            entry["num_bytes"] = len(data)
            entry["sha256"] = hashlib.sha256(data).hexdigest()
        manifest.pop("checksum")
        text = json.dumps(manifest, indent=1) + "\n"
        manifest["checksum"] = hashlib.sha256(text.encode()).hexdigest()
        return {**files, MANIFEST: (json.dumps(manifest, indent=1) + "\n").encode()}


# ---- mutations of bytes


def flip_bits(data, rng):
    mutant = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        if mutant:
            mutant[rng.integers(len(mutant))] ^= 1 << rng.integers(8)
    return bytes(mutant)


def cut(data, rng):
    return data[: rng.integers(len(data) + 1)]


def lengthen(data, rng):
    return data + rng.bytes(int(rng.integers(1, 40)))


def exchange_parts(data, rng):
    if len(data) < 4:
        return data
    first, second, third = sorted(rng.integers(0, len(data), 3))
    return data[:first] + data[second:third] + data[first:second] + data[third:]


def repeat_a_part(data, rng):
    start = rng.integers(len(data) + 1)
    return data[:start] + data[start : start + rng.integers(1, 60)] * 2 + data[start:]


def plant(part):
    """Writes something over a part of the bytes, or between them."""

    def mutate(data, rng):
        start, planted = rng.integers(len(data) + 1), part(rng)
        skip = len(planted) if rng.random() < 0.5 else 0
        return data[:start] + planted + data[start + skip :]

    return mutate


def huge_header(rng):
    """The beginning of a list, map, text, binary or ext of up to 4 GiB."""
    head = rng.choice([0xDD, 0xDF, 0xDB, 0xC6, 0xC9])
    size = int(rng.integers(2**16, 2**32))
    return bytes([head]) + size.to_bytes(4, "big") + (b"\x05" if head == 0xC9 else b"")


def some_ext(rng):
    layout = ["<f8", [int(rng.integers(2**40))] * int(rng.integers(1, 4)), "C"]
    return ormsgpack.packb(ormsgpack.Ext(int(rng.integers(128)), ormsgpack.packb(layout)))


def some_array_file(rng):
    """An entry of an array file: of one that is there, of none, of a size that fits or not."""
    dtype, size = [("<f4", 48), ("|u1", 192), ("<i8", 24), ("|O", 24)][rng.integers(4)]
    size = size if rng.random() < 0.7 else int(rng.integers(2**40))
    layout = [str(dtype), [size], str(rng.choice(["C", "F"])), int(rng.integers(-1, 3))]
    return ormsgpack.packb(ormsgpack.Ext(11, ormsgpack.packb(layout)))


def mutations(bomb):
    return [
        flip_bits,
        cut,
        lengthen,
        exchange_parts,
        repeat_a_part,
        plant(lambda rng: bomb),
        plant(huge_header),
        plant(some_ext),
        plant(some_array_file),
        lambda data, rng: bomb,
        lambda data, rng: b"",
    ]


# ---- mutations of files


def mutate_files(campaign, rng):
    """A checkpoint with something wrong about one or two of its files."""
    files = dict(campaign.files)
    names = sorted(files)
    name, other = rng.choice(names, 2, replace=False)
    kind = rng.integers(12)
    if kind == 0:
        del files[name]
    elif kind == 1:
        files[name], files[other] = files[other], files[name]
    elif kind == 2:
        files[name] = files[other]
    elif kind == 3:
        suffix = rng.choice(["state", "0.array", "1.array"])
        files[f"{rng.integers(100)}.{suffix}"] = rng.choice([campaign.bomb, files[name]])
    elif kind == 4:
        name, other = rng.choice(campaign.array_files, 2, replace=False)
        files[name], files[other] = files[other], files[name]
    else:
        change = rng.choice(np.array(mutations(campaign.bomb), dtype=object))
        files[name] = change(files[name], rng)
    return files


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    # In memory where that is possible: tens of thousands of small files are written.
    return Campaign(tmp_path_factory.mktemp("campaign"))


def samples(few, many):
    """Seeds and numbers: a small sample, and campaigns of many and of ten times as many."""
    slow = [(1, many), (2, 10 * many)]
    return [(0, few), *[pytest.param(*sample, marks=pytest.mark.slow) for sample in slow]]


@pytest.mark.parametrize(("seed", "num_mutants"), samples(400, 12_000))
def test_damage_is_refused_or_changes_nothing(seed, num_mutants, campaign):
    rng = np.random.default_rng(seed)
    num_refused = 0
    for number in range(num_mutants):
        files = mutate_files(campaign, rng)
        found = campaign.read(files)
        num_refused += found is None
        assert found in (None, campaign.content), (seed, number)
    assert num_refused > 0.9 * num_mutants
    assert campaign.read(campaign.files) == campaign.content, "the intact one is read"
    assert not campaign.marker.exists(), "no code was run"


@pytest.mark.parametrize(("seed", "num_mutants"), samples(150, 8_000))
def test_forgeries_run_no_code_and_take_no_more_memory_than_their_size(seed, num_mutants, campaign):
    rng = np.random.default_rng(seed)
    names = sorted(name for name in campaign.files if name != MANIFEST)
    changes = mutations(campaign.bomb)
    num_read = 0
    found = []

    def read():
        found[:] = [campaign.read(files)]

    for number in range(num_mutants):
        files = dict(campaign.files)
        name = names[rng.integers(len(names))]
        for _ in range(rng.integers(1, 3)):
            files[name] = changes[rng.integers(len(changes))](files[name], rng)
        files = campaign.forged(files)
        enough = 2 * sum(map(len, files.values())) + MEMORY_SLACK_BYTES
        assert takes_less(enough, read), (seed, number)
        num_read += found != [None]
    assert 0 < num_read < num_mutants, "some forgeries are data like any other"
    assert not campaign.marker.exists(), "no code was run"


def test_the_campaign_would_see_code_that_runs(tmp_path):
    campaign = Campaign(tmp_path)
    pickle.loads(campaign.bomb)
    assert campaign.marker.exists()
    campaign.marker.unlink()
