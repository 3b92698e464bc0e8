"""The built-in metrics of finished episodes: returns, lengths, counts, custom metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from callbacks.ready_made.metric_values import task_name
from trainer.errors import MetricsError
from trainer.metrics.statistic import rounded_mean, rounded_sum
from trainer.types import DEFAULT_AGENT_ID, State
from trainer_toolkit.checks import shown

_STANDARD_LISTS: Final = frozenset({"episode_reward", "episode_lengths", "rewritten_return"})

# ---- task statistics


class EpisodeOfTask(Protocol):
    """What is needed of an episode; `EpisodeRecord` has it."""

    @property
    def task(self) -> Any:
        """The task at its first step; None if there was none."""

    @property
    def episode_return(self) -> float:
        """The sum of all its rewards."""

    @property
    def length(self) -> int:
        """Env steps of the whole episode."""


def task_statistics(episodes: Iterable[EpisodeOfTask]) -> Mapping[str, Mapping[str, float]]:
    """Numbers and means by the name of the task, in the order in which tasks were first met.

    Tasks of the same name are counted together.

    Args:
        episodes: finished ones; those without a task are left out.
    """
    by_name: dict[str, list[EpisodeOfTask]] = {}
    for episode in episodes:
        if episode.task is not None:
            by_name.setdefault(task_name(episode.task), []).append(episode)
    return {
        name: {
            "num_episodes": len(of_task),
            "episode_return_mean": rounded_sum([one.episode_return for one in of_task])
            / len(of_task),
            "episode_len_mean": rounded_sum([one.length for one in of_task]) / len(of_task),
        }
        for name, of_task in by_name.items()
    }


# ---- episode statistics


class FinishedEpisode(Protocol):
    """What a record is made of; `SingleAgentEpisode` has it."""

    id_: str
    t: int
    agent_id: Any
    module_id: Any
    custom_metrics: dict[str, Any]
    hist_data: dict[str, list[Any]]
    media: dict[str, Any]
    task: Any

    def get_return(self) -> float:
        """The return of the whole episode."""

    def get_rewritten_return(self) -> float | None:
        """The same with the rewards that callbacks wrote; None if they wrote none."""

    def get_duration_s(self) -> float:
        """Seconds the whole episode took."""


@dataclass(frozen=True)
class AgentRecord:
    """What one of several agents got in an episode.

    Attributes:
        agent_id: who played.
        module_id: who acted for it.
        episode_return: all that it was paid.
        length: its own steps; None if it never appeared.
    """

    agent_id: Any
    module_id: Any
    episode_return: float
    length: int | None = None


@dataclass(frozen=True)
class EpisodeRecord:
    """What remains of an episode for the statistics.

    Attributes:
        id_: the episode's id.
        episode_return: the sum of all its rewards.
        length: env steps of the whole episode.
        duration_s: seconds it took; NaN if not known (after a restore).
        agent_id: who played.
        module_id: who acted.
        custom_metrics: {name: number}.
        hist_data: {name: list of numbers}.
        media: {name: anything}.
        task: the task of the env at its first step; None if there was none.
        rewritten_return: the sum of its rewards as callbacks rewrote them; None if they did not.
        agents: of an env of several agents, in canonical order; then `agent_id` and `module_id` are
            None.
    """

    id_: str
    episode_return: float
    length: int
    duration_s: float = math.nan
    agent_id: Any = DEFAULT_AGENT_ID
    module_id: Any = None
    custom_metrics: Mapping[str, float] = field(default_factory=dict)
    hist_data: Mapping[str, Sequence[float]] = field(default_factory=dict)
    media: Mapping[str, Any] = field(default_factory=dict)
    task: Any = None
    rewritten_return: float | None = None
    agents: Sequence[AgentRecord] = ()

    @classmethod
    def of_plain(
        cls, id_: str, *, episode_return: float, length: int, duration_s: float, module_id: Any
    ) -> EpisodeRecord:
        """The record of an episode that nothing was stored in; arguments as the attributes.

        In half the time that the frozen class takes by itself: vector envs end thousands a second.
        """
        record = object.__new__(cls)
        record.__dict__.update(
            id_=id_,
            episode_return=episode_return,
            length=length,
            duration_s=duration_s,
            agent_id=DEFAULT_AGENT_ID,
            module_id=module_id,
            custom_metrics={},
            hist_data={},
            media={},
            task=None,
            rewritten_return=None,
            agents=(),
        )
        return record

    @classmethod
    def from_agents(
        cls, episode: Any, agents: Sequence[AgentRecord], *, episode_return: float
    ) -> EpisodeRecord:
        """The record of an episode of several agents that has just ended.

        Args:
            episode: the episode.
            agents: of each agent.
            episode_return: of all of them.
        """
        return cls._made(
            episode,
            episode_return=episode_return,
            length=episode.env_t,
            agent_id=None,
            module_id=None,
            agents=tuple(agents),
        )

    def returns_by(self, attribute: str) -> dict[Any, float]:
        """What was paid by "agent_id", or by "module_id": to all agents that it acted for."""
        if not self.agents:
            return {getattr(self, attribute): self.episode_return}
        parts: dict[Any, list[float]] = {}
        for agent in self.agents:
            parts.setdefault(getattr(agent, attribute), []).append(agent.episode_return)
        return {id_: rounded_sum(paid) for id_, paid in parts.items()}

    @property
    def return_to_learn(self) -> float:
        """The return that is learnt from: rewritten, or else the env's own."""
        rewritten = self.rewritten_return
        return self.episode_return if rewritten is None else rewritten

    @classmethod
    def from_episode(cls, episode: FinishedEpisode, *, module_id: Any = None) -> EpisodeRecord:
        """The record of an episode that has just ended, after `on_episode_end`.

        Args:
            episode: the episode.
            module_id: who acted, unless the episode says so.

        Raises:
            MetricsError: `custom_metrics` or `hist_data` hold something else than numbers, or a
                name of `hist_data` is that of a standard list.
        """
        return cls._made(
            episode,
            episode_return=episode.get_return(),
            length=episode.t,
            agent_id=DEFAULT_AGENT_ID if episode.agent_id is None else episode.agent_id,
            module_id=module_id if episode.module_id is None else episode.module_id,
        )

    @classmethod
    def _made(cls, episode: Any, **facts: Any) -> EpisodeRecord:
        """With what episodes of one agent and of several have in common."""
        metrics, hist_data = episode.custom_metrics, episode.hist_data
        taken = sorted(_STANDARD_LISTS & hist_data.keys())
        if taken:
            raise MetricsError(
                f"episode.hist_data has {taken[0]!r}, the name of a standard list of hist_stats: "
                "its values would be mixed with those. Choose another name."
            )
        return cls(
            id_=episode.id_,
            duration_s=episode.get_duration_s(),
            custom_metrics={
                name: _numbers(f"episode.custom_metrics[{name!r}]", value, 0)
                for name, value in metrics.items()
            },
            hist_data={
                name: _numbers(f"episode.hist_data[{name!r}]", values, 1)
                for name, values in hist_data.items()
            },
            media=dict(episode.media),
            task=episode.task,
            rewritten_return=episode.get_rewritten_return(),
            **facts,
        )


