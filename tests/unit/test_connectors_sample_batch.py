"""SampleBatch: a dict of columns that counts rows."""

import pickle

import numpy as np
import pytest

from trainer.connectors import SampleBatch
from trainer.connectors.sample_batch import fitted_column, read_only
from trainer.errors import EpisodeError


def batch():
    return SampleBatch({"obs": {"a": np.zeros((3, 2))}, "rewards": np.arange(3.0)})


def test_rows_are_counted_and_columns_are_keys():
    assert batch().count == len(batch()) == 3
    assert list(batch()) == ["obs", "rewards"]
    assert SampleBatch().count == len(SampleBatch()) == 0
    assert dict(batch()).keys() == batch().keys()


def test_a_copy_shares_nothing_unless_told_to():
    original = batch()
    copy, shallow = original.copy(), original.copy(shallow=True)
    original["rewards"][0] = 9.0
    original["obs"]["a"][0, 0] = 9.0
    assert copy["rewards"][0] == copy["obs"]["a"][0, 0] == 0.0
    assert shallow["rewards"] is original["rewards"]
    assert type(copy) is type(shallow) is SampleBatch


def test_a_batch_travels():
    travelled = pickle.loads(pickle.dumps(batch()))
    assert isinstance(travelled, SampleBatch)
    assert travelled["rewards"].tolist() == [0.0, 1.0, 2.0]


def test_an_unknown_column_is_answered_with_the_nearest():
    with pytest.raises(KeyError, match="did you mean 'rewards'"):
        batch()["reward"]
    with pytest.raises(KeyError, match="'terminateds' and 'truncateds'"):
        batch()["dones"]
    assert batch().get("reward") is None


def test_read_only_columns_say_so_where_they_are_written_to():
    column = read_only((np.zeros(2), {"b": np.zeros(2)}))
    with pytest.raises(ValueError, match="read-only"):
        column[1]["b"][0] = 1.0


def test_a_rewritten_column_gets_its_dtype_back():
    like = np.zeros((2, 1), np.float32)
    fitted = fitted_column("obs", [[1], [2]], like=like, num_rows=2)
    assert fitted.dtype == np.float32
    assert fitted.tolist() == [[1.0], [2.0]]
    with pytest.raises(EpisodeError, match=r"tuple with 1 parts"):
        fitted_column("obs", (like, like), like=(like,), num_rows=2)


def test_nobody_is_blamed_for_numbers_that_were_not_finite_before():
    like = np.array([np.nan, 1.0])
    assert fitted_column("rewards", like + 1.0, like=like, num_rows=2)[1] == 2.0
    with pytest.raises(EpisodeError, match="nan in row 0"):
        fitted_column("rewards", like, like=np.zeros(2), num_rows=2)
