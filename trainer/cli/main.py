"""Reads the command line, does what it says, and turns errors into one message and an exit code.

The exit codes are in `EXIT_CODES`, which `--help` shows.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

from callbacks import CallbackConfigError, CallbackError
from checkpoints import CheckpointError, listing
from trainer.cli import checkpoint_commands, commands
from trainer.cli.arguments import count, count_or_zero, number, seconds, setting
from trainer.cli.output import complain, complain_with_traceback, set_up_logging
from trainer.cli.replaying import replay_episode
from trainer.errors import TrainerError
from trainer.interrupted_import import importing_is_over

EXIT_CODES = """\
exit codes:
  0    done: a stop criterion was met, or the command has nothing more to do; diff: they are equal
  1    an error, one message says what to do (--traceback shows more); verify: one is not whole
  2    wrong arguments
  3    diff: the checkpoints differ
  130  stopped by Ctrl-C or SIGTERM; train and resume have saved the run, and resume goes on,
       unless it was pressed twice: then the newest checkpoint is the last one saved before
"""

_EXPECTED_ERRORS = (TrainerError, CheckpointError, CallbackError, CallbackConfigError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code.

    Args:
        arguments: the words after `local-trainer`; None takes them from the process.
    """
    parsed = make_parser().parse_args(arguments)
    set_up_logging()
    try:
        importing_is_over()
        with _sigterm_like_ctrl_c(), _damages_told_once():
            code: int = parsed.command(parsed)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130
    except _EXPECTED_ERRORS as error:
        if parsed.traceback:
            complain_with_traceback(error)
        else:
            complain(f"{type(error).__name__}: {error}")
        return 1
    except PermissionError as error:
        complain(f"{type(error).__name__}: {error}. Check permissions and owner.")
        return 1
    except BrokenPipeError:
        return 0  # whoever reads the output has seen enough, as in `inspect … | head -1`
    finally:
        _let_go_of_closed_pipe()
    return code


