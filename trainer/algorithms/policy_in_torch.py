"""A policy as a plain `torch.nn.Module`: from observations to actions, in Torch alone.

The operators of a `PolicyGraph` are computed by Torch; a network in Torch is the user's own layers.
From such a module come exported programs (`torch.export`) and ONNX models of networks in Torch.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from callbacks.optional_import import optional_module
from trainer.algorithms.policy_graph import NETWORK, PART, PolicyGraph, PolicyNode, graph_of_policy
from trainer.config import AlgorithmConfig
from trainer.connectors import ObservationNormalizer
from trainer.errors import ModuleError
from trainer.modules import RLModule
from trainer.modules.torch_module import TorchRLModule
from trainer.nn.torch_network import torch_library

_NUMBERS_FIRST: Final = frozenset(("Reshape", "Slice", "ReduceSum"))
"""Operators that take constants as numbers, not as tensors: shapes, bounds, axes."""
_EXAMPLE_ROWS: Final = 3
"""Of a batch that is traced; sizes of 0 and 1 are special to Torch."""


def policy_in_torch(
    module: RLModule, config: AlgorithmConfig, normalizer: ObservationNormalizer | None
) -> Any:
    """The policy as a `torch.nn.Module` in evaluation mode; see `TrainedPolicy.to_torch`.

    Arguments and errors are those of `graph_of_policy`; an ImportError if Torch is not installed.
    """
    torch = torch_library("to_torch()")
    graph = graph_of_policy(module, config, normalizer)
    return _policy_class(torch)(graph, module).train(False)


def exported_program(policy: Any) -> Any:
    """A policy that `policy_in_torch` made, as a `torch.export.ExportedProgram` for any batch size.

    Raises:
        ModuleError: Torch cannot write the network down, or only for one number of rows.
    """
    torch = torch_library("export_torch")
    examples = tuple(
        torch.zeros((_EXAMPLE_ROWS, *value.shape), dtype=getattr(torch, value.dtype))
        for value in policy.inputs
    )
    try:
        with _without_own_warnings(), torch.no_grad():
            return torch.export.export(policy, examples, dynamic_shapes=_rows_of(torch, policy))
    except Exception as cause:  # any: Torch runs the user's code, and reports in a dozen classes
        raise ModuleError(
            f"Torch cannot write this network down ({_first_line(cause)}). Its forward pass must "
            "be tensors and their operations, for any number of rows: `x.shape[0]` instead of "
            "`len(x)`, no `.item()`, no `if` about what is in a tensor."
        ) from cause


def onnx_model(policy: Any) -> Any:
    """A policy that `policy_in_torch` made, as an ONNX model (`onnx.ModelProto`).

    Raises:
        ImportError: the package `onnxscript`, with which Torch writes such models, is missing.
        ModuleError: Torch cannot write the network down, or ONNX lacks an operator.
    """
    torch = torch_library("export_onnx")
    optional_module("onnxscript", user="export_onnx of a network in Torch", extra="onnx")
    program = exported_program(policy)
    try:
        with _without_own_warnings(), torch.no_grad():
            return torch.onnx.export(
                program,
                input_names=[value.name for value in policy.inputs],
                output_names=[value.name for value in policy.outputs],
                dynamic_shapes=_rows_of(torch, policy),
                dynamo=True,
                verbose=False,
            ).model_proto
    except Exception as cause:  # any: see `exported_program`
        raise ModuleError(
            f"Torch cannot turn this network into ONNX ({_first_line(cause)}). Use operations that "
            "ONNX has, or write a program of Torch instead: a file that ends with .pt2."
        ) from cause


def _rows_of(torch: Any, policy: Any) -> Any:
    """What says to Torch that every input begins with the same number of rows, whatever it is."""
    rows = torch.export.Dim("batch")
    return (tuple({0: rows} for _ in policy.inputs),)


@contextlib.contextmanager
def _without_own_warnings() -> Iterator[None]:
    """Keeps back what Torch says about its own parts: deprecated functions, torchvision, LSTM."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _first_line(error: Exception) -> str:
    first, _, _ = str(error).strip().partition("\n")
    return f"{type(error).__name__}: {first:.300}"


