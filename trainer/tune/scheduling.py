"""Schedulers: which trials go on, by what they reported so far.

A scheduler is a function of the calls that it gets, in the decided order: it draws nothing that
does not follow from a position, looks at no clock, and is rebuilt by making the same calls again.
So nothing of it is saved. The rules are the published ones; where Ray Tune's differ, the docstring
says so. NaN ranks last everywhere, and a missing metric counts as NaN (misspelt metrics are told
after the first rows, see `controller.py`).

`population_based_training.py` has the scheduler that changes settings.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from trainer.errors import TuneError, TuneSettingError
from trainer.tune.events import CheckpointRef, Trial
from trainer.tune.journal_entries import CloneEntry, DecideEntry, Decision, EndEntry
from trainer.tune.parts import Part
from trainer.tune.positions import Kind, rng_at
from trainer.tune.rows import (
    Mode,
    Row,
    adopt_objective,
    is_of_clock,
    number_at,
    ranking_key,
    score_at,
)
from trainer.tune.search_space import SearchSpace
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import boolean, integer, number, shown

_ROUNDING: Final = 1e-9
"""Slack for products of powers that are meant to be whole numbers."""


@dataclass(frozen=True)
class Verdict:
    """What a scheduler decides about one trial; the one that reported or a paused one.

    Attributes:
        trial: number of the trial.
        action: "stop"; "pause" the one that reported; "resume" a paused one; "clone" another
            trial's state into it.
        reason: in words.
        is_early: of a stop: the trial was not allowed to come to its end.
        donor: of a clone: the trial whose state it goes on from.
        donor_row: of a clone: the row of that state, a pinned one.
        params: of a clone: {path: value}, all of the new params.
    """

    trial: int
    action: Literal["stop", "pause", "resume", "clone"]
    reason: str = ""
    is_early: bool = True
    donor: int | None = None
    donor_row: int | None = None
    params: Mapping[str, Any] | None = None


def entry_of(verdict: Verdict, space: SearchSpace) -> Decision:
    """The verdict for the journal; a TuneError if it is a clone of nothing."""
    number, reason = verdict.trial, verdict.reason
    if verdict.action == "stop":
        return EndEntry(number, "TERMINATED", reason, is_early=verdict.is_early)
    if verdict.action != "clone":
        return DecideEntry(number, verdict.action, reason)
    donor, donor_row, params = verdict.donor, verdict.donor_row, verdict.params
    if donor is None or donor_row is None or params is None:
        raise TuneError(f"{shown(verdict)}: expected donor, donor_row and params of a clone.")
    return CloneEntry(number, donor, donor_row, space.encode(params), reason)


@dataclass(frozen=True)
class SchedulerContext:
    """What a scheduler is told before the first trial.

    Attributes:
        seed: of the experiment.
        num_trials: that there will be; None: not known.
        space: that trials are drawn from.
    """

    seed: int
    num_trials: int | None
    space: SearchSpace


class TrialScheduler(Part):
    """Decides whether trials go on; users subclass it and write `on_trial_result`.

    Attributes:
        keys: of the rows that it looks at; None: any, so whole rows are read again at a restore.
        needs_metric: it compares trials.
        is_independent: no trial depends on another one.
        inexact_reason: why decisions depend on more than rows; None: they do not.
        pinned: checkpoints that it may still need; one of a row being decided on is saved.
        has_fixed_population: no trials can be added to those of the start.
        explored: paths of the settings that it changes while trials run.
    """

    CONTINUE: Final = "CONTINUE"
    PAUSE: Final = "PAUSE"
    STOP: Final = "STOP"

    keys: Sequence[str] | None = None
    needs_metric: bool = True
    is_independent: bool = False
    inexact_reason: str | None = None
    has_fixed_population: bool = False
    metric: str | None = None
    mode: Mode | None = None

    @property
    def explored(self) -> Sequence[str]:
        """Paths of the settings that it changes while trials run; by default none."""
        return ()

    @property
    def pinned(self) -> Set[CheckpointRef]:
        """Checkpoints that it may still need; by default none."""
        return frozenset()

    def set_search_properties(self, metric: str | None, mode: Mode | None) -> None:
        """Takes metric and mode of the experiment where the scheduler was given none of its own.

        Raises:
            TuneError: it has others, or needs them and there are none.
        """
        adopt_objective(self, metric=metric, mode=mode)
        for name in ("metric", "mode"):
            if self.needs_metric and getattr(self, name) is None:
                raise TuneSettingError(
                    f"{type(self).__name__} compares trials and has no {name}. Give "
                    "TuneConfig(metric='env_runners/episode_return_mean', mode='max'), or whatever "
                    "your rows have."
                )

    def extend(self, space: SearchSpace) -> None:
        """Adds to the space what the scheduler explores; called before `begin`."""

    def begin(self, context: SchedulerContext) -> None:
        """Called once before the first trial."""

    def on_trial_add(self, trial: Trial) -> None:
        """A new trial exists."""

    def on_trial_result(self, trial: Trial, result: Row) -> str | Sequence[Verdict]:
        """What follows from a row: `CONTINUE`, `PAUSE`, `STOP`, or verdicts on several trials."""
        raise NotImplementedError

    def verdicts_on(self, trial: Trial, row: Row) -> Sequence[Verdict]:
        """What `on_trial_result` says of a row, as verdicts; a TuneError for anything else."""
        given = self.on_trial_result(trial, row)
        if given == self.CONTINUE:
            return ()
        if given == self.PAUSE:
            return (Verdict(trial.number, "pause"),)
        if given == self.STOP:
            return (Verdict(trial.number, "stop", type(self).__name__),)
        if isinstance(given, list | tuple) and all(isinstance(each, Verdict) for each in given):
            return given
        raise TuneError(
            f"{type(self).__name__}.on_trial_result() gave {shown(given)}; expected CONTINUE, "
            "PAUSE, STOP or a list of verdicts."
        )

    def on_trial_complete(
        self, trial: Trial, result: Row | None, failed: bool
    ) -> Sequence[Verdict]:
        """A trial ended, other than by a verdict of this scheduler; `result` is its last row."""
        return ()

    def on_no_more_trials(self) -> Sequence[Verdict]:
        """Called once: there will be no new trials."""
        return ()

    def on_idle(self) -> Sequence[Verdict]:
        """Nothing runs or can be started, but there are paused trials: which go on?"""
        return ()

    def policy_lines(
        self, trials: Sequence[Trial], number: int, configs: Callable[..., Any]
    ) -> Sequence[str]:
        """The lines of `pbt_policy_….txt` of a trial that went on from another one.

        Each is a JSON list as in Ray Tune: trial, donor, row of the trial, row of the donor, config
        of the donor, new config. `configs` gives a config of params.
        """
        return ()


class FIFOScheduler(TrialScheduler):
    """Lets all trials run to their end."""

    keys = ()
    needs_metric = False
    is_independent = True

    def on_trial_result(self, trial: Trial, result: Row) -> str:
        """CONTINUE."""
        return self.CONTINUE


def _require(scheduler: TrialScheduler, is_right: bool, written: str, expected: str) -> None:
    if not is_right:
        raise TuneSettingError(f"{type(scheduler).__name__}({written}): expected {expected}.")


def _check_mode(scheduler: TrialScheduler, mode: Any) -> None:
    _require(scheduler, mode in (None, "min", "max"), f"mode={mode!r}", "'min' or 'max'")


def time_inexactness(time_attr: str) -> str | None:
    """Why a time attribute makes decisions unrepeatable; None if it does not."""
    if is_of_clock(time_attr):
        return f"time_attr={time_attr!r} is read from a clock"
    return None


# ---- ASHA


@dataclass
class _Rungs:
    """One bracket of ASHA: rungs from the highest to the lowest, with scores by trial."""

    milestones: list[float]
    scores: list[dict[int, float]] = field(default_factory=list)
    sorted_scores: list[list[float]] = field(default_factory=list)
    passed: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scores = [{} for _ in self.milestones]
        self.sorted_scores = [[] for _ in self.milestones]

    def enter(self, trial: int, time: float, score: float, quantile: float) -> bool:
        """Enters a report at the highest rung that it reached; whether the trial may go on.

        A trial is entered once at a rung, and never below one at which it was entered: those
        lower rungs hold scores of much younger trials.
        """
        reached = next((i for i, each in enumerate(self.milestones) if time >= each), None)
        if reached is None or reached >= self.passed.get(trial, len(self.milestones)):
            return True
        known = self.sorted_scores[reached]
        cutoff = _percentile(known, quantile) if known else None
        self.passed[trial] = reached
        self.scores[reached][trial] = score
        if not math.isnan(score):
            bisect.insort(known, score)
        return cutoff is None or score >= cutoff


def _percentile(ordered: Sequence[float], fraction: float) -> float:
    """The quantile of ordered numbers, interpolated linearly as `np.nanpercentile` does."""
    at = (len(ordered) - 1) * fraction
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    below, above, part = ordered[low], ordered[high], at - low
    if below == above:  # infinities, too
        return below
    # The two forms of NumPy's `_lerp`, for the same last bits.
    span = above - below
    return above - span * (1 - part) if part >= 0.5 else below + span * part


class ASHAScheduler(TrialScheduler):
    """Stops trials that are not among the best 1/reduction_factor at a rung so far.

    Asynchronous successive halving in its stopping form: Li et al. 2020, "A System for Massively
    Parallel Hyperparameter Tuning"; as Ray Tune has it. A trial that reaches a rung is compared
    with what other trials recorded there before. Rungs are at grace_period · reduction_factor^k.

    Args:
        time_attr: what counts as time in rows.
        metric: path into the row; None: that of `TuneConfig`.
        mode: "min" or "max"; None: that of `TuneConfig`.
        max_t: time at which a trial has come to its end.
        grace_period: time of the lowest rung.
        reduction_factor: one of so many trials goes on, > 1.
        brackets: each has one rung less at its lower end than the one before; trials are spread
            over them by position, with weights exp(number of rungs).
        stop_last_trials: whether trials end at max_t.

    Where Ray Tune differs: a report that jumps over rungs counts at the highest one it reached, and
    closes those below; NaN is worse than every number.
    """

    @takes(
        max_t=number(infinite=True),
        grace_period=number(infinite=True),
        reduction_factor=number(infinite=True),
        brackets=integer(),
        stop_last_trials=boolean(),
    )
    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: Mode | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
    ) -> None:
        _check_mode(self, mode)
        _require(self, max_t > 0, f"max_t={max_t!r}", "max_t > 0")
        is_right = 0 < grace_period <= max_t
        written = f"grace_period={grace_period!r}, max_t={max_t!r}"
        _require(self, is_right, written, "0 < grace_period ≤ max_t")
        written = f"reduction_factor={reduction_factor!r}"
        _require(self, reduction_factor > 1, written, "reduction_factor > 1")
        self.metric, self.mode = metric, mode
        self._time_attr, self._max_t, self._stops_last = time_attr, max_t, stop_last_trials
        self._factor, self._grace_period = reduction_factor, grace_period
        self._quantile = (1 - 1 / reduction_factor) * 100 / 100
        num_rungs = [
            int(math.log(max_t / grace_period) / math.log(reduction_factor) - s + 1 + _ROUNDING)
            for s in range(brackets)
        ]
        written = f"brackets={brackets!r}"
        _require(self, bool(num_rungs) and num_rungs[-1] >= 1, written, "a rung in every bracket")
        self._brackets = [
            _Rungs([grace_period * reduction_factor ** (k + s) for k in reversed(range(rungs))])
            for s, rungs in enumerate(num_rungs)
        ]
        self._bracket_of: dict[int, int] = {}
        self.inexact_reason = time_inexactness(time_attr)

    def begin(self, context: SchedulerContext) -> None:
        """Keeps the seed for the brackets of trials."""
        self._seed = context.seed
        self.keys = (self._time_attr, str(self.metric))

    def on_trial_add(self, trial: Trial) -> None:
        """Gives the trial a bracket, by its number."""
        bracket = 0
        if len(self._brackets) > 1:
            weights = np.exp([float(len(each.milestones)) for each in self._brackets])
            rng = rng_at(self._seed, Kind.BRACKET, trial.number)
            bracket = int(rng.choice(len(weights), p=weights / weights.sum()))
        self._bracket_of[trial.number] = bracket

    def on_trial_result(self, trial: Trial, result: Row) -> str | Sequence[Verdict]:
        """Stops a trial below the cutoff of its rung, or at its end."""
        time = number_at(result, self._time_attr)
        if time >= self._max_t and self._stops_last:
            reason = f"{self._time_attr} {time:g} ≥ max_t"
            return (Verdict(trial.number, "stop", reason, is_early=False),)
        if self._enter(trial, result):
            return self.CONTINUE
        return (Verdict(trial.number, "stop", f"below the cutoff at {self._time_attr} {time:g}"),)

    def on_trial_complete(
        self, trial: Trial, result: Row | None, failed: bool
    ) -> Sequence[Verdict]:
        """Records the last row of a trial that came to its end."""
        if result is not None and not failed:
            self._enter(trial, result)
        return ()

    def _enter(self, trial: Trial, result: Row) -> bool:
        rungs = self._brackets[self._bracket_of[trial.number]]
        time = number_at(result, self._time_attr)
        score = score_at(result, str(self.metric), self.mode or "max")
        return rungs.enter(trial.number, time, score, self._quantile)


AsyncHyperBandScheduler = ASHAScheduler


# ---- HyperBand


@dataclass
class _Halving:
    """One bracket of HyperBand: successive halving of a set of trials.

    Attributes:
        num_trials: that fit into it.
        milestones: times at which the trials are compared, lowest first; the last is max_t.
        rung: index of the milestone that they are on the way to.
        members: trials that are on the way to it or have reached it.
        scores: of those that have reached it.
        is_closed: no more trials come.
    """

    num_trials: int
    milestones: list[float]
    rung: int = 0
    members: set[int] = field(default_factory=set)
    scores: dict[int, float] = field(default_factory=dict)
    num_added: int = 0
    is_closed: bool = False

    def add(self, trial: int) -> None:
        """Puts a trial in."""
        self.members.add(trial)
        self.num_added += 1
        self.is_closed = self.is_closed or self.num_added >= self.num_trials

    def halve(self, factor: float) -> tuple[list[int], list[int]]:
        """(those that go on, those that stop) if all have reached the milestone; else nothing."""
        if not self.is_closed or not self.members or self.members != self.scores.keys():
            return [], []
        num_good = max(1, int(self.num_added * factor ** -(self.rung + 1) + _ROUNDING))
        ranked = sorted(self.members, key=lambda each: ranking_key(self.scores[each], each))
        good, bad = sorted(ranked[:num_good]), sorted(ranked[num_good:])
        self.rung += 1
        self.members, self.scores = set(good), {}
        return good, bad


class HyperBandScheduler(TrialScheduler):
    """Fills brackets of trials and halves each again and again, with pauses between.

    Li et al. 2018, "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization",
    algorithm 1, with R = max_t and η = reduction_factor: bracket s = s_max … 0 takes
    n = ⌈(s_max + 1) / (s + 1) · η^s⌉ trials; at times R · η^(i-s) the best ⌊n · η^-(i+1)⌋ go on, at
    least one. After the last bracket, the first kind begins again.

    Args:
        time_attr: what counts as time in rows.
        metric: path into the row; None: that of `TuneConfig`.
        mode: "min" or "max"; None: that of `TuneConfig`.
        max_t: R.
        reduction_factor: η, > 1.
        stop_last_trials: whether trials end at max_t.

    Trials that reached their milestone wait, paused by checkpoint, for the others of their
    bracket. A bracket that cannot fill, because there are no more trials, is closed and not waited
    for. Trials that failed rank last. Ray Tune's milestones are sums, R·η^-s + R·η^(1-s) …; ours
    are the paper's.
    """

    @takes(
        max_t=number(infinite=True),
        reduction_factor=number(infinite=True),
        stop_last_trials=boolean(),
    )
    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: Mode | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        _check_mode(self, mode)
        _require(self, max_t >= 1, f"max_t={max_t!r}", "max_t ≥ 1")
        written = f"reduction_factor={reduction_factor!r}"
        _require(self, reduction_factor > 1, written, "reduction_factor > 1")
        self.metric, self.mode = metric, mode
        self._time_attr, self._max_t, self._factor = time_attr, max_t, reduction_factor
        self._stops_last = stop_last_trials
        self._s_max = int(math.log(max_t) / math.log(reduction_factor) + _ROUNDING)
        self._brackets: list[_Halving] = []
        self._bracket_of: dict[int, _Halving] = {}
        self.inexact_reason = time_inexactness(time_attr)

    def begin(self, context: SchedulerContext) -> None:
        """Names the keys that it looks at."""
        self.keys = (self._time_attr, str(self.metric))

    def on_trial_add(self, trial: Trial) -> None:
        """Puts the trial into the bracket that is being filled."""
        if not self._brackets or self._brackets[-1].is_closed:
            self._brackets.append(self._next_bracket())
        self._brackets[-1].add(trial.number)
        self._bracket_of[trial.number] = self._brackets[-1]

    def _next_bracket(self) -> _Halving:
        s = self._s_max - len(self._brackets) % (self._s_max + 1)
        num_trials = math.ceil((self._s_max + 1) / (s + 1) * self._factor**s - _ROUNDING)
        milestones = [self._max_t * self._factor ** (i - s) for i in range(s + 1)]
        return _Halving(num_trials, milestones)

    def on_trial_result(self, trial: Trial, result: Row) -> str | Sequence[Verdict]:
        """Pauses a trial at its milestone, and halves its bracket when it was the last."""
        bracket = self._bracket_of[trial.number]
        time = number_at(result, self._time_attr)
        if trial.number not in bracket.members:
            return self.CONTINUE  # beyond max_t, or taken up again after it had ended
        if not time >= bracket.milestones[bracket.rung] - _ROUNDING:
            return self.CONTINUE
        if bracket.rung == len(bracket.milestones) - 1:
            bracket.members.discard(trial.number)
            if not self._stops_last:
                return self.CONTINUE
            reason = f"{self._time_attr} {time:g} ≥ max_t"
            return (Verdict(trial.number, "stop", reason, is_early=False),)
        bracket.scores[trial.number] = score_at(result, str(self.metric), self.mode or "max")
        good, bad = bracket.halve(self._factor)
        if not good:
            return (Verdict(trial.number, "pause", f"waits at {self._time_attr} {time:g}"),)
        return self._verdicts(good, bad, reporter=trial.number)

    def on_trial_complete(
        self, trial: Trial, result: Row | None, failed: bool
    ) -> Sequence[Verdict]:
        """Takes the trial out of its bracket, which may have waited for it."""
        bracket = self._bracket_of[trial.number]
        bracket.members.discard(trial.number)
        bracket.scores.pop(trial.number, None)
        return self._verdicts(*bracket.halve(self._factor))

    def on_no_more_trials(self) -> Sequence[Verdict]:
        """Closes the bracket that cannot fill any more."""
        if not self._brackets or self._brackets[-1].is_closed:
            return ()
        self._brackets[-1].is_closed = True
        return self._verdicts(*self._brackets[-1].halve(self._factor))

    def on_idle(self) -> Sequence[Verdict]:
        """Closes the bracket, for which no trials come now."""
        return self.on_no_more_trials()

    def _verdicts(
        self, good: Iterable[int], bad: Iterable[int], reporter: int | None = None
    ) -> Sequence[Verdict]:
        stops = [Verdict(each, "stop", "not among the best of its bracket") for each in bad]
        resumes = [Verdict(each, "resume") for each in good if each != reporter]
        return (*stops, *resumes)


# ---- the median rule


@dataclass
class _Curve:
    """The scores of one trial, with their means up to any time; NaN counts for nothing.

    Attributes:
        grace_period: rows before it count for no mean.
        times: of its rows, ascending.
        best: its best score; minus infinity while there is none.
    """

    grace_period: float
    times: list[float] = field(default_factory=list)
    best: float = -math.inf
    _sums: list[float] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)

    def add(self, time: float, score: float) -> None:
        """Adds a row; one that a trial makes again takes the place of later ones."""
        while self.times and self.times[-1] >= time:
            for kept in (self.times, self._sums, self._counts):
                kept.pop()
        counts = time >= self.grace_period and not math.isnan(score)
        self.times.append(time)
        self._sums.append((self._sums[-1] if self._sums else 0.0) + (score if counts else 0.0))
        self._counts.append((self._counts[-1] if self._counts else 0) + counts)
        if score > self.best:
            self.best = score

    def mean(self, time: float) -> float:
        """The mean from the grace period to a time; minus infinity if no number is there."""
        index = bisect.bisect_right(self.times, time) - 1
        if index < 0 or not self._counts[index]:
            return -math.inf
        return self._sums[index] / self._counts[index]


class MedianStoppingRule(TrialScheduler):
    """Stops a trial whose best is worse than the median of the others' means up to that time.

    Golovin et al. 2017, "Google Vizier", section 3.2.2, in the form of Ray Tune: compared with are
    trials that have reached the same time; their means are over rows from the grace period to it.

    Args:
        time_attr: what counts as time. Ray Tune's default, seconds, is not repeatable; it can be
            asked for with "time_total_s", which makes the experiment inexact.
        metric: path into the row; None: that of `TuneConfig`.
        mode: "min" or "max"; None: that of `TuneConfig`.
        grace_period: time before which no trial is stopped.
        min_samples_required: other trials that must have come as far.
        min_time_slice: only 0: no trial is paused so that others catch up.
        hard_stop: False pauses trials instead, and lets them go on when all others have ended.
    """

    @takes(
        grace_period=number(infinite=True),
        min_samples_required=integer(),
        min_time_slice=integer(),
        hard_stop=boolean(),
    )
    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: Mode | None = None,
        grace_period: float = 4,
        min_samples_required: int = 3,
        min_time_slice: int = 0,
        hard_stop: bool = True,
    ) -> None:
        _check_mode(self, mode)
        written = f"min_samples_required={min_samples_required!r}"
        _require(self, min_samples_required >= 1, written, "at least 1")
        written = f"min_time_slice={min_time_slice!r}"
        _require(self, min_time_slice == 0, written, "0: trials are not paused to wait for others")
        self.metric, self.mode = metric, mode
        self._time_attr, self._grace_period = time_attr, grace_period
        self._min_samples, self._hard_stop = min_samples_required, hard_stop
        self._curves: dict[int, _Curve] = {}
        self._paused: set[int] = set()
        self._let_go: set[int] = set()
        self.inexact_reason = time_inexactness(time_attr)

    def begin(self, context: SchedulerContext) -> None:
        """Names the keys that it looks at."""
        self.keys = (self._time_attr, str(self.metric))

    def on_trial_result(self, trial: Trial, result: Row) -> str | Sequence[Verdict]:
        """Stops a trial that is worse than the median."""
        time = number_at(result, self._time_attr)
        score = score_at(result, str(self.metric), self.mode or "max")
        own = self._curves.setdefault(trial.number, _Curve(self._grace_period))
        own.add(time, score)
        if not time >= self._grace_period or trial.number in self._let_go:
            return self.CONTINUE
        others = [
            curve
            for number, curve in self._curves.items()
            if number != trial.number and curve.times[-1] >= time
        ]
        if len(others) < self._min_samples:
            return self.CONTINUE
        if own.best >= statistics.median(curve.mean(time) for curve in others):
            return self.CONTINUE
        reason = f"below the median at {self._time_attr} {time:g}"
        if self._hard_stop:
            return (Verdict(trial.number, "stop", reason),)
        self._paused.add(trial.number)
        return (Verdict(trial.number, "pause", reason),)

    def on_idle(self) -> Sequence[Verdict]:
        """Lets the paused trials go on: no other is left."""
        verdicts = tuple(Verdict(each, "resume") for each in sorted(self._paused))
        self._let_go |= self._paused
        self._paused = set()
        return verdicts


SCHEDULERS: Final[Mapping[str, type[TrialScheduler]]] = {
    "fifo": FIFOScheduler,
    "asha": ASHAScheduler,
    "async_hyperband": ASHAScheduler,
    "asynchyperband": ASHAScheduler,
    "hyperband": HyperBandScheduler,
    "median_stopping_rule": MedianStoppingRule,
    "medianstopping": MedianStoppingRule,
}
"""Names for `create_scheduler`, without those of population based training."""
