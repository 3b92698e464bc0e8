"""Small names of RLlib that scripts import: markers, constants, functions on arrays and spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from gymnasium import Space, spaces

from trainer.types import Array
from trainer_toolkit.trees import mapped

FLOAT_MAX: Final = 3.4e38
"""What RLlib's modules bound logits by."""
FLOAT_MIN: Final = -3.4e38
"""What RLlib's modules add to the logits of actions that are not allowed."""

COMPONENT_ENV_RUNNER: Final = "env_runner"
"""What RLlib calls the folder of the env runners in a checkpoint."""
ENV_STATE: Final = "state"
"""The key of the state in observations of grouped agents, beside those of the agents."""


def marker(*args: Any, **kwargs: Any) -> Any:
    """A decorator that changes nothing, with arguments and without."""
    is_bare = len(args) == 1 and not kwargs and callable(args[0])
    return args[0] if is_bare else _unchanged


def _unchanged(marked: Callable[..., Any]) -> Callable[..., Any]:
    return marked


def pretty_print(result: Mapping[str, Any]) -> str:
    """A result as text: a line per key, parts indented."""
    return "\n".join(_lines(result, ""))


def _lines(part: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in part.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{name}: {value}"


def log_once(key: str) -> bool:
    """Whether to log: never, for it hides what comes later."""
    del key
    return False


def try_import_tf(error: bool = False) -> tuple[None, None, None]:
    """There is no TensorFlow here; what RLlib gives where it is not installed.

    Raises:
        ImportError: `error` is True.
    """
    _refuse("TensorFlow", error)
    return None, None, None


def try_import_tfp(error: bool = False) -> None:
    """There is no TensorFlow here; what RLlib gives where it is not installed.

    Raises:
        ImportError: `error` is True.
    """
    _refuse("TensorFlow", error)


def try_import_jax(error: bool = False) -> tuple[None, None]:
    """There is no JAX here; what RLlib gives where it is not installed.

    Raises:
        ImportError: `error` is True.
    """
    _refuse("JAX", error)
    return None, None


def _refuse(framework: str, error: bool) -> None:
    if error:
        raise ImportError(f"networks run in NumPy or Torch here, not in {framework}")


# ---- arrays and spaces


def convert_to_numpy(values: Any, reduce_type: bool = True) -> Any:
    """Dicts, lists and tuples with new NumPy arrays in the place of tensors and arrays.

    Args:
        values: tensors, arrays or numbers, perhaps nested.
        reduce_type: float64 becomes float32, and int64 int32.
    """

    def in_numpy(leaf: Any) -> Array:
        # A copy: weights that are kept to be compared must not change with the network.
        array = np.array(leaf.detach().cpu().numpy() if hasattr(leaf, "detach") else leaf)
        smaller = {"float64": np.float32, "int64": np.int32}.get(array.dtype.name)
        return array.astype(smaller) if reduce_type and smaller else array

    return mapped(in_numpy, values)


def softmax(logits: Array, axis: int | None = None, epsilon: float | None = None) -> Array:
    """Probabilities of logits, of the same shape.

    Args:
        logits: numbers.
        axis: along which they sum to 1; None: the last one.
        epsilon: the least probability; None: tiny.
    """
    axis = -1 if axis is None else axis
    powers = np.exp(logits - np.max(logits, axis=axis, keepdims=True))
    least = 1e-6 if epsilon is None else epsilon
    probabilities: Array = np.maximum(powers / powers.sum(axis=axis, keepdims=True), least)
    return probabilities


def flatten_space(space: Space[Any]) -> list[Space[Any]]:
    """The spaces in a space, in the order of its parts; of a Dict in that of its sorted keys."""
    if isinstance(space, spaces.Dict):
        parts = [space.spaces[key] for key in sorted(space.spaces)]
    elif isinstance(space, spaces.Tuple):
        parts = list(space.spaces)
    else:
        return [space]
    return [leaf for part in parts for leaf in flatten_space(part)]


def batch(items: Sequence[Any], *, individual_items_already_have_batch_dim: bool = False) -> Any:
    """Items of the same nested structure as one, with arrays that have a row for each.

    Args:
        items: at least one; arrays or numbers, in dicts and tuples.
        individual_items_already_have_batch_dim: their arrays have rows already, and are joined.
    """
    joined, first = individual_items_already_have_batch_dim, items[0]
    if isinstance(first, Mapping):
        columns: Any = {key: [item[key] for item in items] for key in first}
        return {
            key: batch(column, individual_items_already_have_batch_dim=joined)
            for key, column in columns.items()
        }
    if isinstance(first, tuple):
        return tuple(
            batch(column, individual_items_already_have_batch_dim=joined)
            for column in zip(*items, strict=True)
        )
    return np.concatenate(items) if joined else np.stack(items)


def check(
    x: Any,
    y: Any,
    decimals: int = 5,
    atol: float | None = None,
    rtol: float | None = None,
    false: bool = False,
) -> None:
    """Raises an AssertionError unless two values are equal, part by part.

    Args:
        x: numbers, arrays, tensors or others, in dicts, lists and tuples.
        y: likewise.
        decimals: after the point, that must agree, unless a tolerance is given.
        atol: how far numbers may lie from each other.
        rtol: likewise, relative to `y`.
        false: raise if they are equal, instead.
    """
    absolute = 10.0**-decimals if atol is None and rtol is None else atol or 0.0
    is_equal = _are_equal(x, y, absolute, rtol or 0.0)
    if is_equal == false:
        raise AssertionError(f"{x!r:.500} {'equals' if false else 'is not'} {y!r:.500}.")


def _are_equal(x: Any, y: Any, atol: float, rtol: float) -> bool:
    if isinstance(x, Mapping) and isinstance(y, Mapping):
        return x.keys() == y.keys() and all(_are_equal(x[key], y[key], atol, rtol) for key in y)
    if isinstance(x, list | tuple) and isinstance(y, list | tuple):
        return len(x) == len(y) and all(
            _are_equal(first, second, atol, rtol) for first, second in zip(x, y, strict=True)
        )
    first, second = (convert_to_numpy(value, reduce_type=False) for value in (x, y))
    if "O" in first.dtype.kind + second.dtype.kind or first.dtype.kind in "US":
        return bool(x == y)
    return first.shape == second.shape and np.allclose(
        first, second, rtol=rtol, atol=atol, equal_nan=True
    )
