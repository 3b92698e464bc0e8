"""What the tuner knows of each trial's files, and how its process is started.

The controller decides, the lanes work; this is where both find the trial's folder, the checkpoints
that count, and the rows that a repair must make again.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from callbacks import PackingError
from callbacks.packing import pack_object
from trainer.envs import packed_registrations
from trainer.errors import TuneError, TuneSettingError
from trainer.metrics import comparable
from trainer.ray_engine.engine import RayEngine
from trainer.runtime.engine import Engine
from trainer.tune.callbacks import TrialView
from trainer.tune.configs import CheckpointConfig, RunConfig, TuneConfig
from trainer.tune.controller import Controller
from trainer.tune.events import CheckpointRef, StartTrial, Trial
from trainer.tune.journal_entries import (
    AmendEntry,
    CommittedEntry,
    EndEntry,
    Move,
    Reported,
)
from trainer.tune.lanes import Origin
from trainer.tune.rows import is_number, number_at, score_at
from trainer.tune.session import TuneContext
from trainer.tune.trainables import TrainableSpec, packed_names
from trainer.tune.trial_files import (
    SavedCheckpoint,
    TrialFiles,
    canonical_digest,
    checkpoint_folder_name,
)
from trainer.tune.trial_handler import TOTALS, TrialBootstrap

_LOGGER = logging.getLogger(__name__)
TRIALS_FOLDER: Final = "trials"
_CLOCKS: Final = ("node_ip", "_timestamp", "_runtime")


def row_digest(row: Mapping[str, Any]) -> str:
    """A digest of a row without what no two runs share, such as times and process ids."""
    return canonical_digest(comparable(row, also_drop=_CLOCKS))


@dataclass
class TrialRecord:
    """What is known of one trial's files.

    Attributes:
        files: its folder.
        name: what it is called.
        saved: checkpoints that count, by row.
        digests: of rows that may have to be made again, by their number.
        num_written: rows in the file.
        last_saved_at: by the monotonic clock; for recovery checkpoints.
        time_total_s: seconds of work so far.
        scores: of rows, where they decide which checkpoints stay.
        has_logged_difference: rows that were made again were others.
    """

    files: TrialFiles
    name: str
    saved: list[SavedCheckpoint] = field(default_factory=list)
    digests: dict[int, str] = field(default_factory=dict)
    num_written: int = 0
    last_saved_at: float = 0.0
    time_total_s: float = 0.0
    scores: dict[int, float] = field(default_factory=dict)
    has_logged_difference: bool = False

    def note_time(self, row: Mapping[str, Any]) -> None:
        """Takes the time from the newest row that counts."""
        seconds = number_at(row, "time_total_s")  # the user's own entry, perhaps
        self.time_total_s = 0.0 if math.isnan(seconds) else seconds

    @property
    def newest(self) -> SavedCheckpoint | None:
        """The newest checkpoint that was asked for."""
        regular = [saved for saved in self.saved if not saved.is_recovery]
        return regular[-1] if regular else None


class TrialRecords:
    """All trials' files of an experiment; answers what lanes must know to start processes.

    Args:
        folder: of the experiment.
        controller: whose trials they are.
        spec: what is tuned.
        tune_config: how trials run, and what they are called.
        run_config: where they print to, and which checkpoints are kept.
        seed: of the experiment.
    """

    def __init__(
        self,
        folder: Path,
        controller: Controller,
        spec: TrainableSpec,
        *,
        tune_config: TuneConfig,
        run_config: RunConfig,
        seed: int,
    ) -> None:
        self._experiment_name = folder.name
        self._folder = folder / TRIALS_FOLDER
        self._controller = controller
        self._spec = spec
        self._tune_config = tune_config
        self._output_files = run_config.output_files
        self._saving = run_config.checkpoint_config or CheckpointConfig()
        self._seed = seed
        self._records: dict[int, TrialRecord] = {}
        self._folders: dict[int, str] | None = None  # of trials with folders of other names
        self._packed: bytes | None = None
        self._registrations = b""
        self._names: list[bytes] = []

    # ---- records

    def __getitem__(self, number: int) -> TrialRecord:
        if number not in self._records:
            self._records[number] = self._made(self._controller.trials[number])
        return self._records[number]

    def _made(self, trial: Trial) -> TrialRecord:
        name_of = self._tune_config.trial_name_creator
        folder_of = self._tune_config.trial_dirname_creator
        files = self.files_of(trial.number)
        name = f"{self._spec.name}_{trial.trial_id}"
        if name_of is not None:
            name = str(name_of(self.view_of(trial, files.path, name)))
        if folder_of is None or files.path.is_dir():
            # Of one that is over and was forgotten, all rows are in its file.
            num_written = trial.num_rows if trial.status.is_over else 0
            return TrialRecord(files, name, num_written=num_written)
        folder = str(folder_of(self.view_of(trial, files.path, name)))
        others = self._other_folders()
        is_plain = Path(folder).name == folder and folder not in (".", "..")
        is_number = folder.isdecimal() and folder != trial.trial_id
        if folder in others.values():
            folder = f"{folder}_{trial.trial_id}"
        if not is_plain or is_number or folder in others.values():
            raise TuneError(
                f"trial_dirname_creator gave {folder!r} for trial {trial.number}; expected a "
                "plain folder name that is no number, and that no other trial has."
            )
        others[trial.number] = folder
        return TrialRecord(TrialFiles(self._folder / folder), name)

    def view_of(
        self, trial: Trial, path: Path, name: str, newest: Callable[[], Path | None] = lambda: None
    ) -> TrialView:
        """What users' functions see of a trial: its folder, its name, its newest checkpoint."""
        return TrialView(
            trial,
            config=functools.partial(self._controller.config_of, trial.number),
            path=path,
            name=name,
            trainable_name=self._spec.name,
            newest=newest,
        )

    def files_of(self, number: int) -> TrialFiles:
        """The folder of a trial, which the controller may not know yet."""
        path = self._folder / f"{number:05d}"
        if not path.is_dir():
            path = self._folder / self._other_folders().get(number, path.name)
        return TrialFiles(path)

    def forget(self, number: int) -> None:
        """Keeps nothing of a trial that is over and has no checkpoints: it is in its files."""
        if not self[number].saved:
            del self._records[number]

    def saved_of(self, number: int) -> Sequence[SavedCheckpoint]:
        """The checkpoints of a trial that count, by row."""
        record = self._records.get(number)
        return () if record is None else record.saved

    def newest_path(self, number: int) -> Path | None:
        """The newest checkpoint that was asked for; None if there is none."""
        record = self[number]
        newest = record.newest
        return None if newest is None else record.files.checkpoint(newest.name)

    def _other_folders(self) -> dict[int, str]:
        """The folders that have names of the user's own, by trial."""
        if self._folders is None:
            paths = self._folder.iterdir() if self._folder.is_dir() else ()
            names = [path.name for path in paths if not path.name.isdecimal()]
            facts = {name: TrialFiles(self._folder / name).read_facts() for name in names}
            self._folders = {
                int(each["number"]): name for name, each in facts.items() if "number" in each
            }
        return self._folders

    def read(self, moves: Iterable[Move], *, may_change: bool) -> None:
        """Learns from the journal what rows and checkpoints there are, after the replay.

        With `may_change`, rows that do not count are cut off, and checkpoints looked at, whether
        they are whole.
        """
        num_rows: dict[int, int] = {}
        for entry in [entry for move in moves for entry in move.entries]:
            if isinstance(entry, Reported):
                num_rows[entry.trial] = entry.row_number
                self[entry.trial].digests[entry.row_number] = entry.digest
            elif isinstance(entry, CommittedEntry):  # those for repairs included
                saved = SavedCheckpoint(entry.row_number, entry.name, entry.digest)
                self._add(self[entry.trial], saved)
            elif isinstance(entry, EndEntry):
                self[entry.trial].digests.clear()
            elif isinstance(entry, AmendEntry):
                for number in entry.restarted:
                    self._records.pop(number, None)
                    num_rows.pop(number, None)
        for trial in self._controller.trials:
            record = self[trial.number]
            present = [s for s in record.saved if record.files.checkpoint(s.name).is_dir()]
            record.saved = present
            if not may_change:
                continue
            if trial.status.is_over:
                self._keep_what_others_made(record, num_rows.get(trial.number, 0))
            record.num_written = record.files.keep_rows(num_rows.get(trial.number, 0))
            is_complete = record.num_written == num_rows.get(trial.number, 0)
            if not is_complete:
                _LOGGER.warning(
                    "%s lacks rows %d to %d, which were reported. A trial that goes on makes them "
                    "again; of one that is over they are lost, and its decisions stay.",
                    record.files.path,
                    record.num_written + 1,
                    num_rows[trial.number],
                )
            if not trial.status.is_over:
                record.note_time(record.files.last_row() or {})
                self._drop_damaged(record)
            elif is_complete:
                self.forget(trial.number)

    def _keep_what_others_made(self, record: TrialRecord, num_rows: int) -> None:
        """A trial that is over has later states only if `local-trainer resume` went on with it."""
        aside = record.files.set_later_aside(num_rows)
        if aside is not None:
            _LOGGER.warning(
                "%s was gone on with after report %d, where the experiment ended it. That is no "
                "part of the experiment, and is kept in %s; remove it if it is not wanted.",
                record.files.path,
                num_rows,
                aside,
            )

    def _drop_damaged(self, record: TrialRecord) -> None:
        while record.saved and not record.files.is_whole(record.saved[-1]):
            damaged = record.saved.pop()
            _LOGGER.warning(
                "%s is damaged and not used; the trial goes on from an older state and makes the "
                "rows in between again.",
                record.files.checkpoint(damaged.name),
            )

    def reset(self, number: int) -> None:
        """Forgets all rows and checkpoints of a trial that begins anew."""
        record = self[number]
        for saved in record.saved:
            record.files.remove(saved.name)
        record.files.keep_rows(0)
        record.saved, record.digests, record.num_written = [], {}, 0
        record.scores.clear()

    # ---- rows

    def note_made(self, number: int, row_number: int, row: Mapping[str, Any]) -> str:
        """Keeps the digest of a new row, and returns it."""
        digest = self[number].digests[row_number] = row_digest(row)
        return digest

    def write_row(self, number: int, row_number: int, row: Mapping[str, Any]) -> None:
        """Writes a row that counts, unless it is there; see `TrialFiles.append_row`."""
        record = self[number]
        if row_number <= record.num_written:
            return
        record.files.append_row(row)
        record.num_written = row_number
        record.note_time(row)

    def check_made_again(self, number: int, row_number: int, row: Mapping[str, Any]) -> bool:
        """Compares a row with what counts; tells a difference once per trial.

        Returns:
            whether they are the same.
        """
        record = self[number]
        expected = record.digests.get(row_number)
        if row_number == record.num_written + 1:
            self.write_row(number, row_number, row)  # the file was cut
        if expected in (None, "", row_digest(row)):
            return True
        if not record.has_logged_difference:
            record.has_logged_difference = True
            _LOGGER.warning(
                "Trial %05d: row %d was made again after a repair and is another one%s. The first "
                "one counts. Report checkpoints and go on from them, and take random numbers from "
                "tune.get_context().rng() or NumPy's global generator, so that rows repeat.",
                number,
                row_number,
                self._different_keys(record, row_number, row),
            )
        return False

    def _different_keys(self, record: TrialRecord, row_number: int, row: Mapping[str, Any]) -> str:
        before = next(
            (row for index, row in enumerate(record.files.rows(), 1) if index == row_number), None
        )
        if before is None:
            return ""
        old, new = (comparable(found, also_drop=_CLOCKS) for found in (before, row))
        keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        return f" (differs: {', '.join(keys[:5])})"

    # ---- checkpoints

    def has_state(self, ref: CheckpointRef) -> bool:
        """Whether the state of a row is committed."""
        saved = self[ref.trial].saved
        name = checkpoint_folder_name(ref.row_number)
        return any(entry.name == name for entry in saved)

    def add(self, number: int, saved: SavedCheckpoint) -> None:
        """Notes a checkpoint that counts from now on."""
        record = self[number]
        self._add(record, saved)
        record.last_saved_at = time.monotonic()
        for row_number in [row for row in record.digests if row <= saved.row_number]:
            del record.digests[row_number]

    def _add(self, record: TrialRecord, saved: SavedCheckpoint) -> None:
        others = [entry for entry in record.saved if entry.name != saved.name]
        record.saved = sorted([*others, saved], key=lambda entry: entry.row_number)

    def note_score(self, number: int, row_number: int, row: Mapping[str, Any]) -> None:
        """Keeps what decides whether the checkpoint of a row stays, if one is saved."""
        saving = self._saving
        if saving.checkpoint_score_attribute is not None:
            score = score_at(row, saving.checkpoint_score_attribute, saving.checkpoint_score_order)
            self[number].scores[row_number] = score

    def remove_unneeded(self, number: int) -> None:
        """Removes checkpoints beyond `num_to_keep` that no decision and no repair needs."""
        record = self[number]
        regular = [saved for saved in record.saved if not saved.is_recovery]
        pinned = self._controller.pinned
        # When one for repairs is saved follows the clock: it takes no other's place.
        stay = {saved.name for saved in [*record.saved[-1:], *regular[-1:]]} | {
            saved.name
            for saved in record.saved
            if CheckpointRef(number, saved.row_number) in pinned
        }
        num_to_keep = self._saving.num_to_keep
        if num_to_keep is None:
            stay |= {saved.name for saved in regular}
        else:
            ranked = sorted(regular, key=lambda saved: self._rank(record, saved))
            stay |= {saved.name for saved in ranked[-num_to_keep:]}
        for saved in [saved for saved in record.saved if saved.name not in stay]:
            record.files.remove(saved.name)
            record.saved.remove(saved)

    def _rank(self, record: TrialRecord, saved: SavedCheckpoint) -> tuple[float, int]:
        if self._saving.checkpoint_score_attribute is None:
            return 0.0, saved.row_number
        score = record.scores.get(saved.row_number, math.nan)
        return (-math.inf if math.isnan(score) else score), saved.row_number

    def read_scores(self) -> None:
        """Learns the scores of all rows, after a restore."""
        if self._saving.checkpoint_score_attribute is None:
            return
        for number, record in self._records.items():
            for index, row in enumerate(record.files.rows(), 1):
                self.note_score(number, index, row)

    def sweep(self) -> None:
        """Removes what the journal does not know, after a restore."""
        wanted = self._controller.unfinished_saves
        for number, record in self._records.items():
            rows = [ref.row_number for ref in wanted if ref.trial == number]
            names = [saved.name for saved in record.saved]
            # What has its name already, and not its line in the journal, is adopted.
            record.files.sweep([*names, *map(checkpoint_folder_name, rows)], rows)
            self.remove_unneeded(number)

    def drop_pending(self) -> None:
        """Removes what was reported with rows that do not count; when no process is left."""
        wanted = self._controller.unfinished_saves
        for trial in self._controller.trials:
            rows = {ref.row_number for ref in wanted if ref.trial == trial.number}
            self.files_of(trial.number).drop_pending(but=rows)

    # ---- processes

    def is_ready(self, start: StartTrial) -> bool:
        """Whether the checkpoint that it begins with is not still to be saved.

        It may be gone: a copy that is repaired has later states of its own (`origin`).
        """
        return start.start_from not in self._controller.unfinished_saves

    def origin(self, start: StartTrial, *, at_most: int) -> Origin:
        """Where a process begins: the newest state of at most so many rows, since the last exploit.

        Args:
            start: what is started.
            at_most: rows.

        Raises:
            TuneError: the checkpoint to go on from is gone.
        """
        record = self[start.trial]
        at_most = min(at_most, max(record.num_written, start.base_row))
        own = [saved for saved in record.saved if start.base_row < saved.row_number <= at_most]
        if own:
            return Origin(record.files.checkpoint(own[-1].name), own[-1].row_number)
        source = start.start_from
        if source is None:
            return Origin(None, 0)
        donor = self[source.trial]
        if not self.has_state(source):
            raise TuneError(
                f"The checkpoint of trial {source.trial} after report {source.row_number} is gone, "
                f"from which trial {start.trial} is to go on. It was removed or damaged from "
                "outside; bring it back from a copy."
            )
        path = donor.files.checkpoint(checkpoint_folder_name(source.row_number))
        return Origin(path, start.base_row, is_clone=source.trial != start.trial)

    def boot(self, start: StartTrial, origin: Origin) -> TrialBootstrap:
        """What makes the process; a TuneError names the place of what cannot travel to it."""
        tuning, record = self._tune_config, self[start.trial]
        trial = self._controller.trials[start.trial]
        record.files.create()
        if self._packed is None and not tuning.in_process:
            self._packed = _packed(self._spec, "the trainable")
            self._registrations, self._names = packed_registrations(), packed_names()
        context = TuneContext(
            trial_number=start.trial,
            seed=start.seed,
            trial_id=trial.trial_id,
            trial_name=record.name,
            trial_dir=str(record.files.path),
            experiment_name=self._experiment_name,
            resources={"CPU": trial.cpus},
        )
        output = None
        if self._output_files is not None and not tuning.in_process:
            output = tuple(record.files.path / name for name in self._output_files)
        return TrialBootstrap(
            trainable=self._spec if self._packed is None else self._packed,
            config=start.config if self._packed is None else _packed(start.config, "config"),
            context=context,
            checkpoint=origin.checkpoint,
            row_number=origin.row_number,
            new_seed=start.seed if origin.is_clone else None,
            experiment_tag=_tag(start),
            experiment_seed=self._seed if tuning.seed_globals else None,
            output=output,  # type: ignore[arg-type]  # mypy loses the length of the tuple
            changes_directory=tuning.chdir_to_trial_dir,
            registrations=self._registrations,
            names=self._names,
            is_own_process=not tuning.in_process,
            time_total_s=record.time_total_s,
            totals=self._totals_at(start, origin),
        )

    def _totals_at(self, start: StartTrial, origin: Origin) -> dict[str, float]:
        """Sums that rows keep of what earlier ones counted, at the row where a process begins."""
        number, row_number = start.trial, origin.row_number
        if origin.is_clone and start.start_from is not None:
            number, row_number = start.start_from.trial, start.start_from.row_number
        if row_number == 0 or self._spec.algorithm is not None:
            return {}
        rows = self.files_of(number).rows()
        row: Mapping[str, Any] = next(itertools.islice(rows, row_number - 1, None), {})
        return {name: row[name] for name in TOTALS if is_number(row.get(name))}

    def factory(self, boot: TrialBootstrap) -> bytes | TrialBootstrap:
        """What a place is started with: the same, as bytes if it travels."""
        return pack_object(boot, name="the trial's bootstrap") if boot.is_own_process else boot


