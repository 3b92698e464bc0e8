"""Recordings of real runs: the same files whatever happens to the processes that write them."""

import os
import signal
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from callbacks import CallbackConfigError, CallbackError, EpisodeRecorder, VideoRecorder
from callbacks import load_episode as load
from callbacks.ready_made import recorders as video_recorder
from tests.small_runs import small_ppo
from trainer import PPO
from trainer.testing.envs import CountdownEnv, FailingEnv


class DrawnEnv(CountdownEnv):
    """A CountdownEnv whose frames show, in their first pixel, how many steps were made."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self.render_mode = env_config.get("render_mode")
        self.metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}
        self.num_frames = 0

    def render(self):
        self.num_frames += 1
        frame = np.zeros((16, 16, 3), np.uint8)
        frame[0, 0, 0] = self.steps
        return frame


class NestedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A CountdownEnv whose observations are a dict."""

    def __init__(self, env_config):
        super().__init__(CountdownEnv(env_config))
        self.observation_space = spaces.Dict({"inner": self.env.observation_space})

    def reset(self, **options):
        observation, info = super().reset(**options)
        return {"inner": observation}, info

    def step(self, action):
        observation, *rest = super().step(action)
        return ({"inner": observation}, *rest)


def config(
    callbacks, *, num_env_runners=0, num_envs=2, env=CountdownEnv,
    **settings):  # fmt: skip
    made = small_ppo(num_env_runners, env=env, num_envs_per_env_runner=num_envs, seed=11)
    made.training(train_batch_size=30, minibatch_size=30, model={"fcnet_hiddens": [4]})
    return made.callbacks(callbacks).update_from_dict(settings)


