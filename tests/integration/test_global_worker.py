"""`get_global_worker()`: the env runner of a process, for code that is not given one."""

import gc

import pytest

from callbacks import RLlibCallback
from tests.small_runs import small_ppo
from trainer import CallbackError, PPOConfig, SingleAgentEnvRunner, get_global_worker
from trainer.env_runners.env_runner import AtWork
from trainer.testing.envs import CountdownEnv

pytestmark = pytest.mark.process


class AskingEnv(CountdownEnv):
    """Makes sure in every step that the runner of the process is the one that plays here."""

    def step(self, action):
        runner = get_global_worker()
        assert any(env.unwrapped is self for env in runner.env.envs)
        return super().step(action)


class Asking(RLlibCallback):
    """Compares the runner of the process with the one that an event brings."""

    def compare(self, env_runner, **_):
        assert get_global_worker() is env_runner

    on_sub_environment_created = on_environment_created = compare
    on_episode_created = on_episode_start = on_episode_step = on_episode_end = compare
    on_postprocess_trajectory = on_sample_end = compare

    def on_create_policy(self, *, policy, **_):
        runner = get_global_worker()
        assert runner is not None
        assert runner.module_spec.observation_space is policy.observation_space


def config(num_env_runners=0, **more):
    made = small_ppo(num_env_runners, env=AskingEnv, num_envs_per_env_runner=1, batch=20)
    return made.evaluation(evaluation_duration=1).callbacks(Asking).update_from_dict(more)


@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_callbacks_envs_and_functions_find_the_runner_that_is_at_work(num_env_runners, tmp_path):
    # With 0 runners, training and evaluation take turns in one process.
    before = get_global_worker()
    with config(num_env_runners, evaluation_interval=1).build_algo() as algo:
        algo.train()
        algo.restore_from_path(algo.save_to_path(tmp_path / "saved"))
        algo.train()  # begins by playing the running episode again
        for group in (algo.env_runner_group, algo.eval_env_runner_group):
            assert group is not None
            assert group.foreach_env_runner(lambda runner: get_global_worker() is runner) == [True]
    assert get_global_worker() is before


def test_outside_of_work_it_is_the_one_that_was_made_last():
    before = get_global_worker()  # of an algorithm that another test left behind
    first, second = (config().build_algo() for _ in range(2))
    assert get_global_worker() is second.env_runner
    second.evaluate()
    assert get_global_worker() is not second.env_runner  # that of evaluation was made later
    second.stop()
    assert get_global_worker() is first.env_runner
    first.stop()
    assert get_global_worker() is before


def test_a_runner_that_nobody_holds_is_not_kept_alive():
    before = get_global_worker()
    algo = config().build_algo()
    held = get_global_worker()
    assert held is algo.env_runner
    del algo, held
    gc.collect()
    assert get_global_worker() is before


def test_a_runner_that_could_not_be_made_or_raised_leaves_no_trace():
    before = get_global_worker()

    def fail(**_):
        raise ZeroDivisionError

    with pytest.raises(CallbackError) as caught:
        config().callbacks(on_environment_created=fail).build_algo()
    assert caught.value is not None  # which holds the frames of the runner's making
    assert get_global_worker() is before
    with config().callbacks(on_episode_step=fail).build_algo() as algo:
        with pytest.raises(CallbackError):
            algo.train()
        assert get_global_worker() is algo.env_runner
    assert get_global_worker() is before


def test_calls_of_several_runners_may_overlap():
    config = PPOConfig().environment(CountdownEnv)
    first, second = SingleAgentEnvRunner(config=config), SingleAgentEnvRunner(config=config)
    of_first, of_second = AtWork(first), AtWork(second)
    of_second.__enter__()
    of_first.__enter__()
    of_second.__exit__(None, None, None)
    assert get_global_worker() is first
    of_first.__exit__(None, None, None)
    assert get_global_worker() is second  # made last, and none is at work
    for runner in (second, first):
        runner.stop()
    assert get_global_worker() not in (first, second)
