"""Acts with a policy file, with NumPy and this one file: copy it to where the policy is used.

    policy = load_policy("policy.npz")   # of `local-trainer export RUN policy.npz --policy`
    action = policy.predict(observation)

    action, state = policy.predict(observation, state=state)      # of a network with memory

A file is an `.npz`: constants by name, and under "policy" a JSON text that says which operators of
ONNX lead from the inputs to the outputs. Nothing in a file is executed: operators are looked up in
the table below. A file may come from a stranger: whatever is wrong with it is a `PolicyFileError`,
and it takes no more memory than `MAX_FREE_BYTES` and its size account for.
"""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
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

MAX_FREE_BYTES: Final = 64 * 2**20
"""What the arrays of a file may take beyond `MAX_RATIO` times its size."""
MAX_RATIO: Final = 8
"""How many times larger than a file its arrays may be; weights are compressed to 90 %."""
MAX_NUMBERS_PER_ROW: Final = 2**23
"""How many numbers the inputs together may have for one observation, and all operators may give."""

Array = np.ndarray[Any, np.dtype[Any]]

_AGAIN: Final = "write it again: local-trainer export RUN policy.npz --policy"
_HEADER: Final = re.compile(
    rb"\{'descr': '([<>|=][biuf][0-9]{1,2})', 'fortran_order': (False|True), "
    rb"'shape': \(((?:[0-9]{1,18}(?:, |,|(?=\))))*)\), \} *\n"
)
"""What NumPy writes before the numbers of an array; read here without evaluating it."""


class PolicyFileError(ValueError):
    """A file is no policy, is damaged, or an observation does not fit it."""


def load_policy(file: str | os.PathLike[str]) -> Policy:
    """Reads a policy file.

    Raises:
        FileNotFoundError: there is none.
        PolicyFileError: it is no policy file, or damaged, or of another format.
    """
    try:
        with Path(file).open("rb") as opened, zipfile.ZipFile(opened) as archive:
            constants = dict(_arrays_in(archive, os.fstat(opened.fileno()).st_size))
        described = json.loads(bytes(constants.pop("policy")))
        if described["format"] != FORMAT:
            raise PolicyFileError(
                f"{file} has format {described['format']!r:.40}; this loader reads {FORMAT}. Take "
                "the loader of the version that wrote the file."
            )
        return Policy(described, constants)
    except (FileNotFoundError, PolicyFileError):
        raise
    except Exception as error:
        # Any: damage makes zipfile, zlib and NumPy raise a dozen classes, which differ by version.
        raise PolicyFileError(
            f"{file} is no policy file, or damaged ({type(error).__name__}: {error!s:.200}); "
            f"{_AGAIN}"
        ) from error


def _arrays_in(archive: zipfile.ZipFile, file_bytes: int) -> Iterator[tuple[str, Array]]:
    """The arrays of an archive by name; none is made before its size is known to be allowed."""
    most = MAX_FREE_BYTES + MAX_RATIO * file_bytes
    entries = archive.infolist()
    num_bytes = sum(entry.file_size for entry in entries)
    if num_bytes > most:
        raise ValueError(
            f"{num_bytes:,} bytes are packed into {file_bytes:,}, more than the {most:,} allowed"
        )
    for entry in entries:
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{entry.filename!r:.80} is packed in a way that NumPy does not use")
        with archive.open(entry) as member:
            yield entry.filename.removesuffix(".npy"), _array(member, entry)


