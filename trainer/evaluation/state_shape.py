"""What the saved state of evaluation looks like, to be compared before it is taken."""

from __future__ import annotations

from typing import Final

from checkpoints.state_shapes import (
    NOTHING,
    anything,
    count,
    dict_of,
    fields,
    list_of,
    of_type,
    one_of,
)
from trainer.env_runners.position_shape import CALLBACK_STATES
from trainer.metrics.state_shapes import LOGGER_STATE

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

EVALUATION: Final = fields(
    {
        "evaluator": fields(
            {"num_evaluations": count, "callbacks": CALLBACK_STATES},
            optional={
                "num_left_out": count,
                "metrics": LOGGER_STATE,
                "slots": list_of(_TASKS_OF_A_SLOT),
            },
        ),
        "last": dict_of(anything),
    },
    optional={"reported_at": one_of(count, NOTHING), "running_of": one_of(count, NOTHING)},
)
"""Of the component `evaluation`; states of earlier releases lack what is optional."""
