"""A trained policy as one file, for programs without this package: ONNX, Torch, or NumPy alone.

What is written is inference: from an observation to the action that `compute_single_action(obs,
explore=False)` gives, normalisation of observations, masks and scaling of actions included. Results
agree to rounding, not to the bit: others add up in another order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from callbacks.optional_import import optional_module
from checkpoints import PathLike
from checkpoints.policy import FORMAT
from checkpoints.writer import write_whole_file
from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.inference import known_module, refuse_connectors
from trainer.algorithms.policy_graph import PolicyGraph, PolicyNode, PolicyValue, graph_of_policy
from trainer.algorithms.policy_in_torch import exported_program, onnx_model, policy_in_torch
from trainer.algorithms.trained_policy import TrainedPolicy
from trainer.config import AlgorithmConfig
from trainer.connectors import ObservationNormalizer
from trainer.errors import ModuleError
from trainer.modules import RLModule
from trainer.modules.torch_module import TorchRLModule
from trainer.nn.torch_network import torch_library
from trainer.types import Array, ModuleId
from trainer_toolkit.arguments import argument_error, takes
from trainer_toolkit.checks import Check, boolean, path

OPSET: Final = 17
"""Of 2022, which every current runtime reads."""
IR_VERSION: Final = 8
"""Of the file; the one that belongs to that opset."""


def _file(ending: str) -> Check:
    """A path with the ending of a format; another would be read as what it is not."""
    any_path = path()
    return Check(
        f"a path that ends with {ending} (export_onnx writes .onnx, export_torch .pt2, "
        "export_policy .npz)",
        lambda value: any_path.accepts(value) and Path(value).suffix.lower() == ending,
    )


@takes(file=_file(".onnx"), overwrite=boolean())
def export_onnx(
    algorithm: Algorithm | TrainedPolicy,
    file: PathLike,
    *,
    module_id: ModuleId | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes the policy as an ONNX model, and returns the absolute path of the file.

    Inputs: "obs", float32 [batch, *observation shape], and "action_mask", float32 [batch, actions],
    if observations have one; of Dict and Tuple observations every part, "obs/speed" or "obs/0";
    numbers of a Discrete or MultiDiscrete one are int64. Outputs: "action_dist_inputs", float32
    [batch, K] (logits; Q values for DQN; means, and log standard deviations behind them), and
    "action", the most likely action of each row as the env takes it. Needs the extra `onnx`.

    A network with memory takes and gives its state, too: "state_in/h" and "state_in/c" (LSTM) or
    "state_in/h" (GRU), float32 [batch, H], all zeros at the beginning of an episode, come back as
    "state_out/h" and so on, for the next step. With `lstm_use_prev_action`, "state_in/prev_actions"
    is part of it; with `lstm_use_prev_reward` there is an input "prev_rewards", float32 [batch].

    A network in Torch (`TorchRLModule`) is written by `torch.onnx`, for which Torch ≥ 2.6 is
    needed; its state has the names of `get_initial_state()`, and an initial state that is not zero
    stands in the model's metadata, "initial_state", as JSON.

    Args:
        algorithm: whose networks; from a checkpoint: `TrainedPolicy.from_checkpoint(path)`.
        file: where to, with the ending .onnx (.pt2, .npz); it appears whole or not at all.
        module_id: which module of an algorithm; None is the only one.
        overwrite: replace a file that is there already.

    Raises:
        ArgumentError: the file has another ending.
        ImportError: the package `onnx` is not installed.
        ConfigError: there is no such module, or several and none was named.
        ModuleError: the network is a class of your own in NumPy, a ready-made one that reads
            several images, or one in Torch that Torch cannot write down.
        UnsupportedSpaceError: actions are neither Discrete nor a Box of floats.
        CheckpointWriteError: the file is there already, or cannot be written.
    """
    onnx = optional_module("onnx", user="export_onnx", extra="onnx")
    with _policy_of(algorithm, module_id, user="export_onnx") as (policy, facts):
        if isinstance(policy.module, TorchRLModule):
            in_torch = policy_in_torch(*policy)
            model, facts = onnx_model(in_torch), facts | _uncommon_state(in_torch.initial)
        else:
            model = _onnx_model(onnx, graph_of_policy(*policy))
    onnx.helper.set_model_props(model, facts)
    onnx.checker.check_model(model, full_check=True)
    return write_whole_file(file, model.SerializeToString(), overwrite=overwrite)


