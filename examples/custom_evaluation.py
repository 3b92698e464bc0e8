"""An evaluation of your own: trained in a corridor of 10 places, evaluated in corridors of 4 and 7.

    python examples/custom_evaluation.py
    python examples/custom_evaluation.py --no-custom-eval   # plays 10 episodes as configured

What the function returns stands under `evaluation` of the result.
"""

import argparse
from typing import Any

import gymnasium
import numpy as np

from trainer import PGConfig, collect_episodes, summarize_episodes

LENGTHS = (4, 7)


class SimpleCorridor(gymnasium.Env[np.ndarray, Any]):
    """Walk to the right end, which pays 1; 30 steps are enough."""

    def __init__(self, env_config: dict[str, Any]) -> None:
        self.set_corridor_length(env_config["corridor_length"])
        self.observation_space = gymnasium.spaces.Box(0.0, 999.0, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def set_corridor_length(self, length: int) -> None:
        self.length = length

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.place = self.num_steps = 0
        return np.array([self.place], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.num_steps += 1
        self.place = max(0, self.place + (1 if action == 1 else -1))
        has_arrived = self.place >= self.length
        is_too_late = self.num_steps == 30 and not has_arrived
        obs = np.array([self.place], np.float32)
        return obs, float(has_arrived), has_arrived, is_too_late, {}


def custom_eval_function(_algorithm: Any, eval_workers: Any) -> dict[str, Any]:
    """Plays in corridors of both lengths; the runners have the newest weights."""

    def set_length(number: int, worker: Any) -> int:
        length = LENGTHS[(number - 1) % len(LENGTHS)]
        worker.foreach_env(lambda env: env.set_corridor_length(length))
        return length

    for length in eval_workers.foreach_env_runner_with_id(set_length):
        print("Update corridor length to", length)
    for number in range(1, 5):
        print("Custom evaluation round", number)
        eval_workers.foreach_worker(lambda worker: len(worker.sample(num_episodes=5)))
    metrics = summarize_episodes(collect_episodes(workers=eval_workers))
    metrics["foo"] = 1  # any metric at all
    return metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--num-env-runners", type=int, default=1)
    parser.add_argument("--no-custom-eval", action="store_true")
    given = parser.parse_args()
    config = (
        PGConfig()
        .environment(SimpleCorridor, env_config={"corridor_length": 10})
        .env_runners(num_env_runners=given.num_env_runners)
        .training(train_batch_size=500, lr=0.01, model={"fcnet_hiddens": [16]})
        .evaluation(evaluation_interval=1, evaluation_num_env_runners=len(LENGTHS))
        .debugging(seed=0)
    )
    if not given.no_custom_eval:
        config.evaluation(custom_evaluation_function=custom_eval_function)
    with config.build_algo() as algo:
        for _ in range(given.iterations):
            evaluation = algo.train()["evaluation"]
            print({name: value for name, value in evaluation.items() if np.isscalar(value)})


if __name__ == "__main__":
    main()
