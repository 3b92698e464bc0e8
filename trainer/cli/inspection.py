"""What a checkpoint holds and what it does not: as plain data for `--json`, and as text.

Only `manifest.json` and the components in `_READ` are read; no code is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from checkpoints import CheckpointError, Manifest, read_checkpoint, read_manifest
from checkpoints.reader import read_array_places
from checkpoints.versions import version_differences
from trainer.cli.output import on_one_line

_READ: Final = ("config", "env_runners", "evaluation")
_ABSENT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "connectors": "observations and rewards are not normalised",
        "exploration": "the strategy has learnt and adapted nothing",
        "actors": "no actor had a state to save",
    }
)
"""Components of an algorithm that may be missing, and what that means."""


def inspection(checkpoint: Path) -> dict[str, Any]:
    """Everything that `inspect` shows, as JSON data.

    Raises:
        CheckpointError: there is no checkpoint, or its manifest is not valid. Damaged components
            are named under "problems" instead.
    """
    manifest = read_manifest(checkpoint)
    problems: list[str] = []
    parts = {name: _state_of(checkpoint, manifest, name, problems) for name in _READ}
    places = {
        name: _array_places(checkpoint, name, problems)
        for name, entry in manifest.components.items()
        if entry.arrays
    }
    code = manifest.code
    return {
        "path": str(checkpoint),
        "format_version": manifest.format_version,
        "created_at": manifest.created_at,
        "versions": dict(manifest.versions),
        "other_versions_here": version_differences(manifest),
        "metadata": dict(manifest.metadata),
        "components": {
            name: {
                "file": entry.file,
                "num_bytes": entry.total_bytes,
                "sha256": entry.sha256,
                "arrays": [
                    {**array.to_dict(), **places[name].get(array.file, {})}
                    for array in entry.arrays
                ],
                "state_version": entry.state_version,
            }
            for name, entry in manifest.components.items()
        },
        "num_bytes": sum(entry.num_bytes for entry in manifest.files),
        "code": None if code is None else {"num_bytes": code.num_bytes, "sha256": code.sha256},
        "settings_that_are_code": _code_names(parts["config"]),
        "running_episodes": _running_episodes(parts["env_runners"]),
        "num_env_slots": len(_slots(parts["env_runners"])),
        "not_included": _not_included(manifest, parts),
        "problems": problems,
    }


def inspection_lines(report: Mapping[str, Any]) -> list[str]:
    """The report as lines of text, aligned."""
    versions = ", ".join(
        on_one_line(f"{name} {version}") for name, version in report["versions"].items()
    )
    lines = [
        report["path"],
        f"  format {report['format_version']}, saved {report['created_at']}, {versions}",
    ]
    if report["other_versions_here"]:
        others = on_one_line(", ".join(report["other_versions_here"]))
        lines.append(f"  written by others: {others}")
    metadata = report["metadata"].items()
    lines += [f"  {on_one_line(name):<32}{on_one_line(value)}" for name, value in metadata]
    lines.append(f"  {'components:':<28}{'bytes':>14}  {'version':>7}  sha256")
    for name, part in report["components"].items():
        sizes = f"{part['num_bytes']:>14,}  {part['state_version']:>7}"
        lines.append(f"    {name:<26}{sizes}  {part['sha256'][:12]}…")
        lines += map(_array_line, part["arrays"])
    code = report["code"]
    code_text = "none" if code is None else f"{code['num_bytes']:,} bytes, loaded only on request"
    lines.append(f"  pickled code: {code_text}")
    lines.append(f"  running episodes: {_episodes_text(report)}")
    if report["not_included"]:
        lines.append("  not in it:")
        missing = report["not_included"].items()
        lines += [f"    {name:<26}{on_one_line(why)}" for name, why in missing]
    return lines + [f"  problem: {problem}" for problem in report["problems"]]


def _array_line(array: Mapping[str, Any]) -> str:
    """Which array a file holds, and where that stands in the state."""
    what = "its component cannot be read"
    if "path" in array:
        what = f"{on_one_line(array['path'])}: {array['dtype']} {array['shape']}"
    return f"      {array['file']:<24}{array['num_bytes']:>14,}  {what}"


def _array_places(
    checkpoint: Path, component: str, problems: list[str]
) -> dict[str, dict[str, Any]]:
    """Where large arrays stand in the state of a component, by file; {} if that is damaged."""
    try:
        found = read_array_places(checkpoint, component)
    except CheckpointError as error:
        problems.append(f"{component}: {error}")
        return {}
    return {
        file: {"path": place.path, "dtype": place.dtype, "shape": list(place.shape)}
        for file, place in found.items()
    }


def _state_of(
    checkpoint: Path, manifest: Manifest, name: str, problems: list[str]
) -> dict[str, Any]:
    """A component that is a dict; {} if it is missing, of another kind or damaged."""
    if name not in manifest.components:
        return {}
    try:
        state = read_checkpoint(checkpoint, name, mapped=True).components[name]
    except CheckpointError as error:
        problems.append(f"{name}: {error}")
        return {}
    return state if isinstance(state, dict) else {}


# States may be anybody's: what is not of the expected kind counts as nothing.


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _slots(env_runners: Mapping[str, Any]) -> Sequence[Any]:
    return _items(env_runners.get("slots"))


def _code_names(config: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in _items(config.get("code"))]


def _whole_number(value: Any) -> int | None:
    return value if type(value) is int else None


def _num_actions(chunk: Any) -> int:
    """How many actions a chunk holds; those of Dict and Tuple spaces are nested arrays."""
    while isinstance(chunk, dict | tuple) and chunk:
        chunk = next(iter(chunk.values() if isinstance(chunk, dict) else chunk))
    if isinstance(chunk, np.ndarray) and chunk.ndim:
        return len(chunk)
    return len(chunk) if isinstance(chunk, list) else 0


def _running_episodes(env_runners: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is known of each episode that was under way."""
    running = []
    for number, slot in enumerate(_slots(env_runners)):
        if not isinstance(slot, dict) or slot.get("env_seed") is None:
            continue
        has_env_state = slot.get("env_state") is not None
        running.append(
            {
                "env_slot": number,
                "episode_number": _whole_number(slot.get("episode_number")),
                "num_env_steps": sum(map(_num_actions, _items(slot.get("actions")))),
                "restored_by": "state of the env" if has_env_state else "replay",
            }
        )
    return running


