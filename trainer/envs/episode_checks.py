"""Checks what an env gave over many steps: rewards are numbers, everything is finite.

Looking at every step would cost more than the step (a CartPole step takes 2 µs). So the first step
is looked at by `env_checks`, and all of them at once when they have been played. What goes wrong in
between because of a breach is explained by looking at the running episodes then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np

from trainer.envs.env_checks import is_number
from trainer.episodes import SingleAgentEpisode
from trainer.errors import EnvContractError
from trainer.types import Array


def check_rewards(episodes: Iterable[SingleAgentEpisode], *, name: str) -> None:
    """Checks that rewards that are still in lists are numbers.

    Arrays of them would hold NaN for None, and 1.5 for "1.5".

    Args:
        episodes: as they were played.
        name: of the env, for the message.

    Raises:
        EnvContractError: one of them is no number; names episode and step.
    """
    for episode in episodes:
        rewards = episode.rewards.data
        # The few types there are, not the many rewards. Measured: 20 ns per step.
        if isinstance(rewards, list) and not all(map(_is_number_type, set(map(type, rewards)))):
            _raise_first_breach(episode, name)


def check_finite(episodes: Sequence[SingleAgentEpisode], *, name: str) -> None:
    """Checks that observations and rewards hold neither NaN nor infinity.

    Args:
        episodes: as they are handed out. Measured: 0.1 ms for 4000 steps of CartPole.
        name: of the env, for the message.

    Raises:
        EnvContractError: one of them does; names episode and step.
    """
    columns = [buffer.data for e in episodes for buffer in (e.observations, e.rewards)]
    if all(map(_is_finite, _whole_arrays(columns))):
        return
    for episode in episodes:
        _raise_first_breach(episode, name)


def explain_failure(episodes: Iterable[SingleAgentEpisode], error: Exception, *, name: str) -> None:
    """Raises what is behind an error, if it is something that the env gave before.

    A reward of None fails only when rewards are added up, an observation of NaN only in the env's
    own step, which gets an action of NaN.

    Args:
        episodes: those that run.
        error: what was raised while they were played.
        name: of the env, for the message.

    Raises:
        EnvContractError: there is a reward or observation that is none, with the error as cause.
    """
    for episode in episodes:
        try:
            _raise_first_breach(episode, name)
        except EnvContractError as breach:
            raise breach from error


def _raise_first_breach(episode: SingleAgentEpisode, name: str) -> None:
    first = episode.t_started - episode.lookback
    for step, reward in enumerate(_items(episode.rewards.data), start=first + 1):
        if not is_number(reward) or not np.isfinite(reward):
            _raise(f"the reward {reward!r}", episode, step, name)
    for step, observation in enumerate(_items(episode.observations.data), start=first):
        if not all(map(_is_finite, _leaves(observation))):
            _raise(f"the observation {observation!r}", episode, step, name)


def _raise(what: str, episode: SingleAgentEpisode, step: int, name: str) -> None:
    when = f"step {step}" if step else "the reset"
    raise EnvContractError(
        f"Env {name!r} gave {what} at {when} of episode {episode.id_!r} in sub-env "
        f"{episode.env_id}; expected finite numbers. A single value like this would spoil all "
        "weights. Look for a missing value, a division by zero or a logarithm of 0 in the env."
    )


def _is_number_type(cls: type) -> bool:
    return issubclass(cls, (Real, np.number, np.bool_))


def _is_finite(leaf: Any) -> bool:
    try:
        array = np.asarray(leaf)
    except ValueError:  # a list of lists of unequal lengths: not for us to judge
        return True
    if array.dtype.kind not in "fc":
        return True
    # NaN and infinity stay in a sum; it needs no array of flags. It may overflow by itself.
    with np.errstate(all="ignore"):
        total = array.sum()
    return bool(np.isfinite(total)) or bool(np.isfinite(array).all())


def _whole_arrays(columns: Iterable[Any]) -> list[Array]:
    """The arrays that the columns are parts of, each of them once."""
    arrays: dict[int, Array] = {}
    for column in columns:
        for leaf in _leaves(column):
            array = np.asarray(leaf)
            whole = array.base if isinstance(array.base, np.ndarray) else array
            arrays[id(whole)] = whole
    return list(arrays.values())


def _items(column: Any) -> Iterator[Any]:
    """The items of a column, whether it is a list, an array or a nested structure of arrays."""
    if isinstance(column, dict):
        parts = [_items(part) for part in column.values()]
        return (dict(zip(column, row, strict=True)) for row in zip(*parts, strict=True))
    if isinstance(column, tuple):
        return zip(*map(_items, column), strict=True)
    return iter(column)


def _leaves(item: Any) -> Iterator[Any]:
    if isinstance(item, dict):
        item = tuple(item.values())
    if isinstance(item, tuple):
        for part in item:
            yield from _leaves(part)
    else:
        yield item
