"""What every part of a state must keep to, one test per property; each runs over a table of runs.

Parts are the leaves of what `get_state` gives: of counters, learners, connectors, exploration, env
slots, evaluation, metrics, callbacks, replay buffers. Whatever is set is what is got; what is
refused changes nothing; a state shares no memory with what it was taken from; and what is forgotten
of one shows later, in results or weights.
"""

import functools

import numpy as np
import pytest

from checkpoints import CheckpointMismatchError, decode, encode
from tests.contract.test_algorithms import SEVERAL_AGENTS, config, known
from tests.mutated_states import at
from tests.resume_cells import FEATURES, different, digests
from trainer.errors import ReplayError
from trainer.metrics import comparable

pytestmark = pytest.mark.process

_VARIANTS = {
    "PPO, sample_ahead": ("PPO", {"sample_ahead": True}),
    "PPO, evaluation to come": ("PPO, evaluation runner", {"evaluation_interval": 9}),
}
RUNS = (
    *("PPO", "DQN", "SAC", "TD3", "DDPG", "MARWIL", "ParameterNoise", "RE3", "Curiosity"),
    *("PPO, memory", "DQN, normalised", SEVERAL_AGENTS, *_VARIANTS),
)
"""All that states are made of, between them."""


def trained(name, num_iterations, **settings):
    """An algorithm of the table after some iterations."""
    name, variant = _VARIANTS.get(name, (name, {}))
    algo = config(name, **variant, **settings).build_algo()
    for _ in range(num_iterations):
        algo.train()
    return algo


# ---- what is set is what is got

NOT_GOT = {
    "is_wall_clock": "values of such metrics are left out of states",
    "cur_epsilon": "follows from the counters",
    "model_config": "networks of the settings hold; a warning tells what differs",
}
"""Parts that are something else when they were set, and why."""


def leaves(state, path=()):
    """The paths of numbers and arrays: of the first slot, of both ends of other lists."""
    if isinstance(state, dict | list):
        last = 0 if path[-1:] == ("slots",) else len(state) - 1
        ends = sorted({0, last} if state else ())
        for name in state if isinstance(state, dict) else ends:
            yield from leaves(state[name], (*path, name))
    elif isinstance(state, bool | int | float) or (
        isinstance(state, np.ndarray) and state.size and state.dtype.kind in "biuf"
    ):
        yield path


def moved(value):
    """Another value of the same type and shape."""
    if isinstance(value, np.ndarray):
        kind = value.dtype.type
        numbers = value + kind(1) if value.dtype.kind in "iu" else value * kind(0.5) + kind(0.25)
        return ~value if value.dtype.kind == "b" else numbers
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value * 0.5 + 0.25


LIKE = {
    **dict.fromkeys(("ParameterNoise", "RE3", "Curiosity", "PPO, memory", *_VARIANTS), "PPO"),
    "DQN": "PPO",
    **dict.fromkeys(("SAC", "TD3"), "DQN"),
    "DDPG": "TD3",
    "DQN, normalised": "DQN",
}
"""Runs of the same classes as another one, but for what has other paths in their states."""

OWN = dict.fromkeys(("DQN", "SAC", "TD3"), ("learner", "counters"))
"""Components of other classes all the same."""


@functools.cache
def paths_of(name):
    """The paths of all leaves of a run."""
    with trained(name, 3) as algo:
        return frozenset(leaves(decode(known(algo))))


def chosen_leaves(name, component, part):
    """Leaves to be set: those that no run like this one has, and both ends of each component."""
    found = [*leaves(part)]
    is_like = name in LIKE and component not in OWN.get(name, ())
    others = paths_of(LIKE[name]) if is_like else frozenset()
    ends = found[:1] + found[-1:]
    return [path for path in found if path in ends or (component, *path) not in others]


@pytest.mark.parametrize("name", RUNS)
def test_every_part_that_is_set_is_got_or_refused_and_then_nothing_changes(name):
    with trained(name, 3) as algo:
        before, num_got = known(algo), 0
        for component, part in decode(before).items():
            own = there = encode({component: part})
            for path in chosen_leaves(name, component, part):
                given = decode(own)
                value = at(given[component], path)
                at(given[component], path[:-1])[path[-1]] = moved(value)
                if not NOT_GOT.keys().isdisjoint(path):
                    continue
                expected = encode(given)
                try:
                    algo.set_state(given)
                except (CheckpointMismatchError, ReplayError):
                    expected = there
                there = encode(algo.get_state(component))
                assert there == expected, (component, *path)
                num_got += there == encode(given)
            algo.set_state(decode(own))
            assert known(algo) == before, f"the other components after {component} was set"
        assert num_got > (9 if name in LIKE else 50)


@pytest.mark.parametrize("name", RUNS)
def test_a_state_fits_another_run_and_shares_no_memory_with_either(name):
    with trained(name, 2) as algo, trained(name, 1, seed=8) as other:
        state = algo.get_state(not_components="config")
        expected = encode(state)
        other.set_state(state)
        assert known(other) == expected
        for one in (other, algo):
            one.train()
            assert encode(state) == expected


# ---- what is forgotten shows

