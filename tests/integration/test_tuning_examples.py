"""The examples of tuning run, and give what they say."""

import importlib.util

import pytest

from examples import tuning

pytestmark = pytest.mark.process


def test_random_search_is_restored_and_extended(tmp_path):
    grid = tuning.random_search(tmp_path)
    best = grid.get_best_result()
    assert best.metrics is not None
    assert best.metrics["loss"] < 1.0
    again = tuning.restored(tmp_path / "random")
    assert [result.rows() for result in again] == [result.rows() for result in grid]
    more = tuning.extended(tmp_path / "random", 10)
    assert len(more) == 10
    assert [result.config for result in more][:8] == [result.config for result in grid]


def test_bad_trials_are_stopped_early(tmp_path):
    grid = tuning.early_stopping(tmp_path)
    lengths = {len(result.rows()) for result in grid}
    assert min(lengths) < 9 == max(lengths)


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="needs the extra [tune]")
def test_optuna_suggests(tmp_path):
    assert len(tuning.suggested_by_optuna(tmp_path)) == 12


def test_a_population_changes_its_settings(tmp_path):
    grid = tuning.population(tmp_path)
    assert [len(result.rows()) for result in grid] == [4] * 4
    assert all(result.checkpoint is not None for result in grid)


def test_the_task_of_a_curriculum_is_kept_in_checkpoints(tmp_path):
    (result,) = tuning.in_phases(tmp_path)
    assert [row["task"] for row in result.rows()] == [1, 2, 3]
    assert result.checkpoint is not None
    assert result.checkpoint.get_metadata() == {"task": 3}
