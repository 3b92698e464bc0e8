"""Faults on purpose: where, in which way, how often; and envs, callbacks, networks that fail."""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import multiprocessing
import os
import resource
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NoReturn

import gymnasium
import numpy as np

from callbacks import EVENTS, RLlibCallback
from trainer.env_runners import EnvRunner
from trainer.env_runners.env_runner import get_global_worker
from trainer.envs import EnvContext, EnvFactory
from trainer.envs.env_factory import make_env_factory
from trainer.errors import ConfigError
from trainer.modules import RLModule
from trainer.name_resolution import PROGRAM
from trainer.types import Array
from trainer_toolkit.files import lock_file
from trainer_toolkit.nearest_names import did_you_mean

# ---- faults
#
# Faults on purpose: where something is to fail, in which way, and how often.
#     fault = Fault("step", way="sigkill", worker_index=1, at_step=3)
#
# A `Fault` is a value that travels to every process. What makes it happen are `with_faults`
# (envs), `FaultyCallback` (events), `faulty_module` (networks) and `Parcel` (replies). The
# runtime knows nothing of all this.
#
# How often a fault has happened is kept in a file, because the process that counts is the one
# that dies.

PLACES: Final = ("init", "reset", "step", "close", "forward", "pack", "unpack", *EVENTS)
"""Where faults can happen: in an env, in a network, with a reply, or in an event of callbacks."""

SPOILT_ANSWERS: Final = ("nan_observation", "nan_reward", "wrong_shape", "unpicklable_result")
"""Ways in which an env goes on, but with an answer that is no good; at "reset" and "step" only."""

_ALWAYS: Final = -1
_LINE_BYTES: Final = 24
_ROOM_BYTES: Final = 200_000_000


class InjectedFaultError(Exception):
    """What a fault raises."""


