"""The settings of a task as a config of ours, and a run of it."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from benchmarks.quality.runs import NUM_EPISODES, Learnt, Recorded, RecordedGame, Recorder
from benchmarks.quality.tasks import Task
from trainer import AlgorithmConfig, APPOConfig, DQNConfig, PPOConfig, SACConfig, TD3Config
from trainer.learners.learning_checks import findings

_ITERATION = 1000
"""Env steps that a result is about, at least; it makes no difference to what is learnt."""
_Config = TypeVar("_Config", DQNConfig, SACConfig, TD3Config)


def config_of(task: Task) -> AlgorithmConfig:
    """The config of a task, but its env and its seed."""
    if task.game is not None:
        return task.game()
    make = {"PPO": _ppo, "APPO": _appo, "DQN": _dqn, "SAC": _sac, "TD3": _td3}[task.algorithm]
    return make(task, task.whole_settings)


def _ppo(task: Task, s: dict[str, Any]) -> PPOConfig:
    batch = s["n_envs"] * s["n_steps"]
    model = {
        "fcnet_hiddens": s["net_arch"],
        "fcnet_activation": s["activation"],
        "initializer": "orthogonal" if s["ortho_init"] else "uniform",
    }
    if "conv_filters" in s:
        model |= {
            "conv_filters": [[*each, "valid"] for each in s["conv_filters"]],
            "conv_activation": s["activation"],
            "vf_share_layers": True,  # the peer's networks of images are
        }
    if task.has_memory:
        model |= {
            "fcnet_hiddens": [],
            "head_fcnet_hiddens": s["net_arch"],
            "head_fcnet_activation": s["activation"],
            "use_lstm": True,
            "lstm_cell_size": s["lstm_hidden_size"],
            "max_seq_len": min(s["n_steps"], s["batch_size"]),
        }
    if task.is_continuous:
        model |= {"free_log_std": True, "log_std_init": s["log_std_init"]}
    config = PPOConfig()
    if s["use_sde"]:
        model["log_std_by_feature"] = True
        # Once per rollout is what -1 means there.
        stretch = s["n_steps"] if s["sde_sample_freq"] == -1 else s["sde_sample_freq"]
        config.exploration(
            exploration_config={"type": "StateDependentNoise", "sample_freq": stretch}
        )
    return (
        config.environment(
            normalize_rewards=s["normalize"], normalize_actions=False, clip_actions=True
        )
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=s["n_envs"],
            observation_filter="MeanStdFilter" if s["normalize"] else "NoFilter",
        )
        .training(
            train_batch_size=batch,
            minibatch_size=s["batch_size"],
            num_epochs=s["n_epochs"],
            lr=falling(s["learning_rate"], task.num_env_steps),
            gamma=s["gamma"],
            lambda_=s["gae_lambda"],
            clip_param=falling(s["clip_range"], task.num_env_steps),
            entropy_coeff=s["ent_coef"],
            vf_loss_coeff=s["vf_coef"],
            vf_clip_param=None,
            use_kl_loss=False,
            grad_clip=s["max_grad_norm"],
            standardize_advantages="minibatch",
            adam_epsilon=1e-5,
            model=model,
        )
        .reporting(min_sample_timesteps_per_iteration=_ITERATION)
    )


def _appo(task: Task, s: dict[str, Any]) -> APPOConfig:
    config = APPOConfig().update_from_dict(_ppo(task, s).given_settings())
    # Of a minibatch it would be standardised after V-trace has weighed it.
    return config.training(standardize_advantages="batch", sample_ahead=s["sample_ahead"])


def _dqn(task: Task, s: dict[str, Any]) -> DQNConfig:
    decay = s["exploration_fraction"] * task.num_env_steps
    return _with_replay(DQNConfig(), s).training(
        lr=falling(s["learning_rate"], task.num_env_steps),
        grad_clip=s["max_grad_norm"],
        double_q=s["double_q"],
        dueling=False,
        n_step=s["n_steps"],
        target_network_update_freq=s["target_update_interval"],
        epsilon=[[0, 1.0], [decay, s["exploration_final_eps"]]],
    )


def _sac(task: Task, s: dict[str, Any]) -> SACConfig:
    lr = falling(s["learning_rate"], task.num_env_steps)
    return _with_replay(SACConfig(), s).training(
        actor_lr=lr,
        critic_lr=lr,
        alpha_lr=lr,
        tau=s["tau"],
        adam_epsilon=1e-8,
        td_error_loss_fn="mse",
    )


def _td3(task: Task, s: dict[str, Any]) -> TD3Config:
    lr = falling(s["learning_rate"], task.num_env_steps)
    config = _with_replay(TD3Config(), s).training(
        actor_lr=lr,
        critic_lr=lr,
        tau=s["tau"],
        policy_delay=s["policy_delay"],
        target_noise=s["target_policy_noise"],
        target_noise_clip=s["target_noise_clip"],
    )
    noise = {**config.default_exploration_config(), "stddev": s["noise_std"]}
    config.exploration(exploration_config=noise)
    return config


def _with_replay(config: _Config, s: dict[str, Any]) -> _Config:
    """What is alike for all that learn from a replay buffer."""
    is_prioritized = s.get("prioritized")
    buffer = "PrioritizedEpisodeReplayBuffer" if is_prioritized else "EpisodeReplayBuffer"
    return (
        config.env_runners(num_env_runners=0, rollout_fragment_length=s["train_freq"])
        .training(
            train_batch_size=s["batch_size"],
            training_intensity=s["batch_size"] * s["gradient_steps"] / s["train_freq"],
            gamma=s["gamma"],
            num_steps_sampled_before_learning_starts=s["learning_starts"],
            replay_buffer_config={"type": buffer, "capacity": s["buffer_size"]},
            # First weights are those of Torch, which the peer leaves as they are.
            model={
                "fcnet_hiddens": s["net_arch"],
                "fcnet_activation": "relu",
                "initializer": "uniform",
            },
        )
        .reporting(min_sample_timesteps_per_iteration=_ITERATION)
    )


def falling(value: float | str, num_env_steps: int) -> float | list[list[float]]:
    """A number of the Zoo's; `lin_x` falls from x to 0 over the budget, as a schedule of ours."""
    if isinstance(value, str):
        return [[0, float(value.removeprefix("lin_"))], [num_env_steps, 0.0]]
    return value


def learn(task: Task, seed: int, recorder: Recorder) -> Learnt:
    """Trains for the budget."""

    def make_env(context: Any) -> Any:
        env = task.make_env()
        if not context["is_recorded"]:
            return env
        return Recorded(env, recorder) if task.game is None else RecordedGame(env, recorder)

    started_s = time.process_time()
    config = (
        config_of(task)
        .environment(make_env, env_config={"is_recorded": True})
        .evaluation(
            evaluation_duration=NUM_EPISODES,
            evaluation_config={"explore": False, "env_config": {"is_recorded": False}},
        )
        .debugging(seed=seed)
    )
    results = []
    with config.build_algo() as algo:
        while algo.counters.num_env_steps_sampled < task.num_env_steps:
            results.append(algo.train())
        processor_s = time.process_time() - started_s
        final_return = algo.evaluate()["env_runners"]["episode_return_mean"]
    return Learnt(processor_s, final_return, [found.check for found in findings(results)])
