"""What can be tuned: functions, classes, algorithms; what they ask for and what they are given.

`resolve_trainable` turns whatever the user gave into one `TrainableSpec`; `trial_handler` makes
trials of it in their processes.
"""

from __future__ import annotations

import copy
import inspect
import logging
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import cloudpickle
import numpy as np

from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.building import (
    algorithm_class,
    algorithms_of_users,
    is_registered,
    register_algorithm,
)
from trainer.config import AlgorithmConfig
from trainer.errors import ConfigError, TuneError, TuneSettingError
from trainer.name_resolution import PROGRAM, Source
from trainer.tune.checkpoint import read_data, write_data
from trainer.tune.session import refuse_old_checkpoints
from trainer_toolkit.nearest_names import nearest

_LOGGER = logging.getLogger(__name__)
_LARGE_ARRAY_BYTES: Final = 1_000_000
_ITERATION_FILE: Final = ".iteration"
_KINDS: Final = (
    "a function, a Trainable class, an Algorithm class, or the name of an algorithm or of a "
    "registered trainable"
)


# ---- resources


class PlacementGroupFactory:
    """What a trial asks for, as bundles; on one machine only their sum counts.

        tune.PlacementGroupFactory([{"CPU": 1}] + [{"CPU": 1}] * 2)     # 3 CPUs

    Args:
        bundles: resources per process; empty bundles and zeros vanish.
        strategy: of no effect on one machine.

    Raises:
        TuneError: a bundle asks for what is not there, such as GPUs.
    """

    def __init__(
        self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK", **_: Any
    ) -> None:
        self.strategy = strategy
        is_list = isinstance(bundles, list | tuple)
        if not is_list or not all(isinstance(bundle, Mapping) for bundle in bundles):
            raise TuneSettingError(
                f"PlacementGroupFactory({bundles!r:.60}): expected a list of dicts, one per "
                "process, such as [{'CPU': 1}, {'CPU': 1}]."
            )
        self.bundles = [
            {name: float(amount) for name, amount in bundle.items() if amount} for bundle in bundles
        ]
        self.bundles = [bundle for bundle in self.bundles if bundle]
        self.required_resources: dict[str, float] = {}
        for bundle in self.bundles:
            for name, amount in bundle.items():
                self.required_resources[name] = self.required_resources.get(name, 0.0) + amount
        checked_cpus(self.required_resources)

    def __repr__(self) -> str:
        return f"PlacementGroupFactory({self.bundles!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroupFactory) and self.bundles == other.bundles

    def __hash__(self) -> int:
        return hash(repr(self.bundles))


Resources = Mapping[str, float] | PlacementGroupFactory
ResourcesOf = Resources | Callable[[Any], Resources]


def checked_cpus(resources: Resources) -> float:
    """The logical CPUs of a request, ≥ 0; a TuneError if it asks for anything else."""
    if isinstance(resources, PlacementGroupFactory):
        resources = resources.required_resources
    if not isinstance(resources, Mapping):
        raise TuneSettingError(
            f"Resources are {resources!r:.80}; expected a dict such as {{'cpu': 2}} or "
            "tune.PlacementGroupFactory([{'CPU': 1}, …])."
        )
    cpus = 1.0 if not resources else 0.0
    for name, amount in resources.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not amount >= 0:
            raise TuneSettingError(
                f"Resources ask for {name}={amount!r}; expected a number of at least 0."
            )
        if name.lower() == "cpu":
            cpus += amount
        elif amount and name.lower() == "gpu":
            raise TuneSettingError(
                f"Resources ask for {amount:g} GPUs, which are not shared out among trials; a "
                'TorchRLModule uses one with `model_config={"device": "cuda"}`. Leave GPUs out, '
                "or ask for 0."
            )
        elif amount:
            raise TuneSettingError(
                f"Resources ask for {name}={amount:g}; on one machine only CPUs are shared out. "
                "Leave it out, and limit trials with max_concurrent_trials."
            )
    if not math.isfinite(cpus):
        raise TuneSettingError(f"Resources ask for {cpus} CPUs; expected a finite number.")
    return cpus


# ---- wrappers


