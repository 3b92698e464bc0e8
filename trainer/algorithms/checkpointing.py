"""What a checkpoint of an algorithm must be like, and which class and config restore it.

    config        plain settings, for `from_checkpoint`; the root seed
    modules       of several agents: the modules, and who acts for whom
    counters      lifetime counts
    learner/…     weights, optimiser, coefficients
    connectors    running statistics of observations and rewards, if they are normalised
    exploration   what the strategy of the main process has learnt or adapted, if it has state
    env_runners   where every env slot stands, running episodes included; the runners' callbacks
    sample_ahead  how the runners act that sample ahead
    evaluation    number of the next evaluation, the last result, its runners' callbacks
    metrics       windows, sums, the last episodes
    callbacks     the callback objects of the main process
    attributes    what a class of the user's keeps in attributes of its own
    replay_buffer of DQN and SAC: the stored steps
    actors        the states of actors, if there are any that are `Checkpointable`; asked and told
                  by `algorithm`, because they are no part of the algorithm

The components are listed in the order in which they are restored.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

from checkpoints import (
    CheckpointContents,
    CheckpointMismatchError,
    CodeNotAllowedError,
    Manifest,
    PathLike,
    StateError,
    check_shape,
    pack_code,
    read_checkpoint,
    read_code,
    read_manifest,
)
from checkpoints.code import large_globals
from checkpoints.components import failed_component, naming_component
from checkpoints.strict_files import regular_file_size
from trainer.actors.handles import get_actor_states, set_actor_states, with_kept
from trainer.algorithms.building import algorithm_class, is_registered
from trainer.config import AlgorithmConfig
from trainer.config.settings import Merge
from trainer.connectors import NormalizationStatistics
from trainer.episodes.episode_state import copied_containers
from trainer.errors import ConfigError
from trainer.metrics import EpisodeStatistics, MetricsLogger
from trainer.metrics.logger import EPISODES_STATE, LOGGER_STATE
from trainer.modules.by_module import without_only_id
from trainer.modules.model_config import DefaultModelConfig
from trainer.modules.multi_rl_module import without_loading
from trainer.types import DEFAULT_MODULE_ID, ModuleId, State
from trainer_toolkit.checks import SEED, TEXT, anything, dict_of, fields, list_of
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean
from trainer_toolkit.undo import Undo

# ---- state

ACTORS: Final = "actors"
ATTRIBUTES: Final = "attributes"

CONFIG: Final = fields(
    {"class": TEXT, "settings": dict_of(anything()), "code": list_of(TEXT), "root_seed": SEED}
)
_METRICS: Final = fields({"logger": LOGGER_STATE, "episodes": EPISODES_STATE})


class CheckedState(dict[str, Any]):
    """A state that was compared, or is the algorithm's own: `set_state` takes it as it is.

    A copy that a class of the user's makes of it on its way is compared once more.
    """


def is_whole(state: Any) -> bool:
    """Whether a state says which modules it has: not if it is only a part of one."""
    return isinstance(state, Mapping) and {"counters", "learner", "env_runners"} <= {*state}


_WITH_POSITIONS: Final = ("env_runners", "evaluation")
"""Components with running episodes, which runners and the main process share."""


def with_own_positions(state: State) -> State:
    """The same state with running episodes of its own, which may be changed."""
    own: State = {name: copied_containers(state[name]) for name in _WITH_POSITIONS if name in state}
    return {**state, **own}


class ConfigRecord:
    """The settings, which are written but never applied: an algorithm keeps its own.

    The root seed is the exception: the numbers to come follow from it.
    """

    def __init__(self, get_state: Callable[[], State], adopt: Callable[[int], None]) -> None:
        """Wraps an algorithm's settings; `adopt` takes another root seed."""
        self._get_state = get_state
        self._adopt = adopt

    def get_state(self) -> State:
        """The settings and the root seed."""
        return self._get_state()

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it."""
        check_shape(state, CONFIG)

    def set_state(self, state: State) -> None:
        """Adopts the root seed."""
        self._adopt(state["root_seed"])


class ConnectorsRecord:
    """The statistics of normalisation; what follows from them comes into force with them."""

    def __init__(self, statistics: NormalizationStatistics, apply: Callable[[], None]) -> None:
        """Wraps statistics; `apply` brings into force what follows from them."""
        self._statistics = statistics
        self._apply = apply

    def get_state(self) -> State:
        """The statistics."""
        return self._statistics.get_state()

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it."""
        self._statistics.check_state(state)

    def set_state(self, state: State) -> None:
        """Takes statistics, and brings into force what follows from them."""
        self._statistics.set_state(state)
        self._apply()


