"""What a policy computes when it acts, as data: operators from an observation to an action.

It is written down elsewhere (`policy_export`): as an ONNX model, or as a policy file for NumPy. The
operators are those of ONNX; ready-made networks need few of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from checkpoints.policy import PREV_REWARDS, STATE_IN, STATE_OUT
from trainer.config import AlgorithmConfig
from trainer.connectors import ObservationNormalizer
from trainer.episodes.episode_columns import PREV_ACTIONS
from trainer.errors import ModuleError, UnsupportedSpaceError
from trainer.modules import RLModule
from trainer.modules.actor_critic import ActorCriticModule, PolicyModule
from trainer.modules.feature_noise import LEAST_VARIANCE
from trainer.modules.memory import state_form
from trainer.modules.model_config import DefaultModelConfig, image_of
from trainer.modules.policy_and_critics import PolicyAndCritics
from trainer.modules.q_module import QModelConfig, QModule
from trainer.modules.recurrent_module import RecurrentModule, RecurrentPolicyModule
from trainer.modules.spaces import INVALID, observation_size
from trainer.modules.torch_module import TorchRLModule
from trainer.nn import Categorical, Deterministic, DiagGaussian, SquashedGaussian
from trainer.nn.convolution import ImageSpec
from trainer.nn.recurrent import RECURRENT_LAYERS
from trainer.types import Array

# ---- acting networks
#
# The layers of ready-made modules that acting runs through.


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


@dataclass(frozen=True)
class ActingNetwork:
    """Convolutions, if it reads an image, and then dense layers.

    Attributes:
        name: in the names of its tensors.
        image: the convolutions; None for none.
        layers: the dense layers.
    """

    name: str
    image: ImageSpec | None
    layers: list[ActingLayer]


def acting_networks(module: RLModule) -> dict[str, ActingNetwork]:
    """The networks that acting runs through, by name.

    The first one reads observations: "encoder", or "actor" of a network with memory, if there is
    one. What it gives is read by the others: "pi", or "af" and "vf" of a `QModule`. The arrays are
    the module's own.

    Raises:
        ModuleError: the module is not ready-made, or reads images beside other numbers.
    """
    activations = _activations(module)
    if activations is None:
        raise _not_written(module, "is a class of your own, whose computations only you know")
    tensors = module.parameters.views
    image = _image_of(module)
    first = next(iter(activations))
    return {
        name: ActingNetwork(
            name,
            image if name == first else None,
            [
                ActingLayer(tensors[f"{name}/{i}/kernel"], tensors[f"{name}/{i}/bias"], activation)
                for i, activation in enumerate(names)
            ],
        )
        for name, names in activations.items()
    }


def _not_written(module: RLModule, why: str) -> ModuleError:
    return ModuleError(
        f"The {type(module).__name__} {why}, so it cannot be written down. Possible are ready-made "
        "networks that read numbers or one image, and those in Torch; for others, take the weights "
        "(`checkpoints.load_weights`) and compute them yourself."
    )


def _image_of(module: RLModule) -> ImageSpec | None:
    """The convolutions of a ready-made module; None for none."""
    if not any("/conv/" in name for name in module.parameters.views):
        return None
    kind = QModelConfig if type(module) is QModule else DefaultModelConfig
    image = image_of(module, kind.from_setting(module.model_config))
    if not isinstance(image, ImageSpec):
        raise _not_written(module, "reads images beside other numbers, or several")
    return image


def _activations(module: RLModule) -> dict[str, list[str]] | None:
    """The activations of every network; None for a class that is not ready-made."""
    if isinstance(module, PolicyAndCritics) and type(module).__module__.startswith("trainer."):
        return {"pi": [layer.activation for layer in module.policy_layers]}
    if type(module) is QModule:
        config = QModelConfig.from_setting(module.model_config)
        hidden, head = _hidden_and_head(config)
        streams = ["af", "vf"] if config.dueling else ["af"]
        return {"encoder": hidden, **dict.fromkeys(streams, head)}
    if type(module) in (RecurrentModule, RecurrentPolicyModule):
        hidden, head = _hidden_and_head(DefaultModelConfig.from_setting(module.model_config))
        return {_tower_of_policy(module): hidden, "pi": head}
    if type(module) in (ActorCriticModule, PolicyModule):
        settings = DefaultModelConfig.from_setting(module.model_config)
        hidden, head = _hidden_and_head(settings)
        if settings.vf_share_layers:
            return {"encoder": hidden, "pi": head}
        return {"pi": [*hidden, *head]}
    return None


def _tower_of_policy(module: RLModule) -> str:
    """What the tensors of the policy's tower are named after; see `RecurrentModule`."""
    return "actor" if "actor/memory/kernel" in module.parameters.views else "encoder"


