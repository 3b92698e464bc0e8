"""An experiment that is to be gone on with: its journal, compared with what the caller gave."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from checkpoints.links import check_links
from trainer.errors import TuneError, TuneSettingError
from trainer.name_resolution import PROGRAM, stranger
from trainer.tune.configs import (
    ResumeConfig,
    RunConfig,
    TuneConfig,
)
from trainer.tune.controller import Controller
from trainer.tune.events import TrialStatus
from trainer.tune.journal_entries import AmendEntry, EndEntry, Move, move_from_plain
from trainer.tune.journal_file import (
    JOURNAL_FILE,
    ReadJournal,
    is_own_journal,
    read_first_entry,
    read_journal,
)
from trainer.tune.search_space import Choice, SearchSpace
from trainer.tune.setup import ExperimentSetup, check_kind, drawn_configs
from trainer.tune.stoppers import StopCriteria
from trainer.tune.stored_code import kept_code
from trainer.tune.stored_spec import (
    NeedsCallerError,
    changed_versions,
    check_header,
    described_stop,
    differences,
    filled_up,
    made_again,
    space_of_plain,
    stop_of_plain,
)
from trainer.tune.trial_files import ROWS_FILE

_LOGGER = logging.getLogger(__name__)


class _NoExperimentError(TuneError, FileNotFoundError):
    """There is no journal where an experiment is looked for."""


def read_header(folder: Path) -> dict[str, Any]:
    """The header of an experiment's journal.

    Raises:
        TuneError: there is none; names the experiment's folder if a part of it was given.
        LinkError: a link in the folder leads out of it.
    """
    folder = folder.expanduser().resolve()
    check_links(folder)
    if not (folder / JOURNAL_FILE).is_file():
        above = [path for path in folder.parents if (path / JOURNAL_FILE).is_file()]
        below = sorted(file.parent.name for file in folder.glob(f"*/{JOURNAL_FILE}"))
        hint = f" Give the experiment's folder, {above[0]}." if above else ""
        if below and not above:
            hint = f" Give one of the experiments in it: {', '.join(below)}."
        elif (folder / ROWS_FILE).is_file() and not above:
            hint = " It is a single run; experiments are what tune begins."
        raise _NoExperimentError(
            f"{folder} holds no experiment: there is no {JOURNAL_FILE} in it.{hint}"
        )
    header = read_first_entry(folder / JOURNAL_FILE)
    check_header(header, str(folder))
    assert header is not None  # noqa: S101 - checked
    return header


_IF_TRUSTED: Final = (
    "If it is yours, register it before (register_env(name, …)), or give the search space again: "
    "Tuner.restore(path, trainable, param_space=…). Pass allow_code=True (--allow-code) only if "
    "you trust the experiment's folder like a program."
)


def _given(param_space: Any) -> list[Any]:
    """The values that a space of the caller's holds, choices included."""
    if param_space is None:
        return []
    space = SearchSpace(param_space)
    choices = [each.values for each in space.parameters.values() if isinstance(each, Choice)]
    return [space.unresolved(), *choices]


