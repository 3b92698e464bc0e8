"""Acting with memory: what a network with a state hands on from step to step, by env slot.

slot.memory     the state after the slot's last action; None before the first one of an episode.
It is part of the slot's position, as plain arrays
`state_in`      an extra output of every step: the state before it, which learning begins with
`prev_actions`, `prev_rewards`      further ones, if the network reads them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from trainer.connectors import ObservationEncoder
from trainer.env_runners.acting import ActionSource, Where
from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.messages import EnvRunnerSpec
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.episode_columns import PREV_ACTIONS, PREV_REWARDS, STATE_IN
from trainer.errors import ConfigError
from trainer.modules import RLModule
from trainer.modules.memory import state_form
from trainer.types import Array


class PreviousSteps:
    """The actions and rewards before, as the networks that ask for them read them.

    Attributes:
        names: of the columns that are read.
    """

    def __init__(self, module: RLModule) -> None:
        """Reads `lstm_use_prev_action` and `lstm_use_prev_reward` of the module's settings."""
        config = module.model_config
        self._encoder = ObservationEncoder(module.action_space)
        reads = {PREV_ACTIONS: "lstm_use_prev_action", PREV_REWARDS: "lstm_use_prev_reward"}
        self.names = tuple(name for name, setting in reads.items() if config.get(setting))

    def columns(self, actions: Sequence[Any], rewards: Sequence[float]) -> dict[str, Array]:
        """The columns of some rows.

        Args:
            actions: as the module gave them; None before the first step of an episode.
            rewards: as the env gave them; 0 there.

        Returns:
            `prev_actions` float32 [B, A] and `prev_rewards` float32 [B], as far as they are read.
        """
        columns: dict[str, Array] = {}
        if PREV_ACTIONS in self.names:
            codes = np.zeros((len(actions), self._encoder.size), np.float32)
            having = [row for row, action in enumerate(actions) if action is not None]
            if having:
                codes[having] = self._encoder.encode([actions[row] for row in having])
            columns[PREV_ACTIONS] = codes
        if PREV_REWARDS in self.names:
            columns[PREV_REWARDS] = np.array(rewards, np.float32)
        return columns

    def of_episodes(self, episodes: Sequence[SingleAgentEpisode]) -> dict[str, Array]:
        """The columns of the next steps of episodes."""
        if not self.names:
            return {}
        actions, rewards = [], []
        for episode in episodes:
            has_step = episode.actions.total > 0
            actions.append(episode.actions.data[-1] if has_step else None)
            rewards.append(float(episode.rewards.data[-1]) if has_step else 0.0)
        return self.columns(actions, rewards)


class RememberingSource(ActionSource):
    """Gives the actions of env slots, with a module that has memory; see `ActionSource`."""

    def __init__(self, module: RLModule, spec: EnvRunnerSpec, *, where: Where) -> None:
        super().__init__(module, spec, where=where)
        name = type(module).__name__
        self._form = state_form(module)
        self._previous = PreviousSteps(module)
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
        previous = self._previous.of_episodes([_episode_of(slot) for slot in active])
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
        return self.exploring.chosen(
            outputs,
            noise,
            slots=[slot.index for slot in active],
            timestep=self._timestep,
            explore=self._explore,
        )


def _episode_of(slot: EnvSlot) -> SingleAgentEpisode:
    episode = slot.episode
    if episode is None:
        raise RuntimeError("An action was asked of a slot without a running episode.")
    return episode


def action_source(module: RLModule, spec: EnvRunnerSpec, *, where: Where) -> ActionSource:
    """Where the actions of a module come from."""
    source = RememberingSource if module.is_stateful() else ActionSource
    return source(module, spec, where=where)
