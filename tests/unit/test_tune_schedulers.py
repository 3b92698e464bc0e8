"""Schedulers: decisions on recorded reports, worked out by hand from the published rules."""

import bisect
import math
from collections import deque

import numpy as np
import pytest

from tests.unit.tune_simulation import Simulation, make_plan
from trainer.errors import TuneError
from trainer.tune.events import Trial
from trainer.tune.scheduling import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    SchedulerContext,
    TrialScheduler,
    Verdict,
)
from trainer.tune.search_space import SearchSpace, uniform
from trainer_toolkit.arguments import ArgumentError

NAN = math.nan


def begun(scheduler, num_trials, *, seed=0):
    """The trials of a scheduler that has heard of all of them."""
    scheduler.set_search_properties("score", "max")
    scheduler.begin(SchedulerContext(seed, num_trials, SearchSpace({})))
    trials = [Trial(number, {}, 1.0, number) for number in range(num_trials)]
    for trial in trials:
        scheduler.on_trial_add(trial)
    return trials


def row(time, score):
    """A row; without the metric if the score is None."""
    return {"training_iteration": time} | ({} if score is None else {"score": score})


def told(scheduler, trials, reports):
    """What a scheduler says to reports (trial, time, score): "continue", or its verdicts."""
    said = []
    for number, time, score in reports:
        given = scheduler.on_trial_result(trials[number], row(time, score))
        if isinstance(given, str):
            said.append(given.lower())
        else:
            said.append(" ".join(f"{each.action}{each.trial}" for each in given) or "continue")
    return said


# ---- ASHA


def test_asha_stops_what_is_below_the_quantile_of_its_rung():
    scheduler = ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3)
    trials = begun(scheduler, 6)
    # Rungs at 1, 3, 9. The cutoff is the 2/3 quantile of what others recorded before:
    #   {0.3}: 0.3; {0.3, 0.9}: 0.7; and 0.6: 0.7; and 0.71: 0.71; and 0.69: 0.7033
    reports = [(0, 1, 0.3), (1, 1, 0.9), (2, 1, 0.6), (3, 1, 0.71), (4, 1, 0.69), (5, 1, 0.705)]
    assert told(scheduler, trials, reports) == [
        "continue",
        "continue",
        "stop2",
        "continue",
        "stop4",
        "continue",
    ]
    # The rung at 3 is empty for the first; between rungs nothing is compared; the end is max_t.
    reports = [(1, 2, 0.0), (1, 3, 0.5), (3, 3, 0.4), (5, 3, 0.5), (1, 8, 0.0), (1, 9, 0.0)]
    assert told(scheduler, trials, reports) == [
        "continue",
        "continue",
        "stop3",
        "continue",
        "continue",
        "stop1",
    ]


def test_asha_ends_trials_at_max_t_and_that_is_not_early():
    scheduler = ASHAScheduler(max_t=4)
    (trial,) = begun(scheduler, 1)
    verdicts = scheduler.on_trial_result(trial, row(4, 1.0))
    verdict = verdicts[0]
    assert isinstance(verdict, Verdict)
    assert not verdict.is_early
    unending = ASHAScheduler(max_t=4, stop_last_trials=False)
    assert told(unending, begun(unending, 1), [(0, 4, 1.0), (0, 5, 1.0)]) == ["continue"] * 2


def test_asha_with_min_turns_the_comparison():
    scheduler = ASHAScheduler(max_t=9, reduction_factor=3, metric="score", mode="min")
    scheduler.set_search_properties(None, None)
    scheduler.begin(SchedulerContext(0, 3, SearchSpace({})))
    trials = [Trial(number, {}, 1.0, 0) for number in range(2)]
    for trial in trials:
        scheduler.on_trial_add(trial)
    assert told(scheduler, trials, [(0, 1, 0.3), (1, 1, 0.9)]) == ["continue", "stop1"]


def test_asha_ranks_nan_and_missing_metrics_last():
    scheduler = ASHAScheduler(max_t=9, reduction_factor=3)
    trials = begun(scheduler, 5)
    reports = [(0, 1, NAN), (1, 1, None), (2, 1, 0.1), (3, 1, NAN), (4, 1, 0.1)]
    # Nothing but NaN gives no cutoff; a number is never below one made of NaN.
    assert told(scheduler, trials, reports) == ["continue"] * 3 + ["stop3", "continue"]


