"""Between env and network: observations and rewards on the way in, choices on the way out.

One row of float32 numbers per observation: Box observations are flattened, Discrete and
MultiDiscrete ones become one-hot codes, MultiBinary ones zeros and ones; the parts of Dict and
Tuple observations stand side by side in the space's own order. An action mask comes last, whatever
its place in the space. Nothing is scaled or normalised, unless the encoder is given a normalizer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from checkpoints import check_shape, like
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.conversion import with_rewards
from trainer.errors import ConfigError, EnvContractError, EpisodeError, UnsupportedSpaceError
from trainer.spaces import (
    ACTION_MASK_KEY,
    ACTION_SPACES,
    OBSERVATION_SPACES,
    alternatives_of_integer_box,
    is_float_box,
    is_integer_box,
    split_observation,
)
from trainer.types import Array, FloatArray, State
from trainer_toolkit.checks import ANY_NUMBER, dict_of, fields
from trainer_toolkit.plain_classes import RARE

# ---- normalization
#
# Observations and rewards on a common scale: what is done to them, and from which moments.
#
#     moments = moments.merged(RunningMoments.of(rows))      everything seen so far
#     normalizer = ObservationNormalizer.of(moments, ...)    a frozen value, sent to the runners
#     network_rows = normalizer(rows)
#
# Only pure functions and frozen values are here; `NormalizationStatistics` collects the moments.
#
# Sources: Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", equation
# 2.1 (merging moments); the scaling of rewards by the standard deviation of the discounted return
# is OpenAI Baselines' `VecNormalize` (2017), as in gymnasium's `NormalizeReward`.

LIMIT: Final = 10.0
"""Normalised observations and rewards are clipped to ± this (the value of Stable-Baselines3)."""

EPSILON: Final = 1e-8
"""Added to standard deviations (RLlib's value in its `MeanStdFilter`)."""

_RESOLUTION: Final = 1e-7
"""A standard deviation below this share of the mean is what rounding to float32 makes of no change
at all."""


@dataclass(frozen=True)
class RunningMoments:
    """Count, mean and sum of squared deviations of everything seen so far, number by number.

    Attributes:
        count: rows seen.
        mean: float64 [D]; 0 before the first row.
        squares: sum of (x - mean)², float64 [D].
    """

    count: int
    mean: Array
    squares: Array

    @classmethod
    def empty(cls, size: int) -> RunningMoments:
        """Of no rows of `size` numbers."""
        return cls(0, np.zeros(size), np.zeros(size))

    @classmethod
    def of(cls, rows: Array) -> RunningMoments:
        """Of some rows, [B, D] of any number type.

        Raises:
            EpisodeError: a number is not finite; it would stay in the moments for ever.
        """
        if not len(rows):
            return cls.empty(rows.shape[1])
        # Too large numbers are found below; they need no warning besides.
        with np.errstate(over="ignore", invalid="ignore"):
            mean = rows.mean(axis=0, dtype=np.float64)
            squares = np.square(rows - mean).sum(axis=0)
        if not np.isfinite(squares).all():
            places = np.flatnonzero(~np.isfinite(squares)).tolist()
            raise EpisodeError(
                "Running means and standard deviations cannot take in numbers that are not finite; "
                f"the env gave some, at {places} of the encoded observation (or as a reward, if "
                "that is [0] of 1). Correct the env, or leave normalisation out."
            )
        return cls(len(rows), mean, squares)

    def merged(self, other: RunningMoments) -> RunningMoments:
        """Of everything that both have seen; order matters in the last bits."""
        if not self.count:
            return other
        if not other.count:
            return self
        count = self.count + other.count
        difference = other.mean - self.mean
        mean = self.mean + difference * (other.count / count)
        squares = self.squares + other.squares
        squares += np.square(difference) * (self.count * other.count / count)
        return RunningMoments(count, mean, squares)

    @property
    def std(self) -> Array:
        """Standard deviations of what was seen (not an estimate for more), float64 [D].

        1 where nothing ever changed: there is no scale to bring it to.
        """
        std = np.sqrt(self.squares / max(1, self.count))
        has_changed = std > _RESOLUTION * np.abs(self.mean)
        unchanged: Array = np.where(has_changed & (std > 0.0), std, 1.0)
        return unchanged

    def get_state(self) -> State:
        """Plain data; copies."""
        return {"count": self.count, "mean": self.mean.copy(), "squares": self.squares.copy()}

    @classmethod
    def from_state(cls, state: State) -> RunningMoments:
        """The moments that `get_state` was called on."""
        return cls(int(state["count"]), np.array(state["mean"]), np.array(state["squares"]))


@dataclass(frozen=True)
class ObservationNormalizer:
    """Brings encoded observations to mean 0 and standard deviation 1: clip((x - mean) / (std + ε)).

    Every row is computed by itself, so it has the same bits whatever other rows are in the batch.

    Attributes:
        mean: float64 [D].
        factors: 1 / (std + ε), float64 [D].
        limits: what the results are clipped to, float64 [D].
    """

    mean: Array
    factors: Array
    limits: Array

    @classmethod
    def of(cls, moments: RunningMoments, *, is_normalized: Array) -> ObservationNormalizer:
        """The normalizer that follows from what was seen.

        Args:
            moments: of D numbers; without any row, numbers are only clipped.
            is_normalized: which numbers are changed at all, bool [D]; one-hot codes, bits and
                action masks are not.
        """
        has_moments = is_normalized & bool(moments.count)
        return cls(
            mean=np.where(has_moments, moments.mean, 0.0),
            factors=np.where(has_moments, 1.0 / (moments.std + EPSILON), 1.0),
            limits=np.where(is_normalized, LIMIT, np.inf),
        )

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Normalised rows, a new array of float32 [B, D].

        In float64 until the end: the difference of large float32 numbers would lose what is left.
        """
        numbers = rows - self.mean
        numbers *= self.factors
        np.minimum(numbers, self.limits, out=numbers)
        np.maximum(numbers, -self.limits, out=numbers)
        return numbers.astype(np.float32)


@dataclass(frozen=True)
class RewardTransform:
    """What learners make of the env's rewards; reported returns stay the env's own.

    Clipping comes first, then scaling. Rewards are not shifted: that would change what is best.

    Attributes:
        clip: True takes signs, a number c clips to ±c; None and False leave rewards as they are.
        factor: 1 / (std of the discounted return + ε); None if rewards are not scaled.
    """

    clip: float | bool | None = None
    factor: float | None = None

    @property
    def does_clip(self) -> bool:
        """Whether `clipped` changes anything."""
        return self.clip is not None and self.clip is not False

    def clipped(self, rewards: Array) -> Array:
        """The rewards clipped, [B]."""
        if not self.does_clip:
            return rewards
        if self.clip is True:
            signs: Array = np.sign(rewards)
            return signs
        limit = float(self.clip or 0.0)
        within: Array = np.clip(rewards, -limit, limit)
        return within

    def scaled(self, rewards: Array) -> Array:
        """The rewards scaled, and then clipped to ±`LIMIT`; [B], of the same number type."""
        if self.factor is None:
            return rewards
        scaled: Array = np.clip(rewards * rewards.dtype.type(self.factor), -LIMIT, LIMIT)
        return scaled

    def __call__(self, rewards: Array) -> Array:
        """Both, [B] of floats."""
        return self.scaled(self.clipped(rewards))


@dataclass(frozen=True)
class Normalization:
    """What is in force for observations and rewards: a value that travels to the env runners.

    Attributes:
        observations: None leaves them as they are encoded.
        rewards: None leaves them as the env paid them.
    """

    observations: Annotated[ObservationNormalizer | None, RARE] = None
    rewards: Annotated[RewardTransform | None, RARE] = None

    def rewards_to_learn(self, rewards: Any) -> Any:
        """What a learner takes for the rewards of single steps, [B] of floats."""
        return rewards if self.rewards is None else self.rewards(rewards)


NOTHING: Final = Normalization()
"""Changes nothing: what is in force unless a config says otherwise."""


# ---- observations


@dataclass(frozen=True)
class _Leaf:
    """One part of an observation.

    Attributes:
        path: the keys and indices that lead to it, outermost first.
        width: how many numbers it becomes.
        write: writes its values, [B, ...], into float32 [B, width].
        is_scalable: its numbers are quantities, neither codes nor bits.
    """

    path: tuple[Any, ...]
    width: int
    write: Callable[[Array, FloatArray], None]
    is_scalable: bool = False


class ObservationEncoder:
    """Encodes observations of one space.

    Attributes:
        size: the numbers that make up one encoded observation: D that the network reads and, behind
            them, the M of the action mask.
        mask_size: M; 0 if there are no masks.
        is_scalable: which of the numbers are quantities (from a Box) and may be normalised, bool
            [size]; bytes of an image are not, for the network scales them.
        normalizer: what every encoded observation goes through last; None at first.
    """

    def __init__(self, space: gym.Space[Any], *, action_mask_key: str = ACTION_MASK_KEY) -> None:
        """Plans the encoding.

        Args:
            space: Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these.
            action_mask_key: the key under which a Dict holds an action mask, if it does.

        Raises:
            UnsupportedSpaceError: it is, or holds, another space.
        """
        self._space, self._action_mask_key = space, action_mask_key
        split = split_observation(space, action_mask_key=action_mask_key)
        self._leaves = list(_leaves(split.seen, ()))
        mask = () if split.mask is None else tuple(_leaves(split.mask, (action_mask_key,)))
        self._leaves += mask
        self.mask_size = sum(leaf.width for leaf in mask)
        self.size = sum(leaf.width for leaf in self._leaves)
        self.is_scalable: Array = np.repeat(
            [leaf.is_scalable and leaf not in mask for leaf in self._leaves],
            [leaf.width for leaf in self._leaves],
        )
        self.normalizer: ObservationNormalizer | None = None
        self._is_vector = isinstance(space, spaces.Box) and len(space.shape) == 1
        self._count = -1
        self._reserve(0)

    def __reduce__(self) -> tuple[Any, ...]:
        # Copied one by one, its two arrays would no longer be the same memory.
        make = functools.partial(type(self), action_mask_key=self._action_mask_key)
        return make, (self._space,), {"normalizer": self.normalizer}

    def encode(self, observations: Any, *, out: FloatArray | None = None) -> FloatArray:
        """One row per observation.

        Args:
            observations: a list of B observations as the env returned them; or a batch of B: an
                array [B, ...], for Dict and Tuple spaces a dict or tuple of such arrays.
            out: for a batch: where to write its rows, [B, D]; None makes new memory.

        Returns:
            float32 [B, D]. For a list the memory is reused by the next call; copy what must last.

        Raises:
            EnvContractError: an observation does not belong to the space.
        """
        if type(observations) is list:
            if len(observations) != self._count:
                self._reserve(len(observations))
            if self._is_vector and observations:
                # The hot path, once per env step. Measured for 8 observations of 4 numbers: 1.2 µs;
                # np.stack 4.2 µs.
                try:
                    np.concatenate(observations, out=self._numbers)
                except (ValueError, TypeError) as cause:
                    raise self._misfit(observations) from cause
            else:
                self._write(observations, self._rows, self._row_values)
            return self._rows if self.normalizer is None else self.normalizer(self._rows)
        count = len(_value_at(observations, self._leaves[0].path))
        rows = np.empty((count, self.size), np.float32) if out is None else out
        self._write(observations, rows, _value_at)
        if self.normalizer is None:
            return rows
        normalized = self.normalizer(rows)
        if out is None:
            return normalized
        out[:] = normalized
        return out

    def encode_own(self, observations: Any) -> FloatArray:
        """Like `encode` of a batch that belongs to the caller, which may be its own encoding."""
        is_encoded = (
            self._is_vector
            and self.normalizer is None
            and type(observations) is np.ndarray
            and observations.dtype == np.float32
            and observations.shape[1:] == (self.size,)
        )
        return observations if is_encoded else self.encode(observations)

    def _reserve(self, count: int) -> None:
        """Makes the memory for that many rows."""
        self._count = -1  # an interrupt may come before all of it is there
        self._numbers: FloatArray = np.zeros(count * self.size, np.float32)
        self._rows: FloatArray = self._numbers.reshape(count, self.size)
        self._count = count

    def _write(
        self, observations: Any, rows: FloatArray, values_at: Callable[[Any, tuple[Any, ...]], Any]
    ) -> None:
        """Fills all rows, part by part."""
        start = 0
        for leaf in self._leaves:
            part = rows[:, start : start + leaf.width]
            try:
                leaf.write(np.asarray(values_at(observations, leaf.path)), part)
            except (ValueError, TypeError, KeyError, IndexError) as cause:
                raise self._misfit(observations) from cause
            start += leaf.width

    @staticmethod
    def _row_values(observations: list[Any], path: tuple[Any, ...]) -> list[Any]:
        """The values of one part, observation by observation."""
        return [_value_at(observation, path) for observation in observations]

    def _misfit(self, observations: Any) -> EnvContractError:
        given = f"a batch of type {type(observations).__name__}"
        if isinstance(observations, list):
            outside = [obs for obs in observations if not self._space.contains(obs)]
            given = repr((outside or observations)[0])
        return EnvContractError(
            f"An observation does not belong to the observation space {self._space}: {given}. The "
            "network's inputs are laid out by that space. Let the env return observations of its "
            "space, or correct the space."
        )


def _leaves(space: gym.Space[Any], path: tuple[Any, ...]) -> Iterator[_Leaf]:
    """Every part of a space that is not itself a Dict or Tuple, in order."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, index))
    elif isinstance(space, spaces.MultiBinary) or (
        isinstance(space, spaces.Box) and np.dtype(space.dtype).kind in "biuf"
    ):
        # Bytes of an image are scaled by the network that reads it.
        is_image = len(space.shape) == 3 and space.dtype == np.uint8
        is_scalable = not (isinstance(space, spaces.MultiBinary) or is_image)
        yield _Leaf(path, int(np.prod(space.shape)), _write_numbers, is_scalable)
    elif isinstance(space, spaces.Discrete):
        sizes, starts = np.array([space.n]), np.array([space.start])
        yield _Leaf(path, int(space.n), _one_hot_writer(sizes, starts))
    elif isinstance(space, spaces.MultiDiscrete):
        sizes, starts = space.nvec.ravel(), np.ravel(space.start)
        yield _Leaf(path, int(sizes.sum()), _one_hot_writer(sizes, starts))
    else:
        raise UnsupportedSpaceError(
            f"Observations of the space {space} cannot be encoded: they are no fixed number of "
            f"numbers. Possible are {OBSERVATION_SPACES}. Change the observations with a wrapper "
            "around the env."
        )


def _write_numbers(values: Array, out: FloatArray) -> None:
    """Flattens every row."""
    out[:] = values.reshape(out.shape)


def _one_hot_writer(sizes: Array, starts: Array) -> Callable[[Array, FloatArray], None]:
    """A writer of one-hot codes for values from `starts` on, with `sizes` alternatives."""
    offsets = np.cumsum(sizes) - sizes

    def write(values: Array, out: FloatArray) -> None:
        codes = values.reshape(len(out), len(sizes)) - starts[None, :]
        if ((codes < 0) | (codes >= sizes[None, :])).any():
            raise ValueError("a value is outside its space")
        out[:] = 0.0
        out[np.arange(len(out))[:, None], codes + offsets[None, :]] = 1.0

    return write


def _value_at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


# ---- normalization statistics
#
# The running statistics behind normalisation: kept in the main process, fed by samples. They need
# no reports from env runners, for the main process has every observation and reward in the
# episodes that were sampled, ordered by env slot, then time. So what the statistics become
# depends neither on how slots are spread over runners nor on which of them died.


@dataclass(frozen=True)
class NormalizationSettings:
    """What is to be normalised.

    Attributes:
        observations: by running mean and standard deviation (`observation_filter`).
        rewards: by the running standard deviation of the discounted return (`normalize_rewards`).
        clip_rewards: see `RewardTransform`.
        gamma: discount per env step of that return, in [0, 1].
        num_slots: sub-envs that are sampled, ≥ 1: so many episodes may be running.
    """

    observations: bool = False
    rewards: bool = False
    clip_rewards: float | bool | None = None
    gamma: float = 0.99
    num_slots: int = 1


class NormalizationStatistics:
    """Collects moments, and says what follows from them.

    Life: `add` after each sample, `reward_transform` before it is learnt from, `current` when the
    training step is over; `get_state` and `set_state` for the checkpoint component "connectors".
    """

    def __init__(self, settings: NormalizationSettings, encoder: ObservationEncoder) -> None:
        """Begins with nothing seen; the encoder is that of observations, without a normalizer."""
        self.settings = settings
        self._encoder = encoder
        self._observations = RunningMoments.empty(encoder.size)
        self._returns = RunningMoments.empty(1)
        # Of running episodes: the discounted return so far, by id, oldest first.
        self._running: dict[str, float] = {}

    @property
    def has_state(self) -> bool:
        """Whether anything depends on what was seen."""
        return self.settings.observations or self.settings.rewards

    @property
    def has_effect(self) -> bool:
        """Whether anything is changed at all."""
        return self.has_state or RewardTransform(self.settings.clip_rewards).does_clip

    def add(self, chunks: Sequence[SingleAgentEpisode]) -> None:
        """Takes in what was sampled.

        Every observation that an env returned counts once: the last one of a chunk that was cut is
        the first one of the next, and counts there no more.

        Args:
            chunks: ordered by env slot, then time; after `to_numpy()`.

        Raises:
            EpisodeError: a number is not finite; nothing is changed.
        """
        observations, returns, running = self._observations, self._returns, self._running
        played = [chunk for chunk in chunks if len(chunk) > 0]
        if not played:
            return
        if self.settings.observations:
            rows = [self._fresh_rows(chunk) for chunk in played]
            observations = observations.merged(RunningMoments.of(np.concatenate(rows)))
        if self.settings.rewards:
            running = dict(running)
            sums = np.concatenate([self._discounted(chunk, running) for chunk in played])
            returns = returns.merged(RunningMoments.of(sums[:, None]))
            for id_ in list(running)[: -self.settings.num_slots]:
                del running[id_]  # of episodes that were given up
        self._observations, self._returns, self._running = observations, returns, running

    def with_clipped_rewards(
        self, chunks: Sequence[SingleAgentEpisode]
    ) -> Sequence[SingleAgentEpisode]:
        """The chunks as a replay buffer stores them, which adds rewards up before they are scaled.

        Chunks that are changed are copies, because callbacks may hold the others.
        """
        transform = RewardTransform(self.settings.clip_rewards)
        if not transform.does_clip:
            return chunks
        return [with_rewards(chunk, transform.clipped(chunk.rewards.data)) for chunk in chunks]

    def current(self) -> Normalization:
        """What follows from everything seen so far."""
        normalizer, transform = None, self.reward_transform
        if self.settings.observations:
            normalizer = ObservationNormalizer.of(
                self._observations, is_normalized=self._encoder.is_scalable
            )
        if normalizer is None and transform is None:
            return NOTHING
        return Normalization(normalizer, transform)

    @property
    def reward_transform(self) -> RewardTransform | None:
        """The part of `current` for rewards, which learners take as soon as a sample was added."""
        clipping = RewardTransform(self.settings.clip_rewards)
        if self.settings.rewards:
            return replace(clipping, factor=float(1.0 / (self._returns.std[0] + EPSILON)))
        return clipping if clipping.does_clip else None

    def get_state(self) -> State:
        """Plain data: the moments, and the discounted returns of running episodes."""
        return {
            "observations": self._observations.get_state(),
            "returns": self._returns.get_state(),
            "running": dict(self._running),
        }

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it; changes nothing."""
        now = self.get_state()
        moments = {name: like(now[name]) for name in ("observations", "returns")}
        check_shape(state, fields({**moments, "running": dict_of(ANY_NUMBER)}))

    def set_state(self, state: State) -> None:
        """Goes on where `get_state` was called."""
        self._observations = RunningMoments.from_state(state["observations"])
        self._returns = RunningMoments.from_state(state["returns"])
        self._running = dict(state["running"])

    def _fresh_rows(self, chunk: SingleAgentEpisode) -> Array:
        """The encoded observations of a chunk that no earlier chunk had, [T or T + 1, D]."""
        rows = self._encoder.encode(chunk.get_observations())
        return rows[1:] if chunk.t_started > 0 else rows

    def _discounted(self, chunk: SingleAgentEpisode, running: dict[str, float]) -> Array:
        """R_t = γ R_{t-1} + r_t over a chunk, float64 [T]; R goes on where the last chunk ended."""
        rewards = RewardTransform(self.settings.clip_rewards).clipped(
            np.asarray(chunk.get_rewards(), np.float64)
        )
        gamma, total = self.settings.gamma, running.pop(chunk.id_, 0.0)
        sums = []
        for reward in rewards.tolist():
            total = gamma * total + reward
            sums.append(total)
        if not chunk.is_done:
            running[chunk.id_] = total
        return np.array(sums)


# ---- actions
#
# From what policies choose to what `env.step` gets. Episodes keep actions as the policy emitted
# them, because that is what log-probabilities belong to; the env gets them shifted, scaled or
# clipped to its action space.

_Decode = Callable[[Any], Any]


class ActionDecoder:
    """Turns actions of a policy into actions of an env's space.

    Discrete and MultiDiscrete: the policy counts alternatives from 0; the space's `start` is added.
    Box of integers: likewise, from the lower bound. MultiBinary: unchanged.
    Box of floats: with `normalize_actions`, a dimension with both bounds is scaled from [-1, 1] to
    them, and everything is clipped to the bounds; otherwise, with `clip_actions`, it is only
    clipped. Dimensions without bounds stay unchanged.
    Dict and Tuple: part by part.

    What the env gets is in memory of its own: an env that writes into its action changes nothing
    else.

    Attributes:
        is_identity: actions are single integers that `to_env` returns unchanged, so that callers
            may skip it.
    """

    def __init__(
        self, space: gym.Space[Any], *, normalize_actions: bool = True, clip_actions: bool = False
    ) -> None:
        """Plans the decoding; an UnsupportedSpaceError for a space without possible choices."""
        self._decode = _decoder(space, normalize_actions, clip_actions)
        self.is_identity = self._decode is None

    def to_env(self, action: Any) -> Any:
        """What the env gets for an action of the policy.

        Args:
            action: one action, or a batch of them with a leading dimension; every row is decoded by
                itself. Nested actions are dicts and tuples of such.
        """
        return action if self._decode is None else self._decode(action)


def before_decoding_of(actions: Any, space: gym.Space[Any], *, normalize_actions: bool) -> Any:
    """What a policy would have had to choose for these actions of an env: `to_env`, turned back.

    Args:
        actions: a batch [B, ...] of the space; of nested spaces dicts and tuples of such.
        space: of the env.
        normalize_actions: as of the `ActionDecoder`.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        pairs: Any = space.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        parts = {
            key: before_decoding_of(actions[key], part, normalize_actions=normalize_actions)
            for key, part in pairs
        }
        return parts if isinstance(space, spaces.Dict) else tuple(parts.values())
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return actions - space.start
    if isinstance(space, spaces.Box) and is_integer_box(space):
        return actions.astype(np.int64) - space.low.astype(np.int64)
    if not (normalize_actions and isinstance(space, spaces.Box)):
        return actions
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    is_bounded = np.isfinite(low) & np.isfinite(high) & (low < high)
    low, high = np.where(is_bounded, low, -1.0), np.where(is_bounded, high, 1.0)
    middle, half_range = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
    return ((actions - middle) / half_range).astype(space.dtype)


def before_decoding(space: gym.Space[Any], *, normalize_actions: bool) -> gym.Space[Any]:
    """The space whose uniform draws become uniform draws of `space` by `ActionDecoder.to_env`."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict(
            {
                key: before_decoding(part, normalize_actions=normalize_actions)
                for key, part in space.spaces.items()
            }
        )
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple(
            [before_decoding(part, normalize_actions=normalize_actions) for part in space.spaces]
        )
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec)
    if isinstance(space, spaces.Box) and is_integer_box(space):
        return spaces.MultiDiscrete(alternatives_of_integer_box(space))
    if not (normalize_actions and isinstance(space, spaces.Box)):
        return space
    is_bounded = space.bounded_below & space.bounded_above
    return spaces.Box(
        np.where(is_bounded, -1.0, space.low).astype(space.dtype),
        np.where(is_bounded, 1.0, space.high).astype(space.dtype),
        dtype=space.dtype,
    )


def _decoder(space: gym.Space[Any], normalize_actions: bool, clip_actions: bool) -> _Decode | None:
    """The function that decodes actions of a space; None if they stay as they are: integers."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _nested_decoder(space, normalize_actions, clip_actions)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) and np.any(space.start):
        start = space.start
        return lambda action: action + start
    if isinstance(space, spaces.Discrete):
        return None
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return np.array
    if isinstance(space, spaces.Box) and is_integer_box(space):
        return _integers_from(space)
    if isinstance(space, spaces.Box) and is_float_box(space):
        decoder = _FloatDecoder(space, normalize_actions=normalize_actions)
        has_bounds = bool(np.isfinite(space.low).any() or np.isfinite(space.high).any())
        if has_bounds and (normalize_actions or clip_actions):
            return decoder
        # A single number is an array for the env, too, and of its number type.
        return functools.partial(np.array, dtype=space.dtype)
    raise UnsupportedSpaceError(
        f"Actions for the space {space} cannot be chosen: possible are {ACTION_SPACES}. Change the "
        "action space with a wrapper around the env."
    )


def _nested_decoder(
    space: spaces.Dict | spaces.Tuple[Any], normalize_actions: bool, clip_actions: bool
) -> _Decode | None:
    """Decodes part by part."""
    pairs: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    decoders = {key: _decoder(part, normalize_actions, clip_actions) for key, part in pairs}
    if isinstance(space, spaces.Tuple) and all(decode is None for decode in decoders.values()):
        return None  # a tuple of integers cannot be written into

    def decode_parts(action: Any) -> Any:
        decoded = {
            key: action[key] if decode is None else decode(action[key])
            for key, decode in decoders.items()
        }
        return decoded if isinstance(action, dict) else tuple(decoded.values())

    return decode_parts


def _integers_from(space: spaces.Box) -> _Decode:
    """Counts from the lower bound, in 64 bits."""
    alternatives_of_integer_box(space)  # refuses too many
    low = space.low if space.dtype == np.uint64 else space.low.astype(np.int64)
    return lambda action: np.asarray(low + action.astype(low.dtype)).astype(space.dtype)


class _FloatDecoder:
    """Scales and clips actions of a Box of floats."""

    def __init__(self, space: spaces.Box, *, normalize_actions: bool) -> None:
        self._low, self._high = space.low, space.high
        half_range = 0.5 * space.high.astype(np.float64) - 0.5 * space.low.astype(np.float64)
        self._is_bounded = np.isfinite(half_range)
        # Unbounded dimensions get harmless numbers here; their result is not used.
        self._half_range = np.where(self._is_bounded, half_range, 0.0).astype(space.low.dtype)
        self._scaled_low = np.where(self._is_bounded, space.low, 0.0).astype(space.low.dtype)
        self._is_scaled = normalize_actions and bool(self._is_bounded.any())
        # A range beyond floats is computed by halves. Others not: no bit of theirs may change.
        largest = np.finfo(np.result_type(space.low.dtype, np.float32)).max
        is_beyond = self._half_range > 0.5 * largest
        self._factor = np.where(is_beyond, 2.0, 1.0).astype(np.float32)
        self._is_halved = self._is_scaled and bool(is_beyond.any())
        if self._is_halved:
            self._half_range, self._scaled_low = (
                each / self._factor for each in (self._half_range, self._scaled_low)
            )

    def __call__(self, action: Any) -> Array:
        if self._is_scaled:
            known = np.clip(action, -1.0, 1.0) if self._is_halved else action
            scaled = self._scaled_low + (known + 1.0) * self._half_range
            scaled = scaled * self._factor if self._is_halved else scaled
            action = np.where(self._is_bounded, scaled, action)
        decoded: Array = np.minimum(np.maximum(action, self._low), self._high)
        return np.asarray(decoded).astype(self._low.dtype, copy=False)


def check_shape_of_piece(piece: Any, observation: Any) -> None:
    """Raises a ConfigError unless an observation has the shape of the space that a piece says."""
    space = piece.observation_space
    shape = getattr(space, "shape", None)
    if shape is not None and np.shape(observation) != shape:
        raise ConfigError(
            f"{type(piece).__name__}.preprocess() returned the shape {np.shape(observation)}; "
            f"expected {shape}, as of {space!s:.200}. Say the space of what it returns in "
            "`recompute_output_observation_space`."
        )
