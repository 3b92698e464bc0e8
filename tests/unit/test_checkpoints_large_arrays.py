"""Large arrays in files of their own: exact, checked like all files, never in memory twice."""

import contextlib
import hashlib
import os
import threading
from pathlib import Path

import numpy as np
import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints import (
    Checkpointable,
    CheckpointCorruptError,
    CheckpointError,
    CheckpointMismatchError,
    diff_checkpoints,
    encode,
    export_weights,
    load_weights,
    read_checkpoint,
    read_manifest,
    state_array,
    verify,
    write_checkpoint,
)
from checkpoints.array_format import blocks, memory_order, memory_pieces
from checkpoints.codec import decode, encode_split
from checkpoints.strict_files import StreamedHash
from checkpoints.writer import encode_checkpoint, write_encoded
from tests.saved_files import files_of
from tests.traced_memory import peak_bytes, takes_less
from tests.unit.test_checkpoints_codec import VALUES, same
from tests.unit.test_checkpoints_files import DAMAGES, rewrite_manifest, spoil
from trainer.replay import PrioritizedReplayBuffer, ReplayBuffer

MB = 10**6
BASE = np.arange(60, dtype="<i4").reshape(3, 4, 5)
ARRAYS = {
    "c": BASE,
    "fortran": BASE.T,
    "strided": BASE[:, ::2, ::3],
    "permuted": BASE.transpose(1, 0, 2),
    "reversed": BASE[::-1],
    "repeated": np.broadcast_to(np.float32(2.5), (7, 9)),
    "scalar": np.array(1.5),
    "text": np.array(["ä" * 30, "b"]),
    "structure": np.ones(9, np.dtype([("a", "<i2"), ("b", "<f8", (2,))], align=True)),
}


def save(path, **options):
    components = {"a/b": {"x": [ARRAYS, np.arange(2)], "n": 3}, "c": BASE}
    arguments = {"components": components, "metadata": {}, "large_array_bytes": 8}
    return write_checkpoint(path, **{**arguments, **options})


# ---- what is saved returns


def test_arrays_lie_in_files_of_their_own_that_any_program_can_map(tmp_path):
    path = save(tmp_path / "c")
    names = [f"a.b.{number}.array" for number in range(len(ARRAYS) + 1)]
    folder = files_of(path)
    files = sorted(file.name for file in folder.iterdir())
    assert files == sorted([*names, "a.b.state", "c.0.array", "c.state"])
    for file, array in zip(names, ARRAYS.values(), strict=False):
        order = memory_order(array)
        mapped = np.memmap(folder / file, array.dtype, "r", shape=array.shape, order=order)
        assert np.array_equal(mapped, array)
    entry = read_manifest(path).components["a/b"]
    assert [array.file for array in entry.arrays] == names
    assert entry.total_bytes == sum((folder / f).stat().st_size for f in [*names, "a.b.state"])


@pytest.mark.parametrize("mapped", [False, True])
def test_they_return_with_type_order_and_bits(tmp_path, mapped):
    path = save(tmp_path / "c")
    found = read_checkpoint(path, mapped=mapped).components
    plain = read_checkpoint(save(tmp_path / "d", large_array_bytes=10**9)).components
    assert encode(found) == encode(plain)  # the order in memory included
    assert same(found["a/b"]["x"][0], ARRAYS)
    for array in found["a/b"]["x"][0].values():
        assert type(array) is np.ndarray
        assert array.flags.writeable is not mapped
    again = save(tmp_path / "again", components=found)
    for file in files_of(path).glob("*.*y"):
        assert (files_of(again) / file.name).read_bytes() == file.read_bytes()
    assert read_manifest(again).components == read_manifest(path).components


@settings(max_examples=100)
@given(VALUES, st.integers(1, 12))
def test_any_value_is_split_and_joined_exactly(value, large_array_bytes):
    split = encode_split(value, large_array_bytes=large_array_bytes)
    arrays = iter(split.arrays)
    numbers = iter(range(len(split.arrays)))

    def load(number, **layout):
        array = next(arrays)
        assert number == next(numbers)
        assert (layout["dtype"], layout["shape"]) == (array.dtype, array.shape)
        return array

    assert same(decode(b"".join(split.parts), load_array=load), value)
    assert next(arrays, None) is None
    assert all(array.nbytes >= large_array_bytes for array in split.arrays)


