"""OptunaSearch: Optuna's samplers suggest, and repeat themselves after a restore.

A sampler of Optuna keeps generators that advance, so one that is made anew after a restore would
suggest otherwise. Here every suggestion is asked of a fresh copy whose generators are seeded by
position: the number of the trial, and whether it begins or ends. So nothing that a sampler's object
remembers has an effect. The journal holds what the sampler wrote into the attributes of trial and
study, and a restored study is given the same trials and attributes. That is right for samplers that
keep nothing but generators (`_EXACT`); any other one is asked itself, and makes a search inexact.

Optuna is an extra, `pip install "local-trainer[tune]"`. Its pruners and storages are not used:
schedulers stop trials, and the journal is the store. Trials that a scheduler stopped early are told
as PRUNED with their rows as intermediate values, failed ones as FAIL.
"""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

import numpy as np

from callbacks.optional_import import optional_module
from trainer.errors import TuneError
from trainer.tune.events import Trial
from trainer.tune.positions import Kind, seed_at
from trainer.tune.rows import Row, number_at
from trainer.tune.search_space import (
    Choice,
    Domain,
    GridSearch,
    Normal,
    Range,
    SampleFrom,
    SearchSpace,
)
from trainer.tune.searchers import (
    HowOver,
    SearchContext,
    Searcher,
    Suggestion,
    refuse_dependent_samples,
)
from trainer_toolkit.checks import plain_scalar, shown
from trainer_toolkit.trees import named_leaves

_NUM_STARTUP_TRIALS: Final = 10
_EXACT: Final = (
    "RandomSampler",
    "TPESampler",
    "NSGAIISampler",
    "NSGAIIISampler",
    "GridSampler",
    "QMCSampler",
)
_REFUSED: Final = {
    "BruteForceSampler": "it ends the study by itself, which only Study.optimize allows; write "
    "grid_search([...]) for each parameter and leave search_alg out",
    "PartialFixedSampler": "leave the fixed parameters out of the space and write constants",
}
_DRAWN_FROM: Final = 2**32
"""A QMCSampler without a seed draws one of 64 bits from the system; given ones have 32."""
_STUDY: Final = "experiment"
_USER: Final = {"user": "OptunaSearch", "extra": "tune"}


def text_of_distribution(value: object) -> str | None:
    """A distribution of Optuna as JSON; None for anything else."""
    if not type(value).__module__.startswith("optuna."):
        return None
    distributions = optional_module("optuna", **_USER).distributions
    if not isinstance(value, distributions.BaseDistribution):
        return None
    return str(distributions.distribution_to_json(value))


def distribution_of_text(text: str) -> Any:
    """The distribution that `text_of_distribution` wrote."""
    return optional_module("optuna", **_USER).distributions.json_to_distribution(text)


