"""Which module acts for which agent: when it is asked, in which forms, and what is refused."""

import os

import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import CheckpointMismatchError, encode
from tests.multi_agent_runs import Gaps, gaps, outcome
from trainer import MultiAgentEnv, MultiAgentEnvRunner, PPOConfig
from trainer.errors import ConfigError, EnvContractError, ModuleError
from trainer.modules import PolicySpec

_STATE = iter(range(10**9))


class TwoKinds(MultiAgentEnv):
    """Two agents whose observations have different lengths; three env steps."""

    def __init__(self, env_config):
        del env_config
        self.possible_agents = ["long", "short"]
        lengths = {"long": 3, "short": 2}
        self.observation_spaces = {
            agent: spaces.Box(-1.0, 1.0, (length,), np.float32) for agent, length in lengths.items()
        }
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}

    def _seen(self):
        return {
            agent: self.np_random.uniform(-1, 1, space.shape).astype(np.float32)
            for agent, space in self.observation_spaces.items()
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self._t = 0
        return self._seen(), {}

    def step(self, actions):
        self._t += 1
        return self._seen(), dict.fromkeys(actions, 1.0), {"__all__": self._t == 3}, {}, {}


def two_kinds(mapping, **policies):
    config = PPOConfig().environment(TwoKinds).env_runners(num_env_runners=0)
    config.multi_agent(policies=policies, policy_mapping_fn=mapping)
    config.training(train_batch_size=40, minibatch_size=16, num_epochs=2)
    return config.rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=3)


def test_it_is_asked_once_per_episode_and_agent_right_after_the_reset():
    log = []

    def mapping(agent_id, episode, **_):
        if episode.is_reset:
            log.append((episode.number, agent_id))
        return "odd" if len(episode.agent_ids) % 2 else "even"

    class Watching:
        def __call__(self, **_):
            log.append("start")

    config = gaps(0, 1).multi_agent(policy_mapping_fn=mapping)
    runner = MultiAgentEnvRunner(config=config.callbacks(on_episode_start=Watching()))
    episodes = runner.sample(num_episodes=3)
    runner.stop()
    numbers = sorted({episode.number for episode in episodes})
    assert log == [
        entry
        for number in numbers
        for entry in ((number, 3), (number, "a"), (number, "late"), "start")
    ]
    assert {episode.module_for("late") for episode in episodes} == {"even"}  # two at the reset


def test_what_the_reset_gave_may_be_looked_at(tmp_path):
    def mapping(agent_id, episode, **_):
        first = episode.get_observations(0)["a"][0]  # an episode that was not reset has none
        return "odd" if (first > 0) == (agent_id == "a") else "even"

    alone = outcome(gaps(0, 2).multi_agent(policy_mapping_fn=mapping))
    assert outcome(gaps(2, 1).multi_agent(policy_mapping_fn=mapping)) == alone
    faults = tmp_path / "faults"
    faults.write_text("17 30 41")
    failing = gaps(0, 2, breaks=str(faults)).multi_agent(policy_mapping_fn=mapping)
    failing.fault_tolerance(restart_failed_sub_environments=True)
    assert outcome(failing) == alone


def test_who_asks_before_the_reset_gets_the_answer_that_holds():
    seen = []

    def created(*, episode, **_):
        seen.append([episode.is_reset, episode.module_for("a")])

    def ended(*, episode, **_):
        seen.append([True, episode.module_for("a"), episode.policy_for("a")])

    config = gaps(0, 1).callbacks(on_episode_created=created, on_episode_end=ended)
    runner = MultiAgentEnvRunner(config=config)
    runner.sample(num_episodes=1)
    runner.stop()
    module = seen[0][1]
    assert seen[:2] == [[False, module], [True, module, module]]


class EvenForA:
    """A mapping with a setting."""

    def __init__(self, others):
        self.others = others

    def __call__(self, agent_id, episode, **_):
        return "even" if agent_id == "a" else self.others