def _episodes_text(report: Mapping[str, Any]) -> str:
    running = report["running_episodes"]
    if not running:
        return "none"
    steps = sum(episode["num_env_steps"] for episode in running)
    by_state = sum(episode["restored_by"] != "replay" for episode in running)
    ways = [f"{by_state} by the env's own state"] if by_state else []
    if by_state < len(running):
        ways.append(
            f"{len(running) - by_state} by replay: reset with the same seed, the same actions "
            "again, observations compared"
        )
    return (
        f"{len(running)} of {report['num_env_slots']} env slots, {steps:,} env steps; restored "
        f"{'; '.join(ways)}"
    )


def _not_included(manifest: Manifest, parts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """What somebody might look for, and why it is not there."""
    config, running_of = parts["config"], parts["evaluation"].get("running_of")
    missing: dict[str, str] = {}
    if manifest.metadata.get("holds_replay_buffer") is False:
        missing["replay_buffer"] = (
            "left out (store_buffer_in_checkpoints=False): after a restore, learning waits until "
            "enough steps are stored again"
        )
    code = _code_names(config)
    if code and manifest.code is None:
        missing["code.pkl"] = f"could not be pickled; to restore, give {', '.join(code)} yourself"
    elif code:
        missing["plain settings"] = f"{', '.join(code)}: code; give them, or allow code"
    if running_of is not None:
        missing["running evaluation"] = (
            f"of iteration {running_of}; it was under way and begins again after a restore"
        )
    if "algorithm" in manifest.metadata:
        absent = {name: why for name, why in _ABSENT.items() if name not in manifest.components}
        missing |= absent
    return missing
