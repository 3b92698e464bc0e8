"""The place of a local worker process, under the name that `trainer.tune` imports it by."""

from __future__ import annotations

from trainer.runtime.local_engine import LocalPlace as WorkerSlot

__all__ = ["WorkerSlot"]
