"""Firing `on_sample_end`: callbacks may change the episodes that a runner hands out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.runner_parts import RunnerParts
from trainer.env_runners.sample_checks import check_samples
from trainer.episodes import SingleAgentEpisode
from trainer.errors import EpisodeError
from trainer.metrics import EpisodeRecord

EVENT: Final = "on_sample_end"


def fire_sample_end(
    runner: RunnerParts,
    samples: list[SingleAgentEpisode],
    *,
    slots: Sequence[EnvSlot],
    records: list[EpisodeRecord],
) -> None:
    """Fires the event; where it rewrote rewards, returns stay those of the env.

    Args:
        runner: who has played.
        samples: what it hands out; changed by callbacks.
        slots: what runs on remembers that its earlier chunks were rewritten.
        records: of the episodes that have ended; they get their rewritten return.

    Raises:
        CallbackError: a callback raised, or left episodes whose columns do not fit together.
    """
    emit = runner.callbacks.emitter(EVENT)
    if emit is None:
        return
    # By id, which no two of them share: callbacks may put others in their place.
    paid = {episode.id_: episode.rewards_list().copy() for episode in samples}
    outputs = {episode.id_: tuple(episode.extra_model_outputs) for episode in samples}
    arguments = {"env_runner": runner, "metrics_logger": runner.metrics, "samples": samples}
    emit(**arguments)
    try:
        check_samples(samples, outputs)
    except EpisodeError as error:
        raise runner.callbacks.blame(EVENT, arguments, error) from error
    rewritten: dict[str, SingleAgentEpisode] = {}
    for episode in samples:
        before = paid.get(episode.id_)
        if before is not None and episode.rewards_list() != before:
            episode.note_rewrite(before)
            rewritten[episode.id_] = episode
    for slot in slots:
        if slot.episode is not None and slot.episode.id_ in rewritten:
            slot.follow(rewritten[slot.episode.id_])
    for place, record in enumerate(records):
        if record.id_ in rewritten:
            amount = rewritten[record.id_].get_rewritten_return()
            records[place] = replace(record, rewritten_return=amount)
