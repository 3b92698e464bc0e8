"""A check for envs with `get_state` and `set_state`: whether runs can go on from their states.

    check_env_state(MyEnv, env_config={"size": 4})

The env is made as a run makes it, wrappers included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import gymnasium

from trainer.env_runners.observations import copied, is_same
from trainer.envs import EnvFactory, EnvState, make_env_factory, why_no_env_state

_PARTS: Final = ("observation", "reward", "terminated", "truncated")
_Answer = tuple[Any, ...]


def check_env_state(
    env: Any,
    *,
    env_config: Mapping[str, Any] | None = None,
    seed: int = 0,
    num_steps: int = 50,
    num_states: int = 5,
) -> None:
    """Plays, takes states on the way, and goes on from each of them in another env.

    Both must answer the same actions with the same observations, rewards and ends, bit for bit,
    into the episodes that follow. Actions are drawn from the action space; infos are not compared.

    Args:
        env: whatever `environment(env=…)` takes.
        env_config: its settings.
        seed: of resets and actions.
        num_steps: how far to go on from a state; longer than an episode is best.
        num_states: how many states to take, `num_steps // 3` steps apart; the first one right after
            a reset.

    Raises:
        AssertionError: something does not hold; says what, and what to look at.
    """
    factory = make_env_factory(env, env_config or {})
    players = [_Player(factory, seed=seed) for _ in range(3)]
    try:
        original, fresh, used = players
        used.play(num_steps // 2 + 1)
        for number in range(num_states):
            if number:
                original.play(num_steps // 3)
            place, state = original.place(), original.state()
            _expect(
                original.state() == state,
                f"Two calls of get_state() after each other gave different states ({factory.name}, "
                f"{place}). It must change nothing, and tell nothing that changes by itself.",
            )
            for other, kind in ((fresh, "a new env"), (used, "an env that stood elsewhere")):
                other.go_to(original, state, kind=kind)
            expected = original.play(num_steps)
            for other, kind in ((fresh, "a new env"), (used, "an env that stood elsewhere")):
                _compare(expected, other.play(num_steps), where=f"{factory.name}, {place}, {kind}")
            original.go_to(fresh, fresh.state(), kind="the same env")
    finally:
        for player in players:
            player.env.close()


class _Player:
    """One env that is played with random actions; they follow from the number of the step."""

    def __init__(self, factory: EnvFactory, *, seed: int) -> None:
        self.name = factory.name
        self.env, _ = factory.make(
            worker_index=0, vector_index=0, num_workers=0, recreated_worker=False
        )
        found = EnvState.of(self.env)
        if found is None:
            why = why_no_env_state(self.env) or "no layer of it has get_state and set_state"
            raise AssertionError(f"The state of the env {self.name!r} would not be used: {why}.")
        self._state = found
        self._seed = seed
        self._num_steps = self._num_episodes = self._step = 0
        self._reset()

    def _reset(self) -> Any:
        observation, _ = self.env.reset(seed=self._seed + self._num_episodes)
        self._num_episodes += 1
        self._step = 0
        return copied(observation)

    def place(self) -> str:
        """Where it stands, for messages."""
        return f"episode {self._num_episodes - 1}, step {self._step}"

    def state(self) -> bytes:
        """The state of the env now."""
        state = self._state.take()
        if state is None:
            raise AssertionError(f"{self.name}, {self.place()}: {self._state.trouble}")
        return state

    def go_to(self, other: _Player, state: bytes, *, kind: str) -> None:
        """Goes to where another one stands."""
        self._num_steps, self._num_episodes = other._num_steps, other._num_episodes
        self._step = other._step
        self.env.reset(seed=self._seed + self._num_episodes - 1)
        _expect(
            self._state.give_back(state),
            f"A state of {self.name} ({other.place()}) was given to {kind}, in vain: "
            f"{self._state.trouble}. After reset() and set_state(state), get_state() must give "
            "that state.",
        )

    def play(self, num_steps: int) -> list[_Answer]:
        """What the env answers to its next actions; it is reset where an episode ends."""
        answers: list[_Answer] = []
        for _ in range(num_steps):
            self.env.action_space.seed(self._seed + self._num_steps)
            self._num_steps += 1
            self._step += 1
            observation, reward, terminated, truncated, _ = self.env.step(_action_of(self.env))
            answers.append((copied(observation), reward, terminated, truncated))
            if terminated or truncated:
                answers.append((self._reset(),))
        return answers


def _action_of(env: gymnasium.Env[Any, Any]) -> Any:
    return env.action_space.sample()


def _compare(expected: Sequence[_Answer], found: Sequence[_Answer], *, where: str) -> None:
    for step, (right, left) in enumerate(zip(expected, found, strict=False)):
        for part, a, b in zip(_PARTS, right, left, strict=False):
            _expect(
                is_same(a, b),
                f"After set_state(), the {part} of answer {step} is {b!r:.200}, and without it "
                f"{a!r:.200} ({where}). Something that the env remembers is missing in "
                "get_state(), or is not put back by set_state(): counters, generators, buffers, "
                "and what is drawn in reset().",
            )


def _expect(is_right: bool, message: str) -> None:
    if not is_right:
        raise AssertionError(message)
