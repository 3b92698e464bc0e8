"""One counter for all processes: envs count what happens in them, whichever process they are in.

Run this file; it prints how often the pole fell to each side, in two env runners together.
docs/actors.md explains what can be relied on.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from trainer import PPOConfig, actors


class Counter:
    """Counts by name."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def inc(self, name: str, n: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + n

    def get(self) -> dict[str, int]:
        return self.counts


class CountedCartPole(gymnasium.Wrapper):
    """CartPole that tells the counter to which side its pole fell."""

    def __init__(self, _: Any = None) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.counter = actors.get_actor("global_counter")

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, infos = self.env.step(action)
        if terminated:
            # Returns at once: no env waits for the counter while an env is stepped.
            self.counter.inc.remote("left" if obs[2] < 0 else "right")
        return obs, reward, terminated, truncated, infos


def main(num_env_runners: int = 2, iterations: int = 3, batch: int = 1000) -> dict[str, int]:
    """Trains for some iterations; returns the counts."""
    counter = (
        actors.remote(Counter).options(name="global_counter").remote()
    )  # before the envs look for it
    config = (
        PPOConfig()
        .environment(CountedCartPole)
        .env_runners(num_env_runners=num_env_runners)
        .training(train_batch_size=batch, minibatch_size=batch // 4, num_epochs=2)
    )
    with config.build_algo() as algo:
        for _ in range(iterations):
            algo.train()
            print(actors.get(counter.get.remote()))
    counts: dict[str, int] = actors.get(counter.get.remote())
    actors.kill(counter)
    return counts


if __name__ == "__main__":
    main()
