"""Reads the command line, does what it says, and turns errors into one message and an exit code.

The exit codes are in `EXIT_CODES`, which `--help` shows.
"""

from __future__ import annotations

import argparse
import ast
import atexit
import contextlib
import gc
import json
import logging
import math
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from callbacks import CallbackConfigError, CallbackError
from callbacks.ready_made.metric_values import RETURN
from callbacks.ready_made.tracker_services import ARTIFACT_KINDS
from checkpoints import CheckpointError, CheckpointNotFoundError, CodeNotAllowedError, listing
from trainer.cli import (
    checkpoint_commands,
    commands,
    completion,
    doctor,
    overview,
    recipes,
    report_commands,
    rllib_scripts,
    run_trackers,
    tuning_commands,
)
from trainer.cli.commands import replay_episode
from trainer.cli.output import complain, complain_with_traceback, flush_output, set_up_logging
from trainer.cli.run_directory import STOPS
from trainer.cli.seeds import seeds
from trainer.config.names_elsewhere import OPTIONS_ELSEWHERE
from trainer.errors import TrainerError
from trainer.old_names import OLD_NAMES
from trainer.runtime.machine_facts import installed_version
from trainer_toolkit.files import remedy
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean, nearest

# ---- arguments: an argparse.ArgumentTypeError for what cannot be read as one


def setting(text: str) -> tuple[str, Any]:
    """Reads NAME=VALUE; the value is a JSON or Python literal, else a string."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, for example lr=3e-4")
    return name.strip(), _literal(value.strip())


def count(text: str) -> int:
    """Reads a whole number of at least 1."""
    return _whole_number(text, at_least=1)


def count_or_zero(text: str) -> int:
    """Reads a whole number of at least 0."""
    return _whole_number(text, at_least=0)


def number(text: str) -> float:
    """Reads a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def seconds(text: str) -> float:
    """Reads a number of seconds above 0."""
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def place(text: str) -> str:
    """A path; not the empty one, which would mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty; is a variable of the shell not set?")
    return text


def _whole_number(text: str, *, at_least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = at_least - 1
    if value < at_least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {at_least}")
    return value


def _literal(text: str) -> Any:
    if text in {"inf", "-inf", "nan"}:
        return float(text)
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return text


# ---- main

EXIT_CODES = """\
exit codes:
  0    done: a stop criterion was met, or the command has nothing more to do; diff: they are equal
  1    an error, one message says what to do (--traceback shows more); verify: one is not whole
  2    wrong arguments
  3    diff: the checkpoints differ; check: learning goes wrong in a run; rllib-check: a script
       does not run as it is (with --run: the code of the script)
  130  stopped by Ctrl-C or SIGTERM, or the terminal was closed; train and resume have saved the
       run, and resume goes on, unless it was pressed twice: then the newest checkpoint is the
       last one saved before
