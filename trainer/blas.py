"""Functions of NumPy's own BLAS, found by the names that the common builds give them."""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_LOGGER = logging.getLogger(__name__)
_PREFIXES = ("scipy_", "")
_SUFFIXES = ("64_", "", "_64", "64")


class BlasFunctions(NamedTuple):
    """Functions by the names that they were asked by.

    Attributes:
        functions: as ctypes knows them, without types.
        has_64_bits: whether their integers have 64 bits, else 32.
    """

    functions: Sequence[Any]
    has_64_bits: bool


@functools.cache
def blas_functions(*names: str) -> BlasFunctions | None:
    """Functions such as "cblas_sgemm"; None if one of them is missing, in a BLAS we do not know."""
    # The extension module is linked against BLAS: a look-up in it searches its libraries, too.
    multiarray = getattr(np, "_core", None) or np.core
    try:
        library = ctypes.CDLL(multiarray._multiarray_umath.__file__)
    except OSError as error:
        _LOGGER.info("NumPy's BLAS cannot be reached: %s", error)
        return None
    for prefix in _PREFIXES:
        for suffix in _SUFFIXES:
            found = [getattr(library, f"{prefix}{name}{suffix}", None) for name in names]
            if all(function is not None for function in found):
                return BlasFunctions(found, "64" in suffix)
    return None


def blas_core() -> str:
    """The kind of processor whose instructions OpenBLAS takes; empty in a BLAS we do not know."""
    found = blas_functions("openblas_get_corename")
    if found is None:
        return ""
    (corename,) = found.functions
    corename.restype = ctypes.c_char_p
    return str(corename().decode())
