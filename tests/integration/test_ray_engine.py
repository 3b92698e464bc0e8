"""Env runners on a Ray cluster: the same bytes as on the local engine, whatever happens to it.

The cluster has two nodes on this machine. What Ray calls a machine is a node here.
"""

import contextlib
import functools
import importlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoints import encode
from tests.fingerprints import KILLS, fingerprints_of, plans, second_half
from tests.multi_agent_runs import everything, gaps
from tests.ray_cluster import CPUS_PER_NODE, another_node, remove
from tests.resume_cells import Cell
from tests.small_runs import small_ppo
from trainer import Algorithm, actors
from trainer.algorithms import building
from trainer.errors import EngineError, RunnerLostError
from trainer.ray_engine import engine as ray_engine
from trainer.ray_engine.engine import RayEngine, RayPlace
from trainer.runtime import machine_facts
from trainer.testing import (
    CountdownEnv,
    Fault,
    FaultyCallback,
    is_process_alive,
    wait_until,
    with_faults,
)

pytestmark = [pytest.mark.ray, pytest.mark.process]

ROOT = Path(__file__).parents[2]
_LONG_S = 120.0


@pytest.fixture(autouse=True)
def folder_of_kills(monkeypatch, tmp_path):
    monkeypatch.setenv(KILLS, str(tmp_path))


def on_ray(plan):
    return replace(plan, settings={**plan.settings, "engine": "ray"})


def config_on_ray(num_env_runners=2, **resources):
    settings = {"observation_filter": "MeanStdFilter", "train_batch_size": 80}
    return small_ppo(num_env_runners, engine="ray", **settings, **resources)


def learnt(algo):
    state = algo.get_state()
    return encode([state["learner"], state["connectors"], state["env_runners"]])


@functools.cache
def undisturbed(num_iterations=2):
    """What iterations of `slow_config` learn on the local engine."""
    with slow_config().resources(engine="local").build_algo() as algo:
        for _ in range(num_iterations):
            algo.train()
        return learnt(algo)


def places_of(algo):
    pool = algo.env_runner_group._runners._pool
    return list(pool.places.values())


# ---- the same bytes

_SAC_BESIDE = "SAC, evaluation beside training"


def planned(name):
    if name != _SAC_BESIDE:
        return plans()[name]
    beside = plans()["evaluation beside training"]
    return replace(beside, cell=Cell("SAC", "Pendulum", 2))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("PPO, 2 runners", marks=pytest.mark.ray_sample),
        "DQN, 2 runners",
        "SAC, 2 runners",
        "evaluation beside training",
        _SAC_BESIDE,
        "curriculum",
    ],
)
def test_local_and_ray_runs_have_the_same_results_states_and_files(name, tmp_path):
    plan = planned(name)
    (tmp_path / "local").mkdir()
    (tmp_path / "ray").mkdir()
    local = fingerprints_of(plan, tmp_path / "local")
    assert fingerprints_of(on_ray(plan), tmp_path / "ray") == local


def test_a_checkpoint_goes_on_under_the_other_engine(tmp_path):
    plan = plans()["PPO, 2 runners"]
    folders = {name: tmp_path / name for name in ("local", "ray")}
    whole = {}
    for name, folder in folders.items():
        folder.mkdir()
        whole[name] = fingerprints_of(on_ray(plan) if name == "ray" else plan, folder)
    expected = {key: value for key, value in whole["local"].items() if key.startswith("state")}
    went_on = second_half(plan, folders["ray"] / "checkpoint")  # locally: it is no part of it
    assert {key: went_on[key] for key in expected} == expected
    given = {**plan.given(), "engine": "ray"}
    with Algorithm.from_checkpoint(folders["local"] / "checkpoint", **given) as algo:
        assert all(isinstance(place, RayPlace) for place in places_of(algo))
        for _ in range(3):
            algo.train()
        there = encode(algo.get_state(components=["learner"])["learner"])
    with Algorithm.from_checkpoint(folders["local"] / "checkpoint", **plan.given()) as algo:
        for _ in range(3):
            algo.train()
        assert encode(algo.get_state(components=["learner"])["learner"]) == there


def test_several_agents_learn_the_same_bytes():
    local = everything(gaps(2))
    assert everything(gaps(2).resources(engine="ray")) == local


