"""Recorded episodes in an order that follows from seed and position."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from checkpoints import CheckpointMismatchError, check_shape
from trainer.episodes import SingleAgentEpisode
from trainer.errors import EpisodeError
from trainer.offline.checking import EpisodeColumns, RecordingForm
from trainer.offline.files import find_episodes
from trainer.seeding import Role, position_rng
from trainer.types import State
from trainer_toolkit.checks import COUNT, fields, text

HELD_BYTES: Final = 2**30
"""So much of the recordings stays in memory; the rest is read again whenever its turn comes."""


class Recordings:
    """All recorded episodes of some files, checked against the spaces of an env.

    Every file is read once when this is made, so that what does not fit is told at once.

    Attributes:
        num_steps: env steps of all episodes.
        fingerprint: follows from the numbers of all episodes and their order, not from where the
            files are, nor from their kind.
    """

    def __init__(
        self,
        inputs: Sequence[str | os.PathLike[str]],
        form: RecordingForm,
        *,
        schema: Mapping[str, str] | None = None,
    ) -> None:
        """Reads and checks; arguments as of `find_episodes`.

        Raises:
            EpisodeError: something cannot be read, or does not fit; names file, episode and column.
            ImportError: the package that reads a kind of file is not installed.
        """
        self._sources = find_episodes(inputs, schema=schema or {})
        self._form = form
        self._held: dict[int, EpisodeColumns] = {}
        self._digests: list[bytes] = []
        self.lengths: list[int] = []
        left = HELD_BYTES
        for number, source in enumerate(self._sources):
            columns = form.columns_of(source)
            self.lengths.append(len(columns))
            self._digests.append(columns.digest())
            left -= columns.num_bytes
            if left >= 0:
                self._held[number] = columns
        self.num_steps = sum(self.lengths)
        self.fingerprint = hashlib.sha256(b"".join(self._digests)).hexdigest()

    def __len__(self) -> int:
        """How many episodes there are."""
        return len(self._sources)

    def episode(self, number: int) -> SingleAgentEpisode:
        """One of them, 0 ≤ number < len(self); its arrays cannot be written to.

        Raises:
            EpisodeError: the file is another one by now.
        """
        columns = self._held.get(number)
        if columns is None:
            columns = self._form.columns_of(self._sources[number])
            if columns.digest() != self._digests[number]:
                raise EpisodeError(
                    f"The recording {columns.name} was changed since learning began. Put back what "
                    "was there, or begin a new run."
                )
        return columns.episode()


class RecordingReader:
    """Reads recordings again and again, each pass in an order of its own.

    The order of a pass is drawn from the root seed and the number of the pass, so where reading
    stands is two numbers.

    Attributes:
        num_passes: passes that are over.
        num_read: episodes of the current one that were read.
    """

    def __init__(self, recordings: Recordings) -> None:
        self.recordings = recordings
        self.num_passes = 0
        self.num_read = 0
        self._order_of: tuple[int, int] | None = None  # root seed and pass
        self._drawn = np.empty(0, np.int64)

    def next_episodes(self, num_steps: int, *, root_seed: int) -> list[SingleAgentEpisode]:
        """The next whole episodes: as many as have so many env steps, at most a whole pass.

        Args:
            num_steps: env steps, ≥ 1.
            root_seed: of the run.
        """
        recordings, found = self.recordings, 0
        episodes: list[SingleAgentEpisode] = []
        while found < num_steps and len(episodes) < len(recordings):
            number = int(self._order(root_seed)[self.num_read])
            episodes.append(recordings.episode(number))
            found += recordings.lengths[number]
            self.num_read += 1
            if self.num_read == len(recordings):
                self.num_passes, self.num_read = self.num_passes + 1, 0
        return episodes

    def _order(self, root_seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        key = (root_seed, self.num_passes)
        if self._order_of != key:
            rng = position_rng(root_seed, Role.RECORDINGS, self.num_passes)
            self._drawn, self._order_of = rng.permutation(len(self.recordings)), key
        return self._drawn

    def get_state(self) -> State:
        """Where reading stands, and in which recordings."""
        return {
            "num_passes": self.num_passes,
            "num_read": self.num_read,
            "fingerprint": self.recordings.fingerprint,
        }

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it; changes nothing."""
        form = {"num_passes": COUNT, "num_read": COUNT, "fingerprint": text()}
        check_shape(state, fields(form))
        own = self.recordings
        if state["fingerprint"] != own.fingerprint:
            raise CheckpointMismatchError(
                "The checkpoint was learning from other recordings: their fingerprint is "
                f"{state['fingerprint']:.12}, that of the {len(own):,} episodes which `input_` "
                f"names is {own.fingerprint:.12}. Give the same recordings, or begin a new run "
                "with the weights of the checkpoint."
            )
        if state["num_read"] >= len(own):
            raise CheckpointMismatchError(
                f"The checkpoint has read {state['num_read']} episodes of a pass over {len(own)}; "
                "its file was changed."
            )

    def set_state(self, state: State) -> None:
        """Goes on where `get_state` was called, in the same recordings."""
        self.check_state(state)
        self.num_passes, self.num_read = int(state["num_passes"]), int(state["num_read"])
