"""Scripts written for Ray Tune find what they call, where it is and what it gives."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from callbacks import CallbackError
from trainer import tune
from trainer.errors import TrialError, TuneError
from trainer.tune.logger import LegacyLoggerCallback, Logger
from trainer.tune.searchers import BasicVariantGenerator


def run(trainable, folder, **more):
    """`tune.run` in a folder, without output."""
    return tune.run(trainable, storage_path=folder, verbose=0, **more)


def fitted(trainable, folder, *, space=None, tuning=None, **running):
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(**{"seed": 0, "in_process": True, **(tuning or {})}),
        run_config=tune.RunConfig(storage_path=folder, verbose=0, **running),
    ).fit()


def scored(config):
    tune.report({"score": config.get("x", 0)})


# ---- results


def test_one_trial_is_the_best_without_a_metric_and_of_several_none_is(tmp_path):
    assert fitted(scored, tmp_path, name="one").get_best_result().number == 0
    grid = fitted(scored, tmp_path, name="two", space={"x": tune.grid_search([1, 2])})
    with pytest.raises(TuneError, match="expected both"):
        grid.get_best_result()
    with pytest.raises(TuneError, match="No trial is the best by 'loss'"):
        fitted(scored, tmp_path, name="three").get_best_result("loss", "min")


def test_trials_of_an_analysis_have_the_names_of_ray_tunes_trials(tmp_path):
    analysis = run(scored, tmp_path, config={"x": tune.grid_search([3, 5])}, name="names")
    trial = analysis.trials[1]
    assert trial.last_result["score"] == 5
    assert trial.last_result["config"] == {"x": 5}
    assert trial.local_path == trial.path == str(tmp_path / "names/trials/00001")
    assert (trial.trial_id, trial.trainable_name, trial.status) == (
        *("00001", "scored"),
        tune.Trial.TERMINATED,
    )
    assert str(trial) == trial.trial_name == "scored_00001"
    assert str(trial) in str(tune.Result.from_path(trial.path).trial_name)
    assert tune.Result.from_path(trial.path).trainable_name == "scored"
    assert trial.evaluated_params == {"x": 5}
    assert trial.last_result["done"] is analysis.results["00001"]["done"] is True
    assert trial.metrics["done"] is False  # the row did not end it
    silent = run(lambda config: None, tmp_path, name="silent").trials[0]
    assert silent.last_result == {"done": True}
    failed = run(raising, tmp_path, config={"kind": "key"}, raise_on_failed_trial=False)
    assert failed.trials[0].last_result == {}
    assert not trial.has_checkpoint()


def test_last_rows_are_a_data_frame_by_the_trials_ids(tmp_path):
    pytest.importorskip("pandas")
    analysis = run(
        scored,
        tmp_path,
        config={"x": tune.grid_search([3, 5])},
        metric="score",
        mode="max",
    )
    assert list(analysis.best_dataframe["score"]) == list(analysis.best_result_df["score"]) == [5]
    assert list(analysis.trial_dataframes) == list(analysis.get_all_configs())
    assert list(analysis.dataframe("score")["score"]) == [3, 5]
    with pytest.raises(ValueError, match="no metric"):
        analysis.dataframe(mode="max")
    frame = analysis.results_df
    assert list(frame.index) == ["00000", "00001"]
    assert list(frame["score"]) == [3, 5]
    assert list(frame["config/x"]) == [3, 5]


class HearsEnds(tune.schedulers.FIFOScheduler):
    """Notes the last rows of trials."""

    heard = []

    def on_trial_complete(self, controller, trial, result):
        self.heard.append(result)


def test_the_last_row_of_a_trial_is_done_where_its_end_is_told(tmp_path):
    HearsEnds.heard.clear()
    space = {"x": tune.grid_search([1, 2])}
    analysis = run(scored, tmp_path, config=space, scheduler=HearsEnds())
    heard = sorted((row["score"], row["done"]) for row in HearsEnds.heard)  # they run side by side
    assert heard == [(1, True), (2, True)]
    assert [row["done"] for row in analysis.trials[0].rows()] == [False]


def test_no_best_trial_is_none_under_older_names_and_told(tmp_path, caplog):
    def nan_or_nothing(config):
        if config["x"]:
            tune.report(loss=float("nan"))

    analysis = run(
        nan_or_nothing, tmp_path, config={"x": tune.grid_search([0, 1])}, metric="loss", mode="min"
    )
    assert analysis.best_trial is analysis.best_config is analysis.get_best_logdir() is None
    assert "No trial is the best by 'loss'. Trials 00001 have it" in caplog.text
    assert analysis.get_best_trial(filter_nan_and_inf=False).trial_id == "00001"
    assert analysis.get_best_trial("los", filter_nan_and_inf=False) is None
    with pytest.raises(TuneError, match="No trial is the best"):
        _ = analysis.best_result
    with pytest.raises(TuneError, match="No trial is the best"):
        analysis.grid.get_best_result()


def test_trials_that_have_not_reported_are_in_no_data_frame_of_rows(tmp_path):
    pytest.importorskip("pandas")

    def every_second(config):
        if config["x"] != 2:
            tune.report(loss=config["x"])

    analysis = run(every_second, tmp_path, config={"x": tune.grid_search([1, 2, 3])})
    for frame in (analysis.dataframe(), analysis.dataframe("loss", "min")):
        assert list(frame["loss"]) == [1, 3]
        assert list(frame.index) == [0, 1]
    assert len(analysis.results_df) == 3


class OwnError(ValueError):
    """Has attributes and another constructor."""

    def __init__(self, code, place):
        super().__init__(code, place)
        self.code = code


def raising(config):
    if config["kind"] == "own":
        raise OwnError(7, place="here")
    raise {"key": KeyError, "file": FileNotFoundError, "type": TypeError}[config["kind"]]("told")


@pytest.mark.parametrize("in_process", [True, False])
def test_an_error_is_an_instance_of_the_trials_own(tmp_path, in_process):
    space = {"kind": tune.grid_search(["own", "key", "file", "type"])}
    grid = fitted(raising, tmp_path, name="raise", space=space, tuning={"in_process": in_process})
    for result, kind in zip(grid, (OwnError, KeyError, FileNotFoundError, TypeError), strict=True):
        assert isinstance(result.error, kind)
        assert isinstance(result.error, TrialError)
        assert isinstance(result.error.__cause__, kind)
        assert kind.__name__ in str(result.error)
    assert grid[0].error.code == 7
    read = tune.Tuner.restore(tmp_path / "raise", raising).get_results()
    assert [str(error) for error in read.errors] == [str(error) for error in grid.errors]
    with pytest.raises(KeyError):
        raise grid[1].error


# ---- names of experiments


def test_a_name_that_was_used_before_gets_a_number_and_is_told(tmp_path, caplog):
    paths = [
        Path(fitted(scored, tmp_path, name="x", space={"x": value}).experiment_path)
        for value in (1, 2, 3)
    ]
    assert [path.name for path in paths] == ["x", "x-2", "x-3"]
    assert "x holds an experiment already" in caplog.text
    assert "Tuner.restore" in caplog.text
    assert [tune.ExperimentAnalysis(path).trials[0].config["x"] for path in paths] == [1, 2, 3]


# ---- several experiments


def test_a_list_of_experiments_is_run_one_after_the_other(tmp_path):
    experiments = [
        tune.Experiment("first", scored, config={"x": tune.grid_search([1, 2])}),
        tune.Experiment("second", scored, config={"x": 9}),
    ]
    analysis = run(experiments, tmp_path, metric="score", mode="max")
    assert [trial.config["x"] for trial in analysis.trials] == [1, 2, 9]
    assert analysis.best_config == {"x": 9}
    assert list(analysis.results) == ["first/00000", "first/00001", "second/00000"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]
    with pytest.raises(TuneError, match="at least one"):
        run([], tmp_path)


# ---- stopping and counting


def nested(config):
    for number in range(1, 100):
        tune.report({"env_runners": {"score": {"mean": number}}, "other": -number})


@pytest.mark.parametrize(
    "stop",
    [
        {"env_runners": {"score": {"mean": 4}}},
        {"env_runners/score": {"mean": 4}},
        {"env_runners": {"score/mean": (">=", 4)}, "training_iteration": 50},
        {"other": ("<=", -4)},
    ],
)
def test_bounds_of_stop_may_be_nested(tmp_path, stop):
    grid = fitted(nested, tmp_path, stop=stop)
    assert len(grid[0].rows()) == 4


def test_a_nested_bound_that_is_misspelt_is_named_by_its_path(tmp_path):
    with pytest.raises(TuneError, match="'env_runners/scores'"):
        fitted(nested, tmp_path, stop={"env_runners": {"scores": 4}})


class Counting(tune.Trainable):
    """Counts what it does in each row; keeps its rows, and nothing of the sums."""

    def setup(self, config):
        self.row = 0

    def step(self):
        self.row += 1
        if self.row == 4 and not Path(self.logdir, "raised").exists():
            Path(self.logdir, "raised").touch()
            raise RuntimeError("once")
        return {"timesteps_this_iter": 10 + self.row, "episodes_this_iter": 2}

    def save_checkpoint(self, checkpoint_dir):
        return {"row": self.row}

    def load_checkpoint(self, checkpoint):
        self.row = checkpoint["row"]


def test_timesteps_of_rows_are_summed_over_restarts(tmp_path):
    grid = fitted(
        Counting,
        tmp_path,
        stop={"timesteps_total": 80},
        failure_config=tune.FailureConfig(max_failures=1),
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2),
        tuning={"in_process": False},
    )
    rows = grid[0].rows()
    assert grid[0].num_failures == 1
    assert [row["timesteps_total"] for row in rows] == [11, 23, 36, 50, 65, 81]
    assert [row["episodes_total"] for row in rows] == [2, 4, 6, 8, 10, 12]
    assert "timesteps_total" not in fitted(nested, tmp_path)[0].rows()[0]


class Stepping(tune.Trainable):
    """Counts as many timesteps as its config says."""

    def step(self):
        return {"timesteps_this_iter": self.config["steps"], "score": self.config["steps"]}

    def save_checkpoint(self, checkpoint_dir):
        return {}

    def load_checkpoint(self, checkpoint):
        pass


@pytest.mark.parametrize("in_process", [True, False])
def test_a_copy_goes_on_with_the_sums_of_the_row_that_it_was_copied_from(tmp_path, in_process):
    scheduler = tune.PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"steps": tune.randint(1, 100)}
    )
    grid = fitted(
        Stepping,
        tmp_path,
        space={"steps": tune.randint(1, 100)},
        stop={"training_iteration": 6},
        tuning={
            "scheduler": scheduler,
            "num_samples": 4,
            "metric": "score",
            "mode": "max",
            "in_process": in_process,
        },
    )
    exploits = [
        (result, exploit)
        for result in grid
        for exploit in json.loads(Path(result.path, "trial.json").read_text())["exploits"]
    ]
    assert exploits
    for result, exploit in exploits:
        donor = grid[exploit["donor"]].rows()[exploit["donor_row"] - 1]
        row = result.rows()[exploit["row"]]
        assert row["timesteps_total"] == donor["timesteps_total"] + row["timesteps_this_iter"]


def reporting_totals(config):
    tune.report(timesteps_total=5)
    tune.report(timesteps_this_iter=2)
    tune.report(timesteps_total=5)


def test_totals_that_are_reported_are_left_alone(tmp_path):
    rows = fitted(reporting_totals, tmp_path)[0].rows()
    assert [row["timesteps_total"] for row in rows] == [5, 7, 5]


# ---- classes


class Saved(Counting):
    """Without the error in `step`."""

    def step(self):
        self.row += 1
        return {"timesteps_this_iter": 10 + self.row}


def test_a_class_saves_into_a_folder_of_its_own_making(tmp_path):
    first, second = Saved({}), Saved({})
    first.row = 3
    path = first.save()
    second.restore(path)
    assert second.row == 3
    assert first.save() != path
    assert first.save(tmp_path / "made") == str(tmp_path / "made")


class Renamed(Saved):
    """Forgets which row it is at, and calls its entry otherwise."""

    def step(self):
        return {f"row_{self.row}": 1, **super().step()}

    def load_checkpoint(self, checkpoint):
        pass


def test_a_class_that_is_saved_by_hand_goes_on_with_its_count():
    assert tune.validate_save_restore(Saved, {"x": 1})
    first, second = Saved(), Saved()
    first.train()
    second.restore(first.save())
    assert second.iteration == 1
    assert second.train()["timesteps_this_iter"] == first.train()["timesteps_this_iter"] == 12
    with pytest.raises(TuneError, match="does not go on where it was saved"):
        tune.validate_save_restore(Renamed)


# ---- searching


def test_domains_are_sampled_outside_of_an_experiment():
    np.random.seed(7)  # noqa: NPY002 - what users of Ray Tune seed
    drawn = [tune.uniform(0, 1).sample() for _ in range(2)]
    np.random.seed(7)  # noqa: NPY002
    assert [tune.uniform(0, 1).sample() for _ in range(2)] == drawn
    assert drawn[0] != drawn[1]
    assert 0 <= drawn[0] < 1
    assert tune.randint(0, 9).sample(random_state=3) == tune.randint(0, 9).sample(random_state=3)
    rng = np.random.default_rng(0)
    several = tune.choice(["a", "b"]).sample(size=50, random_state=rng)
    assert set(several) == {"a", "b"}
    assert several != tune.choice(["a", "b"]).sample(size=50, random_state=rng)
    legacy = np.random.RandomState(1)
    assert tune.loguniform(1e-4, 1).sample(random_state=legacy) > 0
    assert tune.sample_from(lambda config: config["x"] + 1).sample({"x": 2}) == 3


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng, int])
def test_a_search_has_a_random_state_of_its_own(tmp_path, make):
    def configs(seed, state):
        searcher = BasicVariantGenerator(random_state=make(state))
        grid = fitted(
            scored,
            tmp_path,
            name="random",
            space={"x": tune.uniform(0, 1)},
            tuning={"search_alg": searcher, "num_samples": 3, "seed": seed},
        )
        return grid.experiment_path, [result.config for result in grid]

    path, first = configs(1, 1000)
    assert configs(2, 1000)[1] == first
    assert configs(1, 1001)[1] != first
    header = json.loads(Path(path, "journal.jsonl").read_text().splitlines()[0])
    assert isinstance(header["entry"]["searcher"]["random_state"], int)
    tuner = tune.Tuner.restore(
        path, scored, tune_config=tune.TuneConfig(num_samples=4, in_process=True)
    )
    more = [result.config for result in tuner.fit()]
    assert (more[:3], len(more)) == (first, 4)


class QuietScheduler(tune.TrialScheduler):
    """Returns nothing where it has nothing to say."""

    needs_metric = False

    def on_trial_result(self, trial, result):
        return self.STOP if result["other"] <= -2 else self.CONTINUE

    def on_trial_complete(self, trial, result, failed):
        assert result["env_runners"]["score"]["mean"] == 1  # the whole row


class RaysScheduler(tune.schedulers.ASHAScheduler):
    """Is written for Ray's controller, and hands it on."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.told = []

    def on_trial_add(self, tune_controller, trial):
        self.told.append(("added", trial.trial_id))
        super().on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller, trial, result):
        assert tune_controller is None
        verdict = super().on_trial_result(tune_controller, trial, result)
        if verdict != self.CONTINUE:
            Path(result["told"]).write_text(f"{self.told} {trial.trial_id} {verdict}")
        return verdict

    def on_trial_complete(self, tune_controller, trial, result):
        return super().on_trial_complete(tune_controller, trial, result)


