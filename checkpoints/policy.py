"""Acts with a policy file, with NumPy and this one file: copy it to where the policy is used.

    policy = load_policy("policy.npz")   # of `local-trainer export RUN policy.npz --policy`
    action = policy.predict(observation)

    action, state = policy.predict(observation, state=state)      # of a network with memory

A file is an `.npz`: constants by name, and under "policy" a JSON text that says which operators of
ONNX lead from the inputs to the outputs. Nothing in a file is executed: operators are looked up in
the table below.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

FORMAT: Final = 1
"""Number of the format; a file with another one is refused."""
STATE_IN: Final = "state_in/"
"""What inputs with the state before a step are called (networks with memory): this and a name."""
STATE_OUT: Final = "state_out/"
"""What outputs with the state after it are called."""
PREV_REWARDS: Final = "prev_rewards"
"""The input with the rewards before, if the network reads them."""

Array = np.ndarray[Any, np.dtype[Any]]


class PolicyFileError(ValueError):
    """A file is no policy, is damaged, or an observation does not fit it."""


def load_policy(file: str | os.PathLike[str]) -> Policy:
    """Reads a policy file.

    Raises:
        FileNotFoundError: there is none.
        PolicyFileError: it is no policy file, or damaged, or of another format.
    """
    try:
        with Path(file).open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            constants = {name: arrays[name] for name in arrays.files}
        described = json.loads(bytes(constants.pop("policy")))
        if described["format"] != FORMAT:
            raise PolicyFileError(
                f"{file} has format {described['format']!r}; this loader reads {FORMAT}. Take the "
                "loader of the version that wrote the file."
            )
        return Policy(described, constants)
    except (OSError, AttributeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise PolicyFileError(_no_policy(file, error)) from error
    except (KeyError, TypeError, ValueError, RecursionError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, PolicyFileError):
            raise
        raise PolicyFileError(_no_policy(file, error)) from error


class Policy:
    """From observations to actions, as the algorithm acts without exploration.

    Attributes:
        inputs: (name, shape without the batch, number type) of what `run` takes.
        outputs: the same of what it gives.
        facts: which algorithm, iteration and spaces it comes from.
    """

    def __init__(self, described: Mapping[str, Any], constants: Mapping[str, Array]) -> None:
        """Users call `load_policy`.

        Raises:
            PolicyFileError: an operator is unknown, or a value is used that nothing gives.
        """
        self.inputs = [_value(value) for value in described["inputs"]]
        self.outputs = [_value(value) for value in described["outputs"]]
        self.facts: dict[str, str] = dict(described["facts"])
        self._constants = dict(constants)
        self._nodes = [
            (node["operator"], list(node["inputs"]), node["output"], dict(node["attributes"]))
            for node in described["nodes"]
        ]
        known = {*self._constants, *(name for name, _, _ in self.inputs)}
        for operator, inputs, output, _ in self._nodes:
            missing = [name for name in inputs if name not in known]
            if operator not in _OPERATORS or missing:
                raise PolicyFileError(
                    f"The policy needs {operator!r} of {missing or inputs}, which is not known "
                    "here. Take the loader of the version that wrote the file."
                )
            known.add(output)

    @property
    def is_stateful(self) -> bool:
        """Whether the network has memory."""
        return any(name.startswith(STATE_IN) for name, _, _ in self.inputs)

    def initial_state(self) -> dict[str, Array]:
        """The state at the beginning of an episode, zeros by name; empty without memory."""
        return {
            name.removeprefix(STATE_IN): np.zeros(shape, dtype)
            for name, shape, dtype in self.inputs
            if name.startswith(STATE_IN)
        }

    def predict(
        self,
        observation: Any,
        action_mask: Any = None,
        *,
        state: Mapping[str, Any] | None = None,
        prev_reward: float | None = None,
    ) -> Any:
        """The action for one observation, as the env takes it.

        Args:
            observation: of the shape that `inputs` says; of a Dict with an action mask, what is
                beside the mask.
            action_mask: which actions are possible, if `inputs` asks for it.
            state: of a network with memory: what the call before returned; None at the beginning
                of an episode. It holds the action before, too, if the network reads it.
            prev_reward: the reward before, if `inputs` asks for it ("prev_rewards"); may be left
                out at the beginning of an episode.

        Returns:
            The action; of a network with memory: (action, state after).

        Raises:
            PolicyFileError: a shape is another, a number is not finite, or the mask, the state or
                the reward is missing, or is not asked for.
        """
        given: dict[str, Any] = {"obs": observation}
        if action_mask is not None:
            given["action_mask"] = action_mask
        if prev_reward is not None:
            given[PREV_REWARDS] = prev_reward
        elif state is None and any(name == PREV_REWARDS for name, _, _ in self.inputs):
            given[PREV_REWARDS] = 0.0
        before = self.initial_state() if state is None else state
        given |= {f"{STATE_IN}{name}": value for name, value in before.items()}
        outputs = self.run({name: [value] for name, value in given.items()})
        action = outputs["action"][0, ...]  # an array also of a Box of shape (), as its envs take
        action = action.item() if action.ndim == 0 and action.dtype.kind in "iu" else action
        if not self.is_stateful:
            return action
        return action, {
            name.removeprefix(STATE_OUT): array[0]
            for name, array in outputs.items()
            if name.startswith(STATE_OUT)
        }

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """All outputs for a batch.

        Args:
            inputs: arrays [batch, *shape] by name.

        Raises:
            PolicyFileError: one is missing, unknown, not finite, or of another shape.
        """
        values = {**self._constants, **self._checked(inputs)}
        for operator, names, output, attributes in self._nodes:
            values[output] = _OPERATORS[operator](*(values[name] for name in names), **attributes)
        return {name: values[name] for name, _, _ in self.outputs}

    def _checked(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        wanted = {name: (shape, dtype) for name, shape, dtype in self.inputs}
        if set(inputs) != set(wanted):
            raise PolicyFileError(
                f"The policy was given {sorted(inputs)}; it takes {sorted(wanted)}: give an "
                "`action_mask`, a `prev_reward` and the `state` that the call before returned "
                "exactly if they are among them."
            )
        checked = {}
        for name, (shape, dtype) in wanted.items():
            try:
                array = np.asarray(inputs[name])
            except ValueError as error:  # lists of different lengths
                raise PolicyFileError(
                    f"The policy was given {name!r} as what is no array ({error}); expected "
                    f"numbers of shape {('batch', *shape)} (`predict`: {shape})."
                ) from error
            if array.shape[1:] != shape or array.ndim == 0 or array.dtype.kind not in "biuf":
                raise PolicyFileError(
                    f"The policy was given {name!r} as {array.dtype} of shape {array.shape}; "
                    f"expected numbers of shape {('batch', *shape)} (`predict`: {shape})."
                )
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise PolicyFileError(
                    f"The policy was given {name!r} with numbers that are not finite, so no action "
                    "follows from it. Look for a missing value or a division by zero where it "
                    "comes from."
                )
            checked[name] = array.astype(dtype)
        lengths = {name: len(array) for name, array in checked.items()}
        if len(set(lengths.values())) > 1:
            raise PolicyFileError(
                f"The policy was given batches of unequal lengths: {lengths}; expected the same "
                "number of rows of each. Give a row of each input for every observation."
            )
        return checked


def _no_policy(file: Any, error: Exception) -> str:
    return (
        f"{file} is no policy file, or damaged ({type(error).__name__}: {error}). Write it again: "
        "local-trainer export RUN policy.npz --policy"
    )


def _value(described: Mapping[str, Any]) -> tuple[str, tuple[int, ...], Any]:
    return described["name"], tuple(described["shape"]), np.dtype(described["dtype"])


# ---- operators, as ONNX defines them (opset 17)


def _sigmoid(value: Array) -> Array:
    exponential = np.exp(-np.abs(value))
    result: Array = np.where(value >= 0, 1, exponential) / (1 + exponential)
    return result


def _elu(value: Array) -> Array:
    return np.where(value > 0, value, np.expm1(np.minimum(value, 0)))


def _softmax(value: Array, axis: int) -> Array:
    exponentials = np.exp(value - value.max(axis=axis, keepdims=True))
    result: Array = exponentials / exponentials.sum(axis=axis, keepdims=True)
    return result


def _slice(value: Array, starts: Array, ends: Array, axes: Array) -> Array:
    cut = [slice(None)] * value.ndim
    for start, end, axis in zip(starts, ends, axes, strict=True):
        cut[axis] = slice(int(start), int(end))
    return value[tuple(cut)]


def _convolution(
    images: Array, kernel: Array, bias: Array, strides: list[int], pads: list[int]
) -> Array:
    """Images [B, C, H, W], kernel [N, C, h, w], zeros (top, left, bottom, right) to [B, N, …]."""
    top, left, bottom, right = pads
    padded = np.pad(images, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape[2:], axis=(2, 3))
    chosen = windows[:, :, :: strides[0], :: strides[1]]
    sums = np.tensordot(chosen, kernel, axes=((1, 4, 5), (1, 2, 3))) + bias
    result: Array = sums.transpose(0, 3, 1, 2)
    return result


_OPERATORS: Final[Mapping[str, Callable[..., Array]]] = {
    "Abs": np.abs,
    "Add": np.add,
    "ArgMax": lambda value, axis, keepdims: value.argmax(axis=axis, keepdims=bool(keepdims)),
    "Cast": lambda value, to: value.astype(to),
    "Concat": lambda *values, axis: np.concatenate(values, axis=axis),
    "Conv": _convolution,
    "Elu": _elu,
    "Equal": np.equal,
    "Gemm": lambda value, kernel, bias: value @ kernel + bias,
    "Identity": lambda value: value,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "ReduceMax": lambda v, axes, keepdims: v.max(axis=tuple(axes), keepdims=bool(keepdims)),
    "ReduceMean": lambda v, axes, keepdims: v.mean(axis=tuple(axes), keepdims=bool(keepdims)),
    "ReduceSum": lambda v, axes, keepdims: v.sum(axis=tuple(axes), keepdims=bool(keepdims)),
    "Relu": lambda value: np.maximum(value, 0),
    "Reshape": lambda value, shape: value.reshape(shape),
    "Sigmoid": _sigmoid,
    "Slice": _slice,
    "Softmax": _softmax,
    "Sub": np.subtract,
    "Tanh": np.tanh,
    "Transpose": lambda value, perm: value.transpose(perm),
    "Where": np.where,
}
