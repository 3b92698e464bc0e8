"""TD3's learner: gradients, known answers of targets, delay, what is refused; DDPG's defaults."""

import dataclasses
import itertools
import re

import numpy as np
import pytest
from gymnasium import spaces

from tests.sac_updates import BOX, MODEL, NUM_ROWS, OBSERVATIONS, replayed_rows
from trainer import (
    ConfigError,
    DDPGConfig,
    ModuleError,
    RLModuleSpec,
    TD3Config,
    TD3Learner,
    UnknownSettingError,
    UnsupportedSpaceError,
)
from trainer.algorithms.td3.td3 import TD3Module, TD3Settings, smoothed
from trainer.config.algorithm_config import module_specs
from trainer.episodes import SingleAgentEpisode
from trainer.modules import QModule, SACModule
from trainer.nn import Deterministic
from trainer.replay import PrioritizedReplayBuffer
from trainer.testing.checks import gradient_check


class DoubleTD3Module(TD3Module):
    """With 64 bits, so that gradients can be checked."""

    def __init__(self, **arguments):
        super().__init__(**{**arguments, "dtype": np.float64})


def learner(*, module_class=TD3Module, model=MODEL, make=TD3Config, **settings):
    config = make().training(**{"gamma": 0.5, "train_batch_size": 16, **settings})
    return TD3Learner(
        module_spec=RLModuleSpec(module_class, OBSERVATIONS, BOX, model),
        settings=TD3Settings.from_config(config, lr=config.critic_lr),
        root_seed=3,
    )


def double(**settings):
    """A learner whose networks are not as they were drawn, and rows for it."""
    subject = learner(module_class=DoubleTD3Module, **settings)
    rng = np.random.default_rng(4)
    subject.module.parameters.flat += 0.5 * rng.standard_normal(subject.module.num_parameters)
    subject.target.module.parameters.flat += 0.4 * rng.standard_normal(
        subject.module.num_parameters
    )
    return subject, replayed_rows(dtype=np.float64)


# ---- gradients


@pytest.mark.parametrize("part", ["pi/", "qf"])
@pytest.mark.parametrize("model", [MODEL, {**MODEL, "twin_q": False}], ids=["TD3", "DDPG"])
def test_gradients_of_the_whole_losses(part, model):
    subject, rows = double(model=model)

    def value():
        if part == "pi/":
            return subject.policy_loss(rows)
        losses, _ = subject.critic_losses(rows, rng=np.random.default_rng(2))
        return sum(loss.loss for loss in losses)

    value()
    tensors = subject.module.parameters.views
    gradients = {name: g.copy() for name, g in subject.module.gradients.views.items()}
    checked = [name for name in tensors if name.startswith(part)]
    assert len(checked) >= 6
    for name in checked:

        def value_at(x, *, tensor=tensors[name]):
            before = tensor.copy()
            tensor[...] = x
            result = value()
            tensor[...] = before
            return result

        gradient_check(value_at, gradients[name], tensors[name].copy())


def test_each_loss_teaches_its_own_part_and_the_policy_follows_the_first_critic():
    subject, rows = double()
    gradients = subject.module.gradients
    gradients.flat[:] = 7.0
    subject.policy_loss(rows)
    of_policy = gradients.views["pi/0/kernel"].copy()
    assert all((view == 7.0).all() for name, view in gradients.views.items() if "qf" in name)
    subject.critic_losses(rows, rng=np.random.default_rng(2))
    np.testing.assert_array_equal(gradients.views["pi/0/kernel"], of_policy)
    subject.module.parameters.views["qf_twin/0/kernel"][:] = 0.0
    subject.policy_loss(rows)
    np.testing.assert_array_equal(gradients.views["pi/0/kernel"], of_policy)


# ---- targets


def test_noise_and_actions_stay_within_their_bounds():
    actions = np.array([[0.0, 0.0, 0.9, -0.9, 0.2]])
    noise = np.array([[0.3, -2.0, 0.4, -0.4, 0.0]])
    expected = [[0.3, -0.5, 1.0, -1.0, 0.2]]
    np.testing.assert_allclose(smoothed(actions, noise, clip=0.5), expected)


