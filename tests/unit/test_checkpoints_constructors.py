"""RLlib's further methods of Checkpointable: constructors, metadata, given states, paths inside."""

from pathlib import Path

import numpy as np
import pytest

from checkpoints import (
    Checkpointable,
    CheckpointMismatchError,
    CheckpointNotFoundError,
    StateError,
    check_shape,
    like,
    load_weights,
    read_checkpoint,
    read_manifest,
    write_checkpoint,
)
from tests.saved_files import files_of


class Table(Checkpointable):
    """Made with arguments that it tells."""

    def __init__(self, rows, /, *, name="table", scale=None):
        self.values = np.zeros(rows)
        self.name = name
        self.scale = scale

    def get_ctor_args_and_kwargs(self):
        return (len(self.values),), {"name": self.name, "scale": self.scale}

    def get_state(self, components=None, *, not_components=None):
        return {"values": self.values.copy()}

    def check_state(self, state):
        check_shape(state, like(self.get_state()))

    def set_state(self, state):
        self.values = state["values"]


class Named(Table):
    """The same, but the number of rows has a name."""

    def __init__(self, rows, name="table", scale=None):
        super().__init__(rows, name=name, scale=scale)

    def get_ctor_args_and_kwargs(self):
        return (len(self.values), self.name), {"scale": self.scale}


class Room(Checkpointable):
    """Two tables, one of which lies deeper."""

    def __init__(self):
        self.table = Named(3)
        self.lumber = Lumber()

    def get_checkpointable_components(self):
        return [("table", self.table), ("lumber", self.lumber)]

    def get_metadata(self):
        return {**super().get_metadata(), "colour": "green"}


class Lumber(Checkpointable):
    def __init__(self):
        self.table = Table(2, name="old")

    def get_checkpointable_components(self):
        return [("table", self.table)]


def filled(table):
    table.values += 1.5
    return table


@pytest.mark.parametrize("cls", [Table, Named])
def test_constructor_arguments_are_saved_and_can_be_changed(cls, tmp_path):
    path = filled(cls(4, name="x", scale=np.float32(2))).save_to_path(tmp_path / "c")
    again = cls.from_checkpoint(path)
    assert (again.name, again.scale, again.values.tolist()) == ("x", np.float32(2), [1.5] * 4)
    assert cls.from_checkpoint(path, name="y").name == "y"


def test_named_positional_arguments_can_be_changed_too(tmp_path):
    path = Named(4).save_to_path(tmp_path / "c")
    with pytest.raises(CheckpointMismatchError, match=r"\['values'\] has shape \(4,\), expected"):
        Named.from_checkpoint(path, rows=5)


def test_arguments_that_are_no_data_are_asked_for(tmp_path):
    path = Table(2, scale=print).save_to_path(tmp_path / "c")
    with pytest.raises(
        CheckpointMismatchError, match=r"Table\.from_checkpoint\(path, scale=\.\.\."
    ):
        Table.from_checkpoint(path)
    assert Table.from_checkpoint(path, scale=len).scale is len
    assert read_checkpoint(path).components["constructors"][""]["left_out"] == ["scale"]

    class Nameless(Table):
        def get_ctor_args_and_kwargs(self):
            return (print,), {}

    with pytest.raises(StateError, match="as positional argument 0"):
        Nameless(1).save_to_path(tmp_path / "d")


def test_arguments_of_another_class_are_refused(tmp_path):
    class Chair(Checkpointable):
        def __init__(self, *, legs=4):
            raise AssertionError("nothing is made")

    path = Named(2, name="x").save_to_path(tmp_path / "c")
    with pytest.raises(CheckpointMismatchError, match=r"arguments of a .*\.Named, and Chair does"):
        Chair.from_checkpoint(path)
    with pytest.raises(TypeError, match="'colour'"):  # the caller's own mistake stays what it is
        Named.from_checkpoint(path, colour="red")


@pytest.mark.parametrize("record", [{"args": []}, [], {"class": 1, "args": [], "kwargs": {}}])
def test_spoilt_constructors_are_refused(record, tmp_path):
    components = {"state": {"values": np.zeros(1)}, "constructors": {"": record}}
    path = write_checkpoint(tmp_path / "c", components=components, metadata={})
    with pytest.raises(CheckpointMismatchError, match="cannot be understood"):
        Table.from_checkpoint(path)


