"""Small envs with known answers, for tests of trainers, callbacks and configs: yours and ours.

    CountdownEnv     pays 1 per step; how long an episode lasts is drawn from its seed
    CorridorEnv      walk to the right end; the best return is known
    ContinuousEnv    repeat a number with a continuous action; the best return is 0
    TargetEnv        find a target in a small image; the best return is 1
    RepeatPreviousEnv   name the symbol of some steps before; the best return is known
    StatelessCartPole   CartPole-v1 without its velocities: nothing can be done without memory
    UnseededEnv      a CountdownEnv with randomness of its own: no episode can be repeated
    FailingEnv       a CountdownEnv that raises, exits, crashes or hangs at a stated place

All of them take their settings from `env_config`, and an episode follows from its seed and its
actions alone (`UnseededEnv` breaks that rule on purpose).
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

from trainer.testing.faults import Fault
from trainer.types import Array

# ---- debug envs

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_WAYS: Final = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])


class CountdownEnv(gymnasium.Env[Array, Any]):
    """Pays 1 per step and ends after a number of steps that is drawn when it is reset.

    The return of an episode is its length. Observations depend on the seed, on the actions and on
    noise drawn in every step, so that two episodes are equal only if all of these are.

    Settings (`env_config`):
        min_length, max_length: bounds of an episode's length in steps, both included; 3 and 12.
        truncates: episodes end with `truncated` instead of `terminated`; False.

    Observation: float32, [2]: the fraction of steps left, and a mixture of noise and past actions.
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.min_length: int = env_config.get("min_length", 3)
        self.max_length: int = env_config.get("max_length", 12)
        self.truncates: bool = env_config.get("truncates", False)
        self.length = 0
        self.steps = 0
        self._mixture = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Starts an episode of a length that follows from the seed."""
        super().reset(seed=seed, options=options)
        self.length = int(self.np_random.integers(self.min_length, self.max_length + 1))
        self.steps = 0
        self._mixture = self.noise()
        return self._observation(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Counts one step down."""
        self.steps += 1
        self._mixture = 0.5 * self._mixture + 0.25 * int(action) + 0.25 * self.noise()
        is_over = self.steps >= self.length
        terminated, truncated = is_over and not self.truncates, is_over and self.truncates
        return self._observation(), 1.0, terminated, truncated, {}

    def noise(self) -> float:
        """The next random number, in [0, 1)."""
        return float(self.np_random.random())

    def _observation(self) -> Array:
        left = (self.length - self.steps) / self.max_length
        return np.array([left, self._mixture], np.float32)


