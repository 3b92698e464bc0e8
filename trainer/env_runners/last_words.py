"""What the main process can tell of a lost process: what it noted, and what was committed."""

from __future__ import annotations

from trainer.env_runners.runner_place import RunnerPlace
from trainer.env_runners.whereabouts import (
    DOING,
    DOINGS,
    ENV_INDEX,
    EPISODE,
    RESETTING,
    SEED,
    SIGNS,
    STREAM,
)
from trainer.runtime.outcomes import Failed, Lost


def what_happened(outcome: Failed | Lost, place: RunnerPlace) -> str:
    """How a call to a runner ended, and where it was then, as the rest of a sentence."""
    return outcome.describe() + (last_words(outcome, place) if isinstance(outcome, Lost) else "")


def traceback_below(outcome: Failed | Lost) -> str:
    """The remote traceback on lines of its own; empty if there is none."""
    return f"\n{outcome.failure.traceback_text.rstrip()}" if isinstance(outcome, Failed) else ""


def last_words(lost: Lost, place: RunnerPlace) -> str:
    """What is known of what a lost process did, as the rest of a sentence; may be empty."""
    if lost.start_error is not None or not lost.notes:
        return ""
    doing = _doing(lost)
    parts = [f"during {doing}"] if doing else []
    parts += [_begun_last(lost, place)] if lost.notes[ENV_INDEX] else _continued(place)
    return f" ({'; '.join(parts)})" if parts else ""


def _doing(lost: Lost) -> str:
    code = lost.notes[DOING]  # what ended the process may have written into this memory as well
    return DOINGS[code] if 0 <= code < len(DOINGS) else ""


def _begun_last(lost: Lost, place: RunnerPlace) -> str:
    notes, spec = lost.notes, place.spec
    episode = f"{spec.role.name.lower()}-{notes[STREAM]}-{notes[EPISODE]}"
    text = f"sub-env {notes[ENV_INDEX] - 1}, episode {episode}, seed {notes[SEED]}"
    if spec.num_envs > 1:
        return f"the episode begun last: {text}"
    if _doing(lost) == RESETTING:
        return text
    # Every step is a sign, and so is the reset before them.
    return f"{text}, step {max(0, lost.num_signs - notes[SIGNS] - 1)}"


def _continued(place: RunnerPlace) -> list[str]:
    """The episodes that were running before it was asked: it has begun none since."""
    running = [
        f"sub-env {index}, episode {position.episode['id_']}, seed {position.env_seed}, "
        f"after step {position.num_steps}"
        for index, position in enumerate(place.positions)
        if position.episode is not None
    ]
    more = [f"and {len(running) - 3} more"] if len(running) > 3 else []
    return running[:3] + more
