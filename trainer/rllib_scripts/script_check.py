"""What becomes of a script written for RLlib: findings with lines, and one verdict.

The script is read, never run; so are files beside it and RLlib's own examples that it imports.
What is refused, and why, is asked of those who refuse: the config, the tables of old names, the
table of Ray's names.
"""

from __future__ import annotations

import enum
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

from callbacks.events import EVENTS, unknown_event_text
from trainer.config import AlgorithmConfig
from trainer.config.settings import Problem, unused_problems, value_problems
from trainer.config.validation import module_problems
from trainer.errors import ConfigError, TrainerError
from trainer.name_resolution import PROGRAM, imported
from trainer.old_names import OLD_NAMES
from trainer.rllib_scripts.import_hook import find_example
from trainer.rllib_scripts.names_of_ray import (
    RAY,
    Home,
    home,
    home_of_module,
    is_example,
)
from trainer.rllib_scripts.script_reading import (
    CONFIGS_OF_TUNE,
    OwnClass,
    Script,
    SectionCall,
    Use,
    read_script,
)


class Fate(str, enum.Enum):
    """What a finding means for a script, and what becomes of the script."""

    HERE = "here"
    """It is here: the script runs as it is, through the hook."""
    NOTE = "note"
    """It depends on what happens when the script runs."""
    CHANGE = "change"
    """It is not here, and something small can be written instead."""
    STOP = "stop"
    """It is not here, and nothing small takes its place."""


@dataclass(frozen=True)
class ScriptFinding:
    """One thing that a script needs of Ray.

    Attributes:
        path: of the file in which it stands.
        line: its line.
        what: as it is written there.
        fate: what becomes of it.
        told: where it is here; or why it is not, and what to write instead.
    """

    path: str
    line: int
    what: str
    fate: Fate
    told: str


_WORDS: Final = {
    Fate.HERE: "runs as it is (through the hook)",
    Fate.CHANGE: "runs after these changes",
    Fate.STOP: "does not run",
}


@dataclass(frozen=True)
class ScriptReport:
    """What becomes of one script.

    Attributes:
        path: of the script.
        findings: all of them, by file and line.
    """

    path: str
    findings: tuple[ScriptFinding, ...]

    @property
    def fate(self) -> Fate:
        """Of the script: `HERE`, `CHANGE` or `STOP`."""
        fates = {finding.fate for finding in self.findings}
        return next((fate for fate in (Fate.STOP, Fate.CHANGE) if fate in fates), Fate.HERE)

    @property
    def verdict(self) -> str:
        """One sentence: whether it runs, and if not, for what."""
        decisive = [finding for finding in self.findings if finding.fate is self.fate]
        if self.fate is Fate.HERE:
            return f"{_WORDS[self.fate]}."
        named = dict.fromkeys(finding.what for finding in decisive)
        return f"{_WORDS[self.fate]}: {', '.join(named)}."


def check_script(path: str | Path) -> ScriptReport:
    """Says what becomes of a script, without running it.

    Args:
        path: of the script.

    Raises:
        ConfigError: it is no Python of this version.
        OSError: it cannot be read.
    """
    files = _Files(Path(path))
    scripts = files.read()
    used = {*scripts[0].classes}
    for script in scripts:
        if script.path.name != "__init__.py":  # which offers what others may want
            used |= {use.name for use in script.uses}
    found = {
        (finding.line, finding.what, finding.path): finding
        for script in scripts
        for finding in (*files.findings.get(script.path, ()), *_findings(script, used))
    }
    order = {str(script.path): position for position, script in enumerate(files.scripts)}
    listed = sorted(found.values(), key=lambda finding: (order[finding.path], finding.line))
    return ScriptReport(str(path), tuple(listed))


# ---- files


