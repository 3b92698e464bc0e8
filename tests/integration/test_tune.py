"""What users write for tuning works as they expect from Ray Tune."""

import functools
import json
import logging
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from callbacks import CallbackError, RLlibCallback
from checkpoints import encode
from trainer import PPOConfig, actors, tune
from trainer.cli.main import main
from trainer.errors import ConfigError, TrialError, TuneError
from trainer.runtime.run_lock import RunLock
from trainer.testing.processes import is_process_alive, wait_until
from trainer.tune.checkpoint import DATA_FILE
from trainer.tune.searchers import BasicVariantGenerator, ConcurrencyLimiter
from trainer.tune.stored_code import CODE_FOLDER


def run(trainable, folder, *, space=None, **more):
    """An experiment in this process."""
    tuning = {"seed": 0, "in_process": True, **more.pop("tuning", {})}
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(**tuning),
        run_config=tune.RunConfig(**{"storage_path": folder, "verbose": 0, **more}),
    ).fit()


def losses(grid):
    return [[row.get("loss", row.get("_metric")) for row in result.rows()] for result in grid]


# ---- reports


@pytest.mark.parametrize("value", ["a minute", None, 60])
def test_a_trainable_may_report_any_time_of_its_own(tmp_path, value):
    result = run(lambda config: {"time_total_s": value}, tmp_path)[0]
    assert (result.status, result.error) == ("TERMINATED", None)
    assert [row["time_total_s"] for row in result.rows()] == [value]


def by_report(config):
    tune.report({"loss": 1.0})
    tune.report(loss=2.0)


def by_reporter(config, reporter):
    reporter(loss=1.0)
    reporter({"loss": 2.0})


def by_yield(config):
    yield {"loss": 1.0}
    yield {"loss": 2.0}


def by_return(config):
    tune.report(loss=1.0)
    return {"loss": 2.0}


def by_number(config):
    tune.report(loss=1.0)
    return 2.0


@pytest.mark.parametrize("function", [by_report, by_reporter, by_yield, by_return, by_number])
def test_all_ways_to_report_give_rows(tmp_path, function):
    assert losses(run(function, tmp_path)) == [[1.0, 2.0]]


def test_a_report_outside_of_a_trial_is_explained():
    with pytest.raises(TuneError, match="outside of a trial"):
        tune.report(loss=1.0)
    assert tune.get_checkpoint() is None
    assert tune.get_context().get_trial_id() is None


def test_arrays_are_left_out_of_rows_with_one_warning(tmp_path, caplog):
    def train(config):
        for _ in range(3):
            tune.report({"loss": np.float32(1), "inner": {"image": np.zeros(3), "n": 1}})

    with caplog.at_level(logging.WARNING):
        (result,) = run(train, tmp_path)
    assert [row["inner"] for row in result.rows()] == [{"n": 1}] * 3
    assert caplog.text.count("inner/image") == 1


def test_a_stopped_function_runs_its_finally_blocks(tmp_path):
    seen = []

    def train(config):
        try:
            while True:
                try:
                    tune.report(loss=1.0)
                except Exception:  # noqa: BLE001 - what users write
                    seen.append("swallowed")
        finally:
            seen.append("finally")

    (result,) = run(train, tmp_path, stop={"training_iteration": 3})
    assert seen == ["finally"]
    assert result.stop_reason == "training_iteration >= 3"


def test_checkpoint_dir_is_refused_with_the_new_writing(tmp_path):
    def train(config, checkpoint_dir=None):
        """Of before."""

    with pytest.raises(TuneError, match="get_checkpoint"):
        run(train, tmp_path)


# ---- classes and algorithms


class Noted(tune.Trainable):
    calls = []

    def setup(self, config):
        self.calls.append("setup")
        self.count = 0

    def step(self):
        self.calls.append("step")
        self.count += 1
        return {"count": self.count, "done": self.count == 2}

    def save_checkpoint(self, checkpoint_dir):
        self.calls.append("save")
        return {"count": self.count}

    def cleanup(self):
        self.calls.append("cleanup")


def test_a_class_is_called_in_order(tmp_path):
    Noted.calls.clear()
    (result,) = run(Noted, tmp_path)
    assert Noted.calls == ["setup", "step", "step", "save", "cleanup"]
    assert result.stop_reason == "done"
    assert result.checkpoint is not None
    assert [s.name for s in result.saved] == ["000002"]


def test_reuse_without_reset_config_is_refused_before_the_start(tmp_path):
    with pytest.raises(TuneError, match="reset_config"):
        run(Noted, tmp_path, tuning={"reuse_actors": True})


