"""Reading what agents saw, did and got: by env step, or by each agent's own steps.

Row k of an agent lies at the env step at which it acted, which is that of its observation k. So an
action and the reward that it led to are found at the same index, however long the agent waited for
its next observation. An open row is the newest row in both ways of counting.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn

from trainer.agent_ids import COMMON_INFOS, canonical_order, listed
from trainer.episodes import nested
from trainer.episodes.agent_ledger import AgentLedger, AgentLine
from trainer.episodes.lookback_buffer import (
    Indices,
    InfoBuffer,
    LookbackBuffer,
    clipped,
    is_one_index,
    position,
    positions,
    whole_number,
)
from trainer.errors import EpisodeError, EpisodeIndexError, UnknownOutputError
from trainer.types import AgentId
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean

ColumnName = Literal["observations", "infos", "actions", "rewards", "outputs"]

_WITH_LAST: Final = ("observations", "infos")
"""Columns that have an item for the newest env step, too."""


@dataclass(frozen=True)
class Track:
    """One column of one agent.

    Attributes:
        items: of the agent, the open row included.
        env_ts: the env step of each item, ascending.
    """

    items: LookbackBuffer
    env_ts: Sequence[int]

    @functools.cached_property
    def place_at(self) -> dict[int, int]:
        """The position of the item of each env step."""
        return {env_t: place for place, env_t in enumerate(self.env_ts)}


@dataclass(frozen=True)
class Question:
    """What a getter was asked; see `MultiAgentEpisode.get_observations` for the meaning."""

    indices: Indices = None
    agent_ids: Any = None
    env_steps: bool = True
    neg_index_as_lookback: bool = False
    fill: Any = None
    return_list: bool = False
    one_hot_discrete: bool = False

    def options(self) -> dict[str, Any]:
        """Options of a single agent's getter; infos and rewards have no one-hot codes."""
        coded = {"one_hot_discrete": True} if self.one_hot_discrete else {}
        return {"fill": self.fill, **coded}


