"""Search spaces: what is drawn for each trial, and where it stands in the config.

    space = SearchSpace({"lr": loguniform(1e-5, 1e-2), "model": {"fcnet_hiddens": choice([...])}})
    params = space.draw(point, rng_of)      {"lr": 3e-4, "model/fcnet_hiddens": [64, 64]}
    config = space.config(params)           the whole config, a copy of its own

Domains are frozen values that print as they are written and hold no generator. Wrong bounds raise
where they are written. The same domains may stand in an `AlgorithmConfig`, in any setting and at
any depth. The semantics are those of Ray Tune's search space API (its documentation, "Tune Search
Space API"); where the two differ, the docstring says so.
"""

from __future__ import annotations

import decimal
import inspect
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

import numpy as np

from trainer.config import AlgorithmConfig
from trainer.errors import SearchSpaceError
from trainer.types import ToBeDrawn
from trainer_toolkit.checks import shown
from trainer_toolkit.nearest_names import did_you_mean
from trainer_toolkit.plain_json import NotPlainError, from_json, to_json
from trainer_toolkit.trees import mapped, same

_LOGGER = logging.getLogger(__name__)

Path = tuple[Any, ...]
"""Keys and indices from the top of a config down to one value."""

RngOf = Callable[[str], np.random.Generator]
"""Path of a parameter -> the generator for its place in the suggestion."""

# ---- domains


