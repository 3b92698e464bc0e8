"""DQN: acts ε-greedily, stores what it sees, and learns from random parts of it.

The losses of DQN and their gradients, on arrays only.
With Q the learning and Q⁻ the target network, w the importance weights, and R, s', γ' the sum of
rewards, the observation and the discount after up to n steps (γ' = 0 where the episode ended):

    a*   = argmax Q(s', ·)   (double: van Hasselt et al. 2016, equation 4; else argmax Q⁻(s', ·))
    y    = R + γ' Q⁻(s', a*)                   Mnih et al. 2015; n steps: Sutton 1988
    δ    = Q(s, a) - y
    loss = mean w · huber(δ)  or  mean w · δ²

Huber is δ²/2 for |δ| ≤ 1 and |δ| - 1/2 beyond (Mnih et al. 2015, "error clipping").

With m atoms z (Bellemare et al. 2017, algorithm 1) every action has a distribution p(s, a) over the
atoms; the target is the distribution of R + γ' z under Q⁻, clipped to [z_1, z_m] and shared out
between neighbouring atoms, and the loss is its cross-entropy with p(s, a).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from gymnasium import spaces

from trainer.algorithms.dqn.step_in_c import StepInC
from trainer.algorithms.dqn.training_section import DQNTrainingSection
from trainer.algorithms.on_and_off_policy import OffPolicyAlgorithm, OffPolicyConfig
from trainer.config import AlgorithmConfig
from trainer.config.algorithm_config import given_module_specs
from trainer.config.settings import Problem, assignment
from trainer.config.validation import Rule
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS
from trainer.errors import ConfigError, UnsupportedSpaceError
from trainer.learners import (
    GRADIENT_NORM,
    LearnerSettings,
    ReplayBatch,
    ReplayLearner,
    ReplaySettings,
    ReplayUpdate,
    TargetNetwork,
    td_error_losses,
    td_targets,
)
from trainer.modules import DefaultModelConfig, QModule, RLModule, RLModuleSpec
from trainer.modules.model_config import refuse_memory
from trainer.modules.random_module import RandomRLModule
from trainer.types import Array, ModuleId
from trainer_toolkit.trees import same

# ---- loss


@dataclass(frozen=True)
class QLoss:
    """The loss of one batch and its gradient.

    Attributes:
        total_loss: the value that is minimised.
        td_errors: δ, or the cross-entropy of each row with atoms; [B], what priorities follow.
        q_selected: Q(s, a), [B].
        d_outputs: derivative of the total with respect to the network's outputs, [B, n·m].
    """

    total_loss: float
    td_errors: Array
    q_selected: Array
    d_outputs: Array


def td_loss(q_values: Array, actions: Array, targets: Array, weights: Array, *, kind: str) -> QLoss:
    """The loss of plain values.

    Args:
        q_values: Q(s, ·), [B, n].
        actions: int64 [B].
        targets: y, [B].
        weights: w, [B].
        kind: "huber" or "mse".
    """
    num_rows = len(actions)
    rows = np.arange(num_rows)
    selected = q_values[rows, actions]
    errors = selected - targets
    losses, slopes = td_error_losses(errors, kind=kind)
    gradient = np.zeros(q_values.shape[::-1], q_values.dtype).T  # as networks lay values out
    gradient[rows, actions] = weights * slopes / num_rows
    # Sums instead of means: `np.mean` costs 8 µs here, as much as all products together.
    total = float(np.add.reduce(weights * losses)) / num_rows
    return QLoss(total, errors, selected, gradient)


def projected_distribution(
    rewards: Array, discounts: Array, next_probs: Array, atoms: Array
) -> Array:
    """The target distribution on the atoms (Bellemare et al. 2017, algorithm 1), [B, m].

    Args:
        rewards: R, [B].
        discounts: γ', [B].
        next_probs: of the best next action under Q⁻, [B, m].
        atoms: z, equally spaced, ascending, [m].
    """
    num_atoms = len(atoms)
    spacing = (atoms[-1] - atoms[0]) / (num_atoms - 1)
    values = np.clip(rewards[:, None] + discounts[:, None] * atoms, atoms[0], atoms[-1])
    places = np.clip((values - atoms[0]) / spacing, 0.0, num_atoms - 1.0)
    # What is no number has no place; it stays in `above`, so that the loss shows it.
    lower = np.floor(np.nan_to_num(places)).astype(np.int64)
    upper = np.minimum(lower + 1, num_atoms - 1)
    above = places - lower
    projected = np.zeros_like(next_probs)
    rows = np.arange(len(rewards))[:, None]
    np.add.at(projected, (rows, lower), next_probs * (1.0 - above))
    np.add.at(projected, (rows, upper), next_probs * above)
    return projected


def distributional_loss(
    logits: Array, actions: Array, target_probs: Array, weights: Array, *, atoms: Array
) -> QLoss:
    """The cross-entropy -Σ target · log p(s, a), and its gradient.

    Args:
        logits: [B, n, m].
        actions: int64 [B].
        target_probs: [B, m].
        weights: w, [B].
        atoms: z, [m].
    """
    rows = np.arange(len(actions))
    chosen = logits[rows, actions]
    chosen = chosen - chosen.max(axis=1, keepdims=True)
    log_probs = chosen - np.log(np.exp(chosen).sum(axis=1, keepdims=True))
    probs = np.exp(log_probs)
    losses = -(target_probs * log_probs).sum(axis=1)
    gradient = np.zeros_like(logits)
    gradient[rows, actions] = (weights / len(actions))[:, None] * (probs - target_probs)
    return QLoss(
        float(np.add.reduce(weights * losses)) / len(actions),
        losses,
        probs @ atoms,
        gradient.reshape(len(actions), -1),
    )


def softmax(logits: Array) -> Array:
    """Probabilities along the last axis."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probs: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return probs


