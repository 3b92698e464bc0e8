"""Search spaces: what is drawn, where it stands in configs, and what is refused at once."""

import json
import re
from functools import partial

import numpy as np
import pytest

from trainer import DQNConfig, PPOConfig, SACConfig, tune
from trainer.errors import ConfigError, SearchSpaceError
from trainer.tune.positions import Kind, rng_at
from trainer.tune.search_space import Domain, SearchSpace
from trainer.tune.searchers import BasicVariantGenerator, SearchContext


def draws(domain, num=1000):
    """Many values, each from a position of its own."""
    rng = rng_at(3, Kind.SUGGEST, 0)
    return [domain.draw(rng) for _ in range(num)]


def configs(param_space, *, num_samples=1, seed=5, **arguments):
    """The configs of all trials of a random and grid search."""
    space, searcher = SearchSpace(param_space), BasicVariantGenerator(**arguments)
    searcher.begin(SearchContext(space, seed, num_samples))
    total = searcher.num_trials()
    assert total is not None
    return [space.config(searcher.params_of(number)) for number in range(total)]


# ---- single domains


def test_ints_leave_the_upper_bound_out_and_multiples_do_not():
    assert set(draws(tune.randint(0, 3))) == {0, 1, 2}
    assert set(draws(tune.qrandint(0, 4, 2))) == {0, 2, 4}
    assert set(draws(tune.qrandint(0, 3))) == {0, 1, 2}  # as in Ray Tune, q=1 is no q
    assert set(draws(tune.quniform(0, 1, 0.25))) == {0, 0.25, 0.5, 0.75, 1}
    assert set(draws(tune.lograndint(1, 4))) == {1, 2, 3}
    assert set(draws(tune.qlograndint(2, 8, 2))) == {2, 4, 6, 8}
    assert set(draws(tune.qrandint(1, 10, 3))) == {3, 6, 9}
    assert set(draws(tune.qlograndint(1, 10, 3))) == {3, 6, 9}
    assert set(draws(tune.qloguniform(1, 3, 1))) == {1.0, 2.0, 3.0}


def test_multiples_are_free_of_noise_in_the_last_bits():
    assert set(draws(tune.quniform(0, 0.5, 0.1))) == {0.0, 0.1, 0.2, 0.3, 0.4, 0.5}


def test_floats_are_spread_as_their_names_say():
    plain, logarithms = (
        draws(tune.uniform(2, 4), 4000),
        np.log10(draws(tune.loguniform(1e-4, 1), 4000)),
    )
    assert min(plain) >= 2
    assert max(plain) < 4
    assert np.mean(plain) == pytest.approx(3, abs=0.05)
    assert logarithms.min() >= -4
    assert logarithms.max() < 0
    assert logarithms.mean() == pytest.approx(-2, abs=0.1)
    normal = draws(tune.randn(10, 2), 4000)
    assert np.mean(normal) == pytest.approx(10, abs=0.2)
    assert np.std(normal) == pytest.approx(2, abs=0.2)
    assert {value * 2 % 1 for value in draws(tune.qrandn(0, 1, 0.5))} == {0}


def test_a_choice_may_hold_anything_and_takes_all_equally_often():
    values = [None, dict, [1, 2], "x"]
    counts = [sum(value is each for value in draws(tune.choice(values), 4000)) for each in values]
    assert min(counts) > 900


def test_a_choice_knows_functions_apart():
    def first(*_):
        return 1

    def second(*_):
        return 2

    called = first
    functions = [first, second, partial(called, 1), partial(called, 2)]
    for values in (functions, functions[::-1]):
        assert [tune.choice(values).index(each) for each in values] == list(range(len(values)))
    assert tune.choice([first]).index(second) is None
    assert tune.choice([first, second]) != tune.choice([second, first])


