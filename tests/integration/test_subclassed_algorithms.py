"""Algorithms of users' own: what RLlib's users override works, or is refused by name."""

import threading

import pytest

from checkpoints import CheckpointMismatchError
from trainer import (
    DQN,
    PG,
    PPO,
    SAC,
    TD3,
    Algorithm,
    CallbackError,
    ConfigError,
    MetricsLogger,
    PPOConfig,
    TrainerError,
    UnknownSettingError,
)
from trainer.algorithms import building
from trainer.config import NotProvided, Setting
from trainer.metrics import comparable
from trainer.testing.envs import ContinuousEnv, CountdownEnv

_SETTINGS = {
    "env": CountdownEnv,
    "num_env_runners": 0,
    "train_batch_size": 40,
    "minibatch_size": 20,
    "num_epochs": 1,
    "model": {"fcnet_hiddens": [4]},
    "seed": 1,
}


class WithHooks(PPO):
    def setup(self, config):
        self.hidden_sizes = config.model_config["fcnet_hiddens"]
        super().setup(config)
        self.num_steps_seen = 0
        assert self.env_runner is not None

    def training_step(self):
        super().training_step()
        self.num_steps_seen += 1

    def step(self):
        result = super().step()
        return {**result, "num_steps_seen": self.num_steps_seen}


class WithDefaults(PPO):
    @classmethod
    def get_default_config(cls):
        return PPOConfig().training(lr=0.25)


def test_setup_and_step_of_a_subclass_run_and_change_nothing_else():
    seen = []

    def note(*, result, **_):
        seen.append(result["num_steps_seen"])

    with PPO(_SETTINGS) as plain, WithHooks(_SETTINGS, callbacks_on_train_result=note) as own:
        assert own.hidden_sizes == [4]
        for _ in range(2):
            result = own.train()
            result.pop("num_steps_seen")
            assert comparable(result) == comparable(plain.train())
        assert seen == [1, 2]
        assert result["env_runners/episode_return_mean"] is not None


def test_the_default_config_of_a_subclass_is_what_a_dict_changes():
    with WithDefaults({"minibatch_size": 32}, env=CountdownEnv, num_env_runners=0) as algo:
        assert algo.config.lr == 0.25
        assert algo.config.minibatch_size == 32


def _made(base, **members):
    return type("Mine", (base,), members)


def _forget(self, *_): ...


def test_half_overrides_are_refused_by_name():
    with pytest.raises(TrainerError, match=r"Mine.setup\(\) built no .* super\(\).setup\(config\)"):
        _made(PPO, setup=_forget)(_SETTINGS)
    with _made(PPO, step=_forget)(_SETTINGS) as algo:
        with pytest.raises(TrainerError, match=r"Mine.step\(\) made 0 .* super\(\).step\(\)"):
            algo.train()
        with pytest.raises(TrainerError, match=r"Call train\(\)"):
            Algorithm.step(algo)

    def step(self):
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
        (PPOConfig, "build_learner"),
    ],
)
def test_an_override_that_nobody_calls_is_refused_when_the_class_is_made(base, name):
    with pytest.raises(ConfigError, match=rf"Mine overrides .*`{name}`"):
        _made(base, **{name: _forget})


def test_an_algorithm_without_its_parts_says_what_to_write():
    class FromNothing(Algorithm):
        def training_step(self): ...

    for cls, missing in ((FromNothing, "make_learner is"), (Algorithm, "training_step are")):
        with pytest.raises(ConfigError, match=f"{cls.__name__} cannot be built: .*{missing}"):
            cls({})


# ---- settings of one's own


