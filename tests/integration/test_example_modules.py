"""The example with networks written by a user runs, and what it trains learns."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


def test_modules_of_users_are_checked_and_learn_with_ppo_and_dqn(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "custom_module.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    returns = dict(re.findall(r"^(PPO|DQN), \w+: return (-?[\d.]+)$", done.stdout, re.MULTILINE))
    assert float(returns["PPO"]) > 0.5  # -0.3 without learning
    assert float(returns["DQN"]) > 0.9  # 0.5 without memory