def test_asha_counts_a_jump_over_rungs_once_and_at_the_highest():
    scheduler = ASHAScheduler(max_t=100, grace_period=1, reduction_factor=3)
    trials = begun(scheduler, 3)
    assert told(scheduler, trials, [(0, 10, 0.1)]) == ["continue"]  # rungs 1 and 3 are closed
    assert told(scheduler, trials, [(0, 11, 0.0), (1, 1, 0.05), (1, 3, 0.05)]) == ["continue"] * 3
    assert told(scheduler, trials, [(1, 9, 0.05), (2, 1, 0.04)]) == ["stop1", "stop2"]


def test_asha_spreads_trials_over_brackets_by_position():
    def brackets(seed):
        scheduler = ASHAScheduler(max_t=27, reduction_factor=3, brackets=3)
        begun(scheduler, 600, seed=seed)
        return [scheduler._bracket_of[number] for number in range(600)]

    assert brackets(1) == brackets(1) != brackets(2)
    counts = np.bincount(brackets(1)) / 600
    weights = np.exp([4.0, 3.0, 2.0])
    np.testing.assert_allclose(counts, weights / weights.sum(), atol=0.06)


class _Bracket:
    """ASHA's bracket as Ray Tune has it (`schedulers/async_hyperband.py`), in words of our own."""

    def __init__(self, min_t, max_t, factor):
        count = int(np.log(max_t / min_t) / np.log(factor) + 1)
        self.rungs = [(min_t * factor**k, {}) for k in reversed(range(count))]
        self.percentile = (1 - 1 / factor) * 100

    def stops(self, trial, time, score):
        for milestone, recorded in self.rungs:
            if time < milestone or trial in recorded:
                continue
            known = list(recorded.values())
            cutoff = np.nanpercentile(known, self.percentile) if known else None
            recorded[trial] = score
            return cutoff is not None and bool(score < cutoff)
        return False


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_asha_decides_as_ray_tune_where_reports_hit_every_rung(factor):
    rng = np.random.default_rng(factor)
    for _ in range(170):
        scheduler = ASHAScheduler(max_t=16, reduction_factor=factor)
        trials, reference = begun(scheduler, 5), _Bracket(1, 16, factor)
        alive = dict.fromkeys(range(5), 0)
        while alive:
            number = int(rng.choice(list(alive)))
            alive[number] += 1
            time, score = alive[number], float(np.round(rng.normal(), 1))
            (said,) = told(scheduler, trials, [(number, time, score)])
            is_over = time >= 16 or reference.stops(number, time, score)
            assert (said != "continue") == is_over
            if is_over:
                del alive[number]


def test_asha_promotes_one_in_eta_of_ten_thousand_trials():
    """Li et al. 2020, algorithm 2: at a rung the top 1/η of those recorded there go on."""
    eta, num_trials = 4, 10_000
    scheduler = ASHAScheduler(max_t=1000, reduction_factor=eta)
    trials = begun(scheduler, num_trials)
    rng = np.random.default_rng(0)
    quality = rng.normal(size=num_trials)
    seen = {1: [], 4: [], 16: [], 64: []}
    arrived = {time: [] for time in seen}
    going = deque((int(number), 1) for number in rng.permutation(num_trials))
    while going:
        number, time = going.popleft()
        score = float(quality[number])
        (said,) = told(scheduler, trials, [(number, time, score)])
        earlier = seen[time]
        # Its rank among those before decides, but where the quantile lies between two of them.
        num_below = bisect.bisect_left(earlier, score)
        bound = (1 - 1 / eta) * (len(earlier) - 1)
        if not earlier or num_below > math.ceil(bound):
            assert said == "continue"
        elif num_below <= math.floor(bound):
            assert said == f"stop{number}"
        earlier.insert(num_below, score)
        arrived[time].append(number)
        if said == "continue" and time < 64:
            going.append((number, time * 4))
    # The first at a rung are compared with few, so on higher ones with few trials a bit more go on.
    for low, high, tolerance in ((1, 4, 0.01), (4, 16, 0.03), (16, 64, 0.06)):
        share = len(arrived[high]) / len(arrived[low])
        assert share == pytest.approx(1 / eta, abs=tolerance)
    # Those that went up are the best ones: hardly any of the top 1 % is missing at the top.
    best = set(np.argsort(quality)[-50:].tolist())
    assert len(best & set(arrived[64])) >= 48


# ---- HyperBand


