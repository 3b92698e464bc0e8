"""Population based training: bad trials go on from the state of good ones, with changed settings.

Jaderberg et al. 2017, "Population Based Training of Neural Networks", with truncation selection
and the arguments of Ray Tune. What differs from it: time is counted in rows and generations end
together by default, so that trials of the same age are compared; the donor's state is that of the
row which was judged; values never leave their range, and keep their type.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

import numpy as np

from trainer.config import AlgorithmConfig
from trainer.errors import TuneError, TuneSettingError
from trainer.tune.events import CheckpointRef, Trial
from trainer.tune.positions import Kind, rng_at
from trainer.tune.rows import Mode, Row, number_at, ranking_key, score_at
from trainer.tune.scheduling import SchedulerContext, TrialScheduler, Verdict, time_inexactness
from trainer.tune.search_space import (
    Choice,
    Domain,
    Range,
    SampleFrom,
    SearchSpace,
    choice,
    sample_from,
)
from trainer_toolkit import checks
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import shown
from trainer_toolkit.trees import named_leaves, same

_LOGGER: Final = logging.getLogger(__name__)

ExploreFn = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Config of a clone, nested -> the config to be used."""

_STANDING_STILL: Final = 2
"""A population that has fewer living trials copies nothing."""


class PopulationBasedTraining(TrialScheduler):
    """Replaces the worst trials by copies of the best ones at intervals, and changes settings.

    Args:
        time_attr: what counts as time in rows.
        metric: path into the row; None: that of `TuneConfig`.
        mode: "min" or "max"; None: that of `TuneConfig`.
        perturbation_interval: time between two generations.
        burn_in_period: time before the first one.
        hyperparam_mutations: what is changed, nested or by path: domains, lists, or functions that
            give a fresh value. Settings that the space does not have are drawn from here, too.
        quantile_fraction: which part of the population is replaced, and copied from; in (0, 0.5].
        resample_probability: of a fresh draw instead of a change.
        perturbation_factors: numbers are multiplied by one of them; lists and choices move to a
            neighbour.
        custom_explore_fn: gets the new config, nested, and gives the one to be used.
        log_config: write `pbt_policy_….txt` of clones.
        require_attrs: rows without `time_attr` are an error.
        synch: True: a generation ends when all trials have come to its end, where they pause;
            trials share lanes. False: each is judged when it comes to its own interval.
        bounds_checked: whether values of `custom_explore_fn` must be in their range.

    Trials rank by metric, then by number; NaN ranks last. Of P living trials the lower and the
    upper ⌈P · quantile_fraction⌉ count, at least one and at most half.
    """

    has_fixed_population: bool = True

    @takes(
        perturbation_interval=checks.number(infinite=True),
        burn_in_period=checks.number(infinite=True),
        quantile_fraction=checks.number(),
        resample_probability=checks.number(),
        log_config=checks.boolean(),
        require_attrs=checks.boolean(),
        synch=checks.boolean(),
        bounds_checked=checks.boolean(),
    )
    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: Mode | None = None,
        perturbation_interval: float = 5,
        burn_in_period: float = 0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: tuple[float, float] = (1.2, 0.8),
        custom_explore_fn: ExploreFn | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = True,
        bounds_checked: bool = True,
    ) -> None:
        if not hyperparam_mutations and custom_explore_fn is None:
            raise TuneSettingError(
                "PopulationBasedTraining changes nothing: give hyperparam_mutations, such as "
                "{'lr': tune.loguniform(1e-5, 1e-2)}, or custom_explore_fn."
            )
        if mode not in (None, "min", "max") or perturbation_interval <= 0:
            raise TuneSettingError(
                f"PopulationBasedTraining(mode={mode!r}, perturbation_interval="
                f"{perturbation_interval!r}): expected mode 'min' or 'max' and an interval > 0."
            )
        if not 0 < quantile_fraction <= 0.5 or not 0 <= resample_probability <= 1:
            raise TuneSettingError(
                f"PopulationBasedTraining(quantile_fraction={quantile_fraction!r}, "
                f"resample_probability={resample_probability!r}): expected a fraction in (0, 0.5] "
                "and a probability in [0, 1]."
            )
        self.metric, self.mode = metric, mode
        self.log_config = log_config
        self._time_attr, self._interval = time_attr, perturbation_interval
        self._burn_in, self._requires_time = burn_in_period, require_attrs
        self._fraction, self._is_synchronous = quantile_fraction, synch
        self._explore = _Explore(
            dict(_mutations(hyperparam_mutations or {}, "")),
            resample_probability,
            tuple(perturbation_factors),
            custom_explore_fn,
            bounds_checked,
        )
        self.inexact_reason = time_inexactness(time_attr)
        self._members: dict[int, Trial] = {}
        self._standing: dict[int, CheckpointRef] = {}  # the row at which each was judged last
        self._scores: dict[int, float] = {}
        self._boundary: dict[int, float] = {}  # of each trial: when it is judged next
        self._paused: list[int] = []
        self._num_added = 0

    @property
    def explored(self) -> Sequence[str]:
        """The paths of the settings that clones get other values of."""
        return tuple(self._explore.domains)

    def extend(self, space: SearchSpace) -> None:
        """Makes parameters of the settings that are explored and that the space does not have.

        Raises:
            TuneError: a setting to be multiplied is no number.
            UnknownSettingError: the space is a config, which has no such setting.
        """
        domains = self._explore.domains
        self._explore.domains = {space.add(path, domains[path]): domains[path] for path in domains}
        self._explore.check(space)

    def begin(self, context: SchedulerContext) -> None:
        """Takes the size of the population.

        Raises:
            TuneError: it is not known.
        """
        if context.num_trials is None:
            raise TuneSettingError(
                "PopulationBasedTraining has a population of unknown size; expected a number of "
                "trials. Give TuneConfig(num_samples=8)."
            )
        if context.num_trials < _STANDING_STILL:
            _LOGGER.warning(
                "PopulationBasedTraining has a population of one trial, which runs to its end "
                "unchanged: there is no other to copy. Give TuneConfig(num_samples=8)."
            )
        self._context, self._size = context, context.num_trials
        self.keys = (self._time_attr, str(self.metric))

    @property
    def pinned(self) -> Set[CheckpointRef]:
        """The rows at which trials were judged: others may go on from there."""
        return set(self._standing.values())

    def on_trial_add(self, trial: Trial) -> None:
        """One more in the population."""
        self._members[trial.number] = trial
        self._boundary[trial.number] = max(self._interval, self._burn_in)
        self._num_added += 1

    def on_trial_result(self, trial: Trial, result: Row) -> str | Sequence[Verdict]:
        """Judges a generation, or a trial, at its interval."""
        if trial.number not in self._members:
            return self.CONTINUE  # taken up again after the end of its population
        time = number_at(result, self._time_attr)
        if math.isnan(time) and self._requires_time:
            raise TuneSettingError(
                f"A row of trial {trial.trial_id} has no {self._time_attr!r}, which "
                "PopulationBasedTraining(time_attr=...) counts. Report it, or give another one."
            )
        if not time >= self._boundary[trial.number]:
            return self.CONTINUE
        number = trial.number
        self._boundary[number] = self._next_boundary(self._boundary[number], time)
        self._scores[number] = score_at(result, str(self.metric), self.mode or "max")
        self._standing[number] = CheckpointRef(number, trial.num_rows)
        if not self._is_synchronous:
            return self._judge_one(trial)
        self._paused.append(number)
        pause = Verdict(number, "pause", f"waits for its generation at {time:g}")
        return (pause, *self._judge_if_complete())

    def _next_boundary(self, boundary: float, time: float) -> float:
        """The first interval after a time: jumps over several count once."""
        return boundary + self._interval * (math.floor((time - boundary) / self._interval) + 1)

    # ---- synchronous

    def _judge_if_complete(self) -> Sequence[Verdict]:
        is_full = self._num_added >= self._size
        if not is_full or not self._paused or set(self._paused) != self._members.keys():
            return ()
        replaced, donors = self._quantiles(self._paused)
        verdicts = []
        for number in sorted(self._paused):
            if number in replaced and donors:
                verdicts.append(self._replace(self._members[number], donors))
            else:
                verdicts.append(Verdict(number, "resume"))
        self._paused = []
        return verdicts

    # ---- each by itself

    def _judge_one(self, trial: Trial) -> str | Sequence[Verdict]:
        known = sorted(self._members.keys() & self._scores.keys())
        replaced, donors = self._quantiles(known)
        number, following = trial.number, self._resume_one()
        if number in replaced and donors:
            verdict = self._replace(trial, donors)
            # It is a copy of its donor now, and is judged anew at its next interval.
            self._scores.pop(number)
            self._standing.pop(number)
            return (verdict, *following)
        if following or self._num_added < self._size:
            self._paused.append(number)
            return (Verdict(number, "pause", "lets others run"), *following)
        return self.CONTINUE

    def _resume_one(self) -> Sequence[Verdict]:
        """The one that waits longest gets the lane, once all have begun."""
        if self._num_added < self._size or not self._paused:
            return ()
        return (Verdict(self._paused.pop(0), "resume"),)

    # ---- both

    def _quantiles(self, numbers: Sequence[int]) -> tuple[Set[int], list[int]]:
        """(trials to be replaced, trials to copy from)."""
        ranked = sorted(numbers, key=lambda each: ranking_key(self._scores[each], each))
        if len(ranked) < _STANDING_STILL:
            return frozenset(), []
        size = min(max(1, math.ceil(len(ranked) * self._fraction)), len(ranked) // 2)
        donors = [each for each in ranked[:size] if not math.isnan(self._scores[each])]
        return frozenset(ranked[-size:]), donors

    def _replace(self, trial: Trial, donors: Sequence[int]) -> Verdict:
        generation = len(trial.clones) + 1
        rng = rng_at(self._context.seed, Kind.EXPLORE, trial.number, generation)
        donor = self._members[donors[int(rng.integers(len(donors)))]]
        source = self._standing[donor.number]
        return Verdict(
            trial.number,
            "clone",
            f"goes on from trial {donor.trial_id} at row {source.row_number}",
            donor=donor.number,
            donor_row=source.row_number,
            params=self._explore(donor.params, self._context.space, rng),
        )

    def on_trial_complete(
        self, trial: Trial, result: Row | None, failed: bool
    ) -> Sequence[Verdict]:
        """Takes the trial out of the population, which may have waited for it."""
        number = trial.number
        kept: tuple[dict[int, Any], ...]
        kept = (self._members, self._scores, self._standing, self._boundary)
        for each in kept:
            each.pop(number, None)
        if number in self._paused:
            self._paused.remove(number)
        return self._judge_if_complete() if self._is_synchronous else self._resume_one()

    def on_idle(self) -> Sequence[Verdict]:
        """Lets all that wait go on."""
        waiting, self._paused = self._paused, []
        return tuple(Verdict(each, "resume") for each in waiting)

    def policy_lines(
        self, trials: Sequence[Trial], number: int, configs: Callable[..., Any]
    ) -> Sequence[str]:
        """All changes of settings that led to the state of a trial, those of its donors first."""
        return list(_policy(trials, number, math.inf, configs)) if self.log_config else ()


# ---- explore


def _mutations(written: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Domain]]:
    """{path: domain} of `hyperparam_mutations`."""
    for key, value in written.items():
        path = f"{prefix}{key}"
        if isinstance(value, Domain):
            yield path, value
        elif isinstance(value, Mapping):
            yield from _mutations(value, f"{path}/")
        elif isinstance(value, list | tuple | range | np.ndarray):
            yield path, choice(list(value))
        elif callable(value):
            yield path, sample_from(value)
        else:
            raise TuneSettingError(
                f"hyperparam_mutations={{{path!r}: {shown(value)}}}: expected a domain such as "
                "tune.loguniform(1e-5, 1e-2), a list of values, or a function that gives one."
            )


