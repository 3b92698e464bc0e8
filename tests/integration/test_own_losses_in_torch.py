"""Losses of users in Torch: `PPOTorchLearner`, π for autograd, exactness."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from gymnasium import spaces

from checkpoints import encode
from tests.integration.test_torch_exactness import fork_server_with_torch as fork_server_with_torch
from tests.torch_cells import config, outcome, restored, spread
from tests.torch_modules import DenseModule
from trainer import (
    Algorithm,
    ConfigError,
    ModuleError,
    PPOConfig,
    PPOTorchLearner,
    RLModuleSpec,
    TorchRLModule,
)
from trainer.learners.torch_optimizers import TorchOptimizer
from trainer.modules import ActorCriticModule, distribution_for
from trainer.modules.torch_distributions import TorchCategorical, TorchPolicies
from trainer.testing.envs import TargetEnv

SPACES = {
    "discrete": spaces.Discrete(4),
    "box": spaces.Box(-1.0, 1.0, (2,)),
    "multi discrete": spaces.MultiDiscrete([3, 2]),
    "multi binary": spaces.MultiBinary(3),
    "nested": spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1.0, 1.0, (2,))),
}


class Rewritten(PPOTorchLearner):
    """PPO's loss as a user would write it, from π's parts and the network."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.num_losses = 0

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        self.num_losses += 1
        policies = self.module[module_id].get_train_action_dist_cls()
        acting = self.module[module_id].get_inference_action_dist_cls()
        exploring = self.module[module_id].get_exploration_action_dist_cls()
        assert type(acting) is type(exploring) is type(policies)
        now = policies.from_logits(fwd_out["action_dist_inputs"])
        before = policies.from_logits(batch["action_dist_inputs"])
        ratio = torch.exp(now.logp(batch["actions"]) - batch["action_logp"])
        clip, advantages = config.clip_param, batch["advantages"]
        surrogate = torch.min(
            advantages * ratio, advantages * torch.clamp(ratio, 1 - clip, 1 + clip)
        )
        errors = (fwd_out["vf_preds"] - batch["value_targets"]) ** 2
        values = torch.clamp(errors, 0, config.vf_clip_param)
        kl = before.kl(now).mean()
        self.note_terms(mean_kl_loss=kl)
        entropy = config.entropy_coeff * now.entropy()
        return (config.vf_loss_coeff * values - surrogate - entropy).mean() + self.kl_coeff * kl


class Decaying(PPOTorchLearner):
    """Draws all weights towards zero."""

    def compute_loss_for_module(self, **given):
        sizes = torch.stack([each.square().mean() for each in self.get_parameters()])
        self.metrics.log_value("weight_size", sizes.mean().item(), window=1)
        decay = given["config"].learner_config_dict["decay"]
        return super().compute_loss_for_module(**given) + decay * sizes.mean()


def dense(env="CartPole-v1", **settings):
    made = (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .training(train_batch_size=100, minibatch_size=50, num_epochs=3, lr=1e-3)
        .training(entropy_coeff=0.01, grad_clip=0.5)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=DenseModule))
        .debugging(seed=3)
    )
    return made.update_from_dict(settings)


class Masked(TorchRLModule):
    """Reads the image of a `TargetEnv` with masks."""

    def setup(self):
        self.pi = torch.nn.Linear(50, self.action_distribution.num_inputs)
        self.vf = torch.nn.Linear(50, 1)

    def _forward(self, batch, **kwargs):
        features = batch["obs"]["observations"].flatten(1) / 255.0
        values = self.vf(features).squeeze(-1)
        return {"action_dist_inputs": self.pi(features), "vf_preds": values}


def masked():
    made = dense(TargetEnv, env_config={"size": 5, "mask": True})
    return made.rl_module(rl_module_spec=RLModuleSpec(module_class=Masked))


# ---- the same loss


