"""How much may be under way with an actor: who waits, who does not, and what is told."""

import threading

import pytest

from trainer.actors.connection import Room
from trainer.testing.processes import wait_until

_SOON_S = 0.02


@pytest.fixture
def rooms():
    """Rooms that are opened in the end, so that no thread stays in one."""
    made = []
    yield made
    for room in made:
        room.open()


class Entering:
    """A thread that enters with some bytes."""

    def __init__(self, room, num_bytes):
        self.is_in = threading.Event()
        self._room = room
        self._num_bytes = num_bytes
        threading.Thread(target=self._enter).start()

    def _enter(self):
        self._room.enter(self._num_bytes)
        self.is_in.set()


def test_a_full_room_lets_nobody_in_before_half_of_it_is_free(rooms):
    room = Room("actor", most_calls=4)
    rooms.append(room)
    for _ in range(4):
        room.enter(1)
    late = Entering(room, 1)
    room.leave(1)
    assert not late.is_in.wait(_SOON_S)  # three of four: not yet
    room.leave(1)
    assert late.is_in.wait(5)
    assert (room.num_calls, room.num_bytes) == (3, 3)


def test_bytes_fill_a_room_too_but_a_large_call_goes_alone(rooms):
    room = Room("actor", most_bytes=100)
    rooms.append(room)
    room.enter(1000)
    late = Entering(room, 1)
    assert not late.is_in.wait(_SOON_S)
    room.leave(1000)
    assert late.is_in.wait(5)
    room.grow(99)  # its arguments came later
    assert not Entering(room, 1).is_in.wait(_SOON_S)


def test_a_room_without_bounds_holds_nobody_up():
    room = Room("actor", is_bounded=False, most_calls=1, most_bytes=1)
    for _ in range(10):
        room.enter(1000)
    assert room.num_calls == 10


def test_who_waits_is_let_in_when_the_actor_is_gone(rooms):
    room = Room("actor", most_calls=1)
    rooms.append(room)
    room.enter(0)
    late = Entering(room, 0)
    room.open()
    assert late.is_in.wait(5)


def test_waiting_is_told_once_with_sizes(rooms, caplog):
    room = Room("actor 'slow' (Slow)", most_calls=2, patience_s=0.005)
    rooms.append(room)
    room.enter(1_500_000)
    room.enter(1_000_000)
    late = Entering(room, 1)
    assert wait_until(lambda: bool(caplog.records))
    assert not late.is_in.wait(_SOON_S)  # some more patience is over meanwhile
    assert len(caplog.records) == 1
    told = caplog.records[0].getMessage()
    assert "actor 'slow' (Slow)" in told
    assert "much is under way: 2 calls with 2.5 MB" in told
