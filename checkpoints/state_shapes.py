"""What a state must look like is compared before anything is changed."""

from __future__ import annotations

from typing import Any, Final

from checkpoints.errors import CheckpointMismatchError
from trainer_toolkit.checks import Check

_MAX_PROBLEMS: Final = 5


def check_shape(state: Any, check: Check) -> None:
    """Raise a CheckpointMismatchError that names what is not as it should be, if anything is.

    Args:
        state: what is to be taken over.
        check: such as `like(self.get_state())`: the same keys, types, dtypes and shapes.
    """
    problems = list(check(state))
    if problems:
        more = len(problems) - _MAX_PROBLEMS
        listed = "; ".join(problems[:_MAX_PROBLEMS])
        raise CheckpointMismatchError(listed + (f"; and {more} more" if more > 0 else ""))
