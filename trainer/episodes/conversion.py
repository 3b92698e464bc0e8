"""Turning many episodes into arrays at once.

Converting each episode by itself costs about 20 µs per episode and column, which is as much as
playing its steps where episodes are short. Here each column of all episodes becomes one array, and
each episode gets its part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise, starmap
from typing import Any

import numpy as np

from trainer.episodes import nested
from trainer.episodes.episode_columns import ACTIONS, OBS, REWARDS
from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.episodes.single_agent_episode import SingleAgentEpisode
from trainer.errors import EpisodeError
from trainer.types import Array

# ---- conversion


def to_numpy_together(episodes: Sequence[SingleAgentEpisode]) -> None:
    """Does to all episodes what `to_numpy()` does; their arrays are parts of common ones.

    Raises:
        EpisodeError: the items of a column differ in shape or structure within an episode.
    """
    if len(episodes) == 1:  # short rounds of the only env
        episodes[0].to_numpy()
        return
    together = [episode for episode in episodes if not episode.is_numpy and len(episode) > 0]
    names = together[0].extra_model_outputs.keys() if together else ()
    others: Sequence[SingleAgentEpisode] = episodes
    try:
        if any(episode.extra_model_outputs.keys() != names for episode in together):
            raise EpisodeError("The episodes have different columns.")
        _convert([episode.observations for episode in together], name=OBS)
        _convert([episode.actions for episode in together], name=ACTIONS)
        _convert([episode.rewards for episode in together], name=REWARDS, dtype=np.float64)
        for name in names:
            _convert([episode.extra_model_outputs[name] for episode in together], name=name)
        others = [episode for episode in episodes if not episode.is_numpy]
    except EpisodeError:
        # Shapes that differ from episode to episode are allowed, and an error names its episode.
        pass
    for episode in together:
        episode.stop_growing()
    for episode in others:
        episode.to_numpy()


def add_output(
    episodes: Sequence[SingleAgentEpisode],
    name: str,
    *,
    source: str,
    compute: Callable[[Array, Any], Array],
) -> None:
    """Adds an extra output that follows from another one and the actions, look-back included.

    Episodes that have the output already, or lack its source, are left alone. `compute` is called
    once with the sources and the actions of all steps, [T, …] each; its T rows must not depend on
    each other.
    """
    chosen = [
        episode
        for episode in episodes
        if source in episode.extra_model_outputs
        and name not in episode.extra_model_outputs
        and episode.actions.total > 0
    ]
    if not chosen:
        return
    sources = [np.asarray(episode.extra_model_outputs[source].data) for episode in chosen]
    columns = [episode.actions.data for episode in chosen]
    actions = [
        nested.stack(column, name=ACTIONS) if isinstance(column, list) else column
        for column in columns
    ]
    values = compute(np.concatenate(sources), nested.concatenate(*actions))
    for episode, part in zip(chosen, _parts(sources), strict=True):
        column = values[part] if episode.is_numpy else list(values[part])
        episode.extra_model_outputs[name] = LookbackBuffer(column, lookback=episode.lookback)


def _convert(buffers: Sequence[LookbackBuffer], *, name: str, dtype: Any = None) -> None:
    if not buffers:
        return
    lists = [buffer.data for buffer in buffers]
    together = list(chain.from_iterable(lists))
    batch = nested.stack(together, name=name) if dtype is None else np.array(together, dtype)
    is_plain = isinstance(batch, np.ndarray)
    for buffer, part in zip(buffers, _parts(lists), strict=True):
        buffer.data = batch[part] if is_plain else nested.take(batch, part)


def _parts(sequences: Sequence[Any]) -> list[slice]:
    borders = accumulate(map(len, sequences), initial=0)
    return list(starmap(slice, pairwise(borders)))


# ---- other rewards


def with_rewards(
    chunk: SingleAgentEpisode, rewards: Array, *, keeps_return: bool = False
) -> SingleAgentEpisode:
    """The same chunk with other rewards; all other columns are shared.

    Nothing is added to the chunk any more. With `keeps_return`, `get_return()` stays what the env
    paid. `rewards` are float64, look-back included.
    """
    # Not `copy.copy`, which would go by way of the episode's state and copy its arrays.
    own = chunk.rewards  # first: this fills a chunk that was not looked at yet
    changed = object.__new__(type(chunk))
    vars(changed).update(vars(chunk))
    changed.rewards = LookbackBuffer(rewards, lookback=own.lookback, space=own.space)
    if keeps_return:
        changed.note_rewrite(chunk.rewards_list())
    return changed
