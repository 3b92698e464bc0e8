"""VideoRecorder: chosen episodes as videos, written by gymnasium's own `save_video`.

gymnasium's wrapper `RecordVideo` is not used: it names files by how often an env was reset, which
a repaired run does not repeat.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from callbacks.callback import RLlibCallback
from callbacks.errors import CallbackConfigError
from callbacks.naming import name_of
from callbacks.optional_import import optional_module
from callbacks.ready_made.choices import count_problems, directory_problems, raise_if_any
from callbacks.ready_made.episode_choice import EpisodeChoice
from callbacks.ready_made.episode_recorder import recording_name
from callbacks.ready_made.recording_files import RecordingFiles
from callbacks.views import EnvRunnerView, EpisodeView, MetricsLoggerView, VectorEnvView

Frame = npt.NDArray[np.uint8]

_USUAL_FPS = 30


@dataclass
class _Recording:
    """The frames of a running episode."""

    episode_id: str
    frames: list[Frame] = field(default_factory=list)


class VideoRecorder(RLlibCallback):
    """Writes a video of each chosen episode, one `.mp4` file per episode.

        config.callbacks([VideoRecorder("videos")])
        config.evaluation(
            evaluation_config={"env_config": {"render_mode": "rgb_array"}}, ...
        )

    It needs `pip install "local-trainer[video]"`, and envs made with `render_mode="rgb_array"`; the
    runners that are not recorded need no such envs. Files are named as those of `EpisodeRecorder`.

    The frames of a running episode are held in memory: for CartPole 0.7 MB each. A training episode
    that goes on in another process after a repair or a restore has lost its earlier frames; no
    video is written of it. Evaluation episodes are played again from their start.

    Trouble with writing is logged once per process and counted in `video_recorder/num_failed`;
    training goes on.

    Args:
        directory: where to write; may hold other files.
        every: record every n-th episode; see `EpisodeChoice`.
        evaluation: True: evaluation episodes only; False: training only; None: both.
        max_episodes: how many files each env runner keeps, the newest ones; None keeps all.
        max_frames: a video ends after so many frames, its episode may go on; None is no limit.
        fps: frames per second; None is what the env says, or 30.

    Raises:
        CallbackConfigError: an argument is unfit; lists all problems.
        ImportError: moviepy is not installed.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        every: int = 1,
        evaluation: bool | None = True,
        max_episodes: int | None = None,
        max_frames: int | None = 1000,
        fps: int | None = None,
    ) -> None:
        name = name_of(type(self))
        problems = directory_problems(directory) + EpisodeChoice.problems(every, evaluation)
        problems += count_problems("max_episodes", max_episodes, none="no limit")
        problems += count_problems("max_frames", max_frames, none="no limit")
        problems += count_problems("fps", fps, none="what the env says")
        raise_if_any(name, problems)
        optional_module("moviepy", user=name, extra="video")
        self._choice = EpisodeChoice(every, evaluation)
        self._files = RecordingFiles(
            directory, recorder="video_recorder", max_episodes=max_episodes
        )
        self._max_frames = max_frames
        self._fps = fps
        self._running: dict[int, _Recording] = {}

    def on_environment_created(
        self, *, env: VectorEnvView, env_runner: EnvRunnerView, **_: Any
    ) -> None:
        """Refuses envs that cannot be recorded, before anything is played."""
        if not self._choice.includes_role(in_evaluation=env_runner.config.in_evaluation):
            return
        for index, sub_env in enumerate(env.envs):
            mode = getattr(sub_env, "render_mode", None)
            if mode != "rgb_array":
                raise CallbackConfigError([_render_problem(index, sub_env, mode)])

    def on_episode_start(
        self,
        *,
        episode: EpisodeView,
        env_runner: EnvRunnerView,
        env: VectorEnvView,
        env_index: int,
        **_: Any,
    ) -> None:
        """Begins a recording if the episode is chosen."""
        self._running.pop(env_index, None)
        in_evaluation = env_runner.config.in_evaluation
        if self._choice.includes(episode.id_, in_evaluation=in_evaluation):
            recording = _Recording(episode.id_)
            self._add_frame(recording, env, env_index)
            self._running[env_index] = recording

    def on_episode_step(
        self, *, episode: EpisodeView, env: VectorEnvView, env_index: int, **_: Any
    ) -> None:
        """Adds a frame to the recording."""
        recording = self._running.get(env_index)
        if recording is None or recording.episode_id != episode.id_:
            return
        # An iteration that was undone may have left frames of steps that are made again now.
        del recording.frames[episode.t :]
        if len(recording.frames) < min(episode.t, self._max_frames or episode.t):
            del self._running[env_index]  # some were recorded in a process that is gone
            return
        self._add_frame(recording, env, env_index)

    def on_episode_end(
        self,
        *,
        episode: EpisodeView,
        env_runner: EnvRunnerView,
        env: VectorEnvView,
        env_index: int,
        metrics_logger: MetricsLoggerView,
        **_: Any,
    ) -> None:
        """Writes the video of a recording."""
        recording = self._running.pop(env_index, None)
        if recording is None or recording.episode_id != episode.id_:
            return
        name = recording_name(episode, env_runner)
        metadata = getattr(env.envs[env_index], "metadata", None) or {}
        fps = self._fps or metadata.get("render_fps") or _USUAL_FPS

        def write(path: Path) -> None:
            _save(recording.frames, path, fps=fps)

        # The encoder is a program of its own and may fail in many ways, none of which is worth a
        # training run.
        self._files.write(f"{name}.mp4", write, metrics_logger, harmless=(Exception,))

    def get_state(self) -> dict[str, Any]:
        """The names of the files that count for `max_episodes`, oldest first."""
        return {"names": list(self._files.names)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on counting files; where and what to record stays as it was given."""
        self._files.take_names(state["names"])

    def _add_frame(self, recording: _Recording, env: VectorEnvView, env_index: int) -> None:
        if self._max_frames is not None and len(recording.frames) >= self._max_frames:
            return
        frame = env.envs[env_index].render()
        if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
            shown = f"array of shape {frame.shape}" if isinstance(frame, np.ndarray) else frame
            raise CallbackConfigError(
                [
                    f"VideoRecorder: `render()` of sub-env {env_index} gave {shown!r:.60}; "
                    "expected a frame, uint8, [height, width, 3]. Correct the env's `render`, or "
                    "leave VideoRecorder out"
                ]
            )
        recording.frames.append(np.array(frame, np.uint8))


def _save(frames: list[Frame], path: Path, *, fps: int) -> None:
    """Writes a video to `path`, whatever its ending; gymnasium chooses a name of its own."""
    saving = optional_module("gymnasium.utils.save_video", user="VideoRecorder", extra="video")
    saving.save_video(
        frames,
        str(path.parent),
        episode_trigger=lambda _: True,
        episode_index=0,
        name_prefix=path.name,
        fps=fps,
    )
    path.with_name(f"{path.name}-episode-0.mp4").replace(path)


def _render_problem(index: int, sub_env: Any, mode: object) -> str:
    modes = (getattr(sub_env, "metadata", None) or {}).get("render_modes") or ()
    known = ", ".join(map(str, modes)) or "none"
    return (
        f"VideoRecorder: sub-env {index} ({sub_env}) has render_mode={mode!r}, so it gives no "
        f'frames; expected "rgb_array" (its class names these modes: {known}). Make it with that '
        'mode: `env_config={"render_mode": "rgb_array"}` for gymnasium\'s envs, for evaluation '
        'alone in `evaluation_config={"env_config": ...}`'
    )
