"""Training that is interrupted, from outside or by its callbacks: all of an iteration, or none."""

import functools
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from callbacks import CallbackError, RLlibCallback
from tests.small_runs import known, small_ppo, told_and_known
from trainer import AlgorithmStoppedError
from trainer.testing.envs import CountdownEnv
from trainer.testing.processes import is_process_alive, wait_until

pytestmark = pytest.mark.process


class Counting(RLlibCallback):
    def __init__(self):
        self.num_steps = 0
        self.per_slot = [0, 0, 0, 0]

    def on_episode_created(self, *, episode, **kwargs):
        episode.custom_data["steps"] = []

    def on_episode_step(self, *, episode, env_index, **kwargs):
        self.num_steps += 1
        self.per_slot[env_index] += 1
        episode.custom_data["steps"].append(self.num_steps)

    def on_train_result(self, *, metrics_logger, **kwargs):
        self.num_steps += 1000
        metrics_logger.log_value("count", self.num_steps)


config = functools.partial(small_ppo, callbacks=Counting)


def outcome(algo):
    return told_and_known(algo, [algo.train()])


def interrupt_while_sampling(algo):
    """Ctrl-C while the runners play; the last runner then waits for ever, so it is never late.

    What earlier tests left is collected first: Python drops an exception that a signal raises where
    a weak reference dies.
    """
    gc.collect()
    main = os.getpid()

    def arm(env_runner):
        if env_runner.worker_index != env_runner.num_workers:
            return
        env = env_runner.env.envs[-1]
        play = env.step
        actions = []

        def step(action):
            actions.append(action)
            if len(actions) < 8:
                return play(action)
            del env.step
            if env_runner.worker_index == 0:
                raise KeyboardInterrupt
            os.kill(main, signal.SIGINT)
            return threading.Event().wait()

        env.step = step

    algo.env_runner_group.foreach_env_runner(arm)


def interrupt_while_asking(algo):
    """Ctrl-C when a runner has its request already, but the main process has not noted that."""

    def arm(env_runner):
        env_runner.env.envs[-1].step = lambda action: threading.Event().wait()

    algo.env_runner_group.foreach_env_runner(arm, remote_worker_ids=[2])
    executor = algo.env_runner_group._runners._pool[2]._executor
    submit = executor.submit

    def interrupted(*args, **kwargs):
        executor.submit = submit
        submit(*args, **kwargs)
        raise KeyboardInterrupt

    executor.submit = interrupted


def interrupt_after_the_update(algo):
    update = algo.learner.update

    def interrupted(*args, **kwargs):
        algo.learner.update = update
        update(*args, **kwargs)
        raise KeyboardInterrupt

    algo.learner.update = interrupted


def interrupt_in_the_evaluation(algo):
    end_play = algo.eval_env_runner_group.end_play

    def interrupted(*args, **kwargs):
        algo.eval_env_runner_group.end_play = end_play
        end_play(*args, **kwargs)
        raise KeyboardInterrupt

    algo.eval_env_runner_group.end_play = interrupted


def evaluating(num_env_runners):
    made = config(num_env_runners, evaluation_interval=1, evaluation_duration=2)
    made.sample_timeout_s = 2.0
    return made


@functools.cache
def undisturbed(num_env_runners, iterations_before):
    """The next two outcomes of an uninterrupted run: the same for many cases."""
    with evaluating(num_env_runners).build_algo() as algo:
        for _ in range(iterations_before):
            algo.train()
        return outcome(algo), outcome(algo)


INTERRUPTIONS = (
    (0, interrupt_while_sampling),
    (0, interrupt_after_the_update),
    (0, interrupt_in_the_evaluation),
    (2, interrupt_while_sampling),
    (2, interrupt_while_asking),
    (2, interrupt_after_the_update),
    (2, interrupt_in_the_evaluation),
)
# Of those in the very first iteration, the default run has one; the long run has all.
FIRST = ((2, interrupt_while_sampling),)


def interruption(case, iterations_before):
    is_slow = iterations_before == 0 and case not in FIRST
    marks = (pytest.mark.slow,) if is_slow else ()
    name = f"{iterations_before}-{case[0]}-{case[1].__name__}"
    return pytest.param(*case, iterations_before, id=name, marks=marks)


@pytest.mark.parametrize(
    ("num_env_runners", "interrupt", "iterations_before"),
    [interruption(case, before) for before in (0, 2) for case in INTERRUPTIONS],
)
def test_an_interrupted_iteration_never_happened(num_env_runners, interrupt, iterations_before):
    with evaluating(num_env_runners).build_algo() as algo:
        for _ in range(iterations_before):
            algo.train()
        before = known(algo)
        interrupt(algo)
        with pytest.raises(KeyboardInterrupt):
            algo.train()
        assert known(algo) == before
        outcomes = outcome(algo), outcome(algo)
        assert algo.env_runner_group.num_remote_worker_restarts() == 0
    assert outcomes == undisturbed(num_env_runners, iterations_before)