class _Explore:
    """Makes the settings of a clone from those of its donor."""

    def __init__(
        self,
        domains: Mapping[str, Domain],
        resample_probability: float,
        factors: tuple[float, ...],
        custom: ExploreFn | None,
        is_checked: bool,
    ) -> None:
        self.domains = domains
        self._resample_probability, self._factors = resample_probability, factors
        self._custom, self._is_checked = custom, is_checked

    def __call__(
        self, params: Mapping[str, Any], space: SearchSpace, rng: np.random.Generator
    ) -> dict[str, Any]:
        """All params of a clone: those of its donor with each explored one changed."""
        explored = dict(params)
        for path, domain in self.domains.items():
            old = space.value(params, path)
            if old is SearchSpace or rng.random() < self._resample_probability:
                explored[path] = _fresh(domain, space.config(params), rng)
            else:
                explored[path] = self._changed(path, domain, old, rng)
        return explored if self._custom is None else self._customised(explored, space)

    def check(self, space: SearchSpace) -> None:
        """Raises a TuneError if a value that trials begin with cannot be multiplied."""
        for path, domain in self.domains.items():
            if isinstance(domain, Choice) or self._resample_probability == 1:
                continue
            first = space.value(space.parameters, path)
            for value in first.values if isinstance(first, Choice) else [first]:
                if not isinstance(value, Domain):
                    _check_number(path, value, domain)

    def _changed(self, path: str, domain: Domain, old: Any, rng: np.random.Generator) -> Any:
        if isinstance(domain, Choice):
            at = domain.index(old)
            if at is None:
                return domain.draw(rng)
            neighbours = [each for each in (at - 1, at + 1) if 0 <= each < len(domain.values)]
            if not neighbours:
                return old
            return domain.values[neighbours[int(rng.integers(len(neighbours)))]]
        _check_number(path, old, domain)
        factor = self._factors[int(rng.integers(len(self._factors)))]
        is_int = isinstance(old, int | np.integer)
        new = float(old) * factor
        if isinstance(domain, Range):
            return _at_least_one_step(domain, old, domain.nearest_value(new), factor)
        return round(new) if is_int else new

    def _customised(self, params: dict[str, Any], space: SearchSpace) -> dict[str, Any]:
        before = dict(_leaves(space.config(params)))
        given = self._custom(_nested(space.config(params))) if self._custom else None
        if not isinstance(given, Mapping):
            raise TuneSettingError(
                f"custom_explore_fn gave {shown(given)}; expected the config, as a dict. Let it "
                "return what it was given, changed."
            )
        for path, value in _leaves(given):
            if path in before and same(before[path], value):
                continue
            domain = self.domains.get(path) or space.parameters.get(path)
            problem = None if domain is None else domain.problem_of(value)
            if self._is_checked and problem is not None:
                raise TuneSettingError(
                    f"custom_explore_fn gave {path}={shown(value)}, which is not in {domain!r}: "
                    f"{problem}. Correct it, or give bounds_checked=False."
                )
            params[path] = value
        return params


