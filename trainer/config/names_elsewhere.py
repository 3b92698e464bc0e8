"""What settings and methods are called in Stable-Baselines3, CleanRL and Lightning, for hints."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# ---- settings

NAMES_ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "learning_rate": "lr",
        "discount": "gamma",
        "discount_factor": "gamma",
        "gae_lambda": "lambda_",
        "n_epochs": "num_epochs",
        "update_epochs": "num_epochs",
        "n_envs": "num_envs_per_env_runner",
        "num_envs": "num_envs_per_env_runner",
        "clip_range": "clip_param",
        "clip_coef": "clip_param",
        "normalize_advantage": "standardize_advantages",
        "norm_adv": "standardize_advantages",
        "clip_range_vf": "vf_clip_param",
        "ent_coef": "entropy_coeff",
        "vf_coef": "vf_loss_coeff",
        "max_grad_norm": "grad_clip",
        "train_freq": "training_intensity",
        "gradient_steps": "training_intensity",
        "target_update_interval": "target_network_update_freq",
        "exploration_fraction": "epsilon",
        "exploration_initial_eps": "epsilon",
        "exploration_final_eps": "epsilon",
        "policy_kwargs": "model_config",
        "net_arch": "model_config",
        "polyak": "tau",
        "target_policy_noise": "target_noise",
        "policy_noise": "target_noise",
        "noise_clip": "target_noise_clip",
        "policy_freq": "policy_delay",
        "policy_frequency": "policy_delay",
        "env_id": "env",
    }
)
"""What Stable-Baselines3 and CleanRL call a setting, for hints: the name that it has here."""

_STEPS: Final = (
    "Write `train_batch_size`, which counts the steps of all envs: those of one env times their "
    "number."
)
_LENGTH_OF_RUN: Final = (
    "It is no setting: call `train()` until the result has as many "
    "`num_env_steps_sampled_lifetime`, or `local-trainer train --stop-steps`."
)
ADVICE_ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "n_steps": {"minibatch_size": _STEPS},
        "num_steps": {"minibatch_size": _STEPS},
        "num_minibatches": {
            "minibatch_size": "Write `minibatch_size`, a number of rows: `train_batch_size` "
            "divided by the number of minibatches."
        },
        "batch_size": {
            "replay_buffer_config": "Write `train_batch_size`, the rows of one update.",
            "minibatch_size": "Write `minibatch_size`, the rows of one gradient step.",
        },
        "learning_rate": {
            "alpha_lr": "Write `actor_lr`, `critic_lr` and `alpha_lr`.",
            "actor_lr": "Write `actor_lr` and `critic_lr`.",
        },
        "ent_coef": {
            "target_entropy": "Write `initial_alpha` and `target_entropy`; the temperature is "
            "learnt."
        },
        "target_kl": {
            "kl_target": "No update ends early here; `use_kl_loss` and `kl_target` penalise the "
            "divergence instead, and `num_epochs` bounds it."
        },
        "use_sde": {"": 'Write `exploration_config={"type": "StateDependentNoise"}`.'},
        "action_noise": {"": 'Write `exploration_config={"type": "GaussianNoise"}`.'},
        "optimize_memory_usage": {"": "Leave it out: each observation is stored once."},
        "total_timesteps": {"": _LENGTH_OF_RUN},
        "total_steps": {"": _LENGTH_OF_RUN},
        "anneal_lr": {"": "Write a schedule: `lr=[[0, 3e-4], [100_000, 0.0]]`."},
        "verbose": {"": "Write `callbacks(ProgressPrinter())`."},
        "device": {"": "Write `model_config={'device': 'cuda'}`, for networks in Torch."},
        "tensorboard_log": {"": "Write `callbacks(TensorBoardLogger())`."},
        "stats_window_size": {"": "Write `reporting(metrics_num_episodes_for_smoothing=...)`."},
    }
)
"""The same where one name is not enough: what to write, by a setting that only some algorithms have
("" for all)."""

# ---- methods

_LEARN: Final = (
    "`train()` makes one iteration and returns its result; call it until "
    '`result["num_env_steps_sampled_lifetime"]` is what you want.'
)
_LOAD: Final = "`Algorithm.from_checkpoint(path)` goes on; `TrainedPolicy.from_checkpoint` acts."
_ENV: Final = "The config names the env: `config.environment(...)`, then build another algorithm."

METHODS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "learn": _LEARN,
        "collect_rollouts": _LEARN,
        "predict": "`compute_single_action(observation, explore=False)` gives one action.",
        "load": _LOAD,
        "set_parameters": "`set_weights(weights)` takes what `get_weights()` gives.",
        "get_parameters": "`get_weights()` gives all arrays by module.",
        "set_env": _ENV,
        "get_env": "`env_runner.env` is that of the main process. " + _ENV,
        "set_logger": "Give a logger: `config.callbacks(TensorBoardLogger())`.",
        "num_timesteps": 'It is `result["num_env_steps_sampled_lifetime"]`.',
        "policy": "`get_module()` gives the network, `TrainedPolicy` what acts by it.",
        "replay_buffer": "It is `local_replay_buffer`.",
        "save_replay_buffer": "Checkpoints hold it, unless `store_buffer_in_checkpoints=False`.",
        "load_replay_buffer": "Checkpoints hold it, unless `store_buffer_in_checkpoints=False`.",
    }
)


LIGHTNING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fit": _LEARN,
        "load_from_checkpoint": _LOAD,
        "to_onnx": "`export_onnx(algo, file)` writes it.",
        "to_torchscript": "`export_torch(algo, file)` writes a program of Torch.",
        "model": "`get_module()` gives the network.",
        "state_dict": "`get_module().state_dict()` of a network in Torch, `get_weights()` of any.",
        "parameters": "`get_module().parameters()` of a network in Torch.",
    }
)
"""The same of Lightning."""


def hint_for(name: str) -> str:
    """What to write instead of a method that is not here; empty if the name is unknown."""
    if name in LIGHTNING:
        return f" {LIGHTNING[name]} See docs/own-loss.md, at its end."
    return f" {METHODS[name]} See docs/coming-from-sb3.md." if name in METHODS else ""
