"""Which module acts for which agent: asked once per episode, after its reset, and kept as data.

A mapping is a function of the agent, of the episode's number and of what the reset gave. It may
draw random numbers: those of Python's and NumPy's global generators, and of an argument `rng`,
follow from the episode and the agent, so that every process, and every run that goes on, gives the
same answer.

    f(agent_id, episode, ...)      a module for each agent
    f(episode, ...)                {agent: module} for all at once
    {agent: module}                always the same
    {"type": Class, **arguments}   what the class makes: one of these
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import logging
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from trainer.agent_ids import listed
from trainer.episodes import MultiAgentEpisode
from trainer.errors import ConfigError
from trainer.modules import Matchups
from trainer.seeding import GlobalGenerators, Role, agent_position, position_rng
from trainer.types import AgentId, ModuleId
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean

_LOGGER = logging.getLogger(__name__)

_GIVEN: Final = ("episode", "worker", "env_runner", "rng")
"""What a function is given by name, besides the agent; the episode in second place by any name."""

_NUM_PROBES: Final = 16
"""Episodes that a function is asked about before any is played."""


SAME_EVERYWHERE: Final = (
    "Every process must give the same ones, so that a run goes on exactly, wherever it does. Use "
    "`episode.number` instead of `hash(episode.id_)`, and the argument `rng` instead of a counter "
    "or generator of your own; ask neither the clock nor the process, and no set of texts for its "
    "order."
)


class _MappingRaisedError(ConfigError):
    """The user's function raised."""


