"""What settings and methods are called in Stable-Baselines3, CleanRL and Lightning, for hints."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NoReturn

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
        "clip_range_vf": "vf_clip_param",
        "ent_coef": "entropy_coeff",
        "vf_coef": "vf_loss_coeff",
        "max_grad_norm": "grad_clip",
        "learning_starts": "num_steps_sampled_before_learning_starts",
        "target_update_interval": "target_network_update_freq",
        "target_network_frequency": "target_network_update_freq",
        "polyak": "tau",
        "target_policy_noise": "target_noise",
        "policy_noise": "target_noise",
        "noise_clip": "target_noise_clip",
        "policy_freq": "policy_delay",
        "policy_frequency": "policy_delay",
        "alpha": "initial_alpha",
        "policy_lr": "actor_lr",
        "q_lr": "critic_lr",
        "num_cpu": "num_env_runners",
        "n_eval_episodes": "evaluation_duration",
        "gradient_clip_val": "grad_clip",
        "gradient_clip_algorithm": "grad_clip_by",
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
    "`num_env_steps_sampled_lifetime`, or `local-trainer train --stop-env-steps N`."
)
_ITERATIONS: Final = (
    "It is no setting: an iteration is one call of `train()`; `local-trainer train "
    "--stop-iterations N` makes so many."
)
_NETWORK: Final = (
    "Write `model_config={'fcnet_hiddens': [64, 64], 'fcnet_activation': 'tanh'}`; any other "
    "network is a class of yours: docs/modules.md."
)
_STANDARDIZED: Final = (
    "True is `standardize_advantages='minibatch'` here, False is None; the default is the batch."
)
_EPSILON: Final = (
    "Write `epsilon=[[0, 1.0], [50_000, 0.05]]`: from the first value to the last within so many "
    "env steps (exploration_fraction · total_timesteps)."
)
_INTENSITY: Final = (
    "Write `training_intensity`, the rows learnt per env step: updates · `train_batch_size` / env "
    "steps between them."
)
_EVALUATION: Final = "Write `evaluation_interval`, a number of iterations."
_DEVICE: Final = (
    "Leave it out for the processor; for networks in Torch elsewhere write "
    "`model_config={'device': 'cuda'}`."
)
_TRACK: Final = "Write `callbacks(WandbLogger(project))`, or `local-trainer train --track wandb`."
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
            "minibatch_size": "Write `minibatch_size`, the rows of one gradient step (of "
            "Stable-Baselines3), or `train_batch_size`, the env steps of one iteration.",
        },
        "normalize_advantage": {"standardize_advantages": _STANDARDIZED},
        "norm_adv": {"standardize_advantages": _STANDARDIZED},
        "clip_vloss": {
            "vf_clip_param": "Leave it out and write `vf_clip_param=None`; values clipped as there "
            "are a loss of your own: docs/coming-from-others.md."
        },
        "train_freq": {"training_intensity": _INTENSITY},
        "train_frequency": {"training_intensity": _INTENSITY},
        "gradient_steps": {"training_intensity": _INTENSITY},
        "exploration_fraction": {"epsilon": _EPSILON},
        "exploration_initial_eps": {"epsilon": _EPSILON},
        "exploration_final_eps": {"epsilon": _EPSILON},
        "start_e": {"epsilon": _EPSILON},
        "end_e": {"epsilon": _EPSILON},
        "buffer_size": {"replay_buffer_config": "Write `replay_buffer_config={'capacity': …}`."},
        "autotune": {
            "target_entropy": "Leave it out: the temperature is learnt; `alpha_lr=0` keeps it at "
            "`initial_alpha`."
        },
        "policy_frequency": {
            "target_entropy": "Leave it out: every update is one of the critics and of the policy."
        },
        "learning_rate": {
            "alpha_lr": "Write `actor_lr`, `critic_lr` and `alpha_lr`.",
            "actor_lr": "Write `actor_lr` and `critic_lr`.",
        },
        "ent_coef": {
            "target_entropy": "Write `initial_alpha` and `target_entropy`; the temperature is "
            "learnt, or with `alpha_lr=0` stays."
        },
        "target_kl": {
            "kl_target": "Leave it out if it is None. No update ends early here; `use_kl_loss` "
            "and `kl_target` penalise the divergence instead, and `num_epochs` bounds it."
        },
        "use_sde": {"": 'Write `exploration_config={"type": "StateDependentNoise"}`.'},
        "action_noise": {"": 'Write `exploration_config={"type": "GaussianNoise"}`.'},
        "optimize_memory_usage": {"": "Leave it out: each observation is stored once."},
        "total_timesteps": {"": _LENGTH_OF_RUN},
        "total_steps": {"": _LENGTH_OF_RUN},
        "anneal_lr": {"": "Write a schedule: `lr=[[0, 3e-4], [100_000, 0.0]]`."},
        "verbose": {"": "Write `callbacks(ProgressPrinter())`."},
        "policy_kwargs": {"": _NETWORK},
        "net_arch": {"": _NETWORK},
        "module_class": {"": "Write `rl_module_spec=RLModuleSpec(module_class=...)`."},
        "device": {"": _DEVICE},
        "cuda": {"": _DEVICE},
        "accelerator": {"": _DEVICE},
        "devices": {"": "Write `num_env_runners`, the processes that sample; one learns."},
        "precision": {"": "Leave it out: networks compute in float32."},
        "weight_decay": {
            "": "Register `torch.optim.AdamW(…)` in a learner: docs/own-algorithm.md."
        },
        "accumulate_grad_batches": {
            "replay_buffer_config": "Write a larger `train_batch_size`.",
            "minibatch_size": "Write a larger `minibatch_size`.",
        },
        "max_steps": {"": _LENGTH_OF_RUN},
        "max_epochs": {"": _ITERATIONS},
        "num_iterations": {"": _ITERATIONS},
        "eval_freq": {"": _EVALUATION},
        "evaluation_freq": {"": _EVALUATION},
        "check_val_every_n_epoch": {"": _EVALUATION},
        "deterministic": {"": "Write `evaluation_config={'explore': False}`."},
        "best_model_save_path": {
            "": "Write `callbacks(BestCheckpoint(path, "
            'metric="evaluation/env_runners/episode_return_mean"))`.'
        },
        "resume_from_checkpoint": {"": "Write `Algorithm.from_checkpoint(path)`."},
        "default_root_dir": {
            "": "Say where when it is written: `save_to_path(path)`, `PeriodicCheckpoint(path)`, "
            "`local-trainer train --run-dir`."
        },
        "exp_name": {"": "Name the folder of the run: `local-trainer train --run-dir`."},
        "track": {"": _TRACK},
        "wandb_project_name": {"": _TRACK},
        "capture_video": {"": "Write `callbacks(VideoRecorder('videos'))`: docs/callbacks.md."},
        "on_train_epoch_end": {"": "Write `on_train_result`, after every iteration."},
        "tensorboard_log": {"": "Write `callbacks(TensorBoardLogger())`."},
        "stats_window_size": {"": "Write `reporting(metrics_num_episodes_for_smoothing=...)`."},
    }
)
"""The same where one name is not enough: what to write, by a setting that only some algorithms have
("" for all)."""

OPTIONS_ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "total-timesteps": "stop-env-steps",
        "total-steps": "stop-env-steps",
        "n-envs": "num-envs-per-env-runner",
        "num-envs": "num-envs-per-env-runner",
        "env-id": "env",
        "exp-name": "run-dir",
    }
)
"""The same of options of the command line."""

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


_BESIDE: Final = "`env_runners(num_envs_per_env_runner=8)` steps envs beside each other"
_MODULE: Final = "Write a `TorchRLModule`, or `TorchRLModule.wrapping(network)`, and a learner."

IMPORTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "A2C": "Take `PPO`: with one epoch of one minibatch it is A2C but for the optimiser.",
        "BaseCallback": "Derive from `RLlibCallback`: docs/callbacks.md.",
        "CheckpointCallback": "Take `PeriodicCheckpoint(path, every=10)`.",
        "DummyVecEnv": f"{_BESIDE}.",
        "EvalCallback": "Write `config.evaluation(evaluation_interval=10, "
        "evaluation_config={'explore': False})`, and `BestCheckpoint` to keep the best.",
        "LightningModule": _MODULE,
        "ModelCheckpoint": "Take `BestCheckpoint(path, metric=…)` or `PeriodicCheckpoint(path)`.",
        "SubprocVecEnv": "`env_runners(num_env_runners=2)` steps envs in processes.",
        "Trainer": "A config builds an algorithm, whose `train()` makes one iteration.",
        "VecNormalize": "Write `env_runners(observation_filter='MeanStdFilter')`, "
        "`environment(normalize_rewards=True)`.",
        "evaluate_policy": "`algo.evaluate()`, or `local-trainer evaluate RUN --episodes 20`.",
        "make_vec_env": f"{_BESIDE}; `num_env_runners=2` in processes.",
    }
)
"""What is imported there, and what to write here."""


def refuse_import(name: str) -> NoReturn:
    """Answers a name that the package does not have."""
    if name in IMPORTS:  # an AttributeError would be lost in `from trainer import …`
        raise ImportError(f"trainer has no {name!r}. {IMPORTS[name]}", name=name)
    raise AttributeError(f"module 'trainer' has no attribute {name!r}", name=name)


def hint_for(name: str) -> str:
    """What to write instead of a method that is not here; empty if the name is unknown."""
    if name in LIGHTNING:
        return f" {LIGHTNING[name]} See docs/coming-from-others.md."
    return f" {METHODS[name]} See docs/coming-from-others.md." if name in METHODS else ""
