"""Made by `docs/make_section_stubs.py`; do not edit it by hand."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing_extensions import Self
from trainer.config.config_values import ConfigValues
from trainer.config.settings import Setting
from trainer.types import ToBeDrawn


class SACTrainingSection(ConfigValues):
    lr: Setting[Any]
    alpha_lr: Setting[float | list[list[float]]]
    initial_alpha: Setting[float]
    target_entropy: Setting[float | str | None]
    def training(
        self,
        *,
        lr: Any = None,
        alpha_lr: float | list[list[float]] | ToBeDrawn = 0.0003,
        initial_alpha: float | ToBeDrawn = 1.0,
        target_entropy: float | str | None | ToBeDrawn = 'auto',
        actor_lr: float | list[list[float]] | ToBeDrawn = 3e-05,
        critic_lr: float | list[list[float]] | ToBeDrawn = 0.0003,
        twin_q: bool | ToBeDrawn = True,
        td_error_loss_fn: str | ToBeDrawn = 'huber',
        policy_model_config: dict[str, Any] | ToBeDrawn = ...,
        q_model_config: dict[str, Any] | ToBeDrawn = ...,
        replay_buffer_config: dict[str, Any] | ToBeDrawn = ...,
        num_steps_sampled_before_learning_starts: int | ToBeDrawn = 1500,
        training_intensity: float | None | ToBeDrawn = None,
        n_step: int | tuple[int, int] | list[int] | ToBeDrawn = 1,
        tau: float | ToBeDrawn = 0.005,
        target_network_update_freq: int | ToBeDrawn = 0,
        store_buffer_in_checkpoints: bool | ToBeDrawn = True,
        learner_class: type[Any] | None | ToBeDrawn = None,
        learner_connector: Callable[..., Any] | None | ToBeDrawn = None,
        gamma: float | ToBeDrawn = 0.99,
        torch_lr_schedulers: Sequence[Callable[..., Any]] | None | ToBeDrawn = None,
        grad_clip: float | None | ToBeDrawn = None,
        grad_clip_by: str | ToBeDrawn = 'global_norm',
        adam_epsilon: float | ToBeDrawn = 1e-07,
        train_batch_size: int | ToBeDrawn = 256,
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
        """Say how SAC learns.

        Args:
            lr: must stay None: there are `actor_lr`, `critic_lr` and `alpha_lr`.
            alpha_lr: the learning rate of the temperature; 0 keeps it at `initial_alpha`.
            initial_alpha: the first temperature α, what a nat of entropy is worth in reward.
            target_entropy: the entropy in nats that α aims at; "auto": minus the number of action
                dimensions, or 0.98 ln n for n Discrete actions.
            actor_lr: the learning rate of the policy.
            critic_lr: the learning rate of the critics.
            twin_q: learn two critics and take the smaller value (Fujimoto et al. 2018).
            td_error_loss_fn: the loss of the critics; "mse" is that of the papers.
            policy_model_config: settings of `model_config` for the policy only.
            q_model_config: settings of `model_config` for the critics only.
            replay_buffer_config: `type` (a name of `trainer.replay`, or a class) and its arguments,
                such as `capacity`; merged into earlier values.
            num_steps_sampled_before_learning_starts: no update before so many steps were sampled.
            training_intensity: rows learnt from per step sampled; None makes one update per round of
                `rollout_fragment_length` steps from every env.
            n_step: env steps per transition, fewer where an episode ends; a pair draws a number for
                each, both ends included.
            tau: target networks move by this share of the way to the learning ones.
            target_network_update_freq: env steps between two updates of target networks; 0: after every
                update.
            store_buffer_in_checkpoints: False leaves the replay buffer out of checkpoints; a restored
                run fills a new one before it learns on.
            learner_class: how updates are made: a class derived from the algorithm's own learner; see
                docs/own-algorithm.md.
            learner_connector: makes connector pieces that see the episodes of an update before it
                learns from them (not with replay); see docs/connectors.md.
            gamma: the discount factor.
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
