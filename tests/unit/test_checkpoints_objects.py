"""Checkpointable: gathering parts, restoring all or one of them, and undoing what failed."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from checkpoints import (
    Checkpointable,
    CheckpointCorruptError,
    CheckpointError,
    CheckpointMismatchError,
    CodeNotAllowedError,
    StateError,
    is_selected,
    pack_code,
    read_checkpoint,
    read_code,
    read_manifest,
)
from checkpoints.restoring import SavedState
from tests.saved_files import files_of


class Weights(Checkpointable):
    """A leaf whose state shows its live array, as modules do."""

    def __init__(self, value=0.0):
        self.array = np.full(3, value, np.float32)

    def get_state(self, components=None, *, not_components=None):
        return {"array": self.array}

    def set_state(self, state):
        self.array[:] = state["array"]


class Tally:
    """A part that only has the two methods."""

    def __init__(self):
        self.count = 0

    def get_state(self):
        return (self.count,)

    def set_state(self, state):
        (self.count,) = state


class Learner(Checkpointable):
    """Two parts and nothing of its own."""

    def __init__(self, value=0.0):
        self.module = Weights(value)
        self.tally = Tally()

    def get_checkpointable_components(self):
        return [("rl_module", self.module), ("tally", self.tally)]


class Program(Checkpointable):
    """A part with parts, and counters of its own."""

    def __init__(self, value=0.0, *, extra=False):
        self.learner = Learner(value)
        self.counters = {"steps": 0}
        self.extra = extra
        self.events = []
        self.fails_with = None

    def get_checkpointable_components(self):
        return [("learner", self.learner)]

    def get_state(self, components=None, *, not_components=None):
        state = super().get_state(components, not_components=not_components)
        if is_selected("counters", components, not_components):
            state["counters"] = dict(self.counters)
        if self.extra and is_selected("extra", components, not_components):
            state["extra"] = 1
        return state

    def set_state(self, state):
        super().set_state(state)
        self.events.append("set " + ",".join(sorted(state)))
        if "counters" in state:
            self.counters = dict(state["counters"])
        if self.fails_with is not None:
            error, self.fails_with = self.fails_with, None
            raise error

    def _checkpoint_metadata(self):
        return {**super()._checkpoint_metadata(), "training_iteration": self.counters["steps"]}

    def _checkpoint_code(self):
        return pack_code("config") if self.extra else None


def trained():
    program = Program(1.0)
    program.counters["steps"] = 7
    program.learner.tally.count = 4
    return program


def summary(program):
    return (
        float(program.learner.module.array.sum()),
        program.learner.tally.count,
        program.counters["steps"],
    )


def test_state_gathers_parts_and_own_keys():
    state = trained().get_state()
    assert list(state) == ["learner", "counters"]
    assert list(state["learner"]) == ["rl_module", "tally"]
    assert state["learner"]["tally"] == (4,)


@pytest.mark.parametrize(
    ("components", "not_components", "expected"),
    [
        (None, None, {"learner": {"rl_module", "tally"}, "counters": {"steps"}}),
        ("learner", None, {"learner": {"rl_module", "tally"}}),
        ("learner/tally", None, {"learner": {"tally"}}),
        (["learner/tally", "counters"], None, {"learner": {"tally"}, "counters": {"steps"}}),
        (None, "learner", {"counters": {"steps"}}),
        (None, ["learner/tally"], {"learner": {"rl_module"}, "counters": {"steps"}}),
        (["learner", "learner/tally"], "learner/tally", {"learner": {"rl_module"}}),
        ([], None, {}),
    ],
)
def test_components_are_filtered_by_path(components, not_components, expected):
    state = trained().get_state(components, not_components=not_components)
    shown = {name: {"tally" if key == 0 else key for key in part} for name, part in state.items()}
    assert shown == expected


def test_partial_state_changes_only_what_it_names():
    program = Program()
    program.set_state({"learner": {"tally": (9,)}})
    assert summary(program) == (0.0, 9, 0)


def test_saved_parts_become_components_called_by_path(tmp_path):
    path = trained().save_to_path(tmp_path / "c")
    names = ["learner/rl_module", "learner/tally", "counters"]
    assert list(read_checkpoint(path).components) == names
    metadata = read_manifest(path).metadata
    assert metadata["class"].endswith(".Program")
    assert metadata["training_iteration"] == 7


def test_from_checkpoint_makes_the_object_with_the_callers_arguments(tmp_path):
    path = trained().save_to_path(tmp_path / "c")
    program = Program.from_checkpoint(path, value=5.0)
    assert type(program) is Program
    assert summary(program) == summary(trained()) == (3.0, 4, 7)
    assert program.events == ["set counters,learner"]


def test_saving_without_a_path_makes_a_new_directory_each_time(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = trained()
    first, second = program.save_to_path(), program.save_to_path(background=True)
    program.finish_saving()
    assert first != second
    for path in (first, second):
        assert Path(path).is_relative_to(tmp_path)
        assert summary(Program.from_checkpoint(path)) == (3.0, 4, 7)


def test_object_without_parts_is_one_component(tmp_path):
    path = Weights(2.0).save_to_path(tmp_path / "c")
    assert list(read_checkpoint(path).components) == ["state"]
    assert Weights.from_checkpoint(path).array.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("component", "expected"),
    [
        ("learner", (3.0, 4, 0)),
        ("learner/rl_module", (3.0, 0, 0)),
        ("learner/tally", (0.0, 4, 0)),
        ("counters", (0.0, 0, 7)),
    ],
)
def test_one_component_is_restored_from_the_root(tmp_path, component, expected):
    path = trained().save_to_path(tmp_path / "c")
    program = Program()
    program.restore_from_path(path, component=component)
    assert summary(program) == expected


def test_missing_and_unknown_components_are_named_and_nothing_changes(tmp_path):
    plain = Program()
    plain.restore_from_path(trained().save_to_path(tmp_path / "c"))
    rich = Program(extra=True)
    with pytest.raises(CheckpointMismatchError, match="it lacks 'extra'"):
        rich.restore_from_path(tmp_path / "c")
    rich.save_to_path(tmp_path / "rich")
    with pytest.raises(CheckpointMismatchError, match="it holds the unknown 'extra'"):
        plain.restore_from_path(tmp_path / "rich")
    with pytest.raises(CheckpointMismatchError, match="it holds the unknown 'extra'"):
        plain.restore_from_path(tmp_path / "rich", component="extra")
    assert summary(plain) == (3.0, 4, 7)
    assert "set extra" not in plain.events


def test_code_is_saved_beside_the_state_and_loaded_unasked_for_who_saved_it(tmp_path, request):
    path = Program(extra=True).save_to_path(tmp_path / "c")
    assert read_code(path) == "config"
    request.getfixturevalue("as_another_user")
    with pytest.raises(CodeNotAllowedError):
        read_code(path)
    Program(extra=True).restore_from_path(path)
    assert read_code(path, allow_code=True) == "config"


def test_refused_manifest_stops_before_anything_is_read(tmp_path):
    path = Path(trained().save_to_path(tmp_path / "c"))
    (files_of(path) / "counters.state").write_bytes(b"x")

    def refuse(manifest):
        raise CheckpointMismatchError("thirteen")

    with pytest.raises(CheckpointMismatchError, match="thirteen"):
        SavedState.read(Program(), path, check_manifest=refuse)


def test_damaged_checkpoint_changes_nothing(tmp_path):
    path = Path(trained().save_to_path(tmp_path / "c"))
    (files_of(path) / "counters.state").write_bytes(b"x")
    program = Program()
    with pytest.raises(CheckpointCorruptError):
        program.restore_from_path(path)
    assert summary(program) == (0.0, 0, 0)
    assert program.events == []


@pytest.mark.parametrize("component", [None, "learner", "counters"])
def test_object_is_rolled_back_when_set_state_raises_midway(tmp_path, component):
    path = trained().save_to_path(tmp_path / "c")
    program = Program(2.0)
    program.counters["steps"] = 1
    before = summary(program)
    program.fails_with = KeyError("lost")
    with pytest.raises(CheckpointMismatchError, match="did not accept it: KeyError") as caught:
        program.restore_from_path(path, component=component)
    assert isinstance(caught.value.__cause__, KeyError)
    assert summary(program) == before
    program.fails_with = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        program.restore_from_path(path, component=component)
    assert summary(program) == before


def test_failing_rollback_says_that_the_object_is_unusable(tmp_path):
    class Stubborn(Weights):
        def set_state(self, state):
            raise ValueError("never")

    path = Weights(1.0).save_to_path(tmp_path / "c")
    with pytest.raises(CheckpointError, match="mixed state") as caught:
        Stubborn().restore_from_path(path)
    assert isinstance(caught.value.__cause__, ValueError)


def test_impossible_states_are_refused_when_saving(tmp_path):
    class Wrong(Learner):
        def __init__(self, state):
            super().__init__()
            self._state = state

        def get_state(self, components=None, *, not_components=None):
            return self._state

    for state, message in [
        ([1], "returned a list"),
        ({"a/b": 1}, "single steps"),
        ({1: 1}, "Use text keys"),
        ({"rl_module": {"f": print}}, r"components\['rl_module'\]\['f'\]"),
    ]:
        with pytest.raises(StateError, match=message):
            Wrong(state).save_to_path(tmp_path / "c")
    assert list(tmp_path.iterdir()) == []
