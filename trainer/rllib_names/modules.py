"""Old names of modules: what RLlib's `Policy` offers beside its weights, and keys of its models.

As in RLlib, a policy reads observations that are ready for its network: rows of numbers, one-hot
codes for Discrete ones, not yet filtered. `Algorithm.compute_single_action` takes them as the env
gives them, and explores as the config says.

Of the keys of `model_config` and of the older `model` dict that the networks here lack, a table
says which values ask for nothing, so that they may stay in a script, and what to do instead of the
others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from checkpoints import CheckpointError, PathLike
from checkpoints.components import checkpoint_and_component, has_component
from trainer.episodes import nested
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTION_PROB,
    ACTIONS,
    OBS,
)
from trainer.errors import ModuleError
from trainer.modules import MultiRLModule, RLModule
from trainer.seeding import NOISE_DRAWS, Role, position_rng
from trainer.types import DEFAULT_MODULE_ID, Array
from trainer_toolkit.arguments import argument_error, require_keys, takes
from trainer_toolkit.checks import numeric

# ---- policies


class _Itself:
    """Gives the object itself, unless it has an attribute of its own under that name."""

    def __get__(self, owner: Any, owner_class: type) -> Any:
        return self if owner is None else owner


class ParametersNames:
    """Lets `module.parameters()` be called, as networks in Torch have it."""

    def __call__(self: Any) -> Iterator[Array]:
        """The weights, one array after the other."""
        return iter(self.views.values())


class PolicyNames:
    """Adds the older names to a module.

    Modules of users may have attributes of the same names, which win.

    Attributes:
        model: the network: the module itself.
        framework: what networks are computed with.
    """

    _num_policy_draws = 0
    _has_probabilities = True
    model = _Itself()

    def as_multi_rl_module(self) -> MultiRLModule:
        """A `MultiRLModule` whose only module is this one, as "default_policy"."""
        return MultiRLModule({DEFAULT_MODULE_ID: _module(self)})

    framework = "numpy"

    @functools.cached_property
    def dist_class(self) -> type:
        """The class of its action distribution."""
        return type(_module(self).action_distribution)

    def keys(self) -> tuple[str]:
        """The only id: RLlib's learners hold modules by id, and ours one each."""
        return (DEFAULT_MODULE_ID,)

    def is_recurrent(self) -> bool:
        """Whether it remembers."""
        return _module(self).is_stateful()

    def num_state_tensors(self) -> int:
        """How many arrays its state has."""
        found: list[Any] = []
        nested.map_leaves(found.append, _module(self).get_initial_state())
        return len(found)

    def compute_single_action(
        self, obs: Any, state: Sequence[Any] | None = None, *, explore: bool | None = None, **_: Any
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """One action for one observation that is ready for the network.

        Args:
            obs: the numbers that it reads, of any shape, [D] in all.
            state: an empty list; networks with memory are refused.
            explore: see `compute_actions`.

        Returns:
            The action as the module gives it, no state, and what it comes from.
        """
        del state
        actions, _state, extra = self.compute_actions(np.asarray(obs)[None], explore=explore)
        return nested.take(actions, 0), [], {name: rows[0] for name, rows in extra.items()}

    @takes(obs_batch=numeric())
    def compute_actions(
        self,
        obs_batch: Any,
        state_batches: Sequence[Any] | None = None,
        *,
        explore: bool | None = None,
        **_: Any,
    ) -> tuple[Any, list[Any], dict[str, Array]]:
        """Actions for observations that are ready for the network.

        Args:
            obs_batch: one row per observation, [B, ...].
            state_batches: an empty list; networks with memory are refused.
            explore: draw actions from the distribution; the draws of one module object follow from
                how often it was asked. False takes the most likely ones. None draws; of a Q-network
                it takes the actions of the largest values.

        Returns:
            The actions as the module gives them, no states, and {"action_dist_inputs",
            "action_logp", "action_prob"}.

        Raises:
            ModuleError: `explore=True` of a Q-network: how values become actions then is no part of
                it; or the observations do not fit.
        """
        del state_batches
        if explore and not self._has_probabilities:
            raise ModuleError(
                "compute_actions(explore=True) was called on a Q-network, which has values and no "
                "probabilities. `algorithm.compute_single_action(obs, explore=True)` explores as "
                "the config says."
            )
        module, obs = _module(self), _rows(_module(self), obs_batch)
        distribution = module.action_distribution
        if explore is False or not self._has_probabilities:
            inputs = module.forward_inference({OBS: obs})[ACTION_DIST_INPUTS]
            actions = distribution.deterministic(inputs)
        else:
            inputs = module.forward_exploration({OBS: obs})[ACTION_DIST_INPUTS]
            rng = position_rng(0, Role.EXPLORATION, self._num_policy_draws)
            self._num_policy_draws += 1
            shape = (len(obs), distribution.noise_width)
            noise = NOISE_DRAWS[distribution.noise_kind](rng, shape)
            actions = distribution.sample(inputs, noise)
        logp = distribution.logp(inputs, actions)
        extra = {ACTION_DIST_INPUTS: inputs, ACTION_LOGP: logp, ACTION_PROB: np.exp(logp)}
        return actions, [], extra

    def compute_actions_from_input_dict(
        self, input_dict: Any, explore: bool | None = None, **_: Any
    ) -> tuple[Any, list[Any], dict[str, Array]]:
        """`compute_actions` for the column "obs" of a batch."""
        require_keys("compute_actions_from_input_dict()", "input_dict", input_dict, (OBS,))
        return self.compute_actions(input_dict[OBS], explore=explore)

    @takes(obs_batch=numeric())
    def compute_log_likelihoods(self, actions: Any, obs_batch: Any, **_: Any) -> Array:
        """The log-likelihoods of actions, as the module gives them, [B]."""
        module, obs = _module(self), _rows(_module(self), obs_batch)
        inputs = module.forward_exploration({OBS: obs})[ACTION_DIST_INPUTS]
        try:
            batch = nested.batch_copy(actions, name=ACTIONS)
            logp: Array = module.action_distribution.logp(inputs, batch)
        except (TypeError, ValueError, LookupError) as cause:
            raise argument_error(
                "compute_log_likelihoods()",
                "actions",
                actions,
                f"{len(obs)} actions of {module.action_space} as the module gives them, a row each",
            ) from cause
        return logp


class ContainerNames:
    """Adds to several modules what one module has."""

    def as_multi_rl_module(self) -> Any:
        """Itself."""
        return self


class QPolicyNames:
    """What is different with Q-networks."""

    _has_probabilities = False


def _rows(module: RLModule, obs_batch: Any) -> Array:
    if module.is_stateful():
        raise ModuleError(
            f"A policy whose network has memory ({type(module).__name__}) was asked for actions by "
            "an old name, which hands no state on as it is here. Ask "
            "`algorithm.compute_single_action(obs, state=state)`, or `module.forward_inference("
            '{"obs": rows, "state_in": states})`.'
        )
    rows = np.asarray(obs_batch, np.float32)
    rows = rows.reshape(len(rows), math.prod(rows.shape[1:])) if rows.ndim else rows
    masks = module.action_masks
    expected = module.obs_size + (0 if masks is None else masks.width)
    if rows.ndim != 2 or rows.shape[1] != expected:
        raise ModuleError(
            f"A policy was given observations of the shape {np.shape(obs_batch)}; its network "
            f"reads {expected} numbers per row, ready for it: one-hot codes for Discrete "
            "observations, everything in one row. `algorithm.compute_single_action(obs)` takes "
            "observations as the env gives them."
        )
    return rows


def _module(names: Any) -> RLModule:
    module: RLModule = names
    return module


# ---- where modules are in checkpoints

_OLD_PLACE: Final = "learner_group/learner/rl_module"


def present_path(path: PathLike) -> PathLike:
    """Where the modules are that a path names as RLlib does; any other path as it is.

    RLlib keeps those of an algorithm at `learner_group/learner/rl_module/MODULE_ID`.
    """
    try:
        checkpoint, inside = checkpoint_and_component(path)
    except CheckpointError:
        return path
    if inside is None or not inside.startswith(_OLD_PLACE):
        return path
    module_id = inside.removeprefix(_OLD_PLACE).removeprefix("/")
    if not module_id:
        return checkpoint / "learner"
    of_several = f"learner/{module_id}/rl_module"
    if has_component(checkpoint, of_several):
        return checkpoint / of_several
    # The only module's name is not in its path; another than this would be a guess.
    return checkpoint / "learner/rl_module" if module_id == DEFAULT_MODULE_ID else path


# ---- keys of model configs


@dataclass(frozen=True)
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
_PREVIOUS: Final = "give `lstm_use_prev_action` and `lstm_use_prev_reward` instead"

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
        "lstm_use_prev_action_reward": ModelKey((False, None, -1), _PREVIOUS),
    }
)
"""By key; what is not here and not a setting of the network is misspelt."""

OLD_INITIALIZER_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        f"{part}_{tensor}_initializer_config": f"{part}_{tensor}_initializer_kwargs"
        for part in ("fcnet", "conv", "head_fcnet", "lstm")
        for tensor in ("kernel", "bias")
    }
    | {
        f"{part}_weights_initializer{end}": f"{part}_kernel_initializer{new}"
        for part in ("fcnet", "conv", "head_fcnet", "lstm")
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
