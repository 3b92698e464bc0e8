"""A whole step of DQN in C, with the bits of NumPy: plain values of ready-made networks.

The first step with batches of a size is made both ways. If a bit differs, NumPy makes the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from checkpoints import encode
from trainer.errors import ModuleError
from trainer.learners import ReplayBatch, ReplayUpdate
from trainer.modules import QModule, RLModule
from trainer.nn import kernels
from trainer.nn.optimizers import Adam, GradientClipping
from trainer.types import Array, State


class Learner(Protocol):
    """What a step needs of `DQNLearner`."""

    module: RLModule
    clipping: GradientClipping
    optimizer: Adam

    @property
    def target_module(self) -> RLModule: ...
    @property
    def is_double(self) -> bool: ...
    @property
    def is_huber(self) -> bool: ...
    def get_state(self) -> State: ...
    def set_state(self, state: State) -> None: ...
    def step_in_numpy(self, batch: ReplayBatch, *, lr: float) -> ReplayUpdate: ...
    def update_of(
        self, batch: ReplayBatch, loss: float, norm: float, errors: Array, selected: Array
    ) -> ReplayUpdate: ...


class StepInC:
    """Makes steps for one learner; keeps memory for the newest size of batches."""

    def __init__(self, learner: Learner) -> None:
        """No size was tried yet."""
        self._learner = learner
        self._plan: _Plan | None = None
        self._tried = 0

    def step(self, batch: ReplayBatch, *, lr: float) -> ReplayUpdate | None:
        """What a step gives; None: NumPy is to make it. A ModuleError as of `apply_gradients`."""
        size, plan = len(batch.obs), self._plan
        if size != self._tried or (plan is not None and not plan.is_current()):
            update = self._first_step(batch, lr)
            self._tried = size
            return update
        return None if plan is None else plan.step(self._learner, batch, lr)

    def _first_step(self, batch: ReplayBatch, lr: float) -> ReplayUpdate:
        """Made by NumPy, and by C again if it can."""
        learner, self._plan = self._learner, None
        before = learner.get_state()
        update = learner.step_in_numpy(batch, lr=lr)
        plan = _Plan.of(learner, len(batch.obs))
        if plan is None:
            return update
        after = learner.get_state()
        learner.set_state(before)
        try:
            found = plan.step(learner, batch, lr)
            is_same = found is not None and (
                found.td_errors.tobytes() == update.td_errors.tobytes()
                and encode(found.metrics()) == encode(update.metrics())
                and encode(learner.get_state()) == encode(after)
            )
        except ModuleError:  # a number that is not finite, where NumPy's were
            is_same = False
        if is_same:
            self._plan = plan
        else:
            learner.set_state(after)
        return update


class _Plan:
    """The networks and the memory for batches of one size."""

    @classmethod
    def of(cls, learner: Learner, size: int) -> _Plan | None:
        """The plan of the networks as they were used last; None if C does not know such."""
        functions = kernels.library()
        modules = learner.module, learner.target_module
        own = [module for module in modules if type(module) is QModule]
        networks = [network for one in own if (network := one.network_in_c()) is not None]
        optimizer, limit = learner.optimizer.in_c(None), learner.clipping.limit_in_c
        if functions is None or optimizer is None or limit is None or len(networks) < len(modules):
            return None
        return cls(functions, learner, size, own, networks, optimizer, limit)

    def __init__(
        self,
        functions: Any,
        learner: Learner,
        size: int,
        modules: Sequence[QModule],
        networks: Sequence[kernels.Network],
        optimizer: kernels.Optimizer,
        limit: float,
    ) -> None:
        network, target = networks
        self._pairs = [*zip(modules, networks, strict=True)]
        self._optimizer, self._limit = optimizer, limit
        self._shape = size, len(network.columns) - 1
        self._memory = np.empty((3, size), np.float32)
        self._errors, self._selected, scratch = self._memory
        self._plan = kernels.DqnPlan(
            *(kernels.place_of(chain.layers) for chain in networks),
            *(len(chain.layers) for chain in networks),
            size,
            len(network.columns) - 1,
            network.width,
            learner.is_double,
            learner.is_huber,
            *map(
                kernels.address_of,
                (network.columns, target.columns, self._errors, self._selected, scratch),
            ),
            kernels.place_of(optimizer.plan),
        )
        self._rows, self._numbers = kernels.Transitions(), kernels.StepNumbers()
        self._loss, self._norm = kernels.Number(), kernels.Number()
        structures = self._plan, self._rows, self._numbers, self._loss, self._norm
        self._at = [kernels.at(structure) for structure in structures]
        self._step = functions.dqn_step

    def is_current(self) -> bool:
        """Whether the networks have the memory that they had."""
        return all(module.is_current(network) for module, network in self._pairs)

    def step(self, learner: Learner, batch: ReplayBatch, lr: float) -> ReplayUpdate | None:
        """See `StepInC.step`."""
        floats = batch.obs, batch.next_obs, batch.rewards, batch.discounts, batch.weights
        actions = batch.actions
        is_fit = batch.obs.shape == batch.next_obs.shape == self._shape
        if not is_fit or any(one.shape != self._shape[:1] for one in (*floats[2:], actions)):
            return None
        is_fit = actions.dtype == np.int64 and actions.flags.c_contiguous
        if not is_fit or not kernels.are_plain(*floats):
            return None
        rows, numbers = self._rows, self._numbers
        rows.obs, rows.next_obs, rows.rewards, rows.discounts, rows.weights = map(
            kernels.address_of, floats
        )
        rows.actions = kernels.address_of(actions)
        numbers.limit = self._limit
        numbers.decay_1, numbers.decay_2, numbers.epsilon, numbers.factor = (
            learner.optimizer.next_factors(lr)
        )
        status = self._step(*self._at)
        if status < 0:
            return None
        loss, norm = self._loss.value, self._norm.value
        if status:
            learner.optimizer.note_step()
        return learner.update_of(batch, loss, norm, self._errors.copy(), self._selected.copy())
