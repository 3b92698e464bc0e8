"""Evaluation beside training, asynchronous, as long as the training step, and by users' functions.

What is compared are the numbers of every ticket: they do not depend on the mode, on who plays, or
on who dies meanwhile.
"""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from checkpoints import encode
from tests.small_runs import small_ppo
from trainer import CallbackError
from trainer.metrics import comparable
from trainer.runner_group import plays as ticket_play
from trainer.testing.envs import CountdownEnv, FailingEnv
from trainer.testing.processes import is_process_alive, wait_until

pytestmark = pytest.mark.process


def config(env=CountdownEnv, **settings):
    made = small_ppo(env=env, num_slots=2, batch=40)
    made.evaluation(evaluation_interval=1, evaluation_num_env_runners=2, evaluation_duration=5)
    return made.update_from_dict(settings)


PARALLEL = {"evaluation_parallel_to_training": True}
ASYNC = {"enable_async_evaluation": True}
AUTO = {
    **PARALLEL,
    "evaluation_duration": "auto",
    "evaluation_duration_unit": "timesteps",
}


def numbers(metrics):
    """What an evaluation found out, ticket by ticket, as bytes; without what it left out."""
    found = comparable({"evaluation": metrics})["evaluation"]
    return encode({key: found[key] for key in ("env_runners", "num_episodes")})


def by_version(algo, num_iterations):
    """What the evaluations in the results of some iterations found out, by weights version."""
    shown = [algo.train().get("evaluation") for _ in range(num_iterations)]
    return {found["weights_version"]: numbers(found) for found in shown if found is not None}


def all_by_version(algo, num_evaluations):
    """Likewise, training on until there were so many evaluations."""
    found = {}

    def has_all():
        found.update(by_version(algo, 1))
        return len(found) >= num_evaluations

    assert wait_until(has_all, within_s=30)
    return found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1, 2, 3, 4]),
        ({"evaluation_interval": 2}, [None, 2, 2, 4]),
        (PARALLEL, [0, 1, 2, 3]),
        ({**PARALLEL, "evaluation_interval": 2}, [None, 1, 1, 3]),
        ({**AUTO, "evaluation_interval": 2}, [None, 1, 1, 3]),
    ],
)
def test_the_weights_are_those_that_the_documents_print(settings, expected):
    seen = []

    def note(algorithm):
        versions = algorithm.eval_env_runner_group.foreach_env_runner(lambda r: r.weights_version)
        seen.append((algorithm.learner.num_updates, *set(versions)))

    with config(**settings).callbacks(on_evaluate_start=note).build_algo() as algo:
        results = [algo.train() for _ in range(4)]
    assert [r.get("evaluation/weights_version") for r in results] == expected
    assert [r.get("evaluation/evaluated_at_iteration") for r in results] == expected
    begun = sorted({version for version in expected if version is not None})
    assert seen == [(version, version) for version in begun], "the runners hold these weights"


def test_only_fresh_ones_are_shown_if_that_is_wanted():
    settings = {**PARALLEL, "evaluation_interval": 2, "always_attach_evaluation_results": False}
    with config(**settings).build_algo() as algo:
        assert ["evaluation" in algo.train() for _ in range(4)] == [False, True, False, True]


def _kill_when_evaluating(algorithm):
    pids = algorithm.eval_env_runner_group.env_runner_pids()
    if pids:
        os.kill(pids[min(pids)], signal.SIGKILL)


def found(num=3, /, *, is_killed=False, **settings):
    """What some evaluations found out, by weights version."""
    made = config(**settings)
    if is_killed:
        made.callbacks(on_evaluate_start=_kill_when_evaluating)
    with made.build_algo() as algo:
        return all_by_version(algo, num)


class Expected:
    """What the main process finds out by itself, one iteration after the other."""

    def __init__(self):
        self._algo = config(evaluation_num_env_runners=0).build_algo()
        self._found = {}

    def __getitem__(self, version):
        while version not in self._found:
            self._found |= by_version(self._algo, 1)
        return self._found[version]


def agree(some, expected):
    """Whether the same weights got the same numbers; untrained ones are not compared."""
    versions = some.keys() - {0}
    return len(versions) >= 2 and all(some[version] == expected[version] for version in versions)


@pytest.fixture(scope="module")
def expected():
    made = Expected()
    assert len({made[version] for version in range(1, 21)}) > 15, "evaluations differ"
    return made


_SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("is_killed", "settings"),
    [
        pytest.param(False, {"evaluation_num_env_runners": 1}, marks=_SLOW),
        (True, {"evaluation_num_env_runners": 3}),
        pytest.param(False, PARALLEL, marks=_SLOW),
        (True, PARALLEL),
        pytest.param(False, {**PARALLEL, "evaluation_num_env_runners": 3}, marks=_SLOW),
        pytest.param(
            False,
            {**PARALLEL, "evaluation_config": {"num_envs_per_env_runner": 1}},
            marks=_SLOW,
        ),
        (False, ASYNC),
        pytest.param(True, ASYNC, marks=_SLOW),
        pytest.param(False, {**PARALLEL, **ASYNC}, marks=_SLOW),
        (True, {**PARALLEL, **ASYNC, "evaluation_num_env_runners": 3}),
    ],
)
def test_every_mode_finds_the_same_numbers_whoever_plays_and_whoever_dies(
    is_killed, settings, expected
):
    assert agree(found(is_killed=is_killed, **settings), expected)


