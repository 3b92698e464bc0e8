"""Searchers: which settings the next trial gets.

Ours are functions of the number of the suggestion and of what they were told before, in the decided
order, so nothing of them is saved: when an experiment is restored, they are told the same again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal
from zlib import crc32

import numpy as np

from trainer.errors import TuneError, TuneSettingError
from trainer.tune.events import Trial
from trainer.tune.parts import Part, keys_of
from trainer.tune.positions import Kind, rng_at
from trainer.tune.rows import Row, adopt_objective, number_at
from trainer.tune.search_space import RngOf, SampleFrom, SearchSpace, seed_of
from trainer_toolkit.checks import shown

HowOver = Literal["complete", "pruned", "failed"]
"""How a trial ended: at its own end or a stop criterion; stopped early; with an error."""


@dataclass(frozen=True)
class Suggestion:
    """The settings of one trial.

    Attributes:
        params: {path: value} for all parameters of the space.
        attributes: what the searcher wants back when it is rebuilt; plain data for the journal.
    """

    params: Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SearchContext:
    """What a searcher is told before the first suggestion.

    Attributes:
        space: to search.
        seed: of the experiment.
        num_samples: asked for; -1: no end.
    """

    space: SearchSpace
    seed: int
    num_samples: int

    def rng_of(self, number: int) -> RngOf:
        """Generators for the parameters of suggestion `number`, by their paths."""
        return lambda path: rng_at(self.seed, Kind.SUGGEST, number, crc32(path.encode()))


class Searcher(Part):
    """Suggests settings; users subclass it and write `suggest` and `on_trial_complete`.

    A searcher of a user is exact if it is a function of its calls. It may have a generator of its
    own, made from a seed; when an experiment is restored, the same calls are made again.

    Attributes:
        keys: of the rows that it looks at; None: any.
        is_independent: suggestions do not depend on results.
        inexact_reason: why suggestions depend on more than calls; None: they do not.
        takes_grids: `grid_search` may be in the space.
        needs_whole_trials: no scheduler may stop trials early.
    """

    FINISHED: ClassVar[str] = "FINISHED"

    keys: Sequence[str] | None = None
    is_independent: bool = False
    inexact_reason: str | None = None
    takes_grids: bool = False
    needs_whole_trials: bool = False

    def __init__(
        self, metric: str | list[str] | None = None, mode: str | list[str] | None = None
    ) -> None:
        """Keeps metric and mode, where they are not those of `TuneConfig`."""
        self.metric, self.mode = metric, mode

    # ---- what users write

    def suggest(self, trial_id: str) -> Mapping[str, Any] | str | None:
        """A config for a trial (nested, or by path); None: not now; `FINISHED`: no more."""
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: Row) -> None:
        """A trial made a row, and goes on."""

    def on_trial_complete(
        self, trial_id: str, result: Row | None = None, error: bool = False
    ) -> None:
        """A trial ended; `result` is its last row."""

    # ---- what the controller calls

    def set_search_properties(self, metric: Any, mode: Any) -> None:
        """Takes metric and mode of the experiment where the searcher was given none of its own.

        Raises:
            TuneError: it has others.
        """
        adopt_objective(self, metric=metric, mode=mode)

    def begin(self, context: SearchContext) -> None:
        """Called once before the first suggestion.

        Raises:
            TuneError: the space cannot be searched by this searcher.
        """
        self.context = context
        if context.space.grids and not self.takes_grids:
            grids = ", ".join(context.space.grids)
            raise TuneSettingError(
                f"{type(self).__name__} chooses values itself, and {grids} is a grid_search; "
                "expected no grids. Write choice([...]), or leave search_alg out."
            )

    def extend(self, num_samples: int) -> None:
        """More samples are wanted than before."""
        self.context = replace(self.context, num_samples=num_samples)

    def num_trials(self) -> int | None:
        """How many trials there will be; None: not known."""
        return self.context.num_samples if self.context.num_samples >= 0 else None

    def may_suggest(self, num_running: int, num_unfinished: int) -> bool:
        """Whether a suggestion may be asked for.

        Running ones hold a lane; unfinished are these, and paused ones.
        """
        return True

    def next_suggestion(self, number: int) -> Suggestion | str | None:
        """The suggestion for trial `number`; what `suggest` does not say is drawn by position."""
        config = self.suggest(f"{number:05d}")
        if not isinstance(config, Mapping):
            return config
        space = self.context.space
        params = _flat(config, space)
        return Suggestion(space.draw(params, self.context.rng_of(number)))

    def answer(self, number: int) -> Suggestion | str | None:
        """Asks for trial `number`; a TuneError if what is suggested is no suggestion."""
        found = self.next_suggestion(number)
        if isinstance(found, Suggestion) or found in (None, self.FINISHED):
            return found
        raise TuneError(
            f"{type(self).__name__}.suggest('{number:05d}') gave {shown(found)}; expected a dict "
            "of settings, None (not now) or Searcher.FINISHED."
        )

    def replay_suggestion(self, number: int, recorded: Suggestion) -> Suggestion | str | None:
        """Makes the suggestion again when an experiment is restored; the recorded one counts."""
        return self.next_suggestion(number)

    def on_row(self, trial: Trial, row: Row) -> None:
        """A trial made a row, and goes on."""
        self.on_trial_result(trial.trial_id, row)

    def on_over(self, trial: Trial, row: Row | None, how: HowOver) -> None:
        """A trial ended."""
        self.on_trial_complete(trial.trial_id, row, how == "failed")


def _flat(config: Mapping[str, Any], space: SearchSpace, prefix: str = "") -> dict[str, Any]:
    """{path: value} of what a searcher of a user gave; values of parameters may be dicts."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and path not in space.parameters:
            flat.update(_flat(value, space, f"{path}/"))
        else:
            flat[path] = value
    return flat


