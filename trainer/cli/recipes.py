"""Recipes on the command line: which one a run takes, and the command that shows them."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any, Final

from trainer.algorithms.building import algorithm_class
from trainer.cli.output import print_text
from trainer.cli.run_directory import STOPS
from trainer.config.recipes import Recipe, recipe_for, recipe_named, recipes
from trainer.errors import ConfigError

NONE: Final = "none"


def recipe_of_run(arguments: argparse.Namespace) -> Recipe | None:
    """The recipe that `train` and `profile` begin with; None for the plain defaults.

    Without `--recipe` it is that of the env, if no setting was given. The number of env steps
    becomes a stop criterion if none was given.

    Raises:
        ConfigError: there is no such recipe, or `--config` was given, too.
    """
    if arguments.recipe == NONE:
        return None
    if arguments.recipe is not None:
        if arguments.config is not None:
            raise ConfigError(
                f"--recipe {arguments.recipe} and --config {arguments.config} both say what to "
                "begin with. Give one of them; --set NAME=VALUE changes single settings."
            )
        algorithms = [arguments.algo] if arguments.algo else []
        found = recipe_named(arguments.recipe, algorithms)
    elif arguments.env is None or arguments.config is not None:
        return None
    else:
        named = recipe_for(arguments.env, arguments.algo)
        if named is None:
            return None
        if arguments.settings:
            print_text(
                "Settings are given, so all others have their defaults. To change those of the "
                f"env's recipe: --recipe {named.name}."
            )
            return None
        found = named
    print_text(_taken(found, arguments.env))
    if all(getattr(arguments, stop) is None for stop in STOPS):
        arguments.stop_env_steps = found.num_env_steps
    elif found.has_schedules and (arguments.stop_env_steps or math.inf) > found.num_env_steps:
        print_text(f"Its schedules end after {found.num_env_steps:,} env steps, and learning then.")
    return found


def _taken(recipe: Recipe, env: str | None) -> str:
    measured = recipe.measured.get(env or recipe.name)
    figures = measured and (
        f", return {measured.final_return:g} in {measured.processor_s:.0f} s when measured"
    )
    return (
        f"Recipe {recipe.name} of {recipe.algorithm}: {recipe.num_env_steps:,} env steps"
        f"{figures or ''}. Plain defaults: --recipe {NONE}."
    )


def show_recipes(arguments: argparse.Namespace) -> int:
    """`local-trainer recipes`: lists them, or shows the settings of one."""
    algorithms = [algorithm_class(arguments.algo).__name__] if arguments.algo else []
    if arguments.name is None:
        for line in _table(algorithms):
            print_text(line)
        return 0
    found = recipe_named(arguments.name, algorithms)
    print_text(
        f"{found.name}, {found.algorithm}, {found.num_env_steps:,} env steps: {found.source}"
    )
    for name, value in found.settings.items():
        print_text(f"  {name:<36} {json.dumps(value)}")
    for env, figures in found.measured.items():
        print_text(
            f"measured in {env}: return {figures.final_return:g} at the end, "
            f"{figures.processor_s:g} s, median of {figures.num_seeds} seeds"
        )
    if found.needs:
        print_text(f"The env needs the package {found.needs}.")
    return 0


def _table(algorithms: Sequence[str]) -> list[str]:
    rows: list[tuple[Any, ...]] = [("recipe", "algorithm", "env steps", "return", "time", "seeds")]
    for recipe in recipes():
        if algorithms and recipe.algorithm not in algorithms:
            continue
        of_kind = recipe.envs != (recipe.name,)
        figures = None if of_kind else recipe.measured.get(recipe.name)
        rows.append(
            (
                recipe.name,
                recipe.algorithm,
                f"{recipe.num_env_steps:,}",
                *(
                    (f"{figures.final_return:,.1f}", f"{figures.processor_s:.0f} s")
                    if figures
                    else ("a kind" if of_kind else "not yet", "")
                ),
                figures.num_seeds if figures else "",
            )
        )
    return [f"{r[0]:<28}{r[1]:<11}{r[2]:>10}{r[3]:>11}{r[4]:>9}{r[5]:>7}" for r in rows]
