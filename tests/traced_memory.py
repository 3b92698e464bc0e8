"""How much memory a call takes, seen from a process whose other threads allocate, too."""

import tracemalloc

_NUM_TRIES = 3


def peak_bytes(act):
    """What a call takes at most beside what is there; Python's and NumPy's, of all threads."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def takes_less(num_bytes, act):
    """Whether a call that can be repeated takes less in one of three tries.

    What it needs itself it takes each time; what runs the tests receives a message once.
    """
    return any(peak_bytes(act) < num_bytes for _ in range(_NUM_TRIES))