def test_reuse_has_no_effect_on_functions_and_says_so_once(tmp_path, caplog):
    tuning = {"reuse_actors": True, "num_samples": 2, "in_process": False}
    with caplog.at_level("WARNING"):
        grid = run(by_report, tmp_path, tuning=tuning)
    assert losses(grid) == [[1.0, 2.0]] * 2
    assert [each.getMessage().startswith("reuse_actors=True") for each in caplog.records] == [True]


def small_ppo(**settings):
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .training(train_batch_size=64, minibatch_size=64, num_epochs=1, **settings)
    )


class TellsItsTrial(RLlibCallback):
    def on_algorithm_init(self, **_):
        self.began_in = tune.get_context().get_trial_id()

    def on_train_result(self, *, result, **_):
        context = tune.get_context()
        result["told"] = [self.began_in, context.get_trial_id(), context.get_trial_dir()]


def test_callbacks_of_an_algorithm_know_their_trial(tmp_path):
    space = small_ppo(lr=tune.grid_search([1e-3, 1e-4])).callbacks(TellsItsTrial)
    grid = run("PPO", tmp_path, space=space, stop={"training_iteration": 1})
    told = [result.rows()[0]["told"] for result in grid]
    assert told == [[id_, id_, grid[int(id_)].path] for id_ in ("00000", "00001")]
    assert tune.get_context().get_trial_id() is None


class Reports(tune.Trainable):
    def step(self):
        tune.report(loss=1.0)


def test_a_report_in_a_trial_of_a_class_is_refused(tmp_path):
    (result,) = run(Reports, tmp_path)
    assert "rows are what step() returns" in str(result.error)


@pytest.mark.process
def test_a_trial_of_an_algorithm_is_a_run_of_the_command_line(tmp_path, capsys):
    config = small_ppo(lr=tune.grid_search([1e-3, 1e-4]))
    tuner = tune.Tuner(
        "PPO",
        param_space=config,
        run_config=tune.RunConfig(
            storage_path=tmp_path, name="x", verbose=0, stop={"training_iteration": 1}
        ),
    )
    grid = tuner.fit()
    assert [result.config.lr for result in grid] == [1e-3, 1e-4]
    assert "grid_search" in str(config.lr)
    for command in (["inspect"], ["evaluate", "--episodes", "1"]):
        assert main([command[0], grid[0].path, *command[1:]]) == 0
    assert main(["resume", grid[0].path, "--stop-iterations", "2"]) == 0
    capsys.readouterr()


def test_what_resume_adds_to_a_trial_is_no_result_and_is_kept(tmp_path, capsys, caplog):
    grid = run("PPO", tmp_path, space=small_ppo(), name="x", stop={"training_iteration": 1})
    (folder,) = (Path(result.path) for result in grid)
    words = ["resume", str(folder), "--stop-iterations", "3"]
    with RunLock(tmp_path / "x"):
        assert main(words) == 1
        assert "in use" in capsys.readouterr().err
    assert main(words) == 0
    restored = tune.Tuner.restore(tmp_path / "x", "PPO").get_results()
    for result in (grid[0], restored[0], tune.Result.from_path(folder)):
        assert [row["training_iteration"] for row in result.rows()] == [1]
        assert (result.metrics or {})["training_iteration"] == 1
        assert [saved.row_number for saved in result.saved] == [1]
    changed = tune.TuneConfig(num_samples=2, in_process=True)
    assert len(tune.Tuner.restore(tmp_path / "x", "PPO", tune_config=changed).fit()) == 2
    aside = folder / "checkpoints-set-aside-1"
    assert str(aside) in caplog.text
    assert sorted(path.name for path in aside.iterdir()) == ["000003", "results.jsonl"]
    assert len((aside / "results.jsonl").read_text().splitlines()) == 3
    assert main(["resume", str(aside / "000003"), "--stop-iterations", "4"]) == 0


def test_a_misspelt_setting_is_told_when_the_tuner_is_made():
    with pytest.raises(ConfigError, match="lr"):
        tune.Tuner("PPO", param_space={"env": "CartPole-v1", "learning_rte": 1e-3, "lrr": 1})


def test_a_config_of_another_algorithm_is_refused():
    with pytest.raises(TuneError, match="PPOConfig"):
        tune.Tuner("DQN", param_space=small_ppo())


@pytest.mark.parametrize("wrong", [3, None, int, "Nothing"])
def test_what_cannot_be_tuned_is_named(wrong):
    with pytest.raises(TuneError, match=r"expected a function|no trainable"):
        tune.Tuner(wrong)


# ---- resources, parameters


