"""Imitates a player who is half trained, and then only what paid in its episodes.

    python examples/learn_from_recordings.py
    python examples/learn_from_recordings.py --updates 400

PPO plays CartPole and records some episodes on its way; BC learns what it did, MARWIL what paid.
"""

import argparse

from trainer import BCConfig, EpisodeRecorder, MARWILConfig, PPOConfig


def record(folder: str, num_env_runners: int) -> float:
    """Trains PPO a little, and records an evaluation; gives the return of what is recorded."""
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=num_env_runners, num_envs_per_env_runner=4)
        .training(lr=1e-3, train_batch_size=1024, minibatch_size=128, num_epochs=6)
        .evaluation(evaluation_duration=100, evaluation_seed=0)
        .callbacks([EpisodeRecorder(folder, evaluation=True)])
        .debugging(seed=0)
    )
    with config.build_algo() as algo:
        for _ in range(4):
            algo.train()
        return float(algo.evaluate()["env_runners/episode_return_mean"])


def learnt(config: MARWILConfig, folder: str, num_updates: int) -> float:
    """The return after so many updates from recordings."""
    (
        config.environment("CartPole-v1")
        .offline_data(input_=folder)
        .training(lr=1e-3, train_batch_size=2000, minibatch_size=256)
        .training(model={"fcnet_hiddens": [64, 64]})
        .evaluation(evaluation_duration=50, evaluation_seed=1)
        .debugging(seed=0)
    )
    with config.build_algo() as algo:
        for _ in range(num_updates):
            algo.train()
        return float(algo.evaluate()["env_runners/episode_return_mean"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--num-env-runners", type=int, default=0)
    arguments = parser.parse_args()
    print(f"recorded: return {record('half-trained', arguments.num_env_runners):.1f}")
    for name, config in (("BC", BCConfig()), ("MARWIL", MARWILConfig())):
        mean = learnt(config, "half-trained", arguments.updates)
        print(f"{name}: return {mean:.1f}")


if __name__ == "__main__":
    main()
