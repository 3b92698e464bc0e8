"""From observations to actions with an exploration strategy; plain sampling does without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.env_runners.acting import Acting
from trainer.env_runners.observations import copied
from trainer.env_runners.perturbed_modules import PerturbedModules
from trainer.errors import ConfigError
from trainer.exploration import ActionChoice, Exploration, ExplorationSpec
from trainer.types import Array


class Exploring:
    """An exploration strategy at work in one runner.

    Attributes:
        strategy: what chooses.
        noise_kind, noise_width: the random numbers that it takes per step.
        gives_logp: whether it brings log-likelihoods with every step.
    """

    @classmethod
    def of(
        cls, acting: Acting, spec: ExplorationSpec, *, num_workers: int = 0, worker_index: int = 0
    ) -> Exploring | None:
        """None if the strategy only draws from the distribution, which acting does by itself.

        Raises:
            UnsupportedSpaceError: the strategy cannot serve the action space.
            ConfigError: an argument of the strategy is wrong.
        """
        if spec.is_plain_sampling:
            return None
        strategy = spec.make(
            acting.space,
            distribution=acting.distribution,
            num_workers=num_workers,
            worker_index=worker_index,
        )
        return cls(acting, strategy)

    def __init__(self, acting: Acting, strategy: Exploration) -> None:
        self.strategy = strategy
        self.noise_kind = strategy.noise_kind
        self.noise_width = strategy.noise_width
        self.gives_logp = strategy.gives_logp
        self._acting = acting
        self._perturbed = (
            PerturbedModules(acting.module, strategy) if strategy.perturbs_weights else None
        )

    def act(
        self,
        observations: list[Any],
        noise: Array,
        *,
        slots: Sequence[int],
        timestep: int,
        explore: bool,
        where: Callable[[int], str],
    ) -> tuple[list[Any], list[Any]]:
        """One action per observation.

        Args:
            observations: B elements of the observation space.
            noise: float64 [B, noise_width].
            slots: whose observations these are.
            timestep: see `Exploration.get_exploration_action`.
            explore: False takes the most likely actions, with the weights as they are.
            where: says which observation a row is, for an error text.

        Returns:
            B actions as the module gives them, and B rows of distribution inputs; pairs of these
            and log-likelihoods if the strategy gives such (`Exploration.gives_logp`).

        Raises:
            EnvContractError: see `Acting.act`.
            ConfigError: the strategy gave another number of actions.
        """
        acting = self._acting
        batch = acting.encoded(observations, where)
        if self._perturbed is not None and explore:
            inputs = self._perturbed.forward(batch, slots)
        else:
            inputs = acting.inputs(batch, explore=explore)
        choice = ActionChoice(acting.distribution, inputs, noise, self.noise_kind, slots)
        actions, logp = self.strategy.get_exploration_action(
            action_distribution=choice, timestep=timestep, explore=explore
        )
        # Copies: a strategy or module of the user's may write into the same memory again.
        inputs, actions, logp = copied(inputs), copied(actions), copied(logp)
        rows = acting.rows(actions, len(slots))
        if len(rows) != len(slots) or (logp is not None and len(logp) != len(slots)):
            raise ConfigError(
                f"{type(self.strategy).__name__}.get_exploration_action() gave {len(rows)} actions "
                f"and {None if logp is None else len(logp)} log-likelihoods for {len(slots)} env "
                "slots. Return one row for each row of `action_distribution.inputs`."
            )
        if not self.gives_logp:
            return rows, list(inputs)
        if logp is None:
            logp = self.logp(inputs, actions, timestep=timestep, explore=explore)
        return rows, list(zip(inputs, logp, strict=True))

    def logp(self, inputs: Array, actions: Array, *, timestep: int, explore: bool) -> Array:
        """Log-likelihoods under what chose the actions, [B]; see `Exploration.logp`."""
        if explore:
            return self.strategy.logp(inputs, actions, timestep=timestep)
        return self._acting.distribution.logp(inputs, actions)

    def pass_over(self, slot: int, noise: Array) -> None:
        """Goes one step on in a slot whose action was chosen otherwise.

        Args:
            slot: its number in the runner.
            noise: the step's random numbers, [noise_width].
        """
        self.strategy.advance([slot], noise.reshape(1, -1))

    def begin_episode(
        self,
        slot: int,
        rng: Callable[[], np.random.Generator],
        *,
        played: Iterable[Array] = (),
    ) -> None:
        """Begins an episode, or goes on with one in the middle after the slot was put back.

        Args:
            slot: its number in the runner.
            rng: gives the episode's own generator, for noise on weights.
            played: the random numbers of the steps that were made already, [noise_width] each.
        """
        self.strategy.begin_episode(slot)
        if self._perturbed is not None:
            self._perturbed.begin_episode(slot, rng())
        for noise in played:
            self.pass_over(slot, noise)

    def refresh(self) -> None:
        """Takes over new weights and a new state of the strategy, before a request is answered."""
        if self._perturbed is not None:
            self._perturbed.refresh()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes over what the main process' strategy knows."""
        self.strategy.set_state(dict(state))
