"""What a script imports, uses and sets, read from its source; nothing of it is run."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trainer.old_names import OLD_NAMES
from trainer.rllib_scripts.example_scripts import add_rllib_example_script_args
from trainer.rllib_scripts.names_of_ray import RAY, home_of_module


@dataclass(frozen=True)
class Use:
    """A name that a script imports, or looks up in a module that it has imported.

    Attributes:
        line: where it stands.
        module: the module, its full name.
        name: in it; empty: the module itself.
        is_optional: it stands where an ImportError is caught.
        is_late: it stands in a function or behind a condition.
    """

    line: int
    module: str
    name: str = ""
    is_optional: bool = False
    is_late: bool = False


@dataclass(frozen=True)
class SectionCall:
    """A method that a script calls on a config, or a dict config.

    Attributes:
        line: where it stands.
        config: the config's class, a full name in Ray.
        name: of the method, or one of `CONFIGS_OF_TUNE`; empty: a dict config was given.
        given: its arguments by name: values where they are known without running anything.
        unknown: names of those that are not.
    """

    line: int
    config: str
    name: str
    given: Mapping[str, Any]
    unknown: tuple[str, ...]


CONFIGS_OF_TUNE: Final = frozenset({"RunConfig", "CheckpointConfig", "TuneConfig"})
"""Classes of Ray Tune whose arguments are read."""


@dataclass(frozen=True)
class OwnClass:
    """A class that a script defines.

    Attributes:
        name: its name.
        line: where it begins.
        bases: full names of classes of Ray that it derives from.
        methods: lines of what its body defines, by name.
    """

    name: str
    line: int
    bases: frozenset[str]
    methods: Mapping[str, int]


@dataclass
class Script:
    """What one file says.

    Attributes:
        path: of the file.
        uses: of modules and names, in order.
        calls: of methods of configs.
        classes: that it defines.
        attributes: lines of names that are looked up in objects, by name.
        remote_functions: lines of functions that are to be run on a cluster.
        generators: lines of functions for env runners whose answer cannot be sent.
        components: lines of parts of checkpoints, by RLlib's path, that are to be restored alone.
    """

    path: Path
    uses: list[Use] = field(default_factory=list)
    calls: list[SectionCall] = field(default_factory=list)
    classes: dict[str, OwnClass] = field(default_factory=dict)
    attributes: dict[str, int] = field(default_factory=dict)
    remote_functions: list[int] = field(default_factory=list)
    generators: list[int] = field(default_factory=list)
    components: list[int] = field(default_factory=list)


def read_script(path: Path) -> Script:
    """Reads one file.

    Raises:
        OSError: it cannot be read.
        SyntaxError: it is no Python.
    """
    tree = ast.parse(path.read_bytes(), filename=str(path))
    reader = _Reader(path, _arguments(tree))
    reader.visit(tree)
    return reader.script


# ---- values


class _UnknownValueError(Exception):
    """A value depends on what happens when the script runs."""


_OPERATORS: Final[Mapping[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


class _Values:
    """Computes values from constants and the defaults of a script's arguments."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self.constants: dict[str, Any] = {}

    def of(self, node: ast.expr | None) -> Any:
        """The value of an expression; raises `_UnknownValueError`."""
        compute = getattr(self, f"_{type(node).__name__.lower()}", None)
        if compute is None:
            raise _UnknownValueError
        try:
            return compute(node)
        except (ArithmeticError, TypeError, ValueError, LookupError) as error:
            raise _UnknownValueError from error

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        return self.constants[node.id]

    def _attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id.endswith("args"):
            return self._arguments[node.attr]
        raise _UnknownValueError

    def _list(self, node: ast.List) -> Any:
        return [self.of(each) for each in node.elts]

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.of(each) for each in node.elts)

    def _dict(self, node: ast.Dict) -> Any:
        pairs = zip(node.keys, node.values, strict=True)
        return {self.of(key): self.of(value) for key, value in pairs}

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        return _OPERATORS[type(node.op)](self.of(node.operand))

    def _binop(self, node: ast.BinOp) -> Any:
        left, right = self.of(node.left), self.of(node.right)
        if any(not isinstance(side, int | float) for side in (left, right)):
            raise _UnknownValueError
        return _OPERATORS[type(node.op)](left, right)

    def _boolop(self, node: ast.BoolOp) -> Any:
        decides = bool if isinstance(node.op, ast.Or) else operator.not_
        for each in node.values[:-1]:
            value = self.of(each)
            if decides(value):
                return value
        return self.of(node.values[-1])

    def _compare(self, node: ast.Compare) -> Any:
        if len(node.ops) != 1:
            raise _UnknownValueError
        return _OPERATORS[type(node.ops[0])](self.of(node.left), self.of(node.comparators[0]))

    def _ifexp(self, node: ast.IfExp) -> Any:
        return self.of(node.body if self.of(node.test) else node.orelse)


