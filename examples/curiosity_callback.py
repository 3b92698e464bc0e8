"""A curiosity bonus: what a model of the callback's own cannot predict yet is worth a visit.

    python examples/curiosity_callback.py
    python examples/curiosity_callback.py --scale 0   # without: the reward is not found

The model learns to predict fixed random features of what is seen (random network distillation,
Burda et al. 2018); its error is the bonus. Each runner trains its own, which is saved and restored
with the algorithm. (`Curiosity` and `RE3` train one in the main process: docs/exploration.md.)
"""

import argparse
from typing import Any

import gymnasium
import numpy as np

from trainer import PPOConfig, RLlibCallback

NUM_DOORS, NUM_KEYS = 10, 3
SHOWN = ("doors_opened", "largest_bonus", "episode_return_mean")


class Doors(gymnasium.Env[np.ndarray, Any]):
    """One key opens each door; a wrong one ends the episode, and only the last door pays."""

    def __init__(self, _: Any = None) -> None:
        self.keys = np.random.default_rng(0).integers(0, NUM_KEYS, NUM_DOORS)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (NUM_DOORS + 1,))
        self.action_space = gymnasium.spaces.Discrete(NUM_KEYS)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self.num_open = 0
        return self._observation(), {}

    def step(self, action: int) -> Any:
        is_right = bool(action == self.keys[self.num_open])
        self.num_open += is_right
        paid = float(self.num_open == NUM_DOORS)
        return self._observation(), paid, bool(paid) or not is_right, False, {}

    def _observation(self) -> Any:
        return np.eye(NUM_DOORS + 1, dtype=np.float32)[self.num_open]


class CuriosityBonus(RLlibCallback):
    learning_rate, num_updates = 0.3, 20

    def __init__(self, scale: float) -> None:
        self.scale = scale
        draw = np.random.default_rng(0).standard_normal
        self.features = draw((NUM_DOORS + 1, 8))  # fixed
        self.hidden, self.output = draw((NUM_DOORS + 1, 32)), np.zeros((32, 8))  # the model

    def on_sample_end(self, samples: Any, env_runner: Any, metrics_logger: Any, **_: Any) -> None:
        if env_runner.config.in_evaluation:
            return
        seen = np.concatenate([episode.get_observations()[1:] for episode in samples]).astype(float)
        bonus = self.scale * np.square(self._errors(seen)[1]).mean(axis=1)  # [steps]
        ends = np.cumsum([len(episode) for episode in samples])
        for episode, own_bonus in zip(samples, np.split(bonus, ends[:-1]), strict=True):
            # The loss sees it; the reported returns stay what the env paid.
            episode.set_rewards(new_data=episode.get_rewards() + own_bonus)
        news = {"doors_opened": seen.argmax(axis=1).max(), "largest_bonus": bonus.max()}
        metrics_logger.log_dict(news, reduce="max", clear_on_reduce=True)
        for _update in range(self.num_updates):  # down the gradient of the mean squared error
            tanh, errors = self._errors(seen)
            d_tanh = errors @ self.output.T
            self.output -= self.learning_rate / len(seen) * tanh.T @ errors
            self.hidden -= self.learning_rate / len(seen) * seen.T @ (d_tanh * (1.0 - tanh**2))

    def _errors(self, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        tanh = np.tanh(seen @ self.hidden)
        return tanh, tanh @ self.output - seen @ self.features


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--num-env-runners", type=int, default=2)
    parser.add_argument("--scale", type=float, default=0.1)
    given = parser.parse_args()
    config = (
        PPOConfig()
        .environment(Doors)
        .env_runners(num_env_runners=given.num_env_runners)
        .training(train_batch_size=1000, minibatch_size=100, num_epochs=5, lr=3e-3)
        .training(model={"fcnet_hiddens": [16]})
        .callbacks(CuriosityBonus(given.scale))
        .debugging(seed=0)
    )
    with config.build_algo() as algo:
        for _ in range(given.iterations):
            found = algo.train()["env_runners"]
            print(*(f"{name} {found[name]:.3g}" for name in SHOWN), sep=", ")


if __name__ == "__main__":
    main()