@pytest.mark.parametrize("max_bytes", [1, 7, 16, 50, 10**6])
def test_pieces_are_the_memory_whatever_their_size(max_bytes):
    for name, array in ARRAYS.items():
        pieces = memory_pieces(array, max_bytes=max_bytes)
        assert b"".join(pieces) == array.tobytes(memory_order(array)), name
        parts = list(blocks(array, max_bytes=max_bytes))
        assert b"".join(part.tobytes() for part in parts) == array.tobytes(), name
        assert max(part.nbytes for part in parts) <= max(max_bytes, array.itemsize), name


def test_the_usual_limit_is_one_mebibyte_and_pieces_are_hashed_in_order(tmp_path):
    state = {"large": np.arange(3 * 2**20 + 1)[1:], "below": np.zeros(2**20 - 1, np.uint8)}
    path = write_checkpoint(tmp_path / "c", components={"a": state}, metadata={})
    (array,) = read_manifest(path).components["a"].arrays
    assert (array.file, array.num_bytes) == ("a.0.array", 24 * 2**20)
    assert same(read_checkpoint(path).components["a"], state)


def test_a_hash_of_pieces_ends_its_thread_after_an_error():
    with contextlib.suppress(KeyError), StreamedHash(max_waiting=1) as digest:
        for _ in range(5):
            digest.update(bytes(2**20))
        raise KeyError
    assert digest.hexdigest() == hashlib.sha256(bytes(5 * 2**20)).hexdigest()
    assert not any(thread.name == "hashing" for thread in threading.enumerate())


