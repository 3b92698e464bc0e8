"""Neural networks in plain NumPy: parameters, layers, distributions, optimisers, schedules.

Nothing here knows reinforcement learning, envs or spaces. Forward and backward passes are written
by hand, stand next to each other, and are checked against central differences
(`trainer.testing.gradients`).
"""

from trainer.nn.acting import BLOCK_ROWS, ActingForward, matmul_rows
from trainer.nn.activations import ACTIVATIONS, Activation, activation_named
from trainer.nn.categorical import Categorical, MultiCategorical
from trainer.nn.distributions import ActionDistribution, DistributionTerms
from trainer.nn.gaussian import DiagGaussian
from trainer.nn.initializers import INITIALIZERS
from trainer.nn.layers import DenseLayer, LayerSpec
from trainer.nn.mlp import MLP, columns_with_ones
from trainer.nn.optimizers import CLIP_MODES, Adam, GradientClipping
from trainer.nn.parameters import Parameters
from trainer.nn.schedules import Schedule, ScheduleSetting

__all__ = [
    "ACTIVATIONS",
    "BLOCK_ROWS",
    "CLIP_MODES",
    "INITIALIZERS",
    "MLP",
    "ActingForward",
    "ActionDistribution",
    "Activation",
    "Adam",
    "Categorical",
    "DenseLayer",
    "DiagGaussian",
    "DistributionTerms",
    "GradientClipping",
    "LayerSpec",
    "MultiCategorical",
    "Parameters",
    "Schedule",
    "ScheduleSetting",
    "activation_named",
    "columns_with_ones",
    "matmul_rows",
]
