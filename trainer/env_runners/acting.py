"""From observations to actions: one forward pass for all rows, a strategy, noise on weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from trainer.connectors import ActionDecoder, Normalization, ObservationEncoder, before_decoding
from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.messages import EnvRunnerSpec
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.conversion import add_output
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, ACTION_LOGP, OBS, VF_PREDS
from trainer.episodes.nested import copied
from trainer.episodes.single_agent_episode import ActingRequest
from trainer.errors import ConfigError, EnvContractError, EpisodeError, ModuleError
from trainer.exploration import ActionChoice, Exploration, ExplorationSpec
from trainer.modules import RLModule
from trainer.seeding import NoiseStream, Role, position_rng
from trainer.types import Array, FloatArray
from trainer_toolkit.checks import shown

# ---- acting


class Acting:
    """Encodes observations, asks the module, draws or chooses actions.

    Attributes:
        module: what is asked.
        distribution: its action distribution.
        noise_kind, noise_width: the random numbers that one drawn action takes.
        needs_decoding: whether the env gets another action than the module gives (`to_env`).
        is_nested: whether an action is a dict or a tuple.
        space: the action space as it is before `to_env`: to draw from without the module.
        gives: the module's outputs that are kept with each action.
    """

    gives: tuple[str, ...] = (ACTION_DIST_INPUTS,)

    def __init__(self, module: RLModule, *, normalize_actions: bool, clip_actions: bool) -> None:
        self.module = module
        self.distribution = module.action_distribution
        self._encoder = ObservationEncoder(
            module.observation_space, action_mask_key=module.action_mask_key
        )
        self._masks = module.action_masks
        self._decoder = ActionDecoder(
            module.action_space, normalize_actions=normalize_actions, clip_actions=clip_actions
        )
        self.noise_kind = self.distribution.noise_kind
        self.noise_width = self.distribution.noise_width
        self.is_nested = isinstance(module.action_space, spaces.Dict | spaces.Tuple)
        self.needs_decoding = not self._decoder.is_identity
        self.space = before_decoding(module.action_space, normalize_actions=normalize_actions)
        self._check_shape()

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

    def normalize_with(self, normalization: Normalization) -> None:
        """Acts upon observations as these make them, from now on."""
        self._encoder.normalizer = normalization.observations

    def act(
        self,
        observations: list[Any],
        noise: Array | None,
        *,
        where: Callable[[int], str] = lambda row: f"observation {row} of the batch",
    ) -> tuple[list[Any], list[Any]]:
        """One action per observation.

        Args:
            observations: B elements of the observation space.
            noise: float64 [B, noise_width] to draw with; None takes the most likely actions.
            where: says which observation a row is, for an error text.

        Returns:
            B actions as the module gives them, and what each comes with: a row of `gives`, float32
            [K] for the distribution's inputs, or a tuple of several.

        Raises:
            EnvContractError: an observation does not belong to its space, or its action mask leaves
                nothing to choose.
        """
        batch = self.encoded(observations, where)
        if noise is not None:
            return self.chosen(self.module.forward_exploration(batch), noise)
        return self.chosen(self.module.forward_inference(batch), None)

    def encoded(
        self, observations: list[Any], where: Callable[[int], str]
    ) -> dict[str, FloatArray]:
        """The batch that the module reads; the next call reuses its memory. Errors as of `act`."""
        batch = {OBS: self._encoder.encode(observations)}
        self._check_masks(batch[OBS], where)
        return batch

    def encoded_together(
        self, observations: Array, rows: Sequence[int] | None
    ) -> dict[str, FloatArray]:
        """The batch that the module reads, from the observations of a space without masks, [S, …].

        Args:
            observations: of all sub-envs of a vector env.
            rows: of those that play; None for all. Other rows may hold anything.

        Raises:
            EnvContractError: an observation does not belong to its space.
        """
        try:
            return {OBS: self._encoder.encode(observations)}
        except EnvContractError:
            playing = range(len(observations)) if rows is None else rows
            encoded = np.zeros((len(observations), self._encoder.size), np.float32)
            for index in playing:
                encoded[index] = self._encoded_of(index, observations[index])
            return {OBS: encoded}

    def _encoded_of(self, index: int, observation: Any) -> FloatArray:
        """One sub-env's row alone, float32 [D]; its memory is reused by the next call."""
        try:
            row: FloatArray = self._encoder.encode([observation])[0]
        except EnvContractError as error:
            raise EnvContractError(f"Sub-env {index} of the vector env: {error}") from error
        return row

    def inputs(self, batch: Mapping[str, Array], *, explore: bool) -> Array:
        """The module's distribution inputs for an encoded batch, float32 [B, K]."""
        forward = self.module.forward_exploration if explore else self.module.forward_inference
        return forward(batch)[ACTION_DIST_INPUTS]

    def outputs(self, batch: Mapping[str, Any], *, explore: bool) -> Mapping[str, Any]:
        """All that the module gives for an encoded batch, such as the state of one with memory."""
        forward = self.module.forward_exploration if explore else self.module.forward_inference
        return forward(batch)

    def chosen(
        self, outputs: Mapping[str, Any], noise: Array | None
    ) -> tuple[list[Any], list[Any]]:
        """Actions from what the module gave; see `act`."""
        inputs = outputs[ACTION_DIST_INPUTS]
        if noise is not None:
            actions = self.distribution.sample(inputs, noise)
        else:
            actions = self.distribution.deterministic(inputs)
        # A copy: a module of the user's may write its outputs into the same memory again.
        return self.rows(actions, len(inputs)), list(inputs.copy())

    def rows(self, actions: Any, count: int) -> list[Any]:
        """A batch of actions one by one."""
        return nested.unstack(actions, count) if self.is_nested else list(actions)

    def draw_uniformly(
        self, observation: Any, rng: np.random.Generator, *, where: Callable[[int], str]
    ) -> Any:
        """An action as the module gives them, uniform over those that are possible.

        `where` says where row 0 is, for an error text.
        """
        if self._masks is None:
            self.space.seed(int(rng.integers(2**31)))
            return self.space.sample()
        row = self._encoder.encode([observation])
        self._check_masks(row, where)
        mask = self._masks.given(row)[0]
        chosen = [rng.choice(np.flatnonzero(mask[choice])) for choice in self._masks.choices]
        return np.array(chosen, np.int64).reshape(self.space.shape)[()]

    def _check_masks(self, rows: Array, where: Callable[[int], str]) -> None:
        """Every mask must leave something to choose."""
        if self._masks is None:
            return
        blocked = self._masks.leaves_nothing(rows)
        if blocked.any():
            raise EnvContractError(
                f"The action mask of {where(int(np.argmax(blocked)))} allows no action, so none "
                "can be chosen. A mask has a 1 for every action that is possible, at least one for "
                "every choice. Let the env end the episode where nothing can be done, or allow an "
                "action that does nothing."
            )

    def to_env(self, action: Any) -> Any:
        """An action of the module as the env takes it."""
        return self._decoder.to_env(action)


