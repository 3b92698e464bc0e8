"""Files of `--config`: every name in them counts, and what is said twice must be the same."""

from __future__ import annotations

from pathlib import Path

from tests.command_line import run

OBJECT = """
from trainer import PPOConfig
config = PPOConfig().environment("CartPole-v1").training(lr=0.25)
"""


def test_a_config_object_of_another_algorithm_than_algo_is_refused(tmp_path: Path) -> None:
    (tmp_path / "object.py").write_text(OBJECT)
    words = ["train", "--config", "object.py", "--algo", "DQN", "--stop-iterations", "1"]
    error = run(*words, folder=tmp_path, code=1).stderr
    assert "object.py holds a PPOConfig, and --algo says DQN" in error
    assert "Leave one out" in error


def test_a_config_object_counts_if_algo_names_its_algorithm(tmp_path: Path) -> None:
    (tmp_path / "object.py").write_text(OBJECT.replace("lr=0.25", "lr=-1"))
    words = ["train", "--config", "object.py", "--algo", "PPO", "--stop-iterations", "1"]
    assert "lr" in run(*words, folder=tmp_path, code=1).stderr
