"""Several modules under one roof: the container, what it is built from, and what policies say.

The modules know nothing of each other and share nothing. Which agent is served by which module is
the mapping's business; adding and removing modules that of the algorithm.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar, cast, overload

import gymnasium as gym

from checkpoints import Checkpointable, CheckpointMismatchError, PathLike, read_manifest
from checkpoints.components import CONSTRUCTORS, checkpoint_and_root
from trainer.errors import ConfigError, ModuleError, UnknownModuleError
from trainer.modules.actor_critic import RLModuleSpec
from trainer.modules.by_module import check_module_ids, module_position, why_no_module_id
from trainer.modules.random_module import RandomRLModule
from trainer.modules.rl_module import RLModule
from trainer.old_names import present_module_path
from trainer.seeding import weights_rng
from trainer.types import DEFAULT_MODULE_ID, ModuleId, State
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import either, instance, mapping, optional
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean
from trainer_toolkit.undo import undone_on_error

_LEARNER: Final = "learner"
_RL_MODULE: Final = "rl_module"
_Self = TypeVar("_Self", bound="MultiRLModule")


class MultiRLModule(Mapping[ModuleId, RLModule], Checkpointable):
    """Modules by id: a mapping that can be read, in the order of the ids.

        for module_id, module in modules.items():
            print(module_id, module.num_parameters)

    Its state holds the state of each module under its id.
    """

    def __init__(
        self,
        modules: Mapping[ModuleId, RLModule] | None = None,
        *,
        rl_module_specs: Mapping[ModuleId, RLModuleSpec] | None = None,
        **of_all: Any,
    ) -> None:
        """Puts modules under one roof; they stay the same objects.

        Args:
            modules: the modules by id.
            rl_module_specs: instead of them, what to build them from, with the first weights of the
                root seed 0.
            of_all: beside specs, further arguments of `MultiRLModuleSpec`: `model_config=...`.

        Raises:
            ConfigError: an id cannot be one.
            ModuleError: one of them is no module, or there are none.
        """
        if modules is None and rl_module_specs is not None:
            spec = MultiRLModuleSpec(rl_module_specs=rl_module_specs, **of_all)
            modules = spec.build(root_seed=0)
        modules = {} if modules is None else modules
        check_module_ids(modules.keys())
        others = {name: each for name, each in modules.items() if not isinstance(each, RLModule)}
        if others or not modules:
            found = {name: type(each).__name__ for name, each in others.items()} or "nothing"
            raise ModuleError(
                f"A MultiRLModule was given {found}; expected {{module id: RLModule}}, "
                "not empty. Build modules from specs: MultiRLModuleSpec(rl_module_specs=…).build()."
            )
        self._modules = {name: modules[name] for name in sorted(modules)}

    def __getitem__(self, module_id: ModuleId) -> RLModule:
        try:
            return self._modules[module_id]
        except (KeyError, TypeError) as cause:
            known = list(self._modules)
            raise UnknownModuleError(
                f"There is no module {module_id!r:.80}"
                f"{did_you_mean(module_id, known, IN_BRACKETS)}. There are "
                f"{known}. Give one of these ids."
            ) from cause

    def __iter__(self) -> Iterator[ModuleId]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        parts = (f"{name!r}: {type(each).__name__}" for name, each in self.items())
        return f"MultiRLModule({{{', '.join(parts)}}})"

    def foreach_module(
        self, func: Callable[..., Any], *, return_dict: bool = False, **kwargs: Any
    ) -> Any:
        """Calls `func(module_id, module, **kwargs)` for every module.

        Returns:
            A list of what it returned, or with `return_dict` a dict by module id.
        """
        answers = {name: func(name, each, **kwargs) for name, each in self.items()}
        return answers if return_dict else list(answers.values())

    def unwrapped(self) -> MultiRLModule:
        """Itself."""
        return self

    def add_module(self, module_id: ModuleId, *_: Any, **__: Any) -> NoReturn:
        """Refused: all processes have the same modules.

        Raises:
            ModuleError: always.
        """
        raise _of_the_algorithm("add", module_id)

    def remove_module(self, module_id: ModuleId, *_: Any, **__: Any) -> NoReturn:
        """Refused: all processes have the same modules.

        Raises:
            ModuleError: always.
        """
        raise _of_the_algorithm("remove", module_id)

    # ---- state

    def get_checkpointable_components(self) -> Collection[tuple[str, RLModule]]:
        """The modules with their ids."""
        return list(self.items())

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; modules that it does not name keep their state.

        Raises:
            UnknownModuleError: it names a module that is not here.
            ModuleError: the state of a module does not fit. Nothing is changed.
        """
        for module_id in state:
            self[module_id]
        with undone_on_error() as undo:
            for module_id in state:
                module = self[module_id]
                undo(partial(module.set_state, module.get_state()))
                module.set_state(state[module_id])

    @classmethod
    def from_checkpoint(
        cls: type[_Self], path: PathLike, filesystem: object = None, **kwargs: Any
    ) -> _Self:
        """All modules of a checkpoint, made and restored.

        Args:
            path: what `save_to_path()` gave, or the checkpoint of an algorithm, or its `learner`.
            filesystem: must be None.
            kwargs: arguments of every module, instead of the saved ones: `inference_only=True`.

        Raises:
            CheckpointMismatchError: there are no modules, or one is of an unknown class.
            CheckpointError: see `restore_from_path`.
        """
        modules = _module_paths(path)
        return cls({name: _restored(each, filesystem, kwargs) for name, each in modules.items()})


