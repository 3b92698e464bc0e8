"""Vector envs that step all their sub-envs in one call, as runners play them.

gymnasium's own (`gymnasium.make_vec(…, vectorization_mode="vector_entry_point")`) or any
`gymnasium.vector.VectorEnv` that a creator returns. Such an env begins the next episode of a
sub-env by itself, when and how its autoreset mode says, so episodes have no seeds of their own:

    NEXT_STEP   the step after the last one is the reset; its action is not looked at
    SAME_STEP   the last step returns the first observation of the next episode; its own last one
                is in the infos
    DISABLED    we reset those whose episode ended, by `options={"reset_mask": …}`
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import gymnasium
import gymnasium.vector
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from checkpoints import encode
from trainer.envs.env_checks import check_reset
from trainer.envs.env_factory import EnvContext, VectorEnv
from trainer.episodes import nested
from trainer.errors import EnvContractError, EnvError
from trainer.types import Array

_FINAL_OBS: Final = "final_obs"
_FINAL_INFO: Final = "final_info"
_OF_ENDED: Final = frozenset({_FINAL_OBS, _FINAL_INFO, f"_{_FINAL_OBS}", f"_{_FINAL_INFO}"})
_NEXT_STEP: Final = "NextStep"
_MODES: Final = (_NEXT_STEP, "SameStep", "Disabled")
"""The values of gymnasium's `AutoresetMode`; gymnasium 1.0 has the first one only, and no name."""


class VectorStep:
    """What one step of a vector env gave, to be read sub-env by sub-env.

    Attributes:
        observations: the newest of each sub-env, in memory of their own: an array where the space
            is a Box, else a list; in SAME_STEP mode, where an episode ended, already the first one
            of the next.
        rewards: numbers, [S].
        terminateds, truncateds, ended: bool, [S].
        infos: of all sub-envs together, as the env gave them.
        has_infos: whether there are any.
    """

    def __init__(self, answer: Any, env: NativeVectorEnv) -> None:
        """Takes apart what `step` returned; an EnvContractError unless vector envs return it."""
        self._env = env
        name, count = env.native_name, env.num_envs
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise EnvContractError(
                f"step() of the vector env {name} returned {_described(answer)}; expected the "
                "tuple (observations, rewards, terminations, truncations, infos)."
            )
        observations, rewards, terminateds, truncateds, self.infos = answer
        if not isinstance(self.infos, Mapping):
            raise EnvContractError(
                f"step() of the vector env {name} returned the infos {self.infos!r:.200}; expected "
                "a dict of arrays, one item per sub-env. Leave out a wrapper that makes lists."
            )
        self.has_infos = bool(self.infos)
        self.observations = env.rows_of(observations)
        columns = [np.asarray(column) for column in (rewards, terminateds, truncateds)]
        if len(self.observations) != count or any(part.shape != (count,) for part in columns):
            shapes = [list(part.shape) for part in columns]
            raise EnvContractError(
                f"step() of the vector env {name} returned {len(self.observations)} observations "
                f"and rewards, terminations, truncations of the shapes {shapes}; expected {count} "
                "of each, one per sub-env."
            )
        if columns[0].dtype.kind not in "biuf":
            raise EnvContractError(
                f"step() of the vector env {name} returned the rewards "
                f"{columns[0].tolist()!r:.200}; expected numbers, one per sub-env."
            )
        self.rewards: Array = columns[0]
        self.terminateds: Array = columns[1].astype(np.bool_)
        self.truncateds: Array = columns[2].astype(np.bool_)
        self.ended: Array = np.logical_or(self.terminateds, self.truncateds)

    @property
    def has_own_infos(self) -> bool:
        """Whether there are infos of sub-envs whose episode goes on."""
        return any(key not in _OF_ENDED for key in self.infos)

    def last_observation(self, index: int) -> Any:
        """The observation with which the episode of a sub-env ended.

        Raises:
            EnvContractError: the infos hold none, or one of another shape.
        """
        given = self.infos.get(_FINAL_OBS)
        has_none = given is None or isinstance(given, Mapping) or index >= len(given)
        last = None if has_none else given[index]
        if last is None:
            raise EnvContractError(
                f"step() of the vector env {self._env.native_name}, whose autoreset mode is "
                f"SAME_STEP, ended the episode of sub-env {index} without its last observation: "
                f'its infos hold {sorted(self.infos)}; expected infos["{_FINAL_OBS}"], an array of '
                "objects with the observation at this index. Write it, or set "
                'metadata["autoreset_mode"] to what the env does.'
            )
        space = self._env.single_observation_space
        if isinstance(space, spaces.Box) and (shape := _shape(last)) != space.shape:
            raise EnvContractError(
                f"step() of the vector env {self._env.native_name} ended the episode of sub-env "
                f'{index} with infos["{_FINAL_OBS}"][{index}]={last!r:.200}, of shape {shape}; '
                f"expected an observation of {space}. Write the last observation of this sub-env "
                "alone at its index."
            )
        return nested.copied(last)

    def info(self, index: int, *, is_last: bool) -> dict[str, Any]:
        """The info of one sub-env; `is_last`: of the episode that ended in this step."""
        infos = self.infos
        if is_last and _FINAL_INFO in infos:
            final = infos[_FINAL_INFO]
            infos = final if isinstance(final, Mapping) else (final[index] or {})
            if not isinstance(final, Mapping):
                return dict(infos)
        return info_of(infos, index)


