"""Arrays are shown live to who saves them at once, and to no one else, whatever happens."""

import sys

import numpy as np
import pytest

from checkpoints import live_arrays, state_array
from checkpoints.live_arrays import live_state

ARRAY = np.zeros(3)


def interrupted_at(number):
    """Calls `live_state` with an interrupt at its n-th event; whether it came so far."""
    left = [number]

    def trace(frame, event, argument):
        if frame.f_code.co_filename != live_arrays.__file__:
            return None
        left[0] -= 1
        if left[0] < 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        live_state(lambda: state_array(ARRAY))
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_arrays_are_shown_within_and_copied_outside():
    assert live_state(lambda: state_array(ARRAY)) is ARRAY
    assert state_array(ARRAY) is not ARRAY


def test_an_error_within_leaves_them_copied():
    with pytest.raises(ZeroDivisionError):
        live_state(lambda: 1 // 0)
    assert state_array(ARRAY) is not ARRAY


def test_an_interrupt_at_any_moment_leaves_them_copied():
    num_moments = 0
    while interrupted_at(num_moments):
        num_moments += 1
        assert state_array(ARRAY) is not ARRAY
    assert num_moments > 5
