"""A trained policy as an ONNX file, for programs without Python or without this package.

What is written is inference: from an observation to the action that `compute_single_action(obs,
explore=False)` gives, normalisation of observations and scaling of actions included. Results agree
to rounding, not to the bit: other runtimes add up in another order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from checkpoints import PathLike
from checkpoints.arguments import checked_arguments
from checkpoints.whole_file import write_whole_file
from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.onnx_graph import OnnxGraph
from trainer.config import AlgorithmConfig
from trainer.connectors import ObservationNormalizer
from trainer.errors import UnsupportedSpaceError
from trainer.modules import RLModule
from trainer.modules.acting_layers import acting_layers
from trainer.modules.q_module import QModule
from trainer.nn import Categorical, DiagGaussian, SquashedGaussian


@checked_arguments
def export_onnx(algorithm: Algorithm, file: PathLike, *, overwrite: bool = False) -> Path:
    """Writes the policy as an ONNX model, and returns the absolute path of the file.

    Input: "obs", float32 [batch, *observation shape]. Outputs: "action_dist_inputs", float32
    [batch, K] (logits; Q values for DQN; means, and log standard deviations behind them), and
    "action", the most likely action of each row as the env takes it. Needs the extra `onnx`.

    Args:
        algorithm: whose networks; from a checkpoint: `Algorithm.from_checkpoint(path)`.
        file: where to; it appears whole or not at all.
        overwrite: replace a file that is there already.

    Raises:
        ImportError: the package `onnx` is not installed.
        ModuleError: the network is not made of dense layers only, or has action masks.
        UnsupportedSpaceError: observations are no Box, or actions neither Discrete nor a Box of
            floats.
        CheckpointWriteError: the file is there already, or cannot be written.
    """
    module = algorithm.learner.module
    algorithm._refuse_with_connectors("export_onnx")
    _check_spaces(module)
    graph = OnnxGraph()
    shape = module.observation_space.shape or ()
    obs = graph.reshaped(graph.input("obs", shape, np.float32), module.obs_size)
    normalizer = algorithm.normalization.observations
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
