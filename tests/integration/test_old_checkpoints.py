"""What earlier releases saved is read, goes on training, and is what the page of the format says.

The checkpoints in tests/checkpoint_assets are never written again; `make.py` there adds new ones.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import (
    CodeNotAllowedError,
    encode,
    load_weights,
    read_checkpoint,
    read_manifest,
)
from tests import independent_reader
from tests.checkpoint_assets.make import (
    ASSETS,
    GOING_ON,
    NAMED_ENV,
    NEEDS_CODE,
    going_on,
    golden_configs,
    golden_observations,
    make,
)
from tests.fingerprints import arithmetic
from trainer import Algorithm

GOLDEN = sorted(path.parent for path in ASSETS.glob("*/*/manifest.json"))
NAMES = [f"{path.parent.name}/{path.name}" for path in GOLDEN]

golden = pytest.mark.parametrize("path", GOLDEN, ids=NAMES)


def test_every_release_has_every_algorithm() -> None:
    algorithms = {"dqn", "pg", "ppo", "sac"}
    releases = {path.parent for path in GOLDEN}
    assert releases
    for release in releases:
        assert {path.name for path in GOLDEN if path.parent == release} >= algorithms
    assert sum(file.stat().st_size for file in ASSETS.rglob("*") if file.is_file()) < 400_000


def test_both_formats_are_there_and_arrays_in_files_of_their_own() -> None:
    formats = {read_manifest(path).format_version for path in GOLDEN}
    assert formats == {1, 2}
    newest = [path for path in GOLDEN if read_manifest(path).format_version == 2]
    with_arrays = {path.name for path in newest if any(path.glob("*.array"))}
    assert with_arrays == {"dqn", "sac"}


def test_some_hold_code_and_some_name_an_env_whose_module_has_moved() -> None:
    assert {path.name for path in GOLDEN if (path / "code.pkl").exists()} == {"ppo_with_code"}
    code = (ASSETS / "0.1.0" / "ppo_with_code" / "code.pkl").read_bytes()
    assert b"trainer.testing.task_envs" in code
    with pytest.raises(CodeNotAllowedError):
        Algorithm.from_checkpoint(ASSETS / "0.1.0" / "ppo_with_code")
    named = read_checkpoint(ASSETS / "0.1.0" / "ppo_with_named_env").components["config"]
    assert named["settings"]["env"] == NAMED_ENV == "trainer.testing.debug_envs.CountdownEnv"


@golden
def test_an_old_checkpoint_is_restored_and_goes_on_training(path: Path) -> None:
    expected = json.loads(path.with_name(f"{path.name}.json").read_text("utf-8"))
    skip_foreign_code(path)
    with Algorithm.from_checkpoint(path, allow_code=path.name in NEEDS_CODE) as algo:
        assert algo.training_iteration == expected["training_iteration"]
        assert algo.counters.num_env_steps_sampled == expected["num_env_steps_sampled"]
        module = algo.learner.module
        answers = module.forward_acting(golden_observations(module.obs_size))
        np.testing.assert_allclose(answers, expected["action_dist_inputs"], rtol=1e-4, atol=1e-6)
        before = module.parameters.flat.copy()
        result = algo.train()
        assert result["training_iteration"] == expected["training_iteration"] + 1
        assert result["num_env_steps_sampled_lifetime"] > expected["num_env_steps_sampled"]
        assert not np.array_equal(module.parameters.flat, before)


def skip_foreign_code(path: Path) -> None:
    written = read_manifest(path).versions["python"].split(".")[:2]
    if (path / "code.pkl").exists() and written != platform.python_version().split(".")[:2]:
        pytest.skip("code is tied to the Python that wrote it")


@golden
def test_an_old_checkpoint_goes_on_with_the_bytes_of_the_release(path: Path) -> None:
    record = json.loads(GOING_ON.read_text("utf-8"))
    if record["arithmetic"] != arithmetic():
        pytest.skip("numbers come out differently on this machine; see tests/fingerprints.py")
    assert going_on(path) == record["checkpoints"][f"{path.parent.name}/{path.name}"]


def test_the_digests_of_going_on_see_a_changed_number(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ASSETS / "0.1.0" / "pg"
    expected = going_on(path)
    restored = Algorithm.from_checkpoint

    def changed(*args: Any, **given: Any) -> Algorithm:
        algo = restored(*args, **given)
        flat = algo.learner.module.parameters.flat
        flat[0] = np.nextafter(flat[0], np.float32(2.0))
        return algo

    monkeypatch.setattr(Algorithm, "from_checkpoint", changed)
    assert going_on(path)["weights"] != expected["weights"]


@golden
def test_another_implementation_reads_the_same(path: Path) -> None:
    ours = read_checkpoint(path).components
    others = independent_reader.read(path)
    assert list(others) == list(ours)
    for name, state in ours.items():
        assert encode(others[name]) == encode(state), name
    weights = others["learner/rl_module"]
    assert weights.keys() == load_weights(path).keys()
    assert all(np.array_equal(array, load_weights(path)[name]) for name, array in weights.items())


def test_the_independent_reader_reads_every_kind_of_value() -> None:
    structure = np.dtype([("a", "<i2"), ("b", "<f8", (2,))], align=True)
    value: Any = {
        "plain": [None, True, -1, 2**70, -(2**70), 1.5, "é", "\ud800", b"\x00"],
        "containers": ((1, {2}), frozenset({"x", (3,)}), {1: {"a": []}, (2,): ()}),
        "numbers": [1 + 2j, np.float32(0.1), np.int8(-3), np.str_("u\x00"), np.bytes_(b"b\x00")],
        "arrays": [np.arange(6, dtype=">i4").reshape(2, 3).T, np.zeros((0, 2)), np.ones((), "?")],
        "times": np.array(["2026-01-01"], "M8[ns]"),
        "structure": np.ones(2, structure),
    }
    read = independent_reader.decode(encode(value))
    assert encode(read) == encode(value)


@golden
def test_the_page_of_the_format_names_every_component_and_key(path: Path) -> None:
    page = (ASSETS.parents[1] / "docs" / "checkpoint-format.md").read_text("utf-8")
    names_of_their_own = {"learner/rl_module", "learner/target", "counters"}  # tensors and counts
    components = read_checkpoint(path).components
    for part in components.pop("constructors", {}).values():  # belongs to no state
        assert "`constructors` belongs" in page
        assert [key for key in part if f"`{key}`" not in page] == []
    for name, state in components.items():
        assert f"| `{name}` |" in page
        if name not in names_of_their_own:
            assert [key for key in state if f"`{key}`" not in page] == [], name


def test_a_release_is_never_written_twice(tmp_path: Path) -> None:
    (tmp_path / "0.0.1").mkdir()
    with pytest.raises(FileExistsError):
        make(tmp_path / "0.0.1")
    assert list((tmp_path / "0.0.1").iterdir()) == []


def files_of(path: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes() for file in path.glob("*.*") if file.name != "manifest.json"
    }


@pytest.fixture(params=sorted(golden_configs()))
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with golden_configs()[request.param].build_algo() as algo:
        algo.train()
        yield Path(algo.save_to_path(tmp_path / "first"))


def test_save_restore_save_gives_equal_bytes(saved: Path, tmp_path: Path) -> None:
    with Algorithm.from_checkpoint(saved) as algo:
        again = Path(algo.save_to_path(tmp_path / "again"))
        assert files_of(again) == files_of(saved)
        algo.train()  # the negative control
        later = Path(algo.save_to_path(tmp_path / "later"))
    differing = {name for name, data in files_of(later).items() if files_of(saved)[name] != data}
    assert differing >= {"counters.state", "learner.rl_module.state", "env_runners.state"}
