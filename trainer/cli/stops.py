"""When a run of the command line ends: given as arguments, kept in `run.json` for `resume`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from callbacks.ready_made.stop_criteria import StopCriteria
from trainer.errors import ConfigError

_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "episode_return": "at_least",
        "env_steps": "max_env_steps",
        "iterations": "max_iterations",
        "time_s": "max_time_s",
    }
)
"""Name in `run.json` → criterion. The argument is `--stop-` and the first, or `--stop-return`."""


def given_stops(arguments: argparse.Namespace) -> StopCriteria:
    """The criteria on the command line."""
    return StopCriteria(
        at_least=arguments.stop_return,
        max_env_steps=arguments.stop_env_steps,
        max_iterations=arguments.stop_iterations,
        max_time_s=arguments.stop_time_s,
    )


def stops_to_dict(stops: StopCriteria) -> dict[str, Any]:
    """Plain data for `run.json`."""
    return {name: getattr(stops, field) for name, field in _FIELDS.items()}


def stops_from_dict(values: Mapping[str, Any]) -> StopCriteria:
    """What `stops_to_dict` gave; unknown entries are left out.

    Raises:
        ConfigError: somebody wrote something else into the file; lists all problems.
    """
    fields: dict[str, Any] = {field: values.get(name) for name, field in _FIELDS.items()}
    stops = StopCriteria(**fields)
    problems = stops.problems()
    if problems:
        raise ConfigError(
            f'run.json does not say when to stop: {"; ".join(problems)}. Correct its "stop", or '
            "remove the file and give --stop-… arguments."
        )
    return stops


def updated_stops(saved: StopCriteria, given: StopCriteria) -> StopCriteria:
    """The criteria of a resumed run: any given now replace all that were given before."""
    return saved if given == StopCriteria() else given
