"""Commands that look at checkpoints. None of them runs code from one, unless that is allowed.

Each takes the parsed arguments and returns an exit code.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from checkpoints import (
    CheckpointCorruptError,
    CheckpointDifference,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointUnreadableError,
    CheckpointVersionError,
    ComponentDifference,
    Difference,
    Manifest,
    diff_checkpoints,
    export_weights,
    latest_checkpoint,
    load_weights,
    read_checkpoint,
    read_manifest,
    verify,
)
from checkpoints.links import check_inside
from checkpoints.listing import damages_in
from checkpoints.manifest import CODE_FILE, version_differences
from checkpoints.reader import newest_whole, read_array_places
from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.inference import known_module
from trainer.algorithms.policy_export import export_onnx, export_policy, export_torch
from trainer.cli.named_code import import_from_here
from trainer.cli.output import missing_extras_explained, on_one_line, print_json, print_text
from trainer.cli.run_directory import RUN_FILE
from trainer.errors import ConfigError
from trainer.reports.run_records import find_runs
from trainer.tune.journal_file import JOURNAL_FILE

# ---- checkpoint paths
#
# Which checkpoint the user means: a directory of a run stands for its newest one.

_MAX_SHOWN: Final = 3


def checkpoint_at(path: str) -> Path:
    """The checkpoint at a path: itself, or the newest of a run's directory.

    Raises:
        ConfigError: nothing is there, or the directory of a run that has not saved anything.
    """
    given = _existing(path)
    for directory in (given / "checkpoints", given):
        if directory.is_dir() and not (directory / "manifest.json").exists():
            check_inside(directory, given)
            found = latest_checkpoint(directory)
            if found is not None:
                return found
    whole = given.resolve()
    damages = [text for place in (whole / "checkpoints", whole) for text in damages_in(place)]
    if damages and not (given / "manifest.json").exists():
        raise ConfigError(_all_damaged(given, damages))
    if (given / RUN_FILE).is_file():
        raise ConfigError(
            f"{given.resolve()} is the directory of a run without a checkpoint: it ended before "
            "it saved one. Start again: local-trainer train --run-dir, with what it was started "
            "with."
        )
    if given.is_dir() and not (given / "manifest.json").exists():
        _refuse_several_runs(given)
    return given


def _refuse_several_runs(folder: Path) -> None:
    """Names the runs in a folder, such as those of several seeds, of which one is meant."""
    runs = find_runs(folder)
    if runs:
        shown = ", ".join(str(run) for run in runs[:_MAX_SHOWN])
        more = f" and {len(runs) - _MAX_SHOWN} more" if len(runs) > _MAX_SHOWN else ""
        raise ConfigError(
            f"{folder.resolve()} is no run, but a folder with runs in it: {shown}{more}. Give one "
            f"of them.{_best_of_experiment(folder)}"
        )


def _best_of_experiment(folder: Path) -> str:
    if not (folder / JOURNAL_FILE).is_file():
        return ""
    quoted = shlex.quote(str(folder))
    return (
        f" It is an experiment: local-trainer best {quoted} names its best checkpoint, "
        f"tune-resume {quoted} goes on with it."
    )


def newest_whole_at(path: str) -> Path:
    """The checkpoint at a path: itself, or the newest of a run's directory that is not damaged.

    Complete ones whose bytes are not as their hashes say are passed over, with a warning.

    Raises:
        ConfigError: nothing is there, or the directory of a run that has not saved anything.
    """
    newest = checkpoint_at(path)
    if newest == _existing(path):
        return newest
    return newest_whole(newest.parent) or newest  # reading it tells


def all_checkpoints_at(path: str) -> list[Path]:
    """The checkpoint at a path, or all of a run's directory, damaged ones included, by name.

    Raises:
        ConfigError: nothing is there, or the directory of a run that has not saved anything.
    """
    given = _existing(path)
    for directory in (given, given / "checkpoints"):
        if not directory.is_dir() or (directory / "manifest.json").exists():
            continue
        check_inside(directory, given)
        found = sorted(
            entry
            for entry in directory.iterdir()
            if not entry.name.startswith(".") and os.path.lexists(entry / "manifest.json")
        )
        for entry in found:
            check_inside(entry, given)
        if found:
            return found
    return [checkpoint_at(path)]


def _all_damaged(given: Path, damages: list[str]) -> str:
    shown = "\n".join(f"  {text}" for text in damages[:_MAX_SHOWN])
    if len(damages) > _MAX_SHOWN:
        shown += f"\n  and {len(damages) - _MAX_SHOWN} more"
    what = "1 checkpoint, which is" if len(damages) == 1 else f"{len(damages)} checkpoints, all"
    return (
        f"{given.resolve()} holds {what} damaged:\n{shown}\nNothing was changed. Put back copies "
        "of their files if there are any; else start again with another --run-dir."
    )


def _existing(path: str) -> Path:
    given = Path(path).expanduser()
    if not os.path.lexists(given):  # which never raises, whatever the name
        raise ConfigError(
            f"{given.absolute()} does not exist. Give the directory of a run, such as runs/<run>, "
            "or one of the checkpoints in it."
        )
    return given


# ---- comparing
#
# How two checkpoints differ, as plain data for `--json`, and as text.

_SHORT: Final = 3
"""Differences of a component that are shown unless all are wanted."""


def comparison(difference: CheckpointDifference) -> dict[str, Any]:
    """Everything that `diff` shows, as JSON data."""
    return {
        "equal": difference.is_equal,
        "components": {
            name: {
                "status": component.status,
                "num_bytes": list(component.num_bytes),
                "differences": [_plain(item) for item in component.differences],
            }
            for name, component in difference.components.items()
        },
        "metadata": [_plain(item) for item in difference.metadata],
    }


def comparison_lines(difference: CheckpointDifference, *, show_all: bool) -> list[str]:
    """The differences as lines of text, aligned: a line per component, then what differs."""
    lines = []
    for name, component in difference.components.items():
        lines.append(f"  {name:<28}{component.status:<10}{_summary(component)}".rstrip())
        lines += _difference_lines(component.differences, show_all=show_all)
    if CODE_FILE in difference.components:
        lines.append(f"  {CODE_FILE} does not count: equal code may be pickled to other bytes")
    if difference.metadata:
        lines.append("  metadata (does not count):")
        lines += _difference_lines(difference.metadata, show_all=show_all)
    return lines


def _summary(component: ComponentDifference) -> str:
    found = component.differences
    if not found:
        return ""
    count = f"{len(found):,} places" if len(found) > 1 else "1 place"
    distances = [item for item in found if item.max_abs is not None]
    if not distances:
        return count
    largest = max(distances, key=_size)
    return on_one_line(f"{count}, at most {largest.max_abs:.6g} at {largest.path or 'the whole'}")


def _size(item: Difference) -> float:
    """For ordering: what became NaN, or ceased to be, differs most."""
    distance = item.max_abs
    return -1.0 if distance is None else math.inf if math.isnan(distance) else distance


def _difference_lines(found: Sequence[Difference], *, show_all: bool) -> Iterator[str]:
    shown = found if show_all else found[:_SHORT]
    for item in shown:
        distance = "" if item.max_abs is None else f"   |difference| {item.max_abs:.6g}"
        yield "    " + on_one_line(f"{item.path or '(whole)'}: {item.text}{distance}")
    if len(shown) < len(found):
        yield f"    and {len(found) - len(shown):,} more (--all shows them)"


def _plain(item: Difference) -> dict[str, Any]:
    fields = dataclasses.asdict(item)
    if item.max_abs is not None and not math.isfinite(item.max_abs):
        fields["max_abs"] = str(item.max_abs)  # JSON has no such numbers
    return fields


# ---- inspection
#
# What a checkpoint holds and what it does not: as plain data for `--json`, and as text. Only
# `manifest.json` and the components in `_READ` are read; no code is.

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
        "running_episodes": _running_episodes(
            parts["env_runners"], manifest.metadata.get("running_episodes")
        ),
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


_WAYS: Final = {"env_state": "state of the env", "lost": "nothing"}
"""By which running episodes are put back, by what manifests say; else by replay."""


def _running_episodes(env_runners: Mapping[str, Any], ways: Any) -> list[dict[str, Any]]:
    """What is known of each episode that was under way; `ways` are those of the manifest."""
    known = _items(ways)
    running = []
    for number, slot in enumerate(_slots(env_runners)):
        if not isinstance(slot, dict) or slot.get("env_seed") is None:
            continue
        way = "env_state" if slot.get("env_state") is not None else "replay"
        if number < len(known) and known[number] == "lost":
            way = "lost"
        running.append(
            {
                "env_slot": number,
                "episode_number": _whole_number(slot.get("episode_number")),
                "num_env_steps": sum(map(_num_actions, _items(slot.get("actions")))),
                "restored_by": _WAYS.get(way, way),
            }
        )
    return running


def _episodes_text(report: Mapping[str, Any]) -> str:
    running = report["running_episodes"]
    if not running:
        return "none"
    steps = sum(episode["num_env_steps"] for episode in running)
    counts = Counter(episode["restored_by"] for episode in running)
    texts = {
        "state of the env": "restored by the env's own state",
        "replay": "restored by replay: reset with the same seed, the same actions again, "
        "observations compared",
        "nothing": "lost when it is restored: the vector env has no state",
    }
    ways = [f"{counts[way]} {text}" for way, text in texts.items() if counts[way]]
    return (
        f"{len(running)} of {report['num_env_slots']} env slots, {steps:,} env steps; "
        f"{'; '.join(ways)}"
    )


def _not_included(manifest: Manifest, parts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """What a reader might look for, and why it is not there."""
    config, running = parts["config"], parts["evaluation"].get("running")
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
    if isinstance(running, dict):
        iteration = running.get("iteration")
        missing["running evaluation"] = (
            f"of iteration {iteration}; it was under way and begins again after a restore"
        )
    if "algorithm" in manifest.metadata:
        absent = {name: why for name, why in _ABSENT.items() if name not in manifest.components}
        missing |= absent
    return missing


# ---- checkpoint commands

DIFFERENT: Final = 3
"""The exit code of `diff` for checkpoints that differ."""

_WHOLE: Final = "whole"
_DAMAGED: Final = "DAMAGED"
_VERDICTS: Final[Mapping[type[CheckpointError], str]] = MappingProxyType(
    {
        CheckpointUnreadableError: "no access",
        CheckpointVersionError: "newer",
        CheckpointNotFoundError: "no checkpoint",
        CheckpointCorruptError: _DAMAGED,
        CheckpointError: "no checkpoint",
    }
)
"""What `verify` says of a checkpoint that is not whole; the first that fits."""

_TO_ACT_ONLY: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "num_env_runners": 0,
        "num_envs_per_env_runner": 1,
        "evaluation_num_env_runners": 0,
    }
)


def inspect(arguments: argparse.Namespace) -> int:
    """`local-trainer inspect`."""
    checkpoint = checkpoint_at(arguments.path)
    if arguments.verify:
        verify(checkpoint)
    report = inspection(checkpoint)
    if arguments.json:
        print_json(report)
        return 0
    print_text("\n".join(inspection_lines(report)))
    if arguments.verify:
        print_text("  all files are as their hashes say")
    return 0


def verify_files(arguments: argparse.Namespace) -> int:
    """`local-trainer verify`: every checkpoint that is there, one line each."""
    outcomes = [_verified(path) for path in all_checkpoints_at(arguments.path)]
    if arguments.json:
        print_json(outcomes)
    else:
        for outcome in outcomes:
            shown = _DAMAGED if outcome["is_damage"] else outcome["verdict"]
            print_text(f"{shown:<15}{on_one_line(outcome['text'])}")
    return 0 if all(outcome["is_whole"] for outcome in outcomes) else 1


def diff(arguments: argparse.Namespace) -> int:
    """`local-trainer diff`."""
    first, second = checkpoint_at(arguments.first), checkpoint_at(arguments.second)
    found = diff_checkpoints(first, second)
    if arguments.json:
        print_json({"first": str(first), "second": str(second), **comparison(found)})
    else:
        print_text(f"- {first}\n+ {second}")
        print_text("\n".join(comparison_lines(found, show_all=arguments.all)))
        print_text("equal" if found.is_equal else "different")
    return 0 if found.is_equal else DIFFERENT


_EXPORTS: Final = {".onnx": export_onnx, ".pt2": export_torch}
"""What writes a policy, by the ending of the file; .npz can be weights, too."""


def export(arguments: argparse.Namespace) -> int:
    """`local-trainer export`: weights as .npz, or the policy as .npz, .onnx or .pt2."""
    kind = Path(arguments.file).suffix.lower()
    if kind != ".npz" and kind not in _EXPORTS:
        raise ConfigError(
            f"{arguments.file!r} does not say what to write. Give a file that ends with .npz (the "
            "weights, for numpy.load), .onnx (the policy, for ONNX runtimes) or .pt2 (the policy, "
            "for torch.export.load)."
        )
    checkpoint, component = arguments.path, arguments.component
    if Path(checkpoint).expanduser().is_dir():  # and not a component in one
        checkpoint = str(checkpoint_at(checkpoint))
    is_policy = kind in _EXPORTS or arguments.policy
    if not is_policy:
        _refuse_options_of_policies(arguments)
        file = export_weights(
            checkpoint, arguments.file, component=component, overwrite=arguments.overwrite
        )
        arrays = load_weights(checkpoint, component=component)
        what: dict[str, Any] = {
            "arrays": len(arrays),
            "numbers": sum(array.size for array in arrays.values()),
        }
    else:
        if component is not None:
            raise ConfigError(
                f"--component chooses arrays for .npz; {', '.join(_EXPORTS)} and --policy write "
                "the policy. Leave out one."
            )
        file = _export_policy(checkpoint, arguments)
        what = {"bytes": file.stat().st_size}
    if arguments.json:
        print_json({"file": str(file), **what})
    else:
        print_text(f"{file}: {', '.join(f'{count:,} {name}' for name, count in what.items())}")
    return 0


def _refuse_options_of_policies(arguments: argparse.Namespace) -> None:
    options = {"--env": arguments.env, "--module": arguments.module}
    given = [option for option, value in options.items() if value is not None]
    given += ["--allow-code"] if arguments.allow_code else []
    if given:
        raise ConfigError(
            f"{', '.join(given)} would change nothing about weights, which are read and not run. "
            "Leave it out, or add --policy; --component learner/ID/rl_module chooses the weights "
            "of one module."
        )


def _export_policy(checkpoint: str, arguments: argparse.Namespace) -> Path:
    import_from_here()
    given = {} if arguments.env is None else {"env": arguments.env}
    with (
        missing_extras_explained(),
        Algorithm.from_checkpoint(
            checkpoint, allow_code=arguments.allow_code, **_TO_ACT_ONLY, **given
        ) as algo,
    ):
        export = _EXPORTS.get(Path(arguments.file).suffix.lower(), export_policy)
        module_id = known_module(arguments.module, algo.learners, "--module")
        return export(algo, arguments.file, module_id=module_id, overwrite=arguments.overwrite)


def _verified(path: Path) -> dict[str, Any]:
    try:
        manifest = verify(path)
    except CheckpointError as error:
        verdict = next(found for kind, found in _VERDICTS.items() if isinstance(error, kind))
        text = str(error) if str(path) in str(error) else f"{path}: {error}"
        return {
            "path": str(path),
            "is_whole": False,
            "is_damage": verdict == _DAMAGED,
            "verdict": verdict.lower(),
            "text": f"{type(error).__name__}: {text}",
        }
    num_bytes = sum(entry.num_bytes for entry in manifest.files)
    text = f"{path}: {len(manifest.files)} files, {num_bytes:,} bytes, as their hashes say"
    if manifest.code is not None:
        text += "; some settings are code, which was not loaded"
    return {
        "path": str(path),
        "is_whole": True,
        "is_damage": False,
        "verdict": _WHOLE,
        "text": text,
    }
