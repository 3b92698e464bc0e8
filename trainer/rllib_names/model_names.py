"""Keys of RLlib's `model_config` and of its older `model` dict that the networks here lack.

Pure data: which values of such a key ask for nothing, so that it may stay in a script, and what to
do instead of the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final


@dataclasses.dataclass(frozen=True)
class ModelKey:
    """A key of RLlib's that no network here reads.

    Attributes:
        idle: the values that ask for nothing.
        advice: what to do instead of any other value, a sentence without its stop.
        needs: the key whose truth alone gives this one a meaning; empty if it has one of its own.
    """

    idle: tuple[Any, ...]
    advice: str
    needs: str = ""


_ATARI: Final = (
    "images are taken as the env gives them; shape them with gymnasium's wrappers "
    "(AtariPreprocessing, ResizeObservation, GrayscaleObservation, FrameStackObservation)"
)
_OWN: Final = "write an own `RLModule` and give it as `module_class` in an `RLModuleSpec`"
_ATTENTION: Final = (
    "there are no attention networks here; stack frames in the env, or write an own `RLModule`"
)
_OF_ATTENTION: Final = ModelKey((), _ATTENTION, needs="use_attention")
_OF_LSTM: Final = ModelKey((), "there are no recurrent networks here", needs="use_lstm")

UNREAD_MODEL_KEYS: Final[Mapping[str, ModelKey]] = MappingProxyType(
    {
        "_disable_action_flattening": ModelKey((False, None), "nested actions stay as they are"),
        "_disable_preprocessor_api": ModelKey((False, True, None), "there is one implementation"),
        "_time_major": ModelKey((False, None), "batches have their rows first"),
        "_use_default_native_models": ModelKey((False, True, -1, None), "there is one kind"),
        "always_check_shapes": ModelKey((False, True, None), "shapes are always checked"),
        "custom_action_dist": ModelKey(
            (None,), "write an own `RLModule` with `make_action_distribution`"
        ),
        "custom_model": ModelKey((None,), _OWN),
        "custom_model_config": ModelKey(({}, None), f"{_OWN}; its `model_config` may use any keys"),
        "custom_preprocessor": ModelKey((None,), "change observations with a wrapper of the env"),
        "dim": ModelKey((84, None), _ATARI),
        "encoder_latent_dim": ModelKey(
            (None,), "give the width as the last of `fcnet_hiddens` instead"
        ),
        "framestack": ModelKey((True, False, None), _ATARI),
        "grayscale": ModelKey((False, None), _ATARI),
        "no_final_linear": ModelKey((False, None), "the last layer is always linear"),
        "zero_mean": ModelKey((True, False, None), _ATARI),
        "use_attention": ModelKey((False, None), _ATTENTION),
        "fusionnet_hiddens": ModelKey(
            ([], None), "give the layers after convolutions as `fcnet_hiddens`"
        ),
        **dict.fromkeys(
            (
                "attention_num_transformer_units",
                "attention_dim",
                "attention_num_heads",
                "attention_head_dim",
                "attention_memory_inference",
                "attention_memory_training",
                "attention_position_wise_mlp_dim",
                "attention_init_gru_gate_bias",
                "attention_use_n_prev_actions",
                "attention_use_n_prev_rewards",
            ),
            _OF_ATTENTION,
        ),
        **dict.fromkeys(
            (
                "lstm_use_prev_action_reward",
                "lstm_weights_initializer",
                "lstm_weights_initializer_config",
            ),
            _OF_LSTM,
        ),
    }
)
"""By key; what is not here and not a setting of the network is misspelt."""

OLD_INITIALIZER_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        f"{part}_{tensor}_initializer_config": f"{part}_{tensor}_initializer_kwargs"
        for part in ("fcnet", "conv", "head_fcnet")
        for tensor in ("kernel", "bias")
    }
    | {
        f"{part}_weights_initializer{end}": f"{part}_kernel_initializer{new}"
        for part in ("fcnet", "conv", "head_fcnet")
        for end, new in (("", ""), ("_config", "_kwargs"))
    }
)
"""Older names of the keys that say how weights are drawn."""


def without_old_keys(setting: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A `model_config` in today's keys, and what is wrong with the others.

    `post_fcnet_hiddens` become further `fcnet_hiddens`, as in RLlib's dense networks; behind
    `conv_filters` they are the only ones, as in its convolutional ones. `post_fcnet_activation`
    is taken where there are no other layers than these.
    """
    problems: list[str] = []
    today: dict[str, Any] = {}
    for key, value in setting.items():
        unread = UNREAD_MODEL_KEYS.get(key)
        if unread is None:
            today[OLD_INITIALIZER_KEYS.get(key, key)] = value
        elif unread.needs:
            pass  # judged with the key that it needs
        elif not any(value == idle and type(value) is type(idle) for idle in unread.idle):
            problems.append(f"`{key}={value!r}`: {unread.advice}")
    return _with_post_layers(today), problems


def _with_post_layers(setting: dict[str, Any]) -> dict[str, Any]:
    more = setting.pop("post_fcnet_hiddens", None)
    activation = setting.pop("post_fcnet_activation", None)
    if not more:
        return setting
    is_alone = "fcnet_hiddens" in setting and not setting["fcnet_hiddens"]
    if is_alone or setting.get("conv_filters"):
        setting["fcnet_hiddens"] = list(more)
        if activation is not None:
            setting["fcnet_activation"] = activation
    else:
        setting["fcnet_hiddens"] = [*setting.get("fcnet_hiddens", (256, 256)), *more]
    return setting
