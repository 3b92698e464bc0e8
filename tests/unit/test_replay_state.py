"""Saving, restoring and undoing: the same bytes, whatever happened in between."""

import copy
import weakref

import numpy as np
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import codec
from tests.replay_model import ADDS, KINDS, Piece, World, chunk
from tests.traced_memory import takes_less
from trainer.errors import ReplayError
from trainer.replay import PrioritizedReplayBuffer, ReplayBuffer

BUFFERS = (ReplayBuffer, PrioritizedReplayBuffer)
CHANGES = st.lists(
    ADDS.map(lambda adds: [piece for pieces in adds for piece in pieces]), max_size=4
)
"""Calls of `add`; after each of them priorities change."""


def change(buffer, world, calls):
    rng = np.random.default_rng(len(world.steps))
    for pieces in calls:
        buffer.add(world.play(pieces))
        if isinstance(buffer, PrioritizedReplayBuffer) and len(buffer):
            rows = buffer.sample(5, rng=rng).rows
            buffer.update_priorities(rows, 10 ** rng.normal(size=5))


def contents(buffer):
    return codec.encode(buffer.get_state())


def drawn(buffer):
    """The bytes of a sample."""
    if not len(buffer):
        return b""
    batch = buffer.sample(30, rng=np.random.default_rng(1), n_step=(1, 4))
    return codec.encode(dict(vars(batch)))


def restored(buffer, state):
    other = type(buffer)(buffer.capacity)
    if not isinstance(state["following"], list):  # as checkpoints bring it
        other.check_state(state)
    other.set_state(state)
    return other


def from_msgpack(state):
    return ormsgpack.unpackb(ormsgpack.packb(state, option=ormsgpack.OPT_SERIALIZE_NUMPY))


@pytest.mark.parametrize("buffer_class", BUFFERS)
@given(st.sampled_from(KINDS), st.integers(1, 12), CHANGES, CHANGES)
def test_a_restored_buffer_goes_on_with_the_same_bytes(buffer_class, kind, capacity, before, after):
    buffer, world = buffer_class(capacity), World(kind)
    change(buffer, world, before)
    state = buffer.get_state()
    from_checkpoint = restored(buffer, codec.decode(codec.encode(state)))
    from_file = restored(buffer, from_msgpack(state))
    assert contents(from_checkpoint) == contents(from_file) == contents(buffer)
    assert drawn(from_checkpoint) == drawn(from_file) == drawn(buffer)
    twin_world = World(kind)
    for pieces in before:
        twin_world.play(pieces)
    change(buffer, world, after)
    change(from_file, twin_world, after)
    assert contents(from_file) == contents(buffer)
    assert drawn(from_file) == drawn(buffer)
    assert from_file.get_num_episodes() == buffer.get_num_episodes()


@pytest.mark.parametrize("buffer_class", BUFFERS)
@given(st.sampled_from(KINDS), st.integers(1, 12), CHANGES, CHANGES, CHANGES, st.booleans())
def test_a_rollback_brings_back_every_byte(
    buffer_class, kind, capacity, before, undone, after, is_replaced
):
    buffer, twin = buffer_class(capacity), buffer_class(capacity)
    world, twin_world, lost_world = World(kind), World(kind), World(kind)
    change(buffer, world, before)
    change(twin, twin_world, before)
    for pieces in before:
        lost_world.play(pieces)
    undo = buffer.mark()
    change(buffer, lost_world, undone)
    if is_replaced:
        other = buffer_class(capacity)
        change(other, World("image"), undone)
        buffer.set_state(other.get_state())
        change(buffer, World("image"), undone)
    undo()
    assert contents(buffer) == contents(twin)
    assert drawn(buffer) == drawn(twin)
    assert buffer.get_num_episodes() == twin.get_num_episodes()
    change(buffer, world, after)
    change(twin, twin_world, after)
    assert contents(buffer) == contents(twin)
    assert drawn(buffer) == drawn(twin)


@pytest.mark.parametrize("buffer_class", BUFFERS)
@pytest.mark.parametrize("is_undone", [True, False])
def test_marks_are_nested(buffer_class, is_undone):
    buffer, world = buffer_class(5), World()
    first = contents(buffer)
    undo_all = buffer.mark()
    change(buffer, world, [[Piece(0, 4)]])
    second = contents(buffer)
    undo = buffer.mark()
    change(buffer, world, [[Piece(0, 4)]])
    assert contents(buffer) != second
    if is_undone:
        undo()
        assert contents(buffer) == second
    del undo  # one that was not called leaves its changes to the one around it
    undo_all()
    assert contents(buffer) == first


