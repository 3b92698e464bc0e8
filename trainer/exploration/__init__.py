"""Exploration strategies: how actions are chosen from what a module gives, and rewards for novelty.

`docs/exploration.md` has a table of all of them, and how to write your own.
"""

from trainer.exploration.exploration import (
    MASKED,
    ActionChoice,
    ConstantSchedule,
    Exploration,
    ExploredChunk,
    ExploredSample,
    ExponentialSchedule,
    LinearSchedule,
    PiecewiseSchedule,
    PolynomialSchedule,
    WithSubExploration,
    normal_numbers,
    read_schedule,
    uniforms_per_row,
)
from trainer.exploration.intrinsic_rewards import RE3, Curiosity
from trainer.exploration.strategies import (
    EXPLORATIONS,
    EpsilonGreedy,
    ExplorationSpec,
    GaussianNoise,
    OrnsteinUhlenbeckNoise,
    ParameterNoise,
    PerWorkerEpsilonGreedy,
    PerWorkerGaussianNoise,
    PerWorkerOrnsteinUhlenbeckNoise,
    Random,
    SoftQ,
    StateDependentNoise,
    StochasticSampling,
)
