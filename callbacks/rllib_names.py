"""Old RLlib names of this package, for scripts that use them; nothing here adds behaviour.

`DefaultCallbacks` is `RLlibCallback`. `make_multi_callbacks` and `MultiCallbacks` chain classes,
which a list given to `config.callbacks([...])` does as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from callbacks.callback import RLlibCallback
from callbacks.chain import CallbackGroup, CallbackSpec

DefaultCallbacks = RLlibCallback
"""The old name of `RLlibCallback`."""


def make_multi_callbacks(callback_class_list: Sequence[Any]) -> type[RLlibCallback]:
    """A class whose objects pass every event to one object of each given class, in order.

    Args:
        callback_class_list: Callback classes, or functions without arguments that make callback
            objects.

    Raises:
        CallbackConfigError: An entry is unfit; all problems are listed.
    """
    spec = CallbackSpec(callback_class_list)

    class MultipleCallbacks(CallbackGroup):
        """The classes given to `make_multi_callbacks`, as one class."""

        def __init__(self) -> None:
            super().__init__(spec.classes)

    return MultipleCallbacks


class MultiCallbacks:
    """An object that poses as a class: calling it makes an object of each given class.

    Unlike RLlib's, which answers with itself, each call makes an object of its own: the algorithm
    and every runner in one process must not share what callbacks remember.

    Args:
        callback_class_list: Callback classes, or functions without arguments that make callback
            objects.

    Raises:
        CallbackConfigError: An entry is unfit; all problems are listed.
    """

    def __init__(self, callback_class_list: Sequence[Any]) -> None:
        self._spec = CallbackSpec(callback_class_list)

    def __call__(self) -> CallbackGroup:
        """An object that holds one new object of each class."""
        return CallbackGroup(self._spec.classes)
