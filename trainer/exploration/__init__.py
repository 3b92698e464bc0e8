"""Exploration strategies: how actions are chosen from what a module gives, and rewards for novelty.

`docs/exploration.md` has a table of all of them, and how to write your own.
"""

from trainer.exploration.action_choice import MASKED, ActionChoice
from trainer.exploration.curiosity import Curiosity
from trainer.exploration.epsilon_greedy import EpsilonGreedy, PerWorkerEpsilonGreedy
from trainer.exploration.exploration import Exploration
from trainer.exploration.explored_sample import ExploredChunk, ExploredSample
from trainer.exploration.gaussian_noise import GaussianNoise, PerWorkerGaussianNoise
from trainer.exploration.making import (
    EXPLORATIONS,
    NOT_OFFERED_EXPLORATIONS,
    ExplorationSpec,
    is_ready_made,
)
from trainer.exploration.noise_numbers import gumbel_numbers, normal_numbers, uniforms_per_row
from trainer.exploration.ornstein_uhlenbeck_noise import (
    OrnsteinUhlenbeckNoise,
    PerWorkerOrnsteinUhlenbeckNoise,
)
from trainer.exploration.parameter_noise import ParameterNoise
from trainer.exploration.random_actions import Random
from trainer.exploration.re3 import RE3
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
from trainer.exploration.soft_q import SoftQ
from trainer.exploration.stochastic_sampling import StochasticSampling
from trainer.exploration.sub_exploration import WithSubExploration

__all__ = [
    "EXPLORATIONS",
    "MASKED",
    "NOT_OFFERED_EXPLORATIONS",
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
