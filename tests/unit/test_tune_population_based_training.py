"""Population based training: who is replaced by whom, with which settings."""

import json
import math

import numpy as np
import pytest

from tests.unit.tune_simulation import Simulation, default_rows, make_plan
from trainer import PPOConfig
from trainer.errors import TuneError
from trainer.seeding import trial_seed
from trainer.tune.events import CheckpointRef, Clone, Trial
from trainer.tune.population_based_training import (
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
)
from trainer.tune.positions import Kind, rng_at
from trainer.tune.scheduling import SchedulerContext
from trainer.tune.search_space import (
    SearchSpace,
    choice,
    loguniform,
    qrandint,
    randint,
    uniform,
)


def population(size, *, mutations=None, **arguments):
    """A scheduler and its trials, with x = number / 10."""
    scheduler = PopulationBasedTraining(
        perturbation_interval=2,
        hyperparam_mutations=mutations or {"x": uniform(0, 1)},
        metric="score",
        mode="max",
        **arguments,
    )
    space = SearchSpace({"x": uniform(0, 1)})
    scheduler.extend(space)
    scheduler.begin(SchedulerContext(1, size, space))
    trials = [Trial(number, {"x": number / 10}, 1.0, number) for number in range(size)]
    for trial in trials:
        scheduler.on_trial_add(trial)
    return scheduler, trials


def report(scheduler, trial, time, score):
    """The verdicts on a row."""
    trial.num_rows = time
    given = scheduler.on_trial_result(trial, {"training_iteration": time, "score": score})
    return [] if isinstance(given, str) else list(given)


def test_a_generation_ends_when_all_have_come_to_its_end():
    scheduler, trials = population(8)
    assert report(scheduler, trials[0], 1, 0.0) == []
    for trial in trials[:7]:
        (pause,) = report(scheduler, trial, 2, trial.number)
        assert pause.action == "pause"
    verdicts = report(scheduler, trials[7], 2, 7)
    # ⌈8 · 0.25⌉ = 2: trials 0 and 1 are replaced by 6 or 7; all go on in the order of numbers.
    assert [(each.action, each.trial) for each in verdicts] == [
        ("pause", 7),
        ("clone", 0),
        ("clone", 1),
        *(("resume", number) for number in range(2, 8)),
    ]
    for verdict in verdicts[1:3]:
        assert verdict.donor in (6, 7)
        assert verdict.donor_row == 2
        donor_x = trials[int(verdict.donor)].params["x"]
        x = verdict.params["x"]
        assert x in (min(1, donor_x * 1.2), donor_x * 0.8) or 0 <= x < 1
    assert scheduler.pinned == {CheckpointRef(number, 2) for number in range(8)}
    # The next generation ends two rows later.
    assert report(scheduler, trials[0], 3, 0.0) == []
    assert report(scheduler, trials[0], 4, 0.0)[0].action == "pause"


def test_ranks_are_by_metric_then_number_and_nan_is_last():
    scheduler, trials = population(4, quantile_fraction=0.5)
    scores = {0: math.nan, 1: 1.0, 2: 1.0, 3: 1.0}
    for number, score in scores.items():
        verdicts = report(scheduler, trials[number], 2, score)
    clones = {each.trial: each.donor for each in verdicts if each.action == "clone"}
    assert clones.keys() == {0, 3}  # of the equal ones the smaller numbers are better
    assert set(clones.values()) <= {1, 2}


def test_nobody_is_copied_where_all_are_nan():
    scheduler, trials = population(4)
    for trial in trials:
        verdicts = report(scheduler, trial, 2, math.nan)
    assert [each.action for each in verdicts] == ["pause"] + ["resume"] * 4


def test_a_trial_that_fails_is_not_waited_for():
    scheduler, trials = population(4)
    for trial in trials[:3]:
        report(scheduler, trial, 2, trial.number)
    verdicts = scheduler.on_trial_complete(trials[3], None, True)
    assert [(each.action, each.trial) for each in verdicts] == [
        ("clone", 0),
        ("resume", 1),
        ("resume", 2),
    ]
    assert verdicts[0].donor == 2


def test_without_generations_each_is_judged_at_its_own_interval():
    scheduler, trials = population(4, synch=False)
    assert report(scheduler, trials[1], 2, 5.0) == []
    (clone,) = report(scheduler, trials[0], 2, 0.0)
    assert (clone.action, clone.trial, clone.donor, clone.donor_row) == ("clone", 0, 1, 2)
    assert report(scheduler, trials[2], 3, 6.0) == []  # jumped: counts once, next at 4
    assert report(scheduler, trials[2], 4, 6.0) == []
    assert scheduler.pinned == {CheckpointRef(1, 2), CheckpointRef(2, 4)}


# ---- explore