def _arguments(tree: ast.Module) -> dict[str, Any]:
    """The defaults of the arguments that a script reads from its command line."""
    found: dict[str, Any] = {}
    values = _Values({})
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        keywords = {each.arg: each.value for each in call.keywords if each.arg}
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name == "add_rllib_example_script_args":
            found = {**vars(add_rllib_example_script_args().parse_args([])), **found}
        elif name == "set_defaults":
            found.update(_known(values, keywords))
        elif name == "add_argument":
            found.update(_argument(values, call, keywords))
    return found


def _argument(
    values: _Values, call: ast.Call, keywords: Mapping[str, ast.expr]
) -> Iterator[tuple[str, Any]]:
    known = _known(values, keywords)
    flags = [each.value for each in call.args if isinstance(each, ast.Constant)]
    long = [flag for flag in flags if isinstance(flag, str) and flag.startswith("--")]
    name = known.get("dest") or (long[0][2:].replace("-", "_") if long else "")
    default = False if known.get("action") == "store_true" else None
    if name and ("default" in known or "default" not in keywords):
        yield str(name), known.get("default", default)


def _known(values: _Values, keywords: Mapping[str, ast.expr]) -> dict[str, Any]:
    found = {}
    for name, node in keywords.items():
        try:
            found[name] = values.of(node)
        except _UnknownValueError:
            continue
    return found


# ---- reading

_CAUGHT: Final = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
_CONFIG_OF_ALL: Final = "ray.rllib.algorithms.algorithm_config.AlgorithmConfig"
_GIVES_CONFIG: Final = "get_default_config"
_LEARNER_GROUP: Final = "learner_group"
_ALGORITHMS: Final = (
    *("PPO", "APPO", "IMPALA", "PG", "DQN", "SAC", "TD3", "DDPG"),
    *("BC", "MARWIL", "CQL"),
)
_OLD_ENDING: Final = "Trainer"
"""Of the names of algorithms in RLlib before 2.0."""
_TAKE_DICTS: Final = ("run", "Tuner", "run_experiments")


