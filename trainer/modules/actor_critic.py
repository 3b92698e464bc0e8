"""The ready-made networks of PPO and PG (with and without a value function), and `RLModuleSpec`.

A spec is what is needed to build a module anywhere: a small frozen value that can travel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, cast

import gymnasium as gym
import numpy as np

from checkpoints import PathLike
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS, VF_PREDS
from trainer.errors import ConfigError, ModuleError
from trainer.modules.feature_noise import NOISE_LOADINGS, FeatureNoise
from trainer.modules.model_config import (
    DefaultModelConfig,
    NetworkPlan,
    Trunk,
    observation_plan,
    policy_distribution,
    policy_width,
    with_log_std,
)
from trainer.modules.recurrent_module import RecurrentModule, RecurrentPolicyModule
from trainer.modules.rl_module import RLModule, check_gradient
from trainer.nn import (
    INITIALIZERS,
    MLP,
    ActingForward,
    ActionDistribution,
    ImageNetwork,
    acting_forward,
)
from trainer.nn.initializers import POLICY_HEAD_GAIN, VALUE_HEAD_GAIN
from trainer.nn.layers import ForwardPass, are_large, run_side_by_side
from trainer.old_names import present_module_path
from trainer.runtime.threads import single_threaded_blas
from trainer.spaces import ACTION_MASK_KEY
from trainer.types import Array
from trainer_toolkit.arguments import argument_error
from trainer_toolkit.checks import either, instance, mapping, optional

# ---- actor critic

IMAGES_AT_ONCE: Final[Mapping[str, int]] = MappingProxyType({"numpy": 256, "torch": 64})
"""Images whose values are computed together, by backend; more would only take more memory.

