"""Chosen episodes as files: plain arrays, and videos; written by the runner that plays them."""

from __future__ import annotations

import functools
import logging
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt

from callbacks.callback import RLlibCallback
from callbacks.errors import CallbackConfigError
from callbacks.optional_import import optional_module
from callbacks.ready_made.metric_values import count_problems, directory_problems, raise_if_any
from callbacks.spec import name_of
from callbacks.views import EnvRunnerView, EpisodeView, MetricsLoggerView, VectorEnvView
from checkpoints.code import moved_path

# ---- recording files
#
# The files of recorded episodes in one directory, as one env runner writes them. What is in a
# file is the business of the recorder. A file is there whole or not at all; trouble with the disk
# is told, and never stops training.

logger = logging.getLogger(__name__)

_UP: Final = ("", ".", "..")


class RecordingFiles:
    """Writes files by name and keeps the newest ones.

    A name always means the same episode, so there are no two writers: written again by a repaired
    or resumed run, a file is replaced.

    Attributes:
        directory: absolute; made when the first file is written.
        names: of the files written here, oldest first; filled only if their number is limited.

    Args:
        directory: `~` is understood; relative to where the main process runs now.
        recorder: who writes: what messages and metrics are called.
        max_episodes: how many files are kept; None keeps all.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, recorder: str, max_episodes: int | None
    ) -> None:
        self.directory = Path(directory).expanduser().absolute()
        self.names: list[str] = []
        self._recorder = recorder
        self._max_episodes = max_episodes
        self._has_warned = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, directory=moved_path(state["directory"]))

    def write(
        self,
        name: str,
        write: Callable[[Path], object],
        metrics_logger: MetricsLoggerView,
        *,
        harmless: tuple[type[Exception], ...] = (OSError,),
    ) -> None:
        """Writes one file and deletes what is too many; counts both outcomes as metrics.

        Characters that file names do not take are escaped. `write` is given a temporary path; what
        it raises of `harmless` does not stop training. Counted are `<recorder>/num_written` and
        `<recorder>/num_failed`.
        """
        name = quote(name, safe=" ")
        temporary = self.directory / f".{name}.part"
        is_written = False
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            try:
                write(temporary)
                temporary.replace(self.directory / name)
            finally:
                temporary.unlink(missing_ok=True)
            is_written = True
            self._keep_newest(name)
        except harmless as error:
            self._warn_once(name, error)
        metrics_logger.log_value((self._recorder, "num_written"), int(is_written), reduce="sum")
        metrics_logger.log_value((self._recorder, "num_failed"), int(not is_written), reduce="sum")

    def _keep_newest(self, name: str) -> None:
        if self._max_episodes is None:
            return
        self.names = [earlier for earlier in self.names if earlier != name] + [name]
        too_many = len(self.names) - self._max_episodes
        for old in self.names[: max(0, too_many)]:
            (self.directory / old).unlink(missing_ok=True)
            self.names.remove(old)

    def take_names(self, names: Sequence[Any]) -> None:
        """Goes on with the names that a state holds.

        Raises:
            ValueError: one of them is no name that `write` gives, so it may lead out of the
                directory, and what it leads to would be deleted some day.
        """
        for name in names:
            if not isinstance(name, str) or quote(unquote(name), safe=" ") != name or name in _UP:
                raise ValueError(
                    f"{name!r:.80} is no name of a recording. The state was not written by "
                    f"{self._recorder}; nothing was deleted."
                )
        self.names = list(names)

    def _warn_once(self, name: str, error: Exception) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        logger.warning(
            "%s could not write %s: %s: %s. Training goes on without this recording; later "
            "failures are not logged but counted in env_runners/%s/num_failed.",
            self._recorder,
            self.directory / name,
            type(error).__name__,
            error,
            self._recorder,
        )


# ---- episode choice
#
# Which episodes a recorder records: a function of the episode's id, never of a counter. So a
# repaired, resumed or differently distributed run records the same episodes.


@dataclass(frozen=True)
class EpisodeChoice:
    """Every n-th episode of training, of evaluation, or of both.

    Attributes:
        every: 1 chooses all. n chooses the episodes whose number, the last part of the id, is a
            multiple of n: in training the 1st, (n+1)-th, … of every sub-env, in evaluation those
            tickets of every evaluation. Ids that end with no number are chosen by a checksum, one
            in n.
        evaluation: True: evaluation only; False: training only; None: both.
    """

    every: int = 1
    evaluation: bool | None = None

    def includes_role(self, *, in_evaluation: bool) -> bool:
        """Whether a runner of this role plays episodes that may be chosen."""
        return self.evaluation is None or self.evaluation == in_evaluation

    def includes(self, episode_id: str, *, in_evaluation: bool) -> bool:
        """Whether an episode is chosen."""
        if not self.includes_role(in_evaluation=in_evaluation):
            return False
        number = episode_id.rpartition("-")[2]
        # isdecimal() is true for digits of other scripts, which int() reads as well.
        index = int(number) if number.isdecimal() else zlib.crc32(episode_id.encode())
        return index % self.every == 0

    @staticmethod
    def problems(every: Any, evaluation: Any) -> list[str]:
        """What is wrong with the arguments, one sentence each."""
        found = count_problems("every", every)
        if evaluation is not None and not isinstance(evaluation, bool):
            found.append(
                f"`evaluation={evaluation!r}` must be True for evaluation episodes only, False for "
                "training episodes only, or None for both"
            )
        return found


# ---- episode file
#
# One episode as an `.npz` file: plain arrays by name, the same bytes for the same episode.
#     id            the id of the episode, a string
#     seed          what `env.reset(seed=...)` was given, int64; missing if unknown
#     observations  [T + 1, ...]; of dicts and tuples one array per leaf: `observations/camera`
#     actions       [T, ...], as the module gave them; of dicts and tuples likewise
#     rewards       float64, [T]
#     terminated    bool: the env reached a final state
#     truncated     bool: a limit ended the episode
#     extra/NAME    [T, ...]: an extra output of the module, if wanted
#
# `load_episode` needs nothing but NumPy; nothing is pickled.

Array = npt.NDArray[Any]


def load_episode(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of a recorded episode by name, as the module docstring lists them.

    Args:
        path: a file that `EpisodeRecorder` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no file of arrays, or holds pickled objects.
    """
    file = Path(path).expanduser()
    try:
        with file.open("rb") as opened:
            archive = np.load(opened, allow_pickle=False)
            if not hasattr(archive, "files"):
                raise ValueError("it holds a single array")
            with archive:
                return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise
    except Exception as cause:
        # Any: damage makes zipfile, zlib and NumPy raise a dozen classes, which differ by version.
        raise ValueError(
            f"path={str(path)!r} is no file of arrays, or damaged ({type(cause).__name__}: "
            f"{cause!s:.200}); expected an .npz file that EpisodeRecorder wrote. Give the path of "
            "one."
        ) from cause