def test_samples_that_are_asked_for_ahead_are_the_same_bytes():
    found = {}
    for engine in ("local", "ray"):
        made = config_on_ray().training(sample_ahead=3).resources(engine=engine)
        with made.build_algo() as algo:
            for _ in range(3):
                algo.train()
            found[engine] = learnt(algo)
    assert found["ray"] == found["local"]


def test_a_network_in_torch_learns_the_same_bytes():
    pytest.importorskip("torch")
    cells = importlib.import_module("tests.torch_cells")
    found = {}
    for engine in ("local", "ray"):
        with cells.config("dense", 2).resources(engine=engine).build_algo() as algo:
            found[engine] = cells.outcome(algo, 2)
    assert found["ray"] == found["local"]


@pytest.mark.parametrize(("most_sent_to_each", "num_put"), [(0, 4), (2**20, 0)])
def test_weights_and_normalisation_are_packed_once_per_version_and_put_if_they_are_large(
    monkeypatch, most_sent_to_each, num_put
):
    packed = []
    puts = []
    publish = RayEngine.publish
    monkeypatch.setattr(ray_engine, "_SENT_TO_EACH_BYTES", most_sent_to_each)

    def count(engine, value, *, name):
        packed.append(name)
        with monkeypatch.context() as patch:
            ray = engine._ray

            def put(value):
                puts.append(value)
                return ray_put(value)

            ray_put = ray.put
            patch.setattr(ray, "put", put)
            return publish(engine, value, name=name)

    monkeypatch.setattr(RayEngine, "publish", count)
    with config_on_ray(num_env_runners=4).build_algo() as algo:
        for _ in range(2):
            algo.train()
        found = encode(algo.get_state(components=["learner"])["learner"])
    assert packed == ["weights", "normalization"] * 2
    assert len(puts) == num_put
    assert found == _learnt_by_four()


@functools.cache
def _learnt_by_four():
    with config_on_ray(num_env_runners=4).resources(engine="local").build_algo() as algo:
        for _ in range(2):
            algo.train()
        return encode(algo.get_state(components=["learner"])["learner"])


def test_a_request_is_one_call_and_its_answer(monkeypatch):
    """Heartbeats cost as much as requests, so there are none in requests of less than 0.5 s."""
    asked = []
    meanwhile = ray_engine.Host.asked_meanwhile

    def count(host, method, *arguments):
        asked.append(method)
        return meanwhile(host, method, *arguments)

    monkeypatch.setattr(ray_engine.Host, "asked_meanwhile", count)
    monkeypatch.setattr(ray_engine, "_POLL_EVERY_S", _LONG_S)  # whatever the load
    with config_on_ray().env_runners(sample_timeout_s=100 * _LONG_S).build_algo() as algo:
        asked.clear()
        for _ in range(3):
            algo.train()
        assert asked == []
        before = places_of(algo)[0]._call
        algo.train()
        assert places_of(algo)[0]._call - before == 2  # one per runner: numbers are the engine's


# ---- faults


@pytest.fixture
def frequent_heartbeats(monkeypatch):
    """So that a test sees the first steps of a short request."""
    monkeypatch.setattr(ray_engine, "_POLL_EVERY_S", 0.02)


@contextlib.contextmanager
def in_mid_request(algo, do):
    """Does something, from outside, when the first runner has made some steps of a request."""
    place = places_of(algo)[0]
    has_struck = threading.Event()

    def watch():
        if wait_until(
            lambda: place.owes_answer and place._last.num_heartbeats > 0, within_s=_LONG_S
        ):
            do(place)
            has_struck.set()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert has_struck.is_set()


class SlowCountdownEnv(CountdownEnv):
    def step(self, action):
        time.sleep(0.02)
        return super().step(action)


