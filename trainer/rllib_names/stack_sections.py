"""Settings of clusters, GPUs and frameworks: known here, without effect.

They are accepted so that configs written for RLlib need not be edited. Which of them do nothing,
and which are refused unless they have their default, is written down in `config.py` beside.
"""

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002

from __future__ import annotations

from typing import Any, TypeVar

from trainer.config.config_values import ConfigValues, section
from trainer.config.settings import (
    NotProvided,
    Setting,
    boolean,
    integer,
    mapping,
    number,
    optional,
    text,
)

ConfigT = TypeVar("ConfigT", bound="StackSections")


class StackSections(ConfigValues):
    """`framework()`, `api_stack()` and `experimental()`; settings of `resources()`."""

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