def explored(domain, value, num=200, *, resample_probability=0.0):
    """Many changes of one value."""
    scheduler, _ = population(2, mutations={"y": domain}, resample_probability=resample_probability)
    space = SearchSpace({"y": 0, "x": uniform(0, 1)})
    scheduler.extend(space)
    rng = rng_at(0, Kind.EXPLORE, 0)
    return [scheduler._explore({"x": 0.1, "y": value}, space, rng)["y"] for _ in range(num)]


def test_numbers_are_multiplied_and_stay_in_their_range():
    assert {round(each, 6) for each in explored(uniform(0, 1), 0.5)} == {0.6, 0.4}
    assert set(explored(loguniform(0.1, 1), 0.1)) == {0.12, 0.1}
    assert all(each < 1 for each in explored(uniform(0, 1), 0.99))


def test_ints_stay_ints_and_move_by_a_step():
    changed = explored(randint(1, 100), 50)
    assert set(changed) == {60, 40}
    assert all(type(each) is int for each in changed)
    assert set(explored(randint(1, 10), 2)) == {3, 1}  # 2 · 1.2 rounds to 2: one step at least
    assert set(explored(randint(1, 10), 1)) == {2, 1}  # there is nothing below
    assert set(explored(qrandint(32, 512, 32), 64)) == {96, 32}


def test_choices_move_to_a_neighbour():
    layers = [[16], [32], [64]]
    assert {tuple(each) for each in explored(choice(layers), [32])} == {(16,), (64,)}
    assert {tuple(each) for each in explored(layers, [64])} == {(32,)}
    assert set(explored([0.1, 0.2], 0.15)) == {0.1, 0.2}  # no member: drawn anew


def test_some_are_drawn_anew():
    assert len(set(explored(uniform(0, 1), 0.5, resample_probability=1.0))) == 200
    share = sum(each in (0.6, 0.4) for each in explored(uniform(0, 1), 0.5, 2000)) / 2000
    assert share == 1.0
    mixed = explored(uniform(0, 1), 0.5, 2000, resample_probability=0.25)
    assert sum(each in (0.6, 0.4) for each in mixed) / 2000 == pytest.approx(0.75, abs=0.03)
    assert set(explored(lambda: 7, 5, resample_probability=1.0)) == {7}


def test_what_is_no_number_cannot_be_multiplied():
    with pytest.raises(TuneError, match="as a list"):
        explored(lambda: "b", "a")


def test_nested_settings_are_changed_in_place():
    plan = make_plan(
        {"model": {"width": 8, "deep": {"k": 1.0}}},
        scheduler=PopulationBasedTraining(
            perturbation_interval=1,
            hyperparam_mutations={"model": {"width": [4, 8, 16], "deep": {"k": uniform(0, 2)}}},
        ),
        num_samples=4,
    )
    simulation = Simulation(lambda: plan, rows=lambda config, state, k: (0.0, float(k)))
    simulation.run()
    trials = simulation.controller.trials
    changed = [simulation.controller.config_of(each.number) for each in trials if each.clones]
    assert changed
    for config in changed:
        assert config["model"]["width"] in (4, 8, 16)
        assert 0 <= config["model"]["deep"]["k"] <= 2
        assert set(config) == {"model"}


def test_mutations_may_name_settings_of_a_config_as_rllib_did():
    config = PPOConfig().training(num_sgd_iter=choice([4, 5]), lambda_=0.5)
    space = SearchSpace(config)
    mutations = {"num_sgd_iter": randint(1, 9), "lambda": uniform(0, 1)}
    scheduler = PopulationBasedTraining(hyperparam_mutations=mutations, resample_probability=0)
    scheduler.extend(space)
    params = scheduler._explore({"num_epochs": 5}, space, rng_at(0, Kind.EXPLORE, 0, 1))
    assert params["num_epochs"] in (4, 6)
    assert params["lambda_"] in (0.5 * 0.8, 0.5 * 1.2)
    assert params.keys() == {"num_epochs", "lambda_"}


def test_a_setting_that_only_mutations_know_is_drawn_from_them():
    plan = make_plan(
        {},
        scheduler=PopulationBasedTraining(hyperparam_mutations={"lr": loguniform(1e-4, 1e-2)}),
        num_samples=3,
    )
    simulation = Simulation(lambda: plan)
    outcome = simulation.run()
    assert len({each["lr"] for each in outcome.configs.values()}) == 3
    assert all(1e-4 <= each["lr"] < 1e-2 for each in outcome.configs.values())


def test_settings_of_a_config_object_are_changed():
    space = SearchSpace(PPOConfig().training(gamma=0.9))
    scheduler = PopulationBasedTraining(
        hyperparam_mutations={"lr": loguniform(1e-5, 1e-1), "model": {"fcnet_hiddens": [[8], [9]]}},
        resample_probability=0.0,
    )
    scheduler.extend(space)
    params = scheduler._explore({}, space, rng_at(0, Kind.EXPLORE, 0))
    config = space.config(params)
    default = PPOConfig().lr
    assert config.lr in (default * 1.2, default * 0.8)
    assert config.gamma == 0.9
    assert config.model_config["fcnet_hiddens"] in ([8], [9])


