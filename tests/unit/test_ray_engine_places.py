"""What places do with actors that are gone or stuck; Ray itself is played by an object."""

import contextlib
import gc
import pickle
import signal
import threading
import weakref
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from trainer.errors import EngineError
from trainer.ray_engine import cluster
from trainer.ray_engine.engine import Host, RayEngine
from trainer.ray_engine.place_host import Heartbeat, HostReply
from trainer.runtime.engine import nothing
from trainer.runtime.messages import Lost
from trainer.testing.processes import wait_until

_NODE = "0123456789abcdef"
_LAST = Heartbeat(1, host="here", pid=1001, node=_NODE, host_pid=1000)


class RayError(Exception):
    """What Ray raises when an actor is gone."""


class Reference:
    """An answer that Ray is to bring."""

    def future(self):
        return Future()


class Actor:
    """The handle of an actor: notes what is asked of it.

    Attributes:
        state: whether it answers: "well", "gone" or "stuck".
        asked: the methods that were called.
    """

    def __init__(self, state="well"):
        self.state = state
        self.asked = []

    def __getattr__(self, method):
        return _Method(self, method)


class _Method:
    def __init__(self, actor, name):
        self._actor, self._name = actor, name

    def options(self, **_):
        return self

    def remote(self, *_):
        self._actor.asked.append(self._name)
        return Reference() if self._name in ("start", "call", "poll", "close") else self._actor


class PlayedRay:
    """The part of Ray that ends workers; answers as the actors' states say."""

    class exceptions:
        RayError = RayError
        OutOfMemoryError = MemoryError

    def __init__(self):
        self.killed = []

    def is_initialized(self):
        return True

    def wait(self, asked, **_):
        return [one for one in asked if one.state != "stuck"], []

    def get(self, asked, **_):
        if any(one.state == "gone" for one in (asked if isinstance(asked, list) else [asked])):
            raise RayError

    def kill(self, handle, **_):
        self.killed.append(handle)


class Engine(RayEngine):
    """Notes whose processes are ended, and makes actors that are played.

    Attributes:
        ended: the last heartbeats with which processes were ended.
        time_s: what its clock says.
    """

    def __init__(self):
        super().__init__()
        self.ended = []
        self.time_s = 0.0

    def now_s(self):
        return self.time_s

    def _connect(self):
        self.notice_disconnection()

    def _end_processes(self, last):
        self.ended.append(last)

    def make_host(self, place):
        return Host(Actor(), made_for=place.number)

    def give_back(self):
        pass


@pytest.fixture
def engine(monkeypatch):
    """An engine whose Ray is played."""
    monkeypatch.setattr(cluster, "load_ray", PlayedRay)
    connect_to("one cluster", monkeypatch)
    return Engine()


def connect_to(name, monkeypatch):
    monkeypatch.setattr(cluster, "connection", lambda: name)


def place_on(engine, actor):
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
    engine, state, is_kept, ended
):
    place = place_on(engine, Actor(state))
    place.kill()
    assert (place.host is not None) == is_kept
    # The ids of an actor that is gone may belong to another's processes by now.
    assert engine.ended == ended


def test_an_actor_that_a_neighbour_has_ended_is_not_asked_again(engine):
    actor = Actor("stuck")
    place = place_on(engine, actor)
    place.host.is_gone = True
    place.kill()
    assert (actor.asked, engine.ended) == ([], [])


def test_a_start_does_not_use_an_actor_that_a_neighbour_has_lost(engine):
    lost, neighbour = Actor("gone"), Actor()
    place, beside = place_on(engine, lost), place_on(engine, neighbour)
    place.host.is_gone = True
    place.start(b"")
    assert lost.asked == []
    assert place.host is beside.host  # on the machine on which it was lost
    assert neighbour.asked == ["answers", "start"]