class MetricsRecord:
    """The logger and the episode statistics under one name."""

    def __init__(self, logger: MetricsLogger, episodes: EpisodeStatistics) -> None:
        self._logger = logger
        self._episodes = episodes

    def get_state(self) -> State:
        """Both states."""
        return {"logger": self._logger.get_state(), "episodes": self._episodes.get_state()}

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it."""
        check_shape(state, _METRICS)

    def set_state(self, state: State) -> None:
        """Takes both states."""
        self._logger.set_state(state["logger"])
        self._episodes.set_state(state["episodes"])


class ActorStates:
    """The states of actors that belong to the checkpoints of an algorithm.

    Actors are no part of the algorithm: those are asked and restored that there are.
    """

    def __init__(self) -> None:
        # Of the checkpoint that was restored: states of actors that were not made here.
        self._kept: Mapping[str, Mapping[str, Any]] = {}

    def get(self) -> State:
        """The states of all actors, and those that are kept.

        Raises:
            ActorDiedError: an actor is gone whose state belongs to it, and was not made again.
        """
        return with_kept(get_actor_states(), self._kept)

    def set(self, state: State) -> None:
        """Gives actors their states; keeps those of actors that are not there."""
        self._kept = set_actor_states(state)

    def names_kept(self) -> list[str]:
        """The names of actors whose states are kept though they are not there."""
        return sorted(name for names in self._kept.values() for name in names)

    def restart(self, path: PathLike, *, are_saved: bool) -> None:
        """Forgets what was kept: that belongs to another state than the one to be restored."""
        self._kept = {}
        if not are_saved and get_actor_states(may_miss_some=True):
            _LOGGER.warning("The checkpoint %s holds no states of actors; they keep theirs.", path)

    def mark(self, *, is_set: bool) -> Undo:
        """What puts the states back; those of the actors themselves only if they are to be set."""
        kept = self._kept
        before = with_kept(get_actor_states(may_miss_some=True), kept) if is_set else {}

        def undo() -> None:
            if before:
                set_actor_states(before)
            self._kept = kept

        return undo


# ---- model difference
#
# Whether a checkpoint is of another network although its weights have the same shapes.

_OF_OTHER_THINGS: Final = ("initializer", "initial_alpha", "backend")
"""Settings of the first weights, and of what computes: trained networks may differ in them."""
_ENDS_OF_OTHERS: Final = ("_initializer", "_initializer_kwargs")


def plain_model_config(model_config: Any) -> Any:
    """A `model_config` as it comes back from JSON; None if it holds more than plain data."""
    if isinstance(model_config, DefaultModelConfig):
        model_config = asdict(model_config)
    try:
        return json.loads(json.dumps(model_config or {}))
    except (TypeError, ValueError):
        return None


def _is_of_other_things(name: str) -> bool:
    return name in _OF_OTHER_THINGS or name.endswith(_ENDS_OF_OTHERS)


def model_difference(saved: Any, own: Any) -> str:
    """Says in which settings two networks differ, and how; "" for none.

    Args:
        saved: what `plain_model_config` gave for the one; None if unknown.
        own: for the other.
    """
    if not isinstance(saved, dict) or not isinstance(own, dict):
        return ""
    defaults = plain_model_config(DefaultModelConfig())
    saved, own = {**defaults, **saved}, {**defaults, **own}
    parts = [
        f"{name}: the checkpoint has {saved.get(name)!r}, this algorithm {own.get(name)!r}"
        for name in sorted(saved.keys() | own.keys())
        if saved.get(name) != own.get(name) and not _is_of_other_things(name)
    ]
    return f"model_config: {', '.join(parts)}" if parts else ""


# ---- checkpointing

_LOGGER = logging.getLogger(__name__)

_LARGE_CODE_BYTES: Final = 5_000_000

_DECIDED_BY: Final = MappingProxyType(
    {
        "connectors": ("observation_filter", "normalize_rewards"),
        "exploration": ("exploration_config",),
    }
)
"""Components that are not always there, and the settings that decide it."""


_SPACES: Final = ("observation_space", "action_space")
_FACTS: Final = ("algorithm", *_SPACES, "module", "num_parameters")
"""Of the manifest: what must be the same here."""

_FACTS_OF: Final[Mapping[str | None, tuple[str, ...]]] = MappingProxyType(
    {"replay_buffer": _SPACES, "env_runners": _SPACES, "counters": (), "metrics": ()}
)
"""The same of components that say nothing of a network, if they are restored alone."""


def metadata_of_state(state: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The same, if a state of another time is saved."""
    counters = state["counters"]
    return {
        **metadata,
        "root_seed": state["config"]["root_seed"],
        "training_iteration": counters["training_iteration"],
        "num_env_steps_sampled_lifetime": counters["num_env_steps_sampled"]
        or counters["num_env_steps_trained"],
        "num_episodes_lifetime": counters["num_episodes"],
        "episode_return_mean": None,  # of another time
    }


