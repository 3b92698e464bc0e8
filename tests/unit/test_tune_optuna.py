"""OptunaSearch: suggestions repeat themselves after restores, and Optuna hears how trials ended."""

import builtins
import math
import statistics
import warnings

import numpy as np
import pytest

from tests.unit.tune_simulation import Simulation, default_rows, make_plan
from trainer import tune
from trainer.errors import TuneError
from trainer.tune.naming import create_searcher
from trainer.tune.optuna_search import OptunaSearch
from trainer.tune.scheduling import ASHAScheduler
from trainer.tune.search_space import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    qrandint,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from trainer.tune.searchers import Searcher

optuna = pytest.importorskip("optuna")

SPACE = {
    "x": uniform(0, 1),
    "lr": loguniform(1e-4, 1),
    "h": choice([[1], [2, 2]]),
    "kind": choice(["a", "b", None]),
    "n": randint(1, 9),
    "q": quniform(0, 1, 0.25),
    "nested": {"k": qrandint(0, 8, 2), "log": lograndint(1, 100)},
    "constant": 3,
    "double": sample_from(lambda config: config["x"] * 2),
}


def quiet(make):
    """Makes a sampler that Optuna calls experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return make()


SAMPLERS = {
    "TPE": lambda: None,
    "NSGA-II": lambda: optuna.samplers.NSGAIISampler(population_size=6),
    "NSGA-III": lambda: quiet(lambda: optuna.samplers.NSGAIIISampler(population_size=6)),
    "random": lambda: optuna.samplers.RandomSampler(),
    "a function": lambda: lambda seed: optuna.samplers.TPESampler(seed=seed, n_startup_trials=4),
}


def plan_of(sampler, **changes):
    """Makes plans of a search with early stopping."""
    return lambda: make_plan(
        SPACE,
        searcher=OptunaSearch(sampler=sampler()),
        scheduler=ASHAScheduler(max_t=4, reduction_factor=2),
        **{"num_samples": 20, "num_lanes": 3, **changes},
    )


@pytest.mark.parametrize("name", SAMPLERS)
def test_suggestions_are_the_same_after_restores(name):
    make = plan_of(SAMPLERS[name])
    undisturbed = Simulation(make).run()
    simulation = Simulation(make, seed=1, kill_every=0.15)
    outcome = simulation.run()
    assert simulation.num_kills > 2
    assert outcome.decided() == undisturbed.decided()
    assert outcome.configs == undisturbed.configs
    assert simulation.controller.inexact_reasons == ()


def test_suggestions_depend_on_results_and_seed():
    """Negative control: what would be equal anyway shows nothing."""
    make = plan_of(SAMPLERS["TPE"])
    first = Simulation(make).run()
    other_rows = Simulation(
        make, rows=lambda config, state, row_number: (state, -default_rows(config, state, 1)[1])
    ).run()
    other_seed = Simulation(plan_of(SAMPLERS["TPE"], seed=8)).run()
    assert first.configs[0] == other_rows.configs[0]
    assert first.configs != other_rows.configs
    assert first.configs[0] != other_seed.configs[0]


def test_values_are_those_of_the_space():
    simulation = Simulation(plan_of(SAMPLERS["TPE"], num_samples=30))
    simulation.run()
    space = simulation.make().space
    for trial in simulation.controller.trials:
        for path, domain in space.parameters.items():
            assert domain.problem_of(trial.params[path]) is None
        config = simulation.controller.config_of(trial.number)
        assert type(config["n"]) is int
        assert config["h"] in ([1], [2, 2])
        assert config["double"] == config["x"] * 2
        assert config["constant"] == 3


def test_optuna_hears_which_trials_were_stopped_early_and_which_failed():
    def rows(config, state, row_number):
        kind = int(config["x"] * 1000) % 4
        if kind == 0 and row_number == 2:
            return ValueError("failed on purpose")
        if kind == 1 and row_number == 4:
            return 0.0, math.nan
        return default_rows(config, state, row_number)

    simulation = Simulation(plan_of(SAMPLERS["TPE"], num_samples=30), rows=rows)
    outcome = simulation.run()
    searcher = simulation.controller._searcher
    study = searcher.to_study()
    states = optuna.trial.TrialState
    seen = set()
    for trial, told in zip(simulation.controller.trials, study.trials, strict=True):
        status, reason = outcome.ends[trial.number]
        is_nan = int(trial.params["x"] * 1000) % 4 == 1
        if status == "ERROR" or (is_nan and "cutoff" not in reason):
            expected = states.FAIL
        elif "cutoff" in reason:
            expected = states.PRUNED
        else:
            expected = states.COMPLETE
            assert told.value == outcome.rows[trial.number, 4]
        assert told.state == expected
        assert sorted(told.intermediate_values) == list(range(1, trial.num_rows + 1))
        seen.add(expected)
    assert seen == {states.FAIL, states.PRUNED, states.COMPLETE}


def test_points_are_tried_first_and_known_ones_not_at_all():
    points = [{"x": 0.5, "y": 3}, {"x": 0.25}]
    space = {"x": uniform(0, 1), "y": randint(0, 5)}

    def make(**arguments):
        return lambda: make_plan(
            space, searcher=OptunaSearch(points_to_evaluate=points, **arguments), num_samples=4
        )

    undisturbed = Simulation(make()).run()
    assert undisturbed.configs[0] == {"x": 0.5, "y": 3}
    assert undisturbed.configs[1]["x"] == 0.25
    assert Simulation(make(), seed=1, kill_every=0.3).run().decided() == undisturbed.decided()
    points[1]["y"] = 1
    known = Simulation(make(evaluated_rewards=[1.0, 2.0]))
    assert known.run().configs[0]["x"] not in (0.5, 0.25)
    searcher = known.controller._searcher
    assert [each.value for each in searcher.to_study().trials[:2]] == [1.0, 2.0]


def test_a_space_may_be_a_function_or_optunas_distributions():
    def define(trial):
        x = trial.suggest_float("x", 0, 1)
        if x > 0.5:
            trial.suggest_int("m/n", 1, 3)
        return {"extra": 7}

    def make():
        return make_plan({"c": 1}, searcher=OptunaSearch(define), num_samples=12)

    undisturbed = Simulation(make)
    outcome = undisturbed.run()
    for number, params in outcome.configs.items():
        assert ("m/n" in params) == (params["x"] > 0.5)
        assert undisturbed.controller.config_of(number)["extra"] == 7
    assert Simulation(make, seed=1, kill_every=0.2).run().configs == outcome.configs
    distributions = {"x": optuna.distributions.FloatDistribution(2, 3)}
    plan = make_plan({"c": 1}, searcher=OptunaSearch(distributions), num_samples=5)
    for params in Simulation(lambda: plan).run().configs.values():
        assert 2 <= params["x"] <= 3


def test_several_metrics_are_searched_together():
    def make():
        searcher = OptunaSearch(
            metric=["score", "training_iteration"],
            mode=["max", "min"],
            sampler=optuna.samplers.NSGAIISampler(population_size=4),
        )
        return make_plan({"x": uniform(0, 1)}, searcher=searcher, metric=None, mode=None)

    undisturbed = Simulation(make).run()
    assert Simulation(make, seed=1, kill_every=0.2).run().decided() == undisturbed.decided()


def test_a_space_of_domains_may_be_given_to_the_searcher():
    space = {"x": uniform(2, 3), "nested": {"h": choice([[1], [2, 2]])}}

    def make():
        return make_plan(
            {"c": 1},
            searcher=OptunaSearch(space, points_to_evaluate=[{"nested": {"h": [2, 2]}}]),
            num_samples=9,
        )

    undisturbed = Simulation(make)
    outcome = undisturbed.run()
    configs = [undisturbed.controller.config_of(number) for number in outcome.configs]
    assert configs[0]["nested"]["h"] == [2, 2]
    assert all(config["c"] == 1 and 2 <= config["x"] <= 3 for config in configs)
    assert {tuple(config["nested"]["h"]) for config in configs} == {(1,), (2, 2)}
    again = Simulation(make, seed=1, kill_every=0.2)
    assert again.run().decided() == outcome.decided()
    assert again.controller.inexact_reasons == ()


class Around(Searcher):
    """Asks Optuna itself, and halves what it suggests."""

    def __init__(self):
        super().__init__()
        self.inner = OptunaSearch({"x": uniform(0, 1)}, metric="score", mode="max", seed=7)

    def suggest(self, trial_id):
        return {"x": self.inner.suggest(trial_id)["x"] / 2}

    def on_trial_result(self, trial_id, result):
        self.inner.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.inner.on_trial_complete(trial_id, result, error)
        self.inner.on_trial_complete(trial_id, result, error)  # which is told once
        self.inner.on_trial_result(trial_id, result)


def test_a_searcher_of_a_user_asks_optuna_itself_and_repeats_after_restores():
    def make():
        return make_plan({"x": uniform(0, 1)}, searcher=Around(), num_samples=20)

    undisturbed = Simulation(make)
    outcome = undisturbed.run()
    assert all(params["x"] <= 0.5 for params in outcome.configs.values())
    study = undisturbed.controller._searcher.inner.to_study()
    assert {each.state.name for each in study.trials} == {"COMPLETE"}
    assert [each.params["x"] / 2 for each in study.trials] == [
        params["x"] for _, params in sorted(outcome.configs.items())
    ]
    again = Simulation(make, seed=1, kill_every=0.2)
    assert again.run().decided() == outcome.decided()
    late = [params["x"] for number, params in outcome.configs.items() if number >= 15]
    assert statistics.mean(late) > 0.3  # it has learnt where the best are


def test_domains_become_distributions_of_optuna():
    found = OptunaSearch.convert_search_space({"x": uniform(0, 1), "nested": {"n": randint(1, 9)}})
    assert found == {
        "x": optuna.distributions.FloatDistribution(0, 1),
        "nested/n": optuna.distributions.IntDistribution(1, 8),
    }


class Counting(OptunaSearch):
    """Notes what it hears, beside what Optuna does; copies share the list."""

    heard = []

    def on_trial_result(self, trial_id, result):
        super().on_trial_result(trial_id, result)
        self.heard.append(result["training_iteration"])

    def on_trial_complete(self, trial_id, result=None, error=False):
        super().on_trial_complete(trial_id, result, error)
        self.heard.append("failed" if error else "complete")


def test_a_trial_that_is_taken_up_again_goes_on_and_a_subclass_hears_of_all(tmp_path):
    Counting.heard.clear()

    def fails_once(config):
        found = tune.get_checkpoint()
        for step in range(1 if found is None else 2, 4):
            saved = tune.Checkpoint.from_data({"step": step})
            tune.report({"score": config["x"], "step": step}, checkpoint=saved)
            if found is None:
                raise ValueError("on purpose")

    tuning = {"in_process": True, "metric": "score", "mode": "max", "seed": 0}
    tune.Tuner(
        fails_once,
        param_space={"x": uniform(0, 1)},
        tune_config=tune.TuneConfig(**tuning, search_alg=Counting()),
        run_config=tune.RunConfig(name="x", storage_path=tmp_path, verbose=0),
    ).fit()
    restored = tune.Tuner.restore(
        tmp_path / "x",
        fails_once,
        resume_errored=True,
        tune_config=tune.TuneConfig(**tuning, search_alg=Counting()),
    )
    (result,) = restored.fit()
    assert result.error is None
    assert result.metrics["training_iteration"] == 3
    assert Counting.heard[-5:] == [1, "failed", 2, 3, "complete"]


def test_a_grid_sampler_has_one_seed_for_all_points():
    def make():
        sampler = optuna.samplers.GridSampler({"x": [0, 1, 2, 3], "y": [0, 1]})
        return make_plan(
            {"x": randint(0, 4), "y": randint(0, 2)},
            searcher=OptunaSearch(sampler=sampler),
            num_samples=8,
        )

    simulation = Simulation(make, seed=1, kill_every=0.2)
    configs = simulation.run().configs.values()
    assert len({tuple(each.items()) for each in configs}) == 8
    assert simulation.controller.inexact_reasons == ()


def scrambled(seed=None):
    return quiet(
        lambda: optuna.samplers.QMCSampler(
            scramble=True, seed=seed, warn_asynchronous_seeding=False
        )
    )


@pytest.mark.parametrize(
    ("first", "second", "are_equal"),
    [
        (scrambled, scrambled, True),
        (lambda: scrambled(3), lambda: scrambled(3), True),
        (lambda: scrambled(3), lambda: scrambled(4), False),
        (scrambled, lambda: scrambled(3), False),
    ],
)
def test_scrambled_sequences_have_the_seed_of_the_sampler_or_of_the_experiment(
    first, second, are_equal, monkeypatch
):
    def sample_qmc(self, study, search_space):
        """Stands in for the sequences, which need SciPy."""
        return np.random.default_rng(self._seed).random((1, len(search_space)))

    monkeypatch.setattr(optuna.samplers.QMCSampler, "_sample_qmc", sample_qmc)
    one, two = (Simulation(plan_of(make, num_samples=4)) for make in (first, second))
    assert (one.run().configs == two.run().configs) == are_equal
    assert one.controller.inexact_reasons == ()


def test_samplers_that_remember_more_than_optuna_stores_are_inexact():
    class Own(optuna.samplers.RandomSampler):
        """A sampler of a user."""

    for sampler in (
        Own(seed=3),
        lambda seed: Own(seed=seed),
        quiet(lambda: optuna.samplers.QMCSampler(independent_sampler=Own(seed=3))),
    ):
        simulation = Simulation(plan_of(lambda: sampler))  # noqa: B023
        assert simulation.controller.inexact_reasons == (
            "Own may remember more than Optuna stores",
        )


def test_a_sampler_that_remembers_is_made_once_and_goes_on():
    class Counting(optuna.samplers.RandomSampler):
        """Suggests 1, 2, 3 …, which Optuna does not store."""

        number = 0

        def sample_independent(self, *_):
            self.number += 1
            return float(self.number)

    seeds = []

    def make_sampler(seed):
        seeds.append(seed)
        return Counting()

    searcher = OptunaSearch(sampler=make_sampler)
    simulation = Simulation(
        lambda: make_plan({"x": uniform(0, 9)}, searcher=searcher, num_samples=4)
    )
    configs = simulation.run().configs
    assert [configs[number]["x"] for number in range(4)] == [1, 2, 3, 4]
    assert seeds == [7]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: OptunaSearch(study_name="s"), "journal"),
        (lambda: OptunaSearch(storage="sqlite:///x.db"), "journal"),
        (lambda: OptunaSearch(sampler=3), "expected a sampler"),
        (lambda: OptunaSearch(sampler=optuna.samplers.TPESampler), "expected a sampler"),
        (lambda: OptunaSearch(sampler=optuna.samplers.BruteForceSampler()), "grid_search"),
        (lambda: made_by(lambda seed: optuna.samplers.BruteForceSampler(seed)), "grid_search"),
        (lambda: made_by(lambda seed: seed), "gave 7; expected a sampler"),
        (lambda: OptunaSearch(evaluated_rewards=[1.0]), "one for each point"),
        (lambda: started({"x": grid_search([1])}), "grid_search"),
        (lambda: started({"x": randn(0, 1)}), "normally distributed"),
        (lambda: started({"x": 1}), "nothing to search"),
        (lambda: started({"x": sample_from(lambda: 1)}), "nothing to search"),
        (lambda: started({"x": uniform(0, 1)}, metric=None), "no metric"),
        (lambda: OptunaSearch({"x": uniform(0, 1), "c": 1}), "'c': 1.*expected domains"),
        (lambda: OptunaSearch({"x": grid_search([1])}), "grids belong into param_space"),
        (lambda: OptunaSearch({"x": sample_from(lambda: 1)}), "sample_from and grids belong"),
        (
            lambda: OptunaSearch(
                {"x": uniform(0, 1), "y": optuna.distributions.FloatDistribution(0, 1)}
            ),
            "distributions by path alone",
        ),
    ],
)
def test_what_optuna_cannot_search_is_refused(make, expected):
    with pytest.raises(TuneError, match=expected):
        quiet(make)


def made_by(make_sampler):
    """An experiment with samplers of a function."""
    return Simulation(plan_of(lambda: make_sampler))


def started(space, own=None, **changes):
    """An experiment of a space."""
    return Simulation(lambda: make_plan(space, searcher=OptunaSearch(own), **changes))


def test_without_optuna_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "optuna":
            raise ModuleNotFoundError("No module named 'optuna'")
        return real(name, *args, **kwargs)

    def absent(name, package=None):
        return without(name)

    monkeypatch.setattr("callbacks.optional_import.importlib.import_module", absent)
    with pytest.raises(ImportError, match=r"local-trainer\[tune\]"):
        create_searcher("optuna")


# ---- does it search


def branin(x, y):
    """A function with the minimum 0.397887 at three places (Dixon and Szegő 1978)."""
    a = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return a**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def branin_of_ours(seed, num_trials, **changes):
    """What OptunaSearch suggests one trial after the other, and what comes of it."""

    def rows(config, state, row_number):
        return state, branin(config["x"], config["y"])

    given = {"num_lanes": 1, "searcher": None, **changes}
    outcome = Simulation(
        lambda: make_plan(
            {"x": uniform(-5, 10), "y": uniform(0, 15)},
            searcher=(given["searcher"] or OptunaSearch)(),
            stop={"training_iteration": 1},
            mode="min",
            num_samples=num_trials,
            num_lanes=given["num_lanes"],
            seed=seed,
        ),
        rows=rows,
    ).run()
    configs = [outcome.configs[number] for number in range(num_trials)]
    return configs, [outcome.rows[number, 1] for number in range(num_trials)]


def branin_of_optuna(sampler, num_trials):
    """The same of Optuna's own loop."""
    storage = optuna.storages.InMemoryStorage()
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(sampler=sampler, storage=storage)
        study.optimize(
            lambda trial: branin(trial.suggest_float("x", -5, 10), trial.suggest_float("y", 0, 15)),
            n_trials=num_trials,
        )
    finally:
        optuna.logging.set_verbosity(verbosity)
    return [each.params for each in study.trials], [each.value for each in study.trials]


