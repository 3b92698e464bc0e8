"""The fault matrix: what comes of a fault at each place, in each way.

`test_fault_matrix.py` lets each of these faults happen and asserts what stands here;
`docs/make_fault_matrix.py` makes the table of docs/fault-tolerance.md of it. So the page says what
was tested.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from trainer.testing import Fault


class Outcome(Enum):
    """How a run ends in which a fault happened once; the value is what the page says."""

    REPAIRED = "repaired"
    HARMLESS = "harmless"
    WARNED = "warning"
    CREATION_ERROR = "`EnvCreationError`"
    CALLBACK_ERROR = "`CallbackError`"
    MAIN_ENDS = "main process ends"
    MAIN_WAITS = "main process stands still"


MEANINGS = {
    Outcome.REPAIRED: (
        "the runner is replaced and asked again; the same bytes as without the fault"
    ),
    Outcome.HARMLESS: "nothing has to be done; the same bytes",
    Outcome.WARNED: (
        "`stop()` warns that the env was not closed, after 2 s at most; the same bytes"
    ),
    Outcome.CREATION_ERROR: "raised when the runner is first made, with what the env raised",
    Outcome.CALLBACK_ERROR: "`train()` raises it at once: callbacks are not tried again",
    Outcome.MAIN_ENDS: "it unpacks replies itself, so the fault hits it; its workers end, too",
    Outcome.MAIN_WAITS: (
        "the fault hits it, too. SIGCONT continues the run, with the same bytes; Ctrl-C ends a "
        "hang and undoes the iteration"
    ),
}


@dataclass(frozen=True)
class Place:
    """A row of the table.

    Attributes:
        text: what the page calls it.
        conditions: when exactly the fault happens there.
    """

    text: str
    conditions: Mapping[str, Any]


PLACES = {
    "init": Place("making the env", {}),
    "reset": Place("`env.reset`", {"on_call": 2}),
    "step": Place("`env.step`", {"at_step": 3}),
    "close": Place("`env.close`", {}),
    "on_episode_step": Place("a callback event", {"at_step": 3}),
    "forward": Place("forward pass", {"on_call": 4}),
    "pack": Place("packing the reply", {"on_call": 2}),
    "unpack": Place("unpacking it (main process)", {"on_call": 2}),
}

WAYS = {
    "raise": "raises",
    "exit": "`os._exit`",
    "segfault": "segmentation fault",
    "sigkill": "SIGKILL",
    "sigstop": "SIGSTOP",
    "hang": "hangs",
    "unpicklable_error": "unpicklable error",
    "huge_reply": "huge reply",
}

STALLING = ("sigstop", "hang")
"""Ways that are noticed only when a limit of time has passed."""

_FOR_ERRORS = ("raise", "unpicklable_error", "huge_reply")

_EXCEPTIONS = {
    **{("init", way): Outcome.CREATION_ERROR for way in _FOR_ERRORS},
    **{("close", way): Outcome.WARNED for way in (*_FOR_ERRORS, *STALLING)},
    **{("close", way): Outcome.HARMLESS for way in ("exit", "segfault", "sigkill")},
    **{(place, "huge_reply"): Outcome.HARMLESS for place in ("reset", "step", "pack")},
    ("on_episode_step", "raise"): Outcome.CALLBACK_ERROR,
    ("on_episode_step", "unpicklable_error"): Outcome.CALLBACK_ERROR,
    ("on_episode_step", "huge_reply"): Outcome.HARMLESS,
    **{("unpack", way): Outcome.MAIN_ENDS for way in ("exit", "segfault", "sigkill")},
    **{("unpack", way): Outcome.MAIN_WAITS for way in STALLING},
}


@dataclass(frozen=True)
class Cell:
    """One fault.

    Attributes:
        place, way: as `Fault` calls them.
        in_evaluation: in the first evaluation runner, or else in the first training runner.
    """

    place: str
    way: str
    in_evaluation: bool

    @property
    def outcome(self):
        """What comes of it: the same in training and in evaluation."""
        return _EXCEPTIONS.get((self.place, self.way), Outcome.REPAIRED)

    @property
    def takes_long(self):
        """Whether a limit of time has to pass, or a process of its own is needed."""
        return self.way in STALLING or self.outcome is Outcome.MAIN_ENDS

    def fault(self):
        """The fault itself."""
        conditions = PLACES[self.place].conditions
        return Fault(
            self.place,
            way=self.way,
            worker_index=1,
            in_evaluation=self.in_evaluation,
            **conditions,
        )

    def __str__(self):
        return f"{self.place}-{self.way}-{'evaluation' if self.in_evaluation else 'training'}"


CELLS = tuple(
    Cell(place, way, in_evaluation)
    for place in PLACES
    for way in WAYS
    for in_evaluation in (False, True)
)


def table():
    """The matrix as Markdown, with what its words mean."""
    header = ["", *WAYS.values()]
    lines = [header, ["---"] * len(header)]
    for name, place in PLACES.items():
        lines.append([place.text, *(Cell(name, way, False).outcome.value for way in WAYS)])
    rows = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    meanings = "".join(f"- {outcome.value}: {MEANINGS[outcome]}.\n" for outcome in Outcome)
    return f"{rows}\n{meanings}"
