"""Optimisers (Adam, SGD), gradient clipping, schedules, and the vector of parameters they change.

`Parameters` is one contiguous vector, seen through named arrays. Optimiser, clipping, hashing and
broadcasting work on `flat` in single vector operations; layers read and write the named views. Both
are the same memory, so nothing is ever copied between them. The gradients of a network are a second
`Parameters` of the same shapes. How the numbers are first drawn is decided in `trainer.nn.layers`.
A `Schedule` is a value that changes with training: a constant, or straight lines between given
points.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal, get_args

import numpy as np

from checkpoints import state_array
from trainer.errors import ConfigError, ModuleError
from trainer.nn import kernels
from trainer.types import Array, State

# ---- parameters

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

    def __init__(
        self,
        shapes: Shapes,
        *,
        dtype: type[np.floating[Any]] = np.float32,
        memory: Array | None = None,
    ) -> None:
        """Makes the tensors.

        Args:
            shapes: of every tensor by name.
            dtype: number type.
            memory: what `flat` is, of the right size and dtype; None for zeros.
        """
        self.shapes: dict[str, tuple[int, ...]] = {name: tuple(shapes[name]) for name in shapes}
        num_parameters = sum(map(math.prod, self.shapes.values()))
        try:
            self.flat: Array = _aligned_zeros(num_parameters, dtype) if memory is None else memory
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

    def part(self, first: str, last: str) -> Parameters:
        """The tensors from `first` to `last`, both included, in the same memory."""
        names = list(self.shapes)
        chosen = names[names.index(first) : names.index(last) + 1]
        shapes = {name: self.shapes[name] for name in chosen}
        return Parameters(shapes, dtype=self.dtype, memory=self.block(first, last))

    def layer(self, name: str) -> Array:
        """Kernel and, as last row, bias of the layer `name`, [inputs + 1, outputs]; a view."""
        kernel, bias = f"{name}/kernel", f"{name}/bias"
        return self.block(kernel, bias).reshape(-1, *self.shapes[bias])

    def zeros_like(self) -> Parameters:
        """New parameters of the same names, shapes and dtype, all zero."""
        return Parameters(self.shapes, dtype=self.dtype)

    def get_state(self) -> dict[str, Array]:
        """Copies of all tensors by name; while a checkpoint is saved, the tensors themselves.

        The copies are parts of one block of memory: who keeps one of them keeps all of it alive.
        To keep a few tensors of a large network for long, copy these.
        """
        flat = state_array(self.flat)
        if flat is self.flat:
            return dict(self.views)
        starts = self._starts
        return {
            name: flat[starts[name] : starts[name] + view.size].reshape(view.shape)
            for name, view in self.views.items()
        }

    def follow(self, other: Parameters) -> None:
        """Takes over the numbers of parameters that have these tensors, too, and maybe others."""
        if other.flat.size == self.flat.size:
            np.copyto(self.flat, other.flat)
            return
        for name, view in self.views.items():
            np.copyto(view, other.views[name])

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; checks everything before anything is changed.

        Raises:
            ModuleError: a name is missing or unknown, or a tensor has the wrong shape or dtype or
                holds numbers that are not finite. The message lists every such tensor.
        """
        # The usual case: weights that come with every round of steps.
        if self._has_form(state) and len(self.shapes):
            flat = np.concatenate([state[name].ravel() for name in self.shapes])
            if _is_finite(flat):
                self.flat[:] = flat
                return
        arrays = {name: np.asarray(value) for name, value in state.items()}
        problems = _differences(self.shapes, {name: array.shape for name, array in arrays.items()})
        for name in self.shapes.keys() & arrays.keys():
            array = arrays[name]
            if array.dtype != self.flat.dtype:
                problems.append(f"{name!r} has dtype {array.dtype}, expected {self.flat.dtype}")
            elif not _is_finite(array):
                bad = int(array.size - np.isfinite(array).sum())
                problems.append(f"{name!r} holds {bad} numbers that are not finite")
        if problems:
            raise ModuleError(_mismatch_message(problems))
        for name, view in self.views.items():
            view[...] = arrays[name]

    def _has_form(self, state: State) -> bool:
        """Whether it is a state of arrays with the right names, shapes and number type."""
        if state.keys() != self.shapes.keys():
            return False
        dtype = self.flat.dtype
        for name, shape in self.shapes.items():
            array = state[name]
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                return False
        return True


