"""PPO's loss in Torch, for those who write one of their own."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

from numpy.random import Generator

from trainer.algorithms.ppo.loss import PPOCoefficients
from trainer.algorithms.ppo.ppo import NORM, PPOLearner
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    VALUE_TARGETS,
    VF_PREDS,
)
from trainer.errors import ConfigError
from trainer.learners import Columns, TrainBatchEvent
from trainer.learners.torch_optimizers import TorchOptimizer
from trainer.modules import PPOTorchRLModule, RLModule, TorchRLModule
from trainer.modules.torch_distributions import TorchPolicies
from trainer.nn import ScheduleSetting
from trainer.types import Array, ModuleId

_LOGGER: Final = logging.getLogger(__name__)


class PPOTorchLearner(PPOLearner):
    """PPO whose loss is computed in Torch; autograd makes the gradients.

        class MyLearner(PPOTorchLearner):
            def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
                loss = super().compute_loss_for_module(
                    module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
                )
                sizes = torch.stack([p.square().mean() for p in self.get_parameters()])
                self.metrics.log_value("weight_size", sizes.mean().item(), window=1)
                return loss + config.learner_config_dict["decay"] * sizes.mean()

        config.training(learner_class=MyLearner, learner_config_dict={"decay": 1e-3})

    The network is a `TorchRLModule`; if none is named, `PPOTorchRLModule`. Clipping, Adam and
    schedules are those of the config, unless there are optimisers of one's own
    (`configure_optimizers_for_module`); minibatches, advantages and targets are those of
    `PPOLearner`. The same loss as PPO's gives the same numbers up to the last bits.

    Attributes:
        coefficients: the weights of the loss's parts in this update.
    """

    network_class: ClassVar[type[RLModule] | None] = PPOTorchRLModule
    never_called: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"compute_loss": "Write `compute_loss_for_module`, or derive from PPOLearner."}
    )
    module: TorchRLModule
    coefficients: PPOCoefficients
    _terms: dict[str, float]
    _optimizers: dict[str, TorchOptimizer]
    _num_env_steps: int

    def __init__(self, **arguments: Any) -> None:
        """See `PPOLearner`.

        Raises:
            ConfigError: the module is no `TorchRLModule`.
        """
        super().__init__(**arguments)
        module: RLModule = self.module
        if not isinstance(module, TorchRLModule):
            raise ConfigError(
                f"learner_class={type(self).__name__} computes its loss in Torch, but the network "
                f"is a {type(module).__name__}. Give one in Torch: rl_module(rl_module_spec="
                "RLModuleSpec(module_class=…)) with a class derived from TorchRLModule; or derive "
                "the learner from PPOLearner, whose `compute_loss` works on arrays."
            )
        self._terms, self._optimizers, self._num_env_steps = {}, {}, 0

    @property
    def policies(self) -> TorchPolicies:
        """Makes π of action distribution inputs: `self.policies.from_logits(fwd_out[…])`."""
        return TorchPolicies(self.module.action_distribution)

    def build(self) -> None:
        """Registers optimisers; a subclass calls this, too, when it overrides it."""
        self.configure_optimizers_for_module(module_id=self.module_id, config=self.config)
        moved = [one for each in self._optimizers.values() for one in each.parameters]
        count = len(list(self.module.parameters()))
        if self._optimizers and len(moved) < count:
            _LOGGER.warning(
                "The optimisers of %s move %d of the %d tensors of its network; the others stay as "
                "they are.",
                type(self).__name__,
                len(moved),
                count,
            )

    def configure_optimizers_for_module(self, module_id: ModuleId, config: Any = None) -> None:
        """For subclasses: registers optimisers of Torch; without, Adam moves all parameters.

        Args:
            module_id: whose optimisers.
            config: its settings.
        """

    def register_optimizer(
        self,
        *,
        module_id: ModuleId | None = None,
        optimizer_name: str = "default_optimizer",
        optimizer: Any,
        params: Sequence[Any] | None = None,
        lr_or_lr_schedule: ScheduleSetting | None = None,
    ) -> None:
        """Lets an optimiser of Torch move the parameters that it was made with.

        Called from `configure_optimizers_for_module`. Parameters that no optimiser has stay as they
        are. Gradients are clipped before as the config says.

        Args:
            module_id: this learner's, if given.
            optimizer_name: its component is `optimizer_{name}`, its rate `{name}_learning_rate`.
            optimizer: a `torch.optim.Optimizer` over parameters of the network.
            params: those of the optimiser, if given.
            lr_or_lr_schedule: its learning rate, or a schedule of it by env steps; None leaves that
                which it was made with. `torch_lr_schedulers` change the first one.

        Raises:
            ConfigError: the optimiser, its name or its parameters cannot be this learner's.
        """
        made = TorchOptimizer(optimizer, lr=lr_or_lr_schedule, name=optimizer_name)
        given = {id(one) for one in made.parameters}
        own = {id(one) for one in self.module.parameters()}
        taken = {id(one) for each in self._optimizers.values() for one in each.parameters}
        problems = {
            f"module_id={module_id!r}, but it learns {self.module_id!r}": module_id
            not in (None, self.module_id),
            "its name is taken, or is no name": optimizer_name in self._optimizers
            or not optimizer_name.isidentifier(),
            f"{len(given - own)} of its {len(given)} parameters are none of "
            f"{type(self.module).__name__}": bool(given - own),
            f"{len(given & taken)} of its parameters have another optimiser": bool(given & taken),
            "`params` are not those of the optimiser": params is not None
            and {id(one) for one in params} != given,
        }
        if found := [problem for problem, holds in problems.items() if holds]:
            raise ConfigError(
                f"register_optimizer(optimizer_name={optimizer_name!r}) of {type(self).__name__}: "
                f"{'; '.join(found)}. Make it from `self.get_parameters()`, each tensor in one."
            )
        if schedule := self.torch_schedule(*made.rates, name=f"lr_schedulers_{optimizer_name}"):
            made.follow(schedule)
        self._optimizers[optimizer_name] = made
        self.parts[f"optimizer_{optimizer_name}"] = made

    def learn(
        self, columns: Columns, *, rng: Generator, num_env_steps: int, event: TrainBatchEvent
    ) -> dict[str, Any]:
        """One update; see `EpisodeLearner.learn`."""
        self._num_env_steps = num_env_steps
        metrics = super().learn(columns, rng=rng, num_env_steps=num_env_steps, event=event)
        if self._optimizers:
            del metrics["default_optimizer_learning_rate"]
        return metrics | {f"{name}_learning_rate": one.lr for name, one in self._optimizers.items()}

    def apply_gradients(self, *, loss: float, lr: float | Array, batch: Mapping[str, Any]) -> float:
        """Clips the gradients and makes one step of each optimiser; see `Learner`."""
        if not self._optimizers:
            return super().apply_gradients(loss=loss, lr=lr, batch=batch)
        norm = self.clipping.global_norm()
        self.note_applied(loss, norm, batch)
        self.clipping.clip(global_norm=norm)
        self.module.lend_gradients()
        for optimizer in self._optimizers.values():
            optimizer.step(self._num_env_steps)
        return norm

    def compute_loss_for_module(
        self,
        *,
        module_id: ModuleId,
        config: Any,
        batch: dict[str, Any],
        fwd_out: dict[str, Any],
    ) -> Any:
        """The loss of a minibatch, a tensor of one number; see `trainer.algorithms.ppo.loss`.

        Called once per gradient step. What it logs is shown at `learners/{module_id}`.

        Args:
            module_id: whose loss.
            config: its settings.
            batch: tensors [B, …]: "obs", "actions", "action_logp", "action_dist_inputs" (of the
                policy that acted), "vf_preds" (before the update), "advantages", "value_targets",
                and columns of callbacks.
            fwd_out: what the forward pass of learning gave: "action_dist_inputs" [B, K] with masks
                applied, "vf_preds" [B], and what else the network returns. With memory, these two
                are rows as the batch's, without padding.
        """
        del module_id, config
        c = self.coefficients
        policy = self.policies.from_logits(fwd_out[ACTION_DIST_INPUTS])
        logp, entropy, kl = policy.terms(batch[ACTIONS], reference=batch[ACTION_DIST_INPUTS])
        ratio, advantages = (logp - batch[ACTION_LOGP]).exp(), batch[ADVANTAGES]
        clipped = ratio.clamp(1.0 - c.clip_param, 1.0 + c.clip_param)
        surrogate = (ratio * advantages).minimum(clipped * advantages).mean()
        loss = -surrogate - c.entropy_coeff * entropy.mean()
        if c.kl_coeff:
            loss = loss + c.kl_coeff * kl.mean()
        self.note_terms(
            policy_loss=-surrogate,
            entropy=entropy.mean(),
            mean_kl_loss=kl.mean(),
            clip_fraction=(clipped != ratio).double().mean(),
        )
        return loss + self._value_loss(batch, fwd_out) if c.vf_loss_coeff else loss

    def _value_loss(self, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Any:
        if VF_PREDS not in fwd_out:
            raise self.module.no_values_error()
        limit = self.coefficients.vf_clip_param
        errors = (fwd_out[VF_PREDS] - batch[VALUE_TARGETS]).square()
        vf_loss = errors.clamp(max=limit).mean()
        self.note_terms(
            vf_loss=vf_loss,
            vf_loss_unclipped=errors.mean(),
            vf_clip_fraction=(errors > limit).double().mean(),
        )
        return self.coefficients.vf_loss_coeff * vf_loss

    def note_terms(self, **terms: Any) -> None:
        """Notes terms of the loss; their means over the last epoch are in the result.

        Args:
            terms: numbers, or tensors of one. By `mean_kl_loss`, `kl_coeff` is adapted.
        """
        for name, term in terms.items():
            self._terms[name] = float(term.detach() if hasattr(term, "detach") else term)

    def get_parameters(self, module: TorchRLModule | None = None) -> list[Any]:
        """The tensors that are learnt, where the loss is computed.

        Args:
            module: whose; None is that of this learner.
        """
        own = self.module if module is None else module
        return [tensor for _, tensor in own.named_parameters()]

    def _step(
        self, minibatch: dict[str, Array], *, coefficients: PPOCoefficients, lr: float
    ) -> tuple[dict[str, float], float]:
        self.coefficients, self._terms = coefficients, {}
        loss = self.module.learn_from_loss(minibatch, self._loss_in_torch)
        norm = self.apply_gradients(loss=loss, lr=lr, batch=minibatch)
        return {**self._terms, "total_loss": loss}, norm

    def _loss_in_torch(self, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Any:
        return self.compute_loss_for_module(
            module_id=self.module_id, config=self.config, batch=batch, fwd_out=fwd_out
        )

    def _means(self, record: Collection[tuple[Mapping[str, float], float]]) -> dict[str, Any]:
        """As of `PPOLearner`, of the terms that were noted, over the steps that noted them."""
        found: dict[str, list[float]] = {}
        for terms, norm in record:
            for name, value in {**terms, NORM: norm}.items():
                found.setdefault(name, []).append(value)
        return {name: sum(values) / len(values) for name, values in found.items()}