@pytest.mark.parametrize("cls", [PPOTorchLearner, Rewritten])
@pytest.mark.parametrize(
    ("make", "num_iterations"),
    [
        (dense, 5),
        (lambda: dense("Pendulum-v1"), 5),
        (lambda: dense("Pendulum-v1", standardize_advantages="minibatch", vf_clip_param=None), 5),
        (lambda: dense(use_kl_loss=False, entropy_coeff=0.0), 5),
        (lambda: config("dense"), 1),  # normalises batches of 29: what differs grows
        (lambda: config("memory"), 5),
        (masked, 5),
    ],
    ids=["discrete", "box", "minibatch", "no kl", "noisy", "memory", "masked"],
)
def test_the_same_loss_in_torch_is_the_same_to_the_last_digits(cls, make, num_iterations):
    results = []
    for one in (None, cls):
        with make().training(learner_class=one).build_algo() as algo:
            results.append([algo.train()["learners/default_policy"] for _ in range(num_iterations)])
    for mine, theirs in zip(*results, strict=True):
        for name in ("total_loss", "mean_kl_loss", "gradients_default_optimizer_global_norm"):
            assert theirs[name] == pytest.approx(mine[name], rel=1e-5, abs=1e-7), name
        if cls is PPOTorchLearner:
            assert theirs.keys() == mine.keys()


def test_another_loss_is_not_the_same():
    results = []
    for decay in (0.0, 30.0):
        made = dense(learner_class=Decaying, learner_config_dict={"decay": decay}, lr=1e-2)
        with made.build_algo() as algo:
            for _ in range(10):
                result = algo.train()
            results.append(result["learners/default_policy/weight_size"])
    assert results[1] < 0.5 * results[0]


@pytest.mark.parametrize("name", SPACES)
def test_gradients_go_through_every_part_of_a_policy(name):
    distribution, rng = distribution_for(SPACES[name]), np.random.default_rng(0)
    policies, count = TorchPolicies(distribution), 5
    numbers = [0.3 * rng.normal(size=(count, distribution.num_inputs)) for _ in range(2)]
    inputs, others = torch.tensor(numbers[0], requires_grad=True), torch.tensor(numbers[1])
    actions = distribution.deterministic(numbers[1])
    weights = torch.tensor(rng.normal(size=count))

    def parts(given):
        now, before = policies.from_logits(given), policies.from_logits(others)
        return now.logp(actions) @ weights, now.entropy() @ weights, before.kl(now) @ weights

    assert torch.autograd.gradcheck(parts, (inputs,))
    logp, entropy, kl = (part.detach().numpy() for part in parts(inputs))
    sums = weights.numpy()
    assert logp == pytest.approx(distribution.logp(numbers[0], actions) @ sums)
    assert entropy == pytest.approx(distribution.entropy(numbers[0]) @ sums)
    assert kl == pytest.approx(distribution.kl(numbers[1], numbers[0]) @ sums)


# ---- exactness


@pytest.mark.parametrize("name", ["dense", "memory"])
def test_a_restored_run_gives_the_same_bytes(name, tmp_path):
    with config(name).training(learner_class=Rewritten).build_algo() as algo:
        outcome(algo, 2)
        path = algo.save_to_path(str(tmp_path / "saved"))
        expected = outcome(algo, 2)
    with restored(path, name) as algo:
        assert isinstance(algo.learner, Rewritten)
        assert algo.learner.num_losses > 0
        assert outcome(algo, 2) == expected


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.usefixtures("fork_server_with_torch")
def test_killed_and_spread_runs_give_the_same_bytes(tmp_path):
    made = config("dense", 2).training(learner_class=Rewritten)
    alone = config("dense").training(learner_class=Rewritten)
    assert spread(made, tmp_path) == spread(alone)
    assert not list(tmp_path.iterdir()), "a runner was not killed"


