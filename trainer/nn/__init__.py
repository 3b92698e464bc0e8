"""Neural networks in plain NumPy: parameters, layers, distributions, optimisers, schedules.

Nothing here knows reinforcement learning, envs or spaces. Forward and backward passes are written
by hand, stand next to each other, and are checked against central differences
(`trainer.testing.gradients`).
"""

from trainer.nn.acting import BLOCK_ROWS, ActingForward, matmul_rows
from trainer.nn.activations import ACTIVATIONS, Activation, activation_named
from trainer.nn.bernoulli import Bernoulli
from trainer.nn.categorical import Categorical, MultiCategorical
from trainer.nn.convolution import PADDINGS, ConvolutionSpec, ConvolutionStack, ImageSpec
from trainer.nn.distributions import ActionDistribution, DistributionTerms
from trainer.nn.gaussian import DiagGaussian
from trainer.nn.image_network import ImageNetwork, MixedSpec, acting_forward
from trainer.nn.initializers import (
    BIAS_RULES,
    INITIALIZERS,
    KERNEL_RULES,
    LayerDraw,
    TensorDraw,
    name_of_rule,
)
from trainer.nn.layers import DenseLayer, LayerSpec
from trainer.nn.mlp import MLP, columns_with_ones
from trainer.nn.noise import from_uniform, uniform_width
from trainer.nn.optimizers import CLIP_MODES, Adam, GradientClipping
from trainer.nn.parameters import Parameters
from trainer.nn.product import ProductDistribution
from trainer.nn.schedules import Schedule, ScheduleSetting
from trainer.nn.squashed_gaussian import SquashedGaussian, SquashedSample

__all__ = [
    "ACTIVATIONS",
    "BIAS_RULES",
    "BLOCK_ROWS",
    "CLIP_MODES",
    "INITIALIZERS",
    "KERNEL_RULES",
    "MLP",
    "PADDINGS",
    "ActingForward",
    "ActionDistribution",
    "Activation",
    "Adam",
    "Bernoulli",
    "Categorical",
    "ConvolutionSpec",
    "ConvolutionStack",
    "DenseLayer",
    "DiagGaussian",
    "DistributionTerms",
    "GradientClipping",
    "ImageNetwork",
    "ImageSpec",
    "LayerDraw",
    "LayerSpec",
    "MixedSpec",
    "MultiCategorical",
    "Parameters",
    "ProductDistribution",
    "Schedule",
    "ScheduleSetting",
    "SquashedGaussian",
    "SquashedSample",
    "TensorDraw",
    "acting_forward",
    "activation_named",
    "columns_with_ones",
    "from_uniform",
    "matmul_rows",
    "name_of_rule",
    "uniform_width",
]
