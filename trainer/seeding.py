"""Randomness as a function of position: no random state is ever saved.

Every stream of random numbers is derived, when it is needed, from the root seed, a role and a
position:

    a training episode's seed and noise        (root seed, role, env slot, episode number)
    an evaluation episode's seed and noise     (root seed, role, evaluation number, ticket)
    the order of minibatches                   (root seed, "learner", update number)
    the first weights                          (root seed, "weights")
    dropout in an update                       (root seed, "module", update number)

A resumed or repaired run therefore draws the numbers that an undisturbed one draws, and any episode
can be played again alone. `seed + i` is not used anywhere: it would make neighbouring runs share
streams.

Streams come from `numpy.random.Philox`, a counter-based generator (Salmon et al. 2011, "Parallel
random numbers: as easy as 1, 2, 3"): a role has one key, an episode one block of its counter, so
that starting an episode's stream means setting a counter (about 1 µs) instead of hashing a seed
(about 15 µs).
"""

from __future__ import annotations

import enum
import hashlib
import random
import secrets
from collections.abc import Callable, Iterator, Mapping
from operator import length_hint
from typing import Any, Final, Literal

import numpy as np

from trainer.types import DEFAULT_AGENT_ID, AgentId, Array

_ENV_SEED_BITS: Final = 31
_FIRST_BLOCK_ROWS: Final = 32
_LARGEST_BLOCK_ROWS: Final = 1024
_NO_ROWS: Final = np.empty((0, 1))


class Role(enum.IntEnum):
    """What a stream of random numbers is used for; part of every derivation."""

    TRAINING = 0
    EVALUATION = 1
    LEARNER = 2
    WEIGHTS = 3
    REPLAY = 4
    EXPLORATION = 5
    WORKER = 6
    MODULE = 7
    AGENT = 8
    MAPPING = 9
    TUNE = 10
    RECORDINGS = 11


NoiseKind = Literal["uniform", "normal", "gumbel"]
"""Uniform on [0, 1), standard normal, or standard Gumbel."""

NOISE_DRAWS: Final[Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], Array]]] = {
    "uniform": lambda rng, shape: rng.random(shape),
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "gumbel": lambda rng, shape: rng.gumbel(size=shape),
}
"""How noise of each kind is drawn: float64 of the given shape."""


def draw_root_seed() -> int:
    """A fresh root seed from the operating system, in [0, 2**31), for runs whose seed is None."""
    return secrets.randbits(31)


def position_rng(root_seed: int, role: Role, *position: int) -> np.random.Generator:
    """A generator for one position of one role, e.g. the update number of the learner.

    Args:
        root_seed: the seed of the run, ≥ 0.
        role: what the numbers are for.
        position: non-negative integers that say where the stream stands.
    """
    sequence = np.random.SeedSequence(root_seed, spawn_key=(int(role), *position))
    return np.random.Generator(np.random.Philox(sequence))


def id_digest(id_: int | str) -> int:
    """64 bits that follow from an id alone: never from Python's `hash`, nor from a place in a list.

    They are the first of SHA-256 over a letter for the type and the id's text, so that 0 and "0"
    differ.
    """
    text = f"{'i' if isinstance(id_, int) else 's'}{id_}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def agent_position(agent_id: AgentId) -> tuple[int, ...]:
    """What is appended to the positions of an agent's random numbers.

    Nothing for the agent of a single-agent env, so that an env of several agents with this one
    alone plays what the single-agent env plays; else the digest.
    """
    return () if agent_id == DEFAULT_AGENT_ID else (id_digest(agent_id),)


def learner_rng(
    root_seed: int, update_number: int, *, of: tuple[int, ...] = ()
) -> np.random.Generator:
    """The generator that shuffles the minibatches of one update.

    Args:
        root_seed: the seed of the run, ≥ 0.
        update_number: of the module, ≥ 0.
        of: which module, where there are others than the default one.
    """
    return position_rng(root_seed, Role.LEARNER, update_number, *of)