def recordings(directory):
    """The content of every file of a directory by its name."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def recorded(directory, *, num_iterations=3, **how):
    with config(EpisodeRecorder(directory, columns=["action_logp"]), **how).build_algo() as algo:
        for _ in range(num_iterations):
            algo.train()
    return recordings(directory)


def test_recordings_are_what_was_played_and_can_be_played_again(tmp_path):
    ended = {}

    def note(episode, prev_episode_chunks):
        ended[episode.id_] = (episode.get_return(), episode.t, len(prev_episode_chunks))

    made = config(EpisodeRecorder(tmp_path)).callbacks(on_episode_end=note)
    with made.build_algo() as algo:
        result = [algo.train() for _ in range(3)][-1]
    assert {f"{name}.npz" for name in ended} == recordings(tmp_path).keys()
    assert max(num_chunks for _, _, num_chunks in ended.values()) > 0, "no episode was cut"
    assert result["env_runners/episode_recorder"] == {"num_written": len(ended), "num_failed": 0}
    env = CountdownEnv()
    for name, (episode_return, length, _) in ended.items():
        arrays = load(tmp_path / f"{name}.npz")
        assert (arrays["rewards"].sum(), len(arrays["actions"])) == (episode_return, length)
        seen = [env.reset(seed=int(arrays["seed"]))[0]]
        seen += [env.step(int(action))[0] for action in arrays["actions"]]
        np.testing.assert_array_equal(arrays["observations"], seen)


@pytest.mark.process
def test_runners_write_the_same_files_however_slots_are_spread(tmp_path):
    alone = recorded(tmp_path / "0", num_envs=4)
    assert len(alone) > 4
    assert recorded(tmp_path / "1", num_env_runners=1, num_envs=4) == alone
    assert recorded(tmp_path / "2", num_env_runners=2, num_envs=2) == alone


@pytest.mark.process
def test_a_runner_killed_while_it_plays_changes_no_byte_of_the_recordings(tmp_path):
    armed = tmp_path / "armed"
    fault = {"where": "step", "how": "kill", "at_step": 8, "armed_file": str(armed)}
    found = []
    for name in ("undisturbed", "disturbed"):
        recorder = EpisodeRecorder(tmp_path / name, columns=["action_logp"])
        made = config(recorder, num_env_runners=1, env=FailingEnv, env_config=fault)
        with made.build_algo() as algo:
            for _ in range(3):
                if name == "disturbed":
                    armed.touch()
                result = algo.train()
        num_restarts = result["fault_tolerance/num_remote_worker_restarts"]
        assert num_restarts == (3 if name == "disturbed" else 0)
        found.append(recordings(tmp_path / name))
    assert found[0] == found[1]


@pytest.mark.parametrize("num_made_again", [0, 1])
def test_a_resumed_run_goes_on_writing_and_keeping_the_newest_files(tmp_path, num_made_again):
    def recorder(name):
        return EpisodeRecorder(tmp_path / name, max_episodes=3)

    with config(recorder("whole")).build_algo() as algo:
        for _ in range(4):
            algo.train()
    with config(recorder("parts")).build_algo() as algo:
        for _ in range(2):
            algo.train()
        path = algo.save_to_path(tmp_path / "checkpoint")
        for _ in range(num_made_again):
            algo.train()
    with PPO.from_checkpoint(
        path, env=CountdownEnv, callbacks_class=recorder("parts")
    ) as algo:  # fmt: skip
        for _ in range(2):
            algo.train()
    assert len(recordings(tmp_path / "whole")) == 3
    assert recordings(tmp_path / "parts") == recordings(tmp_path / "whole")


def test_only_chosen_episodes_of_the_evaluation_are_recorded(tmp_path):
    recorder = EpisodeRecorder(tmp_path, every=2, evaluation=True)
    made = config(recorder, evaluation_interval=1, evaluation_duration=5)
    with made.build_algo() as algo:
        algo.train()
        result = algo.train()
    expected = [f"evaluation-{n}-{t}-weights-{n}.npz" for n in (1, 2) for t in (0, 2, 4)]
    assert sorted(recordings(tmp_path)) == expected
    assert result["evaluation/env_runners/episode_recorder/num_written"] == 3


def test_nested_observations_of_a_run_are_recorded_leaf_by_leaf(tmp_path):
    nested = recorded(tmp_path / "nested", env=NestedEnv)
    plain = recorded(tmp_path / "plain")
    assert len(nested.keys() & plain.keys()) > 3
    for name in nested.keys() & plain.keys():
        arrays = load(tmp_path / "nested" / name)
        first = load(tmp_path / "plain" / name)["observations"][0]
        np.testing.assert_array_equal(arrays["observations/inner"][0], first)
        assert arrays["observations/inner"].shape == (len(arrays["actions"]) + 1, 2)


# ---- videos


def test_without_the_optional_package_the_recorder_cannot_be_made(tmp_path, monkeypatch):
    def missing(name, *, user, extra):
        raise ImportError(f"{user} needs {name} from {extra}")

    monkeypatch.setattr(video_recorder, "optional_module", missing)
    with pytest.raises(ImportError, match="VideoRecorder needs moviepy from video"):
        VideoRecorder(tmp_path)
    with pytest.raises(CallbackConfigError, match="2 problems"):
        VideoRecorder(tmp_path, fps=0, max_frames=-1)


@pytest.fixture
def saved(monkeypatch):
    """Videos by file name as (first pixels of their frames, frames per second); nothing is encoded.

    The encoder is the one part that needs the optional package.
    """
    videos = {}

    def save(frames, path, *, fps):
        videos[path.name.removeprefix(".").removesuffix(".part")] = (
            [int(frame[0, 0, 0]) for frame in frames],
            fps,
        )
        path.write_bytes(b"video")

    monkeypatch.setattr(video_recorder, "_save", save)
    monkeypatch.setattr(video_recorder, "optional_module", lambda *a, **k: None)
    return videos


RENDERED = {"render_mode": "rgb_array"}


def test_a_video_shows_the_reset_and_every_step(tmp_path, saved):
    made = config(
        VideoRecorder(tmp_path, every=2),
        env=DrawnEnv,
        evaluation_interval=1,
        evaluation_duration=3,
        evaluation_config={"env_config": RENDERED},
    ).callbacks(
        on_episode_end=lambda episode, env, env_index, metrics_logger: metrics_logger.log_value(
            "num_frames_drawn", env.envs[env_index].num_frames, reduce="max"
        )
    )
    with made.build_algo() as algo:
        result = algo.train()
    assert sorted(saved) == [f"evaluation-1-{t}-weights-1.mp4" for t in (0, 2)]
    for pixels, fps in saved.values():
        assert pixels == list(range(len(pixels)))
        assert 4 <= len(pixels) <= 13
        assert fps == 4
    assert result["env_runners/num_frames_drawn"] == 0, "training is not recorded"
    counts = result["evaluation/env_runners/video_recorder"]
    assert counts == {"num_written": 2, "num_failed": 0}


def test_videos_of_training_survive_cuts_and_iterations_made_again(tmp_path, saved):
    samples = []

    def interrupt():
        samples.append(1)
        if len(samples) == 3:
            raise KeyboardInterrupt

    recorder = VideoRecorder(tmp_path, evaluation=False, fps=9)
    made = config(recorder, env=DrawnEnv, env_config=RENDERED, train_batch_size=7, minibatch_size=7)
    with made.callbacks(on_sample_end=interrupt).build_algo() as algo:
        algo.train()
        algo.train()
        with pytest.raises(KeyboardInterrupt):
            algo.train()  # in the middle of episodes, whose steps are then made again
        for _ in range(8):
            result = algo.train()
    assert len(saved) == result["env_runners/num_episodes_lifetime"] > 3
    for pixels, fps in saved.values():
        assert pixels == list(range(len(pixels)))
        assert fps == 9


def test_a_video_ends_after_so_many_frames(tmp_path, saved):
    recorder = VideoRecorder(tmp_path, max_frames=3, max_episodes=2)
    made = config(recorder, env=DrawnEnv, env_config=RENDERED, evaluation_duration=4)
    with made.build_algo() as algo:
        algo.evaluate()
    assert [pixels for pixels, _ in saved.values()] == [[0, 1, 2]] * 4
    assert len(recordings(tmp_path)) == 2


@pytest.mark.process
def test_no_video_is_written_of_an_episode_whose_frames_were_lost(tmp_path):
    pytest.importorskip("moviepy")
    recorder = VideoRecorder(tmp_path, evaluation=False)
    made = config(
        recorder, num_env_runners=1, num_envs=1, env=DrawnEnv, train_batch_size=3, minibatch_size=3,
        env_config={**RENDERED, "min_length": 5, "max_length": 5},
    )  # fmt: skip
    with made.build_algo() as algo:
        algo.train()
        os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
        algo.train()  # ends episode 0, of which 3 steps were made in the killed process
        algo.train()
        algo.train()  # ends episode 1
    assert list(recordings(tmp_path)) == ["training-0-1.mp4"]


def test_no_video_is_written_of_an_episode_that_was_put_ahead_of_its_frames(tmp_path, saved):
    made = config(
        VideoRecorder(tmp_path / "videos", evaluation=False), num_envs=1, env=DrawnEnv,
        train_batch_size=3, minibatch_size=3,
        env_config={**RENDERED, "min_length": 8, "max_length": 8},
    )  # fmt: skip
    with made.build_algo() as ahead:
        ahead.train()
        ahead.train()
        path = ahead.save_to_path(tmp_path / "checkpoint")
    with made.build_algo() as algo:
        algo.train()
        algo.restore_from_path(path)  # from step 3 of the same episode to step 6
        for _ in range(4):
            algo.train()
    assert list(saved) == ["training-0-1.mp4"]


@pytest.mark.parametrize("mode", [None, "ansi"])
def test_an_env_that_cannot_be_recorded_is_refused_before_it_is_played(tmp_path, saved, mode):
    recorder = VideoRecorder(tmp_path, evaluation=False)
    made = config(recorder, env=DrawnEnv, env_config={"render_mode": mode})
    with pytest.raises(CallbackError) as caught:
        made.build_algo()
    assert isinstance(caught.value.__cause__, CallbackConfigError)
    for word in (f"render_mode={mode!r}", 'expected "rgb_array"', "rgb_array, ansi", "env_config"):
        assert word in str(caught.value)


def test_a_render_that_gives_no_frame_is_named(tmp_path, saved):
    class Flat(DrawnEnv):
        def render(self):
            return np.zeros((4, 4))

    recorder = VideoRecorder(tmp_path, evaluation=False)
    refused = pytest.raises(CallbackError, match=r"gave 'array of shape \(4, 4\)'")
    with config(recorder, env=Flat, env_config=RENDERED).build_algo() as algo, refused:
        algo.train()


def test_an_encoder_that_fails_does_not_stop_training(tmp_path, monkeypatch, saved):
    def fails(*args, **kwargs):
        raise RuntimeError("no encoder")

    monkeypatch.setattr(video_recorder, "_save", fails)
    recorder = VideoRecorder(tmp_path, evaluation=False)
    with config(recorder, env=DrawnEnv, env_config=RENDERED).build_algo() as algo:
        result = algo.train()
    assert result["env_runners/video_recorder/num_failed"] > 0
    assert result["env_runners/video_recorder/num_written"] == 0


@pytest.mark.process
@pytest.mark.parametrize("evaluation_num_env_runners", [0, 1])
def test_real_videos_are_written_through_gymnasium(tmp_path, evaluation_num_env_runners):
    moviepy = pytest.importorskip("moviepy")
    made = config(
        VideoRecorder(tmp_path),
        env=DrawnEnv,
        env_config={**RENDERED, "min_length": 8, "max_length": 8},
        evaluation_duration=2,
        evaluation_num_env_runners=evaluation_num_env_runners,
    )
    with made.build_algo() as algo:
        algo.evaluate()
    expected = [f"evaluation-0-{ticket}-weights-0.mp4" for ticket in range(2)]
    assert sorted(recordings(tmp_path)) == expected
    with moviepy.VideoFileClip(str(tmp_path / expected[0])) as clip:
        assert clip.fps == 4
        assert clip.size == [16, 16]
        assert clip.duration == pytest.approx(9 / 4, abs=0.3)
