"""What belongs to modules, keyed by module id: specs, weights, learners, statistics, buffers.

Which modules there are is decided in one place, by the config (`config.specs.module_specs`). All
rooms from there on take the ids from what they are given, also where there is only one.

In saved state, a run with one module keeps its value without an id (`learner/rl_module`), and a run
with several keeps one below each id (`learner/main/rl_module`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Final, Generic, TypeVar, cast

from checkpoints import Checkpointable, CheckpointMismatchError, HasState
from trainer.errors import ConfigError, ModuleError
from trainer.seeding import id_digest
from trainer.types import DEFAULT_MODULE_ID, ModuleId
from trainer_toolkit.checks import Check, dict_of, fields
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean
from trainer_toolkit.plain_classes import Form

_RESERVED: Final = frozenset(
    {"rl_module", "optimizer", "learner", "__all__", "__all_modules__", "__common__"}
)
_BY_MODULE: Final = frozenset({"learner", "connectors", "exploration", "replay_buffer"})
"""Components with a part for each of several modules."""
_FORBIDDEN: Final = frozenset('<>:"/\\|?*')
ValueT = TypeVar("ValueT")
OtherT = TypeVar("OtherT")


class ByModule(Mapping[ModuleId, ValueT], Generic[ValueT]):
    """A value for each module, in canonical order: ids by code point, however they were given."""

    def __init__(self, values: Mapping[ModuleId, ValueT]) -> None:
        """Takes at least one value."""
        self._values = {id_: values[id_] for id_ in sorted(values)}

    def __getitem__(self, module_id: ModuleId) -> ValueT:
        return self._values[module_id]

    def __iter__(self) -> Iterator[ModuleId]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    # Those of `Mapping` take four calls per entry, and every round looks at a dozen of these.

    def __contains__(self, module_id: object) -> bool:
        return module_id in self._values

    def keys(self) -> KeysView[ModuleId]:
        """The ids, in canonical order."""
        return self._values.keys()

    def values(self) -> ValuesView[ValueT]:
        """The values, in the order of their ids."""
        return self._values.values()

    def items(self) -> ItemsView[ModuleId, ValueT]:
        """Pairs of id and value, in canonical order."""
        return self._values.items()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"

    @property
    def ids(self) -> tuple[ModuleId, ...]:
        """The ids, in canonical order."""
        return tuple(self._values)

    @property
    def only(self) -> ValueT:
        """The value of the only module; a ModuleError if there are several."""
        return self._values[self.only_id]

    @property
    def only_id(self) -> ModuleId:
        """The id of the only module; a ModuleError if there are several."""
        if len(self._values) != 1:
            raise ModuleError(
                f"There are {len(self._values)} modules ({', '.join(self._values)}), and one was "
                "asked for without an id. Name it, e.g. `algo.get_module(module_id)` or "
                "`algo.learners[module_id]`."
            )
        return next(iter(self._values))

    def map(self, function: Callable[[ValueT], OtherT]) -> ByModule[OtherT]:
        """What a function makes of each value, in canonical order."""
        return ByModule({id_: function(value) for id_, value in self._values.items()})

    def to_state(self) -> Any:
        """As it stands in saved state: the value itself if there is one module, else by id."""
        return self.only if len(self._values) == 1 else dict(self._values)

    @staticmethod
    def from_state(state: Any, ids: Collection[ModuleId]) -> ByModule[Any]:
        """The values that `to_state` was called on, of these modules."""
        return ByModule({next(iter(ids)): state} if len(ids) == 1 else state)

    @classmethod
    def plain_form(cls, item: Form) -> Form:
        """In plain data of a data class: a dict by id; see `trainer_toolkit.plain_classes`."""
        return Form(
            dict_of(item.check),
            lambda values, array: {id_: item.to(one, array) for id_, one in values.items()},
            lambda plain: cls({id_: item.back(one) for id_, one in plain.items()}),
        )

    @staticmethod
    def state_shape(shape: Callable[[ModuleId], Check], ids: Collection[ModuleId]) -> Check:
        """The check for what `to_state` gives; `shape` is that for the value of one module."""
        shapes = {id_: shape(id_) for id_ in ids}
        return next(iter(shapes.values())) if len(shapes) == 1 else fields(shapes)


def kept_over(
    known: Mapping[ModuleId, ValueT],
    ids: Collection[ModuleId],
    make: Callable[[ModuleId], ValueT],
) -> ByModule[ValueT]:
    """The values of these modules: those that are known, and new ones of the others."""
    return ByModule({id_: known[id_] if id_ in known else make(id_) for id_ in ids})


class ModuleParts(Checkpointable):
    """One component of a checkpoint with a part of its own for each of several modules."""

    def __init__(self, parts: Mapping[ModuleId, Any]) -> None:
        """Puts the parts, each with `get_state` and `set_state`, in canonical order."""
        self._parts = ByModule(parts)

    def check_state(self, state: Any) -> None:
        """See `Checkpointable`; a module that there is not is refused."""
        super().check_state(state)
        if unknown := [
            f"{id_!r}{did_you_mean(str(id_), self._parts, IN_BRACKETS)}"
            for id_ in state
            if id_ not in self._parts
        ]:
            raise CheckpointMismatchError(
                f"it has the unknown {', '.join(unknown)}, expected some of the modules "
                f"{', '.join(map(repr, self._parts))}"
            )

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        """The parts by module id, in canonical order."""
        return list(self._parts.items())

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The parts, which are no plain data."""
        return (), {"parts": self._parts}


