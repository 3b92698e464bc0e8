"""A network with inputs and outputs, and its checkpoints."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar, TypeVar, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from checkpoints import Checkpointable, CheckpointMismatchError, PathLike, read_manifest
from checkpoints.component_paths import selected
from checkpoints.components import CONSTRUCTORS, checkpoint_and_root, read_constructor
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS, VF_PREDS
from trainer.errors import ConfigError, ModuleError, UnsupportedSpaceError
from trainer.modules.spaces import (
    ActionMasks,
    MaskingCalls,
    action_masks,
    distribution_for,
    observation_size,
)
from trainer.nn import ActionDistribution, Parameters
from trainer.old_names import present_module_path
from trainer.spaces import ACTION_MASK_KEY, split_observation
from trainer.types import Array, ModuleId, State
from trainer_toolkit.arguments import argument_error, takes
from trainer_toolkit.checks import instance
from trainer_toolkit.class_names import full_name
from trainer_toolkit.trees import mapped

# ---- space records
#
# Gymnasium's spaces as plain data and back, so that checkpoints can hold them.


def space_record(space: gym.Space[Any]) -> dict[str, Any]:
    """A space as plain data; its random state is left out.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, Text, or Dict and Tuple of these; not of
            a class derived from them, whose meaning is unknown.

    Raises:
        UnsupportedSpaceError: it is, or holds, another space.
    """
    kind = type(space)
    if isinstance(space, spaces.Box) and kind is spaces.Box:
        bounds = {"low": _compact(space.low), "high": _compact(space.high)}
        facts: dict[str, Any] = {"shape": list(space.shape), "dtype": space.dtype.str, **bounds}
    elif isinstance(space, spaces.Discrete) and kind is spaces.Discrete:
        facts = {"n": int(space.n), "start": int(space.start), "dtype": _dtype(space)}
    elif isinstance(space, spaces.MultiDiscrete) and kind is spaces.MultiDiscrete:
        facts = {
            "nvec": np.array(space.nvec),
            "start": np.array(space.start),
            "dtype": _dtype(space),
        }
    elif isinstance(space, spaces.MultiBinary) and kind is spaces.MultiBinary:
        facts = {"shape": list(space.shape)}
    elif isinstance(space, spaces.Text) and kind is spaces.Text:
        lengths = {"min_length": space.min_length, "max_length": space.max_length}
        facts = {**lengths, "characters": "".join(space.character_list)}
    elif isinstance(space, spaces.Dict) and kind is spaces.Dict:
        facts = {"spaces": [[key, space_record(part)] for key, part in space.spaces.items()]}
    elif isinstance(space, spaces.Tuple) and kind is spaces.Tuple:
        facts = {"spaces": [space_record(part) for part in space.spaces]}
    else:
        raise UnsupportedSpaceError(
            f"{space} of class {kind.__name__} has no plain description. Checkpoints know Box, "
            "Discrete, MultiDiscrete, MultiBinary, Text, and Dict and Tuple of these. Give the "
            "space again when you restore."
        )
    return {"space": kind.__name__, **facts}


def space_from_record(record: Any) -> gym.Space[Any]:
    """The space that `space_record` described; an UnsupportedSpaceError if it describes none."""
    try:
        return _made(record)
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise UnsupportedSpaceError(
            f"{record!r} describes no space ({type(error).__name__}: {error}). Give the space "
            "itself: observation_space=..., action_space=..."
        ) from error


def _made(record: Mapping[str, Any]) -> gym.Space[Any]:
    kind = record["space"]
    if kind == "Box":
        shape, dtype = tuple(record["shape"]), np.dtype(record["dtype"])
        low, high = (_full(record[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, dtype=dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(record["n"], start=record["start"], **_numbers(record))
    if kind == "MultiDiscrete":
        # dtype first: the space refuses others of integers that it would take.
        dtype = np.dtype(record["dtype"]).type
        return spaces.MultiDiscrete(record["nvec"], dtype=dtype, start=record["start"])
    if kind == "MultiBinary":
        shape = record["shape"]
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == "Text":
        lengths = {"min_length": record["min_length"], "max_length": record["max_length"]}
        return spaces.Text(charset=record["characters"], **lengths)
    if kind == "Dict":
        return spaces.Dict({key: _made(part) for key, part in record["spaces"]})
    if kind == "Tuple":
        return spaces.Tuple([_made(part) for part in record["spaces"]])
    raise ValueError(f"unknown kind {kind!r}")


def _compact(bounds: Array) -> Array:
    """The bounds, or one number if they are all the same: images have many."""
    first = bounds.reshape(-1)[:1]
    compact: Array = first if bounds.size and (bounds == first).all() else bounds
    return np.array(compact)


def _full(bounds: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if np.iscomplexobj(bounds):
        raise ValueError("its bounds are complex numbers")
    given = np.array(bounds, dtype)
    filled: Array = np.full(shape, given.reshape(-1)[0]) if given.size == 1 else given
    return filled


def _dtype(space: gym.Space[Any]) -> str:
    return str(np.dtype(space.dtype).str)


def _numbers(record: Mapping[str, Any]) -> dict[str, Any]:
    """The dtype, where gymnasium lets one choose it (from 1.2 on) and it is not the usual one."""
    dtype = np.dtype(record["dtype"])
    return {} if dtype == np.int64 else {"dtype": dtype.type}


# ---- module checkpoints

_Self = TypeVar("_Self", bound="RLModule")
_SPACES = ("observation_space", "action_space")
_ARGUMENTS = (*_SPACES, "model_config", "inference_only", "action_mask_key", "dtype")
"""Those of every module, as they are saved."""


def plain_setting(value: Any) -> Any:
    """A setting with dicts and lists of the plain kind: those of a frozen config are others."""
    return mapped(lambda leaf: leaf, value)


def _class_named(base: type, record: Mapping[str, Any], path: object) -> type[Any]:
    """The class that a record names, among those that are there."""
    name = record["class"]
    found = [cls for cls in _concrete(base) if full_name(cls) == name]
    if not found:
        said = f"is of the class {name!r}" if name else "does not say of which class it is"
        raise CheckpointMismatchError(
            f"The module in {path} {said}, and no class of this name was imported. Import the file "
            "that has it (a class of a main script is `__main__.…`, whatever its file is called), "
            "or give it: `TrainedPolicy.from_checkpoint(path, module_class=MyModule)`, "
            "`MyModule.from_checkpoint(path)` with the path of the module, which is "
            "`<checkpoint>/learner/rl_module`, and of several `<checkpoint>/learner/ID/rl_module`."
        )
    return found[-1]  # a notebook's cell that was run again: the newest


def module_class_named(name: str) -> type[RLModule]:
    """The class of modules of that name (`package.module.Class`), among those that are there.

    Raises:
        CheckpointMismatchError: none of this name was imported.
    """
    return _class_named(RLModule, {"class": name}, "the checkpoint")


def is_class_there(path: PathLike) -> bool:
    """Whether the class of the module that was saved at a path is known in this process."""
    name = read_constructor(*checkpoint_and_root(path, None))["class"]
    return any(full_name(cls) == name for cls in _concrete(RLModule))


def _check_is_module(path: PathLike) -> None:
    """Raises if a path leads to no component, and says where in its checkpoint modules are."""
    checkpoint, root = checkpoint_and_root(path, None)
    names = read_manifest(checkpoint).components
    in_algorithm = [name for name in names if name.endswith("rl_module")]
    modules = in_algorithm or [name for name in names if name != CONSTRUCTORS]
    if root in names or not modules or not (root or in_algorithm) or is_class_there(path):
        return
    where = repr(root) if root else "the top"
    raise CheckpointMismatchError(
        f"There is no module at {where} of the checkpoint {checkpoint}; its modules are "
        f"{modules}. Give the path of one: "
        f"RLModule.from_checkpoint({str(checkpoint / modules[0])!r}); all of them: "
        f"MultiRLModule.from_checkpoint({str(checkpoint)!r})[module_id]."
    )


def _check_arguments(record: Mapping[str, Any], path: object) -> None:
    """Raises if a class that the checkpoint names would be given more than every module is."""
    others = [repr(name) for name in record["kwargs"] if name not in _ARGUMENTS]
    if record["args"]:
        others.append(f"{len(record['args'])} without a name")
    if others:
        raise CheckpointMismatchError(
            f"The module in {path} is of the class {record['class']!r} and was made with the "
            f"argument(s) {', '.join(others)}, which not every module has. A class that is found "
            "by its name in a checkpoint is not given them. Call from_checkpoint() of that class."
        )


def _concrete(base: type) -> Iterator[type[Any]]:
    derived: list[type[Any]] = base.__subclasses__()
    for cls in derived:
        if not inspect.isabstract(cls):
            yield cls
        yield from _concrete(cls)


# ---- rl module
#
# The base class of networks that act and learn; users subclass it to write their own. A module
# knows spaces, parameters and how to compute; it does not know envs, episodes, losses or
# optimisers.


def check_gradient(name: str, gradient: Any, shape: tuple[int, ...]) -> None:
    """Raises unless a gradient has the shape of the output; `name` is what `backward` calls it.

    The shape begins with -1 before the first `forward_train`.
    """
    if not isinstance(gradient, np.ndarray) or gradient.shape != shape:
        expected = (
            f"an array of the shape {shape}, that of what the last forward_train gave"
            if shape[0] >= 0
            else "a call of forward_train before"
        )
        raise argument_error("backward()", name, gradient, expected)


class RLModule(Checkpointable, ABC):
    """A network that maps encoded observations to action distributions and values.

    To write your own, implement the five abstract methods; keep `__init__` as it is and make what
    you need in `setup`. All gradients are written by hand: `forward_train` keeps what `backward`
    needs, and `backward` **overwrites** every tensor of `self.gradients`. Check it with
    `trainer.testing.checks.gradient_check`. A complete example, linear in the observation, for
    any action space:

        class LinearModule(RLModule):
            def parameter_shapes(self):
                d, k = self.obs_size, self.action_distribution.num_inputs
                return {"pi/kernel": (d, k), "pi/bias": (k,), "vf/kernel": (d,)}

            def initialize(self, rng):
                kernel = self.parameters.views["pi/kernel"]
                kernel[:] = 0.01 * rng.standard_normal(kernel.shape)

            def forward_acting(self, obs):
                w = self.parameters.views
                return matmul_rows(obs, w["pi/kernel"]) + w["pi/bias"]

            def forward_train(self, batch):
                w, self._obs = self.parameters.views, batch["obs"]
                inputs = self._obs @ w["pi/kernel"] + w["pi/bias"]
                return {"action_dist_inputs": inputs, "vf_preds": self._obs @ w["vf/kernel"]}

            def backward(self, *, d_action_dist_inputs, d_vf_preds):
                g = self.gradients.views
                g["pi/kernel"][:] = self._obs.T @ d_action_dist_inputs
                g["pi/bias"][:] = d_action_dist_inputs.sum(axis=0)
                g["vf/kernel"][:] = self._obs.T @ d_vf_preds

        config.rl_module(rl_module_spec=RLModuleSpec(module_class=LinearModule))

    `forward_acting` must give each row the same bits whatever other rows are in the batch, because
    exact resume rests on it: use `trainer.nn.matmul_rows` (or `ActingForward`) instead of `@`
    there; elementwise operations are fine.

    If the env gives action masks, they have been taken off `obs` when these methods are called, and
    are applied to what they return. A page of its own: docs/modules.md.

    Attributes:
        observation_space: of the env.
        seen_space: of the observations without the action mask: what the D numbers encode.
        action_space: of the env.
        model_config: the user's settings for this network, any keys.
        inference_only: built for acting; holds only the tensors for which `is_for_acting` is true.
        obs_size: D, the numbers of one encoded observation that the network reads.
        action_masks: where the masks stand in encoded observations, behind the D numbers; None if
            the env has no masks.
        action_mask_key: what a Dict observation calls its mask, if it has one.
        action_distribution: what turns action distribution inputs into actions; K = `.num_inputs`.
        parameters: float32 (float64 to check gradients); what is learnt.
        gradients: of the same shapes; overwritten by `backward`.
        applies_masks: its methods get rows with their mask columns and apply the masks themselves.
    """

    applies_masks: ClassVar[bool] = False

    @property
    def gives_values(self) -> bool:
        """Whether acting gives "vf_preds", too, which PPO then does not compute again."""
        return False

    @property
    def gives_actions(self) -> bool:
        """Whether acting gives "actions", too: drawn by the module from "draw_seeds" [B]."""
        return False

    @property
    def gives_loadings(self) -> bool:
        """Whether exploring gives "noise_loadings", too, see `trainer.modules.feature_noise`."""
        return False

    @takes(
        observation_space=instance(gym.Space, "a Space"),
        action_space=instance(gym.Space, "a Space"),
    )
    def __init__(
        self,
        *,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        model_config: Mapping[str, Any] | None = None,
        inference_only: bool = False,
        action_mask_key: str = ACTION_MASK_KEY,
        rng: np.random.Generator | None = None,
        dtype: type[np.floating[Any]] = np.float32,
    ) -> None:
        """Creates the parameters and draws them.

        Args:
            observation_space: of the env.
            action_space: of the env.
            model_config: settings of this network.
            inference_only: leave out what only learning needs.
            action_mask_key: the key under which a Dict observation holds an action mask, if it
                does.
            rng: draws the first weights; None leaves them 0, for a module whose state is set next.
            dtype: number type of the parameters.

        Raises:
            UnsupportedSpaceError: a space cannot be read or acted in.
            ConfigError: the model config is wrong.
        """
        # Any: networks of users ask for what only spaces of their kind have, as `action_space.n`.
        self.observation_space: Any = observation_space
        self.action_space: Any = action_space
        self.model_config: dict[str, Any] = dict(model_config or {})
        self.inference_only = inference_only
        self.action_mask_key = action_mask_key
        self._read_observation_space()
        self.action_distribution = self.make_action_distribution()
        self._make_tensors(rng, dtype)
        if self.action_masks is not None:
            self._check_that_masks_fit(self.action_masks)
            if not self.applies_masks:
                MaskingCalls(self, self.action_masks)

    def _read_observation_space(self) -> None:
        key = self.action_mask_key
        split = split_observation(self.observation_space, action_mask_key=key)
        self.seen_space = split.seen
        self.obs_size = observation_size(split.seen)
        self.action_masks = action_masks(
            split.mask, self.action_space, obs_size=self.obs_size, key=key
        )
        num_masks = 0 if self.action_masks is None else self.action_masks.width
        self._row_widths = (self.obs_size + num_masks, self.obs_size)

    def __reduce__(self) -> tuple[Callable[..., RLModule], tuple[Any, ...]]:
        # Copies and pickles made attribute by attribute would tear layers off their parameters.
        _, arguments = self.get_ctor_args_and_kwargs()
        return _rebuild, (type(self), arguments, self.get_state())

    def _make_tensors(self, rng: np.random.Generator | None, dtype: type[np.floating[Any]]) -> None:
        """Creates `parameters` and `gradients`, calls `setup`, and draws the first weights."""
        shapes = self.parameter_shapes()
        if self.inference_only:
            shapes = {name: shape for name, shape in shapes.items() if self.is_for_acting(name)}
        self.parameters = Parameters(shapes, dtype=dtype)
        self.gradients = self.parameters.zeros_like()
        self.setup()
        if rng is not None:
            self.initialize(rng)

    @abstractmethod
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The tensors to create, by name; those that only learning needs may start with "vf/"."""

    @abstractmethod
    def initialize(self, rng: np.random.Generator) -> None:
        """Draws the first weights into `self.parameters.views`, which are 0 before."""

    @abstractmethod
    def forward_acting(self, obs: Array) -> Array:
        """The action distribution inputs for acting, row-exact (see the class).

        Args:
            obs: encoded observations, float32 [B, D].

        Returns:
            A new array, float32 [B, K].
        """

    @abstractmethod
    def forward_train(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """The forward pass of learning; keeps what `backward` needs.

        Args:
            batch: {"obs": encoded observations [B, D]} and whatever else the learner has.

        Returns:
            {"action_dist_inputs": [B, K], "vf_preds": [B]}; the arrays may be reused by the next
            call, so copy what must last.
        """

    @abstractmethod
    def backward(self, *, d_action_dist_inputs: Array, d_vf_preds: Array) -> None:
        """Overwrites `self.gradients`; belongs to the last `forward_train`.

        Args:
            d_action_dist_inputs: derivative of the loss, [B, K].
            d_vf_preds: derivative of the loss, [B].
        """

    def setup(self) -> None:
        """Makes what the network needs besides its parameters, which exist already."""
        return

    def make_action_distribution(self) -> ActionDistribution:
        """The distribution that fits the action space."""
        return distribution_for(self.action_space)

    def is_for_acting(self, name: str) -> bool:
        """Whether acting needs that tensor; all but those whose name starts with "vf/"."""
        return not name.startswith("vf/")

    def forward_inference(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """Acts without exploration: {"obs": [B, D]} to {"action_dist_inputs": [B, K]}.

        Raises:
            ModuleError: the observations are no rows of encoded ones.
        """
        return {ACTION_DIST_INPUTS: self.forward_acting(self.checked_rows(batch))}

    def forward_exploration(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """Acts with exploration: {"obs": [B, D]} to {"action_dist_inputs": [B, K]}.

        Raises:
            ModuleError: the observations are no rows of encoded ones.
        """
        return {ACTION_DIST_INPUTS: self.forward_acting(self.checked_rows(batch))}

    def compute_values(self, batch: Any) -> Any:
        """The values of encoded observations {"obs": [B, D]}, a new array [B]."""
        values: Array = self.training_output(batch, VF_PREDS).copy()
        return values

    def training_output(self, batch: Mapping[str, Any], name: str) -> Array:
        """One output of `forward_train`; see `training_outputs`."""
        return self.training_outputs(batch, name)[name]

    def training_outputs(self, batch: Mapping[str, Any], *needed: str) -> Mapping[str, Array]:
        """What `forward_train` returns, with the outputs that are needed.

        Raises:
            ModuleError: one of them is missing, or the observations are no rows.
        """
        self.checked_rows(batch)
        outputs = self.forward_train(batch)
        for name in needed:
            is_mapping = type(outputs) is dict or isinstance(outputs, Mapping)
            if not is_mapping or name not in outputs:
                raise _missing_output(self, outputs, name)
        return outputs

    def target_output(self, batch: Mapping[str, Any], name: str) -> Array:
        """One output of `forward_train` that no gradient goes through, such as that of a target.

        A network that computes otherwise while it learns (dropout, batch normalisation) gives here
        what it gives when it acts.
        """
        return self.training_output(batch, name)

    def begin_update(self, root_seed: int, number: int, *, of: tuple[int, ...] = ()) -> None:
        """An update of the learner begins; draws in `forward_train` follow from this position.

        Args:
            root_seed: of the run, ≥ 0.
            number: of the update, ≥ 0.
            of: which module, where there are others than the default one.
        """
        del root_seed, number, of

    def copy_buffers(self, other: RLModule) -> None:
        """Takes over what a module of the same class keeps beside its parameters: here nothing.

        Running statistics of a `TorchRLModule` are such.
        """
        del other

    def __getitem__(self, module_id: ModuleId) -> RLModule:
        """Itself: RLlib's learners hold all modules by id, and ours one each."""
        del module_id
        return self

    __iter__ = None  # `__getitem__` alone would make it one without an end

    def is_stateful(self) -> bool:
        """Whether it hands a state on from step to step (`trainer.modules.memory`)."""
        return False

    def get_initial_state(self) -> Any:
        """The state before the first step of an episode; empty without memory."""
        return {}

    def action_mask(self, obs: Array) -> Array | None:
        """Which actions are possible, bool [B, M]; None if the env has no masks.

        A choice that has no possible alternative, as in the last observation of an episode, counts
        as free.

        Args:
            obs: encoded observations with their masks, [B, D + M].
        """
        return None if self.action_masks is None else self.action_masks.effective(obs)

    def checked_rows(self, batch: Mapping[str, Any]) -> Array:
        """The observations of a batch, if they are rows of encoded ones: [B, D] or [B, D + M].

        Raises:
            ModuleError: there are none, or their shape is another, such as [D] of a single one.
        """
        if type(batch) is not dict and not isinstance(batch, Mapping):
            raise argument_error(f"{type(self).__name__}", "batch", batch, "a dict of arrays")
        rows = batch.get(OBS)
        if type(rows) is not np.ndarray and rows is not None:
            rows = np.asarray(rows, self.parameters.dtype)
        if rows is not None and rows.ndim == 2 and rows.shape[1] in self._row_widths:
            return rows
        if rows is not None and rows.ndim > 2 and rows.shape[1:] == self.seen_space.shape:
            return rows.reshape(len(rows), self.obs_size)  # such as images that are not flat yet
        raise _no_rows(self, batch, rows)

    @property
    def num_parameters(self) -> int:
        """How many numbers are learnt."""
        return self.parameters.num_parameters

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        inference_only: bool = False,
    ) -> dict[str, Array]:
        """Copies of all tensors by name, or of those that are asked for or that acting needs."""
        state = self._tensors()
        if components is not None or not_components is not None:
            state = selected(state, components, not_components)
        if inference_only and not self._all_for_acting():
            return {name: array for name, array in state.items() if self.is_for_acting(name)}
        return state

    def _tensors(self) -> dict[str, Array]:
        """Copies of all that `get_state` can give."""
        return self.parameters.get_state()

    def _all_for_acting(self) -> bool:
        """Whether acting needs all tensors; found once, as weights are sent in every round."""
        known = self.__dict__.get("_acts_with_all")
        if known is None:
            known = self._acts_with_all = all(map(self.is_for_acting, self.parameters.shapes))
        return bool(known)

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; a module for acting also takes the whole state.

        Raises:
            ModuleError: tensors are missing or unknown or do not fit; the message lists them,
                nothing is changed.
        """
        if self.inference_only and state.keys() != self.parameters.shapes.keys():
            state = {name: array for name, array in state.items() if self.is_for_acting(name)}
        self.parameters.set_state(state)

    def get_weights(self, *, inference_only: bool = False) -> dict[str, Array]:
        """RLlib's other name of `get_state`."""
        return self.get_state(inference_only=inference_only)

    def set_weights(self, weights: State) -> None:
        """RLlib's other name of `set_state`."""
        self.set_state(weights)

    def acting_only_error(self) -> ModuleError:
        """The error for learning with a module that was built for acting."""
        return ModuleError(
            f"This {type(self).__name__} was built with `inference_only=True`, so it has no value "
            "function and can neither learn nor predict values. Use the learner's module, or build "
            "it without that argument."
        )

    def _check_that_masks_fit(self, masks: ActionMasks) -> None:
        num_inputs = self.action_distribution.num_inputs
        if num_inputs != masks.width:
            raise ConfigError(
                f"The observations hold an action mask of {masks.width} entries, but the action "
                f"distribution of {type(self).__name__} has {num_inputs} inputs, so a mask "
                "does not say which of them it rules out. Use one logit per action, or set "
                "`environment(action_mask_key=...)` to a key that the observation does not have."
            )

    # ---- checkpoints: a module can be made again from its own, or from an algorithm's
    #
    # By name are found the classes of modules that this process has defined or imported already,
    # and they are given no arguments but those of every module. So nothing is imported because a
    # checkpoint says so, and what a class of yours does with other arguments is for you to call.

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What makes a module like this, with all weights 0."""
        return (), {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "model_config": self.model_config,
            "inference_only": self.inference_only,
            "action_mask_key": self.action_mask_key,
            "dtype": self.parameters.dtype,
        }

    def _plain_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = self.get_ctor_args_and_kwargs()
        plain = dict(kwargs)
        for name in _SPACES:
            try:
                plain[name] = space_record(kwargs[name])
            except (KeyError, UnsupportedSpaceError):
                continue  # has to be given again
        plain["model_config"] = plain_setting(kwargs.get("model_config"))
        if "dtype" in plain:
            plain["dtype"] = np.dtype(plain["dtype"]).name
        return args, plain

    @classmethod
    def _ctor_args_from_plain(
        cls, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        made = dict(kwargs)
        for name in _SPACES:
            if name in made:
                made[name] = space_from_record(made[name])
        if "dtype" in made:
            made["dtype"] = {"float64": np.float64}.get(made["dtype"], np.float32)
        return args, made

    @classmethod
    def from_checkpoint(
        cls: type[_Self], path: PathLike, filesystem: object = None, **kwargs: Any
    ) -> _Self:
        """A module made and restored from a checkpoint; see `Checkpointable`.

        It is the network alone, which neither normalises observations (`observation_filter`) nor
        scales and clips actions: to act as the algorithm does, use `TrainedPolicy`.

        Args:
            path: what `module.save_to_path()` gave, or `<checkpoint of an algorithm>/learner/
                rl_module`.
            filesystem: must be None.
            kwargs: arguments of the class, instead of the saved ones: `inference_only=True`.

        Raises:
            CheckpointMismatchError: the path leads to no module, or to one of an unknown class.
            CheckpointError: see `restore_from_path`.
        """
        _check_is_module(path := present_module_path(path))
        record = read_constructor(*checkpoint_and_root(path, None))
        chosen: type[Any] = cls
        if inspect.isabstract(cls):
            chosen = _class_named(cls, record, path)
            _check_arguments(record, path)
        if not record["kwargs"] and not kwargs:
            raise CheckpointMismatchError(
                f"{path} does not say what module it is of. To make one from the checkpoint of an "
                "algorithm, give the path of its weights: `<checkpoint>/learner/rl_module`. Or "
                "give what the class needs: observation_space=..., action_space=..., "
                "model_config=..."
            )
        made = super(RLModule, chosen).from_checkpoint(path, filesystem, **kwargs)
        return cast("_Self", made)


def _no_rows(module: RLModule, batch: Mapping[str, Any], rows: Array | None) -> ModuleError:
    """The error for observations that a network cannot read."""
    widths = " or ".join(str(width) for width in sorted(set(module._row_widths)))
    what = f"`obs` has the shape {list(rows.shape)}" if rows is not None else f"it has no {OBS!r}"
    given = "" if rows is not None else f", only {sorted(map(str, batch))}"
    if rows is not None and rows.shape in {(width,) for width in module._row_widths}:
        hint = 'Give a single observation its batch dimension: {"obs": obs[None]}.'
    else:
        hint = (
            "Observations of the env are encoded first (docs/envs.md); "
            "`algo.compute_single_action(obs)` does that, for one at a time."
        )
    return ModuleError(
        f"A batch for {type(module).__name__} holds encoded observations, one row each, of the "
        f"shape [B, {widths}]; in this one {what}{given}. {hint}"
    )


def _missing_output(module: RLModule, outputs: Any, name: str) -> ModuleError:
    """The error for a forward pass that does not return what is learnt from."""
    given = repr(sorted(outputs)) if isinstance(outputs, Mapping) else type(outputs).__name__
    width = module.action_distribution.num_inputs
    shape = "[B]: one number per row" if name == VF_PREDS else f"[B, {width}]"
    values = (
        " A network without a value function cannot serve an algorithm that learns one: use PG, or "
        "PPO with `use_critic=False, use_gae=False`."
        if name == VF_PREDS
        else ""
    )
    return ModuleError(
        f"{type(module).__name__}.forward_train returned {given}, without {name!r}, which is "
        f"learnt from. Return a dict with {name!r} of shape {shape}, and check the whole network "
        f"with `trainer.testing.checks.check_module`.{values}"
    )


def _rebuild(module_class: type[RLModule], arguments: dict[str, Any], state: State) -> RLModule:
    """A module with the given state (used by copy and pickle)."""
    module = module_class(**arguments)
    module.set_state(state)
    return module