def test_parts_can_be_made_from_the_checkpoint_of_the_whole(tmp_path):
    room = Room()
    filled(room.table)
    filled(filled(room.lumber.table))
    path = Path(room.save_to_path(tmp_path / "c"))
    assert Named.from_checkpoint(path / "table").values.tolist() == [1.5] * 3
    deep = Table.from_checkpoint(path / "lumber" / "table")
    assert (deep.name, deep.values.tolist()) == ("old", [3.0] * 2)
    assert Named.from_checkpoint(files_of(path) / "table.state").values.tolist() == [1.5] * 3
    lumber = Lumber.from_checkpoint(path / "lumber")
    assert lumber.table.values.tolist() == [3.0] * 2
    again = Lumber()
    again.restore_from_path(path / "lumber", component="table")
    assert again.table.values.tolist() == [3.0] * 2


@pytest.mark.parametrize(
    ("inside", "component", "restored"),
    [
        ("", None, "both"),
        ("", "lumber/table", "lumber"),
        ("lumber", "lumber", "lumber"),
        ("lumber/table", "lumber/table", "lumber"),  # as RLlib wants it
        ("table", "table", "table"),
    ],
)
def test_path_may_lead_to_the_component_that_is_asked_for(inside, component, restored, tmp_path):
    room, other = Room(), Room()
    filled(room.table)
    filled(room.lumber.table)
    path = Path(room.save_to_path(tmp_path / "c"))
    other.restore_from_path(path / inside, component=component)
    assert other.table.values.any() == (restored in ("both", "table"))
    assert other.lumber.table.values.any() == (restored in ("both", "lumber"))


def test_misspelt_paths_are_told_the_right_one(tmp_path):
    path = Path(Room().save_to_path(tmp_path / "c"))
    with pytest.raises(CheckpointMismatchError, match="did you mean 'lumber/table'"):
        Room().restore_from_path(path, component="room_group/lumber/shelf/table/default_table")
    with pytest.raises(CheckpointMismatchError, match="did you mean 'lumber/table'"):
        Table(2).restore_from_path(path / "lumber" / "group" / "table")
    with pytest.raises(CheckpointMismatchError, match="give the path of the part, such as"):
        Table(2).restore_from_path(path)
    with pytest.raises(CheckpointNotFoundError):
        Room.from_checkpoint(tmp_path / "nothing")


def test_given_state_is_saved_instead_of_the_present_one(tmp_path):
    room = Room()
    filled(room.table)
    state = room.get_state()
    filled(room.table)
    path = room.save_to_path(tmp_path / "c", state=state, use_msgpack=False)
    assert read_manifest(path).metadata["colour"] == "green", "metadata of its own"
    other = Room.from_checkpoint(path)
    assert other.table.values.tolist() == [1.5] * 3
    with pytest.raises(StateError, match=r"without \['lumber/table'\]"):
        room.save_to_path(tmp_path / "d", state={"table": state["table"]})
    with pytest.raises(StateError, match=r"unknown \['chair'\]"):
        room.save_to_path(tmp_path / "d", state={**state, "chair": 1})
    assert not (tmp_path / "d").exists()


def test_other_file_systems_and_unknown_arguments_are_refused(tmp_path):
    path = Room().save_to_path(tmp_path / "c")
    for call in (
        lambda: Room().save_to_path(tmp_path / "d", filesystem="s3"),
        lambda: Room().restore_from_path(path, filesystem="s3"),
        lambda: Room.from_checkpoint(path, "s3"),
    ):
        with pytest.raises(TypeError, match="kept in local directories"):
            call()
    with pytest.raises(TypeError, match="unknown argument"):
        Room().restore_from_path(path, componet="table")


def test_error_inside_of_a_part_names_its_path(tmp_path):
    room = Room()
    room.lumber.table.values = np.zeros(7)
    path = room.save_to_path(tmp_path / "c")
    other = Room()
    with pytest.raises(CheckpointMismatchError, match="its component 'lumber/table' does not fit"):
        other.restore_from_path(path)
    assert other.lumber.table.values.shape == (2,)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "lacks 'values'"),
        ({"values": np.zeros(2), "more": 1}, "unknown 'more'"),
        ({"values": np.zeros(2, np.float32)}, "dtype float32, expected float64"),
        ({"values": np.zeros((2, 1))}, r"shape \(2, 1\), expected \(2,\)"),
        ({"values": [0.0, 0.0]}, "is a list, expected an array"),
        ([1], "it is a list, expected a dict"),
    ],
)
def test_like_names_every_difference(state, message):
    table = Table(2)
    table.check_state(table.get_state())
    with pytest.raises(CheckpointMismatchError, match=message):
        table.check_state(state)


def test_constructors_are_no_weights(tmp_path):
    path = filled(Table(2)).save_to_path(tmp_path / "c")
    assert list(load_weights(path)) == ["values"]
