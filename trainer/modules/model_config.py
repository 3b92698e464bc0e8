"""What the ready-made network looks like: RLlib's `DefaultModelConfig`, where it applies here."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

import gymnasium as gym
import numpy as np

from trainer.errors import ConfigError, UnknownSettingError, UnsupportedSpaceError
from trainer.modules.rl_module import RLModule
from trainer.modules.spaces import distribution_for
from trainer.nn import (
    ACTIVATIONS,
    BIAS_RULES,
    INITIALIZERS,
    KERNEL_RULES,
    MLP,
    PADDINGS,
    ActionDistribution,
    ConvolutionSpec,
    DiagGaussian,
    ImageNetwork,
    ImageSpec,
    LayerDraw,
    LayerSpec,
    MixedSpec,
    Parameters,
    TensorDraw,
    acting_forward,
    columns_with_ones,
    kernels,
    name_of_rule,
)
from trainer.nn.initializers import Initializer
from trainer.nn.layers import BackwardPass, are_large, run_side_by_side
from trainer.nn.torch_network import BACKENDS
from trainer.old_names import OLD_NAMES
from trainer.spaces import ShownImage, shown_images
from trainer.types import Array
from trainer_toolkit.checks import boolean, integer, number, one_of, optional
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean

_LOGGER: Final = logging.getLogger(__name__)

_ELSEWHERE: Final = MappingProxyType(
    {"net_arch": "fcnet_hiddens", "activation_fn": "fcnet_activation", "ortho_init": "initializer"}
)
"""What Stable-Baselines3 calls a key, for hints."""

# ---- model config

_ConfigT = TypeVar("_ConfigT", bound="DefaultModelConfig")


@dataclass(frozen=True)
class DefaultModelConfig:
    """The shape of an `ActorCriticModule`; names and defaults are RLlib's.

    Attributes:
        conv_filters: convolutions that come before all other layers, `[channels, kernel, stride]`
            each, from first to last; kernel and stride are one number, or [vertical, horizontal].
            The padding may follow, "same" (default) or "valid". None: chosen by the size of each
            image in the observation, a Box with three dimensions. []: none.
        conv_activation: their activation; None is "linear", as for the others.
        conv_channels_first: ours. Images are [channels, height, width] (True) or [height, width,
            channels] (False). None: told from their shape; docs/envs.md says how.
        fcnet_hiddens: the widths of the hidden layers, ≥ 1 each; may be empty. After convolutions,
            too, where RLlib leaves them out.
        fcnet_activation: their activation, a name in `trainer.nn.ACTIVATIONS`.
        head_fcnet_hiddens: the widths of further hidden layers in each head.
        head_fcnet_activation: their activation.
        vf_share_layers: policy and value function share the layers of `fcnet_hiddens`. RLlib's
            default is True; PPO sets it to False.
        free_log_std: for Box actions: log standard deviations are parameters of their own instead
            of outputs that depend on the observation.
        log_std_init: ours. With `free_log_std`, what they begin with; 0 is a deviation of 1.
        log_std_by_feature: ours. With `free_log_std`, there is one for each action and each feature
            that the policy's last layer reads, [F, A], and deviations follow from the features: the
            network's part of gSDE, for `exploration_config={"type": "StateDependentNoise"}`. For
            PPO and PG, without memory. `log_std_clip_param` is of what follows from them.
        log_std_clip_param: for Box actions: the log standard deviation stays within ± this, > 0.
        initializer: how weights are drawn, a name in `trainer.nn.INITIALIZERS`.
        fcnet_kernel_initializer: how the kernels of the `fcnet_hiddens` layers are drawn: a name of
            `torch.nn.init` (with or without its last underscore), or that function. None leaves it
            to `initializer`.
        fcnet_kernel_initializer_kwargs: options of it, such as {"gain": 0.01}.
        fcnet_bias_initializer: how their biases are drawn, likewise.
        fcnet_bias_initializer_kwargs: options of it.
        conv_kernel_initializer: of the convolutions, likewise.
        conv_kernel_initializer_kwargs: options of it.
        conv_bias_initializer: of the convolutions, likewise.
        conv_bias_initializer_kwargs: options of it.
        head_fcnet_kernel_initializer: of all layers of the heads, the last ones included, likewise.
        head_fcnet_kernel_initializer_kwargs: options of it.
        head_fcnet_bias_initializer: of the heads, likewise.
        head_fcnet_bias_initializer_kwargs: options of it.
        backend: ours. What computes while learning: "numpy", or "torch", which takes about half the
            time for images and needs the extra `[torch]`. Weights and acting are the same.
        use_lstm: an LSTM comes after the layers of `fcnet_hiddens`, for PPO and PG; what it holds
            is handed on from step to step (`trainer.modules.memory`).
        use_gru: ours. A GRU instead of an LSTM.
        max_seq_len: gradients flow back through so many steps of an episode at most, ≥ 1.
        lstm_cell_size: the numbers of each part of the state, ≥ 1, of a GRU, too.
        lstm_use_prev_action: it reads the action before, too (zeros at first).
        lstm_use_prev_reward: it reads the reward before, too (0 at first).
        lstm_kernel_initializer: of its kernels, those of the state included; of a GRU, too.
        lstm_kernel_initializer_kwargs: options of it.
        lstm_bias_initializer: of its biases, likewise.
        lstm_bias_initializer_kwargs: options of it.
    """

    conv_filters: Sequence[Sequence[Any]] | None = None
    conv_activation: str | None = "relu"
    conv_channels_first: bool | None = None
    fcnet_hiddens: Sequence[int] = field(default_factory=lambda: [256, 256])
    fcnet_activation: str | None = "tanh"
    head_fcnet_hiddens: Sequence[int] = field(default_factory=list)
    head_fcnet_activation: str | None = "relu"
    vf_share_layers: bool = True
    free_log_std: bool = False
    log_std_init: float = 0.0
    log_std_by_feature: bool = False
    log_std_clip_param: float = 20.0
    initializer: str = "orthogonal"
    fcnet_kernel_initializer: Any = None
    fcnet_kernel_initializer_kwargs: Mapping[str, Any] | None = None
    fcnet_bias_initializer: Any = None
    fcnet_bias_initializer_kwargs: Mapping[str, Any] | None = None
    conv_kernel_initializer: Any = None
    conv_kernel_initializer_kwargs: Mapping[str, Any] | None = None
    conv_bias_initializer: Any = None
    conv_bias_initializer_kwargs: Mapping[str, Any] | None = None
    head_fcnet_kernel_initializer: Any = None
    head_fcnet_kernel_initializer_kwargs: Mapping[str, Any] | None = None
    head_fcnet_bias_initializer: Any = None
    head_fcnet_bias_initializer_kwargs: Mapping[str, Any] | None = None
    backend: str = "numpy"
    use_lstm: bool = False
    max_seq_len: int = 20
    lstm_cell_size: int = 256
    lstm_use_prev_action: bool = False
    lstm_use_prev_reward: bool = False
    lstm_kernel_initializer: Any = None
    lstm_kernel_initializer_kwargs: Mapping[str, Any] | None = None
    lstm_bias_initializer: Any = None
    lstm_bias_initializer_kwargs: Mapping[str, Any] | None = None
    use_gru: bool = False

    def __post_init__(self) -> None:
        for name, value in plain_names(vars(self)).items():
            object.__setattr__(self, name, value)
        problems = [
            *self._width_problems(),
            *self._name_problems(),
            *self._draw_problems(),
            *_filter_problems(self.conv_filters),
        ]
        if not number(above=0, infinite=True).accepts(self.log_std_clip_param):
            problems.append(f"`log_std_clip_param={self.log_std_clip_param!r}` must be above 0")
        if not number(-20.0, maximum=20.0).accepts(self.log_std_init):
            problems.append(f"`log_std_init={self.log_std_init!r}` must be a number within ± 20")
        elif self.log_std_init and not self.free_log_std:
            problems.append(
                f"`log_std_init={self.log_std_init!r}` is of `free_log_std=True`, which is not set"
            )
        problems += self._feature_problems()
        if not optional(boolean()).accepts(self.conv_channels_first):
            problems.append(
                f"`conv_channels_first={self.conv_channels_first!r}` must be True, False or None"
            )
        problems += self._memory_problems()
        if problems:
            raise ConfigError("The `model_config` cannot be built: " + "; ".join(problems) + ".")

    @classmethod
    def from_setting(
        cls: type[_ConfigT], setting: Mapping[str, Any] | DefaultModelConfig | None
    ) -> _ConfigT:
        """Reads a `model_config` as users write it.

        Args:
            setting: a dict of attributes (absent ones keep their default), None for all defaults,
                or the object itself.

        Raises:
            UnknownSettingError: a key is not an attribute; the nearest one is named.
            ConfigError: a value is impossible; all of them are listed.
        """
        if isinstance(setting, cls):
            return setting
        if isinstance(setting, DefaultModelConfig):
            setting = dataclasses.asdict(setting)
        setting = setting or {}
        problems: list[str] = []
        for read in OLD_NAMES.model_configs:
            setting, more = read(setting)
            problems += more
        known = [attribute.name for attribute in dataclasses.fields(cls)]
        unknown = [key for key in setting if key not in known]
        if unknown:
            meant = [did_you_mean(_ELSEWHERE.get(key, key), known, IN_BRACKETS) for key in unknown]
            shown = (f"{key!r}{hint}" for key, hint in zip(unknown, meant, strict=True))
            raise UnknownSettingError(
                "The `model_config` has keys that the default network does not know: "
                + "; ".join(shown)
                + (". " if all(meant) else f". It knows {', '.join(known)}. ")
                + "Correct the spelling, or give an own `module_class` in an `RLModuleSpec`, which "
                "may use any keys."
            )
        if problems:
            raise ConfigError(
                "The `model_config` has keys of RLlib's that the networks here do not read: "
                + "; ".join(problems)
                + "."
            )
        return cls(**setting)

    @property
    def memory(self) -> str | None:
        """The kind of recurrent layer, a name in `trainer.nn.recurrent.RECURRENT_LAYERS`."""
        if self.use_gru:
            return "gru"
        return "lstm" if self.use_lstm else None

    def _feature_problems(self) -> list[str]:
        by_feature = self.log_std_by_feature
        if not boolean().accepts(by_feature):
            return [f"`log_std_by_feature={by_feature!r}` must be True or False"]
        if by_feature and not self.free_log_std:
            return ["`log_std_by_feature=True` is of `free_log_std=True`, which is not set"]
        return []

    def _memory_problems(self) -> list[str]:
        flags = ("use_lstm", "use_gru", "lstm_use_prev_action", "lstm_use_prev_reward")
        problems = [
            f"`{name}={getattr(self, name)!r}` must be True or False"
            for name in flags
            if not optional(boolean()).accepts(getattr(self, name))
        ]
        problems += [
            f"`{name}={getattr(self, name)!r}` must be an integer ≥ 1"
            for name in ("max_seq_len", "lstm_cell_size")
            if not integer(1).accepts(getattr(self, name))
        ]
        if self.use_lstm and self.use_gru:
            problems.append("`use_lstm=True` and `use_gru=True`: one of them at a time")
        return problems

    def _width_problems(self) -> list[str]:
        problems = []
        for name in ("fcnet_hiddens", "head_fcnet_hiddens"):
            widths = getattr(self, name)
            is_list = isinstance(widths, Sequence) and not isinstance(widths, str)
            if not is_list or any(not isinstance(width, int) or width < 1 for width in widths):
                problems.append(f"`{name}={widths!r}` must be a list of integers ≥ 1")
        return problems

    def hidden_layers(self) -> list[LayerSpec]:
        """The layers of `fcnet_hiddens`."""
        draw, activation = self.draw_of("fcnet"), self.fcnet_activation or "linear"
        return [LayerSpec(width, activation, draw) for width in self.fcnet_hiddens]

    def head_layers(self) -> list[LayerSpec]:
        """The layers of `head_fcnet_hiddens`."""
        draw, activation = self.draw_of("head_fcnet"), self.head_fcnet_activation or "linear"
        return [LayerSpec(width, activation, draw) for width in self.head_fcnet_hiddens]

    def last_layer(self, width: int) -> LayerSpec:
        """The linear layer at the end of a head."""
        return LayerSpec(width, "linear", self.draw_of("head_fcnet"))

    def draw_of(self, part: str) -> LayerDraw:
        """How the first weights of a part's layers are drawn.

        Args:
            part: "fcnet", "conv", "head_fcnet" or "lstm".

        Raises:
            ValueError: a rule does not exist, or does not take its options.
        """
        draws = {}
        for tensor, rules in (("kernel", KERNEL_RULES), ("bias", BIAS_RULES)):
            name = f"{part}_{tensor}_initializer"
            given, options = getattr(self, name), getattr(self, f"{name}_kwargs")
            draws[tensor] = None if given is None else TensorDraw.named(given, options, rules)
        return LayerDraw(**draws)

    def _draw_problems(self) -> list[str]:
        problems = []
        for part in ("fcnet", "conv", "head_fcnet", "lstm"):
            try:
                self.draw_of(part)
            except ValueError as error:
                problems.append(f"a `{part}_…_initializer`: {error}")
        return problems

    def _name_problems(self) -> list[str]:
        allowed = {
            "conv_activation": ACTIVATIONS,
            "fcnet_activation": ACTIVATIONS,
            "head_fcnet_activation": ACTIVATIONS,
            "initializer": INITIALIZERS,
            "backend": BACKENDS,
        }
        return [
            f"`{name}={getattr(self, name)!r}` must be one of {', '.join(choices)}"
            for name, choices in allowed.items()
            if not one_of(*choices).accepts(getattr(self, name))
        ]


def policy_distribution(
    config: DefaultModelConfig, action_space: gym.Space[Any]
) -> ActionDistribution:
    """The distribution that fits the action space, with the configured limit of log_std.

    Raises:
        ConfigError: `free_log_std` of a distribution that has no standard deviation.
    """
    distribution = distribution_for(action_space, log_std_clip=config.log_std_clip_param)
    if config.free_log_std and not isinstance(distribution, DiagGaussian):
        raise ConfigError(
            "`free_log_std=True` needs Box actions, whose distribution has a standard deviation; "
            f"the action space is {action_space}. Leave it out of the `model_config`."
        )
    return distribution


def policy_width(config: DefaultModelConfig, distribution: ActionDistribution) -> int:
    """The numbers that a policy network gives: all inputs of the distribution, or means alone."""
    return distribution.noise_width if config.free_log_std else distribution.num_inputs


def with_log_std(outputs: Array, log_std: Array | None) -> Array:
    """The inputs of the distribution, [..., K], of what the policy network gave."""
    if log_std is None:
        return outputs
    return np.concatenate([outputs, np.broadcast_to(log_std, outputs.shape)], axis=-1)


def refuse_memory(config: DefaultModelConfig) -> None:
    """Raises a ConfigError if a network of an algorithm with replay is to remember."""
    if config.memory is not None:
        raise ConfigError(
            f"`use_{config.memory}=True`: learning from replay takes single steps of a buffer, "
            "which say nothing of those before. Use PPO or PG, or show the last steps in the "
            "observation: gymnasium.wrappers.FrameStackObservation(env, n)."
        )


def plain_names(setting: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a `model_config` that mean the same as a name: names instead of them.

    No activation (None) is "linear"; a function of `torch.nn.init` is its name.
    """
    names = {
        key: "linear"
        for key in ("fcnet_activation", "head_fcnet_activation", "conv_activation")
        if key in setting and setting[key] is None
    }
    for key, value in setting.items():
        if isinstance(key, str) and key.endswith("_initializer") and callable(value):
            name = name_of_rule(value)
            names.update({key: name} if name in KERNEL_RULES else {})
    return names