"""

_EXPECTED_ERRORS = (TrainerError, CheckpointError, CallbackError, CallbackConfigError, OSError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code.

    Args:
        arguments: the words after `local-trainer`; None takes them from the process.
    """
    if arguments is None:  # the program ends behind it
        atexit.register(gc.freeze)  # else Python would look through all that is there: 0.15 s
    parsed = _parsed(list(sys.argv[1:] if arguments is None else arguments))
    set_up_logging()
    code = 0
    try:
        with _signals_like_ctrl_c(), _damages_logged_once():
            code = parsed.command(parsed)
        flush_output()
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be closed
            print("Stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        pass  # the reader of the output has seen enough, as in `inspect … | head -1`
    except _EXPECTED_ERRORS as error:
        if parsed.traceback:
            complain_with_traceback(error)
        else:
            named = (cls.__name__ for cls in type(error).__mro__ if cls.__name__[0] != "_")
            complain(f"{next(named)}: {error}{_advice(parsed, error)}")
        return 1
    finally:
        _let_go_of_closed_pipe()
    return code


def _parsed(words: list[str]) -> argparse.Namespace:
    """The arguments of a command; ends the program when they are wrong, as argparse does.

    A misspelt command or option is answered with the nearest one.
    """
    parser = make_parser()
    commands_: dict[str, argparse.ArgumentParser] = parser.get_default("parsers")
    if not words:
        # 2, as for wrong words: a script whose variable was empty must not seem to have trained
        parser.exit(2, overview.greeting())
    if not (words[0] in commands_ or words[0].startswith("-")):
        meant = did_you_mean(words[0], commands_)
        parser.error(f"there is no command {words[0]!r}.{meant} --help lists all by purpose")
    has_script = words[0] == "rllib-check" and "--" in words
    end = words.index("--") if has_script else len(words)
    parsed, unknown = parser.parse_known_args(words[:end])
    parsed.words_of_script = words[end + 1 :]
    if unknown:
        of_command = next(commands_[word] for word in words if word in commands_)
        known = re.findall(r"--([\w-]+)", of_command.format_usage())
        shown = (f"{word}{_meant_option(word, known)}" for word in unknown)
        of_command.error(f"unrecognized arguments: {' '.join(shown)}")
    parsed.words = words
    return parsed


def _meant_option(word: str, known: Sequence[str]) -> str:
    """The hint behind an unknown option: what it is called here, or the nearest one."""
    written = word.partition("=")[0].lstrip("-")
    if not word.startswith("-"):
        return ""
    meant = OLD_NAMES.options.get(written) or OPTIONS_ELSEWHERE.get(written)
    near = meant or nearest(written, known)
    return IN_BRACKETS.format(repr(f"--{near}")) if near in known else ""


def _advice(parsed: argparse.Namespace, error: Exception) -> str:
    """What to type, where the error says what to write in Python."""
    if isinstance(error, CheckpointNotFoundError):
        return (
            "\nOn the command line: give the directory of a run, such as runs/<run>, or a "
            "checkpoint in it; local-trainer runs lists runs."
        )
    if not isinstance(error, CodeNotAllowedError):
        return f". {remedy(error)}." if isinstance(error, OSError) and error.errno else ""
    options = {"env": "--env NAME", "callbacks": "--callbacks NAME", "allow_code": "--allow-code"}
    offered = [option for name, option in options.items() if hasattr(parsed, name)]
    return f"\nOn the command line: {', or '.join(offered)}." if offered else ""


class _Once(logging.Filter):
    """Lets each text through once."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_new = text not in self._logged
        self._logged.add(text)
        return is_new


@contextlib.contextmanager
def _damages_logged_once() -> Iterator[None]:
    """Keeps a command that looks into a directory many times from repeating what it left out."""
    once, logger = _Once(), logging.getLogger(listing.__name__)
    logger.addFilter(once)
    try:
        yield
    finally:
        logger.removeFilter(once)


@contextlib.contextmanager
def _signals_like_ctrl_c() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP end what is not a run yet, or not any more, and clear up.

    What the program was started to ignore stays ignored.
    """
    handlers = {signal.SIGTERM: signal.default_int_handler, signal.SIGHUP: _hang_up}
    is_main = threading.current_thread() is threading.main_thread()
    ours = [which for which in handlers if signal.getsignal(which) is signal.SIG_DFL]
    ours = ours if is_main else []
    for which in ours:
        signal.signal(which, handlers[which])
    try:
        yield
    finally:
        for which in ours:
            if signal.getsignal(which) is not signal.SIG_IGN:  # a closed terminal: the end is near
                signal.signal(which, signal.SIG_DFL)


def _hang_up(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # the shell sends it again, while we clear up
    signal.default_int_handler(number, frame)


def _let_go_of_closed_pipe() -> None:
    """Keeps the interpreter from complaining at its end that its output has no reader any more."""
    if sys.stdout is None:  # the program was started without one, as by `>&-`
        return
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # OSError: also a terminal that was closed
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """Takes whole words only: with abbreviations, RLlib's `--run PPO` would be `--run-dir PPO`.

    Attributes:
        declared: its arguments, for `completion`.
    """

    def __init__(self, **settings: Any) -> None:
        self.declared: list[argparse.Action] = []
        super().__init__(
            **settings,
            allow_abbrev=False,
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        self.declared.append(super().add_argument(*names, **settings))
        return self.declared[-1]


class _Program(_Parser):
    """The parser of the whole command line; its help has the commands by purpose."""

    def format_help(self) -> str:
        parsers: dict[str, _Parser] = self.get_default("parsers")
        described = {name: str(parser.description) for name, parser in parsers.items()}
        return (
            f"usage: {self.prog} COMMAND [options]\n\n{self.description}\n"
            f"{self.prog} COMMAND --help has the options of a command.\n\n"
            f"{overview.by_purpose(described)}\n{self.epilog}"
        )


class _Commands:
    """The commands that a parser takes."""

    def __init__(self, program: argparse.ArgumentParser) -> None:
        self._subparsers = program.add_subparsers(
            required=True, metavar="COMMAND", parser_class=_Parser
        )

    @property
    def parsers(self) -> dict[str, _Parser]:
        """Name of a command → the parser of its arguments."""
        return self._subparsers.choices

    def add_parser(self, name: str, **told: str) -> argparse.ArgumentParser:
        does = told["help"]
        return self._subparsers.add_parser(
            name, help=does, description=f"{does[0].upper()}{does[1:]}."
        )


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    program = _Program(
        prog="local-trainer",
        description="Reinforcement learning on one machine, with exact resume and exact repair.",
    )
    version = installed_version("local-trainer") or "not installed"
    program.add_argument("--version", action="version", version=f"local-trainer {version}")
    subparsers = _Commands(program)
    _add_train(subparsers)
    _add_profile(subparsers)
    _add_recipes(subparsers)
    _add_resume(subparsers)
    _add_evaluate(subparsers)
    _add_record(subparsers)
    _add_play(subparsers)
    _add_inspect(subparsers)
    _add_verify(subparsers)
    _add_diff(subparsers)
    _add_export(subparsers)
    _add_replay(subparsers)
    _add_tune(subparsers)
    _add_tune_resume(subparsers)
    _add_trials(subparsers)
    _add_best(subparsers)
    _add_runs(subparsers)
    _add_watch(subparsers)
    _add_plot(subparsers)
    _add_report(subparsers)
    _add_check(subparsers)
    _add_track(subparsers)
    _add_doctor(subparsers)
    _add_completion(subparsers)
    _add_rllib_check(subparsers)
    program.set_defaults(parsers=subparsers.parsers, program=program)
    for parser in subparsers.parsers.values():
        parser.add_argument(
            "--traceback", action="store_true", help="show the traceback of an error"
        )
    return program


def _add_train(subparsers: _Commands) -> None:
    parser = subparsers.add_parser("train", help="train an algorithm in an env, from the beginning")
    parser.set_defaults(command=commands.train)
    _add_what(parser)
    _add_settings(parser, seed="the same seed gives the same bytes (default: drawn and reported)")
    parser.add_argument(
        "--seeds", type=seeds, metavar="A-B", help="several runs, one per seed, such as 0-4 or 0,7"
    )
    parser.add_argument(
        "--jobs", type=count, metavar="N",
        help="--seeds: how many run at the same time (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--run-dir",
        type=place,
        metavar="DIR",
        help="where results and checkpoints go (default: runs/ALGO-ENV-TIME)",
    )
    _add_stops(parser)
    _add_saving(parser, every="default: 10", keep="default: 3")
    _add_lines(parser)


def _add_profile(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "profile", help="train some iterations, write nothing, and say where the time goes"
    )
    parser.set_defaults(command=commands.profile, **dict.fromkeys(STOPS))
    _add_what(parser)
    _add_settings(parser, seed="(default: drawn)")
    parser.add_argument(
        "--iterations", type=count, default=5, metavar="N",
        help="how many, after a first one that is not counted (default: 5)",
    )  # fmt: skip


def _add_what(parser: argparse.ArgumentParser) -> None:
    """What is trained."""
    parser.add_argument("--algo", help="name of the algorithm (default: that of --config, or PPO)")
    parser.add_argument(
        "--env",
        help="gymnasium id, module:id, or dotted path of an env class; modules are looked for in "
        "the current folder, too",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a .json, .toml or .yaml file with algo, env, config, stop and save, such as the "
        "settings.json of a run; a .py file that defines `config` (and `stop`); or module:name. "
        "Other arguments win over it",
    )
    parser.add_argument(
        "--recipe",
        metavar="NAME",
        help="begin with the settings that are known for an env or a kind of envs, see `recipes` "
        "(default: those of --env if neither --config nor --set is given; none: the defaults)",
    )
    parser.add_argument(
        "--allow-code",
        action="store_true",
        help="import what the file of --config names; remembered until the file is changed",
    )


def _add_recipes(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "recipes", help="list the settings that are known to learn an env, with what they reached"
    )
    parser.set_defaults(command=recipes.show_recipes)
    parser.add_argument("name", nargs="?", help="show the settings of this one")
    parser.add_argument("--algo", help="of this algorithm")


def _add_doctor(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "doctor", help="say what is installed here, and whether a runner process works"
    )
    parser.set_defaults(command=doctor.doctor)
    _add_json(parser)


def _add_completion(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "completion", help="print a script for the shell, which then completes words behind Tab"
    )
    parser.set_defaults(command=completion.completion)
    parser.add_argument("shell", choices=completion.SHELLS)


def _add_rllib_check(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "rllib-check",
        help="say what becomes of scripts written for RLlib, without running them; or run one here",
    )
    parser.set_defaults(command=rllib_scripts.rllib_check)
    parser.add_argument("scripts", nargs="+", type=place, metavar="SCRIPT.py")
    parser.add_argument(
        "--run", action="store_true",
        help="then run the script, which finds this library where it imports ray; words behind -- "
        "are its arguments",
    )  # fmt: skip
    _add_json(parser)


def _add_resume(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "resume", help="go on with a run, exactly where its newest checkpoint stands"
    )
    parser.set_defaults(command=commands.resume)
    parser.add_argument("path", type=place, help="the run's directory, or one of its checkpoints")
    parser.add_argument(
        "--run-dir", type=place, metavar="NEW",
        help="begin another run with the checkpoint, which may be of a script, and write there",
    )  # fmt: skip
    _add_code(parser)
    _add_settings(parser, seed="another seed for all randomness to come (default: as before)")
    _add_stops(parser)
    _add_saving(parser, every="default: as before", keep="default: as before; else all")
    _add_lines(parser)


def _add_evaluate(subparsers: _Commands) -> None:
    parser = subparsers.add_parser("evaluate", help="play episodes with a checkpoint's policy")
    parser.set_defaults(command=commands.evaluate)
    _add_played(parser, episodes=20)
    _add_callbacks(parser)


def _add_record(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "record", help="write episodes that a checkpoint's policy plays, to learn from them"
    )
    parser.set_defaults(command=commands.record)
    parser.add_argument(
        "--to", type=place, default="recordings", metavar="FOLDER", help="(default: recordings)"
    )
    parser.add_argument(
        "--num-env-runners",
        type=count_or_zero,
        metavar="N",
        default=0,
        help="processes that play (default: 0, this one does); the files are the same",
    )
    _add_played(parser, episodes=100)


def _add_play(subparsers: _Commands) -> None:
    parser = subparsers.add_parser("play", help="watch a checkpoint's policy play")
    parser.set_defaults(command=commands.play)
    _add_played(parser, episodes=1)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--human", action="store_true", help="in a window, as the env draws it")
    how.add_argument("--video", metavar="FILE.mp4", help="as a video; several episodes get numbers")


def _add_played(parser: argparse.ArgumentParser, *, episodes: int) -> None:
    parser.add_argument("path", type=place, help="a run's directory, or a checkpoint")
    parser.add_argument(
        "--episodes", type=count, default=episodes, help=f"how many (default: {episodes})"
    )
    parser.add_argument(
        "--seed",
        type=count_or_zero,
        default=0,
        help="which episodes: the same seed plays the same (default: 0)",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--explore", action="store_true", help="draw actions instead of taking the most likely one"
    )
    how.add_argument(
        "--deterministic",
        action="store_false",
        dest="explore",
        help="take the most likely ones (the default)",
    )
    _add_code(parser)


def _add_settings(parser: argparse.ArgumentParser, *, seed: str) -> None:
    parser.add_argument(
        "--num-env-runners",
        type=count_or_zero,
        metavar="N",
        help="processes that sample; 0: this process does",
    )
    parser.add_argument(
        "--num-envs-per-env-runner", type=count, metavar="N", help="envs side by side in each"
    )
    parser.add_argument("--seed", type=count_or_zero, help=seed)
    _add_callbacks(parser)
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], type=setting, metavar="NAME=VALUE",
        help="any other setting of the config, as a Python or JSON value; may be repeated",
    )  # fmt: skip


def _add_callbacks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--callbacks", action="append", default=[], metavar="NAME",
        help="a callback class: module:Class, or one of the package `callbacks`; may be repeated",
    )  # fmt: skip