class Domain(ToBeDrawn):
    """A set of values with a distribution: what `uniform()`, `choice()` and the others give."""

    def draw(self, rng: np.random.Generator) -> Any:
        """One value."""
        raise NotImplementedError

    def problem_of(self, value: Any) -> str | None:
        """Why a value is not in the domain; None if it is."""
        raise NotImplementedError

    def sample(
        self,
        config: Any = None,
        size: int = 1,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> Any:
        """Values outside of an experiment, whose own draws follow from its seed.

        Args:
            config: of no effect, but for `sample_from`.
            size: how many; more than one gives a list.
            random_state: a seed or a generator, which moves on; None: NumPy's global generator.
        """
        rng = _generator(random_state)
        drawn = [self._sampled(config, rng) for _ in range(size)]
        return drawn if size > 1 else drawn[0]

    def _sampled(self, config: Any, rng: np.random.Generator) -> Any:
        del config
        return self.draw(rng)


@dataclass(frozen=True, repr=False)
class Choice(Domain):
    """One of some values, equally likely."""

    values: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"choice({list(self.values)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choice) and same(self.values, other.values)

    def __hash__(self) -> int:
        return hash(repr(self))  # values may be lists

    def draw(self, rng: np.random.Generator) -> Any:
        """One of the values."""
        return self.values[int(rng.integers(len(self.values)))]

    def problem_of(self, value: Any) -> str | None:
        """Why a value is not among the choices."""
        if self.index(value) is None:
            return f"{shown(value)} is none of {shown(list(self.values))}"
        return None

    def index(self, value: Any) -> int | None:
        """Where a value stands among the choices; None if it is none of them."""
        for index, each in enumerate(self.values):
            if type(each) is type(value) and same(each, value):
                return index
        return next((i for i, each in enumerate(self.values) if same(each, value)), None)


@dataclass(frozen=True, repr=False)
class Range(Domain):
    """Numbers between bounds, uniform or log-uniform, floats or ints, possibly quantized.

    Attributes:
        written: the function that made it, for printing.
        lower: the smallest value.
        upper: the largest value; exclusive unless `q` is set.
        q: values are multiples of it; None: any.
        is_log: the logarithm is uniform.
        is_int: values are ints.
    """

    written: str
    lower: float
    upper: float
    q: float | None = None
    is_log: bool = False
    is_int: bool = False

    def __repr__(self) -> str:
        q = "" if self.q is None else f", {self.q!r}"
        return f"{self.written}({self.lower!r}, {self.upper!r}{q})"

    @property
    def largest(self) -> float:
        """The largest value that can be drawn; of floats without `q` the exclusive bound."""
        return self.upper - 1 if self.is_int and self.q is None else self.upper

    def draw(self, rng: np.random.Generator) -> Any:
        """One number."""
        if self.is_int and not self.is_log:
            step = 1 if self.q is None else int(self.q)
            first = -(-int(self.lower) // step)
            return step * int(rng.integers(first, int(self.largest) // step + 1))
        if self.is_log:
            value = math.exp(rng.uniform(math.log(self.lower), math.log(self.upper)))
        else:
            value = rng.uniform(self.lower, self.upper)
        return self.nearest_value(math.floor(value) if self.is_int and self.q is None else value)

    def nearest_value(self, value: float) -> Any:
        """The value of the domain next to a number: rounded to `q` or an int, and clipped."""
        if self.q is not None:
            value = _multiple(value, self.q)
        elif self.is_int:
            value = round(value)
        value = min(max(value, self.lower), self.largest)
        if self.is_int:
            return int(value)
        if self.q is None and value >= self.upper:
            return math.nextafter(self.upper, self.lower)
        return float(value)

    def problem_of(self, value: Any) -> str | None:
        """Why a value is out of bounds or of another type."""
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            return f"{shown(value)} is no number"
        if self.is_int and value != int(value):
            return f"{value!r} is no int"
        if not self.lower <= value <= self.largest:
            return f"{value!r} is outside of [{self.lower!r}, {self.largest!r}]"
        return None


@dataclass(frozen=True, repr=False)
class Normal(Domain):
    """Normally distributed numbers, possibly rounded to multiples of `q`."""

    mean: float
    sd: float
    q: float | None = None

    def __repr__(self) -> str:
        if self.q is None:
            return f"randn({self.mean!r}, {self.sd!r})"
        return f"qrandn({self.mean!r}, {self.sd!r}, {self.q!r})"

    def draw(self, rng: np.random.Generator) -> Any:
        """One number."""
        value = float(rng.normal(self.mean, self.sd))
        return value if self.q is None else _multiple(value, self.q)

    def problem_of(self, value: Any) -> str | None:
        """Why a value is none: every number is one."""
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        return None if is_number else f"{shown(value)} is no number"


@dataclass(frozen=True, repr=False)
class GridSearch(Choice):
    """All of some values; several grids multiply."""

    def __repr__(self) -> str:
        return f"grid_search({list(self.values)!r})"


@dataclass(frozen=True, repr=False)
class SampleFrom(Domain):
    """What a function gives, called when the rest of the config is known."""

    function: Callable[..., Any]

    def __repr__(self) -> str:
        return f"sample_from({getattr(self.function, '__qualname__', self.function)!s})"

    def problem_of(self, value: Any) -> str | None:  # noqa: ARG002  any value may come
        """None: every value may be given for it."""
        return None

    def _sampled(self, config: Any, rng: np.random.Generator) -> Any:
        return self.call(config, rng)

    def call(self, config: Any, rng: np.random.Generator) -> Any:
        """The value for a config; a SearchSpaceError if the function raised or cannot be called."""
        try:
            parameters = inspect.signature(self.function).parameters
        except (TypeError, ValueError):  # some functions written in C have none
            parameters = inspect.signature(_of_config).parameters
        named = {"rng": rng} if "rng" in parameters else {}
        takes_config = any(
            name != "rng" and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
            for name, each in parameters.items()
        )
        try:
            return self.function(*((config,) if takes_config else ()), **named)
        except SearchSpaceError:
            raise
        except Exception as error:
            raise SearchSpaceError(
                f"{self!r} raised {type(error).__name__}: {error}. It is called with the config of "
                "the trial, in which all other parameters have their values; correct the function."
            ) from error


def _of_config(_config: Any) -> None:
    """Has the signature that a function without a readable one is taken to have."""


def seed_of(random_state: np.random.Generator | np.random.RandomState) -> int:
    """A seed that is drawn from a generator, which moves on."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    return int(random_state.randint(2**31))


def _generator(random_state: Any) -> np.random.Generator:
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None:
        # What `numpy.random.seed` sets.
        random_state = int(np.random.randint(2**31))  # noqa: NPY002
    if isinstance(random_state, np.random.RandomState):
        random_state = seed_of(random_state)
    return np.random.default_rng(random_state)


def _multiple(value: float, q: float) -> float:
    """The multiple of q next to a value, halves to the even one, without noise in the last bits."""
    return float(decimal.Decimal(repr(q)) * round(value / q))


def choice(values: Sequence[Any]) -> Choice:
    """One of some values, which may be anything, with equal probability."""
    return Choice(_values("choice", values))


def grid_search(values: Sequence[Any]) -> GridSearch:
    """Every one of some values: each trial is made once per value. Several grids multiply."""
    return GridSearch(_values("grid_search", values))


def _values(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise SearchSpaceError(
            f"{name}({shown(values)}) is given a {type(values).__name__}; expected a list of "
            f"values. Write {name}([...])."
        )
    listed = tuple(values)
    if not listed:
        raise SearchSpaceError(f"{name}([]) has no values; expected at least one.")
    if inside := [each for each in listed if any(True for _ in _domains(each, ()))]:
        raise SearchSpaceError(
            f"{name}([...]) holds {shown(inside[0])}, a search space inside of a search space, "
            "which is not drawn from. Give the inner parameter a place of its own in the config, "
            "and use `sample_from(lambda config: ...)` where one depends on the other."
        )
    return listed


def uniform(lower: float, upper: float) -> Range:
    """Floats in [lower, upper)."""
    return _checked(Range("uniform", float(lower), float(upper)))


def quniform(lower: float, upper: float, q: float) -> Range:
    """Floats that are multiples of q in [lower, upper]; halves are rounded to the even multiple."""
    return _checked(Range("quniform", float(lower), float(upper), float(q)))


def loguniform(lower: float, upper: float, base: float = 10) -> Range:
    """Floats in [lower, upper) whose logarithm is uniform; its base changes nothing."""
    _check_base("loguniform", base)
    return _checked(Range("loguniform", float(lower), float(upper), is_log=True))


def qloguniform(lower: float, upper: float, q: float, base: float = 10) -> Range:
    """As `loguniform`, rounded to multiples of q in [lower, upper]."""
    _check_base("qloguniform", base)
    return _checked(Range("qloguniform", float(lower), float(upper), float(q), is_log=True))


def randint(lower: int, upper: int) -> Range:
    """Ints in [lower, upper): the upper bound is exclusive, as in Ray Tune."""
    return _ints("randint", lower, upper, None)


def qrandint(lower: int, upper: int, q: int = 1) -> Range:
    """Ints that are multiples of q in [lower, upper], both inclusive: `qrandint(3, 9, 3)`.

    Bounds that are no multiples are those next to them inside: `qrandint(1, 10, 3)` is the same.
    With q = 1 the upper bound is exclusive, as in Ray Tune's code: the same as `randint`.
    """
    return _ints("qrandint", lower, upper, q)


def lograndint(lower: int, upper: int, base: float = 10) -> Range:
    """Ints in [lower, upper) whose logarithm is uniform before it is rounded down."""
    _check_base("lograndint", base)
    return _ints("lograndint", lower, upper, None, is_log=True)


def qlograndint(lower: int, upper: int, q: int = 1, base: float = 10) -> Range:
    """As `lograndint`, rounded to multiples of q in [lower, upper]; with q = 1 upper exclusive."""
    _check_base("qlograndint", base)
    return _ints("qlograndint", lower, upper, q, is_log=True)


def randn(mean: float = 0.0, sd: float = 1.0) -> Normal:
    """Normally distributed floats."""
    return _normal(Normal(float(mean), float(sd)))


def qrandn(mean: float, sd: float, q: float) -> Normal:
    """Normally distributed floats, rounded to multiples of q."""
    return _normal(Normal(float(mean), float(sd), float(q)))


def sample_from(function: Callable[..., Any]) -> SampleFrom:
    """What `function(config)` or `function()` gives; called last, in the order of dependencies.

    Args:
        function: gets the config of the trial with its other parameters drawn, as a mapping that
            also answers the old `spec.config.lr`; a generator for the trial's position, if it has
            an argument `rng`.
    """
    if not callable(function):
        raise SearchSpaceError(
            f"sample_from({shown(function)}) is given a {type(function).__name__}; expected a "
            "function of the config, such as `lambda config: config['lr'] * 2`."
        )
    return SampleFrom(function)


def _check_base(name: str, base: float) -> None:
    if base <= 1:
        raise SearchSpaceError(f"{name}(base={base!r}): expected a base > 1, such as 10.")


def _ints(name: str, lower: int, upper: int, q: int | None, *, is_log: bool = False) -> Range:
    for given in (lower, upper, *(() if q is None else (q,))):
        if isinstance(given, bool) or given != int(given):
            raise SearchSpaceError(f"{name}() is given {given!r}; expected ints.")
    q = None if q == 1 else q
    step = None if q is None else int(q)
    if step is not None and step > 0:
        inner = -(-int(lower) // step) * step, int(upper) // step * step
        if inner[0] >= inner[1]:
            raise SearchSpaceError(
                f"{name}({lower!r}, {upper!r}, {q!r}): there are no two multiples of {q!r} in "
                "between."
            )
        lower, upper = inner
    return _checked(Range(name, int(lower), int(upper), step, is_log=is_log, is_int=True))


def _checked(domain: Range) -> Range:
    lower, upper, q = domain.lower, domain.upper, domain.q
    if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
        raise SearchSpaceError(f"{domain!r}: expected finite bounds with lower < upper.")
    if domain.is_log and lower <= 0:
        raise SearchSpaceError(
            f"{domain!r}: the lower bound of a logarithm is > 0; write a small number, 1e-8."
        )
    if q is not None and not q > 0:
        raise SearchSpaceError(f"{domain!r}: expected a step q > 0.")
    if q is not None and not all(math.isclose(x / q, round(x / q)) for x in (lower, upper)):
        raise SearchSpaceError(
            f"{domain!r}: q={q!r} does not divide the bounds; expected multiples of q as bounds."
        )
    return domain


def _normal(domain: Normal) -> Normal:
    if not domain.sd > 0 or (domain.q is not None and not domain.q > 0):
        raise SearchSpaceError(f"{domain!r}: expected a standard deviation and a step > 0.")
    return domain


# ---- where domains stand


class WithDict(Protocol):
    """A param_space that is neither dict nor config, but can be turned into a dict."""

    def to_dict(self) -> dict[str, Any]:
        """The space as a dict."""
        ...


_GRID_KEY: Final = "grid_search"


def _domains(value: Any, path: Path) -> Iterator[tuple[Path, Domain]]:
    """All domains in a value, with their paths, in the order in which they are written."""
    if isinstance(value, Domain):
        yield path, value
    elif isinstance(value, Mapping):
        if set(value) == {_GRID_KEY}:
            yield path, grid_search(value[_GRID_KEY])
            return
        if set(value) == {"eval"} and isinstance(value["eval"], str):
            raise SearchSpaceError(
                f"{_name(path)}: {{'eval': {value['eval']!r}}} would run a string as code, which "
                "is not done. Write `sample_from(lambda config: ...)`."
            )
        for key, entry in value.items():
            yield from _domains(entry, (*path, key))
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            yield from _domains(entry, (*path, index))


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """All that is in nested dicts, whatever it is."""
    if isinstance(value, Mapping) and value and set(value) != {_GRID_KEY}:
        for key, entry in value.items():
            yield from _leaves(entry, (*path, key))
    else:
        yield path, value


def _name(path: Path) -> str:
    return "/".join(str(part) for part in path)


def _with(value: Any, path: Path, new: Any) -> Any:
    """A value with another one at a path; the containers on the way are copied or made."""
    if not path:
        return new
    head, rest = path[0], path[1:]
    if isinstance(value, list | tuple):
        entries = list(value)
        entries[int(head)] = _with(entries[int(head)], rest, new)
        return entries if isinstance(value, list) else tuple(entries)
    tree = dict(value) if isinstance(value, Mapping) else {}
    tree[head] = _with(tree.get(head), rest, new)
    return tree


def _copied(value: Any) -> Any:
    """A copy of nested dicts, lists and tuples; what else is in them stays the same object."""
    return mapped(lambda leaf: leaf, value)


class SearchSpace:
    """The parameters of a `param_space`, and the configs made of values for them.

    Args:
        param_space: a dict (nested dicts, lists and tuples), an `AlgorithmConfig`, something with
            `to_dict()`, or None. It is not changed.

    Attributes:
        parameters: {path: domain}, in the order in which they are written.
        explored: {path: domain} of what a scheduler changes besides (`hyperparam_mutations`).

    Raises:
        SearchSpaceError: it is something else, or a place in it cannot be named.
    """

    def __init__(self, param_space: Mapping[str, Any] | AlgorithmConfig | WithDict | None) -> None:
        self._config: AlgorithmConfig | None = None
        if isinstance(param_space, AlgorithmConfig):
            self._config = param_space.copy(copy_frozen=False)
            tree: Any = self._config.given_settings()
        elif param_space is None or isinstance(param_space, Mapping):
            tree = dict(param_space or {})
        elif callable(getattr(param_space, "to_dict", None)):
            tree = param_space.to_dict()
        else:
            raise SearchSpaceError(
                f"param_space={shown(param_space)} is a {type(param_space).__name__}; expected a "
                "dict, an AlgorithmConfig, or an object with to_dict()."
            )
        self._tree: dict[Any, Any] = _copied(tree)
        self.parameters: dict[str, Domain] = {}
        self.explored: dict[str, Domain] = {}
        self._paths: dict[str, Path] = {}
        for path, domain in _domains(self._tree, ()):
            name = _name(path)
            if name in self.parameters:
                raise SearchSpaceError(
                    f"Two parameters of the space are both called {name!r}; expected one per "
                    "path. Rename a key that contains a slash."
                )
            self.parameters[name], self._paths[name] = domain, path
        # What needs no drawing is asked for often: grids vary in the order of writing.
        self.grids: dict[str, GridSearch] = {
            name: domain
            for name, domain in self.parameters.items()
            if isinstance(domain, GridSearch)
        }

    @property
    def is_of_config(self) -> bool:
        """Whether the space is an `AlgorithmConfig`: then its configs are, too."""
        return self._config is not None

    @property
    def config_class(self) -> type[AlgorithmConfig] | None:
        """The class of the config that the space was written in, if it was one."""
        return None if self._config is None else type(self._config)

    def add(self, name: str, domain: Domain) -> str:
        """Adds a parameter that a scheduler explores, unless the space or the config has it.

        Returns:
            what it is called here: a setting that was renamed has its name of today.

        Raises:
            UnknownSettingError: the space is a config, which has no such setting.
        """
        if self._config is not None:
            setting, *inner = self.path_of(name)
            self._config[setting]  # an error if there is none
            name = _name((self._config.present_name(setting), *inner))
        self.explored[name] = domain
        if name not in self.parameters and self._constant(self.path_of(name)) is SearchSpace:
            self.parameters[name] = domain
        return name

    def value(self, params: Mapping[str, Any], name: str) -> Any:
        """The value at a path of the config of some params; `SearchSpace` if it has none."""
        return params[name] if name in params else self._constant(self.path_of(name))

    # ---- points

    def flat_point(
        self, point: Mapping[str, Any], *, may_be_outside: bool = False
    ) -> dict[Any, Any]:
        """{path: value} of a complete or partial config, compared with the domains.

        Args:
            point: of `points_to_evaluate`.
            may_be_outside: values that are in no domain, or not the constant at their place, are
                told and taken.

        Raises:
            SearchSpaceError: a value may not be outside of its domain, or names nothing.
        """
        flat: dict[str, Any] = {}
        self._collect(point, (), flat)
        for name, value in list(flat.items()):
            problem = self._problem_of(name, value)
            if problem is None:
                continue
            if not may_be_outside:
                raise SearchSpaceError(
                    f"points_to_evaluate: {problem} Change the point, or the space."
                )
            _LOGGER.warning("points_to_evaluate: %s It is tried all the same.", problem)
        return {
            name: value
            for name, value in flat.items()
            if name in self.parameters or not same(value, self._constant(self.path_of(name)))
        }

    def _problem_of(self, name: str, value: Any) -> str | None:
        domain = self.parameters.get(name)
        if domain is None:
            constant = self._constant(self.path_of(name))
            if same(value, constant):
                return None
            return (
                f"{name}={shown(value)} is no parameter of the space, which has {shown(constant)}."
            )
        problem = domain.problem_of(value)
        return (
            None if problem is None else f"{name}={shown(value)} is not in {domain!r}: {problem}."
        )

    def _collect(self, value: Any, path: Path, flat: dict[str, Any]) -> None:
        name = _name(path)
        if path and name in self.parameters:
            flat[name] = value
        elif isinstance(value, Mapping):
            for key, entry in value.items():
                self._collect(entry, (*path, key), flat)
        elif self._constant(path) is SearchSpace:
            raise SearchSpaceError(
                f"points_to_evaluate: {name}={shown(value)} is no parameter of the space. Expected "
                f"some of {', '.join(self.parameters) or 'none'}."
                f"{did_you_mean(name, self.parameters)}"
            )
        else:
            flat[name] = value

    def _constant(self, path: Path) -> Any:
        """The value that is written at a path; `SearchSpace`, never a value, if none is."""
        value: Any = self._tree
        if self._config is not None and path and path[0] not in self._tree:
            value = {path[0]: getattr(self._config, str(path[0]), None)}
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return SearchSpace
        return value

    # ---- drawing

    def draw(self, given: Mapping[str, Any], rng_of: RngOf) -> dict[str, Any]:
        """Values for all parameters.

        Args:
            given: {path: value} of those that are set already; grids must be.
            rng_of: the generator for each of the others.

        Returns:
            {path: value}, in the order of `parameters`.
        """
        values = dict(given)
        for name, domain in self.parameters.items():
            if name not in values and not isinstance(domain, SampleFrom):
                values[name] = domain.draw(rng_of(name))
        computing = _Computing(self, values, rng_of)
        for name in self.parameters:
            computing.value(name)
        return {name: values[name] for name in [*self.parameters, *values.keys() - self.parameters]}

    # ---- configs

    def config(self, params: Mapping[str, Any]) -> Any:
        """A config of its own with values at the paths of the parameters.

        Args:
            params: {path: value}; paths that are no parameters are set all the same.
        """
        if self._config is None:
            tree: Any = _copied(self._tree)
            for name, value in params.items():
                tree = _with(tree, self.path_of(name), _copied(value))
            return tree
        config = self._config.copy(copy_frozen=False)
        changed: dict[Any, Any] = {}
        for name, value in params.items():
            head, *rest = self.path_of(name)
            old = changed[head] if head in changed else _copied(config[head]) if rest else None
            changed[head] = _with(old, tuple(rest), _copied(value))
        for head, value in changed.items():
            setattr(config, str(head), value)
        return config

    def path_of(self, name: str) -> Path:
        """The keys of a path that is written with slashes."""
        known = self._paths.get(name)
        if known is not None:
            return known
        return (name,) if name in self._tree else tuple(name.split("/"))

    def describe(self) -> dict[str, str]:
        """The parameters as they are written, and constants, for the journal's header."""
        constants = {_name(path): value for path, value in _leaves(self._tree, ())}
        return {name: repr(domain) for name, domain in self.parameters.items()} | {
            name: shown(value) for name, value in constants.items() if name not in self.parameters
        }

    def unresolved(self) -> Any:
        """The tree that parameters stand in, domains included; not to be changed."""
        return self._tree

    # ---- for the journal

    def encode(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Params as plain data: values that are no plain scalars as the number of the choice.

        Raises:
            SearchSpaceError: a value is none of the choices and no plain data.
        """
        return {name: self._encoded(name, value) for name, value in params.items()}

    def _encoded(self, name: str, value: Any) -> Any:
        if isinstance(value, np.generic) and not isinstance(self._domain(name), Choice):
            value = value.item()
        if value is None or type(value) in (bool, int, float, str):
            return value
        domain = self._domain(name)
        index = domain.index(value) if isinstance(domain, Choice) else None
        if index is not None:
            return {"choice": index}
        try:
            return {"value": to_json(value)}
        except NotPlainError:
            if isinstance(domain, SampleFrom):
                return {"again": True}
        raise SearchSpaceError(
            f"{name}={shown(value)} is a {type(value).__name__} that is none of the values of "
            f"{domain!r} and cannot be written to the journal; expected numbers, strings, lists "
            "and dicts of them. Use `choice([...])` with the objects that are possible."
        )

    def decode(self, encoded: Mapping[str, Any], rng_of: RngOf) -> dict[str, Any]:
        """The params that `encode()` was given.

        Raises:
            SearchSpaceError: a choice does not exist in this space.
        """
        params: dict[str, Any] = {}
        again = []
        for name, value in encoded.items():
            if not isinstance(value, Mapping):
                params[name] = value
            elif "value" in value:
                params[name] = from_json(value["value"])
            elif "again" in value:
                again.append(name)
            else:
                params[name] = self._choice(name, value.get("choice"))
        if again:
            computing = _Computing(self, params, rng_of)
            for name in again:
                computing.value(name)
        return {name: params[name] for name in encoded}

    def _choice(self, name: str, index: Any) -> Any:
        domain = self._domain(name)
        is_number = type(index) is int and index >= 0
        if not (isinstance(domain, Choice) and is_number and index < len(domain.values)):
            raise SearchSpaceError(
                f"The journal has value number {index!r:.40} of {name}, which is {domain!r} now. "
                "Restore with the search space that the experiment was begun with."
            )
        return domain.values[index]

    def _domain(self, name: str) -> Domain | None:
        return self.parameters.get(name) or self.explored.get(name)


# ---- sample_from


class _Computing:
    """Calls `sample_from` functions in the order in which they ask for each other's values."""

    def __init__(self, space: SearchSpace, values: dict[str, Any], rng_of: RngOf) -> None:
        self.space = space
        self.values = values
        self._rng_of = rng_of
        self.under_way: list[str] = []

    def value(self, name: str) -> Any:
        """The value of a parameter, computed if need be."""
        if name in self.values:
            return self.values[name]
        domain = self.space.parameters[name]
        if name in self.under_way:
            circle = " -> ".join([*self.under_way[self.under_way.index(name) :], name])
            raise SearchSpaceError(
                f"The sample_from functions of {circle} ask for each other's values in a circle. "
                "Let one of them not depend on the others."
            )
        self.under_way.append(name)
        try:
            view = ConfigView(self, self.space.unresolved(), ())
            value = cast(SampleFrom, domain).call(view, self._rng_of(name))
        finally:
            self.under_way.pop()
        self.values[name] = value
        return value


class ConfigView(Mapping[str, Any]):
    """What a `sample_from` function sees: the config with the values of the other parameters.

    It answers `config["lr"]`, `config.lr`, `config["model"]["dim"]` and the old `spec.config.lr`.
    Iterating leaves out what is being computed.
    """

    def __init__(self, computing: _Computing, tree: Any, path: Path) -> None:
        self._computing, self._tree, self._path = computing, tree, path

    def __getitem__(self, key: Any) -> Any:
        return self._shown((*self._path, key), self._tree[key])

    def _shown(self, path: Path, value: Any) -> Any:
        name = _name(path)
        if name in self._computing.space.parameters:
            return self._computing.value(name)
        if isinstance(value, Mapping):
            return ConfigView(self._computing, value, path)
        if isinstance(value, list | tuple):
            entries = [self._shown((*path, i), each) for i, each in enumerate(value)]
            return entries if isinstance(value, list) else tuple(entries)
        return value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._tree:
            return self[name]
        if name == "config" and not self._path:
            return self
        raise AttributeError(
            f"The config has no {name!r}; expected one of {', '.join(map(str, self._tree))}."
        )

    def __iter__(self) -> Iterator[str]:
        under_way = self._computing.under_way
        return iter(key for key in self._tree if _name((*self._path, key)) not in under_way)

    def __len__(self) -> int:
        return sum(1 for _ in self)
