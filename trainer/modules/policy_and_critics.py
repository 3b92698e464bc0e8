"""Ready-made networks of algorithms with critics: a policy and one or two critics, no layer shared.

What the policy's outputs mean, its action distribution, is what `SACModule` and others add.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeGuard

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS
from trainer.errors import ConfigError, UnknownSettingError, UnsupportedSpaceError
from trainer.modules.model_config import (
    DefaultModelConfig,
    backend_of,
    refuse_memory,
)
from trainer.modules.rl_module import RLModule, check_gradient
from trainer.nn import (
    INITIALIZERS,
    MLP,
    ActingForward,
    ActionDistribution,
    LayerSpec,
    Parameters,
    columns_with_ones,
)
from trainer.nn.initializers import POLICY_HEAD_GAIN, VALUE_HEAD_GAIN
from trainer.nn.layers import BackwardPass, ForwardPass, run_side_by_side
from trainer.nn.torch_network import BACKENDS
from trainer.spaces import shown_images
from trainer.types import Array
from trainer_toolkit.checks import shown

# ---- critics
#
# One or two networks of the same shape that read the same inputs.


class Critics:
    """Q(s, a) of given actions, or Q(s, ·) of all actions, from every critic.

    Life: any number of times `forward`, followed by `backward`, or by `d_actions`, or by none; both
    belong to the last `forward`.

    Attributes:
        names: of the critics, by which their tensors are called.
        networks: one for each name.
        parameters: where their weights are, among others perhaps.
        of_all_actions: they give the values of all actions of a Discrete space.
    """

    def __init__(
        self,
        parameters: Parameters,
        gradients: Parameters,
        *,
        names: Sequence[str],
        obs_size: int,
        num_actions: int,
        layers: Sequence[LayerSpec],
        of_all_actions: bool,
        mlp_class: type[MLP] = MLP,
    ) -> None:
        """Lays the networks over parameters that hold (at least) `shapes(...)`.

        Args:
            parameters: what they compute with.
            gradients: what `backward` overwrites.
            names: of the critics.
            obs_size: D.
            num_actions: n, or the numbers A that make up an action.
            layers: of each critic.
            of_all_actions: they read the observation only.
            mlp_class: what computes a critic.
        """
        self.names = tuple(names)
        self.parameters = parameters
        self.of_all_actions = of_all_actions
        self._obs_size = obs_size
        self._num_inputs = obs_size if of_all_actions else obs_size + num_actions
        self.networks = [
            mlp_class(parameters, gradients, name=name, layers=layers) for name in self.names
        ]
        self._allocate(0)

    @staticmethod
    def shapes(
        names: Sequence[str], *, num_inputs: int, layers: Sequence[LayerSpec]
    ) -> dict[str, tuple[int, ...]]:
        """The tensors of all critics, `<name>/<layer>/kernel` and `.../bias`, one after another."""
        shapes: dict[str, tuple[int, ...]] = {}
        for name in names:
            shapes |= MLP.shapes(name, num_inputs=num_inputs, layers=layers)
        return shapes

    @property
    def block(self) -> Array:
        """The memory of all their weights, one vector."""
        last = len(self.networks[-1].layers) - 1
        return self.parameters.block(f"{self.names[0]}/0/kernel", f"{self.names[-1]}/{last}/bias")

    def forward(self, obs: Array, actions: Array | None = None) -> list[Array]:
        """The values that each critic gives.

        Args:
            obs: encoded, [B, D].
            actions: [B, …], in [-1, 1]; None if they value all actions.

        Returns:
            [B] of the given actions, or [B, n] of all; views that the next call overwrites.
        """
        passes = self.passes(obs, actions)
        run_side_by_side(passes[:1], passes[1:])
        return self.values(passes)

    def passes(self, obs: Array, actions: Array | None = None) -> list[ForwardPass]:
        """The passes that give the values, to be run; arguments as of `forward`."""
        if len(obs) != self._batch_size:
            self._allocate(len(obs))
        inputs = self._inputs
        inputs[: self._obs_size] = obs[:, : self._obs_size].T  # without the action mask
        if actions is not None:
            inputs[self._obs_size : -1] = actions.reshape(len(obs), -1).T
        return [ForwardPass(network, inputs) for network in self.networks]

    def values(self, passes: Sequence[ForwardPass]) -> list[Array]:
        """What the passes gave; see `forward`."""
        outputs = [one.outputs[:-1] for one in passes]
        return [values.T if self.of_all_actions else values[0] for values in outputs]

    def backward(self, d_values: Sequence[Array]) -> None:
        """Overwrites the gradients of all critics.

        Args:
            d_values: for each critic, of the shape that `forward` gave.
        """
        gradients = [d.T if self.of_all_actions else d[None, :] for d in d_values]
        passes = [BackwardPass(*pair) for pair in zip(self.networks, gradients, strict=True)]
        run_side_by_side(passes[:1], passes[1:])

    def d_actions(self, d_values: Sequence[Array]) -> Array:
        """How the values change with the actions: Σ d_values · dQ/da over the critics, [B, A].

        The gradients of the critics are left alone.

        Args:
            d_values: for each critic, [B]; or for the first one alone, if the others do not count.
        """
        triples = zip(self.networks, d_values, self._d_inputs, strict=False)
        passes = [
            BackwardPass(network, d[None, :], d_inputs=d_inputs, only_inputs=True)
            for network, d, d_inputs in triples
        ]
        run_side_by_side(passes[:1], passes[1:])
        d_actions: Array = np.add.reduce(
            self._d_inputs[: len(d_values), self._obs_size :], axis=0
        ).T
        return d_actions

    def _allocate(self, batch_size: int) -> None:
        """Makes the memory that batches of that size need."""
        dtype = self.parameters.dtype
        self._batch_size = -1  # an interrupt may come before all of it is there
        self._inputs = columns_with_ones(self._num_inputs, batch_size, dtype)
        self._d_inputs: Array = np.empty((len(self.networks), self._num_inputs, batch_size), dtype)
        self._batch_size = batch_size


# ---- module


@dataclass(frozen=True)
class PolicyAndCriticsModelConfig(DefaultModelConfig):
    """The shape of a policy and its critics, without shared layers (no `vf_share_layers`).

    Attributes:
        fcnet_activation: as for all networks, but "relu" unless given (Haarnoja et al. 2018).
        twin_q: two critics, whose smaller value counts.
        policy_model_config: settings of these that hold for the policy only.
        q_model_config: settings of these that hold for the critics only.
    """

    fcnet_activation: str | None = "relu"
    twin_q: bool = True
    policy_model_config: Mapping[str, Any] = field(default_factory=dict)
    q_model_config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _refuse_what_no_part_has(vars(self))
        super().__post_init__()
        refuse_memory(self)

    def layers(self, part: str, num_outputs: int) -> list[LayerSpec]:
        """The layers of the policy or of a critic.

        Args:
            part: "policy" or "q".
            num_outputs: the width of the last, linear layer.

        Raises:
            ConfigError: the settings of that part are wrong.
        """
        name = f"{part}_model_config"
        own: Mapping[str, Any] = getattr(self, name)
        if not isinstance(own, Mapping):
            raise ConfigError(
                f"`{name}={shown(own)}` is a {type(own).__name__}; expected a dict with settings "
                "of `model_config`. Give it as that."
            )
        _refuse_what_no_part_has(own, f"{name}: ")
        shared = {
            attribute.name: getattr(self, attribute.name)
            for attribute in dataclasses.fields(DefaultModelConfig)
        }
        try:
            config = DefaultModelConfig.from_setting({**shared, **own})
        except (ConfigError, UnknownSettingError) as cause:
            if not own:
                raise
            raise type(cause)(f"With `{name}={shown(own)}`: {cause}") from cause
        return [
            *config.hidden_layers(),
            *config.head_layers(),
            config.last_layer(num_outputs),
        ]


def _refuse_what_no_part_has(setting: Mapping[str, Any], place: str = "") -> None:
    """Raises a ConfigError for settings that would mean something for other networks only."""
    for name in ("free_log_std", "log_std_by_feature"):
        if setting.get(name) not in (None, False):
            raise ConfigError(
                f"{place}`{name}=True`: a policy with critics gives the standard deviation for "
                "each observation, or none; gSDE is offered with PPO and PG. Leave it out."
            )
    if setting.get("conv_filters"):
        raise ConfigError(
            f"{place}`conv_filters={setting['conv_filters']!r}`: ready-made networks with "
            "critics read numbers, not images. Leave it out, or use PPO or DQN."
        )


def is_bounded_box(space: gym.Space[Any]) -> TypeGuard[spaces.Box]:
    """Whether a space is a Box of floats with bounds on both sides, at least one number."""
    return (
        isinstance(space, spaces.Box)
        and np.issubdtype(space.dtype, np.floating)
        and space.is_bounded()
        and 0 not in space.shape
    )


class PolicyAndCritics(RLModule):
    """Policy "pi" and critics "qf" and, with `twin_q`, "qf_twin".

    For Box actions a critic reads observation and action; for Discrete ones it gives a value per
    action. A subclass says which distribution the policy's outputs parametrise.

    Attributes:
        is_discrete: the action space is Discrete.
        critics: Q; None if built for acting.
    """

    config_class: ClassVar[type[PolicyAndCriticsModelConfig]] = PolicyAndCriticsModelConfig
    """What `model_config` is read as."""

    _config: PolicyAndCriticsModelConfig

    def make_action_distribution(self) -> ActionDistribution:
        """That of the policy's outputs."""
        self._config = self.config_class.from_setting(self.model_config)
        self.is_discrete = isinstance(self.action_space, spaces.Discrete)
        return self.distribution_of_policy()

    @abstractmethod
    def distribution_of_policy(self) -> ActionDistribution:
        """What turns the policy's outputs into actions; an UnsupportedSpaceError if nothing can."""

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensors of "pi", "qf" and "qf_twin"."""
        self._refuse_images()
        config, distribution = self._config, self.action_distribution
        num_actions = distribution.noise_width
        self._critic_names = ("qf", "qf_twin") if config.twin_q else ("qf",)
        self._pi_layers = config.layers("policy", distribution.num_inputs)
        self._q_layers = config.layers("q", num_actions if self.is_discrete else 1)
        return {
            **MLP.shapes("pi", num_inputs=self.obs_size, layers=self._pi_layers),
            **self._critic_shapes(),
        }

    def _refuse_images(self) -> None:
        found = shown_images(self.seen_space)
        if self._config.conv_filters is None and any(image.has_channels for image in found):
            raise UnsupportedSpaceError(
                f"Ready-made networks with critics read numbers, not images; this env shows "
                f"{self.seen_space}. Use PPO or DQN, or ask for dense layers on all pixels: "
                'model_config={"conv_filters": []}.'
            )

    def _critic_shapes(self) -> dict[str, tuple[int, ...]]:
        num_inputs = self.obs_size
        if not self.is_discrete:
            num_inputs += self.action_distribution.noise_width
        return Critics.shapes(self._critic_names, num_inputs=num_inputs, layers=self._q_layers)

    def is_for_acting(self, name: str) -> bool:
        """The policy's tensors."""
        return name.startswith("pi/")

    def setup(self) -> None:
        """Lays the networks over the parameters."""
        self._mlp_class = BACKENDS[backend_of(self, self._config)].mlp
        self._pi = self._policy_network()
        self._pi_ahead: MLP | None = None
        self._ahead_and_ones: Array = np.empty((0, 0))
        self._acting = ActingForward(self._pi.layers)
        self.critics: Critics | None = None
        if not self.inference_only:
            self.critics = self._critics_over(self.parameters, self.gradients)
        self._allocate(0)

    def _policy_network(self) -> MLP:
        return self._mlp_class(self.parameters, self.gradients, name="pi", layers=self._pi_layers)

    def _critics_over(self, parameters: Parameters, gradients: Parameters) -> Critics:
        return Critics(
            parameters,
            gradients,
            names=self._critic_names,
            obs_size=self.obs_size,
            num_actions=self.action_distribution.noise_width,
            layers=self._q_layers,
            of_all_actions=self.is_discrete,
            mlp_class=self._mlp_class,
        )

    @staticmethod
    def part_of(name: str) -> str:
        """What a tensor belongs to: "pi", "qf", "qf_twin", or another one by its name."""
        return name.split("/", maxsplit=1)[0]

    def copy_critics(self) -> Critics:
        """Critics with weights of their own, which are 0 at first."""
        parameters = Parameters(self._critic_shapes(), dtype=self.parameters.dtype)
        return self._critics_over(parameters, parameters.zeros_like())

    def initialize(self, rng: np.random.Generator) -> None:
        """Draws policy and critics, in this order."""
        initializer = INITIALIZERS[self._config.initializer]
        networks = [self._pi] if self.critics is None else [self._pi, *self.critics.networks]
        for network in networks:
            head = POLICY_HEAD_GAIN if network is self._pi else VALUE_HEAD_GAIN
            network.initialize(rng, initializer=initializer, gain=head)

    def forward_acting(self, obs: Array) -> Array:
        """The policy's inputs; see `RLModule.forward_acting`."""
        return self._acting(obs if obs.ndim == 2 else self.checked_rows({OBS: obs}))

    def forward_train(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """The policy's inputs [B, K], a view that does not last."""
        return {ACTION_DIST_INPUTS: self._pi.forward(self._laid_out(batch))[:-1].T}

    def _laid_out(self, batch: Mapping[str, Array]) -> Array:
        obs = self.checked_rows(batch)
        if len(obs) != self._batch_size:
            self._allocate(len(obs))
        self._obs_and_ones[:-1] = obs.T
        return self._obs_and_ones

    @property
    def policy_layers(self) -> list[LayerSpec]:
        """The layers of the policy."""
        return self._pi_layers

    @property
    def has_own_passes(self) -> bool:
        """Whether `pass_for` and others compute what `forward_train` and `backward` do.

        Not where a subclass changed these.
        """
        kind = type(self)
        return self._mlp_class is MLP and (
            kind.forward_train,
            kind.backward,
            kind.target_output,
            kind.training_outputs,
        ) == (
            PolicyAndCritics.forward_train,
            PolicyAndCritics.backward,
            RLModule.target_output,
            RLModule.training_outputs,
        )

    def pass_for(self, obs: Array) -> ForwardPass:
        """The pass of `forward_train`, to be run; its outputs are [K + 1, B]."""
        return ForwardPass(self._pi, self._laid_out({OBS: obs}))

    def pass_ahead(self, obs: Array) -> ForwardPass:
        """The same in memory that `forward_train` leaves alone, so that both can be run at once."""
        if self._pi_ahead is None:
            self._pi_ahead = self._policy_network()
        if self._ahead_and_ones.shape[1] != len(obs):
            self._ahead_and_ones = columns_with_ones(self.obs_size, len(obs), self.parameters.dtype)
        self._ahead_and_ones[:-1] = obs.T
        return ForwardPass(self._pi_ahead, self._ahead_and_ones)

    def pass_back(self, d_action_dist_inputs: Array) -> BackwardPass:
        """The pass of `backward`, to be run."""
        return BackwardPass(self._pi, d_action_dist_inputs.T)

    def backward(self, *, d_action_dist_inputs: Array, d_vf_preds: Array | None = None) -> None:
        """Overwrites the policy's gradients; there is no value function besides the critics."""
        del d_vf_preds
        check_gradient(
            "d_action_dist_inputs",
            d_action_dist_inputs,
            (self._batch_size, self.action_distribution.num_inputs),
        )
        self._pi.backward(d_action_dist_inputs.T)

    def _allocate(self, batch_size: int) -> None:
        """Makes the memory that training batches of that size need."""
        self._batch_size = -1  # an interrupt may come before all of it is there
        self._obs_and_ones = columns_with_ones(self.obs_size, batch_size, self.parameters.dtype)
        self._batch_size = batch_size
