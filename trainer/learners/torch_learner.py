"""Learning in Torch: losses that users write, autograd, optimisers of Torch."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, NoReturn

from numpy.random import Generator

from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    OBS,
    REWARDS,
    TERMINATEDS,
)
from trainer.errors import ConfigError, ModuleError
from trainer.learners.columns import Columns, TrainBatchEvent
from trainer.learners.learner import GRADIENT_NORM, EpisodeLearner
from trainer.learners.torch_optimizers import TorchOptimizer
from trainer.modules import PPOTorchRLModule, RLModule, TorchRLModule
from trainer.modules.torch_distributions import TorchPolicies
from trainer.nn import ScheduleSetting
from trainer.types import Array, ModuleId

_LOGGER: Final = logging.getLogger(__name__)


class _Columns(dict[str, Any]):
    """What a loss is given; a name that is not there is answered with those that are."""

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"{name!r} is none of {', '.join(map(repr, self))}")


class TorchLearner(EpisodeLearner):
    """Learns from each sample once, with a loss in Torch that a subclass writes.

        class Reinforce(TorchLearner):
            def build(self):
                super().build()
                self.learner_connector.prepend(ComputeReturnsToGo(gamma=self.config.gamma))

            def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
                policy = self.policies.from_logits(fwd_out["action_dist_inputs"])
                return -(policy.logp(batch["actions"]) * batch["returns_to_go"]).mean()

        class VPG(OnPolicyAlgorithm):
            config_class = VPGConfig

            def make_learner(self, module_id=None):
                return self.new_learner(Reinforce, module_id)

    The network is a `TorchRLModule`; if none is named, `PPOTorchRLModule`. Minibatches, clipping,
    Adam and schedules are those of the config (`minibatch_size`, `num_epochs`, `lr` …), unless
    there are optimisers of one's own (`configure_optimizers_for_module`). `PPOTorchLearner` is
    derived from it, and has PPO's advantages and targets besides.
    """

    network_class: ClassVar[type[RLModule] | None] = PPOTorchRLModule
    never_called: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "compute_loss": "Write `compute_loss_for_module`, or derive from PPOLearner.",
            # Of Lightning:
            "training_step": "Write `compute_loss_for_module`, which returns the loss.",
            "validation_step": "Evaluation is a setting: `evaluation(evaluation_interval=...)`.",
            "on_train_batch_end": "Write `after_gradient_based_update`.",
            "on_train_epoch_end": "Write a callback: `on_train_result`.",
        }
    )
    module: TorchRLModule
    _terms: dict[str, float]
    _optimizers: dict[str, TorchOptimizer]
    _num_env_steps: int

    def __init__(self, **arguments: Any) -> None:
        """See `Learner`.

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
        given: Any = self.configure_optimizers_for_module(  # type: ignore[func-returns-value]
            module_id=self.module_id, config=self.config
        )
        if given is not None:
            raise ConfigError(
                f"{type(self).__name__}.configure_optimizers_for_module() returned a "
                f"{type(given).__name__}, which nothing would use; expected None. Register each "
                "optimiser: self.register_optimizer(optimizer=..., lr_or_lr_schedule=...)."
            )
        if self._optimizers:  # in place of Adam, whose rate nobody asks for
            unused = self.parts.pop("lr_schedulers", None)
            self.torch_schedules = [one for one in self.torch_schedules if one is not unused]
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
        rows = event.fire(
            {
                **columns.extras,
                **self.batching.state_rows(columns),
                OBS: columns.obs,
                ACTIONS: columns.actions,
                ACTION_LOGP: columns.action_logp,
                ACTION_DIST_INPUTS: columns.action_dist_inputs,
                REWARDS: columns.rewards.astype("float32"),
                TERMINATEDS: columns.terminateds,
            }
        )
        lr = self._lr.value_at(num_env_steps)
        record, num_trained = self.learn_in_minibatches(
            rows, columns.lengths, functools.partial(self.gradient_step, lr=lr), rng=rng
        )
        metrics = self._means(record)
        metrics["default_optimizer_learning_rate"] = lr
        metrics["num_module_steps_trained"] = num_trained
        return self.with_rates(metrics)

    def gradient_step(
        self, minibatch: dict[str, Array], *, lr: float
    ) -> tuple[dict[str, float], float]:
        """One step along the gradients of the loss; its terms, and the norm before clipping."""
        self._terms = {}
        loss = self.module.learn_from_loss(minibatch, self._loss_in_torch)
        norm = self.apply_gradients(loss=loss, lr=lr, batch=minibatch)
        return {**self._terms, "total_loss": loss}, norm

    def with_rates(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Metrics with the rates of optimisers that were registered, if there are some."""
        if self._optimizers:
            del metrics["default_optimizer_learning_rate"]
        return metrics | {f"{name}_learning_rate": one.lr for name, one in self._optimizers.items()}

    def compute_loss_for_module(
        self,
        *,
        module_id: ModuleId,
        config: Any,
        batch: dict[str, Any],
        fwd_out: dict[str, Any],
    ) -> Any:
        """The loss of a minibatch, a tensor of one number; a subclass writes it.

        Called once per gradient step. What it logs is shown at `learners/{module_id}`.

        Args:
            module_id: whose loss.
            config: its settings.
            batch: tensors [B, …]: "obs", "actions", "action_logp", "action_dist_inputs" (of the
                policy that acted), "rewards", "terminateds", and columns of callbacks and of
                `learner_connector`.
            fwd_out: what the forward pass of learning gave: "action_dist_inputs" [B, K] with masks
                applied, "vf_preds" [B] if there are values, and what else the network returns. With
                memory, these two are rows as the batch's, without padding.
        """
        del module_id, config, batch, fwd_out
        raise ModuleError(
            f"{type(self).__name__} has no loss. Write `compute_loss_for_module(self, *, "
            "module_id, config, batch, fwd_out)`, which returns a tensor of one number."
        )

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

    def _loss_in_torch(self, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Any:
        return self.compute_loss_for_module(
            module_id=self.module_id,
            config=self.config,
            batch=_Columns(batch),
            fwd_out=_Columns(fwd_out),
        )

    def _means(self, record: Collection[tuple[Mapping[str, float], float]]) -> dict[str, Any]:
        """The mean of every term that was noted, over the steps that noted it."""
        found: dict[str, list[float]] = {}
        for terms, norm in record:
            for name, value in {**terms, GRADIENT_NORM: norm}.items():
                found.setdefault(name, []).append(value)
        return {name: sum(values) / len(values) for name, values in found.items()}
