"""What is deprecated works as before, warns each line that uses it, and says what to write."""

import warnings

import pytest

from trainer import TrainerDeprecationWarning
from trainer_toolkit.deprecation import deprecated, deprecated_argument


@deprecated(since="1.2", gone_in="2.0", instead="Write `added(a, b)`.")
def total(a, b=1):
    """Adds."""
    return a + b


class Door:
    @deprecated(since="1.3", gone_in="2.0", instead="Write `is_open`.")
    def opened(self):
        return True

    @property
    @deprecated(since="1.3", gone_in="2.0", instead="Write `width_m`.")
    def width(self):
        return 2.0


@deprecated_argument("timeout", becomes="timeout_s", since="1.2", gone_in="2.0")
@deprecated_argument(
    "verbose", since="1.4", gone_in="3.0", instead="Leave it out: it had no effect."
)
def wait(name, *, timeout_s=60.0):
    return name, timeout_s


def told(call):
    """What a call returns, and the warnings that it gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = call()
    assert all(one.category is TrainerDeprecationWarning for one in caught)
    assert all(one.filename == __file__ for one in caught)  # the line of the caller
    return answer, [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("call", "expected", "warning"),
    [
        (
            lambda: total(2, b=3), 5,
            "`total()` is deprecated since local-trainer 1.2 and gone in 2.0. "
            "Write `added(a, b)`.",
        ),
        (
            lambda: Door().opened(), True,
            "`Door.opened()` is deprecated since local-trainer 1.3 and gone in 2.0. "
            "Write `is_open`.",
        ),
        (
            lambda: Door().width, 2.0,
            "`Door.width()` is deprecated since local-trainer 1.3 and gone in 2.0. "
            "Write `width_m`.",
        ),
        (
            lambda: wait("x", timeout=5.0), ("x", 5.0),
            "The argument `timeout` of `wait()` is deprecated since local-trainer 1.2 and gone in "
            "2.0. Write `timeout_s=`.",
        ),
        (
            lambda: wait("x", verbose=True), ("x", 60.0),
            "The argument `verbose` of `wait()` is deprecated since local-trainer 1.4 and gone in "
            "3.0. Leave it out: it had no effect.",
        ),
    ],
)  # fmt: skip
def test_it_works_as_before_and_says_what_to_write(call, expected, warning):
    assert told(call) == (expected, [warning])


def test_who_writes_the_new_name_is_not_warned():
    assert told(lambda: wait("x", timeout_s=5.0)) == (("x", 5.0), [])


def test_both_names_of_one_argument_are_refused():
    with pytest.raises(TypeError, match="both `timeout` and `timeout_s`"):
        wait("x", timeout=1.0, timeout_s=2.0)


def test_each_line_is_warned_once():
    """By the filter that Python has without options: nothing else is needed for it to be seen."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            total(1)
            total(2)
    lines = [one.lineno for one in caught]
    assert len(lines) == 2
    assert lines[1] == lines[0] + 1


def test_the_category_can_be_filtered():
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrainerDeprecationWarning)
        with pytest.raises(TrainerDeprecationWarning):
            total(1)
        warnings.simplefilter("ignore", TrainerDeprecationWarning)
        assert total(1) == 2


def test_the_docstring_and_the_name_stay():
    assert (total.__name__, total.__doc__) == ("total", "Adds.")
