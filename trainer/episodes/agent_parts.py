"""Cutting a running episode of several agents into chunks, joining chunks, and slicing.

Every row is in exactly one chunk: in the one in which it is completed. An agent that waits for an
observation at a cut goes on waiting in the successor, whose first observation of it is the one that
it acted upon. A slice that begins while an agent waits has it from its next observation on; joining
it to the slice before completes the row with that observation.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from trainer.agent_ids import COMMON_INFOS, canonical_order
from trainer.episodes import nested
from trainer.episodes.agent_ledger import AgentLedger, AgentLine, OpenRow, added_by_agent
from trainer.episodes.episode_state import why_not_following
from trainer.episodes.single_agent_episode import SingleAgentEpisode
from trainer.metrics.statistic import exact_partials
from trainer.types import AgentId, ModuleId


def empty_ledger(ledger: AgentLedger, *, env_t: int) -> AgentLedger:
    """A ledger for a part of the same episode that begins at an env step."""
    part = AgentLedger(
        ledger.id_,
        possible=ledger.possible,
        rewards_after_end=ledger.rewards_after_end,
        observation_spaces=ledger.observation_spaces,
        action_spaces=ledger.action_spaces,
        modules=ledger.modules,
        episode_ids=ledger.episode_ids,
        env_t=env_t,
    )
    part.is_reset = ledger.is_reset
    return part


# Cutting.


def cut(
    ledger: AgentLedger, lookback: int, with_last_row_of: Collection[ModuleId] = ()
) -> AgentLedger:
    """The ledger of the chunk that goes on; the given one keeps what it has.

    The look-back are env steps, at most all there are, and the last row of each agent of some
    modules: one that waited longer has none in these env steps.

    Raises:
        EpisodeError: the data of users in an agent's episode cannot be copied.
    """
    t = ledger.env_t
    successor = empty_ledger(ledger, env_t=t)
    held = t - ledger.env_t_started + ledger.lookback
    successor.lookback = min(lookback, held)
    for agent in ledger.running():
        num_rows = int(ledger.modules.get(agent) in with_last_row_of)
        successor.lines[agent] = _cut_line(ledger.lines[agent], t - successor.lookback, num_rows)
    successor.ends = dict(ledger.ends)
    successor.appeared = dict(ledger.appeared)
    successor.infos = _infos_of_successor(ledger, t - successor.lookback)
    successor.before = {agent: list(parts) for agent, parts in ledger.before.items()}
    successor.rounding_earlier = added_by_agent(
        exact_partials, ledger.rounding_earlier, ledger.rounding
    )
    successor.late_earlier = added_by_agent(exact_partials, ledger.late_earlier, ledger.late)
    successor.gone = dict(ledger.gone)
    for agent in canonical_order(ledger.lines.keys() & ledger.ends.keys()):
        successor.gone[agent] = ledger.lines[agent].episode.return_partials()
    successor.gone_change = _change_of_ended(ledger)
    successor.recent = ledger.recent
    successor.num_empty_steps = ledger.num_empty_steps
    successor.find_owing()
    return successor


def _cut_line(line: AgentLine, first: int, num_rows: int) -> AgentLine:
    """The line that goes on; look-back are its completed rows since env step `first`.

    But at least the last `num_rows`, as far as there are any.
    """
    rows = len(line.clock) - 1
    since = sum(env_t >= first for env_t in line.clock[:rows])
    lookback = max(since, min(num_rows, rows))
    clock = line.clock[rows - lookback :]
    open_row = None if line.open is None else line.open.copied()
    return AgentLine(line.episode.cut(lookback), clock, open_row)


def _infos_of_successor(ledger: AgentLedger, first: int) -> dict[int, dict[AgentId, Any]]:
    """Infos without observation since env step `first`, and each agent's newest one."""
    kept: dict[int, dict[AgentId, Any]] = {}
    found: set[AgentId] = set()
    for env_t in sorted(ledger.infos, reverse=True):
        given = ledger.infos[env_t]
        newest = {agent: given[agent] for agent in given if env_t >= first or agent not in found}
        found.update(given)
        if newest:
            kept[env_t] = newest
    return dict(sorted(kept.items()))


def _change_of_ended(ledger: AgentLedger) -> list[float] | None:
    ended = [ledger.lines[agent].episode for agent in ledger.lines.keys() & ledger.ends.keys()]
    changes = [episode.change_partials() for episode in ended] + [ledger.gone_change]
    if all(change is None for change in changes):
        return None
    return exact_partials([part for change in changes for part in change or ()])


def follow(ledger: AgentLedger, before: AgentLedger) -> None:
    """Takes over what rewriting added to rows of the chunk before, after the cut."""
    for agent in ledger.lines.keys() & before.lines.keys():
        change = before.lines[agent].episode.change_partials()
        ledger.lines[agent].episode.earlier_change = change
    ledger.gone_change = _change_of_ended(before)