def test_domains_print_as_they_are_written_and_are_compared_by_value():
    written = {
        "loguniform(1e-05, 0.01)": tune.loguniform(1e-5, 1e-2),
        "quniform(0.0, 1.0, 0.25)": tune.quniform(0, 1, 0.25),
        "randint(0, 3)": tune.randint(0, 3),
        "choice([[64], 'x'])": tune.choice([[64], "x"]),
        "grid_search([1, 2])": tune.grid_search([1, 2]),
        "randn(0.0, 1.0)": tune.randn(),
    }
    for text, domain in written.items():
        assert repr(domain) == text
    assert tune.choice([[64], [1]]) == tune.choice([[64], [1]])
    assert hash(tune.choice([[64], [1]])) == hash(tune.choice([[64], [1]]))
    assert tune.uniform(0, 1) == tune.uniform(0, 1) != tune.uniform(0, 2)


@pytest.mark.parametrize(
    "write",
    [
        lambda: tune.uniform(1, 0),
        lambda: tune.uniform(1, 1),
        lambda: tune.uniform(0, float("inf")),
        lambda: tune.choice([]),
        lambda: tune.choice("abc"),
        lambda: tune.grid_search([]),
        lambda: tune.loguniform(0, 1),
        lambda: tune.lograndint(0, 5),
        lambda: tune.quniform(0, 1, 0),
        lambda: tune.quniform(0, 1, 0.3),
        lambda: tune.qrandint(0, 5, -2),
        lambda: tune.qrandint(4, 5, 3),
        lambda: tune.qrandint(2, 4, 3),
        lambda: tune.randint(0.5, 3),
        lambda: tune.randn(0, 0),
        lambda: tune.choice([tune.uniform(0, 1), 3]),
        lambda: tune.sample_from(3),
        lambda: SearchSpace({"x": {"eval": "1 + 1"}}),
        lambda: SearchSpace(3),
        lambda: SearchSpace({"a/b": tune.uniform(0, 1), "a": {"b": tune.uniform(0, 1)}}),
    ],
)
def test_what_cannot_be_drawn_is_refused_where_it_is_written(write):
    with pytest.raises(SearchSpaceError) as raised:
        write()
    assert len(str(raised.value).split()) > 5


# ---- grids, samples, points


def test_grids_multiply_the_first_varies_slowest_and_samples_differ():
    space = {
        "a": tune.grid_search([0, 1]),
        "in": {"b": {"grid_search": ["x", "y"]}},
        "c": tune.grid_search([True, False]),
        "drawn": tune.uniform(0, 1),
    }
    made = configs(space, num_samples=2)
    assert len(made) == 16
    assert [(each["a"], each["in"]["b"], each["c"]) for each in made[:8]] == [
        (a, b, c) for a in (0, 1) for b in ("x", "y") for c in (True, False)
    ]
    assert len({each["drawn"] for each in made}) == 16


def test_a_constant_grid_has_the_same_draws_at_all_its_points():
    space = {"a": tune.grid_search([0, 1]), "drawn": tune.uniform(0, 1)}
    made = configs(space, num_samples=2, constant_grid_search=True)
    assert [each["a"] for each in made] == [0, 1, 0, 1]
    assert made[0]["drawn"] == made[1]["drawn"] != made[2]["drawn"] == made[3]["drawn"]


def test_a_suggestion_follows_from_seed_and_number_alone():
    space = {"x": tune.uniform(0, 1), "n": tune.randint(0, 1000)}
    assert configs(space, num_samples=10) == configs(space, num_samples=20)[:10]
    assert configs(space, num_samples=10) == configs(space, num_samples=10)
    assert configs(space, num_samples=10) != configs(space, num_samples=10, seed=6)
    # A parameter more changes nothing for the others.
    more = configs({"y": tune.uniform(0, 1), **space}, num_samples=10)
    assert [each["x"] for each in more] == [each["x"] for each in configs(space, num_samples=10)]


