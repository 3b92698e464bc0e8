"""The controller: the same decisions whatever is delayed, killed or torn, and what it refuses."""

import dataclasses
import gc
import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.tune_simulation import Simulation, default_rows, make_plan
from trainer.errors import JournalError, TuneError
from trainer.seeding import trial_seed
from trainer.tune.configs import RunConfig, TuneConfig
from trainer.tune.controller import Controller
from trainer.tune.events import (
    CheckpointRef,
    CountRow,
    EndExperiment,
    EndTrial,
    StartTrial,
    TrialStatus,
)
from trainer.tune.journal_entries import (
    AmendEntry,
    CommittedEntry,
    FillEntry,
    Move,
    Reported,
    StartEntry,
    SuggestEntry,
    TimeEntry,
    TrialOver,
    move_from_plain,
)
from trainer.tune.lanes import Origin
from trainer.tune.population_based_training import PopulationBasedTraining
from trainer.tune.scheduling import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
)
from trainer.tune.search_space import choice, grid_search, uniform
from trainer.tune.stoppers import ExperimentPlateauStopper
from trainer.tune.trainables import resolve_trainable
from trainer.tune.trial_records import TrialRecords

SCHEDULERS = {
    "asha": lambda: ASHAScheduler(max_t=8, reduction_factor=2),
    "brackets": lambda: ASHAScheduler(max_t=8, reduction_factor=2, brackets=3),
    "hyperband": lambda: HyperBandScheduler(max_t=9, reduction_factor=3),
    "median": lambda: MedianStoppingRule(grace_period=1, min_samples_required=2),
    "soft median": lambda: MedianStoppingRule(
        grace_period=1, min_samples_required=2, hard_stop=False
    ),
    "population": lambda: PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"x": uniform(0, 1)}
    ),
    "population by itself": lambda: PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"x": uniform(0, 1)}, synch=False
    ),
}


def failing_rows(config, state, row_number):
    """Some trials fail, some return early; which follows from their config."""
    kind = int(config["x"] * 1000) % 7
    if kind == 0 and row_number == 3:
        return ValueError("failed on purpose")
    if kind == 1 and row_number == 5:
        return None
    return default_rows(config, state, row_number)


def plan_of(name, num_lanes=3, **changes):
    """Makes plans of an experiment with that scheduler."""
    given = {
        "stop": {"training_iteration": 8},
        "num_samples": 11,
        "num_lanes": num_lanes,
        "save_at_end": True,
        **changes,
    }
    return lambda: make_plan({"x": uniform(0, 1)}, scheduler=SCHEDULERS[name](), **given)


# ---- exactness


DISTURBANCES = {
    "name": st.sampled_from(sorted(SCHEDULERS)),
    "seed": st.integers(0, 2**32 - 1),
    "run_ahead": st.integers(0, 8),
    "kill_every": st.sampled_from([0.0, 0.05, 0.3]),
    "num_lanes": st.integers(1, 5),
}


@settings(max_examples=8)
@given(**DISTURBANCES)
def test_decisions_do_not_depend_on_delays_kills_or_torn_journals(**disturbance):
    check_disturbed(**disturbance)


@pytest.mark.slow
@settings(max_examples=400)
@given(**DISTURBANCES)
def test_decisions_do_not_depend_on_many_disturbances(**disturbance):
    check_disturbed(**disturbance)


def check_disturbed(name, seed, run_ahead, kill_every, num_lanes):
    """An experiment with delays and kills comes to the same as without."""
    make = plan_of(name, num_lanes)
    undisturbed = Simulation(make, rows=failing_rows, run_ahead=0).run()
    simulation = Simulation(
        make, rows=failing_rows, seed=seed, run_ahead=run_ahead, kill_every=kill_every
    )
    outcome = simulation.run()
    assert outcome.decided() == undisturbed.decided()
    assert outcome.rows == undisturbed.rows
    assert (outcome.ends, outcome.configs) == (undisturbed.ends, undisturbed.configs)
    assert simulation.controller.inexact_reasons == ()


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_a_journal_cut_after_any_entry_is_gone_on_with(name):
    make = plan_of(name, num_samples=5)
    undisturbed = Simulation(make, rows=failing_rows)
    whole = undisturbed.run()
    for cut in range(0, len(whole.journal), 7):
        simulation = Simulation(make, rows=failing_rows, seed=cut)
        simulation.made, simulation.states = dict(undisturbed.made), dict(undisturbed.states)
        simulation.outcome.journal = whole.journal[:cut]
        simulation.tear = False
        simulation.restore()
        while not simulation.controller.is_done:
            simulation.carry_out(simulation.controller.take(simulation.next_event()))
        assert simulation.outcome.decided() == whole.decided()
        assert simulation.controller.inexact_reasons == ()