def _add_code(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env", help="module:id or dotted path of the env, if the run was started with one"
    )
    parser.add_argument(
        "--allow-code",
        action="store_true",
        help="run code that the checkpoint holds or names (if you trust it)",
    )


def _add_inspect(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "inspect", help="say what is in a checkpoint, and what is not, without loading it"
    )
    parser.set_defaults(command=checkpoint_commands.inspect)
    parser.add_argument("path", type=place, help="a run's directory, or a checkpoint")
    parser.add_argument(
        "--verify", action="store_true", help="also compare all files with their hashes"
    )
    _add_json(parser)


def _add_verify(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "verify", help="compare all files of checkpoints with their hashes"
    )
    parser.set_defaults(command=checkpoint_commands.verify_files)
    parser.add_argument(
        "path", type=place, help="a checkpoint, or a run's directory: all checkpoints in it"
    )
    _add_json(parser)


def _add_diff(subparsers: _Commands) -> None:
    parser = subparsers.add_parser("diff", help="say where two checkpoints differ, and by how much")
    parser.set_defaults(command=checkpoint_commands.diff)
    parser.add_argument("first", type=place, help="a run's directory, or a checkpoint")
    parser.add_argument("second", type=place, help="another one")
    parser.add_argument("--all", action="store_true", help="show every place, not the first few")
    _add_json(parser)