class OptunaSearch(Searcher):
    """Suggestions of one of Optuna's samplers.

    Args:
        space: a dict of domains (`uniform`, `choice` …), nested as `param_space` is; a dict of
            Optuna's distributions by path; or a function `fn(trial) -> dict | None` that calls
            `trial.suggest_…` by path and may return constants. None: the domains of `param_space`.
        metric: path into the rows, or a list of them; None: that of `TuneConfig`.
        mode: "min" or "max", or a list of them; None: that of `TuneConfig`.
        points_to_evaluate: configs that are tried first.
        sampler: a sampler, or a function `make_sampler(seed)`, which is called once; None: TPE,
            which looks at all parameters together and counts running trials as bad ones. Samplers
            whose object remembers more than Optuna stores make the experiment inexact.
        seed: of samplers that were made without one; None: that of the experiment. They do not draw
            the numbers that `Study.optimize` would, because each suggestion has its own.
        evaluated_rewards: the metrics of `points_to_evaluate`, which are then known and not tried.
        study_name: refused, as `storage` is: the journal is the store.

    A searcher of yours around it may ask it itself: `suggest`, `on_trial_result` and
    `on_trial_complete`, with a `space`, `metric` and `mode` of its own. Without a seed, 0 is taken.

    Raises:
        ImportError: Optuna is not installed.
        TuneError: arguments are wrong.
    """

    def __init__(
        self,
        space: Mapping[str, Any] | Callable[[Any], Mapping[str, Any] | None] | None = None,
        metric: str | list[str] | None = None,
        mode: str | list[str] | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        sampler: Any = None,
        seed: int | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
        *,
        study_name: str | None = None,
        storage: Any = None,
    ) -> None:
        super().__init__(metric, mode)
        if study_name is not None or storage is not None:
            raise TuneError(
                f"OptunaSearch(study_name={study_name!r}, storage={shown(storage)}): the journal "
                "of the experiment is the store, and what another program does to a study could "
                "not be repeated. Leave both out; `ResultGrid.to_optuna()` gives a study."
            )
        if evaluated_rewards is not None and len(evaluated_rewards) != len(
            points_to_evaluate or ()
        ):
            raise TuneError(
                f"OptunaSearch(evaluated_rewards=…) has {len(evaluated_rewards)} values and "
                f"points_to_evaluate {len(points_to_evaluate or ())}; expected one for each point."
            )
        self._space, self._points = space, list(points_to_evaluate or ())
        self._rewards = None if evaluated_rewards is None else list(evaluated_rewards)
        self._seed = seed
        self._own = self._own_space(space)
        self._by_hand: dict[str, Trial] = {}
        self._sampler = self._checked_sampler(sampler)  # imports Optuna: told now if it is absent

    @property
    def _optuna(self) -> Any:
        # No attribute: a searcher is copied, and modules cannot be.
        return optional_module("optuna", **_USER)

    def _checked_sampler(self, sampler: Any) -> Any:
        """What makes samplers: a function of the user, or an instance that is copied."""
        if isinstance(sampler, self._optuna.samplers.BaseSampler):
            return copy.deepcopy(_offered(sampler))
        if sampler is not None and (isinstance(sampler, type) or not callable(sampler)):
            raise _no_sampler(sampler, "")
        return sampler

    @classmethod
    def convert_search_space(cls, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Optuna's distributions by path, for the domains of a dict."""
        made = cls()
        domains = SearchSpace(spec).parameters
        return {path: made._distribution(path, domain) for path, domain in domains.items()}

    def _own_space(self, space: Any) -> SearchSpace | None:
        """The space of domains that was given to the searcher; None if it is none of domains."""
        if not isinstance(space, Mapping):
            return None
        base = self._optuna.distributions.BaseDistribution
        leaves = dict(named_leaves(space))
        if all(isinstance(each, base) for each in leaves.values()):
            return None
        for path, each in leaves.items():
            if not isinstance(each, Domain) or isinstance(each, GridSearch | SampleFrom):
                raise TuneError(
                    f"OptunaSearch(space={{{path!r}: {shown(each)}}}): expected domains such as "
                    "uniform(lower, upper), or Optuna's distributions by path alone. Constants, "
                    "sample_from and grids belong into param_space."
                )
        return SearchSpace(space)

    # ---- the study

    def begin(self, context: SearchContext) -> None:
        """Makes the study.

        Raises:
            TuneError: there is no metric, or the space cannot be searched by Optuna.
        """
        super().begin(context)
        if self.metric is None or self.mode is None:
            raise TuneError(
                "OptunaSearch compares trials and has no metric or mode. Give "
                "TuneConfig(metric='env_runners/episode_return_mean', mode='max')."
            )
        self._root_seed = context.seed if self._seed is None else self._seed
        self._one_sampler = self._made_sampler()
        self.inexact_reason = self._inexactness_of(self._one_sampler)
        self._metrics = [self.metric] if isinstance(self.metric, str) else list(self.metric)
        modes = [self.mode] if isinstance(self.mode, str) else list(self.mode)
        self.keys = tuple(self._metrics)
        self._by_run = self._space if callable(self._space) else None
        self._distributions = self._found_distributions(context)
        direction = self._optuna.study.StudyDirection
        self._storage = self._optuna.storages.InMemoryStorage()
        directions = [direction.MINIMIZE if mode == "min" else direction.MAXIMIZE for mode in modes]
        logging, verbosity = self._optuna.logging, self._optuna.logging.get_verbosity()
        logging.set_verbosity(logging.WARNING)  # an unwanted line for each study
        try:
            self._study_id = self._storage.create_new_study(directions, _STUDY)
        finally:
            logging.set_verbosity(verbosity)
        self._study = self._optuna.load_study(study_name=_STUDY, storage=self._storage)
        self._num_known = 0
        self._flat_points = [self._labels(self._flat_of(point)) for point in self._points]
        if self._rewards is not None:
            self._add_known_points(self._rewards)

    def _flat_of(self, point: Mapping[str, Any]) -> dict[str, Any]:
        if self._own is not None:
            return self._own.flat_point(point)
        return self.context.space.flat_point(point) if self._space is None else dict(point)

    @property
    def _domains(self) -> Mapping[str, Domain]:
        """The domains that Optuna's distributions stand for; none where it was given these."""
        if self._own is not None:
            return self._own.parameters
        return self.context.space.parameters if self._space is None else {}

    def _found_distributions(self, context: SearchContext) -> dict[str, Any]:
        if self._by_run is not None:
            return {}
        if isinstance(self._space, Mapping) and self._own is None:
            return dict(self._space)
        space = context.space if self._own is None else self._own
        if not space.parameters:
            raise TuneError(
                "OptunaSearch has nothing to search: param_space has no uniform(), choice() …, and "
                "no space was given. Write domains into param_space."
            )
        drawn_by_us = refuse_dependent_samples(space, "OptunaSearch")
        return {
            path: self._distribution(path, domain)
            for path, domain in space.parameters.items()
            if path not in drawn_by_us
        }

    def _distribution(self, path: str, domain: Domain) -> Any:
        kinds = self._optuna.distributions
        if isinstance(domain, Choice):
            return kinds.CategoricalDistribution(_labels_of(domain))
        if isinstance(domain, Range) and domain.is_int:
            step = 1 if domain.q is None or domain.is_log else int(domain.q)
            bounds = (int(domain.lower), int(domain.largest))
            return kinds.IntDistribution(*bounds, log=domain.is_log, step=step)
        if isinstance(domain, Range):
            spacing = None if domain.is_log else domain.q
            return kinds.FloatDistribution(
                domain.lower, domain.upper, log=domain.is_log, step=spacing
            )
        what = "normally distributed" if isinstance(domain, Normal) else f"a {type(domain)}"
        raise TuneError(
            f"{path}={domain!r} is {what}, which Optuna's samplers cannot draw. Write "
            "uniform(lower, upper), or leave search_alg out."
        )

    def _made_sampler(self) -> Any:
        """The one sampler of the experiment."""
        samplers = self._optuna.samplers
        if self._sampler is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
                return samplers.TPESampler(
                    n_startup_trials=_NUM_STARTUP_TRIALS, multivariate=True, constant_liar=True
                )
        if isinstance(self._sampler, samplers.BaseSampler):
            return self._sampler
        made = self._sampler(self._root_seed)
        if not isinstance(made, samplers.BaseSampler):
            raise _no_sampler(made, "make_sampler(seed) gave ")
        return _offered(made)

    def _inexactness_of(self, sampler: Any) -> str | None:
        """Why a sampler, or one that it is made of, cannot be asked by position."""
        known = {getattr(self._optuna.samplers, name) for name in _EXACT}
        for _, each in _samplers_in(sampler):
            if type(each) not in known:
                return f"{type(each).__name__} may remember more than Optuna stores"
        return None

    def _sampler_at(self, number: int, *, has_ended: bool = False) -> Any:
        """A fresh copy whose generators follow from what it is asked, or an inexact one itself."""
        if self.inexact_reason is not None:
            return self._one_sampler
        sampler = copy.deepcopy(self._one_sampler)
        _seed_by_position(sampler, self._root_seed, number, int(has_ended))
        return sampler

    # ---- suggesting

    def next_suggestion(self, number: int) -> Suggestion:
        """Asks the study for trial `number`."""
        index = number + self._num_known
        before = dict(self._storage.get_study_system_attrs(self._study_id))
        self._study.sampler = self._sampler_at(number)
        if self._rewards is None and number < len(self._flat_points):
            self._study.enqueue_trial(self._flat_points[number])
        if self._by_run is None:
            asked = self._study.ask(fixed_distributions=self._distributions)
            constants: Mapping[str, Any] = {}
        else:
            asked = self._study.ask()
            constants = self._by_run(asked) or {}
        frozen = self._storage.get_all_trials(self._study_id, deepcopy=False)[index]
        after = self._storage.get_study_system_attrs(self._study_id)
        attributes: dict[str, Any] = {
            "params": dict(frozen.params),
            "system": dict(frozen.system_attrs),
            "study": {key: value for key, value in after.items() if before.get(key) != value},
        }
        if self._by_run is not None:
            to_json = self._optuna.distributions.distribution_to_json
            attributes["distributions"] = {
                path: to_json(each) for path, each in frozen.distributions.items()
            }
        params = {**self._values(frozen.params), **constants}
        drawn = self.context.space.draw(params, self.context.rng_of(number))
        return Suggestion(drawn, json.loads(json.dumps(attributes)))

    def replay_suggestion(self, number: int, recorded: Suggestion) -> Suggestion:
        """Puts the recorded suggestion into the study instead of asking again."""
        attributes = recorded.attributes
        distributions = self._distributions
        if "distributions" in attributes:
            from_json = self._optuna.distributions.json_to_distribution
            distributions = {
                path: from_json(each) for path, each in attributes["distributions"].items()
            }
        for key, value in attributes["study"].items():
            self._storage.set_study_system_attr(self._study_id, key, value)
        self._study.add_trial(
            self._optuna.trial.create_trial(
                state=self._optuna.trial.TrialState.RUNNING,
                params=dict(attributes["params"]),
                distributions=distributions,
                system_attrs=dict(attributes["system"]),
            )
        )
        return recorded

    def _values(self, labels: Mapping[str, Any]) -> dict[str, Any]:
        """What Optuna's params stand for in the space."""
        values = {}
        for path, label in labels.items():
            domain = self._domains.get(path)
            if isinstance(domain, Choice):
                values[path] = domain.values[_labels_of(domain).index(label)]
            elif isinstance(domain, Range):
                values[path] = domain.nearest_value(label)
            else:
                values[path] = label
        return values

    def _labels(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Optuna's params for values of the space."""
        labels = {}
        for path, value in values.items():
            domain = self._domains.get(path)
            if isinstance(domain, SampleFrom):
                continue
            if isinstance(domain, Choice):
                index = domain.index(value)
                labels[path] = _labels_of(domain)[index or 0]
            else:
                labels[path] = plain_scalar(value)
        return labels

    def _add_known_points(self, rewards: Sequence[Any]) -> None:
        for labels, reward in zip(self._flat_points, rewards, strict=True):
            missing = sorted(self._distributions.keys() - labels.keys())
            if missing or self._by_run is not None:
                raise TuneError(
                    f"OptunaSearch(evaluated_rewards=…): the point {labels} has no {missing}; "
                    "expected complete points and a space that is not a function."
                )
            self._study.add_trial(
                self._optuna.trial.create_trial(
                    params=labels,
                    distributions=self._distributions,
                    values=[float(each) for each in np.atleast_1d(reward)],
                )
            )
            self._num_known += 1

    # ---- asked by searchers of users

    def suggest(self, trial_id: str) -> Mapping[str, Any]:
        """A config, for searchers that ask by hand; an experiment does not."""
        if not hasattr(self, "context"):
            space = self._own or SearchSpace({})
            self.begin(SearchContext(space, self._seed or 0, num_samples=-1))
        number = len(self._by_hand)
        found = self.next_suggestion(number)
        params = dict(found.params)
        self._by_hand[trial_id] = Trial(number, params, cpus=0.0, seed=0)
        config: Mapping[str, Any] = self.context.space.config(params)
        return config

    def on_trial_result(self, trial_id: str, result: Row) -> None:
        """A row of a trial that was asked for by hand; those after its end are left out."""
        trial = self._by_hand.get(trial_id)
        if trial is not None and not self._is_told(trial):
            trial.num_rows += 1
            self._tell_row(trial, result)

    def on_trial_complete(
        self, trial_id: str, result: Row | None = None, error: bool = False
    ) -> None:
        """The end of a trial that was asked for by hand, told once."""
        trial = self._by_hand.get(trial_id)
        if trial is not None and not self._is_told(trial):
            self._tell_end(trial, result, "failed" if error else "complete")

    # ---- results

    def on_row(self, trial: Trial, row: Row) -> None:
        """Tells the row as an intermediate value; of a trial that is taken up again, none."""
        super().on_row(trial, row)
        if not self._is_told(trial):
            self._tell_row(trial, row)

    def _tell_row(self, trial: Trial, row: Row) -> None:
        if len(self._metrics) == 1:
            value = number_at(row, self._metrics[0])
            trial_id = self._id_of(trial)
            self._storage.set_trial_intermediate_value(trial_id, trial.num_rows, value)

    def _is_told(self, trial: Trial) -> bool:
        """Whether Optuna knows how the trial ended; it takes nothing about it any more."""
        index = trial.number + self._num_known
        frozen = self._storage.get_all_trials(self._study_id, deepcopy=False)[index]
        return bool(frozen.state.is_finished())

    def on_over(self, trial: Trial, row: Row | None, how: HowOver) -> None:
        """Tells how the trial ended; a trial that is taken up again is told once."""
        super().on_over(trial, row, how)
        if not self._is_told(trial):
            self._tell_end(trial, row, how)

    def _tell_end(self, trial: Trial, row: Row | None, how: HowOver) -> None:
        state = self._optuna.trial.TrialState
        index = trial.number + self._num_known
        values = [number_at(row or {}, each) for each in self._metrics]
        is_number = all(not math.isnan(each) for each in values)
        if row is not None:
            self._tell_row(trial, row)
        sampler = self._sampler_at(trial.number, has_ended=True)
        if type(sampler).__name__ == "GridSampler":
            # It would end the study when its grid is used up, which only Study.optimize allows.
            sampler = self._optuna.samplers.RandomSampler(seed=0)
        self._study.sampler = sampler
        if how == "pruned" and len(self._metrics) == 1:
            self._study.tell(index, state=state.PRUNED)
        elif how == "failed" or not is_number:
            self._study.tell(index, state=state.FAIL)
        else:
            self._study.tell(index, values)

    def _id_of(self, trial: Trial) -> int:
        index = trial.number + self._num_known
        return int(self._storage.get_trial_id_from_study_id_trial_number(self._study_id, index))

    def to_study(self) -> Any:
        """The study with all trials so far, for Optuna's plots and its dashboard; a copy."""
        study = self._optuna.create_study(directions=self._study.directions)
        study.add_trials(self._study.trials)
        return study


def _labels_of(domain: Choice) -> tuple[Any, ...]:
    """What stands for the choices in Optuna, which takes plain scalars and compares them by ==."""
    is_plain = all(each is None or type(each) in (bool, int, float, str) for each in domain.values)
    if is_plain and len(set(domain.values)) == len(domain.values):
        return domain.values
    return tuple(f"{index}: {shown(each)}" for index, each in enumerate(domain.values))


def _offered(sampler: Any) -> Any:
    """The sampler; a TuneError for one that does not work here."""
    name = type(sampler).__name__
    if name in _REFUSED:
        raise TuneError(f"OptunaSearch(sampler={name}()) is not offered: {_REFUSED[name]}.")
    return sampler


def _no_sampler(found: Any, by: str) -> TuneError:
    return TuneError(
        f"OptunaSearch(sampler=…): {by}{shown(found)}; expected a sampler of Optuna, such as "
        "TPESampler(), or a function make_sampler(seed) that makes one."
    )


def _samplers_in(sampler: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """A sampler and those that it is made of, each with the path to its attributes."""
    yield path, sampler
    for name, value in vars(sampler).items():
        if name.endswith("_sampler") and hasattr(value, "sample_relative"):
            yield from _samplers_in(value, f"{path}{name}.")


def _seed_by_position(sampler: Any, root_seed: int, *position: int) -> None:
    """Seeds the generators of a fresh sampler, those that came with a seed by that one."""
    for path, each in _samplers_in(sampler):
        for name, lazy in vars(each).items():
            if type(lazy).__name__ != "LazyRandomState":
                continue
            made = getattr(lazy, "_rng", None)  # None: Optuna would seed it by the system
            seed = root_seed if made is None else int(made.randint(2**31))
            place = crc32(f"{path}{name}".encode())
            lazy._rng = np.random.RandomState(seed_at(seed, Kind.SAMPLER, *position, place))
        if getattr(each, "_seed", 0) >= _DRAWN_FROM:
            each._seed = root_seed