class ValuingActing(Acting):
    """Acting of a module that acts and values at once; see `RLModule.gives_values`.

    Values of images cost as much as acting does. What was computed when acting is not computed
    again: it is an extra output of every step.
    """

    gives = (ACTION_DIST_INPUTS, VF_PREDS)

    def chosen(
        self, outputs: Mapping[str, Any], noise: Array | None
    ) -> tuple[list[Any], list[Any]]:
        """Actions, and pairs of distribution inputs and values; see `Acting.act`."""
        actions, inputs = super().chosen(outputs, noise)
        return actions, list(zip(inputs, outputs[VF_PREDS].copy(), strict=True))


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


# ---- exploring
#
# From observations to actions with an exploration strategy; plain sampling does without.


class VectorStep(NamedTuple):
    """Whose actions a strategy chooses, and when.

    Attributes:
        slots: the numbers of the slots, one for each row.
        timestep: see `Exploration.get_exploration_action`.
        explore: False takes the most likely actions, with the weights as they are.
    """

    slots: Sequence[int]
    timestep: int
    explore: bool


class Exploring:
    """An exploration strategy at work in one runner.

    Attributes:
        strategy: what chooses.
        noise_kind, noise_width: the random numbers that it takes per step.
        gives_logp: whether it brings log-likelihoods with every step.
    """

    @classmethod
    def of(
        cls, acting: Acting, spec: ExplorationSpec, *, num_workers: int = 0, worker_index: int = 0
    ) -> Exploring | None:
        """None if the strategy only draws from the distribution, which acting does by itself.

        Raises:
            UnsupportedSpaceError: the strategy cannot serve the action space.
            ConfigError: an argument of the strategy is wrong.
        """
        if spec.is_plain_sampling:
            return None
        strategy = spec.make(
            acting.space,
            distribution=acting.distribution,
            num_workers=num_workers,
            worker_index=worker_index,
        )
        return cls(acting, strategy)

    def __init__(self, acting: Acting, strategy: Exploration) -> None:
        self.strategy = strategy
        self.noise_kind = strategy.noise_kind
        self.noise_width = strategy.noise_width
        self.gives_logp = strategy.gives_logp
        self._is_of_users = not type(strategy).__module__.startswith("trainer.")
        self._acting = acting
        self._perturbed = (
            PerturbedModules(acting.module, strategy) if strategy.perturbs_weights else None
        )

    def act(
        self,
        observations: list[Any],
        noise: Array,
        step: VectorStep,
        *,
        where: Callable[[int], str],
    ) -> tuple[list[Any], list[Any]]:
        """One action per observation.

        Args:
            observations: B elements of the observation space.
            noise: float64 [B, noise_width].
            step: whose observations these are.
            where: says which observation a row is, for an error text.

        Returns:
            B actions as the module gives them, and B rows of distribution inputs; pairs of these
            and log-likelihoods if the strategy gives such (`Exploration.gives_logp`).

        Raises:
            EnvContractError: see `Acting.act`.
            ConfigError: the strategy gave another number of actions.
        """
        acting = self._acting
        batch = acting.encoded(observations, where)
        if self._perturbed is not None and step.explore:
            inputs = self._perturbed.forward(batch, step.slots)
        else:
            inputs = acting.inputs(batch, explore=step.explore)
        return self.chosen({ACTION_DIST_INPUTS: inputs}, noise, step)

    def chosen(
        self, outputs: Mapping[str, Any], noise: Array, step: VectorStep
    ) -> tuple[list[Any], list[Any]]:
        """Actions from what the module gave; arguments, results and errors as of `act`."""
        inputs, _, rows, logp = self._choose(outputs, noise, step)
        return rows, list(inputs) if logp is None else list(zip(inputs, logp, strict=True))

    def chosen_together(
        self, outputs: Mapping[str, Any], noise: Array, step: VectorStep
    ) -> tuple[Array, dict[str, Array]]:
        """Like `chosen`, as arrays: actions [B, …], and the outputs by name, [B, …] each."""
        inputs, actions, _, logp = self._choose(outputs, noise, step)
        given = {ACTION_DIST_INPUTS: inputs}
        if logp is not None:
            given[ACTION_LOGP] = np.asarray(logp)
        return np.asarray(actions), given

    def _choose(
        self, outputs: Mapping[str, Any], noise: Array, step: VectorStep
    ) -> tuple[Array, Any, list[Any], Any]:
        """Inputs, actions as the strategy gave them and one by one, and, if `gives_logp`, logp."""
        acting, inputs, slots = self._acting, outputs[ACTION_DIST_INPUTS], step.slots
        choice = ActionChoice(acting.distribution, inputs, noise, self.noise_kind, slots)
        given = self.strategy.get_exploration_action(
            action_distribution=choice, timestep=step.timestep, explore=step.explore
        )
        if self._is_of_users:
            given = self._checked(given, len(slots))
        actions, logp = given
        # Copies: a strategy or module of the user's may write into the same memory again.
        inputs, actions, logp = copied(inputs), copied(actions), copied(logp)
        rows = acting.rows(actions, len(slots))
        if len(rows) != len(slots) or (logp is not None and len(logp) != len(slots)):
            raise ConfigError(
                f"{type(self.strategy).__name__}.get_exploration_action() gave {len(rows)} actions "
                f"and {None if logp is None else len(logp)} log-likelihoods for {len(slots)} env "
                "slots. Return one row for each row of `action_distribution.inputs`."
            )
        if not self.gives_logp:
            return inputs, actions, rows, None
        if logp is None:
            logp = self.logp(inputs, actions, timestep=step.timestep, explore=step.explore)
        return inputs, actions, rows, logp

    def _checked(self, given: Any, num_rows: int) -> tuple[Any, Any]:
        """What a strategy of the user's gave; a ConfigError unless it is a number per part."""
        name = f"{type(self.strategy).__name__}.get_exploration_action()"
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise ConfigError(
                f"{name} gave {shown(given)}; expected a pair: actions, and their log-likelihoods "
                "or None. End it with `return actions, logp`."
            )
        actions, logp = given
        if not self._acting.is_nested:
            shape = (num_rows, *(self._acting.space.shape or ()))
            actions = _rows_of_numbers(actions, shape, f"{name}: the actions")
        if logp is not None:
            logp = _rows_of_numbers(logp, (num_rows,), f"{name}: the log-likelihoods")
        try:
            self._acting.distribution.check_actions(actions)
        except EpisodeError as error:
            raise ConfigError(f"{name} gave {shown(actions)}. {error}") from error
        return actions, logp

    def logp(self, inputs: Array, actions: Array, *, timestep: int, explore: bool) -> Array:
        """Log-likelihoods under what chose the actions, [B]; see `Exploration.logp`."""
        if explore:
            return self.strategy.logp(inputs, actions, timestep=timestep)
        return self._acting.distribution.logp(inputs, actions)

    def pass_over(self, slot: int, noise: Array) -> None:
        """Goes one step on in a slot whose action was chosen otherwise.

        Args:
            slot: its number in the runner.
            noise: the step's random numbers, [noise_width].
        """
        self.strategy.advance([slot], noise.reshape(1, -1))

    def begin_episode(
        self,
        slot: int,
        rng: Callable[[], np.random.Generator],
        *,
        played: Iterable[Array] = (),
    ) -> None:
        """Begins an episode, or goes on with one in the middle after the slot was put back.

        Args:
            slot: its number in the runner.
            rng: gives the episode's own generator, for noise on weights.
            played: the random numbers of the steps that were made already, [noise_width] each.
        """
        self.strategy.begin_episode(slot)
        if self._perturbed is not None:
            self._perturbed.begin_episode(slot, rng())
        for noise in played:
            self.pass_over(slot, noise)

    def refresh(self) -> None:
        """Takes over new weights and a new state of the strategy, before a request is answered."""
        if self._perturbed is not None:
            self._perturbed.refresh()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes over what the main process' strategy knows."""
        self.strategy.set_state(dict(state))


