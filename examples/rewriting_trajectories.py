"""Rewards that come late are written where they were earned, before anything is learnt from them.

    python examples/rewriting_trajectories.py

The env pays for a whole episode at its end, and only `infos` say which step earned how much. The
callback backdates the rewards. What is reported as return stays what the env paid.
"""

import argparse
from typing import Any

import gymnasium
import numpy as np

from trainer import PPOConfig, RLlibCallback


class LatePay(gymnasium.Env[np.ndarray, Any]):
    """Repeat the bit that is shown: each right answer earns 1, which is paid in the last step."""

    NUM_STEPS = 25

    def __init__(self, _: Any = None) -> None:
        self.observation_space = gymnasium.spaces.MultiBinary(1)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.earned: list[float] = []
        return self._show_next_bit(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.earned.append(float(action == self.bit[0]))
        is_over = len(self.earned) == self.NUM_STEPS
        reward = sum(self.earned) if is_over else 0.0
        infos = {"earned": self.earned} if is_over else {}
        return self._show_next_bit(), reward, is_over, False, infos

    def _show_next_bit(self) -> np.ndarray:
        self.bit = self.np_random.integers(0, 2, 1, dtype=np.int8)
        return self.bit


class BackdatedRewards(RLlibCallback):
    def on_postprocess_trajectory(self, *, postprocessed_batch: Any, **_: Any) -> None:
        earned = postprocessed_batch["infos"][-1].get("earned")
        if earned is not None:
            postprocessed_batch["rewards"] = np.array(earned)  # advantages are computed anew


def train(callbacks: Any, *, iterations: int, num_env_runners: int) -> dict[str, Any]:
    config = (
        PPOConfig()
        .environment(LatePay)
        # Whole episodes: an earlier chunk of an episode has been learnt from already.
        .env_runners(num_env_runners=num_env_runners, batch_mode="complete_episodes")
        .training(train_batch_size=500, minibatch_size=50, num_epochs=5, lr=3e-3, gamma=0.9)
        .training(model={"fcnet_hiddens": [16]})
        .callbacks(callbacks)
        .debugging(seed=0)
    )
    with config.build_algo() as algo:
        results = [algo.train() for _ in range(iterations)]
    runners: dict[str, Any] = results[-1]["env_runners"]
    return runners


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--num-env-runners", type=int, default=2)
    given = parser.parse_args()
    for name, callbacks in (("as the env pays", []), ("backdated", [BackdatedRewards])):
        runners = train(callbacks, **vars(given))
        last = np.mean(runners["hist_stats"]["episode_reward"])
        print(f"rewards {name}: return {last:.1f} of {LatePay.NUM_STEPS}")
    # Rewards were moved, and none was added:
    print(
        "rewritten return", runners["rewritten_return_mean"], "of", runners["episode_return_mean"]
    )


if __name__ == "__main__":
    main()