@dataclass(frozen=True)
class Tunable:
    """A trainable with what `with_resources` and `with_parameters` added to it.

    Attributes:
        trainable: what was wrapped: a function, a class or a name.
        resources: what a trial asks for; None: what the trainable says, else one CPU.
        parameters: keyword arguments for the function or for `setup`.
    """

    trainable: Any
    resources: ResourcesOf | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def __name__(self) -> str:
        return str(getattr(self.trainable, "__name__", self.trainable))


def with_resources(trainable: Any, resources: ResourcesOf) -> Tunable:
    """The trainable with what each of its trials asks for.

    Args:
        trainable: what `Tuner` takes.
        resources: a dict such as `{"cpu": 2}`, a `PlacementGroupFactory`, or a function of the
            trial's config that gives one of them.

    Raises:
        TuneError: something other than CPUs is asked for.
    """
    if not callable(resources):
        checked_cpus(resources)
    return replace(_wrapped(trainable), resources=resources)


def with_parameters(trainable: Any, **parameters: Any) -> Tunable:
    """The trainable with further keyword arguments, which are no part of the config.

    Arrays of a megabyte or more are handed to all trials as one shared file, read only.

    Args:
        trainable: a function (`def train(config, data)`) or a class (`setup(self, config, data)`).
        parameters: the arguments.
    """
    wrapped = _wrapped(trainable)
    return replace(wrapped, parameters={**wrapped.parameters, **parameters})


def _wrapped(trainable: Any) -> Tunable:
    return trainable if isinstance(trainable, Tunable) else Tunable(trainable)


# ---- names


_REGISTERED: Final[dict[str, Any]] = {}


def register_trainable(name: str, trainable: Any, *_: Any) -> None:
    """Gives a trainable a name that `Tuner` takes in its place.

    Raises:
        TuneError: it is no trainable.
    """
    resolve_trainable(trainable)
    _REGISTERED[name] = trainable


def packed_names() -> list[bytes]:
    """The algorithms and trainables that the program gave names, for `take_over_names`.

    Each is packed by itself, so that one that cannot travel leaves the others alone.
    """
    calls: list[tuple[Any, ...]] = [(register_algorithm, each) for each in algorithms_of_users()]
    calls += [(register_trainable, *named) for named in _REGISTERED.items()]
    packed = []
    for call in calls:
        try:
            packed.append(cloudpickle.dumps(call))
        except Exception as error:  # noqa: BLE001 - pickling runs users' code
            _LOGGER.info("%r is not known by its name in trials' processes: %s", call[-1], error)
    return packed


def take_over_names(packed: Sequence[bytes]) -> None:
    """Gives the same names in this process, but for what cannot be loaded here."""
    for each in packed:
        try:
            register, *arguments = cloudpickle.loads(each)
            register(*arguments)
        except Exception as error:  # noqa: BLE001 - unpickling runs users' code
            _LOGGER.info("What has a name in the program cannot be loaded in a trial: %s", error)


# ---- classes


