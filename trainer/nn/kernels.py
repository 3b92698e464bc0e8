"""The inner loops in C (`kernels.c`), where they are there and give the bits of NumPy.

    functions_if(check)     None: NumPy computes, with the same outcome
    why_not()               what keeps them from being used; empty if they are

They are off where they were not compiled, where NumPy's BLAS is unknown, with
`LOCAL_TRAINER_KERNELS=0`, and where one bit of what they are tried with differs.

Addresses of arrays are handed to C, so whoever makes a plan (`Chain`, `Optimizer`) keeps the arrays
in it, and drops it where they are made anew. Plans are of one process and cannot be copied.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from trainer.blas import blas_functions
from trainer.types import Array

SWITCH: Final = "LOCAL_TRAINER_KERNELS"
"""The variable of the environment that switches them off, with "0"."""

FILE: Final = "kernels.shared"
"""What is compiled: no module of Python's, so that nobody takes it for one; see `setup.py`."""

Number = ctypes.c_double
at = ctypes.byref
place_of = ctypes.addressof
"""For those who hand out structures: a number to be written, and where something is."""

_Address = ctypes.c_void_p
_Count = ctypes.c_int64

# ---- what C is told


class LayerPlan(ctypes.Structure):
    """One dense layer and its memory; `Layer` in C."""

    _fields_ = (
        ("inputs", _Count),
        ("outputs", _Count),
        ("activation", _Count),
        ("weights", _Address),
        ("weight_gradients", _Address),
        ("values", _Address),
        ("gradient", _Address),
    )
    arrays: tuple[Array, ...]

    @classmethod
    def of(cls, inputs: int, outputs: int, activation: int, *arrays: Array) -> LayerPlan:
        """A plan that keeps its arrays: weights, their gradients, values, their gradients."""
        plan = cls(inputs, outputs, activation, *map(address_of, arrays))
        plan.arrays = arrays
        return plan


class LstmPlan(ctypes.Structure):
    """The weights and the memory of an LSTM, for sequences of one length; `LstmPlan` in C."""

    _fields_ = (
        *((name, _Count) for name in ("num_steps", "batch", "inputs", "width")),
        *(
            (name, _Address)
            for name in (
                *("weights", "recurrent", "weight_gradients", "recurrent_gradients"),
                *("factors", "sums", "is_tanh", "gates", "d_gates", "slopes"),
                *("hidden", "cells", "tanh_cells", "scratch", "outputs"),
            )
        ),
    )


class LstmPass(ctypes.Structure):
    """A pass of an LSTM through all steps; `LstmPass` in C.

    Attributes:
        functions: those in C.
    """

    functions: Any
    _fields_ = tuple((name, _Address) for name in ("plan", "inputs", "gradient", "d_inputs"))


class PassPlan(ctypes.Structure):
    """A pass of a chain of layers; `Pass` in C."""

    _fields_ = (
        ("layers", _Address),
        ("count", _Count),
        ("batch", _Count),
        ("kind", _Count),
        ("inputs", _Address),
        ("d_inputs", _Address),
    )


FORWARD: Final = 0
BACKWARD: Final = 1
BACKWARD_TO_INPUTS: Final = 2
"""What kind of pass it is."""


class OptimizerPlan(ctypes.Structure):
    """The flat vectors of an optimiser; `Optimizer` in C."""

    _fields_ = (
        ("size", _Count),
        ("parameters", _Address),
        ("gradients", _Address),
        ("first_moment", _Address),
        ("second_moment", _Address),
        ("scratch", _Address),
        ("rates", _Address),
    )


class PolicyPlan(ctypes.Structure):
    """The loss of a policy and its memory, for minibatches of one size; `PolicyPlan` in C."""

    _fields_ = (
        ("batch", _Count),
        ("width", _Count),
        ("inputs", _Address),
        ("values", _Address),
        ("d_inputs", _Address),
        ("d_values", _Address),
        ("scratch", _Address),
    )


class Minibatch(ctypes.Structure):
    """What the loss of a policy reads of one minibatch; `Minibatch` in C."""

    _fields_ = (
        ("actions", _Address),
        ("logp", _Address),
        ("reference", _Address),
        ("advantages", _Address),
        ("targets", _Address),
    )