def test_trials_are_the_same_with_any_number_of_lanes_where_none_is_compared():
    outcomes = [
        Simulation(
            lambda: make_plan({"x": uniform(0, 1)}, num_lanes=lanes),  # noqa: B023
            seed=lanes,
        ).run()
        for lanes in (1, 2, 4)
    ]
    for outcome in outcomes[1:]:
        assert outcome.rows == outcomes[0].rows
        assert outcome.ends == outcomes[0].ends
        assert outcome.configs == outcomes[0].configs


def test_order_of_arrival_keeps_what_was_decided_and_says_that_it_is_inexact():
    make = plan_of("asha", order="arrival")
    decided = {json.dumps(Simulation(make, seed=seed).run().decided()) for seed in range(5)}
    assert len(decided) > 1
    for seed in range(5):
        simulation = Simulation(make, seed=seed, kill_every=0.1, tear=False)
        simulation.run()
        reasons = simulation.controller.inexact_reasons
        assert reasons == ("order='arrival' decides as rows arrive",)
        assert len(simulation.outcome.ends) == 11


# ---- negative controls


def test_a_dropped_entry_is_found():
    simulation = Simulation(plan_of("asha"))
    moves = [move_from_plain(each) for each in simulation.run().journal]
    ends = [index for index, each in enumerate(moves) if _stops_trials(each)]
    assert len(ends) > 3
    for index in ends[:3]:
        then = tuple(each for each in moves[index].then if each.kind != "end")
        damaged = [*moves[:index], Move(moves[index].cause, then), *moves[index + 1 :]]
        controller = Controller(simulation.make())
        try:
            controller.replay(damaged, simulation.whole_row)
        except (TuneError, ValueError):  # which `followed` turns into a JournalError
            continue
        assert "were not repeated" in controller.inexact_reasons[0]
    with pytest.raises(TuneError):  # a row that does not follow the one before
        Controller(simulation.make()).replay([*moves[:4], *moves[5:]], simulation.whole_row)


def _stops_trials(move):
    return any(each.kind == "end" and each.by == "scheduler" for each in move.then)


def test_a_scheduler_that_is_not_replayed_is_found():
    class Forgetful(ASHAScheduler):
        """Begins without rungs after the first restore, as where its state was not kept."""

        is_replayed = False

        def on_trial_result(self, trial, result):
            if self.is_replayed and self._bracket_of:
                self.is_replayed = False
                self._brackets[0].__post_init__()
            return super().on_trial_result(trial, result)

    def make():
        return make_plan(
            {"x": uniform(0, 1)},
            scheduler=Forgetful(max_t=8, reduction_factor=2),
            stop={"training_iteration": 8},
            num_samples=40,
        )

    undisturbed = Simulation(make).run()
    simulation = Simulation(make, seed=3)
    simulation.carry_out(simulation.controller.begin())
    for _ in range(30):
        simulation.carry_out(simulation.controller.take(simulation.next_event()))
    simulation.restore()
    simulation.controller._scheduler.is_replayed = True
    while not simulation.controller.is_done:
        simulation.carry_out(simulation.controller.take(simulation.next_event()))
    assert simulation.outcome.decided() != undisturbed.decided()


def test_code_that_decides_otherwise_today_is_told_and_the_recorded_decision_wins():
    simulation = Simulation(plan_of("asha"))
    outcome = simulation.run()
    moves = [move_from_plain(each) for each in outcome.journal]

    def other():
        return make_plan(
            {"x": uniform(0, 1)},
            scheduler=ASHAScheduler(max_t=8, reduction_factor=4),
            stop={"training_iteration": 8},
            num_samples=11,
            num_lanes=3,
            save_at_end=True,
        )

    controller = Controller(other())
    controller.replay(moves, simulation.whole_row)
    assert "were not repeated" in controller.inexact_reasons[0]
    ends = {each.number: (each.status.value, each.stop_reason) for each in controller.trials}
    assert ends == outcome.ends