@dataclass
class RestoredExperiment:
    """An experiment that is to be gone on with.

    Attributes:
        folder: of the experiment.
        header: of its journal.
        resume: what to do with trials that have ended.
        tune_config: given by the caller, or None.
        run_config: given by the caller, or None.
        is_trusted: whether its journal may name code: it is this user's own, or that was allowed.
        allow_code: whether that was allowed.
    """

    folder: Path
    header: dict[str, Any]
    resume: ResumeConfig
    tune_config: TuneConfig | None
    run_config: RunConfig | None
    is_trusted: bool
    allow_code: bool
    _read: ReadJournal | None = None

    @classmethod
    def at(
        cls,
        path: str | Path,
        resume: ResumeConfig,
        tune_config: TuneConfig | None,
        run_config: RunConfig | None,
        *,
        allow_code: bool,
    ) -> RestoredExperiment:
        """Reads the header; a TuneError if there is no experiment."""
        check_kind("tune_config", tune_config, TuneConfig)
        check_kind("run_config", run_config, RunConfig)
        folder = Path(path).expanduser().resolve()
        header = read_header(folder)
        is_trusted = allow_code or is_own_journal(folder / JOURNAL_FILE)
        return cls(folder, header, resume, tune_config, run_config, is_trusted, allow_code)

    def setup(self, trainable: Any, param_space: Any) -> ExperimentSetup:
        """What the caller gave, filled up from the header, and compared with it.

        Raises:
            TuneError: parts differ that must be the same; names both values of each.
        """
        header = self.header
        source = stranger(_IF_TRUSTED).handing_in(*_given(param_space))
        source = PROGRAM if self.is_trusted else source
        if param_space is None:
            param_space = self._space()
        setup = ExperimentSetup(
            trainable,
            param_space,
            self._whole_tune_config(),
            self._whole_run_config(),
            seed=header["seed"],
            num_lanes=header["num_lanes"],
            cpus=header["cpus"],
            source=source,
        )
        setup.check_read(drawn_configs(setup.space))
        new = setup.header(setup.plan(header["num_samples"]), self.folder.name)
        if found := differences(header, new):
            raise TuneSettingError(
                f"{self.folder} cannot be gone on with as another experiment. {'. '.join(found)}. "
                "What may change: num_samples (more), stop, callbacks, verbose, failure_config, "
                "checkpoint_config. Nothing was changed."
            )
        setup.check()
        for change in changed_versions(header):
            _LOGGER.warning(
                "The experiment %s goes on with another version (%s): rows may differ in their "
                "last digits.",
                self.folder.name,
                change,
            )
        return setup

    def _space(self) -> Any:
        if self.header.get("plain_space") is not None:
            return space_of_plain(self.header["plain_space"])
        asks = NeedsCallerError(
            f"The search space of {self.folder} holds code, which is not in the journal. "
            "Give it again: Tuner.restore(path, trainable, param_space=…)."
        )
        return self._kept("param_space", asks)

    def _kept(self, name: str, asks: NeedsCallerError) -> Any:
        """What was kept of code under a name; raises what is given if that is nothing."""
        if name not in self._code:
            raise asks
        return self._code[name]

    @functools.cached_property
    def _code(self) -> Mapping[str, Any]:
        return kept_code(self.folder, allow_code=self.allow_code) if self.is_trusted else {}

    def _again(self, name: str, make: Callable[[], Any]) -> Any:
        """A part that is made again from the journal, or was kept because it is code."""
        try:
            return make()
        except NeedsCallerError as error:
            return self._kept(name, error)

    def _whole_tune_config(self) -> TuneConfig:
        header = self.header
        given = self.tune_config or TuneConfig(num_samples=header["num_samples"])
        return dataclasses.replace(
            filled_up(given, header["settings"]["tune_config"], self._kept),
            seed=header["seed"],
            max_concurrent_trials=header["num_lanes"],
            metric=given.metric or header["metric"],
            mode=given.mode or header["mode"],
            scheduler=given.scheduler
            or self._again("scheduler", lambda: made_again(header["scheduler"])),
            search_alg=given.search_alg
            or self._again("search_alg", lambda: made_again(header["searcher"])),
        )

    def _whole_run_config(self) -> RunConfig:
        given = self.run_config or RunConfig()
        own = {
            "name": self.folder.name,
            "storage_path": str(self.folder.parent),
            "num_cpus": self.header["cpus"],
        }
        stop = given.stop if given.stop is not None else self._stop()
        whole = filled_up(given, self.header["settings"]["run_config"], self._kept)
        return dataclasses.replace(whole, stop=stop, **own)

    def _stop(self) -> Any:
        if self._criteria:  # those of the start were kept, and no others
            return stop_of_plain(self._last_stop())
        return self._again("stop", lambda: stop_of_plain(self.header["stop"]))

    def _last_stop(self) -> Any:
        """The criteria of the newest restore that changed them, else of the start."""
        return self._criteria[-1] if self._criteria else self.header["stop"]

    @functools.cached_property
    def _criteria(self) -> list[Any]:
        """The stop criteria that restores brought, in order; damage is told when it is read."""
        self._read = read_journal(self.folder / JOURNAL_FILE)
        causes = [move.cause for move in self.moves(self._read[0])]
        return [each.stop for each in causes if isinstance(each, AmendEntry) and each.has_new_stop]

    def read_before(self) -> ReadJournal | None:
        """What was read of the journal when the criteria were looked for; given away once."""
        found, self._read = self._read, None
        return found

    def moves(self, plain: list[dict[str, Any]]) -> list[Move]:
        """The journal's lines behind the header; a JournalError for what is none."""
        check_header(plain[0] if plain else None, str(self.folder))
        return [move_from_plain(line) for line in plain[1:]]

    def amendment(
        self, controller: Controller, moves: list[Move], setup: ExperimentSetup
    ) -> AmendEntry | None:
        """What this restore changes; None if nothing."""
        wanted = None if self.tune_config is None else self.tune_config.num_samples
        more = None if wanted in (None, 1, controller.num_samples) else wanted
        errored = [t.number for t in controller.trials if t.status is TrialStatus.ERROR]
        resumed = errored if self.resume.errored == "resume" else []
        restarted = errored if self.resume.errored == "restart" else []
        has_new_stop = self.has_new_stop(setup)
        if has_new_stop:
            resumed = [*resumed, *_ended_by_criteria(controller, moves)]
        if more is None and not (resumed or restarted or has_new_stop):
            return None
        return AmendEntry(
            num_samples=more,
            has_new_stop=has_new_stop,
            stop=described_stop(StopCriteria(setup.run_config.stop)) if has_new_stop else None,
            resumed=tuple(sorted(resumed)),
            restarted=tuple(restarted),
        )

    def has_new_stop(self, setup: ExperimentSetup) -> bool:
        """Whether other stop criteria decide from now on."""
        if self.run_config is None or self.run_config.stop is None:
            return False
        return bool(self._last_stop() != described_stop(StopCriteria(setup.run_config.stop)))


def _ended_by_criteria(controller: Controller, moves: list[Move]) -> list[int]:
    """Trials that the old criteria ended; they go on under the new ones."""
    ends = [each for move in moves for each in move.then if isinstance(each, EndEntry)]
    return [
        number
        for number, end in {end.trial: end for end in ends}.items()
        if end.by == "criterion" and controller.trials[number].status is TrialStatus.TERMINATED
    ]