@pytest.mark.parametrize(
    "mapping",
    [
        {"a": "even", 3: "odd", "late": "odd"},
        lambda agent_id: "even" if agent_id == "a" else "odd",
        lambda agent_id, episode: "even" if agent_id == "a" else "odd",
        lambda agent_id, episode, worker, **kwargs: "even" if agent_id == "a" else "odd",
        lambda aid, eps, **kw: ("odd", "even")[eps.number == 0 and "worker" in kw and aid == "a"],
        lambda aid, *args, **kwargs: "even" if aid == "a" and "episode" in kwargs else "odd",
        lambda agent_id, episode, rng: "even" if agent_id == "a" or rng.random() > 1 else "odd",
        lambda episode, **kwargs: {"a": "even", 3: "odd", "late": "odd"},
        {"type": EvenForA, "others": "odd"},
    ],
)
def test_all_forms_say_the_same(mapping):
    runner = MultiAgentEnvRunner(config=gaps(0, 1).multi_agent(policy_mapping_fn=mapping))
    (episode,) = runner.sample(num_episodes=1)
    runner.stop()
    modules = {agent: episode.module_for(agent) for agent in ("a", 3, "late")}
    assert modules == {"a": "even", 3: "odd", "late": "odd"}


def _drawn_anew(agent_id, episode):
    return ["odd", "even"][int(np.random.default_rng().integers(2))]


def _raises(agent_id, episode):
    raise ValueError("on purpose")


@pytest.mark.parametrize(
    ("mapping", "problem"),
    [
        (None, "nothing says which agent"),
        ({"a": "odd"}, "says nothing of agent 3"),
        (lambda episode: {"a": "odd"}, "says nothing of agent 3"),
        (lambda episode: "odd", "takes an episode and no agent, and gave 'odd'"),
        (lambda agent_id, episode: "oddd", "'oddd', and there are even, odd"),
        (lambda agent_id, episode: ["odd", "even"][hash(episode.id_) % 2], "calls hash"),
        (lambda agent_id, episode: ["odd", "even"][next(_STATE) % 2], "gives different answers"),
        (_drawn_anew, "gives different answers"),
        ({"type": EvenForA}, "EvenForA, …} raised TypeError"),
        ({"type": object}, "expected what can be called"),
        (lambda: "odd", r"cannot be called as f\(agent_id"),
        (lambda agent_id, episode, wroker: "odd", "'wroker'.*did you mean 'worker'"),
        (lambda agent_id, rng, other: "odd", "'other'"),
    ],
)
def test_mappings_that_cannot_be_are_refused(mapping, problem):
    config = gaps(0, 1).multi_agent(policy_mapping_fn=mapping)
    with pytest.raises(ConfigError, match=problem):
        config.build_algo()


def test_a_function_that_raises_is_named_with_agent_and_episode():
    with (
        gaps(0, 1).multi_agent(policy_mapping_fn=_raises).build_algo() as algo,
        pytest.raises(ConfigError, match=r"raised ValueError: on purpose.*agent 3 of episode 0"),
    ):
        algo.train()


def test_a_mapping_may_draw_from_the_global_generators():
    def drawn(agent_id, episode, rng, **_):
        return "odd" if np.random.random() + rng.random() < 1.0 else "even"  # noqa: NPY002

    def state():
        return np.random.get_state()[1].tolist()  # noqa: NPY002

    before = state()
    runs = [outcome(gaps(n, 2 - n).multi_agent(policy_mapping_fn=drawn), 2) for n in (0, 0)]
    assert runs[0] == runs[1]
    assert state() == before


def test_a_module_with_other_spaces_than_the_agents_is_refused():
    shared = {"m": None}
    with pytest.raises(ConfigError, match=r"different observation_space"):
        two_kinds(lambda agent_id: "m", **shared).build_algo()

    def late_mistake(agent_id, episode):
        is_other = episode.is_reset and episode.number == 2
        return "long" if agent_id == "long" or is_other else "short"

    with two_kinds(late_mistake, long=None, short=None).build_algo() as algo:
        runner = algo.env_runner
        with pytest.raises(ConfigError, match="gives agent 'short' the module 'long'"):
            runner.sample(num_episodes=4)


