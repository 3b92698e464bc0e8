"""Garbage is collected from what a block made, unless the program froze objects itself."""

import pytest

from tests.scripts import run_script
from trainer.runtime import threads
from trainer.runtime.threads import sparing_old_objects


class Garbage:
    """Python's collector as far as it is asked here."""

    def __init__(self, num_frozen):
        self.num_frozen = num_frozen
        self.num_counts = 0

    def get_freeze_count(self):
        self.num_counts += 1
        return self.num_frozen

    def freeze(self):
        self.num_frozen += 1_000

    def unfreeze(self):
        self.num_frozen = 0


def collector(monkeypatch, *, num_frozen):
    garbage = Garbage(num_frozen)
    monkeypatch.setattr(threads, "gc", garbage)
    monkeypatch.setattr(threads._Frozen, "by_the_program", False)
    return garbage


@pytest.mark.parametrize("num_frozen_by_python", [0, 375])
def test_objects_are_frozen_inside_the_block_only(num_frozen_by_python, monkeypatch):
    garbage = collector(monkeypatch, num_frozen=num_frozen_by_python)
    for _ in range(2):
        with sparing_old_objects():
            assert garbage.num_frozen >= 1_000
        assert garbage.num_frozen == 0


def test_an_error_thaws_them_too(monkeypatch):
    garbage = collector(monkeypatch, num_frozen=0)
    with pytest.raises(ValueError, match="inside"), sparing_old_objects():
        raise ValueError("inside")
    assert garbage.num_frozen == 0


def test_a_block_within_a_block_leaves_thawing_to_the_outer_one(monkeypatch):
    garbage = collector(monkeypatch, num_frozen=0)
    with sparing_old_objects():
        with sparing_old_objects():
            pass
        assert garbage.num_frozen == 1_000
    with sparing_old_objects():
        assert garbage.num_frozen == 1_000, "what it froze itself was taken for the program's"


def test_what_the_program_froze_stays_frozen_and_is_counted_once(monkeypatch):
    garbage = collector(monkeypatch, num_frozen=2_000_000)
    for _ in range(100):
        with sparing_old_objects():
            assert garbage.num_frozen == 2_000_000
    assert garbage.num_frozen == 2_000_000
    assert garbage.num_counts == 1, "Python counts one by one: 30 ms each time"


def test_a_process_forked_inside_the_block_begins_outside_of_it():
    """In a process of its own: here, other tests may have left threads."""
    code = """
import gc, os, warnings
warnings.simplefilter("ignore")
from trainer.runtime.threads import _Frozen, sparing_old_objects
with sparing_old_objects():
    child = os.fork()
    if child == 0:
        ok = not _Frozen.here and gc.get_freeze_count() == 0
        with sparing_old_objects():
            ok = ok and _Frozen.here and gc.get_freeze_count() > 0
        ok = ok and not _Frozen.by_the_program and gc.get_freeze_count() == 0
        os._exit(0 if ok else 1)
    status = os.waitpid(child, 0)[1]
    assert _Frozen.here and gc.get_freeze_count() > 0
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    run_script(code)


def test_garbage_of_short_rounds_is_collected():
    """In a process of its own: here, objects are frozen from the start."""
    code = """
import weakref
import gymnasium as gym
from trainer import DQNConfig

class Ring:
    def __init__(self):
        self.itself = self

alive = weakref.WeakSet()

class Littering(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return self.observation_space.low, {}
    def step(self, action):
        alive.add(Ring())
        return self.observation_space.low, 0.0, False, False, {}

config = DQNConfig().environment(Littering).env_runners(rollout_fragment_length=4)
config.training(num_steps_sampled_before_learning_starts=10**6, model={"fcnet_hiddens": []})
with config.reporting(min_sample_timesteps_per_iteration=2_000).build_algo() as algo:
    algo.train()
raise SystemExit(len(alive) > 1_000)
"""
    run_script(code)
