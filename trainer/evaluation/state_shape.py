"""What the saved state of evaluation looks like, to be compared before it is taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from checkpoints.state_shapes import (
    NOTHING,
    ShapeCheck,
    anything,
    count,
    dict_of,
    fields,
    like,
    list_of,
    number,
    of_type,
    one_of,
)
from trainer.env_runners.position_shape import CALLBACK_STATES
from trainer.metrics.state_shapes import LOGGER_STATE
from trainer.types import State

_TASKS_OF_A_SLOT: Final = fields(
    {
        "episode_number": count,
        "env_seed": NOTHING,
        "actions": list_of(anything),
        "observation": NOTHING,
        "episode": NOTHING,
        "earlier_chunks": list_of(anything),
    },
    optional={"tasks": list_of(of_type(list)), "env_state": anything},
)


def _standard_metrics(value: Any, place: str) -> Iterator[str]:
    """Check the numbers that every evaluation has; of a user's own metrics, nothing is known."""
    yield from dict_of(anything)(value, place)
    for name in value if isinstance(value, dict) else ():
        if name.startswith(("episode_", "num_")):
            yield from number(value[name], f"{place}[{name!r}]")


_KNOWN_OF_LAST: Final = {
    "env_runners": _standard_metrics,
    "num_episodes": number,
    "weights_version": count,
    "evaluated_at_iteration": count,
}


def _last(value: Any, place: str) -> Iterator[str]:
    """Check the metrics of the last evaluation: of what a function of users gave, nothing is known.

    They were reported before, and nothing is computed from them.
    """
    yield from dict_of(anything)(value, place)
    known = _KNOWN_OF_LAST.keys() & value.keys() if isinstance(value, dict) else ()
    for name in sorted(known):
        yield from _KNOWN_OF_LAST[name](value[name], f"{place}[{name!r}]")


_EVALUATOR: Final = fields(
    {"num_evaluations": count, "callbacks": CALLBACK_STATES},
    optional={
        "num_left_out": count,
        "metrics": LOGGER_STATE,
        "slots": list_of(_TASKS_OF_A_SLOT),
    },
)


def evaluation_state(subject: State) -> ShapeCheck:
    """The check for the component `evaluation`; states of earlier releases lack what is optional.

    Args:
        subject: `Subject.get_state()` of the newest weights, which those of an evaluation under way
            have to be like.
    """
    parts = {name: like(part) for name, part in subject["weights"].items()}
    weights = fields({**parts, "exploration": anything})  # a strategy's own, of any kind
    under_way = {**{name: like(part) for name, part in subject.items()}, "weights": weights}
    return fields(
        {"evaluator": _EVALUATOR, "last": _last},
        optional={
            "reported_at": one_of(count, NOTHING),
            "running_of": one_of(count, NOTHING),
            "running": fields(under_way),
        },
    )
