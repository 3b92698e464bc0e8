"""What results call a task: a short text that stands as one part of a path.

It lives here because both need it: whoever writes the statistics of tasks, and callbacks that look
for those of one task.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

_LONGEST: Final = 60


def task_name(task: Any) -> str:
    """The name of a task in results: the text itself, the number, or else what `repr` gives.

    Slashes, which separate the parts of a path, become bars, and long names are cut.
    """
    if isinstance(task, np.ndarray | np.generic):
        task = task.tolist()
    text = task if isinstance(task, str) and task else repr(task)
    text = text.replace("/", "|")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