def _numbers(name: str, value: Any, ndim: int) -> Any:
    """A number (ndim 0) or a list of numbers (ndim 1) of Python's own types."""
    try:
        array = np.asarray(value)
    except ValueError:  # ragged lists: refused below
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" and array.size:
        ndim = -1
    if array.ndim != ndim:
        wanted = "a number" if "custom_metrics" in name else "a list of numbers"
        raise MetricsError(
            f"{name} is {shown(value)}, not {wanted}. It is averaged or listed in results. Store "
            "anything else in `episode.user_data` or `episode.custom_data`."
        )
    if array.dtype.kind == "f":
        array = array.astype(np.float64)  # the long float has no number of Python
    return array.tolist() if array.size else []


class EpisodeStatistics:
    """Statistics of the last `smoothing` episodes of all runners, and of this iteration's.

    Life: `begin_iteration()`, `add(records)` as they come, `result()` as often as wanted.

    "Last" is in order of iteration, then runner (or ticket), then time: the order in which records
    are added.
    """

    def __init__(
        self, *, smoothing: int | None = 100, keep_per_episode_custom_metrics: bool = False
    ) -> None:
        """No episodes yet.

        Args:
            smoothing: how many of the last episodes are averaged, ≥ 1; None means all.
            keep_per_episode_custom_metrics: give custom metrics as lists instead of mean, min and
                max.

        Raises:
            MetricsError: `smoothing` is less than 1.
        """
        if smoothing is not None and smoothing < 1:
            raise MetricsError(
                f"smoothing={smoothing} episodes cannot be averaged. Returns are averaged over the "
                "last so many episodes. Set `metrics_num_episodes_for_smoothing` to at least 1."
            )
        self._smoothing = smoothing
        self._keeps_lists = keep_per_episode_custom_metrics
        self._records: list[EpisodeRecord] = []
        self._num_this_iteration = 0
        self._num_lifetime = 0

    def begin_iteration(self) -> None:
        """Starts `num_episodes` and `hist_stats` anew; the last episodes stay."""
        self._num_this_iteration = 0
        self._records = self._recent()

    def add(self, records: Iterable[EpisodeRecord]) -> None:
        """Adds finished episodes, in the order of the runners."""
        new = list(records)
        self._records += new
        self._num_this_iteration += len(new)
        self._num_lifetime += len(new)

    def _recent(self) -> list[EpisodeRecord]:
        return self._records if self._smoothing is None else self._records[-self._smoothing :]

    def _of_this_iteration(self) -> list[EpisodeRecord]:
        return self._records[len(self._records) - self._num_this_iteration :]

    def result(self) -> dict[str, Any]:
        """What goes under `env_runners`; NaN where no episode has ended yet. Changes nothing."""
        recent = self._recent()
        return {
            **_spread("episode_return", [record.episode_return for record in recent]),
            **self._rewritten(recent),
            **_spread("episode_len", [record.length for record in recent]),
            "episode_duration_sec_mean": _mean([record.duration_s for record in recent]),
            "num_episodes": self._num_this_iteration,
            "num_episodes_lifetime": self._num_lifetime,
            "agent_episode_return_mean": _means_by("agent_id", recent),
            "module_episode_return_mean": _means_by("module_id", recent),
            **_per_agent(recent),
            "custom_metrics": self._custom_metrics(recent),
            **self._lists(),
            **self._by_task(),
        }

    @staticmethod
    def _rewritten(recent: list[EpisodeRecord]) -> dict[str, float]:
        if all(record.rewritten_return is None for record in recent):
            return {}
        return _spread("rewritten_return", [record.return_to_learn for record in recent])

    def _custom_metrics(self, recent: list[EpisodeRecord]) -> dict[str, Any]:
        by_name: dict[str, list[float]] = {}
        for record in recent:
            for name, value in record.custom_metrics.items():
                by_name.setdefault(name, []).append(value)
        if self._keeps_lists:
            return dict(by_name)
        spread: dict[str, Any] = {}
        for name, values in by_name.items():
            spread |= _spread(name, values)
        return spread

    def _lists(self) -> dict[str, Any]:
        records = self._of_this_iteration()
        hist_stats: dict[str, list[Any]] = {
            "episode_reward": [record.episode_return for record in records],
            "episode_lengths": [record.length for record in records],
        }
        if any(record.rewritten_return is not None for record in records):
            hist_stats["rewritten_return"] = [record.return_to_learn for record in records]
        media: dict[str, list[Any]] = {}
        for record in records:
            for agent in record.agents:
                name = f"policy_{agent.module_id}_reward"
                hist_stats.setdefault(name, []).append(agent.episode_return)
            for name, values in record.hist_data.items():
                hist_stats.setdefault(name, []).extend(values)
            for name, value in record.media.items():
                media.setdefault(name, []).append(value)
        return {"hist_stats": hist_stats, **({"episode_media": media} if media else {})}

    def _by_task(self) -> dict[str, Any]:
        statistics = task_statistics(self._of_this_iteration())
        return {"task_stats": statistics} if statistics else {}

    def get_state(self) -> State:
        """Plain data; without durations, which no two runs share, and without media."""
        return {
            "num_this_iteration": self._num_this_iteration,
            "num_lifetime": self._num_lifetime,
            "records": [
                {
                    "id_": record.id_,
                    "episode_return": record.episode_return,
                    "length": record.length,
                    "agent_id": record.agent_id,
                    "module_id": record.module_id,
                    "custom_metrics": dict(record.custom_metrics),
                    "hist_data": {name: list(data) for name, data in record.hist_data.items()},
                    **({} if record.task is None else {"task": record.task}),
                    "rewritten_return": record.rewritten_return,
                    **({"agents": list(map(asdict, record.agents))} if record.agents else {}),
                }
                for record in self._records
            ],
        }

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; `smoothing` stays as it was set here."""
        self._num_this_iteration = state["num_this_iteration"]
        self._num_lifetime = state["num_lifetime"]
        self._records = [_record_from(record) for record in state["records"]]


def _record_from(state: State) -> EpisodeRecord:
    agents = tuple(AgentRecord(**agent) for agent in state.get("agents", ()))
    return EpisodeRecord(**{**state, "agents": agents})


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Mean, smallest and largest of the values that are not NaN."""
    numbers = [value for value in values if not math.isnan(value)]
    return {
        f"{name}_mean": _mean(numbers),
        f"{name}_min": min(numbers, default=math.nan),
        f"{name}_max": max(numbers, default=math.nan),
    }


