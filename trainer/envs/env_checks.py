"""Checks an env's answers once, where they come in first, and says what is wrong with them.

gymnasium's own checker runs at every step; here each runner checks the first reset and the first
step of its first sub-env, which finds what is systematically wrong and costs nothing afterwards.
"""

from __future__ import annotations

import copy
import inspect
from numbers import Real
from typing import Any, Final

import gymnasium
import numpy as np

from trainer.errors import EnvContractError

_NUM_DRAWN_ACTIONS: Final = 16


def check_spaces(env: gymnasium.Env[Any, Any], *, name: str) -> None:
    """Checks that an env declares its spaces.

    Raises:
        EnvContractError: a space is missing or is no gymnasium space.
    """
    for attribute in ("observation_space", "action_space"):
        space = getattr(env, attribute, None)
        if not isinstance(space, gymnasium.Space):
            raise EnvContractError(
                f"Env {name!r} has {attribute}={space!r}; expected a gymnasium space. "
                f"Set self.{attribute} in __init__."
            )


def check_reset_signature(env: gymnasium.Env[Any, Any], *, name: str) -> None:
    """Checks that `reset` takes a seed, without which no episode can be repeated.

    Raises:
        EnvContractError: it does not.
    """
    parameters = inspect.signature(env.unwrapped.reset).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if "seed" not in parameters and not takes_any:
        raise EnvContractError(
            f"reset() of env {name!r} takes ({', '.join(parameters) or 'nothing'}); "
            "expected a `seed` argument. "
            "Write: def reset(self, *, seed=None, options=None): super().reset(seed=seed) …"
        )


def check_reset(answer: Any, space: gymnasium.Space[Any], *, name: str) -> None:
    """Checks what `reset` returned: (observation, info).

    Raises:
        EnvContractError: it is something else, or the observation is outside the observation space.
    """
    check_reset_form(answer, name=name)
    _check_observation(answer[0], space, where=f"reset() of env {name!r}")


def check_reset_form(answer: Any, *, name: str, when: str = "") -> None:
    """Checks that `reset` returned a tuple of an observation and an info dict.

    Args:
        answer: what it returned.
        name: of the env, for the message.
        when: which of its calls it was, for the message; begins with a blank.

    Raises:
        EnvContractError: it is something else.
    """
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise EnvContractError(
            f"reset() of env {name!r} returned {_kind(answer)}{when}; "
            "expected the tuple (observation, info dict)."
        )


def check_step(answer: Any, space: gymnasium.Space[Any], *, name: str) -> None:
    """Checks what `step` returned: (observation, reward, terminated, truncated, info).

    Raises:
        EnvContractError: it is something else, or the observation is outside the observation space.
    """
    check_step_form(answer, name=name)
    _check_observation(answer[0], space, where=f"step() of env {name!r}")


def check_step_form(answer: Any, *, name: str, when: str = "") -> None:
    """Checks that `step` returned a tuple of five with a reward, two flags and an info dict.

    Args:
        answer: what it returned.
        name: of the env, for the message.
        when: which of its calls it was, for the message; begins with a blank.

    Raises:
        EnvContractError: it is something else.
    """
    if not (isinstance(answer, tuple) and len(answer) == 5):
        hint = (
            " The old form (obs, reward, done, info) must be split into terminated and truncated."
        )
        raise EnvContractError(
            f"step() of env {name!r} returned {_kind(answer)}{when}; "
            "expected the tuple (observation, reward, terminated, truncated, info)."
            f"{hint if isinstance(answer, tuple) and len(answer) == 4 else ''}"
        )
    _, reward, terminated, truncated, info = answer
    if not is_number(reward):
        raise EnvContractError(
            f"step() of env {name!r} returned the reward {reward!r}{when}; expected a number."
        )
    for label, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, (bool, np.bool_)):
            raise EnvContractError(
                f"step() of env {name!r} returned {label}={flag!r}{when}; expected True or False."
            )
    if not isinstance(info, dict):
        raise EnvContractError(
            f"step() of env {name!r} returned the info {info!r}{when}; expected a dict."
        )


def check_action_space(given: gymnasium.Space[Any], env: Any, *, name: str) -> None:
    """Checks that an action space that is given in place of the env's holds actions of the env.

    Of Boxes only shapes are compared: an env may well take more than it says.

    Args:
        given: the setting `action_space`, or that of an `RLModuleSpec`.
        env: the sub-envs.
        name: of the env, for the message.

    Raises:
        EnvContractError: it does not.
    """
    own = env.single_action_space
    if isinstance(given, gymnasium.spaces.Box) and isinstance(own, gymnasium.spaces.Box):
        fits = given.shape == own.shape
    else:
        drawn_from = copy.deepcopy(given)
        drawn_from.seed(0)
        fits = all(own.contains(drawn_from.sample()) for _ in range(_NUM_DRAWN_ACTIONS))
    if not fits:
        raise EnvContractError(
            f"`action_space={given!s:.200}` was given for the env {name}, whose own is "
            f"{own!s:.200}; expected a space of actions that the env takes. Leave it out, or "
            "correct one of them."
        )


def is_number(value: Any) -> bool:
    """Whether a reward is a number: of Python, of NumPy, or an array without dimensions."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "biuf"
    return isinstance(value, (Real, np.number, np.bool_))


def _check_observation(observation: Any, space: gymnasium.Space[Any], *, where: str) -> None:
    if space.contains(observation):
        return
    if isinstance(space, gymnasium.spaces.Box):
        array = np.asarray(observation)
        if array.shape == space.shape and np.can_cast(array.dtype, space.dtype, "same_kind"):
            # Bounds a little too narrow, or float64 for float32, are common and harmless here.
            return
        found = f"shape {array.shape}, dtype {array.dtype}"
    else:
        found = repr(observation)
    raise EnvContractError(
        f"{where} gave an observation outside its space: {found}; expected {space}."
    )


def _kind(answer: Any) -> str:
    if isinstance(answer, tuple):
        return f"a tuple of {len(answer)}: ({', '.join(type(part).__name__ for part in answer)})"
    return f"a {type(answer).__name__}"
