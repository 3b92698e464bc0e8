"""Writes the stubs of the files that declare settings, for editors and type checkers.

    python docs/make_section_stubs.py            writes them
    python docs/make_section_stubs.py --check    exit code 1 if one is out of date; writes nothing

Section methods are made when they are looked at, from the settings that classes declare; what does
not run, such as an editor's completion, finds them in a stub (`sections.pyi` beside `sections.py`).
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Final

from made_page import write_or_check

import trainer
from trainer import AlgorithmConfig
from trainer.algorithms import off_policy_section, policy_and_critics_section
from trainer.algorithms.on_and_off_policy import OffPolicyConfig
from trainer.algorithms.policy_and_critics import PolicyAndCriticsConfig
from trainer.config import Setting, sections
from trainer.config.config_values import ConfigValues
from trainer.config.section_methods import SectionMethod


def sections_of_algorithms() -> dict[ModuleType, type[AlgorithmConfig]]:
    """The file `training_section.py` of each algorithm's folder that has one, and its config."""
    configs = [one for name, one in vars(trainer).items() if name.endswith("Config")]
    found: dict[ModuleType, type[AlgorithmConfig]] = {}
    for config in configs:
        folder = config.__module__.rpartition(".")[0]
        section = sys.modules.get(f"{folder}.training_section")
        if section is not None and issubclass(config, AlgorithmConfig):
            found.setdefault(section, config)
    return found


STUBS: Final[Mapping[ModuleType, type[AlgorithmConfig]]] = MappingProxyType(
    {
        sections: AlgorithmConfig,
        off_policy_section: OffPolicyConfig,
        policy_and_critics_section: PolicyAndCriticsConfig,
        **sections_of_algorithms(),
    }
)
"""The files that declare settings, each with the config whose methods show all of them."""

_HOMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Callable": "collections.abc",
        "Sequence": "collections.abc",
        "Any": "typing",
        "Self": "typing_extensions",
        "ConfigValues": "trainer.config.config_values",
        "Setting": "trainer.config.settings",
        "Engine": "trainer.runtime.engine",
        "ToBeDrawn": "trainer.types",
    }
)
"""Where the names come from that stand in a stub."""

_LITERALS: Final = (bool, int, float, str, type(None))


def stub(module: ModuleType, config: type[AlgorithmConfig]) -> str:
    """The text of a stub."""
    classes = [
        member
        for member in vars(module).values()
        if isinstance(member, type) and issubclass(member, ConfigValues)
        if member.__module__ == module.__name__
    ]
    body = "".join(_class(member, config) for member in classes)
    imports = [f"from {home} import {name}\n" for name, home in _HOMES.items() if _uses(body, name)]
    path = "docs/make_section_stubs.py"
    return f'"""Made by `{path}`; do not edit it by hand."""\n\n{"".join(imports)}{body}'


def _uses(body: str, name: str) -> bool:
    code = re.sub(r'""".*?"""', "", body, flags=re.DOTALL)
    return re.search(rf"\b{name}\b", code) is not None


def _class(declared: type[ConfigValues], config: type[AlgorithmConfig]) -> str:
    own = [member for member in vars(declared).values() if isinstance(member, Setting)]
    attributes = [f"    {setting.name}: Setting[{setting.annotation}]\n" for setting in own]
    [name] = [name for name, member in vars(declared).items() if isinstance(member, SectionMethod)]
    method = getattr(config, name)
    parameters = list(inspect.signature(method).parameters.values())
    by_name = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    in_order = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    arguments = [*map(_argument, in_order), "*", *map(_argument, by_name)]
    docstring = (method.__doc__ or "").replace("\\", "\\\\").replace("\n", "\n        ")
    docstring = re.sub(r"[ ]+\n", "\n", docstring)
    lines = [
        f"\n\nclass {declared.__name__}(ConfigValues):\n",
        *attributes,
        f"    def {name}(\n",
        *(f"        {argument},\n" for argument in arguments),
        f"        **{parameters[-1].name}: Any,\n",
        "    ) -> Self:\n",
        f'        """{docstring}\n        """\n',
    ]
    return "".join(lines)


def _argument(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return parameter.name
    default = repr(parameter.default) if type(parameter.default) in _LITERALS else "..."
    taken = parameter.annotation
    if taken != "Any":
        taken += " | ToBeDrawn"  # as `tune.uniform(0, 1)` is
    return f"{parameter.name}: {taken} = {default}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the stubs; returns the exit code."""
    return max(
        write_or_check(
            Path(inspect.getfile(module)).with_suffix(".pyi"),
            functools.partial(stub, module, config),
            arguments,
            script="make_section_stubs.py",
        )
        for module, config in STUBS.items()
    )


if __name__ == "__main__":
    raise SystemExit(main())