class PolicyNumbers(ctypes.Structure):
    """The numbers that the loss of a policy is computed with; `PolicyNumbers` in C."""

    _fields_ = tuple(
        (name, ctypes.c_float)
        for name in (
            *("lowest_ratio", "highest_ratio", "d_surrogate", "value_limit", "d_value"),
            *("d_entropy", "d_kl", "log_std_limit", "logp_constant", "entropy_constant"),
        )
    )


class PolicySums(ctypes.Structure):
    """What the loss of a policy adds up; `PolicySums` in C."""

    _fields_ = (
        ("sums", ctypes.c_float * 5),
        ("num_clipped", _Count),
        ("num_within", _Count),
    )


class StepNumbers(ctypes.Structure):
    """The numbers of a step of Adam, and the limit of the norm; `StepNumbers` in C."""

    _fields_ = (
        *((name, ctypes.c_float) for name in ("decay_1", "decay_2", "epsilon", "factor")),
        ("limit", ctypes.c_double),
    )


class DqnPlan(ctypes.Structure):
    """The networks and the memory of DQN, for batches of one size; `DqnPlan` in C."""

    _fields_ = (
        ("network", _Address),
        ("target", _Address),
        *(
            (name, _Count)
            for name in (
                *("num_layers", "num_target_layers", "batch", "num_obs", "num_actions"),
                *("is_double", "is_huber"),
            )
        ),
        *(
            (name, _Address)
            for name in (
                *("columns", "target_columns", "errors", "selected", "scratch"),
                "optimizer",
            )
        ),
    )


class Transitions(ctypes.Structure):
    """A batch of transitions; `Transitions` in C."""

    _fields_ = tuple(
        (name, _Address)
        for name in ("obs", "next_obs", "actions", "rewards", "discounts", "weights")
    )


class _Function(ctypes.Structure):
    _fields_ = (("loop", _Address), ("data", _Address))


class _Lent(ctypes.Structure):
    _fields_ = (
        ("gemm", _Address),
        ("gemv", _Address),
        ("has_64_bits", _Count),
        ("num_cores", _Count),
        ("sum_block", _Count),
        ("tanh", _Function),
        ("exp", _Function),
        ("log", _Function),
        ("maximum", _Function),
    )


_TYPES: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "version": (ctypes.c_uint, ()),
    "lent_size": (ctypes.c_int, ()),
    "lend": (None, (_Address,)),
    "forward": (None, (_Address, _Count, _Count, _Address)),
    "backward": (None, (_Address, _Count, _Count, _Address, _Address, ctypes.c_int)),
    "act": (None, (_Address, _Count, _Count, _Address)),
    "adam": (None, (_Address, *[ctypes.c_float] * 4)),
    "squares": (ctypes.c_float, (_Address,)),
    "follow": (None, (_Address, _Address, _Count, ctypes.c_float)),
    "run_both": (None, (_Address, _Count, _Count)),
    "scale": (None, (_Address, _Count, ctypes.c_float)),
    "lstm_forward": (None, (_Address,)),
    "lstm_pass": (None, (_Address,)),
    "lstm_both": (None, (_Address, _Address)),
    "ppo_categorical": (ctypes.c_int, (_Address,) * 4),
    "ppo_gaussian": (ctypes.c_int, (_Address,) * 4),
    "dqn_step": (ctypes.c_int, (_Address,) * 5),
}
"""Result and arguments of the functions."""

ACTIVATIONS: Final = {"Linear": 0, "Tanh": 1, "Relu": 2}
"""The classes of activations that are known in C."""


_HEAD: Final = object.__basicsize__


def address_of(array: Array) -> int:
    """Where the numbers of an array begin.

    The first field of every array behind the head of its object: a seventh of the time that
    `__array_interface__` takes, for a dozen arrays per update. `_load` makes sure that it is there.
    """
    return _Address.from_address(id(array) + _HEAD).value or 0


