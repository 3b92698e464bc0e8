"""Actions for single observations, outside training: what `compute_single_action` does."""

from __future__ import annotations

from typing import Any

from trainer.config import AlgorithmConfig
from trainer.env_runners.acting import Acting
from trainer.modules import RLModule
from trainer.runtime.blas_threads import single_threaded_blas
from trainer.seeding import NOISE_DRAWS, Role, position_rng


class Inference:
    """Turns observations into actions with a module, as a runner does."""

    def __init__(self, module: RLModule, config: AlgorithmConfig, root_seed: int) -> None:
        self._acting = Acting(
            module, normalize_actions=config.normalize_actions, clip_actions=config.clip_actions
        )
        self._explore = bool(config.explore)
        self._root_seed = root_seed

    def action(self, observation: Any, *, explore: bool | None, number: int) -> Any:
        """One action, as the env takes it.

        Args:
            observation: one element of the observation space.
            explore: draw (True), take the most likely (False), or do as configured (None).
            number: how many actions were computed so far: where the random numbers stand.
        """
        acting = self._acting
        noise = None
        if self._explore if explore is None else explore:
            rng = position_rng(self._root_seed, Role.EXPLORATION, number)
            noise = NOISE_DRAWS[acting.noise_kind](rng, (1, acting.noise_width))
        with single_threaded_blas():
            actions, _ = acting.act([observation], noise)
        return acting.to_env(actions[0])