def _add_export(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "export",
        help="write weights for numpy.load (.npz), or the policy for ONNX (.onnx) or Torch (.pt2)",
    )
    parser.set_defaults(command=checkpoint_commands.export)
    parser.add_argument(
        "path", type=place, help="a run's directory, a checkpoint, or a component in one"
    )
    parser.add_argument(
        "file", type=place, help="where to; its ending (.npz, .onnx, .pt2) says what"
    )
    parser.add_argument(
        "--policy", action="store_true",
        help=".npz: the policy, for checkpoints.policy.load_policy, instead of weights",
    )  # fmt: skip
    parser.add_argument("--component", metavar="NAME", help=".npz: whose arrays (default: weights)")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it is there")
    parser.add_argument(
        "--allow-code",
        action="store_true",
        help="of policies: run code saved in the checkpoint (if you trust it)",
    )
    parser.add_argument(
        "--env", help="of policies: the env, if the run was started with a path of one"
    )
    parser.add_argument("--module", metavar="ID", help="of policies: whose, if there are several")
    _add_json(parser)


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _add_replay(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "replay-episode",
        help="play again, in this process, what an env runner was asked when it failed",
    )
    parser.set_defaults(command=replay_episode)
    parser.add_argument(
        "path",
        type=place,
        metavar="FILE.crash",
        help="a .crash file; fault_tolerance(crash_dir=…) says where",
    )
    parser.add_argument(
        "--config", metavar="MODULE:NAME", help="the run's config, if it holds code; default: saved"
    )
    parser.add_argument("--env", help="dotted path of the env class, if that is all that is code")
    parser.add_argument("--pdb", action="store_true", help="debug what is raised")
    parser.add_argument(
        "--moves", action="store_true", help="with several agents: print every env step played"
    )


