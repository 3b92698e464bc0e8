"""SAC's learner: whole losses through the networks, fixed points, temperature, targets."""

import dataclasses
import math

import numpy as np
import pytest
from gymnasium import spaces

from tests.sac_updates import BOX, CHOICE, MODEL, NUM_ROWS, replayed_rows, sac_learner
from trainer.episodes import SingleAgentEpisode
from trainer.errors import ConfigError, ModuleError
from trainer.modules import QModule, SACModule
from trainer.nn import layers
from trainer.replay import PrioritizedReplayBuffer
from trainer.testing.checks import gradient_check


class DoubleSACModule(SACModule):
    """With 64 bits, so that gradients can be checked."""

    def __init__(self, **arguments):
        super().__init__(**{**arguments, "dtype": np.float64})


def losses_of(subject, rows):
    return subject.losses(rows, rng=np.random.default_rng(2))


def critic_losses(subject, rows):
    return sum(critic.loss for critic in losses_of(subject, rows).critics)


# ---- gradients of the whole losses


@pytest.mark.parametrize("actions", [BOX, CHOICE])
@pytest.mark.parametrize("twin_q", [True, False])
@pytest.mark.parametrize("part", ["pi/", "qf", "log_alpha"])
def test_gradients_of_the_whole_losses(actions, twin_q, part):
    model = {**MODEL, "twin_q": twin_q, "initial_alpha": 0.4}
    subject = sac_learner(actions, module_class=DoubleSACModule, model=model)
    rng, rows = np.random.default_rng(4), replayed_rows(actions, dtype=np.float64)
    subject.module.parameters.flat += 0.3 * rng.standard_normal(subject.module.num_parameters)
    subject.target.critics.parameters.flat += 0.2

    def value():
        if part == "qf":
            return critic_losses(subject, rows)
        losses = losses_of(subject, rows)
        return losses.policy_loss if part == "pi/" else losses.alpha_loss

    value()
    tensors = subject.module.parameters.views
    gradients = {name: g.copy() for name, g in subject.module.gradients.views.items()}
    checked = [name for name in tensors if name.startswith(part)]
    assert checked
    for name in checked:

        def value_at(x, *, tensor=tensors[name]):
            before = tensor.copy()
            tensor[...] = x
            result = value()
            tensor[...] = before
            return result

        gradient_check(value_at, gradients[name], tensors[name].copy())


def test_the_gradient_flows_through_the_smaller_value():
    subject, rows = sac_learner(module_class=DoubleSACModule), replayed_rows(dtype=np.float64)
    alone = {}
    for other in (-100.0, 100.0):  # makes the twin the smaller one everywhere, then the larger one
        subject.module.parameters.views["qf_twin/2/bias"][:] = other
        losses_of(subject, rows)
        alone[other] = subject.module.gradients.views["pi/0/kernel"].copy()
    subject.module.parameters.views["qf/0/kernel"][:] = 0.0  # the first one says nothing now
    losses_of(subject, rows)
    assert not np.allclose(subject.module.gradients.views["pi/0/kernel"], alone[100.0])
    subject.module.parameters.views["qf_twin/2/bias"][:] = -100.0
    losses_of(subject, rows)
    np.testing.assert_array_equal(subject.module.gradients.views["pi/0/kernel"], alone[-100.0])


# ---- known answers


def test_targets_are_soft_values_of_the_next_observation():
    subject, rows = sac_learner(module_class=DoubleSACModule), replayed_rows(dtype=np.float64)
    subject.module.parameters.views["log_alpha"][:] = np.log(0.3)
    rng = np.random.default_rng(2)
    noise = rng.standard_normal((2, NUM_ROWS, 2))[0]
    inputs = subject.module.forward_acting(rows.next_obs)
    actions = subject.module.action_distribution.sample(inputs, noise)
    logp = subject.module.action_distribution.logp(inputs, actions)
    subject.target.critics.parameters.flat += 0.1
    smaller = np.minimum(*subject.target.critics.forward(rows.next_obs, actions))
    targets = rows.rewards + rows.discounts * (smaller - 0.3 * logp)
    q_values = [q.copy() for q in subject.module.critics.forward(rows.obs, rows.actions)]
    for critic, q in zip(losses_of(subject, rows).critics, q_values, strict=True):
        np.testing.assert_allclose(critic.td_errors, q - targets, rtol=1e-8)


