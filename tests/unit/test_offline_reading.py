"""The order in which recordings are read follows from seed and position."""

import shutil

import numpy as np
import pytest

from checkpoints import CheckpointMismatchError
from tests.unit.test_offline_files import FORM, arrays, recorded
from trainer.errors import EpisodeError
from trainer.offline import RecordingReader, Recordings, reading

NUM = 7


@pytest.fixture
def folder(tmp_path):
    """Seven episodes of 1 to 7 steps."""
    return recorded(tmp_path / "r", *[arrays(1 + number, seed=number) for number in range(NUM)])


def reader(folder):
    return RecordingReader(Recordings([folder], FORM))


def lengths(subject, num_steps=1, *, seed=3):
    return [len(one) for one in subject.next_episodes(num_steps, root_seed=seed)]


def passes(subject, count, **options):
    return [[lengths(subject, **options)[0] for _ in range(NUM)] for _ in range(count)]


def test_every_pass_reads_every_episode_once_in_an_order_of_its_own(folder):
    first, second = passes(reader(folder), 2)
    assert sorted(first) == sorted(second) == list(range(1, 1 + NUM))
    assert first != second


def test_the_order_follows_from_the_seed(folder):
    assert passes(reader(folder), 2) == passes(reader(folder), 2)
    assert passes(reader(folder), 2) != passes(reader(folder), 2, seed=4)


def test_a_batch_is_whole_episodes_and_goes_on_over_the_end_of_a_pass(folder):
    subject = reader(folder)
    batches = [lengths(subject, 10) for _ in range(6)]
    assert all(sum(batch) >= 10 > sum(batch[:-1]) for batch in batches)
    flat = [length for batch in batches for length in batch]
    assert flat[:NUM] + flat[NUM : 2 * NUM] == [n for one in passes(reader(folder), 2) for n in one]


def test_a_batch_that_wants_more_than_there_is_gets_a_whole_pass(folder):
    subject = reader(folder)
    assert sorted(lengths(subject, 10**9)) == list(range(1, 1 + NUM))
    assert (subject.num_passes, subject.num_read) == (1, 0)


def test_reading_goes_on_where_a_state_stands(folder):
    subject, other = reader(folder), reader(folder)
    for _ in range(NUM + 3):
        lengths(subject)
    other.set_state(subject.get_state())
    assert passes(other, 2) == passes(subject, 2)


# ---- which recordings they are


def test_a_state_of_other_recordings_is_refused_and_changes_nothing(folder, tmp_path):
    state = {**reader(folder).get_state(), "num_read": 2}
    (folder / "training-0-3.npz").unlink()
    other = reader(folder)
    with pytest.raises(CheckpointMismatchError, match="was learning from other recordings"):
        other.set_state(state)
    assert (other.num_passes, other.num_read) == (0, 0)


def test_a_position_that_no_pass_has_is_refused(folder):
    subject = reader(folder)
    with pytest.raises(CheckpointMismatchError, match="has read 7 episodes of a pass over 7"):
        subject.set_state({**subject.get_state(), "num_read": NUM})


@pytest.mark.parametrize(
    "changed",
    [
        {"rewards": np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.5])},
        {"truncated": np.array(True)},
        {"actions": np.array([0, 1, 2, 0, 1, 1])},
        {"observations": np.zeros((7, 2), np.float32)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_the_fingerprint_follows_from_every_number(folder, changed):
    before = reader(folder).recordings.fingerprint
    episodes = [arrays(1 + number, seed=number) for number in range(NUM)]
    recorded(folder, *episodes)
    assert reader(folder).recordings.fingerprint == before
    episodes[5].update(changed)
    recorded(folder, *episodes)
    assert reader(folder).recordings.fingerprint != before


def test_the_fingerprint_does_not_follow_from_where_files_are(folder, tmp_path):
    moved = shutil.copytree(folder, tmp_path / "elsewhere")
    assert reader(moved).recordings.fingerprint == reader(folder).recordings.fingerprint


# ---- more than memory holds


def test_what_is_not_held_is_read_again_and_is_the_same(folder, monkeypatch):
    held = [[one.get_rewards().tolist() for one in _all(reader(folder))]]
    monkeypatch.setattr(reading, "HELD_BYTES", 200)
    subject = reader(folder)
    assert len(subject.recordings._held) in range(1, NUM)
    assert [[one.get_rewards().tolist() for one in _all(subject)]] == held


def _all(subject):
    return subject.next_episodes(10**9, root_seed=3)


def test_a_file_that_changes_meanwhile_is_told(folder, monkeypatch):
    monkeypatch.setattr(reading, "HELD_BYTES", 0)
    subject = reader(folder)
    recorded(folder, *[arrays(1 + number, seed=50 + number) for number in range(NUM)])
    with pytest.raises(EpisodeError, match="was changed since learning began"):
        _all(subject)