def _add_stops(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("when to stop (whichever comes first)")
    group.add_argument(
        "--stop-return", type=number, metavar="R", help="mean return of the last 100 episodes"
    )
    group.add_argument(
        "--stop-env-steps", type=count, metavar="N", help="env steps of the whole run"
    )
    group.add_argument(
        "--stop-iterations", type=count, metavar="N", help="iterations of the whole run"
    )
    group.add_argument(
        "--stop-time-s", type=seconds, metavar="S", help="seconds of training of the whole run"
    )


def _add_lines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lines",
        action="store_true",
        help="a line per iteration, instead of a display that is redrawn (extra [live])",
    )


def _add_saving(parser: argparse.ArgumentParser, *, every: str, keep: str) -> None:
    parser.add_argument("--checkpoint-every", type=count, metavar="N", help=f"iterations ({every})")
    parser.add_argument("--keep", type=count, metavar="N", help=f"checkpoints to keep ({keep})")
    parser.add_argument(
        "--track", action="append", default=[], metavar="NAME[:WHERE]",
        help="send results to wandb[:PROJECT], trackio[:PROJECT], mlflow[:URI] or aim[:FOLDER]; "
        "may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--track-artifacts", action="append", default=[], choices=ARTIFACT_KINDS,
        help="send every checkpoint that is saved, or the videos of the run's VideoRecorders, to "
        "the trackers, too; may be repeated",
    )  # fmt: skip