REWARDS = np.array([1.0, 0.2])
TABULAR = {"fcnet_hiddens": []}
"""One weight per state and action, as states are one-hot."""


def bandit(*, ends):
    """Two arms that pay 1 and 0.2, and then the end, or the same again."""
    buffer = PrioritizedReplayBuffer(8)
    for arm, reward in enumerate(REWARDS):
        episode = SingleAgentEpisode(
            f"arm {arm}",
            observations=[0, 0],
            actions=[arm],
            rewards=[reward],
            terminated=ends,
            len_lookback_buffer=0,
        )
        buffer.add(episode.to_numpy())
    return buffer


def played(subject, buffer, count, *, num_env_steps=0):
    return subject.update_from(
        buffer,
        num_updates=count,
        num_env_steps_sampled_lifetime=num_env_steps,
        num_env_steps_sampled_before=num_env_steps,
    )()


def bandit_learner(**settings):
    chosen = {"critic_lr": 0.02, "actor_lr": 0.02, "tau": 0.2, "alpha_lr": 0.0, **settings}
    model = {**TABULAR, "initial_alpha": 0.5}
    return sac_learner(spaces.Discrete(2), observations=spaces.Discrete(1), model=model, **chosen)


def policy_of(subject):
    logits = subject.module.forward_acting(np.ones((1, 1), np.float32))
    return np.exp(subject.module.action_distribution.canonical(logits))[0]


def values_of(subject):
    return subject.module.critics.forward(np.ones((1, 1), np.float32))[0][0].copy()


def test_a_bandits_values_are_its_rewards_and_its_policy_their_softmax():
    subject = bandit_learner(target_entropy=0.3)
    metrics = played(subject, bandit(ends=True), 400)
    assert metrics["alpha_value"] == pytest.approx(0.5), "without its learning rate it stays"
    np.testing.assert_allclose(values_of(subject), REWARDS, atol=2e-3)
    expected = np.exp(REWARDS / 0.5) / np.exp(REWARDS / 0.5).sum()
    np.testing.assert_allclose(policy_of(subject), expected, atol=5e-3)


def test_an_endless_bandits_values_are_soft():
    subject = bandit_learner()
    played(subject, bandit(ends=False), 600)
    # V = α log Σ exp(Q/α) and Q = r + γ V, so V = α log Σ exp(r/α) / (1 - γ).
    soft_value = 0.5 * np.log(np.exp(REWARDS / 0.5).sum()) / (1.0 - 0.5)
    np.testing.assert_allclose(values_of(subject), REWARDS + 0.5 * soft_value, atol=0.01)
    hard_value = REWARDS.max() / (1.0 - 0.5)
    assert abs(soft_value - hard_value) > 0.1, "a learner without entropy would pass, too"


@pytest.mark.parametrize("target_entropy", [0.3, 0.6])
def test_the_temperature_leads_the_entropy_to_its_target(target_entropy):
    subject = bandit_learner(alpha_lr=0.01, target_entropy=target_entropy)
    metrics = played(subject, bandit(ends=True), 1200)
    probs = policy_of(subject)
    assert -(probs * np.log(probs)).sum() == pytest.approx(target_entropy, abs=0.02)
    assert metrics["logps"] == pytest.approx(-target_entropy, abs=0.02)
    # Where p(1 - p) belongs to that entropy, α = Δr / log(p / (1 - p)).
    assert metrics["alpha_value"] == pytest.approx(0.8 / np.log(probs[0] / probs[1]), rel=0.1)