class RepeatPreviousEnv(gymnasium.Env[Any, Any]):
    """Shows a symbol in every step, and pays 1 for naming that of `delay` steps before.

    The first `delay` steps pay nothing. Who remembers gets `best_return`, who guesses one part in
    `num_symbols` of it.

    Settings (`env_config`):
        delay: k, steps to remember, at least 1; 4.
        num_symbols: at least 2; 4.
        length: steps of an episode, more than the delay; 64.

    Observation: the number of the symbol.
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        self.delay: int = env_config.get("delay", 4)
        self.length: int = env_config.get("length", 64)
        num_symbols: int = env_config.get("num_symbols", 4)
        self._symbols: Any = spaces.Discrete(num_symbols)
        self.observation_space = self.action_space = self._symbols
        self._shown: list[int] = []

    @property
    def best_return(self) -> float:
        """The return of who is always right."""
        return float(self.length - self.delay)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Shows the first symbol."""
        super().reset(seed=seed, options=options)
        self._shown = []
        return self._show(), {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Pays for the symbol `delay` steps before the one that was shown last."""
        place = len(self._shown) - 1 - self.delay
        reward = float(place >= 0 and int(action) == self._shown[place])
        is_over = len(self._shown) >= self.length
        return self._show(), reward, is_over, False, {}

    def _show(self) -> int:
        self._shown.append(int(self.np_random.integers(self._symbols.n)))
        return self._shown[-1]


class StatelessCartPole(gymnasium.ObservationWrapper[Array, int, Array]):
    """CartPole-v1 that shows where cart and pole are, and hides how fast they move.

    Without memory, returns stay below 100 or so; with it, 500 can be reached.

    Observation: float32, [2]: the position of the cart, and the angle of the pole.
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        del env_config
        super().__init__(gymnasium.make("CartPole-v1"))
        whole: Any = self.env.observation_space
        self.observation_space = spaces.Box(whole.low[[0, 2]], whole.high[[0, 2]], dtype=np.float32)

    def observation(self, observation: Array) -> Array:
        """The positions among four numbers."""
        positions: Array = observation[[0, 2]]
        return positions


class CorridorEnv(gymnasium.Env[Any, Any]):
    """Walk along a corridor: action 1 goes right, action 0 left; the right end pays 1 and ends it.

    Every other step costs 0.1. Who always goes right gets `best_return`.

    Settings (`env_config`):
        corridor_length: steps from the left to the right end, at least 1; 5.
        max_steps: the episode is truncated after so many steps; 4 times the length.
        one_hot: observations are float32 [length + 1] instead of the position as an integer; False.
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        self.corridor_length: int = env_config.get("corridor_length", 5)
        self.max_steps: int = env_config.get("max_steps", 4 * self.corridor_length)
        self.one_hot: bool = env_config.get("one_hot", False)
        num_places = self.corridor_length + 1
        self.observation_space: spaces.Space[Any] = (
            spaces.Box(0.0, 1.0, (num_places,), np.float32)
            if self.one_hot
            else spaces.Discrete(num_places)
        )
        self.action_space = spaces.Discrete(2)
        self.place = 0
        self.steps = 0

    @property
    def best_return(self) -> float:
        """The return of walking straight to the right end."""
        return 1.0 - 0.1 * (self.corridor_length - 1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins at the left end."""
        super().reset(seed=seed, options=options)
        self.place = 0
        self.steps = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Goes one place to the right or left; the left end is a wall."""
        self.steps += 1
        self.place = max(0, self.place + (1 if action == 1 else -1))
        has_arrived = self.place == self.corridor_length
        truncated = not has_arrived and self.steps >= self.max_steps
        return self._observation(), 1.0 if has_arrived else -0.1, has_arrived, truncated, {}

    def _observation(self) -> Any:
        if not self.one_hot:
            return self.place
        row = np.zeros(self.corridor_length + 1, np.float32)
        row[self.place] = 1.0
        return row


class ContinuousEnv(gymnasium.Env[Array, Array]):
    """Repeat the number that is shown: minus the squared distance is the reward, 0 the best return.

    The number is drawn anew in every step, from [-1, 1]; the action that repeats it is the number
    times `scale`, so policies that ignore the bounds of the action space do badly.

    Settings (`env_config`):
        num_steps: length of an episode; 8.
        scale: actions are in [-scale, scale]; 2.0.

    Attributes:
        received: the actions of this episode as they arrived.
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        self.num_steps: int = env_config.get("num_steps", 8)
        self.scale: float = env_config.get("scale", 2.0)
        self.observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Box(-self.scale, self.scale, (1,), np.float32)
        self.received: list[Array] = []
        self._number = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Shows the first number."""
        super().reset(seed=seed, options=options)
        self.received = []
        return self._show_next(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Pays for the action and shows the next number; the last step truncates."""
        self.received.append(np.array(action))
        distance = float(action[0]) / self.scale - self._number
        truncated = len(self.received) >= self.num_steps
        return self._show_next(), -(distance**2), False, truncated, {}

    def _show_next(self) -> Array:
        self._number = float(self.np_random.uniform(-1.0, 1.0))
        return np.array([self._number], np.float32)


class TargetEnv(gymnasium.Env[Array, Any]):
    """Go to the target that an image shows: actions 0 to 3 go up, down, left and right.

    A step pays the share of the way that it comes nearer (negative if it leads away), so the return
    of an episode is 1 if the target is reached, whatever the way; too long a way is cut off.

    Settings (`env_config`):
        size: height and width of the image, at least 2; 10.
        max_steps: the episode is truncated after so many steps; twice the size.
        mask: observations are Dicts with "observations" and an "action_mask" that rules out the
            steps that lead out of the image; False.

    Observation: uint8 [size, size, 2]; 255 where the walker is (channel 0) and where the target is.
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        self.size: int = env_config.get("size", 10)
        self.max_steps: int = env_config.get("max_steps", 2 * self.size)
        self.has_mask: bool = env_config.get("mask", False)
        image = spaces.Box(0, 255, (self.size, self.size, 2), np.uint8)
        self.observation_space: spaces.Space[Any] = image
        if self.has_mask:
            mask = spaces.MultiBinary(4)
            self.observation_space = spaces.Dict({"action_mask": mask, "observations": image})
        self.action_space = spaces.Discrete(4)
        self.steps = 0
        self._place = self._target = np.zeros(2, np.int64)
        self._first_distance = 1

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Draws two different places for walker and target."""
        super().reset(seed=seed, options=options)
        self.steps = 0
        places = self.np_random.choice(self.size**2, 2, replace=False)
        self._place, self._target = np.stack(np.divmod(places, self.size), axis=1)
        self._first_distance = self._distance()
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Goes one place on; the edges of the image are walls."""
        self.steps += 1
        before = self._distance()
        self._place = np.clip(self._place + _WAYS[action], 0, self.size - 1)
        distance = self._distance()
        reward = (before - distance) / self._first_distance
        truncated = distance > 0 and self.steps >= self.max_steps
        return self._observation(), reward, distance == 0, truncated, {}

    def _distance(self) -> int:
        return int(np.abs(self._place - self._target).sum())

    def _observation(self) -> Any:
        image = np.zeros((self.size, self.size, 2), np.uint8)
        for channel, (row, column) in enumerate((self._place, self._target)):
            image[row, column, channel] = 255
        if not self.has_mask:
            return image
        after = self._place + _WAYS
        inside = ((after >= 0) & (after < self.size)).all(axis=1)
        return {"action_mask": inside.astype(np.int8), "observations": image}


class UnseededEnv(CountdownEnv):
    """A CountdownEnv whose noise comes from the operating system: no episode can be repeated."""

    def noise(self) -> float:
        """A number that no seed determines, in [0, 1)."""
        return int.from_bytes(os.urandom(4), "big") / 2**32


class FailingEnv(CountdownEnv):
    """A CountdownEnv that fails at a stated place, once or always, by its settings alone.

    `with_faults` does more, with any env.

    Settings (`env_config`), beside those of CountdownEnv:
        where: "init", "reset" or "step"; "never" is the default.
        how: one of `trainer.testing.faults.WAYS`, or "kill" for "sigkill"; "raise".
        at_step: in "step", fails when so many steps of the episode are made; 2.
        armed_file: fails only if this file exists, and removes it first: once. None fails always.
        worker_index: fails in this env runner only; None fails in all.

    A file, and not a counter, because the process that counts is the one that dies.
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        super().__init__(env_config)
        self._where: str = env_config.get("where", "never")
        how: str = env_config.get("how", "raise")
        self._how = "sigkill" if how == "kill" else how
        self._at_step: int = env_config.get("at_step", 2)
        armed_file = env_config.get("armed_file")
        self._armed_file = None if armed_file is None else Path(armed_file)
        index = env_config.get("worker_index")
        self._is_meant = index is None or index == getattr(env_config, "worker_index", None)
        self._fail_at("init")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """As in CountdownEnv, unless it is to fail here."""
        self._fail_at("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """As in CountdownEnv, unless it is to fail here."""
        if self.steps == self._at_step:
            self._fail_at("step")
        return super().step(action)

    def _fail_at(self, where: str) -> None:
        if where != self._where or not self._is_meant:
            return
        if self._armed_file is not None:
            try:
                self._armed_file.unlink()
            except FileNotFoundError:
                return  # another process was first, or it is over
        Fault(where, way=self._how, times="always").act()


# ---- state envs
#
# A small env whose episodes cannot be repeated, but can be gone on with: yours and ours.


class RestlessEnv(CountdownEnv):
    """A CountdownEnv with a generator of its own that no reset seeds, and `get_state`.

    The generator goes on from episode to episode. So an episode does not follow from its seed and
    its actions: only the state brings an env back into one.

    Settings (`env_config`): those of CountdownEnv, and
        first_seed: of the generator, when the env is made; 0. The number of the sub-env among all
            of the run is added if `num_envs_per_env_runner` is given here as well.
        num_envs_per_env_runner: as in the config of the run; 0.
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        super().__init__(env_config)
        runner = max(0, getattr(env_config, "worker_index", 0) - 1)
        per_runner = env_config.get("num_envs_per_env_runner", 0)
        slot = runner * per_runner + (getattr(env_config, "vector_index", 0) if per_runner else 0)
        self.generator = random.Random(env_config.get("first_seed", 0) + slot)

    def noise(self) -> float:
        """The next number of its own generator, in [0, 1)."""
        return self.generator.random()

    def get_state(self) -> dict[str, Any]:
        """All that the next steps depend on."""
        return {
            "length": self.length,
            "steps": self.steps,
            "mixture": self._mixture,
            "generator": self.generator.getstate(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self.length, self.steps = state["length"], state["steps"]
        self._mixture = state["mixture"]
        self.generator.setstate(state["generator"])


# ---- task envs


class TaskCountdownEnv(CountdownEnv):
    """A CountdownEnv whose observations follow from its tasks, too; every info tells the task.

    A task takes effect at once. It goes into all observations from then on, so that an episode can
    be repeated only by who sets the same tasks at the same steps.

    Settings (`env_config`): those of CountdownEnv, and
        task: the first task, a number; 0.
        refuses: a task that `set_task` refuses with a ValueError; None.
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        super().__init__(env_config)
        self.task: Any = env_config.get("task", 0)
        self.refuses: Any = env_config.get("refuses")

    def get_task(self) -> Any:
        """The task that was set last."""
        return self.task

    def set_task(self, task: Any) -> None:
        """Takes up another task at once.

        Raises:
            ValueError: it is the one that `env_config` says to refuse.
        """
        if self.refuses is not None and task == self.refuses:
            raise ValueError(f"there is no way to do {task!r}")
        self.task = task

    def noise(self) -> float:
        """A random number between 0 and 1, shifted by the task."""
        return (super().noise() + 0.137 * float(self.task)) % 1.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Starts an episode; the info tells the task."""
        observation, _ = super().reset(seed=seed, options=options)
        return observation, {"task": self.task}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Counts one step down; the info tells the task under which it was made."""
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"task": self.task}
