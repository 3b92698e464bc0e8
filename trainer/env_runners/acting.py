"""From observations to actions: the one path, in env runners and outside of them.

    rows = Rows(observations, noise, slots)        B decisions to be made
    choice = policy.choose(rows, request)          actions and what they come from, [B, …]

A row is a function of itself, its slot and the policy alone, whatever other rows are beside it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from trainer.connectors import (
    ActionDecoder,
    Normalization,
    ObservationEncoder,
    PreviousSteps,
    before_decoding,
)
from trainer.env_runners.messages import EnvRunnerSpec
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.conversion import add_output
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    OBS,
    STATE_IN,
    VF_PREDS,
)
from trainer.episodes.nested import copied
from trainer.episodes.single_agent_episode import ActingRequest
from trainer.errors import ConfigError, EnvContractError, EpisodeError, ModuleError
from trainer.exploration import ActionChoice, Exploration, ExplorationSpec
from trainer.modules import NOISE_LOADINGS, RLModule
from trainer.modules.memory import state_form
from trainer.modules.torch_draws import DRAW_SEEDS, draw_seeds
from trainer.seeding import NoiseKind, NoiseStream, Role, agent_position, position_rng
from trainer.types import DEFAULT_AGENT_ID, AgentId, Array, FloatArray
from trainer_toolkit.checks import shown

# ---- rows and choices


class Rows(NamedTuple):
    """B decisions to be made: of env slots, of agents, of a user's observation.

    Attributes:
        obs: a list of B observations, or a batch of them, [B, …].
        noise: their random numbers, float64 [B, W]; W may be 0 where none are needed.
        slots: a number of each, by which a strategy knows it again at its next step.
        memory: for a network with memory: B states before; None is the initial one.
        previous: for a network that reads the step before: its columns, see `PreviousSteps`.
    """

    obs: Any
    noise: Array
    slots: Sequence[int]
    memory: Sequence[Any] = ()
    previous: Mapping[str, Array] = MappingProxyType({})


class Choice(NamedTuple):
    """What a policy chose for B rows; none of it is memory that the network writes into again.

    Attributes:
        actions: as the module gives them, [B, …].
        outputs: what each comes with, by the names of `Policy.outputs`, [B, …]; what the network
            remembered before is a list.
        memory: of a network with memory: B states after.
    """

    actions: Any
    outputs: dict[str, Any]
    memory: Sequence[Any] = ()


# ---- policy


def _the_observation(slot: int) -> str:
    del slot
    return "the observation"


class Policy:
    """Acts: a module, with what is done to its observations and actions, strategy and memory.

    Life: `choose` for every batch of rows. Between two requests `normalize_with`, `set_state` and
    `refresh` take over what is new; `begin_episode` says that an episode begins in a slot.

    Attributes:
        module: the network.
        strategy: what explores; None where drawing from the distribution is all.
        distribution: the module's action distribution.
        needs_decoding: whether the env gets another action than the module gives (`to_env`).
        noise_kind, noise_width: the random numbers that a row takes.
        state_form: of the network's memory; None if it has none.
        previous_steps: makes the columns of the step before, as far as the network reads them.
        outputs: the names of what every action comes with.
    """

    def __init__(
        self,
        module: RLModule,
        strategy: Exploration | None = None,
        *,
        normalize_actions: bool,
        clip_actions: bool,
        keeps_values: bool = False,
        where: Callable[[int], str] = _the_observation,
    ) -> None:
        """Puts the parts together, and lets the module act once.

        Args:
            module: the network.
            strategy: see `strategy_for`.
            normalize_actions: see `ActionDecoder`.
            clip_actions: see `ActionDecoder`.
            keeps_values: the module values what it acts upon (`RLModule.gives_values`), and the
                values are an output of every action: those of images cost as much as acting does.
            where: says which observation that of a slot is, for an error text.

        Raises:
            ModuleError: what the module gives does not fit its action distribution.
        """
        self.module, self.strategy = module, strategy
        self.distribution = module.action_distribution
        self._encoder = ObservationEncoder(
            module.observation_space, action_mask_key=module.action_mask_key
        )
        self._masks = module.action_masks
        self._decoder = ActionDecoder(
            module.action_space, normalize_actions=normalize_actions, clip_actions=clip_actions
        )
        self.needs_decoding = not self._decoder.is_identity
        self._space = before_decoding(module.action_space, normalize_actions=normalize_actions)
        self._check_shape()
        draws = self.distribution if strategy is None else strategy
        self.noise_kind: NoiseKind = draws.noise_kind
        self.noise_width = draws.noise_width
        self._keeps_values = keeps_values
        self._gives_logp = strategy is not None and strategy.gives_logp
        self._module_draws = module.gives_actions
        if self._module_draws and strategy is not None:
            raise ConfigError(
                f"`exploration_config`: {type(module).__name__} draws actions itself, so a "
                f"{type(strategy).__name__} would have nothing to say. Leave it out, or return the "
                "inputs of a distribution alone."
            )
        choosing = (strategy, getattr(strategy, "sub_exploration", None))
        self._is_of_users = not all(
            one is None or type(one).__module__.startswith("trainer.") for one in choosing
        )
        self._perturbed = (
            PerturbedModules(module, strategy)
            if strategy is not None and strategy.perturbs_weights
            else None
        )
        self.state_form = state_form(module) if module.is_stateful() else None
        has_memory = self.state_form is not None
        self.previous_steps = PreviousSteps(
            module.action_space, module.model_config if has_memory else {}
        )
        self.outputs = (
            ACTION_DIST_INPUTS,
            *([VF_PREDS] if keeps_values else []),
            *([ACTION_LOGP] if self._gives_logp else []),
            *([STATE_IN] if has_memory else []),
            *self.previous_steps.names,
        )
        self._where = where
        self._newest = ActingRequest(0, explore=True)

    def _check_shape(self) -> None:
        """Lets the module act once: a ModuleError unless outputs fit the action distribution."""
        module, expected = self.module, (1, self.distribution.num_inputs)
        obs = np.zeros((1, self._encoder.size), np.float32)
        outputs = module.forward_inference({OBS: obs}).get(ACTION_DIST_INPUTS)
        found = () if outputs is None else outputs.shape
        if found != expected:
            raise ModuleError(
                f"{type(module).__name__}.forward_acting gives an array of shape {list(found)} for "
                f"1 observation; {module.action_space} needs {list(expected)}: K = "
                "`self.action_distribution.num_inputs` numbers per row. Correct it, and check the "
                "whole network with `trainer.testing.checks.check_module`."
            )

    # ---- acting

    def choose(self, rows: Rows, request: ActingRequest) -> Choice:
        """An action for each row.

        Raises:
            EnvContractError: an observation does not belong to its space, or its action mask leaves
                nothing to choose.
            ConfigError: a strategy of the user's gave what are no actions.
        """
        self._newest = request
        explore, form = request.explore, self.state_form
        batch = {OBS: self.encoded(rows.obs, rows.slots)}
        if self._module_draws:
            batch[DRAW_SEEDS] = draw_seeds(rows.noise)
        if form is not None:
            states = form.filled(rows.memory)
            batch |= {STATE_IN: form.together(states), **rows.previous}
        if self._perturbed is not None and explore:
            given = {ACTION_DIST_INPUTS: self._perturbed.forward(batch, rows.slots)}
        elif explore:
            given = self.module.forward_exploration(batch)
        else:
            given = self.module.forward_inference(batch)
        inputs = given[ACTION_DIST_INPUTS]
        if self.strategy is not None:
            actions, outputs = self._explored(self.strategy, given, rows, request)
        else:
            if self._module_draws:
                actions = given[ACTIONS]
            elif explore:
                actions = self.distribution.sample(inputs, rows.noise)
            else:
                actions = self.distribution.deterministic(inputs)
            # Copies: a module of the user's may write its outputs into the same memory again.
            outputs = {ACTION_DIST_INPUTS: inputs.copy()}
            if self._keeps_values:
                outputs[VF_PREDS] = given[VF_PREDS].copy()
        if form is None:
            return Choice(actions, outputs)
        # One by one, as they are recorded; nobody writes into a state once it was acted on.
        outputs |= {STATE_IN: states, **rows.previous}
        return Choice(actions, outputs, form.rows_of(given, len(rows.slots)))

    def encoded(self, observations: Any, slots: Sequence[int]) -> FloatArray:
        """Observations as the module reads them, checked; errors as of `choose`.

        The next call may reuse the memory.
        """
        rows = self._encoder.encode(observations)
        if self._masks is not None and (blocked := self._masks.leaves_nothing(rows)).any():
            raise EnvContractError(
                f"The action mask of {self._where(slots[int(np.argmax(blocked))])} allows no "
                "action, so none can be chosen. A mask has a 1 for every action that is possible, "
                "at least one for every choice. Let the env end the episode where nothing can be "
                "done, or allow an action that does nothing."
            )
        return rows

    def _explored(
        self,
        strategy: Exploration,
        given: Mapping[str, Array],
        rows: Rows,
        request: ActingRequest,
    ) -> tuple[Any, dict[str, Any]]:
        """Actions that the strategy chose from what the module gave, and their outputs."""
        inputs = given[ACTION_DIST_INPUTS]
        choice = ActionChoice(
            self.distribution,
            inputs,
            rows.noise,
            self.noise_kind,
            rows.slots,
            loadings=given.get(NOISE_LOADINGS),
        )
        chosen = strategy.get_exploration_action(
            action_distribution=choice, timestep=request.timestep, explore=request.explore
        )
        actions, logp = self._checked(chosen, len(rows.slots)) if self._is_of_users else chosen
        # Copies: a strategy or module of the user's may write into the same memory again.
        actions, outputs = copied(actions), {ACTION_DIST_INPUTS: copied(inputs)}
        if self._gives_logp:
            logp = self.logp(inputs, actions) if logp is None else copied(logp)
            outputs[ACTION_LOGP] = logp
        return actions, outputs

    def _checked(self, chosen: Any, count: int) -> tuple[Any, Any]:
        """What a strategy of the user's gave; a ConfigError unless it is a number per part."""
        name = f"{type(self.strategy).__name__}.get_exploration_action()"
        if not isinstance(chosen, tuple | list) or len(chosen) != 2:
            raise ConfigError(
                f"{name} gave {shown(chosen)}; expected a pair: actions, and their log-likelihoods "
                "or None. End it with `return actions, logp`."
            )
        actions, logp = chosen
        if not isinstance(self._space, spaces.Dict | spaces.Tuple):
            shape = (count, *(self._space.shape or ()))
            actions = _rows_of_numbers(actions, shape, f"{name}: the actions")
        if logp is not None:
            logp = _rows_of_numbers(logp, (count,), f"{name}: the log-likelihoods")
        try:
            self.distribution.check_actions(actions)
        except EpisodeError as error:
            raise ConfigError(f"{name} gave {shown(actions)}. {error}") from error
        return actions, logp

    def draw_uniformly(self, observation: Any, rng: np.random.Generator, *, slot: int) -> Any:
        """An action as the module gives them, uniform over those that are possible, without it."""
        if self._masks is None:
            self._space.seed(int(rng.integers(2**31)))
            return self._space.sample()
        mask = self._masks.given(self.encoded([observation], [slot]))[0]
        chosen = [rng.choice(np.flatnonzero(mask[choice])) for choice in self._masks.choices]
        return np.array(chosen, np.int64).reshape(self._space.shape)[()]

    def to_env(self, action: Any) -> Any:
        """An action of the module, or a batch of them, as the env takes it."""
        return self._decoder.to_env(action)

    # ---- log-likelihoods

    @property
    def newest_request(self) -> ActingRequest | None:
        """How it acted last, if log-likelihoods follow from that when they are added; else None."""
        return None if self.strategy is None or self._gives_logp else self._newest

    def logp(self, inputs: Array, actions: Any, request: ActingRequest | None = None) -> Array:
        """The log-likelihoods of actions under what chose them, [B].

        Args:
            inputs: the distribution inputs that they came from, [B, K].
            actions: as the module gives them, [B, …].
            request: in which they were chosen; None is the newest.
        """
        timestep, explore = request or self._newest
        if self.strategy is None or not explore:
            return self.distribution.logp(inputs, actions)
        return self.strategy.logp(inputs, actions, timestep=timestep)

    def logp_in(self, chunk: SingleAgentEpisode, inputs: Array, actions: Any) -> Array:
        """The log-likelihoods of the newest actions of a chunk, [B], look-back included or not.

        An action that waited for an observation while the chunk before was cut was chosen in the
        request that it says.

        Args:
            chunk: which has played in the request at work.
            inputs: the distribution inputs, [B, K].
            actions: as the module gives them, [B, …].
        """
        carried = chunk.carried_request
        if carried is None:
            return self.logp(inputs, actions)
        before = len(inputs) - len(chunk) + 1  # with the one that was carried over
        parts = [
            self.logp(inputs[rows], nested.take(actions, rows), request)
            for rows, request in ((slice(before), carried), (slice(before, None), None))
            if len(inputs[rows])
        ]
        return np.concatenate(parts)

    def add_logp(self, episodes: Sequence[SingleAgentEpisode]) -> None:
        """Adds the log-likelihoods of the episodes' actions as an extra output of all their steps.

        Done once per request, within which neither timestep nor strategy change: for all steps
        together it costs little more than for a single one. Actions that are older say so.
        """
        names = {"name": ACTION_LOGP, "source": ACTION_DIST_INPUTS}
        carried = [episode for episode in episodes if episode.carried_request is not None]
        for episode in carried:
            add_output([episode], compute=partial(self.logp_in, episode), **names)
        whole = [episode for episode in episodes if episode.carried_request is None]
        add_output(whole, compute=self.logp, **names)

    # ---- between two rows

    def begin_episode(
        self,
        slot: int,
        rng: Callable[[], np.random.Generator],
        *,
        played: Iterable[Array] = (),
    ) -> None:
        """Begins an episode, or goes on with one in the middle after the slot was put back.

        Args:
            slot: its number.
            rng: gives the episode's own generator, for noise on weights.
            played: the random numbers of the steps that were made already, [W] each.
        """
        if self.strategy is not None:
            self.strategy.begin_episode(slot)
        if self._perturbed is not None:
            self._perturbed.begin_episode(slot, rng())
        for noise in played:
            self.pass_over(slot, noise)

    def pass_over(self, slot: int, noise: Array) -> None:
        """Goes one step on in a slot whose action was chosen otherwise.

        Args:
            slot: its number.
            noise: the step's random numbers, [W].
        """
        if self.strategy is not None:
            self.strategy.advance([slot], noise[None])

    def normalize_with(self, normalization: Normalization) -> None:
        """Acts upon observations as these make them, from now on."""
        self._encoder.normalizer = normalization.observations

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes over what the main process' strategy knows."""
        if self.strategy is not None:
            self.strategy.set_state(dict(state))

    def refresh(self) -> None:
        """Takes over new weights and a new state of the strategy, before a request is answered."""
        if self._perturbed is not None:
            self._perturbed.refresh()


