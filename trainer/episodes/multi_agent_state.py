"""Episodes of several agents as plain data: for checkpoints and for the way between processes.

Whatever is kept by agent is written as pairs in canonical order, so that the bytes do not depend on
the order in which an env named its agents, and ids that are ints stay ints. Spaces and functions
are not part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import numpy as np

from checkpoints import CheckpointMismatchError, check_shape
from trainer.agent_ids import canonical_order
from trainer.episodes.agent_ledger import AgentEnd, AgentLedger, AgentLine, OpenRow
from trainer.episodes.episode_state import (
    EPISODE_STATE,
    USER_DATA,
    copied_containers,
    take_state,
)
from trainer.episodes.single_agent_episode import ActingRequest, SingleAgentEpisode, Stopwatch
from trainer.errors import EpisodeError
from trainer.types import AgentId, ModuleId, State
from trainer_toolkit import checks

_ID: Final = checks.either(checks.TEXT, checks.of_type(int))
_STEP: Final = checks.of_type(int)
_CLOCK: Final = checks.of_type(np.ndarray)
_PARTS: Final = checks.list_of(checks.ANY_NUMBER)


def _pairs(value: checks.Check) -> checks.Check:
    return checks.list_of(checks.fields({"agent": _ID, "value": value}))


_ACCOUNTS: Final = ("before", "late", "late_earlier", "rounding", "rounding_earlier", "gone")
_PLAIN: Final = ("env_t_started", "env_t", "lookback", "is_reset", "is_terminated", "is_truncated")
_COUNTS: Final = (
    "num_rewards_after_end",
    "num_truncations_without_observation",
    "num_empty_steps",
)

_OPEN_ROW: Final = checks.fields(
    {"env_t": _STEP, "action": checks.anything(), "parts": _PARTS, "outputs": checks.of_type(dict)},
    optional={"request": checks.fields({"timestep": checks.COUNT, "explore": checks.FLAG})},
)
_LINE: Final = checks.fields(
    {"clock": _CLOCK, "episode": EPISODE_STATE, "open": checks.either(_OPEN_ROW, checks.NOTHING)}
)
_END: Final = checks.fields(
    {
        "env_t": _STEP,
        "terminated": checks.FLAG,
        "truncated": checks.FLAG,
        "appeared": checks.FLAG,
        "steps": checks.COUNT,
    }
)

LEDGER_STATE: Final[Mapping[str, checks.Check]] = {
    "id_": checks.TEXT,
    "possible": checks.either(checks.list_of(_ID), checks.NOTHING),
    "rewards_after_end": checks.TEXT,
    "modules": _pairs(checks.TEXT),
    "episode_ids": _pairs(checks.TEXT),
    "env_t_started": _STEP,
    "env_t": _STEP,
    "lookback": checks.COUNT,
    "is_reset": checks.FLAG,
    "is_terminated": checks.FLAG,
    "is_truncated": checks.FLAG,
    "lines": _pairs(_LINE),
    "ends": _pairs(_END),
    "appeared": _pairs(_STEP),
    "infos": checks.list_of(checks.fields({"env_t": _STEP, "value": _pairs(checks.anything())})),
    **dict.fromkeys(_ACCOUNTS, _pairs(_PARTS)),
    "gone_change": checks.either(_PARTS, checks.NOTHING),
    "recent": checks.list_of(_pairs(checks.anything()), length=2),
    **dict.fromkeys(_COUNTS, checks.COUNT),
}
"""What the state of a ledger looks like."""

_OWN_STATE: Final[Mapping[str, checks.Check]] = {
    **{name: checks.of_type(dict) for name in USER_DATA},
    "number": checks.either(checks.of_type(int), checks.NOTHING),
    "task": checks.anything(),
}
"""What `MultiAgentEpisode` adds to it."""


def ledger_state(
    ledger: AgentLedger, episode_state: Callable[[SingleAgentEpisode], State]
) -> State:
    """All there is to know of a ledger but the spaces, as plain data; episodes copied or shared."""
    state: State = {name: getattr(ledger, name) for name in (*_PLAIN, *_COUNTS)}
    state["id_"] = ledger.id_
    state["possible"] = None if ledger.possible is None else list(ledger.possible)
    state["rewards_after_end"] = ledger.rewards_after_end
    state["modules"] = _as_pairs(ledger.modules)
    state["episode_ids"] = _as_pairs(ledger.episode_ids)
    state["lines"] = _as_pairs(
        {agent: _line_state(line, episode_state) for agent, line in ledger.lines.items()}
    )
    state["ends"] = _as_pairs({agent: end._asdict() for agent, end in ledger.ends.items()})
    state["appeared"] = _as_pairs(ledger.appeared)
    state["infos"] = [
        {"env_t": env_t, "value": _as_pairs(copied_containers(ledger.infos[env_t]))}
        for env_t in sorted(ledger.infos)
    ]
    for name in _ACCOUNTS:
        account = getattr(ledger, name)
        state[name] = _as_pairs({agent: list(parts) for agent, parts in account.items()})
    state["gone_change"] = None if ledger.gone_change is None else list(ledger.gone_change)
    state["recent"] = [_as_pairs(rewards) for rewards in ledger.recent]
    return state


def _line_state(line: AgentLine, episode_state: Callable[[SingleAgentEpisode], State]) -> State:
    row = line.open
    open_row = None
    if row is not None:
        open_row = {
            "env_t": row.env_t,
            "action": copied_containers(row.action),
            "parts": list(row.parts),
            "outputs": copied_containers(dict(row.outputs)),
            **({} if row.request is None else {"request": row.request._asdict()}),
        }
    return {
        "clock": np.array(line.clock, np.int64),
        "episode": episode_state(line.episode),
        "open": open_row,
    }


def _as_pairs(by_agent: Mapping[AgentId, Any]) -> list[dict[str, Any]]:
    return [{"agent": agent, "value": by_agent[agent]} for agent in canonical_order(by_agent)]


def _from_pairs(pairs: list[dict[str, Any]]) -> dict[AgentId, Any]:
    return {pair["agent"]: pair["value"] for pair in pairs}


def modules_in_state(state: State) -> set[ModuleId]:
    """The modules that act in an episode of several agents, of which this is the state."""
    return {pair["value"] for pair in state["modules"]}


def why_not_of_agents(state: State, agents: Collection[AgentId]) -> str | None:
    """What of a state that was checked names other agents, or an agent without a module."""
    for name in ("modules", "episode_ids", "lines", "ends", "appeared", *_ACCOUNTS):
        for index, pair in enumerate(state[name]):
            if pair["agent"] not in agents:
                return f"[{name!r}][{index}] is of agent {pair['agent']!r}, who is not in the env"
    mapped = {pair["agent"] for pair in state["modules"]}
    for pair in state["lines"]:
        if pair["agent"] not in mapped:
            return f"['modules'] lacks the module of agent {pair['agent']!r}, who plays"
    return None


def check_state(state: Any) -> None:
    """Checks the state of an episode before anything is made of it.

    Raises:
        EpisodeError: a key is missing or unknown, a value is of another kind, or lengths do not
            fit; names the place.
    """
    try:
        check_shape(state, checks.fields({**LEDGER_STATE, **_OWN_STATE}))
    except CheckpointMismatchError as cause:
        raise _refused(str(cause)) from cause
    problem = _why_not_fitting(state)
    if problem is not None:
        raise _refused(problem)


def _refused(problem: str) -> EpisodeError:
    return EpisodeError(
        f"This is no state of a MultiAgentEpisode: {problem}. Nothing can be continued from it. "
        "Pass what `episode.get_state()` returned."
    )


def _why_not_fitting(state: State) -> str | None:
    """Which lengths do not fit together."""
    if state["env_t"] < state["env_t_started"]:
        return f"env_t={state['env_t']} is below env_t_started={state['env_t_started']}"
    for number_of_line, pair in enumerate(state["lines"]):
        place, line = f"['lines'][{number_of_line}]['value']", pair["value"]
        clock, episode = line["clock"], line["episode"]
        if clock.ndim != 1 or clock.dtype != np.int64 or not len(clock):
            return f"{place}['clock'] is no array of env steps"
        if any(np.diff(clock) <= 0) or clock[-1] > state["env_t"]:
            return f"{place}['clock'] does not ascend to at most env_t={state['env_t']}"
        rows = episode["lookback"] + episode["t"] - episode["t_started"]
        if len(clock) != rows + 1:
            return f"{place}['clock'] has {len(clock)} env steps for {rows + 1} observations"
        if episode["agent_id"] != pair["agent"]:
            return f"{place}['episode'] is of agent {episode['agent_id']!r}, not {pair['agent']!r}"
        if line["open"] is not None and line["open"]["env_t"] != clock[-1]:
            return f"{place}['open'] began at another env step than that of the newest observation"
    return None


def ledger_from_state(
    state: State,
    *,
    observation_spaces: Mapping[AgentId, Any] | None,
    action_spaces: Mapping[AgentId, Any] | None,
    make_episode: Callable[[State, Any, Any], SingleAgentEpisode],
) -> AgentLedger:
    """The ledger of a state that was checked; an EpisodeError if an agent's columns do not fit."""
    ledger = AgentLedger(
        state["id_"],
        possible=state["possible"],
        rewards_after_end=state["rewards_after_end"],
        observation_spaces=observation_spaces,
        action_spaces=action_spaces,
        modules=_from_pairs(state["modules"]),
        episode_ids=_from_pairs(state["episode_ids"]),
    )
    for name in (*_PLAIN, *_COUNTS):
        setattr(ledger, name, state[name])
    for pair in state["lines"]:
        agent, line = pair["agent"], pair["value"]
        spaces = ledger.observation_spaces.get(agent), ledger.action_spaces.get(agent)
        episode = make_episode(line["episode"], *spaces)
        row = line["open"]
        if row is not None:
            row = OpenRow(
                row["env_t"],
                copied_containers(row["action"]),
                list(row["parts"]),
                copied_containers(row["outputs"]),
                ActingRequest(**row["request"]) if "request" in row else None,
            )
        ledger.lines[agent] = AgentLine(episode, line["clock"].tolist(), row)
    ledger.ends = {agent: AgentEnd(**end) for agent, end in _from_pairs(state["ends"]).items()}
    ledger.appeared = _from_pairs(state["appeared"])
    ledger.infos = {
        given["env_t"]: copied_containers(_from_pairs(given["value"])) for given in state["infos"]
    }
    for name in _ACCOUNTS:
        account = _from_pairs(state[name])
        setattr(ledger, name, {agent: list(parts) for agent, parts in account.items()})
    ledger.gone_change = None if state["gone_change"] is None else list(state["gone_change"])
    before, newest = state["recent"]
    ledger.recent = _from_pairs(before), _from_pairs(newest)
    ledger.find_owing()
    return ledger


def episode_around(state: State, observation_space: Any, action_space: Any) -> SingleAgentEpisode:
    """An agent's episode around the very objects of a state that was pickled."""
    episode = SingleAgentEpisode.__new__(SingleAgentEpisode)
    episode.stopwatch = Stopwatch()
    take_state(episode, state, observation_space=observation_space, action_space=action_space)
    return episode