def _hidden_and_head(config: DefaultModelConfig) -> tuple[list[str], list[str]]:
    hidden = [config.fcnet_activation or "linear"] * len(config.fcnet_hiddens)
    head = [config.head_fcnet_activation or "linear"] * len(config.head_fcnet_hiddens)
    return hidden, [*head, "linear"]


# ---- graph

NETWORK: Final = "Network"
"""The operator that is a network in Torch; none of ONNX."""
PART: Final = "Part"
"""The operator that gives one of the values of a network; none of ONNX."""

_ACTIVATIONS: Final = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid", "elu": "Elu"}


@dataclass(frozen=True)
class PolicyNode:
    """One operator of ONNX, opset 17, with one output.

    Attributes:
        operator: its name there.
        inputs: names of values.
        output: the name of the value that it gives.
        attributes: its attributes; number types as names of NumPy's.
    """

    operator: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PolicyValue:
    """An input or output of a graph.

    Attributes:
        name: of the value.
        shape: without the batch dimension in front.
        dtype: name of its number type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


class PolicyGraph:
    """A graph that grows: each method adds nodes and returns the name of what they give.

    Attributes:
        nodes: in an order in which they can be computed.
        constants: arrays by name.
        inputs: what is given.
        outputs: what is asked for.
        initial: of inputs that are given back step by step: what they are at the beginning of an
            episode, by name.
    """

    def __init__(self) -> None:
        self.nodes: list[PolicyNode] = []
        self.constants: dict[str, Array] = {}
        self.inputs: list[PolicyValue] = []
        self.outputs: list[PolicyValue] = []
        self.initial: dict[str, Array] = {}

    def input(self, name: str, shape: tuple[int, ...], dtype: Any) -> str:
        """An input [batch, *shape].

        Raises:
            UnsupportedSpaceError: there is one of that name already.
        """
        if any(value.name == name for value in self.inputs):
            raise UnsupportedSpaceError(
                f"Two parts of the observation would both be called {name!r} in what is written. "
                "Give the keys of the Dict space other names, without slashes."
            )
        self.inputs.append(PolicyValue(name, shape, np.dtype(dtype).name))
        return name

    def remembered(self, name: str, initial: Array) -> str:
        """An input [batch, *shape], float32, that begins every episode with these numbers."""
        self.initial[name] = np.array(initial, np.float32)
        return self.input(name, initial.shape, np.float32)

    def output(self, value: str, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        """Declares a value as output [batch, *shape] of that name."""
        self.nodes.append(PolicyNode("Identity", (value,), name))
        self.outputs.append(PolicyValue(name, shape, np.dtype(dtype).name))

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        """A constant array."""
        name = f"constant_{len(self.constants)}"
        # A copy: weights are overwritten by the next update. (Not ascontiguousarray, which gives a
        # number a dimension.)
        self.constants[name] = np.array(array, dtype, order="C")
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """A node of that operator."""
        output = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(PolicyNode(operator, inputs, output, attributes))
        return output

    def cast(self, value: str, dtype: Any) -> str:
        """The value as another number type."""
        return self.add("Cast", value, to=np.dtype(dtype).name)

    def side_by_side(self, values: Sequence[str]) -> str:
        """Values [batch, N] as one, [batch, sum of N]."""
        return values[0] if len(values) == 1 else self.add("Concat", *values, axis=1)

    def columns(self, value: str, start: int, stop: int) -> str:
        """Some columns of [batch, N]."""
        bounds = [self.constant([number], np.int64) for number in (start, stop, 1)]  # dimension 1
        return self.add("Slice", value, *bounds)

    def reshaped(self, value: str, *shape: int) -> str:
        """The value as [batch, *shape]."""
        return self.add("Reshape", value, self.constant([-1, *shape], np.int64))

    def network(self, value: str, network: ActingNetwork, tensors: Mapping[str, Array]) -> str:
        """The outputs [batch, N] of a network."""
        if network.image is not None:
            value = self._convolved(value, network.image, tensors, network.name)
        for layer in network.layers:
            kernel, bias = self.constant(layer.kernel), self.constant(layer.bias)
            value = self.activated(self.add("Gemm", value, kernel, bias), layer.activation)
        return value

    def activated(self, value: str, activation: str) -> str:
        """The value after an activation by its name in `trainer.nn.layers.ACTIVATIONS`."""
        if activation in ("swish", "silu"):
            return self.add("Mul", value, self.add("Sigmoid", value))
        return value if activation == "linear" else self.add(_ACTIVATIONS[activation], value)

    def clipped(self, value: str, low: Array, high: Array, dtype: Any) -> str:
        """The value within bounds."""
        below = self.add("Min", value, self.constant(high, dtype))
        return self.add("Max", below, self.constant(low, dtype))

    def _convolved(
        self, value: str, image: ImageSpec, tensors: Mapping[str, Array], name: str
    ) -> str:
        """The features [batch, F] of flat images, through the convolutions of a network."""
        height, width, channels = image.shape
        if image.channels_first:
            value = self.reshaped(value, channels, height, width)
        else:
            value = self.add("Transpose", self.reshaped(value, *image.shape), perm=[0, 3, 1, 2])
        if image.scale != 1.0:
            value = self.add("Mul", value, self.constant(image.scale))
        shape = image.shape
        for index, spec in enumerate(image.convolutions):
            kernel, bias = (tensors[f"{name}/conv/{index}/{part}"] for part in ("kernel", "bias"))
            (top, bottom), (left, right) = spec.zeros_around(shape)
            value = self.add(
                "Conv",
                value,
                self.constant(kernel.transpose(3, 2, 0, 1)),
                self.constant(bias),
                strides=list(spec.stride),
                pads=[top, left, bottom, right],
            )
            value = self.activated(value, spec.activation)
            shape = spec.output_shape(shape)
        return self.reshaped(self.add("Transpose", value, perm=[0, 2, 3, 1]), image.num_features)


# ---- policy


def graph_of_policy(
    module: RLModule, config: AlgorithmConfig, normalizer: ObservationNormalizer | None
) -> PolicyGraph:
    """From an observation to the action of `compute_single_action(obs, explore=False)`.

    Inputs: "obs", float32 [batch, *shape of the observations], and "action_mask", float32 [batch,
    actions], if they have one. Of Dict and Tuple observations every part is an input, "obs/speed"
    or "obs/0/speed"; of a Discrete one its number, int64 [batch], of a MultiDiscrete one int64
    [batch, *shape]. Outputs: "action_dist_inputs", float32 [batch, K] (logits; Q values for DQN;
    means, and log standard deviations behind them), and "action", the most likely action of each
    row as the env takes it. A network with memory has more of both; see `_step_of_memory`.

    Args:
        module: the network. One in Torch is a single node `NETWORK`; see `_in_torch`.
        config: says what is done to actions.
        normalizer: of the observations, if they are normalised.

    Raises:
        ModuleError: the network is a class of the user's own in NumPy, or one that chooses actions
            itself, or a ready-made one that reads several images, or one beside other numbers.
        UnsupportedSpaceError: actions are neither Discrete nor a Box of floats.
    """
    _check_actions(module)
    if module.gives_actions:
        raise _not_written(module, "chooses actions itself, not by its `action_dist_inputs`")
    graph = PolicyGraph()
    networks = {} if isinstance(module, TorchRLModule) else acting_networks(module)
    obs = _encoded(graph, module)
    mask = None
    if module.action_masks is not None:
        mask = graph.input("action_mask", (module.action_masks.width,), np.float32)
    if normalizer is not None:
        obs = _normalized(graph, obs, normalizer, module.obs_size)
    if isinstance(module, TorchRLModule):
        inputs = _in_torch(graph, obs, mask, module)
    else:
        inputs = _distribution_inputs(graph, obs, module, networks)
    if mask is not None:
        inputs = _masked(graph, inputs, mask)
    if module.is_stateful() and module.model_config.get("lstm_use_prev_action"):
        code, width = _code_of_action(graph, inputs, module), observation_size(module.action_space)
        graph.output(code, f"{STATE_OUT}{PREV_ACTIONS}", (width,), np.float32)
    graph.output(inputs, "action_dist_inputs", (module.action_distribution.num_inputs,), np.float32)
    action, dtype = _action(graph, inputs, module, config)
    graph.output(action, "action", module.action_space.shape or (), dtype)
    return graph


def _check_actions(module: RLModule) -> None:
    known = (Categorical, DiagGaussian, SquashedGaussian, Deterministic)
    if type(module.action_distribution) not in known:
        raise UnsupportedSpaceError(
            "A policy that is written down gives actions of Discrete spaces and of a Box of "
            f"floats; this env has {module.action_space}. Export the weights instead (an .npz "
            "file)."
        )


def _encoded(graph: PolicyGraph, module: RLModule) -> str:
    """Observations as the network reads them, [batch, D]; see `ObservationEncoder`."""
    leaves = list(_named_leaves(module.seen_space, "obs"))
    if len(leaves) == 1:
        leaves = [("obs", leaves[0][1])]  # beside a mask: whatever its key
    return graph.side_by_side([_encoded_leaf(graph, name, space) for name, space in leaves])


def _encoded_leaf(graph: PolicyGraph, name: str, space: Any) -> str:
    shape = space.shape or ()
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return graph.reshaped(graph.input(name, shape, np.float32), math.prod(shape))
    sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
    starts = np.broadcast_to(np.ravel(space.start), sizes.shape)
    numbers = graph.reshaped(graph.input(name, shape, np.int64), len(sizes))
    codes = [
        graph.add(
            "Equal",
            graph.columns(numbers, place, place + 1),
            graph.constant(np.arange(start, start + size), np.int64),
        )
        for place, (size, start) in enumerate(zip(sizes, starts, strict=True))
    ]
    return graph.cast(
        codes[0] if len(codes) == 1 else graph.add("Concat", *codes, axis=1), np.float32
    )


def _named_leaves(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The leaves of a nested space or state, in order, with names such as "obs/speed" or "h/0"."""
    parts = tree.spaces if isinstance(tree, spaces.Dict | spaces.Tuple) else tree
    if not isinstance(parts, Mapping | tuple):
        yield name, tree
        return
    for key, part in parts.items() if isinstance(parts, Mapping) else enumerate(parts):
        yield from _named_leaves(part, f"{name}/{key}")


