"""Envs that fail as told: any env, wrapped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from trainer.envs import EnvContext, EnvFactory
from trainer.envs.env_factory import make_env_factory
from trainer.errors import ConfigError
from trainer.testing.fault_watch import FaultWatch, RunnerOfCall
from trainer.testing.faults import Fault
from trainer.testing.parcels import Parcel


class FaultyEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An env with faults at "reset", "step" and "close", or in the replies that its infos are in.

    Faults with the places "pack" and "unpack" go into the info of the step for which their other
    conditions hold.
    """

    env_state_attributes = ("_steps",)

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *faults: Fault,
        runner: RunnerOfCall | None = None,
        env_index: int | None = None,
    ) -> None:
        """Wraps an env.

        Args:
            env: what goes on as it is where nothing fails.
            faults: what is to fail.
            runner: the runner that it belongs to; None is the one that is at work.
            env_index: its number in the runner.
        """
        super().__init__(env)
        self._watch = FaultWatch(faults)
        # Noted now: when a runner closes its envs, it is not at work any more.
        self._runner = RunnerOfCall.at_work() if runner is None else runner
        self._env_index = env_index
        self._episodes = self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As the env does it, unless it is to fail."""
        self._episodes += 1
        self._steps = 0
        fault = self._strike("reset")
        observation, info = self.env.reset(seed=seed, options=options)
        if fault is not None:
            observation, info = _spoilt_observation(observation, fault), _spoilt_info(info, fault)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the env does it, unless it is to fail."""
        fault = self._strike("step")
        observation, reward, terminated, truncated, info = self.env.step(action)
        if fault is not None:
            observation, info = _spoilt_observation(observation, fault), _spoilt_info(info, fault)
            reward = float("nan") if fault.way == "nan_reward" else reward
        for place in ("pack", "unpack"):
            parcel = self._due(place, claims=False)  # that is done when it is packed or unpacked
            if parcel is not None:
                info = {**info, "parcel": Parcel(parcel)}
        self._steps += 1
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """As the env does it, unless it is to fail."""
        self._strike("close")
        self.env.close()

    def _strike(self, place: str) -> Fault | None:
        """Lets happen what is due; returns the fault if it is the answer that is to be spoilt."""
        fault = self._due(place)
        if fault is not None and (fault.way != "huge_reply" or place == "close"):
            fault.act()
        return fault

    def _due(self, place: str, *, claims: bool = True) -> Fault | None:
        return self._watch.due(
            place,
            self._runner,
            env_index=self._env_index,
            episode=self._episodes,
            step=self._steps,
            claims=claims,
        )


class _FaultyCreator:
    """Makes faulty envs; called like the env that they wrap, so that messages name it."""

    def __init__(self, factory: EnvFactory, faults: tuple[Fault, ...]) -> None:
        self._factory = factory
        self._faults = faults
        self.__qualname__ = factory.name

    def __call__(self, context: EnvContext) -> FaultyEnv:
        runner = RunnerOfCall.at_work()
        fault = FaultWatch(self._faults).due("init", runner, env_index=context.vector_index)
        if fault is not None:
            fault.act()
        env, _ = replace(self._factory, env_config=dict(context)).make(
            worker_index=context.worker_index,
            vector_index=context.vector_index,
            num_workers=context.num_workers or 0,
            recreated_worker=context.recreated_worker,
        )
        return FaultyEnv(env, *self._faults, runner=runner, env_index=context.vector_index)


def with_faults(env: object, *faults: Fault) -> Any:
    """An env creator for `config.environment(...)` whose envs fail as told.

    Args:
        env: whatever `environment(env=...)` takes: a name, a class, a creator.
        faults: what is to fail; those with other places are left to others.

    Raises:
        ConfigError: one of them is no `Fault`.
    """
    for fault in faults:
        if not isinstance(fault, Fault):
            raise ConfigError(
                f"with_faults() got {fault!r:.80}; expected faults one after the other: "
                "with_faults(env, Fault('step'), Fault('reset'))."
            )
    return _FaultyCreator(make_env_factory(env, {}), faults)


def _spoilt_observation(observation: Any, fault: Fault) -> Any:
    if fault.way == "nan_observation":
        return _all_nan(observation)
    if fault.way == "wrong_shape":
        return np.zeros((*np.shape(observation), 2), np.float32)
    return observation


def _all_nan(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {key: _all_nan(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(map(_all_nan, observation))
    return np.full(np.shape(observation), np.nan, np.float32)


def _spoilt_info(info: dict[str, Any], fault: Fault) -> dict[str, Any]:
    if fault.way in ("huge_reply", "unpicklable_result"):
        return {**info, "parcel": Parcel(fault)}
    return info