def test_a_setting_of_ones_own_is_taken_saved_and_restored(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_ALGORITHMS", {})  # a class that is made here is put there

    class OwnConfig(PPOConfig):
        mine = Setting(3)
        other = Setting(3)

        def training(self, *, other=NotProvided, **more):  # as with RLlib
            super().training(**more)
            if other is not NotProvided:
                self.other = other
            return self

    class OwnPPO(PPO):
        config_class = OwnConfig

    made = OwnConfig()
    assert made.mine == 3
    assert made.training(mine=4, lr=1e-3, other=5).mine == 4
    assert made.other == 5
    assert made.update_from_dict({"mine": 5}).lr == 1e-3
    with made.update_from_dict(_SETTINGS).build_algo() as algo:
        path = algo.save_to_path(tmp_path / "c")
    with OwnPPO.from_checkpoint(path, env=CountdownEnv) as restored:
        assert restored.config.mine == 5
    with pytest.raises(UnknownSettingError, match=r"declares more in its body: `name = Setting\("):
        made.update_from_dict({"qqqqqqqqq": 1})


class Remembering(PPO):
    """Keeps a counter and a table in attributes, and things that are no plain data."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.num_rounds = 0
        self.seen = {"returns": []}
        self.lock = threading.Lock()

    def training_step(self):
        super().training_step()
        self.num_rounds += 1
        self.seen["returns"].append(float(self.num_rounds))


def test_attributes_of_a_subclass_are_saved_and_restored(tmp_path, caplog):
    with Remembering(_SETTINGS) as algo:
        for _ in range(3):
            algo.train()
        path = algo.save_to_path(tmp_path / "c")
        state = algo.get_state()
        assert state["attributes"] == {"num_rounds": 3, "seen": {"returns": [1.0, 2.0, 3.0]}}
        algo.train()
        assert state["attributes"]["num_rounds"] == 3, "a copy"
    named = [text for text in caplog.messages if "leaves out its attribute" in text]
    assert len(named) == 1
    assert "the state of algorithm Remembering leaves out its attribute `lock`" in named[0]
    with Remembering.from_checkpoint(path, env=CountdownEnv) as again:
        assert (again.num_rounds, again.seen) == (3, {"returns": [1.0, 2.0, 3.0]})
        again.set_state({"attributes": {"num_rounds": 7}})
        assert (again.num_rounds, len(again.seen["returns"])) == (7, 3)
        again.restore_from_path(path, component="attributes")
        assert again.num_rounds == 3


def test_attributes_of_a_subclass_are_undone_with_an_iteration():
    def fail(**_):
        raise ValueError("on purpose")

    with Remembering(_SETTINGS, callbacks_on_train_result=fail) as algo:
        with pytest.raises(CallbackError, match="on purpose"):
            algo.train()
        assert (algo.num_rounds, algo.seen) == (0, {"returns": []})


class InItsOwnWay(Remembering):
    def get_state(self, components=None, *, not_components=None):
        state = super().get_state(components, not_components=not_components)
        return {**state, "rounds": self.num_rounds * 10}

    def set_state(self, state):
        super().set_state(state)
        if "rounds" in state:
            self.num_rounds = state["rounds"] // 10


def test_a_subclass_that_says_what_its_state_is_has_no_other(tmp_path, caplog):
    with InItsOwnWay(_SETTINGS) as algo:
        algo.train()
        path = algo.save_to_path(tmp_path / "c")
        assert "attributes" not in algo.get_state()
    with InItsOwnWay.from_checkpoint(path, env=CountdownEnv) as again:
        assert (again.num_rounds, again.seen) == (1, {"returns": []})
    assert "leaves out" not in caplog.text


class WithPart(Remembering):
    """Its lock is a part that is saved in its own component."""

    def __init__(self, *args, **kwargs):
        self.part = MetricsLogger()
        super().__init__(*args, **kwargs)
        del self.lock

    def get_checkpointable_components(self):
        return [*super().get_checkpointable_components(), ("part", self.part)]


def test_an_attribute_that_is_a_component_is_not_named_as_left_out(caplog):
    with WithPart(_SETTINGS) as algo:
        assert algo.get_state()["attributes"] == {"num_rounds": 0, "seen": {"returns": []}}
    assert "leaves out" not in caplog.text


def test_attributes_of_our_own_classes_are_no_part_of_it_and_cannot_be_given(tmp_path, caplog):
    for base in (PPO, DQN, SAC, TD3, PG):
        env = ContinuousEnv if base in (SAC, TD3) else CountdownEnv
        cls = _made(base)
        config = base.get_default_config().environment(env).env_runners(num_env_runners=0)
        config.training(model={"fcnet_hiddens": [4]}, train_batch_size=200)
        with cls(config) as algo:
            algo.train()
            algo.evaluate()
            path = algo.save_to_path(tmp_path / base.__name__, background=True)
            algo.restore_from_path(path)
            assert algo.get_state()["attributes"] == {}, base
    assert "leaves out" not in caplog.text
    with Remembering(_SETTINGS) as algo:
        for name in ("root_seed", "train", "_is_stopped", "__dict__"):
            with pytest.raises(CheckpointMismatchError, match=f"belong to .*: {name}"):
                algo.set_state({"attributes": {"num_rounds": 5, name: 1}})
        assert algo.num_rounds == 0


def test_a_checkpoint_without_attributes_leaves_them_and_says_so(tmp_path, caplog):
    def without(self, *names, **others):
        return PPO.get_state(self, *names, **others)

    old = type("Remembering", (Remembering,), {"get_state": without})
    with old(_SETTINGS) as algo:
        path = algo.save_to_path(tmp_path / "c")
    with Remembering(_SETTINGS) as algo:
        algo.num_rounds = 4
        algo.restore_from_path(path)
        assert algo.num_rounds == 4
    assert "holds no attributes of Remembering; they stay as they are" in caplog.text
