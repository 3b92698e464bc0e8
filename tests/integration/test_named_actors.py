"""Actors beside training: the documents' named counter, in envs and callbacks of all processes."""

# mypy: disable-error-code="attr-defined"
# Type checkers take a decorated class for the class itself.

import os
import signal
from typing import Any

import gymnasium as gym
import pytest

from callbacks import RLlibCallback
from trainer import PPOConfig, actors
from trainer.runtime.process_start import START_METHOD_VARIABLE
from trainer.testing.processes import wait_until

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("actors_end")]


NAMED_COUNTER = """\
from trainer import actors as ray


@ray.remote
class Counter:
    def __init__(self):
        self.count = 0

    def inc(self, n):
        self.count += n

    def get(self):
        return self.count


# on the driver
counter = Counter.options(name="global_counter").remote()
print(ray.get(counter.get.remote()))  # get the latest count

# in your envs
counter = ray.get_actor("global_counter")
counter.inc.remote(1)  # async call to increment the global count
"""
"""In (d); the import line is changed."""


def test_the_block_of_the_documents_runs(capsys):
    names = {"__name__": "__main__"}
    exec(compile(NAMED_COUNTER, "block", "exec"), names)
    assert capsys.readouterr().out == "0\n"
    assert actors.get(actors.get_actor("global_counter").get.remote()) == 1


class CountingEnv(gym.Wrapper[Any, Any, Any, Any]):
    """CartPole that counts its steps in the named actor."""

    def __init__(self, _=None):
        super().__init__(gym.make("CartPole-v1"))
        self.counter = None

    def step(self, action):
        if self.counter is None:
            # The counter is made later than the processes of the runners.
            self.counter = actors.get_actor("global_counter")
        self.counter.inc.remote(1)
        return self.env.step(action)


class CountingEpisodes(RLlibCallback):
    """Counts episodes in another named actor, from whatever process it is in."""

    def on_episode_end(self, **_):
        actors.get(actors.get_actor("episodes").inc.remote(1))


@actors.remote
class Counter:
    def __init__(self):
        self.count = 0

    def inc(self, n):
        self.count += n

    def get(self):
        return self.count


def counting_config(num_env_runners, batch):
    return (
        PPOConfig()
        .environment(CountingEnv)
        .env_runners(num_env_runners=num_env_runners)
        .training(train_batch_size_per_learner=batch, minibatch_size=batch, num_epochs=1)
        .callbacks(CountingEpisodes)
    )


def counts_of_one_iteration(num_env_runners, batch):
    with counting_config(num_env_runners, batch).build_algo() as algorithm:
        counter = Counter.options(name="global_counter").remote()
        episodes = Counter.options(name="episodes").remote()
        result = algorithm.train()
        # The last calls of a runner may reach the counter later than its answer reaches us.
        wait_until(lambda: int(actors.get(counter.get.remote())) >= batch)
        return (
            actors.get(counter.get.remote()),
            actors.get(episodes.get.remote()),
            result["env_runners"]["num_episodes"],
        )


@pytest.mark.parametrize(
    ("start_method", "num_env_runners"),
    [("forkserver", 2), pytest.param("spawn", 1, marks=pytest.mark.slow)],
)
def test_envs_and_callbacks_in_runners_reach_actors_by_name(
    start_method, num_env_runners, monkeypatch
):
    monkeypatch.setenv(START_METHOD_VARIABLE, start_method)
    actors.init(namespace="of_this_run")
    steps, episodes, reported = counts_of_one_iteration(num_env_runners, 200)
    assert (steps, episodes) == (200, reported)
    assert episodes > 0


def test_envs_and_callbacks_in_the_main_process_reach_actors_by_name():
    steps, episodes, reported = counts_of_one_iteration(0, 100)
    assert (steps, episodes) == (100, reported)


@pytest.mark.parametrize(
    "num_calls", [1_000, pytest.param(10_000, marks=pytest.mark.slow)], ids=["sample", "all"]
)
def test_ten_thousand_increments_of_four_env_processes_are_all_there(num_calls):
    assert counts_of_one_iteration(4, num_calls)[0] == num_calls


class CountingAlone(gym.Wrapper[Any, Any, Any, Any]):
    """CartPole that counts its steps in its own process: the negative control."""

    num_steps = 0

    def __init__(self, _=None):
        super().__init__(gym.make("CartPole-v1"))

    def step(self, action):
        CountingAlone.num_steps += 1
        return self.env.step(action)


def test_without_an_actor_the_main_process_hears_of_no_step_in_a_runner():
    config = counting_config(1, 20).environment(CountingAlone).callbacks([])
    with config.build_algo() as algorithm:
        algorithm.train()
        elsewhere = algorithm.env_runner_group.foreach_env_runner(
            lambda _: CountingAlone.num_steps, local_env_runner=False
        )
    assert elsewhere == [20]
    assert CountingAlone.num_steps == 0


def test_evaluation_runners_and_restarted_runners_reach_actors_by_name():
    counter = Counter.options(name="global_counter").remote()
    episodes = Counter.options(name="episodes").remote()
    config = counting_config(1, 50).evaluation(evaluation_num_env_runners=1, evaluation_duration=3)
    with config.debugging(seed=0).build_algo() as algorithm:
        result = algorithm.evaluate()
        played = result["env_runners/num_env_steps_sampled"]
        assert wait_until(lambda: bool(actors.get(counter.get.remote()) == played))
        assert actors.get(episodes.get.remote()) == result["env_runners/num_episodes"] == 3
        num_episodes = algorithm.train()["env_runners/num_episodes"]
        (pid,) = algorithm.env_runner_group.foreach_env_runner(
            lambda _: os.getpid(), local_env_runner=False
        )
        os.kill(pid, signal.SIGKILL)
        num_episodes += algorithm.train()["env_runners/num_episodes"]
        # The env is put back into its episode: its steps, and their calls, happen once more.
        assert wait_until(lambda: bool(actors.get(counter.get.remote()) > played + 100))
        # Callbacks hear of nothing twice.
        assert actors.get(episodes.get.remote()) == 3 + num_episodes