class _Reader(ast.NodeVisitor):
    """Walks over one file once, in order."""

    def __init__(self, path: Path, arguments: Mapping[str, Any]) -> None:
        self.script = Script(path)
        self._values = _Values(arguments)
        self._algorithm = str(arguments.get("algo") or "PPO")
        self._bound: dict[str, str] = {}  # names of the script, and what they are in Ray
        self._configs: dict[str, str] = {}  # variables, and classes of the configs they hold
        self._dicts: dict[str, ast.Dict] = {}  # variables, and the dicts that they are
        self._num_catching = self._num_functions = self._num_conditions = 0

    # ---- imports

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._note_use(node.lineno, alias.name)
            if alias.name.partition(".")[0] == RAY:
                self._bound[alias.asname or RAY] = alias.name if alias.asname else RAY

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            self._note_use(node.lineno, module, alias.name)
            if module.partition(".")[0] == RAY:
                self._bound[alias.asname or alias.name] = f"{module}.{alias.name}"

    def _note_use(self, line: int, module: str, name: str = "") -> None:
        is_optional = self._num_catching > 0
        is_late = self._num_functions > 0 or self._num_conditions > 0
        self.script.uses.append(Use(line, module, name, is_optional, is_late))

    def visit_Try(self, node: ast.Try) -> None:
        names = {
            getattr(each, "id", getattr(each, "attr", ""))
            for handler in node.handlers
            for each in ast.walk(handler.type or ast.Name("Exception"))
        }
        self._num_catching += bool(names & _CAUGHT)
        for statement in node.body:
            self.visit(statement)
        self._num_catching -= bool(names & _CAUGHT)
        for behind in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(behind)

    def visit_If(self, node: ast.If) -> None:
        names = {getattr(each, "id", getattr(each, "attr", "")) for each in ast.walk(node.test)}
        if "TYPE_CHECKING" in names:
            statements = node.orelse
        else:
            self.visit(node.test)
            statements = [*node.body, *node.orelse]
        is_open = "__name__" not in names
        self._num_conditions += is_open
        for statement in statements:
            self.visit(statement)
        self._num_conditions -= is_open

    # ---- definitions

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self._dotted(called) == f"{RAY}.remote":
                self.script.remote_functions.append(node.lineno)
        self._num_functions += 1
        self.generic_visit(node)
        self._num_functions -= 1

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        bases: set[str] = set()
        for base in node.bases:
            name = base.id if isinstance(base, ast.Name) else ""
            own = self.script.classes.get(name)
            bases |= own.bases if own else {self._dotted(base)} - {""}
        methods = {
            each.name: each.lineno for each in node.body if isinstance(each, ast.FunctionDef)
        }
        self.script.classes[node.name] = OwnClass(node.name, node.lineno, frozenset(bases), methods)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        config = self._config_of(node.value)
        for name in names:
            if config:
                self._configs[name] = config
            elif isinstance(node.value, ast.Dict):
                self._dicts[name] = node.value
            elif not self._num_functions and isinstance(node.value, ast.Constant):
                self._values.constants[name] = node.value.value

    # ---- uses

    def visit_Attribute(self, node: ast.Attribute) -> None:
        dotted = self._dotted(node)
        if dotted:
            self._note_dotted(node.lineno, dotted)
        else:
            line = node.end_lineno or node.lineno
            self.script.attributes.setdefault(node.attr, line)
            self.generic_visit(node)

    def _note_dotted(self, line: int, dotted: str) -> None:
        module, *rest = dotted.split(".")
        while rest and home_of_module(f"{module}.{rest[0]}").is_module:
            module = f"{module}.{rest.pop(0)}"
        if rest and not self._is_imported(dotted):
            self._note_use(line, module, rest[0])
        elif dotted in OLD_NAMES.other_ways:  # a member of a class that is here
            self._note_use(line, *dotted.rsplit(".", 1))

    def _is_imported(self, dotted: str) -> bool:
        """Whether it is a member of a name that was imported, which was noted there."""
        parts = dotted.split(".")
        inner = {".".join(parts[:n]) for n in range(2, len(parts) + 1)}
        return any(
            bound in inner and not home_of_module(bound).is_module for bound in self._bound.values()
        )

    def _dotted(self, node: ast.AST) -> str:
        """The full name in Ray of an expression of names and dots; empty for any other."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        root = self._bound.get(node.id, "") if isinstance(node, ast.Name) else ""
        return ".".join([root, *names]) if root else ""

    # ---- configs

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        self._note_dict_config(node)
        called = self._dotted(node.func)
        if called.rpartition(".")[2] in CONFIGS_OF_TUNE:
            self._note_call(node, called, called.rpartition(".")[2], node.lineno)
        if not isinstance(node.func, ast.Attribute):
            return
        if node.func.attr.startswith("foreach_"):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            functions = [each for each in given if isinstance(each, ast.Lambda)]
            self.script.generators += [
                each.lineno for each in functions if isinstance(each.body, ast.GeneratorExp)
            ]
        self.script.components += [
            each.value.lineno
            for each in node.keywords
            if each.arg == "component" and _LEARNER_GROUP in ast.unparse(each.value).lower()
        ]
        config = self._config_of(node.func.value)
        if config:
            line = node.func.end_lineno or node.lineno
            self._note_call(node, config, node.func.attr, line)

    def _note_call(self, node: ast.Call, config: str, name: str, line: int) -> None:
        known, unknown = self._given([(each.arg, each.value) for each in node.keywords])
        self.script.calls.append(SectionCall(line, config, name, known, unknown))

    def _note_dict_config(self, node: ast.Call) -> None:
        """Settings in `tune.run("PPO", config={…})`, `Tuner("PPO", param_space=…)`, `PPO(…)`."""
        called = self._dotted(node.func)
        name = called.rpartition(".")[2].removesuffix(_OLD_ENDING)
        if name not in (*_TAKE_DICTS, *_ALGORITHMS):
            return
        given = {each.arg: each.value for each in node.keywords}
        value = given.get("config") or given.get("param_space")
        if isinstance(value, ast.Name):
            value = self._dicts.get(value.id)
        if not isinstance(value, ast.Dict):
            return
        config = f"{called.removesuffix(_OLD_ENDING)}Config" if name in _ALGORITHMS else ""
        if not config and node.args:
            config = self._config_of_algorithm(node.args[0])
        keys = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
        for key, entry in zip(keys, value.values, strict=True):
            known, unknown = self._given([(key, entry)] if isinstance(key, str) else [])
            self.script.calls.append(SectionCall(entry.lineno, config, "", known, unknown))

    def _given(
        self, pairs: list[tuple[str | None, ast.expr]]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The values of arguments that are known, and the names of the others."""
        known: dict[str, Any] = {}
        unknown: list[str] = []
        for name, node in pairs:
            try:
                value = self._values.of(node)
                known.update(value if name is None else {name: value})
            except _UnknownValueError:
                unknown += [name] if name else []
        return known, tuple(unknown)

    def _config_of(self, node: ast.expr) -> str:
        """The class of the config that an expression gives; empty if it gives none."""
        if isinstance(node, ast.Name):
            return self._configs.get(node.id, "")
        if not isinstance(node, ast.Call):
            return ""
        dotted = self._dotted(node.func)
        if dotted:
            return dotted if dotted.endswith("Config") and ".algorithms." in dotted else ""
        if isinstance(node.func, ast.Name):
            own = self.script.classes.get(node.func.id)
            bases = [] if own is None else [each for each in own.bases if each.endswith("Config")]
            return next(iter(bases), "")
        if isinstance(node.func, ast.Attribute) and node.func.attr == _GIVES_CONFIG:
            return self._default_config(node.func.value)
        is_method = isinstance(node.func, ast.Attribute) and not node.func.attr.startswith("build")
        return self._config_of(node.func.value) if is_method else ""  # type: ignore[attr-defined]

    def _default_config(self, node: ast.expr) -> str:
        """The config's class behind `PPO.get_default_config()` and `get_trainable_cls(name)…`."""
        is_call = isinstance(node, ast.Call) and node.args
        return self._config_of_algorithm(node.args[0] if is_call else node)  # type: ignore[attr-defined]

    def _config_of_algorithm(self, node: ast.expr) -> str:
        """The config's class of an algorithm, given by its class or its name."""
        dotted = self._dotted(node)
        try:
            algorithm = dotted.rpartition(".")[2] or str(self._values.of(node))
        except _UnknownValueError:
            algorithm = self._algorithm
        name = algorithm.removesuffix(_OLD_ENDING).upper()
        if name not in _ALGORITHMS:
            return _CONFIG_OF_ALL
        return f"ray.rllib.algorithms.{name.lower()}.{name}Config"