class _Files:
    """The script and the files that it imports; attributes are filled by `read()`."""

    def __init__(self, path: Path) -> None:
        self.scripts: list[Script] = []
        self.findings: dict[Path, list[ScriptFinding]] = {}
        self._first = path
        self._seen = {path.resolve()}

    def read(self) -> list[Script]:
        """All of them, the script first."""
        waiting = [self._first]
        while waiting:
            path = waiting.pop(0)
            try:
                script = read_script(path)
            except (SyntaxError, ValueError) as error:
                raise ConfigError(f"{path} is no Python of this version: {error}") from error
            self.scripts.append(script)
            for use in script.uses:
                waiting += self._imported_by(script, use)
        return self.scripts

    def _imported_by(self, script: Script, use: Use) -> Iterator[Path]:
        """The files that an import leads to; notes what is not found."""
        if use.module.partition(".")[0] == RAY:
            found = self._example(script, use)
        else:
            found = self._beside(script, use)
        for path in found:
            if path.resolve() not in self._seen:
                self._seen.add(path.resolve())
                yield path

    def _example(self, script: Script, use: Use) -> Iterator[Path]:
        if not is_example(use.module):
            return
        parts = use.module.split(".")
        names = [".".join(parts[:n]) for n in range(3, len(parts) + 1)]
        inner = f"{use.module}.{use.name}"
        specs = [spec for spec in map(find_example, [*names, inner]) if spec is not None]
        if find_example(use.module) is None:
            self.findings.setdefault(script.path, []).append(_of_use(str(script.path), use))
        for spec in specs:
            if spec.origin is not None:
                yield Path(spec.origin)

    def _beside(self, script: Script, use: Use) -> Iterator[Path]:
        """Modules in the folder of the script; notes a package that is not installed."""
        folder = self._first.parent
        dots = len(use.module) - len(use.module.lstrip("."))
        if dots:
            folder = script.path.parent if dots == 1 else script.path.parents[dots - 1]
        parts = [part for part in [*use.module.lstrip(".").split("."), use.name] if part]
        folders = [str(folder)]
        for number, part in enumerate(parts):
            spec = PathFinder.find_spec(part, folders)
            if spec is None and not number and not dots:
                self._note_missing(script, use, part)
            if spec is None:
                break
            if spec.origin is not None and spec.origin.endswith(".py"):
                yield Path(spec.origin)
            folders = list(spec.submodule_search_locations or [])
            if not folders:
                break

    def _note_missing(self, script: Script, use: Use, package: str) -> None:
        is_there = package in sys.modules or importlib.util.find_spec(package)
        if is_there or use.is_optional:
            return
        fate = Fate.NOTE if use.is_late else Fate.CHANGE
        told = "this package is not installed here."
        noted = ScriptFinding(str(script.path), use.line, f"import {package}", fate, told)
        self.findings.setdefault(script.path, []).append(noted)


# ---- findings


_COMPONENT: Final = (
    "there is one learner: the component is `learner/rl_module`, with several modules "
    "`learner/MODULE_ID/rl_module`."
)
_GENERATOR: Final = "what a function returns is sent to the main process: write a list, [… for …]."


def _findings(script: Script, used: Collection[str]) -> Iterator[ScriptFinding]:
    path = str(script.path)
    for use in script.uses:
        if use.module.partition(".")[0] == RAY and not is_example(use.module):
            yield _of_use(path, use)
    for call in script.calls:
        for what, told, fate in _of_call(call):
            yield ScriptFinding(path, call.line, what, fate, told)
    for own in script.classes.values():
        if own.name in used:
            yield from _of_class(path, own)
    for line in script.generators:
        yield ScriptFinding(path, line, "a generator for env runners", Fate.CHANGE, _GENERATOR)
    for line in script.components:
        yield ScriptFinding(path, line, "component=…", Fate.CHANGE, _COMPONENT)
    for line in script.remote_functions:
        told = "functions are not run on a cluster; call it, or make it a method of an actor."
        yield ScriptFinding(path, line, "@ray.remote on a function", Fate.CHANGE, told)
    for name, line in script.attributes.items():
        for told, fate in _of_member(name):
            yield ScriptFinding(path, line, f".{name}", fate, told)