class Trainable:
    """A trainable as a class: derive from it, write `setup` and `step`, and saving if it matters.

        class Quadratic(tune.Trainable):
            def setup(self, config): self.x = config["x"]
            def step(self):
                self.x *= 0.9
                return {"loss": self.x**2}
            def save_checkpoint(self, checkpoint_dir): return {"x": self.x}
            def load_checkpoint(self, checkpoint): self.x = checkpoint["x"]

    Its life in a trial: `setup`, `load_checkpoint` if it goes on from one, `step` per row,
    `save_checkpoint` between rows whenever one is wanted, `cleanup`. Saving must not change what
    comes after it.

    Attributes:
        config: of the trial; read only.
    """

    _context: ClassVar[Any] = None

    def __init__(self, config: Any = None, logger_creator: object = None, **given: Any) -> None:
        """Calls `setup`.

        Args:
            config: of the trial.
            logger_creator: of no effect.
            given: what `with_parameters` added; goes to `setup`.
        """
        del logger_creator
        self.config = {} if config is None else config
        self._iteration = 0
        self._trial = type(self)._context
        self.setup(copy.deepcopy(self.config), **given)

    # ---- what subclasses write

    def setup(self, config: Any) -> None:
        """Makes what `step` needs; called once, before everything else."""

    def step(self) -> Mapping[str, Any]:
        """Does a piece of work and returns a row."""
        raise NotImplementedError(
            f"{type(self).__name__}.step() is not written: it makes a row of the trial."
        )

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
        """Saves what is needed to go on: files into the directory, or returns plain data."""
        raise NotImplementedError(
            f"{type(self).__name__}.save_checkpoint() is not written: write files into "
            "checkpoint_dir, or return a dict of plain data."
        )

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Goes on from what was saved: the dict that was returned, else the directory."""
        raise NotImplementedError(
            f"{type(self).__name__}.load_checkpoint() is not written: it takes what "
            "save_checkpoint() gave."
        )

    def cleanup(self) -> None:
        """Called when the trial ends."""

    def reset_config(self, new_config: Any) -> bool:
        """Makes this object that of another trial, for `reuse_actors=True`.

        Returns:
            True if it did; the default does not.
        """
        del new_config
        return False

    @classmethod
    def default_resource_request(cls, config: Any) -> Resources | None:
        """What a trial with this config asks for; None is one CPU."""
        del config
        return None

    # ---- what users call

    @property
    def iteration(self) -> int:
        """Rows so far, restored ones included."""
        return self._iteration

    training_iteration = iteration

    @property
    def trial_id(self) -> str | None:
        """The trial's number as text; None outside of one."""
        return None if self._trial is None else self._trial.trial_id

    @property
    def trial_name(self) -> str | None:
        """What the trial is called; None outside of one."""
        return None if self._trial is None else self._trial.trial_name

    @property
    def trial_dir(self) -> str | None:
        """The trial's folder; None outside of one."""
        return None if self._trial is None else self._trial.trial_dir

    logdir = trial_dir

    @property
    def trial_resources(self) -> Mapping[str, float] | None:
        """What the trial was given; None outside of one."""
        return None if self._trial is None else self._trial.resources

    def get_config(self) -> Any:
        """The trial's config."""
        return self.config

    def log_result(self, result: Mapping[str, Any]) -> None:
        """Called with each row; does nothing."""

    def train(self) -> dict[str, Any]:
        """One row: what `step` returned, and the number and times beside it.

        Raises:
            TuneError: `step` returned no dict.
        """
        began_at = time.monotonic()
        row = self.step()
        if not isinstance(row, Mapping):
            raise TuneError(
                f"{type(self).__name__}.step() returned {row!r:.60}, a {type(row).__name__}; "
                'expected a row, such as {"loss": 0.5}.'
            )
        self._iteration += 1
        self.log_result(row)
        elapsed_s = time.monotonic() - began_at
        return {"training_iteration": self._iteration, "time_this_iter_s": elapsed_s, **row}

    def save(self, checkpoint_dir: str | Path | None = None) -> str:
        """Saves into a directory, and returns its path.

        Args:
            checkpoint_dir: is made if need be; None: a new temporary one.

        Raises:
            StateError: `save_checkpoint` returned something that is no plain data.
        """
        folder = Path(tempfile.mkdtemp() if checkpoint_dir is None else checkpoint_dir)
        folder.mkdir(parents=True, exist_ok=True)
        data = self.save_checkpoint(str(folder))
        if isinstance(data, Mapping):
            write_data(folder, data)
        if self._trial is None:  # of a trial, the experiment knows it
            (folder / _ITERATION_FILE).write_text(str(self._iteration), encoding="ascii")
        return str(folder)

    def restore(self, checkpoint_path: str | Path, *, iteration: int | None = None) -> None:
        """Goes on from what `save` wrote.

        `iteration` are the rows made by then; None: as it was saved outside of a trial, else the
        count stays.
        """
        saved = Path(checkpoint_path) / _ITERATION_FILE
        if iteration is None and saved.is_file():
            iteration = int(saved.read_text(encoding="ascii"))
        data = read_data(Path(checkpoint_path))
        self.load_checkpoint(str(checkpoint_path) if data is None else data)
        if iteration is not None:
            self._iteration = iteration

    def stop(self) -> None:
        """Calls `cleanup`."""
        self.cleanup()