def parsed_filter(entry: Any) -> tuple[int, tuple[int, int], tuple[int, int], str]:
    """Channels, kernel, stride and padding of a line of `conv_filters`; a ValueError if none."""
    channels, kernel, stride, *padding = entry
    chosen = padding[0] if padding else "same"
    if len(padding) > 1 or chosen not in PADDINGS or not _is_count(channels):
        raise ValueError(entry)
    return channels, _pair(kernel), _pair(stride), chosen


def _pair(size: Any) -> tuple[int, int]:
    """One number for both directions, or one each."""
    vertical, horizontal = (size, size) if _is_count(size) else size
    if not (_is_count(vertical) and _is_count(horizontal)):
        raise ValueError(size)
    return int(vertical), int(horizontal)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _filter_problems(filters: Any) -> list[str]:
    if filters is None:
        return []
    try:
        for entry in filters:
            parsed_filter(entry)
    except (TypeError, ValueError):
        return [
            f"`conv_filters={filters!r}` must be a list of [channels, kernel, stride], such as "
            "[[16, 4, 2], [32, 3, 1]]; kernel and stride are integers ≥ 1 or [vertical, "
            'horizontal], and "same" or "valid" may follow'
        ]
    return []


# ---- networks
#
# The networks that read observations: images through convolutions, everything else directly.


