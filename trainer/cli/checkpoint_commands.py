"""Commands that look at checkpoints. None of them runs code from one, unless that is allowed.

Each takes the parsed arguments and returns an exit code.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from checkpoints import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointUnreadableError,
    CheckpointVersionError,
    diff_checkpoints,
    export_weights,
    load_weights,
    verify,
)
from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.onnx_export import export_onnx
from trainer.cli.checkpoint_paths import all_checkpoints_at, checkpoint_at
from trainer.cli.comparing import comparison, comparison_lines
from trainer.cli.inspection import inspection, inspection_lines
from trainer.cli.named_code import import_from_here
from trainer.cli.output import on_one_line, tell, tell_json
from trainer.errors import ConfigError

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
        tell_json(report)
        return 0
    tell("\n".join(inspection_lines(report)))
    if arguments.verify:
        tell("  all files are as their hashes say")
    return 0


def verify_files(arguments: argparse.Namespace) -> int:
    """`local-trainer verify`: every checkpoint that is there, one line each."""
    outcomes = [_verified(path) for path in all_checkpoints_at(arguments.path)]
    if arguments.json:
        tell_json(outcomes)
    else:
        for outcome in outcomes:
            shown = _DAMAGED if outcome["is_damage"] else outcome["verdict"]
            tell(f"{shown:<15}{on_one_line(outcome['text'])}")
    return 0 if all(outcome["is_whole"] for outcome in outcomes) else 1


def diff(arguments: argparse.Namespace) -> int:
    """`local-trainer diff`."""
    first, second = checkpoint_at(arguments.first), checkpoint_at(arguments.second)
    found = diff_checkpoints(first, second)
    if arguments.json:
        tell_json({"first": str(first), "second": str(second), **comparison(found)})
    else:
        tell(f"- {first}\n+ {second}")
        tell("\n".join(comparison_lines(found, show_all=arguments.all)))
        tell("equal" if found.is_equal else "different")
    return 0 if found.is_equal else DIFFERENT


def export(arguments: argparse.Namespace) -> int:
    """`local-trainer export`: weights as .npz, or the policy as .onnx."""
    kind = Path(arguments.file).suffix.lower()
    if kind not in (".npz", ".onnx"):
        raise ConfigError(
            f"{arguments.file!r} does not say what to write. Give a file that ends with .npz (the "
            "weights, for numpy.load) or .onnx (the policy, for ONNX runtimes)."
        )
    checkpoint, component = arguments.path, arguments.component
    if Path(checkpoint).expanduser().is_dir():  # and not a component in one
        checkpoint = str(checkpoint_at(checkpoint))
    if kind == ".npz":
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
                "--component chooses arrays for .npz; .onnx is the policy. Leave out one."
            )
        file = _export_policy(checkpoint, arguments)
        what = {"bytes": file.stat().st_size}
    if arguments.json:
        tell_json({"file": str(file), **what})
    else:
        tell(f"{file}: {', '.join(f'{count:,} {name}' for name, count in what.items())}")
    return 0


def _export_policy(checkpoint: str, arguments: argparse.Namespace) -> Path:
    import_from_here()
    given = {} if arguments.env is None else {"env": arguments.env}
    with Algorithm.from_checkpoint(
        checkpoint, allow_code=arguments.allow_code, **_TO_ACT_ONLY, **given
    ) as algo:
        try:
            return export_onnx(algo, arguments.file, overwrite=arguments.overwrite)
        except ImportError as error:
            raise ConfigError(str(error)) from error


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
