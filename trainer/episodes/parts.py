"""Taking chunks apart and putting them together again; functions on columns only."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.episodes import nested
from trainer.episodes.columns import (
    ACTIONS,
    EPISODE_IDS,
    INFOS,
    OBS,
    REWARDS,
    TERMINATEDS,
    TIMESTEPS,
    TRUNCATEDS,
)
from trainer.episodes.episode_columns import EpisodeColumns
from trainer.episodes.episode_returns import joined_changes
from trainer.episodes.growing_episode import GrowingEpisode
from trainer.episodes.lookback_buffer import LookbackBuffer


def window(columns: EpisodeColumns, start: int, stop: int, *, lookback: int) -> dict[str, Any]:
    """The data of the steps at positions start … stop - 1 as arguments of `fill_columns`.

    Args:
        columns: the chunk.
        start: the first step, look-back counted.
        stop: the step behind the last one.
        lookback: how many of these steps are look-back of the part.
    """
    return {
        "observations": columns.observations.window(start, stop + 1),
        "infos": columns.infos.window(start, stop + 1),
        "actions": columns.actions.window(start, stop),
        "rewards": columns.rewards.window(start, stop),
        "extra_model_outputs": {
            key: column.window(start, stop) for key, column in columns.extra_model_outputs.items()
        },
        "lookback": lookback,
        "observation_space": columns.observation_space,
        "action_space": columns.action_space,
    }


def tail(columns: EpisodeColumns, length: int) -> dict[str, Any]:
    """The newest observation and `length` steps of look-back, as lists for `fill_columns`."""
    return {
        "observations": columns.observations.tail(length + 1),
        "infos": columns.infos.tail(length + 1),
        "actions": columns.actions.tail(length),
        "rewards": columns.rewards.tail(length),
        "extra_model_outputs": {
            key: column.tail(length) for key, column in columns.extra_model_outputs.items()
        },
        "lookback": length,
        "observation_space": columns.observation_space,
        "action_space": columns.action_space,
    }


def data_rows(episode: GrowingEpisode, id_: str) -> dict[str, Any]:
    """One row per step in every column; see `SingleAgentEpisode.get_data_dict`."""
    steps = len(episode)
    terminateds, truncateds = np.zeros(steps, bool), np.zeros(steps, bool)
    if steps:
        terminateds[-1], truncateds[-1] = episode.is_terminated, episode.is_truncated
    return {
        EPISODE_IDS: np.array([id_] * steps, np.str_),
        TIMESTEPS: np.arange(episode.t_started, episode.t),
        OBS: episode.get_observations(slice(0, steps)),
        INFOS: episode.get_infos(slice(0, steps)),
        ACTIONS: episode.get_actions(),
        REWARDS: episode.get_rewards(),
        TERMINATEDS: terminateds,
        TRUNCATEDS: truncateds,
        **episode.get_extra_model_outputs(),
    }


def why_not_following(first: GrowingEpisode, other: GrowingEpisode) -> str | None:
    """What keeps `other` from being the continuation of `first`, or None if it is."""
    if first.is_done:
        return "the first one is done"
    if other.t_started != first.t:
        return f"the first one ends at step {first.t}, the other begins at {other.t_started}"
    if not (first.is_reset and other.is_reset):
        return "one of them has no observation"
    if not nested.equal(first.get_observations(-1), other.get_observations(0)):
        return "the last observation of the first is not the first observation of the other"
    both_have_steps = first.rewards.total and len(other)
    if both_have_steps and first.extra_model_outputs.keys() != other.extra_model_outputs.keys():
        return "they have different extra outputs"
    return None


def append_columns(first: EpisodeColumns, other: EpisodeColumns) -> None:
    """Appends the steps of `other`, without its look-back, to the lists or arrays of `first`."""
    start, stop = other.lookback, other.rewards.total
    if not first.rewards.total:
        first.extra_model_outputs = {key: LookbackBuffer() for key in other.extra_model_outputs}
    first.observations.extend(_items(other.observations, start + 1, stop + 1))
    first.infos.extend(_items(other.infos, start + 1, stop + 1))
    first.actions.extend(_items(other.actions, start, stop))
    first.rewards.extend(_items(other.rewards, start, stop))
    first.own_change = joined_changes(first.own_change, other.own_change)
    if stop > start:
        for key, column in first.extra_model_outputs.items():
            column.extend(_items(other.extra_model_outputs[key], start, stop))


def _items(column: LookbackBuffer, start: int, stop: int) -> list[Any]:
    data = column.window(start, stop)
    return data if isinstance(data, list) else nested.unstack(data, stop - start)
