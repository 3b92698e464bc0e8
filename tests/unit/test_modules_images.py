"""Networks that read images: when they have convolutions, gradients, state, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from trainer.errors import ConfigError, UnsupportedSpaceError
from trainer.modules import ActorCriticModule, QModule, RLModule, RLModuleSpec, SACModule
from trainer.testing.modules import check_module

IMAGE = spaces.Box(0, 255, (6, 5, 2), np.uint8)
FILTERS = [[3, 2, 2], [2, [2, 1], 1, "valid"]]


def build(module_class: type[RLModule], space: Any = IMAGE, **config: Any) -> RLModule:
    config = {"fcnet_hiddens": [4], "conv_filters": FILTERS, **config}
    spec = RLModuleSpec(module_class, space, spaces.Discrete(3), config)
    return spec.build(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("module_class", "config"),
    [
        (ActorCriticModule, {"vf_share_layers": True}),
        (ActorCriticModule, {"vf_share_layers": False}),
        (ActorCriticModule, {"vf_share_layers": True, "fcnet_hiddens": []}),
        (QModule, {}),
        (QModule, {"dueling": False, "fcnet_hiddens": []}),
    ],
    ids=str,
)
def test_modules_with_convolutions_keep_all_that_modules_promise(
    module_class: type[RLModule], config: dict[str, Any]
) -> None:
    check_module(
        module_class,
        observation_space=IMAGE,
        action_space=spaces.Discrete(3),
        model_config={
            "fcnet_hiddens": [4],
            "conv_filters": FILTERS,
            "conv_activation": "swish",
            **config,
        },
    )


def test_tensors_of_convolutions_have_names_of_their_own() -> None:
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
        (spaces.Box(-1.0, 1.0, (6, 5)), None, False),
        (spaces.Box(-1.0, 1.0, (6, 5)), FILTERS, True),
        (spaces.Box(-1.0, 1.0, (6,)), None, False),
        (spaces.Dict({"image": IMAGE, "action_mask": spaces.MultiBinary(3)}), None, True),
        (spaces.Dict({"image": IMAGE, "more": spaces.Discrete(3)}), None, False),
    ],
    ids=str,
)
def test_when_there_are_convolutions(space: Any, conv_filters: Any, has_convolutions: bool) -> None:
    module = build(ActorCriticModule, space, conv_filters=conv_filters)
    assert any("conv" in name for name in module.parameters.shapes) == has_convolutions


@pytest.mark.parametrize(
    ("size", "features"), [(84, 11 * 11 * 32), (42, 11 * 11 * 32), (10, 5 * 5 * 32)]
)
def test_convolutions_are_chosen_by_the_size_of_the_image(size: int, features: int) -> None:
    space = spaces.Box(0, 255, (size, size, 3), np.uint8)
    module = build(ActorCriticModule, space, conv_filters=None)
    assert module.parameters.shapes["encoder/0/kernel"] == (features, 4)


def test_bytes_are_scaled_to_one_and_other_numbers_are_not() -> None:
    bytes_module = build(ActorCriticModule)
    floats = build(ActorCriticModule, spaces.Box(0.0, 255.0, (6, 5, 2)))
    floats.set_state(bytes_module.get_state())
    rows = np.random.default_rng(0).integers(0, 256, (4, 60)).astype(np.float32)
    scaled = bytes_module.forward_acting(rows)
    np.testing.assert_allclose(scaled, floats.forward_acting(rows / 255.0), atol=1e-6)
    assert not np.allclose(scaled, floats.forward_acting(rows))


def test_values_of_many_images_are_those_of_few() -> None:
    module = build(ActorCriticModule)
    rows = np.random.default_rng(0).integers(0, 256, (600, 60)).astype(np.float32)
    values = module.compute_values({"obs": rows})
    assert values.shape == (600,)
    few = module.compute_values({"obs": rows[250:270]})
    np.testing.assert_allclose(values[250:270], few, atol=1e-5)


def test_filters_that_cannot_be_are_refused() -> None:
    for filters in ([[16, 4]], [[16, 4, 2, "full"]], [[0, 4, 2]], [[16, [4, 4, 4], 2]], 3, [3]):
        with pytest.raises(ConfigError, match=r"must be a list of \[channels, kernel, stride\]"):
            build(ActorCriticModule, conv_filters=filters)
    with pytest.raises(ConfigError, match="conv_activation='gelu'"):
        build(ActorCriticModule, conv_activation="gelu")
    with pytest.raises(ConfigError, match="do not fit images"):
        build(ActorCriticModule, conv_filters=[[4, 9, 1, "valid"]])
    for space in (spaces.Discrete(3), spaces.Dict({"a": IMAGE, "b": IMAGE})):
        with pytest.raises(UnsupportedSpaceError, match="need one image"):
            build(ActorCriticModule, space)


def test_sac_has_no_convolutions_and_says_so() -> None:
    with pytest.raises(UnsupportedSpaceError, match="conv_filters"):
        build(SACModule, conv_filters=None)
    assert build(SACModule, conv_filters=[]).obs_size == 60