def test_other_seeds_find_other_numbers(expected):
    assert not agree(found(evaluation_num_env_runners=0, evaluation_seed=77), expected)


def test_a_checkpoint_of_that_moment_gives_the_same_evaluation_again(tmp_path):
    with config(**PARALLEL).build_algo() as algo:
        algo.train()
        path = algo.save_to_path(tmp_path / "checkpoint")
        reported = algo.train()["evaluation"]
    assert reported["evaluated_at_iteration"] == 1
    with config(evaluation_num_env_runners=0).build_algo() as again:
        again.restore_from_path(path)
        assert numbers(again.evaluate()) == numbers(reported)
        again.train()
        assert numbers(again.evaluate()) != numbers(reported)


# ---- as long as the training step


def test_auto_lasts_as_long_as_the_training_step():
    # How much is played grows with the training step, and what is waited for after it does not; on
    # a busy machine, a short one shows neither.
    assert any(_fills_an_iteration(seconds) for seconds in (0.3, 1.2, 4.8))


def _fills_an_iteration(min_time_s_per_iteration):
    """Whether the evaluation plays many chunks, and takes less than half of it after the step."""
    settings = {**AUTO, "evaluation_auto_duration_min_env_steps_per_sample": 30}
    made = config(**settings, min_time_s_per_iteration=min_time_s_per_iteration)
    with made.build_algo() as algo:
        results = [algo.train() for _ in range(2)]
        by_hand = algo.evaluate()
    assert by_hand["env_runners/num_env_steps_sampled"] == 60, "one chunk per runner"
    for result in results:
        played = result["evaluation/env_runners"]
        assert sum(played["hist_stats/episode_lengths"]) <= played["num_env_steps_sampled"]
        if played["num_env_steps_sampled"] <= 200 or played["num_episodes"] <= 20:
            return False
        if result["timers/evaluation_iteration"] >= result["timers/training_iteration"] / 2:
            return False
    return True


def test_auto_plays_whole_episodes_across_its_chunks_and_survives_a_kill():
    long = {"env_config": {"min_length": 50, "max_length": 60}}
    settings = {**AUTO, "evaluation_auto_duration_min_env_steps_per_sample": 7}
    made = config(**settings, evaluation_config=long, min_time_s_per_iteration=0.2)
    with made.callbacks(on_evaluate_start=_kill_when_evaluating).build_algo() as algo:
        evaluations = [algo.train()["evaluation"] for _ in range(2)]
    for evaluation in evaluations:
        lengths = evaluation["env_runners/hist_stats/episode_lengths"]
        assert lengths, "episodes that are longer than a chunk come to their end"
        assert all(50 <= length <= 60 for length in lengths)
    assert evaluations[1]["num_remote_worker_restarts"] >= 1


def test_auto_goes_on_without_runners_that_were_given_up():
    alone = {"ignore_env_runner_failures": True, "restart_failed_env_runners": False}
    fatal = {"env_config": {"where": "step", "how": "exit", "worker_index": 2}}
    with config(FailingEnv, **AUTO, evaluation_config={**fatal, **alone}).build_algo() as algo:
        for _ in range(3):
            evaluation = algo.train()["evaluation"]
            assert evaluation["env_runners/num_env_steps_sampled"] >= 100
            assert evaluation["num_healthy_workers"] == 1


# ---- envs that hang or fail


class FaultyEnv(CountdownEnv):
    """Hangs or raises in runner processes: once, or in every episode of the greatest length."""

    def __init__(self, config):
        super().__init__(config)
        self.settings = config

    def step(self, action):
        if self.settings.worker_index and self.is_to_fail():
            if self.settings["how"] == "raises":
                raise ValueError("the simulator crashed")
            wait_until(lambda: False, within_s=3600)
        return super().step(action)

    def is_to_fail(self):
        if "flag" not in self.settings:
            return self.length == self.max_length
        try:
            Path(self.settings["flag"]).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


NUM_TICKETS = 12


def faulty(env_config, **settings):
    """Asynchronous evaluation in an env with faults; training's has none."""
    return config(
        FaultyEnv,
        **ASYNC,
        evaluation_duration=NUM_TICKETS,
        evaluation_config={"env_config": env_config},
        **settings,
    )


def next_evaluation(algo):
    """Trains until an evaluation has ended."""
    shown = []

    def is_there():
        shown.append(algo.train().get("evaluation"))
        return shown[-1] is not None

    assert wait_until(is_there, within_s=30)
    return shown[-1]


def first_evaluation(algo):
    """Trains until an evaluation has ended: that of version 1."""
    found = next_evaluation(algo)
    assert found["weights_version"] == found["evaluated_at_iteration"] == 1
    return found


@pytest.fixture(scope="module")
def undisturbed():
    """The evaluation of version 1 in an env without faults."""
    made = config(evaluation_num_env_runners=0, evaluation_duration=NUM_TICKETS)
    with made.build_algo() as algo:
        return algo.train()["evaluation"]