def test_hyperband_halves_its_brackets_as_the_paper_has_it():
    """R = 9, η = 3: s = 2: 9 trials at 1, 3 at 3, 1 at 9; s = 1: 5 at 3, 1 at 9; s = 0: 3 at 9."""
    scheduler = HyperBandScheduler(max_t=9, reduction_factor=3)
    trials = begun(scheduler, 17)
    said = told(scheduler, trials, [(number, 1, number) for number in range(9)])
    assert said[:8] == [f"pause{number}" for number in range(8)]
    # The reporter, 8, is among the three best and goes on at once.
    assert said[8] == "stop0 stop1 stop2 stop3 stop4 stop5 resume6 resume7"
    reports = [(6, 2, 0), (6, 3, 9.0), (7, 3, NAN), (8, 3, 1.0)]
    assert told(scheduler, trials, reports) == [
        "continue",
        "pause6",
        "pause7",
        "stop7 stop8 resume6",
    ]
    assert told(scheduler, trials, [(6, 9, 0.0)]) == ["stop6"]
    said = told(scheduler, trials, [(number, 3, -number) for number in range(9, 14)])
    assert said[-1] == "stop10 stop11 stop12 stop13 resume9"
    assert told(scheduler, trials, [(14, 8, 0.0), (14, 9, 0.0)]) == ["continue", "stop14"]


def test_hyperband_closes_a_bracket_that_cannot_fill():
    scheduler = HyperBandScheduler(max_t=9, reduction_factor=3)
    trials = begun(scheduler, 4)
    assert told(scheduler, trials, [(n, 1, n) for n in range(4)])[-1] == "pause3"
    verdicts = scheduler.on_no_more_trials()
    assert [(each.action, each.trial) for each in verdicts] == [
        ("stop", 0),
        ("stop", 1),
        ("stop", 2),
        ("resume", 3),
    ]


def test_hyperband_does_not_wait_for_a_trial_that_failed():
    scheduler = HyperBandScheduler(max_t=9, reduction_factor=3)
    trials = begun(scheduler, 9)
    told(scheduler, trials, [(number, 1, number) for number in range(8)])
    verdicts = scheduler.on_trial_complete(trials[8], None, True)
    # Failed ones rank last: three of nine go on all the same.
    assert [each.trial for each in verdicts if each.action == "resume"] == [5, 6, 7]


@pytest.mark.parametrize("num_trials", [1, 2, 5, 13, 20])
def test_hyperband_leaves_nobody_paused_whatever_fails(num_trials):
    rng = np.random.default_rng(num_trials)
    for seed in range(4):
        failing = {(int(n), int(k)) for n, k in rng.integers(0, 10, size=(6, 2))}

        def rows(config, state, k):
            if (round(config["x"] * 100) % 10, k) in failing:  # noqa: B023
                return RuntimeError("failed on purpose")
            return state + config["x"], state + config["x"]

        simulation = Simulation(
            lambda: make_plan(
                {"x": uniform(0, 1)},
                scheduler=HyperBandScheduler(max_t=9, reduction_factor=3),
                num_samples=num_trials,
                num_lanes=3,
            ),
            rows=rows,
            seed=seed,
        )
        outcome = simulation.run()
        assert len(outcome.ends) == num_trials
        assert outcome.reason == "all trials are over"


# ---- the median rule


def test_the_median_rule_compares_the_best_with_the_others_means():
    scheduler = MedianStoppingRule(grace_period=2, min_samples_required=3)
    trials = begun(scheduler, 5)
    curves = {0: [9, 1, 3], 1: [9, 2, 4], 2: [9, 6, 8]}
    for number, curve in curves.items():
        reports = [(number, time, score) for time, score in enumerate(curve, 1)]
        assert told(scheduler, trials, reports) == ["continue"] * 3
    # Means from the grace period to 3: 2, 3, 7; their median is 3. To 2: 1, 2, 6; median 2.
    assert told(scheduler, trials, [(3, 1, 0), (3, 2, 2), (3, 3, 2.9)]) == [
        "continue",
        "continue",
        "stop3",
    ]
    # Its best so far counts, not its last; and it is compared with 0, 1, 2 and 3 (which got 2.45).
    assert told(scheduler, trials, [(4, 1, 0), (4, 2, 2.8), (4, 3, 0.0)])[:2] == ["continue"] * 2