class WaitingEnv(SlowCountdownEnv):
    """Waits in steps as long as a file is there, so that no request of its runner ends."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self._file = Path(env_config["waits_for"])

    def step(self, action):
        assert wait_until(lambda: not self._file.exists(), within_s=_LONG_S)
        return super().step(action)


def slow_config(**resources):
    """Runners that are long enough at work for something to happen to them."""
    config = config_on_ray(**resources)
    config.environment(SlowCountdownEnv)
    return config


def kill_actor(place):
    os.kill(place._last.host_pid, signal.SIGKILL)


def kill_worker(place):
    assert place._last.pid is not None
    os.kill(place._last.pid, signal.SIGKILL)


def stop_actor(place):
    os.kill(place._last.host_pid, signal.SIGSTOP)


@pytest.mark.usefixtures("frequent_heartbeats")
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        pytest.param(kill_actor, "it went with its Ray actor", marks=pytest.mark.ray_sample),
        (kill_worker, "was killed by signal 9"),
        (stop_actor, "made no progress for"),
    ],
)
def test_a_process_that_is_killed_or_stopped_changes_nothing(fault, told, caplog):
    config = slow_config()
    if fault is stop_actor:
        config.env_runners(sample_timeout_s=3.0)
    with config.build_algo() as algo:
        algo.train()
        place = places_of(algo)[0]
        pids = [place._last.pid, place._last.host_pid]
        with in_mid_request(algo, fault):
            result = algo.train()
        assert result["fault_tolerance"]["num_remote_worker_restarts"] == 1
        assert told in caplog.text
        if fault is stop_actor:
            assert wait_until(
                lambda: not any(is_process_alive(pid) for pid in pids if pid), within_s=_LONG_S
            )
        assert learnt(algo) == undisturbed()


@pytest.fixture
def num_made(monkeypatch):
    """The names of the places that Ray was asked for an actor for."""
    made = []
    make = RayEngine.make_host

    def count(engine, place):
        made.append(place.name)
        return make(engine, place)

    monkeypatch.setattr(RayEngine, "make_host", count)
    return made


@pytest.mark.usefixtures("frequent_heartbeats")
def test_the_actor_beside_it_takes_in_the_worker_of_one_that_is_killed(num_made):
    """So nothing is imported anew: no process is started but the worker, a copy of a fork server.

    It works there beside that actor's own worker, is repaired, and survives its neighbour's end.
    """
    with slow_config(placement_strategy="STRICT_PACK").build_algo() as algo:
        first, second = places_of(algo)
        algo.train()
        assert len(num_made) == 2
        with in_mid_request(algo, kill_actor):
            result = algo.train()
        assert result["fault_tolerance"]["num_remote_worker_restarts"] == 1
        assert len(num_made) == 2
        assert first._last.host_pid == second._last.host_pid
        assert first._last.pid != second._last.pid
        assert learnt(algo) == undisturbed()
        kill_worker(first)
        algo.train()
        second.stop(grace_s=2.0)  # the actor keeps a worker still
        assert first.is_running
        result = algo.train()
        assert result["training_iteration"] == 4
        assert len(num_made) == 2
        assert learnt(algo) == undisturbed(4)


@pytest.mark.usefixtures("frequent_heartbeats")
def test_without_an_actor_that_answers_there_ray_is_asked_for_another(monkeypatch, num_made):
    monkeypatch.setattr(ray_engine, "_ANSWERS_WITHIN_S", 0.2)
    with slow_config(placement_strategy="STRICT_PACK").build_algo() as algo:
        first, second = places_of(algo)
        algo.train()
        stopped = second._last.host_pid

        def stop_one_and_kill_the_other(_):
            os.kill(stopped, signal.SIGSTOP)
            kill_actor(first)

        try:
            with in_mid_request(algo, stop_one_and_kill_the_other):
                watch = threading.Thread(target=_go_on_after_another, args=(num_made, stopped))
                watch.start()
                algo.train()
                watch.join()
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert len(num_made) == 3
        assert first._last.host_pid != second._last.host_pid
        assert learnt(algo) == undisturbed()


def _go_on_after_another(made, stopped):
    assert wait_until(lambda: len(made) == 3, within_s=_LONG_S)
    os.kill(stopped, signal.SIGCONT)


@pytest.mark.usefixtures("frequent_heartbeats")
def test_runners_whose_machine_is_removed_go_on_where_there_is_room(ray_cluster, caplog, tmp_path):
    is_there = tmp_path / "the machine is there"
    config = slow_config(placement_strategy="STRICT_PACK")
    config.environment(WaitingEnv, env_config={"waits_for": str(is_there)})
    config.env_runners(custom_resources_per_env_runner={"spare": 1.0})
    with (
        another_node(ray_cluster, 2, spare=2.0) as one,
        another_node(ray_cluster, 2, spare=2.0) as other,
    ):
        nodes = {node.node_id: node for node in (one, other)}
        with config.build_algo() as algo:
            algo.train()
            places = places_of(algo)
            (lost,) = {place._last.node for place in places}
            pids = [pid for place in places for pid in (place._last.pid, place.host_pid) if pid]

            def remove_machine(_):
                remove(ray_cluster, nodes[lost])
                # Its processes notice that a moment later; on a machine that is lost, they do not.
                gone = wait_until(lambda: not any(map(is_process_alive, pids)), within_s=_LONG_S)
                is_there.unlink()
                assert gone

            is_there.touch()
            with in_mid_request(algo, remove_machine):
                result = algo.train()
            # More if Ray was asked for another actor before it knew that the machine is lost.
            assert result["fault_tolerance"]["num_remote_worker_restarts"] >= len(places)
            assert f"(node {lost[:8]})" in caplog.text
            assert lost not in {place._last.node for place in places_of(algo)}
            assert learnt(algo) == undisturbed()


def test_runners_that_wait_for_room_start_on_a_machine_that_is_added(ray_cluster):
    needs = {"late": 1.0}
    engine = RayEngine(resources=needs, placement_timeout_s=_LONG_S)
    config = slow_config().resources(engine=engine)
    learnt_there = []

    def train():
        with config.build_algo() as algo:
            for _ in range(2):
                algo.train()
            learnt_there.append(learnt(algo))

    thread = threading.Thread(target=train)
    thread.start()
    assert wait_until(lambda: bool(engine._reservations), within_s=_LONG_S)
    with another_node(ray_cluster, 2, late=2.0):
        thread.join()
    assert learnt_there == [undisturbed()]


@pytest.mark.ray_sample
def test_without_a_machine_that_has_room_the_error_says_so(ray_cluster):
    engine = RayEngine(num_cpus=1000, placement_timeout_s=0.5)
    with pytest.raises(RunnerLostError, match=r"1000 CPU on one machine.* 8 CPU of which"):
        config_on_ray().resources(engine=engine).build_algo()


def test_resources_that_never_become_free_are_an_error_within_seconds(ray_cluster):
    ray = importlib.import_module("ray")
    others = ray.util.placement_group([{"CPU": CPUS_PER_NODE}] * 2)
    assert others.wait(_LONG_S)
    try:
        engine = RayEngine(num_cpus=1, placement_timeout_s=0.5)
        with pytest.raises(RunnerLostError, match=r"needs 1 CPU on one machine.* 8 CPU of which 0"):
            config_on_ray().resources(engine=engine).build_algo()
    finally:
        ray.util.remove_placement_group(others)


@pytest.mark.parametrize("way", ["raise", "exit", "segfault"])
def test_what_code_of_users_does_is_told_as_on_the_local_engine(way):
    fault = Fault("step", way=way, worker_index=1, at_step=2, times="always")
    texts = []
    for engine in ("local", "ray"):
        config = config_on_ray().resources(engine=engine)
        config.environment(with_faults(CountdownEnv, fault))
        config.fault_tolerance(restart_failed_env_runners=False)
        with config.build_algo() as algo, pytest.raises(Exception, match="step") as raised:
            algo.train()
        text = re.sub(r" on \S+ \(node \w+\)", "", str(raised.value))  # told of machines only
        texts.append((type(raised.value).__name__, text))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("way", ["exit", "segfault", "sigkill"])
def test_an_env_that_ends_its_process_is_repaired_by_the_same_actor(way, num_made):
    found = []
    for faults in ([], [Fault("step", way=way, worker_index=1, at_step=2)]):
        config = config_on_ray()
        config.environment(with_faults(CountdownEnv, *faults))
        with config.build_algo() as algo:
            for _ in range(2):
                algo.train()
            found.append(learnt(algo))
            restarts = algo.env_runner_group.num_remote_worker_restarts()
        assert restarts == len(faults)
    assert found[0] == found[1]
    assert len(num_made) == 4


def test_an_answer_that_cannot_be_unpacked_is_repaired_as_on_the_local_engine():
    found = []
    for engine in ("local", "ray"):
        # The first answer is that of the start.
        fault = Fault("unpack", worker_index=1, on_call=2)
        config = config_on_ray().callbacks([FaultyCallback(fault)]).resources(engine=engine)
        with config.build_algo() as algo:
            for _ in range(2):
                algo.train()
            found.append((algo.env_runner_group.num_remote_worker_restarts(), learnt(algo)))
        assert fault.num_fired == 1
    assert found[0] == found[1]


# ---- bad input


def test_other_versions_on_a_machine_are_named(monkeypatch):
    here = machine_facts.facts_of_this_machine()
    claimed = replace(here, versions=(*here.versions[:1], ("numpy", "0.1"), *here.versions[2:]))
    monkeypatch.setattr("trainer.ray_engine.engine.facts_of_this_machine", lambda: claimed)
    with pytest.raises(EngineError, match=r"other versions than this one: numpy 0\.1, there"):
        config_on_ray().build_algo()


def test_a_class_that_a_machine_does_not_have_is_named(monkeypatch, tmp_path):
    """Its module is found everywhere on this machine, but imports only in this process."""
    (tmp_path / "envs_of_one_machine.py").write_text(
        """