def _packed(thing: object, name: str) -> bytes:
    try:
        return pack_object(thing, name=name)
    except PackingError as error:
        raise TuneSettingError(f"A trial runs in a process of its own, and {error}") from error


def check_packs(spec: TrainableSpec, config: Any) -> None:
    """Raises a TuneError with the place of what would keep a trial from its process."""
    _packed(spec, "the trainable")
    _packed(config, "config")


def _tag(start: StartTrial) -> str:
    params = ",".join(f"{path}={value}" for path, value in start.params.items())
    return f"{start.trial}_{params}" if params else str(start.trial)


def cpus_for_trials(engine: str | Engine) -> float:
    """Logical CPUs that trials share, if the user does not say: of the machine or the cluster.

    Raises:
        ImportError, EngineError: there is no such cluster.
    """
    if engine == "ray":
        return RayEngine().num_cpus_there() or usable_cpus()
    return usable_cpus()


def engine_for_trials(engine: str | Engine, *, num_cpus: float) -> Engine | None:
    """Where trials run; None is on this machine.

    It reserves `num_cpus` for each lane.

    Raises:
        ImportError, EngineError: there is no such cluster.
    """
    if not isinstance(engine, str):
        return engine
    return RayEngine(num_cpus=num_cpus) if engine == "ray" else None


def usable_cpus() -> int:
    """Logical CPUs that this process may use: by affinity and by the container's limit."""
    try:
        number = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        number = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            number = min(number, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        pass
    return number