# ---- tuning


def _add_tune(subparsers: _Commands) -> None:
    parser = subparsers.add_parser("tune", help="search settings with many trials")
    parser.set_defaults(command=tuning_commands.tune)
    parser.add_argument(
        "trainable",
        help="name of an algorithm; or FILE.py:name or module:name of a tune.Tuner, or of a "
        "function that returns one, to which no other arguments are given",
    )
    parser.add_argument("--env", help="gymnasium id, or dotted path of an env class")
    parser.add_argument(
        "--space", action="append", default=[], type=tuning_commands.space, metavar="NAME=DOMAIN",
        help="a setting to be searched, such as 'lr=loguniform(1e-5, 1e-2)'; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], type=setting, metavar="NAME=VALUE",
        help="any other setting of the config; may be repeated",
    )  # fmt: skip
    parser.add_argument("--num-samples", type=count, metavar="N", help="trials (default: 1)")
    parser.add_argument("--metric", help="path into the results, to compare trials by")
    parser.add_argument("--mode", choices=("min", "max"), help="whether it shall be small or large")
    _add_tuning_stop(parser)
    parser.add_argument(
        "--scheduler", type=tuning_commands.scheduler,
        help="asha, hyperband, median, or pbt, which changes what --space names; default: fifo",
    )  # fmt: skip
    parser.add_argument(
        "--search", type=tuning_commands.searcher, help="random or optuna; default: random"
    )
    parser.add_argument("--concurrent", type=count, metavar="N", help="trials at the same time")
    parser.add_argument("--seed", type=count_or_zero, help="default: drawn and reported")
    parser.add_argument("--name", help="of the experiment (default: ALGO-TIME)")
    parser.add_argument("--storage-path", default="runs", metavar="DIR", help="default: runs")
    _add_json(parser)


def _add_tuning_stop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--stop", action="append", default=[], type=tuning_commands.bound, metavar="KEY=NUMBER",
        help="ends a trial when the key is at least NUMBER; KEY<=NUMBER: at most; may be repeated",
    )  # fmt: skip


def _add_tune_resume(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "tune-resume", help="go on with an experiment exactly, or extend it"
    )
    parser.set_defaults(command=tuning_commands.tune_resume)
    parser.add_argument("path", type=place, help="the experiment's folder")
    parser.add_argument(
        "trainable",
        nargs="?",
        metavar="FILE.py:NAME",
        help="the Tuner, if trainable or space are code",
    )
    parser.add_argument("--num-samples", type=count, metavar="N", help="more trials than before")
    parser.add_argument(
        "--allow-code",
        action="store_true",
        help="import envs and strategies that the folder names; only if you trust it",
    )
    parser.add_argument(
        "--errored", choices=("resume", "restart"), help="what to do with trials that failed"
    )
    _add_tuning_stop(parser)
    _add_json(parser)


def _add_trials(subparsers: _Commands) -> None:
    parser = subparsers.add_parser("trials", help="show the trials of an experiment")
    parser.set_defaults(command=tuning_commands.trials)
    parser.add_argument("path", type=place, help="the experiment's folder")
    parser.add_argument("--sort", metavar="KEY", help="a metric or parameter; the best first")
    parser.add_argument("--columns", metavar="A,B", help="what to show of each")
    parser.add_argument(
        "--filter", dest="filters", action="append", default=[], metavar="COMPARISON",
        help="such as 'lr<1e-3' or 'status==ERROR'; may be repeated",
    )  # fmt: skip
    parser.add_argument("--limit", type=count, metavar="N", help="so many at most")
    _add_json(parser)


