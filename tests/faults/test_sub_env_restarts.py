"""`restart_failed_sub_environments`: a sub-env that raises is made anew, no other is touched."""

import logging
import os
from pathlib import Path

import pytest

from checkpoints import encode
from tests.small_runs import small_ppo
from tests.small_runs import told_and_known as outcome
from trainer import EnvContractError, RunnerFailedError
from trainer.metrics import comparable
from trainer.testing import CountdownEnv, FailingEnv, InjectedFaultError

ON = {"restart_failed_sub_environments": True}


def config(fault=None, *, env=FailingEnv, num_env_runners=0, **settings):
    env_config = {"min_length": 6, **(fault or {})}
    return small_ppo(num_env_runners, env=env, env_config=env_config, **{**ON, **settings})


@pytest.fixture(scope="module")
def undisturbed():
    with config().build_algo() as algo:
        return outcome(algo, [algo.train() for _ in range(2)])


@pytest.mark.parametrize(
    ("num_env_runners", "where"), [(0, "reset"), (0, "step"), (1, "reset"), (2, "step")]
)
def test_what_fails_once_is_repaired_with_the_same_bytes(
    where, num_env_runners, undisturbed, tmp_path, caplog
):
    armed = tmp_path / "armed"
    fault = {"where": where, "armed_file": str(armed)}
    with config(fault, num_env_runners=num_env_runners).build_algo() as algo:
        results = [algo.train()]
        armed.touch()
        results.append(algo.train())
        assert not armed.exists()
        assert outcome(algo, results) == undisturbed
    told = results[1]["fault_tolerance"]
    assert told["num_sub_environment_restarts"] == 1
    assert told["num_remote_worker_restarts"] == told["num_episodes_lost"] == 0
    assert told["repair_time_s"] > 0.0
    (line,) = [record.getMessage() for record in caplog.records]
    assert "fails on purpose" in line
    assert "(episode training-" in line
    assert "its episode goes on" in line
    assert "in _fail_at" in line, "the traceback"


def test_without_the_setting_the_runner_fails():
    made = config({"where": "step"}, restart_failed_sub_environments=False)
    with made.build_algo() as algo, pytest.raises(InjectedFaultError):
        algo.train()


class BadSeeds(CountdownEnv):
    """Fails always, at the third step of every fourth episode; which ones follows from seeds."""

    def reset(self, *, seed=None, options=None):
        self.is_bad = seed is not None and seed % 4 == 0
        return super().reset(seed=seed)

    def step(self, action):
        if self.is_bad and self.steps == 2:
            raise ValueError("a bad seed")
        return super().step(action)


def played(num_env_runners, **settings):
    made = config(env=BadSeeds, num_env_runners=num_env_runners, **settings)
    with made.build_algo() as algo:
        results = [algo.train() for _ in range(3)]
        return outcome(algo, results), results[-1]


@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
def test_an_episode_that_always_fails_is_given_up_counted_and_the_batch_is_whole(batch_mode):
    alone, result = played(0, batch_mode=batch_mode)
    told = result["fault_tolerance"]
    assert told["num_episodes_lost_lifetime"] > 0
    # Each was tried three times, and got to its third step.
    assert told["num_sub_environment_restarts"] == 3 * told["num_episodes_lost_lifetime"]
    assert told["num_env_steps_lost_lifetime"] == 2 * told["num_episodes_lost_lifetime"]
    sampled = result["env_runners/num_env_steps_sampled"]
    assert sampled == 60 if batch_mode == "truncate_episodes" else sampled >= 60
    assert played(2, batch_mode=batch_mode)[0] == alone


def test_no_event_tells_of_an_episode_that_is_given_up_but_those_before_its_end():
    told = {"created": [], "start": [], "end": []}

    def note(event):
        return lambda episode: told[event].append(episode.id_)

    made = config(env=BadSeeds).callbacks(
        on_episode_created=note("created"),
        on_episode_start=note("start"),
        on_episode_end=note("end"),
    )
    with made.build_algo() as algo:
        result = algo.train()
        slots = algo.get_state()["env_runners"]["slots"]
    assert len(set(told["created"])) == len(told["created"]), "no number twice"
    assert told["start"] == told["created"]
    running = sum(slot["env_seed"] is not None for slot in slots)
    lost = result["fault_tolerance/num_episodes_lost"]
    assert lost > 0
    assert len(told["end"]) == len(told["created"]) - lost - running


