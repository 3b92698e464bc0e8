"""Sampling ahead: which weights the samples to come are played with, and when they are asked for.

With `sample_ahead=1`:

    sample k        with the weights of before update k - 1; it is taken
    sample k + 1    is asked for, with the weights of now: those of before update k
    update k        is made from sample k, while runners play sample k + 1

With `sample_ahead=n`, what is asked for then is sample k + n: a sample is played with weights that
lack n updates, however long that takes. The lag is a rule. Runners play the samples between one
after the other, and none waits for another. What a checkpoint holds are these n weights and where
slots stood after the last sample that was taken; the samples are asked for again, and are the
same. Without env runners in processes of their own, a sample is played when it is taken, with the
same weights.
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
from trainer_toolkit.checks import fields, list_of

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
        policies: what the next samples are played with, in their order; empty if that is the
            newest: before the first sample, after a change of modules, and always without
            `sample_ahead`.
    """

    def __init__(self, algorithm: _Algorithm) -> None:
        self.policies: tuple[PolicySnapshot, ...] = ()
        self._algorithm = algorithm

    @property
    def num_samples(self) -> int:
        """How many samples are asked for ahead: the updates that a sample lacks."""
        return int(self._algorithm.config.sample_ahead)

    @property
    def is_on(self) -> bool:
        """Whether samples are asked for ahead."""
        return self.num_samples > 0

    @property
    def acting(self) -> PolicySnapshot | None:
        """What the next sample is played with; None if that is the newest."""
        return self.policies[0] if self.policies else None

    @property
    def timestep(self) -> int | None:
        """Env steps of the run before that was the newest; None as of `acting`."""
        acting = self.acting
        return None if acting is None or acting.weights is None else acting.weights.timestep

    def begin(self, num_steps: int, **request: Any) -> None:
        """Asks for samples to come, once one was taken; arguments as of `begin_sample`."""
        if not self.is_on:
            return
        group, left = self._algorithm.env_runner_group, self.policies[1:]
        newest = self._algorithm.newest_policy()
        self.policies = (*left, *[newest] * (self.num_samples - len(left)))
        self._algorithm.send_policy()
        for policy in self.policies[group.num_samples_ahead :]:
            timestep = 0 if policy.weights is None else policy.weights.timestep
            group.begin_sample(num_steps, policy=policy, timestep=timestep, **request)

    def part_of(self, state: State) -> State:
        """A whole state without its own part if it is off: that is of a run where it was on."""
        return state if self.is_on else {k: v for k, v in state.items() if k != SAMPLE_AHEAD}

    def drop(self) -> None:
        """Lets the next sample be played with the newest weights."""
        self.policies = ()

    # ---- state

    def get_state(self) -> State:
        """Plain data; empty if the next sample is played with the newest weights."""
        acting = [policy.to_state(state_array) for policy in self.policies]
        return {"acting": acting} if acting else {}

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it; changes nothing."""
        acting = fields(policy_state(self._algorithm.newest_policy()))
        check_shape(state, fields({}, optional={"acting": list_of(acting)}))

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Lets samples be played with the weights of a state that `get_state` gave.

        If it has more of them than samples are asked for ahead here, the newest are taken.
        """
        now = self._algorithm.newest_policy()
        policies = [PolicySnapshot.from_state(one, now) for one in state.get("acting", ())]
        self.policies = tuple(policies[-self.num_samples :])
        self._algorithm.send_policy()
