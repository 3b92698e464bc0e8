"""Neural networks in plain NumPy: parameters, layers, distributions, optimisers, schedules.

`torch_network` lets the ready-made ones learn in Torch, which is imported only then.

Nothing here knows reinforcement learning, envs or spaces. Forward and backward passes are written
by hand, stand next to each other, and are checked against central differences
(`trainer.testing.checks`).
"""

from trainer.nn.convolution import (
    PADDINGS,
    ConvolutionSpec,
    ImageNetwork,
    ImageSpec,
    MixedSpec,
    acting_forward,
)
from trainer.nn.deterministic import Deterministic
from trainer.nn.distributions import (
    ActionDistribution,
    Bernoulli,
    Categorical,
    DiagGaussian,
    DistributionTerms,
    MultiCategorical,
    SquashedGaussian,
    from_uniform,
    uniform_width,
)
from trainer.nn.initializers import (
    BIAS_RULES,
    INITIALIZERS,
    KERNEL_RULES,
    LayerDraw,
    TensorDraw,
    name_of_rule,
)
from trainer.nn.layers import (
    ACTIVATIONS,
    MLP,
    ActingForward,
    LayerSpec,
    activation_named,
    columns_with_ones,
    matmul_rows,
)
from trainer.nn.optimizers import (
    CLIP_MODES,
    Adam,
    GradientClipping,
    Parameters,
    Schedule,
    ScheduleSetting,
)
from trainer.nn.product import ProductDistribution
