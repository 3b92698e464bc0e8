"""Settings that are known to learn an env, or a kind of envs: what `recipes.json` holds.

The file is written by `python -m benchmarks.quality.recipes`: settings are those of tasks of the
learning campaign, figures are those of its runs.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from trainer.config.settings import is_schedule
from trainer.errors import ConfigError
from trainer_toolkit.nearest_names import did_you_mean

FILE: Final = "recipes.json"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """How well the settings of a recipe learn an env.

    Attributes:
        num_seeds: runs, each with its own seed.
        final_return: the median over the runs of 20 episodes without exploration, at the end.
        processor_s: seconds of one core that a run took, the median.
    """

    num_seeds: int
    final_return: float
    processor_s: float


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings for an env, or for a kind of envs.

    Attributes:
        name: the env's, or the kind's.
        algorithm: the name of the algorithm that the settings are of.
        envs: patterns of the names of the envs, such as "Hopper-v*".
        num_env_steps: how long to train. Schedules in the settings end there.
        settings: by name; all others have the default of the algorithm.
        source: where the settings come from.
        needs: what to install for the env, as `pip install` takes it; empty for nothing.
        measured: by env.
    """

    name: str
    algorithm: str
    envs: tuple[str, ...]
    num_env_steps: int
    settings: Mapping[str, Any]
    source: str
    needs: str
    measured: Mapping[str, Measured]

    @property
    def has_schedules(self) -> bool:
        """Whether a setting comes to its end with the env steps."""
        return is_schedule(self.settings.get("lr"))

    def is_of(self, env: str) -> bool:
        """Whether there is an env of this name that it is for."""
        return is_any_of(env, self.envs)


def is_any_of(env: str, patterns: Iterable[str]) -> bool:
    """Whether an env has a name of one of these patterns, after a module as in "ale_py:ALE/…"."""
    name = env.rpartition(":")[2]
    return any(re.fullmatch(_regular(pattern), name) for pattern in patterns)


def _regular(pattern: str) -> str:
    """The pattern as a regular expression: `-v*` is any version, any other `*` a part of a name."""
    return re.escape(pattern).replace(r"\-v\*", r"-v\d+").replace(r"\*", r"[\w/-]*")


@functools.cache
def recipes() -> tuple[Recipe, ...]:
    """All recipes: those of single envs, then those of kinds; the first that fits is the best."""
    text = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return tuple(map(_recipe, json.loads(text)))


def _recipe(values: dict[str, Any]) -> Recipe:
    measured = {env: Measured(**figures) for env, figures in values["measured"].items()}
    return Recipe(**{**values, "envs": tuple(values["envs"]), "measured": measured})


def recipe_for(env: str, algorithm: str | None = None) -> Recipe | None:
    """The recipe to train an env with; None if there is none.

    Args:
        env: its name.
        algorithm: the only one to look for.
    """
    fitting = (recipe for recipe in recipes() if recipe.is_of(env))
    return next((each for each in fitting if algorithm in (None, each.algorithm)), None)


def recipe_named(name: str, algorithms: Sequence[str] = ()) -> Recipe:
    """The recipe of a name: a kind, or an env with a recipe of its own or of its kind.

    Args:
        name: of the env or of the kind.
        algorithms: whose recipes are looked at; those of all if empty.

    Raises:
        ConfigError: there is none; the message names the nearest.
    """
    if not isinstance(name, str):
        raise ConfigError(
            f"`recipe({name!r})`: expected the name of an env or of a kind of envs, as text."
        )
    known = [each for each in recipes() if not algorithms or each.algorithm in algorithms]
    found = next((recipe for recipe in known if name == recipe.name or recipe.is_of(name)), None)
    if found is not None:
        return found
    names = [*dict.fromkeys(recipe.name for recipe in known)]
    whose = f"{algorithms[0]} has no recipe" if algorithms else "There is no recipe"
    there_are = (
        f"There are: {', '.join(names)}." if names else "Others have: local-trainer recipes."
    )
    raise ConfigError(
        f"{whose} for {name!r}.{did_you_mean(name, names)} {there_are} For another env, take that "
        "of its kind, or begin with the defaults."
    )