@pytest.mark.parametrize("buffer_class", BUFFERS)
def test_what_undoes_changes_goes_with_the_mark(buffer_class):
    buffer, world = buffer_class(5), World()
    undo = buffer.mark()
    change(buffer, world, [[Piece(0, 4)]])
    columns = weakref.ref(buffer._ring.columns["obs"])
    buffer.set_state(buffer.get_state())
    assert columns() is not None, "needed to undo it"
    del undo
    assert columns() is None
    change(buffer, world, [[Piece(0, 4)]])
    assert not buffer._ring._log.is_kept


def test_a_copy_of_a_buffer_has_no_mark():
    buffer = ReplayBuffer(5)
    undo = buffer.mark()
    buffer.add(chunk(0, 0, 3))
    other = copy.deepcopy(buffer)
    undo()
    assert (len(buffer), len(other)) == (0, 3)


def test_after_a_rollback_to_nothing_other_steps_fit():
    buffer = PrioritizedReplayBuffer(5)
    undo = buffer.mark()
    buffer.add(chunk(0, 0, 3, kind="image"))
    undo()
    buffer.add(chunk(0, 0, 3, kind="nested"))
    assert len(buffer) == 3


def test_a_mark_does_not_see_rows_that_the_caller_changes_later():
    buffer = PrioritizedReplayBuffer(5)
    buffer.add(chunk(0, 0, 5))
    kept = contents(buffer)
    rows = np.array([1, 2])
    undo = buffer.mark()
    buffer.update_priorities(rows, np.array([5.0, 6.0]))
    rows[:] = 4
    undo()
    assert contents(buffer) == kept


@pytest.mark.parametrize("buffer_class", BUFFERS)
def test_undoing_costs_what_was_changed_and_not_what_is_stored(buffer_class):
    capacity = 20_000
    buffer, world = buffer_class(capacity), World()
    buffer.add(world.play([Piece(0, capacity + 5)]))
    num_bytes = sum(column.nbytes for column in buffer.get_state()["columns"].values())
    calls = [world.play([Piece(1, 10)]) for _ in range(10)]

    def changed_and_undone():
        undo = buffer.mark()
        for chunks in calls:
            buffer.add(chunks)
            if isinstance(buffer, PrioritizedReplayBuffer):
                buffer.update_priorities(np.arange(10), np.ones(10))
        assert buffer.num_added == capacity + 105
        undo()

    assert takes_less(num_bytes / 10, changed_and_undone)
    assert buffer.num_added == capacity + 5


@pytest.mark.parametrize("buffer_class", BUFFERS)
@pytest.mark.parametrize("kind", KINDS)
def test_states_share_no_memory(buffer_class, kind):
    buffer = buffer_class(5)
    buffer.add(chunk(0, 0, 5, kind=kind))
    kept, state = contents(buffer), buffer.get_state()
    other = restored(buffer, state)
    _spoil(state)
    assert contents(buffer) == contents(other) == kept
    other.add(chunk(1, 0, 3, kind=kind))
    assert contents(buffer) == kept


def _spoil(tree):
    if isinstance(tree, np.ndarray):
        tree[...] = 0
    elif isinstance(tree, dict):
        for part in tree.values():
            _spoil(part)
        tree.clear()
    elif isinstance(tree, list):
        for part in tree:
            _spoil(part)
        tree.clear()


@pytest.mark.parametrize("buffer_class", BUFFERS)
@pytest.mark.parametrize("num_steps", [0, 3])
def test_a_state_that_does_not_fit_changes_nothing(buffer_class, num_steps):
    buffer = buffer_class(5)
    buffer.add(chunk(0, 0, num_steps))
    kept, draws = contents(buffer), drawn(buffer)
    state = buffer.get_state()
    other_class = BUFFERS[1 - BUFFERS.index(buffer_class)]
    bad = [
        (ReplayError, "capacity", buffer_class(6).get_state()),
        (ReplayError, other_class.__name__, other_class(5).get_state()),
        (KeyError, "following", {k: v for k, v in state.items() if k != "following"}),
        (KeyError, "nesting", {k: v for k, v in state.items() if k != "nesting"}),
    ]
    if buffer_class is PrioritizedReplayBuffer:
        bad.append((ReplayError, "alpha", PrioritizedReplayBuffer(5, alpha=0.1).get_state()))
        bad.append((KeyError, "priorities", {k: state[k] for k in state if k != "priorities"}))
    for error, text, wrong in bad:
        with pytest.raises(error, match=text):
            buffer.set_state(wrong)
        assert contents(buffer) == kept
        assert drawn(buffer) == draws
