"""Optimisers of Torch as parts of a learner: their steps, and their state as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from checkpoints import state_array
from trainer.errors import ModuleError
from trainer.nn import Schedule, ScheduleSetting
from trainer.nn.torch_network import torch_library
from trainer.types import State


class TorchOptimizer:
    """An optimiser of Torch over some of a network's parameters.

    Attributes:
        lr: the learning rate of its next step; of its first group if there are several.
    """

    def __init__(self, optimizer: Any, *, lr: ScheduleSetting | None, name: str) -> None:
        """Takes over an optimiser that has made no step.

        Args:
            optimizer: a `torch.optim.Optimizer`.
            lr: its learning rate, or a schedule of it; None leaves what it was made with.
            name: for messages.
        """
        self._optimizer, self._name = optimizer, name
        self._schedule = None if lr is None else Schedule.from_setting(lr, name=f"lr of {name}")

    @property
    def lr(self) -> float:
        return float(self._optimizer.param_groups[0]["lr"])

    def step(self, num_env_steps: int) -> None:
        """Moves the parameters along their gradients; schedules are read at `num_env_steps`."""
        if self._schedule is not None:
            for group in self._optimizer.param_groups:
                group["lr"] = self._schedule.value_at(num_env_steps)
        self._optimizer.step()

    def get_state(self) -> State:
        """What it remembers of each parameter, and the options of its groups; copies."""
        state = self._optimizer.state_dict()
        return {
            "state": {
                str(index): {key: _as_plain(value) for key, value in of_one.items()}
                for index, of_one in state["state"].items()
            },
            "groups": [
                {key: _as_plain(value) for key, value in group.items() if key != "params"}
                for group in state["param_groups"]
            ],
        }

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave, or raises a ModuleError and changes nothing."""
        own = self._optimizer.state_dict()["param_groups"]
        groups, of_parameters = state.get("groups", []), state.get("state", {})
        if not (self._has_groups_like(groups, own) and self._remembers_like(of_parameters)):
            raise ModuleError(
                f"The state of the optimiser {self._name!r} does not fit: it is of another kind of "
                "optimiser, or of other parameters. Register it as when the state was saved."
            )
        self._optimizer.load_state_dict(
            {
                "state": {
                    int(index): {key: _as_torch(value) for key, value in one.items()}
                    for index, one in of_parameters.items()
                },
                "param_groups": [
                    {**mine, **{key: _like(mine[key], value) for key, value in given.items()}}
                    for given, mine in zip(groups, own, strict=True)
                ],
            }
        )

    @staticmethod
    def _has_groups_like(groups: Any, own: list[Any]) -> bool:
        """Whether these are the options of as many groups, by the same names and kinds."""
        return (
            isinstance(groups, list)
            and len(groups) == len(own)
            and all(
                isinstance(given, Mapping)
                and given.keys() | {"params"} == mine.keys()
                and all(_is_like(mine[key], value) for key, value in given.items())
                for given, mine in zip(groups, own, strict=True)
            )
        )

    def _remembers_like(self, of_parameters: Any) -> bool:
        """Whether this is remembered of some of its parameters: numbers of their shapes."""
        groups = self._optimizer.param_groups
        shapes = [list(one.shape) for group in groups for one in group["params"]]
        return isinstance(of_parameters, Mapping) and all(
            index.isdecimal() and int(index) < len(shapes) and _fits(one, shapes[int(index)])
            for index, one in of_parameters.items()
        )


def _as_plain(value: Any) -> Any:
    if hasattr(value, "detach"):
        return state_array(value.detach().cpu().numpy())
    return list(value) if isinstance(value, tuple) else value


def _as_torch(value: Any) -> Any:
    torch = torch_library("An optimiser")
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value


def _like(mine: Any, value: Any) -> Any:
    return tuple(value) if isinstance(mine, tuple) and isinstance(value, list) else value


def _is_like(mine: Any, value: Any) -> bool:
    """Whether an option may take the place of one: a number that of a number, say."""
    if isinstance(mine, tuple):
        return (
            isinstance(value, list) and len(value) == len(mine) and all(map(_is_like, mine, value))
        )
    numbers = int | float
    is_number = isinstance(mine, numbers) and not isinstance(mine, bool)
    if is_number or hasattr(mine, "detach"):
        return isinstance(value, numbers | np.ndarray) and not isinstance(value, bool)
    return type(value) is type(mine) or value is None or mine is None


def _fits(of_one: Any, shape: list[int]) -> bool:
    """Whether what is remembered of a parameter is numbers of its shape, or single ones."""
    return isinstance(of_one, Mapping) and all(
        list(value.shape) in (shape, []) and value.dtype.kind in "fiub"
        if isinstance(value, np.ndarray)
        else value is None or isinstance(value, int | float)
        for value in of_one.values()
    )