def _mean(values: Sequence[float]) -> float:
    numbers = [value for value in values if not math.isnan(value)]
    return rounded_mean(numbers, len(numbers))


def _per_agent(records: Sequence[EpisodeRecord]) -> dict[str, Any]:
    """How long agents played, and what one agent of a module gets; with several agents only."""
    paid: dict[Any, list[float]] = {}
    lengths: dict[Any, list[float]] = {}
    for record in records:
        for agent in record.agents:
            paid.setdefault(agent.module_id, []).append(agent.episode_return)
            if agent.length is not None:
                lengths.setdefault(agent.agent_id, []).append(agent.length)
    if not paid:
        return {}
    return {
        "agent_episode_len_mean": {id_: _mean(steps) for id_, steps in lengths.items()},
        "module_agent_return_mean": {id_: _mean(values) for id_, values in paid.items()},
        "module_agent_return_min": {id_: min(values) for id_, values in paid.items()},
        "module_agent_return_max": {id_: max(values) for id_, values in paid.items()},
    }


def _means_by(attribute: str, records: Iterable[EpisodeRecord]) -> dict[Any, float]:
    by_id: dict[Any, list[float]] = {}
    for record in records:
        for id_, paid in record.returns_by(attribute).items():
            by_id.setdefault(id_, []).append(paid)
    return {id_: _mean(returns) for id_, returns in by_id.items()}
