"""Which module acts for which agent: asked once per episode, when it begins, and kept as data.

A mapping is a function of the agent and of the episode's number. It may draw random numbers: those
of Python's and NumPy's global generators, and of an argument `rng`, follow from the episode and the
agent, so that every process, and every run that goes on, gives the same answer.
"""

from __future__ import annotations

import contextlib
import inspect
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from checkpoints.component_paths import nearest
from trainer.agent_ids import listed
from trainer.episodes import MultiAgentEpisode
from trainer.errors import ConfigError
from trainer.seeding import Role, agent_position, position_rng
from trainer.types import AgentId, ModuleId

_NUM_PROBES: Final = 16
"""Episodes that a function is asked about before any is played."""


class PolicyMapping:
    """Answers for one runner.

    Attributes:
        module_ids: all modules.
    """

    def __init__(
        self,
        given: Any,
        module_ids: Collection[ModuleId],
        *,
        agents: Sequence[AgentId],
        root_seed: int,
        role: Role,
    ) -> None:
        """Takes what `multi_agent(policy_mapping_fn=…)` was given.

        Args:
            given: {agent: module id}, a function, or None for the only module.
            module_ids: all modules.
            agents: all possible agents, canonical order.
            root_seed: the seed of the run.
            role: TRAINING or EVALUATION.

        Raises:
            ConfigError: there are several modules and no mapping, or a dict lacks an agent.
        """
        self.module_ids = tuple(module_ids)
        self._agents = tuple(agents)
        self._place = (root_seed, role)
        if given is None and len(self.module_ids) > 1:
            raise ConfigError(
                f"There are the modules {', '.join(self.module_ids)}, and nothing says which agent "
                "each of them acts for. Give multi_agent(policy_mapping_fn={agent: module id, …})."
            )
        self._given: Any = dict.fromkeys(agents, self.module_ids[0]) if given is None else given
        self._names: frozenset[str] | None = None
        if not isinstance(self._given, Mapping):
            self._names = _named_parameters(self._given)
            _refuse_hash(self._given)
            self._probe()

    def _probe(self) -> None:
        """Asks a function twice about the same episodes; it must give the same answers."""
        for number in range(_NUM_PROBES):
            first, again = (self.assignment(MultiAgentEpisode("p", number=number)) for _ in "12")
            for agent in self._agents:
                if first[agent] != again[agent]:
                    raise ConfigError(
                        f"policy_mapping_fn gives different answers for agent {agent!r} of episode "
                        f"{number}: {first[agent]!r} and then {again[agent]!r}. A run that goes on "
                        "after a restart must get the same ones. Use `episode.number`, and the "
                        "argument `rng` instead of a generator or counter of your own."
                    )

    def served_by(self) -> dict[ModuleId, set[AgentId]]:
        """The agents that each module acts for in some of the first episodes."""
        served: dict[ModuleId, set[AgentId]] = {id_: set() for id_ in self.module_ids}
        for number in range(1 if self._names is None else _NUM_PROBES):
            episode = MultiAgentEpisode("probe", number=number)
            for agent, module_id in self.assignment(episode).items():
                served[module_id].add(agent)
        return served

    def assignment(self, episode: MultiAgentEpisode) -> dict[AgentId, ModuleId]:
        """The module of every possible agent, in canonical order.

        Raises:
            ConfigError: there is no such module, or nothing is said of an agent.
        """
        return {agent: self._checked(agent, self._asked(agent, episode)) for agent in self._agents}

    def _asked(self, agent: AgentId, episode: MultiAgentEpisode) -> Any:
        if self._names is None:
            return self._given.get(agent)
        root_seed, role = self._place
        position = (role, episode.number or 0, *agent_position(agent))
        rng = position_rng(root_seed, Role.MAPPING, *position)
        more = {"rng": rng, "worker": None, "env_runner": None}
        named: dict[str, Any] = {n: value for n, value in more.items() if n in self._names}
        if "episode" in self._names:
            named["episode"] = episode
        with _global_generators_from(rng.integers(2**32, size=2)):
            return self._given(agent, **named)

    def _checked(self, agent: AgentId, module_id: Any) -> ModuleId:
        if module_id in self.module_ids:
            return str(module_id)
        if module_id is None and self._names is None:
            raise ConfigError(
                f"policy_mapping_fn says nothing of agent {agent!r}; it knows "
                f"{listed(list(self._given))}. Give a module for every possible agent: "
                f"{listed(self._agents)}."
            )
        raise ConfigError(
            f"policy_mapping_fn gives agent {agent!r} the module {module_id!r:.80}, and there are "
            f"{', '.join(self.module_ids)}{nearest(str(module_id), list(self.module_ids))}. Give "
            "one of these, or name it in multi_agent(policies=…)."
        )


def _named_parameters(function: Any) -> frozenset[str]:
    """The arguments, besides the agent, that a function takes by their names."""
    known = ("episode", "worker", "env_runner", "rng")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of C code: it takes what it is given
        return frozenset()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return frozenset(known)
    return frozenset(one.name for one in parameters) & frozenset(known)


def _refuse_hash(function: Any) -> None:
    """Python's `hash` of a text is another number in every process."""
    code = getattr(function, "__code__", None)
    if code is not None and "hash" in code.co_names:
        raise ConfigError(
            "policy_mapping_fn calls hash(), which gives another number in every process, so "
            "agents would be served by other modules after a restart. Write `episode.number % 2` "
            "instead of `hash(episode.id_) % 2`."
        )


@contextlib.contextmanager
def _global_generators_from(seeds: Any) -> Iterator[None]:
    """In the block, the global generators stand where these seeds say; afterwards as before."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global one
    random.seed(int(seeds[0]))
    np.random.seed(int(seeds[1]))  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