def test_hashing_goes_without_a_thread_if_none_can_be_started(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with StreamedHash(max_waiting=1) as digest:
        for part in (b"a", bytes(2**21), b"b"):
            digest.update(part)
    assert digest.hexdigest() == hashlib.sha256(b"a" + bytes(2**21) + b"b").hexdigest()


def test_what_is_detached_no_longer_follows_the_arrays(tmp_path):
    arrays = {name: np.array(array, order="A") for name, array in ARRAYS.items()}
    arrays["strided"] = np.zeros((4, 9))[:, ::2]
    components = {"a": arrays, "b": {"small": np.ones(3, np.int8)}}
    encoded = encode_checkpoint(components=components, metadata={}, large_array_bytes=16)
    path = write_encoded(tmp_path / "live", encoded)
    before, detached = read_checkpoint(path).components, encoded.detached()
    for array in (*arrays.values(), components["b"]["small"]):
        array[...] = np.zeros((), array.dtype)
    later = read_checkpoint(write_encoded(tmp_path / "detached", detached)).components
    assert encode(later) == encode(before)
    changed = read_checkpoint(write_encoded(tmp_path / "changed", encoded)).components
    assert encode(changed) != encode(before)


# ---- damage and forgery


@pytest.mark.parametrize("damage", [*DAMAGES, "bit"])
@pytest.mark.parametrize("mapped", [False, True])
def test_damaged_array_file_is_named(tmp_path, damage, mapped):
    path = save(tmp_path / "c")
    file = files_of(path) / "a.b.1.array"
    if damage == "bit":
        file.write_bytes(b"\1" + file.read_bytes()[1:])
    else:
        spoil(file, damage)
    for read in (lambda p: read_checkpoint(p, mapped=mapped), verify):
        with pytest.raises(CheckpointCorruptError, match=r"a\.b\.1\.array") as caught:
            read(path)
        assert str(caught.value).count("Nothing was") == 1
    assert list(read_checkpoint(path, "c").components) == ["c"]  # it is not looked at


def entries(change):
    return lambda fields: change(fields["components"]["c"]["arrays"])


CHANGES = {
    "parent": entries(lambda arrays: arrays[0].update(file="../c.0.array")),
    "other number": entries(lambda arrays: arrays[0].update(file="c.1.array")),
    "twice": entries(lambda arrays: arrays.append(arrays[0])),
    "none": entries(lambda arrays: arrays.clear()),
    "no list": lambda fields: fields["components"]["c"].update(arrays={}),
    "no entry": entries(lambda arrays: arrays.append(1)),
    "nested": entries(lambda arrays: arrays[0].update(arrays=[dict(arrays[0])])),
    "version": entries(lambda arrays: arrays[0].update(state_version=2)),
    "no bytes": entries(lambda arrays: arrays[0].update(num_bytes=0)),
    "huge": entries(lambda arrays: arrays[0].update(num_bytes=2**70)),
    "wrong hash": entries(lambda arrays: arrays[0].update(sha256="0" * 64)),
    "missing": lambda fields: fields["components"]["c"].pop("arrays"),
    "of the code": lambda fields: fields["code"].update(
        arrays=[{**fields["components"]["c"]["arrays"][0], "file": "code.pkl.0.array"}]
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_forged_lists_of_arrays_are_refused(tmp_path, change):
    path = save(tmp_path / "c", code=b"x")
    rewrite_manifest(path, change)
    for read in (read_checkpoint, verify):
        with pytest.raises(CheckpointError):
            read(path)


def forged_tree(path, *payloads):
    """Writes c.state anew: a list of array entries, in a checkpoint that says they are right."""
    tree = ormsgpack.packb([ormsgpack.Ext(11, ormsgpack.packb(entry)) for entry in payloads])
    data = b"LTstate\x01" + len(tree).to_bytes(8, "little") + tree
    (files_of(path) / "c.state").write_bytes(data)

    def fit(fields):
        fields["components"]["c"].update(
            num_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
        )

    rewrite_manifest(path, fit)


FITTING = ["<i4", [3, 4, 5], "C", 0]
FORGED = {
    "too large": [["<i4", [2**50], "C", 0]],
    "too small": [["<i4", [59], "C", 0]],
    "overflow": [["<i4", [2**63, 2**63], "C", 0]],
    "many dimensions": [["<i4", [1] * 100 + [60], "C", 0]],
    "negative": [["<i4", [-3, -4, 5], "C", 0]],
    "empty": [["<i4", [0], "C", 0]],
    "other number": [["<i4", [60], "C", 1]],
    "negative number": [["<i4", [60], "C", -1]],
    "true": [["<i4", [60], "C", False]],
    "text": [["<i4", [60], "C", "../c"]],
    "objects": [["|O", [30], "C", 0]],
    "order": [["<i4", [60], "A", 0]],
    "short": [["<i4", [60], "C"]],
    "twice": [FITTING, FITTING],
    "one too many": [FITTING, ["<i4", [60], "C", 1]],
    "unused": [],
}


@pytest.mark.parametrize("payloads", FORGED.values(), ids=FORGED.keys())
@pytest.mark.parametrize("mapped", [False, True])
def test_forged_entries_are_refused_without_taking_memory(tmp_path, payloads, mapped):
    path = save(tmp_path / "c")
    forged_tree(path, *payloads)

    def read():
        with pytest.raises(CheckpointCorruptError, match=r"c\.state"):
            read_checkpoint(path, mapped=mapped)

    assert takes_less(MB, read)
    forged_tree(path, FITTING)  # the negative control
    assert np.array_equal(read_checkpoint(path).components["c"][0], BASE)


def test_entries_of_array_files_are_unknown_outside_of_checkpoints():
    split = encode_split(BASE, large_array_bytes=1)
    with pytest.raises(CheckpointCorruptError, match="ext type 11"):
        decode(b"".join(split.parts))


def test_a_file_cut_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    state = np.ones(2**20)  # two pieces
    path = write_checkpoint(tmp_path / "c", components={"a": state}, metadata={})
    update = StreamedHash.update

    def cut(self, piece):
        os.truncate(files_of(path) / "a.0.array", 5)
        update(self, piece)

    monkeypatch.setattr(StreamedHash, "update", cut)
    for mapped in (False, True):
        os.truncate(files_of(path) / "a.0.array", state.nbytes)
        with pytest.raises(CheckpointCorruptError, match="changed its size"):
            read_checkpoint(path, mapped=mapped)


# ---- memory


class Owner(Checkpointable):
    """What has a replay buffer (or other part), and fails on demand after everything was set."""

    def __init__(self, buffer, name="replay_buffer"):
        self.buffer = buffer
        self.name = name
        self.error = None

    def get_checkpointable_components(self):
        return [(self.name, self.buffer)]

    def set_state(self, state):
        super().set_state(state)
        if self.error is not None:
            raise self.error


def filled(num_steps, row, **options):
    """A buffer with `num_steps` rows, which are cheap to make."""
    buffer = options.pop("kind", ReplayBuffer)(options.pop("capacity", num_steps))
    rows = np.full((num_steps, *row), 3, np.uint8)
    columns = {
        "obs": rows,
        "new_obs": rows,
        "actions": np.zeros(num_steps, np.int64),
        "rewards": np.ones(num_steps, np.float32),
        "terminateds": np.zeros(num_steps, np.bool_),
    }
    more = {"alpha": 0.6, "priorities": np.ones(num_steps), "largest_priority": 2.0}
    buffer.set_state(
        {
            "type": type(buffer).__name__,
            "capacity": buffer.capacity,
            "num_added": num_steps,
            "following": np.arange(1, num_steps + 1) % num_steps,
            "layout": {name: [a.dtype.str, list(a.shape[1:])] for name, a in columns.items()},
            "columns": columns,
            "nesting": {"obs": None, "actions": None},
            "running_episodes": [],
            **more,
        }
    )
    return buffer


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A buffer of 64 MB, where it is saved, and what saving took."""
    owner = Owner(filled(16_000, (2_000,)))
    path = tmp_path_factory.mktemp("large") / "c"
    return owner, path, peak_bytes(lambda: owner.save_to_path(path))


def test_a_large_buffer_is_saved_and_restored_in_bounded_memory(large):
    owner, path, peak = large
    assert peak < 20 * MB
    assert read_manifest(path).components["replay_buffer"].total_bytes > 64 * MB
    fresh = Owner(ReplayBuffer(owner.buffer.capacity))
    assert peak_bytes(lambda: fresh.restore_from_path(path)) < (64 + 20) * MB
    assert peak_bytes(lambda: fresh.restore_from_path(path)) < (64 + 20) * MB  # and the old one
    assert encode(fresh.get_state()) == encode(owner.get_state())


def test_looking_at_large_arrays_takes_no_memory(large, tmp_path):
    owner, path, _ = large
    assert takes_less(20 * MB, lambda: verify(path))
    assert takes_less(20 * MB, lambda: read_checkpoint(path, mapped=True))
    archive = tmp_path / "a.npz"
    assert peak_bytes(lambda: export_weights(path, archive)) < 20 * MB
    exported = np.load(archive, mmap_mode="r")
    assert exported["columns/rewards"].sum() == 16_000
    other = {**owner.get_state()["replay_buffer"]}
    other["columns"]["obs"][-1, -1] = 9
    second = write_checkpoint(tmp_path / "d", components={"replay_buffer": other}, metadata={})
    del other
    found = []
    assert peak_bytes(lambda: found.append(diff_checkpoints(path, second))) < 100 * MB
    (difference,) = found[0].components["replay_buffer"].differences
    assert (difference.path, difference.text) == ("columns/obs", "1 of 32000000 numbers")
    assert difference.max_abs == 6.0


def test_weights_can_be_mapped(tmp_path):
    path = save(tmp_path / "c", components={"rl_module": {"w": BASE}})
    weights, mapped = load_weights(path), load_weights(path, mapped=True)
    assert np.array_equal(weights["w"], mapped["w"])
    assert weights["w"].flags.writeable
    assert not mapped["w"].flags.writeable


# ---- restoring large parts


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
@pytest.mark.parametrize("num_before", [0, 300])
def test_a_restore_that_fails_leaves_the_buffer_as_it_was(tmp_path, kind, num_before):
    row = (2**12,)
    path = Owner(filled(290, row, capacity=300, kind=kind)).save_to_path(tmp_path / "c")
    buffer = filled(num_before, row, capacity=300, kind=kind) if num_before else kind(300)
    owner, before = Owner(buffer), encode(buffer.get_state())
    for error in (ValueError("no"), KeyboardInterrupt()):
        owner.error = error
        with pytest.raises((CheckpointMismatchError, KeyboardInterrupt)):
            owner.restore_from_path(path)
        assert encode(buffer.get_state()) == before
    file = files_of(Path(path)) / "replay_buffer.1.array"
    data = file.read_bytes()
    file.write_bytes(b"\1" + data[1:])
    owner.error = None
    with pytest.raises(CheckpointCorruptError):
        owner.restore_from_path(path)
    assert encode(buffer.get_state()) == before
    file.write_bytes(data)
    owner.restore_from_path(path)
    assert encode(buffer.get_state()) != before
    assert len(buffer) == 290


def test_an_earlier_mark_undoes_a_restore_as_well(tmp_path):
    path = Owner(filled(290, (2**12,), capacity=300)).save_to_path(tmp_path / "c")
    owner = Owner(filled(300, (2**12,)))
    before = encode(owner.get_state())
    undo = owner.buffer.mark()
    owner.restore_from_path(path)
    assert len(owner.buffer) == 290
    undo()
    assert encode(owner.get_state()) == before


def test_restored_rows_stay_where_they_were_read_and_are_nobody_elses(tmp_path):
    path = Owner(filled(290, (2**12,), capacity=300)).save_to_path(tmp_path / "c")
    given = []

    class Watching(Owner):
        def set_state(self, state):
            given.append(state["replay_buffer"]["columns"]["obs"])
            super().set_state(state)

    first, second = (Watching(ReplayBuffer(300)) for _ in range(2))
    first.restore_from_path(path)
    second.restore_from_path(path)
    columns = [owner.buffer._ring.columns["obs"] for owner in (first, second)]
    assert [len(column) for column in columns] == [301, 301]
    assert np.shares_memory(given[0], columns[0])
    assert not np.shares_memory(columns[0], columns[1])
    assert not columns[0][290:].any()
    state = {**first.buffer.get_state(), "columns": first.buffer._ring.columns}
    state["columns"] = {name: column[:290] for name, column in state["columns"].items()}
    second.buffer.set_state(state)  # live arrays of another buffer are copied
    assert not np.shares_memory(columns[0], second.buffer._ring.columns["obs"])


class Samples:
    """A part of another program that lets its array be filled."""

    def __init__(self):
        self.values = np.zeros(2**18)
        self.made = []

    def get_state(self):
        return {"values": state_array(self.values)}

    def set_state(self, state):
        self.values = state["values"]

    def mark(self):
        before = self.values

        def undo():
            self.values = before

        return undo

    def make_large_array(self, dtype, shape, /):
        self.made.append(np.empty(shape, dtype))
        return self.made[-1]


def test_parts_of_other_programs_can_have_large_arrays(tmp_path):
    def program():
        samples = Samples()
        return samples, Owner(Owner(samples, "samples"), "deep")

    saved, owner = program()
    saved.values[:] = 7
    path = owner.save_to_path(tmp_path / "c")
    assert read_manifest(path).components["deep/samples"].arrays
    samples, fresh = program()
    fresh.restore_from_path(path)
    assert samples.values is samples.made[0]
    assert samples.values.sum() == 7 * 2**18
    saved.values[:] = 8
    owner.save_to_path(path)
    kept, fresh.error = samples.values, ValueError("no")
    with pytest.raises(CheckpointMismatchError):
        fresh.restore_from_path(path)
    assert samples.values is kept
    fresh.error = None
    fresh.restore_from_path(path, component="deep")
    assert samples.values.sum() == 8 * 2**18
