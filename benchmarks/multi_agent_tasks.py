"""Games of several agents to learn: one table for the benchmark and for the tests.

Bounds and budgets are those of RLlib's tuned examples, which each task names, where there is one.
The two games of `mpe2` have none: there the bound lies 60 % of the way from random play to a
scripted player that sees everything, both measured over 300 episodes (`RANDOM_PLAY`, `SCRIPTED`).

Returns are sums over agents, as in RLlib, or of one module where the task says so.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import numpy as np

from benchmarks import tasks
from benchmarks.figures import Figure, report
from benchmarks.tasks import EVALUATION, LAST_EPISODES, SEEDS, Task, solve
from trainer import (
    AlgorithmConfig,
    DQNConfig,
    MultiAgentEnv,
    PolicySpec,
    PPOConfig,
    RLModule,
    SACConfig,
)
from trainer.modules import RLModuleSpec
from trainer.testing import (
    MultiAgentCartPole,
    MultiAgentPendulum,
    RockPaperScissors,
    TwoStepGame,
)

ConfigT = TypeVar("ConfigT", bound=AlgorithmConfig)

RANDOM_PLAY: Final = {"simple_spread_v3": -80.9, "simple_speaker_listener_v4": -83.5}
"""Mean return of uniformly random actions, ± 1.4 and ± 3.8."""
SCRIPTED: Final = {"simple_spread_v3": -24.6, "simple_speaker_listener_v4": -15.6}
"""Mean return of agents that go straight to their landmarks (to the nearest ones altogether where
no player has one of its own), ± 0.6 and ± 0.9."""


def bound(game: str, share: float = 0.6) -> float:
    """The return that lies this share of the way from random play to the scripted player."""
    return RANDOM_PLAY[game] + share * (SCRIPTED[game] - RANDOM_PLAY[game])


# ---- envs and modules


def grouped_two_step_game(env_config: Mapping[str, Any]) -> MultiAgentEnv:
    """The two-step game with both players as one agent."""
    env = TwoStepGame(env_config)
    return env.with_agent_groups({"team": list(env.possible_agents)})


def simple_spread(env_config: Mapping[str, Any]) -> Any:
    """Three agents are to cover three landmarks without running into one another, 25 steps."""
    from mpe2 import simple_spread_v3

    return simple_spread_v3.parallel_env(N=3, max_cycles=25, local_ratio=0.5, **env_config)


def simple_speaker_listener(env_config: Mapping[str, Any]) -> Any:
    """One agent knows the landmark, and another one can go there, 25 steps."""
    from mpe2 import simple_speaker_listener_v4

    return simple_speaker_listener_v4.parallel_env(max_cycles=25, **env_config)


class ScriptedPlayer(RLModule):
    """Plays rock, paper, scissors by a rule, without weights.

    `model_config`: "choice" is what is always played; without it, what beats the last choice of
    the other one is.
    """

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        return {}

    def initialize(self, rng: np.random.Generator) -> None:
        del rng

    def forward_acting(self, obs: np.ndarray) -> np.ndarray:
        last = obs.argmax(axis=1) % 3  # nothing yet counts as rock
        choices = np.full(len(obs), self.model_config.get("choice", 0))
        if "choice" not in self.model_config:
            choices = (last + 1) % 3
        return np.where(np.arange(3) == choices[:, None], 0.0, -1e9).astype(np.float32)

    def forward_train(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError("it is not trained")

    def backward(self, **derivatives: Any) -> None:
        raise NotImplementedError("it is not trained")


def _opponent(agent_id: str, episode: Any, rng: np.random.Generator) -> str:
    """player_0 learns; player_1 beats the last choice in half of the episodes."""
    del episode
    if agent_id == "player_0":
        return "main"
    return "beats_last" if rng.random() < 0.5 else f"always_{rng.integers(3)}"


# ---- settings


def ppo_cartpole(*, shared: bool = False) -> PPOConfig:
    """RLlib's tuned example: one linear layer of 32."""
    config = (
        PPOConfig()
        .environment(MultiAgentCartPole, env_config={"num_agents": 2})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(
            train_batch_size=4000, minibatch_size=128, num_epochs=6, lr=3e-4, vf_loss_coeff=0.01
        )
        .rl_module(
            model_config={
                "fcnet_hiddens": [32],
                "fcnet_activation": "linear",
                "vf_share_layers": True,
            }
        )
    )
    return config if shared else one_module_each(config)


