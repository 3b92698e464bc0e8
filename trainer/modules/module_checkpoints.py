"""Modules alone in checkpoints, and gymnasium's spaces as plain data.

Saving a module alone, and making it again from a checkpoint that holds one.

Gymnasium's spaces as plain data and back, so that checkpoints can hold them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from checkpoints import Checkpointable, CheckpointMismatchError, PathLike
from checkpoints.components import checkpoint_and_root, read_constructor
from trainer.errors import UnsupportedSpaceError
from trainer.nn import Parameters
from trainer.types import Array

# ---- space records


def space_record(space: gym.Space[Any]) -> dict[str, Any]:
    """A space as plain data; its random state is left out.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, Text, or Dict and Tuple of these; not of
            a class derived from them, whose meaning nobody knows.

    Raises:
        UnsupportedSpaceError: it is, or holds, another space.
    """
    kind = type(space)
    if isinstance(space, spaces.Box) and kind is spaces.Box:
        bounds = {"low": _compact(space.low), "high": _compact(space.high)}
        facts: dict[str, Any] = {"shape": list(space.shape), "dtype": space.dtype.str, **bounds}
    elif isinstance(space, spaces.Discrete) and kind is spaces.Discrete:
        facts = {"n": int(space.n), "start": int(space.start), "dtype": _dtype(space)}
    elif isinstance(space, spaces.MultiDiscrete) and kind is spaces.MultiDiscrete:
        facts = {
            "nvec": np.array(space.nvec),
            "start": np.array(space.start),
            "dtype": _dtype(space),
        }
    elif isinstance(space, spaces.MultiBinary) and kind is spaces.MultiBinary:
        facts = {"shape": list(space.shape)}
    elif isinstance(space, spaces.Text) and kind is spaces.Text:
        lengths = {"min_length": space.min_length, "max_length": space.max_length}
        facts = {**lengths, "characters": "".join(space.character_list)}
    elif isinstance(space, spaces.Dict) and kind is spaces.Dict:
        facts = {"spaces": [[key, space_record(part)] for key, part in space.spaces.items()]}
    elif isinstance(space, spaces.Tuple) and kind is spaces.Tuple:
        facts = {"spaces": [space_record(part) for part in space.spaces]}
    else:
        raise UnsupportedSpaceError(
            f"{space} of class {kind.__name__} has no plain description. Checkpoints know Box, "
            "Discrete, MultiDiscrete, MultiBinary, Text, and Dict and Tuple of these. Give the "
            "space again when you restore."
        )
    return {"space": kind.__name__, **facts}


def space_from_record(record: Any) -> gym.Space[Any]:
    """The space that `space_record` described.

    Raises:
        UnsupportedSpaceError: it describes none.
    """
    try:
        return _made(record)
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise UnsupportedSpaceError(
            f"{record!r} describes no space ({type(error).__name__}: {error}). Give the space "
            "itself: observation_space=..., action_space=..."
        ) from error


def _made(record: Mapping[str, Any]) -> gym.Space[Any]:
    kind = record["space"]
    if kind == "Box":
        shape, dtype = tuple(record["shape"]), np.dtype(record["dtype"])
        low, high = (_full(record[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, dtype=dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(record["n"], start=record["start"], **_numbers(record))
    if kind == "MultiDiscrete":
        # dtype first: the space refuses others of integers that it would take.
        dtype = np.dtype(record["dtype"]).type
        return spaces.MultiDiscrete(record["nvec"], dtype=dtype, start=record["start"])
    if kind == "MultiBinary":
        shape = record["shape"]
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == "Text":
        lengths = {"min_length": record["min_length"], "max_length": record["max_length"]}
        return spaces.Text(charset=record["characters"], **lengths)
    if kind == "Dict":
        return spaces.Dict({key: _made(part) for key, part in record["spaces"]})
    if kind == "Tuple":
        return spaces.Tuple([_made(part) for part in record["spaces"]])
    raise ValueError(f"unknown kind {kind!r}")


def _compact(bounds: Array) -> Array:
    """The bounds, or one number if they are all the same: images have many."""
    first = bounds.reshape(-1)[:1]
    compact: Array = first if bounds.size and (bounds == first).all() else bounds
    return np.array(compact)


def _full(bounds: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    given = np.array(bounds, dtype)
    filled: Array = np.full(shape, given.reshape(-1)[0]) if given.size == 1 else given
    return filled


def _dtype(space: gym.Space[Any]) -> str:
    return str(np.dtype(space.dtype).str)


def _numbers(record: Mapping[str, Any]) -> dict[str, Any]:
    """The dtype, where gymnasium lets one choose it (from 1.2 on) and it is not the usual one."""
    dtype = np.dtype(record["dtype"])
    return {} if dtype == np.int64 else {"dtype": dtype.type}


# ---- module checkpoints

_Self = TypeVar("_Self", bound="ModuleCheckpoints")
_SPACES = ("observation_space", "action_space")
_ARGUMENTS = (*_SPACES, "model_config", "inference_only", "action_mask_key", "dtype")
"""Those of every module, as they are saved."""


class ModuleCheckpoints(Checkpointable):
    """What an `RLModule` adds to `Checkpointable`: its spaces are saved as plain data.

    So a checkpoint of a module, or of an algorithm, is enough to make the module again:

        PPOModule.from_checkpoint("run/000010/learner/rl_module")
        RLModule.from_checkpoint("run/000010/learner/rl_module")      # the class by its name

    By name are found the classes of modules that this process has defined or imported already, and
    they are given no arguments but those of every module. So nothing is imported because a
    checkpoint says so, and what a class of yours does with other arguments is for you to call.
    """

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    model_config: dict[str, Any]
    inference_only: bool
    action_mask_key: str
    parameters: Parameters

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What makes a module like this, with all weights 0."""
        return (), {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "model_config": self.model_config,
            "inference_only": self.inference_only,
            "action_mask_key": self.action_mask_key,
            "dtype": self.parameters.dtype,
        }

    def _plain_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = self.get_ctor_args_and_kwargs()
        plain = dict(kwargs)
        for name in _SPACES:
            try:
                plain[name] = space_record(kwargs[name])
            except (KeyError, UnsupportedSpaceError):
                continue  # has to be given again
        plain["model_config"] = _plain(kwargs.get("model_config"))
        if "dtype" in plain:
            plain["dtype"] = np.dtype(plain["dtype"]).name
        return args, plain

    @classmethod
    def _ctor_args_from_plain(
        cls, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        made = dict(kwargs)
        for name in _SPACES:
            if name in made:
                made[name] = space_from_record(made[name])
        if "dtype" in made:
            made["dtype"] = {"float64": np.float64}.get(made["dtype"], np.float32)
        return args, made

    @classmethod
    def from_checkpoint(
        cls: type[_Self], path: PathLike, filesystem: object = None, **kwargs: Any
    ) -> _Self:
        """A module made and restored from a checkpoint; see `Checkpointable`.

        It is the network alone, which neither normalises observations (`observation_filter`) nor
        scales and clips actions: to act as the algorithm does, use `TrainedPolicy`.

        Args:
            path: what `module.save_to_path()` gave, or `<checkpoint of an algorithm>/learner/
                rl_module`.
            filesystem: must be None.
            kwargs: arguments of the class, instead of the saved ones: `inference_only=True`.

        Raises:
            CheckpointMismatchError: the path leads to no module, or to one of an unknown class.
            CheckpointError: see `restore_from_path`.
        """
        record = read_constructor(*checkpoint_and_root(path, None))
        chosen: type[Any] = cls
        if inspect.isabstract(cls):
            chosen = _class_named(cls, record, path)
            _check_arguments(record, path)
        if not record["kwargs"] and not kwargs:
            raise CheckpointMismatchError(
                f"{path} does not say what module it is of. To make one from the checkpoint of an "
                "algorithm, give the path of its weights: `<checkpoint>/learner/rl_module`. Or "
                "give what the class needs: observation_space=..., action_space=..., "
                "model_config=..."
            )
        made = super(ModuleCheckpoints, chosen).from_checkpoint(path, filesystem, **kwargs)
        return cast("_Self", made)


def _plain(value: Any) -> Any:
    """A setting with dicts and lists of the plain kind: those of a frozen config are others."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return tuple(map(_plain, value)) if type(value) is tuple else value


def _class_named(base: type, record: Mapping[str, Any], path: object) -> type[Any]:
    """The class that a record names, among those that are there."""
    name = record["class"]
    found = [cls for cls in _concrete(base) if f"{cls.__module__}.{cls.__qualname__}" == name]
    if not found:
        said = f"is of the class {name!r}" if name else "does not say of which class it is"
        raise CheckpointMismatchError(
            f"The module in {path} {said}, and no class of this name was imported. Call "
            "from_checkpoint() of its own class. In the checkpoint of an algorithm, a module is at "
            "`<checkpoint>/learner/rl_module`."
        )
    return found[-1]  # a notebook's cell that was run again: the newest


def _check_arguments(record: Mapping[str, Any], path: object) -> None:
    """Raises if a class that the checkpoint names would be given more than every module is."""
    others = [repr(name) for name in record["kwargs"] if name not in _ARGUMENTS]
    if record["args"]:
        others.append(f"{len(record['args'])} without a name")
    if others:
        raise CheckpointMismatchError(
            f"The module in {path} is of the class {record['class']!r} and was made with the "
            f"argument(s) {', '.join(others)}, which not every module has. A class that is found "
            "by its name in a checkpoint is not given them. Call from_checkpoint() of that class."
        )


def _concrete(base: type) -> Iterator[type[Any]]:
    derived: list[type[Any]] = base.__subclasses__()
    for cls in derived:
        if not inspect.isabstract(cls):
            yield cls
        yield from _concrete(cls)