def _normalized(graph: PolicyGraph, obs: str, normalizer: ObservationNormalizer, size: int) -> str:
    """See `ObservationNormalizer`: in float64 until the end, as there. A mask stands behind."""
    mean, factors, limits = (
        array[:size] for array in (normalizer.mean, normalizer.factors, normalizer.limits)
    )
    numbers = graph.cast(obs, np.float64)
    numbers = graph.add("Sub", numbers, graph.constant(mean, np.float64))
    numbers = graph.add("Mul", numbers, graph.constant(factors, np.float64))
    return graph.cast(graph.clipped(numbers, -limits, limits, np.float64), np.float32)


def _distribution_inputs(
    graph: PolicyGraph, obs: str, module: RLModule, networks: Mapping[str, ActingNetwork]
) -> str:
    tensors = module.parameters.views
    features = obs
    if module.is_stateful():
        features = graph.network(obs, networks[_tower_of_policy(module)], tensors)
        features = _step_of_memory(graph, features, module)
    elif "encoder" in networks:
        features = graph.network(obs, networks["encoder"], tensors)
    if isinstance(module, QModule):
        advantages = graph.network(features, networks["af"], tensors)
        values = None
        if "vf" in networks:
            values = graph.network(features, networks["vf"], tensors)
        return _q_values(graph, advantages, values, module)
    policy, log_std = networks["pi"], tensors.get("pi/log_std")
    if log_std is None:
        return graph.network(features, policy, tensors)
    features = graph.network(features, replace(policy, layers=policy.layers[:-1]), tensors)
    last = replace(policy, image=None, layers=policy.layers[-1:])
    means = graph.network(features, last, tensors)
    if log_std.ndim == 1:
        zeros = graph.add("Mul", means, graph.constant(0.0))  # a row for each row of the batch
        deviations = graph.add("Add", zeros, graph.constant(log_std))
    else:  # by feature, see `FeatureNoise.log_std`
        squares = graph.add("Mul", features, features)
        least = np.full(log_std.shape[1], LEAST_VARIANCE)
        variance = graph.add(
            "Gemm", squares, graph.constant(np.exp(2.0 * log_std)), graph.constant(least)
        )
        deviations = graph.add("Mul", graph.add("Log", variance), graph.constant(0.5))
    return graph.add("Concat", means, deviations, axis=1)


