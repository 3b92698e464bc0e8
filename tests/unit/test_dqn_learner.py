"""DQN's learner: the whole loss through the network, fixed points, targets, batches, mistakes."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from trainer.algorithms.dqn import dqn
from trainer.algorithms.dqn.dqn import (
    DQNConfig,
    DQNLearner,
    DQNSettings,
    distributional_loss,
    projected_distribution,
    softmax,
    td_loss,
    td_targets,
)
from trainer.episodes import SingleAgentEpisode
from trainer.errors import EpisodeError, ModuleError
from trainer.learners import ReplayBatch
from trainer.modules import QModule, RLModule, RLModuleSpec
from trainer.replay import PrioritizedReplayBuffer, ReplayBuffer
from trainer.testing.checks import gradient_check

ACTIONS = np.array([0, 2, 1, 2])
WEIGHTS = np.array([1.0, 0.25, 0.5, 0.0])


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def test_targets_are_rewards_and_discounted_values():
    targets = td_targets(np.array([1.0, 1.0]), np.array([0.5, 0.0]), np.array([4.0, 4.0]))
    assert targets.tolist() == [3.0, 1.0]


@pytest.mark.parametrize(
    ("kind", "losses", "slopes"),
    [
        # Errors of 0.5, 3 and -2.
        ("huber", [0.125, 2.5, 1.5], [0.5, 1.0, -1.0]),
        ("mse", [0.25, 9.0, 4.0], [1.0, 6.0, -4.0]),
    ],
)
def test_the_loss_of_single_errors_is_known(kind, losses, slopes):
    q_values = np.array([[0.5, 9.0], [9.0, 3.0], [-2.0, 9.0]])
    actions, targets = np.array([0, 1, 0]), np.zeros(3)
    for row in range(3):
        weights = np.eye(3)[row]
        loss = td_loss(q_values, actions, targets, weights, kind=kind)
        assert loss.total_loss == pytest.approx(losses[row] / 3)
        expected = np.zeros((3, 2))
        expected[row, actions[row]] = slopes[row] / 3
        np.testing.assert_allclose(loss.d_outputs, expected)
    assert loss.td_errors.tolist() == loss.q_selected.tolist() == [0.5, 3.0, -2.0]


@pytest.mark.parametrize("kind", ["huber", "mse"])
def test_the_gradient_of_values_agrees_with_differences(kind):
    q_values, targets = 3.0 * numbers(4, 3), numbers(4, seed=1)

    def total(q):
        return td_loss(q, ACTIONS, targets, WEIGHTS, kind=kind).total_loss

    loss = td_loss(q_values, ACTIONS, targets, WEIGHTS, kind=kind)
    assert np.abs(loss.td_errors[:3]).min() < 1 < np.abs(loss.td_errors[:3]).max()
    gradient_check(total, loss.d_outputs, q_values)
    with pytest.raises(AssertionError, match="central differences give"):
        gradient_check(total, 1.001 * loss.d_outputs, q_values)


def test_the_gradient_of_distributions_agrees_with_differences():
    atoms = np.linspace(-1.0, 1.0, 5)
    logits, target = numbers(4, 3, 5), softmax(numbers(4, 5, seed=1))

    def total(flat):
        return distributional_loss(flat, ACTIONS, target, WEIGHTS, atoms=atoms).total_loss

    loss = distributional_loss(logits, ACTIONS, target, WEIGHTS, atoms=atoms)
    gradient_check(total, loss.d_outputs.reshape(logits.shape), logits)


def test_the_cross_entropy_is_that_of_the_action_taken_and_weighted():
    logits = np.log(np.array([[[0.5, 0.5], [0.25, 0.75]]]))
    target, atoms = np.array([[0.0, 1.0]]), np.array([0.0, 4.0])
    loss = distributional_loss(logits, np.array([1]), target, np.array([0.5]), atoms=atoms)
    assert loss.total_loss == pytest.approx(0.5 * -np.log(0.75))
    assert loss.td_errors == pytest.approx(-np.log(0.75))
    assert loss.q_selected == pytest.approx(3.0)
    np.testing.assert_allclose(loss.d_outputs, [[0.0, 0.0, 0.125, -0.125]])


def test_a_shift_of_the_logits_changes_no_distribution():
    logits = numbers(2, 3)
    np.testing.assert_allclose(softmax(logits + 1e4), softmax(logits), rtol=1e-9)
    assert np.isfinite(softmax(np.array([[-1e30, 0.0, 1e30]]))).all()


ATOMS = np.array([0.0, 1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("reward", "discount", "probs", "expected"),
    [
        # Between two atoms, shared out by distance.
        (0.25, 1.0, [0, 1, 0, 0], [0, 0.75, 0.25, 0]),
        # On an atom, and on the last one.
        (1.0, 1.0, [0, 1, 0, 0], [0, 0, 1, 0]),
        (0.0, 1.0, [0, 0, 0, 1], [0, 0, 0, 1]),
        # Clipped at both ends.
        (-9.0, 1.0, [0.5, 0.5, 0, 0], [1, 0, 0, 0]),
        (9.0, 1.0, [0.5, 0.5, 0, 0], [0, 0, 0, 1]),
        # After the end of an episode only the reward counts.
        (1.5, 0.0, [0.1, 0.2, 0.3, 0.4], [0, 0.5, 0.5, 0]),
        # Discounted: 0.5 z is 0, 0.5, 1, 1.5.
        (0.0, 0.5, [0.25] * 4, [0.375, 0.5, 0.125, 0]),
    ],
)
def test_the_projection_onto_atoms_by_hand(reward, discount, probs, expected):
    projected = projected_distribution(
        np.array([reward]), np.array([discount]), np.array([probs], float), ATOMS
    )
    np.testing.assert_allclose(projected, [expected])


_FINITE = st.floats(-50.0, 50.0)


@given(
    reward=_FINITE,
    discount=st.floats(0.0, 1.0),
    weights=st.lists(st.floats(0.01, 1.0), min_size=7, max_size=7),
    low=st.floats(-20.0, 0.0),
    width=st.floats(0.1, 40.0),
)
def test_the_projection_keeps_mass_and_inside_the_range_the_mean(
    reward, discount, weights, low, width
):
    atoms = np.linspace(low, low + width, 7)
    probs = np.array([weights]) / sum(weights)
    projected = projected_distribution(np.array([reward]), np.array([discount]), probs, atoms)
    assert (projected >= -1e-12).all()
    assert projected.sum() == pytest.approx(1.0)
    clipped = np.clip(reward + discount * atoms, atoms[0], atoms[-1])
    assert float(projected[0] @ atoms) == pytest.approx(float(probs[0] @ clipped), abs=1e-9)


def test_float32_stays_float32():
    q_values = numbers(4, 3).astype(np.float32)
    ones = np.ones(4, np.float32)
    loss = td_loss(q_values, ACTIONS, td_targets(ones, ones, ones), ones, kind="huber")
    assert loss.td_errors.dtype == loss.d_outputs.dtype == np.float32
    atoms, probs = ATOMS.astype(np.float32), np.full((4, 4), 0.25, np.float32)
    projected = projected_distribution(ones, ones, probs, atoms)
    logits = numbers(4, 3, 4).astype(np.float32)
    atom_loss = distributional_loss(logits, ACTIONS, projected, ones, atoms=atoms)
    assert atom_loss.d_outputs.dtype == projected.dtype == np.float32


# ---- the learner


GAMMA = 0.5
TABULAR = {"fcnet_hiddens": [], "dueling": False}
"""One weight per state and action, as states are one-hot."""


def learner(model=None, *, observations=None, actions=2, module_class=QModule, **settings):
    chosen = {"gamma": GAMMA, "train_batch_size": 16, "target_network_update_freq": 0, **settings}
    return DQNLearner(
        module_spec=RLModuleSpec(
            module_class=module_class,
            observation_space=observations or spaces.Discrete(2),
            action_space=spaces.Discrete(actions),
            model_config=TABULAR if model is None else model,
        ),
        settings=DQNSettings.from_config(DQNConfig().training(**chosen)),
        root_seed=3,
    )


class Table(RLModule):
    """A network of a user's own: Q as a table, which knows nothing of DQN."""

    def parameter_shapes(self):
        return {"table": (self.obs_size, self.action_distribution.num_inputs)}

    def initialize(self, rng):
        self.parameters.views["table"][:] = rng.standard_normal((2, 2))

    def forward_acting(self, obs):
        return self.parameters.views["table"][obs.argmax(axis=1)]

    def forward_train(self, batch):
        self._rows = batch["obs"].argmax(axis=1)
        return {
            "action_dist_inputs": self.parameters.views["table"][self._rows],
            "vf_preds": np.zeros(len(self._rows), np.float32),
        }

    def backward(self, *, d_action_dist_inputs, d_vf_preds):
        assert not d_vf_preds.any()
        self.gradients.flat[:] = 0.0
        np.add.at(self.gradients.views["table"], self._rows, d_action_dist_inputs)