_MUCH_LARGER: Final = 2
_MANY_FEATURES: Final = 1000
"""So many times more features by padding are worth a hint, where they are many."""

_DEFAULT_FILTERS: Final = (
    (60, ((16, 8, 4), (32, 4, 2))),
    (24, ((16, 4, 2), (32, 4, 2))),
    (0, ((16, 3, 1), (32, 3, 2))),
)
"""Layers for images whose shorter side has at least so many pixels.

The first are those of Mnih et al. 2013, the others shrink them with the image.
"""


def image_of(module: RLModule, config: DefaultModelConfig) -> ImageSpec | MixedSpec | None:
    """The convolutions that a module begins with; None if it reads numbers directly.

    Raises:
        UnsupportedSpaceError: convolutions are asked for, but there is no image.
        ConfigError: a kernel is larger than what it reads.
    """
    filters = config.conv_filters
    found = shown_images(module.seen_space, channels_first=config.conv_channels_first)
    if filters is None:
        found = tuple(image for image in found if image.has_channels)
    if (filters is not None and not filters) or (filters is None and not found):
        return None
    if not found:
        raise UnsupportedSpaceError(
            "`conv_filters` need an image in the observation, a Box [height, width, channels] or "
            f"[channels, height, width], or else a Box [height, width] and nothing beside it; this "
            f"env shows {module.seen_space}. Leave them out, or let the env show an image."
        )
    images = tuple(_image_spec(image, config) for image in found)
    if filters is not None and not module.inference_only:
        for image in images:
            _hint_at_padding(image)
    if len(images) == 1 and found[0].size == module.obs_size:
        return images[0]
    return MixedSpec(module.obs_size, images)