def _shape(value: Any) -> Any:
    try:
        return np.shape(value)
    except ValueError:
        return "none: its rows differ"


def info_of(infos: Mapping[str, Any], index: int) -> dict[str, Any]:
    """One sub-env's info from those of all: arrays by key, with a mask `_key` of who has it."""
    found: dict[str, Any] = {}
    for key, column in infos.items():
        if f"_{key}" not in infos or key in (_FINAL_OBS, _FINAL_INFO):
            continue
        if infos[f"_{key}"][index]:
            value = info_of(column, index) if isinstance(column, Mapping) else column[index]
            found[key] = nested.copied(value)
    return found


class SubEnv(gymnasium.Env[Any, Any]):
    """One sub-env of a vector env, for slots, callbacks and tasks; it can't be stepped alone.

    The state of the vector env as a whole is that of its first sub-env. Those of the others only
    say which one that was, so that all of them fit, or none does.
    """

    def __init__(self, whole: NativeVectorEnv, index: int) -> None:
        self._whole = whole
        self._index = index
        self.observation_space = whole.native.single_observation_space
        self.action_space = whole.native.single_action_space
        self.metadata = whole.native.metadata
        self.render_mode = whole.native.render_mode
        self.spec = whole.native.spec
        for method in ("set_task", "get_task"):
            if hasattr(whole.native.unwrapped, method):
                setattr(self, method, getattr(whole.native.unwrapped, method))

    @property
    def has_env_state(self) -> bool:
        """Whether the vector env has a state that can be taken and given back."""
        return self._whole.state is not None

    def get_state(self) -> Any:
        """The whole state, or which one it was."""
        return self._whole.whole_state() if self._index == 0 else self._whole.state_name()

    def set_state(self, state: Any) -> None:
        """Brings the whole env there, or checks that it is; a ValueError for other sub-envs."""
        if self._index == 0:
            self._whole.set_whole_state(state)
        elif state != self._whole.state_name():
            raise ValueError("it is of a sub-env of another vector env")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The observation with which the running episode of this sub-env began."""
        del options
        return self._whole.begin(self._index, seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Makes no step: the answer is that the episode has ended, so a replay leads nowhere."""
        del action
        return None, 0.0, True, False, {}

    def get_wrapper_attr(self, name: str) -> Any:
        """An attribute of this sub-env, or what the vector env gives for it."""
        if hasattr(self, name):
            return getattr(self, name)
        return self._whole.get_attr(name)[self._index]

    def close(self) -> None:
        """Nothing: the vector env is closed as a whole."""