@functools.cache
def _policy_class(torch: Any) -> type[Any]:
    """The class of such modules; made late, for Torch is optional."""

    class Policy(torch.nn.Module):  # type: ignore[misc]
        """From observations to actions; see `TrainedPolicy.to_torch`."""

        def __init__(self, graph: PolicyGraph, module: RLModule) -> None:
            super().__init__()
            self.inputs, self.outputs = tuple(graph.inputs), tuple(graph.outputs)
            self._nodes = tuple(_with_numbers(node, graph.constants) for node in graph.nodes)
            used = {name for node in self._nodes for name in node.inputs}
            for name, array in graph.constants.items():
                if name in used:
                    self.register_buffer(name, torch.from_numpy(array))
            self.network: Any = _Layers(module) if isinstance(module, TorchRLModule) else None
            self.initial = dict(graph.initial)

        def forward(self, *inputs: Any) -> dict[str, Any]:
            if len(inputs) != len(self.inputs):
                raise ModuleError(
                    f"The policy was given {len(inputs)} tensors; it takes {len(self.inputs)}: "
                    f"{', '.join(value.name for value in self.inputs)}. Give them in this order."
                )
            values = dict(self.named_buffers(recurse=False))
            for value, tensor in zip(self.inputs, inputs, strict=True):
                values[value.name] = tensor.to(getattr(torch, value.dtype))
            for node in self._nodes:
                function = self._network if node.operator == NETWORK else operators[node.operator]
                tensors = [values[name] for name in node.inputs]
                values[node.output] = function(*tensors, **node.attributes)
            return {value.name: values[value.name] for value in self.outputs}

        def initial_state(self, batch_size: int = 1) -> list[Any]:
            """The inputs behind observation and mask at the beginning of episodes, in order."""
            return [
                torch.from_numpy(np.stack([array] * batch_size)) for array in self.initial.values()
            ]

        def _network(self, rows: Any, *others: Any, columns: Sequence[str]) -> Any:
            border = len(others) - len(columns)
            steps = dict(zip(columns, others[border:], strict=True))
            return self.network(rows, others[:border], steps)

    class _Layers(torch.nn.Module):  # type: ignore[misc]
        """The layers of a `TorchRLModule`, a copy of its own, and its forward pass of acting."""

        def __init__(self, module: TorchRLModule) -> None:
            super().__init__()
            _, arguments = module.get_ctor_args_and_kwargs()
            actor = type(module)(**{**arguments, "inference_only": True})
            actor.set_state(module.get_state())
            self.layers = actor._torch_layers.container
            self._acting, self._module = actor._torch_layers, module

        def __deepcopy__(self, memo: dict[int, Any]) -> _Layers:
            made = _Layers(self._module)
            made.load_state_dict(self.state_dict())
            where = next(iter(self.state_dict().values()), torch.zeros(0)).device
            made.train(self.training).to(where)
            return made

        def forward(self, rows: Any, state: Sequence[Any], columns: Mapping[str, Any]) -> Any:
            return self._acting.act_as_part(rows, state, columns)

    operators = _operators(torch)
    return Policy


def _with_numbers(node: PolicyNode, constants: Mapping[str, Any]) -> PolicyNode:
    """The node with constants that say how it computes as attributes, named as in `_operators`."""
    if node.operator not in _NUMBERS_FIRST:
        return node
    value, *others = node.inputs
    numbers = [constants[name].tolist() for name in others]
    return PolicyNode(node.operator, (value,), node.output, {**node.attributes, "numbers": numbers})


def _operators(torch: Any) -> dict[str, Callable[..., Any]]:
    """The operators that a `PolicyGraph` holds, by their names in ONNX (opset 17)."""
    functional = torch.nn.functional

    def convolution(
        images: Any, kernel: Any, bias: Any, strides: list[int], pads: list[int]
    ) -> Any:
        top, left, bottom, right = pads
        padded = functional.pad(images, (left, right, top, bottom))
        return functional.conv2d(padded, kernel, bias, stride=tuple(strides))

    def columns(value: Any, numbers: list[list[int]]) -> Any:
        (start,), (stop,), (axis,) = numbers
        return value.narrow(axis, start, stop - start)

    return {
        "Abs": torch.abs,
        "Add": torch.add,
        "ArgMax": lambda value, axis, keepdims: value.argmax(axis, keepdim=bool(keepdims)),
        "Cast": lambda value, to: value.to(getattr(torch, to)),
        "Concat": lambda *values, axis: torch.cat(values, dim=axis),
        "Conv": convolution,
        "Elu": functional.elu,
        "Equal": torch.eq,
        "Gemm": lambda value, kernel, bias: value @ kernel + bias,
        "Identity": lambda value: value,
        "Log": torch.log,
        "Max": torch.maximum,
        "Min": torch.minimum,
        "Mul": torch.mul,
        "Not": torch.logical_not,
        "Or": torch.logical_or,
        "ReduceMax": lambda v, axes, keepdims: v.amax(axes, keepdim=bool(keepdims)),
        "ReduceMean": lambda v, axes, keepdims: v.mean(axes, keepdim=bool(keepdims)),
        "ReduceSum": lambda v, numbers, keepdims: v.sum(numbers[0], keepdim=bool(keepdims)),
        "Relu": torch.relu,
        "Reshape": lambda value, numbers: value.reshape(numbers[0]),
        "Sigmoid": torch.sigmoid,
        "Slice": columns,
        "Softmax": lambda value, axis: value.softmax(axis),
        "Sub": torch.sub,
        "Tanh": torch.tanh,
        "Transpose": lambda value, perm: value.permute(perm),
        "Where": torch.where,
        PART: lambda values, index: values[index],
    }