# ---- learner


@dataclass(frozen=True, kw_only=True)
class DQNSettings(ReplaySettings):
    """The settings of `DQNConfig.training()` that its learner reads."""

    double_q: bool
    td_error_loss_fn: str


class DQNLearner(ReplayLearner):
    """Deep Q-learning (Mnih et al. 2015) with the extensions of Hessel et al. 2018.

    The module's `action_dist_inputs` are the Q values [B, n], so that any `RLModule` can be used;
    a `QModule` with atoms gives their logits.
    """

    settings_class: ClassVar[type[LearnerSettings]] = DQNSettings
    settings: DQNSettings
    target: TargetNetwork
    _atoms: Array | None
    _no_values: Array
    _in_c: StepInC | None

    def __init__(
        self,
        *,
        module_spec: RLModuleSpec,
        settings: DQNSettings,
        root_seed: int,
        position: tuple[int, ...] = (),
    ) -> None:
        """See `Learner`; settings are DQN's."""
        super().__init__(
            module_spec=module_spec, settings=settings, root_seed=root_seed, position=position
        )
        self.target = TargetNetwork(self.module)
        self.parts["target"] = self.target
        atoms = self.module.atoms if isinstance(self.module, QModule) else np.zeros(1)
        self._atoms = atoms if len(atoms) > 1 else None
        self._no_values = np.zeros(0)
        self._in_c = StepInC(self) if type(self) is DQNLearner and self._atoms is None else None

    def learn(self, batch: ReplayBatch, *, lr: float, rng: np.random.Generator) -> ReplayUpdate:
        """One gradient step, in C where that can be; see `ReplayLearner.learn`."""
        del rng
        update = None if self._in_c is None else self._in_c.step(batch, lr=lr)
        return self.step_in_numpy(batch, lr=lr) if update is None else update

    @property
    def target_module(self) -> RLModule:
        """The target network."""
        return self.target.module

    @property
    def is_double(self) -> bool:
        """Whether the network itself chooses the next actions."""
        return self.settings.double_q

    @property
    def is_huber(self) -> bool:
        """Whether large errors count linearly."""
        return self.settings.td_error_loss_fn == "huber"

    def update_of(
        self, batch: ReplayBatch, loss: float, norm: float, errors: Array, selected: Array
    ) -> ReplayUpdate:
        """What a step in C gives; a ModuleError if it was not made."""
        self.note_applied(loss, norm, vars(batch))
        return ReplayUpdate(errors, lambda: _metrics(loss, selected, norm))

    def step_in_numpy(self, batch: ReplayBatch, *, lr: float) -> ReplayUpdate:
        """One gradient step."""
        # The next observations first: `backward` belongs to the last forward pass.
        next_outputs = self._target_outputs(self.target.module, batch.next_obs)
        chooser = next_outputs
        if self.settings.double_q:
            chooser = self._target_outputs(self.module, batch.next_obs)
        loss = (
            self._value_loss(batch, next_outputs, chooser)
            if self._atoms is None
            else self._atom_loss(batch, next_outputs, chooser, self._atoms)
        )
        if len(self._no_values) != len(batch.obs):
            self._no_values = np.zeros(len(batch.obs), self.module.parameters.dtype)
        self.module.backward(d_action_dist_inputs=loss.d_outputs, d_vf_preds=self._no_values)
        norm = self.apply_gradients(loss=loss.total_loss, lr=lr, batch=vars(batch))
        total, selected = loss.total_loss, loss.q_selected
        return ReplayUpdate(loss.td_errors, lambda: _metrics(total, selected, norm))

    def follow(self) -> None:
        """Moves the target network."""
        self.target.follow(self.settings.tau)

    def _outputs(self, obs: Array) -> Array:
        return self.module.training_output({OBS: obs}, ACTION_DIST_INPUTS)

    @staticmethod
    def _target_outputs(module: RLModule, obs: Array) -> Array:
        return module.target_output({OBS: obs}, ACTION_DIST_INPUTS)

    def _value_loss(self, batch: ReplayBatch, next_q: Array, chooser: Array) -> QLoss:
        if chooser is next_q:
            next_values = np.maximum.reduce(next_q, axis=1)
        else:
            next_values = next_q[np.arange(len(next_q)), chooser.argmax(axis=1)]
        targets = td_targets(batch.rewards, batch.discounts, next_values)
        return td_loss(
            self._outputs(batch.obs),
            batch.actions,
            targets,
            batch.weights,
            kind=self.settings.td_error_loss_fn,
        )

    def _atom_loss(
        self, batch: ReplayBatch, next_outputs: Array, chooser: Array, atoms: Array
    ) -> QLoss:
        by_action = (len(batch.obs), -1, len(atoms))
        values = softmax(chooser.reshape(by_action)) @ atoms
        possible = self.module.action_mask(batch.next_obs)
        if possible is not None:  # the logits of an impossible action are all the same
            values[~possible] = -np.inf
        best = values.argmax(axis=1)
        next_probs = softmax(next_outputs.reshape(by_action)[np.arange(len(best)), best])
        target = projected_distribution(batch.rewards, batch.discounts, next_probs, atoms)
        logits = self._outputs(batch.obs).reshape(by_action)
        return distributional_loss(logits, batch.actions, target, batch.weights, atoms=atoms)