def _is_finite(array: Array) -> bool:
    """Whether an array holds neither NaN nor infinity; what is given with every round of steps."""
    # NaN and infinity stay in a sum of squares, which needs no array of flags; it may overflow, of
    # which `vdot` does not warn.
    vector = array.ravel()
    return bool(math.isfinite(np.vdot(vector, vector))) or bool(np.isfinite(array).all())


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


# ---- optimizers
#
# Gradient descent on a flat vector: Adam and gradient clipping, both in place.

ClipMode = Literal["value", "norm", "global_norm"]
"""Clip every number, every tensor to its own L2 norm, or the whole gradient to one L2 norm."""

CLIP_MODES: Final[tuple[str, ...]] = get_args(ClipMode)


_ADAM_BLOCK: Final = 16_384
"""Numbers that Adam goes through at once: five vectors of them stay in a core's own cache."""


_FLUSH_EVERY: Final = 64
"""Steps after which moments that are next to nothing become 0."""
_NEXT_TO_NOTHING: Final = 1e-32
"""Too small to change a weight; 64 steps later, a moment that decays is not subnormal yet."""


class Adam:
    """Adam (Kingma and Ba 2015, algorithm 1): epsilon is added after the bias correction.

    Life: `step()` once per gradient, with the parameters and gradients it was made for;
    `get_state()` and `set_state()` carry the moments over a restart.
    """

    def __init__(
        self,
        parameters: Parameters,
        gradients: Parameters,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        """Starts with zero moments.

        Args:
            parameters: changed by `step`.
            gradients: read by `step`; same shapes.
            betas: decay of the first and of the second moment, in [0, 1).
            epsilon: keeps the step finite where the second moment is 0, > 0.
        """
        self._parameters = parameters
        self._gradients = gradients
        self._betas = betas
        self._epsilon = epsilon
        self._first_moment = parameters.zeros_like()
        self._second_moment = parameters.zeros_like()
        self._num_steps = 0
        self._scratch: Array = np.empty_like(parameters.flat)
        self._functions = kernels.functions_if(_steps_are_same)
        self._plan: kernels.Optimizer | None = None

    @property
    def num_steps(self) -> int:
        """How many steps were made since the start of training."""
        return self._num_steps

    def step(self, *, lr: float | Array) -> None:
        """Moves the parameters against the gradient.

        With t the number of this step: m ← β₁m + (1-β₁)g, v ← β₂v + (1-β₂)g²,
        parameters ← parameters - lr · (m / (1-β₁ᵗ)) / (√(v / (1-β₂ᵗ)) + ε). Multiplying numerator
        and denominator by √(1-β₂ᵗ) leaves two vector operations fewer and the same value (ibid.,
        end of section 2).

        Args:
            lr: learning rate ≥ 0; one for all, or one for each number of the flat vector.
        """
        plan = self.in_c(lr if isinstance(lr, np.ndarray) else None)
        if plan is not None:
            plan.step(*self.next_factors(lr))
        self._num_steps += 1
        if plan is None:
            size = self._parameters.flat.size
            for start in range(0, size, _ADAM_BLOCK):  # once, but for large networks
                part = slice(start, min(start + _ADAM_BLOCK, size))
                self._step_part(part, lr[part] if isinstance(lr, np.ndarray) else lr)
        self._flush_moments_if_due()

    def next_factors(self, lr: float | Array) -> tuple[float, float, float, float]:
        """Of the next step: 1 - β₁, 1 - β₂, what is added to √v, and the quotient's factor."""
        return self._factors(self._num_steps + 1, 1.0 if isinstance(lr, np.ndarray) else lr)

    def _factors(self, number: int, lr: float) -> tuple[float, float, float, float]:
        beta_1, beta_2 = self._betas
        correction_1 = 1.0 - beta_1**number
        correction_2 = math.sqrt(1.0 - beta_2**number)
        factor = lr * correction_2 / correction_1
        return 1.0 - beta_1, 1.0 - beta_2, self._epsilon * correction_2, factor

    def note_step(self) -> None:
        """Counts a step that was made in C, with `in_c` and `next_factors`."""
        self._num_steps += 1
        self._flush_moments_if_due()

    def in_c(self, rates: Array | None) -> kernels.Optimizer | None:
        """What computes a step in C; None if NumPy is to.

        Args:
            rates: a learning rate for each number, or one for all is given with each step.
        """
        if self._functions is None:
            return None
        if self._plan is None or self._plan.rates is not rates:
            vectors = [
                *(self._parameters.flat, self._gradients.flat),
                *(self._first_moment.flat, self._second_moment.flat, self._scratch),
            ]
            others = [] if rates is None else [rates]
            is_fit = all(one.shape == self._scratch.shape for one in others)
            if not is_fit or not kernels.are_plain(*vectors, *others):
                return None
            self._plan = kernels.Optimizer(self._functions, *vectors, rates=rates)
        return self._plan

    def _flush_moments_if_due(self) -> None:
        """From time to time, moments that are next to nothing become 0.

        Without a gradient (units of ReLU that are never active) they decay until they are subnormal
        (below 1.2e-38 in float32), and stay there: processors compute with such numbers some
        hundred times slower.
        """
        if self._num_steps % _FLUSH_EVERY:
            return
        for moment in (self._first_moment.flat, self._second_moment.flat):
            moment[np.abs(moment, out=self._scratch) < _NEXT_TO_NOTHING] = 0.0

    def _step_part(self, part: slice, lr: float | Array) -> None:
        """One part of the flat vectors; every number has an operation of its own."""
        decay_1, decay_2, epsilon, _ = self._factors(self._num_steps, 1.0)
        gradient, scratch = self._gradients.flat[part], self._scratch[part]
        first, second = self._first_moment.flat[part], self._second_moment.flat[part]
        parameters = self._parameters.flat[part]
        np.subtract(gradient, first, scratch)
        np.multiply(scratch, decay_1, scratch)
        np.add(first, scratch, first)
        np.multiply(gradient, gradient, scratch)
        np.subtract(scratch, second, scratch)
        np.multiply(scratch, decay_2, scratch)
        np.add(second, scratch, second)
        np.sqrt(second, scratch)
        np.add(scratch, epsilon, scratch)
        np.divide(first, scratch, scratch)
        if isinstance(lr, np.ndarray):
            np.multiply(scratch, lr, scratch)
            lr = 1.0
        np.multiply(scratch, self._factors(self._num_steps, lr)[-1], scratch)
        np.subtract(parameters, scratch, parameters)

    def get_state(self) -> State:
        """The moments by tensor name and the number of steps; copies."""
        return {
            "first_moment": self._first_moment.get_state(),
            "second_moment": self._second_moment.get_state(),
            "num_steps": self._num_steps,
        }

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave.

        Raises:
            ModuleError: something is missing, unknown or does not fit this network.
        """
        expected = {"first_moment", "second_moment", "num_steps"}
        if set(state) != expected:
            raise ModuleError(
                f"The state of Adam holds {sorted(state)}, expected {sorted(expected)}: it is not "
                "the state of this optimiser. Load a checkpoint that was written by the same "
                "algorithm."
            )
        before = self._first_moment.get_state()
        self._first_moment.set_state(state["first_moment"])
        try:
            self._second_moment.set_state(state["second_moment"])
        except ModuleError:
            self._first_moment.set_state(before)
            raise
        self._num_steps = int(state["num_steps"])


class GradientClipping:
    """Measures gradients, and limits them in one of RLlib's three ways.

    `norm` and `global_norm` scale by limit / max(limit, norm), so a gradient within the limit stays
    bit for bit.
    """

    def __init__(
        self,
        gradients: Parameters,
        *,
        limit: float | None,
        mode: str = "global_norm",
        parts: Sequence[slice] = (slice(None),),
    ) -> None:
        """Remembers the gradients it will clip.

        Args:
            gradients: changed by `clip`.
            limit: > 0; None only measures.
            mode: one of `CLIP_MODES`.
            parts: of the flat vector; "global_norm" limits each of them to its own norm.

        Raises:
            ConfigError: the mode does not exist or the limit is not positive.
        """
        if mode not in CLIP_MODES:
            raise ConfigError(
                f"`grad_clip_by={mode!r}` does not exist. Gradients can be clipped by "
                f"{', '.join(CLIP_MODES)}: choose one of them."
            )
        if limit is not None and not limit > 0.0:
            raise ConfigError(
                f"`grad_clip={limit!r}` is not above 0, so nothing could be learnt. Give a "
                "positive limit, or None for no clipping."
            )
        self._gradients = gradients
        self._limit = limit
        self._mode = mode
        self._parts = parts
        self._squares = gradients.zeros_like()
        self._plan: kernels.Optimizer | None = None
        functions, flat = kernels.functions_if(_steps_are_same), gradients.flat
        if functions is not None and kernels.are_plain(flat):
            squares = self._squares.flat
            self._plan = kernels.Optimizer(functions, flat, flat, flat, flat, squares)

    @property
    def limit_in_c(self) -> float | None:
        """The limit of the norm of the whole gradient; None if another one is to be limited."""
        if self._limit is None:
            return math.inf
        is_known = self._mode == "global_norm" and len(self._parts) == 1
        return self._limit if is_known else None

    def global_norm(self) -> float:
        """The L2 norm of the whole gradient; inf or nan if a number in it is.

        NumPy's pairwise sum, not a BLAS dot product, whose bits depend on the number of threads.
        """
        if self._plan is not None:
            return math.sqrt(self._plan.squares())
        squares = self._squares.flat
        np.multiply(self._gradients.flat, self._gradients.flat, squares)
        return math.sqrt(np.add.reduce(squares))

    def clip(self, *, global_norm: float) -> None:
        """Limits the gradient in place; `global_norm()` gave its norm."""
        if self._limit is None:
            return
        gradient = self._gradients.flat
        if self._mode == "value":
            np.clip(gradient, -self._limit, self._limit, out=gradient)
        elif self._mode == "norm":
            for name, tensor in self._gradients.views.items():
                norm = math.sqrt(np.add.reduce(self._squares.views[name], axis=None))
                if norm > self._limit:
                    tensor *= self._limit / norm
        elif global_norm > self._limit:
            for part in self._parts:
                norm = global_norm
                if len(self._parts) > 1:
                    norm = math.sqrt(np.add.reduce(self._squares.flat[part]))
                if norm > self._limit:
                    self._scale(gradient[part], self._limit / norm)

    def _scale(self, gradient: Array, factor: float) -> None:
        if self._plan is not None:
            self._plan.scale(gradient, factor)
        else:
            np.multiply(gradient, factor, gradient)


def follow(target: Array, source: Array, tau: float, *, scratch: Array) -> None:
    """Moves a vector by a share of the way to another one: θ⁻ ← θ⁻ + τ (θ - θ⁻).

    Args:
        target: θ⁻, changed.
        source: θ, of the same size and dtype.
        tau: τ, in (0, 1].
        scratch: of the same size, overwritten.
    """
    if tau == 1.0:
        np.copyto(target, source)
        return
    functions = kernels.functions_if(_steps_are_same)
    is_fit = target.shape == source.shape and kernels.are_plain(target, source)
    if functions is not None and is_fit:
        at = kernels.address_of(target), kernels.address_of(source)
        functions.follow(*at, target.size, tau)
        return
    np.subtract(source, target, scratch)
    np.multiply(scratch, tau, scratch)
    np.add(target, scratch, target)


@kernels.compared_with_numpy("steps of Adam")
def _steps_are_same(functions: Any) -> bool:
    """Whether steps in C, and norms, have the bits of those in NumPy."""
    draw = np.random.default_rng(0)
    for size in (5, 100, 120_000):
        values, first = draw.standard_normal((2, size)).astype(np.float32)
        rates = None if size == 100 else np.abs(first)
        found = []
        for chosen in (None, functions):
            parameters, gradients = Parameters({"all": (size,)}), Parameters({"all": (size,)})
            parameters.flat[:], gradients.flat[:] = first, values
            clipping = GradientClipping(gradients, limit=None)
            clipping._plan = chosen and kernels.Optimizer(
                functions, *[gradients.flat] * 4, clipping._squares.flat
            )
            adam = Adam(parameters, gradients)
            adam._functions = chosen
            for lr in (1e-3, 3e-2):
                adam.step(lr=lr if rates is None else rates)
            norm = clipping.global_norm()
            if chosen is None:
                gradients.flat[:] += (parameters.flat - gradients.flat) * np.float32(0.1)
            else:
                at = kernels.address_of(gradients.flat), kernels.address_of(parameters.flat)
                chosen.follow(*at, size, 0.1)
            moments = adam._first_moment.flat, adam._second_moment.flat
            vectors = parameters.flat, gradients.flat, *moments
            found.append((norm, *(vector.tobytes() for vector in vectors)))
        if found[0] != found[1]:
            return False
    return True


# ---- schedules

ScheduleSetting = float | Sequence[Sequence[float]]
"""A number, or `[[env steps, value], ...]`."""


@dataclass(frozen=True)
class Schedule:
    """A value as a function of the env steps so far: linear between points, then constant.

    It has no state: the same number of steps always gives the same value, also after a restart.

    Attributes:
        steps: the env steps of the points, ascending from 0.
        values: the value at each point.
    """

    steps: tuple[float, ...]
    values: tuple[float, ...]

    @classmethod
    def from_setting(cls, setting: ScheduleSetting, *, name: str) -> Schedule:
        """Reads a setting as users write it.

        Args:
            setting: a number, or at least two pairs `[env steps, value]`, the first at 0,
                ascending.
            name: what the setting is called, for errors.

        Raises:
            ConfigError: it is neither, or a number in it is not finite.
        """
        if isinstance(setting, int | float):
            _require_finite([setting], name=name)
            return cls((0.0,), (float(setting),))
        try:
            points = [(float(steps), float(value)) for steps, value in setting]
        except (TypeError, ValueError) as cause:
            raise ConfigError(
                f"`{name}={setting!r}` is neither a number nor a list of [env steps, value] pairs. "
                f"Write e.g. `{name}=[[0, 1e-3], [1_000_000, 1e-4]]`."
            ) from cause
        _require_finite([number for point in points for number in point], name=name)
        steps, values = [point[0] for point in points], [point[1] for point in points]
        _require_ascending(steps, name=name)
        return cls(tuple(steps), tuple(values))

    def value_at(self, num_env_steps: int) -> float:
        """The value after that many env steps (≥ 0) of the whole run."""
        return on_lines(self.steps, self.values, num_env_steps)


def on_lines(steps: Sequence[float], values: Sequence[float], at: float) -> float:
    """The value at `at` ≥ the first step on straight lines between points, then the last value."""
    after = bisect_right(steps, at)
    if after == len(steps):
        return values[-1]
    start, stop = steps[after - 1], steps[after]
    fraction = (at - start) / (stop - start)
    return values[after - 1] + fraction * (values[after] - values[after - 1])


def _require_finite(numbers: Sequence[float], *, name: str) -> None:
    bad = [number for number in numbers if not math.isfinite(number)]
    if bad:
        raise ConfigError(
            f"`{name}` holds {bad}: a value that is not finite would spread to every weight. Give "
            "finite numbers."
        )


def _require_ascending(steps: Sequence[float], *, name: str) -> None:
    if len(steps) < 2:
        raise ConfigError(
            f"`{name}` as a list has {len(steps)} point(s), but a line needs two. Write a plain "
            "number for a constant value, or at least `[[0, first], [env steps, second]]`."
        )
    if steps[0] != 0.0:
        raise ConfigError(
            f"`{name}` starts at {steps[0]:g} env steps, so its value before is unknown. Let the "
            "first pair be `[0, value]`."
        )
    if any(later <= earlier for earlier, later in pairwise(steps)):
        raise ConfigError(
            f"`{name}` has points at {[f'{step:g}' for step in steps]} env steps, which do not "
            "ascend, so the order of its values is unclear. Sort the pairs, and give each number "
            "of steps once."
        )
