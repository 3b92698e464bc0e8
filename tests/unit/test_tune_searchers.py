"""Searchers without Optuna: limits, names, searchers of users."""

import pytest

from tests.unit.tune_simulation import Simulation, make_plan
from trainer.errors import TuneError
from trainer.tune.controller import Controller
from trainer.tune.naming import NOT_OFFERED, create_scheduler, create_searcher, not_offered
from trainer.tune.scheduling import ASHAScheduler
from trainer.tune.search_space import choice, grid_search, uniform
from trainer.tune.searchers import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    RandomSearch,
    Repeater,
    Searcher,
)


def most_running(simulation):
    """How many trials held lanes at the same time at most."""
    running, most = 0, 0
    for entry in simulation.outcome.entries():
        running += {"start": 1, "end": -1}.get(entry["event"], 0)
        most = max(most, running)
    return most


@pytest.mark.parametrize(
    "searcher",
    [
        lambda: BasicVariantGenerator(max_concurrent=2),
        lambda: ConcurrencyLimiter(BasicVariantGenerator(), 2),
        lambda: ConcurrencyLimiter(BasicVariantGenerator(), 2, batch=True),
    ],
)
def test_a_limit_holds_below_the_number_of_lanes(searcher):
    simulation = Simulation(
        lambda: make_plan({"x": uniform(0, 1)}, searcher=searcher(), num_lanes=4, num_samples=7)
    )
    assert len(simulation.run().ends) == 7
    assert most_running(simulation) == 2


class Noting(Searcher):
    """Suggests 0, 1, 2 … and keeps what it is told."""

    def __init__(self, told):
        super().__init__()
        self.told = told
        self.number = 0

    def __deepcopy__(self, memo):
        return self

    def suggest(self, trial_id):
        self.number += 1
        return {"x": self.number - 1}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.told[trial_id] = None if error else result["score"]


def repeated_rows(config, state, row_number):
    """Fails in the second repetition of suggestion 1, and in all of suggestion 2."""
    x, index = config["x"], config["__trial_index__"]
    if (x, index) == (1, 1) or x == 2:
        return ValueError("no")
    return state, 10 * x + index


@pytest.mark.parametrize("kill_every", [0.0, 0.2])
def test_a_suggestion_is_run_several_times_and_its_mean_is_told_once(kill_every):
    told = {}

    def plan():
        told.clear()
        return make_plan({"x": uniform(0, 9)}, searcher=Repeater(Noting(told), 3), num_samples=12)

    simulation = Simulation(plan, rows=repeated_rows, kill_every=kill_every)
    configs = simulation.run().configs
    assert [configs[n]["x"] for n in range(12)] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert [configs[n]["__trial_index__"] for n in range(12)] == [0, 1, 2] * 4
    assert told == {"00000": 1, "00001": 11, "00002": None, "00003": 31}
    assert len({trial.seed for trial in simulation.controller.trials}) == 12


def test_trials_that_are_repeated_are_not_stopped_early():
    searcher = Repeater(BasicVariantGenerator(), 2)
    with pytest.raises(TuneError, match="stops trials early"):
        Controller(make_plan({}, searcher=searcher, scheduler=ASHAScheduler()))
    with pytest.raises(TuneError, match="expected a multiple"):
        Controller(make_plan({}, searcher=searcher, num_samples=7))


def test_a_batch_begins_when_all_of_the_last_have_ended():
    def rows(config, state, row_number):
        return None if row_number > config["length"] else (0.0, 0.0)

    simulation = Simulation(
        lambda: make_plan(
            {"length": grid_search([1, 9, 2, 3, 1])},
            searcher=ConcurrencyLimiter(BasicVariantGenerator(), 2, batch=True),
            stop={"training_iteration": 99},
            num_samples=1,
            num_lanes=2,
        ),
        rows=rows,
    )
    events = [
        (entry["event"], entry["trial"])
        for entry in simulation.run().entries()
        if entry["event"] in ("suggest", "end")
    ]
    assert events.index(("end", 1)) < events.index(("suggest", 2))
    assert events.index(("end", 3)) < events.index(("suggest", 4))


class Halving(Searcher):
    """Goes half way to the best x so far: depends on every result."""

    def __init__(self):
        super().__init__()
        self.best, self.best_x, self.num_waits = -1.0, 1.0, 0
        self.tried = {}

    def suggest(self, trial_id):
        if len(self.tried) == 9:
            return self.FINISHED
        if len(self.tried) == 4 and self.num_waits < 3:
            self.num_waits += 1
            return None
        self.tried[trial_id] = self.best_x / (1 + len(self.tried))
        return {"inner": {"x": self.tried[trial_id]}}

    def on_trial_complete(self, trial_id, result=None, error=False):
        if result is not None and result["score"] > self.best:
            self.best, self.best_x = result["score"], self.tried[trial_id]