def test_modules_of_a_mapping_that_needs_observations_say_their_spaces():
    env = TwoKinds({})

    def mapping(agent_id, episode):
        return "L" if len(episode.get_observations(0)[agent_id]) == 3 else "S"

    with pytest.raises(ConfigError, match="give PolicySpec"):
        two_kinds(mapping, L=None, S=None).build_algo()
    policies = {
        name: PolicySpec(
            observation_space=env.observation_spaces[agent], action_space=spaces.Discrete(2)
        )
        for name, agent in (("L", "long"), ("S", "short"))
    }
    runner = MultiAgentEnvRunner(config=two_kinds(mapping, **policies))
    (episode,) = runner.sample(num_episodes=1)
    runner.stop()
    assert [episode.module_for(agent) for agent in ("long", "short")] == ["L", "S"]


# ---- the same in every process


_MAIN = os.getpid()


def _other_in_other_processes(main):
    return lambda agent_id, episode: "odd" if os.getpid() == main else "even"


@pytest.mark.process
def test_a_function_that_differs_between_processes_is_refused():
    made = gaps(1, 1).multi_agent(policy_mapping_fn=_other_in_other_processes(_MAIN))
    with pytest.raises(
        ConfigError,
        match=r"different answers in different processes: for agent 3 of episode 0, 'odd' in the "
        r"main process and 'even' in env runner 1.*episode\.number",
    ):
        made.build_algo()


@pytest.mark.process
def test_a_function_set_in_mid_run_that_differs_between_processes_is_refused():
    with gaps(1, 1).build_algo() as algo:
        algo.train()
        algo.set_policy_mapping_fn(_other_in_other_processes(_MAIN))
        with pytest.raises(ConfigError, match="other answers in env runner 1 than in the main"):
            algo.train()
        algo.set_policy_mapping_fn({"a": "odd", 3: "even", "late": "even"})
        assert algo.train()["training_iteration"] == 2


@pytest.mark.process
def test_runners_whose_envs_have_other_agents_are_refused():
    def make(context):
        env = Gaps({})
        if context.worker_index == 2:
            env.possible_agents = [*env.possible_agents, "more"]
        return env

    with pytest.raises(EnvContractError, match=r"env runner 1 and the one in env runner 2.*agents"):
        gaps(2, 1).environment(make).build_algo()


# ---- the same after a restore


def _by_number(agent_id, episode):
    return "odd" if episode.number % 2 else "even"


def _by_agent(agent_id, episode):
    return "odd" if agent_id == "a" else "even"


def _restored(folder, saved, now, log):
    """The warnings of a run that goes on with other settings."""
    with saved.build_algo() as algo:
        algo.train()
        algo.save_to_path(folder)
    log.clear()
    with now.build_algo() as algo:
        algo.restore_from_path(folder)
        warnings = [one.getMessage() for one in log.records if one.levelname == "WARNING"]
        algo.train()
    return warnings


def test_another_function_than_in_the_checkpoint_is_warned_of(tmp_path, caplog):
    saved, now = (gaps().multi_agent(policy_mapping_fn=one) for one in (_by_number, _by_agent))
    (warning,) = _restored(tmp_path, saved, now, caplog)
    assert warning.startswith("policy_mapping_fn is another one than when the checkpoint")


def test_the_same_function_by_another_name_is_not(tmp_path, caplog):
    def renamed(agent_id, episode):
        return _by_number(agent_id, episode)

    saved, now = (gaps().multi_agent(policy_mapping_fn=one) for one in (_by_number, renamed))
    assert _restored(tmp_path, saved, now, caplog) == []


def test_a_dict_may_take_the_place_of_a_function(tmp_path, caplog):
    saved, now = (
        gaps(),
        gaps().multi_agent(policy_mapping_fn={"a": "odd", 3: "even", "late": "odd"}),
    )
    assert _restored(tmp_path, saved, now, caplog) == []


def test_who_learns_by_another_function_is_warned_of(tmp_path, caplog):
    saved = gaps().multi_agent(policies_to_train=lambda module_id, batch: module_id == "odd")
    now = gaps().multi_agent(policies_to_train=lambda module_id, batch: True)
    (warning,) = _restored(tmp_path, saved, now, caplog)
    assert warning.startswith("policies_to_train is another one")
    same = gaps().multi_agent(policies_to_train=lambda id_, _: id_ == "odd")
    assert _restored(tmp_path / "again", saved, same, caplog) == []


