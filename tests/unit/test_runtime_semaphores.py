"""Names of semaphores are removed once, whatever other threads remove meanwhile."""

from __future__ import annotations

import multiprocessing
from multiprocessing import util
from types import SimpleNamespace

import pytest

from trainer.runtime.process_start import NamedSemaphores


def test_a_finalizer_that_ran_meanwhile_in_another_thread_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = multiprocessing.get_context("spawn")
    semaphores = NamedSemaphores(context)
    lock = context.Lock()
    name = lock._semlock.name  # type: ignore[attr-defined]
    calls: list[str] = []
    left_over = SimpleNamespace(_args=None)  # what a finalizer leaves of itself
    registry = {"ran": left_over, "own": _Finalizer(name, calls)}
    monkeypatch.setattr(util, "_finalizer_registry", registry)
    semaphores.unlink()
    assert calls == [name]


class _Finalizer(SimpleNamespace):
    def __init__(self, name: str, calls: list[str]) -> None:
        super().__init__(_args=(name,))
        self._calls = calls

    def __call__(self) -> None:
        self._calls.extend(self._args)
