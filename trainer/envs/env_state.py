"""The state of an env through all its wrappers: whether it can be taken, taking it, giving it back.

    get_state(), set_state(state)   a layer with both says for itself what its state is
    env_state_attributes            a layer whose class has this says which attributes it is
    gymnasium's own wrappers        are known (`wrapper_states`)
    np_random                       gymnasium's generator of the env is taken beside all that

A layer of another kind makes the state unknown, unless it is inside of a layer with `get_state`:
that one answers for all that is inside of it and does not answer for itself. What is taken is bytes
of plain data, so the env can go on without changing it.

Where the state as a whole is unknown, an episode follows from its seed, its actions, and what
layers carried over from the episodes before: `EnvState.carried` is the state of those that are
known.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Protocol, runtime_checkable

import gymnasium
import numpy as np

from checkpoints import StateError, decode, encode
from trainer.envs.tasks import layers

# ---- wrapper states
#
# What gymnasium's own wrappers remember from step to step: attributes, by the wrapper's name. A
# wrapper that changes observations, actions or rewards by a function remembers nothing; the
# function is taken to remember nothing either. Clocks (`RecordEpisodeStatistics`), checks that
# are made once (`PassiveEnvChecker`) and pictures (`RecordVideo`) begin anew: no episode depends
# on them.

_NOTHING: Final = (
    "AddRenderObservation AddWhiteNoise ClipAction ClipReward DiscretizeAction "
    "DiscretizeObservation DtypeObservation FilterObservation FlattenObservation "
    "GrayscaleObservation HumanRendering ObstructView OrderEnforcing PassiveEnvChecker RecordVideo "
    "RenderCollection RepeatAction RescaleAction RescaleObservation ReshapeObservation "
    "ResizeObservation TransformAction TransformObservation TransformReward"
)

_FREEZING: Final = ("_update_running_mean",)

_REMEMBERED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(_NOTHING.split(), ()),
        "Autoreset": ("autoreset",),
        "DelayObservation": ("observation_queue",),
        "FrameStackObservation": ("obs_queue",),
        "MaxAndSkipObservation": ("_obs_buffer",),
        "NormalizeObservation": ("obs_rms.mean", "obs_rms.var", "obs_rms.count", *_FREEZING),
        "NormalizeReward": (
            "return_rms.mean",
            "return_rms.var",
            "return_rms.count",
            "discounted_reward",
            *_FREEZING,
        ),
        "RecordEpisodeStatistics": (
            "episode_count",
            "episode_returns",
            "episode_lengths",
            "return_queue",
            "length_queue",
        ),
        "StickyAction": ("last_action", "is_sticky_actions", "num_repeats", "repeats_taken"),
        "TimeAwareObservation": ("timesteps",),
        "TimeLimit": ("_elapsed_steps",),
    }
)

_CARRYING: Final = frozenset({"NormalizeObservation", "NormalizeReward", "RecordEpisodeStatistics"})
"""Those whose `reset` does not set anew what they remember."""


def is_carrying(layer: Any) -> bool:
    """Whether one of gymnasium's wrappers carries something from one episode to the next."""
    return is_of_gymnasium(layer) and type(layer).__name__ in _CARRYING


def is_of_gymnasium(layer: Any) -> bool:
    """Whether a layer is one of gymnasium's own wrappers."""
    return type(layer).__module__.startswith("gymnasium.wrappers.")


def remembered_by(layer: Any) -> tuple[str, ...] | None:
    """The attributes that one of gymnasium's wrappers remembers; None if it is none of those.

    Releases of gymnasium differ in a few: those are named that this one has.
    """
    if not is_of_gymnasium(layer):
        return None
    names = _REMEMBERED.get(type(layer).__name__)
    return None if names is None else tuple(name for name in names if _has(layer, name))


def _has(layer: Any, name: str) -> bool:
    try:
        attrgetter(name)(layer)
    except AttributeError:
        return False
    return True