def _array(member: Any, entry: zipfile.ZipInfo) -> Array:
    """An array in NumPy's format 1.0, as `np.savez` writes it."""
    start = member.read(10)
    if start[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError(f"{entry.filename!r:.80} is no array")
    header_bytes = int.from_bytes(start[8:], "little")
    header = _HEADER.fullmatch(member.read(header_bytes))
    if header is None:
        raise ValueError(f"{entry.filename!r:.80} is no array of numbers")
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(size) for size in header[3].split(b",") if size.strip())
    if math.prod(shape) * dtype.itemsize != entry.file_size - 10 - header_bytes:
        raise ValueError(f"{entry.filename!r:.80} has another size than its shape {shape} says")
    array: Array = np.empty(shape, dtype, order="F" if header[2] == b"True" else "C")
    memory = array.reshape(-1, order="A").view(np.uint8).data
    while memory:  # in pieces: `readinto` makes a copy of what it reads
        num_read = member.readinto(memory[: 2**20])
        if not num_read:
            raise EOFError(f"{entry.filename!r:.80} ends early")
        memory = memory[num_read:]
    return array  # the last piece has been compared with the checksum


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
        self.facts = {str(name): str(fact) for name, fact in described["facts"].items()}
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
                    f"The policy needs {operator!r:.80} of {missing or inputs!r:.200}, which is "
                    "not known here. Take the loader of the version that wrote the file."
                )
            known.add(output)
        outputs = {name for name, _, _ in self.outputs}
        if not outputs <= known or "action" not in outputs:
            raise PolicyFileError(
                f"The policy gives {sorted(outputs & known)}; expected 'action' and all of "
                f"{sorted(outputs)}. It is damaged; {_AGAIN}"
            )
        num_numbers = sum(math.prod(shape) for _, shape, _ in self.inputs)
        if num_numbers > MAX_NUMBERS_PER_ROW:
            raise PolicyFileError(
                f"The policy reads {num_numbers:,} numbers for one observation, more than the "
                f"{MAX_NUMBERS_PER_ROW:,} that it may. It is damaged; {_AGAIN}"
            )

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
            observation: of the shape that `inputs` says; a dict or tuple if they are parts of one
                ("obs/speed"); of a Dict with an action mask, what is beside the mask.
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
        given = {
            name: _part(observation, name)
            for name, _, _ in self.inputs
            if name.split("/")[0] == "obs"
        }
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
        checked = self._checked(inputs)
        num_rows = min(map(len, checked.values()), default=1)
        values, num_left = {**self._constants, **checked}, max(1, num_rows) * MAX_NUMBERS_PER_ROW
        for operator, names, output, attributes in self._nodes:
            arrays = [values[name] for name in names]
            try:
                num_left -= _num_numbers(operator, arrays, attributes)
                if num_left < 0:
                    raise ValueError(f"more than {MAX_NUMBERS_PER_ROW:,} numbers for a row")
                result = np.asarray(_OPERATORS[operator](*arrays, **attributes))
                values[output] = result.astype(_numbers(result.dtype.name), copy=False)
            except Exception as error:  # any: a forged graph puts any value into any operator
                raise PolicyFileError(
                    f"{operator} of arrays of shapes {[array.shape for array in arrays]} failed "
                    f"({type(error).__name__}: {error!s:.200}): the file is damaged; {_AGAIN}"
                ) from error
        self._check_outputs(values, num_rows)
        return {name: values[name] for name, _, _ in self.outputs}

    def _check_outputs(self, values: Mapping[str, Array], num_rows: int) -> None:
        for name, shape, _ in self.outputs:
            if values[name].shape != (num_rows, *shape):
                raise PolicyFileError(
                    f"The policy gave {name!r:.80} of shape {values[name].shape}, and its file "
                    f"says {(num_rows, *shape)}: it is damaged; {_AGAIN}"
                )

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


def _part(observation: Any, name: str) -> Any:
    """The part of an observation that is called "obs/speed" or "obs/0"; all of it for "obs"."""
    part = observation
    for key in name.split("/")[1:]:
        try:
            part = part[key if isinstance(part, Mapping) else int(key)]
        except (LookupError, TypeError, ValueError) as error:
            raise PolicyFileError(
                f"The observation {observation!r:.80} has no part {name!r:.80}. Give it nested as "
                "the env does."
            ) from error
    return part


def _value(described: Mapping[str, Any]) -> tuple[str, tuple[int, ...], Any]:
    name, shape, dtype = described["name"], tuple(described["shape"]), _numbers(described["dtype"])
    sizes_fit = all(type(size) is int and size >= 0 for size in shape)
    if type(name) is not str or not sizes_fit or math.prod(shape) > MAX_NUMBERS_PER_ROW:
        raise ValueError(f"{name!r:.80} of shape {shape!r:.80} is no input and no output")
    return name, shape, dtype


def _numbers(name: Any) -> np.dtype[Any]:
    """The dtype of a name; a ValueError if it is none of numbers."""
    dtype = np.dtype(name if isinstance(name, str) else "O")
    if dtype.kind not in "biuf":
        raise ValueError(f"{name!r:.80} is no type of numbers")
    return dtype


def _num_numbers(operator: str, arrays: list[Array], attributes: Mapping[str, Any]) -> int:
    """How many numbers an operator gives at most, those that it needs meanwhile included."""
    if operator == "Concat":
        return sum(array.size for array in arrays)
    if operator == "Conv":
        (batch, channels, height, width), (_, _, *kernel) = arrays[0].shape, arrays[1].shape
        top, left, bottom, right = (_at_least_zero(pad) for pad in attributes["pads"])
        down, across = (max(1, int(stride)) for stride in attributes["strides"])
        rows, columns = height + top + bottom, width + left + right
        windows = (rows // down + 1) * (columns // across + 1) * math.prod(kernel)
        return int(batch * channels * max(windows, rows * columns))
    if operator == "Gemm":
        value, kernel, bias = arrays
        (_, num_columns) = kernel.shape
        return math.prod(np.broadcast_shapes((*value.shape[:-1], num_columns), bias.shape))
    if operator in _OF_ONE_ARRAY:
        return arrays[0].size
    return math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))


def _at_least_zero(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"{number!r:.40} is no number of zeros")
    return number


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


def _where(condition: Array, value: Array, other: Array) -> Array:
    return np.where(condition, value, other)


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
    "Cast": lambda value, to: value.astype(_numbers(to)),
    "Concat": lambda *values, axis: np.concatenate(values, axis=axis),
    "Conv": _convolution,
    "Elu": _elu,
    "Equal": np.equal,
    "Gemm": lambda value, kernel, bias: value @ kernel + bias,
    "Identity": lambda value: value,
    "Log": np.log,
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
    "Where": _where,
}

_OF_ONE_ARRAY: Final = frozenset(
    ("ArgMax", "ReduceMax", "ReduceMean", "ReduceSum", "Reshape", "Slice", "Softmax", "Transpose")
)
"""Those that give at most as many numbers as their first array has."""