def episode_arrays(
    chunks: Sequence[EpisodeView], *, seed: int | None, columns: Sequence[str] = ()
) -> dict[str, Array]:
    """The arrays of a whole episode.

    Args:
        chunks: all chunks of the episode, oldest first; lists or arrays.
        seed: what the env was reset with, if known.
        columns: names of extra outputs of the module.

    Raises:
        ValueError: the steps differ in shape, or an extra output does not exist.
    """
    last = chunks[-1]
    arrays = {"id": np.array(last.id_)}
    if seed is not None:
        arrays["seed"] = np.array(seed, np.int64)
    observations = [_leaves("observations", chunk.get_observations()) for chunk in chunks]
    # A chunk begins with the observation that the one before it ends with.
    continued = [{name: leaf[1:] for name, leaf in part.items()} for part in observations[1:]]
    arrays |= _joined([observations[0], *continued])
    arrays |= _joined([_leaves("actions", chunk.get_actions()) for chunk in chunks])
    arrays["rewards"] = np.concatenate(
        [np.asarray(chunk.get_rewards(), np.float64) for chunk in chunks]
    )
    arrays["terminated"] = np.array(last.is_terminated)
    arrays["truncated"] = np.array(last.is_truncated)
    for column in columns:
        parts = [_leaves(f"extra/{column}", _output(chunk, column)) for chunk in chunks]
        arrays |= _joined(parts)
    return arrays


def arrays_by_agent(
    chunks: Sequence[Any], *, seed: int | None, columns: Sequence[str] = ()
) -> dict[str, Array]:
    """The arrays of a whole episode of several agents: those of each under `<agent>/`.

    Arguments as of `episode_arrays`.
    """
    arrays: dict[str, Array] = {"id": np.array(chunks[-1].id_)}
    if seed is not None:
        arrays["seed"] = np.array(seed, np.int64)
    agents = {agent: None for chunk in chunks for agent in chunk.agent_episodes}
    for agent in sorted(agents, key=str):
        own = [chunk.agent_episodes[agent] for chunk in chunks if agent in chunk.agent_episodes]
        own = [chunk for chunk in own if len(chunk)]
        if own:
            parts = episode_arrays(own, seed=None, columns=columns)
            arrays |= {f"{agent}/{name}": part for name, part in parts.items()}
    return arrays


