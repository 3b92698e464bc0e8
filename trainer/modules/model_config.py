"""What the ready-made network looks like: RLlib's `DefaultModelConfig`, where it applies here."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trainer.errors import ConfigError, UnknownSettingError
from trainer.nn import ACTIVATIONS, INITIALIZERS, PADDINGS

_ConfigT = TypeVar("_ConfigT", bound="DefaultModelConfig")


@dataclass(frozen=True)
class DefaultModelConfig:
    """The shape of an `ActorCriticModule`; names and defaults are RLlib's.

    Attributes:
        conv_filters: convolutions that come before all other layers, `[channels, kernel, stride]`
            each, from first to last; kernel and stride are one number, or [vertical, horizontal].
            The padding may follow, "same" (default) or "valid". None: chosen by the size of each
            image in the observation, a Box with three dimensions. []: none.
        conv_activation: their activation.
        conv_channels_first: ours. Images are [channels, height, width] (True) or [height, width,
            channels] (False). None: told from their shape; docs/spaces.md says how.
        fcnet_hiddens: the widths of the hidden layers, ≥ 1 each; may be empty. After convolutions,
            too, where RLlib leaves them out.
        fcnet_activation: their activation, a name in `trainer.nn.ACTIVATIONS`.
        head_fcnet_hiddens: the widths of further hidden layers in each head.
        head_fcnet_activation: their activation.
        vf_share_layers: policy and value function share the layers of `fcnet_hiddens`. RLlib's
            default is True; PPO sets it to False.
        free_log_std: for Box actions: log standard deviations are parameters of their own instead
            of outputs that depend on the observation.
        log_std_clip_param: for Box actions: the log standard deviation stays within ± this, > 0.
        initializer: how weights are drawn, a name in `trainer.nn.INITIALIZERS`.
        use_lstm: must be False: there are no recurrent networks here.
        max_seq_len: RLlib's; means something for recurrent networks only.
    """

    conv_filters: Sequence[Sequence[Any]] | None = None
    conv_activation: str = "relu"
    conv_channels_first: bool | None = None
    fcnet_hiddens: Sequence[int] = field(default_factory=lambda: [256, 256])
    fcnet_activation: str = "tanh"
    head_fcnet_hiddens: Sequence[int] = field(default_factory=list)
    head_fcnet_activation: str = "relu"
    vf_share_layers: bool = True
    free_log_std: bool = False
    log_std_clip_param: float = 20.0
    initializer: str = "orthogonal"
    use_lstm: bool = False
    max_seq_len: int = 20

    def __post_init__(self) -> None:
        problems = [
            *self._width_problems(),
            *self._name_problems(),
            *_filter_problems(self.conv_filters),
        ]
        if not self.log_std_clip_param > 0.0:
            problems.append(f"`log_std_clip_param={self.log_std_clip_param!r}` must be above 0")
        if self.conv_channels_first not in (None, True, False):
            problems.append(
                f"`conv_channels_first={self.conv_channels_first!r}` must be True, False or None"
            )
        if self.use_lstm:
            problems.append(
                "`use_lstm=True`: there are no recurrent networks here; stack frames in the env, "
                "or write your own `RLModule`"
            )
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
        known = [attribute.name for attribute in dataclasses.fields(cls)]
        unknown = [key for key in setting if key not in known]
        if unknown:
            raise UnknownSettingError(
                "The `model_config` has keys that the default network does not know: "
                + "; ".join(_with_suggestion(key, known) for key in unknown)
                + f". It knows {', '.join(known)}. Correct the spelling, or give an own "
                "`module_class` in an `RLModuleSpec`, which may use any keys."
            )
        return cls(**setting)

    def _width_problems(self) -> list[str]:
        problems = []
        for name in ("fcnet_hiddens", "head_fcnet_hiddens"):
            widths = getattr(self, name)
            is_list = isinstance(widths, Sequence) and not isinstance(widths, str)
            if not is_list or any(not isinstance(width, int) or width < 1 for width in widths):
                problems.append(f"`{name}={widths!r}` must be a list of integers ≥ 1")
        return problems

    def _name_problems(self) -> list[str]:
        allowed = {
            "conv_activation": ACTIVATIONS,
            "fcnet_activation": ACTIVATIONS,
            "head_fcnet_activation": ACTIVATIONS,
            "initializer": INITIALIZERS,
        }
        return [
            f"`{name}={getattr(self, name)!r}` must be one of {', '.join(choices)}"
            for name, choices in allowed.items()
            if getattr(self, name) not in choices
        ]


def parsed_filter(entry: Any) -> tuple[int, tuple[int, int], tuple[int, int], str]:
    """Channels, kernel, stride and padding of one of the `conv_filters`.

    Raises:
        ValueError: it is none.
    """
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


def _with_suggestion(key: str, known: Sequence[str]) -> str:
    nearest = difflib.get_close_matches(str(key), known, n=1)
    return f"{key!r} (did you mean {nearest[0]!r}?)" if nearest else f"{key!r}"