def test_one_trial_alone_goes_on_unchanged_and_is_told_of(caplog):
    scheduler, (alone,) = population(1)
    assert "population of one trial" in caplog.text
    for time in (2, 4):
        assert [each.action for each in report(scheduler, alone, time, 1.0)] == ["pause", "resume"]
    with pytest.raises(TuneError, match="unknown size"):
        population(1)[0].begin(SchedulerContext(1, None, SearchSpace({})))


def test_a_function_of_the_user_explores_last():
    def explore(config):
        config["x"] = 0.25
        return config

    scheduler, trials = population(2, custom_explore_fn=explore)
    report(scheduler, trials[0], 2, 0.0)
    verdicts = report(scheduler, trials[1], 2, 1.0)
    assert verdicts[1].params == {"x": 0.25}
    for wrong, expected in (
        (lambda config: None, "as a dict"),
        (lambda config: {"x": 7}, "not in"),
    ):
        scheduler, trials = population(2, custom_explore_fn=wrong)
        report(scheduler, trials[0], 2, 0.0)
        with pytest.raises(TuneError, match=expected):
            report(scheduler, trials[1], 2, 1.0)
    scheduler, trials = population(
        2, custom_explore_fn=lambda config: {"x": 7}, bounds_checked=False
    )
    report(scheduler, trials[0], 2, 0.0)
    assert report(scheduler, trials[1], 2, 1.0)[1].params == {"x": 7}


# ---- whole experiments


def pbt_plan(num_lanes=2, **arguments):
    """Eight trials whose best settings change on the way."""
    return make_plan(
        {"x": uniform(0, 1), "h": choice([[1], [2], [3]])},
        scheduler=PopulationBasedTraining(
            perturbation_interval=3,
            hyperparam_mutations={"x": uniform(0, 1), "h": [[1], [2], [3]]},
            **arguments,
        ),
        stop={"training_iteration": 12},
        num_samples=8,
        num_lanes=num_lanes,
    )


def test_generations_do_not_depend_on_the_number_of_lanes():
    outcomes = [Simulation(lambda: pbt_plan(lanes)).run() for lanes in (1, 2, 8)]  # noqa: B023
    assert outcomes[0].rows == outcomes[1].rows == outcomes[2].rows
    assert outcomes[0].configs == outcomes[1].configs == outcomes[2].configs


def test_a_clone_goes_on_from_the_judged_row_with_a_seed_of_its_own():
    simulation = Simulation(pbt_plan)
    starts = []
    act = simulation.act

    def watched(action):
        if type(action).__name__ == "StartTrial":
            starts.append(action)
        act(action)

    simulation.act = watched
    simulation.run()
    clones = [each for each in starts if each.cause == "clone"]
    assert clones
    for start in clones:
        assert start.start_from is not None
        assert start.start_from.row_number == start.base_row == start.row_number
        assert start.row_number % 3 == 0
        assert start.seed != trial_seed(7, start.trial)
        assert start.seed != trial_seed(7, start.start_from.trial)
    assert len({each.seed for each in clones}) == len(clones)


def test_what_decisions_need_is_pinned_and_nothing_is_pinned_for_ever():
    simulation = Simulation(pbt_plan)
    most = 0
    carry_out = simulation.carry_out

    def watched(steps):
        nonlocal most
        carry_out(steps)
        most = max(most, len(simulation.controller.pinned))

    simulation.carry_out = watched
    simulation.run()
    assert most <= 2 * 8
    assert simulation.controller.pinned == set()


def test_population_based_training_beats_as_many_trials_with_fixed_settings():
    """The best step size falls with time: a fixed one is too small at first or too large later."""

    def rows(config, state, row_number):
        best = 0.5 * math.exp(-row_number / 20)
        gain = math.exp(-2 * abs(math.log(config["lr"] / best)))
        return state + gain, state + gain

    def best(scheduler, seed):
        plan = make_plan(
            {"lr": loguniform(1e-3, 1)},
            scheduler=scheduler,
            stop={"training_iteration": 80},
            num_samples=8,
            seed=seed,
        )
        simulation = Simulation(lambda: plan, rows=rows)
        simulation.run()
        return max(float((each.last_row or {})["score"]) for each in simulation.controller.trials)

    populations, fixed = [], []
    for seed in range(3):
        population = PopulationBasedTraining(
            perturbation_interval=4, hyperparam_mutations={"lr": loguniform(1e-3, 1)}
        )
        populations.append(best(population, seed))
        fixed.append(best(None, seed))
        assert populations[-1] > fixed[-1]
    assert sum(populations) > 1.1 * sum(fixed)


