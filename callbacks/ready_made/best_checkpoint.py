"""`BestCheckpoint`: saves a run whenever a metric is among the best so far."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

from callbacks.ready_made.checkpoint_directory import checkpoint_name
from callbacks.ready_made.choices import choice_problems, count_problems
from callbacks.ready_made.metric_values import RETURN, WatchedMetric, path_problems
from callbacks.ready_made.saving_callback import OnError, SavingCallback
from callbacks.ready_made.stop_criteria import Mode
from callbacks.views import AlgorithmView
from checkpoints import PathLike

SCORES_FILE: Final = "best.json"
"""The list of the kept checkpoints with their scores, for people and scripts."""


_Entry = tuple[float, int]  # score and iteration


@dataclasses.dataclass(frozen=True)
class _Decision:
    """One iteration that is among the best.

    Attributes:
        new: its entry.
        before, after: what was kept without it, and what is kept with it; the best first.
    """

    new: _Entry
    before: list[_Entry]
    after: list[_Entry]


class BestCheckpoint(SavingCallback):
    """Keeps the checkpoints with the best scores.

        config.evaluation(evaluation_interval=5)
        config.callbacks(
            [BestCheckpoint("runs/best", metric="evaluation/env_runners/episode_return_mean")]
        )

    The score is a metric of the result. NaN and infinite values are never among the best, nor is an
    evaluation that was made in an earlier iteration, with other weights. Of equal scores the
    earlier one stays. Scores survive a restore: a restored run goes on as if it had never stopped.

    `<directory>/best.json` lists the checkpoints with their scores, the best first.

    Args:
        directory: where to save, as `<directory>/<iteration>`; of this callback alone.
        metric: slash path of the score.
        mode: whether "max" or "min" is best.
        keep: how many of the best stay.
        on_error: as for `PeriodicCheckpoint`.
        background: as for `PeriodicCheckpoint`. Scores that were not good enough beside one whose
            save then failed are not saved belatedly.

    Raises:
        CallbackConfigError: an argument makes no sense; lists all problems.
    """

    def __init__(
        self,
        directory: PathLike,
        *,
        metric: str = RETURN,
        mode: Mode = "max",
        keep: int = 1,
        on_error: OnError = "raise",
        background: bool = False,
    ) -> None:
        problems = [
            *path_problems("metric", metric),
            *choice_problems("mode", mode, ("max", "min")),
            *count_problems("keep", keep),
        ]
        super().__init__(directory, on_error=on_error, background=background, problems=problems)
        self._metric: Final = WatchedMetric(metric)
        self._mode: Final = mode
        self._keep: Final = keep
        self._kept: list[_Entry] = []
        self._decision: _Decision | None = None  # None: the newest result is not among the best

    @property
    def scores(self) -> dict[str, float]:
        """Name of the checkpoint → score, of those that are kept, the best first."""
        return {checkpoint_name(iteration): score for score, iteration in self._kept}

    def get_state(self) -> dict[str, Any]:
        """Scores and iterations of what is kept."""
        return {
            "kept": [[score, iteration] for score, iteration in self._kept],
            "metric_was_found": self._metric.was_found,
            "num_failed_saves": self.num_failed_saves,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave; directory and metric stay those of the config."""
        self._kept = [(score, iteration) for score, iteration in state["kept"]]
        self._metric.was_found = state["metric_was_found"]
        self.num_failed_saves = state["num_failed_saves"]

    def _decide(self, algorithm: AlgorithmView, result: dict[str, Any]) -> None:
        score = self._metric.read(result, config=algorithm.config)
        self._decision = None
        if score is None:
            return
        new, before = (score, algorithm.training_iteration), self._kept
        self._kept = self._best_of([*before, new])
        if new in self._kept:
            self._decision = _Decision(new, before, self._kept)

    def _best_of(self, entries: list[_Entry]) -> list[_Entry]:
        sign = -1.0 if self._mode == "max" else 1.0
        # Stable: of equals, the earlier is first.
        return sorted(entries, key=lambda entry: sign * entry[0])[: self._keep]

    def _wants_to_save(self, result: dict[str, Any]) -> bool:
        del result
        return self._decision is not None

    def _begin(self) -> _Decision | None:
        return self._decision

    def _remove_others(self, saved: str, begun: _Decision, *, is_verified: bool) -> None:
        dropped = [entry for entry in begun.before if entry not in begun.after]
        names = [checkpoint_name(iteration) for _, iteration in dropped]
        self._write_scores(begun.after)
        self.directory.remove(names, saved=saved, is_verified=is_verified)

    def _forget(self, begun: _Decision) -> None:
        self._kept = self._without(begun, self._kept)
        later = self._decision
        if later is not None and later is not begun:  # it is about to be saved
            before = self._without(begun, later.before)
            self._decision = dataclasses.replace(later, before=before, after=self._kept)

    def _without(self, failed: _Decision, kept: list[_Entry]) -> list[_Entry]:
        """What would be kept now if an iteration had not been among the best."""
        if failed.new not in kept:
            return kept  # the iteration was undone, or better ones have taken its place
        later = [entry for entry in kept if entry not in failed.after]
        return self._best_of([*failed.before, *later])

    def _own_files(self) -> list[str]:
        return [SCORES_FILE]

    def _write_scores(self, kept: list[_Entry]) -> None:
        entries = [
            {"name": checkpoint_name(iteration), "score": score}
            for score, iteration in kept
            if (self.directory.path / checkpoint_name(iteration)).is_dir()
        ]
        text = json.dumps(
            {"metric": self._metric.path, "mode": self._mode, "checkpoints": entries}, indent=2
        )
        file = self.directory.path / SCORES_FILE
        temporary = file.with_suffix(".tmp")
        temporary.write_text(f"{text}\n", encoding="utf-8")
        temporary.replace(file)
