"""Names of components: slash paths such as `learner/rl_module`, and the trees they stand for.

Pure functions; nothing here touches files or objects with state.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

from checkpoints.errors import CheckpointMismatchError, StateError
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean

_Value = TypeVar("_Value")

COMPONENT_SUFFIX: Final = ".state"
"""What the names of component files end with."""

_ARRAY_FILE: Final = re.compile(r".+\.[0-9]+\.array")

ComponentNames = str | Collection[str]
"""One name or several."""


def as_names(components: ComponentNames | None) -> frozenset[str] | None:
    """Return the names as a set; None stays None."""
    if components is None:
        return None
    return frozenset({components} if isinstance(components, str) else components)


def check_name(name: Any) -> str:
    """Return the name; a StateError unless it is a slash path of steps that are not empty."""
    if not isinstance(name, str) or not name:
        raise StateError(
            f"a component is called {name!r}: names are non-empty texts such as "
            "'learner/rl_module', because they name files. Use text keys at the top of a state."
        )
    steps = name.split("/")
    if "" in steps or not name.isprintable():
        raise StateError(
            f"a component is called {name!r}: a step between slashes is empty, or holds "
            "a character that cannot be printed, so it cannot name a file. Rename the component."
        )
    return name


def file_name(name: str) -> str:
    """Return the name of the component's file: one step, different for different names.

    Steps are joined with dots; whatever is not a plain letter, digit, `_` or `-` is %-encoded.
    """
    steps = [
        quote(step, safe="").replace(".", "%2E").replace("~", "%7E") for step in name.split("/")
    ]
    return ".".join(steps) + COMPONENT_SUFFIX


def array_file_name(component_file: str, number: int) -> str:
    """Return the name of the file of a component's large array; they are counted from 0."""
    return f"{component_file.removesuffix(COMPONENT_SUFFIX)}.{number}.array"


def is_payload_name(file: str) -> bool:
    """Return whether a file is called like that of a component or of an array."""
    return _ARRAY_FILE.fullmatch(file) is not None or file.endswith(COMPONENT_SUFFIX)


def is_inside(name: str, path: str | None) -> bool:
    """Return whether the component `name` is `path` itself or lies below it; None is the root."""
    return path is None or name == path or name.startswith(path + "/")


def is_selected(
    name: str, components: ComponentNames | None, not_components: ComponentNames | None = None
) -> bool:
    """Return whether a direct component is asked for, as a whole or in part.

    Args:
        name: one step, as in `get_checkpointable_components()`.
        components: names or paths that are wanted; None means all.
        not_components: names or paths that are not wanted; `a/b` does not exclude `a`.
    """
    excluded = as_names(not_components)
    if excluded is not None and name in excluded:
        return False
    wanted = as_names(components)
    return wanted is None or any(is_inside(path, name) for path in wanted)


def selected(
    state: Mapping[str, _Value],
    components: ComponentNames | None,
    not_components: ComponentNames | None = None,
) -> dict[str, _Value]:
    """Return what of a state is asked for; its keys may be slash paths (`"pi"` takes `"pi/0"`).

    For `get_state` of objects without parts, whose whole state is one dict.
    """
    wanted, excluded = as_names(components), as_names(not_components)
    if wanted is None and not excluded:
        return dict(state)
    return {
        name: value
        for name, value in state.items()
        if (wanted is None or any(is_inside(name, path) for path in wanted))
        and not any(is_inside(name, path) for path in excluded or ())
    }


def below(name: str, components: ComponentNames | None) -> frozenset[str] | None:
    """Return what of `components` lies below `name`, named from there; None if all or nothing."""
    names = as_names(components)
    if names is None or name in names:
        return None
    return frozenset(path[len(name) + 1 :] for path in names if path.startswith(name + "/")) or None


def select(names: Iterable[str], only: ComponentNames | None) -> list[str]:
    """Return those of `names`, in their order, that are one of `only` or below it.

    Raises:
        CheckpointMismatchError: if one of `only` selects nothing; names the nearest.
    """
    available = list(names)
    wanted = as_names(only)
    if wanted is None:
        return available
    for path in sorted(wanted):
        if not any(is_inside(name, path) for name in available):
            known = sorted(set(available) | {parent for n in available for parent in _parents(n)})
            raise CheckpointMismatchError(
                f"The checkpoint has no component {path!r}{_nearest_path(path, known)}. It holds: "
                f"{', '.join(available) or 'nothing'}. Pass one of these, or what stands "
                "before a slash."
            )
    return [name for name in available if any(is_inside(name, path) for path in wanted)]


def unflatten(components: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested dict of `{"a/b": x, "c": y}`: `{"a": {"b": x}, "c": y}`.

    Raises:
        CheckpointMismatchError: if a name is both a component and a folder of components.
    """
    tree: dict[str, Any] = {}
    for name, state in components.items():
        if any(parent in components for parent in _parents(name)):
            raise CheckpointMismatchError(
                f"The component {name!r} lies below another component, which has its own state; "
                "they cannot form one tree. Read them with read_checkpoint()."
            )
        *folders, last = name.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[last] = state
    return tree


def _nearest_path(path: str, known: Iterable[str]) -> str:
    """Return the nearest, or the longest known path whose steps all stand in `path`, in order.

    So a path of RLlib's, `learner_group/learner/rl_module/default_policy`, finds ours.
    """
    hint = did_you_mean(path, known, IN_BRACKETS)
    steps = path.split("/")
    fitting = [name for name in known if len(steps) > 1 and _in_order(name.split("/"), steps)]
    if fitting:
        best = max(fitting, key=lambda name: (name.count("/"), name.split("/")[-1] == steps[-1]))
        if not hint or "/" in best:
            return IN_BRACKETS.format(repr(best))
    return hint


def _in_order(wanted: list[str], steps: list[str]) -> bool:
    remaining = iter(steps)
    return all(step in remaining for step in wanted)


def _parents(name: str) -> list[str]:
    steps = name.split("/")
    return ["/".join(steps[:count]) for count in range(1, len(steps))]