def test_the_median_rule_waits_for_three_others_and_the_grace_period():
    scheduler = MedianStoppingRule(grace_period=2, min_samples_required=3)
    trials = begun(scheduler, 4)
    told(scheduler, trials, [(n, t, 10) for n in (0, 1) for t in (1, 2, 3)])
    assert told(scheduler, trials, [(3, 1, 0), (3, 2, 0)]) == ["continue"] * 2
    told(scheduler, trials, [(2, t, 10) for t in (1, 2, 3)])
    assert told(scheduler, trials, [(3, 3, 0)]) == ["stop3"]


def test_the_median_rule_ranks_nan_last():
    scheduler = MedianStoppingRule(grace_period=1, min_samples_required=2)
    trials = begun(scheduler, 4)
    assert told(scheduler, trials, [(0, 1, NAN), (1, 1, NAN), (2, 1, -5.0)]) == ["continue"] * 3
    assert told(scheduler, trials, [(3, 1, NAN)]) == ["continue"]  # the median is none, too
    scheduler = MedianStoppingRule(grace_period=1, min_samples_required=2)
    trials = begun(scheduler, 3)
    assert told(scheduler, trials, [(0, 1, 1.0), (1, 1, 2.0), (2, 1, NAN)])[-1] == "stop2"


def test_a_soft_median_rule_pauses_and_lets_go_on_when_nobody_else_is_left():
    scheduler = MedianStoppingRule(grace_period=1, min_samples_required=1, hard_stop=False)
    trials = begun(scheduler, 2)
    assert told(scheduler, trials, [(0, 1, 2.0), (1, 1, 1.0)]) == ["continue", "pause1"]
    (verdict,) = scheduler.on_idle()
    assert (verdict.action, verdict.trial) == ("resume", 1)
    assert told(scheduler, trials, [(1, 2, 0.0)]) == ["continue"]


# ---- arguments


def test_fifo_lets_all_go_on():
    scheduler = FIFOScheduler()
    assert scheduler.on_trial_result(Trial(0, {}, 1.0, 0), {}) == "CONTINUE"
    assert scheduler.is_independent


@pytest.mark.parametrize(
    "make",
    [
        lambda: ASHAScheduler(max_t=0),
        lambda: ASHAScheduler(grace_period=200),
        lambda: ASHAScheduler(reduction_factor=1),
        lambda: ASHAScheduler(brackets=9),
        lambda: ASHAScheduler(mode="maximum"),
        lambda: HyperBandScheduler(max_t=0),
        lambda: HyperBandScheduler(reduction_factor=1),
        lambda: MedianStoppingRule(min_samples_required=0),
        lambda: MedianStoppingRule(min_time_slice=3),
        lambda: ASHAScheduler(max_t="9"),
        lambda: HyperBandScheduler(reduction_factor=None),
        lambda: MedianStoppingRule(grace_period="4"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(make):
    with pytest.raises((TuneError, ArgumentError), match="expected"):
        make()


def test_metric_and_mode_are_needed_once():
    with pytest.raises(TuneError, match="has no metric"):
        ASHAScheduler().set_search_properties(None, "max")
    with pytest.raises(TuneError, match="differ"):
        ASHAScheduler(metric="a", mode="max").set_search_properties("b", None)
    scheduler = ASHAScheduler(metric="a", mode="max")
    scheduler.set_search_properties("a", None)
    assert (scheduler.metric, scheduler.mode) == ("a", "max")


def test_time_in_seconds_is_inexact():
    assert ASHAScheduler().inexact_reason is None
    assert "clock" in str(ASHAScheduler(time_attr="time_total_s").inexact_reason)
    assert "clock" in str(MedianStoppingRule(time_attr="time_total_s").inexact_reason)


def test_a_scheduler_of_a_user_takes_a_few_lines():
    class StopsTheUnlucky(TrialScheduler):
        """Stops trials whose score falls below a bound."""

        def on_trial_result(self, trial, result):
            return self.STOP if result["score"] < 0.3 else self.CONTINUE

    def make():
        return make_plan({"x": uniform(0, 1)}, scheduler=StopsTheUnlucky(), num_samples=8)

    undisturbed = Simulation(make).run()
    assert {reason for _, reason in undisturbed.ends.values()} == {
        "StopsTheUnlucky",
        "training_iteration >= 4",
    }
    killed = Simulation(make, seed=1, kill_every=0.2)
    assert killed.run().decided() == undisturbed.decided()
    assert killed.num_kills > 1
    assert killed.controller.inexact_reasons == ()
