"""The numbers a network learns: one contiguous vector, seen through named arrays.

Optimiser, clipping, hashing and broadcasting work on `flat` in single vector operations; layers
read and write the named views. Both are the same memory, so nothing is ever copied between them.
The gradients of a network are a second `Parameters` of the same shapes. How the numbers are first
drawn is decided in `trainer.nn.layers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from checkpoints import state_array
from trainer.errors import ModuleError
from trainer.types import Array, State

Shapes = Mapping[str, tuple[int, ...]]
"""The shape of every tensor by name, in the order of the flat vector."""


_ALIGNMENT: Final = 64
"""Bytes of a cache line, and of the widest vector registers."""


class Parameters:
    """Named tensors that share one contiguous vector, all zero at first.

    Attributes:
        flat: float32 (or float64, to check gradients), [num_parameters]; the memory itself.
        views: every tensor by name; each a view into `flat`, never a copy.
        shapes: the shape of every tensor, in the order of `flat`.
    """

    def __init__(self, shapes: Shapes, *, dtype: type[np.floating[Any]] = np.float32) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {name: tuple(shapes[name]) for name in shapes}
        num_parameters = sum(map(math.prod, self.shapes.values()))
        try:
            self.flat: Array = _aligned_zeros(num_parameters, dtype)
        except (MemoryError, ValueError) as error:
            raise ModuleError(
                f"A network of {num_parameters:,} numbers does not fit into memory ({error}). Make "
                "its layers smaller (`fcnet_hiddens`), or the observations of the env."
            ) from error
        self.views: dict[str, Array] = {}
        self._starts: dict[str, int] = {}
        start = 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            self.views[name] = self.flat[start:stop].reshape(shape)
            self._starts[name] = start
            start = stop

    def __reduce__(self) -> tuple[Callable[..., Parameters], tuple[Any, ...]]:
        # Copies and pickles made attribute by attribute would tear the views off the vector.
        return _rebuild, (self.shapes, self.flat)

    @property
    def num_parameters(self) -> int:
        """How many numbers there are."""
        return self.flat.size

    @property
    def dtype(self) -> type[np.floating[Any]]:
        """The number type of all tensors."""
        number_type: type[np.floating[Any]] = self.flat.dtype.type
        return number_type

    def block(self, first: str, last: str) -> Array:
        """The memory from tensor `first` to tensor `last`, both included, as one vector.

        A layer uses it to see its kernel and the bias that follows as one matrix.
        """
        start = self._starts[first]
        stop = self._starts[last] + math.prod(self.shapes[last])
        return self.flat[start:stop]

    def zeros_like(self) -> Parameters:
        """New parameters of the same names, shapes and dtype, all zero."""
        return Parameters(self.shapes, dtype=self.dtype)

    def copy_from(self, other: Parameters) -> None:
        """Takes over all numbers of `other`.

        Raises:
            ModuleError: `other` has other names or shapes.
        """
        if other.shapes != self.shapes:
            problems = _differences(self.shapes, other.shapes)
            raise ModuleError(_mismatch_message(problems))
        self.flat[:] = other.flat

    def get_state(self) -> dict[str, Array]:
        """A copy of every tensor by name; while a checkpoint is saved, the tensors themselves."""
        return {name: state_array(view) for name, view in self.views.items()}

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; checks everything before anything is changed.

        Raises:
            ModuleError: a name is missing or unknown, or a tensor has the wrong shape or dtype or
                holds numbers that are not finite. The message lists every such tensor.
        """
        arrays = {name: np.asarray(value) for name, value in state.items()}
        problems = _differences(self.shapes, {name: array.shape for name, array in arrays.items()})
        for name in self.shapes.keys() & arrays.keys():
            array = arrays[name]
            if array.dtype != self.flat.dtype:
                problems.append(f"{name!r} has dtype {array.dtype}, expected {self.flat.dtype}")
            elif not np.isfinite(array).all():
                bad = int(array.size - np.isfinite(array).sum())
                problems.append(f"{name!r} holds {bad} numbers that are not finite")
        if problems:
            raise ModuleError(_mismatch_message(problems))
        for name, view in self.views.items():
            view[...] = arrays[name]


def _aligned_zeros(count: int, dtype: type[np.floating[Any]]) -> Array:
    """Zeros that begin at a multiple of 64 bytes, as kernels of Torch like them.

    What a kernel computes may depend on where its operands begin; here the same tensor begins at
    the same place of a cache line in every process.
    """
    size = np.dtype(dtype).itemsize
    numbers: Array = np.zeros(count + _ALIGNMENT // size, dtype)
    skipped = -numbers.ctypes.data % _ALIGNMENT // size
    return numbers[skipped : skipped + count]


def _rebuild(shapes: Shapes, flat: Array) -> Parameters:
    """Parameters with the given memory content (used by copy and pickle)."""
    parameters = Parameters(shapes, dtype=flat.dtype.type)
    parameters.flat[:] = flat
    return parameters


def _differences(expected: Shapes, given: Shapes) -> list[str]:
    """One sentence for every tensor that is missing, unknown or of another shape."""
    problems = [f"{name!r} is missing" for name in expected if name not in given]
    problems += [f"{name!r} is unknown" for name in given if name not in expected]
    for name, shape in expected.items():
        if name in given and given[name] != shape:
            problems.append(f"{name!r} has shape {given[name]}, expected {shape}")
    return problems


def _mismatch_message(problems: list[str]) -> str:
    listed = "; ".join(sorted(problems))
    return (
        f"These weights do not fit this network: {listed}. They were made by a network with other "
        "spaces or another `model_config`. Build the network with the same settings, or load only "
        "the parts that fit."
    )