@pytest.mark.parametrize("name", ["rewritten", "two optimizers", "decaying"])
def test_where_the_loss_is_computed_changes_nothing(name):
    cls = {"rewritten": Rewritten, "two optimizers": TwoOptimizers, "decaying": Decaying}[name]
    outcomes = []
    for device in ("cpu", "cpu:0"):  # the second one is a copy of the network, as on a GPU
        spec = RLModuleSpec(module_class=DenseModule, model_config={"device": device})
        made = dense(learner_class=cls, learner_config_dict={"decay": 0.1})
        with made.rl_module(rl_module_spec=spec).build_algo() as algo:
            algo.train()
            algo.train()
            outcomes.append(encode(algo.get_state()["learner"]))
    assert outcomes[0] == outcomes[1]


# ---- what is refused


def returning(make_loss):
    class Returning(PPOTorchLearner):
        def compute_loss_for_module(self, **given):
            return make_loss(super().compute_loss_for_module(**given))

    return Returning


@pytest.mark.parametrize(
    ("make_loss", "found"),
    [
        (lambda loss: loss.detach(), "which no parameter has a part in"),
        (lambda loss: loss.repeat(3), r"a tensor of the shape \[3\]"),
        (lambda loss: loss.item(), "a float"),
    ],
)
def test_what_is_no_loss_is_refused_and_changes_nothing(make_loss, found):
    with dense(learner_class=returning(make_loss)).build_algo() as algo:
        before = algo.get_weights()["default_policy"]
        with pytest.raises(ModuleError, match=found):
            algo.train()
        after = algo.get_weights()["default_policy"]
        assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("given", ["batch", "fwd_out"])
def test_a_column_that_is_not_there_is_answered_with_those_that_are(given):
    class Missing(PPOTorchLearner):
        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            return {"batch": batch, "fwd_out": fwd_out}[given]["returns"]

    told = "'returns' is none of .*'action_dist_inputs'"
    with dense(learner_class=Missing).build_algo() as algo, pytest.raises(KeyError, match=told):
        algo.train()


def test_a_loss_that_is_not_finite_is_an_error():
    made = dense(learner_class=returning(lambda loss: loss * torch.tensor(torch.inf)))
    with made.build_algo() as algo, pytest.raises(ModuleError, match="not finite"):
        algo.train()


def test_a_network_in_numpy_is_refused():
    made = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    made.rl_module(rl_module_spec=RLModuleSpec(module_class=ActorCriticModule))
    with pytest.raises(ConfigError, match="derived from TorchRLModule"):
        made.training(learner_class=PPOTorchLearner).build_algo()


def test_a_module_is_no_endless_list():
    with dense().build_algo() as algo:
        module = algo.learner.module
        assert module["default_policy"] is module
        with pytest.raises(TypeError, match="not iterable"):
            list(module)


# ---- optimisers of one's own


class TwoOptimizers(Rewritten):
    """Policy and values learn at rates of their own, the policy's by a schedule."""

    def configure_optimizers_for_module(self, module_id, config=None):
        named = dict(self.module[module_id].named_parameters())
        for part, rate in (("pi", [[0, 1e-3], [400, 1e-4]]), ("vf", 2e-3)):
            params = [tensor for name, tensor in named.items() if name.startswith(part)]
            self.register_optimizer(
                module_id=module_id,
                optimizer_name=part,
                optimizer=torch.optim.Adam(params),
                params=params,
                lr_or_lr_schedule=rate,
            )


class Momentum(PPOTorchLearner):
    def configure_optimizers_for_module(self, module_id, config=None):
        optimizer = torch.optim.SGD(self.get_parameters(), lr=0.01, momentum=0.9)
        self.register_optimizer(optimizer=optimizer)


class SameAdam(PPOTorchLearner):
    """Adam as the config's own, of Torch."""

    def configure_optimizers_for_module(self, module_id, config=None):
        optimizer = torch.optim.Adam(self.get_parameters(), eps=config.adam_epsilon)
        self.register_optimizer(optimizer=optimizer, lr_or_lr_schedule=config.lr)