def _image_spec(found: ShownImage, config: DefaultModelConfig) -> ImageSpec:
    """What reads one image."""
    filters = config.conv_filters
    if filters is None:
        shorter = min(found.shape[:2])
        filters = next(layers for least, layers in _DEFAULT_FILTERS if shorter >= least)
    convolutions = []
    for entry in filters:
        channels, kernel, stride, padding = parsed_filter(entry)
        convolutions.append(
            ConvolutionSpec(
                channels,
                kernel,
                stride,
                padding,
                config.conv_activation or "linear",
                config.draw_of("conv"),
            )
        )
    image = ImageSpec(
        found.shape,
        1.0 / 255.0 if found.is_bytes else 1.0,
        tuple(convolutions),
        channels_first=found.channels_first,
        start=found.start,
    )
    if image.num_features == 0:
        raise ConfigError(
            f"`conv_filters={filters!r}` do not fit images of {found.shape}: with the padding "
            '"valid", a kernel is larger than what is left of the image. Use smaller kernels or '
            'strides, or the padding "same".'
        )
    return image


@functools.cache
def _hint_at_padding(image: ImageSpec) -> None:
    """Says once what filters cost that were copied from where images are not padded."""
    layers = tuple(replace(layer, padding="valid") for layer in image.convolutions)
    num_features = replace(image, convolutions=layers).num_features
    is_dear = image.num_features > max(_MANY_FEATURES, _MUCH_LARGER * num_features)
    if num_features and is_dear:
        _LOGGER.warning(
            'conv_filters pad images %s ("same", RLlib\'s way) and hand %s numbers on to the dense '
            "layers; without padding it would be %s, for a cheaper network. If the "
            "filters come from Stable-Baselines3, CleanRL or a paper, write [channels, kernel, "
            'stride, "valid"].',
            list(image.shape),
            f"{image.num_features:,}",
            f"{num_features:,}",
        )


