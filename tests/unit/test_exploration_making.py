"""From `exploration_config` to strategies and schedules: every spelling, every mistake."""

import json
import pickle
import sys
import types

import numpy as np
import pytest
from gymnasium import spaces

from tests.exploration_cases import choice_for, distribution_of, made, same_rows
from trainer import DQNConfig, PPOConfig
from trainer.errors import ConfigError, UnknownSettingError, UnsupportedSpaceError
from trainer.exploration import (
    ConstantSchedule,
    EpsilonGreedy,
    Exploration,
    ExplorationSpec,
    ExponentialSchedule,
    LinearSchedule,
    PiecewiseSchedule,
    PolynomialSchedule,
    Random,
    SoftQ,
    StochasticSampling,
    read_schedule,
)
from trainer.exploration.strategies import UniformActions
from trainer.name_resolution import PROGRAM

_TWO = spaces.Discrete(2)
_BOX = spaces.Box(-1.0, 1.0, (1,), np.float32)


class Stubborn(Exploration):
    """A strategy as a user of RLlib would have written it."""

    def __init__(self, action_space, *, framework, model, favourite=0, **context):
        super().__init__(action_space, **context)
        self.framework, self.model, self.favourite = framework, model, favourite

    def get_exploration_action(self, *, action_distribution, timestep, explore=True):
        if not explore:
            return action_distribution.deterministic_sample(), None
        return np.full(len(action_distribution.inputs), self.favourite), None


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({}, StochasticSampling),
        ({"type": "SoftQ"}, SoftQ),
        ("SoftQ", SoftQ),
        ({"type": SoftQ, "temperature": 2.0}, SoftQ),
        ({"type": "ray.rllib.utils.exploration.epsilon_greedy.EpsilonGreedy"}, EpsilonGreedy),
        ({"type": "trainer.exploration.strategies.SoftQ"}, SoftQ),
        ({"type": lambda space, **context: SoftQ(space, **context)}, SoftQ),
    ],
)
def test_the_type_may_be_a_name_a_path_a_class_or_a_callable(config, kind):
    assert type(made(config, _TWO)) is kind


def test_the_type_may_be_a_strategy_of_which_every_place_gets_a_copy():
    own = SoftQ(_TWO, distribution=distribution_of(_TWO), temperature=3.0)
    spec = ExplorationSpec.from_config(own, source=PROGRAM)
    copies = [spec.make(_TWO, distribution=distribution_of(_TWO)) for _ in range(2)]
    assert copies[0] is not copies[1]
    assert [copy.temperature for copy in copies] == [3.0, 3.0]
    with pytest.raises(ConfigError, match="come too late"):
        ExplorationSpec.from_config({"type": own, "temperature": 1.0}, source=PROGRAM)


def test_a_path_leads_to_a_class_of_the_users_own(monkeypatch):
    module = types.ModuleType("some_users_module")
    module.Stubborn = Stubborn
    monkeypatch.setitem(sys.modules, "some_users_module", module)
    strategy = made({"type": "some_users_module.Stubborn", "favourite": 1}, _TWO)
    assert isinstance(strategy, Stubborn)
    assert (strategy.framework, strategy.model) == ("numpy", None)
    choice = choice_for(strategy, same_rows([3.0, 0.0], 4))
    actions, _ = strategy.get_exploration_action(action_distribution=choice, timestep=0)
    assert actions.tolist() == [1, 1, 1, 1]


