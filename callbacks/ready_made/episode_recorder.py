"""EpisodeRecorder: chosen episodes as files of plain arrays, written by the runner that plays them.

What is in a file is said in `callbacks.ready_made.episode_file`, which also loads it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from callbacks.callback import RLlibCallback
from callbacks.naming import name_of
from callbacks.ready_made.choices import count_problems, directory_problems, raise_if_any
from callbacks.ready_made.episode_choice import EpisodeChoice
from callbacks.ready_made.episode_file import episode_arrays, write_episode
from callbacks.ready_made.recording_files import RecordingFiles
from callbacks.views import EnvRunnerView, EpisodeView, MetricsLoggerView


class EpisodeRecorder(RLlibCallback):
    """Writes observations, actions and rewards of whole episodes, one `.npz` file per episode.

        config.callbacks([EpisodeRecorder("recordings", every=10, evaluation=False)])
        arrays = load_episode("recordings/training-0-20.npz")

    A file is named after the id of its episode, in evaluation also after the version of the weights
    (with `evaluation_seed`, every evaluation plays the same ids). A repaired or resumed run writes
    the same files with the same bytes.

    Trouble with the disk is logged once per process and counted in `episode_recorder/num_failed`;
    training goes on.

    Args:
        directory: where to write; may hold other files.
        every: record every n-th episode; see `EpisodeChoice`.
        evaluation: True: evaluation episodes only; False: training only; None: both.
        chosen: called with each episode that `every` and `evaluation` choose, when it has ended;
            records it if the answer is true, for example
            `lambda episode: episode.get_return() > 100`.
        max_episodes: how many files each env runner keeps, the newest ones; None keeps all.
        columns: extra outputs of the module to record as well, such as `("action_logp",)`.
        compressed: smaller files for more time.

    Raises:
        CallbackConfigError: an argument is unfit; lists all problems.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        every: int = 1,
        evaluation: bool | None = None,
        chosen: Callable[[EpisodeView], object] | None = None,
        max_episodes: int | None = None,
        columns: Sequence[str] = (),
        compressed: bool = True,
    ) -> None:
        problems = directory_problems(directory) + EpisodeChoice.problems(every, evaluation)
        problems += count_problems("max_episodes", max_episodes, none="no limit")
        problems += _problems(chosen, columns)
        raise_if_any(name_of(type(self)), problems)
        self._choice = EpisodeChoice(every, evaluation)
        self._chosen = chosen
        self._columns = tuple(columns)
        self._compressed = compressed
        self._files = RecordingFiles(
            directory, recorder="episode_recorder", max_episodes=max_episodes
        )

    def on_episode_end(
        self,
        *,
        episode: EpisodeView,
        prev_episode_chunks: Sequence[EpisodeView],
        env_runner: EnvRunnerView,
        env_index: int,
        metrics_logger: MetricsLoggerView,
        **_: Any,
    ) -> None:
        """Writes the episode if it is chosen."""
        in_evaluation = env_runner.config.in_evaluation
        if not self._choice.includes(episode.id_, in_evaluation=in_evaluation):
            return
        if self._chosen is not None and not self._chosen(episode):
            return
        arrays = episode_arrays(
            [*prev_episode_chunks, episode],
            seed=env_runner.env_seed(env_index),
            columns=self._columns,
        )
        write = functools.partial(write_episode, arrays=arrays, compressed=self._compressed)
        name = f"{recording_name(episode, env_runner)}.npz"
        self._files.write(name, write, metrics_logger)

    def get_state(self) -> dict[str, Any]:
        """The names of the files that count for `max_episodes`, oldest first."""
        return {"names": list(self._files.names)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on counting files; where and what to record stays as it was given."""
        self._files.take_names(state["names"])


def _problems(chosen: object, columns: object) -> list[str]:
    problems = []
    if chosen is not None and not callable(chosen):
        problems.append(
            f"`chosen={chosen!r:.60}` must be a function that is given an episode, such as `lambda "
            "episode: episode.get_return() > 100`"
        )
    if not isinstance(columns, (list, tuple)) or {type(name) for name in columns} - {str}:
        problems.append(
            f"`columns={columns!r:.60}` must be a list of names, such as ['action_logp']"
        )
    return problems


def recording_name(episode: EpisodeView, env_runner: EnvRunnerView) -> str:
    """What the files of an episode are called, without ending; no two episodes share a name."""
    if env_runner.config.in_evaluation:
        return f"{episode.id_}-weights-{env_runner.weights_version}"
    return episode.id_