def chain(buffer=None, *, reward=1.0):
    """Every step of a chain of two states: action 0 stays, 1 moves on; the end pays.

    So Q(1, move) = 1, Q(1, stay) = γ, Q(0, move) = γ and Q(0, stay) = γ².
    """
    buffer = ReplayBuffer(8) if buffer is None else buffer
    episode = SingleAgentEpisode(
        "chain",
        observations=[0, 0, 1, 1, 1],
        actions=[0, 1, 0, 1],
        rewards=[0.0, 0.0, 0.0, reward],
        terminated=True,
        len_lookback_buffer=0,
    )
    buffer.add(episode.to_numpy())
    return buffer


KNOWN = np.array([[GAMMA**2, GAMMA], [GAMMA, 1.0]])


def update(subject, buffer, count=1, **more):
    return updated(subject, buffer, count, **more)()


def updated(subject, buffer, count=1, **more):
    """What makes the metrics."""
    steps = more.pop("at", 0)
    return subject.update_from(
        buffer,
        num_updates=count,
        num_env_steps_sampled_lifetime=steps,
        num_env_steps_sampled_before=steps,
        **more,
    )


def q_values(subject):
    return subject.module.forward_acting(np.eye(2, dtype=np.float32))


def weights_of(subject):
    return subject.module.parameters.flat.tobytes()