def test_a_module_that_there_is_not_is_an_error_that_names_the_nearest():
    with gaps().build_algo() as algo:
        assert algo.get_module("odd") is algo.learners["odd"].module
        with pytest.raises(ModuleError, match=r"'ood'.*'odd'.*there is 'even', 'odd'"):
            algo.get_module("ood")
        with pytest.raises(ModuleError, match="2 modules"):
            algo.get_module()


# ---- one module of a checkpoint


def test_what_a_module_has_learnt_may_go_into_another_one(tmp_path):
    with gaps().build_algo() as algo:
        for _ in range(3):
            algo.train()
        algo.save_to_path(tmp_path)
        saved = algo.get_state("learner")["learner"]
    with gaps().build_algo() as algo:
        algo.train()
        first = algo.get_state("learner")["learner"]
        algo.restore_from_path(tmp_path, component="learner/even", into="odd")
        now = algo.get_state("learner")["learner"]
        assert encode(now) == encode({"even": first["even"], "odd": saved["even"]})
        assert algo.env_runner_group.has_weights_of(algo.newest_policy())
        algo.restore_from_path(tmp_path, component="learner/odd/rl_module", into="odd")
        now = algo.get_state("learner")["learner"]["odd"]
        weights = {"rl_module": saved["odd"]["rl_module"]}
        assert encode(now) == encode({**saved["even"], **weights})
        assert algo.train()["training_iteration"] == 2


def test_an_only_module_may_be_named_in_the_path_of_a_component(tmp_path):
    made = gaps().multi_agent(policies={"one"}, policy_mapping_fn=None)
    with made.build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path)
        learnt = encode(algo.get_state("learner"))
    for component in ("learner/one", "learner/one/rl_module", "learner/rl_module"):
        with made.build_algo() as algo:
            algo.restore_from_path(tmp_path, component=component)
            same = encode(algo.get_state("learner/rl_module"))
            assert (encode(algo.get_state("learner")) == learnt) == (component == "learner/one")
            algo.restore_from_path(tmp_path, component="learner")
            assert encode(algo.get_state("learner/rl_module")) == same


def test_what_an_only_module_has_learnt_may_go_into_one_of_several(tmp_path):
    made = gaps().multi_agent(policies={"default_policy"}, policy_mapping_fn=None)
    with made.build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path)
        saved = algo.get_state("learner")["learner"]
    for component in ("learner", "learner/default_policy"):
        with gaps().build_algo() as algo:
            algo.restore_from_path(tmp_path, component=component, into="odd")
            assert encode(algo.get_state("learner")["learner"]["odd"]) == encode(saved)
    with gaps().build_algo() as algo:
        before = encode(algo.get_state())
        algo.restore_from_path(tmp_path, component="learner/rl_module", into="odd")
        assert encode(algo.get_state()) != before
        before = encode(algo.get_state())
        with pytest.raises(ConfigError, match=r"The checkpoint has learner\."):
            algo.restore_from_path(tmp_path, component="learner/optimizer", into="odd")
        with pytest.raises(TypeError, match="typo"):
            algo.restore_from_path(tmp_path, component="learner", into="odd", typo=1)
        assert encode(algo.get_state()) == before


def test_what_does_not_fit_into_a_module_changes_nothing(tmp_path):
    with two_kinds({"long": "L", "short": "S"}, L=None, S=None).build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path)
        before = encode(algo.get_state())
        for component, into, kind, text in (
            ("learner/S", "L", CheckpointMismatchError, "observation_space"),
            ("learner/s", "L", ConfigError, "The checkpoint has learner/L, learner/S"),
            ("counters", "L", ConfigError, "is no module"),
            ("learner/L", "M", ConfigError, "there is no such module"),
        ):
            with pytest.raises(kind, match=text):
                algo.restore_from_path(tmp_path, component=component, into=into)
        assert encode(algo.get_state()) == before


def test_modules_that_learn_can_be_gone_through():
    with gaps().multi_agent(policies_to_train=["odd"]).build_algo() as algo:
        group = algo.env_runner_group
        assert group.foreach_policy(lambda module, module_id: module_id) == ["even", "odd"]
        assert group.foreach_policy_to_train(lambda module, module_id: module_id) == ["odd"]
        result = algo.train()
        steps = result["env_runners"]["num_agent_steps_sampled_lifetime"]
        assert result["num_agent_steps_sampled_lifetime"] == sum(steps.values())
