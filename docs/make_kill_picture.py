"""Draws docs/kill-demo.svg from a run of `examples/kill_demo.py`.

python docs/make_kill_picture.py        takes half a minute; needs the extra `plot`
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure

ROOT: Final = Path(__file__).parents[1]
PICTURE: Final = ROOT / "docs" / "kill-demo.svg"
_ROW: Final = re.compile(r"^ +(\d+)  return +(\S+)(.*)$")


def main() -> int:
    """Runs the demonstration, draws it and ends with its exit code."""
    command = [sys.executable, str(ROOT / "examples" / "kill_demo.py"), "--chance", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    undisturbed, killed = done.stdout.split("With kills")
    draw(undisturbed.splitlines(), killed.splitlines(), PICTURE)
    return done.returncode


def draw(undisturbed: Sequence[str], killed: Sequence[str], file: Path) -> None:
    """Writes the curves of two outputs as an SVG; the second one tells of kills."""
    mpl.rcParams.update({"svg.hashsalt": "kill-demo", "svg.fonttype": "none", "font.size": 11})
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    axes = figure.subplots()
    alone, disturbed = _returns(undisturbed), _returns(killed)
    axes.plot(*zip(*alone.items(), strict=True), color="#9ecae1", linewidth=9, label="undisturbed")
    axes.plot(*zip(*disturbed.items(), strict=True), color="#08306b", label="processes killed")
    of_runners = [number for number, text in _rows(killed) if "runner" in text]
    axes.plot(
        of_runners, [disturbed[number] for number in of_runners], "x", color="#08306b",
        markersize=8, label="a runner is killed",
    )  # fmt: skip
    for number in _deaths_of_main(killed):
        axes.axvline(
            number + 0.5, color="#b30000", linestyle="--",
            label="the main process is killed" if number == _deaths_of_main(killed)[0] else None,
        )  # fmt: skip
    axes.set(xlabel="iteration", ylabel="mean return")
    hashes = re.findall(r"final state (\w{12})", "\n".join(killed))
    axes.set_title("hashes of the final states: " + ", ".join(hashes), fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(file, metadata={"Date": None})


def _rows(lines: Sequence[str]) -> list[tuple[int, str]]:
    found = filter(None, map(_ROW.match, lines))
    return [(int(row[1]), row[3]) for row in found]


def _returns(lines: Sequence[str]) -> dict[int, float]:
    return {int(row[1]): float(row[2]) for row in filter(None, map(_ROW.match, lines))}


def _deaths_of_main(lines: Sequence[str]) -> list[int]:
    """After which iterations the main process died."""
    deaths, iteration = [], 0
    for line in lines:
        if row := _ROW.match(line):
            iteration = int(row[1])
        elif "main process" in line:
            deaths.append(iteration)
    return deaths


if __name__ == "__main__":
    sys.exit(main())
