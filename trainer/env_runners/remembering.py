"""Acting with memory: what a network with a state hands on from step to step, by env slot.

slot.memory     the state after the slot's last action; None before the first one of an episode.
It is part of the slot's position, as plain arrays
`state_in`      an extra output of every step: the state before it, which learning begins with
`prev_actions`, `prev_rewards`      further ones, if the network reads them
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from trainer.connectors import PreviousSteps
from trainer.env_runners.acting import (
    Acting,
    ActionSource,
    ValuingActing,
    VectorStep,
    Where,
)
from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.messages import EnvRunnerSpec
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.episode_columns import STATE_IN
from trainer.errors import ConfigError
from trainer.modules import RLModule
from trainer.modules.memory import state_form
from trainer.types import Array


class RememberingSource(ActionSource):
    """Gives the actions of env slots, with a module that has memory; see `ActionSource`."""

    def __init__(self, module: RLModule, spec: EnvRunnerSpec, *, where: Where) -> None:
        super().__init__(module, spec, where=where)
        name = type(module).__name__
        self._form = state_form(module)
        self._previous = PreviousSteps(module.action_space, module.model_config)
        if self.exploring is not None and self.exploring.strategy.perturbs_weights:
            raise ConfigError(
                f"{type(self.exploring.strategy).__name__} plays with noise on the weights, and "
                f"the network {name} has memory; its states would be those of other weights. Use "
                "another `exploration_config`, or a network without memory."
            )
        if self._previous.names and spec.lookback == 0:
            raise ConfigError(
                f"The network {name} reads the step before (`lstm_use_prev_action`, "
                "`lstm_use_prev_reward`), which `episode_lookback_horizon=0` leaves out where an "
                "episode is cut. Set it to 1 or more."
            )
        self.outputs = (*self.outputs, STATE_IN, *self._previous.names)
        self.reads_step_before = bool(self._previous.names)

    def act(
        self, active: list[EnvSlot], *, explore: bool, timestep: int
    ) -> tuple[list[Any], list[Any]]:
        """See `ActionSource.act`; hands every slot's state on."""
        self._explore, self._timestep = explore, timestep
        count = len(active)
        noise = np.concatenate([slot.noise.next_row() for slot in active]).reshape(count, -1)
        batch: dict[str, Any] = dict(
            self.acting.encoded([slot.observation for slot in active], partial(self._where, active))
        )
        states = self._form.together([slot.memory for slot in active])
        previous = self._previous.after([_episode_of(slot) for slot in active])
        batch |= {STATE_IN: states, **previous}
        outputs = self.acting.outputs(batch, explore=explore)
        for slot, state in zip(active, self._form.rows_of(outputs, count), strict=True):
            slot.memory = state
        actions, values = self._chosen(active, outputs, noise)
        rows = zip(self._form.rows(states, count), *previous.values(), strict=True)
        given = [
            (*(value if isinstance(value, tuple) else (value,)), *row)
            for value, row in zip(values, rows, strict=True)
        ]
        return actions, given

    def _chosen(
        self, active: list[EnvSlot], outputs: Mapping[str, Any], noise: Array
    ) -> tuple[list[Any], list[Any]]:
        """Actions, and what they come from, of a forward pass."""
        if self.exploring is None:
            return self.acting.chosen(outputs, noise if self._explore else None)
        step = VectorStep([slot.index for slot in active], self._timestep, self._explore)
        return self.exploring.chosen(outputs, noise, step)


def _episode_of(slot: EnvSlot) -> SingleAgentEpisode:
    episode = slot.episode
    if episode is None:
        raise RuntimeError("An action was asked of a slot without a running episode.")
    return episode


def action_source(module: RLModule, spec: EnvRunnerSpec, *, where: Where) -> ActionSource:
    """Where the actions of a module come from."""
    if module.is_stateful():
        return RememberingSource(module, spec, where=where)
    # A strategy brings outputs of its own, and nobody learns from what is played to evaluate.
    is_plain = spec.exploration.is_plain_sampling and not spec.in_evaluation
    acting = ValuingActing if is_plain and module.gives_values else Acting
    return ActionSource(module, spec, where=where, acting=acting)
