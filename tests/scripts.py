"""Scripts in processes of their own, which can import this project."""

import subprocess
import sys
from pathlib import Path


def run_script(code, *arguments):
    """Runs Python code to its end, and gives what it printed; an error in it is one here."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
