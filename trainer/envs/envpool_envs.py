"""Envs of EnvPool, which steps many of them in threads of C++, as vector envs of gymnasium's.

Weng et al. 2022, "EnvPool: A Highly Parallel Reinforcement Learning Environment Execution Engine".
It is optional (`[envpool]`), and imported when an env is made. A pool has its seed from when it is
made, so a reset with another seed makes another pool.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import gymnasium
import gymnasium.vector
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from callbacks.optional_import import optional_module
from trainer_toolkit.nearest_names import did_you_mean

_OF_THE_POOL: Final = frozenset({"env_id", "players", "elapsed_step"})
"""Infos that say nothing of an env that its episode does not."""

_LARGEST_SEED: Final = 2**31

_OURS: Final = MappingProxyType(
    {
        "num_envs": "num_envs_per_env_runner",
        "seed": "debugging(seed=…)",
        "task_id": "environment(env=…)",
        "env_type": 'gym_env_vectorize_mode="envpool"',
    }
)
"""Arguments of `envpool.make` that are given elsewhere."""


@dataclass(frozen=True)
class EnvPoolCreator:
    """Makes vector envs of one of EnvPool's tasks; travels.

    Attributes:
        task: its name there.
        num_envs: sub-envs of each.
    """

    task: str
    num_envs: int = 1

    def __call__(self, options: Mapping[str, Any]) -> EnvPoolVectorEnv:
        """A vector env.

        Args:
            options: of `envpool.make`.

        Raises:
            ImportError: EnvPool is not installed.
            ValueError: it has no such task, or options ask for what is not played.
        """
        return EnvPoolVectorEnv(self.task, self.num_envs, options)

    def for_vectors(self, num_envs: int, where: str) -> EnvPoolCreator:
        """The same with so many sub-envs."""
        del where
        return replace(self, num_envs=num_envs)


def _bounded(space: Any) -> Any:
    """A space of EnvPool's, with no bounds where it says the smallest and largest numbers for them.

    The smallest is that above 0.
    """
    if isinstance(space, spaces.Dict | dict):
        return spaces.Dict({key: _bounded(part) for key, part in space.items()})
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        return space
    limits = np.finfo(np.float64)
    low = np.where(np.abs(space.low) == limits.tiny, -np.inf, space.low)
    high = np.where(space.high >= limits.max, np.inf, space.high)
    return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype.type)


class EnvPoolVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A pool whose spaces, seeds and infos are as gymnasium's vector envs have them.

    Attributes:
        pool: EnvPool's env.
    """

    def __init__(self, task: str, num_envs: int, options: Mapping[str, Any]) -> None:
        """See `EnvPoolCreator`."""
        self.pool: Any = None  # gymnasium 1.0 closes also what an error kept from being made
        user = 'gym_env_vectorize_mode="envpool"'
        self._library = optional_module("envpool", user=user, extra="envpool")
        self._task, self._options, self.num_envs = task, dict(options), num_envs
        tasks = self._library.list_all_envs()
        if task not in tasks:
            raise ValueError(
                f"EnvPool has no task {task!r}.{did_you_mean(task, tasks, most=3)} "
                "`envpool.list_all_envs()` lists what there is"
            )
        self.metadata = {"autoreset_mode": "NextStep"}  # gymnasium 1.0 has no name for it
        for name in _OURS.keys() & self._options.keys():
            raise ValueError(f"{name!r} of EnvPool is not given there, but by {_OURS[name]}")
        threads = self._options.get("num_threads", 0)
        if type(threads) is not int or threads < 0:  # EnvPool ends the process for some of these
            raise ValueError(f"num_threads={threads!r}: expected an int ≥ 0; 0 lets EnvPool choose")
        self._seed = 0
        self.pool = self._made()
        config = self.pool.config
        if config["batch_size"] not in (0, num_envs) or config["max_num_players"] > 1:
            raise ValueError(
                f"The pool of {task!r} has batch_size={config['batch_size']} and "
                f"max_num_players={config['max_num_players']}; only pools that step all of their "
                f"{num_envs} envs at once, of one player each, are played. Leave these options out"
            )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.render_mode = self.pool.render_mode

    def _made(self) -> Any:
        pool = self._library.make(
            self._task, "gymnasium", num_envs=self.num_envs, seed=self._seed, **self._options
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # gymnasium's, of bounds that float32 rounds
            self.single_observation_space = _bounded(pool.observation_space)
            self.single_action_space = _bounded(pool.action_space)
        return pool

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets all sub-envs; sub-env i has the seed + i."""
        del options
        if seed is not None:
            self._seed = seed % (_LARGEST_SEED - self.num_envs)
            self.pool.close()
            self.pool = self._made()
        observations, infos = self.pool.reset()
        return observations, self._with_masks(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all sub-envs; those whose episode ended in the step before begin anew."""
        *answer, infos = self.pool.step(actions)
        return (*answer, self._with_masks(infos))

    def _with_masks(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """Infos as gymnasium's vector envs give them: with who has each; here all have."""
        kept: dict[str, Any] = {}
        for key, column in infos.items():
            if key not in _OF_THE_POOL and isinstance(column, np.ndarray):
                kept |= {key: column, f"_{key}": np.ones(self.num_envs, np.bool_)}
        return kept

    def render(self) -> Any:
        """A frame of each sub-env that the pool renders."""
        return self.pool.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the pool."""
        del kwargs
        if self.pool is not None:
            self.pool.close()