class Choosing(tune.schedulers.FIFOScheduler):
    """Has a method of Ray's that would never be called."""

    def choose_trial_to_run(self, tune_controller):
        return None


def falling(config):
    for step in range(1, 9):
        tune.report({"loss": config["x"] / step, "told": config["told"]})


def test_schedulers_may_say_nothing(tmp_path):
    grid = fitted(
        nested, tmp_path, tuning={"scheduler": QuietScheduler()}, stop={"training_iteration": 1}
    )
    assert len(grid[0].rows()) == 1
    assert len(fitted(nested, tmp_path, tuning={"scheduler": QuietScheduler()})[0].rows()) == 2


def test_schedulers_for_rays_controller_get_none(tmp_path):
    space = {"x": tune.grid_search([1, 2, 3, 4]), "told": str(tmp_path / "told")}

    def rows(scheduler):
        grid = fitted(
            falling,
            tmp_path,
            space=space,
            tuning={"scheduler": scheduler, "metric": "loss", "mode": "min"},
            name=type(scheduler).__name__,
        )
        return [len(result.rows()) for result in grid]

    ready_made = rows(tune.schedulers.ASHAScheduler(max_t=8, grace_period=2, reduction_factor=2))
    assert min(ready_made) < 8
    own = RaysScheduler(max_t=8, grace_period=2, reduction_factor=2)
    assert rows(own) == ready_made
    assert "('added', '00000')" in (tmp_path / "told").read_text()
    assert (type(own), own.told) == (RaysScheduler, [])  # what users give stays theirs
    folder = tmp_path / "RaysScheduler"
    again = tune.Tuner.restore(
        folder,
        falling,
        tune_config=tune.TuneConfig(scheduler=own, metric="loss", mode="min"),
    )
    assert [len(result.rows()) for result in again.get_results()] == ready_made
    with pytest.raises(TuneError, match="would never be called"):
        fitted(nested, tmp_path, tuning={"scheduler": Choosing()})


