"""Whatever could be trained with and saved is restored: checks of states refuse nothing legitimate.

The counterpart of `test_spoilt_states`: states that look odd, but that a run has brought about.
"""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import CheckpointMismatchError, check_shape, encode, like
from tests.small_runs import small_ppo
from trainer import PPO
from trainer.algorithms.ppo.ppo import PPOLearner
from trainer.connectors import Normalization
from trainer.env_runners.messages import ModuleWeights, PolicySnapshot, Weights
from trainer.evaluation.evaluations import Subject, evaluation_state
from trainer.exploration import StochasticSampling, WithSubExploration
from trainer.modules import ByModule
from trainer.nn import Categorical

BOX = spaces.Box(-9, 9, (2,), np.float32)
DISCRETE = spaces.Discrete(9)


class LooseEnv(gymnasium.Env[Any, Any]):
    """Keeps to its spaces as loosely as runners allow."""

    action_space = spaces.Discrete(2)

    def __init__(self, env_config):
        self.observation_space = env_config.get("space", BOX)
        self._seen = env_config.get("seen", lambda _: np.zeros(2, np.float32))
        self._reward = env_config.get("reward", 1.0)
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._seen(0), {}

    def step(self, action):
        self._steps += 1
        return self._seen(self._steps), self._reward, self._steps == 8, False, {}


LOOSE = {
    "other dtype at reset": {"seen": lambda t: np.array([t, 1], np.float32 if t else np.float64)},
    "lists": {"seen": lambda t: [float(t), 1.0]},
    "integers for floats": {"seen": lambda t: np.array([t, 1])},
    "array and number": {"space": DISCRETE, "seen": lambda t: t if t else np.array(t)},
    "lists of counts": {"space": spaces.MultiDiscrete([9, 2]), "seen": lambda t: [t, 1]},
    "flags as floats": {"space": spaces.MultiBinary(2), "seen": lambda _: np.array([1.0, 0.0])},
    "reward in an array": {"reward": np.array(1.0)},
    "reward of Python's flags": {"reward": True},
    "reward of NumPy's flags": {"reward": np.True_},
}


def ppo(**env_config):
    # 17 steps of episodes of 8: it stops after a first step.
    made = small_ppo(env=LooseEnv, num_slots=1, batch=17, minibatch_size=17)
    return made.environment(env_config=env_config)


@pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")  # of the lists
@pytest.mark.parametrize("name", LOOSE)
def test_run_with_an_env_that_is_loose_about_its_spaces_goes_on(name, tmp_path):
    with ppo(**LOOSE[name]).build_algo() as algo:
        algo.train()
        path = algo.save_to_path(tmp_path / "c")
        known = encode(algo.get_state())
        expected = algo.train()["env_runners"]
        algo.restore_from_path(path)
        assert encode(algo.get_state()) == known
        assert algo.train()["episode_return_mean"] == expected["episode_return_mean"]


def test_setting_that_began_as_an_integer_may_have_become_a_float(tmp_path):
    with ppo().training(kl_coeff=1).build_algo() as algo:
        algo.train()
        kl_coeff = algo.learner.extra_state()["kl_coeff"]
        assert kl_coeff != int(kl_coeff)
        path = algo.save_to_path(tmp_path / "c")
    with PPO.from_checkpoint(path, env=LooseEnv) as other:
        assert other.learner.extra_state() == {"kl_coeff": kl_coeff}


class Remembering(PPOLearner):
    """Keeps what grows, and what is not there at first."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = {}
        self.best = None

    def extra_state(self):
        return {**super().extra_state(), "seen": self.seen, "best": self.best}

    def set_extra_state(self, state):
        super().set_extra_state(state)
        self.seen, self.best = state["seen"], state["best"]


def test_state_of_a_users_learner_may_grow(tmp_path):
    with ppo().build_algo() as algo:
        made = {"module_spec": algo.module_spec, "settings": algo.learner.settings}
    learner = Remembering(**made, root_seed=1)
    learner.seen["a"], learner.best = 3, 0.5
    path = learner.save_to_path(tmp_path / "c")
    again = Remembering.from_checkpoint(path, **made)
    assert (again.seen, again.best) == ({"a": 3}, 0.5)
    state = again.get_state()
    for spoilt in ({"kl_coeff": "x"}, {"num_updates": -1}, {"other": 1}):
        with pytest.raises(CheckpointMismatchError):
            again.check_state({"learner": {**state["learner"], **spoilt}})


def test_state_of_a_users_strategy_may_grow():
    class Counting(WithSubExploration):
        counts = {}

        def get_state(self):
            return {**super().get_state(), **({"counts": self.counts} if self.counts else {})}

    made = {"distribution": Categorical(9)}
    strategy = Counting(DISCRETE, sub_exploration=StochasticSampling(DISCRETE, **made), **made)
    strategy.check_state({**strategy.get_state(), "counts": {"a": 1}})
    no_state = []
    with pytest.raises(CheckpointMismatchError, match="is a list"):
        strategy.check_state(no_state)


def test_metrics_of_a_users_evaluation_may_be_anything():
    weights = Weights(ByModule({"default_policy": ModuleWeights(1, {})}))
    policy = PolicySnapshot(weights, ByModule({"default_policy": Normalization()}))
    last = {"env_runners": {"episode_returns": [1.0], "num_x": None, 3: "x"}, "num_episodes": "few"}
    evaluator = {"num_evaluations": 1, "num_left_out": 0, "callbacks": {}, "slots": []}
    state = {"evaluator": evaluator, "last": last, "reported_at": None}
    check_shape(state, evaluation_state(policy))
    # By a setting that the restore may have changed.
    clipped = {"rewards": {"clip": True, "factor": None}}
    by_module = {"normalization": {"default_policy": clipped}}
    running = {"running": {**Subject(policy, iteration=1).get_state(), **by_module}}
    check_shape({**state, **running}, evaluation_state(policy))
    clipped["rewards"]["clip"] = "x"
    with pytest.raises(CheckpointMismatchError, match="'clip'"):
        check_shape({**state, **running}, evaluation_state(policy))


@pytest.mark.parametrize(("before", "later"), [(0, 0.5), (1.0, 2), (None, {"a": 1}), ([], [1])])
def test_a_state_like_another_may_have_moved_on(before, later):
    check_shape({"x": later}, like({"x": before}))


@pytest.mark.parametrize("later", [True, "1", None, [1]])
def test_a_number_stays_a_number(later):
    with pytest.raises(CheckpointMismatchError, match="expected a number"):
        check_shape({"x": later}, like({"x": 1}))