def write_episode(path: Path, arrays: Mapping[str, Array], *, compressed: bool) -> None:
    """Writes arrays as `.npz`, as `numpy.savez` does but without the time of writing."""
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            # Everything that could differ from one writing to the next is fixed.
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = method
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)


def _output(chunk: EpisodeView, column: str) -> Any:
    outputs = chunk.get_extra_model_outputs()
    if column not in outputs:
        raise ValueError(
            f"EpisodeRecorder(columns=...): episode {chunk.id_} has no extra output {column!r}; "
            f"it has {', '.join(map(repr, outputs)) or 'none'}"
        )
    return outputs[column]


def _joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _leaves(name: str, rows: Any) -> dict[str, Array]:
    """The leaves of many rows of one column by path, each as an array with a row per step."""
    leaves: dict[str, Array] = {}
    for path, leaf in _walk(name, rows):
        if path in leaves:
            raise ValueError(
                f"two entries of an episode are called {path!r} in a file; rename one of the keys "
                "of the space, such as one with a slash"
            )
        leaves[path] = leaf
    return leaves


def _walk(name: str, rows: Any) -> Iterator[tuple[str, Array]]:
    """Leaves with their paths: `rows` is a list of items, or a batch (structure outside)."""
    first = rows[0] if isinstance(rows, list) and rows else None
    if isinstance(rows, Mapping):
        for key, batch in rows.items():
            yield from _walk(f"{name}/{key}", batch)
    elif isinstance(rows, tuple):
        for index, batch in enumerate(rows):
            yield from _walk(f"{name}/{index}", batch)
    elif isinstance(first, Mapping):
        for key in first:
            yield from _walk(f"{name}/{key}", [item[key] for item in rows])
    elif isinstance(first, tuple):
        for index in range(len(first)):
            yield from _walk(f"{name}/{index}", [item[index] for item in rows])
    else:
        yield name, _stacked(name, rows)


def _stacked(name: str, rows: Any) -> Array:
    try:
        array = np.asarray(rows)
    except ValueError as error:  # rows of different shapes
        raise ValueError(f"{name} cannot be recorded: {error}") from error
    if array.dtype.hasobject:
        raise ValueError(
            f"{name} cannot be recorded: its items are {type(rows[0]).__name__} objects; expected "
            "numbers, strings, or arrays of them that have one shape in all steps"
        )
    return array


# ---- episode recorder


class _Recorder(RLlibCallback):
    """A callback whose state are the files it has written."""

    _files: RecordingFiles

    def get_state(self) -> dict[str, Any]:
        """The names of the files that count for `max_episodes`, oldest first."""
        return {"names": list(self._files.names)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on counting files; where and what to record stays as it was given."""
        self._files.take_names(state["names"])


class EpisodeRecorder(_Recorder):
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
        make = arrays_by_agent if hasattr(episode, "agent_episodes") else episode_arrays
        arrays = make(
            [*prev_episode_chunks, episode],
            seed=env_runner.env_seed(env_index),
            columns=self._columns,
        )
        write = functools.partial(write_episode, arrays=arrays, compressed=self._compressed)
        name = f"{recording_name(episode, env_runner)}.npz"
        self._files.write(name, write, metrics_logger)


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


# ---- video recorder
#
# VideoRecorder: chosen episodes as videos, written by gymnasium's own `save_video`. gymnasium's
# wrapper `RecordVideo` is not used: it names files by how often an env was reset, which a
# repaired run does not repeat.

Frame = npt.NDArray[np.uint8]

_USUAL_FPS = 30


@dataclass
class _Recording:
    """The frames of a running episode."""

    episode_id: str
    frames: list[Frame] = field(default_factory=list)


class VideoRecorder(_Recorder):
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

    @property
    def directory(self) -> Path:
        """Where videos are written, absolute."""
        return self._files.directory

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
        played = getattr(episode, "env_t", None)  # of an episode of several agents
        num_steps: int = episode.t if played is None else played
        del recording.frames[num_steps:]
        if len(recording.frames) < min(num_steps, self._max_frames or num_steps):
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