class _Once(logging.Filter):
    """Lets each text through once."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_new = text not in self._told
        self._told.add(text)
        return is_new


@contextlib.contextmanager
def _damages_told_once() -> Iterator[None]:
    """Keeps a command that looks into a directory many times from repeating what it left out."""
    once, logger = _Once(), logging.getLogger(listing.__name__)
    logger.addFilter(once)
    try:
        yield
    finally:
        logger.removeFilter(once)


@contextlib.contextmanager
def _sigterm_like_ctrl_c() -> Iterator[None]:
    """Lets SIGTERM end what is not a run yet, or not any more, with all that has to be cleared."""
    is_main = threading.current_thread() is threading.main_thread()
    is_ours = is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_ours:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _let_go_of_closed_pipe() -> None:
    """Keeps the interpreter from complaining at its end that nobody reads its output any more."""
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="local-trainer",
        description="Reinforcement learning on one machine, with exact resume and exact repair.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_train(subparsers)
    _add_resume(subparsers)
    _add_evaluate(subparsers)
    _add_inspect(subparsers)
    _add_verify(subparsers)
    _add_diff(subparsers)
    _add_export(subparsers)
    _add_replay(subparsers)
    for subparser in subparsers.choices.values():
        subparser.epilog = EXIT_CODES
        subparser.formatter_class = argparse.RawDescriptionHelpFormatter
        subparser.add_argument(
            "--traceback", action="store_true", help="show the traceback of an error"
        )
    return parser


def _add_train(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("train", help="train an algorithm in an env, from the beginning")
    parser.set_defaults(command=commands.train)
    parser.add_argument("--algo", default="PPO", help="name of the algorithm (default: PPO)")
    parser.add_argument("--env", required=True, help="gymnasium id or dotted path of an env class")
    parser.add_argument(
        "--num-env-runners",
        type=count_or_zero,
        metavar="N",
        help="processes that sample; 0: this process does",
    )
    parser.add_argument(
        "--num-envs-per-env-runner", type=count, metavar="N", help="envs side by side in each"
    )
    parser.add_argument(
        "--seed",
        type=count_or_zero,
        help="the same seed gives the same bytes (default: drawn and reported)",
    )
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], type=setting, metavar="NAME=VALUE",
        help="any other setting of the config, as a Python or JSON value; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--run-dir",
        metavar="DIR",
        help="where results and checkpoints go (default: runs/ALGO-ENV-TIME)",
    )
    _add_stops(parser)
    _add_saving(parser)


def _add_resume(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "resume", help="go on with a run, exactly where its newest checkpoint stands"
    )
    parser.set_defaults(command=commands.resume)
    parser.add_argument("path", help="the run's directory, or one of its checkpoints")
    _add_code(parser)
    _add_stops(parser)
    _add_saving(parser)


def _add_evaluate(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("evaluate", help="play episodes with a checkpoint's policy")
    parser.set_defaults(command=commands.evaluate)
    parser.add_argument("path", help="a run's directory, or a checkpoint")
    parser.add_argument("--episodes", type=count, default=20, help="how many (default: 20)")
    parser.add_argument(
        "--seed",
        type=count_or_zero,
        default=0,
        help="which episodes: the same seed plays the same (default: 0)",
    )
    parser.add_argument(
        "--explore", action="store_true", help="draw actions instead of taking the most likely one"
    )
    _add_code(parser)


def _add_code(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env", help="dotted path of the env class, if the run was started with one"
    )
    parser.add_argument(
        "--allow-code",
        action="store_true",
        help="run code that the checkpoint holds or names (if you trust it)",
    )


def _add_inspect(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "inspect", help="say what is in a checkpoint, and what is not, without loading it"
    )
    parser.set_defaults(command=checkpoint_commands.inspect)
    parser.add_argument("path", help="a run's directory, or a checkpoint")
    parser.add_argument(
        "--verify", action="store_true", help="also compare all files with their hashes"
    )
    _add_json(parser)


def _add_verify(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "verify", help="compare all files of checkpoints with their hashes"
    )
    parser.set_defaults(command=checkpoint_commands.verify_files)
    parser.add_argument("path", help="a checkpoint, or a run's directory: all checkpoints in it")
    _add_json(parser)


def _add_diff(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("diff", help="say where two checkpoints differ, and by how much")
    parser.set_defaults(command=checkpoint_commands.diff)
    parser.add_argument("first", help="a run's directory, or a checkpoint")
    parser.add_argument("second", help="another one")
    parser.add_argument("--all", action="store_true", help="show every place, not the first few")
    _add_json(parser)


def _add_export(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "export", help="write weights for numpy.load (.npz), or the policy for ONNX (.onnx)"
    )
    parser.set_defaults(command=checkpoint_commands.export)
    parser.add_argument("path", help="a run's directory, a checkpoint, or a component in one")
    parser.add_argument("file", help="where to; its ending, .npz or .onnx, says what")
    parser.add_argument("--component", metavar="NAME", help=".npz: whose arrays (default: weights)")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it is there")
    parser.add_argument(
        "--allow-code",
        action="store_true",
        help=".onnx: run code saved in the checkpoint (if you trust it)",
    )
    _add_json(parser)


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _add_replay(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "replay-episode",
        help="play again, in this process, what an env runner was asked when it failed",
    )
    parser.set_defaults(command=replay_episode)
    parser.add_argument("path", help="a .crash file; fault_tolerance(crash_dir=…) says where")
    parser.add_argument(
        "--config", metavar="MODULE:NAME", help="the run's config, if it holds code; default: saved"
    )
    parser.add_argument("--env", help="dotted path of the env class, if that is all that is code")
    parser.add_argument("--pdb", action="store_true", help="debug what is raised")


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


def _add_saving(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint-every", type=count, default=10, metavar="N", help="iterations (default: 10)"
    )
    parser.add_argument(
        "--keep", type=count, default=3, metavar="N", help="checkpoints to keep (default: 3)"
    )