class PolicyMapping:
    """Answers for one runner.

    Attributes:
        module_ids: all modules.
        agents: all possible agents, canonical order.
        fingerprint: of the answers to some episodes that are asked about before any is played;
            empty if nothing was asked, or if the function needs observations to answer.
    """

    fingerprint = ""

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

        Given are {agent: module id}, a function, or None for the only module.

        Raises:
            ConfigError: there are several modules and no mapping, or a dict lacks an agent.
        """
        self.module_ids = tuple(module_ids)
        self.agents = tuple(agents)
        self._place = (root_seed, role)
        if given is None and len(self.module_ids) > 1:
            raise ConfigError(
                f"There are the modules {', '.join(self.module_ids)}, and nothing says which agent "
                "each of them acts for. Give multi_agent(policy_mapping_fn={agent: module id, …})."
            )
        self._given: Any = dict.fromkeys(agents, self.module_ids[0]) if given is None else given
        self._given = _made(self._given)
        self._names: frozenset[str] | None = None
        self._is_joint = self._takes_episode_second = False
        self._newest: tuple[Any, dict[AgentId, ModuleId]] = (None, {})
        self._probes: list[dict[AgentId, ModuleId]] = []
        if isinstance(self._given, Mapping):
            self._probes = [self._answers(None)]
        else:
            if not callable(self._given):
                raise ConfigError(
                    f"policy_mapping_fn={self._given!r:.80} is neither a function nor a dict. Give "
                    f"{{agent: module id}} of {listed(self.agents)}, or f(agent_id, episode, **_)."
                )
            self._names, self._is_joint = _named_parameters(self._given)
            self._takes_episode_second = not self._is_joint and _takes_second(self._given)
            agent = () if self._is_joint else ("agent_id",)
            _refuse_parameters(self._given, self._names, self._by_place(*agent, "episode"))
            _refuse_hash(self._given)
            self._probe()

    def _probe(self) -> None:
        """Asks a function twice about the same episodes; it must give the same answers."""
        try:
            numbers = [number for number in range(_NUM_PROBES) for _ in range(2)]
            answers = self._asked(*map(self._probe_episode, numbers))
        except _MappingRaisedError as error:
            _LOGGER.info(
                "Modules need spaces of their own: policy_mapping_fn does not answer for an "
                "episode without observations. %s",
                error,
            )
            return
        self._probes = answers[::2]
        for number, (first, again) in enumerate(zip(self._probes, answers[1::2], strict=True)):
            for agent in self.agents:
                if first[agent] != again[agent]:
                    raise ConfigError(
                        f"policy_mapping_fn gives different answers for agent {agent!r} of episode "
                        f"{number}: {first[agent]!r} and then {again[agent]!r}. A run that goes on "
                        "after a restart must get the same ones. Use `episode.number`, and the "
                        "argument `rng` instead of a generator or counter of your own."
                    )
        text = repr([list(one.items()) for one in self._probes])
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def answers(self) -> tuple[Mapping[AgentId, ModuleId], ...]:
        """What a function answered about the episodes 0, 1, … when it was made.

        Empty if nothing was asked, or if it needs observations to answer.
        """
        return tuple(self._probes) if self.fingerprint else ()

    def check_same(
        self, answers: Sequence[Mapping[AgentId, ModuleId]], *, where: str, here: str
    ) -> None:
        """Checks that the function gives the same answers in another process.

        The error calls the other process `where`, and this one `here`.

        Raises:
            ConfigError: it does not; names the first difference.
        """
        own = self.answers
        if len(own) != len(answers):
            raise ConfigError(
                "policy_mapping_fn answers before an episode is played in one process and raises "
                f"in another: {len(own)} answers in {here}, {len(answers)} in {where}. "
                f"{SAME_EVERYWHERE}"
            )
        for number, (ours, theirs) in enumerate(zip(own, answers, strict=True)):
            for agent in self.agents:
                if ours[agent] != theirs.get(agent):
                    raise ConfigError(
                        f"policy_mapping_fn gives different answers in different processes: for "
                        f"agent {agent!r} of episode {number}, {ours[agent]!r} in {here} and "
                        f"{theirs.get(agent)!r} in {where}. {SAME_EVERYWHERE}"
                    )

    def _probe_episode(self, number: int) -> MultiAgentEpisode:
        return MultiAgentEpisode("probe", number=number, possible_agents=self.agents)

    def served_by(self) -> dict[ModuleId, set[AgentId]]:
        """The agents that each module acts for in some of the first episodes, as far as known."""
        served: dict[ModuleId, set[AgentId]] = {id_: set() for id_ in self.module_ids}
        for answers in self._probes:
            for agent, module_id in answers.items():
                served[module_id].add(agent)
        return served

    def module_of(self, agent: AgentId, episode: MultiAgentEpisode) -> ModuleId:
        """The module that acts for an agent of an episode; see `assignment`."""
        of, answers = self._newest
        if of is not episode:
            answers = self.assignment(episode)
            self._newest = episode, answers
        return answers[agent]

    def assignment(self, episode: MultiAgentEpisode) -> dict[AgentId, ModuleId]:
        """The module of every possible agent, in canonical order.

        Raises:
            ConfigError: the function raised, there is no such module, or nothing is said of an
                agent.
        """
        return self._asked(episode)[0]

    def _asked(self, *episodes: MultiAgentEpisode) -> list[dict[AgentId, ModuleId]]:
        """The answers about episodes; the generators that a function draws from stay untouched."""
        # They are exchanged once for all, which takes longer than most functions.
        is_function = self._names is not None and type(self._given) is not Matchups
        with GlobalGenerators() if is_function else contextlib.nullcontext():
            return [self._answers(episode) for episode in episodes]

    def _answers(self, episode: Any) -> dict[AgentId, ModuleId]:
        if self._is_joint:
            given = self._called(episode)
            if not isinstance(given, Mapping):
                raise ConfigError(
                    f"policy_mapping_fn takes an episode and no agent, and gave {given!r:.80} for "
                    f"episode {episode.number}; expected {{agent: module id}} of "
                    f"{listed(self.agents)}. Return that, or let its first argument be `agent_id`."
                )
            return {agent: self._checked(agent, given.get(agent)) for agent in self.agents}
        if self._names is None:
            return {agent: self._checked(agent, self._given.get(agent)) for agent in self.agents}
        if type(self._given) is Matchups:  # one draw for all, and no generator to set back
            pairing = self._given.pairing_of(episode.number or 0)
            return {agent: self._checked(agent, pairing.get(agent)) for agent in self.agents}
        return {agent: self._checked(agent, self._called(episode, agent)) for agent in self.agents}

    def _called(self, episode: MultiAgentEpisode, *agent: AgentId) -> Any:
        """What the function gives for an agent, or for all."""
        names = self._names or frozenset()
        root_seed, role = self._place
        # Two integers for all agents at once; those of one agent are three, or two of the only one.
        position = (role, episode.number or 0, *(agent_position(agent[0]) if agent else ()))
        rng = position_rng(root_seed, Role.MAPPING, *position)
        given = {"episode": episode, "rng": rng, "worker": None, "env_runner": None}
        by_place = self._by_place(*agent, episode)
        if len(by_place) == 2:
            del given["episode"]
        named: dict[str, Any] = {name: value for name, value in given.items() if name in names}
        try:
            of_python, of_numpy = rng.integers(2**32, size=2)
            random.seed(int(of_python))
            np.random.seed(int(of_numpy))  # noqa: NPY002 - the global one
            return self._given(*by_place, **named)
        except Exception as error:
            whom = f"agent {agent[0]!r}" if agent else "all agents"
            raise _MappingRaisedError(
                f"policy_mapping_fn raised {type(error).__name__}: {error}, asked for {whom} of "
                f"episode {episode.number}. It is called after the reset of an episode, with the "
                "agent's id and the episode. Correct it."
            ) from error

    def _by_place(self, *agent_and_episode: Any) -> tuple[Any, ...]:
        """What the function is given without a name."""
        return agent_and_episode if self._takes_episode_second else agent_and_episode[:-1]

    def _checked(self, agent: AgentId, module_id: Any) -> ModuleId:
        if module_id in self.module_ids:
            return str(module_id)
        if module_id is None and (self._names is None or self._is_joint):
            known = "" if self._is_joint else f"; it knows {listed(list(self._given))}"
            raise ConfigError(
                f"policy_mapping_fn says nothing of agent {agent!r}{known}. Give a module for "
                f"every possible agent: {listed(self.agents)}."
            )
        raise ConfigError(
            f"policy_mapping_fn gives agent {agent!r} the module {module_id!r:.80}, and there are "
            f"{', '.join(self.module_ids)}{did_you_mean(module_id, self.module_ids, IN_BRACKETS)}."
            " Give "
            "one of these, or name it in multi_agent(policies=…)."
        )


def _made(given: Any) -> Any:
    """What `{"type": Class, **arguments}` makes; everything else is itself."""
    if not (isinstance(given, Mapping) and isinstance(given.get("type"), type)):
        return given
    kind, arguments = (
        given["type"],
        {name: value for name, value in given.items() if name != "type"},
    )
    try:
        made = kind(**arguments)
    except Exception as error:
        raise ConfigError(
            f"policy_mapping_fn={{'type': {kind.__name__}, …}} raised {type(error).__name__}: "
            f"{error}. The class is called with the other entries, {sorted(arguments)}."
        ) from error
    if not (callable(made) or isinstance(made, Mapping)):
        raise ConfigError(
            f"policy_mapping_fn={{'type': {kind.__name__}, …}} made {made!r:.80}; expected what "
            "can be called as fn(agent_id, episode). Give the class a method __call__."
        )
    return made


def _named_parameters(function: Any) -> tuple[frozenset[str], bool]:
    """The arguments that a function takes by name, but for the agent; whether it takes no agent."""
    known = frozenset(_GIVEN)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of C code: it takes what it is given
        return frozenset(), False
    names = {one.name for one in parameters}
    is_joint = bool(parameters) and parameters[0].name == "episode" and "agent_id" not in names
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return known, is_joint
    return known & names, is_joint


def _takes_second(function: Any) -> bool:
    """Whether it takes the episode by place, under a name of its own, as in `f(aid, eps, **kw)`."""
    try:
        first_two = list(inspect.signature(function).parameters.values())[:2]
    except (TypeError, ValueError):  # of C code
        return False
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len(first_two) == 2 and all(
        one.kind in by_place and one.default is one.empty and one.name not in _GIVEN
        for one in first_two
    )


def _refuse_parameters(function: Any, names: frozenset[str], by_place: tuple[Any, ...]) -> None:
    """A function that cannot be called with what it is given is no function of an agent."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of C code
        return
    try:
        signature.bind(*by_place, **dict.fromkeys(names.difference(by_place[1:])))
    except TypeError as error:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        unknown = [one for one in [*signature.parameters][len(by_place) :] if one not in _GIVEN]
        near = did_you_mean(unknown[0], _GIVEN, IN_BRACKETS) if unknown else ""
        raise ConfigError(
            f"policy_mapping_fn is {name}{signature}, which cannot be called as "
            f"f(agent_id, episode): {error}{near}. The agent's id comes first, the episode second "
            f"or by name; the rest is given by name, as far as it is named: "
            f"{', '.join(_GIVEN[1:])}. Write f(agent_id, episode, **kwargs)."
        ) from error


def _refuse_hash(function: Any) -> None:
    """Python's `hash` of a text is another number in every process."""
    code = getattr(function, "__code__", None)
    if code is not None and "hash" in code.co_names:
        raise ConfigError(
            "policy_mapping_fn calls hash(), which gives another number in every process, so "
            "agents would be served by other modules after a restart. Write `episode.number % 2` "
            "instead of `hash(episode.id_) % 2`."
        )