def _add_best(subparsers: _Commands) -> None:
    parser = subparsers.add_parser("best", help="show the best trial of an experiment")
    parser.set_defaults(command=tuning_commands.best)
    parser.add_argument("path", type=place, help="the experiment's folder")
    parser.add_argument("--metric", help="default: that of the experiment")
    parser.add_argument("--mode", choices=("min", "max"), help="default: that of the experiment")
    parser.add_argument("--config-only", action="store_true", help="print the config as JSON")
    _add_json(parser)


# ---- looking at runs


def _add_runs(subparsers: _Commands) -> None:
    parser = subparsers.add_parser("runs", help="list runs: their state and what they have reached")
    parser.set_defaults(command=report_commands.runs)
    parser.add_argument(
        "path", type=place, nargs="?", default="runs", help="the folder (default: runs)"
    )
    _add_json(parser)


def _add_watch(subparsers: _Commands) -> None:
    parser = subparsers.add_parser("watch", help="follow a run that another terminal started")
    parser.set_defaults(command=report_commands.watch)
    parser.add_argument("path", type=place, help="the run's directory")
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="S", help="seconds between two looks"
    )
    _add_lines(parser)


def _add_plot(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "plot", help="draw learning curves: medians over seeds with a band, and each run"
    )
    parser.set_defaults(command=report_commands.plot)
    _add_pages(parser, output="curves.png", endings=".png, .svg or .pdf", title=None)
    parser.add_argument("--metric", default=RETURN, help=f"path into the results ({RETURN})")
    parser.add_argument("--x", choices=("env_steps", "time", "iteration"), default="env_steps")
    parser.add_argument(
        "--band", choices=("iqr", "minmax", "none"), default="iqr",
        help="around the median: the middle half of the runs, all of them, nothing",
    )  # fmt: skip
    parser.add_argument(
        "--smooth", type=count, default=1, metavar="N", help="means of the last N results"
    )


def _add_check(subparsers: _Commands) -> None:
    parser = subparsers.add_parser(
        "check", help="say whether learning goes wrong in runs, why, and what to change"
    )
    parser.set_defaults(command=report_commands.check)
    parser.add_argument(
        "paths", type=place, nargs="+", metavar="RUN", help="runs, or folders of some"
    )
    _add_json(parser)


def _add_report(subparsers: _Commands) -> None:
    parser = subparsers.add_parser("report", help="write one HTML page about runs")
    parser.set_defaults(command=report_commands.report)
    _add_pages(parser, output="report.html", endings=".html", title="Training report")


def _add_track(subparsers: _Commands) -> None:
    parser = subparsers.add_parser("track", help="send trackers the rows of a run that they lack")
    parser.set_defaults(command=run_trackers.track)
    parser.add_argument(
        "path", type=place, metavar="RUN",
        help="a run that is not at work, or the folder of a callback such as MLflowLogger",
    )  # fmt: skip
    parser.add_argument(
        "--track", action="append", default=[], metavar="NAME[:WHERE]",
        help="where to, as for `train` (default: what the run was begun with); may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--anew", action="store_true", help="send all rows, to a new run of the tracker"
    )


def _add_pages(
    parser: argparse.ArgumentParser, *, output: str, endings: str, title: str | None
) -> None:
    parser.add_argument(
        "paths", type=place, nargs="+", metavar="RUN", help="runs, or folders with runs"
    )
    parser.add_argument(
        "-o", "--output", default=output, metavar="FILE",
        help=f"{endings}, replaced if it is there (default: {output})",
    )  # fmt: skip
    parser.add_argument(
        "--label", dest="labels", action="append", metavar="TEXT",
        help="of a run, once per run in their order; the same for runs that belong together "
        "(default: those whose settings differ by the seed alone)",
    )  # fmt: skip
    parser.add_argument("--title", default=title, help="above all")
