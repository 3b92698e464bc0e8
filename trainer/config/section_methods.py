"""The decorator that makes section methods, and the signatures that completion shows of them."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, Final, TypeVar, cast

from trainer.config.settings import NameTable, NotProvided

MethodT = TypeVar("MethodT", bound=Callable[..., Any])

SECTION_MARK: Final = "section_arguments"
"""The attribute that holds the names of the arguments of a section method."""

_RAISES: Final = """

Raises:
    UnknownSettingError: a setting does not exist.
"""


def section(method: MethodT) -> MethodT:
    """Make a method a section: it sets the settings named by its arguments and returns the config.

    Only arguments that were really given are set, so None is a value like any other. Unknown
    arguments raise `UnknownSettingError`, all of one call at once; old names are understood. The
    body of the method has nothing to do but `return self`; its docstring is completed here.
    """
    parameters = list(inspect.signature(method).parameters.values())[1:]
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    arguments = tuple(p.name for p in parameters if p.kind is not p.VAR_KEYWORD)
    name = method.__name__

    @functools.wraps(method)
    def set_arguments(config: Any, *args: Any, **given: Any) -> Any:
        if len(args) > len(positional):
            raise TypeError(
                f"{name}() takes {len(positional)} positional argument(s) "
                f"({', '.join(positional) or 'none'}), not {len(args)}. Give several things for "
                f"one argument as a list, {name}([a, b]), and other settings by name."
            )
        for argument, value in zip(positional, args, strict=False):
            if argument in given:
                raise TypeError(f"{name}() got two values for the argument `{argument}`")
            given[argument] = value
        config.set_from_section(name, given)
        return method(config)

    text = inspect.cleandoc(method.__doc__ or "")  # as Python 3.13 and later compile it
    set_arguments.__doc__ = text + _RAISES
    return cast(MethodT, _SectionMethod(set_arguments, arguments))


class _SectionMethod:
    """A section in the body of a class, found in each class with a signature of its own.

    What `help()` and completion show are all arguments that the class takes, with the defaults
    that they have there: `PPOConfig().training(` offers `lr=5e-05`, which PPO's own declaration
    leaves to that of all algorithms.

    Args:
        function: sets what it is given.
        arguments: the names in its declaration.
    """

    def __init__(self, function: Callable[..., Any], arguments: tuple[str, ...]) -> None:
        functools.update_wrapper(self, function)
        setattr(self, SECTION_MARK, arguments)
        self._function = function
        # By class: the names that it had when its function was made, and that function.
        self._functions: weakref.WeakKeyDictionary[type, tuple[NameTable | None, Any]] = (
            weakref.WeakKeyDictionary()
        )

    def __call__(self, *args: Any, **given: Any) -> Any:
        return self._function(*args, **given)

    def __get__(self, config: object | None, owner: type) -> Any:
        table: NameTable | None = getattr(owner, "_names", None)
        known, function = self._functions.get(owner, (None, None))
        if function is None or known is not table:  # names may be added to a class later
            function = self._shown_in(owner)
            self._functions[owner] = table, function
        return function if config is None else MethodType(function, config)

    def _shown_in(self, owner: type) -> Any:
        """A copy of the function with the signature of a class."""
        function: Any = self._function
        code, names = function.__code__, function.__globals__
        copy: Any = FunctionType(code, names, function.__name__, None, function.__closure__)
        functools.update_wrapper(copy, function)
        setattr(copy, SECTION_MARK, getattr(self, SECTION_MARK))
        copy.__signature__ = _signature_in(owner, function.__name__, inspect.signature(function))
        return copy


def _signature_in(owner: type, name: str, declared: inspect.Signature) -> inspect.Signature:
    """A section's own arguments, those it shares with the classes above, and what else it takes."""
    table: NameTable = getattr(owner, "_names", NameTable({}, {}))
    own = list(declared.parameters.values())
    rest = [own.pop()] if own[-1].kind is inspect.Parameter.VAR_KEYWORD else []
    shared = [
        parameter
        for ancestor in owner.__mro__
        if isinstance(member := vars(ancestor).get(name), _SectionMethod)
        for parameter in inspect.signature(member._function).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    known = {parameter.name: parameter for parameter in [*reversed(shared), *own]}
    first = [parameter.name for parameter in own]
    order = [*first, *dict.fromkeys(each.name for each in shared if each.name not in first)]
    shown = [
        known[argument].replace(default=table.settings[argument].default)
        if argument in table.settings and known[argument].default is NotProvided
        else known[argument]
        for argument in order
    ]
    return declared.replace(parameters=[*shown, *rest])


def section_methods(cls: type) -> dict[str, list[Callable[..., Any]]]:
    """The methods of each section of a class, those of subclasses first."""
    found: dict[str, list[Callable[..., Any]]] = {}
    for ancestor in cls.__mro__:
        for name, member in vars(ancestor).items():
            if hasattr(member, SECTION_MARK):
                found.setdefault(name, []).append(member)
    return found
