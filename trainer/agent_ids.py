"""Ids of agents: which are allowed, in which order they come, and how a misspelt one is answered.

Nothing that is computed may depend on the order in which an env names its agents: wherever agents
are listed, they come in *canonical order*.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set
from typing import Any, Final

import numpy as np

from trainer.types import AgentId

ALL_AGENTS: Final = "__all__"
"""The key of `terminateds` and `truncateds` that speaks of the whole episode."""

COMMON_INFOS: Final = "__common__"
"""The key of `infos` that belongs to no agent."""

_RESERVED_PREFIX: Final = "__"


def canonical_order(ids: Iterable[AgentId]) -> list[AgentId]:
    """The ids in the one order that counts: ints ascending, then texts by code point."""
    given = list(ids)
    try:
        return sorted(given)  # nearly always of one kind: without a key it takes half the time
    except TypeError:  # ints and texts
        return sorted(given, key=lambda id_: (isinstance(id_, str), id_))


def plain_id(agent_id: Any) -> Any:
    """The id as Python's own int or text, which NumPy's are equal to; anything else as it is."""
    if type(agent_id) is str or type(agent_id) is int:
        return agent_id
    if isinstance(agent_id, np.integer):
        return int(agent_id)
    return str(agent_id) if isinstance(agent_id, np.str_) else agent_id


def why_no_agent_id(agent_id: object) -> str | None:
    """What keeps a value from being the id of an agent, as the end of a sentence; None if it is."""
    if type(agent_id) not in (str, int):
        return f"{agent_id!r:.80} is a {type(agent_id).__name__}; an id is a text or an int"
    if isinstance(agent_id, str) and agent_id.startswith(_RESERVED_PREFIX):
        return f"{agent_id!r} begins with two underscores, as only keys like {ALL_AGENTS!r} do"
    return None


def same_texts(ids: Iterable[AgentId]) -> tuple[AgentId, AgentId] | None:
    """Two ids that are written alike, such as 0 and "0"; None if there are none.

    Files and results with text keys could not tell them apart.
    """
    by_text: dict[str, AgentId] = {}
    for agent_id in ids:
        other = by_text.setdefault(str(agent_id), agent_id)
        if type(other) is not type(agent_id):
            return other, agent_id
    return None


class AgentIds(Set[AgentId]):
    """Ids of agents in canonical order; equal to any set of the same ids."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Iterable[AgentId] = ()) -> None:
        self._ids = dict.fromkeys(canonical_order(dict.fromkeys(ids)))

    def __contains__(self, agent_id: object) -> bool:
        return agent_id in self._ids

    def __iter__(self) -> Iterator[AgentId]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)

    def __hash__(self) -> int:
        return self._hash()

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self._ids))}}}"


def listed(ids: Collection[AgentId], *, most: int = 20) -> str:
    """Ids for an error text, in canonical order, the first ones if there are many."""
    shown = ", ".join(map(repr, canonical_order(ids)[:most]))
    return f"[{shown}{', …' if len(ids) > most else ''}]"
