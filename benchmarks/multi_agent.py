"""Speed of several agents: against a single agent, and against RLlib with the same settings.

`multi_agent`         agent steps per second of `sample()`, n CartPoles in each of 8 sub-envs,
                      against one CartPole in each of n times as many sub-envs
`multi_agent_rllib`   2-agent CartPole, two modules: env steps per second of `train()`, and the time
                      until the mean return is 400 per agent; needs `ray[rllib]`

RLlib runs in the same process, with its env runner in that process, too, as ours does. The number
of repetitions may be given: `python -m benchmarks multi_agent:3`.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.figures import Figure, alternate, ratio, report
from benchmarks.peers import Solved
from trainer import PPOConfig
from trainer.testing import MultiAgentCartPole

NUM_ENVS: Final = 8
NUM_ROWS: Final = 16_384
NUM_AGENTS: Final = 2
WANTED_RETURN: Final = 400.0 * NUM_AGENTS
MAX_ENV_STEPS: Final = 400_000
BATCH: Final[dict[str, Any]] = {
    "train_batch_size": 4000,
    "minibatch_size": 128,
    "num_epochs": 6,
    "lr": 3e-4,
    "vf_loss_coeff": 0.01,
}
MODEL: Final = {"fcnet_hiddens": [32], "fcnet_activation": "linear", "vf_share_layers": True}
MAPPING: Final = {0: "p0", 1: "p1"}


# ---- against a single agent


def sampling_rate(num_agents: int | None, num_envs: int) -> Callable[[], float]:
    """Gives a function that samples and answers agent steps per second."""
    config = (
        PPOConfig()
        .env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs)
        .training(model={"fcnet_hiddens": [64, 64]})
        .debugging(seed=0)
    )
    if num_agents is None:
        config.environment("CartPole-v1")
    else:
        config.environment(MultiAgentCartPole, env_config={"num_agents": num_agents})
    runner: Any = config.build_algo().env_runner
    num_timesteps = NUM_ROWS // (num_agents or 1)

    def rate() -> float:
        started_at = time.perf_counter()
        episodes = runner.sample(num_timesteps=num_timesteps)
        seconds = time.perf_counter() - started_at
        return float(sum(episode.agent_steps() for episode in episodes)) / seconds

    return rate


def main(repeats: int = 9) -> None:
    """Prints the rates for 2 and 8 agents, and their ratios to those of a single agent."""
    print(f"several agents: CartPole-v1, {NUM_ENVS} sub-envs, one 64×64 tanh network, seed 0")
    for num_agents in (2, 8):
        ours, single = alternate(
            sampling_rate(num_agents, NUM_ENVS),
            sampling_rate(None, num_agents * NUM_ENVS),
            unit="agent steps/s",
            repeats=repeats,
        )
        report(f"{num_agents} agents", ours)
        report(f"a single agent, {num_agents * NUM_ENVS} sub-envs", single)
        report("ratio", ratio(ours, single), target="≥ 0.6")


# ---- against RLlib


def local_trainer_config(seed: int) -> PPOConfig:
    """Two CartPoles with a module each: RLlib's tuned example."""
    return (
        PPOConfig()
        .environment(MultiAgentCartPole, env_config={"num_agents": NUM_AGENTS})
        .env_runners(num_env_runners=0)
        .training(**BATCH)
        .rl_module(model_config=MODEL)
        .multi_agent(policies=set(MAPPING.values()), policy_mapping_fn=MAPPING)
        .debugging(seed=seed)
    )


def rllib_config(seed: int) -> Any:
    """The same settings for RLlib's new stack."""
    from ray.rllib.algorithms.ppo import PPOConfig as TheirConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.examples.envs.classes.multi_agent import MultiAgentCartPole as TheirCartPole

    return (
        TheirConfig()
        .environment(TheirCartPole, env_config={"num_agents": NUM_AGENTS})
        .env_runners(num_env_runners=0)
        .training(
            train_batch_size=BATCH["train_batch_size"],
            minibatch_size=BATCH["minibatch_size"],
            num_epochs=BATCH["num_epochs"],
            lr=BATCH["lr"],
            vf_loss_coeff=BATCH["vf_loss_coeff"],
        )
        .rl_module(model_config=DefaultModelConfig(**MODEL))
        .multi_agent(
            policies=set(MAPPING.values()),
            policy_mapping_fn=lambda agent_id, *_, **__: MAPPING[agent_id],
        )
        .debugging(seed=seed)
    )


def solve(config: Any) -> tuple[Solved, float]:
    """Trains until both poles are balanced; also env steps per second of the calls of `train()`."""
    started_at = time.perf_counter()
    algo = config.build_algo()
    mean, env_steps, training_s = 0.0, 0, 0.0
    while not mean >= WANTED_RETURN and env_steps < MAX_ENV_STEPS:
        begun = time.perf_counter()
        runners = algo.train()["env_runners"]
        training_s += time.perf_counter() - begun
        mean = runners.get("episode_return_mean", 0.0)
        env_steps = int(runners["num_env_steps_sampled_lifetime"])
    seconds = time.perf_counter() - started_at
    algo.stop()
    return Solved(seconds, env_steps, mean), env_steps / training_s


def against_rllib(repeats: int = 1) -> None:
    """Prints rates and times of both, and their ratios, seed by seed."""
    print(
        f"{NUM_AGENTS}-agent CartPole, two modules, to a mean return of {WANTED_RETURN:g}, "
        f"seeds 0 to {repeats - 1}"
    )
    if importlib.util.find_spec("ray") is None:
        print("  RLlib is not installed: pip install 'ray[rllib]>=2.49' torch measures it, too")
        return
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    ours = [solve(local_trainer_config(seed)) for seed in range(repeats)]
    theirs = [solve(rllib_config(seed)) for seed in range(repeats)]
    ray.shutdown()
    rates, times = {}, {}
    for name, runs in (("local-trainer", ours), ("RLlib", theirs)):
        solved = [run for run, _ in runs]
        rates[name] = Figure([rate for _, rate in runs], "env steps/s")
        times[name] = Figure([run.seconds for run in solved], "s")
        report(f"{name}: rate of train()", rates[name])
        report(f"{name}: time", times[name])
        report(f"{name}: env steps", Figure([run.env_steps for run in solved], "steps"))
        report(f"{name}: mean return at the end", Figure([run.mean_return for run in solved], ""))
    pair = "local-trainer", "RLlib"
    report("ratio of the rates", ratio(*(rates[name] for name in pair)), target="≥ 10")
    report("ratio of the times", ratio(*(times[name] for name in pair)), target="≤ 0.1")