def _rows_of_numbers(given: Any, shape: tuple[int, ...], name: str) -> Array:
    try:
        array = np.asarray(given)
        is_fitting = array.shape[:1] == shape[:1] and array.size == math.prod(shape)
        if is_fitting and array.dtype.kind in "biuf" and np.isfinite(array).all():
            rows: Array = array.reshape(shape)
            return rows
    except ValueError:  # rows of different lengths
        pass
    raise ConfigError(
        f"{name} are {shown(given)}; expected finite numbers of the shape {shape}, one row for "
        "each row of `action_distribution.inputs`."
    )


# ---- perturbed modules


class PerturbedModules:
    """A copy of a module for each env slot: its weights plus stddev · noise of the episode.

    Life: `begin_episode` draws a slot's noise; `refresh` once per request, because weights and
    standard deviation change between requests only; `forward` per vector step. What a slot acts
    with is a function of its episode, the newest weights and the newest standard deviation, so it
    is found again after a repair.
    """

    def __init__(self, module: RLModule, strategy: Exploration) -> None:
        self._module = module
        self._strategy = strategy
        shapes = module.parameters.shapes
        self._names = [name for name in shapes if module.is_for_acting(name)]
        self._copies: dict[int, RLModule] = {}
        self._noise: dict[int, Array] = {}

    def begin_episode(self, slot: int, rng: np.random.Generator) -> None:
        """Draws the noise of the episode that begins in a slot, or goes on there."""
        shapes = {name: self._module.parameters.shapes[name] for name in self._names}
        drawn = self._strategy.perturbation(shapes, rng)
        noise = self._module.parameters.zeros_like()
        start = 0
        for view in (noise.views[name] for name in self._names):
            view[...] = drawn[start : start + view.size].reshape(view.shape)
            start += view.size
        self._noise[slot] = noise.flat
        if slot not in self._copies:
            self._copies[slot] = copy.deepcopy(self._module)
        self._update(slot)

    def refresh(self) -> None:
        """Takes over the newest weights and the newest standard deviation."""
        for slot in self._copies:
            self._update(slot)

    def _update(self, slot: int) -> None:
        stddev = np.float32(self._strategy.current_stddev)
        parameters = self._copies[slot].parameters
        self._copies[slot].copy_buffers(self._module)
        np.add(self._module.parameters.flat, stddev * self._noise[slot], out=parameters.flat)

    def forward(self, batch: Mapping[str, Array], slots: Sequence[int]) -> Array:
        """The distribution inputs of each slot's own module, [B, K]; a row of `batch` for each."""
        rows = [
            self._copies[slot].forward_exploration({OBS: batch[OBS][row : row + 1]})
            for row, slot in enumerate(slots)
        ]
        return np.concatenate([row[ACTION_DIST_INPUTS] for row in rows])


