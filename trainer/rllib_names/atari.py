"""RLlib's wrappers of Atari games, made of gymnasium's."""

from __future__ import annotations

from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import (
    AtariPreprocessing,
    FrameStackObservation,
    TimeLimit,
    TransformObservation,
)

_MOST_STEPS: Final = 108_000
_MOST_NOOPS: Final = 30
_FIRE: Final = "FIRE"


def wrap_atari_for_new_api_stack(
    env: gym.Env[Any, Any],
    dim: int = 64,
    frameskip: int = 4,
    framestack: int | None = None,
    grayscale: bool = True,
) -> gym.Env[Any, Any]:
    """An Atari game as RLlib's examples play it; observations are bytes, which networks scale.

    Args:
        env: made with `frameskip=1`.
        dim: height and width of observations.
        frameskip: frames per step, of which the last two are joined by their maximum.
        framestack: how many observations are shown together; None: one.
        grayscale: one channel instead of three.

    Returns:
        An env with observations uint8 [dim, dim, channels]. Up to 30 idle steps begin an episode,
        and a lost life ends one.
    """
    env = AtariPreprocessing(
        TimeLimit(env, _MOST_STEPS),
        noop_max=_MOST_NOOPS,
        frame_skip=frameskip,
        screen_size=dim,
        terminal_on_life_loss=True,
        grayscale_obs=grayscale,
        grayscale_newaxis=True,
    )
    if _FIRE in env.unwrapped.get_action_meanings():  # type: ignore[attr-defined]
        env = _FireFirst(env)
    return _stacked(env, framestack) if framestack else env


class _FireFirst(gym.Wrapper[Any, Any, Any, Any]):
    """Presses fire when an episode begins, which starts the game."""

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        self.env.reset(**how)
        fire = self.unwrapped.get_action_meanings().index(_FIRE)  # type: ignore[attr-defined]
        fired, _, terminated, truncated, fired_info = self.env.step(fire)
        if terminated or truncated:
            return self.env.reset()
        return fired, fired_info


def _stacked(env: gym.Env[Any, Any], count: int) -> gym.Env[Any, Any]:
    """The last observations beside each other: [dim, dim, channels · count]."""

    def joined(frames: Any) -> Any:
        return np.concatenate(list(frames), axis=-1)

    stacked = FrameStackObservation(env, count)
    box: Any = env.observation_space
    space = gym.spaces.Box(0, 255, (*box.shape[:2], box.shape[2] * count), np.uint8)
    return TransformObservation(stacked, joined, space)