class FailsLater(CountdownEnv):
    """Fails once in the second request, when the file is there, deep in a running episode."""

    def __init__(self, env_config):
        super().__init__({"min_length": 40, "max_length": 40})
        self._file = Path(env_config["file"])
        self._is_meant = env_config.vector_index == 1

    def step(self, action):
        if self._is_meant and self.steps == 33 and self._file.exists():
            self._file.unlink()
            raise OSError("the connection was lost")
        return super().step(action)


@pytest.mark.parametrize(("num_env_runners", "is_a_new_runner"), [(0, False), (1, True)])
def test_an_episode_of_several_requests_is_put_back_exactly(
    num_env_runners, is_a_new_runner, tmp_path
):
    def run(*, is_disturbed):
        file = tmp_path / "file"
        made = config({"file": str(file)}, env=FailsLater, num_env_runners=num_env_runners)
        with made.build_algo() as algo:
            results = [algo.train()]
            if is_a_new_runner:
                algo.env_runner_group.reset()  # which has not seen the episodes' beginnings
            if is_disturbed:
                file.touch()
            results += [algo.train() for _ in range(3)]
            told = results[-1]["fault_tolerance"]
            return outcome(algo, results), told["num_sub_environment_restarts"]

    expected, none = run(is_disturbed=False)
    repaired, one = run(is_disturbed=True)
    assert (none, one) == (0, 1)
    assert repaired == expected


@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_an_env_that_always_fails_is_the_runners_failure_after_ten(num_env_runners):
    made = config(
        {"where": "step"}, num_env_runners=num_env_runners, restart_failed_env_runners=False
    )
    made_envs = []
    with (
        made.callbacks(
            on_sub_environment_created=lambda env_index: made_envs.append(env_index)
        ).build_algo() as algo,
        pytest.raises(InjectedFaultError, match="on purpose") as raised,
    ):
        algo.train()
    if num_env_runners:
        assert isinstance(raised.value.__cause__, RunnerFailedError)
        assert "sub-env 0, episode training-0-3" in str(raised.value.__cause__)
    else:
        # The first one fails an eleventh time before the others fail a tenth time.
        assert [made_envs.count(index) for index in range(4)] == [11, 10, 10, 10]


def test_the_tolerance_is_the_limit_if_it_is_lower():
    made = config({"where": "reset"}, num_consecutive_env_runner_failures_tolerance=3)
    envs = []
    with (
        made.callbacks(
            on_sub_environment_created=lambda env_index: envs.append(env_index)
        ).build_algo() as algo,
        pytest.raises(InjectedFaultError),
    ):
        algo.train()
    assert envs == [0, 1, 2, 3, 0, 0, 0], "others were not reset yet"


def test_an_evaluation_goes_on_with_the_same_episodes(tmp_path):
    settings = {"evaluation_duration": 4, "evaluation_num_env_runners": 1}

    def evaluated(*, is_disturbed):
        armed = tmp_path / "armed"
        fault = {"where": "step", "armed_file": str(armed)}
        with config(fault, **settings).build_algo() as algo:
            algo.train()
            if is_disturbed:
                armed.touch()
            return algo.evaluate()

    expected, repaired = evaluated(is_disturbed=False), evaluated(is_disturbed=True)
    assert encode(comparable({"evaluation": repaired})) == encode(
        comparable({"evaluation": expected})
    )
    assert expected["num_sub_environment_restarts"] == 0
    assert repaired["num_sub_environment_restarts"] == 1
    assert repaired["num_remote_worker_restarts"] == 0


def test_an_episode_that_an_evaluation_asks_for_is_not_left_out():
    made = config(env=BadSeeds, evaluation_duration=20, restart_failed_env_runners=False)
    with made.build_algo() as algo, pytest.raises(ValueError, match="a bad seed"):
        algo.evaluate()


