"""Building modules: settings, spaces, and networks written by users."""

import inspect
import textwrap

import numpy as np
import pytest
from gymnasium import spaces

from trainer.connectors import ObservationEncoder
from trainer.errors import ConfigError, ModuleError, UnsupportedSpaceError
from trainer.modules import (
    ActorCriticModule,
    DefaultModelConfig,
    QModule,
    RLModule,
    RLModuleSpec,
    SACModule,
    distribution_for,
    observation_size,
)
from trainer.nn import (
    Bernoulli,
    Categorical,
    DiagGaussian,
    MultiCategorical,
    ProductDistribution,
    matmul_rows,
)
from trainer.testing.checks import check_module

BOX = spaces.Box(-1.0, 1.0, (3,))
FOUR = spaces.Discrete(4)


def test_defaults_are_those_of_rllib():
    config = DefaultModelConfig()
    assert config.fcnet_hiddens == [256, 256]
    assert (config.fcnet_activation, config.head_fcnet_activation) == ("tanh", "relu")
    assert config.vf_share_layers
    assert config.log_std_clip_param == 20.0
    assert DefaultModelConfig.from_setting(None) == DefaultModelConfig.from_setting({}) == config


def test_all_impossible_values_are_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        DefaultModelConfig.from_setting(
            {
                "fcnet_hiddens": [64, 0],
                "head_fcnet_hiddens": "64",
                "fcnet_activation": "gelu",
                "initializer": "zeros",
                "log_std_clip_param": -1.0,
                "use_lstm": "yes",
            }
        )
    for part in ("[64, 0]", "'64'", "gelu", "zeros", "-1.0", "use_lstm"):
        assert part in str(caught.value)


def test_dataclass_and_dict_build_the_same_network():
    def weights(model_config):
        spec = RLModuleSpec(
            observation_space=BOX, action_space=spaces.Discrete(2), model_config=model_config
        )
        return spec.build(np.random.default_rng(0)).parameters.flat.tobytes()

    assert weights({"fcnet_hiddens": [8]}) == weights(DefaultModelConfig(fcnet_hiddens=[8]))


OBSERVATION_SPACES = [
    BOX,
    spaces.Box(0, 255, (4, 5, 3), np.uint8),
    spaces.Discrete(6),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
    spaces.MultiBinary((2, 3)),
    spaces.Dict(
        {"b": spaces.Discrete(3), "a": spaces.Tuple([BOX, spaces.Box(-1.0, 1.0, ())])},
    ),
]


@pytest.mark.parametrize("space", OBSERVATION_SPACES, ids=str)
def test_module_and_encoder_agree_about_sizes(space):
    assert observation_size(space) == ObservationEncoder(space).size


@pytest.mark.parametrize(
    ("space", "kind", "num_inputs"),
    [
        (spaces.Discrete(3), Categorical, 3),
        (spaces.MultiDiscrete([2, 3]), MultiCategorical, 5),
        (spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])), MultiCategorical, 14),
        (spaces.MultiBinary((2, 3)), Bernoulli, 6),
        (BOX, DiagGaussian, 6),
        (spaces.Box(-1, 3, (2,), np.int8), MultiCategorical, 10),
        (spaces.Dict({"b": BOX, "a": spaces.Tuple([FOUR])}), ProductDistribution, 10),
    ],
)
def test_distributions_fit_their_spaces(space, kind, num_inputs):
    distribution = distribution_for(space)
    assert (type(distribution), distribution.num_inputs) == (kind, num_inputs)
    if kind is ProductDistribution:  # its parts stand in the order of the space
        assert list(distribution.deterministic(np.zeros((1, num_inputs)))) == list(space.spaces)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Text(3), "chooses in Discrete, MultiDiscrete"),
        (spaces.Tuple([BOX, spaces.Text(3)]), "chooses in Discrete, MultiDiscrete"),
        (spaces.Box(-1.0, 1.0, (0,)), "chooses in Discrete, MultiDiscrete"),
        (spaces.Box(-(2**31), 2**31 - 1, (1,), np.int32), "4294967296 integers to choose among"),
        (spaces.Dict({"a": BOX, "b": spaces.Tuple([])}), "nothing to choose"),
    ],
)
def test_spaces_to_choose_in_say_what_is_possible(space, words):
    with pytest.raises(UnsupportedSpaceError, match=words):
        distribution_for(space)


