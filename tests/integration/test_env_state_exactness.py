"""Envs that no seed determines, beyond `tests/contract`: sub-envs made anew, and what is told."""

import json
import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import wrappers

from callbacks import CallbackError, RLlibCallback
from checkpoints import read_manifest
from tests.exact_runs import OwnMean, after, fail, in_wrappers, normalised
from tests.small_runs import kill, killing, known, learnt, small_ppo
from tests.small_runs import told_and_known as outcome
from trainer.cli.checkpoint_commands import inspection
from trainer.testing import FailingEnv, RandomKiller, RestlessEnv

pytestmark = pytest.mark.process

NUM_ITERATIONS = 3


class Restless(RestlessEnv, FailingEnv):
    """It fails at the step that `env_config` says, once."""


class Lost(Restless):
    """The same without a state; what is inherited does not count."""

    get_state = None


class Forgetting(Restless):
    def set_state(self, state):
        super().set_state({**state, "generator": self.generator.getstate()})


def config(num_env_runners, *, env=Restless, **env_config):
    per_runner = 4 // max(1, num_env_runners)
    more = {"min_length": 5, "num_envs_per_env_runner": per_runner, **env_config}
    # 42 steps on 4 slots leave a remainder, and episodes are cut wherever they stand.
    return small_ppo(num_env_runners, env=env, batch=42, env_config=more)


def undisturbed(num_env_runners=0, **options):
    with config(num_env_runners, **options).build_algo() as algo:
        return outcome(algo, [algo.train() for _ in range(NUM_ITERATIONS)])


@pytest.fixture(scope="module")
def expected():
    return undisturbed()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("env", [Restless, in_wrappers])
def test_kills_at_random_moments_make_no_difference(env, seed):
    with config(2, env=env).build_algo() as algo:
        pids = algo.env_runner_group.env_runner_pids
        results = [algo.train()]  # who never answered is given three tries only
        with RandomKiller(lambda: pids().values(), seed=seed, mean_delay_s=0.5) as killer:
            while len(killer.kills) < 4:
                results.append(algo.train())
        found = outcome(algo, results)
        assert results[-1]["fault_tolerance/num_episodes_lost_lifetime"] == 0
    with config(0, env=env).build_algo() as algo:
        assert outcome(algo, [algo.train() for _ in results]) == found


def outcome_with_faults(made, armed):
    """The outcome of a run in which a sub-env raises in every iteration but the first."""
    made.fault_tolerance(restart_failed_sub_environments=True)
    with made.build_algo() as algo:
        results = []
        for number in range(NUM_ITERATIONS):
            if number:
                armed.touch()
            results.append(algo.train())
            assert not armed.exists()
        found = outcome(algo, results)
    faults = results[-1]["fault_tolerance"]
    assert faults["num_sub_environment_restarts"] == NUM_ITERATIONS - 1
    assert faults["num_episodes_lost_lifetime"] == 0
    return found