def unnamed(config):
    return config["x"]


def test_numbers_without_a_name_are_compared_where_only_a_mode_is_given(tmp_path):
    analysis = run(
        unnamed,
        tmp_path,
        config={"x": tune.grid_search([1, 3, 2])},
        mode="max",
        scheduler=tune.ASHAScheduler(),
    )
    assert analysis.best_config == {"x": 3}


# ---- small things


@pytest.mark.parametrize("make", [dict, list])
def test_columns_are_added_to_a_reporter(make):
    reporter = tune.CLIReporter(metric_columns=make([("a", "A")]) if make is dict else ["a"])
    reporter.add_metric_column("b", "B")
    reporter.add_parameter_column("lr")
    assert list(reporter.metric_columns) == ["a", "b"]
    assert "B" in reporter.table([]).splitlines()[0]
    assert "lr" in reporter.table([]).splitlines()[0]
    with pytest.raises(ValueError, match="'b' is a column already"):
        reporter.add_metric_column("b")


def test_truth_values_say_whether_anything_is_shown(tmp_path, capsys):
    run_config = {"storage_path": tmp_path, "name": "shown"}
    tune.Tuner(scored, run_config=tune.RunConfig(verbose=False, **run_config)).fit()
    assert capsys.readouterr().out == ""
    tune.Tuner(scored, run_config=tune.RunConfig(verbose=True, **run_config)).fit()
    assert "Experiment shown" in capsys.readouterr().out


