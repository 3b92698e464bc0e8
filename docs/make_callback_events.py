"""Writes docs/callback-events.md: what the table of events says, and which events real runs fire.

    python docs/make_callback_events.py            writes the page
    python docs/make_callback_events.py --check    exit code 1 if it is out of date; writes nothing

Nothing about an event is written here: names, arguments and times come from `callbacks.EVENTS`, and
the order in which they fire from the runs of `callback_scenarios.py`, which are made each time.
"""

from __future__ import annotations

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
from callbacks.rllib_names import Renamed

PAGE: Final = Path(__file__).with_name("callback-events.md")

_TEXT_WIDTH: Final = 116
_BLOCK_WIDTH: Final = 132

_INTRODUCTION: Final = """\
# Callback events

This page is made by `docs/make_callback_events.py`; do not edit it by hand. The tables are those of
`callbacks.EVENTS`; below them stands what real runs fired, made with each writing of the page.

How to give callbacks, their order, their state, and what an error in one does, is in
[callbacks.md](callbacks.md). The tables from the code:

```python
from callbacks import EVENTS

for name, event in EVENTS.items():
    print(name, event.process, ", ".join(event.arguments), event.fired, event.not_fired)
```

Arguments are given by name. A callable gets an old name only if it names it.
"""

_RUNS: Final = """\
## What fires in a run

Each block shows calls and, below them, the events in the order in which they fired, and who fired
them: the algorithm (in the main process) or an env runner. `×3` means three times in a row. Env
runner 0 lives in the main process, the others in processes of their own; "(2nd)" marks the second
process in the same place. All episodes have 3 steps, and an iteration asks for 6, so it plays two
episodes, unless something else is said.

What callback objects remember is kept only of work that is committed: of answers of runners that
arrived, in an iteration whose `train()` returned. Work that is not committed is made again and
fires its events again; before that, the callbacks' state is put back. Making a new runner fires its
events as well, and what callbacks remember of those is then replaced by the state of the runner
before it.

What callbacks do to the world outside (files, prints, requests) is not put back. So it can happen
twice: below, wherever the same steps are fired again.
"""


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
            parts.append(_scenario_text(scenario, stage.acts))
    return "\n".join(parts)


def _events_table(events: Iterable[Event]) -> str:
    rows = [
        (
            f"`{event.name}`",
            ", ".join(f"`{name}`" for name in event.arguments),
            ", ".join(_old_name(event, name) for name in event.old_arguments),
            event.fired,
            event.not_fired,
        )
        for event in events
    ]
    return _table(("event", "arguments", "other names", "fired", "not fired"), rows)


def _old_name(event: Event, name: str) -> str:
    """An other name, with the argument it stands for if it only is another name."""
    derivation = event.old_arguments[name]
    return f"`{name}` = `{derivation.source}`" if isinstance(derivation, Renamed) else f"`{name}`"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _scenario_text(scenario: Scenario, acts: Sequence[Act]) -> str:
    doc = textwrap.fill(" ".join(scenario.text.split()), _TEXT_WIDTH)
    lines = [line for act in acts for line in _act_lines(act)]
    return f"### {scenario.title}\n\n{doc}\n\n```text\n" + "\n".join(lines) + "\n```\n"


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
    for firing in firings:
        is_new = not groups or groups[-1][0].actor != firing.actor
        if is_new or firing.event in ("on_episode_created", "on_sample_end"):
            groups.append([])
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
