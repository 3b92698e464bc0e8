"""Algorithms that save in the background: same bytes, events, failures, the end of a run."""

from pathlib import Path

import pytest

from callbacks import BestCheckpoint, CallbackError, PeriodicCheckpoint, RLlibCallback
from checkpoints import CheckpointWriteError, latest_checkpoint, verify
from checkpoints.writer import BackgroundSave
from tests import small_runs
from tests.resume_cells import Cell, Remembering
from tests.saved_files import files_of
from tests.slow_disk import SlowDisk
from tests.small_runs import known, trained

NUM_ITERATIONS = 5


class CountsSaves(RLlibCallback):
    """Remembers in its state what was saved."""

    def __init__(self):
        self.saved = []

    def on_checkpoint_saved(self, *, path, **kwargs):
        verify(path)
        self.saved.append("/".join(Path(path).parts[-2:]))


@pytest.fixture
def disk(monkeypatch):
    return SlowDisk.mount(monkeypatch)


def hold_until_waited_for(disk, monkeypatch):
    """The slowest disk that ends at all: each save begins to write when the program must wait."""
    wait = BackgroundSave.wait

    def waiting(save):
        disk.let_go()
        wait(save)

    monkeypatch.setattr(BackgroundSave, "wait", waiting)


def small_ppo(*callbacks):
    made = small_runs.small_ppo(env="CartPole-v1", num_slots=1, minibatch_size=60)
    return made.callbacks(list(callbacks))


def saving(directory, *, background):
    return [
        PeriodicCheckpoint(directory / "all", every=1, background=background),
        CountsSaves(),
        BestCheckpoint(directory / "best", keep=2, background=background),
        PeriodicCheckpoint(directory / "last", every=2, keep_last=1, background=background),
        Remembering(),
    ]