def weights_rng(root_seed: int, *, of: tuple[int, ...] = ()) -> np.random.Generator:
    """The generator that draws the first weights; `of` as in `learner_rng`."""
    return position_rng(root_seed, Role.WEIGHTS, *of)


class PositionStream:
    """Generators for the positions 0, 1, 2 … of one role, where making one must be cheap.

    One key per role and one block of the counter per position: 1.5 µs, where `position_rng` takes
    25 µs.
    """

    def __init__(self, root_seed: int, role: Role, *, of: tuple[int, ...] = ()) -> None:
        """Derives the key of the role; `of` as in `learner_rng`."""
        sequence = np.random.SeedSequence(root_seed, spawn_key=(int(role), *of))
        key = sequence.generate_state(2, np.uint64)
        self._bits = np.random.Philox(key=int(key[0]) | int(key[1]) << 64)
        self._template: Any = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def at(self, position: int) -> np.random.Generator:
        """The generator at the beginning of a position in [0, 2**64).

        It is one object: the generator of the position before is of no use afterwards.
        """
        # The low words count the numbers drawn, so positions can never run into each other.
        self._template["state"]["counter"][:] = (0, 0, position, 0)
        self._bits.state = self._template
        return self._generator


def training_index(slot: int, episode_number: int, num_slots: int) -> int:
    """One integer per (slot, episode number); room for slots is rounded up to a power of two.

    So a run that is continued with another number of envs keeps its numbering unless it crosses a
    power of two.
    """
    return (episode_number << (num_slots - 1).bit_length()) | slot


def evaluation_index(evaluation_number: int, ticket: int) -> int:
    """One integer per (evaluation number, ticket): Cantor's pairing."""
    both = evaluation_number + ticket
    return both * (both + 1) // 2 + ticket


class EnvSeeds:
    """Seeds for `env.reset`: 31 bits, and no two episodes of a run share one.

    Seeds stay below 2**31 because many envs hand them on to C code or to `numpy.random.seed`.
    Random 31-bit numbers would collide after some 50,000 episodes, so the seed is a keyed
    *permutation* of the episode's index instead: each step below (add a key, multiply by an odd
    number, fold the high bits in) can be undone modulo 2**31. The lowest bit of the index tells
    training from evaluation, so these two never share a seed either.
    """

    def __init__(self, root_seed: int) -> None:
        sequence = np.random.SeedSequence(root_seed, spawn_key=(1 << 31,))
        self._keys = _permutation_keys(sequence)

    def seed(self, role: Role, index: int) -> int:
        """The seed of one episode.

        Args:
            role: TRAINING or EVALUATION.
            index: the episode's number among all episodes of that role (`training_index`,
                `evaluation_index`), ≥ 0. Seeds repeat after 2**30.
        """
        return _permuted((index << 1) | (role is Role.EVALUATION), self._keys)


def trial_seed(experiment_seed: int, number: int) -> int:
    """The seed of one trial of an experiment, in [0, 2**31): no two trials share one."""
    sequence = np.random.SeedSequence(experiment_seed, spawn_key=(int(Role.TUNE), 1 << 31))
    return _permuted(number, _permutation_keys(sequence))


def _permutation_keys(sequence: np.random.SeedSequence) -> tuple[int, ...]:
    return tuple(int(key) for key in sequence.generate_state(4, np.uint32))


def _permuted(index: int, keys: tuple[int, ...]) -> int:
    mask = (1 << _ENV_SEED_BITS) - 1
    value = index & mask
    for key in keys:
        value = (value + key) & mask
        value = (value * (key | 1)) & mask
        value ^= value >> 15
    return value