_NEED_PANDAS: Final = frozenset(
    {"get_dataframe", "dataframe", "metrics_dataframe", "trial_dataframes", "results_df"}
    | {"best_dataframe", "best_result_df"}
)
"""Members of results that need a package which is none of the dependencies."""


def _of_member(name: str) -> Iterator[tuple[str, Fate]]:
    """What is to be said of a name that is looked up in an object of whatever class."""
    if name in _NEED_PANDAS and importlib.util.find_spec("pandas") is None:
        yield "it needs pandas, which is not installed here.", Fate.CHANGE
    if advice := OLD_NAMES.members.get(name):
        yield f"{advice}.", Fate.CHANGE


def _of_use(path: str, use: Use) -> ScriptFinding:
    found = home(use.module, use.name) if use.name else home_of_module(use.module)
    what = f"{use.module}.{use.name}".rstrip(".")
    return ScriptFinding(path, use.line, what, _fate_of(found, use), _told(found))


def _fate_of(found: Home, use: Use) -> Fate:
    if found.is_here:
        return Fate.HERE
    if use.is_optional:
        return Fate.NOTE
    return Fate.CHANGE if found.has_other else Fate.STOP


def _told(found: Home) -> str:
    if not found.is_here:
        return found.sentence
    module, _, name = found.place.partition(":")
    return f"`from {module} import {name}`." if name else "a module."


# ---- configs

_SETTINGS_UNREAD: Final = ("learners", "framework", "api_stack", "checkpointing", "experimental")
"""Section methods whose settings nothing here reads, so that no section of ours declares them."""
_DATA: Final = "recorded data"


def _sections() -> frozenset[str]:
    declared = {row.section for row in AlgorithmConfig.describe_settings()}
    return frozenset({*declared, *OLD_NAMES.sections, *_SETTINGS_UNREAD})


def _of_call(call: SectionCall) -> Iterator[tuple[str, str, Fate]]:
    """What is wrong with a call of a config's method: what, why, and how bad it is."""
    if call.name in CONFIGS_OF_TUNE:
        yield from _of_tune_config(call)
        return
    if call.name in OLD_NAMES.refused_sections:
        advice = OLD_NAMES.refused_sections[call.name]
        yield f"{call.name}()", advice, _fate_of_setting(advice)
        return
    config_class = _config_class(call.config)
    if config_class is None or (call.name and call.name not in _sections()):
        return
    values = [*call.given.items(), *((name, _Unknown()) for name in call.unknown)]
    for name, value in values:
        what = f"{call.name}({name}=…)" if call.name else f'"{name}": …'
        for told in _problems(config_class, call.name, name, value):
            yield what, told, _fate_of_setting(told)


def _of_tune_config(call: SectionCall) -> Iterator[tuple[str, str, Fate]]:
    """What the arguments of `RunConfig(…)` and its like are refused for, one by one."""
    made = imported(f"trainer.tune:{call.name}", source=PROGRAM, place=call.config)
    for name in call.unknown:
        if name not in inspect.signature(made).parameters:
            yield f"{call.name}({name}=…)", "there is no such argument.", Fate.CHANGE
    for name, value in call.given.items():
        try:
            made(**{name: value})
        except (TypeError, TrainerError) as error:
            yield f"{call.name}({name}=…)", str(error), Fate.CHANGE


def _config_class(dotted: str) -> type[AlgorithmConfig] | None:
    place = _place(dotted)
    found = imported(place, source=PROGRAM, place=dotted) if place else None
    return found if isinstance(found, type) and issubclass(found, AlgorithmConfig) else None


class _Unknown:
    """Stands for a value that is known when the script runs."""

    def __repr__(self) -> str:
        return "…"