def component_files(directory):
    """Everything that a run has saved, but what names times and paths."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.name not in ("manifest.json", "code.pkl"):
            yield str(path.relative_to(directory)), path.read_bytes()


@pytest.mark.process
@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_every_checkpoint_has_the_bytes_of_a_blocking_save(algorithm, tmp_path, disk, monkeypatch):
    found, files = {}, {}
    config = Cell(algorithm, "CartPole", int(algorithm == "PPO")).config()
    ways = ("blocking", "fast", "slow") if algorithm == "PPO" else ("blocking", "slow")
    for way in ways:
        if way == "fast":
            disk.open()
        elif way == "slow":
            disk.close()
            hold_until_waited_for(disk, monkeypatch)
        directory = tmp_path / way
        callbacks = saving(directory, background=way != "blocking")
        with config.copy(copy_frozen=False).callbacks(callbacks).build_algo() as algo:
            for iteration in range(1, NUM_ITERATIONS + 1):
                algo.train()
                newest = directory / "all" / f"{iteration:06d}" / "manifest.json"
                if way == "slow" and iteration % 2 and not is_saved_as_best(algo, iteration):
                    assert not newest.exists(), "it is to overlap with the next iteration"
            algo.finish_saving()
            found[way] = known(algo)
        files[way] = dict(component_files(directory))
    assert disk.num_held > NUM_ITERATIONS * (len(ways) - 1)
    assert len(files["blocking"]) > 8 * (NUM_ITERATIONS + 1)
    for way in ways[1:]:
        assert found[way] == found["blocking"]
        assert files[way] == files["blocking"]


def is_saved_as_best(algo, iteration):
    best = algo.callbacks.objects[2]
    return f"{iteration:06d}" in best.scores


def test_the_event_fires_once_at_the_next_occasion_in_the_main_thread(tmp_path, disk):
    with small_ppo(CountsSaves).build_algo() as algo:
        saved = algo.callbacks.objects[0].saved
        algo.save_to_path(tmp_path / "1", background=True)
        algo.train()
        assert saved == []
        disk.open()
        algo.finish_saving()
        assert len(saved) == 1
        algo.save_to_path(tmp_path / "2", background=True)
        save = algo._save_under_way
        assert save is not None
        save.wait()
        assert len(saved) == 1
        algo.train()
        assert len(saved) == 2
        algo.save_to_path(tmp_path / "3", background=True)
        algo.save_to_path(tmp_path / "4")
        algo.save_to_path(tmp_path / "5", background=True)
    assert [Path(name).name for name in saved] == ["1", "2", "3", "4", "5"]


def test_a_failed_save_costs_no_iteration(tmp_path, disk):
    disk.open()
    with small_ppo().build_algo() as undisturbed:
        expected = trained(undisturbed, 2)
    with small_ppo().build_algo() as algo:
        outcome = trained(algo, 1)
        disk.failure = OSError(30, "Read-only file system")
        algo.save_to_path(tmp_path / "c", background=True)
        save = algo._save_under_way
        assert save is not None
        save.wait()
        with pytest.raises(
            CheckpointWriteError, match=r"c of training iteration 1 was being.*Read"
        ):
            algo.train()
        assert algo.training_iteration == 1
        assert outcome + trained(algo, 1) == expected
    assert latest_checkpoint(tmp_path) is None


@pytest.mark.parametrize("is_ended_by_error", [True, False])
def test_the_end_of_a_run_waits_and_tells_what_failed(is_ended_by_error, tmp_path, disk, caplog):
    disk.open()
    disk.failure = OSError(28, "No space left on device")
    expected = KeyError if is_ended_by_error else CheckpointWriteError
    algo = small_ppo().build_algo()

    def use():
        with algo:
            algo.save_to_path(tmp_path / "c", background=True)
            if is_ended_by_error:
                raise KeyError("mine")

    with pytest.raises(expected):
        use()
    assert algo.is_stopped
    told = [record for record in caplog.records if "No space left" in record.message]
    assert len(told) == is_ended_by_error
    algo.stop()


# ---- callbacks


def settle(algo):
    """Until the save under way is over, without anybody hearing of it."""
    if algo._save_under_way is not None:
        algo._save_under_way.wait()


def test_failures_are_counted_and_older_ones_stay_until_a_new_one_is_whole(tmp_path, disk, caplog):
    disk.open()
    config = small_ppo(
        PeriodicCheckpoint(tmp_path, every=1, keep_last=1, background=True, on_error="warn")
    )
    counts, left = [], []
    with config.build_algo() as algo:
        for fails in (False, True, True, False, False):
            disk.failure = OSError(28, "No space left on device") if fails else None
            result = algo.train()
            settle(algo)
            counts.append(result["fault_tolerance"]["num_failed_saves_lifetime"])
            left.append([path.name for path in sorted(tmp_path.iterdir())])
        algo.finish_saving()
    assert counts == [0, 0, 1, 2, 2]
    # The old one goes when the main process hears that the new one is whole, in the next train().
    one, both = ["000001"], ["000001", "000004"]
    assert left == [one, one, one, both, ["000004", "000005"]]
    assert [path.name for path in tmp_path.iterdir()] == ["000005"]
    assert sum("No space left" in record.message for record in caplog.records) == 1


def test_an_undone_iteration_leaves_the_save_it_began_to_be_made_again(tmp_path, disk):
    fails = [True, False]

    class Fails(RLlibCallback):
        def on_train_result(self, *, algorithm, **kwargs):
            self._algorithm, self._num_rounds = algorithm, 0
            algorithm.after_train_result(self._wait_for_the_save)

        def _wait_for_the_save(self, result):
            self._num_rounds += 1
            is_last = self._num_rounds == 3
            self._algorithm.after_train_result(
                self._after_saving if is_last else self._wait_for_the_save
            )

        def _after_saving(self, result):
            if fails.pop(0):
                raise KeyError("after the save has begun")

    disk.open()
    with small_ppo().build_algo() as undisturbed:
        undisturbed.train()
        undisturbed.save_to_path(tmp_path / "expected")
    callback = PeriodicCheckpoint(tmp_path / "all", every=1, background=True)
    with small_ppo(callback, Fails).build_algo() as algo:
        with pytest.raises(KeyError):
            algo.train()
        assert algo.training_iteration == 0
        algo.finish_saving()
        assert (tmp_path / "all" / "000001").exists(), "it had begun"
        algo.train()
        algo.finish_saving()
    for name in ("learner.rl_module.state", "counters.state"):
        expected = (files_of(tmp_path / "expected") / name).read_bytes()
        assert (files_of(tmp_path / "all" / "000001") / name).read_bytes() == expected


def test_a_callback_that_fails_when_it_is_told_is_named(tmp_path, disk):
    class Fails(RLlibCallback):
        def on_checkpoint_saved(self, **kwargs):
            raise ValueError("mine")

    disk.open()
    with small_ppo(Fails).build_algo() as algo:
        algo.save_to_path(tmp_path / "c", background=True)
        with pytest.raises(CallbackError, match="on_checkpoint_saved"):
            algo.finish_saving()
        verify(tmp_path / "c")
        algo.train()
