"""Env runners on an engine whose faults are scripted: training ends with the same bytes.

The engine is a stand-in in this process: if the group knew anything of processes, nothing here
would run.
"""

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

from checkpoints import encode
from tests import league
from tests.small_runs import small_ppo
from trainer import EnvRunnerGroup, RLlibCallback
from trainer.algorithms import building
from trainer.env_runners.env_runner import get_global_worker
from trainer.errors import RunnerLostError
from trainer.runner_group.records import RunnerRecord
from trainer.testing import FakeEngine, ScriptedFault

_NUM_ITERATIONS = 2


class Reader(RLlibCallback):
    """Has state that every episode changes, and logs."""

    def __init__(self):
        self.num_episodes = 0

    def on_episode_end(self, *, episode, metrics_logger, **_):
        self.num_episodes += 1
        metrics_logger.log_value("length", len(episode))
        assert get_global_worker() is not None

    def get_state(self):
        return {"num_episodes": self.num_episodes}

    def set_state(self, state):
        self.num_episodes = state["num_episodes"]


def config_of(num_env_runners, **evaluation):
    settings = {"observation_filter": "MeanStdFilter", "train_batch_size": 80}
    return small_ppo(num_env_runners, callbacks=Reader, **settings, **evaluation)


@dataclass(frozen=True)
class Trained:
    """What is left of a training.

    Attributes:
        learnt: what does not depend on the number of runners, as bytes.
        runners: where every slot and callback of the runners stands, as bytes.
        metrics: of the last iteration's episodes.
        num_restarts: of runners.
    """

    learnt: bytes
    runners: bytes
    metrics: bytes
    num_restarts: int


def trained(engine, config):
    """Trains, with remote runners on that engine."""
    with pytest.MonkeyPatch.context() as patch:
        if engine is not None:
            patch.setattr(building, "make_engine", lambda _: engine)
        with config.build_algo() as algo:
            results = [algo.train() for _ in range(_NUM_ITERATIONS)]
            state = algo.get_state()
    sampled = {
        key: results[-1]["env_runners"][key]
        for key in ("episode_return_mean", "num_episodes_lifetime", "length")
    }
    return Trained(
        encode([state["learner"], state["connectors"]]),
        encode(state["env_runners"]),
        encode(sampled),
        results[-1]["fault_tolerance"]["num_remote_worker_restarts"],
    )


@contextmanager
def stopped_at_the_end(group):
    try:
        yield
    finally:
        group.stop()


FAULTS = {
    "dies before it begins": [ScriptedFault("die", method="sample")],
    "dies in the middle": [ScriptedFault("die", method="sample", at_sign=7)],
    "dies again and again": [
        ScriptedFault("die", place="env runner 2", method="sample", at_sign=sign)
        for sign in (3, 6, 9)
    ],
    "dies while it is put back": [
        ScriptedFault("die", place="env runner 1", method="sample"),
        ScriptedFault("die", place="env runner 1", method="start", call=2),
    ],
    "both die": [
        ScriptedFault("die", place=f"env runner {index}", method="sample", at_sign=index)
        for index in (1, 2)
    ],
    "hangs": [ScriptedFault("hang", method="sample", at_sign=9)],
    "is slow": [ScriptedFault("delay", method="sample", at_sign=9, seconds=30.0)],
    "its answer is lost": [ScriptedFault("lose_answer", method="sample")],
    "its answer cannot be unpickled": [ScriptedFault("break_answer", method="sample")],
    "cannot be started again": [
        ScriptedFault("lose_answer", place="env runner 1", method="sample"),
        ScriptedFault("not_start", place="env runner 1", call=2),
    ],
}


@pytest.fixture(scope="module")
def undisturbed():
    """What two runners come to that nothing happens to."""
    return trained(FakeEngine(), config_of(2))


def expect_equal(found, expected):
    assert found.learnt == expected.learnt
    assert found.runners == expected.runners
    assert found.metrics == expected.metrics


def test_runners_on_a_scripted_engine_learn_what_those_of_this_process_do(undisturbed):
    local = trained(None, config_of(0))
    assert (undisturbed.learnt, undisturbed.metrics) == (local.learnt, local.metrics)
    assert undisturbed.num_restarts == 0


@pytest.mark.process
def test_runners_on_a_scripted_engine_learn_what_processes_do(undisturbed):
    expect_equal(trained(None, config_of(2)), undisturbed)


@pytest.mark.parametrize("what", FAULTS)
def test_whatever_happens_to_runners_training_ends_with_the_same_bytes(undisturbed, what):
    engine = FakeEngine(*FAULTS[what])
    found = trained(engine, config_of(2))
    assert len(engine.struck) == sum(fault.times for fault in FAULTS[what])
    is_repaired = not any(fault.kind == "delay" for fault in FAULTS[what])
    assert found.num_restarts == is_repaired * len(engine.struck)
    expect_equal(found, undisturbed)


def test_without_putting_runners_back_a_death_would_change_the_bytes(undisturbed, monkeypatch):
    bootstrap = RunnerRecord.bootstrap

    def without_positions(place, weights):
        made = bootstrap(place, weights)
        return replace(made, sync=replace(made.sync, positions=None))

    monkeypatch.setattr(RunnerRecord, "bootstrap", without_positions)
    fault = ScriptedFault("lose_answer", method="sample", call=2)
    assert trained(FakeEngine(fault), config_of(2)).runners != undisturbed.runners


