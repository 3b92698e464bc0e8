"""What is told of replacements: all of training, of evaluation the first ones and some later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from trainer.runner_group.rounds import _is_told, _rarely_told


def place(num_restarts: int, *, in_evaluation: bool) -> Any:
    spec = SimpleNamespace(in_evaluation=in_evaluation)
    return SimpleNamespace(num_restarts=num_restarts, spec=spec)


def test_every_replacement_of_a_training_runner_is_told() -> None:
    assert all(_is_told(place(number, in_evaluation=False)) for number in range(1, 500))
    assert _rarely_told(place(100, in_evaluation=False)) == ""


def test_replacements_without_end_of_an_evaluation_runner_are_told_now_and_then() -> None:
    told = [number for number in range(1, 350) if _is_told(place(number, in_evaluation=True))]
    assert told == [*range(1, 21), 100, 200, 300]
    assert _rarely_told(place(19, in_evaluation=True)) == ""
    assert "replacement 20; from now on every 100th" in _rarely_told(place(20, in_evaluation=True))