def test_adam_of_torch_learns_what_ours_does():
    weights = []
    for cls in (PPOTorchLearner, SameAdam):
        with dense(learner_class=cls).build_algo() as algo:
            for _ in range(3):
                algo.train()
            weights.append(algo.get_weights()["default_policy"])
    for name, mine in weights[0].items():
        assert np.allclose(weights[1][name], mine, rtol=1e-3, atol=1e-5), name


@pytest.mark.parametrize("cls", [TwoOptimizers, Momentum])
def test_a_restored_run_goes_on_with_its_optimizers(cls, tmp_path):
    with dense(learner_class=cls).build_algo() as algo:
        first = algo.train()["learners/default_policy"]
        path = algo.save_to_path(str(tmp_path / "saved"))
        expected = outcome(algo, 2)
        newest = algo.train()["learners/default_policy"]
    if cls is TwoOptimizers:  # read at 0 and at 300 env steps
        assert (first["pi_learning_rate"], newest["pi_learning_rate"]) == pytest.approx(
            (1e-3, 3.25e-4)
        )
        assert newest["vf_learning_rate"] == pytest.approx(2e-3)
    with Algorithm.from_checkpoint(path) as algo:
        assert outcome(algo, 2) == expected


def test_a_forgotten_optimizer_changes_the_run(tmp_path, monkeypatch):
    with dense(learner_class=Momentum).build_algo() as algo:
        algo.train()
        path = algo.save_to_path(str(tmp_path / "saved"))
        expected = outcome(algo, 1)
    monkeypatch.setattr(TorchOptimizer, "set_state", lambda self, state: None)
    with Algorithm.from_checkpoint(path) as algo:
        assert outcome(algo, 1) != expected


def test_an_update_that_fails_takes_back_what_optimizers_remember(monkeypatch):
    with dense(learner_class=TwoOptimizers).build_algo() as algo:
        before = encode(algo.get_state()["learner"])
        steps = iter([False, True])
        step = TorchOptimizer.step

        def failing(self, num_env_steps):
            step(self, num_env_steps)
            if next(steps):
                raise InterruptedError("between two optimisers")

        with monkeypatch.context() as patch:
            patch.setattr(TorchOptimizer, "step", failing)
            with pytest.raises(InterruptedError):
                algo.train()
        assert encode(algo.get_state()["learner"]) == before
        algo.train()


