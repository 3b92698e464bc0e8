"""Does DQN keep what it has found: CartPole-v1 with the RL Zoo's settings, many seeds.

    python -m benchmarks.dqn_steadiness run WHO SEED …    a line of JSON per seed
    python -m benchmarks.dqn_steadiness table FILE …      the table that these lines make

WHO is `default`, `orthogonal` or `uniform` (our DQN, by how first weights are drawn), or `sb3`. All
are evaluated alike: every 2,048 env steps, 20 episodes without exploration, first seeds 10,000 and
up. What counts is the share of evaluations in the second half of the 50,000 steps that reach 450.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np

from trainer import DQNConfig
from trainer.types import Array

NUM_STEPS = 49_152
STEPS_BETWEEN = 2_048
NUM_EPISODES = 20
GOOD_RETURN = 450.0

Act = Callable[[Array], Array]
"""Actions for observations, [N, 4] → [N]."""


def zoo_config(initializer: str | None) -> DQNConfig:
    """The RL Zoo's settings for CartPole-v1 (`hyperparams/dqn.yml`).

    What they leave open is Stable-Baselines3's default. It updates the target network every 10 env
    steps, all of them made between two rounds of updates: that is once per round.
    """
    model = {"fcnet_hiddens": [256, 256], "fcnet_activation": "relu"}
    return (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(rollout_fragment_length=256)
        .training(
            lr=2.3e-3,
            train_batch_size=64,
            training_intensity=32,
            grad_clip=10.0,
            double_q=False,
            dueling=False,
            num_steps_sampled_before_learning_starts=1000,
            target_network_update_freq=256,
            epsilon=[[0, 1.0], [8000, 0.04]],
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 100_000},
            model=model if initializer is None else {**model, "initializer": initializer},
        )
        .reporting(min_sample_timesteps_per_iteration=STEPS_BETWEEN)
    )


def mean_return(act: Act) -> float:
    """The mean return of 20 episodes, played side by side."""
    envs = [gymnasium.make("CartPole-v1") for _ in range(NUM_EPISODES)]
    rows = [env.reset(seed=10_000 + number)[0] for number, env in enumerate(envs)]
    running, returns = list(range(NUM_EPISODES)), [0.0] * NUM_EPISODES
    while running:
        actions = act(np.stack([rows[number] for number in running]))
        for number, action in zip(tuple(running), actions, strict=True):
            rows[number], reward, is_over, is_cut, _ = envs[number].step(int(action))
            returns[number] += float(reward)
            if is_over or is_cut:
                running.remove(number)
    return statistics.mean(returns)


def ours(seed: int, initializer: str | None) -> list[float]:
    """The mean returns of all evaluations of our DQN."""
    found = []
    with zoo_config(initializer).debugging(seed=seed).build_algo() as algo:
        module = algo.get_module()
        while algo.counters.num_env_steps_sampled < NUM_STEPS:
            algo.train()
            found.append(mean_return(lambda rows: module.forward_acting(rows).argmax(axis=1)))
    return found


def sb3s(seed: int) -> list[float]:
    """Those of Stable-Baselines3's."""
    import torch
    from stable_baselines3 import DQN

    torch.set_num_threads(1)
    model = DQN(
        "MlpPolicy",
        gymnasium.make("CartPole-v1"),
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1000,
        gamma=0.99,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=0.16,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]},
        seed=seed,
        device="cpu",
    )
    found = []

    class Evaluate:
        """Called after every env step; the first evaluation comes after the round it falls in."""

        due = STEPS_BETWEEN

        def __call__(self, *_: object) -> bool:
            # One step late: the round that ends with the due step has been learnt from by then.
            if model.num_timesteps > self.due:
                self.due += STEPS_BETWEEN
                found.append(mean_return(lambda rows: model.predict(rows, deterministic=True)[0]))
            return True

    model.learn(NUM_STEPS + 1, callback=Evaluate())
    return found


def run(who: str, seeds: list[int]) -> None:
    """Prints a line of JSON per seed."""
    for seed in seeds:
        initializer = None if who == "default" else who
        returns = sb3s(seed) if who == "sb3" else ours(seed, initializer)
        print(json.dumps({"who": who, "seed": seed, "returns": returns}), flush=True)


def share_of(returns: list[float]) -> float:
    """The share of evaluations in the second half that are good."""
    second = returns[len(returns) // 2 :]
    return sum(each >= GOOD_RETURN for each in second) / len(second)


def table(paths: list[str]) -> None:
    """Prints the shares by trainer."""
    lines = [line for path in paths for line in Path(path).read_text("utf-8").splitlines()]
    by_who: dict[str, list[tuple[int, list[float]]]] = defaultdict(list)
    for row in (json.loads(line) for line in lines if line.startswith("{")):
        by_who[row["who"]].append((row["seed"], row["returns"]))
    for who, runs in sorted(by_who.items()):
        shares = [share_of(returns) for _, returns in sorted(runs)]
        # Of the mean over seeds, which are independent; evaluations of one seed are not.
        error = statistics.stdev(shares) / len(shares) ** 0.5 if len(shares) > 1 else float("nan")
        finals = statistics.median(returns[-1] for _, returns in runs)
        each = " ".join(f"{share:.2f}" for share in shares)
        print(
            f"{who:<12}{statistics.mean(shares):.2f} ± {error:.2f} of evaluations ≥ 450 in the "
            f"second half, {len(shares)} seeds (each: {each}); last evaluation, median {finals:.0f}"
        )


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2], [int(word) for word in sys.argv[3:]])
    else:
        table(sys.argv[2:])
