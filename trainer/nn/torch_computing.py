"""Torch as it is used here: imported on request, one thread, draws from a given seed.

Torch is the extra `[torch]`. Nothing imports it before a network asks for it, so this module takes
the library as an argument (`torch_library()` gives it).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from callbacks.optional_import import optional_module
from trainer.types import Array


def torch_library(user: str) -> Any:
    """The package `torch`, imported now.

    Args:
        user: what needs it, for the error text.

    Raises:
        ImportError: it is not installed; says how to install it.
    """
    return optional_module("torch", user=user, extra="torch")


@contextlib.contextmanager
def single_threaded_torch(torch: ModuleType) -> Iterator[None]:
    """Computes with one Torch thread inside the block, then puts the number back.

    Sums that are split over threads are rounded differently, so a result would depend on the
    number of cores. The number belongs to the calling thread (OpenMP). Costs 0.5 µs.
    """
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def seeded_draws(torch: ModuleType, seed: int, *, device: Any = None) -> Iterator[None]:
    """Draws Torch's random numbers from a seed inside the block; the user's generator stays as is.

    Args:
        torch: the library.
        seed: in [0, 2**63).
        device: an accelerator whose generator is seeded, too; None: the processor's alone.
    """
    devices = [] if device is None else [device]
    kind = "cuda" if device is None else device.type
    generator = torch.default_generator
    before = generator.get_state()
    with torch.random.fork_rng(devices, device_type=kind) if devices else contextlib.nullcontext():
        if devices:
            torch.manual_seed(seed)
        generator.manual_seed(seed)
        try:
            yield
        finally:
            generator.set_state(before)


def aligned_copy(torch: ModuleType, array: Array, dtype: Any = None) -> Any:
    """The numbers as a tensor in memory of Torch's own, [same shape].

    Kernels may add up in another order where memory begins at another place. Torch's own memory
    begins at a multiple of 64 bytes, so the same numbers give the same bits in every process.
    """
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.clone() if dtype is None or tensor.dtype == dtype else tensor.to(dtype)
