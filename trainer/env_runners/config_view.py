"""The settings as callbacks see them in a runner: to read, never to change."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any


class ConfigView(Mapping[str, Any]):
    """Settings by attribute (`config.in_evaluation`) and by key (`config["gamma"]`), read-only."""

    __slots__ = ("_settings",)

    def __init__(self, settings: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_settings", dict(settings))

    def __getitem__(self, key: str) -> Any:
        return self._settings[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __getattr__(self, name: str) -> Any:
        # Pickle and copy ask for special names before the object has its slot.
        if not name.startswith("_") and name in self._settings:
            return self._settings[name]
        if name == "environment":
            raise AttributeError(
                "config.environment() was called on the config of an env runner, which is a copy "
                "to read: a change would be lost when the process is replaced. To give envs "
                "something else to do in the middle of a run, set a task: "
                "`algorithm.env_runner_group.set_task(task)` for an env with `set_task` and "
                "`get_task` (docs/curriculum.md)."
            )
        near = () if name.startswith("_") else difflib.get_close_matches(name, self._settings, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"The config of an env runner has no setting {name!r}.{hint}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"config.{name} cannot be set in an env runner: each process has a copy, and a change "
            "in one would be lost at its next start. Set it before the algorithm is built."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return ConfigView, (self._settings,)

    def __repr__(self) -> str:
        return f"ConfigView({self._settings!r})"