def test_resources_are_sums_of_cpus():
    factory = tune.PlacementGroupFactory([{"CPU": 1}, {"GPU": 0}] + [{"CPU": 1}] * 2)
    assert factory.required_resources == {"CPU": 3.0}
    for wrong in ({"gpu": 1}, {"tpu": 1}, {"cpu": -1}, 3):
        with pytest.raises(TuneError):
            tune.with_resources(by_report, wrong)


@pytest.mark.process
def test_large_parameters_are_one_file_for_all(tmp_path):
    data = np.arange(300_000, dtype=np.float64)

    def train(config, data):
        tune.report(sum=float(data.sum()), is_mapped=isinstance(data, np.memmap))

    grid = run(
        tune.with_parameters(train, data=data),
        tmp_path,
        tuning={"in_process": False, "num_samples": 2},
    )
    for result in grid:
        (row,) = result.rows()
        assert (row["sum"], row["is_mapped"]) == (float(data.sum()), True)
    assert not list(tmp_path.glob("*/.parameters"))


@pytest.mark.process
def test_what_cannot_travel_is_named_before_the_start(tmp_path):
    with (tmp_path / "file").open("w") as file:

        def train(config):
            file.write("x")

        with pytest.raises(TuneError, match="file"):
            run(train, tmp_path, tuning={"in_process": False})


class Reused(tune.Trainable):
    """Prints where it is, and may be another trial."""

    def step(self):
        print("this is", self.trial_id, Path.cwd().name, flush=True)
        return {"done": True}

    def reset_config(self, new_config):
        return True


@pytest.mark.process
def test_a_process_that_is_used_again_writes_where_its_new_trial_does(tmp_path):
    tuning = {"in_process": False, "num_samples": 2, "max_concurrent_trials": 1}
    tuning |= {"reuse_actors": True, "chdir_to_trial_dir": True}
    grid = run(Reused, tmp_path, tuning=tuning, log_to_file=True)
    printed = [(Path(result.path) / "stdout.txt").read_text().split() for result in grid]
    assert printed == [["this", "is", name, name] for name in ("00000", "00001")]


class Note:
    def __init__(self, text):
        self.text = text

    def get(self):
        return self.text


@pytest.mark.process
def test_trials_find_the_tuners_actors_and_keep_their_own_apart(tmp_path):
    def train(config):
        trial_id = tune.get_context().get_trial_id()
        own = actors.remote(Note).options(name="own").remote(trial_id)
        found = [actors.get_actor(name).get.remote() for name in ("shared", "own")]
        tune.report(told=actors.get(found))
        actors.get(own.get.remote())

    shared = actors.remote(Note).options(name="shared").remote("tuner's")
    tuning = {"in_process": False, "num_samples": 2, "max_concurrent_trials": 2}
    grid = run(train, tmp_path, tuning=tuning)
    actors.kill(shared)
    assert [result.rows()[0]["told"] for result in grid] == [
        ["tuner's", "00000"],
        ["tuner's", "00001"],
    ]


# ---- failures


def fails_at_two(config):
    found = tune.get_checkpoint()
    for step in range(0 if found is None else found.data()["step"], 4):
        if step == 2 and found is None:
            raise ValueError("not yet")
        tune.report(loss=step, checkpoint=tune.Checkpoint.from_data({"step": step + 1}))


def test_failures_are_in_the_grid_and_may_be_resumed(tmp_path):
    grid = run(fails_at_two, tmp_path, name="x")
    assert "ValueError: not yet" in str(grid.errors[0])
    assert losses(grid) == [[0, 1]]
    tuner = tune.Tuner.restore(tmp_path / "x", fails_at_two, resume_errored=True)
    assert losses(tuner.fit()) == [[0, 1, 2, 3]]


def test_a_failed_trial_whose_folder_is_gone_is_resumed_with_all_its_rows(tmp_path):
    def train(config):
        found = tune.get_checkpoint()
        for step in range(0 if found is None else found.data()["step"], 4):
            if step == 2 and not (tmp_path / "mended").exists():
                raise ValueError("not yet")
            tune.report(loss=step, checkpoint=tune.Checkpoint.from_data({"step": step + 1}))

    grid = run(train, tmp_path, name="x", tuning={"num_samples": 2})
    shutil.rmtree(grid[0].path)
    (tmp_path / "mended").touch()
    grid = tune.Tuner.restore(tmp_path / "x", train, resume_errored=True).fit()
    assert losses(grid) == [[0, 1, 2, 3]] * 2


