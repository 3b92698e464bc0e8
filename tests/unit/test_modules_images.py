"""Networks that read images: when they have convolutions, gradients, state, and what is refused."""

import numpy as np
import pytest
from gymnasium import spaces

from trainer.connectors import ObservationEncoder
from trainer.errors import ConfigError, UnsupportedSpaceError
from trainer.modules import ActorCriticModule, QModule, RLModuleSpec, SACModule, model_config
from trainer.spaces import shown_images, split_observation

IMAGE = spaces.Box(0, 255, (6, 5, 2), np.uint8)
TABLE = spaces.Box(-1.0, 1.0, (6, 5))
PARTS = (spaces.Box(-1.0, 1.0, (3,)), spaces.Box(0, 255, (2, 6, 6), np.uint8))
FILTERS = [[3, 2, 2], [2, [2, 1], 1, "valid"]]


NATURE = [[32, 8, 4], [64, 4, 2], [64, 3, 1]]
"""The filters of Mnih et al. 2015, which pads nothing."""


def build(module_class, space=IMAGE, **config):
    config = {"fcnet_hiddens": [4], "conv_filters": FILTERS, **config}
    spec = RLModuleSpec(module_class, space, spaces.Discrete(3), config)
    return spec.build(np.random.default_rng(0))


def test_tensors_of_convolutions_have_names_of_their_own():
    shared = build(ActorCriticModule).parameters.shapes
    assert shared["encoder/conv/0/kernel"] == (2, 2, 2, 3)
    assert shared["encoder/conv/1/bias"] == (2,)
    assert shared["encoder/0/kernel"] == (2 * 3 * 2, 4)
    apart = build(ActorCriticModule, vf_share_layers=False)
    assert {"pi/conv/0/kernel", "vf/conv/0/kernel"} <= apart.parameters.shapes.keys()
    actor = {"pi/conv/0/kernel", "pi/conv/0/bias", "pi/conv/1/kernel", "pi/conv/1/bias"}
    assert {name for name in apart.get_state(inference_only=True) if "conv" in name} == actor


@pytest.mark.parametrize(
    ("space", "conv_filters", "has_convolutions"),
    [
        (IMAGE, None, True),
        (IMAGE, [], False),
        (spaces.Box(-1.0, 1.0, (30, 30, 1)), None, True),
        (TABLE, None, False),
        (TABLE, FILTERS, True),
        (spaces.Dict({"image": IMAGE, "action_mask": spaces.MultiBinary(3)}), None, True),
        (spaces.Dict({"image": IMAGE, "more": spaces.Discrete(3)}), [], False),
        (spaces.Tuple([spaces.Discrete(3), spaces.Dict({"deep": IMAGE})]), None, True),
        (spaces.Dict({"table": TABLE, "n": spaces.Discrete(2)}), None, False),
    ],
    ids=str,
)
def test_when_there_are_convolutions(space, conv_filters, has_convolutions):
    module = build(ActorCriticModule, space, conv_filters=conv_filters)
    assert any("conv" in name for name in module.parameters.shapes) == has_convolutions


@pytest.mark.parametrize(
    ("size", "features"), [(84, 11 * 11 * 32), (42, 11 * 11 * 32), (10, 5 * 5 * 32)]
)
def test_convolutions_are_chosen_by_the_size_of_the_image(size, features):
    space = spaces.Box(0, 255, (size, size, 3), np.uint8)
    module = build(ActorCriticModule, space, conv_filters=None)
    assert module.parameters.shapes["encoder/0/kernel"] == (features, 4)


def test_bytes_are_scaled_to_one_and_other_numbers_are_not():
    bytes_module = build(ActorCriticModule)
    floats = build(ActorCriticModule, spaces.Box(0.0, 255.0, (6, 5, 2)))
    floats.set_state(bytes_module.get_state())
    rows = np.random.default_rng(0).integers(0, 256, (4, 60)).astype(np.float32)
    scaled = bytes_module.forward_acting(rows)
    np.testing.assert_allclose(scaled, floats.forward_acting(rows / 255.0), atol=1e-6)
    assert not np.allclose(scaled, floats.forward_acting(rows))


def test_values_of_many_images_are_those_of_few():
    module = build(ActorCriticModule)
    rows = np.random.default_rng(0).integers(0, 256, (600, 60)).astype(np.float32)
    values = module.compute_values({"obs": rows})
    assert values.shape == (600,)
    few = module.compute_values({"obs": rows[250:270]})
    np.testing.assert_allclose(values[250:270], few, atol=1e-5)


def test_filters_that_cannot_be_are_refused():
    for filters in ([[16, 4]], [[16, 4, 2, "full"]], [[0, 4, 2]], [[16, [4, 4, 4], 2]], 3, [3]):
        with pytest.raises(ConfigError, match=r"must be a list of \[channels, kernel, stride\]"):
            build(ActorCriticModule, conv_filters=filters)
    with pytest.raises(ConfigError, match="conv_activation='gelu'"):
        build(ActorCriticModule, conv_activation="gelu")
    with pytest.raises(ConfigError, match="do not fit images"):
        build(ActorCriticModule, conv_filters=[[4, 9, 1, "valid"]])
    for space in (spaces.Discrete(3), spaces.Dict({"a": TABLE, "b": spaces.Discrete(2)})):
        with pytest.raises(UnsupportedSpaceError, match="need an image"):
            build(ActorCriticModule, space)


def test_sac_has_no_convolutions_and_says_so():
    for space in (IMAGE, spaces.Dict({"image": IMAGE, "more": spaces.Discrete(3)})):
        with pytest.raises(UnsupportedSpaceError, match="conv_filters"):
            build(SACModule, space, conv_filters=None)
    assert build(SACModule, conv_filters=[]).obs_size == 60


