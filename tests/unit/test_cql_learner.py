"""CQL: the conservative term, and its learner."""

import math

import numpy as np
import pytest

from tests.sac_updates import BOX, CHOICE, MODEL, OBSERVATIONS, replayed_rows
from tests.unit.test_sac_learner import DoubleSACModule, critic_losses, losses_of
from trainer import CQLConfig
from trainer.algorithms.cql.cql import CQLLearner, CQLSettings, conservative_loss
from trainer.errors import ConfigError
from trainer.modules import RLModuleSpec, SACModule
from trainer.testing.checks import gradient_check

# ---- the loss


def test_two_candidates_by_hand():
    recorded = np.array([1.0, 4.0])
    values = np.log(np.array([[2.0, 8.0], [6.0, 2.0]]))
    found = conservative_loss(recorded, values, np.zeros((2, 2)), temperature=1.0)
    assert found.loss == pytest.approx((math.log(8.0) - 1.0 + math.log(10.0) - 4.0) / 2)
    np.testing.assert_allclose(found.d_recorded, [-0.5, -0.5])
    np.testing.assert_allclose(found.d_candidates, [[0.125, 0.4], [0.375, 0.1]])


def test_candidates_that_are_drawn_often_count_less():
    values, densities = np.zeros((2, 1)), np.log(np.array([[1.0], [4.0]]))
    found = conservative_loss(np.zeros(1), values, densities, temperature=1.0)
    assert found.loss == pytest.approx(math.log(1.0 + 0.25))
    np.testing.assert_allclose(found.d_candidates[:, 0], [0.8, 0.2])