def test_a_bound_that_is_an_empty_dict_is_refused(tmp_path):
    with pytest.raises(TuneError, match=r"stop=\{'a': \{\}\}"):
        fitted(scored, tmp_path, stop={"a": {}})


def test_folders_are_named_by_the_names_that_trials_were_given(tmp_path):
    grid = fitted(
        scored,
        tmp_path,
        tuning={
            "trial_name_creator": lambda trial: f"mine-{trial.trial_id}",
            "trial_dirname_creator": lambda trial: f"of-{trial}",
        },
    )
    assert Path(grid[0].path).name == "of-mine-00000"


def test_folders_of_one_name_are_told_apart_by_the_number(tmp_path):
    grid = fitted(
        scored,
        tmp_path,
        name="dirs",
        space={"x": tune.grid_search([1, 2])},
        tuning={"trial_dirname_creator": lambda trial: "same"},
    )
    assert [Path(result.path).name for result in grid] == ["same", "same_00001"]
    again = tune.Tuner.restore(
        tmp_path / "dirs",
        scored,
        tune_config=tune.TuneConfig(trial_dirname_creator=lambda trial: "same"),
    ).get_results()
    assert [result.config["x"] for result in again] == [1, 2]


def test_the_env_of_an_experiment_goes_into_its_config(tmp_path):
    trials = tune.run_experiments(
        {"e": {"run": scored, "env": "CartPole-v1", "config": {"x": 1}}},
        storage_path=tmp_path,
        verbose=0,
    )
    assert trials[0].config == {"x": 1, "env": "CartPole-v1"}
    with pytest.raises(ValueError, match="a dict, an AlgorithmConfig"):
        tune.Experiment("e", scored, config="wrong")
    with pytest.raises(TypeError, match="cannot be tuned"):
        tune.Experiment("e", int)
    with pytest.raises(ValueError, match="saves by itself"):
        tune.Experiment("e", scored, checkpoint_freq=2)
    with pytest.raises(TuneError, match="no `run`"):
        tune.run_experiments({"e": {}})