def _metrics(loss: float, q_values: Array, norm: float) -> dict[str, Any]:
    return {
        "qf_loss": loss,
        "total_loss": loss,
        "qf_mean": float(q_values.mean()),
        "qf_min": float(q_values.min()),
        "qf_max": float(q_values.max()),
        GRADIENT_NORM: norm,
    }


# ---- config

# Section methods only declare; the decorator `section` reads their arguments.


ConfigT = TypeVar("ConfigT", bound="DQNConfig")


def atoms_have_a_range(config: DQNConfig) -> Iterator[Problem]:
    """With atoms, the largest is above the smallest."""
    if config.num_atoms > 1 and config.v_min >= config.v_max:
        yield Problem(
            assignment("v_max", config.v_max),
            f"with num_atoms={config.num_atoms} it must be above v_min={config.v_min}.",
            "Give the range that discounted returns can have.",
            ("v_max", "v_min"),
        )


def epsilon_is_a_share(config: DQNConfig) -> Iterator[Problem]:
    """Actions are random with a probability."""
    epsilon = config.epsilon
    values = [pair[1] for pair in epsilon] if isinstance(epsilon, (list, tuple)) else [epsilon]
    if max(values) > 1:
        yield Problem(
            assignment("epsilon", epsilon),
            "it is the probability of a random action, so it must not be above 1.",
            "Give numbers in [0, 1].",
            ("epsilon",),
        )