def tpe(seed):
    """The sampler that OptunaSearch takes if none is given."""
    return quiet(
        lambda: optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
    )


@pytest.mark.parametrize(
    ("first", "second", "are_equal"),
    [
        (lambda: OptunaSearch(), lambda: OptunaSearch(seed=5), True),
        (lambda: OptunaSearch(), lambda: OptunaSearch(seed=6), False),
        (lambda: seeded(8), lambda: seeded(8), True),
        (lambda: seeded(8), lambda: seeded(9), False),
        (lambda: seeded(None), lambda: seeded(5), False),
    ],
)
def test_suggestions_follow_from_the_seed_that_the_sampler_has(first, second, are_equal):
    one, two = (branin_of_ours(5, 4, searcher=each)[0] for each in (first, second))
    assert (one == two) == are_equal
    assert len({each["x"] for each in one}) == 4


def seeded(seed):
    return OptunaSearch(sampler=optuna.samplers.TPESampler(seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("num_lanes", [1, 2])
def test_ours_searches_the_branin_function_as_well_as_optuna(num_lanes):
    seeds = range(20)
    ours = [min(branin_of_ours(seed, 60, num_lanes=num_lanes)[1]) for seed in seeds]
    theirs = [min(branin_of_optuna(tpe(seed), 60)[1]) for seed in seeds]
    print(
        f"median best of 60 trials, 20 seeds, {num_lanes} lanes: ours "
        f"{statistics.median(ours):.4f}, Optuna {statistics.median(theirs):.4f}"
    )
    assert statistics.median(ours) < statistics.median(theirs) * 1.1