def test_what_no_network_can_be_built_for_is_refused():
    with pytest.raises(UnsupportedSpaceError, match="Box, Discrete"):
        observation_size(spaces.Sequence(BOX))
    with pytest.raises(UnsupportedSpaceError, match="holds no number"):
        observation_size(spaces.Dict({}))
    with pytest.raises(ModuleError, match="needs both"):
        RLModuleSpec(observation_space=BOX).build()
    with pytest.raises(ModuleError, match="not a subclass of `RLModule`"):
        RLModuleSpec(dict, BOX, FOUR).build()


def example_of_the_docstring():
    """The class that the docstring of `RLModule` shows to users."""
    docstring = inspect.getdoc(RLModule) or ""
    source = docstring[docstring.index("    class LinearModule") :]
    source = source[: source.index("    config.rl_module")]
    names = {"RLModule": RLModule, "matmul_rows": matmul_rows}
    exec(textwrap.dedent(source), names)
    return names["LinearModule"]


def test_example_for_users_keeps_all_that_modules_promise():
    check_module(example_of_the_docstring(), observation_space=BOX, action_space=spaces.Discrete(2))


# ---- observations that are no rows

ROWS = spaces.Box(-1.0, 1.0, (3,))
TARGET = spaces.Box(0, 255, (6, 5, 2), np.uint8)
MASKED = spaces.Dict({"action_mask": spaces.MultiBinary(2), "seen": ROWS})


@pytest.mark.parametrize("module_class", [ActorCriticModule, QModule, SACModule])
@pytest.mark.parametrize("space", [ROWS, MASKED, TARGET], ids=["vector", "mask", "image"])
def test_a_forgotten_batch_dimension_is_told(module_class, space):
    config = {"fcnet_hiddens": [4]} | ({"conv_filters": []} if module_class is SACModule else {})
    spec = RLModuleSpec(module_class, space, spaces.Discrete(2), config)
    module = spec.build(np.random.default_rng(0))
    width = module.obs_size + (2 if space is MASKED else 0)
    single = np.zeros(width, np.float32)
    calls = [module.forward_inference, module.forward_exploration, module.forward_train]
    for call in (*calls, module.compute_values):
        for given, words in (
            (single, r"\[None\]"),
            (np.zeros((2, width + 1), np.float32), "encoded first"),
            (np.zeros((1, 2, width), np.float32), "encoded first"),
            (np.float32(0.0), "encoded first"),
        ):
            with pytest.raises(ModuleError, match=words):
                call({"obs": given})
        with pytest.raises(ModuleError, match="has no 'obs', only"):
            call({"observations": single[None]})
    for call in calls:
        assert call({"obs": single[None]})["action_dist_inputs"].shape == (1, 2)
    with pytest.raises(ModuleError, match=r"\[None\]"):
        module.forward_acting(single)


def test_images_that_are_not_flat_yet_are_rows_as_well():
    config = {"fcnet_hiddens": [4]}
    spec = RLModuleSpec(ActorCriticModule, TARGET, spaces.Discrete(2), config)
    module = spec.build(np.random.default_rng(0))
    images = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 2)).astype(np.float32)
    flat = module.forward_inference({"obs": images.reshape(4, 60)})
    for call in (module.forward_inference, module.forward_train):
        found = call({"obs": images})["action_dist_inputs"]
        np.testing.assert_allclose(found, flat["action_dist_inputs"], atol=1e-6)
    with pytest.raises(ModuleError, match="encoded first"):
        module.forward_inference({"obs": images.transpose(0, 3, 1, 2)})
