"""Searchers: which settings the next trial gets.

Ours are functions of the number of the suggestion and of what they were told before, in the decided
order, so nothing of them is saved: when an experiment is restored, they are told the same again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal
from zlib import crc32

import numpy as np

from checkpoints.arguments import shown
from trainer.errors import TuneError
from trainer.tune.events import Trial
from trainer.tune.positions import Kind, rng_at
from trainer.tune.rows import Row
from trainer.tune.search_space import RngOf, SampleFrom, SearchSpace

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


class Searcher:
    """Suggests settings; users subclass it and write `suggest` and `on_trial_complete`.

    A searcher of a user is exact if it is a function of its calls. It may have a generator of its
    own, made from a seed; when an experiment is restored, the same calls are made again.

    Attributes:
        keys: of the rows that it looks at; None: any.
        is_independent: suggestions do not depend on results.
        inexact_reason: why suggestions depend on more than calls; None: they do not.
        takes_grids: `grid_search` may be in the space.
    """

    FINISHED: ClassVar[str] = "FINISHED"

    keys: Sequence[str] | None = None
    is_independent: bool = False
    inexact_reason: str | None = None
    takes_grids: bool = False

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
        for name, value in (("metric", metric), ("mode", mode)):
            own = getattr(self, name, None)
            if own is not None and value is not None and own != value:
                raise TuneError(
                    f"{type(self).__name__}({name}={own!r}) and TuneConfig({name}={value!r}) "
                    "differ; expected it in one of the two places. Leave one of them out."
                )
            if own is None:
                setattr(self, name, value)

    def begin(self, context: SearchContext) -> None:
        """Called once before the first suggestion.

        Raises:
            TuneError: the space cannot be searched by this searcher.
        """
        self.context = context
        if context.space.grids and not self.takes_grids:
            grids = ", ".join(context.space.grids)
            raise TuneError(
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

        Args:
            num_running: trials that hold a lane.
            num_unfinished: these, and paused ones.
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

    def replay_suggestion(self, number: int, recorded: Suggestion) -> Suggestion:
        """Makes the suggestion again when an experiment is restored, or takes the recorded one."""
        again = self.next_suggestion(number)
        return again if isinstance(again, Suggestion) else recorded

    def on_row(self, trial: Trial, row: Row) -> None:
        """A trial made a row, and goes on."""
        self.on_trial_result(trial.trial_id, row)

    def on_over(self, trial: Trial, row: Row | None, how: HowOver) -> None:
        """A trial ended."""
        self.on_trial_complete(trial.trial_id, row, how == "failed")

    def describe(self) -> dict[str, Any]:
        """Its arguments as plain data, for the journal's header and for comparing."""
        return {"type": type(self).__name__}


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
            one of `num_samples`, and what it leaves open is drawn or goes through its grid.
        max_concurrent: trials that run at the same time at most; 0: as many as there are lanes.
        constant_grid_search: the same random values for all points of a grid.
        random_state: a seed of its own instead of the experiment's.
    """

    keys = ()
    is_independent = True
    takes_grids = True

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: int | None = None,
    ) -> None:
        super().__init__()
        if random_state is not None and (
            isinstance(random_state, bool) or not isinstance(random_state, int | np.integer)
        ):
            raise TuneError(
                f"random_state={shown(random_state)}: expected an int. A generator would remember "
                "its draws, which no restore could repeat; give its seed."
            )
        self._points = tuple(points_to_evaluate or ())
        self._max_concurrent, self._is_constant = max_concurrent, constant_grid_search
        self._seed = random_state

    def begin(self, context: SearchContext) -> None:
        """Checks the points, and counts the trials before each of them."""
        if self._seed is not None:
            context = SearchContext(context.space, int(self._seed), context.num_samples)
        super().begin(context)
        self._given = [context.space.flat_point(point) for point in self._points]
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

    def describe(self) -> dict[str, Any]:
        """Its arguments."""
        return {
            "type": "BasicVariantGenerator",
            "points_to_evaluate": [repr(point) for point in self._points],
            "constant_grid_search": self._is_constant,
            "random_state": self._seed,
        }


class RandomSearch(BasicVariantGenerator):
    """Random values only: a name for `BasicVariantGenerator` without grids."""

    takes_grids = False


class ConcurrencyLimiter(Searcher):
    """Lets a searcher have only some trials running at the same time.

    Args:
        searcher: that suggests.
        max_concurrent: trials that run at the same time at most, counted in lanes.
        batch: the next `max_concurrent` trials begin only when all of the last have ended.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        if not isinstance(searcher, Searcher):
            raise TuneError(
                f"ConcurrencyLimiter({shown(searcher)}): expected a Searcher, such as "
                "OptunaSearch()."
            )
        if isinstance(max_concurrent, bool) or not isinstance(max_concurrent, int):
            raise TuneError(f"max_concurrent={max_concurrent!r}: expected an int ≥ 1.")
        if max_concurrent < 1:
            raise TuneError(f"max_concurrent={max_concurrent!r}: expected an int ≥ 1.")
        super().__init__(searcher.metric, searcher.mode)
        self.searcher, self.max_concurrent, self._is_batch = searcher, max_concurrent, batch
        self._num_of_batch = 0
        self.takes_grids, self.is_independent = searcher.takes_grids, searcher.is_independent
        # Which suggestion a batch begins with depends on when the last trial of another one ends.
        self.is_independent = searcher.is_independent and not batch
        self.inexact_reason = searcher.inexact_reason

    def set_search_properties(self, metric: Any, mode: Any) -> None:
        """Hands them on."""
        self.searcher.set_search_properties(metric, mode)
        self.metric, self.mode = self.searcher.metric, self.searcher.mode

    def begin(self, context: SearchContext) -> None:
        """Hands it on."""
        self.searcher.begin(context)
        self.keys, self.inexact_reason = self.searcher.keys, self.searcher.inexact_reason

    def extend(self, num_samples: int) -> None:
        """Hands it on."""
        self.searcher.extend(num_samples)

    def num_trials(self) -> int | None:
        """As many as the searcher says."""
        return self.searcher.num_trials()

    def may_suggest(self, num_running: int, num_unfinished: int) -> bool:
        """Whether one more may run."""
        if self._is_batch:
            if num_unfinished == 0:
                self._num_of_batch = 0
            return self._num_of_batch < self.max_concurrent
        return num_running < self.max_concurrent

    def suggest(self, trial_id: str) -> Mapping[str, Any] | str | None:
        """Hands it on."""
        return self.searcher.suggest(trial_id)

    def next_suggestion(self, number: int) -> Suggestion | str | None:
        """Hands it on."""
        suggestion = self.searcher.next_suggestion(number)
        self._num_of_batch += isinstance(suggestion, Suggestion)
        return suggestion

    def replay_suggestion(self, number: int, recorded: Suggestion) -> Suggestion:
        """Hands it on."""
        self._num_of_batch += 1
        return self.searcher.replay_suggestion(number, recorded)

    def on_row(self, trial: Trial, row: Row) -> None:
        """Hands it on."""
        self.searcher.on_row(trial, row)

    def on_over(self, trial: Trial, row: Row | None, how: HowOver) -> None:
        """Hands it on."""
        self.searcher.on_over(trial, row, how)

    def describe(self) -> dict[str, Any]:
        """Its arguments and those of the searcher."""
        return {
            "type": "ConcurrencyLimiter",
            "searcher": self.searcher.describe(),
            "max_concurrent": self.max_concurrent,
            "batch": self._is_batch,
        }


def refuse_dependent_samples(space: SearchSpace, searcher: str) -> dict[str, SampleFrom]:
    """The `sample_from` parameters of a space that a model-based searcher leaves to us."""
    found = {
        name: domain for name, domain in space.parameters.items() if isinstance(domain, SampleFrom)
    }
    if len(found) == len(space.parameters):
        raise TuneError(
            f"{searcher} finds nothing to search: the space has {len(found)} sample_from functions "
            "and no other parameter. Add uniform(), choice() …, or leave search_alg out."
        )
    return found