def _in_torch(graph: PolicyGraph, obs: str, mask: str | None, module: TorchRLModule) -> str:
    """What a network in Torch computes, as a node `NETWORK` that gives several values.

    It reads observations with masks behind them; with memory, also the leaves of its state and, by
    the names in `columns`, the step before. It gives the distribution's inputs, and the state
    after.
    """
    given = [graph.side_by_side([obs] if mask is None else [obs, mask])]
    if not module.is_stateful():
        return graph.add(PART, graph.add(NETWORK, *given, columns=()), index=0)
    state = {
        name.removeprefix("/"): leaf for name, leaf in _named_leaves(state_form(module).initial, "")
    }
    given += [graph.remembered(f"{STATE_IN}{name}", leaf) for name, leaf in state.items()]
    previous = _previous_step(graph, module)
    network = graph.add(NETWORK, *given, *previous.values(), columns=tuple(previous))
    for index, (name, leaf) in enumerate(state.items(), start=1):
        after = graph.add(PART, network, index=index)
        graph.output(after, f"{STATE_OUT}{name}", leaf.shape, np.float32)
    return graph.add(PART, network, index=0)


def _previous_step(graph: PolicyGraph, module: RLModule) -> dict[str, str]:
    """The inputs that hold the step before, as far as the network reads it; see `PreviousSteps`."""
    config, inputs = module.model_config, {}
    if config.get("lstm_use_prev_action"):
        nothing = np.zeros(observation_size(module.action_space))
        inputs[PREV_ACTIONS] = graph.remembered(f"{STATE_IN}{PREV_ACTIONS}", nothing)
    if config.get("lstm_use_prev_reward"):
        inputs[PREV_REWARDS] = graph.remembered(PREV_REWARDS, np.zeros(()))
    return inputs


