"""The notebooks run from the top to the bottom, and say what they show in few cells."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NAMES = ("first_steps", "tuning", "several_agents")
MOST_CELLS = 12


def notebook(name):
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def number_behind(words, text):
    return float(re.findall(rf"{words}\D*(-?\d+(?:\.\d+)?)", text)[-1])


def expect_learnt(name, text):
    """What a notebook shows at its end: something was learnt."""
    if name == "first_steps":
        assert number_behind("evaluated:", text) > 100
        assert number_behind("return of one episode:", text) > 100
    elif name == "tuning":
        assert text.count("TERMINATED") >= 4
        assert number_behind("mean return:", text) > 30
    else:
        *returns, action = map(float, text.split()[-5:])
        assert returns[-1] > max(12.0, returns[0])
        assert action == 1


def test_all_notebooks_are_tested():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_short_explained_and_kept_without_outputs(name):
    cells = notebook(name)["cells"]
    assert len(cells) <= MOST_CELLS
    assert cells[0]["cell_type"] == "markdown"
    codes = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in codes)
    assert len(cells) - len(codes) >= len(codes) - 1


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_as_a_script(name, tmp_path):
    cells = [cell for cell in notebook(name)["cells"] if cell["cell_type"] == "code"]
    source = "\n\n".join("".join(cell["source"]) for cell in cells)
    done = subprocess.run(
        [sys.executable, "-c", source],  # no file: worker processes have nothing to run again
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1])},
        capture_output=True, text=True, encoding="utf-8", timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expect_learnt(name, done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_notebook_runs_in_a_kernel(name, tmp_path):
    nbclient = pytest.importorskip("nbclient")
    nbformat = importlib.import_module("nbformat")
    pytest.importorskip("ipykernel")
    read = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(
        read, timeout=100, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in read.cells if cell.cell_type == "code" for output in cell.outputs]
    expect_learnt(name, "".join(output.get("text", "") for output in outputs))
    shown = [each.data["text/plain"] for each in outputs if each.output_type == "display_data"]
    if name == "first_steps":  # of each algorithm one that was updated, not a line per iteration
        assert len(shown) == 2
        assert all(re.search(r"iter +21 .*\nreturns ", text) for text in shown)
