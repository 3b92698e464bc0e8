"""Time and env steps until CartPole without velocities is solved, by networks with memory.

    python -m benchmarks memory          # three seeds
    python -m benchmarks memory:1        # one

Solved is a mean return of at least 450 over the last 100 episodes, within 300,000 env steps;
without memory, returns stay below 200. All have 8 envs in the main process, one layer of 64 units
and a memory of 64, apart for policy and value function. sb3-contrib's `RecurrentPPO` has the
hyper-parameters that RL Baselines3 Zoo tuned for this task; RLlib has ours, as far as it knows
them. Peers are measured if they are installed. Times are from building the algorithm on; where
other work keeps the machine busy, the processor time is what can be compared.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from benchmarks.figures import Figure, report
from benchmarks.peers import Solved, rllib_lstm_solves, sb3_recurrent_solves
from trainer import PPOConfig
from trainer.testing.envs import StatelessCartPole

NUM_SEEDS: Final = 3
MOST_ENV_STEPS: Final = 300_000


MEMORIES: Final[Mapping[str, Mapping[str, Any]]] = {
    kind: {"fcnet_hiddens": [64], kind: True, "lstm_cell_size": 64, "max_seq_len": 32}
    for kind in ("use_gru", "use_lstm")
}
"""Networks with memory."""


def cart_pole_config(model_config: Mapping[str, Any], seed: int) -> PPOConfig:
    """CartPole without its velocities, learnt by us."""
    config = (
        PPOConfig()
        .environment(StatelessCartPole)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size=1024, minibatch_size=256, num_epochs=10)
        .training(gamma=0.98, lambda_=0.9, lr=[[0, 1e-3], [MOST_ENV_STEPS, 1e-5]])
        .training(clip_param=0.2, use_kl_loss=False, vf_clip_param=None, grad_clip=0.5)
        .rl_module(model_config=dict(model_config))
        .debugging(seed=seed)
    )
    return config.update_from_dict(
        {"observation_filter": "MeanStdFilter", "normalize_rewards": True}
    )


def solves(seed: int, *, kind: str) -> Solved:
    """One run of ours."""
    started_at = time.perf_counter()
    steps, mean = 0, 0.0
    with cart_pole_config(MEMORIES[kind], seed).build_algo() as algo:
        while not mean >= 450 and steps < MOST_ENV_STEPS:
            result = algo.train()
            mean = result["env_runners"].get("episode_return_mean", 0.0)
            steps = result["num_env_steps_sampled_lifetime"]
        seconds = time.perf_counter() - started_at
    return Solved(seconds, steps, mean)


def main(num_seeds: int = NUM_SEEDS) -> None:
    """Prints env steps and seconds, for us and every peer that is installed.

    Args:
        num_seeds: how many seeds each is measured with, from 0 on.
    """
    seeds = range(num_seeds)
    print(f"memory: CartPole without velocities to a mean return of 450, {num_seeds} seeds")
    runs: dict[str, Callable[[int], Solved]] = {
        "local-trainer, LSTM": partial(solves, kind="use_lstm"),
        "local-trainer, GRU": partial(solves, kind="use_gru"),
    }
    if importlib.util.find_spec("sb3_contrib"):
        runs["sb3-contrib, RecurrentPPO"] = partial(
            sb3_recurrent_solves, most_env_steps=MOST_ENV_STEPS
        )
    if importlib.util.find_spec("ray"):
        runs["RLlib, LSTM"] = partial(rllib_lstm_solves, most_env_steps=MOST_ENV_STEPS)
    for name, solve in runs.items():
        solved, processor_s = [], []
        for seed in seeds:
            started_at_s = time.process_time()
            solved.append(solve(seed))
            processor_s.append(time.process_time() - started_at_s)
        target = "each ≤ 300,000" if name.startswith("local") else ""
        report(f"{name}: time", Figure([run.seconds for run in solved], "s"))
        report(f"{name}: processor time of its process", Figure(processor_s, "s"))
        report(
            f"{name}: env steps", Figure([run.env_steps for run in solved], "steps"), target=target
        )
        report(f"{name}: return at the end", Figure([run.mean_return for run in solved], ""))
    for package, peer in (("sb3_contrib", "sb3-contrib"), ("ray", "RLlib (ray[rllib])")):
        if not importlib.util.find_spec(package):
            print(f"  {peer} is not installed: without it")


if __name__ == "__main__":
    main()