def _step_of_memory(graph: PolicyGraph, features: str, module: RLModule) -> str:
    """One step of the recurrent layer, behind the policy's tower; see `RecurrentModule`.

    More inputs: "state_in/h" and, of an LSTM, "state_in/c", float32 [batch, H]; where the network
    reads them, "state_in/prev_actions", the code of the action before as the network gave it,
    float32 [batch, A], and "prev_rewards", float32 [batch]. All are zeros at the beginning of an
    episode. More outputs: the state after the step, "state_out/..." likewise. The critic's tower is
    left out, for no action follows from it.
    """
    config = DefaultModelConfig.from_setting(module.model_config)
    previous = _previous_step(graph, module)
    if PREV_REWARDS in previous:
        previous[PREV_REWARDS] = graph.reshaped(previous[PREV_REWARDS], 1)
    features = graph.side_by_side([features, *previous.values()])
    kind, width = config.memory or "lstm", config.lstm_cell_size
    state = {
        name: graph.remembered(f"{STATE_IN}{name}", np.zeros(width))
        for name in RECURRENT_LAYERS[kind].state_names
    }
    memory = f"{_tower_of_policy(module)}/memory"
    tensors = {
        name.removeprefix(f"{memory}/"): array
        for name, array in module.parameters.views.items()
        if name.startswith(f"{memory}/")
    }
    kernel, bias = graph.constant(tensors["kernel"]), graph.constant(tensors["bias"])
    step = _lstm_step if kind == "lstm" else _gru_step
    after = step(graph, graph.add("Gemm", features, kernel, bias), state, tensors)
    for name, value in after.items():
        graph.output(value, f"{STATE_OUT}{name}", (width,), np.float32)
    return after["h"]


def _lstm_step(
    graph: PolicyGraph, gates: str, state: Mapping[str, str], tensors: Mapping[str, Array]
) -> dict[str, str]:
    """See `trainer.nn.recurrent.LSTM`; `gates` holds the inputs' part of all gates."""
    width = len(tensors["recurrent"])
    gates = graph.add("Gemm", state["h"], graph.constant(tensors["recurrent"]), gates)
    i, f, g, o = (
        graph.add(function, graph.columns(gates, number * width, (number + 1) * width))
        for number, function in enumerate(("Sigmoid", "Sigmoid", "Tanh", "Sigmoid"))
    )
    kept, new = graph.add("Mul", f, state["c"]), graph.add("Mul", i, g)
    cells = graph.add("Add", kept, new)
    return {"h": graph.add("Mul", o, graph.add("Tanh", cells)), "c": cells}