def test_points_to_evaluate_come_first_and_leave_the_rest_to_be_drawn():
    space = {
        "x": tune.uniform(0, 1),
        "m": {"h": tune.choice([[64], [256, 256]])},
        "g": tune.grid_search([1, 2]),
    }
    points = [{"x": 0.5, "m": {"h": [256, 256]}, "g": 2}, {"x": 0.25}]
    made = configs(space, num_samples=3, points_to_evaluate=points)
    assert made[0] == {"x": 0.5, "m": {"h": [256, 256]}, "g": 2}
    assert [(each["x"], each["g"]) for each in made[1:3]] == [(0.25, 1), (0.25, 2)]
    assert len(made) == 5


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ({"x": 2.0}, r"outside of \[0.0, 1.0\]"),
        ({"h": [3]}, "none of"),
        ({"n": 0.5}, "no int"),
        ({"g": 3}, "none of"),
        ({"constant": 2}, "no parameter of the space, which has 1"),
    ],
)
def test_points_outside_of_the_space_are_told_and_tried(point, expected, caplog):
    space = {
        "x": tune.uniform(0, 1),
        "h": tune.choice([[1]]),
        "n": tune.randint(0, 4),
        "g": tune.grid_search([1, 2]),
        "constant": 1,
    }
    made = configs(space, points_to_evaluate=[point], num_samples=1)
    assert {key: made[0][key] for key in point} == point
    assert made[0]["constant"] == point.get("constant", 1)
    assert re.search(expected, caplog.text)
    strict = SearchSpace(space)
    with pytest.raises(SearchSpaceError, match=expected):
        strict.flat_point(point)
    params = {**strict.draw({"g": 1}, lambda _: np.random.default_rng(0)), **point}
    assert strict.decode(json.loads(json.dumps(strict.encode(params))), None) == params


def test_points_that_name_nothing_are_refused():
    with pytest.raises(SearchSpaceError, match="Expected some of x"):
        configs({"x": tune.uniform(0, 1)}, points_to_evaluate=[{"y": 1}])


# ---- sample_from


def test_sample_from_sees_other_values_in_both_writings():
    space = {
        "double": tune.sample_from(lambda spec: spec.config.x * 2),
        "x": tune.uniform(0, 1),
        "m": {
            "width": tune.choice([8, 16]),
            "depth": tune.sample_from(lambda config: config["m"]["width"]),
        },
        "four": tune.sample_from(lambda config: config.double * 2),
        "alone": tune.sample_from(lambda: 7),
        "rolled": tune.sample_from(lambda rng: int(rng.integers(100))),
        "both": tune.sample_from(lambda config, rng: (len(dict(config)), float(rng.random()))),
    }
    made = configs(space, num_samples=3)
    for each in made:
        assert each["double"] == each["x"] * 2
        assert each["four"] == each["x"] * 4
        assert each["m"]["depth"] == each["m"]["width"]
        assert each["alone"] == 7
        assert each["both"][0] == 6  # all but itself
    assert made == configs(space, num_samples=3)


def test_sample_from_in_a_circle_and_one_that_raises_are_named():
    circle = {
        "a": tune.sample_from(lambda config: config["b"]),
        "b": tune.sample_from(lambda config: config["a"]),
    }
    with pytest.raises(SearchSpaceError, match="a -> b -> a"):
        configs(circle)
    with pytest.raises(SearchSpaceError, match="KeyError"):
        configs({"a": tune.sample_from(lambda config: config["nothing"])})


# ---- places in configs


def test_constants_arrays_and_classes_pass_through_untouched():
    array, callback = np.arange(3), object()
    space = {
        "env": dict,
        "array": array,
        "callback": callback,
        "list": [1, {"x": tune.uniform(0, 1)}],
    }
    (made,) = configs(space)
    assert made["env"] is dict
    assert made["array"] is array
    assert made["callback"] is callback
    assert 0 <= made["list"][1]["x"] < 1
    assert isinstance(space["list"][1]["x"], Domain)
    made["list"].append(2)
    assert len(configs(space)[0]["list"]) == 2


