"""What the saved state of evaluation looks like, to be compared before it is taken."""

from __future__ import annotations

from typing import Final

from checkpoints.state_shapes import (
    FLAG,
    NOTHING,
    ShapeCheck,
    anything,
    count,
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


# Reported metrics, perhaps made by a function of users: nothing is computed from them.
_LAST: Final = of_type(dict)

# Restoring may change whether rewards are clipped, so they need not be like those of now.
_REWARDS: Final = fields({"clip": one_of(number, FLAG, NOTHING), "factor": one_of(number, NOTHING)})

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
    parts = {name: like(part) for name, part in subject["weights"].items() if name != "connectors"}
    weights = fields(  # a strategy's own, of any kind
        {**parts, "exploration": anything}, optional={"connectors": of_type(dict)}
    )
    of_now = subject["normalization"]
    observations = {name: like(of_now[name]) for name in of_now if name == "observations"}
    normalization = fields(observations, optional={"rewards": _REWARDS})
    under_way = {"iteration": count, "weights": weights, "normalization": normalization}
    return fields(
        {"evaluator": _EVALUATOR, "last": _LAST},
        optional={
            "reported_at": one_of(count, NOTHING),
            "running_of": one_of(count, NOTHING),
            "running": fields(under_way),
        },
    )