def backend_of(module: RLModule, config: DefaultModelConfig) -> str:
    """What computes while a module learns; one that only acts does so in NumPy."""
    return "numpy" if module.inference_only else config.backend


@dataclass(frozen=True)
class NetworkPlan:
    """One network of a module, before its parameters exist.

    Attributes:
        name: what its tensors' names begin with.
        num_inputs: how many numbers it reads, of rows without an image.
        layers: its dense layers.
        image: its convolutions, which then read the observations; None if there are none.
        backend: what computes while learning, one of `BACKENDS`.
    """

    name: str
    num_inputs: int
    layers: Sequence[LayerSpec]
    image: ImageSpec | MixedSpec | None = None
    backend: str = "numpy"

    @property
    def num_outputs(self) -> int:
        """The width of its last layer."""
        if self.layers:
            return self.layers[-1].width
        return self.num_inputs if self.image is None else self.image.num_features

    @property
    def num_last_inputs(self) -> int:
        """What its last layer reads."""
        return replace(self, layers=self.layers[:-1]).num_outputs

    @property
    def is_empty(self) -> bool:
        """Whether it has no layer at all."""
        return not self.layers and self.image is None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The tensors of all its layers."""
        if self.image is None:
            return MLP.shapes(self.name, num_inputs=self.num_inputs, layers=self.layers)
        return ImageNetwork.shapes(self.name, image=self.image, layers=self.layers)

    def build(self, parameters: Parameters, gradients: Parameters) -> MLP | ImageNetwork:
        """The network, laid over its tensors."""
        backend = BACKENDS[self.backend]
        if self.image is None:
            return backend.mlp(parameters, gradients, name=self.name, layers=self.layers)
        return ImageNetwork(
            parameters,
            gradients,
            name=self.name,
            image=self.image,
            layers=self.layers,
            stack_class=backend.stack,
            mlp_class=backend.mlp,
        )


def observation_plan(name: str, module: RLModule, config: DefaultModelConfig) -> NetworkPlan:
    """The network that reads observations first: convolutions and hidden layers; see `image_of`."""
    image = image_of(module, config)
    backend = backend_of(module, config)
    return NetworkPlan(name, module.obs_size, config.hidden_layers(), image, backend)


class Trunk:
    """What the heads of a module read: observations, or the features of an encoder that they share.

    An `MLP` reads columns with a row of ones below, an `ImageNetwork` rows. Memory is used again.

    Attributes:
        encoder: None if the heads read observations.
    """

    def __init__(
        self,
        plan: NetworkPlan,
        parameters: Parameters,
        gradients: Parameters,
        *,
        are_images: bool | None = None,
    ) -> None:
        """Builds the encoder, unless its plan is empty.

        Args:
            plan: of the encoder.
            parameters: what it computes with.
            gradients: what `backward` overwrites.
            are_images: convolutions read the observations; None: if the encoder has some.
        """
        self.encoder = None if plan.is_empty else plan.build(parameters, gradients)
        self._acting = None if self.encoder is None else acting_forward(self.encoder)
        self._are_images = plan.image is not None if are_images is None else are_images
        self._columns = columns_with_ones(plan.num_inputs, 0, parameters.dtype)
        self._d_features: Array = np.empty((0, plan.num_outputs, 0), parameters.dtype)

    def initialize(self, rng: np.random.Generator, initializer: Initializer) -> None:
        """Draws the weights of the encoder."""
        if self.encoder is not None:
            self.encoder.initialize(rng, initializer=initializer)

    def acting_with(
        self, head: MLP | ImageNetwork, *, but_last: bool = False
    ) -> Callable[[Array], Array]:
        """Gives the outputs of a head, row-exactly, for observations [B, D].

        With `but_last`, what its last layer reads.
        """
        return acting_forward(*([self.encoder] if self.encoder else []), head, but_last=but_last)

    def act(self, obs: Array) -> Array:
        """The features of observations [B, D], row-exactly."""
        return obs if self._acting is None else self._acting(obs)

    def forward(self, obs: Array) -> Array:
        """What `forward` of the heads takes, for observations [B, D]."""
        if self._are_images:
            features = obs
        else:
            if self._columns.shape[1] != len(obs):
                shape = self._columns.shape[0] - 1, len(obs)
                self._columns = columns_with_ones(*shape, self._columns.dtype.type)
            self._columns[:-1] = obs.T
            features = self._columns
        return features if self.encoder is None else self.encoder.forward(features)

    @property
    def columns(self) -> Array:
        """What was read last, [D + 1, B]; other memory for batches of another size."""
        return self._columns

    def network_in_c(self, head: MLP | ImageNetwork) -> kernels.Network | None:
        """Encoder and head as the kernels have them since the last forward pass, if they do."""
        parts = [head] if self.encoder is None else [self.encoder, head]
        known = [one for one in parts if isinstance(one, MLP) and one.chain_in_c is not None]
        is_known = len(known) == len(parts) and kernels.are_plain(self._columns)
        return kernels.Network(self._columns, *known) if is_known else None

    def backward(self, *heads: tuple[MLP | ImageNetwork, Array]) -> None:
        """Overwrites the gradients of heads and encoder, for the last forward pass.

        Args:
            *heads: each with the derivative of the loss for its outputs, [N, B].
        """
        if self.encoder is None:
            if are_large([head for head, _ in heads], heads[0][1].shape[1]):
                passes = [BackwardPass(head, d) for head, d in heads if isinstance(head, MLP)]
                run_side_by_side(passes[:1], passes[1:])
                return
            for head, gradient in heads:
                head.backward(gradient)
            return
        shape = len(heads), self._d_features.shape[1], heads[0][1].shape[1]
        if self._d_features.shape != shape:
            self._d_features = np.empty(shape, self._d_features.dtype)
        for (head, gradient), d_features in zip(heads, self._d_features, strict=True):
            head.backward(gradient, d_inputs=d_features)
        total = self._d_features[0]
        for d_features in self._d_features[1:]:
            np.add(total, d_features, total)
        self.encoder.backward(total)