class AgentColumns:
    """The columns of a ledger, for getters; holds no data."""

    def __init__(self, ledger: AgentLedger) -> None:
        self._ledger = ledger

    def table(self) -> str:
        """One line per env step of the chunk: observations, actions, rewards, ends."""
        actions = self.read("actions", Question(return_list=True))
        rewards = self.read("rewards", Question(return_list=True))
        ends = self._ledger.ends
        lines = []
        for step, seen in enumerate(self.read("observations", Question(return_list=True))):
            env_t = self._ledger.env_t_started + step
            parts = [f"t={env_t}", f"observed {_shown(seen)}"]
            if step < len(actions):
                parts += [f"acted {_shown(actions[step])}", f"earned {_shown(rewards[step])}"]
            for agent in canonical_order(seen.keys() & ends.keys()):
                if ends[agent].env_t == env_t:
                    flags = "T" * ends[agent].terminated + "U" * ends[agent].truncated
                    parts.append(f"ended {agent!r}: {flags}")
            lines.append(" | ".join(parts))
        return "\n".join(lines)

    # Which agents.

    def chosen(self, agent_ids: Any) -> list[AgentId] | None:
        """The agents that were named, canonical order; None for none. Errors as of `known_id`."""
        if agent_ids is None:
            return None
        one = isinstance(agent_ids, str) or not isinstance(agent_ids, Iterable)
        return [self.known_id(agent) for agent in ([agent_ids] if one else agent_ids)]

    def known_id(self, agent: Any) -> AgentId:
        """The id of an agent; an EpisodeError unless the episode knows it."""
        try:
            own = self._ledger.known_id(agent)
        except TypeError:  # what cannot be a key
            own = None
        if own is None or isinstance(agent, bool):
            known = self._ledger.known()
            raise EpisodeError(
                f"There is no agent {agent!r:.80} in episode {self._ledger.id_!r}; it has "
                f"{listed(known)}.{did_you_mean(agent, known, similarity=0.5)}"
                " Name agents as the env does."
            )
        return own

    # Reading.

    def read(self, column: ColumnName, question: Question, *, key: str | None = None) -> Any:
        """The answer of a getter.

        `key` is the name of the extra output, for "outputs".

        Raises:
            EpisodeError: an agent is not known.
            EpisodeIndexError: an index is none, or lies outside.
            ValueError: a list over env steps of agents' own steps.
        """
        if question.return_list and not question.env_steps:
            raise EpisodeError(
                "A getter was called with env_steps=False and return_list=True: the agents' own "
                "steps do not stand side by side, so no list over them exists. Leave one of the "
                "two out."
            )
        named = self.chosen(question.agent_ids)
        by_env_step = question.env_steps
        agents = named if named is not None else self._agents_of(column, by_env_step=by_env_step)
        tracks = {
            agent: self._track(agent, column, key, by_env_step=by_env_step) for agent in agents
        }
        if not by_env_step:
            return self._by_own_step(tracks, question, is_named=named is not None)
        total = self._ledger.env_t - self._ledger.env_t_started + self._ledger.lookback
        total += column in _WITH_LAST
        if question.return_list:
            return self._as_list(tracks, question, total)
        return self._by_env_step(tracks, question, total)

    def outputs(self, question: Question, *, key: str | None) -> Any:
        """The answer of `get_extra_model_outputs`; an UnknownOutputError if there is none."""
        names = self._output_names()
        if key is None:
            answers = {name: self.read("outputs", question, key=name) for name in names}
            return _by_agent(answers, is_list=question.return_list)
        if key not in names:
            hint = did_you_mean(key, names, IN_BRACKETS)
            raise UnknownOutputError(
                f"No agent of episode {self._ledger.id_!r} has an extra output {key!r}{hint}. "
                f"There are {names}. Outputs appear with the first action that brings them."
            )
        return self.read("outputs", question, key=key)

    def _output_names(self) -> list[str]:
        names: set[str] = set()
        for line in self._ledger.lines.values():
            names.update(line.episode.extra_model_outputs)
            names.update(line.open.outputs if line.open is not None else ())
        return sorted(names)

    def _agents_of(self, column: ColumnName, *, by_env_step: bool) -> list[AgentId]:
        agents = set(self._ledger.lines)
        if column == "infos" and by_env_step:
            for given in self._ledger.infos.values():
                agents.update(agent for agent in given if agent != COMMON_INFOS)
        return canonical_order(agents)

    # One column of one agent.

    def items(self, agent: AgentId, column: ColumnName) -> LookbackBuffer:
        """The agent's own items of a column, the open row included; not to be changed."""
        return self._track(agent, column, None, by_env_step=False).items

    def _track(
        self, agent: AgentId, column: ColumnName, key: str | None, *, by_env_step: bool
    ) -> Track:
        line = self._ledger.lines.get(agent)
        if column == "infos" and by_env_step:
            return self._all_infos(agent, line)
        if line is None:
            return Track(LookbackBuffer(space=self._space(agent, column)), ())
        if column == "observations":
            return Track(line.episode.observations, line.clock)
        if column == "infos":
            return Track(line.episode.infos, line.clock)
        items = _with_open_row(line, column, key)
        return Track(items, line.clock[: items.total])

    def _space(self, agent: AgentId, column: ColumnName) -> Any:
        spaces = {
            "observations": self._ledger.observation_spaces,
            "actions": self._ledger.action_spaces,
        }
        return spaces.get(column, {}).get(agent)

    def _all_infos(self, agent: AgentId, line: AgentLine | None) -> Track:
        """The infos of an agent, those without an observation included."""
        found: dict[int, Any] = {}
        if line is not None:
            found.update(zip(line.clock, line.episode.infos.data, strict=True))
        for env_t, given in self._ledger.infos.items():
            if agent in given:
                found[env_t] = given[agent]
        when = sorted(found)
        return Track(InfoBuffer([found[env_t] for env_t in when]), when)

    # By env step.

    def _places(self, question: Question, total: int) -> list[int]:
        """The env steps that are asked for, as positions; see `trainer.episodes.indexing`.

        Raises:
            EpisodeIndexError: one of them lies outside and nothing stands in for it.
        """
        lookback, flag = self._ledger.lookback, question.neg_index_as_lookback
        indices = question.indices
        if is_one_index(indices):
            index = whole_number(indices)
            places: Any = [
                position(index, total=total, lookback=lookback, neg_index_as_lookback=flag)
            ]
        else:
            several: Any = slice(None) if indices is None else indices
            places = positions(several, total=total, lookback=lookback, neg_index_as_lookback=flag)
        if question.fill is not None:
            return list(places)
        if isinstance(places, range):
            return list(clipped(places, total))
        for number, place in enumerate(places):
            if not 0 <= place < total:
                self._refuse_index(indices, number, total)
        return list(places)

    def _refuse_index(self, indices: Any, number: int, total: int) -> NoReturn:
        index = indices if is_one_index(indices) else indices[number]
        lookback = self._ledger.lookback
        raise EpisodeIndexError(
            f"Index {index!r} lies outside the data of episode {self._ledger.id_!r}: {lookback} "
            f"env steps of look-back and {total - lookback} from step 0 on. Use one of them, or "
            "let a getter give a stand-in with `fill=`."
        )

    def _own_places(self, track: Track, places: list[int], question: Question) -> list[int]:
        """The agent's own positions at env steps; `track.items.total` where `fill` stands in."""
        first = self._ledger.env_t_started - self._ledger.lookback
        outside = None if question.fill is None else track.items.total
        # Below 0 is no look-back, though a row that was carried over may have begun there.
        found = [track.place_at.get(first + p, outside) if p >= 0 else outside for p in places]
        return [place for place in found if place is not None]

    def _by_env_step(self, tracks: dict[AgentId, Track], question: Question, total: int) -> Any:
        places = self._places(question, total)
        one = is_one_index(question.indices)
        answer = {}
        for agent, track in tracks.items():
            found = self._own_places(track, places, question)
            if found:
                picked = found[0] if one else found
                answer[agent] = _picked(track.items, picked, question)
        return answer

    def _as_list(self, tracks: dict[AgentId, Track], question: Question, total: int) -> Any:
        rows: list[dict[AgentId, Any]] = []
        for place in self._places(question, total):
            row = {}
            for agent, track in tracks.items():
                found = self._own_places(track, [place], question)
                if found:
                    row[agent] = _picked(track.items, found[0], question)
            rows.append(row)
        return rows

    # By own step.

    def _by_own_step(
        self, tracks: dict[AgentId, Track], question: Question, *, is_named: bool
    ) -> Any:
        indices = question.indices
        one = is_one_index(indices)
        if one:
            whole_number(indices)
        elif indices is not None:  # what is no index is an error, also if no agent is there
            positions(indices, total=0, lookback=0, neg_index_as_lookback=False)  # type: ignore[arg-type]
        answer = {}
        for agent, track in tracks.items():
            try:
                items = track.items.get(
                    indices,
                    neg_index_as_lookback=question.neg_index_as_lookback,
                    **question.options(),
                )
            except EpisodeIndexError as cause:
                if is_named:
                    raise EpisodeIndexError(f"Agent {agent!r}: {cause}") from cause
                continue
            if one or is_named or _count(items):
                answer[agent] = items
        return answer


