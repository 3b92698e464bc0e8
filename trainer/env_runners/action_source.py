"""Where the actions of a runner come from: its module, a strategy, or uniform draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from trainer.env_runners.acting import Acting
from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.exploring import Exploring
from trainer.env_runners.spec import EnvRunnerSpec
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.columns import ACTION_DIST_INPUTS, ACTION_LOGP
from trainer.episodes.conversion import add_output
from trainer.modules import RLModule
from trainer.seeding import NoiseStream, Role, position_rng
from trainer.types import Array

Where = Callable[[list[EnvSlot], int], str]
"""Says which observation a row of some slots is, for an error text."""


class ActionSource:
    """Gives the actions of env slots; a function of each slot's position and of its row alone.

    Attributes:
        acting: asks the module.
        exploring: the strategy at work; None for plain sampling.
        outputs: the extra outputs that each step brings.
    """

    def __init__(self, module: RLModule, spec: EnvRunnerSpec, *, where: Where) -> None:
        self.acting = Acting(
            module, normalize_actions=spec.normalize_actions, clip_actions=spec.clip_actions
        )
        self.exploring = Exploring.of(
            self.acting,
            spec.exploration,
            num_workers=spec.num_workers,
            worker_index=spec.worker_index,
        )
        self.outputs: tuple[str, ...] = (ACTION_DIST_INPUTS,)
        if self.exploring is not None and self.exploring.gives_logp:
            self.outputs = (ACTION_DIST_INPUTS, ACTION_LOGP)
        self._explore, self._timestep = spec.explore, 0
        self._spec = spec
        self._where = where

    def noise_stream(self) -> NoiseStream:
        """A new stream of the numbers that actions take."""
        source = self.exploring or self.acting
        return NoiseStream(
            self._spec.root_seed,
            self._spec.role,
            kind=source.noise_kind,
            width=source.noise_width,
        )

    def act(
        self, active: list[EnvSlot], *, explore: bool, timestep: int
    ) -> tuple[list[Any], list[Any]]:
        """An action for each slot, and what it comes from: one value of `outputs`, or a tuple."""
        self._explore, self._timestep = explore, timestep
        noise = None
        # Also where nothing is drawn: the stream stays in step with the episode.
        rows = [slot.noise.next_row() for slot in active]
        if explore or self.exploring is not None:
            noise = np.concatenate(rows).reshape(len(rows), -1)
        observations = [slot.observation for slot in active]
        where = partial(self._where, active)
        if self.exploring is None or noise is None:
            return self.acting.act(observations, noise, where=where)
        return self.exploring.act(
            observations,
            noise,
            slots=[slot.index for slot in active],
            timestep=timestep,
            explore=explore,
            where=where,
        )

    def logp(self, inputs: Array, actions: Any) -> Array:
        """The log-likelihoods of actions of the request at work, [B].

        Args:
            inputs: the distribution inputs that they came from, [B, K].
            actions: as the module gives them, [B, …].
        """
        if self.exploring is None:
            return self.acting.distribution.logp(inputs, actions)
        return self.exploring.logp(inputs, actions, timestep=self._timestep, explore=self._explore)

    def add_logp(self, episodes: Sequence[SingleAgentEpisode]) -> None:
        """Adds the log-likelihoods of the episodes' actions as an extra output of all their steps.

        Done once per request, within which neither timestep nor strategy change: for all steps
        together it costs little more than for a single one.
        """
        add_output(episodes, ACTION_LOGP, source=ACTION_DIST_INPUTS, compute=self.logp)

    def draw_uniformly(self, active: list[EnvSlot]) -> tuple[list[Any], None]:
        """Actions drawn uniformly from the action space, without the module."""
        actions = []
        for slot in active:
            rng = slot.exploration_rng(self._spec.root_seed)
            where = partial(self._where, [slot])
            actions.append(self.acting.draw_uniformly(slot.observation, rng, where=where))
            noise = slot.noise.next_row()  # the stream stays in step with the episode
            if self.exploring is not None:
                self.exploring.pass_over(slot.index, noise)
        return actions, None

    def begin_episode(self, slot: EnvSlot, stream: int, *, played: int = 0) -> None:
        """Tells the strategy of an episode that begins, or goes on after a repair.

        Args:
            slot: which has its noise at the beginning of the episode.
            stream: first half of the episode's position.
            played: steps of it that were made already.
        """
        if self.exploring is None:
            return
        # Four integers: no other use of the role has as many.
        position = (self._spec.role, stream, slot.episode_number, 0)
        self.exploring.begin_episode(
            slot.index,
            lambda: position_rng(self._spec.root_seed, Role.EXPLORATION, *position),
            played=(slot.noise.next_row() for _ in range(played)),
        )

    def refresh(self) -> None:
        """Takes over what may have changed between two requests."""
        if self.exploring is not None:
            self.exploring.refresh()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes over what the main process' strategy knows."""
        if self.exploring is not None:
            self.exploring.set_state(state)
