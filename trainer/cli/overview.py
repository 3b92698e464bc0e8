"""What `local-trainer` says of itself: the commands of the first day, and all by purpose."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

FIRST_DAY: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "train": (
            "learn an env, with the settings known for it",
            "local-trainer train --env CartPole-v1 --stop-return 450 --run-dir runs/cartpole",
        ),
        "runs": ("list your runs, and what they reached", "local-trainer runs"),
        "resume": (
            "go on exactly where a run stopped, or was killed",
            "local-trainer resume runs/cartpole --stop-iterations 200",
        ),
        "evaluate": (
            "play episodes with what was learnt",
            "local-trainer evaluate runs/cartpole --episodes 20",
        ),
        "report": (
            'one HTML page with curves and settings (pip install "local-trainer[plot]")',
            "local-trainer report runs/cartpole",
        ),
    }
)
"""Command → what it is for, and how to type it; the examples work in this order."""

PURPOSES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "train": ("train", "resume", "recipes", "profile"),
        "look at runs": ("runs", "watch", "check", "plot", "report", "track"),
        "use what was learnt": ("evaluate", "play", "record", "export"),
        "search settings": ("tune", "tune-resume", "trials", "best"),
        "look at checkpoints": ("inspect", "verify", "diff"),
        "set up, find faults": ("doctor", "completion", "rllib-check", "replay-episode"),
    }
)
"""What people want → the commands for it."""

_WIDTH: Final = 16


def greeting() -> str:
    """For who typed the program's name alone."""
    lines = ["Reinforcement learning on one machine. The first day:", ""]
    for name, (purpose, example) in FIRST_DAY.items():
        lines += [f"  {name:<10}{purpose}", f"            $ {example}"]
    lines += [
        "",
        "All commands by purpose: local-trainer --help; options of one: local-trainer train --help",
        "Is all well on this machine? local-trainer doctor",
    ]
    return "\n".join(lines) + "\n"


def by_purpose(described: Mapping[str, str]) -> str:
    """All commands under their purposes; `described` has a sentence for each."""
    lines: list[str] = []
    for purpose, names in PURPOSES.items():
        lines += [f"{purpose}:", *(f"  {name:<{_WIDTH}}{described[name]}" for name in names), ""]
    return "\n".join(lines)