class NativeVectorEnv(VectorEnv):
    """A vector env as the `env` of a runner; its sub-envs are slots of their own.

    Life: `begin` for each sub-env whose episode starts, `step` for all of them together, and
    `is_fresh` to know who can begin another one.

    Attributes:
        native: the user's vector env, which steps.
        state: how its state is taken and given back; None if it has none.
        must_reset: the next episode that begins resets all sub-envs.
        no_action: what sub-envs are given in which no agent plays.
    """

    def __init__(self, native: Any, context: EnvContext) -> None:
        """Puts views around the sub-envs.

        Args:
            native: a `gymnasium.vector.VectorEnv`.
            context: what its creator was given.

        Raises:
            EnvContractError: its autoreset mode is not known.
        """
        self.native = native
        self.num_envs: int = native.num_envs
        self.state = state_of(native)
        self.must_reset = True
        mode = (native.metadata or {}).get("autoreset_mode", _NEXT_STEP)
        self._mode = str(getattr(mode, "value", mode))
        if self._mode not in _MODES:
            raise EnvContractError(
                f"The vector env {self.native_name} has "
                f'metadata["autoreset_mode"]={mode!r}; expected one of {", ".join(_MODES)}.'
            )
        self._fresh = np.ones(self.num_envs, np.bool_)
        self._ended = np.zeros(self.num_envs, np.bool_)
        self._observations: Any = ()
        self._infos: Mapping[str, Any] = {}
        self._name: str | None = None
        super().__init__([SubEnv(self, index) for index in range(self.num_envs)], [context])
        self.contexts = [context] * self.num_envs
        self._is_array = isinstance(self.single_action_space, spaces.Discrete | spaces.Box)
        self._has_array = isinstance(self.single_observation_space, spaces.Box)
        self._dtype = self.native.action_space.dtype if self._is_array else None
        space = copy.deepcopy(self.single_action_space)
        space.seed(0)
        self.no_action = space.sample()

    @property
    def native_name(self) -> str:
        """The class of the user's vector env, for error texts."""
        return type(self.native.unwrapped).__name__

    # ---- what the runner calls

    def is_fresh(self, index: int) -> bool:
        """Whether an episode of a sub-env can begin: it was reset, and no step was made since."""
        return self.must_reset or bool(self._fresh[index])

    def begin(self, index: int, seed: int | None) -> tuple[Any, dict[str, Any]]:
        """The first observation and info of an episode that begins."""
        if self.must_reset:
            self._show(self.native.reset(seed=seed))
            self._fresh[:], self._ended[:] = True, False
            self.must_reset, self._name = False, None
        return self._observations[index], info_of(self._infos, index)

    def step_all(self, actions: Sequence[Any]) -> VectorStep:
        """Steps all sub-envs; those whose episode ended in the step before begin anew."""
        if self._is_array:
            batch: Any = np.asarray(actions, self._dtype).reshape(self.native.action_space.shape)
        else:
            room: Any = create_empty_array(self.native.single_action_space, self.num_envs)
            batch = concatenate(self.native.single_action_space, list(actions), room)
        step = VectorStep(self.native.step(batch), self)
        self._name = None
        self._observations, self._infos = step.observations, step.infos
        ended = step.ended
        if self._mode == "NextStep":
            self._fresh, self._ended = self._ended, ended
        elif self._mode == "SameStep":
            self._fresh = ended
        else:
            self._fresh = ended
            if ended.any():
                self._reset_those(ended)
        return step

    @property
    def holds_arrays(self) -> bool:
        """Whether observations and actions of all sub-envs are one array each."""
        return self._is_array and self._has_array

    @property
    def observations(self) -> Any:
        """What each sub-env shows now: [S, …] where `holds_arrays`; () before the first reset."""
        return self._observations

    @property
    def fresh(self) -> Array:
        """Which sub-envs were reset and made no step since, bool [S]; not to be written into."""
        return self._fresh

    def first_info(self, index: int) -> dict[str, Any]:
        """The info with which the newest episode of a fresh sub-env began."""
        return info_of(self._infos, index) if self._infos else {}

    def _reset_those(self, ended: Array) -> None:
        self._show(self.native.reset(options={"reset_mask": ended.copy()}))

    def _show(self, answer: Any) -> None:
        """Takes over what `reset` returned; an EnvContractError unless vector envs return that."""
        check_reset(answer, name=self.native_name)
        self._observations, self._infos = self.rows_of(answer[0]), answer[1]
        if len(self._observations) != self.num_envs:
            raise EnvContractError(
                f"reset() of the vector env {self.native_name} returned "
                f"{len(self._observations)} observations; expected {self.num_envs}, one per "
                "sub-env."
            )

    @property
    def resets_at_once(self) -> bool:
        """Whether sub-envs show the next episode's first observation right after a last step."""
        return self._mode != "NextStep"

    @property
    def gives_next_observation(self) -> bool:
        """Whether a last step returns the first observation of the next episode."""
        return self._mode == "SameStep"

    def rows_of(self, observations: Any) -> Any:
        """The observations of each sub-env, copied, for the env may use its memory again."""
        if self._has_array:
            return np.array(observations)
        return [nested.copied(row) for row in iterate(self.native.observation_space, observations)]

    # ---- state

    def whole_state(self) -> dict[str, Any]:
        """The state of the vector env, and which of its sub-envs are where."""
        if self.state is None:
            raise EnvError("The vector env has no state: it lacks get_state and set_state.")
        if not len(self._observations):
            raise EnvError("The vector env has no state before its first reset.")
        return {
            "env": self.state.get(),
            "fresh": self._fresh.tolist(),
            "ended": self._ended.tolist(),
            "observations": list(self._observations),
        }

    def state_name(self) -> str:
        """A text that is the same for the same state only."""
        if self._name is None:
            self._name = hashlib.sha256(encode(self.whole_state())).hexdigest()
        return self._name

    def set_whole_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `whole_state` gave; a ValueError for another number of sub-envs."""
        if self.state is None or len(state["fresh"]) != self.num_envs:
            raise ValueError(
                f"it is of {len(state['fresh'])} sub-envs, and there are {self.num_envs}"
            )
        self.state.set(state["env"])
        self._fresh = np.array(state["fresh"], np.bool_)
        self._ended = np.array(state["ended"], np.bool_)
        rows = list(state["observations"])
        self._observations, self._infos = np.array(rows) if self._has_array else rows, {}
        self.must_reset, self._name = False, None

    # ---- what users call

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every sub-env, or reads an attribute.

        A vector env without such a method is asked as a whole, and all get its answer.
        """
        if hasattr(self.native, "call"):
            return tuple(self.native.call(name, *args, **kwargs))
        member = getattr(self.native.unwrapped, name)
        return (member(*args, **kwargs) if callable(member) else member,) * self.num_envs

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of every sub-env, or of the vector env as a whole."""
        if hasattr(self.native, "set_attr"):
            self.native.set_attr(name, values)
        else:
            setattr(self.native.unwrapped, name, values)

    def render(self) -> tuple[Any, ...]:
        """A frame of every sub-env."""
        return tuple(self.native.render() or ())

    def replace(self, index: int, env: gymnasium.Env[Any, Any], context: EnvContext) -> None:
        """Raises an EnvError: sub-envs of a vector env cannot be made one by one."""
        del env, context
        raise EnvError(f"Sub-env {index} of a vector env cannot be made anew alone.")

    def close(self, **kwargs: Any) -> None:
        """Closes the vector env. Idempotent."""
        if not self.closed:
            self.closed = True
            self.native.close(**kwargs)


# ---- state of vector envs


class VectorState:
    """How the state of one vector env is taken and given back."""

    def __init__(self, get: Callable[[], Any], set_: Callable[[Any], None]) -> None:
        self.get = get
        self.set = set_


_CART_POLE: Final = ("state", "steps", "prev_done", "low", "high")


def state_of(native: Any) -> VectorState | None:
    """The state of a vector env: its own `get_state` and `set_state`, or an adapter.

    A wrapper around it that has neither makes the state unknown, for it may remember something.
    """
    if callable(getattr(native, "get_state", None)) and callable(
        getattr(native, "set_state", None)
    ):
        return VectorState(native.get_state, native.set_state)
    kind = type(native)
    if kind.__name__ == "CartPoleVectorEnv" and kind.__module__.startswith("gymnasium.envs."):
        return _attributes_and_generator(native, _CART_POLE)
    return None


def _attributes_and_generator(native: Any, names: Sequence[str]) -> VectorState:
    """A state that is some attributes and gymnasium's generator."""

    def get() -> dict[str, Any]:
        values = {name: nested.copied(getattr(native, name)) for name in names}
        return {**values, "np_random": native.np_random.bit_generator.state}

    def set_(state: Mapping[str, Any]) -> None:
        if set(state) != {*names, "np_random"}:
            raise ValueError(f"it holds {sorted(state)}, expected {sorted([*names, 'np_random'])}")
        for name in names:
            setattr(native, name, nested.copied(state[name]))
        native.np_random.bit_generator.state = state["np_random"]

    return VectorState(get, set_)


def _described(value: Any) -> str:
    size = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    return f"a {type(value).__name__}{size}"
