"""Two modules: a hare that runs away and a hunter, each with a network of its own.

    python examples/multi_agent_two_modules.py

Both learn from their own steps. Afterwards one of the networks is loaded from the checkpoint alone.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from trainer import MultiAgentEnv, PPOConfig, RLModule


class Chase(MultiAgentEnv):
    """A line of eleven fields; the hunter is paid for catching the hare, and the hare pays."""

    def __init__(self, _: Any = None) -> None:
        self.possible_agents = ["hare", "hunter"]
        self.observation_space = Box(-1.0, 1.0, (2,), np.float32)  # one for all
        self.action_spaces = {"hare": Discrete(3), "hunter": Discrete(3)}
        self.places, self.steps = {"hare": 0, "hunter": 0}, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self.places = {"hare": int(self.np_random.integers(0, 6)), "hunter": -5}
        self.steps = 0
        return self.seen(), {}

    def step(self, actions: Any) -> Any:
        self.steps += 1
        for agent, action in actions.items():
            # The hunter is twice as fast.
            stride = (int(action) - 1) * (2 if agent == "hunter" else 1)
            self.places[agent] = int(np.clip(self.places[agent] + stride, -5, 5))
        is_caught = abs(self.places["hare"] - self.places["hunter"]) <= 1
        rewards = {"hare": 0.05, "hunter": -0.05}  # for every step that the hare lives
        if is_caught:
            rewards = {"hare": -1.0, "hunter": 1.0}
        is_late = self.steps >= 20
        return self.seen(), rewards, {"__all__": is_caught}, {"__all__": is_late}, {}

    def seen(self) -> dict[str, np.ndarray]:
        here = np.array([self.places["hare"], self.places["hunter"]], np.float32) / 5.0
        return dict.fromkeys(self.places, here)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--num-env-runners", type=int, default=2)
    parser.add_argument("--checkpoint", default="runs/chase")
    arguments = parser.parse_args()
    config = (
        PPOConfig()
        .environment(Chase)
        .env_runners(num_env_runners=arguments.num_env_runners, num_envs_per_env_runner=4)
        .multi_agent(
            policies={"runs", "hunts"}, policy_mapping_fn={"hare": "runs", "hunter": "hunts"}
        )
        .training(train_batch_size=800, minibatch_size=200, num_epochs=6, lr=3e-3)
        .training(model={"fcnet_hiddens": [32]})
        .debugging(seed=0)
    )
    with config.build_algo() as algo:
        for _ in range(arguments.iterations):
            result = algo.train()
            by_module = result["env_runners/module_episode_return_mean"]
            print({module: round(mean, 2) for module, mean in by_module.items()})
        path = algo.save_to_path(arguments.checkpoint)
    hunter = RLModule.from_checkpoint(f"{path}/learner/hunts/rl_module")
    scores = hunter.forward_acting(np.array([[0.6, -0.6]], np.float32))
    print("hare to the right: the hunter goes", ["left", "nowhere", "right"][scores.argmax()])


if __name__ == "__main__":
    main()