@pytest.fixture
def _short_patience(monkeypatch):
    monkeypatch.setattr(ticket_play, "_STUCK_AFTER_S", 0.1)


@pytest.mark.usefixtures("_short_patience")
@pytest.mark.parametrize("how", ["hangs", pytest.param("raises", marks=_SLOW)])
def test_who_fails_once_is_replaced_by_others_without_a_trace(how, tmp_path, undisturbed):
    flag = tmp_path / "failed"
    with faulty({"how": how, "flag": str(flag)}).build_algo() as algo:
        evaluation = first_evaluation(algo)
    assert flag.exists()
    assert evaluation["num_episodes_missing"] == 0
    assert numbers(evaluation) == numbers(undisturbed)


@pytest.mark.usefixtures("_short_patience")
@pytest.mark.parametrize("how", [pytest.param("hangs", marks=_SLOW), "raises"])
def test_tickets_that_always_fail_are_missing_and_the_others_are_there(how, undisturbed, caplog):
    lengths = undisturbed["env_runners/hist_stats/episode_lengths"]
    played = [length for length in lengths if length != 12]
    assert 0 < len(played) < NUM_TICKETS
    settings = {"evaluation_sample_timeout_s": 0.3, "evaluation_num_env_runners": 3}
    with faulty({"how": how}, **settings).build_algo() as algo:
        evaluation = first_evaluation(algo)
    assert evaluation["env_runners/hist_stats/episode_lengths"] == played
    assert evaluation["num_episodes"] == len(played)
    assert evaluation["num_episodes_missing"] == NUM_TICKETS - len(played)
    assert "are missing in its result" in caplog.text


def test_training_waits_for_no_asynchronous_evaluation():
    with faulty({"how": "hangs", "min_length": 12}).build_algo() as algo:
        results = [algo.train() for _ in range(5)]
        pids = list(algo.eval_env_runner_group.env_runner_pids().values())
        assert all("evaluation" not in result for result in results)
        assert algo.training_iteration == 5
        state = algo.get_state(components="evaluation")
    assert state["evaluation"]["running"]["iteration"] == 1
    assert state["evaluation"]["evaluator"]["num_left_out"] == 4
    assert not any(is_process_alive(pid) for pid in pids), "stop() leaves no process behind"


def test_an_evaluation_that_never_succeeds_does_not_end_training(caplog):
    settings = {"evaluation_sample_timeout_s": 0.1, "evaluation_num_env_runners": 1}
    made = faulty({"how": "hangs", "min_length": 12}, **settings)
    made.evaluation(evaluation_duration=1)
    with made.build_algo() as algo:
        evaluations = []

        def has_four():
            evaluation = algo.train().get("evaluation")
            if evaluation is not None:
                assert evaluation["num_episodes_missing"] == 1
                evaluations.append(evaluation["weights_version"])
            return len(set(evaluations)) == 4

        assert wait_until(has_four, within_s=60)
        told = [text for text in caplog.messages if "are missing in its result" in text]
        assert ["not told again" in text for text in told] == [False, False, True]
        assert algo.eval_env_runner_group.num_restarts > 3, "more than a newcomer's three tries"


def test_sequential_evaluation_of_an_env_that_always_fails_raises_what_it_raised():
    made = faulty({"how": "raises"}, evaluation_num_env_runners=1)
    made.evaluation(enable_async_evaluation=False)
    with made.build_algo() as algo:
        with pytest.raises(ValueError, match="the simulator crashed"):
            algo.train()
        assert algo.training_iteration == 0, "the iteration is undone"


# ---- in between


@pytest.mark.parametrize("mode", [PARALLEL, ASYNC])
def test_what_is_asked_of_the_runners_meanwhile_waits_for_the_evaluation(mode, expected):
    def ask(algorithm):
        group = algorithm.eval_env_runner_group
        if group is not None:
            answers.append(group.foreach_env_runner(lambda runner: runner.worker_index))
            by_hand.append(numbers(algorithm.evaluate()))

    answers = []
    by_hand = []
    with config(**mode).callbacks(on_train_result=ask).build_algo() as algo:
        some = by_version(algo, 4)
    assert answers == [[1, 2]] * 4
    assert by_hand == [expected[version] for version in (1, 2, 3, 4)]
    assert agree(some, expected)


@pytest.mark.parametrize("mode", [PARALLEL, ASYNC])
def test_a_failed_iteration_leaves_evaluation_as_it_was(mode, expected):
    def fail(algorithm):
        failed.append(algorithm.training_iteration)
        if len(failed) in {2, 4}:
            raise ValueError("at the worst moment")

    failed = []
    some = {}

    def has_enough():
        with contextlib.suppress(CallbackError):
            some.update(by_version(algo, 1))
        return len(failed) >= 8 and len(some) >= 3

    with config(**mode).callbacks(on_train_result=fail).build_algo() as algo:
        assert wait_until(has_enough, within_s=30)
    assert failed[:8] == [1, 2, 2, 3, 3, 4, 5, 6]
    assert agree(some, expected)