class NoiseStream:
    """The random numbers of one env slot: a fresh sequence for every episode, a row per step.

    Life: `start(stream, number)` at the beginning of an episode, then `next_row()` once per step,
    or `rows_ahead()` and `pass_over` for several steps at once. To continue in the middle of an
    episode, start it and take as many rows as steps were made.

    Attributes:
        next_row: gives the numbers for the next step: float64, [width].

    Numbers are drawn in blocks that double from 32 to 1024 rows: one call to NumPy costs about 1 µs
    however few numbers it gives, and short episodes should not pay for long blocks. The sizes are
    part of the sequence: changing them changes every run.
    """

    def __init__(
        self,
        root_seed: int,
        role: Role,
        *,
        kind: NoiseKind,
        width: int,
        agent: tuple[int, ...] = (),
    ) -> None:
        """Derives the key of the role.

        Args:
            root_seed: the seed of the run, ≥ 0.
            role: what the numbers are for.
            kind: which noise (`NoiseKind`).
            width: the numbers per row, ≥ 1.
            agent: whose numbers, where there are several agents (`agent_position`).
        """
        place = (int(Role.AGENT), int(role), *agent) if agent else (int(role),)
        sequence = np.random.SeedSequence(root_seed, spawn_key=place)
        key = sequence.generate_state(2, np.uint64)
        self._bits = np.random.Philox(key=int(key[0]) | int(key[1]) << 64)
        state: Any = self._bits.state
        # Lists instead of arrays: setting the state takes 0.3 µs instead of 1.1.
        self._counter = [0, 0, 0, 0]
        parts = {"counter": self._counter, "key": state["state"]["key"].tolist()}
        self._template: Any = {**state, "state": parts, "buffer": state["buffer"].tolist()}
        self._generator = np.random.Generator(self._bits)
        self._draw = NOISE_DRAWS[kind]
        self._width = width
        self.start(0, 0)

    def start(self, stream: int, number: int) -> None:
        """Goes to the first row of one episode.

        Args:
            stream: the env slot (training) or the number of the evaluation, in [0, 2**64).
            number: the number of the episode within the stream, in [0, 2**64).
        """
        # The two low words count the numbers drawn, so episodes can never run into each other.
        self._counter[2], self._counter[3] = number, stream
        self._bits.state = self._template
        self._block: Array = _NO_ROWS
        self._left: Any = iter(_NO_ROWS)
        self._next_size = _FIRST_BLOCK_ROWS
        # A generator's own method: 0.1 µs per row, where a method written here takes 0.3 µs.
        self.next_row: Callable[[], Array] = self._rows().__next__

    def _rows(self) -> Iterator[Array]:
        while True:
            yield from self._left
            if not length_hint(self._left):  # else `rows_ahead` has drawn a block
                self._draw_block()

    def _draw_block(self) -> None:
        size = self._next_size
        self._block = self._draw(self._generator, (size, self._width))
        self._left = iter(self._block)
        self._next_size = min(2 * size, _LARGEST_BLOCK_ROWS)

    def rows_ahead(self) -> Array:
        """The next rows as far as they are drawn, at least one, [N, width]; `pass_over` uses them.

        Not to be written into.
        """
        left = length_hint(self._left)
        if not left:
            self._draw_block()
            return self._block
        return self._block[-left:]

    def pass_over(self, rows: int) -> None:
        """Uses so many of the rows that `rows_ahead` gave: `next_row` goes on behind them."""
        self._left.__setstate__(len(self._block) - length_hint(self._left) + rows)


class GlobalGenerators:
    """Python's and NumPy's global generators, for code that shares its process with other code.

        own = GlobalGenerators()
        with own:
            ...  # finds them as it left them the last time; everybody else finds theirs

    In the first block they stand where they stood.
    """

    def __init__(self) -> None:
        """Keeps nothing yet."""
        self._own: Any = None
        self._outside: Any = None

    def __enter__(self) -> None:
        self._outside = _global_states()
        if self._own is not None:
            _set_global_states(self._own)

    def __exit__(self, *_: object) -> None:
        self._own = _global_states()
        _set_global_states(self._outside)


def _global_states() -> Any:
    return random.getstate(), np.random.get_state()  # noqa: NPY002 - the global one


def _set_global_states(states: Any) -> None:
    of_python, of_numpy = states
    random.setstate(of_python)
    np.random.set_state(of_numpy)  # noqa: NPY002 - the global one
