"""Sampling ahead: which weights the next sample is played with, and when it is asked for.

    sample k        with the weights of before update k - 1; it is taken
    sample k + 1    is asked for, with the weights of now: those of before update k
    update k        is made from sample k, while runners play sample k + 1

So a sample is played with weights that lack one update, however long that
takes: the lag is a rule. What a checkpoint holds are these weights and where slots stood before the
sample that was asked for; it is asked for again, and is the same. Without env runners in processes
of their own, a sample is played when it is taken, with the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from checkpoints import check_shape, state_array
from trainer.config import AlgorithmConfig
from trainer.env_runners.messages import PolicySnapshot
from trainer.evaluation.evaluations import policy_state
from trainer.runner_group import EnvRunnerGroup
from trainer.types import State
from trainer_toolkit.checks import fields

SAMPLE_AHEAD: Final = "sample_ahead"
"""The setting, and the component of a checkpoint."""


class _Algorithm(Protocol):
    """What sampling ahead needs of the algorithm."""

    @property
    def config(self) -> AlgorithmConfig: ...
    @property
    def env_runner_group(self) -> EnvRunnerGroup: ...
    def newest_policy(self) -> PolicySnapshot: ...
    def send_policy(self) -> None:
        """Lets the training runners act with the newest policy, or with that of `acting`."""


class SampleAhead:
    """What the training runners act with, if that is not the newest.

    Attributes:
        acting: what the next sample is played with; None if that is the newest: before the first
            sample, after a change of modules, and always with `sample_ahead=False`.
    """

    def __init__(self, algorithm: _Algorithm) -> None:
        self.acting: PolicySnapshot | None = None
        self._algorithm = algorithm

    @property
    def is_on(self) -> bool:
        """Whether samples are asked for ahead."""
        return self._algorithm.config.sample_ahead

    def begin(self, num_steps: int, **request: Any) -> None:
        """Asks for the next sample, if it is on; arguments as of `EnvRunnerGroup.begin_sample`."""
        if not self.is_on:
            return
        self.acting = self._algorithm.newest_policy()
        self._algorithm.send_policy()
        self._algorithm.env_runner_group.begin_sample(num_steps, **request)

    def part_of(self, state: State) -> State:
        """A whole state without its own part if it is off: that is of a run where it was on."""
        return state if self.is_on else {k: v for k, v in state.items() if k != SAMPLE_AHEAD}

    def drop(self) -> None:
        """Lets the next sample be played with the newest weights."""
        self.acting = None

    # ---- state

    def get_state(self) -> State:
        """Plain data; empty if the next sample is played with the newest weights."""
        return {} if self.acting is None else {"acting": self.acting.to_state(state_array)}

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it; changes nothing."""
        acting = fields(policy_state(self._algorithm.newest_policy()))
        check_shape(state, fields({}, optional={"acting": acting}))

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Lets the next sample be played with the weights of a state that `get_state` gave."""
        acting, now = state.get("acting"), self._algorithm.newest_policy()
        self.acting = None if acting is None else PolicySnapshot.from_state(acting, now)
        self._algorithm.send_policy()