# ---- action source
#
# Where the actions of a runner come from: its module, a strategy, or uniform draws.

Where = Callable[[list[EnvSlot], int], str]
"""Says which observation a row of some slots is, for an error text."""


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


class ActionSource:
    """Gives the actions of env slots; a function of each slot's position and of its row alone.

    Attributes:
        acting: asks the module.
        exploring: the strategy at work; None for plain sampling.
        outputs: the extra outputs that each step brings.
        reads_step_before: the module is given action and reward of the step before.
    """

    reads_step_before = False

    def __init__(
        self,
        module: RLModule,
        spec: EnvRunnerSpec,
        *,
        where: Where,
        acting: type[Acting] = Acting,
    ) -> None:
        self.acting = acting(
            module, normalize_actions=spec.normalize_actions, clip_actions=spec.clip_actions
        )
        self.exploring = Exploring.of(
            self.acting,
            spec.exploration,
            num_workers=spec.num_workers,
            worker_index=spec.worker_index,
        )
        self.outputs = self.acting.gives
        if self.exploring is not None and self.exploring.gives_logp:
            self.outputs = (ACTION_DIST_INPUTS, ACTION_LOGP)
        self._explore, self._timestep = spec.explore, 0
        self._spec = spec
        self._where = where

    def noise_stream(self, *, agent: tuple[int, ...] = ()) -> NoiseStream:
        """A new stream of the numbers that actions take; `agent` as in `NoiseStream`."""
        source = self.exploring or self.acting
        return NoiseStream(
            self._spec.root_seed,
            self._spec.role,
            kind=source.noise_kind,
            width=source.noise_width,
            agent=agent,
        )

    def act(
        self, active: list[EnvSlot], *, explore: bool, timestep: int
    ) -> tuple[list[Any], list[Any]]:
        """An action for each slot, and what it comes from: one value of `outputs`, or a tuple."""
        self._explore, self._timestep = explore, timestep
        noise = None
        # Also where nothing is drawn: the stream stays in step with the episode.
        rows = [slot.noise.next_row() for slot in active]
        if explore or self.exploring is not None:
            noise = rows[0] if len(rows) == 1 else np.concatenate(rows)
            noise = noise.reshape(len(rows), -1)
        observations = [slot.observation for slot in active]
        where = partial(self._where, active)
        if self.exploring is None or noise is None:
            return self.acting.act(observations, noise, where=where)
        step = VectorStep([slot.index for slot in active], timestep, explore)
        return self.exploring.act(observations, noise, step, where=where)

    def act_together(
        self,
        observations: Array,
        noise: Array,
        *,
        rows: Sequence[int] | None,
        explore: bool,
        timestep: int,
    ) -> tuple[Array, dict[str, Array]]:
        """Like `act` for sub-envs of a vector env, as arrays.

        Without a strategy, rows in which no agent plays are computed, too: the others don't notice.

        Args:
            observations: of all sub-envs, [S, …].
            noise: their random numbers of this step, [S, W].
            rows: which of them play; None for all.
            explore: draw actions.
            timestep: see `Exploration.get_exploration_action`.

        Returns:
            actions [S, …] and the outputs by name, [S, …]; what stands in other rows means nothing.
        """
        self._explore, self._timestep = explore, timestep
        acting = self.acting
        if self.exploring is None:
            outputs = acting.outputs(acting.encoded_together(observations, rows), explore=explore)
            inputs = outputs[ACTION_DIST_INPUTS]
            if explore:
                actions = acting.distribution.sample(inputs, noise)
            else:
                actions = acting.distribution.deterministic(inputs)
            return actions, {name: outputs[name] for name in self.outputs}
        chosen = range(len(observations)) if rows is None else rows
        count = len(observations)
        batch = acting.encoded_together(observations, rows)
        if rows is not None:
            batch, noise = {OBS: batch[OBS][rows]}, noise[rows]
        outputs = acting.outputs(batch, explore=explore)
        step = VectorStep(chosen, timestep, explore)
        actions, given = self.exploring.chosen_together(outputs, noise, step)
        if rows is None:
            return actions, given
        spread = {name: _in_rows(column, rows, count) for name, column in given.items()}
        return _in_rows(actions, rows, count), spread

    @property
    def newest_request(self) -> ActingRequest | None:
        """How it acted last, if log-likelihoods follow from that when they are added; else None."""
        if self.exploring is None or self.exploring.gives_logp:
            return None
        return ActingRequest(self._timestep, self._explore)

    def logp(self, inputs: Array, actions: Any, request: ActingRequest | None = None) -> Array:
        """The log-likelihoods of actions, [B].

        Args:
            inputs: the distribution inputs that they came from, [B, K].
            actions: as the module gives them, [B, …].
            request: in which they were chosen; None is the one at work.
        """
        if self.exploring is None:
            return self.acting.distribution.logp(inputs, actions)
        timestep, explore = request or (self._timestep, self._explore)
        return self.exploring.logp(inputs, actions, timestep=timestep, explore=explore)

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

    def draw_uniformly(self, active: list[EnvSlot]) -> tuple[list[Any], None]:
        """Actions drawn uniformly from the action space, without the module."""
        actions = []
        for slot in active:
            rng = slot.exploration_rng(self._spec.root_seed)
            where = partial(self._where, [slot])
            actions.append(self.acting.draw_uniformly(slot.observation, rng, where=where))
            noise = slot.noise.next_row()  # the stream stays in step with the episode
            if self.exploring is not None:
                self.exploring.pass_over(slot.index, noise)
        return actions, None

    def begin_episode(self, slot: EnvSlot, stream: int, *, played: int = 0) -> None:
        """Tells the strategy of an episode that begins, or goes on after a repair.

        The slot has its noise at the beginning of the episode; `played` steps of it were made
        already.
        """
        if self.exploring is None:
            return
        # Four integers: no other use of the role has as many.
        position: tuple[int, ...] = (self._spec.role, stream, slot.episode_number, 0)
        if slot.agent_position:
            position = (*position, 0, *slot.agent_position)  # six of one of several agents
        self.exploring.begin_episode(
            slot.index,
            lambda: position_rng(self._spec.root_seed, Role.EXPLORATION, *position),
            played=(slot.noise.next_row() for _ in range(played)),
        )

    def refresh(self) -> None:
        """Takes over what may have changed between two requests."""
        if self.exploring is not None:
            self.exploring.refresh()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes over what the main process' strategy knows."""
        if self.exploring is not None:
            self.exploring.set_state(state)


def _in_rows(values: Array, rows: Sequence[int], count: int) -> Array:
    """An array of `count` rows, these of which are given; the others are zeros."""
    spread = np.zeros((count, *values.shape[1:]), values.dtype)
    spread[rows] = values
    return spread