def td_errors(subject, rows):
    losses, _ = subject.critic_losses(rows, rng=np.random.default_rng(2))
    return [loss.td_errors for loss in losses]


@pytest.mark.parametrize("is_smooth", [True, False])
def test_targets_are_the_smaller_value_of_the_smoothed_action(is_smooth):
    subject, rows = double(smooth_target_policy=is_smooth, target_noise=0.4, target_noise_clip=0.3)
    target = subject.target.module
    actions = np.tanh(target.forward_acting(rows.next_obs))
    if is_smooth:
        noise = 0.4 * np.random.default_rng(2).standard_normal((NUM_ROWS, 2))
        assert (np.abs(noise) > 0.3).any(), "nothing is clipped"
        actions = np.clip(actions + np.clip(noise, -0.3, 0.3), -1.0, 1.0)
    both = [values.copy() for values in target.critics.forward(rows.next_obs, actions)]
    smaller = np.minimum(*both)
    targets = rows.rewards + rows.discounts * smaller
    q_values = [q.copy() for q in subject.module.critics.forward(rows.obs, rows.actions)]
    for errors, q in zip(td_errors(subject, rows), q_values, strict=True):
        np.testing.assert_allclose(errors, q - targets, rtol=1e-8)
        # The last row ends its episode: what comes after it counts nothing.
        assert errors[-1] == pytest.approx(q[-1] - rows.rewards[-1])