def _is_address_found() -> bool:
    probe = np.arange(9)[3:]
    is_known = sys.implementation.name == "cpython"
    return is_known and address_of(probe) == probe.__array_interface__["data"][0]


def are_plain(*arrays: Array) -> bool:
    """Whether they are as all arrays that C gets: contiguous float32."""
    return all(array.dtype == np.float32 and array.flags.c_contiguous for array in arrays)


# ---- finding them

Check = Callable[[Any], bool]
"""Given the functions: whether they compute what NumPy computes, bit by bit, in small examples."""

_CHECKS: Final[dict[Check, str]] = {}
_PASSED: Final[dict[Check, bool]] = {}


def compared_with_numpy(what: str) -> Callable[[Check], Check]:
    """Registers a check of what is computed; it is made once in a process, when it is asked for."""

    def register(check: Check) -> Check:
        _CHECKS[check] = what
        return check

    return register


def functions_if(check: Check) -> Any:
    """The functions in C, if the check was passed; None if NumPy is to compute."""
    loaded = _loaded().functions
    if loaded is None:
        return None
    if check not in _PASSED:
        _PASSED[check] = False  # what the check itself makes is not to use them
        try:
            _PASSED[check] = check(loaded)
        except BaseException:  # an interrupt says nothing
            del _PASSED[check]
            raise
    return loaded if _PASSED[check] else None


def library() -> Any:
    """All functions in C, of which some may have failed their checks; None without any."""
    return _loaded().functions


def why_not() -> str:
    """Why NumPy computes all or a part of it; empty if nothing is left to it."""
    if text := _loaded().why_not:
        return text
    others = [what for check, what in _CHECKS.items() if functions_if(check) is None]
    return f"{', '.join(others)} differ from NumPy's here" if others else ""


class _Loaded(NamedTuple):
    functions: Any
    why_not: str


@functools.cache
def _loaded() -> _Loaded:
    if os.environ.get(SWITCH) == "0":
        return _Loaded(None, f"switched off by {SWITCH}=0")
    try:
        return _Loaded(_load(), "")
    except _NotUsableError as error:
        return _Loaded(None, str(error))


class _NotUsableError(Exception):
    """The kernels cannot be used; the text says why."""


def _load() -> Any:
    if not _is_address_found():
        raise _NotUsableError("this Python or NumPy keeps arrays otherwise")
    path = Path(__file__).with_name(FILE)
    if not path.exists():
        raise _NotUsableError("not compiled: there was no C compiler when this was installed")
    # Whose integers have the size that its suffix says is OpenBLAS alone.
    blas = blas_functions("cblas_sgemm", "cblas_sgemv", "openblas_get_num_threads")
    if blas is None:
        raise _NotUsableError("NumPy's BLAS is none that is known (OpenBLAS)")
    try:
        loaded = ctypes.CDLL(str(path))
        for name, (result, arguments) in _TYPES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise _NotUsableError(f"they cannot be loaded: {error}") from error
    gemm, gemv = (ctypes.cast(function, _Address) for function in blas.functions[:2])
    loops = [_loop(function) for function in (np.tanh, np.exp, np.log, np.maximum)]
    lent = _Lent(gemm, gemv, int(blas.has_64_bits), _num_cores(), _sum_block(), *loops)
    source = path.with_suffix(".c")  # which a checkout has
    is_other = source.exists() and zlib.crc32(source.read_bytes()) != loaded.version()
    if is_other or loaded.lent_size() != ctypes.sizeof(_Lent):
        raise _NotUsableError("they are of another version of this package: install it again")
    loaded.lend(ctypes.byref(lent))
    return loaded


def _num_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _sum_block() -> int:
    """How many numbers NumPy sums in pairs before it adds the next ones."""
    sums_all_in_pairs = np.lib.NumpyVersion(np.__version__) >= "2.3.0.dev0"
    return sys.maxsize if sums_all_in_pairs else np.getbufsize()


class _UFunc(ctypes.Structure):
    """The public beginning of `PyUFuncObject`, behind the head of every object."""

    _fields_ = (
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(_Address)),
        ("data", ctypes.POINTER(_Address)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.c_void_p),
    )


