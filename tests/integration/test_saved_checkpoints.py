"""What is saved is what the page of the format says, and comes back with the same bytes."""

import re
from pathlib import Path

import numpy as np
import pytest

from checkpoints import encode, load_weights, read_checkpoint, write_checkpoint
from tests import independent_reader
from tests.saved_files import files_of
from tests.small_runs import with_every_component
from trainer import Algorithm

PAGE = Path(__file__).parents[2] / "docs" / "checkpoints.md"


def contents_of(path):
    return {file.name: file.read_bytes() for file in files_of(path).iterdir()}


@pytest.fixture(params=sorted(with_every_component()))
def saved(request, tmp_path):
    with with_every_component()[request.param].build_algo() as algo:
        algo.train()
        yield Path(algo.save_to_path(tmp_path / "first"))


def test_save_restore_save_gives_equal_bytes(saved, tmp_path):
    with Algorithm.from_checkpoint(saved) as algo:
        again = Path(algo.save_to_path(tmp_path / "again"))
        assert contents_of(again) == contents_of(saved)
        algo.train()  # the negative control
        later = Path(algo.save_to_path(tmp_path / "later"))
    first = contents_of(saved)
    differing = {name for name, data in contents_of(later).items() if first[name] != data}
    has_played = "recordings.state" not in differing
    assert differing >= {"counters.state", "learner.rl_module.state"}
    assert ("env_runners.state" in differing) == has_played


@pytest.mark.parametrize("large_array_bytes", [10**9, 16])
def test_another_implementation_reads_the_same(large_array_bytes, saved, tmp_path):
    ours = read_checkpoint(saved)
    path = write_checkpoint(
        tmp_path / "again",
        components=ours.components,
        metadata=ours.manifest.metadata,
        large_array_bytes=large_array_bytes,
    )
    assert any(files_of(path).glob("*.array")) == (large_array_bytes == 16)
    others = independent_reader.read(Path(path))
    assert list(others) == list(ours.components)
    for name, state in ours.components.items():
        assert encode(others[name]) == encode(state), name
    weights = others["learner/rl_module"]
    assert weights.keys() == load_weights(saved).keys()
    assert all(np.array_equal(array, load_weights(saved)[name]) for name, array in weights.items())


def test_the_independent_reader_reads_every_kind_of_value():
    structure = np.dtype([("a", "<i2"), ("b", "<f8", (2,))], align=True)
    value = {
        "plain": [None, True, -1, 2**70, -(2**70), 1.5, "é", "\ud800", b"\x00"],
        "containers": ((1, {2}), frozenset({"x", (3,)}), {1: {"a": []}, (2,): ()}),
        "numbers": [1 + 2j, np.float32(0.1), np.int8(-3), np.str_("u\x00"), np.bytes_(b"b\x00")],
        "arrays": [np.arange(6, dtype=">i4").reshape(2, 3).T, np.zeros((0, 2)), np.ones((), "?")],
        "times": np.array(["2026-01-01"], "M8[ns]"),
        "structure": np.ones(2, structure),
    }
    read = independent_reader.decode(encode(value))
    assert encode(read) == encode(value)


def test_the_page_of_the_format_names_every_component(saved):
    _, _, section = PAGE.read_text("utf-8").partition("### What the components hold")
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    assert named >= read_checkpoint(saved).components.keys()