def validate_save_restore(
    trainable_cls: type[Trainable], config: Any = None, num_gpus: int = 0
) -> bool:
    """Whether a class goes on where it was saved: True, or an error that says what is different.

    Args:
        trainable_cls: makes three rows, is saved, and another object makes the fourth.
        config: of both objects.
        num_gpus: of no effect.

    Raises:
        TuneError: the fourth row of a restored object has another number or other keys.
    """
    del num_gpus
    first, second = trainable_cls(copy.deepcopy(config)), trainable_cls(copy.deepcopy(config))
    try:
        for _ in range(3):
            first.train()
        with tempfile.TemporaryDirectory() as folder:
            second.restore(first.save(folder))
        expected, row = first.train(), second.train()
    finally:
        for each in (first, second):
            each.stop()
    same = ((each["training_iteration"], sorted(map(str, each))) for each in (expected, row))
    if len({str(found) for found in same}) > 1:
        raise TuneError(
            f"{trainable_cls.__name__} does not go on where it was saved: row 4 is {expected}, and "
            f"of a restored object {row}. Let save_checkpoint() and load_checkpoint() hold all "
            "that step() needs."
        )
    return True


class AlgorithmTrainable(Trainable):
    """An algorithm as a trainable: a row is an iteration, a checkpoint is the algorithm's own."""

    algorithm_class: ClassVar[type[Algorithm]]
    source: ClassVar[Source]

    def setup(self, config: AlgorithmConfig | Mapping[str, Any]) -> None:
        """Builds the algorithm; the trial's seed is taken where the user left it open."""
        own = algorithm_config(self.algorithm_class, config, source=self.source)
        if own.seed is None and self._trial is not None:
            own.seed = self._trial.seed
        self.algorithm = self.algorithm_class(config=own)

    def step(self) -> Mapping[str, Any]:
        """Trains for one iteration."""
        return self.algorithm.train()

    def save(self, checkpoint_dir: str | Path | None = None) -> str:
        """Saves as `Algorithm.save_to_path` does."""
        return self.algorithm.save_to_path(checkpoint_dir)

    def restore(self, checkpoint_path: str | Path, *, iteration: int | None = None) -> None:
        """Restores as `Algorithm.restore_from_path` does."""
        del iteration
        self.algorithm.restore_from_path(checkpoint_path, allow_code=self.source.is_trusted)
        self._iteration = self.algorithm.training_iteration

    def adopt_seed(self, seed: int) -> None:
        """Plays other episodes than the donor from now on."""
        self.algorithm.adopt_root_seed(seed)

    def cleanup(self) -> None:
        """Ends runners and closes envs."""
        self.algorithm.stop()


def algorithm_config(
    algorithm: type[Algorithm], config: AlgorithmConfig | Mapping[str, Any], *, source: Source
) -> AlgorithmConfig:
    """A config object of one trial, which may be changed; a ConfigError if a setting is wrong.

    `source` is where the settings were read: the program, or the experiment's folder.
    """
    if isinstance(config, AlgorithmConfig):
        return config.copy(copy_frozen=False).update_from_dict({}, source=source)
    return algorithm.config_class().update_from_dict(dict(config), source=source)


# ---- what is tuned


@dataclass(frozen=True)
class SharedArray:
    """Stands for a large array of `with_parameters`: a file that all trials map into memory."""

    path: Path

    def load(self) -> Any:
        """The array, read only."""
        return np.load(self.path, mmap_mode="r", allow_pickle=False)


