"""The sections: which arguments exist, with which defaults, and how they are documented."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import pytest

from callbacks.events import EVENTS
from trainer import DQNConfig, PGConfig, PPOConfig, SACConfig
from trainer.config import AlgorithmConfig, NotProvided
from trainer.rllib_names.config import NO_EFFECT, NOT_OFFERED

_COMMON: dict[str, dict[str, Any]] = {
    "environment": {
        "env": None,
        "env_config": {},
        "observation_space": None,
        "action_space": None,
        "render_env": False,
        "clip_rewards": None,
        "normalize_actions": True,
        "clip_actions": False,
        "disable_env_checking": False,
        "is_atari": None,
        "action_mask_key": "action_mask",
        "env_task_fn": None,
        "auto_wrap_old_gym_envs": True,
    },
    "env_runners": {
        "num_env_runners": 0,
        "create_local_env_runner": True,
        "create_env_on_local_worker": False,
        "num_envs_per_env_runner": 1,
        "gym_env_vectorize_mode": "SYNC",
        "num_cpus_per_env_runner": 1,
        "num_gpus_per_env_runner": 0,
        "custom_resources_per_env_runner": {},
        "validate_env_runners_after_construction": True,
        "sample_timeout_s": 60.0,
        "max_requests_in_flight_per_env_runner": 1,
        "env_to_module_connector": None,
        "module_to_env_connector": None,
        "add_default_connectors_to_env_to_module_pipeline": True,
        "add_default_connectors_to_module_to_env_pipeline": True,
        "episode_lookback_horizon": 1,
        "merge_env_runner_states": "training_only",
        "broadcast_env_runner_states": True,
        "compress_observations": False,
        "rollout_fragment_length": 200,
        "batch_mode": "truncate_episodes",
        "explore": True,
        "episodes_to_numpy": True,
        "exploration_config": {},
        "remote_worker_envs": False,
        "remote_env_batch_wait_ms": 0,
        "preprocessor_pref": "deepmind",
        "observation_filter": "NoFilter",
        "use_worker_filter_stats": True,
        "update_worker_filter_stats": True,
        "sample_async": False,
        "enable_connectors": True,
    },
    "exploration": {"explore": True, "exploration_config": {}},
    "training": {
        "gamma": 0.99,
        "lr": 0.001,
        "grad_clip": None,
        "grad_clip_by": "global_norm",
        "train_batch_size": 32,
        "train_batch_size_per_learner": 32,
        "num_epochs": 1,
        "minibatch_size": None,
        "shuffle_batch_per_epoch": False,
        "optimizer": {},
        "learner_class": None,
        "learner_connector": None,
        "add_default_connectors_to_learner_pipeline": True,
        "learner_config_dict": {},
    },
    "evaluation": {
        "evaluation_interval": None,
        "evaluation_duration": 10,
        "evaluation_duration_unit": "episodes",
        "evaluation_auto_duration_min_env_steps_per_sample": 100,
        "evaluation_auto_duration_max_env_steps_per_sample": 2000,
        "evaluation_sample_timeout_s": 120.0,
        "evaluation_parallel_to_training": False,
        "evaluation_force_reset_envs_before_iteration": True,
        "evaluation_config": None,
        "evaluation_num_env_runners": 0,
        "evaluation_seed": None,
        "custom_evaluation_function": None,
        "off_policy_estimation_methods": {},
        "ope_split_batch_by_episode": True,
        "always_attach_evaluation_results": True,
        "enable_async_evaluation": False,
    },
    "fault_tolerance": {
        "restart_failed_env_runners": True,
        "ignore_env_runner_failures": False,
        "max_num_env_runner_restarts": 1000,
        "delay_between_env_runner_restarts_s": 0.0,
        "restart_failed_sub_environments": False,
        "num_consecutive_env_runner_failures_tolerance": 100,
        "env_runner_health_probe_timeout_s": 30.0,
        "env_runner_restore_timeout_s": 1800.0,
    },
    "multi_agent": {
        "policies": {"default_policy": None},
        "policy_map_capacity": 100,
        "policy_mapping_fn": None,
        "policies_to_train": None,
        "policy_states_are_swappable": False,
        "observation_fn": None,
        "count_steps_by": "env_steps",
        "algorithm_config_overrides_per_module": {},
    },
    "rl_module": {
        "model_config": {},
        "rl_module_spec": None,
        "algorithm_config_overrides_per_module": {},
    },
    "reporting": {
        "keep_per_episode_custom_metrics": False,
        "metrics_episode_collection_timeout_s": 60.0,
        "metrics_num_episodes_for_smoothing": 100,
        "min_time_s_per_iteration": None,
        "min_train_timesteps_per_iteration": 0,
        "min_sample_timesteps_per_iteration": 0,
        "log_gradients": True,
    },
    "checkpointing": {
        "export_native_model_files": False,
        "checkpoint_trainable_policies_only": False,
    },
    "debugging": {
        "logger_creator": None,
        "logger_config": None,
        "log_level": "WARN",
        "log_sys_usage": True,
        "fake_sampler": False,
        "seed": None,
    },
    "resources": {
        "engine": "local",
        "strict_cpus": False,
        "num_cpus_for_main_process": 1,
        "num_gpus": 0,
        "placement_strategy": "PACK",
    },
    "learners": {
        "num_learners": 0,
        "num_cpus_per_learner": "auto",
        "num_gpus_per_learner": 0,
        "num_aggregator_actors_per_learner": 0,
        "max_requests_in_flight_per_aggregator_actor": 3,
        "local_gpu_idx": 0,
        "max_requests_in_flight_per_learner": 3,
    },
    "framework": {"framework": "torch"},
    "api_stack": {
        "enable_rl_module_and_learner": True,
        "enable_env_runner_and_connector_v2": True,
    },
    "experimental": {"_validate_config": True, "_use_msgpack_checkpoints": False},
}

_PPO = {
    "use_critic": True,
    "use_gae": True,
    "lambda_": 1.0,
    "use_kl_loss": True,
    "kl_coeff": 0.2,
    "kl_target": 0.01,
    "vf_loss_coeff": 1.0,
    "entropy_coeff": 0.0,
    "entropy_coeff_schedule": None,
    "clip_param": 0.3,
    "vf_clip_param": 10.0,
    "lr_schedule": None,
    "vf_share_layers": False,
    "lr": 5e-5,
    "train_batch_size": 4000,
    "minibatch_size": 128,
    "num_epochs": 30,
    "shuffle_batch_per_epoch": True,
    "grad_clip": None,
}

_ARGUMENTS = [
    pytest.param(section, argument, default, id=f"{section}-{argument}")
    for section, arguments in _COMMON.items()
    for argument, default in arguments.items()
]


@pytest.mark.parametrize(("section", "argument", "default"), _ARGUMENTS)
def test_argument_exists_with_default(section: str, argument: str, default: Any) -> None:
    config = AlgorithmConfig()
    assert argument in inspect.signature(getattr(config, section)).parameters
    assert config[argument] == default
    assert type(config[argument]) is type(default) or isinstance(default, (int, float))


@pytest.mark.parametrize(("section", "argument", "default"), _ARGUMENTS)
def test_argument_sets_the_setting_and_gives_the_config(
    section: str, argument: str, default: Any
) -> None:
    config = AlgorithmConfig()
    value = {"explore": False} if argument == "evaluation_config" else {"key": 1}
    assert getattr(config, section)(**{argument: value}) is config
    assert config[argument] == value


@pytest.mark.parametrize(("argument", "default"), _PPO.items())
def test_ppo_argument_has_its_default(argument: str, default: Any) -> None:
    assert PPOConfig()[argument] == default
    assert PPOConfig().training(**{argument: PPOConfig()[argument]}) == PPOConfig()


def test_ppo_changes_defaults_of_sampling() -> None:
    config = PPOConfig()
    assert (config.num_env_runners, config.rollout_fragment_length) == (2, "auto")
    assert config.model_config == {"vf_share_layers": False}
    assert AlgorithmConfig().num_env_runners == 0


def test_every_event_is_an_argument_of_callbacks() -> None:
    parameters = list(inspect.signature(AlgorithmConfig.callbacks).parameters)
    assert parameters == ["self", "callbacks_class", *parameters[2:-1], "old_names"]
    assert set(parameters[2:-1]) == set(EVENTS)


def test_completion_shows_all_arguments_of_a_class_with_its_defaults() -> None:
    shown = inspect.signature(PPOConfig().training).parameters
    ours = {
        name for name, setting in PPOConfig._names.settings.items() if setting.section == "training"
    }
    assert ours <= set(shown)
    for name in ("lr", "gamma", "train_batch_size", "clip_param", "num_epochs", "lambda_"):
        assert shown[name].default == PPOConfig()[name], name
    assert inspect.signature(AlgorithmConfig.training).parameters["lr"].default == (
        AlgorithmConfig().lr
    )
    assert "clip_param" not in inspect.signature(AlgorithmConfig.training).parameters
    assert list(inspect.signature(PPOConfig.environment).parameters)[:2] == ["self", "env"]
    assert inspect.signature(PPOConfig().env_runners).parameters["num_env_runners"].default == 2
    assert inspect.signature(DQNConfig().training).parameters["num_atoms"].default == 1


def test_a_section_that_a_subclass_changes_shows_the_defaults_of_the_subclass() -> None:
    class Mine(PPOConfig):
        changed_defaults: ClassVar[dict[str, Any]] = {"clip_param": 0.1}

    assert inspect.signature(Mine().training).parameters["clip_param"].default == 0.1
    assert inspect.signature(PPOConfig().training).parameters["clip_param"].default == 0.3


def test_not_provided_changes_nothing_but_none_does() -> None:
    config = AlgorithmConfig().training(grad_clip=1.0)
    assert config.training(grad_clip=NotProvided, gamma=0.5).grad_clip == 1.0
    assert config.training(grad_clip=None).grad_clip is None


def test_positional_arguments_where_rllib_has_them() -> None:
    config = AlgorithmConfig().environment("CartPole-v1").callbacks(dict).framework("tf")
    config.api_stack(False, False).checkpointing(True, False)
    assert (config.env, config.callbacks_class, config.framework_str) == (
        "CartPole-v1",
        dict,
        "tf",
    )
    assert not config.enable_rl_module_and_learner
    assert config.export_native_model_files


def test_wrong_use_of_positional_arguments_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="takes 1 positional"):
        AlgorithmConfig().environment("a", "b")  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match=r"\(callbacks_class\).* as a list, callbacks\(\[a, b\]\)"):
        AlgorithmConfig().callbacks(object, object)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="two values for the argument `env`"):
        AlgorithmConfig().environment("a", env="b")  # type: ignore[misc]


def test_a_later_event_function_replaces_and_leaves_the_class() -> None:
    class Listener:
        pass

    config = AlgorithmConfig().callbacks(Listener, on_episode_end=print)
    config.callbacks(on_episode_end=repr)
    assert config.callbacks_class is Listener
    assert config.callbacks_on_episode_end is repr


def test_callback_spec_holds_classes_and_functions_in_order() -> None:
    def first(episode: object, **_: object) -> None: ...
    def second(**_: object) -> None: ...

    spec = PPOConfig().callbacks(on_episode_end=[first, second]).callback_spec()
    assert spec.classes == ()
    assert dict(spec.functions) == {"on_episode_end": (first, second)}


def test_env_config_is_merged_on_every_level() -> None:
    config = AlgorithmConfig().environment(env_config={"a": {"b": 1}, "c": [1]})
    config.environment(env_config={"a": {"d": 2}, "c": [2]})
    assert config.env_config == {"a": {"b": 1, "d": 2}, "c": [2]}


def test_exploration_config_is_replaced_when_its_type_changes() -> None:
    config = AlgorithmConfig().exploration(exploration_config={"type": "A", "x": 1})
    config.env_runners(exploration_config={"y": 2})
    assert config.exploration_config == {"type": "A", "x": 1, "y": 2}
    config.env_runners(exploration_config={"type": "B"})
    assert config.exploration_config == {"type": "B"}


def test_model_config_keeps_the_defaults_of_the_algorithm() -> None:
    config = PPOConfig().training(model={"fcnet_hiddens": [64]})
    expected = {"vf_share_layers": False, "fcnet_hiddens": [64]}
    assert config.model_config == expected
    config.model_config = {"fcnet_hiddens": [32]}
    assert config.model_config == {**expected, "fcnet_hiddens": [32]}
    config.training(vf_share_layers=True)
    assert config.model_config == {"vf_share_layers": True, "fcnet_hiddens": [32]}
    config.rl_module(model_config=None)
    assert config.model_config == {"vf_share_layers": False}


def test_every_setting_is_described_with_its_section() -> None:
    rows = {row.name: row for row in PPOConfig.describe_settings()}
    assert rows.keys() == PPOConfig().keys()
    assert [row.name for row in rows.values() if not row.doc] == []
    assert [row.name for row in rows.values() if not row.section] == ["in_evaluation"]
    framework = rows["framework_str"]
    assert (framework.section, framework.argument) == ("framework", "framework")
    assert rows["lr"].default == 5e-5
    assert rows["lambda_"].old_names == ("lambda",)
    assert rows["sample_timeout_s"].unit == "s"
    assert rows["num_gpus"].limits.startswith("No effect here. ")
    assert rows["num_learners"].limits.startswith("Not offered in this version. ")
    assert rows["gamma"].limits == ""


@pytest.mark.parametrize("config", [DQNConfig, PGConfig, PPOConfig, SACConfig])
def test_a_setting_without_argument_or_docstring_is_named(config: type[AlgorithmConfig]) -> None:
    rows = config.describe_settings()
    assert [row.name for row in rows if not row.doc] == []
    assert [row.name for row in rows if not row.argument] == ["in_evaluation"]


def test_tables_of_limits_name_settings_once() -> None:
    settings = set(AlgorithmConfig().keys())
    assert NOT_OFFERED.keys() <= settings
    assert NO_EFFECT.keys() <= settings
    assert not NOT_OFFERED.keys() & NO_EFFECT.keys()
