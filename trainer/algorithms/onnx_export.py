"""A trained policy as an ONNX file, for programs without Python or without this package.

What is written is inference: from an observation to the action that `compute_single_action(obs,
explore=False)` gives, normalisation of observations and scaling of actions included. Results agree
to rounding, not to the bit: other runtimes add up in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Final

import numpy as np
from gymnasium import spaces

from callbacks.optional_import import optional_module
from checkpoints import PathLike
from checkpoints.arguments import checked_arguments
from checkpoints.writer import write_whole_file
from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.inference import known_module
from trainer.config import AlgorithmConfig
from trainer.connectors import ObservationNormalizer
from trainer.errors import ModuleError, UnsupportedSpaceError
from trainer.modules import RLModule
from trainer.modules.actor_critic import ActorCriticModule, PolicyModule
from trainer.modules.model_config import DefaultModelConfig
from trainer.modules.q_module import QModelConfig, QModule
from trainer.modules.sac_module import SACModelConfig, SACModule
from trainer.modules.torch_module import TorchRLModule
from trainer.nn import Categorical, DiagGaussian, SquashedGaussian
from trainer.types import Array, ModuleId

# ---- acting layers
#
# What a ready-made module computes when it acts, as data: for whoever writes it down elsewhere.


@dataclass(frozen=True)
class ActingLayer:
    """y = f(x · kernel + bias).

    Attributes:
        kernel: float32 [K, N].
        bias: float32 [N].
        activation: name of f in `trainer.nn.layers.ACTIVATIONS`.
    """

    kernel: Array
    bias: Array
    activation: str


def acting_layers(module: RLModule) -> dict[str, list[ActingLayer]]:
    """The dense layers that acting runs through, by network.

    "encoder" comes first, if there is one; what it gives is read by the others: "pi", or "af" and
    "vf" of a `QModule`. The arrays are the module's own.

    Raises:
        ModuleError: the module is not ready-made, reads images, or has action masks.
    """
    activations = _activations(module)
    problem = None
    if activations is None:
        problem = "is a class of your own, whose computations only you know"
        if isinstance(module, TorchRLModule):
            problem = "is written in Torch (`torch.onnx.export` writes its layers)"
        if module.is_stateful():
            problem = "has memory, whose states would be inputs and outputs of the model"
    elif module.action_masks is not None:
        problem = "has action masks, which are no part of its layers"
    elif any("/conv/" in name for name in module.parameters.views):
        problem = "reads images through convolutions"
    if problem or activations is None:
        raise ModuleError(
            f"The {type(module).__name__} {problem}, so it cannot be written down as a chain of "
            "dense layers. Possible are ready-made networks of dense layers; for others, take the "
            "weights (`checkpoints.load_weights`) and compute them yourself."
        )
    tensors = module.parameters.views
    return {
        network: [
            ActingLayer(tensors[f"{network}/{i}/kernel"], tensors[f"{network}/{i}/bias"], name)
            for i, name in enumerate(names)
        ]
        for network, names in activations.items()
        if names
    }


def _activations(module: RLModule) -> dict[str, list[str]] | None:
    """The activations of every network; None for a class that is not ready-made."""
    if type(module) is SACModule:
        policy = SACModelConfig.from_setting(module.model_config).layers("policy", 1)
        return {"pi": [layer.activation for layer in policy]}
    if type(module) is QModule:
        config = QModelConfig.from_setting(module.model_config)
        hidden, head = _hidden_and_head(config)
        streams = ["af", "vf"] if config.dueling else ["af"]
        return {"encoder": hidden, **dict.fromkeys(streams, head)}
    if type(module) in (ActorCriticModule, PolicyModule):
        settings = DefaultModelConfig.from_setting(module.model_config)
        hidden, head = _hidden_and_head(settings)
        if settings.vf_share_layers:
            return {"encoder": hidden, "pi": head}
        return {"pi": [*hidden, *head]}
    return None


def _hidden_and_head(config: DefaultModelConfig) -> tuple[list[str], list[str]]:
    hidden = [config.fcnet_activation or "linear"] * len(config.fcnet_hiddens)
    head = [config.head_fcnet_activation or "linear"] * len(config.head_fcnet_hiddens)
    return hidden, [*head, "linear"]


# ---- onnx graph
#
# Nodes and constants of an ONNX graph, one after another; knows nothing of policies.

OPSET: Final = 17
"""Of 2022, which every current runtime reads."""
IR_VERSION: Final = 8
"""Of the file; the one that belongs to that opset."""

_ACTIVATIONS: Final = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid", "elu": "Elu"}


class OnnxGraph:
    """A graph that grows: each method adds nodes and returns the name of what they give.

    Raises:
        ImportError: the package `onnx` is not installed (made by `OnnxGraph()`).
    """

    def __init__(self) -> None:
        self._onnx: ModuleType = optional_module("onnx", user="export_onnx", extra="onnx")
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._values: dict[str, list[Any]] = {"inputs": [], "outputs": []}

    def input(self, name: str, shape: tuple[int, ...], dtype: Any) -> str:
        """An input [batch, *shape]."""
        self._values["inputs"].append(self._value(name, shape, dtype))
        return name

    def output(self, value: str, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        """Declares a value as output [batch, *shape] of that name."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._values["outputs"].append(self._value(name, shape, dtype))

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        """A constant array."""
        name = f"constant_{len(self._constants)}"
        values = np.ascontiguousarray(array, dtype)
        self._constants.append(self._onnx.numpy_helper.from_array(values, name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """A node of that ONNX operator with one output."""
        output = f"{operator.lower()}_{len(self._nodes)}"
        node = self._onnx.helper.make_node(operator, list(inputs), [output], **attributes)
        self._nodes.append(node)
        return output

    def cast(self, value: str, dtype: Any) -> str:
        """The value as another number type."""
        return self.add("Cast", value, to=self._type(dtype))

    def reshaped(self, value: str, *shape: int) -> str:
        """The value as [batch, *shape]."""
        return self.add("Reshape", value, self.constant([-1, *shape], np.int64))

    def dense(self, value: str, layers: list[ActingLayer]) -> str:
        """A chain of dense layers."""
        for layer in layers:
            kernel, bias = self.constant(layer.kernel), self.constant(layer.bias)
            value = self.add("Gemm", value, kernel, bias)
            if layer.activation in ("swish", "silu"):
                value = self.add("Mul", value, self.add("Sigmoid", value))
            elif layer.activation != "linear":
                value = self.add(_ACTIVATIONS[layer.activation], value)
        return value

    def clipped(self, value: str, low: Array, high: Array, dtype: Any) -> str:
        """The value within bounds."""
        below = self.add("Min", value, self.constant(high, dtype))
        return self.add("Max", below, self.constant(low, dtype))

    def write(self, file: BinaryIO, *, facts: dict[str, str]) -> None:
        """Checks the whole model and writes it.

        Args:
            file: where to.
            facts: texts that go into the model's properties.
        """
        helper = self._onnx.helper
        graph = helper.make_graph(
            self._nodes,
            "policy",
            self._values["inputs"],
            self._values["outputs"],
            self._constants,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="local-trainer"
        )
        helper.set_model_props(model, facts)
        self._onnx.checker.check_model(model, full_check=True)
        file.write(model.SerializeToString())

    def _value(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        shape_with_batch = ["batch", *shape]
        helper = self._onnx.helper
        return helper.make_tensor_value_info(name, self._type(dtype), shape_with_batch)

    def _type(self, dtype: Any) -> int:
        code: int = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return code


# ---- onnx export


@checked_arguments
def export_onnx(
    algorithm: Algorithm,
    file: PathLike,
    *,
    module_id: ModuleId | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes the policy as an ONNX model, and returns the absolute path of the file.

    Input: "obs", float32 [batch, *observation shape]. Outputs: "action_dist_inputs", float32
    [batch, K] (logits; Q values for DQN; means, and log standard deviations behind them), and
    "action", the most likely action of each row as the env takes it. Needs the extra `onnx`.

    Args:
        algorithm: whose networks; from a checkpoint: `Algorithm.from_checkpoint(path)`.
        file: where to; it appears whole or not at all.
        module_id: which module; None is the only one.
        overwrite: replace a file that is there already.

    Raises:
        ImportError: the package `onnx` is not installed.
        ConfigError: there is no such module, or several and none was named.
        ModuleError: the network is not made of dense layers only, or has action masks.
        UnsupportedSpaceError: observations are no Box, or actions neither Discrete nor a Box of
            floats.
        CheckpointWriteError: the file is there already, or cannot be written.
    """
    module_id = known_module(module_id, algorithm.learners, "export_onnx(module_id=…)")
    learner = algorithm.learners[module_id]
    module = learner.module
    algorithm._refuse_with_connectors("export_onnx")
    _check_spaces(module)
    graph = OnnxGraph()
    shape = module.observation_space.shape or ()
    obs = graph.reshaped(graph.input("obs", shape, np.float32), module.obs_size)
    normalizer = learner.normalization.observations
    if normalizer is not None:
        obs = _normalized(graph, obs, normalizer)
    inputs = _distribution_inputs(graph, obs, module)
    width = module.action_distribution.num_inputs
    graph.output(inputs, "action_dist_inputs", (width,), np.float32)
    action, dtype = _action(graph, inputs, module, algorithm.config)
    graph.output(action, "action", module.action_space.shape or (), dtype)
    facts = {
        "algorithm": type(algorithm).__name__,
        "training_iteration": str(algorithm.training_iteration),
        **({"module_id": module_id} if len(algorithm.learners) > 1 else {}),
        "observation_space": str(module.observation_space),
        "action_space": str(module.action_space),
    }
    return write_whole_file(
        file, lambda opened: graph.write(opened, facts=facts), overwrite=overwrite
    )


def _check_spaces(module: RLModule) -> None:
    acting_layers(module)  # the clearer error for masks and images comes first
    space = module.observation_space
    if not isinstance(space, spaces.Box):
        raise UnsupportedSpaceError(
            f"ONNX export takes observations of a Box; this env has {space}, which is encoded "
            "before the network reads it. Wrap the env so that it gives one array of numbers, or "
            "export the weights and encode observations yourself."
        )
    if type(module.action_distribution) not in (Categorical, DiagGaussian, SquashedGaussian):
        raise UnsupportedSpaceError(
            f"ONNX export gives actions of Discrete spaces and of a Box of floats; this env has "
            f"{module.action_space}. Export the weights instead (an .npz file)."
        )


def _normalized(graph: OnnxGraph, obs: str, normalizer: ObservationNormalizer) -> str:
    """See `ObservationNormalizer`: in float64 until the end, as there."""
    numbers = graph.cast(obs, np.float64)
    numbers = graph.add("Sub", numbers, graph.constant(normalizer.mean, np.float64))
    numbers = graph.add("Mul", numbers, graph.constant(normalizer.factors, np.float64))
    limits = normalizer.limits
    return graph.cast(graph.clipped(numbers, -limits, limits, np.float64), np.float32)


def _distribution_inputs(graph: OnnxGraph, obs: str, module: RLModule) -> str:
    networks = acting_layers(module)
    features = graph.dense(obs, networks.get("encoder", []))
    if isinstance(module, QModule):
        advantages = graph.dense(features, networks["af"])
        values = graph.dense(features, networks["vf"]) if "vf" in networks else None
        return _q_values(graph, advantages, values, module)
    outputs = graph.dense(features, networks["pi"])
    log_std = module.parameters.views.get("pi/log_std")
    if log_std is None:
        return outputs
    zeros = graph.add("Mul", outputs, graph.constant(0.0))  # a row for each row of the batch
    return graph.add("Concat", outputs, graph.add("Add", zeros, graph.constant(log_std)), axis=1)


def _q_values(graph: OnnxGraph, advantages: str, values: str | None, module: QModule) -> str:
    """See `QModule.forward_acting`."""
    num_atoms = len(module.atoms)
    by_action = graph.reshaped(advantages, module.num_actions, num_atoms)
    if values is not None:
        mean = graph.add("ReduceMean", by_action, axes=[1], keepdims=1)
        by_action = graph.add("Sub", by_action, mean)
        by_action = graph.add("Add", by_action, graph.reshaped(values, 1, num_atoms))
    if num_atoms == 1:
        return graph.reshaped(by_action, module.num_actions)
    weighted = graph.add(
        "Mul", graph.add("Softmax", by_action, axis=2), graph.constant(module.atoms)
    )
    return graph.add("ReduceSum", weighted, graph.constant([2], np.int64), keepdims=0)


def _action(
    graph: OnnxGraph, inputs: str, module: RLModule, config: AlgorithmConfig
) -> tuple[str, Any]:
    """The most likely action as the env takes it, and its number type; see `ActionDecoder`."""
    space = module.action_space
    if isinstance(space, spaces.Discrete):
        number = graph.add("ArgMax", inputs, axis=1, keepdims=0)
        return graph.add("Add", number, graph.constant(int(space.start), np.int64)), np.int64
    return _box_action(graph, inputs, module, config), space.dtype


def _box_action(graph: OnnxGraph, inputs: str, module: RLModule, config: AlgorithmConfig) -> str:
    """The means of a Box of floats, squashed, scaled and clipped."""
    space: Any = module.action_space
    low, high = space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()
    bounds = [graph.constant([number], np.int64) for number in (0, low.size, 1)]  # of dimension 1
    action = graph.add("Slice", inputs, *bounds)
    if isinstance(module.action_distribution, SquashedGaussian):
        action = graph.add("Tanh", action)
    if config.normalize_actions:
        half_range = 0.5 * high - 0.5 * low
        is_bounded = np.isfinite(half_range)
        factors, middles = np.ones_like(low), np.zeros_like(low)
        factors[is_bounded] = half_range[is_bounded]
        middles[is_bounded] = low[is_bounded] + half_range[is_bounded]
        action = graph.add("Mul", action, graph.constant(factors))
        action = graph.add("Add", action, graph.constant(middles))
    if config.normalize_actions or config.clip_actions:
        action = graph.clipped(action, low, high, np.float32)
    return graph.cast(graph.reshaped(action, *space.shape), space.dtype)