# ---- channels that come first


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((4, 84, 84), (84, 84, 4)),
        ((3, 210, 160), (210, 160, 3)),
        ((12, 64, 64), (64, 64, 12)),
        ((2, 10, 10), (10, 10, 2)),
        ((84, 84, 4), (84, 84, 4)),
        ((10, 10, 7), (10, 10, 7)),
        ((5, 8, 16), (5, 8, 16)),
        ((4, 12, 20), (4, 12, 20)),
        ((64, 64, 64), (64, 64, 64)),
    ],
    ids=str,
)
def test_where_channels_stand_is_told_from_the_shape(shape, expected):
    (image,) = shown_images(spaces.Box(0, 255, shape, np.uint8))
    assert image.shape == expected
    assert image.channels_first == (shape != expected)


def test_where_channels_stand_can_be_said():
    for shape, first, channels in (((4, 6, 6), False, 6), ((5, 6, 7), True, 5)):
        image = spaces.Box(0, 255, shape, np.uint8)
        shapes = build(ActorCriticModule, image, conv_channels_first=first).parameters.shapes
        assert shapes["encoder/conv/0/kernel"] == (2, 2, channels, 3)
    with pytest.raises(ConfigError, match="conv_channels_first='yes'"):
        build(ActorCriticModule, conv_channels_first="yes")


@pytest.mark.parametrize("module_class", [ActorCriticModule, QModule])
def test_channels_that_come_first_give_the_same_network_with_the_same_bytes(module_class):
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (4, 6, 6, 2)).astype(np.float32)
    outputs = []
    for shape, axes in (((6, 6, 2), (0, 1, 2, 3)), ((2, 6, 6), (0, 3, 1, 2))):
        module = build(module_class, spaces.Box(0, 255, shape, np.uint8))
        rows = np.ascontiguousarray(images.transpose(axes)).reshape(4, 72)
        outputs.append((module.parameters.shapes, module.forward_acting(rows).tobytes()))
    assert outputs[0] == outputs[1]


# ---- images beside other observations

BESIDE = spaces.Dict(
    {
        "action_mask": spaces.MultiBinary(3),
        "before": spaces.Discrete(2),
        "image": IMAGE,
        "later": spaces.Tuple(PARTS),
    }
)


def test_several_images_have_convolutions_each_and_the_rest_is_read_beside_their_features():
    shapes = build(ActorCriticModule, BESIDE).parameters.shapes
    assert shapes["encoder/image_0/conv/0/kernel"] == (2, 2, 2, 3)
    assert shapes["encoder/image_1/conv/0/kernel"] == (2, 2, 2, 3)
    num_features = 2 * 3 * 2 + 2 * 3 * 2
    assert shapes["encoder/0/kernel"] == (num_features + 2 + 3, 4)
    alone = spaces.Dict({"image": IMAGE, "more": spaces.Discrete(3)})
    shapes = build(ActorCriticModule, alone).parameters.shapes
    assert shapes["encoder/conv/0/kernel"] == (2, 2, 2, 3)
    assert shapes["encoder/0/kernel"] == (2 * 3 * 2 + 3, 4)


def test_the_features_of_an_image_in_a_dict_are_those_of_the_image_alone():
    alone = build(ActorCriticModule, IMAGE, fcnet_hiddens=[])
    space = spaces.Dict({"a": spaces.Discrete(2), "image": IMAGE, "z": spaces.Box(-1.0, 1.0, (2,))})
    beside = build(ActorCriticModule, space, fcnet_hiddens=[])
    state = alone.get_state()
    for name in ("pi", "vf"):
        kernel = state[f"{name}/0/kernel"]
        state[f"{name}/0/kernel"] = np.concatenate([kernel, np.zeros((4, kernel.shape[1]), "f4")])
    beside.set_state(state)
    rows = np.random.default_rng(0).integers(0, 256, (4, 60)).astype(np.float32)
    others = np.ones((4, 2), np.float32)
    mixed = np.concatenate([others, rows, others], axis=1)
    np.testing.assert_allclose(
        beside.forward_acting(mixed), alone.forward_acting(rows), rtol=1e-5, atol=1e-6
    )


def test_an_encoded_observation_has_its_images_where_networks_look_for_them():
    encoder = ObservationEncoder(BESIDE)
    observation = BESIDE.sample()
    (row,) = encoder.encode([observation])
    shown = shown_images(split_observation(BESIDE, action_mask_key="action_mask").seen)
    images = (observation["image"], observation["later"][1])
    for place, image in zip(shown, images, strict=True):
        assert row[place.start : place.start + place.size].tolist() == image.ravel().tolist()


@pytest.mark.parametrize(
    ("filters", "size", "is_told"),
    [
        (NATURE, 84, True),
        ([[*layer, "valid"] for layer in NATURE], 84, False),
        (NATURE[:2], 84, False),
        ([[4, 8, 4], [8, 4, 2]], 42, False),
        (None, 84, False),
        # Without padding they would not fit.
        (NATURE, 20, False),
    ],
    ids=["copied", "valid", "not much dearer", "few features", "ready-made", "too small"],
)
def test_what_padding_costs_is_told_once(caplog, filters, size, is_told):
    model_config._hint_at_padding.cache_clear()
    space = spaces.Box(0, 255, (size, size, 4), np.uint8)
    for _ in range(2):
        build(QModule, space, conv_filters=filters)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == is_told
    assert all("7,744" in text and "3,136" in text for text in told)
