"""Actions for single observations, outside training: what `compute_single_action` does."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import gymnasium
import numpy as np
from gymnasium import spaces

from trainer.agent_ids import listed
from trainer.config import AlgorithmConfig
from trainer.config.algorithm_config import exploration_spec
from trainer.connectors import ActionDecoder, ConnectorFactories, Normalization
from trainer.env_runners.acting import Choice, Policy, Rows, strategy_for
from trainer.env_runners.policy_mapping import PolicyMapping
from trainer.episodes import MultiAgentEpisode, nested
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTION_PROB,
    ACTIONS,
    PREV_ACTIONS,
    PREV_REWARDS,
    STATE_OUT,
)
from trainer.episodes.single_agent_episode import ActingRequest
from trainer.errors import ConfigError, EnvContractError
from trainer.modules import RLModule
from trainer.runtime.threads import single_threaded_blas
from trainer.seeding import NOISE_DRAWS, Role, position_rng
from trainer.types import AgentId, ModuleId, State
from trainer_toolkit.checks import shown
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean
from trainer_toolkit.trees import same


@dataclass(frozen=True)
class ActionRequest:
    """How an action is to be chosen and handed out.

    Attributes:
        number: how many actions were computed so far: where the random numbers stand.
        timestep: env steps sampled in the run: where schedules of exploration stand.
        explore: use the exploration strategy (True), take the most likely action (False), or do as
            configured (None).
        unsquash: scale the action from [-1, 1] to the bounds of its space; None as configured
            (`normalize_actions`).
        clip: clip it to the bounds; None as configured (`clip_actions`).
        exploration_state: what the strategy must know of that of training.
        state: of a network with memory: its state before; None: the initial one.
        prev_action: the action before as the module gave it, for a network that reads it; None:
            there was none.
        prev_reward: the reward before, likewise.
    """

    number: int
    timestep: int = 0
    explore: bool | None = None
    unsquash: bool | None = None
    clip: bool | None = None
    exploration_state: State | None = None
    state: Any = None
    prev_action: Any = None
    prev_reward: float | None = None


class Inference:
    """Turns observations into actions with a module, as a runner does.

    Each action stands for itself: noise that is correlated over an episode (Ornstein-Uhlenbeck) is
    at the first step of one, and noise on weights is drawn anew. Threads take turns, because a
    network writes into arrays that it keeps.
    """

    _lock: ClassVar = threading.RLock()
    """Of the class, so that policies can be pickled and copied."""

    def __init__(self, module: RLModule, config: AlgorithmConfig, root_seed: int) -> None:
        self._config = config
        strategy = strategy_for(
            module,
            exploration_spec(config),
            normalize_actions=config.normalize_actions,
            num_workers=config.num_env_runners,
        )
        self._policy = Policy(
            module,
            strategy,
            normalize_actions=config.normalize_actions,
            clip_actions=config.clip_actions,
        )
        self._root_seed = root_seed
        self._decoders: dict[tuple[bool, bool], ActionDecoder] = {}

    def normalize_with(self, normalization: Normalization) -> None:
        """Acts upon observations as these make them, from now on."""
        self._policy.normalize_with(normalization)

    def answer(self, observation: Any, request: ActionRequest, *, full_fetch: bool) -> Any:
        """What `Algorithm.compute_single_action` returns, and raises."""
        if observation is None:
            raise ConfigError(
                "compute_single_action() got no observation. Give an element of the observation "
                "space, e.g. what `env.reset()` returns first."
            )
        if not full_fetch and request.state is None:
            if self._policy.state_form is not None:
                raise ConfigError(
                    "compute_single_action() was called without a state, but the network has "
                    "memory, and an action alone would forget what it saw. Give "
                    "`state=algo.get_module().get_initial_state()` at the beginning of an "
                    "episode, and then what each call returns: action, state, _ = "
                    "algo.compute_single_action(obs, state=state)."
                )
            return self.action(observation, request)
        action, outputs = self.action_with_outputs(observation, request)
        return action, outputs.pop(STATE_OUT, []), outputs

    def action(self, observation: Any, request: ActionRequest) -> Any:
        """One action, as the env takes it.

        Args:
            observation: one element of the observation space.
            request: how to choose it.

        Raises:
            EnvContractError: the observation is not of the space, or not finite.
        """
        return self.actions([observation], request)[0]

    def actions(self, observations: Sequence[Any], request: ActionRequest) -> list[Any]:
        """An action for each observation, by one forward pass; see `action`."""
        with self._lock:
            chosen = nested.unstack(self._chosen(observations, request).actions, len(observations))
            to_env = self._decoder(request).to_env
            return [to_env(action) for action in chosen]

    @classmethod
    def forget_other_threads(cls) -> None:
        """In a forked process, where they do not exist: none of them is computing."""
        cls._lock = threading.RLock()

    def action_with_outputs(
        self, observation: Any, request: ActionRequest
    ) -> tuple[Any, dict[str, Any]]:
        """The action, and what it comes from.

        Returns:
            the action as the env takes it, and {"action_dist_inputs": float32 [K], "action_logp",
            "action_prob"}; of a network with memory also "state_out", its state after, and
            "actions", the action as the module gave it.
        """
        with self._lock:
            choice = self._chosen([observation], request)
            inputs, action = choice.outputs[ACTION_DIST_INPUTS], nested.take(choice.actions, 0)
            logp = float(self._policy.distribution.logp(inputs, choice.actions)[0])
            outputs: dict[str, Any] = {
                ACTION_DIST_INPUTS: inputs[0],
                ACTION_LOGP: logp,
                ACTION_PROB: float(np.exp(logp)),
            }
            if choice.memory:
                outputs |= {STATE_OUT: choice.memory[0], ACTIONS: action}
            return self._decoder(request).to_env(action), outputs

    def _chosen(self, observations: Sequence[Any], request: ActionRequest) -> Choice:
        """The choice for some rows; a request with a state is one for a single row."""
        policy, count = self._policy, len(observations)
        for observation in observations:
            nested.map_leaves(_check_finite, observation)
            check_single(policy.module.observation_space, observation)
        explore = self._config.explore if request.explore is None else request.explore
        noise = np.empty((count, 0))
        if explore or policy.strategy is not None:
            rng = position_rng(self._root_seed, Role.EXPLORATION, request.number)
            noise = NOISE_DRAWS[policy.noise_kind](rng, (count, policy.noise_width))
        rows = Rows(list(observations), noise, range(count))
        if policy.state_form is not None:
            state, reward = request.state, request.prev_reward
            if state is not None:
                state = policy.state_form.single(state, where="compute_single_action(state=...)")
                if not same(state, policy.state_form.initial):
                    self._check_step_before(request)
            rewards = [0.0 if reward is None else float(reward)]
            previous = policy.previous_steps.columns([request.prev_action], rewards)
            rows = rows._replace(memory=[state], previous=previous)
        with single_threaded_blas():
            policy.set_state(request.exploration_state or {})
            # Five integers: no other use of the role has as many.
            position = (0, 0, 0, 0, request.number)
            for slot in rows.slots:
                policy.begin_episode(
                    slot, lambda: position_rng(self._root_seed, Role.EXPLORATION, *position)
                )
            return policy.choose(rows, ActingRequest(request.timestep, explore))

    def _check_step_before(self, request: ActionRequest) -> None:
        """Raises if the network reads something of the step before that was not given."""
        given = {PREV_ACTIONS: request.prev_action, PREV_REWARDS: request.prev_reward}
        missing = [name[:-1] for name in self._policy.previous_steps.names if given[name] is None]
        if missing:
            raise ConfigError(
                f"A state of a running episode was given without {' and '.join(missing)}, which "
                f"the network reads (`lstm_use_{missing[0]}`). Give them as the episode had them: "
                f"{', '.join(f'{name}=…' for name in missing)}; an episode begins without, from "
                "the initial state."
            )

    def _decoder(self, request: ActionRequest) -> ActionDecoder:
        config = self._config
        unsquash = config.normalize_actions if request.unsquash is None else request.unsquash
        clip = config.clip_actions if request.clip is None else request.clip
        if (unsquash, clip) not in self._decoders:
            self._decoders[unsquash, clip] = ActionDecoder(
                self._policy.module.action_space, normalize_actions=unsquash, clip_actions=clip
            )
        return self._decoders[unsquash, clip]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Inference.forget_other_threads)


FILTER_AS_SETTING: Final = (
    'In place of the piece `MeanStdFilter`, set `observation_filter="MeanStdFilter"`, which single '
    "observations and exports go through, too."
)


def refuse_connectors(config: AlgorithmConfig, what: str) -> None:
    """Raises a ConfigError if the config has connector pieces: there is no sub-env beside them."""
    if ConnectorFactories.of(config) is not None:
        raise ConfigError(
            f"{what}() was called, and the config has an `env_to_module_connector` or a "
            "`module_to_env_connector`: pieces see episodes, and what they would make of a "
            "single observation is not known. Play episodes with "
            "`EnvRunnerGroup(config=…)` or `evaluate()`, or change observations in a wrapper "
            f"of the env instead of a connector. {FILTER_AS_SETTING}"
        )


def known_module(given: Any, ids: Collection[ModuleId], what: str) -> ModuleId:
    """The id of a module that there is: the one that was named, or the only one.

    A ConfigError, which calls the argument `what`, if there is no such module, or several and
    none was named.
    """
    if given is None and len(ids) == 1:
        return next(iter(ids))
    if given in ids:
        return str(given)
    problem = (
        "there are several modules, and none was named"
        if given is None
        else f"there is no such module{did_you_mean(given, ids, IN_BRACKETS)}"
    )
    raise ConfigError(
        f"{what} got {given!r:.80}: {problem}; there is {', '.join(map(repr, ids))}. Name one of "
        "these."
    )


def modules_of_agents(
    agents: Iterable[AgentId],
    mapping: PolicyMapping | None,
    *,
    episode: MultiAgentEpisode | None,
) -> dict[AgentId, ModuleId]:
    """The module that acts for each agent.

    The mapping is None in a run of one agent; without an episode it is asked as for the first
    one. A ConfigError if there is no such agent, or one agent and several modules.
    """
    if mapping is None:
        raise ConfigError(
            f"Who acts for the agents {listed(list(agents))} is not known: the env of this run has "
            "one agent. Name a module: policy_id=…"
        )
    unknown = [agent for agent in agents if agent not in mapping.agents]
    if unknown:
        raise ConfigError(
            f"There is no agent {unknown[0]!r:.80}; there are {listed(mapping.agents)}."
            f"{did_you_mean(unknown[0], mapping.agents, similarity=0.5)}"
            " Name one of these, or a module: "
            "policy_id=…"
        )
    if episode is None:
        episode = MultiAgentEpisode("asked", number=0, possible_agents=mapping.agents)
    assigned = {agent: episode.module_for(agent) for agent in agents}
    if any(module is None for module in assigned.values()):
        answers = mapping.assignment(episode)  # of all agents: asked once
        return {agent: answers[agent] for agent in agents}
    return {agent: str(module) for agent, module in assigned.items()}


def modules_named(
    policy_ids: Mapping[Any, ModuleId], observations: Collection[Any]
) -> dict[Any, ModuleId]:
    """What `policy_ids` says of each observation's key; a ConfigError if it says nothing of one."""
    absent = [key for key in observations if key not in policy_ids]
    if absent:
        raise ConfigError(
            f"compute_actions(policy_ids=…) says nothing of {absent[0]!r:.80}, of which there is "
            f"an observation; it names {listed([*policy_ids])}. Give {{agent: module id}} of all "
            "agents with an observation, or leave policy_ids out for the mapping of the run."
        )
    return {key: policy_ids[key] for key in observations}


