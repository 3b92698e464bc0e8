"""Learning rates that schedulers of Torch decide, for networks of any kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

from checkpoints import CheckpointMismatchError, check_shape
from trainer.errors import ConfigError
from trainer.nn.torch_network import torch_library
from trainer.types import State
from trainer_toolkit.checks import fields, integer

_USER: Final = "`torch_lr_schedulers`"
_MOST_STEPS: Final = 2**22
"""A state is restored by making as many; this takes a minute."""
_HALF_WAY: Final = -1
"""The count while a step is made, and after one that was broken off: never that of a state."""


class TorchSchedule:
    """The learning rate of one optimiser, as schedulers of Torch decide it.

    They act on an optimiser of their own that moves nothing, so that every optimiser can follow.
    What they remember is how often they were stepped: a state is that number, and is restored by
    making as many steps again.

    Attributes:
        optimizer: the one that they act on; a rate for each group.
    """

    def __init__(self, factories: Sequence[Callable[[Any], Any]], rates: Sequence[float]) -> None:
        """Makes the schedulers, one after another on the same rates.

        Args:
            factories: `functools.partial` of schedulers, or such classes, called with an optimiser.
            rates: the learning rates before them, one for each group of parameters.

        Raises:
            ConfigError: one is none, or changes more than rates.
        """
        self._factories, self._rates = tuple(factories), tuple(rates)
        self._begin()

    def _begin(self) -> None:
        torch = torch_library(_USER)
        groups = [{"params": [torch.zeros(1)], "lr": rate} for rate in self._rates]
        self.optimizer = torch.optim.Adam(groups)
        self._usual = self._others()
        self._schedulers: list[Any] = []
        for factory in self._factories:
            self._schedulers.append(self._made(factory))
        self._num_steps = 0
        self._check()

    def _made(self, factory: Callable[[Any], Any]) -> Any:
        name = getattr(getattr(factory, "func", factory), "__name__", repr(factory))
        try:
            made = factory(self.optimizer)
            wanted = inspect.signature(made.step).parameters.values()
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ConfigError(
                f"{_USER}: {name} raised {type(error).__name__}: {error}. Give schedulers of "
                "torch.optim.lr_scheduler with all of their arguments but the optimiser: "
                "functools.partial(ExponentialLR, gamma=0.99)."
            ) from error
        if any(one.default is one.empty for one in wanted):
            raise ConfigError(
                f"{_USER}: {name}.step() wants {', '.join(one.name for one in wanted)}, which is "
                "not given: schedulers are stepped once after each update. Take one that depends "
                "on the number of steps alone."
            )
        return made

    def _others(self) -> list[Any]:
        """What the groups hold besides parameters and rates."""
        rates = {"params", "lr", "initial_lr"}
        return [
            {name: one for name, one in group.items() if name not in rates}
            for group in self.optimizer.param_groups
        ]

    def _check(self) -> None:
        changed = {
            name
            for before, now in zip(self._usual, self._others(), strict=True)
            for name in now
            if name in before and now[name] != before[name]
        }
        if changed:
            raise ConfigError(
                f"{_USER} change {', '.join(sorted(changed))} of the optimiser, which would have "
                "no effect here: they decide learning rates. Switch that off "
                "(`cycle_momentum=False`)."
            )

    @property
    def rates(self) -> list[float]:
        """The learning rates of now, one for each group."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def value_at(self, num_env_steps: int) -> float:
        """The learning rate of now, of the first group; the env steps do not matter."""
        del num_env_steps
        return self.rates[0]

    def step(self) -> None:
        """Goes on to the rates of the next update."""
        self._step()
        self._check()

    def _step(self) -> None:
        done, self._num_steps = self._num_steps, _HALF_WAY  # whatever is raised below
        self.optimizer.step()  # moves nothing; schedulers warn where no step came before theirs
        for scheduler in self._schedulers:
            try:
                scheduler.step()
            except ValueError as error:
                raise ConfigError(
                    f"{_USER}: {type(scheduler).__name__} makes no step after the {done} that were "
                    f"made: {error} Let it last for as many updates as the run makes."
                ) from error
        self._num_steps = done + 1

    def get_state(self) -> State:
        """How many steps were made."""
        return {"num_steps": self._num_steps}

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it."""
        check_shape(state, fields({"num_steps": integer(0, maximum=_MOST_STEPS)}))

    def set_state(self, state: State) -> None:
        """Makes as many steps as `get_state` said, from the beginning.

        Raises:
            CheckpointMismatchError: the schedulers make fewer; they stand where they stood.
        """
        self.check_state(state)
        before = self._num_steps
        if state["num_steps"] == before:
            return
        try:
            self._go_to(state["num_steps"])
        except ConfigError as error:
            self._go_to(max(before, 0))
            raise CheckpointMismatchError(f"{error} The state is of other schedulers.") from error

    def _go_to(self, num_steps: int) -> None:
        self._begin()
        for _ in range(num_steps):
            self._step()
        self._check()