def test_an_error_may_be_survived(tmp_path):
    failing = tune.FailureConfig(max_failures=1)
    grid = run(fails_at_two, tmp_path, failure_config=failing)
    assert (losses(grid), grid[0].num_failures, grid.num_errors) == ([[0, 1, 2, 3]], 1, 0)


def test_fail_fast_raises_the_error_of_the_trial(tmp_path):
    failing = tune.FailureConfig(fail_fast="raise")
    with pytest.raises((ValueError, TrialError), match="not yet"):
        run(fails_at_two, tmp_path, failure_config=failing)


@pytest.mark.process
def test_a_trial_that_hangs_is_replaced_and_given_up(tmp_path):
    def train(config):
        tune.report(loss=1.0)
        time.sleep(3600.0)

    grid = run(train, tmp_path, tuning={"in_process": False}, trial_timeout_s=0.5)
    assert "hung 3 times" in str(grid.errors[0])


@pytest.mark.process
def test_a_trial_that_works_at_a_long_row_is_left_alone(tmp_path):
    limit_s = 2.0  # a busy machine may leave a process without its turn for half a second

    def train(config):
        until = time.monotonic() + 1.3 * limit_s
        while time.monotonic() < until:
            tune.get_context().heartbeat()
            time.sleep(0.01)
        tune.report(loss=0.0)

    grid = run(train, tmp_path, tuning={"in_process": False}, trial_timeout_s=limit_s)
    assert losses(grid) == [[0]]


# ---- populations


class Growing(tune.Trainable):
    """Grows by a rate that a population can change."""

    def setup(self, config):
        self.rate, self.size = config["rate"], 0.0

    def step(self):
        self.size += self.rate
        return {"loss": -self.size}

    def save_checkpoint(self, checkpoint_dir):
        del checkpoint_dir
        return {"size": self.size}

    def load_checkpoint(self, checkpoint):
        self.size = checkpoint["size"]


def test_a_population_leaves_policies_that_can_be_replayed(tmp_path):
    scheduler = tune.PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"rate": tune.uniform(0, 1)}
    )
    tuning = {"num_samples": 4, "scheduler": scheduler, "metric": "loss", "mode": "min"}
    space = {"rate": tune.uniform(0, 1)}
    stop = {"training_iteration": 6}
    grid = run(Growing, tmp_path, space=space, tuning=tuning, stop=stop)
    policies = sorted(Path(grid.experiment_path).glob("pbt_policy_*.txt"))
    cloned = [each.number for each in grid if "donor" in Path(each.path, "trial.json").read_text()]
    assert [int(path.stem[-5:]) for path in policies] == cloned != []
    replay = tune.PopulationBasedTrainingReplay(policies[0])
    again = run(
        Growing, tmp_path / "again", space=replay.config, stop=stop,
        tuning={"scheduler": replay},
    )  # fmt: skip
    assert losses(again)[0][-1] == losses(grid)[cloned[0]][-1]


# ---- callbacks


class Told(tune.Callback):
    def __init__(self):
        self.told = []

    def on_trial_start(self, trial, **info):
        self.told.append(f"start {trial.trial_id}")

    def on_trial_result(self, iteration, trials, trial, result):
        self.told.append(f"result {result['loss']}")

    def on_trial_complete(self, trial, **info):
        self.told.append(f"complete {trial.status}")

    def on_experiment_end(self, trials):
        self.told.append(f"end {len(trials)}")


def test_callbacks_are_told_in_order(tmp_path):
    told = Told()
    run(by_report, tmp_path, callbacks=[told])
    assert told.told == ["start 00000", "result 1.0", "result 2.0", "complete TERMINATED", "end 1"]


def test_a_callback_that_raises_ends_in_order(tmp_path):
    class Raises(tune.Callback):
        def on_trial_result(self, **info):
            raise ValueError("mine")

    with pytest.raises(CallbackError, match="mine"):
        run(by_report, tmp_path, name="x", callbacks=[Raises()])
    assert losses(tune.Tuner.restore(tmp_path / "x", by_report).fit()) == [[1.0, 2.0]]


class Patient(tune.schedulers.ASHAScheduler):
    pass


class Reversed(BasicVariantGenerator):
    pass


