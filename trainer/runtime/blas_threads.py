"""One BLAS thread while we compute: results do not depend on the number of cores.

A matrix product that BLAS splits over threads may be rounded differently, so a result that is to be
equal in a worker process (one thread) and in the main process (as many as there are cores) has to
be computed with the same number. Small matrices are faster so, too. NumPy offers no function for
that; its BLAS does, found here by the names that the common builds give it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
from collections.abc import Callable, Iterator

import numpy as np

_LOGGER = logging.getLogger(__name__)

_PREFIXES = ("scipy_openblas_", "openblas_")
_SUFFIXES = ("64_", "", "_64", "64")


@functools.cache
def _thread_functions() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """The getter and setter of BLAS' number of threads; None for a BLAS that we do not know."""
    # The extension module is linked against BLAS: a look-up in it searches its libraries, too.
    multiarray = getattr(np, "_core", None) or np.core
    try:
        library = ctypes.CDLL(multiarray._multiarray_umath.__file__)
    except OSError as error:
        _LOGGER.info("BLAS cannot be reached, its number of threads stays as it is: %s", error)
        return None
    for prefix in _PREFIXES:
        for suffix in _SUFFIXES:
            getter = getattr(library, f"{prefix}get_num_threads{suffix}", None)
            setter = getattr(library, f"{prefix}set_num_threads{suffix}", None)
            if getter is not None and setter is not None:
                getter.restype, getter.argtypes = ctypes.c_int, []
                setter.restype, setter.argtypes = None, [ctypes.c_int]
                return getter, setter
    _LOGGER.info(
        "This NumPy uses a BLAS other than OpenBLAS: its number of threads stays as it is."
    )
    return None


def set_blas_threads(number: int) -> int | None:
    """Sets the number of BLAS threads of this process.

    Returns:
        the number before; None where it is not known.
    """
    functions = _thread_functions()
    if functions is None:
        return None
    getter, setter = functions
    before = getter()
    if before != number:
        setter(number)
    return before


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Computes with one BLAS thread inside the block, then puts the number back (about 1 µs)."""
    before = set_blas_threads(1)
    try:
        yield
    finally:
        if before is not None:
            set_blas_threads(before)