def test_the_failed_env_alone_is_closed_and_made_anew_as_a_replacement(tmp_path, caplog):
    armed = tmp_path / "armed"
    events = []
    context = {"where": "step", "armed_file": str(armed)}

    class Logged(FailingEnv):
        def __init__(self, env_config):
            super().__init__(env_config)
            self.context = env_config

        def close(self):
            events.append(f"closed {self.context.vector_index}")
            if armed.exists() or len(events) < 8:
                raise OSError("cannot be closed")

    def note(env_index, env_context):
        events.append(f"made {env_index} {env_context.recreated_worker}")

    made = config(context, env=Logged).callbacks(
        on_sub_environment_created=note, on_environment_created=lambda: events.append("all")
    )
    with made.build_algo() as algo:
        algo.train()
        before = [id(env) for env in algo.env_runner.env.envs]
        armed.touch()
        algo.train()
        after = [id(env) for env in algo.env_runner.env.envs]
        assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True, True]
        contexts = algo.env_runner.env.contexts
        assert [c.recreated_worker for c in contexts] == [False, True, False, False]
        assert [c.vector_index for c in contexts] == [0, 1, 2, 3]
        assert events[:5] == [*(f"made {i} False" for i in range(4)), "all"]
        assert events[5:] == ["closed 1", "made 1 True"]
    assert "Closing the failed sub-env 1 raised OSError: cannot be closed" in caplog.text


class Unrepeatable(FailingEnv):
    def noise(self):
        return int.from_bytes(os.urandom(4), "big") / 2**32


def test_an_env_that_does_not_repeat_loses_its_episode_and_is_counted(tmp_path):
    armed = tmp_path / "armed"
    with config({"where": "step", "armed_file": str(armed)}, env=Unrepeatable).build_algo() as algo:
        armed.touch()
        told = algo.train()["fault_tolerance"]
    assert (told["num_episodes_lost"], told["num_env_steps_lost"]) == (1, 2)
    assert told["num_sub_environment_restarts"] == 1


class NaNThenRaises(CountdownEnv):
    def step(self, action):
        observation, *rest = super().step(action)
        if self.steps == 3:
            raise ValueError("a consequence")
        return observation, float("nan") if self.steps == 2 else 1.0, *rest[1:]


def test_what_the_env_broke_before_is_told_instead_of_being_repaired():
    with (
        config(env=NaNThenRaises).build_algo() as algo,
        pytest.raises(EnvContractError, match="gave the reward nan at step 2"),
    ):
        algo.train()


def test_failures_while_episodes_are_put_back_are_mended_too(undisturbed, tmp_path, caplog):
    armed = tmp_path / "armed"
    fault = {"where": "step", "armed_file": str(armed)}
    with config(fault, num_env_runners=2).build_algo() as algo:
        results = [algo.train()]
        algo.env_runner_group.reset()  # all are made anew and put back
        armed.touch()
        algo.env_runner_group.reset()
        assert not armed.exists()
        results.append(algo.train())
        assert outcome(algo, results) == undisturbed
        assert results[1]["fault_tolerance/num_sub_environment_restarts"] == 1
    caplog.set_level(logging.WARNING)
    assert "was put back" in caplog.text


class FailsOften(CountdownEnv):
    """Every fortieth call of `step` of any env raises."""

    num_calls = 0

    def step(self, action):
        type(self).num_calls += 1
        if type(self).num_calls % 40 == 0:
            raise OSError("often")
        return super().step(action)


def test_many_repairs_in_one_request_are_told_by_the_first_and_a_number(caplog):
    made = config(env=FailsOften, train_batch_size=1200)
    with made.build_algo() as algo:
        result = algo.train()
    assert result["fault_tolerance/num_sub_environment_restarts"] > 25
    assert result["fault_tolerance/num_episodes_lost"] == 0
    assert len(caplog.records) == 21
    assert "more messages like these" in caplog.records[-1].getMessage()


class WrongLast(FailingEnv):
    """The last sub-env shows observations of another shape."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self._is_wrong = env_config.vector_index == 3

    def step(self, action):
        observation, *rest = super().step(action)
        return (observation[:1] if self._is_wrong else observation), *rest


def test_the_first_step_of_the_others_is_checked_also_if_one_fails_in_it(tmp_path):
    armed = tmp_path / "armed"
    armed.touch()
    fault = {"where": "step", "at_step": 0, "armed_file": str(armed)}
    with (
        config(fault, env=WrongLast).build_algo() as algo,
        pytest.raises(EnvContractError, match=r"step\(\)"),
    ):
        algo.train()
    assert not armed.exists()