def component_of(parts: Mapping[ModuleId, Any], ids: Collection[ModuleId]) -> HasState:
    """The component of a checkpoint that holds what belongs to modules.

    Args:
        parts: by module id, each with `get_state` and `set_state`; of some of the modules.
        ids: all modules. If there is only one, its part is the component itself.
    """
    return cast("HasState", next(iter(parts.values()))) if len(ids) == 1 else ModuleParts(parts)


def without_only_id(component: str, ids: Collection[ModuleId]) -> str:
    """The path of a component of a checkpoint: that of an only module has no id in it.

    Args:
        component: such as "learner/default_policy/rl_module" or "learner/rl_module".
        ids: all modules.
    """
    section, *rest = component.split("/")
    is_named = len(ids) == 1 and rest[:1] == [*ids] and section in _BY_MODULE
    return "/".join([section, *rest[1:]]) if is_named else component


def module_position(module_id: ModuleId) -> tuple[int, ...]:
    """What is appended to the positions of a module's random numbers.

    Nothing for the default module, whose numbers are those of a run with one module; else 64 bits
    that follow from the id alone, so that no module's numbers move when another one is added.
    """
    return () if module_id == DEFAULT_MODULE_ID else (id_digest(module_id),)


# ---- module ids


def why_no_module_id(module_id: object) -> str | None:
    """What keeps a value from being the id of a module; None if it is one.

    Ids are names of files in checkpoints and of keys in results.
    """
    if not isinstance(module_id, str) or not module_id:
        return f"{module_id!r:.80} is no text, or empty"
    if module_id in _RESERVED:
        return f"{module_id!r} is a name of checkpoints and results already"
    bad = sorted({letter for letter in module_id if letter in _FORBIDDEN or ord(letter) < 32})
    if bad:
        return f"{module_id!r:.80} has {' '.join(map(repr, bad))} in it"
    if module_id[-1] in " .":
        return f"{module_id!r} ends in {module_id[-1]!r}"
    return None


def check_module_ids(module_ids: Collection[Any]) -> None:
    """Raises a ConfigError that names all of these that can be no ids of modules."""
    problems = [problem for problem in map(why_no_module_id, module_ids) if problem is not None]
    if problems:
        raise ConfigError(
            f"There are ids that no module can have: {'; '.join(problems)}. Ids name files and "
            'results. Give each module a short text without <>:"/\\|?* as its id.'
        )
