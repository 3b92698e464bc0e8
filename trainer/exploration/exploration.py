"""The base of exploration strategies, and the schedules that they follow."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces

from checkpoints import check_shape, like
from trainer.errors import ConfigError, UnknownSettingError, UnsupportedSpaceError
from trainer.nn import ActionDistribution
from trainer.nn.distributions import from_uniform, uniform_width
from trainer.nn.optimizers import on_lines
from trainer.seeding import NoiseKind
from trainer.types import Array, State
from trainer_toolkit.arguments import checked
from trainer_toolkit.checks import integer, number, of_type
from trainer_toolkit.nearest_names import did_you_mean

# ---- schedules
#
# Schedules by RLlib's names: values as pure functions of the timestep.
# `trainer.nn.optimizers.Schedule` is the one that optimisers use; these are what users write in
# an `exploration_config`, as objects or as `{"type": "PiecewiseSchedule", ...}`.


class ExplorationSchedule(ABC):
    """A value as a function of the env steps sampled so far; it has no state."""

    @abstractmethod
    def value(self, t: float) -> float:
        """The value at timestep t ≥ 0."""

    def __call__(self, t: float) -> float:
        """The same as `value`."""
        return self.value(t)


@dataclass(frozen=True, init=False)
class ConstantSchedule(ExplorationSchedule):
    """Always the same value: `ConstantSchedule(0.1)` or `ConstantSchedule(value=0.1)`.

    Attributes:
        constant: the value; `value` is the method, as in RLlib.
    """

    constant: float

    def __init__(self, value: float) -> None:
        object.__setattr__(self, "constant", value)
        _check_numbers(self)

    def value(self, t: float) -> float:
        """The constant."""
        del t
        return self.constant


@dataclass(frozen=True)
class PolynomialSchedule(ExplorationSchedule):
    """From `initial_p` to `final_p` over `schedule_timesteps`, then constant.

    value(t) = final_p + (initial_p - final_p) · (1 - t / schedule_timesteps)^power.
    """

    schedule_timesteps: float
    final_p: float
    initial_p: float = 1.0
    power: float = 2.0

    def __post_init__(self) -> None:
        _check_numbers(self)

    def value(self, t: float) -> float:
        left = 1.0 - min(t, self.schedule_timesteps) / self.schedule_timesteps
        return float(self.final_p + (self.initial_p - self.final_p) * left**self.power)


@dataclass(frozen=True)
class LinearSchedule(ExplorationSchedule):
    """A straight line from `initial_p` to `final_p` over `schedule_timesteps`, then constant."""

    schedule_timesteps: float
    final_p: float
    initial_p: float = 1.0

    def __post_init__(self) -> None:
        _check_numbers(self)

    def value(self, t: float) -> float:
        share = min(t, self.schedule_timesteps) / self.schedule_timesteps
        return self.initial_p + share * (self.final_p - self.initial_p)


@dataclass(frozen=True)
class ExponentialSchedule(ExplorationSchedule):
    """value(t) = initial_p · decay_rate^(t / schedule_timesteps)."""

    schedule_timesteps: float
    initial_p: float = 1.0
    decay_rate: float = 0.1

    def __post_init__(self) -> None:
        _check_numbers(self)

    def value(self, t: float) -> float:
        return float(self.initial_p * self.decay_rate ** (t / self.schedule_timesteps))


@dataclass(frozen=True)
class PiecewiseSchedule(ExplorationSchedule):
    """Straight lines between points.

    Attributes:
        endpoints: at least one pair (timestep, value), with ascending timesteps.
        outside_value: before the first point and from the last one on; None takes the value of the
            nearest point.
    """

    endpoints: Sequence[Sequence[float]]
    outside_value: float | None = None

    def __post_init__(self) -> None:
        try:
            points = [(float(step), float(value)) for step, value in self.endpoints]
        except (TypeError, ValueError) as cause:
            raise ConfigError(
                f"endpoints={self.endpoints!r}: expected a list of (timestep, value) pairs, such "
                "as [(0, 1.0), (10_000, 0.05)]."
            ) from cause
        if not points or not all(math.isfinite(n) for point in points for n in point):
            raise ConfigError(f"endpoints={self.endpoints!r}: give one pair or more, all finite.")
        if any(later[0] <= earlier[0] for earlier, later in pairwise(points)):
            raise ConfigError(
                f"endpoints={self.endpoints!r}: the timesteps do not ascend, so the order of the "
                "values is unclear. Sort the pairs, and give each timestep once."
            )
        object.__setattr__(self, "endpoints", tuple(points))

    def value(self, t: float) -> float:
        steps, values = zip(*self.endpoints, strict=True)
        if self.outside_value is not None and not steps[0] <= t < steps[-1]:
            return self.outside_value
        return values[0] if t < steps[0] else on_lines(steps, values, t)


SCHEDULES: Final[Mapping[str, type[ExplorationSchedule]]] = MappingProxyType(
    {
        schedule.__name__: schedule
        for schedule in (
            ConstantSchedule,
            PiecewiseSchedule,
            LinearSchedule,
            PolynomialSchedule,
            ExponentialSchedule,
        )
    }
)
"""Every schedule by its name."""

_OTHER_NAMES: Final = MappingProxyType({"constant": "value"})
_WITHOUT_MEANING: Final = frozenset({"framework", "interpolation"})


def read_schedule(setting: Any, *, name: str) -> ExplorationSchedule:
    """The schedule that a user wrote.

    Args:
        setting: a number; a list of (timestep, value) pairs; a schedule; or `{"type": name,
            arguments}` with a name of `SCHEDULES` (a dotted path that ends in one will do).
        name: what the setting is called, for errors.

    Raises:
        ConfigError: it is none of these, or an argument is wrong or unknown.
    """
    if isinstance(setting, ExplorationSchedule):
        return setting
    try:
        if isinstance(setting, int | float) and not isinstance(setting, bool):
            return ConstantSchedule(float(setting))
        if isinstance(setting, Mapping):
            return _from_config(setting, name=name)
        if isinstance(setting, list | tuple):
            return PiecewiseSchedule(setting)
    except UnknownSettingError:
        raise
    except (ConfigError, TypeError) as cause:
        raise ConfigError(f"`{name}`: {cause}") from cause
    raise ConfigError(
        f"`{name}={setting!r}` is no schedule. Give a number, a list of (timestep, value) pairs, "
        f'or a dict such as {{"type": "PiecewiseSchedule", "endpoints": [(0, 1.0), (10_000, 0.1)]}}'
        f"; the types are {', '.join(SCHEDULES)}."
    )


def _from_config(config: Mapping[str, Any], *, name: str) -> ExplorationSchedule:
    arguments = dict(config)
    kind = arguments.pop("type", "PiecewiseSchedule")
    short = kind.rpartition(".")[2] if isinstance(kind, str) else getattr(kind, "__name__", "")
    if short not in SCHEDULES:
        raise UnknownSettingError(
            f"`{name}`: there is no schedule {kind!r}.{did_you_mean(short, SCHEDULES)} Give one of "
            f"{', '.join(SCHEDULES)}."
        )
    chosen = SCHEDULES[short]
    known = list(inspect.signature(chosen).parameters)
    given = {
        key if key in known else _OTHER_NAMES.get(key, key): value
        for key, value in arguments.items()
        if key not in _WITHOUT_MEANING
    }
    unknown = [key for key in given if key not in known]
    if unknown:
        raise UnknownSettingError(
            f"`{name}`: {short} has no argument {unknown[0]!r}.{did_you_mean(unknown[0], known)}"
            " It takes "
            f"{', '.join(known)}."
        )
    return chosen(**given)


def _check_numbers(schedule: ExplorationSchedule) -> None:
    for name, value in vars(schedule).items():
        where, above = f"{type(schedule).__name__}.{name}", name == "schedule_timesteps"
        checked_number(value, name=where, above=above)


# ---- settings
#
# Checks of the arguments that strategies take, and the schedule most of them have.


def checked_number(
    value: Any, *, name: str, maximum: float | None = None, above: bool = False
) -> float:
    """A finite number ≥ 0, or above it, and at most `maximum`; a ConfigError for anything else."""
    check = number(above=0.0) if above else number(0.0, maximum=maximum)
    return float(checked(value, check, name=name, error=ConfigError))


def checked_count(value: Any, *, name: str, minimum: int = 0) -> int:
    """A whole number of at least `minimum`; a ConfigError for anything else."""
    return int(checked(value, integer(minimum), name=name, error=ConfigError))


def ramp(initial: float, final: float, *, start: int, length: int) -> ExplorationSchedule:
    """`initial` until `start`, then a straight line that reaches `final` after `length` steps."""
    points = [(0.0, initial)]
    if start > 0:
        points.append((float(start), initial))
    if length > 0:
        points.append((float(start + length), final))
    return PiecewiseSchedule(points, outside_value=final)


def schedule_or_ramp(
    setting: Any,
    initial: float,
    final: float,
    *,
    start: int,
    length: int,
    name: str,
    maximum: float = math.inf,
) -> ExplorationSchedule:
    """The user's own schedule if there is one, else the ramp.

    A ConfigError if it is none, or if a number that one of `SCHEDULES` is made of, and takes as a
    value, is above `maximum`.
    """
    if setting is None:
        return ramp(initial, final, start=start, length=length)
    schedule = read_schedule(setting, name=name)
    values = [getattr(schedule, own, 0.0) for own in ("constant", "initial_p", "final_p")]
    if isinstance(schedule, PiecewiseSchedule):
        values = [schedule.outside_value or 0.0, *(value for _, value in schedule.endpoints)]
    if max(values) > maximum:
        raise ConfigError(
            f"`{name}={setting!r}` reaches {max(values):g}; expected values of at most {maximum:g}."
            " Give smaller ones."
        )
    return schedule


# ---- exploration
#
# The base of exploration strategies: how actions are chosen from what a module gives. A strategy
# owns no random generator. It says which numbers it wants (`noise_kind`, `noise_width`), and
# every step of an env slot brings one row of them, which is a function of (root seed, slot,
# episode, step) alone. So a repaired, resumed or otherwise spread run explores the same way.

# ---- noise numbers
#
# Random numbers of one kind made from uniform ones, so that a strategy can mix several kinds. An
# env slot gets one row of numbers per step, all of one kind. A strategy that tosses a coin and
# adds normal noise takes uniform numbers and turns some of them into normal ones here.


def uniforms_per_row(distribution: ActionDistribution) -> int:
    """How many uniform numbers one draw from a distribution takes."""
    return uniform_width(distribution.noise_kind, distribution.noise_width)


def normal_numbers(uniforms: Array) -> Array:
    """Standard normal numbers, of which each takes two uniform ones of its own.

    Args:
        uniforms: on [0, 1), float64 [B, 2A]; number k comes from k and A + k alone.

    Returns:
        float64 [B, A].
    """
    half = uniforms.shape[1] // 2
    pairs = np.stack([uniforms[:, :half], uniforms[:, half:]], axis=-1).reshape(len(uniforms), -1)
    return from_uniform(pairs, kind="normal", width=2 * half)[:, ::2]


def numbers_for(distribution: ActionDistribution, noise: Array, *, kind: NoiseKind) -> Array:
    """The noise that a distribution draws with.

    Args:
        distribution: what draws.
        noise: float64 [B, W]; what is left over is not used.
        kind: of `noise`; uniform numbers serve every distribution, others only their own kind.

    Raises:
        ValueError: the noise is of another kind, or too narrow.
    """
    width = distribution.noise_width
    if kind == distribution.noise_kind and noise.shape[1] >= width:
        return noise[:, :width]
    needed = uniforms_per_row(distribution)
    if kind != "uniform" or noise.shape[1] < needed:
        raise ValueError(
            f"{noise.shape[1]} {kind} number(s) per step cannot draw from "
            f"{type(distribution).__name__}, which takes {width} {distribution.noise_kind} or "
            f'{needed} uniform ones. Set noise_kind = "uniform" and noise_width >= {needed} in '
            "__init__ of your strategy (`uniforms_per_row(distribution)`)."
        )
    return from_uniform(noise[:, :needed], kind=distribution.noise_kind, width=width)


# ---- action choice
#
# What a strategy chooses from: the module's outputs of one vector step, and its random numbers.

MASKED: Final = -1e30
"""The logit or Q value of an action that is not allowed; anything below half of it counts, so the
most negative float32 does, too."""


@dataclass(frozen=True, slots=True)
class ActionChoice:
    """The action distributions of B env slots, with the noise to draw from them.

    Attributes:
        distribution: the family.
        inputs: its inputs, float32 [B, K]: logits, Q values, or means and log standard deviations.
        noise: this step's random numbers of each slot, float64 [B, W].
        noise_kind: what they are.
        slots: which env slots the rows are: numbers of the sub-envs in their runner.
        mask: which alternatives are allowed, bool [B, K]; None if all are, or if the inputs alone
            tell (`MASKED`).
        loadings: float32 [B, A, F], of a network whose deviations follow from F features
            (`trainer.modules.feature_noise`), while exploring; else None.
    """

    distribution: ActionDistribution
    inputs: Array
    noise: Array
    noise_kind: NoiseKind
    slots: Sequence[int]
    mask: Array | None = None
    loadings: Array | None = None

    def sample(self) -> Array:
        """Actions drawn from the distributions, [B, …]."""
        noise = numbers_for(self.distribution, self.noise, kind=self.noise_kind)
        return self.distribution.sample(self.allowed_inputs(), noise)

    def deterministic_sample(self) -> Array:
        """The most likely actions, [B, …]."""
        return self.distribution.deterministic(self.allowed_inputs())

    def logp(self, actions: Array) -> Array:
        """The log-likelihoods of actions under the distributions, [B]."""
        return self.distribution.logp(self.allowed_inputs(), actions)

    def valid_parts(self) -> Array | None:
        """Which alternatives are allowed, bool [B, K]; None if all are."""
        return valid_parts(self.inputs if self.mask is None else self.allowed_inputs())

    def allowed_inputs(self) -> Array:
        """The inputs with `MASKED` in the place of what is not allowed."""
        if self.mask is None:
            return self.inputs
        allowed: Array = np.where(self.mask, self.inputs, MASKED).astype(self.inputs.dtype)
        return allowed


def valid_parts(inputs: Array) -> Array | None:
    """Which alternatives are not `MASKED`, bool [B, K]; None if none is."""
    valid: Array = inputs > 0.5 * MASKED
    return None if np.count_nonzero(valid) == valid.size else valid


# ---- explored sample
#
# What the main process shows a strategy of a sample: arrays, chunk by chunk.


@dataclass(frozen=True)
class ExploredChunk:
    """One chunk of an episode.

    Attributes:
        obs: encoded observations, float32 [T + 1, D].
        actions: as the module gave them, [T, …].
        rewards: of the env, float64 [T].
        inputs: the distribution inputs that acted, float32 [T, K]; None if no module acted.
    """

    obs: Array
    actions: Array
    rewards: Array
    inputs: Array | None


@dataclass(frozen=True)
class ExploredSample:
    """What all runners played for one request.

    Attributes:
        chunks: ordered by env slot, then time.
        timestep: env steps sampled before.
        iteration: training iterations completed before.
        clean_inputs: the distribution inputs of the unperturbed module for encoded observations:
            [B, D] to [B, K]; with the weights that acted.
    """

    chunks: Sequence[ExploredChunk]
    timestep: int
    iteration: int
    clean_inputs: Callable[[Array], Array]


# ---- exploration


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
        needs_loadings: it reads `ActionChoice.loadings`, which not every network gives.
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
    needs_loadings: bool = False

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
                f'config.exploration(exploration_config={{"type": "{type(self).__name__}"}}). '
                "If it is there, its `__init__` takes `**context` and hands it on, "
                "`super().__init__(action_space, **context)`."
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
        return (
            f"{names}, GaussianNoise, OrnsteinUhlenbeckNoise, StateDependentNoise or ParameterNoise"
        )
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return f"{names}, EpsilonGreedy or SoftQ"
    return "StochasticSampling"


# ---- sub exploration


class WithSubExploration(Exploration):
    """Acts as its sub-exploration does.

    In an `exploration_config`, `sub_exploration` is a config of its own; objects made by hand get
    the object.

    Attributes:
        sub_exploration: what chooses the actions.
    """

    def __init__(
        self,
        action_space: spaces.Space[Any],
        *,
        sub_exploration: Exploration | None = None,
        **context: Any,
    ) -> None:
        """Takes over the noise that the sub-exploration wants.

        Raises:
            ConfigError: the sub-exploration does more than to choose actions.
        """
        super().__init__(action_space, **context)
        if sub_exploration is None:
            raise ConfigError(
                f"{type(self).__name__}() got no `sub_exploration`, which chooses actions. Name "
                'both in the config: exploration_config={..., "sub_exploration": {...}}.'
            )
        observes = type(sub_exploration).observe_sample is not Exploration.observe_sample
        if observes or sub_exploration.perturbs_weights:
            raise ConfigError(
                f"sub_exploration: {type(sub_exploration).__name__} does more than to choose "
                f"actions, so it cannot work inside {type(self).__name__}. Give e.g. "
                "StochasticSampling, EpsilonGreedy or GaussianNoise."
            )
        self.sub_exploration = sub_exploration
        self.noise_kind = sub_exploration.noise_kind
        self.noise_width = sub_exploration.noise_width
        self.needs_loadings = sub_exploration.needs_loadings

    @classmethod
    def default_sub_exploration(
        cls, action_space: spaces.Space[Any], settings: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """The config of the sub-exploration if the user gives none; None if one must be given.

        Here: uniform actions for `random_timesteps`, then little noise: ε-greedy with ε = 0.01 for
        actions that are counted, Ornstein-Uhlenbeck noise for others.

        Args:
            action_space: of actions as modules give them.
            settings: what the user gives besides.

        Raises:
            ConfigError: `random_timesteps` is no number of env steps.
        """
        given = settings.get("random_timesteps", 10_000)
        random_timesteps = checked_count(given, name="random_timesteps")
        if isinstance(action_space, spaces.Box):
            return {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": random_timesteps}
        return {
            "type": "EpsilonGreedy",
            "epsilon_schedule": {
                "type": "PiecewiseSchedule",
                "endpoints": [
                    (0, 1.0),
                    (random_timesteps + 1, 1.0),
                    (random_timesteps + 2, 0.01),
                ],
                "outside_value": 0.01,
            },
        }

    def get_exploration_action(
        self, *, action_distribution: ActionChoice, timestep: int, explore: bool = True
    ) -> tuple[Array, Array | None]:
        """What the sub-exploration chooses."""
        self.last_timestep = timestep
        return self.sub_exploration.get_exploration_action(
            action_distribution=action_distribution, timestep=timestep, explore=explore
        )

    def logp(self, inputs: Array, actions: Array, *, timestep: int) -> Array:
        """That of the sub-exploration."""
        return self.sub_exploration.logp(inputs, actions, timestep=timestep)

    @property
    def gives_logp(self) -> bool:
        """What the sub-exploration says, unless a subclass chooses actions itself."""
        return super().gives_logp or self.sub_exploration.gives_logp

    def begin_episode(self, slot: int) -> None:
        self.sub_exploration.begin_episode(slot)

    def advance(self, slots: Sequence[int], noise: Array) -> None:
        self.sub_exploration.advance(slots, noise)

    def get_state(self) -> State:
        """The state of the sub-exploration."""
        return {"sub_exploration": self.sub_exploration.get_state()}

    def check_state(self, state: State) -> None:
        check_shape(state, of_type(dict))
        if "sub_exploration" in state:
            self.sub_exploration.check_state(state["sub_exploration"])

    def set_state(self, state: State) -> None:
        super().set_state(state)
        if "sub_exploration" in state:
            self.sub_exploration.set_state(state["sub_exploration"])