def greedy(schedule):
    return {"type": "EpsilonGreedy", "epsilon_schedule": schedule}


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        ({"type": "EpsilonGready"}, UnknownSettingError, "Did you mean 'EpsilonGreedy'"),
        ({"type": "no_such_module.Thing"}, UnknownSettingError, "cannot be imported"),
        ({"type": "json.Nothing"}, UnknownSettingError, "cannot be imported"),
        ({"type": dict}, ConfigError, "is no exploration strategy"),
        ({"type": 3}, ConfigError, "is no exploration strategy"),
        ({"type": "SoftQ", "temprature": 1}, UnknownSettingError, "Did you mean 'temperature'"),
        ({"type": "SoftQ", "temperature": 0}, ConfigError, "> 0"),
        ({"type": Stubborn, "favorite": 1}, UnknownSettingError, "Did you mean 'favourite'"),
        ({"type": "EpsilonGreedy", "initial_epsilon": 1.5}, ConfigError, "≤ 1"),
        (greedy(1.5), ConfigError, "reaches 1.5"),
        (greedy([[0, 1], [9, 2]]), ConfigError, "reaches 2"),
        (greedy(PiecewiseSchedule([(1, 0.1)], 3.0)), ConfigError, "reaches 3; .* at most 1"),
        (greedy(LinearSchedule(9, 0.1, initial_p=1.1)), ConfigError, "reaches 1.1"),
        ({"type": "EpsilonGreedy", "epsilon_timesteps": 0.5}, ConfigError, "an int ≥ 0"),
        ({"type": "GaussianNoise", "stddev": "big"}, ConfigError, "stddev='big'"),
        ({"type": "ParameterNoise", "random_timesteps": "x"}, ConfigError, "timesteps='x'.*an int"),
        ({"type": "SlateSoftQ"}, ConfigError, "not offered.*slates"),
        ({"type": "ThompsonSampling"}, ConfigError, "not offered.*bandits"),
    ],
)
def test_mistakes_are_found_when_configured(config, error, text):
    with pytest.raises(error, match=f"(?s){text}"):
        ExplorationSpec.from_config(config, source=PROGRAM)
    with pytest.raises(error, match=f"(?s){text}"):
        PPOConfig().exploration(exploration_config=config).validate()


class WithoutBase(Stubborn):
    def __init__(self, action_space, **context): ...


class WithoutSpace(Stubborn):
    def __init__(self, **context): ...


class WithoutDefault(Stubborn):
    def __init__(self, action_space, *, until, **context):
        super().__init__(action_space, framework="", model=None, **context)


class WithoutActions(Exploration): ...


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (WithoutBase, r"super\(\).__init__\(action_space, \*\*context\)"),
        (WithoutSpace, "cannot be made: too many positional arguments.*action_space"),
        (WithoutDefault, "cannot be made: missing a required.* 'until'.*beside `type`"),
        (WithoutActions, r"lacks get_exploration_action\(\)"),
        (lambda: None, "cannot be made: too many positional arguments"),
    ],
)
def test_strategies_that_cannot_be_made_say_what_to_write(kind, text):
    with pytest.raises(ConfigError, match=f"(?s)exploration_config: .*{text}"):
        made({"type": kind}, _TWO)


def test_a_strategy_with_an_argument_of_its_own_is_made():
    assert isinstance(made({"type": WithoutDefault, "until": 3}, _TWO), WithoutDefault)


def test_another_kind_of_schedule_or_scale_may_be_above_one():
    schedule = LinearSchedule(9, 0.1, initial_p=1.1)
    strategy = made({"type": "GaussianNoise", "scale_schedule": schedule}, _BOX)
    assert strategy.scale(0) == 1.1


@pytest.mark.parametrize("epsilon", ["0.1", [[0, 1.0], [0, 0.1]], 2.0])
def test_a_wrong_epsilon_is_one_problem_and_no_exploration_config(epsilon):
    with pytest.raises(ConfigError, match="1 problem") as caught:
        DQNConfig().training(epsilon=epsilon).validate()
    assert "exploration_config" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "space", "text"),
    [
        ("EpsilonGreedy", _BOX, "explores Discrete or MultiDiscrete.*GaussianNoise"),
        ("GaussianNoise", _TWO, "explores Box.*EpsilonGreedy"),
        ("OrnsteinUhlenbeckNoise", _TWO, "explores Box.*EpsilonGreedy"),
    ],
)
def test_the_wrong_strategy_for_an_action_space_names_the_right_ones(name, space, text):
    with pytest.raises(UnsupportedSpaceError, match=f"(?s){text}"):
        made({"type": name}, space)


@pytest.mark.parametrize(
    "space", [spaces.MultiBinary(3), spaces.MultiDiscrete(np.array([[2, 3], [2, 2]]))]
)
def test_spaces_that_cannot_be_drawn_from_uniformly_name_the_way_out(space):
    with pytest.raises(UnsupportedSpaceError, match="Explore with StochasticSampling"):
        UniformActions(space)


def test_configs_of_one_type_are_merged_and_another_type_replaces_them():
    config = PPOConfig().exploration(exploration_config={"type": "SoftQ", "temperature": 2.0})
    config.env_runners(exploration_config={"temperature": 3.0})
    assert config.get_exploration_config() == {"type": "SoftQ", "temperature": 3.0}
    config.update_from_dict({"exploration_config": {"type": "EpsilonGreedy"}})
    assert config.get_exploration_config() == {"type": "EpsilonGreedy"}