def _module_paths(path: PathLike) -> dict[ModuleId, Path]:
    """Where each module is in a checkpoint.

    Raises:
        CheckpointMismatchError: there are none.
    """
    path = Path(present_module_path(path))
    checkpoint, root = checkpoint_and_root(path, None)
    prefix = f"{root}/" if root else ""
    names = [
        name.removeprefix(prefix).split("/")
        for name in read_manifest(checkpoint).components
        if name.startswith(prefix)
    ]
    if any(parts[0] == _LEARNER and len(parts) > 1 for parts in names):  # a whole algorithm
        return _module_paths(path / _LEARNER)
    # In an algorithm's checkpoint, beside each module there is its optimiser.
    own_folders = {parts[0] for parts in names if parts[1:] == [_RL_MODULE]}
    if [_RL_MODULE] in names:  # of a run with one module
        return {DEFAULT_MODULE_ID: path / _RL_MODULE}
    found = own_folders or {parts[0] for parts in names if parts != [CONSTRUCTORS]}
    ids = sorted(name for name in found if why_no_module_id(name) is None)
    if not ids:
        components = ["/".join(parts) for parts in names]
        raise CheckpointMismatchError(
            f"There are no modules in {path}; its components are {components!r:.300}. Give "
            "the path that MultiRLModule.save_to_path() returned, or "
            "`<checkpoint of an algorithm>/learner`."
        )
    return {id_: path / id_ / _RL_MODULE if own_folders else path / id_ for id_ in ids}


def _module_path(path: PathLike, module_id: ModuleId) -> Path:
    paths = _module_paths(path)
    if module_id not in paths:
        raise UnknownModuleError(
            f"load_state_path={str(path)!r} holds the modules {list(paths)}, and none called "
            f"{module_id!r}. Name those to load: modules_to_load=[...]."
        )
    return paths[module_id]


def _restored(path: Path, filesystem: object, kwargs: Mapping[str, Any]) -> RLModule:
    return RLModule.from_checkpoint(path, filesystem, **kwargs)


def _of_the_algorithm(verb: str, module_id: object) -> ModuleError:
    return ModuleError(
        f"{verb}_module({module_id!r:.80}) was called on a MultiRLModule, which is one of several "
        "copies in different processes; a change here would be lost with the next weights. Call "
        f"`algo.{verb}_module({module_id!r:.80}, ...)`, which changes all of them."
    )


# ---- specs