def is_to_learn_from(chunk: SingleAgentEpisode) -> bool:
    """Whether the newest info of an agent leaves its rows to be learnt from.

    `infos[agent]["training_enabled"] = False` keeps those of a chunk out; RLlib's name.
    """
    # Straight from the column, which is a list in every form: asked of every chunk that is played.
    return not len(chunk) or chunk.infos.data[-1].get("training_enabled") is not False


# Joining.


def why_not_next(ledger: AgentLedger, other: AgentLedger) -> str | None:
    """What keeps `other` from being the chunk or slice after `ledger`, or None if it is."""
    if ledger.id_ != other.id_:
        return f"their ids differ ({ledger.id_!r} and {other.id_!r})"
    if ledger.is_done:
        return "the first one is done"
    if not (ledger.is_reset and other.is_reset):
        return "one of them was not reset"
    if other.env_t_started != ledger.env_t:
        return (
            f"the first one ends at env step {ledger.env_t}, the other begins at "
            f"{other.env_t_started}"
        )
    for agent in canonical_order({*ledger.lines, *other.lines}):
        problem = _why_not_next_line(ledger, other, agent)
        if problem is not None:
            return f"of agent {agent!r}, {problem}"
    return None


def _why_not_next_line(ledger: AgentLedger, other: AgentLedger, agent: AgentId) -> str | None:
    first, second = ledger.lines.get(agent), other.lines.get(agent)
    if ledger.modules.get(agent) != other.modules.get(agent):
        return f"the modules differ: {ledger.modules.get(agent)!r} and {other.modules.get(agent)!r}"
    if agent in ledger.ends:
        is_behind = second is None or (first is not None and _is_end_of(first, second))
        return None if is_behind else "it ended in the first one, and goes on in the other"
    if first is None:
        if second is not None and second.clock[second.episode.lookback] <= ledger.env_t:
            return "the other has observations from before its first env step, the first has none"
        return None
    if second is None:
        # A slice in which it only waits has nothing of it.
        return None if first.open is not None else "the first one has data, the other has none"
    if first.episode.id_ != second.episode.id_:
        return f"the ids differ: {first.episode.id_!r} and {second.episode.id_!r}"
    row = _row_completed_by(first, second)
    if row is not None:
        return None if second.takes(row.outputs) else "they have different extra outputs"
    problem = why_not_following(first.episode, second.episode)
    if problem is not None:
        return problem
    if first.clock[-1] != second.clock[second.episode.lookback]:
        return (
            f"the newest observation of the first was made at env step {first.clock[-1]}, the "
            f"other's first one at {second.clock[second.episode.lookback]}"
        )
    return _why_other_action(first, second)


def _is_end_of(first: AgentLine, second: AgentLine) -> bool:
    """Whether the other, a slice, begins with the last observation of the first and has no more."""
    return not len(second.episode) and first.clock[-1] == second.clock[-1]


def _row_completed_by(first: AgentLine, second: AgentLine) -> OpenRow | None:
    """The row under way in the first, if the other, a slice, begins with what completes it."""
    return first.open if second.episode.t_started == first.episode.t + 1 else None


def _why_other_action(first: AgentLine, second: AgentLine) -> str | None:
    """Whether the action that was under way at the cut is the other's first one."""
    if first.open is None:
        return None
    if len(second.episode):
        action = second.episode.get_actions(0)
    elif second.open is not None:
        action = second.open.action
    else:
        return "the action that the first one waits with is missing in the other"
    if nested.equal(first.open.action, action):
        return None
    return "the action that the first one waits with is not the first action of the other"


def join(ledger: AgentLedger, other: AgentLedger) -> None:
    """Appends the chunk after this one, in place; see `why_not_next`."""
    as_numpy = is_numpy(ledger)
    for agent in canonical_order(other.lines.keys() - ledger.ends.keys()):
        theirs = other.lines[agent]
        open_row = None if theirs.open is None else theirs.open.copied()
        if agent in ledger.lines:
            line = ledger.lines[agent]
            row = _row_completed_by(line, theirs)
            if row is not None:
                seen, info = theirs.episode.get_observations(0), theirs.episode.get_infos(0)
                env_t = theirs.clock[theirs.episode.lookback]
                line.add_row(env_t, seen, row.action, row.reward, info, row.outputs)
            line.episode.concat_episode(theirs.episode)
            line.clock += theirs.clock[theirs.episode.lookback + 1 :]
            line.open = open_row
        else:
            episode = _copied(theirs.episode)
            episode.to_numpy() if as_numpy else episode.to_lists()
            ledger.lines[agent] = AgentLine(episode, list(theirs.clock), open_row)
    ledger.ends = dict(other.ends)
    ledger.appeared = dict(other.appeared)
    ledger.before = {agent: list(parts) for agent, parts in other.before.items()}
    ledger.rounding = added_by_agent(exact_partials, ledger.rounding, other.rounding)
    for env_t, given in other.infos.items():
        ledger.infos[env_t] = {**ledger.infos.get(env_t, {}), **given}
    for agent, rewards in other.late.items():
        # The row that they belong to is in this ledger; had it not been cut, it would have them.
        kept = [reward for reward in rewards if not ledger.credit(agent, reward)]
        if kept:
            ledger.late.setdefault(agent, []).extend(kept)
    ledger.env_t = other.env_t
    ledger.is_terminated, ledger.is_truncated = other.is_terminated, other.is_truncated
    ledger.recent = other.recent
    ledger.num_rewards_after_end += other.num_rewards_after_end
    ledger.num_truncations_without_observation += other.num_truncations_without_observation
    ledger.num_empty_steps = other.num_empty_steps
    ledger.find_owing()


