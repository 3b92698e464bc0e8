"""Do DQN and SAC keep what they have found: the RL Zoo's settings, many seeds.

    python -m benchmarks.steadiness run WHO SEED …    a line of JSON per seed
    python -m benchmarks.steadiness table FILE …      the table that these lines make

WHO is `dqn` or `sac`, alone or with how first weights are drawn (`dqn:orthogonal`, `sac:uniform`),
or `dqn:sb3` or `sac:sb3`. All of a task are evaluated alike: now and then 20 episodes without
exploration, first seeds 10,000 and up. What counts is the share of evaluations in the second half
that are good.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np

from benchmarks.tasks import sac_pendulum
from trainer import AlgorithmConfig, DQNConfig
from trainer.types import Array

NUM_EPISODES: Final = 20

Act = Callable[[Array], Array]
"""Actions for observations, [N, d] → [N] or [N, k]."""


@dataclass(frozen=True)
class Task:
    """What is learnt.

    Attributes:
        env: a name of gymnasium's.
        num_steps: env steps of a run.
        steps_between: env steps from one evaluation to the next.
        good_return: a mean return that counts as good.
        config: ours, by how first weights are drawn; None leaves it at the default.
        theirs: Stable-Baselines3's model, by seed.
        acting: the rows that our module computes from observations turned into actions.
    """

    env: str
    num_steps: int
    steps_between: int
    good_return: float
    config: Callable[[str | None], AlgorithmConfig]
    theirs: Callable[[int], Any]
    acting: Callable[[Array], Array]


def dqn_config(initializer: str | None) -> DQNConfig:
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
        .reporting(min_sample_timesteps_per_iteration=2_048)
    )


def sac_config(initializer: str | None) -> AlgorithmConfig:
    """The RL Zoo's settings for Pendulum-v1."""
    config = sac_pendulum()
    return config if initializer is None else config.training(model={"initializer": initializer})


def sb3_dqn(seed: int) -> Any:
    """The same of Stable-Baselines3."""
    from stable_baselines3 import DQN

    return DQN(
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


def sb3_sac(seed: int) -> Any:
    """The same of Stable-Baselines3, whose defaults are the Zoo's but for the learning rate."""
    from stable_baselines3 import SAC

    return SAC(
        "MlpPolicy", gymnasium.make("Pendulum-v1"), learning_rate=1e-3, seed=seed, device="cpu"
    )


def best_values(values: Array) -> Array:
    """Actions of the highest values, [N, n] → [N]."""
    best: Array = values.argmax(axis=1)
    return best


def torques(inputs: Array) -> Array:
    """Pendulum's torques from means and log deviations of a squashed Gaussian, [N, 2] → [N, 1]."""
    torque: Array = 2.0 * np.tanh(inputs[:, :1])
    return torque


TASKS: Final = {
    "dqn": Task("CartPole-v1", 49_152, 2_048, 450.0, dqn_config, sb3_dqn, best_values),
    "sac": Task("Pendulum-v1", 6_144, 512, -200.0, sac_config, sb3_sac, torques),
}


def mean_return(task: Task, act: Act) -> float:
    """The mean return of 20 episodes, played side by side."""
    envs = [gymnasium.make(task.env) for _ in range(NUM_EPISODES)]
    rows = [env.reset(seed=10_000 + number)[0] for number, env in enumerate(envs)]
    running, returns = list(range(NUM_EPISODES)), [0.0] * NUM_EPISODES
    while running:
        actions = act(np.stack([rows[number] for number in running]))
        for number, action in zip(tuple(running), actions, strict=True):
            rows[number], reward, is_over, is_cut, _ = envs[number].step(action)
            returns[number] += float(reward)
            if is_over or is_cut:
                running.remove(number)
    return statistics.mean(returns)


def ours(task: Task, seed: int, initializer: str | None) -> Iterator[float]:
    """The mean returns of all evaluations of ours."""
    config = task.config(initializer).debugging(seed=seed)
    config.reporting(min_sample_timesteps_per_iteration=task.steps_between)
    with config.build_algo() as algo:
        module = algo.get_module()
        while algo.counters.num_env_steps_sampled < task.num_steps:
            algo.train()
            yield mean_return(task, lambda rows: task.acting(module.forward_acting(rows)))


def sb3s(task: Task, seed: int) -> list[float]:
    """Those of Stable-Baselines3's."""
    import torch

    torch.set_num_threads(1)
    model = task.theirs(seed)
    found = []

    class Evaluate:
        """Called after every env step; an evaluation comes after the round it falls in."""

        due = task.steps_between

        def __call__(self, *_: object) -> bool:
            # One step late: the round that ends with the due step has been learnt from by then.
            if model.num_timesteps > self.due:
                self.due += task.steps_between
                found.append(
                    mean_return(task, lambda rows: model.predict(rows, deterministic=True)[0])
                )
            return True

    model.learn(task.num_steps + 1, callback=Evaluate())
    return found


def run(who: str, seeds: list[int]) -> None:
    """Prints a line of JSON per seed."""
    name, _, which = who.partition(":")
    task = TASKS[name]
    for seed in seeds:
        returns = sb3s(task, seed) if which == "sb3" else list(ours(task, seed, which or None))
        print(json.dumps({"who": who, "seed": seed, "returns": returns}), flush=True)


def share_of(task: Task, returns: list[float]) -> float:
    """The share of evaluations in the second half that are good."""
    second = returns[len(returns) // 2 :]
    return sum(each >= task.good_return for each in second) / len(second)


def table(paths: list[str]) -> None:
    """Prints the shares by trainer."""
    lines = [line for path in paths for line in Path(path).read_text("utf-8").splitlines()]
    by_who: dict[str, list[tuple[int, list[float]]]] = defaultdict(list)
    for row in (json.loads(line) for line in lines if line.startswith("{")):
        by_who[row["who"]].append((row["seed"], row["returns"]))
    for who, runs in sorted(by_who.items()):
        task = TASKS[who.partition(":")[0]]
        shares = [share_of(task, returns) for _, returns in sorted(runs)]
        # Of the mean over seeds, which are independent; evaluations of one seed are not.
        error = statistics.stdev(shares) / len(shares) ** 0.5 if len(shares) > 1 else float("nan")
        finals = statistics.median(returns[-1] for _, returns in runs)
        each = " ".join(f"{share:.2f}" for share in shares)
        print(
            f"{who:<15}{statistics.mean(shares):.2f} ± {error:.2f} of evaluations "
            f"≥ {task.good_return:.0f} in the second half, {len(shares)} seeds (each: {each}); "
            f"last evaluation, median {finals:.0f}"
        )


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2], [int(word) for word in sys.argv[3:]])
    else:
        table(sys.argv[2:])