EXPLAINED = {
    # The environment of these runs does not bring them about; their own tests do.
    "counters/num_episodes_lost": "test_resume_runners",
    "counters/num_env_steps_lost": "test_resume_runners",
    "evaluation/evaluator/num_left_out": "test_evaluation_under_way",
    # Settings, with which those of the algorithm are compared.
    "replay_buffer/type": "test_replay_state",
    "replay_buffer/capacity": "test_replay_state",
    "replay_buffer/alpha": "test_replay_state",
    "recordings/fingerprint": "test_offline_reading",
    # Told, but no part of what comes next.
    "counters/num_training_steps": "algorithm.counters tells it",
    "counters/num_episodes": "the manifest tells it",
    "exploration/sub_exploration/cur_epsilon": "follows from the counters",
    "exploration/sub_exploration/last_timestep": "follows from the counters",
    # Needed to undo an iteration, and of no effect from the end of one on.
    "evaluation/reported_at": "the next result is of another iteration",
    "metrics/episodes/num_this_iteration": "the next iteration begins with 0",
}
"""Parts that can be forgotten without a trace in results, and who looks after them or why."""

SHOWN_BY = {
    "counters/num_rows_owed": ("SAC",),
    "counters/num_actions_computed": ("PG", "SAC"),
    "evaluation/evaluator/num_evaluations": ("PPO",),
    "learner/learner/last_target_update_ts": ("DQN", "SAC"),
    "learner/learner/moving_avg_sqd_adv_norm": ("MARWIL",),
    "recordings/num_passes": ("BC", "MARWIL"),
    "recordings/num_read": ("BC", "MARWIL"),
    "learner/learner/num_updates": tuple(name for name in FEATURES if name not in ("PG", "BC")),
}
"""Parts that not every run makes use of, and the runs that do."""

_SPECIAL = {
    **dict.fromkeys(("ParameterNoise", "RE3", "Curiosity"), ("exploration",)),
    **dict.fromkeys(("PG", "SAC", "TD3", "DDPG"), ("learner", "counters")),
    **dict.fromkeys(("BC", "MARWIL", "CQL"), ("learner", "recordings")),
    "DQN": ("learner", "counters", "replay_buffer"),
}
"""The components in which runs differ from PPO's, or from DQN's."""

OF_A_NEW_ONE = {
    "replay_buffer/following": lambda rows: np.full_like(rows, -1),
    "replay_buffer/priorities": np.ones_like,
    "replay_buffer/num_added": lambda number: number + 1,
}
"""What is put there if the value of a new algorithm does not fit the other parts."""


class Forgetting:
    """An algorithm, its state, what it finds from there, and the state of a new one."""

    def __init__(self, name, algo):
        run = FEATURES[name]
        with config(name, seed=8).build_algo() as new:
            self.fresh = new.get_state(not_components="config")
        for _ in range(run.num_iterations):
            algo.train()
        self._algo = algo
        self._act()
        self._state = known(algo)
        expected = self._found()
        self._algo.set_state(self.state)
        assert different(self._found(), expected) == [], "nothing is forgotten"
        self._algo.set_state(self.state)
        self._expected = [*self._shown()]

    @property
    def state(self):
        return decode(self._state)

    def _act(self):
        space = self._algo.learner.module.observation_space
        obs = np.zeros(space.shape or (), np.float32)
        return repr(self._algo.compute_single_action(obs, explore=True))

    def _found(self):
        return {"result of acting": self._act(), **digests(self._algo, 2)}

    def _shown(self):
        """What comes of the same, one after the other: actions, results, weights."""
        yield self._act()
        for _ in range(2):
            yield encode(comparable(self._algo.train()))
        yield encode(self._algo.get_state("learner")["learner"]["rl_module"])

    def is_shown(self, path):
        """Whether results or weights are different later, or the rest is refused, without it."""
        state = self.state
        for tree in _holders(state, path):
            fresh = decode(encode(_at(self.fresh, path)))
            other = OF_A_NEW_ONE.get("/".join(path))
            tree[path[-1]] = other(tree[path[-1]]) if other else fresh
        try:
            self._algo.set_state(state)
            return any(
                one != other for one, other in zip(self._shown(), self._expected, strict=True)
            )
        except CheckpointMismatchError:
            return True


def _holders(state, path):
    """The dicts that hold the part of this path; all slots, for `slots`."""
    trees = [state]
    for name in path[:-1]:
        trees = [inner for tree in trees for inner in _inner(tree[name])]
    return trees


def _inner(value):
    return value if isinstance(value, list) else [value]


def _at(state, path):
    for name in path:
        state = state[0][name] if isinstance(state, list) else state[name]
    return state


def parts_of(state, fresh, path=()):
    """The paths of what can be forgotten: as deep as a new algorithm has the same names."""
    if isinstance(state, list) and state and isinstance(state[0], dict) and path[-1] == "slots":
        yield path  # all of them; and each part
        state, fresh = state[0], fresh[0]
    is_tree = isinstance(state, dict) and isinstance(fresh, dict) and state.keys() == fresh.keys()
    if not is_tree or all(isinstance(value, np.ndarray) for value in state.values()):
        yield path
        return
    for name, value in state.items():
        if isinstance(value, dict | list) and not value and not fresh[name]:
            continue  # neither has any
        yield from parts_of(value, fresh[name], (*path, name))


@pytest.mark.parametrize("name", FEATURES)
def test_each_forgotten_part_of_a_state_shows(name):
    with config(name).build_algo() as algo:
        forgetting = Forgetting(name, algo)
        found = [*parts_of(forgetting.state, forgetting.fresh)]
        chosen = [path for path in found if path[0] in _SPECIAL.get(name, path)]
        paths = {"/".join(path): path for path in chosen}
        shown = {part for part, path in paths.items() if forgetting.is_shown(path)}
    assert len(found) > 30
    assert paths
    assert not shown & EXPLAINED.keys(), "no longer to be explained"
    missed = paths.keys() - shown - EXPLAINED.keys()
    assert {part for part in missed if name in SHOWN_BY.get(part, FEATURES)} == set()
