"""A worker shows its owner that it makes progress, also in work that knows nothing of workers."""

from types import SimpleNamespace

import pytest

from trainer import PPOConfig, tune
from trainer.runtime.engine import beat, own_heartbeat, show_progress_by
from trainer.runtime.messages import Lost
from trainer.runtime.worker_pool import WorkerPool
from trainer.tune.lanes import Deaths, Patience


@pytest.fixture
def signals():
    """Signals of this process, as if it were a worker."""
    made = SimpleNamespace(num_heartbeats=0)
    show_progress_by(made)
    yield made
    show_progress_by(None)


def config():
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .training(train_batch_size=64, minibatch_size=32, num_epochs=3,
                  model={"fcnet_hiddens": [4]})
        .debugging(seed=0)
    )  # fmt: skip


def test_an_algorithm_in_a_worker_beats_with_its_env_steps_and_minibatches(signals):
    with config().build_algo() as algo:
        before = signals.num_heartbeats
        algo.train()
    assert signals.num_heartbeats - before >= 64 / 2 + 3 * 64 / 32


def test_outside_of_a_worker_nothing_beats():
    beat()
    assert own_heartbeat() is None


def test_a_user_shows_that_a_long_row_is_worked_at(signals):
    tune.get_context().heartbeat()
    assert signals.num_heartbeats == 1


def test_who_waits_for_workers_makes_progress_when_they_do(signals):
    pool = WorkerPool(["worker"])
    place = SimpleNamespace(num_heartbeats=0)
    pool.places = {1: place}
    for place.num_heartbeats, expected in ((0, 0), (3, 1), (3, 1), (4, 2)):
        pool._show_progress([1])
        assert signals.num_heartbeats == expected


def deaths_until_given_up(patience, places, *, exit_code):
    deaths = Deaths(patience)
    for number, num_heartbeats in enumerate(places, start=1):
        if deaths.add(
            Lost(exit_code), row_number=2, was_starting=False, num_heartbeats=num_heartbeats
        ):
            return number
    return 0


def test_a_crash_that_comes_at_the_same_place_is_given_up_and_one_that_does_not_is_repaired():
    patience = Patience(crashes=3, crashes_anywhere=10, kills=100)
    assert deaths_until_given_up(patience, [70] * 20, exit_code=-11) == 3
    spread = [500, 20, 310, 90, 200, 45, 400]
    assert deaths_until_given_up(patience, spread, exit_code=-11) == 0
    assert deaths_until_given_up(patience, spread * 2, exit_code=-11) == 10
    assert deaths_until_given_up(patience, [0] * 20, exit_code=-11) == 3
    assert deaths_until_given_up(patience, [70] * 99, exit_code=-9) == 0