def one_module_each(config: ConfigT) -> ConfigT:
    """Agents 0 and 1 with a module each."""
    return config.multi_agent(policies={"p0", "p1"}, policy_mapping_fn={0: "p0", 1: "p1"})


def ppo_cartpole_shared() -> PPOConfig:
    """The same with one module for both."""
    return ppo_cartpole(shared=True)


def ppo_pendulum() -> PPOConfig:
    """The settings of the RL Zoo for one pendulum."""
    return one_module_each(
        tasks.ppo_pendulum().environment(MultiAgentPendulum, env_config={"num_agents": 2})
    )


def dqn_cartpole() -> DQNConfig:
    """Double learning, three steps, one update per 4 env steps."""
    return one_module_each(
        tasks.dqn_cartpole()
        .environment(MultiAgentCartPole, env_config={"num_agents": 2})
        .env_runners(num_envs_per_env_runner=4, rollout_fragment_length=16)
        .training(
            lr=1e-3,
            training_intensity=16,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 50_000},
            model={"fcnet_hiddens": [64, 64], "fcnet_activation": "relu"},
        )
    )


def sac_pendulum() -> SACConfig:
    """The settings of the RL Zoo for one pendulum, with small networks and batches."""
    return one_module_each(
        tasks.sac_pendulum()
        .environment(MultiAgentPendulum, env_config={"num_agents": 2})
        .training(
            train_batch_size=128,
            training_intensity=128,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 100_000},
            model={"fcnet_hiddens": [64, 64]},
        )
    )


def ppo_beside_random_play() -> PPOConfig:
    """Agent 0 learns to balance its pole; agent 1 plays at random."""
    config = ppo_cartpole(shared=True)
    return config.training(lr=1e-3).multi_agent(
        policies={"main": None, "random": PolicySpec("random")},
        policy_mapping_fn={0: "main", 1: "random"},
        policies_to_train=["main"],
    )


def small_game(env: Any, **settings: Any) -> PPOConfig:
    """Settings for games of a few steps and choices."""
    return (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(
            **{
                "train_batch_size": 1200,
                "minibatch_size": 300,
                "num_epochs": 8,
                "lr": 5e-3,
                "gamma": 0.9,
                "lambda_": 0.9,
                "use_kl_loss": False,
                "model": {"fcnet_hiddens": [32]},
                **settings,
            }
        )
    )


def ppo_against_scripts() -> PPOConfig:
    """One learner against players that follow rules, drawn per episode."""
    rule = RLModuleSpec(module_class=ScriptedPlayer)
    always = {
        f"always_{n}": RLModuleSpec(module_class=ScriptedPlayer, model_config={"choice": n})
        for n in range(3)
    }
    return small_game(RockPaperScissors, entropy_coeff=0.01).multi_agent(
        policies={"main": None, "beats_last": rule, **always},
        policy_mapping_fn=_opponent,
        policies_to_train=["main"],
    )


def play_rock_paper_scissors() -> PPOConfig:
    """Two learners against each other; all episodes are kept for the mean."""
    config = small_game(RockPaperScissors, lr=1e-3, entropy_coeff=0.05, num_epochs=2)
    config.multi_agent(
        policies={"p0", "p1"}, policy_mapping_fn={"player_0": "p0", "player_1": "p1"}
    )
    return config.reporting(metrics_num_episodes_for_smoothing=500)


