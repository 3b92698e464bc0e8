"""What is in a checkpoint of an algorithm, and in which order it is restored.

config        plain settings, for `from_checkpoint`; the root seed
counters      lifetime counts
learner/…     weights, optimiser, coefficients
connectors    running statistics of observations and rewards, if they are normalised
exploration   what the strategy of the main process has learnt or adapted, if it has state
env_runners   where every env slot stands, running episodes included; the runners' callbacks
evaluation    number of the next evaluation, the last result, its runners' callbacks
metrics       windows, sums, the last episodes
callbacks     the callback objects of the main process
actors        the states of actors, if there are any that are `Checkpointable`; asked and told by
              `algorithm_checkpoints`, because they are no part of the algorithm
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from checkpoints import HasState, check_shape
from checkpoints.state_shapes import TEXT, anything, dict_of, fields, list_of, seed
from trainer.algorithms.algorithm_parts import AlgorithmParts
from trainer.metrics.state_shapes import EPISODES_STATE, LOGGER_STATE
from trainer.types import State

ACTORS: Final = "actors"

CONFIG: Final = fields(
    {"class": TEXT, "settings": dict_of(anything), "code": list_of(TEXT), "root_seed": seed}
)
_METRICS: Final = fields({"logger": LOGGER_STATE, "episodes": EPISODES_STATE})


def components_of(algorithm: AlgorithmParts) -> Collection[tuple[str, HasState]]:
    """The components of an algorithm, by name, in the order in which they are restored."""
    has_statistics = algorithm.normalization_statistics.has_state
    exploration = algorithm.sample_exploration
    return [
        ("config", _ConfigRecord(algorithm)),
        ("counters", algorithm.counters),
        ("learner", algorithm.learner),
        *([("connectors", _ConnectorsRecord(algorithm))] if has_statistics else []),
        *([("exploration", exploration)] if exploration.has_state else []),
        ("env_runners", algorithm.env_runner_group),
        ("evaluation", _EvaluationRecord(algorithm)),
        ("metrics", _MetricsRecord(algorithm)),
        ("callbacks", algorithm.callbacks),
    ]


class _ConfigRecord:
    """The settings, which are written but never applied: an algorithm keeps its own.

    The root seed is the exception: the numbers to come follow from it. The numbers of runners are
    those that there are, which `add_workers` may have raised since.
    """

    def __init__(self, algorithm: AlgorithmParts) -> None:
        self._algorithm = algorithm

    def get_state(self) -> State:
        algorithm = self._algorithm
        state = algorithm.config.get_state()
        state["settings"]["num_env_runners"] = algorithm.env_runner_group.num_remote_env_runners()
        evaluation = algorithm.eval_env_runner_group
        if evaluation is not None:
            num_env_runners = evaluation.num_remote_env_runners()
            state["settings"]["evaluation_num_env_runners"] = num_env_runners
        return {**state, "root_seed": algorithm.root_seed}

    def check_state(self, state: State) -> None:
        check_shape(state, CONFIG)

    def set_state(self, state: State) -> None:
        self._algorithm.adopt_root_seed(state["root_seed"])


class _ConnectorsRecord:
    """The statistics of normalisation; what follows from them comes into force with them."""

    def __init__(self, algorithm: AlgorithmParts) -> None:
        self._algorithm = algorithm

    def get_state(self) -> State:
        return self._algorithm.normalization_statistics.get_state()

    def check_state(self, state: State) -> None:
        self._algorithm.normalization_statistics.check_state(state)

    def set_state(self, state: State) -> None:
        self._algorithm.normalization_statistics.set_state(state)
        self._algorithm.apply_normalization()


class _EvaluationRecord:
    """Where evaluation stands, also while there is no evaluator yet."""

    def __init__(self, algorithm: AlgorithmParts) -> None:
        self._algorithm = algorithm

    def get_state(self) -> State:
        return self._algorithm.get_evaluation_state()

    def check_state(self, state: State) -> None:
        self._algorithm.check_evaluation_state(state)

    def set_state(self, state: State) -> None:
        self._algorithm.set_evaluation_state(state)


class _MetricsRecord:
    """The logger and the episode statistics under one name."""

    def __init__(self, algorithm: AlgorithmParts) -> None:
        self._logger = algorithm.metrics
        self._episodes = algorithm.episode_statistics

    def get_state(self) -> State:
        return {"logger": self._logger.get_state(), "episodes": self._episodes.get_state()}

    def check_state(self, state: State) -> None:
        check_shape(state, _METRICS)

    def set_state(self, state: State) -> None:
        self._logger.set_state(state["logger"])
        self._episodes.set_state(state["episodes"])
