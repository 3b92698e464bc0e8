"""Checks an env's answers once, where they come in first, and says what is wrong with them.

gymnasium's own checker runs at every step; here each runner checks the first reset and the first
step of its first sub-env, which finds what is systematically wrong and costs nothing afterwards.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterable, Iterator, Sequence
from numbers import Real
from typing import Any, Final

import gymnasium
import numpy as np

from trainer.envs.multi_agent_env import has_several_agents
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.episode_columns import is_number
from trainer.episodes.fragment import FragmentEpisode, RowSource
from trainer.errors import EnvContractError
from trainer.types import Array

# ---- env checks

_NUM_DRAWN_ACTIONS: Final = 16


class SeveralAgentsError(EnvContractError):
    """The env of a runner for one agent has several.

    Attributes:
        made: the env and its context, for the runner that can play it.
    """

    made: Any = None


def check_spaces(env: gymnasium.Env[Any, Any], *, name: str) -> None:
    """Checks that an env declares its spaces.

    Raises:
        EnvContractError: a space is missing or is no gymnasium space.
        SeveralAgentsError: it has several agents.
    """
    if has_several_agents(env):
        raise SeveralAgentsError(
            f"Env {name!r} is a MultiAgentEnv, and a SingleAgentEnvRunner plays envs with one "
            "agent. Make a MultiAgentEnvRunner, or build an algorithm: it makes the runners that "
            "its env asks for."
        )
    for attribute in ("observation_space", "action_space"):
        space = getattr(env, attribute, None)
        if not isinstance(space, gymnasium.Space):
            raise EnvContractError(
                f"Env {name!r} has {attribute}={space!r}; expected a gymnasium space. "
                f"Set self.{attribute} in __init__."
            )


def check_reset_signature(env: gymnasium.Env[Any, Any], *, name: str) -> None:
    """Raises an EnvContractError unless `reset` takes a seed: else no episode can be repeated."""
    parameters = inspect.signature(env.unwrapped.reset).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if "seed" not in parameters and not takes_any:
        raise EnvContractError(
            f"reset() of env {name!r} takes ({', '.join(parameters) or 'nothing'}); "
            "expected a `seed` argument. "
            "Write: def reset(self, *, seed=None, options=None): super().reset(seed=seed) …"
        )


def check_reset(
    answer: Any, space: gymnasium.Space[Any] | None = None, *, name: str, when: str = ""
) -> None:
    """Raises an EnvContractError unless `reset` returned (observation, info).

    Without a space, the observation is not looked at. `when` says for the message which call it
    was, and begins with a blank.
    """
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise EnvContractError(
            f"reset() of env {name!r} returned {described_answer(answer)}{when}; "
            "expected the tuple (observation, info dict)."
        )
    if space is not None:
        _check_observation(answer[0], space, where=f"reset() of env {name!r}")


def check_step(
    answer: Any, space: gymnasium.Space[Any] | None = None, *, name: str, when: str = ""
) -> None:
    """Checks what `step` returned: (observation, reward, terminated, truncated, info).

    Its arguments are those of `check_reset`.

    Raises:
        EnvContractError: it is something else, or the observation is outside the observation space.
    """
    if not (isinstance(answer, tuple) and len(answer) == 5):
        hint = (
            " The old form (obs, reward, done, info) must be split into terminated and truncated."
        )
        raise EnvContractError(
            f"step() of env {name!r} returned {described_answer(answer)}{when}; "
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
    if space is not None:
        _check_observation(answer[0], space, where=f"step() of env {name!r}")


def check_action_space(given: gymnasium.Space[Any], env: Any, *, name: str) -> None:
    """Raises an EnvContractError unless a given action space holds actions of the env.

    Of Boxes only shapes are compared: an env may well take more than it says. Given is the
    setting `action_space`, or that of an `RLModuleSpec`.
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


def is_inside(observation: Any, space: gymnasium.Space[Any]) -> bool:
    """Whether an observation is of a space, or misses it in a way that does no harm here."""
    if space.contains(observation):
        return True
    if not isinstance(space, gymnasium.spaces.Box):
        return False
    try:
        array = np.asarray(observation)
    except ValueError:  # lists of unequal lengths
        return False
    # Bounds a little too narrow, or float64 for float32, are common and harmless here.
    return array.shape == space.shape and np.can_cast(array.dtype, space.dtype, "same_kind")


def _check_observation(observation: Any, space: gymnasium.Space[Any], *, where: str) -> None:
    if is_inside(observation, space):
        return
    found = repr(observation)
    if isinstance(space, gymnasium.spaces.Box):
        array = np.asarray(observation)
        found = f"shape {array.shape}, dtype {array.dtype}"
    raise EnvContractError(
        f"{where} gave an observation outside its space: {found}; expected {space}."
    )


def described_answer(answer: Any) -> str:
    """What an env returned, for an error text."""
    if isinstance(answer, tuple):
        return f"a tuple of {len(answer)}: ({', '.join(type(part).__name__ for part in answer)})"
    return f"a {type(answer).__name__}"