@pytest.mark.parametrize(
    ("own", "ready_made"),
    [
        ({"scheduler": Patient(max_t=2)}, {"scheduler": tune.schedulers.ASHAScheduler(max_t=2)}),
        (
            {"search_alg": ConcurrencyLimiter(Reversed(), 1)},
            {"search_alg": ConcurrencyLimiter(BasicVariantGenerator(), 1)},
        ),
    ],
)
def test_a_subclass_of_a_ready_made_part_is_not_restored_as_that_part(tmp_path, own, ready_made):
    def tuned(part):
        return tune.TuneConfig(in_process=True, metric="loss", mode="min", **part)

    def begun_with(part, name):
        place = tune.RunConfig(name=name, storage_path=tmp_path, verbose=0)
        return tune.Tuner(by_report, tune_config=tuned(part), run_config=place).fit()

    grid = begun_with(own, "own")
    kept = tune.Tuner.restore(tmp_path / "own", by_report)
    (name,) = own
    assert type(getattr(kept._setup.tune_config, name)) is type(own[name])
    assert losses(kept.fit()) == losses(grid)
    shutil.rmtree(tmp_path / "own" / CODE_FOLDER)
    with pytest.raises(TuneError, match=r"a subclass of .* cannot make again"):
        tune.Tuner.restore(tmp_path / "own", by_report)
    with pytest.raises(TuneError, match="a subclass of"):
        tune.Tuner.restore(tmp_path / "own", by_report, tune_config=tuned(ready_made)).fit()
    restored = tune.Tuner.restore(tmp_path / "own", by_report, tune_config=tuned(own)).fit()
    assert losses(restored) == losses(grid)
    begun_with(ready_made, "ready made")
    assert losses(tune.Tuner.restore(tmp_path / "ready made", by_report).fit()) == losses(grid)


def test_loggers_write_into_the_trials_folder(tmp_path):
    pytest.importorskip("tensorboardX")
    loggers = [tune.logger.CSVLoggerCallback(), tune.logger.TBXLoggerCallback()]
    (result,) = run(by_report, tmp_path, callbacks=loggers)
    assert len((Path(result.path) / "progress.csv").read_text().splitlines()) == 3
    assert list((Path(result.path) / "tensorboard").iterdir())


# ---- results and restores


def scored(config):
    for step in range(3):
        tune.report(loss=config["x"] * (1 if step < 2 else 10))


def test_the_best_result_follows_scope_and_ties(tmp_path):
    space = {"x": tune.grid_search([3, 1, 1, float("nan")])}
    grid = run(scored, tmp_path, space=space, tuning={"metric": "loss", "mode": "min"})
    assert grid.get_best_result().number == 1
    assert grid.get_best_result(mode="max").number == 0
    assert grid.get_best_result(scope="all").number == 1
    with pytest.raises(TuneError, match="loss"):
        grid.get_best_result("los", "min")
    with pytest.raises(TuneError, match="scope"):
        grid.get_best_result(scope="best")
    assert tune.Result.from_path(grid[1].path).rows()[-1]["loss"] == 10


def test_a_restore_with_something_else_is_refused_with_both_values(tmp_path):
    run(scored, tmp_path, name="x", space={"x": tune.uniform(0, 1)})
    with pytest.raises(TuneError, match=r"uniform\(0.0, 1.0\).*uniform\(0.0, 2.0\)"):
        tune.Tuner.restore(tmp_path / "x", scored, param_space={"x": tune.uniform(0, 2)})
    with pytest.raises(TuneError, match="by_report"):
        tune.Tuner.restore(tmp_path / "x", by_report)
    tuner = tune.Tuner(scored, param_space={"x": 1})
    with pytest.raises(TuneError, match="belongs to the class"):
        tuner.restore(tmp_path / "x", scored)
    assert not hasattr(tuner, "restore")
    with pytest.raises(FileNotFoundError, match="holds no experiment"):
        tune.Tuner.restore(tmp_path / "y", scored)


def counting(config):
    found = tune.get_checkpoint()
    step = 0 if found is None else found.data()["step"]
    while True:
        step += 1
        tune.report(loss=step, checkpoint=tune.Checkpoint.from_data({"step": step}))


def test_an_experiment_is_extended_by_later_criteria_and_more_samples(tmp_path):
    grid = run(counting, tmp_path, name="x", stop={"loss": 2})
    assert losses(grid) == [[1, 2]]
    tuner = tune.Tuner.restore(
        tmp_path / "x",
        counting,
        tune_config=tune.TuneConfig(num_samples=2, in_process=True),
        run_config=tune.RunConfig(stop={"loss": 4}, verbose=0),
    )
    assert tuner.get_results().is_exact
    grid = tuner.fit()
    assert losses(grid) == [[1, 2, 3, 4], [1, 2, 3, 4]]
    assert grid.inexact_reasons == ()
    again = tune.Tuner.restore(tmp_path / "x", counting).fit()
    assert losses(again) == [[1, 2, 3, 4], [1, 2, 3, 4]]
    assert again.inexact_reasons == ()