def test_without_a_type_the_algorithm_decides():
    assert PPOConfig().get_exploration_config() == {"type": "StochasticSampling"}
    config = PPOConfig().exploration(exploration_config={"random_timesteps": 5})
    config.validate()
    spec = ExplorationSpec.from_config(config.get_exploration_config(), source=PROGRAM)
    assert not spec.is_plain_sampling
    assert spec.settings == {"random_timesteps": 5}


def test_none_and_a_class_alone_are_understood():
    config = PPOConfig().exploration(exploration_config=Random)
    assert config.get_exploration_config() == {"type": Random}
    config.exploration_config = None
    assert config.get_exploration_config() == {"type": "StochasticSampling"}


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (ConstantSchedule(0.3), {0: 0.3, 100: 0.3}),
        (LinearSchedule(100, 0.1), {0: 1.0, 50: 0.55, 100: 0.1, 300: 0.1}),
        (PolynomialSchedule(100, 0.0, 2.0), {0: 2.0, 50: 0.5, 100: 0.0, 300: 0.0}),
        (ExponentialSchedule(100), {0: 1.0, 100: 0.1, 200: 0.01}),
        (PiecewiseSchedule([(10, 1.0), (20, 0.0)]), {0: 1.0, 10: 1.0, 15: 0.5, 20: 0.0, 99: 0.0}),
        (PiecewiseSchedule([(10, 1.0), (20, 0.0)], 0.7), {0: 0.7, 10: 1.0, 15: 0.5, 20: 0.7}),
    ],
)
def test_schedules_have_the_values_of_their_formulas(schedule, values):
    assert [schedule.value(t) for t in values] == pytest.approx(list(values.values()))


def of(type_, **arguments):
    return {"type": type_, **arguments}


@pytest.mark.parametrize(
    "made",
    [
        ConstantSchedule(0.3),
        ConstantSchedule(value=0.3),
        read_schedule(of("ConstantSchedule", value=0.3), name="epsilon_schedule"),
        read_schedule(of("ConstantSchedule", constant=0.3), name="epsilon_schedule"),
    ],
)
def test_a_constant_schedule_takes_its_value_by_position_and_by_name(made):
    assert made == ConstantSchedule(0.3)
    assert made.value(7) == made(0) == made.constant == 0.3
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize(
    "setting",
    [
        [[0, 1.0], [10, 0.0]],
        {"type": "PiecewiseSchedule", "endpoints": [(0, 1.0), (10, 0.0)], "outside_value": 0.0},
        of("ray.rllib.utils.schedules.LinearSchedule", schedule_timesteps=10, final_p=0),
        LinearSchedule(10, 0.0),
    ],
)
def test_schedules_may_be_written_in_several_ways(setting):
    schedule = read_schedule(setting, name="epsilon_schedule")
    assert [schedule.value(t) for t in (0, 4, 10, 50)] == pytest.approx([1.0, 0.6, 0.0, 0.0])


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (of("LinearShedule", schedule_timesteps=1), "Did you mean 'LinearSchedule'"),
        (of("LinearSchedule", schedule_timestep=1), "Did you mean 'schedule_timesteps'"),
        (of("LinearSchedule"), "missing"),
        (of("LinearSchedule", schedule_timesteps=0, final_p=0), "a number > 0"),
        (float("nan"), "`ConstantSchedule.constant=nan`: expected a number ≥ 0"),
        (-0.1, "`ConstantSchedule.constant=-0.1`: expected a number ≥ 0"),
        (of("LinearSchedule", schedule_timesteps=9, final_p="0"), "`LinearSchedule.f"),
        (of("ExponentialSchedule", schedule_timesteps=9, decay_rate=-1), "decay_rate=-1"),
        (of("PolynomialSchedule", schedule_timesteps=9, final_p=0, power=-1), "power=-1`: .* ≥ 0"),
        ([(0, 1.0), (0, 0.5)], "do not ascend"),
        ([0, 1], "pairs"),
        ("soon", "is no schedule"),
    ],
)
def test_mistakes_in_schedules_are_named(setting, text):
    with pytest.raises(ConfigError, match=text):
        read_schedule(setting, name="epsilon_schedule")


def test_settings_stay_plain_data():
    config = PPOConfig().exploration(exploration_config=greedy([[0, 1.0], [5, 0.1]]))
    assert "exploration_config" not in config.names_of_code()
    assert json.dumps(config.to_dict()["exploration_config"])
