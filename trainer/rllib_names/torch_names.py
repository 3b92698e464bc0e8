"""What RLlib's Torch modules import besides their base class, so that they need other imports only.

    from trainer.rllib_names.torch_names import ValueFunctionAPI, override, try_import_torch

The marker classes say what a module has; here its methods say that.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from callbacks.optional_import import optional_module
from trainer.config.settings import NotProvided as NotProvided
from trainer.connectors import ComputeReturnsToGo as ComputeReturnsToGo
from trainer.connectors import ConnectorV2, FrameStacking
from trainer.modules.torch_actor_critic import ENCODER_OUT as ENCODER_OUT
from trainer.modules.torch_actor_critic import PPOTorchRLModule
from trainer.modules.torch_distributions import TorchCategorical as TorchCategorical
from trainer.modules.torch_distributions import TorchDeterministic as TorchDeterministic
from trainer.modules.torch_distributions import TorchDiagGaussian as TorchDiagGaussian
from trainer.modules.torch_distributions import TorchMultiDistribution as TorchMultiDistribution
from trainer.rllib_names.small_names import FLOAT_MIN as FLOAT_MIN
from trainer.rllib_names.small_names import convert_to_numpy as convert_to_numpy

_Method = TypeVar("_Method", bound=Callable[..., Any])

OLD_ACTION_DIST_LOGITS_KEY: Final = "old_action_dist_logits"
"""What RLlib's APPO calls an output; the one here has none of that name."""
TARGET_NETWORK_ACTION_DIST_INPUTS: Final = "target_network_action_dist_inputs"
"""What RLlib's learners call an output of `forward_target`; those here do not ask for it."""
DefaultPPOTorchRLModule: Final = PPOTorchRLModule
"""What RLlib calls PPO's ready-made network."""
DEFAULT_OPTIMIZER: Final = "default_optimizer"
"""What the optimiser is called that learners make themselves."""
ModuleID: TypeAlias = str
"""What names of modules are called."""
TensorType: TypeAlias = Any
"""What types of tensors are called."""
NetworkType: TypeAlias = Any
"""What types of networks are called."""


EpisodeType: TypeAlias = Any
"""What types of episodes are called."""
FrameStackingEnvToModule: Final = FrameStacking
"""What RLlib calls the piece that stacks observations."""


class FrameStackingLearner(ConnectorV2):
    """The learner's half of `FrameStacking`, which has nothing to do: episodes hold stacks here."""

    def __call__(self, *, batch: dict[str, Any], **_: Any) -> Any:
        """Leaves everything as it is."""
        return batch


class ValueFunctionAPI:
    """Marks a module with `compute_values`."""


class TargetNetworkAPI:
    """Marks a module with target networks; learners here make their own."""


class InferenceOnlyAPI:
    """Marks a module that leaves layers out with `inference_only=True`."""


def override(of: type) -> Callable[[_Method], _Method]:
    """Marks a method that overrides one of a base class; nothing is checked."""
    del of
    return lambda method: method


def try_import_torch(error: bool = False) -> tuple[Any, Any]:
    """The packages `torch` and `torch.nn`.

    Args:
        error: of no effect: an ImportError is always raised if Torch is not installed.
    """
    del error
    torch = optional_module("torch", user="try_import_torch()", extra="torch")
    return torch, torch.nn


def one_hot(x: Any, space: Any) -> Any:
    """One-hot codes of a tensor of choices in a Discrete or MultiDiscrete space, float32."""
    torch = optional_module("torch", user="one_hot()", extra="torch")
    code = torch.nn.functional.one_hot
    if hasattr(space, "nvec"):
        columns = zip(x.long().unbind(-1), space.nvec.ravel().tolist(), strict=True)
        return torch.cat([code(column, count).float() for column, count in columns], dim=-1)
    return code(x.long() - int(space.start), int(space.n)).float()


def make_target_network(network: Any) -> Any:
    """A copy of a `torch.nn.Module` that is not learnt."""
    return copy.deepcopy(network).requires_grad_(False)


def same_padding(
    in_size: Sequence[int], filter_size: int | Sequence[int], stride_size: int | Sequence[int]
) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """The zeros around an image for which a convolution gives ⌈size / stride⌉ outputs.

    Args:
        in_size: height and width.
        filter_size: of the kernel, one number or two.
        stride_size: one number or two.

    Returns:
        (left, right, top, bottom) as `torch.nn.ZeroPad2d` takes it, and the outputs' height and
        width.
    """
    zeros, outputs = [], []
    for size, kernel, stride in zip(in_size, _pair(filter_size), _pair(stride_size), strict=True):
        count = math.ceil(size / stride)
        total = max(0, (count - 1) * stride + kernel - size)
        zeros.append((total // 2, total - total // 2))
        outputs.append(count)
    (top, bottom), (left, right) = zeros
    return (left, right, top, bottom), (outputs[0], outputs[1])


def valid_padding(
    in_size: Sequence[int], filter_size: int | Sequence[int], stride_size: int | Sequence[int]
) -> tuple[int, int]:
    """The outputs' height and width of a convolution without zeros around its image."""
    sides = zip(in_size, _pair(filter_size), _pair(stride_size), strict=True)
    height, width = (math.ceil((size - kernel + 1) / stride) for size, kernel, stride in sides)
    return height, width


def normc_initializer(std: float = 1.0) -> Callable[[Any], None]:
    """A function that draws a weight [N, K] with rows of that length."""

    def draw(weight: Any) -> None:
        weight.data.normal_(0, 1)
        weight.data *= std / weight.data.pow(2).sum(1, keepdim=True).sqrt()

    return draw


def _pair(size: int | Sequence[int]) -> Sequence[int]:
    return (size, size) if isinstance(size, int) else size
