"""The modules of a run, as one value that every process gets, and as plain data.

A change of it is a new value: runners get it with their next request, and a runner that is made
anew is made from it. There is no second way to add a module to a runner.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final

from checkpoints import StateError, encode
from trainer.agent_ids import canonical_order
from trainer.errors import ConfigError, UnsupportedSpaceError
from trainer.exploration import ExplorationSpec
from trainer.modules.actor_critic import ActorCriticModule, RLModuleSpec
from trainer.modules.by_module import ByModule
from trainer.modules.model_config import DefaultModelConfig
from trainer.modules.rl_module import (
    module_class_named,
    plain_setting,
    space_from_record,
    space_record,
)
from trainer.name_resolution import stranger
from trainer.seeding import Role, position_rng
from trainer.types import AgentId, ModuleId, State
from trainer_toolkit import checks
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import integer
from trainer_toolkit.class_names import full_name


@dataclass(frozen=True)
class OwnActing:
    """How a module acts, where that is different from the others.

    Attributes:
        exploration: its strategy; None is that of the run.
        is_greedy: it never explores.
    """

    exploration: ExplorationSpec | None = None
    is_greedy: bool = False


@dataclass(frozen=True)
class ModuleTable:
    """Which modules there are, and which of them acts for which agent.

    Attributes:
        specs: make the networks; spaces that are None are those of the agents.
        mapping: `policy_mapping_fn` as it was given; None gives all agents to the only module.
        acting: by module id: how those act that do so in a way of their own.
        version: how often the table was changed in this run.
    """

    specs: ByModule[RLModuleSpec]
    mapping: Any = None
    acting: Mapping[ModuleId, OwnActing] = field(default_factory=dict)
    version: int = 0


# ---- match-ups


class Matchups:
    """A `policy_mapping_fn` as plain data: which modules may meet, and how often they do.

        Matchups([{"white": "main", "black": "old"}, {"white": "old", "black": "main"}])
        Matchups([(3, {"white": "main", "black": "old"}), (1, {"white": "main", "black": "main"})])

    One of the pairings is drawn for each episode; the draw follows from the seed and the number of
    the episode. Unlike a function it is part of checkpoints.

    Attributes:
        pairings: (weight, {agent: module id}) of each, in the order given.
        seed: other seeds draw other pairings.
    """

    @takes(seed=integer())
    def __init__(self, pairings: Sequence[Any], *, seed: int = 0) -> None:
        """Takes pairings, each {agent: module id} or (weight, {agent: module id}).

        Raises:
            ConfigError: there are none, one says nothing of an agent that others name, or a weight
                is not above 0.
        """
        weighted = [one if isinstance(one, tuple | list) else (1, one) for one in pairings]
        for one in weighted:
            is_pair = len(one) == 2 and isinstance(one[1], Mapping) and bool(one[1])
            if not is_pair or not isinstance(one[0], int | float) or not one[0] > 0:
                raise ConfigError(
                    f"Matchups got the pairing {one!r:.200}; expected {{agent: module id}}, or a "
                    "pair of a weight above 0 and such a dict."
                )
        agents = {frozenset(pairing) for _, pairing in weighted}
        if len(agents) != 1:
            raise ConfigError(
                f"Matchups got {len(weighted)} pairings of {len(agents)} different sets of agents; "
                "expected the same agents in each of one or more pairings. Name every agent in "
                "every pairing."
            )
        self.pairings = tuple((weight, dict(pairing)) for weight, pairing in weighted)
        self.seed = seed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Matchups) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.seed, len(self.pairings)))

    def __repr__(self) -> str:
        return f"Matchups({list(self.pairings)!r}, seed={self.seed})"

    def __call__(self, agent_id: AgentId, episode: Any) -> ModuleId | None:
        """The module of an agent in an episode; None for an agent that no pairing names."""
        return self.pairing_of(episode.number or 0).get(agent_id)

    def pairing_of(self, number: int) -> Mapping[AgentId, ModuleId]:
        """{agent: module id} in the episode of a number."""
        rng = position_rng(self.seed, Role.MAPPING, 0, number)
        total = sum(weight for weight, _ in self.pairings)
        drawn, chosen = rng.random() * total, self.pairings[-1][1]
        for weight, pairing in reversed(self.pairings):
            if drawn < weight:
                chosen = pairing
                break
            drawn -= weight
        return chosen

    def to_record(self) -> State:
        """Plain data."""
        pairings = [[weight, _pairs(pairing)] for weight, pairing in self.pairings]
        return {"pairings": pairings, "seed": self.seed}


# ---- plain data

_PAIRS: Final = checks.list_of(checks.list_of(checks.anything(), length=2))
MAPPING_RECORD: Final[checks.Check] = checks.either(
    checks.NOTHING,
    checks.fields({"agents": _PAIRS}),
    checks.fields(
        {
            "pairings": checks.list_of(
                checks.list_of(checks.either(checks.ANY_NUMBER, _PAIRS), length=2)
            ),
            "seed": checks.COUNT,
        }
    ),
    checks.fields({"code": checks.TEXT}),
)
"""What `mapping_record` gives."""

SPEC_RECORD: Final[checks.Check] = checks.fields(
    {
        "class": checks.TEXT,
        "observation_space": checks.either(checks.of_type(dict), checks.NOTHING),
        "action_space": checks.either(checks.of_type(dict), checks.NOTHING),
        "model_config": checks.dict_of(checks.anything()),
        "action_mask_key": checks.either(checks.TEXT, checks.NOTHING),
    }
)
"""What `spec_record` gives."""


def _pairs(by_agent: Mapping[AgentId, ModuleId]) -> list[list[Any]]:
    return [[agent, str(by_agent[agent])] for agent in canonical_order(by_agent)]


def mapping_record(mapping: Any) -> State | None:
    """A mapping of agents as plain data; of a function there is only the name."""
    if mapping is None:
        return None
    if isinstance(mapping, Matchups):
        return mapping.to_record()
    if isinstance(mapping, Mapping):
        made_by = mapping.get("type")
        if not isinstance(made_by, type):
            return {"agents": _pairs(mapping)}
        mapping = made_by
    return {"code": str(getattr(mapping, "__qualname__", type(mapping).__qualname__))}


def mapping_from_record(record: State | None, *, code: Any) -> Any:
    """The mapping that `mapping_record` described; `code` stands for a function."""
    if record is None:
        return None
    if "agents" in record:
        return dict(record["agents"])
    if "pairings" in record:
        pairings = [(weight, dict(pairing)) for weight, pairing in record["pairings"]]
        return Matchups(pairings, seed=record["seed"])
    return code


def spec_record(spec: RLModuleSpec) -> State | None:
    """The spec of a module as plain data; None if it, or a space, is none."""
    config = spec.model_config
    config = dataclasses.asdict(config) if isinstance(config, DefaultModelConfig) else config
    module_class = spec.module_class or ActorCriticModule
    try:
        record: State = {
            "class": full_name(module_class),
            "observation_space": _record_of_space(spec.observation_space),
            "action_space": _record_of_space(spec.action_space),
            "model_config": plain_setting(config or {}),
            "action_mask_key": spec.action_mask_key,
        }
        encode(record)
    except (UnsupportedSpaceError, StateError):
        return None
    return record


def are_same_specs(one: RLModuleSpec, other: RLModuleSpec) -> bool:
    """Whether two specs make the same network, as far as their plain data say."""
    if one is other:
        return True
    mine, theirs = spec_record(one), spec_record(other)
    if mine is None or theirs is None:
        return mine is theirs and one.module_class is other.module_class
    return encode(mine) == encode(theirs)


def _record_of_space(space: Any) -> State | None:
    return None if space is None else space_record(space)


def _space_of_record(record: State | None) -> Any:
    return None if record is None else space_from_record(record)


def spec_from_record(record: State) -> RLModuleSpec:
    """The spec that `spec_record` described.

    Raises:
        CheckpointMismatchError: no module class of that name was imported.
        UnsupportedSpaceError: it describes no space.
    """
    return RLModuleSpec(
        module_class=module_class_named(record["class"]),
        observation_space=_space_of_record(record["observation_space"]),
        action_space=_space_of_record(record["action_space"]),
        model_config=record["model_config"],
        action_mask_key=record["action_mask_key"],
    )


TABLE_RECORD: Final[checks.Check] = checks.fields(
    {
        "specs": checks.dict_of(checks.either(SPEC_RECORD, checks.NOTHING)),
        "mapping": MAPPING_RECORD,
        "version": checks.COUNT,
    }
)
"""What `table_record` gives."""


def table_record(table: ModuleTable) -> State:
    """A table as plain data, but for how modules act in ways of their own."""
    return {
        "specs": {id_: spec_record(spec) for id_, spec in table.specs.items()},
        "mapping": mapping_record(table.mapping),
        "version": table.version,
    }


ACTING_RECORD: Final[checks.Check] = checks.dict_of(
    checks.fields(
        {
            "is_greedy": checks.FLAG,
            "exploration": checks.either(
                checks.dict_of(checks.anything()), checks.TEXT, checks.NOTHING
            ),
        }
    )
)
"""What `acting_record` gives."""


def acting_record(table: ModuleTable) -> State:
    """How modules act in ways of their own, as plain data; of code there is only the name."""
    return {
        id_: {
            "is_greedy": own.is_greedy,
            "exploration": None
            if own.exploration is None
            else _exploration_record(own.exploration),
        }
        for id_, own in table.acting.items()
    }


def _exploration_record(spec: ExplorationSpec) -> Any:
    config = spec.to_config()
    try:
        encode(config)
    except StateError:
        config = None
    return spec.name if config is None else config


_READY_MADE_ONLY: Final = stranger(
    "Give the strategy: algorithm_config_overrides_per_module={module_id: "
    "{'exploration_config': {'type': MyStrategy}}}."
)


def acting_from_record(record: State, *, now: ModuleTable) -> dict[ModuleId, OwnActing]:
    """What `acting_record` described.

    Args:
        record: the plain data.
        now: a table that knows what is no plain data.

    Raises:
        CodeNotAllowedError: a strategy is none of the ready-made ones.
        ConfigError: a module explores by code that the table does not know.
    """
    acting = {}
    for id_, own in record.items():
        exploration = own["exploration"]
        if not isinstance(exploration, str):
            made = None
            if exploration is not None:  # `_exploration_record` writes no names of code
                made = ExplorationSpec.from_config(exploration, source=_READY_MADE_ONLY)
            acting[id_] = OwnActing(made, own["is_greedy"])
        elif id_ in now.acting:
            acting[id_] = now.acting[id_]
        else:
            raise ConfigError(
                f"Module {id_!r} explored by the strategy {exploration}, which is code of yours, "
                "and the settings here do not name this module. Name it in multi_agent(policies=…) "
                "and its exploration_config in algorithm_config_overrides_per_module."
            )
    return acting


def table_from_record(record: State, *, now: ModuleTable) -> ModuleTable:
    """The table that `table_record` described.

    Args:
        record: the plain data.
        now: a table of the same run, which knows what is no plain data.

    Raises:
        CheckpointMismatchError: no module class of a name was imported.
        ConfigError: a module is no plain data, and the other table does not have it.
    """
    specs = {id_: _spec_of(id_, spec, now) for id_, spec in record["specs"].items()}
    mapping = mapping_from_record(record["mapping"], code=now.mapping)
    return ModuleTable(ByModule(specs), mapping, now.acting, record["version"])


def _spec_of(module_id: ModuleId, record: State | None, now: ModuleTable) -> RLModuleSpec:
    if record is not None:
        return spec_from_record(record)
    if module_id in now.specs:
        return now.specs[module_id]
    raise ConfigError(
        f"Module {module_id!r} has spaces or settings that are no plain data. Name it in "
        "multi_agent(policies=…)."
    )


def digest_of_code(function: Any) -> str:
    """Of what a function does, as far as its code says; empty if there is none to see.

    Functions compiled by two versions of Python cannot be compared, so the version is a part of it.
    """
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is None:
        return ""
    version = ".".join(map(str, sys.version_info[:2]))
    return f"{version}-{hashlib.sha256(repr(_code_parts(code)).encode()).hexdigest()[:16]}"


def _code_parts(code: CodeType) -> tuple[Any, ...]:
    constants = [
        _code_parts(one) if isinstance(one, CodeType) else _sorted_repr(one)
        for one in code.co_consts
    ]
    return code.co_code, code.co_names, constants


def _sorted_repr(value: Any) -> str:
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)
