"""Exploration strategies: how actions are chosen from what a module gives, and rewards for novelty.

`docs/exploration.md` has a table of all of them, and how to write your own.
"""

from trainer.exploration.discrete import (
    EpsilonGreedy,
    PerWorkerEpsilonGreedy,
    Random,
    SoftQ,
    StochasticSampling,
)
from trainer.exploration.exploration import (
    MASKED,
    ActionChoice,
    Exploration,
    ExploredChunk,
    ExploredSample,
    WithSubExploration,
    gumbel_numbers,
    normal_numbers,
    uniforms_per_row,
)
from trainer.exploration.intrinsic_rewards import RE3, Curiosity
from trainer.exploration.making import (
    EXPLORATIONS,
    ExplorationSpec,
    is_ready_made,
)
from trainer.exploration.noise import (
    GaussianNoise,
    OrnsteinUhlenbeckNoise,
    ParameterNoise,
    PerWorkerGaussianNoise,
    PerWorkerOrnsteinUhlenbeckNoise,
)
from trainer.exploration.schedules import (
    SCHEDULES,
    ConstantSchedule,
    ExplorationSchedule,
    ExponentialSchedule,
    LinearSchedule,
    PiecewiseSchedule,
    PolynomialSchedule,
    read_schedule,
)

__all__ = [
    "EXPLORATIONS",
    "MASKED",
    "RE3",
    "SCHEDULES",
    "ActionChoice",
    "ConstantSchedule",
    "Curiosity",
    "EpsilonGreedy",
    "Exploration",
    "ExplorationSchedule",
    "ExplorationSpec",
    "ExploredChunk",
    "ExploredSample",
    "ExponentialSchedule",
    "GaussianNoise",
    "LinearSchedule",
    "OrnsteinUhlenbeckNoise",
    "ParameterNoise",
    "PerWorkerEpsilonGreedy",
    "PerWorkerGaussianNoise",
    "PerWorkerOrnsteinUhlenbeckNoise",
    "PiecewiseSchedule",
    "PolynomialSchedule",
    "Random",
    "SoftQ",
    "StochasticSampling",
    "WithSubExploration",
    "gumbel_numbers",
    "is_ready_made",
    "normal_numbers",
    "read_schedule",
    "uniforms_per_row",
]
