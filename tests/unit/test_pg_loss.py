"""The policy gradient loss: values computed by hand, gradients against central differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from trainer.algorithms.pg.pg import PGLoss, pg_loss
from trainer.modules import PolicyModule, RLModuleSpec
from trainer.nn import ActionDistribution, Categorical, DiagGaussian
from trainer.seeding import NOISE_DRAWS
from trainer.testing.checks import gradient_check
from trainer.types import Array

DISTRIBUTIONS: dict[str, ActionDistribution] = {
    "discrete": Categorical(3),
    "box": DiagGaussian((2,)),
}


def example(distribution: ActionDistribution) -> tuple[Array, Array, Array]:
    """Inputs, actions drawn from them, and returns of both signs."""
    rng = np.random.default_rng(6)
    inputs = rng.standard_normal((7, distribution.num_inputs))
    noise = NOISE_DRAWS[distribution.noise_kind](rng, (7, distribution.noise_width))
    return inputs, distribution.sample(inputs, noise), rng.standard_normal(7)


def test_loss_and_gradient_of_two_rows_by_hand() -> None:
    p = np.array([0.25, 0.5])  # of action 1, which was chosen first; then action 0
    logits = np.log(np.stack([1.0 - p, p], axis=1))
    loss = pg_loss(np.array([3.0, -2.0]), terms=Categorical(2).evaluate(logits, np.array([1, 0])))
    assert loss.policy_loss == pytest.approx(-(3.0 * math.log(0.25) - 2.0 * math.log(0.5)) / 2)
    # d log π(a) / d logits is the one-hot code of a minus the probabilities.
    expected = [[-3.0 * -0.75 / 2, -3.0 * 0.75 / 2], [2.0 * 0.5 / 2, 2.0 * -0.5 / 2]]
    np.testing.assert_allclose(loss.d_action_dist_inputs, expected)


def test_the_entropy_is_reported_and_not_learnt() -> None:
    loss = pg_loss(np.zeros(1), terms=Categorical(4).evaluate(np.zeros((1, 4)), np.array([2])))
    assert loss.entropy == pytest.approx(math.log(4.0))
    assert loss.policy_loss == 0.0
    assert not loss.d_action_dist_inputs.any()


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_gradients_agree_with_differences(name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    inputs, actions, returns = example(distribution)

    def loss_at(x: Array) -> PGLoss:
        return pg_loss(returns, terms=distribution.evaluate(x, actions))

    gradient_check(lambda x: loss_at(x).policy_loss, loss_at(inputs).d_action_dist_inputs, inputs)


@pytest.mark.parametrize(
    "config",
    [{"vf_share_layers": False}, {"vf_share_layers": True}, {"fcnet_hiddens": []}],
    ids=["apart", "encoder", "no hidden layer"],
)
@pytest.mark.parametrize("actions", [spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2,))], ids=str)
def test_whole_chain_from_parameters_to_loss_agrees_with_differences(
    actions: Any, config: dict[str, Any]
) -> None:
    spec = RLModuleSpec(
        module_class=PolicyModule,
        observation_space=spaces.Box(-1.0, 1.0, (4,)),
        action_space=actions,
        model_config={"fcnet_hiddens": [6, 5], **config},
    )
    module = spec.build(np.random.default_rng(0), dtype=np.float64)
    assert not [name for name in module.parameters.shapes if name.startswith("vf/")]
    _, chosen, returns = example(module.action_distribution)
    obs = np.random.default_rng(2).standard_normal((7, 4))

    def loss_at(flat: Array) -> PGLoss:
        module.parameters.flat[:] = flat
        inputs = module.forward_train({"obs": obs})["action_dist_inputs"]
        return pg_loss(returns, terms=module.action_distribution.evaluate(inputs, chosen))

    start = module.parameters.flat.copy()
    loss = loss_at(start)
    module.backward(d_action_dist_inputs=loss.d_action_dist_inputs, d_vf_preds=np.zeros(7))
    gradient_check(lambda flat: loss_at(flat).policy_loss, module.gradients.flat, start)


def test_float32_in_gives_float32_gradients() -> None:
    inputs, actions, returns = example(Categorical(3))
    terms = Categorical(3).evaluate(inputs.astype(np.float32), actions)
    loss = pg_loss(returns.astype(np.float32), terms=terms)
    assert loss.d_action_dist_inputs.dtype == np.float32