ATOMIC = {**TABULAR, "num_atoms": 9, "v_min": 0.0, "v_max": 1.0}


@pytest.mark.parametrize(
    ("settings", "make_buffer"),
    [
        ({}, ReplayBuffer),
        ({}, PrioritizedReplayBuffer),
        ({"double_q": False}, ReplayBuffer),
        ({"td_error_loss_fn": "mse"}, ReplayBuffer),
        ({"target_network_update_freq": 7, "tau": 0.5}, ReplayBuffer),
        ({"model": ATOMIC, "lr": [[0, 0.2], [1000, 0.02]]}, ReplayBuffer),
        ({"model": {}, "module_class": Table}, ReplayBuffer),
    ],
)
def test_repeated_updates_reach_the_known_values(settings, make_buffer):
    subject = learner(**{"lr": [[0, 0.05], [1000, 0.002]], **settings})
    buffer = chain(make_buffer(8))
    for round_ in range(100):
        update(subject, buffer, 8, at=10 * round_)
    np.testing.assert_allclose(q_values(subject), KNOWN, atol=0.02)


def test_schedules_are_read_where_the_round_began():
    metrics = update(learner(lr=[[0, 0.5], [1000, 0.1]]), chain(), at=500)
    assert metrics["default_optimizer_learning_rate"] == pytest.approx(0.3)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda batch: batch["discounts"].fill(GAMMA),  # as if no episode ever ended
        lambda batch: batch["rewards"].fill(0.0),
    ],
)
def test_negative_control_a_wrong_target_gives_other_values(spoil):
    subject, buffer = learner(lr=0.02), chain()
    update(subject, buffer, 800, on_batch=lambda module, batch, result: spoil(batch))
    assert np.abs(q_values(subject) - KNOWN).max() > 0.2


def batch_of(**columns):
    """One transition from state 0 to state 1, which the target network is asked about."""
    given = {
        "obs": np.eye(2, dtype=np.float32)[:1],
        "actions": np.array([0]),
        "rewards": np.array([1.0], np.float32),
        "next_obs": np.eye(2, dtype=np.float32)[1:],
        "discounts": np.array([0.5], np.float32),
        "weights": np.ones(1, np.float32),
    }
    return ReplayBatch(**{**given, **columns})


@pytest.mark.parametrize(("double_q", "next_value"), [(True, 3.0), (False, 7.0)])
def test_double_learning_values_its_own_choice_with_the_target_network(double_q, next_value):
    subject = learner(double_q=double_q, lr=0.0)
    for module, values in (
        (subject.module, [[0, 0], [5, 4]]),  # prefers action 0 in state 1
        (subject.target.module, [[0, 0], [3, 7]]),
    ):
        module.parameters.views["af/0/kernel"][:] = values
        module.parameters.views["af/0/bias"][:] = 0.0
    update = subject.learn(batch_of(), lr=0.0, rng=np.random.default_rng(0))
    # Q(s, a) - (R + γ' Q⁻(s', a*)), and Q(s, a) is 0.
    assert update.td_errors.tolist() == [-(1.0 + 0.5 * next_value)]