def failing_once(config):
    if config["x"] == 2 and not Path(config["marker"]).exists():
        Path(config["marker"]).touch()
        raise RuntimeError("once")
    tune.report({"score": config["x"]})


@pytest.mark.parametrize("resume", ["AUTO+ERRORED_ONLY", "AUTO+RESTART_ERRORED_ONLY"])
def test_errored_trials_are_resumed_by_rays_names(tmp_path, resume):
    config = {"x": tune.grid_search([1, 2]), "marker": str(tmp_path / "marker")}
    settings = {"config": config, "name": "failing"}
    first = run(failing_once, tmp_path, raise_on_failed_trial=False, **settings)
    assert [trial.status for trial in first.trials] == ["TERMINATED", "ERROR"]
    second = run(failing_once, tmp_path, resume=resume, **settings)
    assert [trial.status for trial in second.trials] == ["TERMINATED", "TERMINATED"]


def test_wrong_arguments_are_value_errors():
    for wrong in (
        lambda: tune.RunConfig(verbose="much"),
        lambda: tune.TuneConfig(mode="best"),
        lambda: tune.schedulers.ASHAScheduler(max_t=0),
        lambda: tune.stopper.ExperimentPlateauStopper("x", top=0),
        lambda: tune.SyncConfig(upload_dir="s3://bucket"),
    ):
        with pytest.raises(ValueError, match=r"expected|local disk"):
            wrong()
    tune.SyncConfig(sync_artifacts=True, sync_period=60)