class BasicVariantGenerator(Searcher):
    """Random values and grids: suggestion n is a function of seed and n.

    Args:
        points_to_evaluate: complete or partial configs, tried first and in order; each counts as
            one of `num_samples`, and what it leaves open is drawn or goes through its grid. Values
            outside of the space are told and tried.
        max_concurrent: trials that run at the same time at most; 0: as many as there are lanes.
        constant_grid_search: the same random values for all points of a grid.
        random_state: a seed of its own instead of the experiment's, or a NumPy generator that one
            is drawn from.
    """

    keys = ()
    is_independent = True
    takes_grids = True

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        super().__init__()
        if isinstance(random_state, np.random.Generator | np.random.RandomState):
            random_state = seed_of(random_state)
            self._arguments["random_state"] = random_state  # a restore goes on with it
        points = [] if points_to_evaluate is None else points_to_evaluate
        if not isinstance(points, list | tuple) or not all(isinstance(p, Mapping) for p in points):
            raise TuneSettingError(
                f"points_to_evaluate={shown(points_to_evaluate)}: expected a list of dicts, each a "
                "config or a part of one, such as [{'lr': 1e-3}]."
            )
        if random_state is not None and (
            isinstance(random_state, bool) or not isinstance(random_state, int | np.integer)
        ):
            raise TuneSettingError(
                f"random_state={shown(random_state)}: expected an int or a NumPy generator."
            )
        self._points = tuple(points_to_evaluate or ())
        self._max_concurrent, self._is_constant = max_concurrent, constant_grid_search
        self._seed = random_state

    def begin(self, context: SearchContext) -> None:
        """Checks the points, and counts the trials before each of them."""
        if self._seed is not None:
            context = SearchContext(context.space, int(self._seed), context.num_samples)
        super().begin(context)
        self._given = [
            context.space.flat_point(point, may_be_outside=True) for point in self._points
        ]
        self._num_before = [0]
        for point in self._given:
            self._num_before.append(self._num_before[-1] + self._num_grid_points(point))

    def _num_grid_points(self, point: Mapping[str, Any]) -> int:
        grids = self.context.space.grids
        return math.prod(len(grid.values) for name, grid in grids.items() if name not in point)

    def num_trials(self) -> int | None:
        """Samples times the sizes of all grids."""
        num_samples = self.context.num_samples
        if num_samples < 0:
            return None
        if num_samples < len(self._given):
            return self._num_before[num_samples]
        num_drawn = num_samples - len(self._given)
        return self._num_before[-1] + num_drawn * self._num_grid_points({})

    def may_suggest(self, num_running: int, num_unfinished: int) -> bool:
        """Whether fewer than `max_concurrent` run."""
        return not self._max_concurrent or num_running < self._max_concurrent

    def next_suggestion(self, number: int) -> Suggestion | str | None:
        """Sample and point of the grid follow from the number; the first grid varies slowest."""
        total = self.num_trials()
        if total is not None and number >= total:
            return self.FINISHED
        return Suggestion(self.params_of(number))

    def params_of(self, number: int) -> dict[str, Any]:
        """The params of trial `number`."""
        space = self.context.space
        sample = int(np.searchsorted(self._num_before, number, side="right")) - 1
        if sample < len(self._given):
            params, index = dict(self._given[sample]), number - self._num_before[sample]
        else:
            num_points = self._num_grid_points({})
            drawn, index = divmod(number - self._num_before[-1], num_points)
            params, sample = {}, sample + drawn
        for name, grid in reversed(space.grids.items()):
            if name not in params:
                index, at = divmod(index, len(grid.values))
                params[name] = grid.values[at]
        return space.draw(params, self.context.rng_of(sample if self._is_constant else number))