@pytest.mark.parametrize(
    ("actions", "setting", "expected"),
    [
        (BOX, "auto", -2.0),
        (spaces.Box(-1.0, 1.0, (2, 3)), None, -6.0),
        (CHOICE, "auto", 0.98 * np.log(3)),
        (BOX, 0.5, 0.5),
        (CHOICE, 0, 0.0),
    ],
)
def test_the_target_entropy_is_as_documented(actions, setting, expected):
    assert sac_learner(actions, target_entropy=setting).target_entropy == pytest.approx(expected)


# ---- one step


def box_buffer():
    rng = np.random.default_rng(6)
    buffer = PrioritizedReplayBuffer(64)
    episode = SingleAgentEpisode(
        "boxes",
        observations=list(rng.uniform(-1, 1, (31, 3)).astype(np.float32)),
        actions=list(np.tanh(rng.standard_normal((30, 2))).astype(np.float32)),
        rewards=list(rng.standard_normal(30)),
        terminated=True,
        len_lookback_buffer=0,
    )
    buffer.add(episode.to_numpy())
    return buffer


def moved(subject, **arguments):
    """The largest change of each part by one update."""
    before = {name: view.copy() for name, view in subject.module.parameters.views.items()}
    played(subject, box_buffer(), 1, **arguments)
    changes = {}
    for name, view in subject.module.parameters.views.items():
        part = name.split("/")[0]
        change = float(np.abs(view - before[name]).max())
        changes[part] = max(changes.get(part, 0.0), change)
    return changes


def test_every_part_has_its_learning_rate():
    # The first step of Adam is as long as the learning rate.
    rates = {"critic_lr": 0.03, "actor_lr": 0.02, "alpha_lr": 0.01}
    changes = moved(sac_learner(**rates))
    expected = {"pi": 0.02, "qf": 0.03, "qf_twin": 0.03, "log_alpha": 0.01}
    assert changes == pytest.approx(expected, rel=1e-2)


def test_learning_rates_follow_schedules_of_env_steps():
    falling = [[0, 0.02], [100, 0.0]]
    rates = dict.fromkeys(("actor_lr", "critic_lr", "alpha_lr"), falling)
    for num_env_steps, rate in ((50, 0.01), (100, 0.0)):
        changes = moved(sac_learner(**rates), num_env_steps=num_env_steps)
        assert changes == pytest.approx(dict.fromkeys(changes, rate), rel=1e-2)


def test_gradients_are_clipped_part_by_part():
    subject, rows = sac_learner(grad_clip=0.01, grad_clip_by="global_norm"), replayed_rows()
    whole = sac_learner()
    for each in (subject, whole):
        each.learn(rows, lr=0.0, rng=np.random.default_rng(2))

    def norm(each, part):
        views = each.module.gradients.views
        of_part = [views[name].ravel() for name in views if name.split("/")[0] == part]
        return float(np.linalg.norm(np.concatenate(of_part)))

    for part in ("pi", "qf", "qf_twin", "log_alpha"):
        assert norm(subject, part) == pytest.approx(min(0.01, norm(whole, part)), rel=1e-4)


def test_target_critics_follow_by_the_share_tau():
    subject = sac_learner(tau=0.25, critic_lr=0.05)
    before = subject.target.critics.parameters.flat.copy()
    np.testing.assert_array_equal(before, subject.module.critics.block)
    played(subject, box_buffer(), 1)
    expected = 0.75 * before + 0.25 * subject.module.critics.block
    np.testing.assert_allclose(subject.target.critics.parameters.flat, expected, rtol=1e-5)
    assert not np.allclose(before, expected)


def test_given_weights_are_those_of_the_targets_too():
    subject, other = sac_learner(), sac_learner()
    played(other, box_buffer(), 3)
    subject.set_weights(other.get_weights())
    np.testing.assert_array_equal(
        subject.target.critics.parameters.flat, subject.module.critics.block
    )