def _gru_step(
    graph: PolicyGraph, gates: str, state: Mapping[str, str], tensors: Mapping[str, Array]
) -> dict[str, str]:
    """See `trainer.nn.recurrent.GRU`; `gates` holds the inputs' part of all gates."""
    hidden, width = state["h"], len(tensors["recurrent"])
    own_bias = np.concatenate([np.zeros(2 * width, np.float32), tensors["recurrent_bias"]])
    recurrent = graph.add(
        "Gemm", hidden, graph.constant(tensors["recurrent"]), graph.constant(own_bias)
    )
    of_inputs, of_state = (
        [graph.columns(value, number * width, (number + 1) * width) for number in range(3)]
        for value in (gates, recurrent)
    )
    r, z = (
        graph.add("Sigmoid", graph.add("Add", of_inputs[number], of_state[number]))
        for number in range(2)
    )
    reset = graph.add("Mul", r, of_state[2])
    n = graph.add("Tanh", graph.add("Add", of_inputs[2], reset))
    kept = graph.add("Mul", z, graph.add("Sub", hidden, n))
    return {"h": graph.add("Add", n, kept)}


def _masked(graph: PolicyGraph, inputs: str, mask: str) -> str:
    """See `ActionMasks.effective`: where no action is possible, all are."""
    possible = graph.cast(mask, np.bool_)
    some = graph.cast(
        graph.add("ReduceMax", graph.add("Abs", mask), axes=[1], keepdims=1), np.bool_
    )
    allowed = graph.add("Or", possible, graph.add("Not", some))
    return graph.add("Where", allowed, inputs, graph.constant(INVALID))


def _q_values(graph: PolicyGraph, advantages: str, values: str | None, module: QModule) -> str:
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
    graph: PolicyGraph, inputs: str, module: RLModule, config: AlgorithmConfig
) -> tuple[str, Any]:
    """The most likely action as the env takes it, and its number type; see `ActionDecoder`."""
    space = module.action_space
    if isinstance(space, spaces.Discrete):
        number = graph.add("ArgMax", inputs, axis=1, keepdims=0)
        return graph.add("Add", number, graph.constant(int(space.start), np.int64)), np.int64
    return _box_action(graph, inputs, module, config), space.dtype


def _code_of_action(graph: PolicyGraph, inputs: str, module: RLModule) -> str:
    """The most likely action as a network reads it a step later; see `PreviousSteps`."""
    space = module.action_space
    if isinstance(space, spaces.Discrete):
        number = graph.add("ArgMax", inputs, axis=1, keepdims=1)
        numbers = graph.constant(np.arange(int(space.n)), np.int64)
        return graph.cast(graph.add("Equal", number, numbers), np.float32)
    return _means(graph, inputs, module)


def _means(graph: PolicyGraph, inputs: str, module: RLModule) -> str:
    """The most likely action of a Box of floats as the network gives it, [batch, A]."""
    means = graph.columns(inputs, 0, observation_size(module.action_space))
    is_squashed = isinstance(module.action_distribution, SquashedGaussian | Deterministic)
    return graph.add("Tanh", means) if is_squashed else means


def _box_action(graph: PolicyGraph, inputs: str, module: RLModule, config: AlgorithmConfig) -> str:
    """The means of a Box of floats, squashed, scaled and clipped."""
    space: Any = module.action_space
    low, high = space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()
    action = _means(graph, inputs, module)
    dtype = np.float32
    if any(np.abs(x[np.isfinite(x)]).max(initial=0.0) > np.finfo(dtype).max for x in (low, high)):
        dtype = np.float64  # its bounds are beyond float32
        action = graph.cast(action, dtype)
    if config.normalize_actions:
        half_range = 0.5 * high - 0.5 * low
        is_bounded = np.isfinite(half_range)
        factors, middles = np.ones_like(low), np.zeros_like(low)
        factors[is_bounded] = half_range[is_bounded]
        middles[is_bounded] = low[is_bounded] + half_range[is_bounded]
        action = graph.add("Mul", action, graph.constant(factors, dtype))
        action = graph.add("Add", action, graph.constant(middles, dtype))
    if config.normalize_actions or config.clip_actions:
        action = graph.clipped(action, low, high, dtype)
    return graph.cast(graph.reshaped(action, *space.shape), space.dtype)
