"""Everything public, called with wrong arguments: clear errors, hardly ever one from inside."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints.arguments import ArgumentError
from tests.misuse import Answer, Call, answer, calls, targets
from trainer import MetricsLogger, PPOConfig, ReplayBuffer
from trainer.testing.envs import CountdownEnv

pytestmark = pytest.mark.process


def _answers(seed: int, count: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    logging.disable(logging.CRITICAL)
    try:
        found = []
        for number, call in enumerate(calls(seed, count)):
            own = folder / str(number)
            own.mkdir()
            monkeypatch.chdir(own)
            found.append(answer(call, own))
        return found
    finally:
        logging.disable(logging.NOTSET)


def _raw(answers: list[Answer]) -> list[str]:
    return [f"{each.call} -> {each.raw}" for each in answers if each.raw]


def test_a_sample_of_wrong_calls_is_answered_clearly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(targets()) > 700
    raw = _raw(_answers(7, 40, tmp_path, monkeypatch))
    assert len(raw) <= 1, raw


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
def test_at_most_one_in_a_hundred_wrong_calls_ends_in_an_error_from_inside(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = _raw(_answers(seed, 2_000, tmp_path, monkeypatch))
    assert len(raw) <= 20, "\n".join(raw)


def test_an_error_from_inside_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get_num_episodes(self: Any, module_id: Any = None) -> int:
        return len(module_id)  # what a method without checks does

    monkeypatch.setattr(ReplayBuffer, "get_num_episodes", get_num_episodes)
    broken = Call("buffer", "get_num_episodes", (), ())
    assert "NoneType" in answer(broken, tmp_path).raw


def test_an_argument_is_named_with_its_value_and_what_was_expected() -> None:
    with pytest.raises(ArgumentError) as caught:
        MetricsLogger(root="yes")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "MetricsLogger(): `root='yes'` is of type str; expected True or False. Give root as that."
    )
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


def test_scalars_of_numpy_are_numbers_like_any_other() -> None:
    config: Any = PPOConfig().environment(CountdownEnv).env_runners(num_env_runners=np.int64(0))
    config.training(
        train_batch_size=np.int32(20),
        minibatch_size=np.uint8(10),
        num_epochs=np.int64(1),
        lr=np.float32(0.01),
        gamma=np.float64(0.9),
        grad_clip=np.float32(1.0),
        use_critic=np.bool_(True),
        model={"fcnet_hiddens": [np.int64(4)], "vf_share_layers": np.bool_(False)},
    )
    config.evaluation(
        evaluation_interval=np.int64(1),
        evaluation_duration=np.int64(1),
        evaluation_num_env_runners=np.int64(0),
    ).debugging(seed=np.int64(3))
    config.exploration(explore=np.bool_(True))
    with config.build_algo() as algo:
        algo.train()
        plain = type(config)().update_from_dict(algo.config.to_dict())
        assert type(plain.train_batch_size) is int
        algo.env_runner.sample(num_timesteps=np.int64(2))
        algo.adopt_root_seed(np.int64(4))
