"""A trained policy as one file, for programs without this package: ONNX, or NumPy alone.

What is written is inference: from an observation to the action that `compute_single_action(obs,
explore=False)` gives, normalisation of observations, masks and scaling of actions included. Results
agree to rounding, not to the bit: others add up in another order.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Final

import numpy as np

from callbacks.optional_import import optional_module
from checkpoints import PathLike
from checkpoints.policy import FORMAT
from checkpoints.writer import write_whole_file
from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.inference import known_module, refuse_connectors
from trainer.algorithms.policy_graph import PolicyGraph, PolicyNode, PolicyValue, graph_of_policy
from trainer.types import ModuleId
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import boolean

OPSET: Final = 17
"""Of 2022, which every current runtime reads."""
IR_VERSION: Final = 8
"""Of the file; the one that belongs to that opset."""


@takes(overwrite=boolean())
def export_onnx(
    algorithm: Algorithm,
    file: PathLike,
    *,
    module_id: ModuleId | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes the policy as an ONNX model, and returns the absolute path of the file.

    Inputs: "obs", float32 [batch, *observation shape], and "action_mask", float32 [batch, actions],
    if observations have one. Outputs: "action_dist_inputs", float32 [batch, K] (logits; Q values
    for DQN; means, and log standard deviations behind them), and "action", the most likely action
    of each row as the env takes it. Needs the extra `onnx`.

    A network with memory takes and gives its state, too: "state_in/h" and "state_in/c" (LSTM) or
    "state_in/h" (GRU), float32 [batch, H], all zeros at the beginning of an episode, come back as
    "state_out/h" and so on, for the next step. With `lstm_use_prev_action`, "state_in/prev_actions"
    is part of it; with `lstm_use_prev_reward` there is an input "prev_rewards", float32 [batch].

    Args:
        algorithm: whose networks; from a checkpoint: `Algorithm.from_checkpoint(path)`.
        file: where to; it appears whole or not at all.
        module_id: which module; None is the only one.
        overwrite: replace a file that is there already.

    Raises:
        ImportError: the package `onnx` is not installed.
        ConfigError: there is no such module, or several and none was named.
        ModuleError: the network is none of the ready-made ones in NumPy, or reads several images.
        UnsupportedSpaceError: observations are no Box (with a mask or without), or actions neither
            Discrete nor a Box of floats.
        CheckpointWriteError: the file is there already, or cannot be written.
    """
    onnx = optional_module("onnx", user="export_onnx", extra="onnx")
    graph, facts = _graph(algorithm, module_id, user="export_onnx")
    return write_whole_file(
        file, lambda opened: _write_onnx(onnx, graph, facts, opened), overwrite=overwrite
    )


@takes(overwrite=boolean())
def export_policy(
    algorithm: Algorithm,
    file: PathLike,
    *,
    module_id: ModuleId | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes the policy as an `.npz` file that `checkpoints.policy.load_policy` reads.

    The loader is one file that needs NumPy alone: it can be copied to where the policy is used.

        export_policy(algo, "policy.npz")
        action = load_policy("policy.npz").predict(observation)

    Arguments, inputs, outputs and errors are those of `export_onnx`; nothing needs to be installed.
    """
    graph, facts = _graph(algorithm, module_id, user="export_policy")
    description = {
        "format": FORMAT,
        "inputs": [dataclasses.asdict(value) for value in graph.inputs],
        "outputs": [dataclasses.asdict(value) for value in graph.outputs],
        "nodes": [dataclasses.asdict(node) for node in graph.nodes],
        "facts": facts,
    }
    text = np.frombuffer(json.dumps(description).encode(), np.uint8)

    def write(opened: BinaryIO) -> None:
        np.savez_compressed(opened, allow_pickle=False, policy=text, **graph.constants)

    return write_whole_file(file, write, overwrite=overwrite)


def _graph(
    algorithm: Algorithm, module_id: ModuleId | None, *, user: str
) -> tuple[PolicyGraph, dict[str, str]]:
    """What the policy computes, and what is told of it."""
    module_id = known_module(module_id, algorithm.learners, f"{user}(module_id=…)")
    learner = algorithm.learners[module_id]
    module = learner.module
    refuse_connectors(algorithm.config, user)
    with algorithm.reading(user):
        graph = graph_of_policy(module, algorithm.config, learner.normalization.observations)
    facts = {
        "algorithm": type(algorithm).__name__,
        "training_iteration": str(algorithm.training_iteration),
        **({"module_id": module_id} if len(algorithm.learners) > 1 else {}),
        "observation_space": str(module.observation_space),
        "action_space": str(module.action_space),
    }
    return graph, facts


def _write_onnx(
    onnx: ModuleType, graph: PolicyGraph, facts: dict[str, str], file: BinaryIO
) -> None:
    """Checks the whole model and writes it."""
    helper: Any = onnx.helper

    def code(dtype: str) -> int:
        found: int = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return found

    def declared(value: PolicyValue) -> Any:
        shape = ["batch", *value.shape]
        return helper.make_tensor_value_info(value.name, code(value.dtype), shape)

    def made(node: PolicyNode) -> Any:
        attributes = dict(node.attributes)
        if node.operator == "Cast":
            attributes["to"] = code(attributes["to"])
        return helper.make_node(node.operator, list(node.inputs), [node.output], **attributes)

    parts = helper.make_graph(
        [made(node) for node in graph.nodes],
        "policy",
        [declared(value) for value in graph.inputs],
        [declared(value) for value in graph.outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(
        parts, opset_imports=opsets, ir_version=IR_VERSION, producer_name="local-trainer"
    )
    helper.set_model_props(model, facts)
    onnx.checker.check_model(model, full_check=True)
    file.write(model.SerializeToString())