# ---- policies


def test_a_policy_file_gives_the_same_settings_again(tmp_path):
    simulation = Simulation(pbt_plan, rows=default_rows)
    simulation.run()
    controller = simulation.controller
    cloned = [each.number for each in controller.trials if len(each.clones) > 0]
    space = SearchSpace({"x": uniform(0, 1), "h": choice([[1], [2], [3]])})
    scheduler = controller._scheduler
    lines = scheduler.policy_lines(controller.trials, cloned[0], space.config)
    for line in lines:
        assert len(json.loads(line)) == 6
    path = tmp_path / "pbt_policy_00000.txt"
    path.write_text("\n".join(lines) + "\n")

    def replay_plan():
        return make_plan(
            {},
            scheduler=PopulationBasedTrainingReplay(path),
            stop={"training_iteration": 12},
            num_samples=1,
        )

    seen = []

    def rows(config, state, row_number):
        seen.append((row_number, config["x"]))
        return state, 0.0

    Simulation(replay_plan, rows=rows, run_ahead=0).run()
    changes = [json.loads(line) for line in lines]
    expected = {}
    for row_number in range(1, 13):
        config = changes[0][4]
        for _, _, _, at, _, new in changes:
            config = new if row_number > at else config
        expected[row_number] = config["x"]
    assert dict(seen) == expected


def test_a_policy_counts_the_iterations_of_states_and_not_the_rows_of_trials():
    """Trial 1 went back to row 2 of trial 0 at its row 4; its row 8 is the state's iteration 6."""
    trials = [Trial(number, {"x": float(number)}, cpus=1, seed=0) for number in range(3)]
    back = Clone(4, CheckpointRef(0, 2), {}, {"x": 1.0}, 1)
    trials[1].params, trials[1].clones = {"x": 10.0}, [back]
    trials[2].params = {"x": 20.0}
    trials[2].clones = [Clone(6, CheckpointRef(1, 8), {}, {"x": 2.0}, 1)]
    scheduler = PopulationBasedTraining(hyperparam_mutations={"x": uniform(0, 1)})
    lines = scheduler.policy_lines(trials, 2, SearchSpace({"x": uniform(0, 1)}).config)
    assert [json.loads(line) for line in lines] == [
        ["00001", "00000", 4, 2, {"x": 0.0}, {"x": 10.0}],
        ["00002", "00001", 6, 6, {"x": 10.0}, {"x": 20.0}],
    ]


def test_a_policy_that_cannot_be_replayed_is_refused(tmp_path):
    with pytest.raises(TuneError, match="cannot be read"):
        PopulationBasedTrainingReplay(tmp_path / "absent.txt")
    path = tmp_path / "policy.txt"
    path.write_text("\n")
    with pytest.raises(TuneError, match="no lines"):
        PopulationBasedTrainingReplay(path)
    path.write_text(json.dumps(["0", "1", 2, 2, {"x": 1}, {"x": 2}]))
    scheduler = PopulationBasedTrainingReplay(path)
    with pytest.raises(TuneError, match="one trial"):
        scheduler.begin(SchedulerContext(0, 2, SearchSpace({})))


@pytest.mark.parametrize(
    "make",
    [
        lambda: PopulationBasedTraining(),
        lambda: PopulationBasedTraining(hyperparam_mutations={"x": 3}),
        lambda: PopulationBasedTraining(hyperparam_mutations={"x": [1]}, quantile_fraction=0.6),
        lambda: PopulationBasedTraining(hyperparam_mutations={"x": [1]}, resample_probability=2),
        lambda: PopulationBasedTraining(hyperparam_mutations={"x": [1]}, perturbation_interval=0),
    ],
)
def test_arguments_that_make_no_population_are_refused(make):
    with pytest.raises(TuneError):
        make()


def test_rows_without_time_are_refused():
    scheduler, trials = population(2)
    with pytest.raises(TuneError, match="training_iteration"):
        scheduler.on_trial_result(trials[0], {"score": 1.0})


def test_values_of_the_space_are_never_left_in_many_generations():
    domains = {"a": uniform(0, 1), "b": randint(3, 9), "c": loguniform(0.1, 10)}
    scheduler = PopulationBasedTraining(hyperparam_mutations=domains)
    space = SearchSpace(domains)
    scheduler.extend(space)
    params = {"a": 0.5, "b": 5, "c": 1.0}
    for generation in range(200):
        params = scheduler._explore(params, space, rng_at(0, Kind.EXPLORE, 0, generation))
        for path, domain in domains.items():
            assert domain.problem_of(params[path]) is None
        assert type(params["b"]) is int
        assert np.isfinite(list(params.values())).all()