def _loop(function: np.ufunc) -> _Function:
    """NumPy's own loop over float32."""
    struct = _UFunc.from_address(id(function) + _HEAD)
    counts = struct.nargs, struct.ntypes
    if counts != (function.nargs, len(function.types)) or struct.name != function.__name__.encode():
        raise _NotUsableError("this NumPy keeps its loops elsewhere")
    index = function.types.index(f"{'f' * function.nin}->f")
    return _Function(struct.functions[index], struct.data[index] if struct.data else None)


# ---- plans


class Chain:
    """Dense layers with their memory, for batches of one size."""

    @classmethod
    def of(cls, functions: Any, plans: Sequence[LayerPlan | None]) -> Chain | None:
        """The chain of these layers; None if one of them is not known in C."""
        known = [plan for plan in plans if plan is not None]
        return cls(functions, known) if len(known) == len(plans) else None

    def __init__(self, functions: Any, plans: Sequence[LayerPlan]) -> None:
        """Keeps the plans, which keep their arrays."""
        self.plans = (LayerPlan * len(plans))(*plans)
        self._kept, batch = plans, plans[0].arrays[-1].shape[1]
        self._sizes = len(plans), batch
        self._forward, self._backward = functions.forward, functions.backward
        self._inputs = _Addresses(plans[0].inputs + 1, batch)
        self._d_inputs = _Addresses(plans[0].inputs, batch)

    def forward(self, inputs: Array) -> bool:
        """Overwrites the values of all layers; False if the inputs are not plain."""
        at = self._inputs.of(inputs)
        if at:
            self._forward(self.plans, *self._sizes, at)
        return bool(at)

    def planned(self, kind: int, inputs: Array, d_inputs: Array | None = None) -> PassPlan | None:
        """A pass to be run beside another one; None if an array is not plain."""
        at = self._inputs.of(inputs)
        d_at = None if d_inputs is None else self._d_inputs.of(d_inputs)
        if not at or d_at == 0:
            return None
        return PassPlan(ctypes.addressof(self.plans), *self._sizes, kind, at, d_at)

    def backward(self, inputs: Array, d_inputs: Array | None, *, only_inputs: bool) -> bool:
        """Overwrites gradients as `MLP.backward` does; False if an array is not plain."""
        at = self._inputs.of(inputs)
        d_at = None if d_inputs is None else self._d_inputs.of(d_inputs)
        if not at or d_at == 0:
            return False
        self._backward(self.plans, *self._sizes, at, d_at, only_inputs)
        return True


class Network:
    """Dense layers, one behind the other, and the columns that the first of them reads.

    Attributes:
        layers: as C has them.
        columns: [inputs + 1, batch].
        width: of the outputs.
    """

    def __init__(self, columns: Array, *parts: HasChain) -> None:
        """Keeps the memory that the parts, which follow each other, have now."""
        self.columns, self._parts = columns, parts
        self._chains = [part.chain_in_c for part in parts]
        plans = [plan for chain in self._chains if chain is not None for plan in chain.plans]
        self.layers = (LayerPlan * len(plans))(*plans)
        self.width = plans[-1].outputs

    def is_current(self, columns: Array) -> bool:
        """Whether columns and parts still have this memory."""
        pairs = zip(self._parts, self._chains, strict=True)
        return columns is self.columns and all(part.chain_in_c is chain for part, chain in pairs)


class HasChain(Protocol):
    """Layers that the kernels know, or do not."""

    @property
    def chain_in_c(self) -> Chain | None:
        """What the kernels have of the batches that were learnt from last; None if nothing."""


class ActingChain:
    """Dense layers with their memory, for blocks of rows."""

    @classmethod
    def of(
        cls, functions: Any, plans: Sequence[LayerPlan | None], memory: Sequence[Array]
    ) -> ActingChain | None:
        """The chain of these layers; None if one of them is not known in C.

        Args:
            functions: those in C.
            plans: of the layers.
            memory: of the inputs and of each layer, [blocks, 8, width + 1].
        """
        known = [plan for plan in plans if plan is not None]
        return cls(functions, known, memory) if len(known) == len(plans) else None

    def __init__(self, functions: Any, plans: Sequence[LayerPlan], memory: Sequence[Array]) -> None:
        """Keeps what it is made of."""
        self._kept = plans, memory
        layers = (LayerPlan * len(plans))(*plans)
        values = (_Address * len(memory))(*map(address_of, memory))
        self._act = functools.partial(functions.act, layers, len(plans), len(memory[0]), values)

    # A method, so that this, and all that it keeps, is there until C has returned.
    def act(self) -> None:
        """Overwrites the memory of all layers."""
        self._act()