def test_seeds_of_trials_follow_from_the_experiment_alone():
    simulation = Simulation(plan_of("asha"), seed=4, kill_every=0.2)
    simulation.run()
    seeds = [each.seed for each in simulation.controller.trials]
    assert seeds == [trial_seed(7, number) for number in range(11)]
    assert len({trial_seed(7, number) for number in range(10_000)}) == 10_000
    assert trial_seed(8, 0) != trial_seed(7, 0)


# ---- turns, lanes, CPUs


def test_larger_requests_wait_in_their_order_and_run_alone_if_need_be():
    cpus = [1, 3, 1, 2, 9, 1]

    def make():
        return make_plan(
            {"cpus": grid_search(cpus)},
            scheduler=ASHAScheduler(max_t=3),
            num_samples=1,
            num_lanes=3,
            cpus=4.0,
            cpus_of=lambda config: config["cpus"],
        )

    simulation = Simulation(make, kill_every=0.1, seed=1)
    running = {}
    order = []
    for entry in simulation.run().entries():
        if entry["event"] == "start":
            running[entry["trial"]] = cpus[entry["trial"]]
            order.append(entry["trial"])
            assert sum(running.values()) <= 4 or len(running) == 1
        elif entry["event"] == "end":
            running.pop(entry["trial"])
    assert order == sorted(order)


def test_rows_that_come_early_wait_for_their_turn():
    controller = Controller(plan_of("asha", num_lanes=2)())
    actions = actions_of(controller.begin())
    assert [each.trial for each in actions if isinstance(each, StartTrial)] == [0, 1]
    assert controller.awaited == (0, 1)
    assert controller.take(reported(1, 1, 0.5)) == []
    assert controller.take(reported(1, 2, 0.6)) == []
    actions = actions_of(controller.take(reported(0, 1, 0.1)))
    counted = [(each.trial, each.row_number) for each in actions if isinstance(each, CountRow)]
    assert counted == [(0, 1), (1, 1)]
    assert controller.awaited == (0, 2)


def actions_of(steps):
    """What is to be done."""
    return [action for step in steps for action in step.actions]


def reported(trial, row_number, score, **changes):
    """A row of the first process of a trial."""
    row = {"score": score, "training_iteration": row_number}
    start_number = changes.pop("start_number", 1)
    return Reported(trial, start_number, row_number, row, **changes)


def test_rows_of_processes_that_were_told_to_end_are_dropped():
    controller = Controller(plan_of("asha", num_lanes=1)())
    controller.begin()
    assert controller.take(reported(0, 1, 0.1, start_number=0)) == []
    assert controller.take(reported(5, 1, 0.1)) == []
    assert controller.take(TrialOver(0, 2, "failed", "x")) == []
    with pytest.raises(TuneError, match="expected row 1"):
        controller.take(reported(0, 2, 0.1))


def test_run_ahead_is_limited_only_where_decisions_depend_on_other_trials():
    assert Controller(make_plan()).max_run_ahead is None
    assert Controller(plan_of("asha", num_lanes=3)()).max_run_ahead == 1
    assert Controller(plan_of("asha", num_lanes=8)()).max_run_ahead == 4
    assert not Controller(make_plan(stop=lambda trial_id, row: False)).is_independent
    assert not Controller(make_plan(fail_fast=True)).is_independent


# ---- ends


def test_a_row_that_says_done_ends_its_trial():
    controller = Controller(make_plan(num_samples=1, save_at_end=True))
    controller.begin()
    actions = actions_of(controller.take(reported(0, 1, 0.1, is_done=True)))
    (end,) = [each for each in actions if isinstance(each, EndTrial)]
    assert (end.reason, end.save, end.status) == ("done", True, TrialStatus.TERMINATED)
    assert controller.unfinished_saves == {CheckpointRef(0, 1)}
    controller.take(CommittedEntry(0, 1, "000001"))
    assert controller.unfinished_saves == set()
    assert controller.is_done


@pytest.mark.parametrize(("max_failures", "num_starts"), [(0, 1), (2, 3), (-1, 5)])
def test_errors_of_code_are_forgiven_as_often_as_wanted(max_failures, num_starts):
    num_left = [4]

    def rows(config, state, row_number):
        if row_number == 2 and num_left[0] > 0:
            num_left[0] -= 1
            return ValueError("failed on purpose")
        return (state, 1.0)

    simulation = Simulation(lambda: make_plan(num_samples=1, max_failures=max_failures), rows=rows)
    outcome = simulation.run()
    (trial,) = simulation.controller.trials
    assert trial.num_starts == num_starts
    if max_failures >= 0:
        assert outcome.ends == {0: ("ERROR", "failed")}
        assert trial.error == "failed on purpose"
    else:
        assert outcome.ends == {0: ("TERMINATED", "training_iteration >= 4")}