def ppo_two_step_game() -> PPOConfig:
    """Both players as one agent, so that neither has to guess what the other one does."""
    return small_game(grouped_two_step_game, train_batch_size=400, minibatch_size=100)


PPO_OF_GAMES: Final[Mapping[str, Any]] = {
    "train_batch_size": 4000,
    "minibatch_size": 500,
    "lr": 1e-3,
    "lambda_": 0.95,
    "clip_param": 0.2,
    "use_kl_loss": False,
    "entropy_coeff": 0.01,
    "vf_loss_coeff": 0.5,
    "vf_clip_param": None,
    "grad_clip": 0.5,
}
"""Settings for games with longer episodes, here and in leagues."""


def mpe(env: Any) -> PPOConfig:
    """Independent PPO; episodes of 25 steps."""
    return (
        PPOConfig()
        .environment(env)
        .env_runners(
            num_env_runners=0, num_envs_per_env_runner=16, observation_filter="MeanStdFilter"
        )
        .training(**PPO_OF_GAMES, num_epochs=10, gamma=0.95, model={"fcnet_hiddens": [64, 64]})
    )


def ppo_simple_spread() -> PPOConfig:
    """One module for all three."""
    return mpe(simple_spread)


def ppo_speaker_listener() -> PPOConfig:
    """Two modules: their spaces differ."""
    return mpe(simple_speaker_listener).multi_agent(
        policies={"speaker", "listener"},
        policy_mapping_fn={"speaker_0": "speaker", "listener_0": "listener"},
    )


MAIN = "env_runners/module_episode_return_mean/main"

TASKS: Final = {
    "L1": Task("PPO, 2 CartPoles, two modules", ppo_cartpole, LAST_EPISODES, 800.0, 300_000),
    "L2": Task("… one module", ppo_cartpole_shared, LAST_EPISODES, 800.0, 300_000),
    "L3": Task("PPO, 2 Pendulums", ppo_pendulum, EVALUATION, -600.0, 500_000),
    "L4": Task("DQN, 2 CartPoles", dqn_cartpole, LAST_EPISODES, 300.0, 500_000),
    "L5": Task("SAC, 2 Pendulums", sac_pendulum, EVALUATION, -900.0, 500_000),
    "L6": Task("PPO beside random play", ppo_beside_random_play, MAIN, 400.0, 200_000),
    "L7": Task("PPO against scripts", ppo_against_scripts, MAIN, 6.0, 200_000),
    "L9": Task("PPO, two-step game", ppo_two_step_game, LAST_EPISODES, 7.0, 100_000),
    "L12": Task(
        "PPO, simple_spread_v3",
        ppo_simple_spread,
        LAST_EPISODES,
        bound("simple_spread_v3"),
        2_000_000,
    ),
    "L13": Task(
        "PPO, simple_speaker_listener_v4",
        ppo_speaker_listener,
        LAST_EPISODES,
        bound("simple_speaker_listener_v4"),
        2_000_000,
    ),
}
"""By the numbers that tests name them with."""

PETTINGZOO: Final = ("L12", "L13")
"""Those that need the extra [pettingzoo]."""


def main() -> None:
    """Prints seconds, steps and returns of every task."""
    for name, task in TASKS.items():
        if name in PETTINGZOO and importlib.util.find_spec("mpe2") is None:
            print(f"{task.name}: mpe2 is not installed: pip install 'local-trainer[pettingzoo]'")
            continue
        print(f"{task.name} to a mean return of {task.wanted_return:.4g}, seeds {SEEDS}")
        runs = [solve(task, seed) for seed in SEEDS]
        seconds, steps, means = zip(*runs, strict=True)
        report("time", Figure(seconds, "s"))
        report("env steps", Figure(steps, "steps"), target=f"each ≤ {task.max_env_steps:,}")
        report("mean return", Figure(means, ""), target=f"each ≥ {task.wanted_return:.4g}")
