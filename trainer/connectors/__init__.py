"""Between envs, networks and learners: observations in, actions out, advantages from rewards."""

from trainer.connectors.actions import ActionDecoder
from trainer.connectors.advantages import (
    AdvantageEstimate,
    Chunks,
    discounted_returns,
    explained_variance,
    generalized_advantages,
    standardize,
)
from trainer.connectors.observations import ObservationEncoder

__all__ = [
    "ActionDecoder",
    "AdvantageEstimate",
    "Chunks",
    "ObservationEncoder",
    "discounted_returns",
    "explained_variance",
    "generalized_advantages",
    "standardize",
]
