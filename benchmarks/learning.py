"""Time and env steps until CartPole-v1 is solved, against peers in the same run.

All have the same hyper-parameters: 2048 steps per iteration from 8 envs, minibatches of 64, 10
epochs, 64×64 tanh, lr 3e-4, clip 0.2. Solved is a mean return of at least 450 over the last 100
episodes. Times are from building the algorithm on; imports are not counted.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable

from benchmarks.figures import Figure, ratio, report
from benchmarks.peers import SAME_PPO, Solved, rllib_solves, sb3_solves
from trainer import PPOConfig

SEEDS = (0, 1, 2)
MAX_STEPS = 200_000


def ppo_speed_config(num_env_runners: int = 0) -> PPOConfig:
    """The settings of this comparison, but the seed."""
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=num_env_runners, num_envs_per_env_runner=8 // max(1, num_env_runners)
        )
        .training(
            **SAME_PPO,
            gamma=0.99,
            model={"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh"},
        )
    )


def ppo_tuned_config() -> PPOConfig:
    """The best of two dozen settings tried for this task, on seeds that no comparison uses.

    What takes time is the number of minibatches: fewer and larger ones, and a higher learning rate.
    """
    config = ppo_speed_config(0)
    return config.training(minibatch_size=256, num_epochs=5, lr=3e-3)


def run(config: PPOConfig) -> Solved:
    """One run of ours."""
    started_at = time.perf_counter()
    with config.build_algo() as algo:
        result = algo.train()
        while (
            not result["env_runners"]["episode_return_mean"] >= 450
            and result["num_env_steps_sampled_lifetime"] < MAX_STEPS
        ):
            result = algo.train()
        seconds = time.perf_counter() - started_at
    mean = result["env_runners"]["episode_return_mean"]
    return Solved(seconds, result["num_env_steps_sampled_lifetime"], mean)


def main() -> None:
    """Prints seconds and steps for us and every peer that is installed, and the ratios."""
    print(f"learning: CartPole-v1 to a mean return of 450, seeds {SEEDS}")
    peers: dict[str, Callable[[int], Solved]] = {}
    if importlib.util.find_spec("stable_baselines3"):
        peers["Stable-Baselines3"] = sb3_solves
    if importlib.util.find_spec("ray"):
        peers["RLlib"] = rllib_solves
    runs: dict[str, list[Solved]] = {}
    for seed in SEEDS:
        for num_env_runners in (2, 0):
            name = f"local-trainer, {num_env_runners} env runners"
            solved = run(ppo_speed_config(num_env_runners).debugging(seed=seed))
            runs.setdefault(name, []).append(solved)
        for name, solve in peers.items():
            runs.setdefault(name, []).append(solve(seed))
    seconds = {name: Figure([run.seconds for run in all_], "s") for name, all_ in runs.items()}
    for name, all_ in runs.items():
        target = "each ≤ 120,000" if name.startswith("local") else ""
        report(f"{name}: time", seconds[name])
        report(
            f"{name}: env steps", Figure([run.env_steps for run in all_], "steps"), target=target
        )
        report(f"{name}: mean return at the end", Figure([run.mean_return for run in all_], ""))
    for peer in peers:
        target = "≤ 0.15" if peer.startswith("Stable") else ""
        for ours in (name for name in runs if name.startswith("local")):
            report(f"{ours} / {peer}", ratio(seconds[ours], seconds[peer]), target=target)
    if not peers:
        print(
            "  no peer is installed: pip install 'local-trainer[bench]' measures them "
            "in the same run"
        )