@takes(file=_file(".pt2"), overwrite=boolean())
def export_torch(
    algorithm: Algorithm | TrainedPolicy,
    file: PathLike,
    *,
    module_id: ModuleId | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes the policy as a program that Torch runs without this package: `torch.export`.

        export_torch(algo, "policy.pt2")
        policy = torch.export.load("policy.pt2").module()
        action = policy(observations)["action"]

    Inputs, in this order, and outputs are those of `export_onnx`; batches of any size. Networks in
    NumPy and in Torch are written alike. Needs the extra `torch`.

    Arguments and errors are those of `export_onnx`.
    """
    torch = torch_library("export_torch")
    with _policy_of(algorithm, module_id, user="export_torch") as (policy, facts):
        in_torch = policy_in_torch(*policy)
    facts |= _uncommon_state(in_torch.initial)
    program = exported_program(in_torch)

    def write(opened: BinaryIO) -> None:
        torch.export.save(program, opened, extra_files={"facts.json": json.dumps(facts)})

    return write_whole_file(file, write, overwrite=overwrite)


@takes(file=_file(".npz"), overwrite=boolean())
def export_policy(
    algorithm: Algorithm | TrainedPolicy,
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
    Networks in Torch are refused.
    """
    with _policy_of(algorithm, module_id, user="export_policy") as (policy, facts):
        if isinstance(policy.module, TorchRLModule):
            raise ModuleError(
                f"The {type(policy.module).__name__} computes in Torch, and a policy file is for "
                "NumPy alone. Write an ONNX model (`export_onnx`, .onnx) or a program of Torch "
                "(`export_torch`, .pt2) instead."
            )
        graph = graph_of_policy(*policy)
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


class _Policy(NamedTuple):
    """What a policy is computed from: the arguments of `graph_of_policy`."""

    module: RLModule
    config: AlgorithmConfig
    normalizer: ObservationNormalizer | None


@contextlib.contextmanager
def _policy_of(
    source: Algorithm | TrainedPolicy, module_id: ModuleId | None, *, user: str
) -> Iterator[tuple[_Policy, dict[str, str]]]:
    """The policy while nothing changes it, and what is told of it."""
    if isinstance(source, TrainedPolicy):
        known_module(module_id, [source.module_id], f"{user}(module_id=…)")
        policy = _Policy(source.module, source.config, source.normalization.observations)
        told_id = source.module_id if source.is_of_several else None
        yield policy, _facts(source.algorithm, source.training_iteration, told_id, policy)
        return
    if not isinstance(source, Algorithm):
        raise argument_error(
            f"{user}()",
            "algorithm",
            source,
            "an Algorithm or a TrainedPolicy, such as `TrainedPolicy.from_checkpoint(path)`",
        )
    module_id = known_module(module_id, source.learners, f"{user}(module_id=…)")
    learner = source.learners[module_id]
    refuse_connectors(source.config, user)
    name = type(source).__name__
    policy = _Policy(learner.module, source.config, learner.normalization.observations)
    told_id = module_id if len(source.learners) > 1 else None
    with source.reading(user):
        yield policy, _facts(name, source.training_iteration, told_id, policy)


def _facts(
    algorithm: str, training_iteration: int, module_id: ModuleId | None, policy: _Policy
) -> dict[str, str]:
    return {
        "algorithm": algorithm,
        "training_iteration": str(training_iteration),
        **({} if module_id is None else {"module_id": module_id}),
        "observation_space": str(policy.module.observation_space),
        "action_space": str(policy.module.action_space),
    }


def _uncommon_state(initial: Mapping[str, Array]) -> dict[str, str]:
    """What is told of a state that does not begin with zeros."""
    if not any(array.any() for array in initial.values()):
        return {}
    return {"initial_state": json.dumps({name: a.tolist() for name, a in initial.items()})}


def _onnx_model(onnx: ModuleType, graph: PolicyGraph) -> Any:
    """The graph as an ONNX model."""
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
    return helper.make_model(
        parts, opset_imports=opsets, ir_version=IR_VERSION, producer_name="local-trainer"
    )
