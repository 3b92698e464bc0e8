"""Nodes and constants of an ONNX graph, one after another; knows nothing of policies."""

from __future__ import annotations

from types import ModuleType
from typing import Any, BinaryIO, Final

import numpy as np

from callbacks.optional_import import optional_module
from trainer.modules.acting_layers import ActingLayer
from trainer.types import Array

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
