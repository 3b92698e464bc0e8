"""RLlib's methods of `SampleBatch`, and its old buffers that store batches."""

import numpy as np
import pytest

from trainer import PrioritizedReplayBuffer, ReplayBuffer, SampleBatch
from trainer.connectors.sample_batch import concat_samples
from trainer.errors import EpisodeError, ReplayError


def batch_of(*lengths, first=0):
    """Whole episodes of these lengths, numbered from `first`."""
    ids = np.repeat(np.arange(first, first + len(lengths)), lengths)
    steps = np.concatenate([np.arange(length) for length in lengths])
    ends = np.concatenate([np.arange(length) == length - 1 for length in lengths])
    return SampleBatch(
        {
            "obs": np.stack([ids, steps], axis=1).astype(np.float32),
            "eps_id": ids,
            "t": steps,
            "terminateds": ends,
            "truncateds": np.zeros(len(ids), bool),
        }
    )


def test_lists_become_arrays_and_rows_are_counted():
    batch = SampleBatch({"a": [1, 2, 3], "b": [[0.5], [1.5], [2.5]], "infos": [{}, {}, {}]})
    assert (batch.count, len(batch), batch["b"].shape) == (3, 3, (3, 1))
    assert batch["infos"] == [{}, {}, {}]
    with pytest.raises(EpisodeError, match="different numbers of rows"):
        SampleBatch({"a": [1, 2, 3], "b": [1, 2]})


def test_concatenating_gives_the_rows_of_all():
    first, second = batch_of(2), batch_of(3, first=1)
    joined = concat_samples([first, SampleBatch(), second])
    assert joined["eps_id"].tolist() == [0, 0, 1, 1, 1]
    assert first.concat(second)["obs"].tolist() == joined["obs"].tolist()
    with pytest.raises(EpisodeError, match="same columns"):
        first.concat(SampleBatch({"obs": [1.0]}))


def test_rows_columns_and_slices():
    batch = batch_of(2, 2)
    assert [int(row["t"]) for row in batch.rows()] == [0, 1, 0, 1]
    assert [column.tolist() for column in batch.columns(["t", "eps_id"])] == [
        [0, 1, 0, 1],
        [0, 0, 1, 1],
    ]
    part = batch[1:3]
    assert part["t"].tolist() == batch.slice(1, 3)["t"].tolist() == [1, 0]
    assert np.shares_memory(part["obs"], batch["obs"])
    assert not np.shares_memory(batch.copy()["obs"], batch["obs"])
    assert np.shares_memory(batch.copy(shallow=True)["obs"], batch["obs"])


def test_shuffling_moves_whole_rows_and_can_be_repeated():
    batch, again = batch_of(20, 20), batch_of(20, 20)
    before = {tuple(row) for row in batch["obs"].tolist()}
    assert batch.shuffle() is batch
    again.shuffle()
    assert batch["t"].tolist() != list(range(20)) * 2
    assert {tuple(row) for row in batch["obs"].tolist()} == before
    assert (batch["obs"][:, 1] == batch["t"]).all()
    assert (batch["t"] == again["t"]).all()
    other = batch_of(20, 20).shuffle(np.random.default_rng(1))
    assert (other["t"] != batch["t"]).any()
    with pytest.raises(EpisodeError, match="seq_lens"):
        SampleBatch({"a": [1, 2], "seq_lens": [2]}).shuffle()


def test_episodes_are_told_apart_by_id_or_by_their_ends():
    batch = batch_of(1, 3, 2)
    assert [part.count for part in batch.split_by_episode()] == [1, 3, 2]
    del batch["eps_id"]
    assert [part.count for part in batch.split_by_episode()] == [1, 3, 2]
    assert not batch.is_single_trajectory()
    assert batch.is_terminated_or_truncated()
    with pytest.raises(EpisodeError, match="do not tell episodes apart"):
        SampleBatch({"a": [1, 2]}).split_by_episode()