class MultiRLModuleSpec:
    """Which modules to build, by id.

    Attributes:
        rl_module_specs: {module id: its spec}; or one spec, for every module there will be.
        observation_space: of modules whose spec has none.
        action_space: of modules whose spec has none.
        inference_only: builds modules without what only learning needs; None leaves it to their
            specs.
        model_config: of modules whose spec has none.
        load_state_path: a checkpoint whose states the modules start with.
        modules_to_load: ids of the modules that do; None means all.
    """

    @takes(
        rl_module_specs=optional(either(instance(RLModuleSpec, "an RLModuleSpec"), mapping())),
        modules_to_load=optional(instance((list, tuple, set, frozenset), "a list of module ids")),
    )
    def __init__(
        self,
        *,
        multi_rl_module_class: type | None = None,
        rl_module_specs: RLModuleSpec | Mapping[ModuleId, RLModuleSpec] | None = None,
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
        inference_only: bool | None = None,
        model_config: Any = None,
        load_state_path: PathLike | None = None,
        modules_to_load: Collection[ModuleId] | None = None,
    ) -> None:
        """Takes the specs.

        Raises:
            ConfigError: an id cannot be one, something is no spec, or a container of one's own was
                given.
        """
        if multi_rl_module_class not in (None, MultiRLModule):
            raise ConfigError(
                f"multi_rl_module_class={multi_rl_module_class!r:.80}: modules are kept in a "
                "MultiRLModule. Many agents can share one module, and an RLModule of your own may "
                "have several heads; leave the class out."
            )
        self.observation_space = observation_space
        self.action_space = action_space
        self.inference_only = inference_only
        self.model_config = model_config
        self.load_state_path = load_state_path
        self.modules_to_load = None if modules_to_load is None else frozenset(modules_to_load)
        self.rl_module_specs: RLModuleSpec | dict[ModuleId, RLModuleSpec]
        if isinstance(rl_module_specs, RLModuleSpec):
            self.rl_module_specs = rl_module_specs
        else:
            self.rl_module_specs = {}
            self.add_modules(rl_module_specs or {})

    def __contains__(self, module_id: object) -> bool:
        return isinstance(self.rl_module_specs, dict) and module_id in self.rl_module_specs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MultiRLModuleSpec) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        return f"MultiRLModuleSpec(rl_module_specs={self.rl_module_specs!r})"

    def add_modules(
        self, rl_module_specs: Mapping[ModuleId, RLModuleSpec], override: bool = True
    ) -> None:
        """Adds specs; one for an id that is there replaces it, unless `override` is False.

        Raises:
            ConfigError: an id cannot be one, something is no spec, or there is one spec for all.
        """
        own = self._by_id("add_modules")
        check_module_ids(rl_module_specs.keys())
        others = [
            name for name, spec in rl_module_specs.items() if not isinstance(spec, RLModuleSpec)
        ]
        if others:
            raise ConfigError(
                f"The specs of the modules {others} are "
                f"{[rl_module_specs[name] for name in others]!r:.200}; "
                "expected RLModuleSpec objects. Write RLModuleSpec() for the default network."
            )
        for module_id, spec in rl_module_specs.items():
            if override or module_id not in own:
                own[module_id] = spec

    def remove_modules(self, module_ids: Collection[ModuleId] | str) -> None:
        """Removes specs.

        Raises:
            UnknownModuleError: there is none of that id; nothing is removed.
        """
        own = self._by_id("remove_modules")
        ids = [module_ids] if isinstance(module_ids, str) else list(module_ids)
        for module_id in ids:
            self._known(module_id)
        for module_id in ids:
            own.pop(module_id, None)

    def update(self, other: MultiRLModuleSpec, override: bool = True) -> None:
        """Adds the specs of another one, and takes over what this one does not say."""
        self.add_modules(other._by_id("update"), override=override)
        for name in ("observation_space", "action_space", "inference_only", "model_config"):
            if getattr(self, name) is None or (override and getattr(other, name) is not None):
                setattr(self, name, getattr(other, name))

    @classmethod
    def from_module(cls, module: MultiRLModule) -> MultiRLModuleSpec:
        """The specs that modules like these can be built from."""
        return cls(
            rl_module_specs={name: RLModuleSpec.from_module(each) for name, each in module.items()}
        )

    def for_modules(self, module_ids: Collection[ModuleId]) -> MultiRLModuleSpec:
        """This spec with one entry for each of these ids, where it has one spec for all."""
        if isinstance(self.rl_module_specs, dict):
            return self
        made = MultiRLModuleSpec(rl_module_specs=dict.fromkeys(module_ids, self.rl_module_specs))
        for name, value in vars(self).items():
            if name != "rl_module_specs":
                setattr(made, name, value)
        return made

    def completed(self, module_id: ModuleId) -> RLModuleSpec:
        """The spec of one module, with what is said here for all of them.

        Raises:
            UnknownModuleError: there is none of that id, or none among the states to start with.
            CheckpointError: the states to start with cannot be read.
        """
        spec = self._known(module_id)
        given: dict[str, Any] = {}
        if spec.observation_space is None:
            given["observation_space"] = self.observation_space
        if spec.action_space is None:
            given["action_space"] = self.action_space
        if not spec.model_config and self.model_config is not None:
            given["model_config"] = self.model_config
        if self.inference_only is not None:
            given["inference_only"] = self.inference_only
        wanted = self.modules_to_load is None or module_id in self.modules_to_load
        if self.load_state_path is not None and wanted and spec.load_state_path is None:
            given["load_state_path"] = _module_path(self.load_state_path, module_id)
        return replace(spec, **given)

    @overload
    def build(self, module_id: None = None, *, root_seed: int | None = None) -> MultiRLModule: ...
    @overload
    def build(self, module_id: ModuleId, *, root_seed: int | None = None) -> RLModule: ...
    def build(
        self, module_id: ModuleId | None = None, *, root_seed: int | None = None
    ) -> MultiRLModule | RLModule:
        """New modules, or the one of this id.

        Args:
            module_id: None builds all of them.
            root_seed: what the first weights follow from, with each module's id; None leaves them
                0, for modules whose state is set next.

        Raises:
            UnknownModuleError: there is none of that id.
            ModuleError: a space is not known, or there are no modules.
            CheckpointError: the states to start with cannot be read.
        """
        if module_id is not None:
            return self._built(module_id, root_seed)
        own = self._by_id("build")
        return MultiRLModule({name: self._built(name, root_seed) for name in sorted(own)})

    def _built(self, module_id: ModuleId, root_seed: int | None) -> RLModule:
        spec = self.completed(module_id)
        position = module_position(module_id)
        rng = None if root_seed is None else weights_rng(root_seed, of=position)
        module = spec.build(rng)
        spec.load_state(module)
        return module

    def _by_id(self, method: str) -> dict[ModuleId, RLModuleSpec]:
        if isinstance(self.rl_module_specs, dict):
            return self.rl_module_specs
        raise ConfigError(
            f"{method}() was called on a MultiRLModuleSpec with one spec for all modules, which "
            "does not say which modules there are. Give rl_module_specs={module id: spec}."
        )

    def _known(self, module_id: object) -> RLModuleSpec:
        if not isinstance(self.rl_module_specs, dict):
            return self.rl_module_specs
        spec = self.rl_module_specs.get(cast("ModuleId", module_id))
        if spec is None:
            known = sorted(self.rl_module_specs)
            raise UnknownModuleError(
                f"There is no spec of a module {module_id!r:.80}"
                f"{did_you_mean(module_id, known, IN_BRACKETS)}. "
                f"There are {known}. Give one of these ids."
            )
        return spec