import os
from trainer.testing import CountdownEnv
if "THE_SIMULATOR_IS_HERE" not in os.environ:
    raise ModuleNotFoundError("No module named 'simulator'")
class Env(CountdownEnv): pass
""",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("THE_SIMULATOR_IS_HERE", "1")
    env = importlib.import_module("envs_of_one_machine").Env
    begun_s = time.monotonic()
    with pytest.raises(ModuleNotFoundError, match="No module named 'simulator'"):
        config_on_ray().environment(env).build_algo()
    assert time.monotonic() - begun_s < _LONG_S


def test_make_engine_takes_what_the_config_says():
    config = config_on_ray(placement_strategy="SPREAD")
    config.env_runners(num_cpus_per_env_runner=2)
    engine = building.make_engine(config)
    assert isinstance(engine, RayEngine)
    assert engine._needs == {"CPU": 2.0}
    assert engine._strategy == "SPREAD"


def test_the_example_loses_a_machine_and_learns_the_same_bytes():
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "two_nodes.py"), "--iterations", "2"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        check=False,
        timeout=5 * _LONG_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert "a machine is lost" in lines
    assert lines[-1] == "the same bytes"


def run_script(script, **variables):
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=5 * _LONG_S,
    )


def test_nobody_at_the_address_is_told_within_seconds(monkeypatch):
    script = """
