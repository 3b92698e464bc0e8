"""The base of exploration strategies: how actions are chosen from what a module gives.

A strategy owns no random generator. It says which numbers it wants (`noise_kind`, `noise_width`),
and every step of an env slot brings one row of them, which is a function of (root seed, slot,
episode, step) alone. So a repaired, resumed or otherwise spread run explores the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from checkpoints import check_shape, like
from trainer.errors import ConfigError, UnsupportedSpaceError
from trainer.exploration.action_choice import ActionChoice
from trainer.exploration.explored_sample import ExploredSample
from trainer.nn import ActionDistribution
from trainer.seeding import NoiseKind
from trainer.types import Array, State


class Exploration(ABC):
    """Chooses actions; users subclass it to write their own.

    Implement `get_exploration_action`, and set `noise_width` (and `noise_kind`) in `__init__`. A
    complete strategy for Discrete actions that avoids the least likely action:

        class AvoidWorst(Exploration):
            possible_spaces = (spaces.Discrete,)

            def __init__(self, action_space, *, until=10_000, **context):
                super().__init__(action_space, **context)
                self.until = until
                self.noise_width = uniforms_per_row(self.distribution)

            def get_exploration_action(self, *, action_distribution, timestep, explore=True):
                if not explore:
                    return action_distribution.deterministic_sample(), None
                actions = action_distribution.sample()
                if timestep < self.until:
                    worst = action_distribution.inputs.argmin(axis=1)
                    best = action_distribution.deterministic_sample()
                    actions = np.where(actions == worst, best, actions)
                return actions, None

        config.exploration(exploration_config={"type": AvoidWorst, "until": 5_000})

    Each row of actions must depend on its own row of inputs and noise alone, never on its
    neighbours, because exact resume rests on it. Every runner has an object of its own, and so has
    the main process, where `observe_sample` is called.

    Life in a runner: `begin_episode` when a slot starts an episode; `get_exploration_action` once
    per vector step, which must call `advance` if the strategy has state per slot (or `advance`
    alone, for steps whose actions were chosen otherwise or are played again after a repair).

    Attributes:
        possible_spaces: the action spaces it can serve; empty serves all.
        perturbs_weights: the runner lets it change the weights, once per episode (`perturbation`).
        state_follows: its state follows from the timestep alone, so checkpoints leave it out.
        current_stddev: factor of that perturbation.
        noise_kind: of the random numbers per step: "uniform", "normal" or "gumbel".
        noise_width: how many, ≥ 1.
        action_space: the space of actions *as modules give them*: counted from 0, and with
            `normalize_actions` scaled to [-1, 1] where bounded.
        distribution: the module's action distribution.
        num_workers: env runner processes; 0 if the main process samples.
        worker_index: 1 … `num_workers`, or 0 in the main process.
        last_timestep: the newest timestep that the strategy heard of.
    """

    possible_spaces: ClassVar[tuple[type[spaces.Space[Any]], ...]] = ()
    perturbs_weights: ClassVar[bool] = False
    state_follows: ClassVar[bool] = False
    current_stddev: float = 1.0
    noise_kind: NoiseKind = "uniform"
    noise_width: int = 1

    def __init__(
        self,
        action_space: spaces.Space[Any],
        *,
        distribution: ActionDistribution | None = None,
        num_workers: int = 0,
        worker_index: int = 0,
    ) -> None:
        """Keeps the context; subclasses add settings of their own.

        Raises:
            UnsupportedSpaceError: the strategy cannot serve this action space.
            ConfigError: it is made by hand, without the context that an algorithm gives.
        """
        self.check_space(action_space)
        if distribution is None:
            raise ConfigError(
                f"{type(self).__name__}() got no `distribution`: a strategy is made by its "
                "algorithm, which knows the network. Name it in the config: "
                f'config.exploration(exploration_config={{"type": "{type(self).__name__}"}}).'
            )
        self.action_space = action_space
        self.distribution = distribution
        self.num_workers = num_workers
        self.worker_index = worker_index
        self.last_timestep = 0

    @classmethod
    def check_space(cls, action_space: spaces.Space[Any]) -> None:
        """Checks that this strategy can serve an action space.

        Raises:
            UnsupportedSpaceError: it cannot; names strategies that can.
        """
        if cls.possible_spaces and not _is_one_of(action_space, cls.possible_spaces):
            possible = " or ".join(kind.__name__ for kind in cls.possible_spaces)
            raise UnsupportedSpaceError(
                f"{cls.__name__} explores {possible} action spaces, but this env has "
                f"{action_space}. Choose another `type` in exploration_config: "
                f"{_alternatives(action_space)}."
            )

    @abstractmethod
    def get_exploration_action(
        self, *, action_distribution: ActionChoice, timestep: int, explore: bool = True
    ) -> tuple[Array, Array | None]:
        """Actions for the rows of one vector step.

        Args:
            action_distribution: what to choose from, and the random numbers.
            timestep: env steps sampled in the whole run when the request began; the same in all
                runners, and constant within a request.
            explore: False must be deterministic: the most likely action.

        Returns:
            actions as the module gives them, [B, …], and their log-likelihoods under what chose
            them, float32 [B]; None takes those of `logp`.
        """

    def logp(self, inputs: Array, actions: Array, *, timestep: int) -> Array:
        """The log-likelihoods of actions that the strategy chose exploring, [B].

        A strategy that overrides it together with `get_exploration_action` gives None there, and is
        asked for all steps of a request at once, which costs a tenth.

        Args:
            inputs: distribution inputs that the actions came from, [B, K].
            actions: [B, …].
            timestep: the same for all of them.
        """
        del timestep
        return self.distribution.logp(inputs, actions)

    @property
    def gives_logp(self) -> bool:
        """Whether `get_exploration_action` gives log-likelihoods that `logp` knows nothing of."""
        definers = [
            next(kind for kind in type(self).__mro__ if name in kind.__dict__)
            for name in ("get_exploration_action", "logp")
        ]
        return definers[0] is not definers[1]

    def begin_episode(self, slot: int) -> None:
        """Forgets what the strategy knows of a slot: a new episode begins there."""
        del slot

    def advance(self, slots: Sequence[int], noise: Array) -> None:
        """Moves the state per slot one step on; a function of that state and the noise alone.

        Args:
            slots: the slots of the rows.
            noise: the step's random numbers, [B, W].
        """
        del slots, noise

    def perturbation(self, shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator) -> Any:
        """What is added to the weights for one episode, with `perturbs_weights`.

        Args:
            shapes: of the tensors that act, in order.
            rng: the episode's own generator.

        Returns:
            one flat float array over all the tensors; it is multiplied with `current_stddev`.
        """
        raise NotImplementedError

    # ---- in the main process

    def prepare(self, *, obs_size: int, root_seed: int) -> None:
        """Makes what `observe_sample` needs, before training begins.

        Args:
            obs_size: numbers that make up an encoded observation.
            root_seed: of the run.
        """
        del obs_size, root_seed

    def observe_sample(self, sample: ExploredSample) -> Sequence[Array] | None:
        """Looks at what all runners sampled, in the main process, before it is learnt from.

        Returns:
            new rewards of each chunk, [T]; None leaves them. Reported returns stay the env's.
        """
        del sample
        return None

    def runner_state(self) -> State:
        """What runners must know of the main process' strategy; {} if nothing. See `set_state`."""
        return {}

    def get_state(self) -> State:
        """What is needed to go on, as plain data; {} if there is nothing."""
        return {}

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it; changes nothing.

        Nothing is known of the state of a strategy of your own, unless it overrides this.
        """
        if self.state_follows:
            check_shape(state, like(self.get_state()))

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` or `runner_state` gave."""
        self.last_timestep = int(state.get("last_timestep", self.last_timestep))


def _is_one_of(space: spaces.Space[Any], kinds: Sequence[type[Any]]) -> bool:
    if not isinstance(space, tuple(kinds)):
        return False
    return not isinstance(space, spaces.Box) or np.issubdtype(space.dtype, np.floating)


def _alternatives(space: spaces.Space[Any]) -> str:
    names = "StochasticSampling, Random"
    if isinstance(space, spaces.Box):
        return f"{names}, GaussianNoise, OrnsteinUhlenbeckNoise or ParameterNoise"
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return f"{names}, EpsilonGreedy or SoftQ"
    return "StochasticSampling"
