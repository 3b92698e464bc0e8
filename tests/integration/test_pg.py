"""PG as a whole: callbacks, command line; exactness is in `tests/contract`."""

import pytest

from tests.small_runs import learnt
from trainer import PGConfig
from trainer.cli.main import main

pytestmark = pytest.mark.process


def config(num_env_runners=0, **settings):
    made = (
        PGConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=num_env_runners, num_envs_per_env_runner=2 // max(1, num_env_runners)
        )
        .training(train_batch_size=101, lr=1e-2, model={"fcnet_hiddens": [8]})
        .debugging(seed=5)
    )
    made.update_from_dict(settings)
    return made


def train(algo, iterations=3):
    for _ in range(iterations):
        algo.train()
    return learnt(algo)


def test_episodes_are_played_to_their_end_unless_asked_otherwise():
    with config().build_algo() as algo:
        slots = [algo.train(), algo.get_state()["env_runners"]["slots"]][1]
        assert all(slot["env_seed"] is None for slot in slots)
    with config(batch_mode="truncate_episodes").build_algo() as algo:
        assert algo.train()["env_runners/num_env_steps_sampled"] == 101


def test_trajectories_are_shown_with_returns_and_may_be_rewritten():
    seen = []

    def look(postprocessed_batch):
        seen.append(postprocessed_batch.copy())

    def spoil(postprocessed_batch):
        postprocessed_batch["advantages"][:] = 0.0

    outcomes = {}
    for name, listener in (("silence", None), ("looking", look), ("spoiling", spoil)):
        made = config()
        if listener is not None:
            made.callbacks(on_postprocess_trajectory=listener)
        with made.build_algo() as algo:
            before = algo.get_module().get_state()["pi/0/kernel"].copy()
            train(algo)
            outcomes[name] = learnt(algo)
            has_moved = bool((before != algo.get_module().get_state()["pi/0/kernel"]).any())
        assert has_moved == (name != "spoiling")
    assert outcomes["silence"] == outcomes["looking"]
    rewards, advantages = seen[0]["rewards"], seen[0]["advantages"]
    assert advantages[-1] == rewards[-1] == 1.0
    assert advantages[-3] == pytest.approx(1.0 + 0.99 + 0.99**2)


def test_the_command_line_trains_pg(tmp_path, capsys):
    arguments = ["train", "--algo", "PG", "--env", "CartPole-v1", "--stop-iterations", "2"]
    assert main([*arguments, "--run-dir", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out