class RandomSearch(BasicVariantGenerator):
    """Random values only: a name for `BasicVariantGenerator` without grids."""

    takes_grids = False


def _handed_on(name: str) -> Any:
    """A method that calls the same one of the searcher inside."""

    def method(self: _Around, *given: Any) -> Any:
        return getattr(self.searcher, name)(*given)

    method.__doc__ = f"`{name}` of the searcher."
    return method


class _Around(Searcher):
    """A searcher that has another one suggest: what it does not change, it hands on."""

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TuneSettingError(
                f"{type(self).__name__}({shown(searcher)}): expected a Searcher, such as "
                "OptunaSearch()."
            )
        super().__init__(searcher.metric, searcher.mode)
        self.searcher = searcher
        self.takes_grids, self.is_independent = searcher.takes_grids, searcher.is_independent
        self.inexact_reason = searcher.inexact_reason

    def set_search_properties(self, metric: Any, mode: Any) -> None:
        """Hands them on."""
        self.searcher.set_search_properties(metric, mode)
        self.metric, self.mode = self.searcher.metric, self.searcher.mode

    def begin(self, context: SearchContext) -> None:
        """Hands it on."""
        self.searcher.begin(context)
        self.context = context
        self.keys, self.inexact_reason = keys_of(self.searcher), self.searcher.inexact_reason

    extend = _handed_on("extend")
    num_trials = _handed_on("num_trials")
    may_suggest = _handed_on("may_suggest")
    suggest = _handed_on("suggest")
    on_row = _handed_on("on_row")
    on_over = _handed_on("on_over")

    def next_suggestion(self, number: int) -> Suggestion | str | None:
        """Hands it on."""
        return self.searcher.next_suggestion(number)

    def replay_suggestion(self, number: int, recorded: Suggestion) -> Suggestion | str | None:
        """Hands it on."""
        return self.searcher.replay_suggestion(number, recorded)