# ---- episode checks
#
# Checks what an env gave over many steps: rewards are numbers, everything is finite. Looking at
# every step would cost more than the step (a CartPole step takes 2 µs). So the first step is
# looked at by `env_checks`, and all of them at once when they have been played. What goes wrong
# in between because of a breach is explained by looking at the running episodes then.


def check_rewards(episodes: Iterable[SingleAgentEpisode], *, name: str) -> None:
    """Raises an EnvContractError, with episode and step, if a reward in a list is no number.

    Arrays of them would hold NaN for None, and 1.5 for "1.5".
    """
    for episode in episodes:
        rewards = episode.rewards.data
        # The few types there are, not the many rewards. Measured: 20 ns per step.
        if isinstance(rewards, list) and not all(map(_is_number_type, set(map(type, rewards)))):
            _raise_first_breach(episode, name)


def check_finite(episodes: Sequence[SingleAgentEpisode], *, name: str) -> None:
    """Raises an EnvContractError if observations or rewards hold NaN or infinity.

    It names episode and step. Measured: 0.1 ms for 4000 steps of CartPole.
    """
    columns: list[Any] = []
    fragments: dict[int, RowSource] = {}
    for episode in episodes:
        fragment = episode.fragment if isinstance(episode, FragmentEpisode) else None
        if fragment is None:
            columns += (episode.observations.data, episode.rewards.data)
        else:
            fragments[id(fragment)] = fragment
    for fragment in fragments.values():
        columns += fragment.checked_columns()
    if all(map(is_finite, _whole_arrays(columns))):
        return
    for episode in episodes:
        _raise_first_breach(episode, name)


def explain_failure(episodes: Iterable[SingleAgentEpisode], error: Exception, *, name: str) -> None:
    """Raises what is behind an error, if it is something that the env gave before.

    A reward of None fails only when rewards are added up, an observation of NaN only in the
    env's own step, which gets an action of NaN. It is an EnvContractError with the error as
    cause.
    """
    for episode in episodes:
        try:
            _raise_first_breach(episode, name)
        except EnvContractError as breach:
            raise breach from error


def _raise_first_breach(episode: SingleAgentEpisode, name: str) -> None:
    first = episode.t_started - episode.lookback
    for step, reward in enumerate(items_of(episode.rewards.data), start=first + 1):
        if not is_number(reward) or not np.isfinite(reward):
            _raise(f"the reward {reward!r}", episode, step, name)
    for step, observation in enumerate(items_of(episode.observations.data), start=first):
        if not all(map(is_finite, leaves(observation))):
            _raise(f"the observation {observation!r}", episode, step, name)


def _raise(what: str, episode: SingleAgentEpisode, step: int, name: str) -> None:
    when = f"step {step}" if step else "the reset"
    raise EnvContractError(
        f"Env {name!r} gave {what} at {when} of episode {episode.id_!r} in sub-env "
        f"{episode.env_id}; expected finite numbers. A single value like this would spoil all "
        "weights. Look for a missing value, a division by zero or a logarithm of 0 in the env, "
        "or in a callback that wrote into the episode."
    )


def _is_number_type(cls: type) -> bool:
    return issubclass(cls, (Real, np.number, np.bool_))


def is_finite(leaf: Any) -> bool:
    """Whether a number or an array of numbers holds neither NaN nor infinity."""
    try:
        array = np.asarray(leaf)
    except ValueError:  # a list of lists of unequal lengths: not for us to judge
        return True
    if array.dtype.kind not in "fc":
        return True
    # NaN and infinity stay in a sum of squares; it needs no array of flags. It may overflow by
    # itself, and of that `vdot` does not warn: measured 1 µs for a short column, a sum takes 8.
    if array.dtype in (np.float32, np.float64):
        vector = array.ravel()
        if math.isfinite(np.vdot(vector, vector)):
            return True
    return bool(np.isfinite(array).all())


def is_all_finite(column: Any) -> bool:
    """Whether a column, a list of items or a batch, holds finite numbers only."""
    return all(map(is_finite, leaves(tuple(column) if isinstance(column, list) else column)))


def _whole_arrays(columns: Iterable[Any]) -> list[Array]:
    """The arrays that the columns are parts of, each of them once."""
    arrays: dict[int, Array] = {}
    for column in columns:
        for leaf in leaves(column):
            array = np.asarray(leaf)
            whole = array.base if isinstance(array.base, np.ndarray) else array
            arrays[id(whole)] = whole
    return list(arrays.values())


def items_of(column: Any) -> Iterator[Any]:
    """The items of a column, whether it is a list, an array or a nested structure of arrays."""
    if isinstance(column, dict):
        parts = [items_of(part) for part in column.values()]
        return (dict(zip(column, row, strict=True)) for row in zip(*parts, strict=True))
    if isinstance(column, tuple):
        return zip(*map(items_of, column), strict=True)
    return iter(column)


def leaves(item: Any) -> Iterator[Any]:
    """The arrays and numbers that an observation is made of, however dicts and tuples nest."""
    if isinstance(item, dict):
        item = tuple(item.values())
    if isinstance(item, tuple):
        for part in item:
            yield from leaves(part)
    else:
        yield item