FORGED = {
    "no groups": lambda state: state.update(param_groups=None),
    "a group less": lambda state: state["param_groups"].pop(),
    "an option less": lambda state: state["param_groups"][0].pop("lr"),
    "an option more": lambda state: state["param_groups"][0].update(more=1),
    "another kind": lambda state: state["param_groups"][0].update(lr="fast"),
    "not finite": lambda state: state["param_groups"][0].update(eps=float("nan")),
    "a shorter tuple": lambda state: state["param_groups"][0].update(betas=[0.9]),
    "another switch": lambda state: state["param_groups"][0].update(amsgrad=True),
    "an array as option": lambda state: state["param_groups"][0].update(weight_decay=np.zeros(7)),
    "a dict as option": lambda state: state["param_groups"][0].update(fused={"a": 1}),
    "another shape": lambda state: state["state"]["0"].update(exp_avg=np.zeros(3, np.float32)),
    "another dtype": lambda state: state["state"]["0"].update(exp_avg=np.array(["a"])),
    "none": lambda state: state["state"]["0"].update(exp_avg=None),
    "a step per number": lambda state: state["state"]["0"].update(
        step=np.zeros_like(state["state"]["0"]["exp_avg"])
    ),
    "a memory less": lambda state: state["state"]["0"].pop("exp_avg_sq"),
    "a parameter more": lambda state: state["state"].update({"99": {}}),
    "a parameter twice": lambda state: state["state"].update({"00": state["state"]["0"]}),
    "no number": lambda state: state["state"].update({"x": {}}),
    "a number as key": lambda state: state["state"].update({5: {}}),
    "no dict of parameters": lambda state: state.update(state=[]),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_state_that_does_not_fit_changes_nothing(name):
    with dense(learner_class=TwoOptimizers).build_algo() as algo:
        algo.train()
        part = algo.learner.parts["optimizer_pi"]
        before, state = encode(part.get_state()), part.get_state()
        FORGED[name](state)
        with pytest.raises(ModuleError, match="optimiser 'pi' does not fit"):
            part.set_state(state)
        assert encode(part.get_state()) == before
        algo.train()


@pytest.mark.parametrize("state", [[], 5, None])
def test_what_is_no_state_is_refused(state):
    with dense(learner_class=Momentum).build_algo() as algo:
        part = algo.learner.parts["optimizer_default_optimizer"]
        with pytest.raises(ModuleError, match="does not fit"):
            part.set_state(state)


KINDS = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
    and name not in ("Optimizer", "LBFGS", "SparseAdam", "Muon")  # of sparse, or of matrices only
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_optimiser_of_torch_goes_on_and_back(kind):
    tensors = [torch.nn.Parameter(torch.ones(3, 2)), torch.nn.Parameter(torch.ones(2))]

    def made(of):
        return TorchOptimizer(getattr(torch.optim, kind)(of, lr=0.1), lr=None, name="it")

    def stepped(optimizer, of, number):
        for one in of:
            one.grad = torch.full_like(one, float(number))
        optimizer.step(0)

    first = made(tensors)
    fresh = first.get_state()
    stepped(first, tensors, 1)
    copies = [torch.nn.Parameter(one.detach().clone()) for one in tensors]
    second = made(copies)
    second.set_state(first.get_state())
    assert encode(second.get_state()) == encode(first.get_state())
    undo, kept = second.mark(), [one.detach().clone() for one in copies]
    stepped(second, copies, 5)
    with torch.no_grad():
        for one, before in zip(copies, kept, strict=True):
            one.copy_(before)
    undo()
    stepped(first, tensors, 2)
    stepped(second, copies, 2)
    assert all(map(torch.equal, tensors, copies))
    second.set_state(fresh)
    assert encode(second.get_state()) == encode(fresh)


def test_an_update_that_fails_takes_back_options_that_came_in_it():
    class Scheduled(Momentum):
        fails = True

        def after_gradient_based_update(self, *, timesteps):
            (group,) = self.parts["optimizer_default_optimizer"].optimizer.param_groups
            group["initial_lr"] = 0.01  # as schedulers of Torch do
            group["lr"] *= 0.5
            if type(self).fails:
                raise InterruptedError("after the first update")

    with dense(learner_class=Scheduled).build_algo() as algo:
        before = encode(algo.get_state()["learner"])
        with pytest.raises(InterruptedError):
            algo.train()
        assert encode(algo.get_state()["learner"]) == before
        Scheduled.fails = False
        algo.train()


def registering(**wrong):
    class Registering(PPOTorchLearner):
        def configure_optimizers_for_module(self, module_id, config=None):
            own = self.get_parameters()
            given = {"optimizer": torch.optim.Adam(own), **wrong}
            if callable(given["optimizer"]):
                given["optimizer"] = given["optimizer"](own)
            self.register_optimizer(**given)
            if wrong.get("optimizer_name") == "twice":
                self.register_optimizer(**given)

    return Registering


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"optimizer": torch.optim.Adam(torch.nn.Linear(2, 2).parameters())}, "2 of its 2 param"),
        ({"optimizer_name": "twice"}, "its name is taken.*have another optimiser"),
        ({"optimizer_name": "../x"}, "is no name"),
        ({"module_id": "nobody"}, "module_id='nobody', but it learns 'default_policy'"),
        ({"params": []}, "`params` are not those"),
        ({"optimizer": "adam"}, "is a str; expected a torch.optim.Optimizer"),
        ({"optimizer": torch.optim.LBFGS}, "a closure"),
        (
            {
                "optimizer": lambda own: torch.optim.Adam(
                    [{"params": own[:1], "lr": 0.1}, {"params": own[1:], "lr": 0.2}]
                ),
                "lr_or_lr_schedule": 0.3,
            },
            r"its groups have the rates \[0.1, 0.2\]",
        ),
    ],
)
def test_optimisers_that_cannot_be_are_refused(wrong, told):
    with pytest.raises(ConfigError, match=told):
        dense(learner_class=registering(**wrong)).build_algo()