def test_a_config_object_takes_domains_and_is_not_changed():
    config = (
        PPOConfig()
        .environment("CartPole-v1", env_config={"size": tune.choice([3, 5])})
        .training(
            lr=tune.grid_search([1e-3, 1e-4]),
            model={"fcnet_hiddens": tune.choice([[64], [256, 256]])},
        )
        .evaluation(evaluation_config={"explore": tune.choice([True, False])})
    )
    before = config.to_dict()
    made = configs(config, num_samples=2)
    assert [each.lr for each in made] == [1e-3, 1e-4, 1e-3, 1e-4]
    for each in made:
        assert isinstance(each, PPOConfig)
        assert each.model_config["fcnet_hiddens"] in ([64], [256, 256])
        assert each.env_config["size"] in (3, 5)
        assert isinstance(each.evaluation_config["explore"], bool)
        each.validate()
    assert config.to_dict() == before
    assert isinstance(config.lr, Domain)


def test_a_frozen_config_gives_configs_that_can_be_changed():
    config = PPOConfig().training(lr=tune.uniform(1e-4, 1e-3))
    config.freeze()
    (made,) = configs(config)
    made.lr = 0.5
    assert made.lr == 0.5


def test_a_config_with_a_search_space_says_to_use_a_tuner():
    config = PPOConfig().environment("CartPole-v1").training(lr=tune.uniform(1e-4, 1e-3))
    config.training(model={"fcnet_hiddens": [tune.grid_search([64, 32])]})
    with pytest.raises(ConfigError, match=r"lr is a search space(.|\n)*tune\.Tuner") as raised:
        config.validate()
    assert "model_config['fcnet_hiddens'][0] is a search space" in str(raised.value)
    with pytest.raises(ConfigError, match=r"tune\.Tuner"):
        config.build_algo()


@pytest.mark.parametrize("config_class", [PPOConfig, DQNConfig, SACConfig])
def test_every_setting_takes_a_domain_and_a_grid(config_class):
    names = list(config_class().to_dict())
    assert len(names) > 100
    for name in names:
        default = config_class().read_value(name)
        for domain in (tune.choice([default, default]), tune.grid_search([default])):
            config = config_class().update_from_dict({name: domain})
            space = SearchSpace(config)
            assert space.parameters == {name: domain}
            params = space.draw({name: default}, lambda path: rng_at(0, Kind.SUGGEST, 0))
            assert space.config(params).to_dict().keys() == set(names)


# ---- the journal


def test_params_come_back_from_plain_data_as_what_they_were():
    values = [(64, 64), dict, np.arange(3), {"k": (1, [2])}]
    space = SearchSpace(
        {
            "scalar": tune.choice([1, 2.5, "x", None, True]),
            "object": tune.choice(values),
            "x": tune.uniform(0, 1),
            "made": tune.sample_from(lambda config: (config["x"], [1, {"k": np.float64(2)}])),
            "again": tune.sample_from(lambda config: frozenset([1])),
        }
    )

    def rng_of(path):
        return rng_at(0, Kind.SUGGEST, 0, len(path))

    for index in range(len(values)):
        params = space.draw({"object": values[index]}, rng_of)
        encoded = json.loads(json.dumps(space.encode(params)))
        decoded = space.decode(encoded, rng_of)
        assert decoded["object"] is values[index]
        assert {**decoded, "object": 0} == {**params, "object": 0}
        assert type(decoded["made"]) is tuple


def test_values_that_no_journal_can_hold_are_refused():
    space = SearchSpace({"x": tune.uniform(0, 1)})
    with pytest.raises(SearchSpaceError, match="cannot be written to the journal"):
        space.encode({"x": object()})
    with pytest.raises(SearchSpaceError, match="value number 5"):
        SearchSpace({"x": tune.choice([1])}).decode({"x": {"choice": 5}}, lambda path: rng_at(0, 0))
