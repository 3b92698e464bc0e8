"""A user's own evaluation: checked when it is configured, called instead of playing tickets."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import Any

from checkpoints import StateError, encode
from trainer.errors import EvaluationError

_EXPECTED = (
    "Return a dict of metrics with at least one entry, or such a dict, the number of env steps and "
    "the number of agent steps."
)


def call_evaluation_function(
    function: Callable[..., Any], algorithm: Any, group: Any
) -> Mapping[str, Any]:
    """Lets a user's function evaluate.

    Args:
        function: called as `function(algorithm, group)`.
        algorithm: whose weights the group's runners hold.
        group: the evaluation runners.

    Returns:
        the metrics; step counts that the function gave are added as `num_env_steps_sampled` and
        `num_agent_steps_sampled`.

    Raises:
        EvaluationError: it returned something else.
        Exception: what the function raised.
    """
    returned = function(algorithm, group)
    name = getattr(function, "__qualname__", repr(function))
    metrics, counts = returned, {}
    if isinstance(returned, tuple):
        if len(returned) != 3:
            raise EvaluationError(
                f"custom_evaluation_function {name} returned a tuple of {len(returned)}. "
                f"{_EXPECTED}"
            )
        metrics, num_env_steps, num_agent_steps = returned
        counts = {
            "num_env_steps_sampled": num_env_steps,
            "num_agent_steps_sampled": num_agent_steps,
        }
        for what, count in counts.items():
            if not isinstance(count, numbers.Integral) or count < 0:
                raise EvaluationError(
                    f"custom_evaluation_function {name} returned {count!r:.80} as {what}. "
                    f"{_EXPECTED}"
                )
    if not isinstance(metrics, Mapping) or not metrics:
        raise EvaluationError(
            f"custom_evaluation_function {name} returned {metrics!r:.80}, a "
            f"{type(metrics).__name__}. {_EXPECTED}"
        )
    try:
        encode(metrics, name="it")
    except StateError as error:
        raise EvaluationError(
            f"custom_evaluation_function {name} returned something that no checkpoint can hold: "
            f"{error}"
        ) from error
    return {**counts, **metrics}
