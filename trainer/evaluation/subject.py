"""What is evaluated: weights of some moment, as long as an evaluation of them is under way."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoints import state_array
from trainer.connectors import Normalization, ObservationNormalizer, RewardTransform
from trainer.env_runners import Weights
from trainer.types import State


@dataclass(frozen=True)
class Subject:
    """What is evaluated: weights, as they were after some iteration.

    Attributes:
        weights: what to act with.
        normalization: what is done to observations on their way to the network.
        iteration: training iterations behind them.
    """

    weights: Weights
    normalization: Normalization
    iteration: int

    def get_state(self) -> State:
        """Plain data, from which the same evaluation can begin again."""
        weights = self.weights
        return {
            "iteration": self.iteration,
            "weights": {
                "version": weights.version,
                "state": {name: state_array(array) for name, array in weights.state.items()},
                "exploration": dict(weights.exploration),
                "timestep": weights.timestep,
                **({} if weights.connectors is None else {"connectors": weights.connectors}),
            },
            "normalization": _normalization_state(self.normalization),
        }

    @classmethod
    def from_state(cls, state: State) -> Subject:
        """The subject that `get_state` was called on."""
        return cls(
            Weights(**state["weights"]),
            _normalization_from(state["normalization"]),
            state["iteration"],
        )


def _normalization_state(normalization: Normalization) -> State:
    """What differs from no normalisation at all."""
    observations, rewards = normalization.observations, normalization.rewards
    state: State = {}
    if observations is not None:
        state["observations"] = {
            "mean": state_array(observations.mean),
            "factors": state_array(observations.factors),
            "limits": state_array(observations.limits),
        }
    if rewards is not None:
        state["rewards"] = {"clip": rewards.clip, "factor": rewards.factor}
    return state


def _normalization_from(state: State) -> Normalization:
    observations, rewards = state.get("observations"), state.get("rewards")
    return Normalization(
        None if observations is None else ObservationNormalizer(**observations),
        None if rewards is None else RewardTransform(**rewards),
    )