@pytest.mark.parametrize(
    ("num_env_runners", "event"),
    [(2, "on_train_result"), (0, "on_evaluate_start"), (2, "on_evaluate_end")],
)
def test_an_iteration_in_which_a_callback_raised_can_be_made_again(num_env_runners, event):
    outcomes = []
    for should_fail in (False, True):
        failures = [OSError("disk full")] if should_fail else []

        def fail(failures=failures, **kwargs):
            if failures:
                raise failures.pop()

        made = config(num_env_runners, evaluation_interval=1, evaluation_duration=2)
        with made.callbacks(Counting, **{event: fail}).build_algo() as algo:
            if should_fail:
                before = known(algo)
                with pytest.raises(CallbackError, match="OSError: disk full") as raised:
                    algo.train()
                assert isinstance(raised.value.__cause__, OSError)
                assert known(algo) == before
            outcomes.append((outcome(algo), outcome(algo)))
    assert outcomes[0] == outcomes[1]


def test_an_error_while_building_leaves_no_process():
    def boom(**kwargs):
        raise ValueError("not ready")

    with pytest.raises(CallbackError, match=r"boom.*on_algorithm_init") as raised:
        config(2).callbacks(on_algorithm_init=boom).build_algo()
    assert raised.value.__traceback__ is not None, "which keeps the algorithm alive; see conftest"


def test_a_stopped_algorithm_refuses_and_can_be_stopped_again():
    with config(2).build_algo() as algo:
        pids = list(algo.env_runner_group.env_runner_pids().values())
        algo.stop()
        assert wait_until(lambda: not any(map(is_process_alive, pids)))
        with pytest.raises(AlgorithmStoppedError, match=r"PPO.train\(\) was called after stop\(\)"):
            algo.train()
        with pytest.raises(AlgorithmStoppedError, match=r"PPO.evaluate\(\)"):
            algo.evaluate()
        observation = algo.config.env({}).observation_space.sample()
        with pytest.raises(AlgorithmStoppedError, match=r"PPO.compute_single_action\(\)"):
            algo.compute_single_action(observation)


class Hanging(CountdownEnv):
    """Its second step in a worker says so and never returns."""

    def __init__(self, settings):
        super().__init__(settings)
        self._says_so = Path(settings["says_so"])
        self._num_steps = 0

    def step(self, action):
        self._num_steps += 1
        if self._num_steps == 2:
            self._says_so.touch()
            threading.Event().wait()
        return super().step(action)


def test_stop_ends_a_training_of_another_thread_that_waits_for_runners(tmp_path):
    says_so, raised = tmp_path / "hangs", list[BaseException]()
    with config(1, env=Hanging, env_config={"says_so": str(says_so)}).build_algo() as algo:

        def train():
            try:
                algo.train()
            except BaseException as error:  # noqa: BLE001 - looked at below
                raised.append(error)

        other = threading.Thread(target=train, daemon=True)
        other.start()
        assert wait_until(says_so.exists)
        algo.stop()
        other.join(20)
        assert not other.is_alive()
    assert [type(error) for error in raised] == [AlgorithmStoppedError]
    assert "stop() was called in another thread" in str(raised[0])
    assert algo.training_iteration == 0
    raised.clear()  # a traceback keeps the algorithm alive


_SCRIPT = """
import time
from trainer import PPOConfig
from trainer.testing.envs import CountdownEnv

class Mine(CountdownEnv):  # of __main__, in a script without a guard
    pass

config = PPOConfig().environment(Mine).env_runners(num_env_runners=2)
config.training(train_batch_size=60, minibatch_size=30, num_epochs=1, model={"fcnet_hiddens": [8]})
config.evaluation(evaluation_interval=1, evaluation_duration=2, evaluation_num_env_runners=1)
"""

_ENDINGS = {
    "after train": "algo.train()",
    "exception after train": "algo.train(); raise RuntimeError('on purpose')",
    "exception in a callback": "algo.train()",
    "SystemExit": "algo.train(); raise SystemExit(3)",
}


@pytest.mark.parametrize(
    "ending",
    [
        "after train",
        *[pytest.param(name, marks=pytest.mark.slow) for name in _ENDINGS if name != "after train"],
    ],
)
def test_a_script_that_ends_without_stop_leaves_nothing(ending):
    callback = "config.callbacks(on_episode_end=lambda **kwargs: 1 / 0)\n"
    script = (
        _SCRIPT
        + (callback if "callback" in ending else "")
        + "algo = config.build_algo()\n"
        + "pids = {**algo.env_runner_group.env_runner_pids()}\n"
        + "print(*algo.env_runner_group.env_runner_pids().values(),\n"
        + "      *algo.eval_env_runner_group.env_runner_pids().values(), flush=True)\n"
        + _ENDINGS[ending]
    )
    started_at = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30
    )
    lasted_s = time.monotonic() - started_at
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 3
    expected = {"after train": 0, "SystemExit": 3}.get(ending, 1)
    assert done.returncode == expected, done.stderr
    if expected == 1:
        assert ("on purpose" in done.stderr) or ("CallbackError" in done.stderr)
    else:
        assert done.stderr == ""
    assert lasted_s < 15.0, "start included, on a busy machine"
    assert wait_until(lambda: not any(map(is_process_alive, pids)), within_s=5.0)