def _problems(
    config_class: type[AlgorithmConfig], section: str, name: str, value: Any
) -> Iterator[str]:
    """What one argument of a section method, or of a dict config, is refused for."""
    config = config_class()
    unused = OLD_NAMES.unused_setting(name)
    if isinstance(value, _Unknown) and unused and OLD_NAMES.unused_settings[unused].is_refused:
        yield f"not offered in this version. {OLD_NAMES.unused_settings[unused].reason}"
        return
    try:
        if section:
            getattr(config, section)(**{name: value})
        else:
            config.update_from_dict({name: value})
    except ConfigError as error:
        yield _first_problem(str(error))
        return
    except Exception:  # noqa: BLE001 - what stands for a value is none; names were looked at
        return
    if isinstance(value, _Unknown):
        return
    for problem in _value_problems(config):
        yield f"{problem.expected} {problem.advice}".strip()


def _value_problems(config: AlgorithmConfig) -> Iterator[Problem]:
    """What is wrong with single values; rules between settings are for the run to judge."""
    values = config.changed_settings()
    settings = {name: getattr(type(config), name) for name in values}
    yield from value_problems(settings, values)
    yield from unused_problems(config.unused_settings())
    if "model_config" in values:
        yield from module_problems(config)


def _first_problem(text: str) -> str:
    """Of an error that lists problems, what the first one says behind its name."""
    line = text.splitlines()[-1].strip().removeprefix("1. ")
    return line.partition("`: ")[2] or line


def _fate_of_setting(told: str) -> Fate:
    return Fate.STOP if _DATA in told else Fate.CHANGE


# ---- classes

_OWN_POLICY: Final = (
    "policies of your own are modules here: write a `TorchRLModule`, or an `RLModule` with "
    "`forward_acting` (docs/modules.md)."
)
_GIVES_ACTIONS: Final = (
    "a module gives inputs of a distribution, which draws the actions: write `forward_acting`, or "
    "derive from `TorchRLModule` (docs/modules.md)."
)
_SHARED_LAYERS: Final = (
    "layers that modules share are not offered; one module with a head per agent does the same "
    "(docs/own-algorithm.md)."
)


def _of_class(path: str, own: OwnClass) -> Iterator[ScriptFinding]:
    acts = any(name.startswith("_forward") for name in own.methods)
    in_torch = any("Torch" in base for base in own.bases)
    for base in own.bases:
        place = _place(base)
        if base.endswith(".Policy"):
            yield ScriptFinding(path, own.line, f"class {own.name}", Fate.STOP, _OWN_POLICY)
        elif place == "trainer:MultiRLModule":
            yield ScriptFinding(path, own.line, f"class {own.name}", Fate.STOP, _SHARED_LAYERS)
        elif place == "trainer:RLModule" and acts and not in_torch:
            yield ScriptFinding(path, own.line, f"class {own.name}", Fate.CHANGE, _GIVES_ACTIONS)
        if place in ("trainer:RLlibCallback", "trainer:DefaultCallbacks"):
            yield from _of_events(path, own)
        refused = _refused_overrides(place)
        for name in refused.keys() & own.methods.keys():
            told = f"nothing here calls it. {refused[name]}"
            line = own.methods[name]
            yield ScriptFinding(path, line, f"{own.name}.{name}", Fate.CHANGE, told)


def _of_events(path: str, own: OwnClass) -> Iterator[ScriptFinding]:
    """Methods of callbacks that are named like events that are none."""
    for name, line in own.methods.items():
        if name.startswith("on_") and name not in EVENTS:
            told = f"{unknown_event_text(name)}."
            yield ScriptFinding(path, line, f"{own.name}.{name}", Fate.CHANGE, told)


def _place(dotted: str) -> str:
    module, _, name = dotted.rpartition(".")
    return home(module, name).place


def _refused_overrides(place: str) -> dict[str, str]:
    """What a class that derives from one of ours may not define: advice by name."""
    found = imported(place, source=PROGRAM, place="a base class") if place else None
    tables = {
        "Algorithm": OLD_NAMES.algorithm_overrides,
        "AlgorithmConfig": OLD_NAMES.config_overrides,
        "Learner": OLD_NAMES.learner_overrides,
    }
    names = [each.__name__ for each in getattr(found, "__mro__", ())]
    return dict(
        itertools.chain.from_iterable(
            table.items() for name, table in tables.items() if name in names
        )
    )