def _picked(items: LookbackBuffer, where: int | list[int], question: Question) -> Any:
    """Items at positions, look-back counted."""
    lookback = items.lookback
    if isinstance(where, list):
        start, stop = where[0], where[-1] + 1
        is_whole = where == list(range(start, stop)) and stop <= items.total
        # A slice of an array is a view; a list of indices would copy.
        indices: Any = (
            slice(start - lookback, stop - lookback)
            if is_whole
            else [place - lookback for place in where]
        )
    else:
        indices = where - lookback
    return items.get(indices, neg_index_as_lookback=True, **question.options())


def _with_open_row(line: AgentLine, column: ColumnName, key: str | None) -> LookbackBuffer:
    """A column of rows with the open one at its end."""
    episode, row = line.episode, line.open
    if column == "outputs":
        buffer = episode.extra_model_outputs.get(key or "", LookbackBuffer())
        if row is None or key is None or key not in row.outputs:
            return buffer
        item = row.outputs[key]
    else:
        buffer = episode.actions if column == "actions" else episode.rewards
        if row is None:
            return buffer
        item = row.action if column == "actions" else row.reward
    if isinstance(buffer.data, list):
        data: Any = [*buffer.data, item]
    else:
        data = nested.stack([item], name=column)
        data = nested.concatenate(buffer.data, data) if buffer.total else data
    return LookbackBuffer(data, lookback=buffer.lookback, space=buffer.space)


def _by_agent(answers: dict[str, Any], *, is_list: bool) -> Any:
    """From {name: {agent: value}} to {agent: {name: value}}, or a list of such."""
    if is_list:
        columns = list(answers.values())
        steps = len(columns[0]) if columns else 0
        return [
            _by_agent({name: answers[name][step] for name in answers}, is_list=False)
            for step in range(steps)
        ]
    agents = canonical_order({agent for values in answers.values() for agent in values})
    return {
        agent: {name: values[agent] for name, values in answers.items() if agent in values}
        for agent in agents
    }


def _count(items: Any) -> int:
    return len(items) if isinstance(items, list) else nested.batch_length(items)


def _shown(by_agent: dict[AgentId, Any]) -> str:
    return ", ".join(f"{agent!r}: {by_agent[agent]!r:.60}" for agent in by_agent) or "–"
