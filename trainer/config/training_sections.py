"""Settings of learning that all algorithms share: training, learners, modules."""

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from trainer.config.checks import (
    Check,
    anything,
    boolean,
    either,
    function,
    integer,
    mapping,
    number,
    one_of,
    optional,
    schedule,
)
from trainer.config.config_values import ConfigValues, section
from trainer.config.setting import Merge, NotProvided, Setting
from trainer.modules import RLModuleSpec, plain_names

ConfigT = TypeVar("ConfigT", bound="TrainingSections")

Schedule = float | list[list[float]]
"""A number, or the pairs of a piecewise linear schedule over env steps."""


def _model_config(value: Any) -> Any:
    """Accept a dataclass such as RLlib's `DefaultModelConfig`, and functions for their names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return {**value, **plain_names(value)} if isinstance(value, dict) else value


_MODULE_SPEC = Check(
    "None or an RLModuleSpec",
    lambda value: value is None or isinstance(value, RLModuleSpec),
)


class TrainingSections(ConfigValues):
    """`training()`, `learners()` and `rl_module()`."""

    gamma = Setting[float](0.99, number(0, maximum=1))
    lr = Setting[Schedule](0.001, schedule(0))
    grad_clip = Setting[float | None](None, optional(number(above=0)))
    grad_clip_by = Setting("global_norm", one_of("value", "norm", "global_norm"))
    train_batch_size = Setting(32, integer(1), unit="env steps")
    num_epochs = Setting(1, integer(1))
    minibatch_size = Setting[int | None](None, optional(integer(1)), unit="env steps")
    shuffle_batch_per_epoch = Setting(False, boolean())
    optimizer = Setting[dict[str, Any]]({}, mapping(), merge=Merge.DEEP)
    learner_class = Setting[Any](None, anything("None or a Learner class"))
    learner_connector = Setting[Callable[..., Any] | None](None, optional(function()))
    add_default_connectors_to_learner_pipeline = Setting(True, boolean())
    learner_config_dict = Setting[dict[str, Any]]({}, mapping(), merge=Merge.DEEP)

    num_learners = Setting(0, integer(0))
    num_cpus_per_learner = Setting[float | str]("auto", either(number(0), one_of("auto")))
    num_gpus_per_learner = Setting[float](0, number(0))
    num_aggregator_actors_per_learner = Setting(0, integer(0))
    max_requests_in_flight_per_aggregator_actor = Setting[float](3, number(1, infinite=True))
    local_gpu_idx = Setting(0, integer(0))
    max_requests_in_flight_per_learner = Setting[float](3, number(1, infinite=True))

    model_config = Setting[dict[str, Any]](
        {}, mapping(), merge=Merge.DEEP, normalize=_model_config, keeps_default=True
    )
    rl_module_spec = Setting[Any](None, _MODULE_SPEC)
    algorithm_config_overrides_per_module = Setting[dict[str, Any]]({}, mapping(mapping()))

    @section
    def training(
        self: ConfigT,
        *,
        gamma: float = NotProvided,
        lr: Schedule = NotProvided,
        grad_clip: float | None = NotProvided,
        grad_clip_by: str = NotProvided,
        train_batch_size: int = NotProvided,
        train_batch_size_per_learner: int | None = NotProvided,
        num_epochs: int = NotProvided,
        minibatch_size: int | None = NotProvided,
        shuffle_batch_per_epoch: bool = NotProvided,
        model: dict[str, Any] = NotProvided,
        optimizer: dict[str, Any] = NotProvided,
        learner_class: Any = NotProvided,
        learner_connector: Callable[..., Any] | None = NotProvided,
        add_default_connectors_to_learner_pipeline: bool = NotProvided,
        learner_config_dict: dict[str, Any] = NotProvided,
        **more_settings: Any,
    ) -> ConfigT:
        """Say how the algorithm learns; algorithms add their own arguments.

        Args:
            gamma: the discount factor, in [0, 1].
            lr: the learning rate: a number, or a schedule `[[env_steps, value], ...]` starting at
                0.
            grad_clip: the bound that `grad_clip_by` applies to gradients; None does not clip.
            grad_clip_by: "value" clips each number, "norm" each array by its norm, "global_norm"
                all by their norm.
            train_batch_size: env steps sampled for one update.
            train_batch_size_per_learner: the same; there is one learner. None says nothing.
            num_epochs: how often an update passes over its batch.
            minibatch_size: rows per gradient step; None takes the whole batch.
            shuffle_batch_per_epoch: draw a new order of the rows for every epoch.
            model: old name of `model_config`; merged into what is there.
            optimizer: options of the optimizer.
            learner_class: a Learner of your own.
            learner_connector: makes connector pieces between episodes and learner.
            add_default_connectors_to_learner_pipeline: keep the default pieces there.
            learner_config_dict: your own data for a Learner of your own; nothing else reads it.
            **more_settings: settings of the algorithm and old names, such as `num_sgd_iter`.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

    @section
    def learners(
        self: ConfigT,
        *,
        num_learners: int = NotProvided,
        num_cpus_per_learner: float | str = NotProvided,
        num_gpus_per_learner: float = NotProvided,
        num_aggregator_actors_per_learner: int = NotProvided,
        max_requests_in_flight_per_aggregator_actor: float = NotProvided,
        local_gpu_idx: int = NotProvided,
        max_requests_in_flight_per_learner: float = NotProvided,
        **old_names: Any,
    ) -> ConfigT:
        """Say where learning runs: here, always in the main process.

        Args:
            num_learners: learner processes; 0 learns in the main process.
            num_cpus_per_learner: CPUs to reserve for each learner.
            num_gpus_per_learner: GPUs to reserve for each learner.
            num_aggregator_actors_per_learner: processes that build batches for each learner.
            max_requests_in_flight_per_aggregator_actor: requests such a process may have waiting.
            local_gpu_idx: which GPU a learner in the main process uses.
            max_requests_in_flight_per_learner: requests a learner may have waiting.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

    @section
    def rl_module(
        self: ConfigT,
        *,
        model_config: Any = NotProvided,
        rl_module_spec: Any = NotProvided,
        algorithm_config_overrides_per_module: dict[str, Any] = NotProvided,
        **old_names: Any,
    ) -> ConfigT:
        """Say which networks are used.

        Args:
            model_config: settings of the networks, e.g. `{"fcnet_hiddens": [64, 64]}`; merged into
                what is there.
            rl_module_spec: an `RLModuleSpec` with a module class of your own.
            algorithm_config_overrides_per_module: settings by module id.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self
