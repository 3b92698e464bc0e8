"""Algorithms of users' own: what RLlib's users override works, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer import (
    PPO,
    Algorithm,
    ConfigError,
    PPOConfig,
    TrainerError,
    UnknownSettingError,
)
from trainer.algorithms import building
from trainer.config import AlgorithmConfig, NotProvided, Setting
from trainer.metrics import comparable
from trainer.testing.envs import CountdownEnv

_SETTINGS: dict[str, Any] = {
    "env": CountdownEnv,
    "num_env_runners": 0,
    "train_batch_size": 40,
    "minibatch_size": 20,
    "num_epochs": 1,
    "model": {"fcnet_hiddens": [4]},
    "seed": 1,
}


class WithHooks(PPO):
    def setup(self, config: AlgorithmConfig) -> None:
        self.hidden_sizes = config.model_config["fcnet_hiddens"]
        super().setup(config)
        self.num_steps_seen = 0
        assert self.env_runner is not None

    def training_step(self) -> None:
        super().training_step()
        self.num_steps_seen += 1

    def step(self) -> Any:
        result = super().step()
        return {**result, "num_steps_seen": self.num_steps_seen}


class WithDefaults(PPO):
    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        return PPOConfig().training(lr=0.25)


def test_setup_and_step_of_a_subclass_run_and_change_nothing_else() -> None:
    seen: list[Any] = []

    def note(*, result: Any, **_: Any) -> None:
        seen.append(result["num_steps_seen"])

    with PPO(_SETTINGS) as plain, WithHooks(_SETTINGS, callbacks_on_train_result=note) as own:
        assert own.hidden_sizes == [4]
        for _ in range(2):
            result = own.train()
            result.pop("num_steps_seen")
            assert comparable(result) == comparable(plain.train())
        assert seen == [1, 2]
        assert result["env_runners/episode_return_mean"] is not None


def test_the_default_config_of_a_subclass_is_what_a_dict_changes() -> None:
    with WithDefaults({"minibatch_size": 32}, env=CountdownEnv, num_env_runners=0) as algo:
        assert algo.config.lr == 0.25
        assert algo.config.minibatch_size == 32


def _made(base: type[Any], **members: Any) -> Any:
    return type("Mine", (base,), members)


def _forget(self: Any, *_: Any) -> None: ...


def test_half_overrides_are_refused_by_name() -> None:
    with pytest.raises(TrainerError, match=r"Mine.setup\(\) built no .* super\(\).setup\(config\)"):
        _made(PPO, setup=_forget)(_SETTINGS)
    with _made(PPO, step=_forget)(_SETTINGS) as algo:
        with pytest.raises(TrainerError, match=r"Mine.step\(\) made 0 .* super\(\).step\(\)"):
            algo.train()
        with pytest.raises(TrainerError, match=r"Call train\(\)"):
            Algorithm.step(algo)

    def step(self: Any) -> None:
        PPO.step(self)

    with _made(PPO, step=step)(_SETTINGS) as algo:
        for _ in range(2):
            with pytest.raises(TrainerError, match="returned None; expected the result"):
                algo.train()
            assert algo.iteration == 0
    with pytest.raises(ConfigError, match=r"get_default_config\(\) returned None"):
        _made(PPO, get_default_config=classmethod(_forget))(_SETTINGS)


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (PPO, "cleanup"),
        (PPO, "log_result"),
        (PPO, "save_checkpoint"),
        (PPO, "get_default_policy_class"),
        (PPOConfig, "get_default_rl_module_spec"),
        (PPOConfig, "get_default_learner_class"),
    ],
)
def test_an_override_that_nobody_calls_is_refused_when_the_class_is_made(
    base: Any, name: str
) -> None:
    with pytest.raises(ConfigError, match=rf"Mine overrides .*`{name}`"):
        _made(base, **{name: _forget})


def test_an_algorithm_without_its_parts_says_what_to_write() -> None:
    class FromNothing(Algorithm):
        def training_step(self) -> None: ...

    for cls, missing in ((FromNothing, "make_learner is"), (Algorithm, "training_step are")):
        with pytest.raises(ConfigError, match=f"{cls.__name__} cannot be built: .*{missing}"):
            cls({})  # type: ignore[abstract]


# ---- settings of one's own


def test_a_setting_of_ones_own_is_taken_saved_and_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "_ALGORITHMS", {})  # a class that is made here is put there

    class OwnConfig(PPOConfig):
        mine = Setting(3)

        def training(self, *, mine: Any = NotProvided, **others: Any) -> Any:
            super().training(**others)
            if mine is not NotProvided:
                self.mine = mine
            return self

    class OwnPPO(PPO):
        config_class = OwnConfig

    made = OwnConfig()
    assert made.mine == 3
    assert made.training(mine=4, lr=1e-3).mine == 4
    assert made.update_from_dict({"mine": 5}).lr == 1e-3
    with made.update_from_dict(_SETTINGS).build_algo() as algo:
        path = algo.save_to_path(tmp_path / "c")
    with OwnPPO.from_checkpoint(path, env=CountdownEnv) as restored:
        assert restored.config.mine == 5
    with pytest.raises(UnknownSettingError, match=r"declares more in its body: `name = Setting\("):
        made.update_from_dict({"qqqqqqqqq": 1})
