"""All statistics of a logger by their keys: making, finding, deleting, saving."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any, Final

from trainer.errors import MetricsError
from trainer.metrics.keys import is_always_written
from trainer.metrics.options import OPTION_DEFAULTS, Options, checked_options
from trainer.metrics.paths import Key, Path, path_of, sorting_key, text_of
from trainer.metrics.statistic import Statistic
from trainer.types import State

_LOG: Final = logging.getLogger(__name__)


class StatisticTable:
    """Statistics by path.

    Attributes:
        by_path: {path: statistic}, in order of the first log.
        by_key: the same statistics by the keys as callers wrote them so far, so that logging needs
            one look-up; always the same dict object.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self.by_path: dict[Path, Statistic] = {}
        self.by_key: dict[Any, Statistic] = {}
        self._clock = clock

    def find(self, key: Key) -> Statistic | None:
        """The statistic of a key in any spelling; None if there is none.

        Raises:
            MetricsError: it is no key.
        """
        return self.by_path.get(path_of(key))

    def find_or_make(
        self,
        key: Key,
        given: tuple[Any, ...],
        *,
        is_wall_clock: bool = False,
        in_results: bool = False,
    ) -> Statistic:
        """The statistic of a key in a spelling that was not used yet, made if there is none.

        Args:
            key: as callers write it.
            given: the options as callers write them, in the order of `OPTION_DEFAULTS`.
            is_wall_clock: see `Options`.
            in_results: see `add`.

        Raises:
            MetricsError: impossible options, no key, or a key that is a group already.
        """
        path = path_of(key)
        statistic = self.by_path.get(path)
        if statistic is None:
            options = _checked(path, given, is_wall_clock=is_wall_clock)
            statistic = self.add(path, options, in_results=in_results)
            statistic.given = given
        elif given != statistic.given:
            self.check_given(statistic, given)
        self.by_key[key] = statistic
        return statistic

    def add(self, path: Path, options: Options, *, in_results: bool = False) -> Statistic:
        """A new statistic with checked options.

        Args:
            path: its key.
            options: checked.
            in_results: it is logged for results of the algorithm, so warn if it cannot be seen
                there, because a standard key has the same name.

        Raises:
            MetricsError: the key is a group of keys already, or a part of it is a value.
        """
        for known in self.by_path:
            shorter = min(len(known), len(path))
            if known[:shorter] == path[:shorter]:
                raise MetricsError(
                    f"{text_of(path)!r} cannot be logged beside {text_of(known)!r}. In a nested "
                    "result one of them would have to be a value and a group at once. Rename one "
                    "of them."
                )
        statistic = Statistic(text_of(path), options, clock=self._clock)
        self._put(path, statistic)
        if in_results and is_always_written(text_of(path)):
            _LOG.warning(
                "The metric %r has the name of a standard key, whose value stays in results, so "
                "what is logged under it does not appear. Log it under a name of your own.",
                statistic.name,
            )
        return statistic

    def _put(self, path: Path, statistic: Statistic) -> None:
        self.by_path[path] = statistic
        self.by_key[path] = statistic
        if len(path) == 1:
            self.by_key[path[0]] = statistic

    def check_given(self, statistic: Statistic, given: tuple[Any, ...]) -> None:
        """Warns once if a statistic is logged with other options than it was made with."""
        path = (statistic.name,)
        options = _checked(path, given, is_wall_clock=statistic.options.is_wall_clock)
        if options == statistic.options:
            statistic.given = given  # the same in other words; next time one comparison is enough
        else:
            self.warn_once(statistic, options)

    def warn_once(self, statistic: Statistic, options: Options) -> None:
        """Warns that `options` are ignored, once per statistic."""
        if not statistic.has_warned:
            statistic.has_warned = True
            _LOG.warning(
                "The metric %r is logged with different options: %s, then %s. The first ones stay. "
                "Use the same options for a key everywhere.",
                statistic.name,
                _differing(statistic.options, options),
                _differing(options, statistic.options),
            )

    def below(self, prefix: Path) -> dict[Path, Statistic]:
        """The statistics whose paths begin with `prefix`, in order of paths."""
        length = len(prefix)
        items = sorted(self.by_path.items(), key=sorting_key)
        return {path: statistic for path, statistic in items if path[:length] == prefix}

    def delete(self, paths: dict[Path, Statistic]) -> None:
        """Forgets some statistics."""
        remaining = {p: s for p, s in self.by_path.items() if p not in paths}
        self.by_path = {}
        self.by_key.clear()
        for path, statistic in remaining.items():
            self._put(path, statistic)

    def get_state(self) -> list[State]:
        """One dict per statistic, in order of paths; those that measure time are left out."""
        return [
            {
                "key": list(path),
                "options": dataclasses.asdict(statistic.options),
                **statistic.get_state(),
            }
            for path, statistic in self.below(()).items()
            if not statistic.options.is_wall_clock
        ]

    def set_state(self, states: list[State]) -> None:
        """Replaces all statistics by those that `get_state` described."""
        self.delete(self.by_path)
        for state in states:
            self.add(tuple(state["key"]), Options(**state["options"])).set_state(state)


def _checked(path: Path, given: tuple[Any, ...], *, is_wall_clock: bool) -> Options:
    named = dict(zip(OPTION_DEFAULTS, given, strict=True))
    return checked_options(text_of(path), **named, is_wall_clock=is_wall_clock)


def _differing(options: Options, other: Options) -> dict[str, Any]:
    own, theirs = dataclasses.asdict(options), dataclasses.asdict(other)
    return {name: value for name, value in own.items() if value != theirs[name]}


def sibling(path: Path, suffix: str) -> Path:
    """The path beside a path, such as `speed_min`; a final `_mean` of the name is replaced."""
    name = str(path[-1])
    return (*path[:-1], name.removesuffix("_mean") + suffix)