class FromLoss(tune.stopper.Stopper):
    """A user's, which keeps the argument in its own way and what no two processes share."""

    def __init__(self, bound):
        self.bounds, self.made_at = {bound}, object()

    def __call__(self, trial_id, result):
        return any(result["loss"] >= bound for bound in self.bounds)


@pytest.mark.parametrize(
    "stopper",
    [
        FromLoss,
        lambda bound: tune.stopper.CombinedStopper(tune.stopper.NoopStopper(), FromLoss(bound)),
        lambda bound: functools.partial(lambda bound, _, row: row["loss"] >= bound, bound),
        lambda bound: tune.stopper.TrialPlateauStopper("one", num_results=2, grace_period=bound),
    ],
)
def test_a_stopper_with_other_arguments_is_another_one(stopper, tmp_path):
    def train(config):
        found = tune.get_checkpoint()
        for step in range(1 if found is None else found.data()["step"] + 1, 9):
            checkpoint = tune.Checkpoint.from_data({"step": step})
            tune.report(loss=step, one=1, checkpoint=checkpoint)

    run(train, tmp_path, name="x", stop=stopper(2))
    journal = tmp_path / "x" / "journal.jsonl"
    num_amended = []
    for bound in (2, 4, 4):
        changed = tune.RunConfig(stop=stopper(bound), verbose=0)
        grid = tune.Tuner.restore(tmp_path / "x", train, run_config=changed).fit()
        assert losses(grid) == [[*range(1, bound + 1)]]
        assert grid.inexact_reasons == ()
        num_amended.append(journal.read_text().count('"has_new_stop"'))
    assert num_amended == [0, 1, 1]


def test_another_function_as_stop_counts_if_it_has_another_name(tmp_path, caplog):
    def later(_, row):
        return bool(row["loss"] >= 3)

    run(counting, tmp_path, name="x", stop=lambda _, row: row["loss"] >= 2)
    grids = [
        tune.Tuner.restore(
            tmp_path / "x", counting, run_config=tune.RunConfig(stop=stop, verbose=0)
        ).fit()
        for stop in (lambda _, row: row["loss"] >= 3, later)
    ]
    assert [losses(grid) for grid in grids] == [[[1, 2]], [[1, 2, 3]]]
    (told,) = grids[0].inexact_reasons
    assert "nothing was decided, recorded is stop 00000 (<lambda>()). A function given as" in told
    assert "another one if it has another name" in told
    (warned,) = (each for each in caplog.messages if "What is recorded holds" in each)
    assert told in warned
    assert grids[1].inexact_reasons == ()


def test_an_extension_keeps_the_settings_that_it_does_not_name(tmp_path):
    tries = tmp_path / "tries"

    def failing_once_per_trial(config):
        tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
        for step in range(2):
            tune.report(loss=step, checkpoint=tune.Checkpoint.from_data({}))
        raise ValueError

    settings = {
        "failure_config": tune.FailureConfig(max_failures=2),
        "checkpoint_config": tune.CheckpointConfig(num_to_keep=1),
    }
    tuning = {"order": "arrival", "seed_globals": False}
    run(failing_once_per_trial, tmp_path, name="x", tuning=tuning, **settings)
    assert len(tries.read_text()) == 3
    grid = tune.Tuner.restore(
        tmp_path / "x",
        failing_once_per_trial,
        tune_config=tune.TuneConfig(num_samples=2),
        run_config=tune.RunConfig(log_to_file=True),
    ).fit()
    assert len(tries.read_text()) == 6
    assert [result.num_failures for result in grid] == [3, 3]
    assert [len(result.saved) for result in grid] == [1, 1]
    given = tune.RunConfig(failure_config=tune.FailureConfig())
    restored = tune.Tuner.restore(
        tmp_path / "x", failing_once_per_trial, restart_errored=True, run_config=given
    )
    assert restored.fit().num_errors == 2
    assert len(tries.read_text()) == 8


def test_new_criteria_may_look_at_what_the_journal_does_not_hold(tmp_path):
    def train(config):
        found = tune.get_checkpoint()
        for step in range(1 if found is None else found.data()["step"] + 1, 20):
            checkpoint = tune.Checkpoint.from_data({"step": step})
            tune.report(loss=step, plateau=min(step, 8), checkpoint=checkpoint)

    run(train, tmp_path, name="x", stop={"loss": 6})
    for stop, num_rows in (({"plateau": 8}, 8), (tune.stopper.TrialPlateauStopper("plateau"), 11)):
        changed = tune.RunConfig(stop=stop, verbose=0)
        grid = tune.Tuner.restore(tmp_path / "x", train, run_config=changed).fit()
        assert [len(result.rows()) for result in grid] == [num_rows]
        assert grid.inexact_reasons == ()