def one_step(*, terminated=False, truncated=False):
    buffer = PrioritizedReplayBuffer(4)
    episode = SingleAgentEpisode(
        "one",
        observations=[np.full(3, 0.1, np.float32), np.full(3, -0.2, np.float32)],
        actions=[np.array([0.3, -0.3], np.float32)],
        rewards=[1.5],
        terminated=terminated,
        truncated=truncated,
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


def test_a_truncated_episode_goes_on_in_the_targets_and_a_terminated_one_does_not():
    values = {}
    for end in ("terminated", "truncated"):
        subject = learner(critic_lr=0.02, actor_lr=0.0, tau=0.2, target_noise=0.0)
        played(subject, one_step(**{end: True}), 400)
        rows = np.array([[0.1, 0.1, 0.1]], np.float32), np.array([[0.3, -0.3]], np.float32)
        values[end] = float(subject.module.critics.forward(*rows)[0][0])
    assert values["terminated"] == pytest.approx(1.5, abs=0.02)
    assert abs(values["truncated"] - 1.5) > 0.05, "γ Q(s', π(s')) is in it"


# ---- delay


def weights_after(subject, count):
    """Copies of policy, critics and targets after each of some updates."""
    buffer, found = one_step(terminated=True), []
    for _ in range(count):
        played(subject, buffer, 1)
        views = subject.module.parameters.views
        target = subject.target.module.parameters.flat
        found.append((views["pi/0/kernel"].copy(), views["qf/0/kernel"].copy(), target.copy()))
    return found


@pytest.mark.parametrize("delay", [1, 3])
def test_policy_and_targets_wait_for_the_critics(delay):
    subject = learner(policy_delay=delay)
    first = weights_after(subject, 6)
    for number, (before, after) in enumerate(itertools.pairwise(first), 2):
        changed = [not np.array_equal(*pair) for pair in zip(before, after, strict=True)]
        is_due = number % delay == 0
        assert changed == [is_due, True, is_due]
    assert subject.num_target_updates == 6 // delay


def test_moments_of_the_policy_rest_while_it_waits():
    subject = learner(policy_delay=2)
    played(subject, one_step(terminated=True), 5)
    steps = [subject.parts[name].num_steps for name in ("optimizer", "policy_optimizer")]
    assert steps == [5, 2]


def test_the_targets_follow_by_the_share_tau():
    subject = learner(tau=0.25, policy_delay=1, critic_lr=0.05, actor_lr=0.05)
    before = subject.target.module.parameters.flat.copy()
    np.testing.assert_array_equal(before, subject.module.parameters.flat)
    played(subject, one_step(terminated=True), 1)
    expected = 0.75 * before + 0.25 * subject.module.parameters.flat
    np.testing.assert_allclose(subject.target.module.parameters.flat, expected, rtol=1e-5)
    assert not np.allclose(before, expected)


def test_every_part_has_its_learning_rate_and_schedules_are_of_env_steps():
    falling = {"critic_lr": [[0, 0.02], [100, 0.0]], "actor_lr": [[0, 0.04], [100, 0.0]]}
    for num_env_steps, share in ((0, 1.0), (50, 0.5), (100, 0.0)):
        subject = learner(policy_delay=1, **falling)
        before = {n: view.copy() for n, view in subject.module.parameters.views.items()}
        played(subject, one_step(terminated=True), 1, num_env_steps=num_env_steps)
        for name, rate in (("pi/2/bias", 0.04), ("qf/2/bias", 0.02)):
            change = np.abs(subject.module.parameters.views[name] - before[name]).max()
            assert change == pytest.approx(rate * share, rel=1e-2, abs=1e-9)


def test_what_a_round_has_sampled_does_not_move_its_learning_rates():
    subject = learner(policy_delay=1, actor_lr=[[0, 0.04], [100, 0.0]])
    found = subject.update_from(
        one_step(),
        num_updates=1,
        num_env_steps_sampled_lifetime=100,
        num_env_steps_sampled_before=50,
    )()
    assert found["actor_learning_rate"] == pytest.approx(0.02)


@pytest.mark.parametrize("kind", ["huber", "mse"])
def test_losses_of_critics_are_weighed_and_of_the_kind_that_was_asked_for(kind):
    subject, rows = double(td_error_loss_fn=kind)
    losses, smallest = subject.critic_losses(rows, rng=np.random.default_rng(2))
    for loss in losses:
        size = np.abs(loss.td_errors)
        each = size**2 if kind == "mse" else np.where(size <= 1.0, 0.5 * size**2, size - 0.5)
        assert loss.loss == pytest.approx(np.mean(rows.weights * each))
    assert np.ptp(rows.weights) > 0.0
    metrics = subject.learn(rows, lr=0.0, rng=np.random.default_rng(2)).metrics()
    figures = [metrics[f"qf_{name}"] for name in ("mean", "min", "max")]
    assert figures == pytest.approx([smallest.mean(), smallest.min(), smallest.max()])


def test_a_learner_goes_on_from_its_state():
    subject, other = learner(policy_delay=2), learner(policy_delay=2)
    played(subject, one_step(terminated=True), 3)
    other.set_state(subject.get_state())
    for each in (subject, other):
        played(each, one_step(truncated=True), 3)
    for name in ("rl_module", "target"):
        mine, theirs = (each.get_state()[name] for each in (subject, other))
        assert all(np.array_equal(mine[key], theirs[key]) for key in mine)
    assert not np.array_equal(subject.target.module.parameters.flat, subject.module.parameters.flat)


def test_both_optimisers_have_the_epsilon_that_was_asked_for():
    subject = learner(adam_epsilon=0.5, policy_delay=1, critic_lr=0.1, actor_lr=0.1)
    before = subject.module.parameters.flat.copy()
    subject.learn(replayed_rows(), lr=0.1, rng=np.random.default_rng(2))
    assert np.abs(subject.module.parameters.flat - before).max() < 0.09  # else near 0.1


def test_priorities_follow_the_mean_error_of_the_critics():
    subject, rows = learner(), replayed_rows()
    first, second = td_errors(subject, rows)
    update = subject.learn(rows, lr=0.0, rng=np.random.default_rng(2))
    np.testing.assert_allclose(update.td_errors, 0.5 * (np.abs(first) + np.abs(second)))
    assert update.metrics().keys() >= {"qf_loss", "qf_twin_loss", "policy_loss", "qf_mean"}


def test_gradients_of_critics_and_of_the_policy_are_clipped_apart():
    subject = learner(grad_clip=0.01, grad_clip_by="global_norm", policy_delay=1)
    subject.learn(replayed_rows(), lr=0.0, rng=np.random.default_rng(2))
    gradients = subject.module.gradients
    for first, last in (("pi/0/kernel", "pi/2/bias"), ("qf/0/kernel", "qf_twin/2/bias")):
        norm = float(np.linalg.norm(gradients.block(first, last)))
        assert norm == pytest.approx(0.01, rel=1e-4)


# ---- mistakes


def test_a_loss_that_is_not_finite_is_named_and_changes_nothing():
    subject, rows = learner(), replayed_rows()
    rows = dataclasses.replace(rows, rewards=np.full(NUM_ROWS, np.inf, np.float32))
    before = subject.module.parameters.flat.copy()
    with np.errstate(invalid="ignore"), pytest.raises(ModuleError, match="'rewards'"):
        subject.learn(rows, lr=0.1, rng=np.random.default_rng(2))
    np.testing.assert_array_equal(subject.module.parameters.flat, before)


def test_a_policy_loss_that_is_not_finite_is_named():
    subject, rows = learner(policy_delay=1, critic_lr=0.0), replayed_rows()
    subject.module.critics.d_actions = lambda _: np.full((NUM_ROWS, 2), np.nan, np.float32)
    before = subject.module.parameters.flat.copy()
    with pytest.raises(ModuleError, match="the gradient of 'pi/"):
        subject.learn(rows, lr=0.0, rng=np.random.default_rng(2))
    np.testing.assert_array_equal(subject.module.parameters.flat, before)


@pytest.mark.parametrize("other", [QModule, SACModule])
def test_another_kind_of_network_is_refused(other):
    config = TD3Config().rl_module(rl_module_spec=RLModuleSpec(module_class=other))
    with pytest.raises(ConfigError, match=f"{other.__name__}.*TD3 learns.*TD3Module"):
        config.validate()


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(-np.inf, np.inf, (2,))])
def test_other_actions_are_refused(space):
    config = TD3Config().environment(observation_space=OBSERVATIONS, action_space=space)
    with pytest.raises(UnsupportedSpaceError, match=f"Box of floats.*{re.escape(str(space))}"):
        module_specs(config).only.build()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"policy_delay": 0}, "policy_delay=0"),
        ({"target_noise": -0.1}, "target_noise=-0.1"),
        ({"normalize_actions": False}, "TD3's policy chooses in"),
        ({"lr": 1e-3}, "`actor_lr`, `critic_lr`"),
        ({"model_config": {"free_log_std": True}}, "The networks of TD3"),
    ],
)
def test_settings_are_judged(settings, expected):
    with pytest.raises(ConfigError, match=expected):
        TD3Config().update_from_dict(settings).validate()
    with pytest.raises(UnknownSettingError, match="initial_alpha"):
        TD3Config().training(initial_alpha=0.2)


def test_ddpg_is_td3_with_one_critic_exact_actions_and_no_delay():
    config = DDPGConfig()
    assert (config.twin_q, config.smooth_target_policy, config.policy_delay) == (False, False, 1)
    assert config.get_exploration_config()["type"] == "OrnsteinUhlenbeckNoise"
    noise = TD3Config().get_exploration_config()
    assert (noise["random_timesteps"], noise["scale_schedule"]) == (10_000, 1.0)
    for each in (config, TD3Config()):
        each.validate()
        assert each.get_evaluation_config_object().explore is False


def test_a_policy_that_is_a_function_has_no_likelihoods():
    distribution, inputs = Deterministic((2, 1)), np.array([[0.5, -0.5]])
    actions = distribution.sample(inputs, np.ones((1, 2)))
    np.testing.assert_array_equal(actions, np.tanh(inputs).reshape(1, 2, 1))
    terms = distribution.evaluate(inputs, actions, reference=inputs)
    assert [terms.logp, terms.entropy, terms.kl] == [0.0, 0.0, 0.0]
    assert terms.backward(d_logp=np.ones(1)).tolist() == [[0.0, 0.0]]
