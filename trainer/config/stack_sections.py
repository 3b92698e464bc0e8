"""Settings of clusters, GPUs, frameworks and several agents: known here, mostly without effect.

They are accepted so that configs written for RLlib need not be edited. Which of them do nothing,
and which are refused unless they have their default, is written down in `trainer.config.names`.
"""

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from trainer.config.config_values import ConfigValues, section
from trainer.config.settings import (
    Check,
    NotProvided,
    Setting,
    anything,
    boolean,
    integer,
    mapping,
    number,
    one_of,
    optional,
    text,
)
from trainer.types import DEFAULT_MODULE_ID

ConfigT = TypeVar("ConfigT", bound="StackSections")

_POLICIES = Check(
    "a dict by module id, or a list or set of module ids",
    lambda value: isinstance(value, (dict, list, tuple, set, frozenset)),
)
_MAPPING_FN = Check(
    "None, a callable or a dict with the key 'type'",
    lambda value: value is None or callable(value) or isinstance(value, dict),
)


class StackSections(ConfigValues):
    """`multi_agent()`, `resources()`, `framework()`, `api_stack()` and `experimental()`."""

    policies = Setting[Any]({DEFAULT_MODULE_ID: None}, _POLICIES)
    policy_map_capacity = Setting(100, integer(1))
    policy_mapping_fn = Setting[Any](None, _MAPPING_FN)
    policies_to_train = Setting[Any](None, anything("None, module ids or a callable"))
    policy_states_are_swappable = Setting(False, boolean())
    observation_fn = Setting[Callable[..., Any] | None](None, anything("None or a callable"))
    count_steps_by = Setting("env_steps", one_of("env_steps", "agent_steps"))

    num_cpus_for_main_process = Setting[float](1, number(0))
    num_gpus = Setting[float](0, number(0))
    placement_strategy = Setting("PACK", text())

    framework_str = Setting[str | None]("torch", optional(text()))
    eager_tracing = Setting(True, boolean())
    eager_max_retraces = Setting[int | None](20, optional(integer(0)))
    torch_compile_learner = Setting(False, boolean())
    torch_compile_worker = Setting(False, boolean())
    torch_ddp_kwargs = Setting[dict[str, Any]]({}, mapping())
    torch_skip_nan_gradients = Setting(False, boolean())

    enable_rl_module_and_learner = Setting(True, boolean())
    enable_env_runner_and_connector_v2 = Setting(True, boolean())

    _validate_config = Setting(True, boolean())
    _use_msgpack_checkpoints = Setting(False, boolean())
    _disable_preprocessor_api = Setting(False, boolean())
    _disable_action_flattening = Setting(False, boolean())

    @section
    def multi_agent(
        self: ConfigT,
        *,
        policies: Any = NotProvided,
        policy_map_capacity: int = NotProvided,
        policy_mapping_fn: Any = NotProvided,
        policies_to_train: Any = NotProvided,
        policy_states_are_swappable: bool = NotProvided,
        observation_fn: Callable[..., Any] | None = NotProvided,
        count_steps_by: str = NotProvided,
        algorithm_config_overrides_per_module: dict[str, Any] = NotProvided,
        **old_names: Any,
    ) -> ConfigT:
        """Say which modules act for which agents.

        Args:
            policies: modules by id, or just ids.
            policy_map_capacity: modules kept in memory.
            policy_mapping_fn: gives the module id of an agent, called as `fn(agent_id, episode)`.
            policies_to_train: ids of the modules that learn; None trains all.
            policy_states_are_swappable: whether modules can share memory.
            observation_fn: changes the observations of all agents of an env.
            count_steps_by: "env_steps" or "agent_steps".
            algorithm_config_overrides_per_module: see `rl_module()`.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

    @section
    def resources(
        self: ConfigT,
        *,
        num_cpus_for_main_process: float = NotProvided,
        num_gpus: float = NotProvided,
        placement_strategy: str = NotProvided,
        **old_names: Any,
    ) -> ConfigT:
        """Reserve parts of a cluster.

        Args:
            num_cpus_for_main_process: CPUs for the main process.
            num_gpus: GPUs for learning.
            placement_strategy: how processes are spread over machines.
            **old_names: old names of these settings, such as `num_cpus_per_worker`.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

    @section
    def framework(
        self: ConfigT,
        framework: str | None = NotProvided,
        *,
        eager_tracing: bool = NotProvided,
        eager_max_retraces: int | None = NotProvided,
        torch_compile_learner: bool = NotProvided,
        torch_compile_worker: bool = NotProvided,
        torch_ddp_kwargs: dict[str, Any] = NotProvided,
        torch_skip_nan_gradients: bool = NotProvided,
        **old_names: Any,
    ) -> ConfigT:
        """Choose a deep-learning framework.

        Args:
            framework: the name of the framework; stored as `framework_str`.
            eager_tracing: an option of TensorFlow.
            eager_max_retraces: an option of TensorFlow.
            torch_compile_learner: an option of Torch.
            torch_compile_worker: an option of Torch.
            torch_ddp_kwargs: an option of Torch.
            torch_skip_nan_gradients: an option of Torch.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

    @section
    def api_stack(
        self: ConfigT,
        enable_rl_module_and_learner: bool = NotProvided,
        enable_env_runner_and_connector_v2: bool = NotProvided,
    ) -> ConfigT:
        """Choose between RLlib's two implementations.

        Args:
            enable_rl_module_and_learner: learn with the new one.
            enable_env_runner_and_connector_v2: sample with the new one.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

    @section
    def experimental(
        self: ConfigT,
        *,
        _validate_config: bool = NotProvided,
        _use_msgpack_checkpoints: bool = NotProvided,
        _disable_preprocessor_api: bool = NotProvided,
        _disable_action_flattening: bool = NotProvided,
        **old_names: Any,
    ) -> ConfigT:
        """Switch experimental parts.

        Args:
            _validate_config: check the settings before they are used.
            _use_msgpack_checkpoints: write checkpoints without pickle.
            _disable_preprocessor_api: an option of RLlib's old implementation.
            _disable_action_flattening: an option of RLlib's old implementation.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self
