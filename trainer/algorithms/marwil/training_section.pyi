"""Made by `docs/make_section_stubs.py`; do not edit it by hand."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing_extensions import Self
from trainer.config.config_values import ConfigValues
from trainer.config.settings import Setting
from trainer.types import ToBeDrawn


class MARWILTrainingSection(ConfigValues):
    beta: Setting[float]
    vf_coeff: Setting[float]
    lambda_: Setting[float]
    moving_average_sqd_adv_norm_start: Setting[float]
    moving_average_sqd_adv_norm_update_rate: Setting[float]
    def training(
        self,
        *,
        beta: float | ToBeDrawn = 1.0,
        vf_coeff: float | ToBeDrawn = 1.0,
        lambda_: float | ToBeDrawn = 1.0,
        moving_average_sqd_adv_norm_start: float | ToBeDrawn = 100.0,
        moving_average_sqd_adv_norm_update_rate: float | ToBeDrawn = 1e-08,
        learner_class: type[Any] | None | ToBeDrawn = None,
        learner_connector: Callable[..., Any] | None | ToBeDrawn = None,
        gamma: float | ToBeDrawn = 0.99,
        lr: float | list[list[float]] | ToBeDrawn = 0.0001,
        torch_lr_schedulers: Sequence[Callable[..., Any]] | None | ToBeDrawn = None,
        grad_clip: float | None | ToBeDrawn = None,
        grad_clip_by: str | ToBeDrawn = 'global_norm',
        adam_epsilon: float | ToBeDrawn = 1e-08,
        train_batch_size: int | ToBeDrawn = 2000,
        num_epochs: int | ToBeDrawn = 1,
        minibatch_size: int | None | ToBeDrawn = None,
        shuffle_batch_per_epoch: bool | ToBeDrawn = False,
        sample_ahead: bool | int | ToBeDrawn = False,
        learner_config_dict: dict[str, Any] | ToBeDrawn = ...,
        model_config: Any = ...,
        train_batch_size_per_learner: Any = ...,
        lr_schedule: Any = ...,
        model: Any = ...,
        vf_share_layers: Any = ...,
        **old_names: Any,
    ) -> Self:
        """Say how MARWIL and BC learn.

        Args:
            beta: β: an action counts by exp(β A / c), with its advantage A and the norm c of
                advantages; 0 imitates all alike.
            vf_coeff: the coefficient of the value loss.
            lambda_: the λ of returns: 1 trusts the recorded rewards, 0 the values.
            moving_average_sqd_adv_norm_start: the first c², the moving mean of squared advantages.
            moving_average_sqd_adv_norm_update_rate: how far c² moves to the mean of each minibatch.
            learner_class: how updates are made: a class derived from the algorithm's own learner; see
                docs/own-algorithm.md.
            learner_connector: makes connector pieces that see the episodes of an update before it
                learns from them (not with replay); see docs/connectors.md.
            gamma: the discount factor.
            lr: the learning rate.
            torch_lr_schedulers: Torch's schedulers, which change `lr` after each update (PPO and PG):
                `[functools.partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.99)]`.
            grad_clip: the bound that `grad_clip_by` applies to gradients; None does not clip.
            grad_clip_by: "value" clips each number, "norm" each array by its norm, "global_norm" all by
                their norm.
            adam_epsilon: Adam's ε; larger values make steps with small gradients smaller.
            train_batch_size: env steps sampled for one update.
            num_epochs: how often an update passes over its batch.
            minibatch_size: rows per gradient step; None takes the whole batch.
            shuffle_batch_per_epoch: draw a new order of the rows for every epoch.
            sample_ahead: how many samples env runners play ahead while the main process learns, with
                weights as many updates old (PPO, APPO); True is one.
            learner_config_dict: your own data: callbacks find it in `algorithm.config`, a learner of
                yours in `self.config`.
            model_config: settings of the networks, e.g. `{"fcnet_hiddens": [64, 64]}`; merged into
                earlier values.
            train_batch_size_per_learner: `train_batch_size`: there is one learner. None says nothing.
            lr_schedule: old way to give a schedule for `lr`; None says nothing.
            model: old name of `model_config`; merged into earlier values.
            vf_share_layers: whether policy and value function share layers; stored in `model_config`.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """
