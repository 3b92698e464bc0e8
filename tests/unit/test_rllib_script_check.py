"""Known answers of the check of scripts written for RLlib: one small script per kind of finding."""

import importlib.util
import textwrap
from pathlib import Path

import pytest

from trainer.errors import ConfigError
from trainer.rllib_scripts.script_check import Fate, check_script

IMPORT = "from ray.rllib.algorithms.ppo import PPOConfig\n"


def checked(folder, text, name="script.py"):
    """The report about a script of this text."""
    path = folder / name
    path.write_text(textwrap.dedent(text), "utf-8")
    return check_script(path)


def decisive(report):
    """What is not here, by line: (what, fate)."""
    return [(f.line, f.what, f.fate) for f in report.findings if f.fate is not Fate.HERE]


def told(report):
    """What is said of what is not here."""
    return " ".join(f.told for f in report.findings if f.fate is not Fate.HERE)


def test_a_script_of_names_that_are_here_runs_as_it_is(tmp_path):
    report = checked(
        tmp_path,
        """
        import ray
        from ray import tune
        from ray.rllib.algorithms.ppo import PPOConfig
        from ray.rllib.utils.metrics import EPISODE_RETURN_MEAN as KEY

        ray.init()
        config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=1)
        config.training(lr=tune.loguniform(1e-5, 1e-3), sgd_minibatch_size=64)
        tune.Tuner("PPO", param_space=config, run_config=tune.RunConfig(stop={KEY: 100.0})).fit()
        """,
    )
    assert report.verdict == "runs as it is (through the hook)."
    assert report.fate is Fate.HERE
    here = {f.what: (f.line, f.told) for f in report.findings}
    assert here["ray.rllib.algorithms.ppo.PPOConfig"] == (4, "`from trainer import PPOConfig`.")
    assert here["ray.init"] == (7, "`from trainer.actors import init`.")
    assert here["ray.tune.loguniform"] == (9, "`from trainer.tune import loguniform`.")


@pytest.mark.parametrize(
    ("line", "what", "fate", "why"),
    [
        (
            "from ray.rllib.algorithms.a2c import A2CConfig",
            "ray.rllib.algorithms.a2c.A2CConfig",
            Fate.STOP,
            "PPO solves such tasks",
        ),
        (
            "from ray.rllib.algorithms.dreamerv3 import DreamerV3Config",
            "ray.rllib.algorithms.dreamerv3.DreamerV3Config",
            Fate.STOP,
            "DreamerV3 is not here",
        ),
        ("import ray.serve", "ray.serve", Fate.STOP, "TrainedPolicy"),
        (
            "from ray.tune.schedulers import PB2",
            "ray.tune.schedulers.PB2",
            Fate.CHANGE,
            "Use PopulationBasedTraining",
        ),
        (
            "from ray.rllib.algorithms.ppo import PPOConfg",
            "ray.rllib.algorithms.ppo.PPOConfg",
            Fate.STOP,
            "Did you mean 'PPOConfig'?",
        ),
        (
            "import ray\nray.cluster_resources()",
            "ray.cluster_resources",
            Fate.STOP,
            "there is no cluster here",
        ),
        (
            "from ray.rllib.evaluation.postprocessing import Postprocessing",
            "ray.rllib.evaluation.postprocessing.Postprocessing",
            Fate.CHANGE,
            "columns are named by plain strings",
        ),
        (
            "from ray.rllib.utils.schedules import PiecewiseSchedule",
            "ray.rllib.utils.schedules.PiecewiseSchedule",
            Fate.CHANGE,
            "the setting takes pairs",
        ),
        (
            "from ray.rllib.examples.rl_modules.classes.random_rlm import RandomRLModule",
            "ray.rllib.examples.rl_modules.classes.random_rlm.RandomRLModule",
            Fate.CHANGE,
            "`from trainer import RandomRLModule`.",
        ),
        (
            "from ray.rllib.policy import Policy\nPolicy.from_checkpoint(path)",
            "ray.rllib.policy.Policy.from_checkpoint",
            Fate.CHANGE,
            "TrainedPolicy.from_checkpoint(path)",
        ),
        (
            "from ray import air\nair.RunConfig(name=name(), local_dir='here')",
            "RunConfig(local_dir=…)",
            Fate.CHANGE,
            "is called storage_path now",
        ),
        (
            "from ray import tune\ntune.TuneConfig(num_sample=n)",
            "TuneConfig(num_sample=…)",
            Fate.CHANGE,
            "there is no such argument",
        ),
        (
            "import no_such_package.inner",
            "import no_such_package",
            Fate.CHANGE,
            "not installed here",
        ),
        (
            "import ray\n@ray.remote\ndef count(): return 1",
            "@ray.remote on a function",
            Fate.CHANGE,
            "a method of an actor",
        ),
        (
            "algo.restore_from_path(path, component=COMPONENT_LEARNER_GROUP + '/learner')",
            "component=…",
            Fate.CHANGE,
            "learner/MODULE_ID/rl_module",
        ),
        (
            "algo.env_runner_group.foreach_env_runner(lambda r: (x for x in r.sample()))",
            "a generator for env runners",
            Fate.CHANGE,
            "write a list",
        ),
        (
            "algo.workers.remote_workers()",
            ".remote_workers",
            Fate.CHANGE,
            "foreach_env_runner(function, remote_worker_ids=[2])",
        ),
        (
            "algo._aggregator_actor_manager.foreach_actor(print)",
            "._aggregator_actor_manager",
            Fate.CHANGE,
            "in the main process, without actors",
        ),
    ],
)
def test_names_that_are_not_here(line, what, fate, why, tmp_path):
    report = checked(tmp_path, line)
    assert [(found, of) for _, found, of in decisive(report)] == [(what, fate)]
    assert why in told(report)
    assert report.verdict.endswith(f": {what}.")
    assert "?." not in told(report)


@pytest.mark.parametrize(
    "line",
    [
        "from ray.rllib.utils.metrics import *",
        "from ray.rllib.utils.exploration.epsilon_greedy import EpsilonGreedy",
        "from ray.tune import CheckpointConfig\nCheckpointConfig(num_to_keep=3)",
    ],
)
def test_other_ways_to_what_is_here(line, tmp_path):
    assert not decisive(checked(tmp_path, line))


@pytest.mark.parametrize(
    ("call", "what", "fate", "why"),
    [
        ("training(lr=-1.0)", "training(lr=…)", Fate.CHANGE, "expected"),
        ("training(fooo=3)", "training(fooo=…)", Fate.CHANGE, "no setting has this name"),
        (
            "training(env_config={})",
            "training(env_config=…)",
            Fate.CHANGE,
            "It belongs to environment()",
        ),
        (
            "environment(render_env=show())",
            "environment(render_env=…)",
            Fate.CHANGE,
            "RecordVideo",
        ),
        (
            "env_runners(env_runner_cls=object)",
            "env_runners(env_runner_cls=…)",
            Fate.CHANGE,
            "Env runners of your own",
        ),
        ("offline_data(input_='here')", "offline_data()", Fate.STOP, "recorded data"),
        (
            "training(model={'use_attention': True})",
            "training(model=…)",
            Fate.CHANGE,
            "use_attention",
        ),
        ("learners(num_learners=2)", "learners(num_learners=…)", Fate.CHANGE, "main process"),
    ],
)
def test_settings_that_are_refused(call, what, fate, why, tmp_path):
    report = checked(tmp_path, f"{IMPORT}config = (\n    PPOConfig()\n    .{call}\n)\n")
    assert decisive(report) == [(4, what, fate)]
    assert why in told(report)


@pytest.mark.parametrize(
    "call",
    [
        "training(lr=1e-4, num_sgd_iter=3, model={'fcnet_hiddens': [8]})",
        "training(lr=rate(3))",
        "env_runners(rollout_fragment_length=length)",
        "learners(num_learners=0, num_gpus_per_learner=1)",
        "training(learner_connector=None)",
        "evaluation(evaluation_parallel_to_training=True)",
        "multi_agent(policies_to_train=['a'])",
        "build().train()",
    ],
)
def test_settings_that_are_taken_or_judged_when_the_script_runs(call, tmp_path):
    assert not decisive(checked(tmp_path, f"{IMPORT}config = PPOConfig()\nconfig.{call}\n"))