def attributes_of(layer: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The values of attributes by name, deques as lists; an AttributeError if one is missing."""
    values = {name: attrgetter(name)(layer) for name in names}
    return {name: list(value) if type(value) is deque else value for name, value in values.items()}


def set_attributes(layer: Any, names: tuple[str, ...], values: Mapping[str, Any]) -> None:
    """Gives attributes the values that `attributes_of` told.

    Raises:
        AttributeError: there is no such attribute, or it cannot be set.
        ValueError: the values are of other attributes; nothing is set.
    """
    # Names lead anywhere in a layer, and the author of a checkpoint may not be trusted so far.
    if set(values) != set(names):
        raise ValueError(f"they are {sorted(values)!r:.200}, expected {sorted(names)}")
    for name, value in values.items():
        owner_name, _, attribute = name.rpartition(".")
        owner = attrgetter(owner_name)(layer) if owner_name else layer
        present = getattr(owner, attribute)
        if type(present) is deque:  # in place: others may hold it, and it knows its length
            present.clear()
            present.extend(value)
        else:
            setattr(owner, attribute, value)


# ---- env state

_GENERATORS: Final[Mapping[str, Callable[[], Any]]] = {
    "PCG64": np.random.PCG64,
    "PCG64DXSM": np.random.PCG64DXSM,
    "MT19937": np.random.MT19937,
    "Philox": np.random.Philox,
    "SFC64": np.random.SFC64,
}
_MOST_TEXT: Final = 300
_ANY_SEED: Final = 0


@runtime_checkable
class StatefulEnv(Protocol):
    """An env, or a wrapper, whose episodes can be gone on with from their state alone.

        class Walk(gymnasium.Env):
            def get_state(self):
                return {"place": self.place, "steps": self.steps}

            def set_state(self, state):
                self.place, self.steps = state["place"], state["steps"]

    Deriving from this class is not needed. docs/envs.md says what is asked of the two methods,
    and `trainer.testing.check_env_state` tries them.
    """

    def get_state(self) -> Any:
        """All that the next steps and episodes depend on, as plain data."""

    def set_state(self, state: Any) -> None:
        """Goes on from where `get_state` gave this; `reset` was called before."""


@dataclass(frozen=True)
class _Part:
    """The state of one layer.

    Attributes:
        layer: whose.
        attributes: what it consists of; None if the layer has `get_state` and `set_state`.
    """

    layer: Any
    attributes: tuple[str, ...] | None

    @property
    def name(self) -> str:
        """What messages and states call the layer."""
        return type(self.layer).__qualname__

    @property
    def carries(self) -> bool:
        """Whether the state may outlast a reset, and nothing else looks after that."""
        if getattr(type(self.layer), "is_carried_by_position", False):
            return False
        return is_carrying(self.layer) or (
            self.attributes != () and not is_of_gymnasium(self.layer)
        )

    def take(self) -> Any:
        """The state, which may still change with the layer."""
        if self.attributes is None:
            return self.layer.get_state()
        return attributes_of(self.layer, self.attributes)

    def give_back(self, state: Any) -> None:
        """Lets the layer go on from this state."""
        if self.attributes is None:
            self.layer.set_state(state)
        else:
            set_attributes(self.layer, self.attributes, state)


class EnvState:
    """Takes the state of one env and gives it back.

    Attributes:
        trouble: why that did not work; empty as long as it does.
        fits: the state that was to be given back is one of an env with the same layers.
        needs_reset: whether it can be taken and given back only after a reset.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], parts: Sequence[_Part], *, is_whole: bool = True
    ) -> None:
        *_, self._innermost = layers(env)
        self._is_whole = is_whole
        self.needs_reset = is_whole or not all(is_of_gymnasium(part.layer) for part in parts)
        self._parts = [part for part in parts if part.attributes != ()]
        self.trouble = ""
        self.fits = True

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any]) -> EnvState | None:
        """The state of an env; None if some part of it is unknown."""
        parts, unknown = _parts_of(env)
        return None if unknown is not None else cls(env, parts)

    @classmethod
    def carried(cls, env: gymnasium.Env[Any, Any]) -> EnvState | None:
        """What known layers carry from episode to episode; None if they carry nothing."""
        known = [part for part in map(_part_of, layers(env)) if part is not None and part.carries]
        return cls(env, known, is_whole=False) if known else None

    def take(self) -> bytes | None:
        """The state now; None if it cannot be taken, and `trouble` says why."""
        taken = []
        for part in self._parts:
            try:
                taken.append([part.name, part.take()])
            except Exception as error:  # noqa: BLE001 - logged, and the episode is replayed instead
                self.trouble = f"{_call(part, 'get_state')} raised {_described(error)}"
                return None
        # A reset with a seed follows where the state is not whole: it makes the generator anew.
        generator = self._generator_state() if self._is_whole else None
        state = {"layers": taken, "np_random": generator}
        try:
            return encode(state, name=f"what {self._names()} gave")
        except StateError as error:
            self.trouble = str(error)
            return None

    def take_as_made(self) -> bytes | None:
        """The state of an env that was never reset; None if it has none yet, and `trouble` why."""
        env = self._innermost
        if getattr(env, "_np_random", env) is not None:
            return self.take()
        # Gymnasium makes the generator when it is asked for, with another seed each time.
        env._np_random = np.random.default_rng(_ANY_SEED)
        try:
            return self.take()
        finally:
            env._np_random = None

    def give_back(self, saved: bytes) -> bool:
        """Lets the env go on from a state; it must have been reset before.

        Returns:
            whether it did, and gives the same state when it is asked for it again. If not,
            `trouble` says why.
        """
        state = decode(saved)
        found = _layer_names(state)
        expected = [part.name for part in self._parts]
        self.fits = found == expected
        if not self.fits:
            self.trouble = f"the layers in it are {found!r:.100}, those of this env {expected}"
            return False
        # From the inside outwards: who answers for what is inside of it has the last word.
        for part, (_, of_layer) in reversed(list(zip(self._parts, state["layers"], strict=True))):
            try:
                part.give_back(of_layer)
            except Exception as error:  # noqa: BLE001 - logged, and the episode is replayed instead
                self.trouble = f"{_call(part, 'set_state')} raised {_described(error)}"
                return False
        if not self._has_generator_back(state["np_random"]):
            return False
        again = self.take()
        if again is not None and again != saved:
            self.trouble = _difference(decode(saved), decode(again))
        return again == saved

    def _names(self) -> str:
        calls = [_call(part, "get_state") for part in self._parts]
        return " and ".join(calls) or "np_random.bit_generator.state"

    # ---- the generator

    def _generator(self) -> np.random.Generator | None:
        """The env's generator; None if it has none yet, or one of its own kind."""
        generator = getattr(self._innermost, "_np_random", None)
        if not isinstance(generator, np.random.Generator):
            return None
        is_known = type(generator.bit_generator).__name__ in _GENERATORS
        return generator if is_known else None

    def _generator_state(self) -> Mapping[str, Any] | None:
        generator = self._generator()
        return None if generator is None else generator.bit_generator.state

    def _has_generator_back(self, state: Any) -> bool:
        if state is None:
            return True
        generator = self._generator()
        try:
            name = state["bit_generator"]
            if generator is None or type(generator.bit_generator).__name__ != name:
                generator = np.random.Generator(_bit_generator(name))
                self._innermost._np_random = generator
            generator.bit_generator.state = state  # in place: the env may have it elsewhere, too
        except Exception as error:  # noqa: BLE001 - logged, and the episode is replayed instead
            self.trouble = f"np_random did not take its state: {_described(error)}"
            return False
        return True