def test_a_small_temperature_takes_the_most_overrated():
    values = np.array([[1.0], [3.0]])
    found = conservative_loss(np.zeros(1), values, np.zeros((2, 1)), temperature=1e-3)
    assert found.loss == pytest.approx(3.0)
    np.testing.assert_allclose(found.d_candidates[:, 0], [0.0, 1.0], atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_gradients_of_the_term_agree_with_differences(temperature):
    rng = np.random.default_rng(1)
    recorded, values, densities = (
        rng.normal(size=4),
        rng.normal(size=(6, 4)),
        rng.normal(size=(6, 4)),
    )

    def at(q, k):
        return conservative_loss(q, k, densities, temperature=temperature)

    found = at(recorded, values)
    gradient_check(lambda q: at(q, values).loss, found.d_recorded, recorded)
    gradient_check(lambda k: at(recorded, k).loss, found.d_candidates, values)


# ---- the learner


def learner(actions=BOX, *, module_class=SACModule, model=MODEL, **settings):
    config = CQLConfig().training(**{"gamma": 0.5, "num_actions": 3, **settings})
    return CQLLearner(
        module_spec=RLModuleSpec(module_class, OBSERVATIONS, actions, model),
        settings=CQLSettings.from_config(config, lr=config.critic_lr),
        root_seed=3,
    )


@pytest.mark.parametrize("twin_q", [True, False])
@pytest.mark.parametrize(("part", "bc_iters"), [("qf", 0), ("pi/", 0), ("pi/", 10)])
def test_gradients_of_the_whole_losses(twin_q, part, bc_iters):
    model = {**MODEL, "twin_q": twin_q, "initial_alpha": 0.4}
    subject = learner(module_class=DoubleSACModule, model=model, bc_iters=bc_iters)
    rng, rows = np.random.default_rng(4), replayed_rows(dtype=np.float64)
    subject.module.parameters.flat += 0.3 * rng.standard_normal(subject.module.num_parameters)

    def value():
        return (
            critic_losses(subject, rows) if part == "qf" else losses_of(subject, rows).policy_loss
        )

    value()
    tensors = subject.module.parameters.views
    gradients = {name: g.copy() for name, g in subject.module.gradients.views.items()}
    for name in [name for name in tensors if name.startswith(part)]:

        def value_at(x, *, tensor=tensors[name]):
            before = tensor.copy()
            tensor[...] = x
            result = value()
            tensor[...] = before
            return result

        gradient_check(value_at, gradients[name], tensors[name].copy())


def test_candidates_know_how_often_they_are_drawn():
    rows = replayed_rows()
    subject = learner(num_actions=3)
    actions, log_densities = subject._drawn(rows, np.random.default_rng(1))
    assert actions.shape == (9, len(rows.obs), 2)
    np.testing.assert_allclose(log_densities[:3], math.log(1 / 4), rtol=1e-6)  # of a square of 2
    distribution = subject.module.action_distribution
    for start, obs in ((3, rows.obs), (6, rows.next_obs)):
        inputs = subject.module.forward_inference({"obs": obs})["action_dist_inputs"]
        for number in range(start, start + 3):
            expected = distribution.logp(inputs, actions[number])
            np.testing.assert_allclose(log_densities[number], expected, rtol=1e-3, atol=1e-3)


def test_without_weight_the_critics_learn_as_in_sac():
    rows = replayed_rows()
    plain = learner(min_q_weight=0.0, bc_iters=0)
    held = learner(min_q_weight=5.0, bc_iters=0)
    losses = {name: critic_losses(one, rows) for name, one in (("plain", plain), ("held", held))}
    assert losses["plain"] != losses["held"]
    td = [critic.td_errors for critic in losses_of(plain, rows).critics]
    expected = sum(float(np.mean(rows.weights * error * error)) for error in td)
    assert losses["plain"] == pytest.approx(expected, rel=1e-5)


def test_the_backup_leaves_the_entropy_out_or_not():
    rows = replayed_rows()
    found = [
        losses_of(learner(deterministic_backup=given), rows).critics[0].td_errors
        for given in (True, False)
    ]
    assert not np.allclose(*found)
    np.testing.assert_allclose(found[0][-1], found[1][-1])  # after the end nothing is worth


def test_the_policy_imitates_at_first_and_then_follows_the_critics():
    subject = learner(bc_iters=30, actor_lr=1e-2, critic_lr=0.0, alpha_lr=0.0)
    rows = replayed_rows()
    distribution = subject.module.action_distribution

    def logp():
        inputs = subject.module.forward_inference({"obs": rows.obs})["action_dist_inputs"]
        return float(distribution.logp(inputs, rows.actions).mean())

    def learn(count):
        subject._set_rates(0)
        for number in range(count):
            subject.learn(rows, lr=0.0, rng=np.random.default_rng(number))
            subject.num_updates += 1

    before = logp()
    learn(30)
    imitated = logp()
    learn(60)
    assert imitated > before + 0.3
    assert logp() < imitated


@pytest.mark.parametrize(("num_updates", "imitates"), [(29, True), (30, False)])
def test_so_many_updates_imitate_as_was_asked_for(num_updates, imitates):
    found = []
    for bc_iters in (30, 10**6):
        subject = learner(bc_iters=bc_iters)
        subject.num_updates = num_updates
        found.append(losses_of(subject, replayed_rows()).policy_loss)
    assert (found[0] == found[1]) is imitates


def test_the_weighed_term_of_the_first_critic_is_a_metric():
    rows = replayed_rows()
    losses = {}
    for weight in (0.0, 1.0, 3.0):
        subject = learner(min_q_weight=weight)
        subject._set_rates(0)
        update = subject.learn(rows, lr=0.0, rng=np.random.default_rng(2))
        losses[weight] = update.metrics()
    for weight in (1.0, 3.0):
        term = losses[weight]["qf_loss"] - losses[0.0]["qf_loss"]
        assert losses[weight]["cql_loss"] == pytest.approx(term, rel=1e-5)


def test_critics_are_held_down_where_nothing_was_recorded():
    rows = replayed_rows()
    far = -np.sign(rows.actions).astype(np.float32)

    def gap(weight):
        subject = learner(min_q_weight=weight, critic_lr=1e-2, bc_iters=0)
        subject._set_rates(0)
        for number in range(60):
            subject.learn(rows, lr=0.0, rng=np.random.default_rng(number))
        recorded = subject._critics.forward(rows.obs, rows.actions)[0].copy()
        return float(np.mean(recorded - subject._critics.forward(rows.obs, far)[0]))

    assert gap(5.0) > gap(0.0) + 0.5


def test_discrete_actions_are_refused():
    with pytest.raises(ConfigError, match="CQL holds critics down at actions drawn from a Box"):
        learner(CHOICE)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"replay_buffer_config": {"capacity": 10}}, "the buffer holds the recordings"),
        ({"store_buffer_in_checkpoints": False}, "the buffer holds the recordings"),
        ({"training_intensity": 4}, "dataset_num_iters_per_learner"),
        ({"target_network_update_freq": 10}, "targets follow after every update"),
        ({"lagrangian": True}, "not offered"),
        ({"min_sample_timesteps_per_iteration": 10}, "no env steps are sampled"),
    ],
)
def test_settings_that_do_not_fit_are_told(settings, why):
    made = CQLConfig().environment("Pendulum-v1").offline_data(input_="recordings")
    made.validate()
    with pytest.raises(ConfigError, match=why):
        made.update_from_dict(settings).validate()