def check_single(space: gymnasium.Space[Any], observation: Any) -> None:
    """Refuses a batch, what `reset` returns, or an observation whose axes stand in another order.

    Its numbers may be as many as those of one observation, and an action would come out.

    Raises:
        EnvContractError: a part of it has another shape than its space.
    """
    if _is_of_reset(space, observation):
        raise EnvContractError(
            "A pair of an observation and a dict was given; expected the observation alone. It "
            "looks like what `env.reset()` returns: write `observation, info = env.reset()`."
        )
    if isinstance(space, spaces.Dict):
        given = observation if isinstance(observation, Mapping) else {}
        for key in given.keys() & space.keys():
            check_single(space[key], given[key])
        return
    if isinstance(space, spaces.Tuple):
        parts = observation if isinstance(observation, tuple | list) else ()
        for part_space, part in zip(space.spaces, parts, strict=False):  # the encoder tells which
            check_single(part_space, part)
        return
    try:
        found = np.shape(observation)
    except ValueError:  # a tuple of parts that are no array together
        found = (len(observation),)
    expected = space.shape or ()
    if found == expected or (isinstance(space, spaces.Discrete) and np.size(observation) == 1):
        return
    is_batch = len(found) == len(expected) + 1
    hint = (
        "It looks like a batch: ask for one observation at a time, such as observation[0], or "
        "`TrainedPolicy.predict_all(observations)`."
        if is_batch
        else "Give it as the env does."
    )
    raise EnvContractError(
        f"An observation of the shape {list(found)} was given where the space {space!s:.200} has "
        f"{list(expected)}. {hint}"
    )


def _is_of_reset(space: gymnasium.Space[Any], observation: Any) -> bool:
    is_pair = isinstance(observation, tuple) and len(observation) == 2
    has_info = is_pair and isinstance(observation[1], dict)
    is_element = isinstance(space, spaces.Tuple) and isinstance(space.spaces[-1], spaces.Dict)
    return has_info and not is_element


def _check_finite(leaf: Any) -> None:
    """Refuses what would come out as an action all the same, one that means nothing."""
    try:
        array = np.asarray(leaf)
    except ValueError as cause:  # lists of different lengths
        raise EnvContractError(
            f"The observation {shown(leaf)} is no array: {cause}; expected numbers as the env "
            "gives them. Look at where it comes from."
        ) from cause
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise EnvContractError(
            f"The observation {leaf!r} holds numbers that are not finite, so no action follows "
            "from it. Look for a missing value, a division by zero or a logarithm of 0 where it "
            "comes from."
        )