@pytest.mark.parametrize(
    ("number", "is_refused"), [("args.num_learners", True), ("args.num_learners - 2 or 0", False)]
)
def test_values_of_arguments_are_those_of_their_defaults(number, is_refused, tmp_path):
    text = f"""
        import argparse
        from ray.rllib.algorithms.registry import get_trainable_cls

        parser = argparse.ArgumentParser()
        parser.add_argument("--num-learners", type=int, default=2)
        parser.add_argument("--algo", default="PPO")
        args = parser.parse_args()
        config = get_trainable_cls(args.algo).get_default_config().learners(num_learners={number})
        """
    assert bool(decisive(checked(tmp_path, text))) == is_refused


@pytest.mark.parametrize(
    "call",
    [
        'tune.run("PPO", config={})',
        'tune.Tuner("PPO", param_space={})',
        "PPO(config={})",
        "PPOTrainer(config={})",
        "settings = {}; tune.run(PPO, config=settings)",
    ],
)
def test_dict_configs_are_read_like_sections(call, tmp_path):
    text = """
        from ray import tune
        from ray.rllib.agents.ppo import PPOTrainer
        from ray.rllib.algorithms.ppo import PPO
        """
    entries = '{"lr": tune.uniform(0, 1), "num_workers": 2, "horizon": 9, "epsilon": f()}'
    report = checked(tmp_path, textwrap.dedent(text) + call.replace("{}", entries) + "\n")
    assert [what for _, what, _ in decisive(report)] == ['"horizon": …', '"epsilon": …']
    assert "TimeLimit" in told(report)
    assert "this algorithm has no such setting" in told(report)


def test_the_algorithm_decides_which_settings_there_are(tmp_path):
    text = "from ray.rllib.algorithms.{0} import {1}Config\n{1}Config().training(n_step=3)\n"
    assert not decisive(checked(tmp_path, text.format("dqn", "DQN")))
    assert "no such setting" in told(checked(tmp_path, text.format("ppo", "PPO")))


@pytest.mark.parametrize(
    ("base", "module", "method", "fate", "why"),
    [
        ("PPO", "ray.rllib.algorithms.ppo", "cleanup", Fate.CHANGE, "Override `stop`"),
        (
            "PPOConfig",
            "ray.rllib.algorithms.ppo",
            "build_learner_group",
            Fate.CHANGE,
            "learner_class",
        ),
        ("Policy", "ray.rllib.policy.policy", "compute_actions", Fate.STOP, "are modules here"),
        (
            "RLModule",
            "ray.rllib.core.rl_module",
            "_forward_inference",
            Fate.CHANGE,
            "forward_acting",
        ),
        ("RLlibCallback", "ray.rllib.callbacks.callbacks", "on_episode_end", None, ""),
        (
            "DefaultCallbacks",
            "ray.rllib.algorithms.callbacks",
            "on_episode_edn",
            Fate.CHANGE,
            "did you mean `on_episode_end`?",
        ),
        ("TorchRLModule", "ray.rllib.core.rl_module.torch", "_forward", None, ""),
    ],
)
def test_classes_of_the_users_own(base, module, method, fate, why, tmp_path):
    text = f"from {module} import {base}\nclass Mine({base}):\n    def {method}(self): pass\n"
    report = checked(tmp_path, text)
    assert [of for _, _, of in decisive(report)] == ([] if fate is None else [fate])
    assert why in told(report)


def test_a_class_that_is_a_network_in_torch_besides_gives_no_actions_itself(tmp_path):
    text = """
        from ray.rllib.core.rl_module import RLModule
        from ray.rllib.core.rl_module.torch import TorchRLModule

        class Masking(RLModule):
            pass

        class Mine(Masking, TorchRLModule):
            def _forward(self, batch): pass
        """
    assert checked(tmp_path, text).fate is Fate.HERE


