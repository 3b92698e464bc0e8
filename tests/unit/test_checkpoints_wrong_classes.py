"""Classes and arguments that are wrong are refused by name, before they cost anybody a state."""

import pytest

from checkpoints import (
    Checkpointable,
    CheckpointMismatchError,
    CheckpointVersionError,
    CheckpointWriteError,
    StateError,
)
from trainer.replay.replay_buffer import PrioritizedReplayBuffer, ReplayBuffer


class Number(Checkpointable):
    """Nothing is wrong with it."""

    def __init__(self, value=5):
        self.value = value

    def get_state(self, components=None, *, not_components=None):
        return {"value": self.value}

    def set_state(self, state):
        self.value = state["value"]


class WithoutSet(Checkpointable):
    def get_state(self, components=None, *, not_components=None):
        return {"value": 9}

    def set_sate(self, state):
        """A name misspelt."""


class WithoutGet(Checkpointable):
    def set_state(self, state):
        """No caller gives what this takes."""


class OwnWithoutSet(Checkpointable):
    def _own_state(self):
        return {"value": 9}


class GivesNothing(Number):
    def get_state(self, components=None, *, not_components=None):
        return None


class OnlyGets:
    def get_state(self):
        return 1


class OnlySets:
    def set_state(self, state):
        """No caller gives what this takes."""


class Whole(Checkpointable):
    """Has the parts that it is given."""

    def __init__(self, *parts):
        self.parts = parts

    def get_checkpointable_components(self):
        return self.parts


class KeyWithoutSet(Whole):
    def get_state(self, components=None, *, not_components=None):
        return {**super().get_state(components, not_components=not_components), "steps": 3}


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (WithoutSet(), "WithoutSet lacks set_state"),
        (OwnWithoutSet(), "OwnWithoutSet lacks set_state"),
        (WithoutGet(), "WithoutGet lacks get_state"),
        (GivesNothing(), r"GivesNothing\.get_state\(\) returned None"),
        (Whole(("a", OnlyGets())), "OnlyGets lacks set_state.*'a'"),
        (Whole(("a", Whole(("b", OnlySets())))), "OnlySets lacks get_state.*'a/b'"),
        (Whole(("a", GivesNothing())), r"GivesNothing\.get_state\(\) returned None"),
        (KeyWithoutSet(("a", Number())), "KeyWithoutSet lacks set_state.*'steps'"),
        (Whole(("a", Number()), ("a", Number())), "names two parts 'a'"),
        (Whole(("constructors", Whole(("b", Number())))), "component 'constructors'.*Rename"),
    ],
)
def test_what_could_not_be_restored_is_not_saved(thing, message, tmp_path):
    with pytest.raises(StateError, match=message):
        thing.save_to_path(tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_an_object_without_any_state_is_no_mistake(tmp_path):
    Checkpointable.from_checkpoint(Checkpointable().save_to_path(tmp_path / "c"))


def add_name(state):
    return {**state, "name": "x"}


@pytest.mark.parametrize(
    ("migrations", "message"),
    [
        ({"count": [add_name]}, "key 'count'.*'state'"),
        ({"state": add_name}, r"state_migrations\['state'\] is a function.*list or tuple"),
        ([add_name], "state_migrations is a list.*dict"),
        ({"state": [add_name, "next"]}, "holds a str, 'next'"),
    ],
)
def test_migrations_that_are_none_are_refused(migrations, message, tmp_path):
    wrong = type("Wrong", (Number,), {"state_migrations": migrations})
    with pytest.raises(StateError, match=message):
        wrong().save_to_path(tmp_path / "c")
    path = Number(9).save_to_path(tmp_path / "c")
    thing = wrong()
    with pytest.raises(StateError, match=message):
        thing.restore_from_path(path)
    assert thing.value == 5


def without_return(state):
    state["name"] = "x"


def with_error(state):
    return state["nope"]


@pytest.mark.parametrize("migrate", [without_return, with_error])
def test_a_wrong_migration_is_called_by_its_name(migrate, tmp_path):
    path = Number(9).save_to_path(tmp_path / "c")
    wrong = type("Wrong", (Number,), {"state_migrations": {"state": [migrate]}})
    with pytest.raises(CheckpointVersionError, match=f"version 1.*{migrate.__name__}.*version 2"):
        wrong().restore_from_path(path)


def test_the_class_of_a_saved_buffer_is_named(tmp_path):
    path = PrioritizedReplayBuffer(10).save_to_path(tmp_path / "c")
    with pytest.raises(
        CheckpointMismatchError, match=r"Call PrioritizedReplayBuffer\.from_checkpoint"
    ):
        ReplayBuffer.from_checkpoint(path)


class SavesAgain(Number):
    """Saves once more whenever it was saved."""

    def _on_checkpoint_saved(self, path):
        self.save_to_path(path + "_copy")


def test_to_save_whenever_it_was_saved_is_refused(tmp_path):
    thing = SavesAgain(9)
    for _ in range(2):  # the refusal holds nothing up
        with pytest.raises(CheckpointWriteError, match="called from on_checkpoint_saved"):
            thing.save_to_path(tmp_path / "c")
    assert Number.from_checkpoint(tmp_path / "c").value == 9
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
