"""Pages of the site that no file in `docs` has: a hook of mkdocs, which `mkdocs.yml` names.

The README becomes the first page; a page per package lists every public name, with what its
docstring says (mkdocstrings); the examples become one page. Links are turned to where things are on
the site; what is not on it stays as text.

Only `on_files` imports mkdocs; all else is plain text, which tests look at without it.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = (
    *("trainer", "trainer.tune", "trainer.testing", "trainer.reports"),
    *("callbacks", "checkpoints"),
)
COPIED: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Files outside of `docs` → their pages."""

LATER: Final = (
    *(f"reference/{name}.md" for name in PACKAGES),
    *("examples.md", "changelog.md", "contributing.md", "benchmarks.md"),
)
"""Pages that the search shows behind those that explain."""

CONTENTS: Final = "README.md"
GALLERY: Final = ROOT / "build" / "gallery"
"""What `make_gallery.py` made, if it was run."""

_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")  # of a picture, too
_FOUND_LATER: Final = "---\nsearch:\n  boost: 0.2\n---\n"
_FENCE: Final = re.compile(r"^\s*```")


def pages() -> dict[str, str]:
    """All pages that are made, by their path on the site."""
    made = {
        page: linked((ROOT / file).read_text(encoding="utf-8"), ROOT / file)
        for file, page in COPIED.items()
    }
    made |= {f"reference/{name}.md": reference(name) for name in PACKAGES}
    made["examples.md"] = examples()
    return {page: _FOUND_LATER + text if page in LATER else text for page, text in made.items()}


def written() -> set[str]:
    """The pages that are files; the contents in `docs/README.md` are the menu's on the site."""
    return {path.name for path in (ROOT / "docs").glob("*.md")} - {CONTENTS}


def public_names(package: str) -> list[str]:
    """What a package offers, in alphabetical order."""
    module = importlib.import_module(package)
    return sorted(getattr(module, "__all__", ()), key=str.lower)


def reference(package: str) -> str:
    """The page of a package. A name that is offered twice is described where it is defined."""
    module = importlib.import_module(package)
    lines = [f"# {package}", "", (module.__doc__ or "").strip().splitlines()[0], ""]
    for name in public_names(package):
        value = getattr(module, name)
        is_code = inspect.isclass(value) or inspect.isfunction(value)
        home = value.__module__.split(".")[0] if is_code else ""
        lines += [f"## {name}", ""]
        if home != package.split(".")[0] and name in _names_of(home):
            lines += [f"See [{home}]({home}.md#{slug(name)}).", ""]
        elif home in PACKAGES:
            place = f"{value.__module__}.{value.__qualname__}"
            lines += [f"::: {place}", "    options: {show_root_heading: false}", ""]
        else:
            lines += [f"`{package}.{name}`: {_said_of(value)}", ""]
    return "\n".join(lines)


def _names_of(package: str) -> list[str]:
    return public_names(package) if package in PACKAGES else []


def _said_of(value: Any) -> str:
    """What is known of a value that is neither a class nor a function of ours."""
    if inspect.ismodule(value):
        return (value.__doc__ or "a module.").strip().splitlines()[0]
    if inspect.isclass(value):
        return f"the class `{value.__name__}`."
    text = " ".join(str(value).split())
    return f"`{text[:80]}{'…' if len(text) > 80 else ''}`"


def examples() -> str:
    """All examples on one page."""
    parts = ["# Examples", "", "Each is run by a test.", ""]
    for file in sorted((ROOT / "examples").glob("*.py")):
        text = file.read_text(encoding="utf-8").rstrip()
        parts += [f"## {file.name}", "", "```python", text, "```", ""]
    return "\n".join(parts)


def linked(text: str, file: Path) -> str:
    """A page whose links lead to pages of the site; other links become text."""
    return "\n".join(_linked_lines(text, file)) + "\n"


def _linked_lines(text: str, file: Path) -> Iterator[str]:
    is_code = False
    for line in text.splitlines():
        if _FENCE.match(line):
            is_code = not is_code
        yield line if is_code else _LINK.sub(lambda match: _link(match, file), line)


def _link(match: re.Match[str], file: Path) -> str:
    text, target = match.groups()
    path, _, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", target):
        return match[0]
    page = page_of((file.parent / path).resolve())
    if page is None:
        return text
    if page.startswith("examples.md"):
        return f"[{text}]({_from(file, 'examples.md')}{page.removeprefix('examples.md')})"
    return f"[{text}]({_from(file, page)}{'#' if anchor else ''}{anchor})"


def page_of(file: Path) -> str | None:
    """The page of the site that a file of the repository is on; None if it is on none."""
    name = Path(os.path.relpath(file, ROOT)).as_posix()
    if name in COPIED:
        return COPIED[name]
    if name == f"docs/{CONTENTS}":
        return None
    if name.startswith("docs/") and name.endswith((".md", ".svg")):
        return name.removeprefix("docs/")
    if re.fullmatch(r"examples/\w+\.py", name):
        return f"examples.md#{slug(Path(name).name)}"
    return None


def _from(file: Path, page: str) -> str:
    """The link to a page from the page of a file."""
    own = page_of(file) or "index.md"
    return Path(os.path.relpath(page, Path(own).parent)).as_posix()


def slug(heading: str, separator: str = "-") -> str:
    """What a heading is called in links, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def unlisted(configuration: str) -> list[str]:
    """Pages that `nav` in `mkdocs.yml` does not name; they stand behind all others."""
    there = {*written(), *pages()}
    return sorted(there - set(listed(configuration)))


def listed(configuration: str) -> list[str]:
    """Pages that `nav` in `mkdocs.yml` names."""
    return re.findall(r"([\w./-]+\.md)$", configuration.partition("\nnav:")[2], flags=re.MULTILINE)


# ---- called by mkdocs


def on_config(config: Any) -> Any:
    """Names anchors as GitHub does, so that links hold in both places."""
    config["mdx_configs"].setdefault("toc", {})["slugify"] = slug
    further = unlisted((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    if further:
        config["nav"].append({"More": [*further]})
    if GALLERY.is_dir():
        config["nav"][0]["Start"].append("gallery.md")
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are made."""
    structure = importlib.import_module("mkdocs.structure.files")
    for path, text in pages().items():
        files.append(structure.File.generated(config, path, content=text))
    for file in sorted(GALLERY.glob("*.*")):
        files.append(structure.File.generated(config, file.name, abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turns the links of a page of `docs`."""
    del config, files
    file = ROOT / "docs" / page.file.src_uri
    return linked(markdown, file) if file.is_file() else markdown