def test_imports_that_may_fail_decide_nothing(tmp_path):
    report = checked(
        tmp_path,
        """
        from typing import TYPE_CHECKING
        try:
            from ray.rllib.models import ModelCatalog
            import no_such_package
        except ImportError:
            ModelCatalog = None
        if TYPE_CHECKING:
            from ray.rllib.offline import JsonReader
        def late():
            import another_package
        if __name__ == "__main__":
            if input():
                import yet_another_package
        """,
    )
    assert report.fate is Fate.HERE
    assert [of for _, _, of in decisive(report)] == [Fate.NOTE] * 3
    wanted = "if __name__ == '__main__':\n    import no_such_package\n"
    assert checked(tmp_path, wanted).fate is Fate.CHANGE


@pytest.mark.parametrize("has_init", [True, False])
def test_files_beside_the_script_are_read_too(has_init, tmp_path):
    package = tmp_path / "envs"
    package.mkdir()
    if has_init:
        (package / "__init__.py").write_text("from .corridor import Corridor\n")
    (package / "corridor.py").write_text(
        "from ray.rllib.env.multi_agent_env import MultiAgentEnv\n"
        "from ray.rllib.env.policy_client import PolicyClient\n"
        "class Corridor(MultiAgentEnv): pass\n"
    )
    module = "envs" if has_init else "envs.corridor"
    report = checked(tmp_path, f"from {module} import Corridor\n")
    assert report.fate is Fate.STOP
    (found,) = [finding for finding in report.findings if finding.fate is Fate.STOP]
    assert (found.path, found.line) == (str(package / "corridor.py"), 2)
    assert "connect from outside" in found.told


def test_classes_that_a_script_does_not_use_decide_nothing(tmp_path):
    (tmp_path / "modules.py").write_text(
        "from ray.rllib.core.rl_module import RLModule\n"
        "class First(RLModule):\n    def _forward(self): pass\n"
        "class Second(RLModule):\n    pass\n"
    )
    assert checked(tmp_path, "from modules import Second\n").fate is Fate.HERE
    assert checked(tmp_path, "from modules import First\n").fate is Fate.CHANGE


def test_examples_of_rllib_are_looked_for_in_an_installed_ray(tmp_path, monkeypatch):
    text = "from ray.rllib.examples.envs.corridor import Corridor\n"
    monkeypatch.syspath_prepend(tmp_path / "site")
    folder = tmp_path / "site" / "ray" / "rllib" / "examples" / "envs"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parents[1], folder.parents[2]):
        (package / "__init__.py").write_text("raise SystemExit('it was run')\n")
    missing = checked(tmp_path, text)
    assert missing.fate is Fate.CHANGE
    assert "copy it beside the script" in told(missing)
    (folder / "corridor.py").write_text("from ray.rllib.utils.numpy import fc\n")
    found = checked(tmp_path, text)
    assert [what for _, what, _ in decisive(found)] == ["ray.rllib.utils.numpy.fc"]


def test_nothing_of_a_script_is_run(tmp_path):
    witness = tmp_path / "witness"
    text = f"""
        from ray.rllib.algorithms.ppo import PPOConfig
        import beside
        open({str(witness)!r}, "w").close()
        config = PPOConfig().training(lr=open({str(witness)!r}, "w").close() or 1e-3)
        """
    (tmp_path / "beside.py").write_text(f"open({str(witness)!r}, 'w').close()\n")
    assert checked(tmp_path, text).fate is Fate.HERE
    assert not witness.exists()


def test_what_is_no_python_is_told(tmp_path):
    with pytest.raises(ConfigError, match=r"script\.py is no Python of this version"):
        checked(tmp_path, "print 'old'\n")
    with pytest.raises(FileNotFoundError):
        check_script(tmp_path / "nothing.py")


def test_all_examples_of_an_installed_ray_have_a_verdict():
    found = importlib.util.find_spec("ray")
    if found is None or found.origin is None:
        pytest.skip("Ray is not installed")
    scripts = sorted((Path(found.origin).parent / "rllib" / "examples").rglob("*.py"))
    fates = [check_script(script).fate for script in scripts]
    assert fates.count(Fate.HERE) > len(fates) / 4
    assert {Fate.CHANGE, Fate.STOP} < set(fates)
