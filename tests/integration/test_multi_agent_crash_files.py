"""What failed with several agents is kept in a file, and plays again: the same episode and step."""

from pathlib import Path

import pytest

from checkpoints import CheckpointCorruptError, decode, encode
from tests.multi_agent_runs import Gaps, gaps
from trainer.cli.main import main
from trainer.errors import ConfigError


class BadEpisode(Gaps):
    """Fails at the fourth env step of some episodes; which ones follows from their seeds.

    Settings: is_armed, whether it fails at all.
    """

    _is_bad = True

    def __init__(self, env_config):
        super().__init__(env_config)
        self._is_armed = env_config.get("is_armed", True)

    def reset(self, *, seed=None, options=None):
        self._seed = seed or 0
        return super().reset(seed=seed, options=options)

    def step(self, actions):
        if self._seed % 12 == 1 and self._t == 3 and self._is_armed and self._is_bad:
            raise ValueError(f"seed {self._seed}, actions {sorted(map(str, actions.items()))}")
        return super().step(actions)


def config(folder, **env_config):
    made = gaps(0, 2).environment(BadEpisode, env_config=env_config)
    return made.fault_tolerance(restart_failed_env_runners=False, crash_dir=str(folder))


def crash(folder):
    """A crash file of a run that had trained before, and what was raised."""

    def train(algo):
        for _ in range(20):
            algo.train()

    with config(folder).build_algo() as algo:
        with pytest.raises(ValueError, match="seed") as raised:
            train(algo)
        assert algo.training_iteration > 0
    (file,) = folder.glob("*.crash")
    return file, str(raised.value)


def test_what_was_raised_is_raised_again_and_a_mended_env_plays_on(tmp_path):
    file, text = crash(tmp_path)
    assert set(decode(file.read_bytes())["weights"]["modules"]) == {"even", "odd"}
    with config(tmp_path).build_algo() as algo, pytest.raises(ValueError, match="seed") as again:
        algo.replay_episode(file)
    assert str(again.value) == text
    with config(tmp_path, is_armed=False).build_algo() as algo:
        episodes = algo.replay_episode(file)
        assert algo.training_iteration == 0
    assert sum(map(len, episodes)) == 40
    assert {episode.module_for("a") for episode in episodes} == {"even", "odd"}


def repaired():
    """The config of the command line."""
    return config(Path("unused"), is_armed=False)


def test_the_command_line_replays_it(tmp_path, capfd):
    file, _ = crash(tmp_path)
    where = "tests.integration.test_multi_agent_crash_files"
    command = ["replay-episode", str(file), "--config", f"{where}:repaired", "--moves"]
    assert main(command) == 0
    told = capfd.readouterr().out
    assert "Played 40 env steps" in told
    with config(tmp_path, is_armed=False).build_algo() as algo:
        episodes = algo.replay_episode(file)
    assert all(episode.table() in told for episode in episodes)


def test_a_spoilt_file_is_refused(tmp_path):
    file, _ = crash(tmp_path)
    record = decode(file.read_bytes())
    record["weights"]["modules"]["odd"]["version"] = "many"
    file.write_bytes(encode(record))
    with (
        config(tmp_path).build_algo() as algo,
        pytest.raises(CheckpointCorruptError, match="Nothing was played"),
    ):
        algo.replay_episode(file)


# ---- with modules that were added

DRAWING = {"type": "StochasticSampling", "random_timesteps": 5}


def changed(algo):
    """A run that has gone on with one module more and one less."""
    algo.train()
    algo.add_module(
        "old",
        copy_of="odd",
        config_overrides={"explore": False, "exploration_config": dict(DRAWING)},
        new_agent_to_module_mapping_fn={"a": "odd", 3: "old", "late": "old"},
    )
    algo.remove_module("even")


def train_on(algo):
    for _ in range(20):
        algo.train()


def test_modules_that_were_added_play_again(tmp_path):
    with config(tmp_path).build_algo() as algo:
        changed(algo)
        with pytest.raises(ValueError, match="seed") as raised:
            train_on(algo)
        (file,) = tmp_path.glob("*.crash")
        with pytest.raises(ValueError, match="seed") as in_the_same_run:
            algo.replay_episode(file)
    record = decode(file.read_bytes())
    assert set(record["table"]["specs"]) == {"odd", "old"}
    assert record["acting"] == {"old": {"is_greedy": True, "exploration": DRAWING}}
    with config(tmp_path).build_algo() as algo:
        with pytest.raises(ValueError, match="seed") as again:
            algo.replay_episode(file)
        assert algo.module_ids == ("even", "odd")
    assert str(raised.value) == str(in_the_same_run.value) == str(again.value)
    with config(tmp_path, is_armed=False).build_algo() as algo:
        episodes = algo.replay_episode(file)
    assert {episode.module_for(3) for episode in episodes} <= {"old", "odd"}
    assert main(["replay-episode", str(file), "--config", f"{__name__}:repaired"]) == 0


def test_agents_play_again_with_the_modules_that_they_were_given_in_the_run(tmp_path, monkeypatch):
    with config(tmp_path).build_algo() as algo:
        algo.train()
        algo.set_policy_mapping_fn(lambda agent, episode, **_: "odd")
        with pytest.raises(ValueError, match="seed"):
            train_on(algo)
        (file,) = tmp_path.glob("*.crash")
        monkeypatch.setattr(BadEpisode, "_is_bad", False)
        episodes = algo.replay_episode(file)
    assert {last.module_for(agent) for last in episodes[-1:] for agent in last.agent_ids} == {"odd"}


def test_a_file_of_other_modules_without_a_table_is_refused(tmp_path):
    with config(tmp_path).build_algo() as algo:
        changed(algo)
        with pytest.raises(ValueError, match="seed"):
            train_on(algo)
    (file,) = tmp_path.glob("*.crash")
    record = decode(file.read_bytes())
    del record["table"], record["acting"]
    file.write_bytes(encode(record))
    with (
        config(tmp_path).build_algo() as algo,
        pytest.raises(ConfigError, match=r"weights of the modules 'odd', 'old'.*'even', 'odd'"),
    ):
        algo.replay_episode(file)