@pytest.mark.parametrize("num_env_runners", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_sub_env_made_anew_goes_on_from_its_state(num_env_runners, expected, tmp_path):
    armed = tmp_path / "armed"
    made = config(num_env_runners, where="reset", armed_file=str(armed), first_seed=0)
    assert outcome_with_faults(made, armed) == expected


def running(algo):
    slots = algo.get_state()["env_runners"]["slots"]
    return sum(slot["env_seed"] is not None for slot in slots)


def test_without_the_methods_the_same_env_loses_its_episodes():
    with config(1, env=Lost, max_length=8).build_algo() as algo:
        algo.train()
        num_running = running(algo)
        kill(algo.env_runner_group)
        assert algo.train()["fault_tolerance/num_episodes_lost"] == num_running > 0


def test_an_env_that_forgets_is_told_by_name_once_and_loses_its_episodes(caplog):
    with config(1, env=Forgetting).build_algo() as algo:
        algo.train()
        num_running = running(algo)
        kill(algo.env_runner_group)
        assert algo.train()["fault_tolerance/num_episodes_lost"] == num_running > 1
    told = [r.getMessage() for r in caplog.records if "is not used" in r.getMessage()]
    assert len(told) == 1
    assert "The state of the env 'Forgetting' is not used" in told[0]
    assert "Forgetting has another state after set_state(), in ['generator']" in told[0]


def half_known(context):
    return Unknown(Restless(context))


class Unknown(wrappers.TransformReward[Any, Any]):
    """A wrapper of the user's own that says nothing of its state."""

    def __init__(self, env):
        super().__init__(env, lambda reward: reward)


def test_a_checkpoint_tells_how_each_running_episode_would_be_put_back(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    for env, way, shown in (
        (Restless, "env_state", "state of the env"),
        (half_known, "replay", "replay"),
    ):
        with config(0, env=env).build_algo() as algo:
            algo.train()
            path = Path(algo.save_to_path(tmp_path / way))
            slots = algo.get_state()["env_runners"]["slots"]
        ways = [None if slot["env_seed"] is None else way for slot in slots]
        assert way in ways
        assert json.loads(json.dumps(read_manifest(path).metadata["running_episodes"])) == ways
        restored_by = {episode["restored_by"] for episode in inspection(path)["running_episodes"]}
        assert restored_by == {shown}
    told = [r for r in caplog.records if "is not used" in r.getMessage()]
    assert [record.levelname for record in told] == ["INFO"]
    assert "'half_known'" in told[0].getMessage()
    assert "nothing is known of the state of Unknown" in told[0].getMessage()


# ---- what wrappers carry from episode to episode, around an env of which nothing is known


class SilentMean(OwnMean):
    """The same, and it says nothing."""

    env_state_attributes = None


def silent_mean(context):
    return SilentMean(FailingEnv(context))


class RaisingAtFirst(RLlibCallback):
    """Raises at the end of the first iteration, in the first attempt."""

    has_raised = True

    def on_train_result(self, **_):
        if not type(self).has_raised:
            type(self).has_raised = True
            raise RuntimeError("again, please")


def own_mean(context):
    return OwnMean(FailingEnv(context))


class LateMean(OwnMean):
    """It remembers nothing before its first reset."""

    def __init__(self, env):
        super().__init__(env)
        del self.total

    def reset(self, **options):
        if self.count == 1:
            self.total = np.zeros(2, np.float32)
        return super().reset(**options)


def late_mean(context):
    return LateMean(FailingEnv(context))


class KnowsNothingYet(Restless):
    """Its state has attributes that only `reset` gives it."""

    def reset(self, **options):
        self.was_reset = True
        return super().reset(**options)

    def get_state(self):
        return {**super().get_state(), "was_reset": self.was_reset}


class FirstDrawn(Restless):
    """No two envs begin alike: where they do is drawn when they are made."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self.generator = random.Random(random.random())


class Picky(Restless):
    """Takes no state of an env that was never reset."""

    def set_state(self, state):
        if not state["length"]:
            raise ValueError("it was never reset")
        super().set_state(state)


@pytest.mark.parametrize("restarts_sub_envs", [False, True])
@pytest.mark.parametrize("num_env_runners", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "env",
    [
        *(Restless, in_wrappers, KnowsNothingYet, FirstDrawn, Picky),
        *(normalised, own_mean, late_mean),
    ],
)
def test_what_an_env_carries_over_is_undone_with_the_first_iteration(
    env, num_env_runners, restarts_sub_envs, caplog
):
    results = []
    for has_raised in (True, False):
        random.seed(1)
        RaisingAtFirst.has_raised = has_raised
        made = config(num_env_runners, env=env, num_envs_per_env_runner=0, min_length=2)
        made.fault_tolerance(restart_failed_sub_environments=restarts_sub_envs)
        with made.callbacks(RaisingAtFirst).build_algo() as algo:
            if not has_raised:
                before = known(algo)
                with pytest.raises(CallbackError):
                    algo.train()
                assert known(algo) == before
            results.append(outcome(algo, [algo.train() for _ in range(2)]))
    assert results[0] == results[1]
    assert not [r for r in caplog.records if "is not used" in r.getMessage()]


def test_a_runner_killed_in_the_first_iteration_begins_where_its_envs_did(tmp_path):
    """Though envs of another process would draw where they begin anew."""
    outcomes = []
    for is_killed in (False, True):
        armed = tmp_path / "armed"
        made = config(1, env=FirstDrawn, num_envs_per_env_runner=0)
        made.callbacks(on_episode_step=killing(armed, at_step=3))
        with made.build_algo() as algo:
            if is_killed:
                armed.touch()
            result = algo.train()
            assert result["fault_tolerance/num_remote_worker_restarts"] == is_killed
            outcomes.append(learnt(algo))
    assert outcomes[0] == outcomes[1]


def test_a_sub_env_made_anew_gets_what_wrappers_carried_over(tmp_path):
    armed = tmp_path / "armed"
    made = config(0, env=normalised, armed_file=str(armed), where="reset", min_length=2)
    assert outcome_with_faults(made, armed) == undisturbed(env=normalised, min_length=2)


def test_a_wrapper_that_says_nothing_of_what_it_carries_is_named(caplog):
    with config(1, env=silent_mean, min_length=2).build_algo() as algo:
        algo.train()
        kill(algo.env_runner_group)
        assert algo.train()["fault_tolerance/num_episodes_lost"] > 0
    (told,) = [r.getMessage() for r in caplog.records if "does not repeat" in r.getMessage()]
    assert "Nothing is known of what SilentMean around it may carry from one episode" in told


def test_a_function_of_users_moves_no_env_after_an_iteration_that_was_undone():
    """What was played never happened, so the runner has nothing to tell of it."""
    made = config(0, env=normalised, min_length=2)
    with made.build_algo() as algo:
        before = known(algo)
        after(9, algo.env_runner.env.envs[0], fail)
        with pytest.raises(OSError, match="on purpose"):
            algo.train()
        algo.env_runner_group.foreach_env_runner(lambda runner: None)
        assert known(algo) == before