def test_a_process_that_died_too_often_is_not_tried_again():
    controller = Controller(make_plan(num_samples=1, max_failures=5))
    controller.begin()
    actions = actions_of(controller.take(TrialOver(0, 1, "lost", "its process died 3 times")))
    assert controller.trials[0].status is TrialStatus.ERROR
    assert controller.trials[0].num_failures == 0
    assert isinstance(actions[-1], EndExperiment)


def test_fail_fast_leaves_the_others_to_be_gone_on_with():
    def rows(config, state, row_number):
        return ValueError("no") if config["x"] == 1 and row_number == 2 else (state, 0.0)

    def make():
        return make_plan({"x": grid_search([0, 1, 2])}, num_samples=1, num_lanes=3, fail_fast=True)

    simulation = Simulation(make, rows=rows)
    outcome = simulation.run()
    assert outcome.reason == "trial 00001 failed"
    assert outcome.ends == {1: ("ERROR", "failed")}
    simulation.tear = False
    simulation.restore()
    assert simulation.run_on().ends.keys() == {0, 1, 2}


def test_an_experiment_can_end_all_trials_at_once():
    make = plan_of("asha", stop=[ExperimentPlateauStopper("score", std=9.0, top=5)])
    undisturbed = Simulation(make).run()
    assert undisturbed.reason == "plateau of score over all trials"
    assert "plateau of score over all trials" in {reason for _, reason in undisturbed.ends.values()}
    simulation = Simulation(make, seed=2, kill_every=0.3)
    assert simulation.run().decided() == undisturbed.decided()
    assert simulation.controller.needs_whole_rows is False


def test_time_up_ends_the_experiment_and_is_replayed():
    simulation = Simulation(plan_of("asha"))
    simulation.carry_out(simulation.controller.begin())
    for _ in range(9):
        simulation.carry_out(simulation.controller.take(simulation.next_event()))
    simulation.carry_out(simulation.controller.take(TimeEntry(60.0)))
    assert simulation.controller.is_done
    ends = dict(simulation.outcome.ends)
    simulation.tear = False
    simulation.restore()
    assert simulation.controller.is_done
    assert simulation.outcome.ends == ends
    assert {each.status for each in simulation.controller.trials} == {TrialStatus.TERMINATED}


# ---- errors of the experiment


def test_a_misspelt_metric_is_told_after_the_first_rows():
    with pytest.raises(TuneError, match=r"'scoer' is in none of them.*'score'"):
        Simulation(plan_of("asha", metric="scoer")).run()


def test_a_time_that_no_row_has_is_told_once(caplog):
    plan = dataclasses.replace(plan_of("asha")(), scheduler=ASHAScheduler(time_attr="iteration"))
    simulation = Simulation(lambda: plan)
    simulation.run()
    simulation.restore()
    (message,) = caplog.messages
    assert message.startswith("ASHAScheduler cannot decide. After 5 rows, 'iteration' is in none")
    assert "did you mean 'training_iteration'" in message.lower()


def test_pauses_need_a_checkpoint_with_the_row():
    controller = Controller(plan_of("hyperband", num_lanes=1)())
    controller.begin()
    with pytest.raises(TuneError, match=r"checkpoint=\.\.\."):
        controller.take(reported(0, 1, 0.1, saving="none"))


def test_a_scheduler_that_says_something_else_is_refused():
    class Wrong(FIFOScheduler):
        is_independent = False

        def on_trial_result(self, trial, result):
            return "GO ON"

    with pytest.raises(TuneError, match="expected CONTINUE"):
        Simulation(lambda: make_plan(scheduler=Wrong())).run()


class PausesAll(FIFOScheduler):
    is_independent = False

    def on_trial_result(self, trial, result):
        return self.PAUSE if result["training_iteration"] == 2 else self.CONTINUE


def test_a_scheduler_that_forgets_its_paused_trials_does_not_hang():
    outcome = Simulation(lambda: make_plan(scheduler=PausesAll())).run()
    assert {status for status, _ in outcome.ends.values()} == {"TERMINATED"}
    assert sum(each.get("reason") == "nothing else runs" for each in outcome.entries()) == 6


