"""Calls of everything public with wrong arguments, and whether the answer to each is clear.

A call is *clear* if it returns, if Python refuses its signature, if it raises one of our error
classes, or an ordinary error that a `raise` of ours made on purpose, with a text that names what
was given. Everything else is *raw*: an error from somewhere inside.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import io
import linecache
import random
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np

import callbacks
import checkpoints
import trainer
from callbacks import AnyCallbackError
from checkpoints import CheckpointError
from checkpoints.arguments import parameter_check
from tests.alarms import alarm
from trainer import actors
from trainer.errors import TrainerError
from trainer.metrics import ResultDict
from trainer.testing.envs import ContinuousEnv, CountdownEnv

OURS: Final = (TrainerError, CheckpointError, AnyCallbackError)
_SOURCES: Final = tuple(
    str(Path(str(package.__file__)).parent) for package in (trainer, callbacks, checkpoints)
)
_LIMIT_S: Final = 10.0
_SHARE_OF_RIGHT_TYPE: Final = 0.5

# Called by the chain of callbacks with arguments of its own; ends the process that calls it; run
# once per env step without any check, as their docstrings say.
_NOT_CALLED: Final = (
    "on_",
    "exit_actor",
    "append_step",
    "forward_acting",
    "get_exploration_action",
)


@dataclass(frozen=True)
class Value:
    """A wrong value: what reports call it, and how it is made."""

    name: str
    make: Callable[[Path], Any]


def _anything(*_: Any, **__: Any) -> None: ...


class Unwanted:
    """A class that takes whatever it is made with."""

    def __init__(self, *_: Any, **__: Any) -> None: ...


def _endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


VALUES: Final = tuple(
    Value(name, make)
    for name, make in {
        "None": lambda _: None,
        "-1": lambda _: -1,
        "0": lambda _: 0,
        "nan": lambda _: float("nan"),
        "inf": lambda _: float("inf"),
        "10**30": lambda _: 10**30,
        "1.5": lambda _: 1.5,
        "True": lambda _: True,
        "complex": lambda _: complex(1, 2),
        "'nonsense'": lambda _: "nonsense",
        "''": lambda _: "",
        "b'x'": lambda _: b"x",
        "[]": lambda _: [],
        "[None]": lambda _: [None],
        "ragged": lambda _: [[1, 2], [3]],
        "endless": lambda _: _endless(),
        "{}": lambda _: {},
        "{'a': None}": lambda _: {"a": None},
        "{1: 2}": lambda _: {1: 2},
        "set": lambda _: {1},
        "object": lambda _: object(),
        "class": lambda _: Unwanted,
        "function": lambda _: _anything,
        "empty array": lambda _: np.zeros((0, 3)),
        "array of nan": lambda _: np.full((2, 2), np.nan),
        "array of text": lambda _: np.array(["x"]),
        "array of objects": lambda _: np.array([None, 1], dtype=object),
        "np.int64(3)": lambda _: np.int64(3),
        "np.float32(2)": lambda _: np.float32(2.0),
        "missing path": lambda folder: folder / "missing" / "deep",
        "path of a file": lambda folder: folder / "file.txt",
        "folder": lambda folder: folder,
        "space": lambda _: gymnasium.spaces.Text(3),
        "range": lambda _: range(3),
        "generator": lambda _: (number for number in range(0)),
    }.items()
)

_BY_NAME: Final = {value.name: value for value in VALUES}


@dataclass(frozen=True)
class Call:
    """One wrong call.

    Attributes:
        owner: the name of a subject.
        name: of its function or method.
        positional: names of values.
        named: names of values by argument.
    """

    owner: str
    name: str
    positional: tuple[str, ...]
    named: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        arguments = [*self.positional, *(f"{name}={value}" for name, value in self.named)]
        return f"{self.owner}.{self.name}({', '.join(arguments)})"


@dataclass(frozen=True)
class Answer:
    """What came of a call; `raw` is empty if it is clear."""

    call: Call
    raw: str


def _config(kind: Any = trainer.PPOConfig, env: Any = CountdownEnv) -> Any:
    config = kind().environment(env).env_runners(num_env_runners=0).debugging(seed=1)
    return config.training(train_batch_size=20, model={"fcnet_hiddens": [4]})


def _ppo() -> Any:
    return _config().training(minibatch_size=10, num_epochs=1).build_algo()


def _stopped() -> Any:
    algo = _ppo()
    algo.stop()
    return algo


def _episode() -> Any:
    return trainer.SingleAgentEpisode(
        observations=[0, 1, 2], actions=[0, 1], rewards=[1.0, 2.0], len_lookback_buffer=0
    )


def _buffer(kind: Any) -> Any:
    buffer = kind(20)
    buffer.add(_episode().to_numpy())
    return buffer


def _logger() -> Any:
    logger = trainer.MetricsLogger(root=True)
    logger.log_value(("a", "b"), 1.0)
    return logger


def _saved(folder: Path) -> None:
    with _ppo() as algo:
        algo.save_to_path(folder / "checkpoint")


def _part(make: Callable[[], Any], part: Callable[[Any], Any]) -> Callable[[], Any]:
    def made() -> Any:
        algo = make()
        found = part(algo)
        _KEPT.append(algo)  # else it would be collected, and its part with it
        return found

    return made


_KEPT: list[Any] = []

SUBJECTS: Final[dict[str, Callable[[], Any]]] = {
    "trainer": lambda: trainer,
    "callbacks": lambda: callbacks,
    "checkpoints": lambda: checkpoints,
    "actors": lambda: actors,
    "PPOConfig()": _config,
    "DQNConfig()": lambda: _config(trainer.DQNConfig),
    "SACConfig()": lambda: _config(trainer.SACConfig, ContinuousEnv),
    "PPO": _ppo,
    "DQN": lambda: _config(trainer.DQNConfig).build_algo(),
    "stopped PPO": _stopped,
    "env runner": _part(_ppo, lambda algo: algo.env_runner),
    "group": _part(_ppo, lambda algo: algo.env_runner_group),
    "group of a stopped PPO": _part(_stopped, lambda algo: algo.env_runner_group),
    "learner": _part(_ppo, lambda algo: algo.learner),
    "module": _part(_ppo, lambda algo: algo.get_module()),
    "vector env": _part(_ppo, lambda algo: algo.env_runner.env),
    "strategy": _part(_ppo, lambda algo: algo.explorations.only.strategy),
    "chain": _part(_ppo, lambda algo: algo.callbacks),
    "episode": _episode,
    "done episode": lambda: _episode().to_numpy(),
    "batch": lambda: trainer.SampleBatch({"obs": np.zeros((3, 2)), "rewards": np.zeros(3)}),
    "buffer": lambda: _buffer(trainer.ReplayBuffer),
    "prioritized buffer": lambda: _buffer(trainer.PrioritizedReplayBuffer),
    "logger": _logger,
    "result": lambda: ResultDict({"a": {"b": 1}}),
    "context": lambda: trainer.EnvContext({"a": 1}, worker_index=1),
    "module spec": lambda: trainer.RLModuleSpec(),
    "retention": lambda: checkpoints.Retention(keep_last=1),
}
"""What methods are called of, by name."""


def _is_called(name: str) -> bool:
    return not name.startswith(("_", *_NOT_CALLED))


def _names(subject: Any) -> list[str]:
    if isinstance(subject, types.ModuleType):
        return [
            name for name in subject.__all__ if _is_called(name) and _is_callable(subject, name)
        ]
    found = []
    for name in dir(type(subject)):
        member = inspect.getattr_static(type(subject), name)
        owner = next(cls for cls in type(subject).__mro__ if name in vars(cls))
        is_ours = owner.__module__.split(".")[0] in ("trainer", "callbacks", "checkpoints")
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if _is_called(name) and is_ours and inspect.isfunction(plain):
            found.append(name)
    return found


def _is_callable(module: types.ModuleType, name: str) -> bool:
    member = getattr(module, name)
    if inspect.isclass(member):
        is_error = issubclass(member, BaseException)
        return not (
            is_error or getattr(member, "_is_protocol", False) or inspect.isabstract(member)
        )
    return inspect.isfunction(member)


@functools.cache
def targets() -> dict[tuple[str, str], list[inspect.Parameter]]:
    """The parameters of everything that is called, by subject and name."""
    found = {}
    for owner in SUBJECTS:
        with _subject(owner) as subject:
            for name in _names(subject):
                with contextlib.suppress(ValueError):  # Python's own, such as a dict's
                    signature = inspect.signature(getattr(subject, name))
                    found[owner, name] = list(signature.parameters.values())
    return found


@contextlib.contextmanager
def _subject(name: str) -> Iterator[Any]:
    first = len(_KEPT)
    subject = SUBJECTS[name]()
    try:
        yield subject
    finally:
        made = [*_KEPT[first:], subject]
        del _KEPT[first:]
        for each in made:
            if isinstance(each, trainer.Algorithm):
                with contextlib.suppress(Exception):
                    each.stop()


def calls(seed: int, count: int) -> list[Call]:
    """Wrong calls, the same for the same seed: all names in turn, arguments drawn."""
    rng = random.Random(seed)
    every = list(targets())
    rng.shuffle(every)
    chosen = (every * (1 + count // len(every)))[:count]
    return [_call(owner, name, rng) for owner, name in chosen]


def _call(owner: str, name: str, rng: random.Random) -> Call:
    positional: list[str] = []
    named: list[tuple[str, str]] = []
    for parameter in targets()[owner, name]:
        value = _value_for(owner, name, parameter.name, rng)
        is_required = parameter.default is parameter.empty
        if parameter.kind is parameter.VAR_KEYWORD:
            if rng.random() < 0.1:
                named.append(("nonsense", value))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            positional += [value] if rng.random() < 0.3 and not named else []
        elif is_required and rng.random() < 0.03:
            continue  # missing
        elif is_required or rng.random() < 0.35:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named.append((parameter.name, value))
    return Call(owner, name, tuple(positional), tuple(named))


def _value_for(owner: str, name: str, parameter: str, rng: random.Random) -> str:
    """Any value, or one of the right type that is likely wrong otherwise."""
    fitting = _fitting(owner, name).get(parameter, ())
    return (
        rng.choice(fitting)
        if fitting and rng.random() < _SHARE_OF_RIGHT_TYPE
        else (rng.choice(VALUES).name)
    )


@functools.cache
def _fitting(owner: str, name: str) -> dict[str, tuple[str, ...]]:
    with _subject(owner) as subject:
        member = getattr(subject, name)
        function = inspect.unwrap(member.__init__ if inspect.isclass(member) else member)
    found = {}
    for parameter in targets()[owner, name]:
        check = parameter_check(parameter, function)
        if check is not None:
            names = (value.name for value in VALUES if check.accepts(value.make(Path("folder"))))
            found[parameter.name] = tuple(names)
    return found


def answer(call: Call, folder: Path) -> Answer:
    """Makes a call.

    Args:
        call: what to call.
        folder: a folder of its own, which is also the current one.
    """
    (folder / "file.txt").write_text("text")
    positional = [_BY_NAME[name].make(folder) for name in call.positional]
    named = {name: _BY_NAME[value].make(folder) for name, value in call.named}
    with _subject(call.owner) as subject, alarm(_end_it, after_s=_LIMIT_S), _quiet():
        function = getattr(subject, call.name)
        try:
            inspect.signature(function).bind(*positional, **named)
        except TypeError:
            return Answer(call, "")  # Python says so itself
        try:
            made = function(*positional, **named)
            if inspect.isgenerator(made) or hasattr(made, "__next__"):
                next(made, None)
            if isinstance(made, trainer.Algorithm) and made is not subject:
                made.stop()
        except OURS:
            return Answer(call, "")
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is judged
            return Answer(call, _raw(error, call))
    return Answer(call, "")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        np.errstate(all="ignore"),
    ):
        warnings.simplefilter("ignore")
        yield


def _end_it() -> None:
    raise InterruptedError(f"no answer within {_LIMIT_S} s")


def _raw(error: BaseException, call: Call) -> str:
    """Empty if the error was raised on purpose and says what was wrong; else where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    text = str(error)
    is_ours = last.filename.startswith(_SOURCES) and _is_raise(last.filename, last.lineno or 0)
    named = [call.name, *(name for name, _ in call.named)]
    is_named = any(name in text for name in named) or "expected" in text or bool(call.positional)
    is_plain = isinstance(error, TypeError | ValueError | LookupError | AttributeError)
    if is_ours and (isinstance(error, ImportError) or (is_plain and is_named)):
        return ""  # an ImportError names the package that is missing
    if isinstance(error, OSError) and error.filename is not None and not is_ours:
        return ""  # names the path that was given
    if isinstance(error, TypeError) and "unexpected keyword argument 'nonsense'" in text:
        return ""  # handed on by **options to a signature that refuses it
    ours = [frame for frame in frames if frame.filename.startswith(_SOURCES)]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "outside"
    return f"{type(error).__name__}: {text[:120]} ({where})"


@functools.cache
def _raise_lines(filename: str) -> frozenset[int]:
    tree = ast.parse("".join(linecache.getlines(filename)))
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(lines)


def _is_raise(filename: str, line: int) -> bool:
    return line in _raise_lines(filename)
