"""Long runs keep nothing of what is over: a smaller sample of the benchmark over 10⁵ episodes."""

import gc
import sys

from callbacks import EVENTS
from tests.small_runs import small_ppo

_NUM_EPISODES = 1_000


def _growth_per_episode(**functions):
    """How many more pieces of memory Python has in use per episode, when tables are full.

    An object takes one or more; one of an array, beside what it holds.
    """
    made = small_ppo(batch=300)  # 100 episodes of 3
    made.environment(env_config={"min_length": 3, "max_length": 3})
    with made.callbacks(**functions).build_algo() as algo:

        def num_pieces(num_iterations):
            for _ in range(num_iterations):
                algo.train()
            gc.collect()
            return sys.getallocatedblocks()

        before = num_pieces(num_iterations=10)
        return (num_pieces(num_iterations=_NUM_EPISODES // 100) - before) / _NUM_EPISODES


def test_episodes_that_are_over_leave_nothing_behind():
    assert _growth_per_episode(**dict.fromkeys(EVENTS, lambda **kwargs: None)) < 0.5


def test_the_measure_sees_what_keeps_one_object_per_episode():
    kept = []
    assert _growth_per_episode(on_episode_end=lambda **kwargs: kept.append(object())) > 0.9
