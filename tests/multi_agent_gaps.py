"""An env of several agents with everything that can happen to one of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from trainer.envs import MultiAgentEnv


class Gaps(MultiAgentEnv):
    """Agents come late, wait for observations, end early, and come in any order of dicts.

    Settings: `shuffles` gives dicts in another order; `breaks` names a file: the env raises at the
    env steps, counted over all, that it lists, once each; `kills`, its process is killed there.
    """

    def __init__(self, env_config: Mapping[str, Any]) -> None:
        agents: list[Any] = ["a", 3, "late"]
        self._shuffles = env_config.get("shuffles", False)
        self._faults = {kind: env_config.get(kind) for kind in ("breaks", "kills")}
        self.possible_agents = agents[::-1] if self._shuffles else agents
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self._t, self._ended, self._total = 0, set[Any](), 0
        self._late = int(self.np_random.integers(1, 4))
        self._length = int(self.np_random.integers(5, 12))
        return self._shuffled({"a": self._seen(), 3: self._seen()}), {}

    def _seen(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)

    def _shuffled(self, by_agent: dict[Any, Any]) -> dict[Any, Any]:
        pairs = list(by_agent.items())
        return dict(pairs[::-1] if self._shuffles else pairs)

    def step(self, actions: Any) -> Any:
        self._fail()
        self._t += 1
        self._total += sum(map(int, actions.values()))
        running = [agent for agent in ("a", 3) if agent not in self._ended]
        running += ["late"] if self._t >= self._late else []
        # Drawn for all, in one order; what is paid depends on the actions of all so far.
        draws = {agent: (self.np_random.random(), self._seen()) for agent in running}
        seen = {agent: one for agent, (draw, one) in draws.items() if draw < 0.7}
        rewards = {agent: 0.1 * (self._total % 7) + draw for agent, (draw, _) in draws.items()}
        terminateds = {"__all__": self._t >= self._length}
        if self._t == 4 and "a" in running:
            self._ended.add("a")
            seen["a"], terminateds["a"] = self._seen(), True
        return self._shuffled(seen), self._shuffled(rewards), terminateds, {}, {}

    def _fail(self) -> None:
        for kind, file in self._faults.items():
            if file is None:
                continue
            count = Path(file).with_suffix(".count")
            number = int(count.read_text()) if count.exists() else 0
            count.write_text(str(number + 1))
            if str(number) in Path(file).read_text().split():
                if kind == "kills":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ValueError("on purpose")