def without_loading(spec: Any) -> Any:
    """The same spec, or specs, without states to start with; anything else as it is."""
    if isinstance(spec, RLModuleSpec):
        return replace(spec, load_state_path=None)
    if not isinstance(spec, MultiRLModuleSpec):
        return spec
    made = copy.copy(spec)
    made.load_state_path = None
    if isinstance(spec.rl_module_specs, RLModuleSpec):
        made.rl_module_specs = without_loading(spec.rl_module_specs)
    else:
        own = spec.rl_module_specs.items()
        made.rl_module_specs = {id_: without_loading(each) for id_, each in own}
    return made


_RANDOM: Final = "random"


@dataclass(frozen=True)
class PolicySpec:
    """What `multi_agent(policies={id: …})` says of one module.

    Attributes:
        policy_class: None takes the algorithm's network; "random" (or `RandomRLModule`) draws
            actions uniformly and learns nothing.
        observation_space: None takes that of the agents that are mapped to it; otherwise it is
            compared with theirs.
        action_space: None takes that of the agents that are mapped to it; otherwise it is compared
            with theirs.
        config: settings of the algorithm that are different for this module.
    """

    policy_class: Any = None
    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None
    config: Any = None

    def __post_init__(self) -> None:
        """Checks what was given.

        Raises:
            ConfigError: it is a class of the old stack, or no settings.
        """
        if not (self.policy_class is None or self.is_random):
            raise ConfigError(
                f"PolicySpec(policy_class={self.policy_class!r:.80}): a policy is a network here, "
                'an RLModule. Leave it out for the default one, write "random" for random play, or '
                "give a network of your own in rl_module(rl_module_spec=MultiRLModuleSpec(…))."
            )
        if not (self.config is None or isinstance(self.config, Mapping)):
            raise ConfigError(
                f"PolicySpec(config={self.config!r:.80}) is a {type(self.config).__name__}; "
                'expected a dict of settings. Write {"lr": 1e-4} or PPOConfig.overrides(lr=1e-4).'
            )

    @property
    def is_random(self) -> bool:
        """Whether the module draws actions uniformly."""
        if isinstance(self.policy_class, str):
            return self.policy_class.lower() == _RANDOM
        name = getattr(self.policy_class, "__name__", "")
        return self.policy_class is RandomRLModule or name == "RandomPolicy"

    def module_spec(self) -> RLModuleSpec:
        """The spec of the module."""
        return RLModuleSpec(
            module_class=RandomRLModule if self.is_random else None,
            observation_space=self.observation_space,
            action_space=self.action_space,
        )