def is_numpy(ledger: AgentLedger) -> bool:
    """Whether the columns of the agents are arrays; False without agents."""
    return bool(ledger.lines) and all(line.episode.is_numpy for line in ledger.lines.values())


def _copied(episode: SingleAgentEpisode) -> SingleAgentEpisode:
    return SingleAgentEpisode.from_state(
        episode.get_state(),
        observation_space=episode.observation_space,
        action_space=episode.action_space,
    )


# Slicing.


def sliced(ledger: AgentLedger, start: int, stop: int, lookback: int) -> AgentLedger:
    """The ledger of the env steps start … stop - 1 of a chunk.

    Rewards before a first observation and after an end are in no row, so a part has none. A row
    that begins in the part and ends behind it is open in the part, with its whole reward: which env
    step paid what is not kept. The first env step and the one behind the last one count from the
    chunk's first one.
    """
    first, last = ledger.env_t_started + start, ledger.env_t_started + stop
    part = empty_ledger(ledger, env_t=first)
    part.lookback = min(lookback, ledger.lookback + start)
    part.env_t = last
    for agent in canonical_order(ledger.lines):
        line = _sliced_line(ledger, agent, first, last, first - part.lookback)
        if line is not None:
            part.lines[agent] = line
    part.ends = {agent: end for agent, end in ledger.ends.items() if end.env_t <= last}
    part.appeared = {agent: t for agent, t in ledger.appeared.items() if t <= last}
    part.infos = {
        env_t: dict(given)
        for env_t, given in ledger.infos.items()
        if first - part.lookback <= env_t <= last
    }
    if last == ledger.env_t:
        part.is_terminated, part.is_truncated = ledger.is_terminated, ledger.is_truncated
        part.recent = ledger.recent
    part.find_owing()
    return part


def _sliced_line(
    ledger: AgentLedger, agent: AgentId, first: int, last: int, first_shown: int
) -> AgentLine | None:
    line = ledger.lines[agent]
    own = line.episode.lookback
    # A part that begins with its chunk has the row that was carried over into that, too.
    since = min(first, line.clock[own]) if first == ledger.env_t_started else first
    inside = [place for place in range(own, len(line.clock)) if since <= line.clock[place] <= last]
    begin = inside[0] if inside else _waits_from(line, first_shown, last)
    if begin is None:
        return None
    end = inside[-1] if inside else begin
    lookback = sum(env_t >= first_shown for env_t in line.clock[:begin])
    episode = line.episode.slice(slice(begin - own, end - own), len_lookback_buffer=lookback)
    clock = line.clock[begin - lookback : end + 1]
    return AgentLine(episode, clock, _row_under_way(line, end, last))


def _waits_from(line: AgentLine, first_shown: int, last: int) -> int | None:
    """The position from which an agent waits throughout a part; None if not from its look-back."""
    place = sum(env_t <= last for env_t in line.clock) - 1
    if place < line.episode.lookback or line.clock[place] < first_shown:
        return None
    return None if _row_under_way(line, place, last) is None else place


def _row_under_way(line: AgentLine, place: int, last: int) -> OpenRow | None:
    """The row that began at an own position before env step `last` and did not end by then."""
    if line.clock[place] >= last:
        return None
    if place == len(line.clock) - 1:
        return None if line.open is None else line.open.copied()
    step = place - line.episode.lookback
    outputs = line.episode.get_extra_model_outputs(None, step)
    reward = float(line.episode.get_rewards(step))
    action = line.episode.get_actions(step)
    return OpenRow(line.clock[place], action, exact_partials([reward]), outputs)


def newest_common_info(ledger: AgentLedger) -> Any:
    """The newest info of all agents together; None if there is none."""
    for env_t in sorted(ledger.infos, reverse=True):
        if COMMON_INFOS in ledger.infos[env_t]:
            return ledger.infos[env_t][COMMON_INFOS]
    return None