@dataclass(frozen=True)
class TrainableSpec:
    """What is tuned, in one form.

    Attributes:
        name: for people and for folders.
        kind: "function" or "class".
        target: the function, or a subclass of `Trainable`.
        algorithm: the algorithm's class, if that is what it is.
        takes_reporter: the function wants the old `reporter`.
        resources: what was given with `with_resources`.
        parameters: what was given with `with_parameters`.
        source: where the configs of trials are read.
    """

    name: str
    kind: Literal["function", "class"]
    target: Any
    algorithm: type[Algorithm] | None = None
    takes_reporter: bool = False
    resources: ResourcesOf | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    source: Source = PROGRAM

    def reading(self, source: Source) -> TrainableSpec:
        """The same for trials whose configs are read elsewhere."""
        if self.algorithm is None:
            return self
        return replace(self, source=source, target=_adapter(self.algorithm, source))

    @property
    def saves(self) -> bool:
        """Whether its state can be saved between rows whenever the tuner wants."""
        return self.kind == "class" and (
            self.algorithm is not None
            or self.target.save_checkpoint is not Trainable.save_checkpoint
        )

    def cpus_of(self, config: Any) -> float:
        """The logical CPUs that a trial with this config asks for; errors as of `checked_cpus`."""
        asked: Any = self.resources
        if callable(asked):
            asked = asked(config)
        elif asked is None and self.algorithm is not None:
            return _cpus_of_algorithm(self.algorithm, config, self.source)
        elif asked is None and self.kind == "class":
            asked = self.target.default_resource_request(config)
        return 1.0 if asked is None else checked_cpus(asked)

    def with_shared_arrays(self, folder: Path) -> TrainableSpec:
        """The same with its large arrays written to files of a folder, once for all trials."""
        shared = dict(self.parameters)
        for name, value in self.parameters.items():
            if not isinstance(value, np.ndarray) or value.dtype.hasobject:
                continue
            if value.nbytes >= _LARGE_ARRAY_BYTES:
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / f"{name}.npy"
                np.save(path, value, allow_pickle=False)
                shared[name] = SharedArray(path)
        return replace(self, parameters=shared)

    def loaded_parameters(self) -> dict[str, Any]:
        """The keyword arguments, in the process that uses them."""
        return {
            name: value.load() if isinstance(value, SharedArray) else value
            for name, value in self.parameters.items()
        }


def _adapter(algorithm: type[Algorithm], source: Source) -> type[AlgorithmTrainable]:
    members = {"algorithm_class": algorithm, "source": source}
    return type(f"{algorithm.__name__}Trainable", (AlgorithmTrainable,), members)


def _cpus_of_algorithm(algorithm: type[Algorithm], config: Any, source: Source) -> float:
    own = algorithm_config(algorithm, config, source=source)
    return float(1 + own.num_env_runners + (own.evaluation_num_env_runners or 0))


def resolve_trainable(trainable: Any) -> TrainableSpec:
    """What is tuned, in one form.

    Raises:
        TuneError: it is nothing that can be tuned; says what it is.
        ConfigError: the name is of an algorithm that is not offered.
    """
    if isinstance(trainable, Tunable):
        spec = resolve_trainable(trainable.trainable)
        return replace(
            spec,
            resources=spec.resources if trainable.resources is None else trainable.resources,
            parameters={**spec.parameters, **trainable.parameters},
        )
    if isinstance(trainable, str):
        return _named(trainable)
    if inspect.isclass(trainable) and issubclass(trainable, Algorithm):
        adapter = _adapter(trainable, PROGRAM)
        return TrainableSpec(trainable.__name__, "class", adapter, algorithm=trainable)
    if inspect.isclass(trainable) and issubclass(trainable, Trainable):
        return TrainableSpec(trainable.__name__, "class", trainable)
    if inspect.isclass(trainable) or not callable(trainable):
        what = f"the class {trainable.__name__}" if inspect.isclass(trainable) else repr(trainable)
        raise TuneSettingError(
            f"{what:.120} ({type(trainable).__name__}) cannot be tuned; expected {_KINDS}."
        )
    return _of_function(trainable)


def _named(name: str) -> TrainableSpec:
    if name in _REGISTERED:
        return replace(resolve_trainable(_REGISTERED[name]), name=name)
    if is_registered(name):
        return resolve_trainable(algorithm_class(name))
    near = nearest(name, _REGISTERED)
    if near:
        raise TuneSettingError(
            f"There is no trainable {name!r}. Did you mean {near!r}? Registered are: "
            f"{', '.join(sorted(_REGISTERED))}."
        )
    try:
        return resolve_trainable(algorithm_class(name))
    except ConfigError as error:
        raise TuneSettingError(
            f"There is no trainable {name!r}: {error} A function or class of yours gets a name "
            "with tune.register_trainable(name, trainable)."
        ) from error


def _of_function(function: Callable[..., Any]) -> TrainableSpec:
    name = str(getattr(function, "__name__", type(function).__name__)).strip("<>")
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some callables of C code have none
        names = ["config"]
    if "checkpoint_dir" in names:
        refuse_old_checkpoints()
    if not names:
        raise TuneSettingError(
            f"The function {name} takes no arguments; expected def {name}(config): …, which is "
            "given the trial's config."
        )
    return TrainableSpec(
        name, "function", function, takes_reporter=len(names) > 1 and names[1] == "reporter"
    )