class UnpicklableError(InjectedFaultError):
    """An error that cannot be pickled: it holds a lock."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class HugeError(InjectedFaultError):
    """An error that carries a lot of bytes."""

    payload = b""


def _forget(memory: Path, owner: int) -> None:
    """What the end of the process does, but not that of a forked copy of it."""
    if os.getpid() == owner:
        memory.unlink(missing_ok=True)


@dataclass(frozen=True)
class Fault:
    """Something that fails, at a stated place and in a stated way.

    Of the conditions, those that are None hold always.

    Attributes:
        place: one of `PLACES`. "pack" is the moment when a reply is packed in a runner's process,
            "unpack" when it is unpacked in the main process.
        way: one of `WAYS`.
        worker_index: in this env runner.
        env_index: in this sub-env.
        episode: in this episode of the env or the callback object, counted from 1 by each of them.
        at_step: when so many steps of the episode have been made.
        on_call: from this call on, of those that fulfil the other conditions; counted from 1 by
            each env, callback object and network for itself, so a replacement begins anew.
        in_evaluation: in evaluation runners (True) or training runners (False).
        times: how often it happens, over all processes: a number, "once" or "always".
        memory: the file that remembers how often it has happened; "" makes one, which is removed
            when the process ends that made it.
        seconds: of `way="slow"`.
        num_bytes: of `way="huge_reply"`.

    Raises:
        ConfigError: there is no such place or way, or they do not go together.
    """

    place: str
    _: KW_ONLY
    way: str = "raise"
    worker_index: int | None = None
    env_index: int | None = None
    episode: int | None = None
    at_step: int | None = None
    on_call: int = 1
    in_evaluation: bool | None = None
    times: int | Literal["once", "always"] = "once"
    memory: str = ""
    seconds: float = 0.1
    num_bytes: int = 50_000_000

    def __post_init__(self) -> None:
        _check_known("place", self.place, PLACES)
        _check_known("way", self.way, tuple(WAYS))
        if self.way in SPOILT_ANSWERS and self.place not in ("reset", "step"):
            raise ConfigError(
                f"Fault(place={self.place!r}, way={self.way!r}): only what an env answers can be "
                'spoilt so. Use place="reset" or place="step".'
            )
        if self.times not in ("once", "always") and not (
            isinstance(self.times, int) and self.times > 0
        ):
            raise ConfigError(f'times={self.times!r}: expected "once", "always" or a number from 1')
        if not self.memory:
            made = Path(tempfile.gettempdir(), f"fault-{uuid.uuid4().hex}")
            object.__setattr__(self, "memory", str(made))
            atexit.register(_forget, made, os.getpid())

    # ---- how often

    @property
    def num_fired(self) -> int:
        """How often it has happened, in whichever process."""
        return self._change(lambda left, fired: (left, fired))[1]

    @property
    def is_armed(self) -> bool:
        """Whether it may still happen."""
        return self._change(lambda left, fired: (left, fired))[0] != 0

    def disarm(self) -> None:
        """It will not happen any more, until it is armed."""
        self._change(lambda _, fired: (0, fired))

    def arm(self) -> None:
        """It may happen (again), as often as `times` says."""
        self._change(lambda _, fired: (self._most_times, fired))

    def claim(self) -> bool:
        """Whether it may happen now; if so, that is counted."""
        before = self._change(
            lambda left, fired: (left - 1 if left > 0 else left, fired + bool(left))
        )
        return before[0] != 0

    @property
    def _most_times(self) -> int:
        if self.times == "always":
            return _ALWAYS
        return 1 if self.times == "once" else int(self.times)

    def _change(self, change: Callable[[int, int], tuple[int, int]]) -> tuple[int, int]:
        """Changes (how often it may still happen, how often it has); returns what was before."""
        file = os.open(self.memory, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock_file(file, wait=True)
            line = os.pread(file, _LINE_BYTES, 0)
            left, fired = map(int, line.split()) if line else (self._most_times, 0)
            after = change(left, fired)
            if after != (left, fired) or not line:
                # One call of fixed length: a process killed meanwhile leaves no half line.
                os.pwrite(file, b"%11d %11d\n" % after, 0)
            return left, fired
        finally:
            os.close(file)  # gives the lock back, too

    # ---- what happens

    def act(self) -> None:
        """Lets it happen, here and now; returns only after "slow" and where an answer is spoilt."""
        WAYS[self.way](self)


def _check_known(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        hint = did_you_mean(given, known)
        raise ConfigError(f"Fault({name}={given!r}): expected one of {', '.join(known)}.{hint}")


def _text(fault: Fault) -> str:
    return f"this fails on purpose at {fault.place!r}"


def _raise(fault: Fault) -> NoReturn:
    raise InjectedFaultError(_text(fault))


def _raise_unpicklable(fault: Fault) -> NoReturn:
    raise UnpicklableError(_text(fault))


def _raise_huge(fault: Fault) -> NoReturn:
    error = HugeError(_text(fault))
    error.payload = bytes(fault.num_bytes)
    raise error


def _exit(_: Fault) -> NoReturn:
    os._exit(7)


def _segfault(_: Fault) -> None:
    faulthandler.disable()  # its report would be noise
    ctypes.string_at(0)


def _sigkill(_: Fault) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _sigstop(_: Fault) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _hang(_: Fault) -> NoReturn:
    while True:
        time.sleep(60.0)


def _slow(fault: Fault) -> None:
    time.sleep(fault.seconds)


def _run_out_of_memory(fault: Fault) -> NoReturn:
    """Takes memory until there is none, in bounds: the machine has enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken: list[bytes] = []
    with suppress(OSError, ValueError):  # not everywhere can a process limit itself
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + _ROOM_BYTES // 2
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        while sum(map(len, taken)) < _ROOM_BYTES:
            taken.append(bytes(_ROOM_BYTES // 20))
    finally:
        taken.clear()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    raise MemoryError(_text(fault))


def _nothing(_: Fault) -> None:
    """The engine that gives the answer spoils it."""


WAYS: Final[Mapping[str, Callable[[Fault], None]]] = MappingProxyType(
    {
        "raise": _raise,
        "exit": _exit,
        "segfault": _segfault,
        "sigkill": _sigkill,
        "sigstop": _sigstop,
        "hang": _hang,
        "slow": _slow,
        "out_of_memory": _run_out_of_memory,
        "unpicklable_error": _raise_unpicklable,
        "huge_reply": _raise_huge,
        **dict.fromkeys(SPOILT_ANSWERS, _nothing),
    }
)
"""Ways to fail, by name.

"raise" and "unpicklable_error" raise, "out_of_memory" raises `MemoryError` within bounds (what the
kernel does about a lack of memory is "sigkill"); "exit" is `os._exit`; "hang" goes on for ever,
"slow" for some seconds. "huge_reply" makes the reply large: by the info that an env gives, by a
`Parcel`, and everywhere else by an error that carries so many bytes. The others spoil the answer
of an env.
"""


# ---- fault watch
#
# Watches calls go by, and lets faults happen when their conditions hold.


@dataclass(frozen=True)
class RunnerOfCall:
    """The env runner in which a call is made; all None outside of runners.

    Attributes:
        worker_index: its number.
        in_evaluation: whether it is an evaluation runner.
    """

    worker_index: int | None = None
    in_evaluation: bool | None = None

    @classmethod
    def of(cls, runner: EnvRunner | None) -> RunnerOfCall:
        """What is asked of a runner."""
        return cls() if runner is None else cls(runner.worker_index, runner.spec.in_evaluation)

    @classmethod
    def at_work(cls) -> RunnerOfCall:
        """The runner that is at work in this process."""
        return cls.of(get_global_worker())


class FaultWatch:
    """The faults that one env, callback object or network is to suffer, and its calls so far."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        self._num_calls = [0] * len(self.faults)

    def due(
        self,
        place: str,
        runner: RunnerOfCall,
        *,
        env_index: int | None = None,
        episode: int | None = None,
        step: int | None = None,
        claims: bool = True,
    ) -> Fault | None:
        """The fault that is to happen in this call.

        Args:
            place: what is called.
            runner: in which runner.
            env_index: for which sub-env; None if it is not known, and likewise below.
            episode: in which of its episodes, counted from 1.
            step: how many steps of the episode have been made.
            claims: it happens now, and is counted as having happened; False where that is only
                known later.
        """
        found = (runner.worker_index, runner.in_evaluation, env_index, episode, step)
        for number, fault in enumerate(self.faults):
            wanted = (
                fault.worker_index,
                fault.in_evaluation,
                fault.env_index,
                fault.episode,
                fault.at_step,
            )
            pairs = zip(wanted, found, strict=True)
            if fault.place != place or any(want not in (None, have) for want, have in pairs):
                continue
            self._num_calls[number] += 1
            is_due = self._num_calls[number] >= fault.on_call
            if is_due and (fault.claim() if claims else fault.is_armed):
                return fault
        return None


# ---- parcels


class Parcel:
    """Put anywhere into a reply: nothing happens to it until it is packed, or unpacked.

    It arrives as None. (On the way to a runner it travels as it is, so functions may hold one.)
    With `place="pack"` the fault happens in the runner's process, with "unpack" in the process that
    unpacks the reply: the main process. With any other place the reply is spoilt at once
    ("huge_reply", "unpicklable_result").
    """

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def __deepcopy__(self, memo: dict[int, Any]) -> Parcel:
        return self  # a copy made on the way is no packing

    def __reduce__(self) -> tuple[Any, ...]:
        fault = self.fault
        if multiprocessing.parent_process() is None:
            return Parcel, (fault,)
        if fault.place == "unpack":
            return _unpacked, (fault,)
        if fault.place == "pack" and not fault.claim():
            return _take_nothing, ()
        if fault.way == "huge_reply":
            return _take_nothing, (bytes(fault.num_bytes),)
        if fault.way == "unpicklable_result":
            raise TypeError("this result cannot be pickled, on purpose")
        fault.act()
        return _take_nothing, ()

    def __repr__(self) -> str:
        return f"Parcel({self.fault!r})"


def _unpacked(fault: Fault) -> None:
    if fault.claim():
        fault.act()


def _take_nothing(*_: Any) -> None:
    return None


# ---- faulty callback


class FaultyCallback(RLlibCallback):
    """Fails in the events that its faults name, and listens to no other.

        config.callbacks([FaultyCallback(Fault("on_episode_end", way="raise"))])

    Faults with the places "pack" and "unpack" happen when the state of this callback travels from a
    runner's process to the main process, which it does with every answer; of their conditions,
    those that name a runner count. Faults with other places are left to others.
    """

    def __init__(self, *faults: Fault) -> None:
        self._watch = FaultWatch(faults)
        self._episode_ids: dict[str, int] = {}
        for event in {fault.place for fault in faults} & EVENTS.keys():
            # Only these: an event without a listener is not fired.
            setattr(self, event, partial(self._hear, event))

    def _hear(self, event: str, **arguments: Any) -> None:
        runner = RunnerOfCall()
        if EVENTS[event].scope == "env_runner":
            runner = RunnerOfCall.of(arguments.get("env_runner") or get_global_worker())
        episode = arguments.get("episode")
        fault = self._watch.due(
            event,
            runner,
            env_index=arguments.get("env_index"),
            episode=None if episode is None else self._number_of(episode.id_),
            step=None if episode is None else episode.t,
        )
        if fault is None:
            return
        if fault.way == "huge_reply" and episode is not None:
            episode.custom_data["parcel"] = Parcel(fault)
        else:
            fault.act()

    def _number_of(self, episode_id: str) -> int:
        return self._episode_ids.setdefault(episode_id, len(self._episode_ids) + 1)

    def get_state(self) -> dict[str, Any]:
        """What arrives as None, unless it fails on its way."""
        runner = RunnerOfCall.at_work()
        if not runner.worker_index:  # in the main process it travels nowhere
            return {"parcel": None}
        for place in ("pack", "unpack"):
            fault = self._watch.due(place, runner, claims=False)
            if fault is not None:
                return {"parcel": Parcel(fault)}
        return {"parcel": None}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Nothing is to be put back."""


# ---- faulty envs


class FaultyEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An env with faults at "reset", "step" and "close", or in the replies that its infos are in.

    Faults with the places "pack" and "unpack" go into the info of the step for which their other
    conditions hold.
    """

    env_state_attributes = ("_steps",)

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *faults: Fault,
        runner: RunnerOfCall | None = None,
        env_index: int | None = None,
    ) -> None:
        """Wraps an env.

        Args:
            env: what goes on as it is where nothing fails.
            faults: what is to fail.
            runner: the runner that it belongs to; None is the one that is at work.
            env_index: its number in the runner.
        """
        super().__init__(env)
        self._watch = FaultWatch(faults)
        # Noted now: when a runner closes its envs, it is not at work any more.
        self._runner = RunnerOfCall.at_work() if runner is None else runner
        self._env_index = env_index
        self._episodes = self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As the env does it, unless it is to fail."""
        self._episodes += 1
        self._steps = 0
        fault = self._strike("reset")
        observation, info = self.env.reset(seed=seed, options=options)
        if fault is not None:
            observation, info = _spoilt_observation(observation, fault), _spoilt_info(info, fault)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the env does it, unless it is to fail."""
        fault = self._strike("step")
        observation, reward, terminated, truncated, info = self.env.step(action)
        if fault is not None:
            observation, info = _spoilt_observation(observation, fault), _spoilt_info(info, fault)
            reward = float("nan") if fault.way == "nan_reward" else reward
        for place in ("pack", "unpack"):
            parcel = self._due(place, claims=False)  # that is done when it is packed or unpacked
            if parcel is not None:
                info = {**info, "parcel": Parcel(parcel)}
        self._steps += 1
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """As the env does it, unless it is to fail."""
        self._strike("close")
        self.env.close()

    def _strike(self, place: str) -> Fault | None:
        """Lets happen what is due; returns the fault if it is the answer that is to be spoilt."""
        fault = self._due(place)
        if fault is not None and (fault.way != "huge_reply" or place == "close"):
            fault.act()
        return fault

    def _due(self, place: str, *, claims: bool = True) -> Fault | None:
        return self._watch.due(
            place,
            self._runner,
            env_index=self._env_index,
            episode=self._episodes,
            step=self._steps,
            claims=claims,
        )


class _FaultyCreator:
    """Makes faulty envs; called like the env that they wrap, so that messages name it."""

    def __init__(self, factory: EnvFactory, faults: tuple[Fault, ...]) -> None:
        self._factory = factory
        self._faults = faults
        self.__qualname__ = factory.name

    def __call__(self, context: EnvContext) -> FaultyEnv:
        runner = RunnerOfCall.at_work()
        fault = FaultWatch(self._faults).due("init", runner, env_index=context.vector_index)
        if fault is not None:
            fault.act()
        env, _ = replace(self._factory, env_config=dict(context)).make(
            worker_index=context.worker_index,
            vector_index=context.vector_index,
            num_workers=context.num_workers or 0,
            recreated_worker=context.recreated_worker,
        )
        return FaultyEnv(env, *self._faults, runner=runner, env_index=context.vector_index)


def with_faults(env: object, *faults: Fault) -> Any:
    """An env creator for `config.environment(...)` whose envs fail as told.

    Args:
        env: whatever `environment(env=...)` takes: a name, a class, a creator.
        faults: what is to fail; those with other places are left to others.

    Raises:
        ConfigError: one of them is no `Fault`.
    """
    for fault in faults:
        if not isinstance(fault, Fault):
            raise ConfigError(
                f"with_faults() got {fault!r:.80}; expected faults one after the other: "
                "with_faults(env, Fault('step'), Fault('reset'))."
            )
    return _FaultyCreator(make_env_factory(env, {}, source=PROGRAM), faults)


def _spoilt_observation(observation: Any, fault: Fault) -> Any:
    if fault.way == "nan_observation":
        return _all_nan(observation)
    if fault.way == "wrong_shape":
        return np.zeros((*np.shape(observation), 2), np.float32)
    return observation


def _all_nan(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {key: _all_nan(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(map(_all_nan, observation))
    return np.full(np.shape(observation), np.nan, np.float32)


def _spoilt_info(info: dict[str, Any], fault: Fault) -> dict[str, Any]:
    if fault.way in ("huge_reply", "unpicklable_result"):
        return {**info, "parcel": Parcel(fault)}
    return info


# ---- faulty module


def faulty_module(module_class: type[RLModule], *faults: Fault) -> type[RLModule]:
    """A subclass whose forward passes for acting fail as told.

        RLModuleSpec(module_class=faulty_module(ActorCriticModule, Fault("forward", on_call=5)))

    A network makes one pass when its runner is made, which counts as its first call. Give
    `worker_index`, or the network of the main process may fail as well.

    Args:
        module_class: what goes on as it is where nothing fails.
        faults: what is to fail; those with other places than "forward" are left to others.
    """

    class FaultyModule(module_class):  # type: ignore[misc, valid-type]
        """Fails before it acts."""

        def setup(self) -> None:
            """Makes the network."""
            super().setup()
            self.fault_watch = FaultWatch(faults)

        def forward_inference(self, batch: Mapping[str, Array]) -> dict[str, Array]:
            """As the network does it, unless it is to fail."""
            _strike(self.fault_watch)
            outputs: dict[str, Array] = super().forward_inference(batch)
            return outputs

        def forward_exploration(self, batch: Mapping[str, Array]) -> dict[str, Array]:
            """As the network does it, unless it is to fail."""
            _strike(self.fault_watch)
            outputs: dict[str, Array] = super().forward_exploration(batch)
            return outputs

    return FaultyModule


def _strike(watch: FaultWatch) -> None:
    fault = watch.due("forward", RunnerOfCall.at_work())
    if fault is not None:
        fault.act()