@pytest.mark.parametrize(
    ("arguments", "counts"),
    [({"size": 2}, [2, 2, 1]), ({"k": 5}, [5]), ({"num_slices": 2}, [2, 3])],
)
def test_timeslices(arguments, counts):
    assert [part.count for part in batch_of(5).timeslices(**arguments)] == counts
    for wrong in ({}, {"size": 0}, {"size": 1, "num_slices": 2}):
        with pytest.raises(EpisodeError, match="timeslices"):
            batch_of(5).timeslices(**wrong)


def test_a_buffer_of_timesteps_draws_rows_evenly_and_overwrites_the_oldest():
    buffer = ReplayBuffer(capacity=15, storage_unit="timesteps")
    for number in range(3):
        buffer.add(batch_of(5, first=number))
    assert len(buffer) == 15
    drawn = buffer.sample(3000)["eps_id"]
    np.testing.assert_allclose(np.bincount(drawn) / 3000, [1 / 3] * 3, atol=0.05)
    buffer.add(batch_of(5, first=3))
    assert len(buffer) == 15
    assert set(buffer.sample(500)["eps_id"].tolist()) == {1, 2, 3}


def test_a_buffer_of_sequences_draws_sequences():
    buffer = ReplayBuffer(capacity=100, storage_unit="sequences")
    for length in (1, 2, 3):
        buffer.add(SampleBatch({"id": [length] * length, "seq_lens": [length]}))
    buffer.add(SampleBatch({"id": [4] * 4, "seq_lens": [2, 2]}))
    assert len(buffer) == 5
    ids = []
    for _ in range(500):
        batch = buffer.sample(1)
        assert len(batch["seq_lens"]) == 1
        assert batch.count == batch["seq_lens"][0]
        ids.append(int(batch["id"][0]))
    np.testing.assert_allclose(np.bincount(ids)[1:] / 500, [0.2, 0.2, 0.2, 0.4], atol=0.07)


def test_a_buffer_of_episodes_leaves_out_those_that_do_not_end():
    buffer = ReplayBuffer(capacity=18, storage_unit="episodes")
    buffer.add(batch_of(4, 4))
    buffer.add(batch_of(2, 3, first=2)[:4])
    assert len(buffer) == 3
    assert set(buffer.sample(200)["eps_id"].tolist()) == {0, 1, 2}


def test_a_buffer_goes_on_from_its_state_with_the_same_draws():
    buffer = ReplayBuffer(capacity=40, storage_unit="fragments")
    for number in range(6):
        buffer.add(batch_of(2, first=number))
    buffer.sample(3)
    other = ReplayBuffer(capacity=40, storage_unit="fragments")
    other.set_state(buffer.get_state())
    assert buffer.sample(20)["eps_id"].tolist() == other.sample(20)["eps_id"].tolist()
    assert buffer.sample(20)["eps_id"].tolist() != buffer.sample(20)["eps_id"].tolist()
    assert buffer.stats()["added_count"] == 12


def test_a_buffer_with_priorities_draws_by_them():
    buffer = PrioritizedReplayBuffer(capacity=10, storage_unit="timesteps", alpha=1.0)
    buffer.add(batch_of(1), weight=1.0)
    buffer.add(batch_of(1, first=1), weight=3.0)
    batch = buffer.sample(2000, beta=1.0)
    assert np.mean(batch["eps_id"] == 1) == pytest.approx(0.75, abs=0.04)
    weights = {int(i): float(w) for i, w in zip(batch["eps_id"], batch["weights"], strict=True)}
    assert weights == {0: pytest.approx(1.0), 1: pytest.approx(1 / 3)}
    buffer.update_priorities([1], [1e-9])
    assert not buffer.sample(200)["eps_id"].any()
    with pytest.raises(ReplayError, match="priority"):
        buffer.update_priorities([7], [1.0])


def test_what_does_not_fit_is_told():
    with pytest.raises(ReplayError, match='storage_unit="timesteps"'):
        ReplayBuffer(capacity=4).add(batch_of(2))
    with pytest.raises(ReplayError, match="expected one of timesteps"):
        ReplayBuffer(capacity=4, storage_unit="steps")
    buffer = ReplayBuffer(capacity=4, storage_unit="timesteps")
    with pytest.raises(ReplayError, match="expected a SampleBatch"):
        buffer.add([1])
    assert buffer.sample(1) is None