# ---- callbacks


class ForwardingLogger(tune.LoggerCallback):
    """Hands its events on as loggers of Ray do: by position."""

    def __init__(self):
        self.rows = []

    def log_trial_result(self, iteration, trial, result):
        self.rows.append((trial.trial_id, result["score"]))

    def on_trial_result(self, iteration, trials, trial, result, **info):
        super().on_trial_result(iteration, trials, trial, result, **info)


def test_events_of_loggers_are_handed_on_by_position(tmp_path):
    logger = ForwardingLogger()
    fitted(scored, tmp_path, space={"x": tune.grid_search([4, 5])}, callbacks=[logger])
    assert logger.rows == [("00000", 4), ("00001", 5)]


class Noting(Logger):
    """Writes what it is told into the trial's folder."""

    def _init(self):
        self.lines = [f"begin {self.config['x']} {self.trial.trial_id}"]

    def on_result(self, result):
        self.lines.append(f"row {result['score']}")

    def close(self):
        Path(self.logdir, "noted.txt").write_text("\n".join([*self.lines, "end", ""]))


class Failing(tune.Callback):
    """Raises what it was given."""

    def __init__(self, error):
        self.error = error

    def on_trial_result(self, **_):
        raise self.error


@pytest.mark.parametrize("error", [OwnError(7, "here"), KeyError("x"), OSError(2, "gone")])
def test_an_error_of_a_callback_is_an_instance_of_its_own_class(tmp_path, error):
    with pytest.raises(type(error)) as raised:
        fitted(scored, tmp_path, callbacks=[Failing(error)])
    assert isinstance(raised.value, CallbackError)
    assert raised.value.__cause__ is error
    assert "Failing.on_trial_result" in str(raised.value)
    assert vars(error).items() <= vars(raised.value).items()
    again = pickle.loads(pickle.dumps(raised.value))
    assert isinstance(again, CallbackError)
    assert "Failing.on_trial_result" in str(again)


class Underivable(ValueError):
    """Allows no class beside it."""

    def __init_subclass__(cls):
        raise TypeError("final")


def test_an_error_whose_class_cannot_be_derived_from_is_the_cause_alone(tmp_path):
    with pytest.raises(CallbackError) as raised:
        fitted(scored, tmp_path, callbacks=[Failing(Underivable("x"))])
    assert not isinstance(raised.value, ValueError)
    assert isinstance(raised.value.__cause__, Underivable)


def test_old_loggers_are_made_for_each_trial(tmp_path):
    grid = fitted(
        scored,
        tmp_path,
        space={"x": tune.grid_search([4, 5])},
        callbacks=[LegacyLoggerCallback([Noting])],
    )
    noted = [Path(result.path, "noted.txt").read_text() for result in grid]
    assert noted == ["begin 4 00000\nrow 4\nend\n", "begin 5 00001\nrow 5\nend\n"]


def test_names_of_trials_are_made_of_their_configs(tmp_path):
    names = []

    class Listening(tune.Callback):
        def on_trial_complete(self, trial, **_):
            names.append((str(trial), trial.trainable_name))

    fitted(
        scored,
        tmp_path,
        space={"x": tune.grid_search([4, 5])},
        callbacks=[Listening()],
        tuning={"trial_name_creator": lambda trial: f"{trial.trainable_name}_{trial.config['x']}"},
    )
    assert names == [("scored_4", "scored"), ("scored_5", "scored")]