from trainer import PPOConfig
from trainer.errors import EngineError
config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=1)
try:
    config.resources(engine="ray").build_algo()
except EngineError as error:
    print(error)
"""
    begun_s = time.monotonic()
    done = run_script(script, RAY_ADDRESS="127.0.0.1:1")
    assert "There is no Ray cluster to connect to at RAY_ADDRESS=127.0.0.1:1" in done.stdout
    assert time.monotonic() - begun_s < _LONG_S / 2


def test_a_local_cluster_is_started_and_shut_down_with_its_last_user():
    script = """
import ray
from checkpoints import encode
from trainer import PPOConfig
def build(engine="ray"):
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=1)
    return config.debugging(seed=1).resources(engine=engine).build_algo()
def learnt(algo):
    return encode(algo.get_state(components=["learner"])["learner"])
one = build()
two = build()
one.train()
one.stop()
print(ray.is_initialized(), two.train()["training_iteration"])
ray.shutdown()  # by the user: the next call starts another
print(two.train()["fault_tolerance"]["num_remote_worker_restarts"], ray.is_initialized())
local = build("local")
local.train()
local.train()
print(learnt(two) == learnt(local))
ray.shutdown()
two.stop()
print(ray.is_initialized())
local.stop()
"""
    done = run_script(script, RAY_AUTH_MODE="disabled")
    told = ["True", "1", "1", "True", "True", "False"]
    assert done.stdout.split() == told, done.stderr[-3000:]


def test_runners_reach_named_actors_on_the_machine_of_the_main_process():
    @actors.remote
    class Counter:
        def __init__(self):
            self.count = 0

        def inc(self):
            self.count += 1
            return self.count

    counter = Counter.options(name="counted").remote()
    with config_on_ray().build_algo() as algo:
        algo.env_runner_group.foreach_env_runner(
            lambda runner: actors.get(actors.get_actor("counted").inc.remote())
        )
    assert actors.get(counter.inc.remote()) == 3
    actors.kill(counter)


def test_other_cpus_are_told_once_and_refused_if_asked(caplog):
    here = machine_facts.facts_of_this_machine()
    engine, strict = RayEngine(), RayEngine(strict_cpus=True)
    for number in (1, 2):
        there = replace(here, host=f"node-{number}", cpu=f"Another {number}")
        assert engine.why_refused(there) == ""
        assert "strict_cpus=True refuses" in strict.why_refused(there)
    assert len(machine_facts.cpu_kinds(engine.machines())) == 3
    assert caplog.text.count("have CPUs of 2 kinds") == 1