class ConfigCode:
    """The settings of a config that are code, for the checkpoints of an algorithm."""

    def __init__(self, config: AlgorithmConfig) -> None:
        self._config = config
        self._has_warned_of_size = False

    def pack(self) -> bytes | None:
        """The settings, pickled; None if there are none, or if they cannot be."""
        code = {name: self._config[name] for name in self._config.names_of_code()}
        if not code:
            return None
        try:
            packed = pack_code(code)
        except StateError as error:
            _LOGGER.warning(
                "The checkpoint is written without the settings %s, which cannot be pickled (%s). "
                "To restore it, build an algorithm with the same config and call "
                "restore_from_path().",
                sorted(code),
                error,
            )
            return None
        self._warn_of_size(code, len(packed))
        return packed

    def _warn_of_size(self, code: Mapping[str, Any], num_bytes: int) -> None:
        if num_bytes < _LARGE_CODE_BYTES or self._has_warned_of_size:
            return
        self._has_warned_of_size = True
        data = large_globals(code, at_least_bytes=_LARGE_CODE_BYTES // 10)
        names = ", ".join(f"`{name}` ({size / 1e6:,.1f} MB)" for name, size in data.items())
        _LOGGER.warning(
            "The code in every checkpoint has %.1f MB, because the settings %s are saved with the "
            "data that they refer to%s. Read such data where it is used (in the `__init__` of the "
            "env or callback, from a file), or put the code into a module that is imported.",
            num_bytes / 1e6,
            sorted(code),
            f": the global {names}" if names else "",
        )


def class_of_checkpoint(given: type[Any], path: PathLike) -> type[Any]:
    """The class of algorithm that a checkpoint is restored as.

    Args:
        given: the class whose `from_checkpoint` was called; `Algorithm` finds it by name.
        path: the checkpoint.

    Raises:
        CheckpointMismatchError: it is of another class, or of one that is not known.
    """
    saved = read_manifest(path).metadata.get("algorithm", "")
    if getattr(given, "__abstractmethods__", None):  # Algorithm itself: the checkpoint says which
        if not is_registered(saved):
            raise CheckpointMismatchError(
                f"The checkpoint {path} is of the algorithm {saved!r}, which is none of those "
                "that are found by name. If it is a class of yours, import it and call "
                f"{saved or 'MyAlgorithm'}.from_checkpoint(path)."
            )
        return algorithm_class(saved)
    if saved != given.__name__:
        raise CheckpointMismatchError(
            f"The checkpoint {path} is of the algorithm {saved!r}, which {given.__name__} cannot "
            f"go on with. Call {saved or 'Algorithm'}.from_checkpoint()"
            + (
                ", or Algorithm.from_checkpoint(), which finds the class by itself."
                if is_registered(saved)
                else " of that class, after it was imported."
            )
        )
    return given


def check_facts(
    manifest: Manifest, own: Mapping[str, Any], *, component: str | None, name: str
) -> None:
    """Checks that a checkpoint is of such an algorithm.

    Args:
        manifest: of the checkpoint.
        own: the same facts of the algorithm.
        component: what alone is to be restored; None is everything.
        name: of the algorithm, for messages.

    Raises:
        CheckpointMismatchError: it is of another env, network or algorithm.
    """
    facts = manifest.metadata
    checked = _FACTS_OF.get(component, _FACTS)
    different = list(_differences(facts, own, checked))
    if different:
        if checked is _FACTS and (models := _model_differences(facts, own)):
            different.append(models)
        raise CheckpointMismatchError(
            f"The checkpoint is of env {facts.get('env')!r} and does not fit this "
            f"{name} of env {own['env']!r}: {'; '.join(different)}. Nothing was "
            "changed. Build the algorithm with the config that the checkpoint was saved with, "
            "or use from_checkpoint()."
        )
    if checked is _FACTS:
        _warn_of_other_networks(facts, own)
    if facts.get("env") != own["env"]:
        _LOGGER.warning(
            "The checkpoint was saved with env %r; this algorithm has %r of the same spaces.",
            facts.get("env"),
            own["env"],
        )


def component_for_module(
    manifest: Manifest, component: str, *, into: ModuleId, own: Mapping[str, Any]
) -> str:
    """The path in a checkpoint of what one module has learnt, for another module of an algorithm.

    Args:
        manifest: of the checkpoint.
        component: "learner/main", or "learner/main/rl_module" for the weights alone; that of an
            only module may leave out its id.
        into: the module that gets it.
        own: the facts of that module.

    Raises:
        ConfigError: the component belongs to no module.
        CheckpointMismatchError: the two modules have different spaces.
    """
    facts = _of_modules(manifest.metadata)
    if "" in facts:
        component = without_only_id(component, [DEFAULT_MODULE_ID])
    by_path = {f"learner/{id_}".rstrip("/"): saved for id_, saved in facts.items()}
    saved = by_path.get(component.removesuffix("/rl_module"))
    if saved is None:
        raise ConfigError(
            f"restore_from_path(component={component!r}, into={into!r}) got a component that is no "
            "module; expected what one has learnt, or its weights alone (…/rl_module). The "
            f"checkpoint has {', '.join(by_path)}. Name one of these."
        )
    if different := list(_differences(saved, own, ("observation_space", "action_space"))):
        raise CheckpointMismatchError(
            f"{component!r} does not fit module {into!r}: {'; '.join(different)}. Nothing was "
            "changed. Restore it into a module with the same spaces."
        )
    return component


def only_module_of(config: Any) -> ModuleId | None:
    """The id of a run's module, if the state of its config names just one; else None."""
    settings = config.get("settings") if isinstance(config, Mapping) else None
    if not isinstance(settings, Mapping):
        return None
    named = settings.get("policies", [DEFAULT_MODULE_ID])
    is_known = isinstance(named, dict | list | set | frozenset) and len(named) == 1
    return str(*named) if is_known else None


def _of_modules(facts: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The facts of each module; those of a run with one module have no id."""
    of_several: Mapping[str, Mapping[str, Any]] | None = facts.get("modules")
    return {"": facts} if of_several is None else of_several


def _differences(
    saved: Mapping[str, Any], own: Mapping[str, Any], checked: Collection[str]
) -> Iterator[str]:
    """What differs between a checkpoint and an algorithm, one sentence each."""
    if "algorithm" in checked and saved.get("algorithm") != own["algorithm"]:
        yield _difference("algorithm", saved.get("algorithm"), own["algorithm"])
    theirs, ours = _of_modules(saved), _of_modules(own)
    if theirs.keys() != ours.keys() and checked:
        yield _difference("modules", *(sorted(ids) or ["one"] for ids in (theirs, ours)))
        return
    for id_, facts in ours.items():
        of_module = f" of module {id_!r}" if id_ else ""
        for fact in checked:
            if fact != "algorithm" and theirs[id_].get(fact) != facts[fact]:
                yield _difference(f"{fact}{of_module}", theirs[id_].get(fact), facts[fact])


def _difference(what: str, saved: Any, own: Any) -> str:
    return f"{what}: the checkpoint has {saved!r}, this algorithm {own!r}"


def _model_differences(saved: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    theirs, ours = _of_modules(saved), _of_modules(own)
    common = sorted(theirs.keys() & ours.keys())
    found = {
        model_difference(theirs[id_].get("model_config"), ours[id_]["model_config"]): None
        for id_ in common
    }
    return "; ".join(difference for difference in found if difference)


def _warn_of_other_networks(saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    if models := _model_differences(saved, own):
        _LOGGER.warning(
            "%s. The weights have the same shapes, but what the network makes of them may be "
            "something else.",
            models,
        )


def warn_of_networks_in_state(state: State, own: State) -> None:
    """Warns if a state is of other networks than the algorithm keeps.

    Args:
        state: of an algorithm, whole or in part; checked.
        own: the components "config" and "modules" of the algorithm; the latter may be missing.
    """
    _warn_of_other_networks(_networks_in(state), _networks_in(own))


def _networks_in(state: State) -> State:
    """What a state says of networks, in the form of the facts of a manifest."""
    if "modules" in state:
        specs = {id_: one["spec"] or {} for id_, one in state["modules"]["modules"].items()}
        found = {id_: {"model_config": spec.get("model_config")} for id_, spec in specs.items()}
        return {"modules": found}
    settings = state.get("config", {}).get("settings", {})
    return {"model_config": settings.get("model_config")}


def check_given_state(
    state: State,
    *,
    name: str,
    known: Collection[str],
    check_state: Callable[[State], None],
    config: AlgorithmConfig,
) -> None:
    """Raises a CheckpointMismatchError if a component of a user's state is unknown or misfits.

    Nothing is changed by then. `known` are the components that there are, `check_state` raises
    unless the parts fit, and name and config are for messages.
    """
    if not isinstance(state, Mapping):
        raise CheckpointMismatchError(
            f"{name}.set_state() was given a {type(state).__name__}. Nothing was changed. Give "
            "what get_state() returned: a dict by name of component."
        )
    if unknown := [
        f"{key!r}{did_you_mean(key, known, IN_BRACKETS)}" for key in state if key not in known
    ]:
        raise CheckpointMismatchError(
            f"{name}.set_state() was given the unknown {', '.join(unknown)}; the components of "
            f"this {name} are {', '.join(known)}. Nothing was changed. Give what get_state() "
            f"returned.{settings_behind(config, [str(key) for key in state])}"
        )
    try:
        check_state(state)
    except Exception as error:
        raise misfitting_state(state, error, name=name) from error


MAY_BE_MISSING: Final = frozenset(
    {ACTORS, ATTRIBUTES, "modules", "connectors", "exploration", "sample_ahead", "replay_buffer"}
)
"""Components that some algorithms have."""


def refuse_component_names(names: Collection[str], known: Collection[str], *, of: str) -> NoReturn:
    """Raises a ConfigError that names the components which an algorithm does not have."""
    unknown = [f"{name!r}{did_you_mean(name, known, IN_BRACKETS)}" for name in names]
    raise ConfigError(
        f"{of}.get_state() was asked for the unknown {', '.join(unknown)}; the components are "
        f"{', '.join(sorted(known))}. Name some of these, or a part of one, such as "
        "'learner/rl_module'."
    )


def misfitting_state(state: State, error: Exception, *, name: str) -> CheckpointMismatchError:
    """The error for a state from the user, made of the one that a component raised."""
    return CheckpointMismatchError(
        f"{name}.set_state() was given a state whose component "
        f"{failed_component(error) or list(state)!r} does not fit: {error}. Nothing was "
        "changed. Give what get_state() of an algorithm with the same settings returned."
    )


def settings_behind(config: AlgorithmConfig, components: Collection[str]) -> str:
    """Names the settings that decide whether there are these components, with their values."""
    settings = [
        f"{name}={config[name]!r}"
        for component in sorted(components)
        for name in _DECIDED_BY.get(component, ())
    ]
    return f" Whether they are there depends on: {', '.join(settings)}." if settings else ""


# ---- restored config
#
# The config that an algorithm is built with when it is restored.

_OF_NETWORKS: Final = ("model_config", "policy_model_config", "q_model_config")
_BYTES_OF_A_WEIGHT: Final = 4


def restored_config(
    path: PathLike,
    algorithm: type[Any],
    config: AlgorithmConfig | Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    *,
    allow_code: bool,
    merged: Collection[str] = (),
) -> AlgorithmConfig:
    """The config to build with: the caller's, else the checkpoint's, changed by `settings`.

    Args:
        path: the checkpoint.
        algorithm: the class to be built.
        config: the caller's.
        settings: changes, by name.
        allow_code: unpickle settings that are code, also if somebody else saved them.
        merged: the names of those that are merged into what was saved, also if it is code.
    """
    config_class: type[AlgorithmConfig] = algorithm.config_class
    if isinstance(config, AlgorithmConfig):
        return config.copy(copy_frozen=False).update_from_dict(settings)
    if config is not None:
        return config_class.from_dict(config).update_from_dict(settings)
    contents = read_checkpoint(path, "config", migrations=algorithm.state_migrations)
    allow_code = allow_code or contents.manifest.is_own
    if allow_code and contents.manifest.code is not None:
        given = config_class.overrides(**settings)
        known = config_class.settings_by_name()
        merged = [name for name in given.keys() & known if known[name].merge is not Merge.REPLACE]
    restored = config_from_state(
        algorithm,
        contents.components["config"],
        settings,
        merged=merged,
        find_code=lambda missing: _saved_code(path, missing, allow_code=allow_code),
        allow_code=allow_code,
    )
    _refuse_larger_networks(restored, contents)
    if not allow_code and "crash_dir" not in config_class.overrides(**settings):
        _keep_crash_files_with_the_run(restored, contents.path)
    return restored


def config_from_state(
    algorithm: type[Any],
    state: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    merged: Collection[str] = (),
    find_code: Callable[[Collection[str]], Mapping[str, Any]] | None = None,
    allow_code: bool = False,
) -> AlgorithmConfig:
    """The config of a state.

    Args:
        algorithm: the class to be built.
        state: the component `config`.
        settings: changes, by name.
        merged: the names of those that are merged into what was saved, also if it is code.
        find_code: gives the settings that are code and were not given, by their names.
        allow_code: import envs and strategies that the state names.

    Raises:
        CodeNotAllowedError: it names some, and that is not allowed.
        CheckpointMismatchError: it is no state of a config.
        ConfigError: settings are wrong, or missing because they are code.
    """
    config_class: type[AlgorithmConfig] = algorithm.config_class
    with naming_component("config"):
        check_shape(state, CONFIG)
    given: dict[str, Any] = config_class.overrides(**settings)
    whole = given.keys() - set(merged)
    code = {name: given[name] for name in state["code"] if name in whole}
    missing = sorted(set(state["code"]) - code.keys())
    if missing and find_code is not None:
        code = {**find_code(missing), **code}
    # Dicts such as `model` are merged into those that were saved, as in a section of a config.
    restored = config_class.from_state(state, code=code, changes=settings, allow_code=allow_code)
    if restored.seed is None:
        restored.seed = state["root_seed"]
    # The weights come with the state, and what the run once began with may be gone.
    restored.rl_module_spec = without_loading(restored.rl_module_spec)
    if isinstance(restored.policies, Mapping):
        named = restored.policies.items()
        restored.policies = {module_id: without_loading(spec) for module_id, spec in named}
    return restored


def _refuse_larger_networks(config: AlgorithmConfig, contents: CheckpointContents) -> None:
    """Raises if the settings ask for networks that the weights in the checkpoint cannot fill.

    Else a file of some kilobytes could take all memory and much time, before its weights are found
    not to fit.
    """
    if config.rl_module_spec is not None:
        return  # what the settings of a user's own network mean is not known
    manifest, folder = contents.manifest, contents.path / contents.manifest.folder
    sizes = [regular_file_size(folder / entry.file) for entry in manifest.files]
    num_bytes = sum(size or 0 for size in sizes)
    for name in _OF_NETWORKS:
        if name not in config:
            continue
        least = _least_parameters(config[name])
        if least * _BYTES_OF_A_WEIGHT > num_bytes:
            raise CheckpointMismatchError(
                f"The saved `{name}` asks for a network of {least:,} weights or more, and the "
                f"checkpoint has {num_bytes:,} bytes in all, so they are not in it. Nothing was "
                f"made. If it is not damaged, give `{name}` as it was."
            )


def _keep_crash_files_with_the_run(config: AlgorithmConfig, checkpoint: Path) -> None:
    """Takes away a saved `crash_dir` that lies elsewhere: a file does not say where to write."""
    if not isinstance(config.crash_dir, str | os.PathLike):  # what is no path, validation tells
        return
    directory = Path(config.crash_dir).expanduser().resolve()
    if directory.is_relative_to(checkpoint.parent.parent):
        return
    _LOGGER.warning(
        "The checkpoint %s names the directory %s for crash files, which is not beside it. None "
        "are written: a file does not say where to write. Give it yourself: "
        "from_checkpoint(path, crash_dir=...).",
        checkpoint,
        directory,
    )
    config.crash_dir = None


def _least_parameters(value: Any) -> int:
    """How many weights a network has at least whose layers have the sizes that are in a value."""
    if isinstance(value, Mapping):
        return max(map(_least_parameters, value.values()), default=0)
    if not isinstance(value, list | tuple):
        return value if isinstance(value, int) else 0
    widths = [entry for entry in value if isinstance(entry, int)]
    return max(
        *(first * second for first, second in pairwise(widths)),
        *map(_least_parameters, value),
        0,
        0,
    )


def class_of_state(given: type[Any], state: Mapping[str, Any]) -> type[Any]:
    """The class of the algorithm that a state is of.

    Raises:
        ConfigError: the state does not say it, or has no config; it is of another class.
    """
    wanted = ("config", "algorithm_class") if inspect.isabstract(given) else ("config",)
    missing = [name for name in wanted if name not in state]
    if missing:
        raise ConfigError(
            f"The state lacks {' and '.join(map(repr, missing))}, so it does not say what to "
            "build. Give what `algo.__getstate__()` returned, or call from_state() of the class "
            "itself with what `algo.get_state()` returned."
        )
    named = state.get("algorithm_class", given)
    found = named if isinstance(named, type) else algorithm_class(str(named))
    if not issubclass(found, given):
        raise ConfigError(
            f"The state is of {found.__name__}, which is no {given.__name__}. Call "
            f"{found.__name__}.from_state()."
        )
    return found


def _saved_code(path: PathLike, missing: Collection[str], *, allow_code: bool) -> Mapping[str, Any]:
    try:
        saved: Mapping[str, Any] = read_code(path, allow_code=allow_code)
    except CodeNotAllowedError as error:
        raise CodeNotAllowedError(
            f"{error} It is enough to give what is code: "
            f"from_checkpoint(path, {', '.join(f'{name}=...' for name in missing)})."
        ) from error
    return saved