def why_no_env_state(env: gymnasium.Env[Any, Any]) -> str:
    """What keeps the state of an env from being used, as the end of a sentence.

    Empty if it is used, and if no layer says anything about its state: it is not expected then.
    """
    _, unknown = _parts_of(env)
    if unknown is None or not any(map(_says_something, layers(env))):
        return ""
    name = type(unknown).__qualname__
    problem = _wrong_signature(unknown)
    if problem:
        return f"{name}.{problem}"
    return f"nothing is known of the state of {name}, which has no get_state and set_state"


def silent_wrappers(env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
    """Names of the wrappers of which nothing is known: what they carry from episode to episode."""
    wrappers = [layer for layer in layers(env) if isinstance(layer, gymnasium.Wrapper)]
    return tuple(type(layer).__qualname__ for layer in wrappers if _part_of(layer) is None)


def _parts_of(env: gymnasium.Env[Any, Any]) -> tuple[list[_Part], Any | None]:
    """The parts of an env's state, from the outside inwards, and the first unknown layer."""
    parts: list[_Part] = []
    has_answer_for_inside = False
    for layer in layers(env):
        part = _part_of(layer)
        if part is not None:
            parts.append(part)
            has_answer_for_inside |= part.attributes is None
        elif not has_answer_for_inside:
            return [], layer
    return parts, None


def _part_of(layer: Any) -> _Part | None:
    if _has_both(layer):
        return None if _wrong_signature(layer) else _Part(layer, None)
    declared = getattr(type(layer), "env_state_attributes", None)
    names = remembered_by(layer) if declared is None else tuple(declared)
    return None if names is None else _Part(layer, names)


def _has_both(layer: Any) -> bool:
    """Whether a layer has both methods, and not only because it derives from `StatefulEnv`.

    A layer around envs that may have a state or not says with `has_env_state` whether they do.
    """
    if getattr(layer, "has_env_state", True) is False:
        return False
    return all(
        callable(method := getattr(type(layer), name, None))
        and method is not getattr(StatefulEnv, name)
        for name in ("get_state", "set_state")
    )


def _says_something(layer: Any) -> bool:
    return _has_both(layer) or getattr(type(layer), "env_state_attributes", None) is not None


def _wrong_signature(layer: Any) -> str:
    """Which of the two methods cannot be called as it is, and why; empty if both can."""
    if not _has_both(layer):
        return ""
    for name, arguments in (("get_state", ()), ("set_state", (None,))):
        try:
            signature = inspect.signature(getattr(layer, name))
        except (TypeError, ValueError):
            continue  # some functions written in C have none: the call will show
        try:
            signature.bind(*arguments)
        except TypeError as error:
            call = f"{name}({'state' if arguments else ''})"
            return f"{name}{signature} cannot be called as {call}: {error}"
    return ""


def _layer_names(state: Any) -> list[Any] | None:
    """The layers of a state, which may be anybody's; None if it is no state of an env."""
    try:
        state["np_random"]
        return [name for name, _ in state["layers"]]
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def _bit_generator(name: Any) -> np.random.BitGenerator:
    if name not in _GENERATORS:
        known = ", ".join(_GENERATORS)
        raise ValueError(f"there is no generator {name!r:.40}; expected one of {known}")
    made: np.random.BitGenerator = _GENERATORS[name]()
    return made


def _call(part: _Part, method: str) -> str:
    if part.attributes is None:
        return f"{part.name}.{method}()"
    return f"{'taking' if method == 'get_state' else 'setting'} the attributes of {part.name}"


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_MOST_TEXT]


def _difference(saved: Any, again: Any) -> str:
    """Which layer gives another state than the one that it was given."""
    for (name, before), (_, after) in zip(saved["layers"], again["layers"], strict=True):
        if encode(before) == encode(after):
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            keys = [
                key
                for key in before | after
                if key not in before
                or key not in after
                or encode(before[key]) != encode(after[key])
            ]
            return f"{name} has another state after set_state(), in {keys!r:.100}"
        return f"{name} has another state after set_state()"
    return "np_random has another state after it was set"