# ---- checkpoints


def test_rows_are_saved_as_often_as_wanted_and_where_they_ask_for_it():
    controller = Controller(make_plan(num_samples=1, save_frequency=2, stop={"score": 9}))
    controller.begin()
    saved = []
    for row_number, given_as in enumerate(("possible", "possible", "none", "none", "given"), 1):
        event = reported(0, row_number, 0.1, saving=given_as, wants_checkpoint=row_number in (1, 3))
        (count,) = actions_of(controller.take(event))
        assert isinstance(count, CountRow)
        saved.append(count.save)
    assert saved == [True, True, False, False, True]


def test_a_checkpoint_may_be_committed_before_its_row_is_decided_on():
    controller = Controller(make_plan(num_samples=1))
    controller.begin()
    entry = CommittedEntry(0, 1, "000001")
    assert [step.move for step in controller.take(entry)] == [Move(entry)]
    controller.take(reported(0, 1, 0.1, saving="given"))
    assert controller.unfinished_saves == set()


def test_the_state_of_any_row_can_be_made_again():
    simulation = Simulation(plan_of("population"))
    simulation.run()
    for trial in simulation.controller.trials:
        for clone in trial.clones:
            before = simulation.controller.start_for(CheckpointRef(trial.number, clone.row_number))
            after = simulation.controller.start_for(
                CheckpointRef(trial.number, clone.row_number + 1)
            )
            assert before.config == clone.params_before
            assert (after.start_from, after.base_row) == (clone.source, clone.row_number)
            assert (
                simulation.started(before).state
                == simulation.states[CheckpointRef(trial.number, clone.row_number)]
            )
            simulation.started(after)


def test_rows_that_are_made_again_from_before_an_exploit_carry_the_settings_of_then(tmp_path):
    simulation = Simulation(plan_of("population"))
    simulation.run()
    controller = simulation.controller
    spec, tune_config = resolve_trainable(lambda config: None), TuneConfig(in_process=True)
    records = TrialRecords(
        tmp_path, controller, spec, tune_config=tune_config, run_config=RunConfig(), seed=0
    )
    clones = [(trial.number, clone) for trial in controller.trials for clone in trial.clones]
    assert clones
    for number, clone in clones:
        start = controller.start_for(CheckpointRef(number, clone.row_number))
        tag = records.boot(start, Origin(None, 0)).experiment_tag
        assert tag == f"{number}_x={clone.params_before['x']}"


# ---- extending


def test_an_experiment_is_extended_by_samples():
    make = plan_of("asha", num_samples=4)
    simulation = Simulation(make)
    first = dict(simulation.run().ends)
    simulation.tear = False
    simulation.restore()
    simulation.carry_out(simulation.controller.amend(AmendEntry(num_samples=9)))
    outcome = simulation.run_on()
    assert len(outcome.ends) == 9
    assert {number: outcome.ends[number] for number in first} == first
    # A third restore agrees.
    journal = list(outcome.journal)
    simulation.restore()
    assert simulation.controller.is_done
    assert simulation.controller.num_samples == 9
    assert outcome.journal == journal
    assert simulation.controller.inexact_reasons == ()


def test_a_later_stop_takes_ended_trials_up_again():
    length = [4]

    def make():
        return make_plan({"x": uniform(0, 1)}, stop={"training_iteration": length[0]})

    simulation = Simulation(make)
    simulation.run()
    length[0] = 6
    simulation.tear = False
    simulation.restore()
    change = AmendEntry(has_new_stop=True, resumed=(0, 1, 2, 3, 4, 5))
    simulation.carry_out(simulation.controller.amend(change))
    outcome = simulation.run_on()
    assert set(outcome.ends.values()) == {("TERMINATED", "training_iteration >= 6")}
    longer = Simulation(make).run()
    assert outcome.rows == longer.rows
    simulation.tear = False
    simulation.restore()
    assert simulation.controller.is_done
    assert simulation.controller.inexact_reasons == ()
    assert simulation.outcome.rows == longer.rows