def test_actions_are_drawn_anew_in_every_update():
    rows = replayed_rows()
    subject = sac_learner(critic_lr=0.0, actor_lr=0.0, alpha_lr=0.0)
    first, other, again = (
        subject.losses(rows, rng=np.random.default_rng(seed)).policy_loss for seed in (2, 3, 2)
    )
    assert first == again != other


def test_priorities_follow_the_mean_error_of_the_critics():
    subject, rows = sac_learner(), replayed_rows()
    first, second = (critic.td_errors for critic in losses_of(subject, rows).critics)
    update = subject.learn(rows, lr=0.0, rng=np.random.default_rng(2))
    np.testing.assert_allclose(update.td_errors, 0.5 * (np.abs(first) + np.abs(second)))


def test_metrics_have_the_names_of_rllib():
    metrics = played(sac_learner(), box_buffer(), 1)
    losses = [metrics[f"{part}_loss"] for part in ("policy", "alpha", "qf", "qf_twin")]
    assert metrics["total_loss"] == pytest.approx(sum(losses))
    known = ("alpha_value", "log_alpha_value", "target_entropy")
    assert [metrics[name] for name in known] == [1.0, 0.0, -2.0]
    assert metrics["qf_min"] <= metrics["qf_mean"] <= metrics["qf_max"]
    assert {"logps", "td_error_mean"} <= set(metrics)
    assert "qf_twin_loss" not in played(
        sac_learner(model={**TABULAR, "twin_q": False}), box_buffer(), 1
    )


@pytest.mark.parametrize("actions", [BOX, CHOICE])
def test_networks_that_are_computed_at_once_have_the_same_bits(actions, monkeypatch):
    weights = []
    for large in (0.0, math.inf):
        monkeypatch.setattr(layers, "LARGE_PASS", large)
        subject = sac_learner(actions)
        for seed in range(3):
            subject.learn(replayed_rows(actions), lr=0.0, rng=np.random.default_rng(seed))
        weights.append(subject.module.gradients.flat.tobytes())
    assert weights[0] == weights[1]


# ---- mistakes


def test_a_loss_that_is_not_finite_is_named_and_changes_nothing():
    subject, rows = sac_learner(), replayed_rows()
    rows.rewards[2] = np.inf
    before = subject.module.parameters.flat.copy()
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(ModuleError, match="the batch column 'rewards'"),
    ):
        subject.learn(rows, lr=0.0, rng=np.random.default_rng(2))
    np.testing.assert_array_equal(subject.module.parameters.flat, before)


def test_another_kind_of_network_is_refused():
    with pytest.raises(ConfigError, match=r"QModule.*SACModule"):
        sac_learner(CHOICE, module_class=QModule, model=TABULAR)


def test_masked_actions_are_neither_played_nor_valued():
    observations = spaces.Dict(
        {"action_mask": spaces.MultiBinary(3), "seen": spaces.Box(-1.0, 1.0, (3,))}
    )
    subject = sac_learner(CHOICE, observations=observations, module_class=DoubleSACModule)
    rows = replayed_rows(CHOICE, dtype=np.float64)
    mask = np.tile([1.0, 0.0, 1.0], (NUM_ROWS, 1))
    masked = dataclasses.replace(
        rows,
        obs=np.hstack([rows.obs, mask]),
        actions=np.where(rows.actions == 1, 0, rows.actions),
        next_obs=np.hstack([rows.next_obs, mask]),
    )
    expected = losses_of(subject, masked)
    # Whatever the impossible action is worth makes no difference.
    for valuing in (subject.module.critics, subject.target.critics):
        for name in ("qf", "qf_twin"):
            valuing.parameters.views[f"{name}/2/bias"][1] += 1e3
    losses = losses_of(subject, masked)
    assert losses.total == pytest.approx(expected.total, rel=1e-9)
    assert np.isfinite(subject.module.gradients.flat).all()