@pytest.mark.parametrize("cluster_now", ["", "another cluster"])
@pytest.mark.parametrize("is_busy", [True, False])
def test_a_worker_whose_cluster_was_left_is_lost_and_starts_on_the_next_one(
    engine, monkeypatch, is_busy, cluster_now
):
    """Calls of Ray's would connect to any cluster there is, and their answers never come."""
    actor = Actor()
    place = place_on(engine, actor)
    if is_busy:
        place.submit("sample", ())
        engine.time_s += 1.0
        assert place.kill_if_stalled() is None
    asked = list(actor.asked)
    assert asked == (["call", "poll"] if is_busy else [])
    connect_to(cluster_now, monkeypatch)
    if is_busy:
        engine.time_s += 1.0
        assert place.kill_if_stalled() is None
    else:
        place.submit("sample", ())
    assert place.has_answer
    lost = place.take()
    assert isinstance(lost, Lost)
    assert lost.was_taken_along
    assert "has left the Ray cluster" in lost.cause
    connect_to("another cluster", monkeypatch)
    place.start(b"")
    assert place.host.handle.asked == ["start"]
    engine.time_s += 1.0
    place.kill_if_stalled()
    assert place.host.handle.asked == ["start", "poll"]
    assert actor.asked == asked


def test_a_place_whose_cluster_was_left_stops_without_asking(engine, monkeypatch):
    actor = Actor()
    place = place_on(engine, actor)
    connect_to("", monkeypatch)
    place.stop(grace_s=1.0)
    assert (actor.asked, place.is_running, place.host) == ([], False, None)


def test_nothing_is_reserved_for_places_of_an_algorithm_that_has_ended(engine, monkeypatch):
    """An engine that was given as an object serves the next algorithm, too."""
    reserved = []
    monkeypatch.setattr(cluster, "Reservation", lambda _, places, **__: reserved.append(places))
    ended, place = place_on(engine, Actor()), place_on(engine, Actor())
    ended.stop(grace_s=0.0)
    engine._reservation_of(place)
    assert reserved == [[place]]


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_place_that_is_dropped_is_gone_at_once_with_what_it_has_reserved(engine, is_killed):
    """Else another algorithm may find no room until Python collects garbage."""
    place = place_on(engine, Actor())
    place.submit("sample", ())
    answer = place._pending
    if is_killed:
        place.kill()
    else:
        answer.set_result(pickle.dumps(HostReply(Lost(None), _LAST)))
        place.take()
    dropped = weakref.ref(place)
    gc.disable()
    try:
        del place  # Ray has the answer of the killed one still: a thread of its own lets go of it
        assert dropped() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("num_places", "needs"),
    [
        (1, "it needs 1 CPU on one machine, and the"),
        (
            2,
            "it needs 1 CPU on one machine, at once with 1 more of its kind "
            "(placement_strategy='STRICT_SPREAD'), and the",
        ),
    ],
)
def test_an_actor_that_finds_no_room_says_what_else_is_to_be_placed_with_it_and_how(
    engine, monkeypatch, num_places, needs
):
    """Else a cluster with four CPUs free has no room for a runner that needs one."""
    played = PlayedRay()
    played.util = SimpleNamespace(
        placement_group=lambda *_, **__: "group", placement_group_table=lambda _: {}
    )
    played.nodes = lambda: [{"Alive": True}]
    played.cluster_resources = played.available_resources = lambda: {"CPU": 4.0}
    monkeypatch.setattr(engine, "_ray", played)
    monkeypatch.setattr(engine, "_strategy", "STRICT_SPREAD")
    monkeypatch.setattr(cluster, "_remove", lambda *_: None)
    places = [place_on(engine, Actor()) for _ in range(num_places)]
    why = engine.why_not_placed(places[0], 10.0)
    assert f"{needs} Ray cluster has 1 machine with 4 CPU of which 4 free." in why


def test_resources_that_ray_has_an_argument_for_are_given_in_it(engine, monkeypatch):
    """It refuses them among those that a cluster names."""
    reserved = []

    def reserve(bundles, **_):
        reserved.extend(bundles)
        return "group"

    played = SimpleNamespace(
        placement_group=reserve,
        scheduling_strategies=SimpleNamespace(
            PlacementGroupSchedulingStrategy=lambda group, **_: group
        ),
    )
    monkeypatch.setattr(cluster, "_remove", lambda *_: None)
    place = place_on(engine, Actor())
    needs = {"CPU": 1.0, "GPU": 0.5, "memory": 1e6, "license": 1.0}
    reservation = cluster.Reservation(
        SimpleNamespace(util=played), [place], needs={**needs, "none": 0.0}, strategy="PACK"
    )
    assert reserved == [needs]
    assert reservation.for_actor(place) == {
        "num_cpus": 1.0,
        "num_gpus": 0.5,
        "memory": 1e6,
        "resources": {"license": 1.0},
        "scheduling_strategy": "group",
    }


