"""Negative controls of exact resuming: whatever part of a state is forgotten, the run shows it.

To forget is to put the value there that a new algorithm has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from checkpoints import decode, encode
from tests.resume_cells import FEATURES, Run, different, digests
from trainer import Algorithm

pytestmark = pytest.mark.process

COMPONENTS = {
    "PG": ["counters", "env_runners", "metrics", "callbacks", "learner/rl_module",
           "learner/optimizer"],
    "SAC": ["counters", "env_runners", "metrics", "callbacks", "replay_buffer",
            "learner/rl_module", "learner/optimizer", "learner/target", "learner/learner"],
}  # fmt: skip


EXPLAINED = {
    # The environment of these runs does not bring them about; their own tests do.
    "counters/num_episodes_lost": "test_resume_runners",
    "counters/num_env_steps_lost": "test_resume_runners",
    "evaluation/running_of": "test_evaluation_under_way",
    "evaluation/evaluator/num_left_out": "test_evaluation_under_way",
    # Settings, with which those of the algorithm are compared.
    "replay_buffer/type": "test_replay_state",
    "replay_buffer/capacity": "test_replay_state",
    "replay_buffer/alpha": "test_replay_state",
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


class Forgetting:
    """An algorithm, its state, what it finds from there, and the state of a new one."""

    def __init__(self, run: Run, algo: Algorithm) -> None:
        with run.cell.config(**run.settings, seed=8).build_algo() as new:
            self.fresh = new.get_state(not_components="config")
        for _ in range(run.num_iterations):
            algo.train()
        self._algo = algo
        self._act()
        self._state = encode(algo.get_state(not_components="config"))
        self.expected = self._found()
        assert self.found_without(()) == [], "nothing is forgotten"

    @property
    def state(self) -> Any:
        return decode(self._state)

    def _act(self) -> str:
        space = self._algo.learner.module.observation_space
        obs = np.zeros(space.shape or (), np.float32)
        return repr(self._algo.compute_single_action(obs, explore=True))

    def _found(self) -> dict[str, str]:
        return {"result of acting": self._act(), **digests(self._algo, 2)}

    def found_without(self, path: tuple[str, ...]) -> list[str]:
        """What is different later if this part is forgotten."""
        state = self.state
        for tree in _holders(state, path):
            tree[path[-1]] = decode(encode(_at(self.fresh, path)))
        try:
            self._algo.set_state(state)
            return different(self._found(), self.expected)
        except Exception as error:  # noqa: BLE001 - it may not fit the other parts
            return [f"refused: {error}"]


def _holders(state: Any, path: tuple[str, ...]) -> list[Any]:
    """The dicts that hold the part of this path; all slots, for `slots`."""
    trees = [state]
    for name in path[:-1]:
        trees = [inner for tree in trees for inner in _inner(tree[name])]
    return trees if path else []


def _inner(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _at(state: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        state = state[0][name] if isinstance(state, list) else state[name]
    return state


def parts_of(state: Any, fresh: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of what can be forgotten: as deep as a new algorithm has the same names."""
    if isinstance(state, list) and state and isinstance(state[0], dict) and path[-1] == "slots":
        state, fresh = state[0], fresh[0]
    is_tree = isinstance(state, dict) and isinstance(fresh, dict) and state.keys() == fresh.keys()
    if not is_tree or all(isinstance(value, np.ndarray) for value in state.values()):
        yield path
        return
    for name, value in state.items():
        if isinstance(value, dict | list) and not value and not fresh[name]:
            continue  # neither has any
        yield from parts_of(value, fresh[name], (*path, name))


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_component_is_needed(name: str) -> None:
    with FEATURES[name].cell.config(**FEATURES[name].settings).build_algo() as algo:
        forgetting = Forgetting(FEATURES[name], algo)
        for component in COMPONENTS[name]:
            found = forgetting.found_without(tuple(component.split("/")))
            assert any(digest.startswith("result") for digest in found), component


@pytest.mark.slow
def test_every_part_of_every_state_is_needed_or_explained() -> None:
    parts, needed = set(), set()
    for run in FEATURES.values():
        with run.cell.config(**run.settings).build_algo() as algo:
            forgetting = Forgetting(run, algo)
            for path in parts_of(forgetting.state, forgetting.fresh):
                name = "/".join(path)
                parts.add(name)
                shown = ("result", "refused", "learner/rl_module")
                if any(digest.startswith(shown) for digest in forgetting.found_without(path)):
                    needed.add(name)
    assert len(parts) > 40
    assert parts - needed == EXPLAINED.keys()
