"""Stop it as you like, by Ctrl-C or `kill -9`, and start it again: it goes on with the same bytes.

    python examples/resume_and_evaluate.py --iterations 10
    python examples/resume_and_evaluate.py --iterations 20   # goes on at iteration 11

At the end the newest checkpoint is evaluated, as any other program could do it.
"""

import argparse

from checkpoints import latest_checkpoint
from trainer import PPO, PeriodicCheckpoint, PPOConfig


def trained(directory: str, *, iterations: int, num_env_runners: int) -> None:
    """Goes on from the newest checkpoint, or begins."""
    saving = PeriodicCheckpoint(directory, every=2, keep_last=3)
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=num_env_runners)
        .training(train_batch_size=1000, minibatch_size=100, num_epochs=5, lr=1e-3)
        .training(model={"fcnet_hiddens": [32]})
        .callbacks(saving)
        .debugging(seed=0)
    )
    newest = latest_checkpoint(directory)
    if newest is None:
        algo = config.build_algo()
    else:
        algo = PPO.from_checkpoint(newest, config=config)
        print("goes on from", newest)
    with algo:
        while algo.training_iteration < iterations:
            result = algo.train()
            print(
                f"iteration {result['training_iteration']}:",
                f"return {result['env_runners/episode_return_mean']:.1f}",
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--num-env-runners", type=int, default=2)
    parser.add_argument("--directory", default="runs/resume")
    given = parser.parse_args()
    trained(given.directory, iterations=given.iterations, num_env_runners=given.num_env_runners)
    newest = latest_checkpoint(given.directory)
    if newest is None:
        raise SystemExit("Nothing was saved: --iterations is less than the distance of saves.")
    with PPO.from_checkpoint(newest, callbacks=PeriodicCheckpoint(given.directory)) as algo:
        metrics = algo.evaluate()
        print(
            f"{newest.name}, evaluated on {metrics['env_runners/num_episodes']} episodes:",
            f"return {metrics['env_runners/episode_return_mean']}",
        )


if __name__ == "__main__":
    main()