def test_a_searcher_of_a_user_is_replayed():
    def plan():
        return make_plan(
            {"inner": {"x": uniform(0, 1), "drawn": uniform(0, 1)}, "constant": 3},
            searcher=Halving(),
            scheduler=ASHAScheduler(max_t=4, reduction_factor=2),
            num_samples=100,
            num_lanes=3,
        )

    def rows(config, state, row_number):
        assert config["constant"] == 3
        return state, config["inner"]["x"] * row_number

    undisturbed = Simulation(plan, rows=rows).run()
    assert len(undisturbed.ends) == 9
    assert len({each["inner/drawn"] for each in undisturbed.configs.values()}) == 9
    for seed in range(1, 6):
        simulation = Simulation(plan, rows=rows, seed=seed, kill_every=0.15)
        assert simulation.run().decided() == undisturbed.decided()
        assert simulation.controller.inexact_reasons == ()


def test_a_searcher_that_forgets_is_found():
    """Negative control: suggestions that depend on how often the object was made."""

    class Forgetful(Halving):
        num_made = 0

        def __init__(self):
            super().__init__()
            Forgetful.num_made += 1
            self.best_x = 1.0 / Forgetful.num_made

    simulation = Simulation(
        lambda: make_plan({"inner": {"x": uniform(0, 1)}}, searcher=Forgetful(), num_samples=9),
        rows=lambda config, state, row_number: (state, config["inner"]["x"]),
        seed=1,
        kill_every=0.2,
    )
    recorded = {}
    for entry in simulation.run().entries():
        if entry["event"] == "suggest":
            recorded[entry["trial"]] = entry["params"]["inner/x"]
    assert simulation.num_kills
    assert "were not repeated" in simulation.controller.inexact_reasons[0]
    # What is recorded wins all the same.
    assert {n: each["inner/x"] for n, each in simulation.outcome.configs.items()} == recorded


def test_grids_are_for_searchers_that_do_not_choose():
    for searcher in (Halving(), RandomSearch()):
        with pytest.raises(TuneError, match="is a grid_search"):
            Simulation(lambda: make_plan({"x": grid_search([1])}, searcher=searcher))  # noqa: B023


@pytest.mark.parametrize(
    "make",
    [
        lambda: Repeater(RandomSearch(), 0),
        lambda: Repeater(RandomSearch(), 2, reduce="sum"),
        lambda: ConcurrencyLimiter(3, 2),
        lambda: ConcurrencyLimiter(RandomSearch(), 0),
        lambda: BasicVariantGenerator(random_state=0.5),
    ],
)
def test_searchers_refuse_arguments_without_sense(make):
    with pytest.raises(TuneError, match="expected"):
        make()


def test_what_a_searcher_gives_must_be_a_suggestion():
    class Wrong(Searcher):
        def __init__(self, given):
            super().__init__()
            self.given = given

        def suggest(self, trial_id):
            return self.given

    for given in ("later", [3], 5):
        with pytest.raises(TuneError, match="expected a dict"):
            Simulation(lambda: make_plan({"x": choice([1])}, searcher=Wrong(given))).run()  # noqa: B023


# ---- by name


def test_searchers_and_schedulers_are_made_by_name():
    assert isinstance(create_scheduler("ASHA", max_t=9), ASHAScheduler)
    for name in ("fifo", "async_hyperband", "hyperband", "median_stopping_rule"):
        create_scheduler(name)
    assert create_scheduler("pbt", hyperparam_mutations={"x": [1]}).explored == ("x",)
    assert isinstance(create_searcher("random", max_concurrent=3), BasicVariantGenerator)


@pytest.mark.parametrize(
    ("create", "expected"),
    [
        (lambda: create_scheduler("asah"), "Did you mean 'asha'"),
        (lambda: create_scheduler("asha", maxt=3), "Did you mean 'max_t'"),
        (lambda: create_scheduler("pb2"), "PopulationBasedTraining"),
        (lambda: create_scheduler("HyperBandForBOHB"), "ASHAScheduler"),
        (lambda: create_searcher("hyperopt"), "OptunaSearch"),
        (lambda: create_searcher("TuneBOHB"), "not offered"),
        (lambda: create_searcher(3), "expected one of"),
    ],
)
def test_names_that_are_not_offered_say_what_to_do(create, expected):
    with pytest.raises(TuneError, match=expected):
        create()


def test_every_name_that_is_not_offered_has_advice():
    assert {"PB2", "ResourceChangingScheduler", "AxSearch", "checkpoint_dir"} <= set(NOT_OFFERED)
    for name in NOT_OFFERED:
        assert name in str(not_offered(name))
    assert not_offered("unheard_of") is None
