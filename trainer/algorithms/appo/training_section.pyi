"""Made by `docs/make_section_stubs.py`; do not edit it by hand."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing_extensions import Self
from trainer.config.config_values import ConfigValues
from trainer.config.settings import Setting
from trainer.types import ToBeDrawn


class APPOTrainingSection(ConfigValues):
    vtrace: Setting[bool]
    vtrace_clip_rho_threshold: Setting[float]
    vtrace_clip_pg_rho_threshold: Setting[float]
    def training(
        self,
        *,
        vtrace: bool | ToBeDrawn = True,
        vtrace_clip_rho_threshold: float | ToBeDrawn = 1.0,
        vtrace_clip_pg_rho_threshold: float | ToBeDrawn = 1.0,
        use_critic: bool | ToBeDrawn = True,
        use_gae: bool | ToBeDrawn = True,
        lambda_: float | ToBeDrawn = 1.0,
        standardize_advantages: str | None | ToBeDrawn = 'batch',
        use_kl_loss: bool | ToBeDrawn = False,
        kl_coeff: float | ToBeDrawn = 0.2,
        kl_target: float | ToBeDrawn = 0.01,
        vf_loss_coeff: float | ToBeDrawn = 0.5,
        entropy_coeff: float | list[list[float]] | ToBeDrawn = 0.01,
        clip_param: float | list[list[float]] | ToBeDrawn = 0.4,
        vf_clip_param: float | None | ToBeDrawn = None,
        learner_class: type[Any] | None | ToBeDrawn = None,
        learner_connector: Callable[..., Any] | None | ToBeDrawn = None,
        gamma: float | ToBeDrawn = 0.99,
        lr: float | list[list[float]] | ToBeDrawn = 0.0005,
        torch_lr_schedulers: Sequence[Callable[..., Any]] | None | ToBeDrawn = None,
        grad_clip: float | None | ToBeDrawn = 40.0,
        grad_clip_by: str | ToBeDrawn = 'global_norm',
        adam_epsilon: float | ToBeDrawn = 1e-08,
        train_batch_size: int | ToBeDrawn = 500,
        num_epochs: int | ToBeDrawn = 1,
        minibatch_size: int | None | ToBeDrawn = None,
        shuffle_batch_per_epoch: bool | ToBeDrawn = True,
        sample_ahead: bool | int | ToBeDrawn = 2,
        learner_config_dict: dict[str, Any] | ToBeDrawn = ...,
        model_config: Any = ...,
        train_batch_size_per_learner: Any = ...,
        lr_schedule: Any = ...,
        entropy_coeff_schedule: Any = ...,
        model: Any = ...,
        vf_share_layers: Any = ...,
        **old_names: Any,
    ) -> Self:
        """Say how APPO and IMPALA learn.

        Args:
            vtrace: correct advantages and value targets for the age of a sample by V-trace; False
                estimates them as PPO does.
            vtrace_clip_rho_threshold: ρ̄, the largest weight of a step in V-trace's value targets.
            vtrace_clip_pg_rho_threshold: the largest weight of a step in V-trace's policy gradient.
            use_critic: learn a value function; False leaves its loss out.
            use_gae: estimate advantages by GAE (Schulman et al. 2016); False takes discounted returns.
            lambda_: the λ of GAE.
            standardize_advantages: give advantages mean 0 and deviation 1 over the "batch", or over
                each "minibatch" as Stable-Baselines3 and CleanRL do; None does not.
            use_kl_loss: add the KL divergence between old and new policy to the loss.
            kl_coeff: the first coefficient of that term; adapted so that the divergence stays near
                `kl_target`.
            kl_target: the divergence aimed at.
            vf_loss_coeff: the coefficient of the value loss.
            entropy_coeff: the coefficient of the entropy bonus.
            clip_param: ε: the probability ratio is clipped to [1 - ε, 1 + ε].
            vf_clip_param: bound of the squared value error; None and infinity do not clip.
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
            entropy_coeff_schedule: old way to give a schedule for `entropy_coeff`; None says nothing.
            model: old name of `model_config`; merged into earlier values.
            vf_share_layers: whether policy and value function share layers; stored in `model_config`.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """
