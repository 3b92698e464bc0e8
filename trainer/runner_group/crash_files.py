"""Files from which a request that failed can be played again, in this process (`replay`).

`answer` of a runner is pure, so what it was given is all that is needed: positions, weights and the
request. It is plain data; the code of the env comes from the config of who replays. The actions of
the steps that were lost with a process need not be known: the same runner chooses them again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from callbacks.chain import CHAIN_STATE
from checkpoints import (
    CheckpointCorruptError,
    CheckpointMismatchError,
    StateError,
    check_shape,
    decode,
    encode,
)
from checkpoints.signatures import is_own, sign
from trainer.connectors import Normalization
from trainer.env_runners.messages import (
    EnvRunnerSpec,
    PolicySnapshot,
    SampleReply,
    SampleRequest,
    SlotPosition,
    Sync,
    Weights,
)
from trainer.env_runners.worker_service import RunnerBootstrap
from trainer.errors import ConfigError
from trainer.modules import ByModule, ModuleTable, RLModuleSpec
from trainer.modules.module_table import (
    ACTING_RECORD,
    TABLE_RECORD,
    acting_from_record,
    acting_record,
    table_from_record,
)
from trainer.runner_group.records import RunnerRecord
from trainer.runner_group.slot_states import slots_of
from trainer.runtime.messages import describe_failure, warn_of_close
from trainer.runtime.threads import single_threaded_blas
from trainer.seeding import GlobalGenerators, Role
from trainer.types import AgentId, ModuleId, State
from trainer_toolkit import checks
from trainer_toolkit.arguments import require_keys
from trainer_toolkit.files import replacing
from trainer_toolkit.plain_classes import check_of, from_plain, to_plain

_LOGGER = logging.getLogger(__name__)

SUFFIX: Final = ".crash"
_FORMAT: Final = 2
_SIGNATURE: Final = "signature"
_MOST_FILES: Final = 20
_PLACE: Final = (
    "root_seed",
    "worker_index",
    "num_workers",
    "num_envs",
    "first_slot",
    "num_slots",
)


_RECORD: Final = checks.fields(
    {
        "format_version": checks.COUNT,
        "why": checks.TEXT,
        "env": checks.TEXT,
        "role": checks.TEXT,
        "place": checks.fields(
            {name: checks.SEED if name == "root_seed" else checks.COUNT for name in _PLACE}
        ),
        "is_recreated": checks.FLAG,
        "number": checks.COUNT,
        "positions": checks.list_of(checks.of_type(dict)),
        "callbacks": checks.either(CHAIN_STATE, checks.NOTHING),
        "evaluation": checks.COUNT,
        "weights": checks.optional(check_of(Weights)),
        "normalization": checks.optional(checks.dict_of(check_of(Normalization))),
        "request": checks.optional(check_of(SampleRequest)),
    },
    optional={
        "table": TABLE_RECORD,
        "acting": ACTING_RECORD,
        _SIGNATURE: checks.TEXT,
        "algorithm": checks.TEXT,
        "config": checks.fields(
            {
                "class": checks.TEXT,
                "settings": checks.dict_of(checks.anything()),
                "code": checks.list_of(checks.TEXT),
            },
            optional={"root_seed": checks.SEED},
        ),
    },
)


class CrashFiles:
    """Writes what failed into a directory, as far as there is one.

    At most 20 files are written in a run, because an env that fails again and again tells the same.
    """

    def __init__(
        self,
        directory: str | None = None,
        *,
        about: Mapping[str, Any] | None = None,
        is_own_work: bool = False,
    ) -> None:
        """Writes nothing yet.

        Without a directory, it never writes. `about` is plain data that says which algorithm and
        config it is. What is this user's own work is signed (`checkpoints.signatures`).
        """
        self._is_own_work = is_own_work
        self._directory = None if directory is None else Path(directory).expanduser().absolute()
        self._about = dict(about or {})
        self._num_written = 0

    def write(
        self,
        place: RunnerRecord,
        policy: PolicySnapshot,
        request: SampleRequest | None,
        *,
        why: str,
    ) -> str:
        """Keeps what a runner was asked when it failed.

        The place is the runner's before anything about it was changed. Without a request, it failed
        while it was made or put back.

        Returns:
            a sentence that says what can be done with it; empty if nothing was written. Whatever
            prevents that is a warning: the failure itself matters more.
        """
        if self._directory is None or self._num_written >= _MOST_FILES:
            return ""
        if request is not None and request.steps_per_chunk is not None:
            return ""  # how much it plays depends on the clock
        if request is not None and request.rounds is not None:
            return ""  # it is made again, round by round
        try:
            record = {**self._about, **record_of(place, policy, request, why=why)}
            data = encode(record, name="what a runner was asked")
            if self._is_own_work and (signature := sign(data)) is not None:
                data = encode({**record, _SIGNATURE: signature})
            path = self._save(data, place)
        except (OSError, StateError) as error:
            _LOGGER.warning("What %s was asked could not be kept: %s", place.name, error)
            return ""
        self._num_written += 1
        return f" What it was asked is in {path}; `local-trainer replay-episode` plays it again."

    def _save(self, data: bytes, place: RunnerRecord) -> Path:
        directory = self._directory or Path()
        directory.mkdir(parents=True, exist_ok=True)
        stem = f"{place.spec.role.name.lower()}-runner-{place.spec.worker_index}"
        number = 1
        while (path := directory / f"{stem}-{number}{SUFFIX}").exists():
            number += 1
        with replacing(path, path.with_suffix(".unfinished"), must_sync=False) as file:
            file.write(data)
        return path


def record_of(
    place: RunnerRecord, policy: PolicySnapshot, request: SampleRequest | None, *, why: str
) -> State:
    """What a runner started from when it was asked, as plain data."""
    spec, table = place.spec, policy.whole_table
    # Those of the settings alone need no record.
    has_own_table = len(table.specs) > 1 or table.version
    return {
        "format_version": _FORMAT,
        "why": why,
        "env": spec.env_factory.name,
        "role": spec.role.name,
        "place": {name: getattr(spec, name) for name in _PLACE},
        "is_recreated": place.is_recreated,
        "number": max(0, place.num_starts - 1),
        "positions": [to_plain(position) for position in place.positions],
        "callbacks": place.callbacks,
        "evaluation": place.evaluation,
        **(policy if has_own_table else replace(policy, table=None)).to_state(),
        **({"acting": acting_record(table)} if has_own_table else {}),
        "request": None if request is None else to_plain(request),
    }


def is_own_crash(record: State) -> bool:
    """Whether this user's run wrote what a file holds on this machine."""
    rest = {name: value for name, value in record.items() if name != _SIGNATURE}
    return is_own(encode(rest), record.get(_SIGNATURE))


