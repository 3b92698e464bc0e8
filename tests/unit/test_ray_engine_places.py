"""What places do with actors that are gone or stuck; Ray itself is played by an object."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from trainer.ray_engine import cluster
from trainer.ray_engine.engine import Host, RayEngine, RayPlace
from trainer.ray_engine.place_host import Heartbeat
from trainer.runtime.engine import nothing

_NODE = "0123456789abcdef"
_LAST = Heartbeat(1, host="here", pid=1001, node=_NODE, host_pid=1000)


class RayError(Exception):
    """What Ray raises when an actor is gone."""


class Reference:
    """An answer that Ray is to bring."""

    def future(self) -> Future[bytes]:
        return Future()


class Actor:
    """The handle of an actor: notes what is asked of it.

    Attributes:
        state: whether it answers: "well", "gone" or "stuck".
        asked: the methods that were called.
    """

    def __init__(self, state: str = "well") -> None:
        self.state = state
        self.asked: list[str] = []

    def __getattr__(self, method: str) -> Any:
        return _Method(self, method)


class _Method:
    def __init__(self, actor: Actor, name: str) -> None:
        self._actor, self._name = actor, name

    def options(self, **_: object) -> _Method:
        return self

    def remote(self, *_: object) -> Any:
        self._actor.asked.append(self._name)
        return Reference() if self._name == "start" else self._actor


class PlayedRay:
    """The part of Ray that ends workers; answers as the actors' states say."""

    class exceptions:
        RayError = RayError

    def __init__(self) -> None:
        self.killed: list[Any] = []

    def is_initialized(self) -> bool:
        return True

    def wait(self, asked: list[Actor], **_: float) -> tuple[list[Actor], list[Actor]]:
        return [one for one in asked if one.state != "stuck"], []

    def get(self, asked: Actor | list[Actor], **_: float) -> None:
        if any(one.state == "gone" for one in (asked if isinstance(asked, list) else [asked])):
            raise RayError

    def kill(self, handle: Actor, **_: bool) -> None:
        self.killed.append(handle)


class Engine(RayEngine):
    """Notes whose processes are ended, and makes actors that are played.

    Attributes:
        ended: the last heartbeats with which processes were ended.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[Heartbeat] = []

    def _connect(self) -> None:
        pass

    def _end_processes(self, last: Heartbeat) -> None:
        self.ended.append(last)

    def make_host(self, place: RayPlace) -> Host:
        return Host(Actor(), made_for=place.number)

    def give_back(self) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine whose Ray is played."""
    monkeypatch.setattr(cluster, "load_ray", PlayedRay)
    return Engine()


def place_on(engine: Engine, actor: Actor) -> RayPlace:
    """A place with an idle worker that the actor keeps."""
    place = engine.make_place("env runner 1", arrivals=engine.make_arrivals(), inherit=nothing)
    host = Host(actor, made_for=place.number)
    host.places.add(place.number)
    place.host, place._is_running = host, True
    place._hear(_LAST)
    return place


@pytest.mark.parametrize(
    ("state", "is_kept", "ended"),
    [("well", True, []), ("gone", False, []), ("stuck", False, [_LAST])],
)
def test_only_of_an_actor_that_is_stuck_processes_are_ended_by_their_ids(
    engine: Engine, state: str, is_kept: bool, ended: list[Heartbeat]
) -> None:
    place = place_on(engine, Actor(state))
    place.kill()
    assert (place.host is not None) == is_kept
    # The ids of an actor that is gone may belong to another's processes by now.
    assert engine.ended == ended


def test_an_actor_that_a_neighbour_has_ended_is_not_asked_again(engine: Engine) -> None:
    actor = Actor("stuck")
    place = place_on(engine, actor)
    assert place.host is not None
    place.host.is_gone = True
    place.kill()
    assert (actor.asked, engine.ended) == ([], [])


def test_a_start_does_not_use_an_actor_that_a_neighbour_has_lost(engine: Engine) -> None:
    lost, neighbour = Actor("gone"), Actor()
    place, beside = place_on(engine, lost), place_on(engine, neighbour)
    assert place.host is not None
    place.host.is_gone = True
    place.start(b"")
    assert lost.asked == []
    assert place.host is beside.host  # on the machine on which it was lost
    assert neighbour.asked == ["answers", "start"]