@pytest.mark.parametrize(
    ("needs", "total", "told"),
    [
        ({"slot": 2.0}, {"slot": 2.0}, None),
        ({"slot": 2.0, "GPU": 1.0}, {"slot": 1.0}, "has 1 slot, 0 GPU. Connect to a cluster"),
    ],
)
def test_a_local_cluster_that_is_given_resources_has_them(monkeypatch, needs, total, told):
    played = PlayedRay()
    played.cluster_resources = lambda: {"CPU": 1.0, **total}
    monkeypatch.setattr(cluster, "load_ray", lambda: played)
    monkeypatch.setattr(cluster, "connect", lambda *_, **__: None)
    monkeypatch.setattr(cluster, "is_own", lambda: True)
    connect_to("one cluster", monkeypatch)
    reserved = []
    played.util = SimpleNamespace(placement_group=lambda *given, **_: reserved.append(given))
    engine = RayEngine(num_cpus=4.0, resources=needs)
    with pytest.raises(EngineError, match=told) if told else contextlib.nullcontext():
        place = engine.make_place("env runner 1", arrivals=engine.make_arrivals())
        engine._reservation_of(place)
    # It is alone there, so CPUs are not reserved.
    assert reserved == ([] if told else [([needs],)])


def test_what_ray_is_given_back_is_not_waited_for_in_the_thread_that_collects(monkeypatch):
    """It may be Ray's own, without which Ray answers nothing."""
    threads = []
    played = PlayedRay()
    played.util = SimpleNamespace(
        placement_group=lambda *_, **__: "group",
        remove_placement_group=lambda _: threads.append(threading.get_ident()),
    )
    connect_to("one cluster", monkeypatch)

    def drop(*, in_thread):
        reservations = [cluster.Reservation(played, [], needs={"CPU": 1.0}, strategy="PACK")]
        dropping = threading.Thread(target=reservations.clear)
        (dropping.run if not in_thread else dropping.start)()
        assert wait_until(lambda: bool(threads))
        if in_thread:
            dropping.join()
        return dropping.ident or threading.get_ident()

    assert [drop(in_thread=False)] == threads
    threads.clear()
    assert drop(in_thread=True) not in threads


def test_only_the_cluster_that_engines_have_started_is_shut_down_with_the_last_of_them(monkeypatch):
    """Not one that the user has started after shutting that down."""
    played = PlayedCluster()
    monkeypatch.setattr(cluster, "load_ray", lambda: played)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for user in (1, 2):
        cluster.connect(user, init_arguments={})
    assert cluster.is_own()
    cluster.release(1)
    assert played.is_initialized()
    cluster.release(2)
    assert not played.is_initialized()
    cluster.connect(1, init_arguments={})
    played.shutdown()
    played.init()
    cluster.connect(2, init_arguments={})
    assert not cluster.is_own()
    for user in (1, 2):
        cluster.release(user)
    assert played.is_initialized()


def test_an_interrupt_waits_until_a_cluster_is_started_that_can_be_shut_down(monkeypatch):
    """Ray that is interrupted in between may end the process."""
    played = PlayedCluster(is_interrupted=True)
    monkeypatch.setattr(cluster, "load_ray", lambda: played)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(KeyboardInterrupt):
        cluster.connect(1, init_arguments={})
    assert played.is_initialized()
    cluster.release(1)
    assert not played.is_initialized()


class PlayedCluster:
    """The part of Ray that connects and disconnects."""

    def __init__(self, *, is_interrupted=False):
        self._is_interrupted = is_interrupted
        self._num_started = 0
        self._is_connected = False
        no_client = SimpleNamespace(is_connected=lambda: False)
        self.util = SimpleNamespace(client=SimpleNamespace(ray=no_client))

    def is_initialized(self):
        return self._is_connected

    def init(self, **_):
        if self._is_interrupted:
            signal.raise_signal(signal.SIGINT)
        self._num_started += 1
        self._is_connected = True

    def shutdown(self):
        self._is_connected = False

    def get_runtime_context(self):
        node = f"node {self._num_started}"
        return SimpleNamespace(get_node_id=lambda: node, get_job_id=lambda: "01000000")