def random_script(seed):
    """Faults of all kinds, at calls and signs that follow from the seed."""
    rng = np.random.default_rng(seed)
    kinds = ["die", "hang", "delay", "lose_answer", "break_answer"]
    return [
        ScriptedFault(
            kinds[int(rng.integers(len(kinds)))],
            place=f"env runner {rng.integers(1, 3)}",
            call=int(rng.integers(1, 8)),
            at_sign=int(rng.integers(0, 15)),
            seconds=float(rng.exponential(20.0)),
        )
        for _ in range(4)
    ]


@pytest.mark.parametrize(
    "seed", [*range(3), *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 200)]]
)
def test_whatever_a_seed_lets_happen_training_ends_with_the_same_bytes(undisturbed, seed):
    expect_equal(trained(FakeEngine(*random_script(seed)), config_of(2)), undisturbed)


def test_the_clock_that_a_hanging_runner_is_judged_by_is_the_engines(caplog):
    engine = FakeEngine(ScriptedFault("hang", method="sample"))
    begun_s = time.monotonic()
    trained(engine, config_of(2).env_runners(sample_timeout_s=3600.0))
    assert engine.now_s() > 3600.0
    assert time.monotonic() - begun_s < 60.0
    assert "made no progress for 3600.0 s and was killed (sample_timeout_s=3600.0)" in caplog.text


@pytest.mark.parametrize("duration", [4, "auto"])
def test_an_evaluation_goes_on_while_the_main_process_learns(duration):
    config = config_of(
        2,
        evaluation_interval=1,
        evaluation_num_env_runners=1,
        evaluation_duration=duration,
        evaluation_parallel_to_training=True,
    )
    engine = FakeEngine(ScriptedFault("die", place="evaluation env runner 1", method="sample"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "make_engine", lambda _: engine)
        with config.build_algo() as algo:
            result = algo.train()
    assert len(engine.struck) == 1
    played = result["evaluation"]["env_runners"]["num_episodes"]
    assert played == 4 if duration == 4 else played >= 1


def test_runners_that_may_not_be_replaced_are_given_up():
    engine = FakeEngine(ScriptedFault("die", method="sample"))
    config = config_of(2).fault_tolerance(restart_failed_env_runners=False)
    with pytest.raises(RunnerLostError, match="restart_failed_env_runners=False"):
        trained(engine, config)


def test_a_death_in_what_is_played_instead_gives_up_no_more_episodes():
    def outcome(num_deaths):
        deaths = [
            ScriptedFault("die", place="env runner 1", method="sample", call=call, at_sign=5)
            for call in range(2, 2 * num_deaths + 1, 2)  # starts are calls, too
        ]
        engine = FakeEngine(*deaths)
        group = EnvRunnerGroup(config=config_of(0), num_env_runners=1, engine=engine)
        with stopped_at_the_end(group):
            group.sample_env_steps(40)
            group.sample_env_steps(40)
            assert group.num_remote_worker_restarts() == len(engine.struck) == num_deaths
            return encode(group.get_state())

    after_one, after_three, after_four = outcome(1), outcome(3), outcome(4)
    assert after_three != after_one, "three at the same place: it is what is played"
    assert after_four == after_three


def test_callbacks_hear_once_of_a_module_although_the_runner_dies_that_was_told():
    """A callback of the league adds a module in the second iteration; who dies is told anew."""
    found = []
    for script in ([], [ScriptedFault("die", place="env runner 2", call=3, at_sign=3)]):
        engine = FakeEngine(*script)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(building, "make_engine", partial(lambda made, _: made, engine))
            with league.config(2, 1).build_algo() as algo:
                found.append(league.outcome(algo, [algo.train() for _ in range(3)]))
                states = algo.get_state()["env_runners"]["callbacks"].values()
        assert len(engine.struck) == len(script)
        told = [state["objects"][0]["state"]["told"] for state in states]
        assert told == [["first", "main", "old_1"]] * 2
    assert found[0] == found[1]


def test_callbacks_hear_once_of_a_module_after_a_restore_with_another_seed():
    """Which makes the runner anew, before it is told."""
    with league.config().build_algo() as algo:
        algo.train(), algo.train()  # the second one adds a module
        state = algo.get_state()
    with league.config().debugging(seed=state["config"]["root_seed"] + 1).build_algo() as algo:
        algo.set_state(state)
        assert algo.train()["env_runners"]["told"] == 3


def test_users_functions_run_on_any_engine():
    engine = FakeEngine(ScriptedFault("die", place="env runner 1", method="apply"))
    group = EnvRunnerGroup(config=config_of(0), num_env_runners=2, engine=engine)
    with stopped_at_the_end(group):
        assert group.foreach_env_runner(lambda runner: runner.worker_index) == [1, 2]
        assert group.foreach_env_runner(lambda runner: get_global_worker() is runner) == [True] * 2
        assert group.env_runner_pids() == {}
    assert [name for name, *_ in engine.struck] == ["env runner 1"]
    assert not any(place.is_running for place in engine.places.values())


def test_what_a_call_may_take_is_measured_by_the_engines_clock():
    engine = FakeEngine(ScriptedFault("hang", place="env runner 1", method="apply"))
    group = EnvRunnerGroup(config=config_of(0), num_env_runners=2, engine=engine)
    with stopped_at_the_end(group):
        answers = group.foreach_env_runner(
            lambda runner: runner.worker_index, timeout_seconds=1800.0
        )
        assert answers == [None, 2]
        assert engine.now_s() > 1800.0
