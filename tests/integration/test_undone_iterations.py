"""What an iteration, or a change of modules, had changed when it failed is as before."""

import os
import threading
import time

import pytest

from tests.multi_agent_runs import gaps
from tests.small_runs import known, small_ppo, told_and_known
from trainer import CallbackError, DQNConfig
from trainer.errors import RunnerError
from trainer.testing.envs import CountdownEnv


class Once:
    """A callback that does something at the end of one iteration and then fails it."""

    def __init__(self):
        self.do = None

    def __call__(self, *, algorithm, **_):
        do, self.do = self.do, None
        if do is not None:
            do(algorithm)
            raise ValueError("the iteration fails")


def _die(_):
    os._exit(3)


def _hang(_):
    threading.Event().wait(300)


@pytest.mark.process
@pytest.mark.parametrize("call", [_die, _hang])
@pytest.mark.parametrize("is_replaced", [True, False])
def test_whatever_becomes_of_calls_in_the_background(call, is_replaced):
    once = Once()
    config = small_ppo(1).callbacks(on_train_result=once)
    config.fault_tolerance(restart_failed_env_runners=is_replaced)

    def begin(algo):
        algo.env_runner_group.foreach_env_runner_async(call)

    with config.build_algo() as algo:
        algo.train()
        before = known(algo)
        once.do, begun = begin, time.monotonic()
        with pytest.raises(CallbackError, match="the iteration fails"):
            algo.train()
        assert time.monotonic() - begun < 60, "nothing waits for a call that is given up"
        assert known(algo) == before
        try:
            algo.train()
        except RunnerError:  # the runner's death is noticed now
            assert (call, is_replaced) == (_die, False)
    assert known(algo) != before or not is_replaced


@pytest.mark.process
def test_calls_in_evaluation_runners_are_not_waited_for():
    config = small_ppo(1).evaluation(evaluation_num_env_runners=1, evaluation_interval=100)
    with config.build_algo() as algo:
        algo.eval_env_runner_group.foreach_env_runner_async(_hang)
        begun = time.monotonic()
        algo.train()
        assert time.monotonic() - begun < 60


def test_a_replay_buffer_that_a_restore_in_the_iteration_emptied(tmp_path):
    once = Once()
    config = DQNConfig().environment(CountdownEnv).callbacks(on_train_result=once)
    config.training(store_buffer_in_checkpoints=False, num_steps_sampled_before_learning_starts=10)
    config.reporting(min_sample_timesteps_per_iteration=20)
    with config.debugging(seed=1).build_algo() as algo:
        algo.train()
        path = algo.save_to_path(tmp_path / "checkpoint")
        last = algo.train()
        before, num_steps = known(algo), len(algo.replay_buffers.only)
        once.do = lambda algo: algo.restore_from_path(path)
        with pytest.raises(CallbackError, match="the iteration fails"):
            algo.train()
        assert (known(algo), len(algo.replay_buffers.only)) == (before, num_steps)
        seconds = last["time_total_s"] + (result := algo.train())["time_this_iter_s"]
        assert result["time_total_s"] == pytest.approx(seconds)


def test_weights_that_a_sample_ahead_was_to_be_played_with(monkeypatch):
    outcomes = []
    for is_interrupted in (False, True):
        with gaps().training(sample_ahead=True, lr=0.05).build_algo() as algo:
            results = [algo.train() for _ in range(2)]
            if is_interrupted:
                with monkeypatch.context() as patch:
                    patch.setattr(algo.env_runner_group, "_act_with", _interrupt)
                    with pytest.raises(KeyboardInterrupt):
                        algo.add_module("new", copy_of="odd")
            results += [algo.train() for _ in range(2)]
            outcomes.append(told_and_known(algo, results))
    assert outcomes[0] == outcomes[1]


def _interrupt(*_):
    raise KeyboardInterrupt