def test_tensors_that_nothing_moves_are_told(caplog):
    made = dense(learner_class=registering(optimizer=lambda own: torch.optim.Adam(own[:1])))
    with made.build_algo():
        pass
    (message,) = [text for text in caplog.messages if "move 1 of the 8 tensors" in text]
    assert "the others stay" in message


class Tempered(TorchCategorical):
    def __init__(self, logits=None, probs=None):
        super().__init__(logits / 2.0, probs)


class Naming(DenseModule):
    """Names the class of its distributions by methods of every kind."""

    @staticmethod
    def get_inference_action_dist_cls():
        return Tempered

    @classmethod
    def get_exploration_action_dist_cls(cls):
        return Tempered

    def get_train_action_dist_cls(self):
        return Tempered


def test_a_network_that_names_its_distributions_learns_the_same():
    results = []
    for cls in (None, PPOTorchLearner):
        made = dense().rl_module(rl_module_spec=RLModuleSpec(module_class=Naming))
        with made.training(learner_class=cls).build_algo() as algo:
            results.append(algo.train()["learners/default_policy"])
    for name in ("total_loss", "mean_kl_loss"):
        assert results[1][name] == pytest.approx(results[0][name], rel=1e-5)


def test_a_divergence_whose_gradient_would_be_lost_is_refused():
    policies = TorchPolicies(distribution_for(SPACES["discrete"]))
    now = policies.from_logits(torch.zeros(2, 4, requires_grad=True))
    with pytest.raises(ModuleError, match="gradients go to the inputs of the second policy only"):
        now.kl(policies.from_logits(torch.ones(2, 4)))


class WithoutValues(TorchRLModule):
    def setup(self):
        self.pi = torch.nn.Linear(self.obs_size, self.action_distribution.num_inputs)

    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.pi(batch["obs"])}


def test_a_network_without_values():
    made = dense(learner_class=PPOTorchLearner, batch_mode="complete_episodes")
    made.rl_module(rl_module_spec=RLModuleSpec(module_class=WithoutValues))
    with made.training(use_critic=False, use_gae=False).build_algo() as algo:
        result = algo.train()["learners/default_policy"]
        assert "vf_loss" not in result
        assert np.isfinite(result["total_loss"])


def test_what_is_never_called_is_refused():
    with pytest.raises(ConfigError, match=r"`postprocess_gradients`\. Override `apply_gradients"):
        type("Mine", (PPOTorchLearner,), {"postprocess_gradients": lambda self, gradients: None})


def test_a_misspelt_method_is_refused_and_helpers_are_not():
    with pytest.raises(ConfigError, match="Did you mean `compute_loss_for_module`"):
        type("Mine", (PPOTorchLearner,), {"compute_loss_for_modul": lambda self, **_: 0.0})
    assert type("Mine", (PPOTorchLearner,), {"compute_vf_loss": lambda self: 0.0})


def test_what_lightning_calls_and_returns_is_refused():
    with pytest.raises(ConfigError, match=r"`training_step`\. Write `compute_loss_for_module`"):
        type("Mine", (PPOTorchLearner,), {"training_step": lambda self, batch, batch_idx: None})

    class Returning(PPOTorchLearner):
        def configure_optimizers_for_module(self, module_id, config=None):
            return torch.optim.SGD(self.get_parameters(), lr=0.1)

    with pytest.raises(ConfigError, match=r"returned a SGD.*self\.register_optimizer"):
        dense(learner_class=Returning).build_algo()


def test_build_is_called_once_on_a_complete_learner():
    class Building(PPOTorchLearner):
        def build(self):
            super().build()
            self.built = [*getattr(self, "built", ()), len(self.parts)]

    with dense(learner_class=Building).build_algo() as algo:
        assert algo.learner.built == [2]
