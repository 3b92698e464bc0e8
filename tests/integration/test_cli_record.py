"""`local-trainer record`: files that can be learnt from, the same wherever they are played."""

import pytest

from tests.small_runs import small_ppo
from trainer import BCConfig, EpisodeRecorder, load_episode
from trainer.cli.main import main

pytestmark = pytest.mark.process


@pytest.fixture
def run(tmp_path):
    """A checkpoint of a run that has a recorder of its own."""
    made = small_ppo(env="CartPole-v1").callbacks([EpisodeRecorder(tmp_path / "of the run")])
    with made.build_algo() as algo:
        algo.train()
        return algo.save_to_path(tmp_path / "run")


def record(run, folder, *options):
    return main(["record", str(run), "--episodes", "3", "--to", str(folder), *options])


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_trained_policy_is_recorded_and_learnt_from(run, tmp_path, capsys):
    before = contents(tmp_path / "of the run")
    assert record(run, tmp_path / "r") == 0
    assert "3 episodes of" in capsys.readouterr().out
    assert contents(tmp_path / "of the run") == before
    made = BCConfig().environment("CartPole-v1").training(train_batch_size=20)
    with made.offline_data(input_=tmp_path / "r").build_algo() as algo:
        assert algo.train()["recordings/num_episodes"] == 3


def test_the_files_are_the_same_wherever_they_are_played(run, tmp_path):
    for number in (0, 2):
        assert record(run, tmp_path / str(number), "--num-env-runners", str(number)) == 0
    assert contents(tmp_path / "0") == contents(tmp_path / "2")


def test_explored_actions_are_others(run, tmp_path):
    assert record(run, tmp_path / "likely", "--deterministic") == 0
    assert record(run, tmp_path / "default") == 0
    assert record(run, tmp_path / "drawn", "--explore") == 0
    assert contents(tmp_path / "likely") == contents(tmp_path / "default")
    assert contents(tmp_path / "likely") != contents(tmp_path / "drawn")
    (file, *_) = (tmp_path / "likely").iterdir()
    assert "seed" in load_episode(file)


def test_recordings_of_two_policies_do_not_mix(run, tmp_path, capsys):
    assert record(run, tmp_path / "r") == 0
    before = contents(tmp_path / "r")
    assert record(run, tmp_path / "r") != 0
    assert "is not empty" in capsys.readouterr().err
    assert contents(tmp_path / "r") == before
    with pytest.raises(SystemExit):
        main(["record", str(run), "--explore", "--deterministic"])