# ---- making policies


def strategy_for(
    module: RLModule,
    exploration: ExplorationSpec,
    *,
    normalize_actions: bool,
    num_workers: int,
    worker_index: int = 0,
) -> Exploration | None:
    """The strategy of a policy; None if it only draws from the distribution.

    Raises:
        UnsupportedSpaceError: it cannot serve the action space.
        ConfigError: an argument of it is wrong.
    """
    if exploration.is_plain_sampling:
        return None
    return exploration.make(
        before_decoding(module.action_space, normalize_actions=normalize_actions),
        distribution=module.action_distribution,
        num_workers=num_workers,
        worker_index=worker_index,
    )


def policy_in_runner(
    module: RLModule, spec: EnvRunnerSpec, *, where: Callable[[int], str]
) -> Policy:
    """The policy of a module in an env runner; errors as of its parts, and ConfigErrors."""
    strategy = strategy_for(
        module,
        spec.exploration,
        normalize_actions=spec.normalize_actions,
        num_workers=spec.num_workers,
        worker_index=spec.worker_index,
    )
    policy = Policy(
        module,
        strategy,
        normalize_actions=spec.normalize_actions,
        clip_actions=spec.clip_actions,
        # A strategy brings outputs of its own, and nobody learns from what is played to evaluate.
        keeps_values=strategy is None and not spec.in_evaluation and module.gives_values,
        where=where,
    )
    name = type(module).__name__
    if strategy is not None and strategy.needs_loadings and not module.gives_loadings:
        raise ConfigError(
            f"{type(strategy).__name__} needs a ready-made network of PPO or PG without memory, "
            'with model_config={"free_log_std": True, "log_std_by_feature": True}. The network is '
            f"{name}, with model_config={module.model_config!r:.300}."
        )
    if policy.state_form is not None and strategy is not None and strategy.perturbs_weights:
        raise ConfigError(
            f"{type(strategy).__name__} plays with noise on the weights, and the network {name} "
            "has memory; its states would be those of other weights. Use another "
            "`exploration_config`, or a network without memory."
        )
    if policy.previous_steps.names and spec.lookback == 0:
        raise ConfigError(
            f"The network {name} reads the step before (`lstm_use_prev_action`, "
            "`lstm_use_prev_reward`), which `episode_lookback_horizon=0` leaves out where an "
            "episode is cut. Set it to 1 or more."
        )
    return policy