def read_crash(path: str | Path) -> State:
    """What a file holds.

    Raises:
        ConfigError: there is no such file, or it is of another version.
        CheckpointCorruptError: it is damaged, or something else.
    """
    try:
        data = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} cannot be read: {error.strerror}. Give a file that a run with "
            "config.fault_tolerance(crash_dir=…) has written; its log names it."
        ) from error
    record = decode(data)
    version = record.get("format_version") if isinstance(record, dict) else None
    if version != _FORMAT:
        raise ConfigError(
            f"{str(path)!r} has the format version {version!r}; this is version {_FORMAT}. Replay "
            "it with the version of the library that wrote it."
        )
    _check(record, _RECORD, source=str(path))
    if record["role"] not in Role.__members__:
        raise CheckpointCorruptError(
            f"{str(path)!r} is of a runner of the role {record['role']!r}; there are "
            f"{', '.join(Role.__members__)}. No run has written it."
        )
    return record  # type: ignore[no-any-return]


def _check(value: Any, shape: checks.Check, *, source: str) -> None:
    try:
        check_shape(value, shape)
    except CheckpointMismatchError as error:
        raise CheckpointCorruptError(
            f"{source!r} does not hold what a run writes when a request fails: {error}. Nothing "
            "was played."
        ) from error


def replay(
    record: State,
    spec: EnvRunnerSpec,
    module_specs: ByModule[RLModuleSpec],
    *,
    agents: Collection[AgentId] | None = None,
) -> SampleReply | None:
    """Plays again in this process what a runner was asked, so that a debugger can be used.

    Sub-envs are not made anew here: what raised then raises now, and what crashed crashes.

    Args:
        record: from `read_crash`.
        spec: of any runner of the same config; the record says which one it was.
        module_specs: know the spaces of the envs.
        agents: of the envs; None for envs of one agent.

    Returns:
        its answer, if nothing failed this time; None if it was only made and put back.

    Raises:
        Exception: what the user's code raised.
    """
    parts = ("place", "role", "positions", "weights", "callbacks", "normalization", "evaluation")
    require_keys("replay()", "record", record, parts)
    _check(record["positions"], slots_of(module_specs, agents=agents), source="The crash file")
    _check(
        record["positions"],
        checks.list_of(checks.anything(), length=record["place"]["num_envs"]),
        source="The crash file",
    )
    table = _table(record, now=spec.table)
    _check_weights(record["weights"], table.specs.ids)
    place = {**record["place"], "role": Role[record["role"]], "table": table}
    spec = replace(spec, **place, sub_env_tolerance=None)
    positions = tuple(from_plain(SlotPosition, each) for each in record["positions"])
    of_runner = {name: record[name] for name in ("weights", "normalization")}
    policy = PolicySnapshot.from_state(of_runner, PolicySnapshot(table=table))
    sync = Sync(policy, positions, record["callbacks"], record["evaluation"])
    bootstrap = RunnerBootstrap(
        spec, sync, is_recreated=record["is_recreated"], number=record["number"]
    )
    # As in a worker process: the same number of BLAS threads gives the same bytes, and the global
    # generators are seeded.
    with single_threaded_blas(), GlobalGenerators():
        handler = bootstrap(None)
        try:
            if record["request"] is None:
                return None
            evaluation = Sync(evaluation=record["evaluation"])
            return handler.sample(evaluation, _request(record["request"]))
        finally:
            try:
                handler.close()
            except Exception as error:  # noqa: BLE001 - told; what was raised before matters more
                warn_of_close("the replayed env runner", describe_failure(error))


def _table(record: State, *, now: ModuleTable) -> ModuleTable:
    """The modules that there were; those of now where the record does not say."""
    if "table" not in record:
        return now
    table = table_from_record(record["table"], now=now)
    return replace(table, acting=acting_from_record(record.get("acting", {}), now=now))


def _check_weights(weights: State | None, ids: Collection[ModuleId]) -> None:
    there = [*ids] if weights is None else sorted(weights.get("modules", ids))
    if there != sorted(ids):
        raise ConfigError(
            f"The crash file has weights of the modules {', '.join(map(repr, there))}, and the "
            f"settings name {', '.join(map(repr, sorted(ids)))}. Give the settings of the run that "
            "wrote it."
        )


def _request(state: State) -> SampleRequest:
    return replace(from_plain(SampleRequest, state), returns_episodes=True)