def test_checkpoints_are_kept_by_score(tmp_path):
    def train(config):
        for step, score in enumerate([1.0, 9.0, 2.0, float("nan")]):
            tune.report(score=score, checkpoint=tune.Checkpoint.from_data({"step": step}))

    saving = tune.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score")
    (result,) = run(train, tmp_path, checkpoint_config=saving)
    assert [saved.row_number for saved in result.saved] == [2, 4]
    best = result.get_best_checkpoint("score", "max")
    assert best is not None
    assert best.data() == {"step": 1}


@pytest.mark.parametrize("recovery_interval_s", [None, 0.0])
def test_which_checkpoints_are_kept_does_not_follow_from_those_for_repairs(
    tmp_path, recovery_interval_s
):
    saving = tune.CheckpointConfig(
        checkpoint_frequency=2,
        checkpoint_at_end=False,
        num_to_keep=1,
        checkpoint_score_attribute="loss",
    )
    (result,) = run(
        Growing, tmp_path, space={"rate": 1.0}, checkpoint_config=saving,
        stop={"training_iteration": 5}, recovery_interval_s=recovery_interval_s,
    )  # fmt: skip
    assert [saved.row_number for saved in result.saved] == [2, 4]


def test_the_checkpoint_at_the_end_is_kept_by_score_as_well(tmp_path):
    saving = tune.CheckpointConfig(
        checkpoint_frequency=2,
        checkpoint_at_end=True,
        num_to_keep=1,
        checkpoint_score_attribute="loss",
        checkpoint_score_order="min",
    )
    (result,) = run(
        Growing, tmp_path, space={"rate": 1.0}, checkpoint_config=saving,
        stop={"training_iteration": 3},
    )  # fmt: skip
    assert [saved.row_number for saved in result.saved] == [3]


def test_nothing_in_a_folder_is_unpickled(tmp_path):
    run(counting, tmp_path, name="x", stop={"loss": 2})
    bomb = b"cos\nsystem\n(S'touch " + str(tmp_path / "boom").encode() + b"'\ntR."
    for name in ("tuner.pkl", "trainable.pkl", "trials/00000/error.pkl", "trials/00000/params.pkl"):
        (tmp_path / "x" / name).write_bytes(bomb)
    assert losses(tune.Tuner.restore(tmp_path / "x", counting).fit()) == [[1, 2]]
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize("text", ["[" * 50_000, "3", "no JSON", '{"a": ' + "9" * 5_000])
def test_checkpoints_that_hold_something_else_are_damaged(text, tmp_path):
    checkpoint = tune.Checkpoint.from_data({"step": 1})
    (Path(checkpoint.path) / ".metadata.json").write_text(text)
    (Path(checkpoint.path) / DATA_FILE).write_bytes(encode([1]))
    with pytest.raises(TuneError, match="is damaged"):
        checkpoint.get_metadata()
    with pytest.raises(TuneError, match="it holds no dict"):
        checkpoint.data()


def test_old_names_give_the_same_numbers(tmp_path):
    analysis = tune.run(
        scored,
        name="x",
        config={"x": tune.grid_search([2, 1])},
        metric="loss",
        mode="min",
        storage_path=tmp_path,
        verbose=0,
        resume="AUTO",
    )
    assert analysis.best_config == {"x": 1}
    assert analysis.best_trial.number == 1
    with pytest.raises(TuneError, match="confg"):
        tune.run(scored, confg={})


def test_scripts_that_import_what_is_not_offered_are_told_when_they_use_it():
    from trainer.tune.schedulers import PB2
    from trainer.tune.search import HyperOptSearch

    with pytest.raises(TuneError, match="Use PopulationBasedTraining"):
        PB2(perturbation_interval=4)
    with pytest.raises(TuneError, match="OptunaSearch"):
        HyperOptSearch()
    with pytest.raises(AttributeError, match="Did you mean 'ASHAScheduler'"):
        tune.schedulers.ASHASchedular  # noqa: B018


def test_names_that_are_not_offered_say_what_to_do():
    with pytest.raises(AttributeError, match="not offered"):
        _ = tune.HyperBandForBOHB
    with pytest.raises(AttributeError, match="Tuner"):
        _ = tune.Tunner


# ---- the command line