def epsilon_is_said_once(config: DQNConfig) -> Iterator[Problem]:
    """Not both `epsilon` and arguments of ε-greedy without a type are given."""
    arguments = config.exploration_config
    is_default = same(config.epsilon, type(config).epsilon.default)
    if not is_default and arguments and "type" not in arguments:
        yield Problem(
            assignment("exploration_config", arguments),
            f"epsilon={config.epsilon} says already how often actions are random.",
            'Give all of it in one place: leave `epsilon` out, or add {"type": "EpsilonGreedy"} to '
            "replace it.",
            ("exploration_config", "epsilon"),
        )


def networks_have_no_memory(config: DQNConfig) -> Iterator[Problem]:
    """Single steps of a replay buffer say nothing of the steps before."""
    spec = config.rl_module_spec
    if isinstance(spec, RLModuleSpec) and spec.module_class is not None:
        return  # a class of users takes any keys, and says itself whether it remembers
    given = (spec.model_config if isinstance(spec, RLModuleSpec) else None) or config.model_config
    try:
        refuse_memory(DefaultModelConfig.from_setting(given))
    except ConfigError as error:
        yield Problem("The network of DQN", str(error), "Leave it out.", ("model_config",))


def own_networks_have_no_atoms(config: DQNConfig) -> Iterator[Problem]:
    """Distributional learning needs the ready-made network, or one that is derived from it."""
    if config.num_atoms == 1:
        return
    for spec in given_module_specs(config).values():
        own = spec.module_class
        if own is None or issubclass(own, QModule | RandomRLModule):
            continue
        yield Problem(
            assignment("num_atoms", config.num_atoms),
            f"the module class {own.__name__} gives one value per action, no distribution.",
            "Give num_atoms=1, or derive the class from QModule.",
            ("num_atoms", "rl_module_spec"),
        )


class DQNConfig(DQNTrainingSection, OffPolicyConfig):
    """The settings of DQN (Mnih et al. 2015, "Human-level control through deep RL").

    Double, dueling, prioritized, n-step and distributional learning are switches of their own, as
    in "Rainbow" (Hessel et al. 2018).

    Example:
        `DQNConfig().environment("CartPole-v1").training(lr=1e-3).build_algo()`
    """

    if TYPE_CHECKING:

        def _builds(self) -> DQN: ...

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            **OffPolicyConfig.changed_defaults,
            "lr": 5e-4,
            "train_batch_size": 32,
            "grad_clip": 40.0,
            "target_network_update_freq": 500,
            "min_sample_timesteps_per_iteration": 1000,
            # Steadier than orthogonal ones; see benchmarks/README.md.
            "model_config": {"initializer": "uniform"},
        }
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *OffPolicyConfig.rules,
        Rule(("num_atoms", "v_min", "v_max"), atoms_have_a_range),
        Rule(("num_atoms", "rl_module_spec"), own_networks_have_no_atoms),
        Rule(("model_config", "rl_module_spec"), networks_have_no_memory),
        Rule(("epsilon",), epsilon_is_a_share),
        Rule(("epsilon", "exploration_config"), epsilon_is_said_once),
    )

    default_module_class: ClassVar[type[RLModule]] = QModule
    module_settings: ClassVar[tuple[str, ...]] = ("dueling", "num_atoms", "v_min", "v_max")

    def default_exploration_config(self) -> dict[str, Any]:
        """ε-greedy, as `epsilon` says."""
        return {"type": "EpsilonGreedy", "epsilon_schedule": self.epsilon}


# ---- algorithm


class DQN(OffPolicyAlgorithm):
    """Deep Q-learning (Mnih et al. 2015).

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = DQNConfig

    def make_learner(self, module_id: ModuleId | None = None) -> DQNLearner:
        """The learner with the settings of `DQNConfig.training()`."""
        check_actions(self.learner_arguments(module_id)["module_spec"])
        return self.new_learner(DQNLearner, module_id)


def check_actions(spec: RLModuleSpec) -> None:
    """Raises an UnsupportedSpaceError unless actions are Discrete, whatever the network is."""
    if not isinstance(spec.action_space, spaces.Discrete):
        raise UnsupportedSpaceError(
            f"DQN learns one value per action, so it needs a Discrete action space; this env has "
            f"{spec.action_space}. Use PPO or SAC for Box actions, PPO for MultiDiscrete ones, or "
            "number the actions with an action wrapper."
        )