@pytest.mark.parametrize("double_q", [True, False])
def test_double_learning_of_distributions_does_the_same(double_q):
    model = {**TABULAR, "num_atoms": 2, "v_min": 0.0, "v_max": 1.0}
    subject = learner(model, double_q=double_q)
    large = 50.0  # logits of (nearly) certain returns
    for module, values in (
        (subject.module, [[0, 0, 0, 0], [0, large, large, 0]]),  # action 0 pays 1, action 1 0
        (subject.target.module, [[0, 0, 0, 0], [large, 0, 0, large]]),  # the other way round
    ):
        module.parameters.views["af/0/kernel"][:] = values
        module.parameters.views["af/0/bias"][:] = 0.0
    zero = np.zeros(1, np.float32)
    batch = batch_of(rewards=zero, discounts=np.ones(1, np.float32))
    subject.learn(batch, lr=0.0, rng=np.random.default_rng(0))
    # The gradient of the logits is (p - target) for the action taken: p is (1/2, 1/2), and the
    # target is certain to be 0 if the learning network chose action 0, and 1 otherwise.
    gradient = subject.module.gradients.views["af/0/bias"]
    sign = -1.0 if double_q else 1.0
    np.testing.assert_allclose(gradient, [0.5 * sign, -0.5 * sign, 0.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("model", [TABULAR, {**TABULAR, "num_atoms": 3, "v_min": -1, "v_max": 1}])
def test_the_next_action_is_a_possible_one(model):
    # The masked action would be the best: by its value, or because equal logits mean 0.
    observations = spaces.Dict(
        {"action_mask": spaces.MultiBinary(2), "observations": spaces.Discrete(2)}
    )
    subject = learner(model, observations=observations, double_q=False)
    for module in (subject.module, subject.target.module):
        kernel = module.parameters.views["af/0/kernel"].reshape(2, 2, -1)
        module.parameters.views["af/0/bias"][:] = 0.0
        kernel[:] = 0.0
        kernel[1, 0] = -9.0 if kernel.shape[2] == 1 else [9.0, 0.0, 0.0]  # state 1: bad
        kernel[1, 1] = 9.0 if kernel.shape[2] == 1 else [0.0, 0.0, 9.0]  # masked: good
    rows = {"obs": [[1, 0, 1, 1]], "next_obs": [[0, 1, 1, 0]]}
    columns = {name: np.array(row, np.float32) for name, row in rows.items()}
    columns["rewards"] = np.zeros(1, np.float32)
    columns["discounts"] = np.ones(1, np.float32)
    update = subject.learn(batch_of(**columns), lr=0.0, rng=np.random.default_rng(0))
    if "num_atoms" not in model:
        assert update.td_errors.tolist() == [9.0]
    else:
        gradient = subject.module.gradients.views["af/0/bias"][:3]
        # Mass is to move to the lowest atom: its logit has the negative gradient.
        assert gradient[0] < -0.5 < 0.3 < gradient[2]


def test_n_steps_are_shortened_at_the_end_of_the_episode():
    subject, seen = learner(n_step=3, train_batch_size=64), {}

    def note(module, batch, result):
        for row in range(batch.count):
            state = int(batch["obs"][row].argmax()), int(batch["actions"][row])
            seen[state] = float(batch["rewards"][row]), float(batch["discounts"][row])

    update(subject, chain(), on_batch=note)
    # Three steps from the first, which are not at the end yet; the others reach it.
    assert seen == {
        (0, 0): (0.0, GAMMA**3),
        (0, 1): (GAMMA**2, 0.0),
        (1, 0): (GAMMA, 0.0),
        (1, 1): (1.0, 0.0),
    }


def test_the_target_network_follows_by_frequency_and_tau():
    subject, buffer = learner(target_network_update_freq=10, tau=0.25, lr=0.1), chain()
    first = subject.target.module.parameters.flat.copy()
    update(subject, buffer, 3, at=9)
    assert subject.target.module.parameters.flat.tobytes() == first.tobytes()
    metrics = update(subject, buffer, 1, at=10)
    now = subject.module.parameters.flat
    expected = 0.75 * first + 0.25 * now
    np.testing.assert_allclose(subject.target.module.parameters.flat, expected, rtol=1e-6)
    assert metrics["num_target_updates"] == 1
    assert metrics["last_target_update_ts"] == 10
    assert update(subject, buffer, 5, at=19)["num_target_updates"] == 1
    assert update(subject, buffer, 5, at=20)["num_target_updates"] == 2


def test_a_frequency_of_0_follows_after_every_update():
    subject = learner(target_network_update_freq=0)
    assert update(subject, chain(), 5)["num_target_updates"] == 5


def test_given_weights_reach_the_target_network_too():
    subject, other = learner(lr=0.1), learner()
    update(subject, chain(), 3)
    other.set_weights(subject.get_weights())
    assert weights_of(other) == weights_of(subject)
    assert other.target.module.parameters.flat.tobytes() == weights_of(subject)


def test_priorities_become_the_errors():
    buffer = PrioritizedReplayBuffer(8, alpha=1.0)
    chain(buffer)
    subject = learner(train_batch_size=64, lr=0.0)
    before = q_values(subject)
    update(subject, buffer)
    best = before.max(axis=1)
    targets = [GAMMA * best[0], GAMMA * best[1], GAMMA * best[1], 1.0]
    chosen = [before[0, 0], before[0, 1], before[1, 0], before[1, 1]]
    np.testing.assert_allclose(
        buffer.get_state()["priorities"], np.abs(np.subtract(chosen, targets)), atol=1e-5
    )


def test_same_seed_same_bytes_and_every_update_draws_anew():
    subject, other = learner(lr=0.1), learner(lr=0.1)
    buffer = chain()
    together, one_by_one = update(subject, buffer, 6), [update(other, buffer) for _ in range(6)]
    assert weights_of(subject) == weights_of(other)
    assert together["total_loss"] == one_by_one[-1]["total_loss"]
    drawn = []
    update(subject, buffer, 4, on_batch=lambda module, b, r: drawn.append(b["obs"].tobytes()))
    assert len(set(drawn)) == 4


# ---- what listeners see and change


def test_a_listener_sees_every_batch_and_reports_of_the_last():
    subject, buffer, seen = learner(), chain(), []

    def note(module, batch, result):
        assert module is subject.module
        assert set(batch) == {"obs", "actions", "rewards", "new_obs", "discounts", "weights"}
        seen.append(batch.count)
        result["number"] = len(seen)

    metrics = update(subject, buffer, 3, on_batch=note)
    assert seen == [16, 16, 16]
    assert metrics["custom_metrics"] == {"number": 3}
    assert "custom_metrics" not in update(subject, buffer)


def test_who_only_looks_changes_no_byte():
    subject, other, buffer = learner(lr=0.1), learner(lr=0.1), chain()
    metrics = update(subject, buffer, 3)
    assert update(other, buffer, 3, on_batch=lambda module, batch, result: None) == metrics
    assert weights_of(subject) == weights_of(other)


def test_weights_of_0_leave_nothing_to_learn():
    subject = learner(lr=0.1)
    before = weights_of(subject)

    def ignore_all(module, batch, result):
        batch["weights"] = np.zeros(batch.count)

    metrics = update(subject, chain(), on_batch=ignore_all)
    assert metrics["total_loss"] == 0.0
    assert weights_of(subject) == before


def test_rows_of_replay_cannot_be_left_out():
    def first_two(module, batch, result):
        for name in list(batch):
            batch[name] = batch[name][:2]

    with pytest.raises(EpisodeError, match=r"2 rows now instead of 16.*weight 0"):
        update(learner(), chain(), on_batch=first_two)


# ---- mistakes


@pytest.mark.parametrize("model", [TABULAR, {**TABULAR, "num_atoms": 3}])
def test_a_reward_that_is_no_number_is_named(model):
    subject = learner(model)
    before = weights_of(subject)
    with pytest.raises(ModuleError, match=r"the batch column 'rewards'.*step was not made"):
        update(subject, chain(reward=float("nan")), 20)
    assert np.isfinite(subject.module.parameters.flat).all()
    assert weights_of(subject) == before or subject.num_updates > 0


def test_metrics_take_time_only_when_they_are_asked_for(monkeypatch):
    computed = []
    make = dqn._metrics

    def counted(loss, selected, norm):
        computed.append(norm)
        return make(loss, selected, norm)

    monkeypatch.setattr(dqn, "_metrics", counted)
    subject, buffer = learner(lr=0.1), chain()
    updated(subject, buffer, 8)
    computed.clear()  # the first update compares NumPy's metrics with those of the kernels
    make_metrics = updated(subject, buffer, 8)
    assert computed == []
    metrics = make_metrics()
    assert len(computed) == 1
    assert metrics["num_module_steps_trained"] == 8 * 16
    assert {"td_error_mean", "qf_mean", "default_optimizer_learning_rate"} <= metrics.keys()