@pytest.mark.process
def test_the_command_line_tunes_and_shows(tmp_path, capsys):
    settings = [
        "--set=num_env_runners=0", "--set=train_batch_size=64", "--set=minibatch_size=64",
        "--set=num_epochs=1", "--env=CartPole-v1", "--space=lr=choice([0.01, 0.001])",
    ]  # fmt: skip
    metric = ["--metric=env_runners/episode_return_mean", "--mode=max"]
    where = [f"--storage-path={tmp_path}", "--name=x", "--stop=training_iteration=1", "--seed=0"]
    assert main(["tune", "PPO", *settings, *metric, *where, "--num-samples=1"]) == 0
    folder = str(tmp_path / "x")
    assert main(["tune-resume", folder, "--num-samples=2"]) == 0
    capsys.readouterr()
    assert main(["trials", folder, "--sort=lr", "--filter=lr<1", "--json"]) == 0
    assert [row["number"] for row in json.loads(capsys.readouterr().out)] != []
    assert main(["best", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metric"] == "env_runners/episode_return_mean"


@pytest.mark.parametrize("code", ["lr=__import__('os').system('x')", "lr=open('x')", "lr=3", "x"])
def test_a_space_on_the_command_line_runs_no_code(code, capsys):
    with pytest.raises(SystemExit):
        main(["tune", "PPO", f"--space={code}"])
    capsys.readouterr()


# ---- processes


@pytest.mark.process
def test_no_process_outlives_its_trial(tmp_path):
    def train(config):
        algo = small_ppo().env_runners(num_env_runners=1).build_algo()
        algo.train()
        found = algo.env_runner_group.foreach_env_runner(lambda runner: __import__("os").getpid())
        tune.report(pids=list(found))

    grid = run(train, tmp_path, tuning={"in_process": False})
    assert not grid.errors
    pids = grid[0].rows()[0]["pids"]
    assert wait_until(lambda: not any(is_process_alive(pid) for pid in pids))


def test_what_a_trial_reports_is_read_by_the_keys_of_an_algorithms_result(tmp_path):
    keys = (
        "env_runners/episode_return_mean",
        "episode_reward_mean",
        "custom_metrics",
        "hist_stats",
        "timesteps_total",
    )
    read = {}

    class Reads(tune.Callback):
        def on_trial_result(self, result, trial, **info):
            read["callback"] = {key: result[key] for key in keys}
            read["trial"] = {key: trial.last_result[key] for key in keys}

    def stops(trial_id, result):
        read["stop"] = {key: result[key] for key in keys}
        return True

    place = tune.RunConfig(
        name="x", storage_path=tmp_path, verbose=0, stop=stops, callbacks=[Reads()]
    )
    tuning = tune.TuneConfig(in_process=True, metric="episode_reward_mean", mode="max", seed=0)
    config = PPOConfig().environment("CartPole-v1").training(train_batch_size=128)
    grid = tune.Tuner("PPO", param_space=config, tune_config=tuning, run_config=place).fit()
    result = grid.get_best_result()
    metrics = result.metrics
    assert metrics is not None
    read["metrics"] = {key: metrics[key] for key in keys}
    read["row"] = {key: result.rows()[-1][key] for key in keys}
    algo = config.copy(copy_frozen=False).debugging(seed=0).build_algo()
    trained = algo.train()
    algo.stop()
    known = {key: type(trained[key]) for key in keys}
    assert {where: {k: type(v) for k, v in got.items()} for where, got in read.items()} == (
        dict.fromkeys(read, known)
    )
    assert read["stop"] == read["callback"] == read["trial"] == read["metrics"] == read["row"]
    with pytest.raises(KeyError, match="Did you mean 'env_runners/episode_return_mean'"):
        metrics["env_runners/episode_return_men"]
    assert metrics["config"] == result.config


def test_nothing_pending_stays_in_the_folders_of_trials(tmp_path):
    def saves(config):
        for step in range(1, 3):
            tune.report({"loss": step}, checkpoint=tune.Checkpoint.from_data({"step": step}))

    class Kill(tune.Callback):
        """Leaves what a process leaves that is killed after a row too many."""

        def on_trial_complete(self, trial, **info):
            (Path(trial.path) / "checkpoints" / ".pending-000003").mkdir()

    def left():
        return list((tmp_path / "x").glob("trials/*/checkpoints/.*"))

    place = {"name": "x", "callbacks": [Kill()], "tuning": {"num_samples": 2}}
    grid = run(saves, tmp_path, **place)
    assert [len(result.saved) for result in grid] == [2, 2]
    assert left() == []
    (Path(grid[0].path) / "checkpoints" / ".pending-000003").mkdir()  # the tuner was killed, too
    again = tune.Tuner.restore(tmp_path / "x", saves).fit()
    assert [len(result.saved) for result in again] == [2, 2]
    assert left() == []