class Lstm:
    """The passes of an LSTM, for sequences of one length."""

    def __init__(self, functions: Any, *sizes: int, arrays: Sequence[Array]) -> None:
        """Keeps the memory.

        Args:
            functions: those in C.
            sizes: steps, sequences, inputs, width.
            arrays: in the order of `LstmPlan`.
        """
        self._arrays, self._functions = arrays, functions
        self._plan = LstmPlan(*sizes, *map(address_of, arrays))
        num_columns = sizes[0] * sizes[1]
        self._inputs = _Addresses(sizes[2] + 1, num_columns)
        self._gradient = _Addresses(sizes[3], num_columns)
        self._d_inputs = _Addresses(sizes[2], num_columns)

    def act(self) -> None:
        """Computes the steps, from the inputs' part that is in the gates."""
        self._functions.lstm_forward(ctypes.byref(self._plan))

    def planned(
        self, inputs: Array, gradient: Array | None = None, d_inputs: Array | None = None
    ) -> LstmPass | None:
        """A pass, backward with a gradient of the outputs; None if an array is not plain."""
        at = self._inputs.of(inputs)
        others = [
            None if array is None else known.of(array)
            for array, known in ((gradient, self._gradient), (d_inputs, self._d_inputs))
        ]
        if not at or 0 in others:
            return None
        found = LstmPass(ctypes.addressof(self._plan), at, *others)
        found.functions = self._functions
        return found


def run_lstms(passes: Sequence[LstmPass | None]) -> bool:
    """Runs passes that share nothing, two at once; False, and none is run, if one is None."""
    known = [one for one in passes if one is not None]
    if len(known) < len(passes):
        return False
    for first in range(0, len(known), 2):
        pair = known[first : first + 2]
        functions = pair[0].functions
        run = functions.lstm_both if len(pair) == 2 else functions.lstm_pass
        run(*map(ctypes.byref, pair))
    return True


class _Addresses:
    """Remembers where the newest array of a shape begins: asking NumPy takes 0.5 µs."""

    def __init__(self, *shape: int) -> None:
        self._shape = shape
        self._array: Array | None = None
        self._at = 0

    def of(self, array: Array) -> int:
        """Where it begins; 0 if it is not plain, or has another shape."""
        if array is not self._array:
            is_fit = array.shape == self._shape and are_plain(array)
            self._at, self._array = (address_of(array) if is_fit else 0), array
        return self._at


class Optimizer:
    """Adam on flat vectors."""

    def __init__(self, functions: Any, *vectors: Array, rates: Array | None = None) -> None:
        """Keeps the vectors.

        Args:
            functions: those in C.
            vectors: parameters, gradients, first and second moment, scratch memory.
            rates: a learning rate for each number; None for one of all.
        """
        kept = None if rates is None else address_of(rates)
        self.plan = OptimizerPlan(len(vectors[0]), *map(address_of, vectors), kept)
        self._vectors, self.rates = vectors, rates
        self._adam, self._squares = functions.adam, functions.squares
        self._scale = functions.scale
        self._at = ctypes.byref(self.plan)

    def step(self, decay_1: float, decay_2: float, epsilon: float, factor: float) -> None:
        """One step; see `adam` in C."""
        self._adam(self._at, decay_1, decay_2, epsilon, factor)

    def squares(self) -> float:
        """The sum of the gradients' squares, which are left in the scratch memory."""
        total: float = self._squares(self._at)
        return total

    def scale(self, vector: Array, factor: float) -> None:
        """Multiplies a plain vector."""
        self._scale(address_of(vector), vector.size, factor)
