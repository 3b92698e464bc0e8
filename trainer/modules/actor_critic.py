"""The ready-made module: policy and value network, apart or with shared hidden layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainer.episodes.columns import ACTION_DIST_INPUTS, OBS
from trainer.errors import ConfigError
from trainer.modules.model_config import DefaultModelConfig
from trainer.modules.rl_module import VF_PREDS, RLModule
from trainer.modules.spaces import distribution_for
from trainer.nn import (
    INITIALIZERS,
    MLP,
    ActingForward,
    ActionDistribution,
    DiagGaussian,
    LayerSpec,
    columns_with_ones,
)
from trainer.nn.initializers import HIDDEN_GAIN, POLICY_HEAD_GAIN, VALUE_HEAD_GAIN
from trainer.types import Array


class ActorCriticModule(RLModule):
    """Dense networks for policy and value; settings are those of `DefaultModelConfig`.

    Apart (`vf_share_layers=False`): "pi" and "vf" each read the observation. Shared: both read the
    last hidden layer of "encoder". With `free_log_std` the log standard deviations are the tensor
    "pi/log_std" [A], 0 at first, and the policy network gives only the means.
    """

    def make_action_distribution(self) -> ActionDistribution:
        """The distribution that fits the action space, with the configured limit of log_std."""
        self._config = DefaultModelConfig.from_setting(self.model_config)
        distribution = distribution_for(
            self.action_space, log_std_clip=self._config.log_std_clip_param
        )
        if self._config.free_log_std and not isinstance(distribution, DiagGaussian):
            raise ConfigError(
                "`free_log_std=True` needs Box actions, whose distribution has a standard "
                f"deviation; the action space is {self.action_space}. Leave it out of the "
                "`model_config`."
            )
        return distribution

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensors `<network>/<layer number>/kernel` and `.../bias`, and "pi/log_std" if free."""
        self._plan_layers()
        shapes = MLP.shapes("encoder", num_inputs=self.obs_size, layers=self._encoder_layers)
        shapes |= MLP.shapes("pi", num_inputs=self._head_inputs, layers=self._pi_layers)
        if self._config.free_log_std:
            shapes["pi/log_std"] = (self.action_distribution.noise_width,)
        return shapes | MLP.shapes("vf", num_inputs=self._head_inputs, layers=self._vf_layers)

    def setup(self) -> None:
        """Lays the networks over the parameters."""
        self._encoder = None
        if self._encoder_layers:
            self._encoder = self._network("encoder", self.obs_size, self._encoder_layers)
        self._pi = self._network("pi", self._head_inputs, self._pi_layers)
        self._vf = None
        if not self.inference_only:
            self._vf = self._network("vf", self._head_inputs, self._vf_layers)
        before = self._encoder.layers if self._encoder else []
        self._acting = ActingForward([*before, *self._pi.layers])
        self._log_std = self.parameters.views.get("pi/log_std")
        self._allocate(0)

    def initialize(self, rng: np.random.Generator) -> None:
        """Draws encoder, policy and value network, in this order."""
        initializer = INITIALIZERS[self._config.initializer]
        heads = [(POLICY_HEAD_GAIN, self._pi), (VALUE_HEAD_GAIN, self._vf)]
        if self._encoder is not None:
            gains = [HIDDEN_GAIN] * len(self._encoder.layers)
            self._encoder.initialize(rng, initializer=initializer, gains=gains)
        for head_gain, network in heads:
            if network is not None:
                gains = [HIDDEN_GAIN] * (len(network.layers) - 1) + [head_gain]
                network.initialize(rng, initializer=initializer, gains=gains)

    def forward_acting(self, obs: Array) -> Array:
        """See `RLModule.forward_acting`."""
        outputs = self._acting(obs)
        if self._log_std is None:
            return outputs
        log_std = np.broadcast_to(self._log_std, outputs.shape)
        return np.concatenate([outputs, log_std], axis=1)

    def forward_train(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """See `RLModule.forward_train`; both results are views that the next call overwrites."""
        obs = batch[OBS]
        if len(obs) != self._batch_size:
            self._allocate(len(obs))
        if self._vf is None:
            raise self.acting_only_error()
        features = self._obs_and_ones
        features[:-1] = obs.T
        if self._encoder is not None:
            features = self._encoder.forward(features)
        inputs = self._pi.forward(features)[:-1]
        if self._log_std is not None:
            self._dist_inputs[: len(inputs)] = inputs
            self._dist_inputs[len(inputs) :] = self._log_std[:, None]
            inputs = self._dist_inputs
        return {ACTION_DIST_INPUTS: inputs.T, VF_PREDS: self._vf.forward(features)[0]}

    def backward(self, *, d_action_dist_inputs: Array, d_vf_preds: Array) -> None:
        """See `RLModule.backward`."""
        gradient = d_action_dist_inputs.T
        if self._log_std is not None:
            width = len(self._log_std)
            np.add.reduce(gradient[width:], axis=1, out=self.gradients.views["pi/log_std"])
            gradient = gradient[:width]
        if self._vf is None:
            raise self.acting_only_error()
        if self._encoder is None:
            self._pi.backward(gradient)
            self._vf.backward(d_vf_preds[None, :])
        else:
            d_pi, d_vf = self._d_features
            self._pi.backward(gradient, d_inputs=d_pi)
            self._vf.backward(d_vf_preds[None, :], d_inputs=d_vf)
            np.add(d_pi, d_vf, d_pi)
            self._encoder.backward(d_pi)

    def _plan_layers(self) -> None:
        """Decides which layers each network has."""
        config = self._config
        hidden = [LayerSpec(width, config.fcnet_activation) for width in config.fcnet_hiddens]
        head = [LayerSpec(w, config.head_fcnet_activation) for w in config.head_fcnet_hiddens]
        num_outputs = self.action_distribution.num_inputs
        if config.free_log_std:
            num_outputs = self.action_distribution.noise_width
        self._encoder_layers = hidden if config.vf_share_layers else []
        before = [] if config.vf_share_layers else hidden
        self._pi_layers = [*before, *head, LayerSpec(num_outputs, "linear")]
        self._vf_layers = [*before, *head, LayerSpec(1, "linear")]
        is_shared = bool(self._encoder_layers)
        self._head_inputs = hidden[-1].width if is_shared else self.obs_size

    def _network(self, name: str, num_inputs: int, layers: list[LayerSpec]) -> MLP:
        return MLP(self.parameters, self.gradients, name=name, num_inputs=num_inputs, layers=layers)

    def _allocate(self, batch_size: int) -> None:
        """Makes the memory that training batches of that size need."""
        dtype = self.parameters.dtype
        self._batch_size = batch_size
        self._obs_and_ones = columns_with_ones(self.obs_size, batch_size, dtype)
        self._d_features: Array = np.empty((2, self._head_inputs, batch_size), dtype)
        if self._log_std is not None:
            width = self.action_distribution.num_inputs
            self._dist_inputs: Array = np.empty((width, batch_size), dtype)
