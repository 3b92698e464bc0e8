"""Type checkers are content with what users write: the examples, and the pages' own scripts.

mypy looks at the examples in `make types`, with `strict`; here it is pyright, where it can be had.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_docs import PAGES, ROOT, script_of

PYRIGHT = shutil.which("pyright", path=str(Path(sys.executable).parent))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed: extra [types]"),
]

KNOWN = {
    ("docs_curriculum", "reportAttributeAccessIssue"): "`algo.workers`, an old name of RLlib",
    ("docs_rewriting-trajectories", "reportAttributeAccessIssue"): "`get_policy`, likewise",
    ("docs_rewriting-trajectories", "reportOptionalMemberAccess"): "the worker is there by then",
    ("docs_tuning", "reportOptionalSubscript"): "metrics of a trial that may have reported nothing",
    ("docs_multi-agent", "reportArgumentType"): "a dict of spaces as arguments by name",
    ("docs_env-state", "reportAttributeAccessIssue"): "attributes of CartPole's class, not of Env",
}
"""What is right as it is: page and rule → why."""


def errors_of(*arguments):
    """File, rule and message of each error that pyright finds."""
    assert PYRIGHT is not None
    done = subprocess.run(
        [PYRIGHT, "--outputjson", "--pythonpath", sys.executable, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, encoding="utf-8", timeout=110, check=False,
    )  # fmt: skip
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright does not run here: {done.stdout[-200:]} {done.stderr[-200:]}")
    return [
        (Path(found["file"]).stem, found.get("rule", ""), found["message"])
        for found in json.loads(done.stdout)["generalDiagnostics"]
        if found["severity"] == "error"
    ]


def test_pyright_has_nothing_against_the_examples():
    assert errors_of() == []


def test_pyright_has_nothing_against_the_scripts_of_the_pages(tmp_path):
    for page in PAGES:
        name = "_".join(page.relative_to(ROOT).with_suffix("").parts)
        (tmp_path / f"{name}.py").write_text(script_of(page), encoding="utf-8")
    config = {
        "typeCheckingMode": "basic", "reportMissingImports": "none", "extraPaths": [str(ROOT)]
    }  # fmt: skip
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    found = errors_of("-p", tmp_path)
    assert [error for error in found if error[:2] not in KNOWN] == []
    assert {error[:2] for error in found} == KNOWN.keys()


def test_what_is_wrong_is_found(tmp_path):
    wrong = "from trainer import PPOConfig\n\nPPOConfig().build_algo().tarin()\n"
    (tmp_path / "wrong.py").write_text(wrong)
    config = {"typeCheckingMode": "basic", "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    ((name, rule, _),) = errors_of("-p", tmp_path)
    assert (name, rule) == ("wrong", "reportAttributeAccessIssue")
