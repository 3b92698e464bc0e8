"""Optimisers of Torch as parts of a learner: their steps, and their state as plain data."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from checkpoints import state_array
from trainer.errors import ConfigError, ModuleError
from trainer.learners.torch_schedulers import TorchSchedule
from trainer.nn import Schedule, ScheduleSetting
from trainer.nn.torch_network import torch_library
from trainer.types import State
from trainer_toolkit.undo import Undo


class TorchOptimizer:
    """An optimiser of Torch over some of a network's parameters.

    Attributes:
        optimizer: the optimiser of Torch.
        parameters: what it moves.
        lr: the learning rate of its last step; of its first group if there are several.
    """

    def __init__(self, optimizer: Any, *, lr: ScheduleSetting | None, name: str) -> None:
        """Takes over an optimiser that has made no step.

        Args:
            optimizer: a `torch.optim.Optimizer`.
            lr: its learning rate, or a schedule of it; None leaves what it was made with.
            name: for messages.

        Raises:
            ConfigError: it is none, it needs a closure, or its groups have rates of their own.
        """
        if problem := _problem_with(optimizer, lr):
            raise ConfigError(f"register_optimizer(optimizer_name={name!r}): {problem}")
        self.optimizer, self._name = optimizer, name
        self._schedule = None if lr is None else Schedule.from_setting(lr, name=f"lr of {name}")
        self._torch_schedule: TorchSchedule | None = None

    @property
    def parameters(self) -> list[Any]:
        return [one for group in self.optimizer.param_groups for one in group["params"]]

    @property
    def lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    @property
    def rates(self) -> list[float]:
        """The learning rates of its groups, before the first step of schedulers."""
        if self._schedule is not None:
            return [self._schedule.value_at(0)] * len(self.optimizer.param_groups)
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def follow(self, schedule: TorchSchedule) -> None:
        """Lets schedulers of Torch decide its rates from now on."""
        self._torch_schedule = schedule

    def step(self, num_env_steps: int) -> None:
        """Moves the parameters along their gradients; schedules are read at `num_env_steps`."""
        if self._torch_schedule is not None:
            rates = self._torch_schedule.rates
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
        elif self._schedule is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = self._schedule.value_at(num_env_steps)
        self.optimizer.step()

    def mark(self) -> Undo:
        """What gives it the state of now back, unjudged: options may have come since."""
        return partial(self.optimizer.load_state_dict, copy.deepcopy(self.optimizer.state_dict()))

    def get_state(self) -> State:
        """What it remembers of each parameter, and the options of its groups; copies."""
        plain: State = _as_plain(self.optimizer.state_dict())
        return plain

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave, or raises a ModuleError and changes nothing."""
        own = self.optimizer.state_dict()
        if not (_has_groups_like(own, state) and self._remembers_like(state)):
            raise ModuleError(
                f"The state of the optimiser {self._name!r} does not fit: it is of another kind of "
                "optimiser, or of other parameters. Register it as when the state was saved."
            )
        torch = torch_library("An optimiser")

        def in_torch(value: Any) -> Any:
            return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value

        self.optimizer.load_state_dict(
            {
                "state": {
                    int(index): {key: in_torch(value) for key, value in of_one.items()}
                    for index, of_one in state["state"].items()
                },
                "param_groups": [
                    {**mine, **{key: _like(mine[key], in_torch(given[key])) for key in given}}
                    for mine, given in zip(own["param_groups"], state["param_groups"], strict=True)
                ],
            }
        )

    def _remembers_like(self, state: State) -> bool:
        """Whether it could remember this: what a step of a copy of it remembers."""
        of_parameters = state.get("state")
        if not isinstance(of_parameters, Mapping):
            return False
        if not of_parameters:
            return True
        twin = copy.deepcopy(self.optimizer)
        for group in twin.param_groups:
            for one in group["params"]:
                one.grad = one.detach().clone().zero_()
        twin.step()
        expected = _as_plain(twin.state_dict())["state"]
        return of_parameters.keys() <= expected.keys() and all(
            isinstance(given, Mapping)
            and given.keys() == expected[index].keys()
            and all(_is_alike(expected[index][key], given[key]) for key in given)
            for index, given in of_parameters.items()
        )


def _problem_with(optimizer: Any, lr: ScheduleSetting | None) -> str:
    torch = torch_library("An optimiser")
    if not isinstance(optimizer, torch.optim.Optimizer):
        return f"optimizer is a {type(optimizer).__name__}; expected a torch.optim.Optimizer."
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        return (
            f"{type(optimizer).__name__} computes the loss several times per step (a closure), "
            "which is not offered. Take one that makes its step from the gradients."
        )
    rates = {float(group["lr"]) for group in optimizer.param_groups}
    if lr is not None and len(rates) > 1:
        return (
            f"its groups have the rates {sorted(rates)}, and lr_or_lr_schedule={lr!r} would give "
            "all of them one. Leave it out, or register an optimiser for each."
        )
    return ""


def _has_groups_like(own: Mapping[str, Any], state: Any) -> bool:
    """Whether these are options of as many groups: numbers that may change, the others the same."""
    groups = state.get("param_groups") if isinstance(state, Mapping) else None
    if not isinstance(groups, list) or len(groups) != len(own["param_groups"]):
        return False
    for mine, given in zip(_as_plain(own)["param_groups"], groups, strict=True):
        if not isinstance(given, Mapping) or given.keys() != mine.keys():
            return False
        if not all(_is_option_like(mine[key], given[key]) for key in given):
            return False
    return True


def _is_option_like(mine: Any, given: Any) -> bool:
    if isinstance(mine, list):
        return (
            isinstance(given, list)
            and len(given) == len(mine)
            and all(map(_is_option_like, mine, given))
        )
    if isinstance(mine, np.ndarray):
        return _is_alike(mine, given) and bool(np.isfinite(given).all())
    if isinstance(mine, int | float) and not isinstance(mine, bool):
        return type(given) in (int, float) and math.isfinite(given)
    return type(given) is type(mine) and bool(given == mine)


def _is_alike(expected: Any, given: Any) -> bool:
    """Whether it is an array of the same shape and number type, or a value of the same kind."""
    if isinstance(expected, np.ndarray):
        return (
            isinstance(given, np.ndarray)
            and given.shape == expected.shape
            and given.dtype == expected.dtype
        )
    return type(given) is type(expected)


def _as_plain(value: Any) -> Any:
    """A state of Torch as plain data: arrays for tensors, lists for tuples, texts as keys."""
    if isinstance(value, Mapping):
        return {str(key): _as_plain(item) for key, item in value.items() if key != "params"}
    if isinstance(value, list | tuple):
        return [_as_plain(item) for item in value]
    return state_array(value.detach().cpu().numpy()) if hasattr(value, "detach") else value


def _like(mine: Any, value: Any) -> Any:
    return tuple(value) if isinstance(mine, tuple) else value
