"""Writes docs/callback-events.md: what the table of events says, and which events real runs fire.

    python docs/make_callback_events.py            writes the page
    python docs/make_callback_events.py --check    exit code 1 if it is out of date; writes nothing

Nothing about an event is written here: names, arguments and times come from `callbacks.EVENTS`, and
the order in which they fire from the runs of `callback_scenarios.py`, which are made each time.
"""

from __future__ import annotations

import dataclasses
import logging
import signal
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from callback_scenarios import SCENARIOS, Scenario
from callback_stage import Act, Firing, Stage
from made_page import write_or_check

from callbacks import EVENTS
from callbacks.events import Event

PAGE: Final = Path(__file__).with_name("callback-events.md")

_TEXT_WIDTH: Final = 116
_BLOCK_WIDTH: Final = 132

_INTRODUCTION: Final = """\
# Callback events

Here you look up when an event fires, with which arguments, and what fires when something fails: an
env raises, a runner dies, a callback raises, Ctrl-C. How to write callbacks is in
[callbacks.md](callbacks.md); the old names of arguments are [there](callbacks.md#arguments), too.

The tables are in the code as well:

```python
from callbacks import EVENTS

for name, event in EVENTS.items():
    print(name, event.process, ", ".join(event.arguments), event.fired, event.not_fired)
```

This page is made by `docs/make_callback_events.py`; do not edit it by hand.
"""

_RUNS: Final = """\
## What fires in a run

Each block is the record of a real run: calls, and below them the events in the order in which they
fired, with who fired them: the algorithm (in the main process) or an env runner.

- Env runner 0 lives in the main process, the others in processes of their own; "(2nd)" is the
  second process in the same place.
- `×3` means three times in a row. `episode` means all events of a whole episode, as in the first
  block (in evaluation without `on_postprocess_trajectory`).
- Unless something else is said, an episode has 3 steps and an iteration 6, so two episodes.

When `train()` raises or a runner fails, the work is done again and fires its events again. The
state of callback objects is put back before that, so it counts everything once. What callbacks do
outside (files, prints, requests) is not put back and can happen twice. What callback objects
note while a new runner is made is lost: they get the state that they had in the runner before.
"""

_WHOLE_EPISODES: Final = tuple(
    ("on_episode_created", "on_episode_start", *["on_episode_step"] * 3, *end)
    for end in (["on_postprocess_trajectory", "on_episode_end"], ["on_episode_end"])
)
"""What is written as one word, once the first block has shown it."""


def page() -> str:
    """The whole page as text."""
    parts = [_INTRODUCTION]
    for scope, heading in (
        ("algorithm", "Events of the algorithm"),
        ("env_runner", "Events of env runners"),
    ):
        events = [event for event in EVENTS.values() if event.scope == scope]
        parts.append(f"## {heading}\n\nFired in {events[0].process}.\n\n{_events_table(events)}")
    parts.append(_RUNS)
    with tempfile.TemporaryDirectory() as folder:
        for number, scenario in enumerate(SCENARIOS):
            stage = Stage(Path(folder, str(number)))
            scenario.play(stage)
            acts = stage.acts if number == 0 else [_in_short(act) for act in stage.acts]
            parts.append(_scenario_text(scenario, acts))
    return "\n".join(parts)


def _events_table(events: Iterable[Event]) -> str:
    rows = [
        (
            f"`{event.name}`",
            ", ".join(f"`{name}`" for name in event.arguments),
            event.fired,
            event.not_fired,
        )
        for event in events
    ]
    return _table(("event", "arguments", "fired", "not fired"), rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _scenario_text(scenario: Scenario, acts: Sequence[Act]) -> str:
    doc = textwrap.fill(" ".join(scenario.text.split()), _TEXT_WIDTH)
    lines = [line for act in acts for line in _act_lines(act)]
    return f"### {scenario.title}\n\n{doc}\n\n```text\n" + "\n".join(lines) + "\n```\n"


def _in_short(act: Act) -> Act:
    """The act with one firing, named `episode`, for all those of a whole episode."""
    firings = list(act.firings)
    for whole in _WHOLE_EPISODES:
        for start in range(len(firings) - len(whole), -1, -1):
            part = firings[start : start + len(whole)]
            is_of_one = len({firing.actor for firing in part}) == 1
            if is_of_one and tuple(firing.event for firing in part) == whole:
                firings[start : start + len(whole)] = [Firing(part[0].actor, "episode")]
    return dataclasses.replace(act, firings=tuple(firings))


def _act_lines(act: Act) -> list[str]:
    """A call, its events, and what came of it."""
    lines = [act.call]
    column = max((len(firing.actor) for firing in act.firings), default=0) + 2
    actor = ""
    for group in _groups(act.firings):
        label = group[0].actor if group[0].actor != actor else ""
        actor = group[0].actor
        indent = " " * (4 + column)
        lines += textwrap.wrap(
            ", ".join(_collapsed(group)),
            _BLOCK_WIDTH,
            initial_indent=f"    {label:<{column}}",
            subsequent_indent=indent,
        )
    if not act.firings:
        lines.append("    no event")
    if act.outcome:
        lines.append(f"    {act.outcome}")
    return lines


def _groups(firings: Iterable[Firing]) -> list[list[Firing]]:
    """The firings by lines: an actor's own ones, and each episode for itself."""
    groups: list[list[Firing]] = []
    last = ""
    for firing in firings:
        is_new = not groups or groups[-1][0].actor != firing.actor
        begins = firing.event in ("on_episode_created", "episode", "on_sample_end")
        goes_on = last == "episode" and firing.event != "on_episode_created"
        if is_new or (begins and not goes_on):
            groups.append([])
        last = firing.event
        groups[-1].append(firing)
    return groups


def _collapsed(firings: Iterable[Firing]) -> list[str]:
    """Names of events; those that fire several times in a row are counted."""
    counted: list[tuple[str, int]] = []
    for firing in firings:
        if counted and counted[-1][0] == firing.event:
            counted[-1] = (firing.event, counted[-1][1] + 1)
        else:
            counted.append((firing.event, 1))
    return [name if count == 1 else f"{name} ×{count}" for name, count in counted]


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; returns the exit code."""
    logging.disable(logging.ERROR)  # the runs fail on purpose, and say so at length
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have switched it off
    return write_or_check(PAGE, page, arguments, script="make_callback_events.py")


if __name__ == "__main__":
    raise SystemExit(main())
