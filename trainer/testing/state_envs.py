"""A small env whose episodes cannot be repeated, but can be gone on with: yours and ours."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from trainer.testing.debug_envs import CountdownEnv

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class RestlessEnv(CountdownEnv):
    """A CountdownEnv with a generator of its own that no reset seeds, and `get_state`.

    The generator goes on from episode to episode. So an episode does not follow from its seed and
    its actions: only the state brings an env back into one.

    Settings (`env_config`): those of CountdownEnv, and
        first_seed: of the generator, when the env is made; 0. The number of the sub-env among all
            of the run is added if `num_envs_per_env_runner` is given here as well.
        num_envs_per_env_runner: as in the config of the run; 0.
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        super().__init__(env_config)
        runner = max(0, getattr(env_config, "worker_index", 0) - 1)
        per_runner = env_config.get("num_envs_per_env_runner", 0)
        slot = runner * per_runner + (getattr(env_config, "vector_index", 0) if per_runner else 0)
        self.generator = random.Random(env_config.get("first_seed", 0) + slot)

    def noise(self) -> float:
        """The next number of its own generator, in [0, 1)."""
        return self.generator.random()

    def get_state(self) -> dict[str, Any]:
        """All that the next steps depend on."""
        return {
            "length": self.length,
            "steps": self.steps,
            "mixture": self._mixture,
            "generator": self.generator.getstate(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self.length, self.steps = state["length"], state["steps"]
        self._mixture = state["mixture"]
        self.generator.setstate(state["generator"])