# ---- seats


class Seat:
    """Who acts in an env slot, its one agent or one of several: a row with a life.

    Life: `take` a policy; `begin` an episode, or go on in one; then `act` at every turn.

    Attributes:
        index: a number that no other seat of the runner has.
        agent: its id.
        policy: what acts for it.
        noise: the random numbers of its actions.
        memory: of a network with memory: its state after the last action of the running episode;
            None before the first one.
    """

    __slots__ = (
        *("agent", "index", "memory", "noise", "policy"),
        *("_agent_position", "_role", "_root_seed", "_streams"),
    )

    def __init__(
        self, index: int, *, root_seed: int, role: Role, agent: AgentId = DEFAULT_AGENT_ID
    ) -> None:
        """Nobody acts yet: see `take`."""
        self.index, self.agent = index, agent
        self._root_seed, self._role = root_seed, role
        self._agent_position = agent_position(agent)
        self._streams: dict[tuple[NoiseKind, int], NoiseStream] = {}
        self.policy: Policy
        self.noise: NoiseStream
        self.memory: Any = None

    def take(self, policy: Policy) -> None:
        """Acts by a policy, with random numbers as it takes them."""
        self.policy = policy
        wanted = (policy.noise_kind, policy.noise_width)
        if wanted not in self._streams:
            kind, width = wanted
            self._streams[wanted] = NoiseStream(
                self._root_seed, self._role, kind=kind, width=width, agent=self._agent_position
            )
        self.noise = self._streams[wanted]

    def begin(self, stream: int, number: int, *, played: int = 0) -> None:
        """Goes to where it stands in an episode after so many actions of its own."""
        self.noise.start(stream, number)
        if not played and self.policy.strategy is None:
            return  # the usual case: what follows costs 1.5 µs, which short episodes would notice
        self.policy.begin_episode(
            self.index,
            # Four integers, six of one of several agents: no other use of the role has as many.
            lambda: self._rng((self._role, stream, number, 0), apart=1),
            played=(self.noise.next_row() for _ in range(played)),
        )

    def uniform_rng(self, stream: int, number: int, acted: int) -> np.random.Generator:
        """For an action that no policy chooses; it follows from how often it has acted."""
        # Three integers, seven of one of several agents: no other use of the role has as many.
        return self._rng((stream, number, acted), apart=3)

    def _rng(self, position: tuple[int, ...], *, apart: int) -> np.random.Generator:
        if self._agent_position:
            position = (*position, *(0,) * apart, *self._agent_position)
        return position_rng(self._root_seed, Role.EXPLORATION, *position)


def act(
    policy: Policy,
    seats: Sequence[Seat],
    observations: list[Any],
    request: ActingRequest,
    *,
    slots: Sequence[int] | None = None,
    episodes: Sequence[Any] = (),
) -> Choice:
    """The choice of a policy for some seats, in which what its network remembers is handed on.

    Args:
        policy: of all of them.
        seats: at least one.
        observations: upon which they act.
        request: how to act.
        slots: the indices of the seats, if they are known.
        episodes: their running episodes, if the network reads the step before.
    """
    # Also where nothing is drawn: the streams stay in step with the episodes.
    noise = [seat.noise.next_row() for seat in seats]
    count = len(noise)
    rows = Rows(
        observations,
        (noise[0] if count == 1 else np.concatenate(noise)).reshape(count, -1),
        [seat.index for seat in seats] if slots is None else slots,
    )
    if policy.state_form is None:
        return policy.choose(rows, request)
    memory = [seat.memory for seat in seats]
    rows = rows._replace(memory=memory, previous=policy.previous_steps.after(episodes))
    choice = policy.choose(rows, request)
    for seat, state in zip(seats, choice.memory, strict=True):
        seat.memory = state
    return choice
