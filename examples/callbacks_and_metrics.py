"""Metrics of your own, from an env's state: Acrobot's angle, and an image of where it has been.

    python examples/callbacks_and_metrics.py --tensorboard   # pip install tensorboardX tensorboard
    tensorboard --logdir logs/acrobot

The angle is a number per episode. The image is made anew in every iteration: the runners count
visits, the main process adds them up and draws. All of it is in the result, in files with a line
per result, and, as curves and images, in TensorBoard.
"""

import argparse
from typing import Any

import numpy as np

from trainer import CSVLogger, JSONLinesLogger, PPOConfig, RLlibCallback, TensorBoardLogger

NUM_BINS = 24
"""Angles are counted in so many bins of 15 degrees."""


class AcrobotAngle(RLlibCallback):
    """Logs how far the upper link is from hanging down, in degrees; a mean over each episode."""

    def on_episode_step(self, *, episode: Any, env: Any, env_index: int, **_: Any) -> None:
        angle = env.envs[env_index].unwrapped.state[0]
        episode.add_temporary_timestep_data("theta1", np.degrees(abs(angle)))

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **_: Any) -> None:
        angles = episode.get_temporary_timestep_data("theta1")
        metrics_logger.log_value("theta1_mean", np.mean(angles), window=50)


class VisitMap(RLlibCallback):
    """Logs an image of the angles of both links: the brighter, the more often visited."""

    def on_sample_end(self, *, samples: Any, metrics_logger: Any, **_: Any) -> None:
        obs = np.concatenate([episode.get_observations() for episode in samples])
        # cos and sin of the upper link's angle, then of the lower one's
        angles = np.arctan2(obs[:, [1, 3]], obs[:, [0, 2]])
        bounds = [(-np.pi, np.pi)] * 2
        visits, _bounds = np.histogramdd(angles, bins=NUM_BINS, range=bounds)
        metrics_logger.log_value("visits", visits, reduce=None)  # a list: one array per sample

    def on_train_result(self, *, result: Any, metrics_logger: Any, **_: Any) -> None:
        visits = np.sum(result["env_runners"]["visits"], axis=0)
        brightness = np.log1p(visits) / np.log1p(visits.max())
        image = (255 * brightness).astype(np.uint8)  # [height, width]: TensorBoard shows an image
        metrics_logger.log_value("visit_map", image, reduce=None)
        metrics_logger.log_value("share_of_angles_visited", np.mean(visits > 0), window=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--num-env-runners", type=int, default=2)
    parser.add_argument("--train-batch-size", type=int, default=4000)
    parser.add_argument("--logs", default="logs/acrobot")
    parser.add_argument("--tensorboard", action="store_true")
    given = parser.parse_args()

    callbacks = [
        AcrobotAngle,
        VisitMap,
        JSONLinesLogger(f"{given.logs}/results.jsonl"),
        CSVLogger(f"{given.logs}/results.csv"),
    ]
    if given.tensorboard:
        callbacks.append(TensorBoardLogger(given.logs))
    config = (
        PPOConfig()
        .environment("Acrobot-v1")
        .env_runners(num_env_runners=given.num_env_runners)
        .training(train_batch_size=given.train_batch_size, minibatch_size=200, num_epochs=4)
        .training(model={"fcnet_hiddens": [32]})
        .callbacks(callbacks)
        .debugging(seed=0)
    )
    with config.build_algo() as algo:
        for _ in range(given.iterations):
            result = algo.train()
            print(
                f"iteration {result['training_iteration']}:",
                f"mean angle {result['env_runners'].get('theta1_mean', np.nan):.1f}°,",
                f"{result['share_of_angles_visited']:.0%} of all pairs of angles visited,",
                "seen in an image of the shape", result["visit_map"][0].shape,
            )  # fmt: skip


if __name__ == "__main__":
    main()