def _check_number(path: str, value: Any, domain: Domain) -> None:
    """Raises a TuneError if a value cannot be multiplied."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TuneSettingError(
            f"PopulationBasedTraining cannot multiply {path}={shown(value)}: it is no number. Let "
            f"trials begin with a number there, or write the possible values of {path} as a list "
            f"instead of {domain!r}."
        )


def _fresh(domain: Domain, config: Any, rng: np.random.Generator) -> Any:
    return domain.call(config, rng) if isinstance(domain, SampleFrom) else domain.draw(rng)


def _at_least_one_step(domain: Range, old: Any, new: Any, factor: float) -> Any:
    """Ints and multiples of q move by one step at least, where the range allows it."""
    step = domain.q if domain.q is not None else 1 if domain.is_int else 0
    if not step or new != old or factor == 1:
        return new
    return domain.nearest_value(old + step if factor > 1 else old - step)


def _nested(config: Any) -> dict[str, Any]:
    return config.to_dict() if isinstance(config, AlgorithmConfig) else dict(config)


def _leaves(config: Any) -> Iterator[tuple[str, Any]]:
    return named_leaves(config if isinstance(config, Mapping) else _nested(config), keep_empty=True)


# ---- policies


def _policy(
    trials: Sequence[Trial], number: int, before: float, configs: Callable[..., Any]
) -> Iterator[str]:
    clones = trials[number].clones
    own = [index for index, each in enumerate(clones) if each.row_number < before]
    if not own:
        return
    index = own[-1]
    clone = clones[index]
    later = clones[index + 1].params_before if index + 1 < len(clones) else trials[number].params
    donor = trials[clone.source.trial]
    yield from _policy(trials, donor.number, clone.source.row_number, configs)
    donors = [each for each in donor.clones if each.row_number >= clone.source.row_number]
    old = donors[0].params_before if donors else donor.params
    line = [
        trials[number].trial_id,
        donor.trial_id,
        _num_iterations(trials, CheckpointRef(number, clone.row_number)),
        _num_iterations(trials, clone.source),
        _nested(configs(old)),
        _nested(configs(later)),
    ]
    yield json.dumps(line, default=repr)


def _num_iterations(trials: Sequence[Trial], ref: CheckpointRef) -> int:
    """How many rows led to a state: those of its trial, but before a clone those of the donor."""
    clones = [each for each in trials[ref.trial].clones if each.row_number < ref.row_number]
    if not clones:
        return ref.row_number
    own = ref.row_number - clones[-1].row_number
    return _num_iterations(trials, clones[-1].source) + own


class PopulationBasedTrainingReplay(TrialScheduler):
    """Runs one trial with the changes of settings that a population came to.

    Args:
        policy_file: `pbt_policy_….txt` of a trial, of ours or of Ray Tune.

    Attributes:
        config: the first config, for `param_space`; what it has is added to the space.

    Raises:
        TuneError: the file cannot be read.
    """

    keys = ("training_iteration",)
    needs_metric: bool = False
    has_fixed_population: bool = True

    def __init__(self, policy_file: str | Path) -> None:
        self._file = Path(policy_file).expanduser()
        self.config, self._changes = self._read()
        self._pinned: frozenset[CheckpointRef] = frozenset()
        self._num_done = 0

    def _read(self) -> tuple[dict[str, Any], list[tuple[float, dict[str, Any]]]]:
        """(first config, [(iteration, config)]): the chain of states that ends in the last line."""
        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
            rows = [json.loads(line) for line in lines if line.strip()]
            changes: list[tuple[float, dict[str, Any]]] = []
            config, following = {}, None
            for trial, donor, _, at, old, new in reversed(rows):
                if following is not None and trial != following:
                    break
                config, following = old, donor
                changes.insert(0, (at, new))
        except (OSError, ValueError, TypeError) as error:
            raise TuneError(
                f"PopulationBasedTrainingReplay({str(self._file)!r}) cannot be read: {error}. "
                "Expected a file pbt_policy_….txt, a JSON list of six entries in each line."
            ) from error
        if not changes:
            raise TuneError(
                f"{str(self._file)!r} has no lines: that trial never went on from another one. "
                "Take the policy of another trial."
            )
        return config, changes

    def extend(self, space: SearchSpace) -> None:
        """Sets the first config where the space says nothing."""
        for path, value in _leaves(self.config):
            space.add(path, choice([value]))

    def begin(self, context: SchedulerContext) -> None:
        """Keeps the space.

        Raises:
            TuneError: there are several trials.
        """
        if context.num_trials != 1:
            raise TuneSettingError(
                f"PopulationBasedTrainingReplay runs one trial, not {context.num_trials}. "
                "Give num_samples=1 and no grids."
            )
        self._space = context.space

    @property
    def pinned(self) -> Set[CheckpointRef]:
        """The row at which settings change."""
        return self._pinned

    def on_trial_result(self, trial: Trial, result: Row) -> str | Sequence[Verdict]:
        """Changes settings at the iterations of the policy."""
        time = number_at(result, "training_iteration")
        due = [each for each in self._changes[self._num_done :] if time >= each[0]]
        if not due:
            return self.CONTINUE
        self._num_done += len(due)
        self._pinned = frozenset({CheckpointRef(trial.number, trial.num_rows)})
        known = dict(_leaves(self._space.config(trial.params)))
        changed = {
            path: value
            for path, value in _leaves(due[-1][1])
            if path not in known or not same(known[path], value)
        }
        return (
            Verdict(
                trial.number,
                "clone",
                f"settings of the policy at {time:g}",
                donor=trial.number,
                donor_row=trial.num_rows,
                params={**trial.params, **changed},
            ),
        )

    def describe(self) -> dict[str, Any]:
        """What its file says: that is compared, and no file is read because a journal names it."""
        return {"type": "PopulationBasedTrainingReplay", "changes": self._changes}