Torch takes new memory for every layer, which the system gives slowly if it is much.
"""


# A kind that users name and subclass; PolicyModule is the other one, without values.
class ActorCriticModule(RLModule):
    """Dense networks for policy and value; settings are those of `DefaultModelConfig`.

    Apart (`vf_share_layers=False`): "pi" and "vf" each read the observation. Shared: both read the
    last hidden layer of "encoder". With `free_log_std` the log standard deviations are the tensor
    "pi/log_std" [A], `log_std_init` at first, and the policy network gives only the means; with
    `log_std_by_feature` it is [F, A] (`trainer.modules.feature_noise`). Images go through
    convolutions first: those of "encoder", or one set for "pi" and one for "vf".

    Attributes:
        has_value_network: whether there is a "vf" (`PolicyModule` has none).
    """

    has_value_network: ClassVar[bool] = True

    def make_action_distribution(self) -> ActionDistribution:
        """The distribution that fits the action space, with the configured limit of log_std."""
        self._config = DefaultModelConfig.from_setting(self.model_config)
        if self._config.memory is not None:
            raise ConfigError(
                f"`use_{self._config.memory}=True` builds a RecurrentModule, but the network is a "
                f"{type(self).__name__}, which has no memory. Derive it from RecurrentModule or "
                "StatefulRLModule, or leave the setting out."
            )
        return policy_distribution(self._config, self.action_space)

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensors `<network>/<layer number>/kernel` and `.../bias`, and "pi/log_std" if free.

        Convolutions are called `<network>/conv/<layer number>/...`.
        """
        self._plan_networks()
        shapes = {**self._plans["encoder"].shapes(), **self._plans["pi"].shapes()}
        if self._config.free_log_std:
            shape: tuple[int, ...] = (self.action_distribution.noise_width,)
            if self._config.log_std_by_feature:
                shape = (self._plans["pi"].num_last_inputs, *shape)
            shapes["pi/log_std"] = shape
        return shapes | (self._plans["vf"].shapes() if self.has_value_network else {})

    def setup(self) -> None:
        """Lays the networks over the parameters."""
        self._trunk = Trunk(
            self._plans["encoder"],
            self.parameters,
            self.gradients,
            are_images=self._image is not None,
        )
        self._pi = self._network("pi")
        self._vf = None
        if self.has_value_network and (self.gives_values or not self.inference_only):
            self._vf = self._network("vf")
        self._acting = self._trunk.acting_with(self._pi)
        self._acting_heads: list[Callable[[Array], Array]] | None = None
        if self.gives_values and self._vf is not None:
            self._acting_heads = [acting_forward(self._pi), acting_forward(self._vf)]
        self._log_std = self.parameters.views.get("pi/log_std")
        self._noise: FeatureNoise | None = None
        if self._config.log_std_by_feature and self._log_std is not None:
            self._noise = FeatureNoise(self._log_std, self.gradients.views["pi/log_std"])
            self._features = self._trunk.acting_with(self._pi, but_last=True)
            self._means = ActingForward(self._pi.layers[-1:])
        self._allocate(0)

    def initialize(self, rng: np.random.Generator) -> None:
        """Draws encoder, policy and value network, in this order."""
        initializer = INITIALIZERS[self._config.initializer]
        self._trunk.initialize(rng, initializer)
        self._pi.initialize(rng, initializer=initializer, gain=POLICY_HEAD_GAIN)
        if self._vf is not None:
            self._vf.initialize(rng, initializer=initializer, gain=VALUE_HEAD_GAIN)
        if self._log_std is not None:
            self._log_std[...] = self._config.log_std_init

    def forward_acting(self, obs: Array) -> Array:
        rows = obs if obs.ndim == 2 else self.checked_rows({OBS: obs})
        if self._noise is not None:
            features = self._features(rows)
            return np.concatenate([self._means(features), self._noise.log_std(features)], axis=1)
        return with_log_std(self._acting(rows), self._log_std)

    @property
    def gives_values(self) -> bool:
        """With `backend="torch"`, for images that policy and value function read together.

        Values are what acting costs again there. In NumPy they are computed where they are learnt,
        so that bytes stay what they were.
        """
        own, ready_made = type(self), ActorCriticModule
        return (
            self._config.backend == "torch"
            and self._image is not None
            and self.action_masks is None
            and self._config.vf_share_layers
            and not self._config.log_std_by_feature
            and self.has_value_network
            and own.forward_acting is ready_made.forward_acting
            and own.forward_train is ready_made.forward_train
        )

    @property
    def gives_loadings(self) -> bool:
        """With `log_std_by_feature`, unless a subclass acts in a way of its own."""
        own, ready_made = type(self), ActorCriticModule
        return (
            self._config.log_std_by_feature
            and own.forward_acting is ready_made.forward_acting
            and own.forward_inference is ready_made.forward_inference
            and own.forward_exploration is ready_made.forward_exploration
        )

    def is_for_acting(self, name: str) -> bool:
        """See `RLModule.is_for_acting`; the head of the values is, if acting gives them."""
        return self.gives_values or super().is_for_acting(name)

    def forward_inference(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        if self._acting_heads is None:
            return {ACTION_DIST_INPUTS: self.forward_acting(self.checked_rows(batch))}
        # In parts, row-exactly: the bits of the policy are those of `forward_acting`.
        features = self._trunk.act(self.checked_rows(batch))
        inputs, values = (head(features) for head in self._acting_heads)
        return {ACTION_DIST_INPUTS: with_log_std(inputs, self._log_std), VF_PREDS: values[:, 0]}

    def forward_exploration(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """As without exploration; see `gives_loadings`."""
        if self._noise is None or not self.gives_loadings:
            return self.forward_inference(batch)
        features = self._features(self.checked_rows(batch))
        log_std, loadings = self._noise.explored(features)
        inputs = np.concatenate([self._means(features), log_std], axis=1)
        return {ACTION_DIST_INPUTS: inputs, NOISE_LOADINGS: loadings}

    def forward_train(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """See `RLModule.forward_train`; both results are views that the next call overwrites."""
        if self.inference_only:
            raise self.acting_only_error()
        obs = self.checked_rows(batch)
        if len(obs) != self._batch_size:
            self._allocate(len(obs))
        features = self._trunk.forward(obs)
        inputs, values = self._forward_heads(features)
        if self._log_std is not None:
            self._dist_inputs[: len(inputs)] = inputs
            self._dist_inputs[len(inputs) :] = (
                self._log_std[:, None]
                if self._noise is None
                else self._noise.forward(self._features(obs)).T
            )
            inputs = self._dist_inputs
        outputs = {ACTION_DIST_INPUTS: inputs.T}
        if values is not None:
            outputs[VF_PREDS] = values
        return outputs

    def _forward_heads(self, features: Array) -> tuple[Array, Array | None]:
        """What policy and value network give, [K, B] and [B]."""
        pi, vf = self._pi, self._vf
        if vf is not None and are_large((pi, vf), len(features[0])):
            networks = cast("tuple[MLP, MLP]", (pi, vf))
            passes = [ForwardPass(network, features) for network in networks]
            run_side_by_side(passes[:1], passes[1:])
            return passes[0].outputs[:-1], passes[1].outputs[0]
        return pi.forward(features)[:-1], None if vf is None else vf.forward(features)[0]

    def backward(self, *, d_action_dist_inputs: Array, d_vf_preds: Array) -> None:
        batch_size = self._batch_size
        check_gradient(
            "d_action_dist_inputs",
            d_action_dist_inputs,
            (batch_size, self.action_distribution.num_inputs),
        )
        if self._vf is not None:
            check_gradient("d_vf_preds", d_vf_preds, (batch_size,))
        gradient = d_action_dist_inputs.T
        if self._log_std is not None:
            width = self.action_distribution.noise_width
            if self._noise is None:
                np.add.reduce(gradient[width:], axis=1, out=self.gradients.views["pi/log_std"])
            else:
                self._noise.backward(gradient[width:].T)
            gradient = gradient[:width]
        if self._vf is None:
            self._trunk.backward((self._pi, gradient))
        else:
            self._trunk.backward((self._pi, gradient), (self._vf, d_vf_preds[None, :]))

    def compute_values(self, batch: Mapping[str, Array]) -> Array:
        """See `RLModule.compute_values`; the policy's own layers compute nothing.

        Images are read in parts, because their patches take much room.
        """
        if type(self).forward_train is not ActorCriticModule.forward_train:
            own: Array = super().compute_values(batch)  # those of the subclass's own pass
            return own
        if self.inference_only or self._vf is None:
            raise self.acting_only_error()
        obs = self.checked_rows(batch)[:, : self.obs_size]
        self._batch_size = -1  # what `backward` needs is overwritten
        size = max(1, len(obs)) if self._image is None else IMAGES_AT_ONCE[self._config.backend]
        values: Array = np.empty(len(obs), self.parameters.dtype)
        for start in range(0, len(obs), size):
            features = self._trunk.forward(obs[start : start + size])
            values[start : start + size] = self._vf.forward(features)[0]
        return values

    def _plan_networks(self) -> None:
        """Decides which networks there are, and which layers they have."""
        config = self._config
        encoder = body = observation_plan("encoder", self, config)
        self._image, before, image = body.image, [], None
        if not config.vf_share_layers:
            before, image = [*body.layers], body.image
            encoder = NetworkPlan("encoder", self.obs_size, [])
        widths = {"pi": policy_width(config, self.action_distribution), "vf": 1}
        self._plans = {"encoder": encoder}
        for name, width in widths.items():
            layers = [*before, *config.head_layers(), config.last_layer(width)]
            self._plans[name] = NetworkPlan(name, encoder.num_outputs, layers, image, body.backend)

    def _network(self, name: str) -> MLP | ImageNetwork:
        return self._plans[name].build(self.parameters, self.gradients)

    def _allocate(self, batch_size: int) -> None:
        """Makes the memory that training batches of that size need."""
        dtype = self.parameters.dtype
        self._batch_size = -1  # an interrupt may come before all of it is there
        if self._log_std is not None:
            width = self.action_distribution.num_inputs
            self._dist_inputs: Array = np.empty((width, batch_size), dtype)
        self._batch_size = batch_size


# ---- policy module


class PolicyModule(ActorCriticModule):
    """An `ActorCriticModule` without its value network: no tensor, no time is spent on values.

    Settings and names of tensors are the same, so weights of a policy can go from one to the other.
    """

    has_value_network: ClassVar[bool] = False

    def compute_values(self, batch: Mapping[str, Array]) -> Array:
        """Raises a ModuleError: there are none."""
        del batch
        raise ModuleError(
            "A PolicyModule predicts no values, because its algorithm learns none (PG's advantages "
            "are returns). Use an algorithm with a critic, such as PPO."
        )


_WITH_MEMORY: Final[Mapping[type[RLModule], type[RLModule]]] = MappingProxyType(
    {ActorCriticModule: RecurrentModule, PolicyModule: RecurrentPolicyModule}
)
"""What `use_lstm` and `use_gru` build instead."""


# ---- spec


@dataclass(frozen=True)
class RLModuleSpec:
    """Which module to build, for which spaces.

    Attributes:
        module_class: None means `ActorCriticModule`.
        observation_space: of the env; None is filled in by the algorithm.
        action_space: of the env; None is filled in by the algorithm.
        model_config: settings of the module; for `ActorCriticModule` those of `DefaultModelConfig`.
            None means all defaults.
        inference_only: leave out what only learning needs.
        action_mask_key: what a Dict observation calls its action mask, if it has one; None is
            filled in by the algorithm.
        load_state_path: a checkpoint of a module, whose weights the learner's module begins with.
    """

    module_class: type[RLModule] | None = None
    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None
    model_config: Mapping[str, Any] | DefaultModelConfig | None = field(default_factory=dict)
    inference_only: bool = False
    action_mask_key: str | None = None
    load_state_path: PathLike | None = None
    catalog_class: InitVar[None] = None

    def __post_init__(self, catalog_class: object) -> None:
        """Checks what is read long after it was given.

        Args:
            catalog_class: what RLlib puts networks together with; there is none here.

        Raises:
            ModuleError: the class is no `RLModule`.
            ArgumentError: the model's settings are neither a dict nor a `DefaultModelConfig`.
            ConfigError: a catalog was given.
        """
        cls = self.module_class
        if cls is not None and not (isinstance(cls, type) and issubclass(cls, RLModule)):
            raise ModuleError(
                f"`module_class={cls!r:.200}` is not a subclass of `RLModule`, so it cannot be "
                "called as a network. Derive your network from `RLModule` or `TorchRLModule`, and "
                "give the class itself, not an object; for a torch.nn.Module give "
                "`module_class=TorchRLModule.wrapping(network)`."
            )
        if catalog_class is not None:
            raise ConfigError(
                f"RLModuleSpec(catalog_class={catalog_class!r:.80}): there are no catalogs here. "
                "Leave it out: `model_config` says what the ready-made networks are put together "
                "from, and module_class=... names a network of your own."
            )
        check = optional(either(mapping(), instance(DefaultModelConfig, "a DefaultModelConfig")))
        if not check.accepts(self.model_config):
            raise argument_error(
                "RLModuleSpec()", "model_config", self.model_config, check.expected
            )

    @classmethod
    def from_module(cls, module: RLModule) -> RLModuleSpec:
        """The spec that a module like this one can be built from; weights are no part of it."""
        own_key = None if module.action_mask_key == ACTION_MASK_KEY else module.action_mask_key
        return cls(
            module_class=type(module),
            observation_space=module.observation_space,
            action_space=module.action_space,
            model_config=module.model_config,
            inference_only=module.inference_only,
            action_mask_key=own_key,
        )

    def load_state(self, module: RLModule) -> None:
        """Gives a module built from this spec the weights at `load_state_path`, if there is one.

        Raises:
            CheckpointError: they cannot be read.
            ModuleError: they are of another network.
        """
        if self.load_state_path is not None:
            module.restore_from_path(present_module_path(self.load_state_path))

    def build(
        self,
        rng: np.random.Generator | None = None,
        *,
        dtype: type[np.floating[Any]] = np.float32,
    ) -> RLModule:
        """A new module.

        Args:
            rng: draws the first weights; None leaves them 0, for a module whose state is set next.
            dtype: number type of the parameters (float64 to check gradients).

        Raises:
            ModuleError: a space is not known.
            UnsupportedSpaceError: there is no network for a space.
            ConfigError: the model config is wrong.
        """
        module_class = self.module_class or ActorCriticModule
        if self.observation_space is None or self.action_space is None:
            raise ModuleError(
                f"An `RLModuleSpec` was built with observation_space={self.observation_space} and "
                f"action_space={self.action_space}: a network needs both to know its size. Give "
                "them, or let the algorithm fill them in from the env."
            )
        model_config = self.model_config
        if isinstance(model_config, DefaultModelConfig):
            model_config = dataclasses.asdict(model_config)
        if module_class in _WITH_MEMORY and DefaultModelConfig.from_setting(model_config).memory:
            module_class = _WITH_MEMORY[module_class]
        # Orthogonal weights come from BLAS, whose other threads would then keep their cores busy.
        with single_threaded_blas():
            return module_class(
                observation_space=self.observation_space,
                action_space=self.action_space,
                model_config=model_config,
                inference_only=self.inference_only,
                action_mask_key=self.action_mask_key or ACTION_MASK_KEY,
                rng=rng,
                dtype=dtype,
            )