class ConcurrencyLimiter(_Around):
    """Lets a searcher have only some trials running at the same time.

    Args:
        searcher: that suggests.
        max_concurrent: trials that run at the same time at most, counted in lanes.
        batch: the next `max_concurrent` trials begin only when all of the last have ended.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        super().__init__(searcher)
        self.max_concurrent = _at_least_one("max_concurrent", max_concurrent)
        self._is_batch, self._num_of_batch = batch, 0
        # Which suggestion a batch begins with depends on when the last trial of another one ends.
        self.is_independent = searcher.is_independent and not batch

    def may_suggest(self, num_running: int, num_unfinished: int) -> bool:
        """Whether one more may run."""
        if self._is_batch:
            if num_unfinished == 0:
                self._num_of_batch = 0
            return self._num_of_batch < self.max_concurrent
        return num_running < self.max_concurrent

    def next_suggestion(self, number: int) -> Suggestion | str | None:
        """Hands it on, and counts."""
        suggestion = super().next_suggestion(number)
        self._num_of_batch += isinstance(suggestion, Suggestion)
        return suggestion

    def replay_suggestion(self, number: int, recorded: Suggestion) -> Suggestion | str | None:
        """Hands it on, and counts."""
        self._num_of_batch += 1
        return super().replay_suggestion(number, recorded)


TRIAL_INDEX: Final = "__trial_index__"
"""Where `Repeater` puts the number of the repetition in the config, as Ray Tune does."""

_REDUCTIONS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
}


class Repeater(_Around):
    """Runs several trials per suggestion, with seeds of their own, and tells the searcher the mean.

    Args:
        searcher: that suggests.
        repeat: trials per suggestion. `num_samples` counts trials, so it is a multiple of it.
        set_index: put the number of the repetition into the config, as `__trial_index__`; a config
            object has no place for it.
        reduce: what the searcher is told of the trials' last values: "mean", "median", "min" or
            "max".

    A trial that failed, or whose metric is NaN, is left out; if all are, the suggestion failed.
    Rows on the way are not told, and no scheduler may stop trials early: means over trials of
    different length could not be compared.
    """

    needs_whole_trials = True

    def __init__(
        self, searcher: Searcher, repeat: int = 1, set_index: bool = True, reduce: str = "mean"
    ) -> None:
        super().__init__(searcher)
        self.repeat, self._sets_index = _at_least_one("repeat", repeat), set_index
        if reduce not in _REDUCTIONS:
            raise TuneSettingError(
                f"reduce={shown(reduce)}: expected one of {', '.join(_REDUCTIONS)}."
            )
        self._reduce = reduce
        self._params: dict[int, Mapping[str, Any]] = {}  # of each suggestion that is still needed
        self._values: dict[int, dict[int, float]] = {}  # by suggestion, and by trial that is over

    def begin(self, context: SearchContext) -> None:
        """Hands it on, with the number of suggestions in the place of that of trials."""
        self._check(context.num_samples)
        if isinstance(self.metric, list | tuple):
            raise TuneSettingError(
                f"Repeater compares one metric, not {self.metric!r}. Give one, or leave it out."
            )
        super().begin(replace(context, num_samples=self._num_suggestions(context.num_samples)))

    def extend(self, num_samples: int) -> None:
        """Hands it on, as `begin` does."""
        self._check(num_samples)
        super().extend(self._num_suggestions(num_samples))

    def _check(self, num_samples: int) -> None:
        if num_samples > 0 and num_samples % self.repeat:
            raise TuneSettingError(
                f"Repeater(repeat={self.repeat}) makes {self.repeat} trials per suggestion; "
                f"expected a multiple as num_samples, not {num_samples}."
            )

    def _num_suggestions(self, num_samples: int) -> int:
        return num_samples // self.repeat if num_samples > 0 else num_samples

    def num_trials(self) -> int | None:
        """As many suggestions as the searcher says, each so many times."""
        number = self.searcher.num_trials()
        return None if number is None else number * self.repeat

    def next_suggestion(self, number: int) -> Suggestion | str | None:
        """Asks for a suggestion, or repeats the last one."""
        group, index = divmod(number, self.repeat)
        if index:
            return Suggestion(self._with_index(self._params[group], index))
        found = self.searcher.next_suggestion(group)
        if not isinstance(found, Suggestion):
            return found
        self._keep(group, found.params)
        return Suggestion(self._with_index(found.params, 0), found.attributes)

    def replay_suggestion(self, number: int, recorded: Suggestion) -> Suggestion | str | None:
        """Has the searcher do the same; repetitions are as they were recorded."""
        group, index = divmod(number, self.repeat)
        params = {path: value for path, value in recorded.params.items() if path != TRIAL_INDEX}
        if index:
            return recorded
        again = self.searcher.replay_suggestion(group, Suggestion(params, recorded.attributes))
        self._keep(group, params)
        if not isinstance(again, Suggestion):
            return again
        return Suggestion(self._with_index(again.params, 0), again.attributes)

    def _keep(self, group: int, params: Mapping[str, Any]) -> None:
        self._params = {group: params}  # those before have all their trials
        self._values[group] = {}

    def _with_index(self, params: Mapping[str, Any], index: int) -> dict[str, Any]:
        has_place = self._sets_index and not self.context.space.is_of_config
        return {**params, TRIAL_INDEX: index} if has_place else dict(params)

    def on_row(self, trial: Trial, row: Row) -> None:
        """Tells nothing."""

    def on_over(self, trial: Trial, row: Row | None, how: HowOver) -> None:
        """Tells the searcher when all trials of a suggestion are over; once."""
        group = trial.number // self.repeat
        values = self._values.get(group)
        if values is None:
            return  # it was told, and a trial that had failed is over once more
        value = math.nan if row is None else number_at(row, str(self.metric))
        values[trial.number] = math.nan if how == "failed" else value
        if len(values) < self.repeat:
            return
        del self._values[group]
        known = [value for _, value in sorted(values.items()) if not math.isnan(value)]
        row = {str(self.metric): _REDUCTIONS[self._reduce](known)} if known else None
        one = replace(trial, number=group, last_row=row, num_rows=1)
        self.searcher.on_over(one, row, "complete" if known else "failed")


def _at_least_one(name: str, given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise TuneSettingError(f"{name}={given!r}: expected an int ≥ 1.")
    return given


def refuse_dependent_samples(space: SearchSpace, searcher: str) -> dict[str, SampleFrom]:
    """The `sample_from` parameters of a space that a model-based searcher leaves to us."""
    found = {
        name: domain for name, domain in space.parameters.items() if isinstance(domain, SampleFrom)
    }
    if len(found) == len(space.parameters):
        raise TuneSettingError(
            f"{searcher} finds nothing to search: the space has {len(found)} sample_from functions "
            "and no other parameter. Add uniform(), choice() …, or leave search_alg out."
        )
    return found
