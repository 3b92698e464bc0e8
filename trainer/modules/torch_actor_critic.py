"""PPO's ready-made network in Torch, in the shape that classes derived from RLlib's expect."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import gymnasium as gym
import numpy as np

from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS
from trainer.errors import ConfigError
from trainer.modules.actor_critic import ActorCriticModule
from trainer.modules.model_config import (
    DefaultModelConfig,
    image_of,
    policy_distribution,
    policy_width,
)
from trainer.modules.torch_layers import EMBEDDINGS
from trainer.modules.torch_module import TorchRLModule
from trainer.nn import ActionDistribution, ImageSpec, LayerSpec, MixedSpec
from trainer.nn.torch_network import torch_library
from trainer.spaces import split_observation

ENCODER_OUT: Final = "encoder_out"
"""What an encoder calls the features that it gives."""
ACTOR: Final = "actor"
"""The features that the policy reads."""
CRITIC: Final = "critic"
"""The features that the value function reads."""

_USER: Final = "PPOTorchRLModule"
_ACTIVATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "linear": "Identity",
        "tanh": "Tanh",
        "relu": "ReLU",
        "sigmoid": "Sigmoid",
        "elu": "ELU",
        "swish": "SiLU",
        "silu": "SiLU",
    }
)
"""What an activation is called in `torch.nn`."""
_NOT_READ: Final = "device"  # the layers read it


class PPOTorchRLModule(TorchRLModule):
    """The network of `ActorCriticModule` in Torch; RLlib's `DefaultPPOTorchRLModule`.

    Settings (`model_config`) and first weights are those of `ActorCriticModule`; weights have
    Torch's names. Without memory, `log_std_by_feature` and images beside other observations. A
    class derived from it may have further keys in its `model_config`.

    It is the network of PPO where `learner_class` computes in Torch and no other one is named.

    Attributes:
        encoder: called with a batch, gives {"encoder_out": {"actor": [B, F], "critic": [B, F]}};
            its parts are `actor_encoder` and `critic_encoder`, or a shared `encoder`.
        pi: from the actor's features to the inputs of the distribution; the means alone with
            `free_log_std`, where `log_std` [A] is a parameter of its own.
        vf: from the critic's features to values [B, 1]; not there with `inference_only`.
    """

    def __init__(
        self,
        *,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        learner_only: bool = False,
        catalog_class: Any = None,
        **others: Any,
    ) -> None:
        """See `RLModule`.

        Args:
            observation_space: of the env.
            action_space: of the env.
            learner_only: of no effect.
            catalog_class: must be None: there are no catalogs.
            others: see `RLModule`.

        Raises:
            ConfigError: there is a catalog, or `model_config` asks for what this network lacks.
        """
        del learner_only
        if catalog_class is not None:
            raise ConfigError(
                f"{type(self).__name__}(catalog_class={catalog_class!r:.80}): networks are made in "
                "`setup` here, not by catalogs. Override `setup`, and make the layers there."
            )
        super().__init__(observation_space=observation_space, action_space=action_space, **others)

    def make_action_distribution(self) -> ActionDistribution:
        """The distribution that fits the action space, with the configured limit of log_std."""
        self._config = self._read_config()
        return policy_distribution(self._config, self.action_space)

    def _read_config(self) -> DefaultModelConfig:
        given = {name: value for name, value in self.model_config.items() if name != _NOT_READ}
        if type(self) is not PPOTorchRLModule:  # further keys are its own
            known = {one.name for one in dataclasses.fields(DefaultModelConfig)}
            given = {name: value for name, value in given.items() if name in known}
        config = DefaultModelConfig.from_setting(given)
        asked = {
            f"use_{config.memory}": config.memory is not None,
            "log_std_by_feature": config.log_std_by_feature,
        }
        if wrong := [name for name, is_set in asked.items() if is_set]:
            raise ConfigError(
                f"`model_config`: `{wrong[0]}=True` is not offered by the ready-made network in "
                "Torch. Write one with it (docs/modules.md), or leave `learner_class` in Torch out."
            )
        return config

    def _make_tensors(self, rng: np.random.Generator | None, dtype: type[np.floating[Any]]) -> None:
        self._first: Mapping[str, Any] = {}
        if rng is not None:
            twin = ActorCriticModule(
                observation_space=self.observation_space,
                action_space=self.action_space,
                model_config={**dataclasses.asdict(self._config), "backend": "numpy"},
                action_mask_key=self.action_mask_key,
                rng=copy.deepcopy(rng),
            )
            self._first = twin.get_state()
        super()._make_tensors(rng, dtype)
        del self._first

    def setup(self) -> None:
        """Makes `encoder`, `pi` and `vf`."""
        config = self._config
        image = image_of(self, config)
        if isinstance(image, MixedSpec):
            raise ConfigError(
                f"The ready-made network in Torch reads one image, or no image; this env shows "
                f"{self.seen_space}. Write a TorchRLModule (docs/modules.md), or leave "
                "`learner_class` in Torch out."
            )
        body, shared = config.hidden_layers(), config.vf_share_layers
        make = _Maker(image, self.obs_size, self._first)
        mask = split_observation(self.observation_space, action_mask_key=self.action_mask_key).mask
        key = None if mask is None else self.action_mask_key
        width = policy_width(config, self.action_distribution)
        heads = {"pi": width} if self.inference_only else {"pi": width, "vf": 1}
        made = {}
        if shared:
            encoder = make.encoder("encoder", body)
            made = {
                name: make.head(name, [*config.head_layers(), config.last_layer(size)], first=0)
                for name, size in heads.items()
            }
            parts = {"encoder": encoder}
        else:
            parts = {}
            for name, size in heads.items():
                part = "actor_encoder" if name == "pi" else "critic_encoder"
                parts[part] = make.encoder(name, body)
                layers = [*config.head_layers(), config.last_layer(size)]
                made[name] = make.head(name, layers, first=len(body))
        self.encoder = _encoder_class()(parts, key)
        self.pi = made["pi"]
        if "vf" in made:
            self.vf = made["vf"]
        if config.free_log_std:
            torch = torch_library(_USER)
            self.log_std = torch.nn.Parameter(torch.full((width,), float(config.log_std_init)))

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        del kwargs
        return {ACTION_DIST_INPUTS: self._inputs_of(self.encoder(batch)[ENCODER_OUT][ACTOR])}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        del kwargs
        features = self.encoder(batch)[ENCODER_OUT]
        return {
            ACTION_DIST_INPUTS: self._inputs_of(features[ACTOR]),
            EMBEDDINGS: features[CRITIC],
        }

    def _inputs_of(self, features: Any) -> Any:
        found = self.pi(features)
        if not self._config.free_log_std:
            return found
        return torch_library(_USER).cat([found, self.log_std.expand_as(found)], dim=-1)

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Any:
        """The values of observations, a tensor [B]."""
        if embeddings is None:
            embeddings = self.encoder.critic_features(batch)
        return self.vf(embeddings).squeeze(-1)


# ---- layers


class _Maker:
    """Makes layers in Torch with the first weights of a network in NumPy."""

    def __init__(
        self, image: ImageSpec | None, num_inputs: int, weights: Mapping[str, Any]
    ) -> None:
        """Of one module.

        Args:
            image: the convolutions that come first; None for none.
            num_inputs: how many numbers an observation is, without an image.
            weights: of an `ActorCriticModule`, by name; none where they are set next.
        """
        self._torch = torch_library(_USER)
        self._image, self._num_inputs, self._weights = image, num_inputs, weights
        self._width = num_inputs

    def encoder(self, name: str, layers: Sequence[LayerSpec]) -> Any:
        """What reads observations as rows [B, D]; `name` is that of its weights."""
        self._width = self._num_inputs
        made = []
        if self._image is not None:
            made.append(_image_class()(self._image, functools.partial(self._fill, f"{name}/conv")))
            self._width = self._image.num_features
        return self._torch.nn.Sequential(*made, *self._dense(name, layers, first=0))

    def head(self, name: str, layers: Sequence[LayerSpec], *, first: int) -> Any:
        """What reads the features of the encoder that was made last.

        Args:
            name: that of its weights.
            layers: its layers.
            first: the number of the first one among the weights.
        """
        before = self._width
        made = self._torch.nn.Sequential(*self._dense(name, layers, first=first))
        self._width = before
        return made

    def _dense(self, name: str, layers: Sequence[LayerSpec], *, first: int) -> list[Any]:
        nn, made = self._torch.nn, []
        for number, spec in enumerate(layers, first):
            layer = nn.Linear(self._width, spec.width)
            self._fill(name, number, layer)
            made.append(layer)
            if spec.activation != "linear":
                made.append(getattr(nn, _ACTIVATIONS[spec.activation])())
            self._width = spec.width
        return made

    def _fill(self, name: str, number: int, layer: Any) -> None:
        if not self._weights:
            return
        kernel = self._weights[f"{name}/{number}/kernel"]
        if layer.weight.ndim == 4:  # [channels, depth, height, width] of [h, w, depth, channels]
            channels, depth, *window = layer.weight.shape
            kernel = kernel.reshape(*window, depth, channels).transpose(3, 2, 0, 1)
        else:
            kernel = kernel.T
        with self._torch.no_grad():
            layer.weight.copy_(self._torch.from_numpy(np.ascontiguousarray(kernel)))
            layer.bias.copy_(self._torch.from_numpy(self._weights[f"{name}/{number}/bias"].copy()))


@functools.cache
def _encoder_class() -> Any:
    """The class of `encoder`; made late, for Torch is optional."""
    torch = torch_library(_USER)

    class ActorCriticEncoder(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, parts: Mapping[str, Any], mask_key: str | None) -> None:
            super().__init__()
            self.mask_key = mask_key
            for name, part in parts.items():
                self.add_module(name, part)

        def forward(self, batch: Mapping[str, Any]) -> Any:
            rows = flat_rows(torch, batch[OBS], self.mask_key)
            if hasattr(self, "encoder"):
                features = self.encoder(rows)
                return {ENCODER_OUT: {ACTOR: features, CRITIC: features}}
            found = {ACTOR: self.actor_encoder(rows), CRITIC: None}
            if self.training and hasattr(self, "critic_encoder"):
                found[CRITIC] = self.critic_encoder(rows)
            return {ENCODER_OUT: found}

        def critic_features(self, batch: Mapping[str, Any]) -> Any:
            rows = flat_rows(torch, batch[OBS], self.mask_key)
            return self.encoder(rows) if hasattr(self, "encoder") else self.critic_encoder(rows)

    return ActorCriticEncoder


def flat_rows(torch: Any, observations: Any, mask_key: str | None) -> Any:
    """Observations as one row each, [B, D], in the order of their space, without a mask."""
    found: list[Any] = []

    def add(part: Any) -> None:
        if isinstance(part, Mapping):
            for name, value in part.items():
                if name != mask_key or part is not observations:
                    add(value)
        elif isinstance(part, tuple | list):
            for value in part:
                add(value)
        else:
            found.append(part.reshape(part.shape[0], -1))

    add(observations)
    return found[0] if len(found) == 1 else torch.cat(found, dim=-1)


@functools.cache
def _image_class() -> Any:
    """The class of the convolutions."""
    torch = torch_library(_USER)

    class ImageLayers(torch.nn.Module):  # type: ignore[misc,name-defined]
        """Rows of pixels [B, D] to features [B, F], in the order of `ImageNetwork`."""

        def __init__(self, image: ImageSpec, fill: Callable[[int, Any], None]) -> None:
            super().__init__()
            self.image = image
            self.convolutions, self.zeros = torch.nn.ModuleList(), []
            shape = image.shape
            for number, spec in enumerate(image.convolutions):
                layer = torch.nn.Conv2d(shape[2], spec.channels, spec.kernel, spec.stride)
                fill(number, layer)
                activation = getattr(torch.nn, _ACTIVATIONS[spec.activation])()
                self.convolutions.append(torch.nn.Sequential(layer, activation))
                (above, below), (left, right) = spec.zeros_around(shape)
                self.zeros.append((left, right, above, below))
                shape = spec.output_shape(shape)

        def forward(self, rows: Any) -> Any:
            height, width, channels = self.image.shape
            if self.image.channels_first:
                values = rows.reshape(-1, channels, height, width)
            else:
                values = rows.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
            values = values * self.image.scale
            for layer, zeros in zip(self.convolutions, self.zeros, strict=True):
                values = layer(torch.nn.functional.pad(values, zeros))
            return values.permute(0, 2, 3, 1).flatten(1)

    return ImageLayers