def test_failed_trials_are_resumed_or_begun_again():
    is_broken = [True]

    def rows(config, state, row_number):
        if is_broken[0] and row_number == 3 and config["x"] < 2:
            return ValueError("no")
        return state + 1, state + 1

    simulation = Simulation(
        lambda: make_plan({"x": grid_search([0, 1, 2])}, num_samples=1), rows=rows
    )
    assert sorted(status for status, _ in simulation.run().ends.values()) == [
        "ERROR",
        "ERROR",
        "TERMINATED",
    ]
    is_broken[0] = False
    simulation.tear = False
    simulation.restore()
    starts = []
    act = simulation.act

    def watched(action):
        if isinstance(action, StartTrial):
            starts.append(action)
        act(action)

    simulation.act = watched
    change = AmendEntry(resumed=(0,), restarted=(1,))
    simulation.carry_out(simulation.controller.amend(change))
    outcome = simulation.run_on()
    assert [(each.trial, each.cause, each.row_number) for each in starts] == [
        (0, "retry", 2),
        (1, "retry", 0),
    ]
    assert {status for status, _ in outcome.ends.values()} == {"TERMINATED"}


def test_what_cannot_be_extended_is_refused():
    simulation = Simulation(plan_of("population"))
    simulation.run()
    with pytest.raises(TuneError, match="population of 11"):
        simulation.controller.amend(AmendEntry(num_samples=20))
    simulation = Simulation(plan_of("asha"))
    simulation.run()
    with pytest.raises(TuneError, match="less than the 11"):
        simulation.controller.amend(AmendEntry(num_samples=3))
    with pytest.raises(TuneError, match="00011 cannot be taken up"):
        simulation.controller.amend(AmendEntry(resumed=(11,)))


# ---- the journal's entries


def test_entries_come_back_from_json():
    kinds = set()
    for make in (plan_of("population"), lambda: make_plan({"x": 1.0}, scheduler=PausesAll())):
        for plain in Simulation(make, rows=failing_rows).run().journal:
            move = move_from_plain(json.loads(json.dumps(plain)))
            assert move.to_plain() == plain
            kinds.update(entry.kind for entry in move.entries)
    amend = Move(AmendEntry(resumed=[1, 2]))
    assert move_from_plain(json.loads(json.dumps(amend.to_plain()))) == amend
    assert kinds == {
        *("report", "over", "checkpoint"),
        *("fill", "suggest", "no-more", "idle", "start", "decide", "end", "end-all"),
    }


@pytest.mark.parametrize(
    "plain",
    [
        {"event": "unheard_of"},
        {"trial": 3},
        {"event": "move", "cause": {"event": "report", "trial": 3}},
        {"event": "move", "cause": {"event": "end", "trial": 3, "status": "ERROR", "reason": ""}},
        {"event": "move", "then": [{"event": "idle", "colour": "red"}]},
        {"event": "move", "then": [{"event": "time", "elapsed_s": 3.0}]},
        {"event": "move", "then": {}},
        {"event": "move", "cause": []},
    ],
)
def test_entries_that_cannot_be_read_are_named(plain):
    with pytest.raises(JournalError, match="event"):
        move_from_plain(plain)


def test_a_journal_that_tells_the_impossible_is_refused():
    first = Move(None, (FillEntry(), SuggestEntry(0, {"x": 0.5}), StartEntry(0, 0, "new")))
    for cause, error, text in (
        (Reported(0, 1, 5, {"score": 1.0}), TuneError, "expected row 1"),
        (Reported(3, 1, 1, {"score": 1.0}), JournalError, "trial 00003"),
        (Reported(0, 2, 1, {"score": 1.0}), JournalError, "trial 00000"),
        (CommittedEntry(1, 1, "000001"), JournalError, "trial 00001"),
    ):
        controller = Controller(make_plan({"x": uniform(0, 1)}))
        with pytest.raises(error, match=text):
            controller.replay([first, Move(cause)], lambda trial, row: {})


def test_a_trial_that_is_over_takes_less_than_two_kilobytes():
    def make(num):
        return make_plan(
            {"x": uniform(0, 1), "h": choice([8, 16])}, num_samples=num, stop={"score": -1}
        )

    def used_bytes():
        controller = Controller(make(200))
        tracemalloc.start()
        try:
            actions = actions_of(controller.begin())
            while started := [each for each in actions if isinstance(each, StartTrial)]:
                start = started.pop(0)
                actions = [*started, *actions_of(controller.take(reported(start.trial, 1, 0.0)))]
            gc.collect()  # tests look for garbage less often than Python does by itself
            used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(controller.trials) == 200
        return used

    # what runs the tests may receive a message meanwhile, but not each time
    assert any(used_bytes() / 200 < 2000 for _ in range(3))
