"""Where the time of an iteration went: what `result["timers"]["split"]` and `profile` show.

The parts add up to the time of the iteration and of what followed the iteration before: telling its
result to callbacks, and saving. Runners of a group play side by side, so a part of theirs is the
mean over them. Where they played while training did something else, that mean is longer than
training waited for them: their parts are scaled down to the wait. Where timers of a training step
overlap (a callback or a `training_step` of your own may time a block twice), the sum is larger.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Final

from trainer.env_runners.messages import PlayTimes

ENV: Final = "env"
ACTING: Final = "acting"
CALLBACKS: Final = "callbacks"
TRANSPORT: Final = "transport"
LEARNING: Final = "learning"
EVALUATION: Final = "evaluation"
SAVING: Final = "saving"
OTHER: Final = "other"

PARTS: Final[Mapping[str, str]] = {
    ENV: "steps and resets of the envs, recording them included",
    ACTING: "networks that choose actions, and the draw",
    CALLBACKS: "your callbacks: in runners, and on_train_result of the iteration before",
    TRANSPORT: "requests and answers of runners, and waiting for the slowest one",
    LEARNING: "updates, the replay buffer, and handing out weights",
    EVALUATION: "evaluations, as far as training waited for them",
    SAVING: "save_to_path() since the iteration before, as far as it blocked",
    OTHER: "the rest: snapshots to undo, statistics, the result",
}
"""What each part is."""

_SAMPLING: Final = "env_runner_sampling_timer"
_LEARNING: Final = ("learner_update_timer", "synch_weights", "replay_buffer_add_timer")
_EVALUATION: Final = "evaluation_iteration"


def split_of(
    elapsed_s: float,
    timers: Mapping[str, float],
    times: PlayTimes,
    *,
    num_runners: int,
    since: Mapping[str, float],
) -> dict[str, float]:
    """Seconds by part.

    Args:
        elapsed_s: of the iteration.
        timers: of its parts, as results name them.
        times: of the runners, summed over them.
        num_runners: how many these are, ≥ 1; lost ones left out.
        since: seconds by part from the end of the iteration before.
    """
    sampling = timers.get(_SAMPLING, 0.0)
    played = times.env_step + times.env_reset + times.inference + times.callbacks
    share = min(1.0 / num_runners, sampling / played) if played else 0.0
    env = (times.env_step + times.env_reset) * share
    acting, callbacks = times.inference * share, times.callbacks * share
    parts = {
        ENV: env,
        ACTING: acting,
        CALLBACKS: callbacks,
        TRANSPORT: max(sampling - env - acting - callbacks, 0.0),
        LEARNING: sum(timers.get(name, 0.0) for name in _LEARNING),
        EVALUATION: timers.get(_EVALUATION, 0.0),
        SAVING: 0.0,
    }
    parts[OTHER] = max(elapsed_s - sum(parts.values()), 0.0)
    return {part: seconds + since.get(part, 0.0) for part, seconds in parts.items()}


class TimeBetween:
    """Adds up what happens between two results: callbacks that hear of one, and saving."""

    def __init__(self) -> None:
        self._seconds = {CALLBACKS: 0.0, SAVING: 0.0}

    @contextlib.contextmanager
    def spent_on(self, part: str) -> Iterator[None]:
        """Counts the seconds of the block; saving in a callback counts as saving alone."""
        begun_at, saved = time.perf_counter(), self._seconds[SAVING]
        try:
            yield
        finally:
            elapsed = time.perf_counter() - begun_at
            if part != SAVING:
                elapsed -= self._seconds[SAVING] - saved
            self._seconds[part] += elapsed

    def take(self) -> Mapping[str, float]:
        """Seconds by part since this was last called."""
        taken, self._seconds = self._seconds, dict.fromkeys(self._seconds, 0.0)
        return taken
