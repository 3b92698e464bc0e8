"""The shortest whole program: train PPO on CartPole, evaluate what was learnt, save it.

python examples/quickstart.py --iterations 10 --num-env-runners 2
"""

import argparse

from trainer import PPOConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--num-env-runners", type=int, default=2)
    parser.add_argument("--checkpoint", default="runs/quickstart")
    given = parser.parse_args()

    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=given.num_env_runners, num_envs_per_env_runner=4)
        .training(train_batch_size=2048, minibatch_size=64, num_epochs=10, lr=3e-4)
        .training(model={"fcnet_hiddens": [64, 64]})
        .evaluation(evaluation_duration=5, evaluation_config={"explore": False})
        .debugging(seed=0)
    )
    with config.build_algo() as algo:
        for _ in range(given.iterations):
            result = algo.train()
            print(
                f"iteration {result['training_iteration']}:",
                f"{result['num_env_steps_sampled_lifetime']} steps,",
                f"return {result['env_runners/episode_return_mean']:.1f}",
            )
        evaluation = algo.evaluate()
        print("evaluation: return", evaluation["env_runners/episode_return_mean"])
        print("saved as", algo.save_to_path(given.checkpoint))


if __name__ == "__main__":
    main()
