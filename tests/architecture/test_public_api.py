"""What users may import: a name that comes or goes is a decision, made here."""

import ast
import importlib
import inspect
from types import FunctionType

import pytest

from tests.architecture.source_tree import expect_clean, made_tree, project_tree


def words_of(texts):
    """The words of texts, by package; a diff shows the line that a name came to."""
    return {package: text.split() for package, text in texts.items()}


PUBLIC_NAMES = words_of(
    {
        "checkpoints": """
        CheckpointContents CheckpointCorruptError CheckpointDifference CheckpointError
        CheckpointMismatchError CheckpointNotFoundError CheckpointUnreadableError
        CheckpointVersionError CheckpointWriteError Checkpointable CodeNotAllowedError
        ComponentDifference Difference FileEntry FileSystem FoundCheckpoint HasLargeArrays
        HasState LinkError Manifest NewArray PathLike Retention StateError WhenOver
        apply_retention check_shape decode diff_checkpoints encode export_weights
        find_checkpoints is_selected latest_checkpoint like load_weights pack_code
        read_checkpoint read_code read_manifest state_array verify version_differences
        write_checkpoint
    """,
        "callbacks": """
        EVENTS AimLogger AlgorithmView AnyCallbackError BestCheckpoint CSVLogger CallbackChain
        CallbackConfigError CallbackError CallbackSpec ConfigView EarlyStopping EnvRunnerGroupView
        EnvRunnerView EpisodeRecorder EpisodeView Event JSONLinesLogger MLflowLogger
        MetricsLoggerView NonFiniteError NonFiniteGuard PackingError PeriodicCheckpoint
        ProgressPrinter RLModuleView RLlibCallback ResultLogger ResultSink SampleBatchView
        TaskLadder TensorBoardLogger TrackerLogger TrackerService TrackioLogger VectorEnvView
        VideoRecorder WandbLogger load_episode
    """,
        "trainer": """
        APPO BC CQL DDPG DEFAULT_AGENT_ID DEFAULT_MODULE_ID DQN IMPALA MARWIL PG PPO RE3 SAC TD3
        APPOConfig APPOLearner APPOTorchLearner ActionChoice AgentIndicator AimLogger
        Algorithm AlgorithmConfig AlgorithmStoppedError BCConfig BestCheckpoint
        CQLConfig CQLLearner CSVLogger
        CallbackError CheckpointError Checkpointable CommonReward ConfigError
        ConnectorPipelineV2 ConnectorV2 Curiosity DDPGConfig DQNConfig DQNLearner DebuggerError
        DefaultModelConfig EarlyStopping EnvContext EnvContractError EnvCreationError
        EnvError EnvRunner EnvRunnerGroup EpisodeError EpisodeIndexError EpisodeRecorder
        EpsilonGreedy EvaluationError Exploration FlattenObservations FrameStacking
        FrozenConfigError GaussianNoise IMPALAConfig JSONLinesLogger Learner
        MARWILConfig MARWILLearner MLflowLogger Matchups
        MeanStdFilter MetricsError MetricsLogger ModuleError MultiAgentEnv
        MultiAgentEnvRunner MultiAgentEpisode MultiAgentObservationPreprocessor MultiRLModule
        MultiRLModuleSpec
        NonFiniteError NonFiniteGuard OrnsteinUhlenbeckNoise PGConfig PGLearner PPOConfig
        PPOLearner PPOTorchLearner PPOTorchRLModule PadObservations ParallelPettingZooEnv
        ParameterNoise
        PerWorkerEpsilonGreedy PerWorkerGaussianNoise PerWorkerOrnsteinUhlenbeckNoise
        PeriodicCheckpoint PettingZooEnv PolicySpec PrevActionsPrevRewards PrioritizedReplayBuffer
        ProgressPrinter RLModule RLModuleSpec RLlibCallback Random RandomRLModule
        RemoteError ReplayBuffer ResultDict ResultLogger ResultSink RunnerError
        RunnerFailedError RunnerLostError SACConfig SACLearner SB3Policy SampleBatch
        SerializationError SingleAgentEnvRunner SingleAgentEpisode
        SingleAgentObservationPreprocessor SoftQ StateDependentNoise StatefulEnv
        StatefulRLModule StochasticSampling TD3Config TD3Learner TaskError TaskLadder
        TaskSettableEnv TensorBoardLogger TorchLearner TorchRLModule TorchSACModule TrackerLogger
        TrackerService TrackioLogger TrainedPolicy TrainerDeprecationWarning TrainerError
        UnknownModuleError UnknownOutputError UnknownSettingError UnsupportedSpaceError
        VideoRecorder WandbLogger
        actors compute_advantages export_onnx export_policy export_torch
        get_global_worker get_trainable_cls latest_checkpoint load_episode load_sb3_policy
        make_multi_agent make_replay_buffer register_env uniforms_per_row
    """,
        "trainer.tune": """
        ASHAScheduler AsyncHyperBandScheduler BasicVariantGenerator CLIReporter CSVLoggerCallback
        Callback Checkpoint CheckpointConfig CombinedStopper ConcurrencyLimiter Experiment
        ExperimentAnalysis ExperimentPlateauStopper FIFOScheduler FailureConfig FunctionStopper
        HyperBandScheduler JournalError JsonLoggerCallback JupyterNotebookReporter LoggerCallback
        MaximumIterationStopper MedianStoppingRule NoopStopper OptunaSearch PlacementGroupFactory
        PopulationBasedTraining PopulationBasedTrainingReplay ProgressReporter RandomSearch Repeater
        Result ResultGrid ResumeConfig RunConfig SearchSpaceError Searcher Stopper SyncConfig
        TBXLoggerCallback TimeoutStopper Trainable Trial TrialError TrialPlateauStopper
        TrialScheduler TuneConfig TuneContext TuneError TuneSettingError Tuner choice
        create_scheduler create_searcher get_checkpoint get_context grid_search logger lograndint
        loguniform qlograndint qloguniform qrandint qrandn quniform randint randn register_env
        register_trainable report run run_experiments sample_from schedulers search stopper uniform
        validate_save_restore with_parameters with_resources
    """,
        "trainer.testing": """
        AgentScript ContinuousEnv CorridorEnv CountdownEnv FailingEnv FakeEngine Fault
        FaultyCallback FaultyEnv HugeError InjectedFaultError Kill MultiAgentCartPole
        MultiAgentPendulum Parcel RandomKiller RepeatAfterMe RepeatPreviousEnv ReplayReport
        RestlessEnv RockPaperScissors ScriptedFault ScriptedMultiAgentEnv ScriptedStep
        StatelessCartPole TargetEnv TwoStepGame UnpicklableError UnseededEnv check_env_state
        check_module check_replay faulty_module gradient_check is_process_alive no_leaks wait_until
        with_faults
    """,
        "trainer.reports": """
        Curve ReportError Run Summary curve_of find_runs grouped plot_runs read_run summary_of
        write_report
    """,
    }
)

OLD_PUBLIC_NAMES = words_of(
    {
        "callbacks": """
        DefaultCallbacks MultiCallbacks make_multi_callbacks
    """,
        "trainer": """
        ALL_MODULES COMPONENT_LEARNER COMPONENT_LEARNER_GROUP COMPONENT_RL_MODULE
        DEFAULT_POLICY_ID DONE ENV_RUNNER_RESULTS ENV_RUNNER_SAMPLING_TIMER
        EPISODE_DURATION_SEC_MEAN EPISODE_LEN_MAX EPISODE_LEN_MEAN EPISODE_LEN_MIN
        EPISODE_RETURN_MAX EPISODE_RETURN_MEAN EPISODE_RETURN_MIN EVALUATION_ITERATION_TIMER
        EVALUATION_RESULTS FAULT_TOLERANCE_STATS LAST_TARGET_UPDATE_TS LEARNER_INFO LEARNER_RESULTS
        LEARNER_STATS_KEY LEARNER_UPDATE_TIMER NUM_AGENT_STEPS_SAMPLED
        NUM_AGENT_STEPS_SAMPLED_LIFETIME NUM_AGENT_STEPS_SAMPLED_THIS_ITER NUM_AGENT_STEPS_TRAINED
        NUM_AGENT_STEPS_TRAINED_THIS_ITER NUM_ENV_STEPS_SAMPLED NUM_ENV_STEPS_SAMPLED_LIFETIME
        NUM_ENV_STEPS_SAMPLED_LIFETIME_THROUGHPUT NUM_ENV_STEPS_SAMPLED_THIS_ITER
        NUM_ENV_STEPS_TRAINED NUM_ENV_STEPS_TRAINED_LIFETIME NUM_ENV_STEPS_TRAINED_THIS_ITER
        NUM_EPISODES NUM_EPISODES_LIFETIME NUM_MODULE_STEPS_SAMPLED
        NUM_MODULE_STEPS_SAMPLED_LIFETIME NUM_MODULE_STEPS_TRAINED NUM_TARGET_UPDATES
        NUM_TRAINABLE_PARAMETERS NUM_TRAINING_STEP_CALLS_PER_ITERATION PERF
        REPLAY_BUFFER_ADD_DATA_TIMER REPLAY_BUFFER_RESULTS SYNCH_WORKER_WEIGHTS_TIMER TD_ERROR_KEY
        TIMERS TIME_TOTAL_S TRAINING_ITERATION TRAINING_ITERATION_TIMER TRAINING_STEP_TIMER Columns
        DefaultCallbacks GroupAgentsWrapper MultiAgentBatch MultiCallbacks RolloutWorker
        StepFailedRecreateEnvError collect_episodes concat_samples make_multi_callbacks
        summarize_episodes
    """,
    }
)
"""What users may import besides: names of RLlib, which `rllib_names` of each package adds."""


def offered_names(module):
    """The names in `__all__` of a package, in the order of the source."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return []


def api_problems(module, expected):
    """Where a package's `__all__` differs from the list, from its imports, or from sorted order."""
    offered = offered_names(module)
    imported = _imported_names(module)
    problems = {}
    for name in sorted({*offered, *expected, *imported}, key=sort_key):
        if name not in expected and name in offered:
            problems[name] = f"{module.name}.{name} is new: add it here and to the changelog"
        elif name not in offered and name in expected:
            problems[name] = f"{module.name}.{name} is gone, or was removed from __all__"
        elif name not in imported:
            problems[name] = f"{module.name}.{name} is in __all__ and not imported"
        elif name not in offered:
            problems[name] = f"{module.name}.{name} is imported at the top and not in __all__"
    if offered != sorted(set(offered), key=sort_key):
        problems["__all__"] = f"{module.name}.__all__ is not sorted, or names something twice"
    return problems


# What only the package itself needs is imported from a module that offers nothing to users.
_OFFER_NOTHING = {
    *("__future__", "importlib.util", "pathlib", "typing"),
    *("trainer.config.names_elsewhere", "trainer_toolkit.nearest_names"),
}
_NEEDED_ITSELF = {"not_offered"}


def _imported_names(module):
    return {
        alias.asname or alias.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.module not in _OFFER_NOTHING
        for alias in node.names
        if "rllib_names" not in (alias.name, *(node.module or "").split("."))
        and alias.name not in _NEEDED_ITSELF
    }


def sort_key(name):
    """Constants, then classes, then functions, each alphabetically: as ruff sorts them."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("package", PUBLIC_NAMES)
def test_the_public_names_are_as_decided(package):
    expect_clean(api_problems(project_tree()[package], PUBLIC_NAMES[package]))


@pytest.mark.parametrize("package", OLD_PUBLIC_NAMES)
def test_the_old_names_that_a_package_offers_besides_are_as_decided(package):
    old = OLD_PUBLIC_NAMES[package]
    assert offered_names(project_tree()[f"{package}.rllib_names"]) == old
    offered = importlib.import_module(package).__all__
    assert offered == [*PUBLIC_NAMES[package], *old]


@pytest.mark.parametrize("package", PUBLIC_NAMES)
def test_every_public_name_can_be_imported(package):
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []


def undocumented(name, found):
    """A name without a docstring, and its public methods without one, their own or inherited."""
    missing = [] if inspect.getdoc(found) else [name]
    if inspect.isclass(found):
        members = {each for each in dir(found) if not each.startswith("_")}
        kinds = (property, staticmethod, classmethod, FunctionType)
        methods = {m for m in members if isinstance(inspect.getattr_static(found, m), kinds)}
        missing += [f"{name}.{m}" for m in sorted(methods) if not inspect.getdoc(getattr(found, m))]
    return missing


@pytest.mark.parametrize("package", PUBLIC_NAMES)
def test_everything_that_users_import_has_a_docstring(package):
    module = importlib.import_module(package)
    found = {name: getattr(module, name) for name in PUBLIC_NAMES[package]}
    called = {name: one for name, one in found.items() if callable(one)}
    assert [m for name, one in called.items() for m in undocumented(name, one)] == []


class Base:
    """A base."""

    def inherited(self):
        """Documented here."""


class Child(Base):
    """A child."""

    def inherited(self): ...

    def bare(self): ...

    @property
    def value(self): ...

    def _private(self): ...


def test_what_has_no_docstring_is_found():
    assert undocumented("Child", Child) == ["Child.bare", "Child.value"]
    assert undocumented("call", lambda: None) == ["call"]


_PACKAGE = """from trainer.a import A, make
from trainer.b import B
__all__ = ["A", "B", "make"]
"""


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("", "", []),
        ('"B", "make"', '"make"', ["B"]),
        ('"make"]', '"make", "new"]', ["new"]),
        ("import A, make", "import A, make, other", ["other"]),
        ("from trainer.b import B\n", "", ["B"]),
        ('"A", "B"', '"B", "A"', ["__all__"]),
        ('"A", "B"', '"A", "A", "B"', ["__all__"]),
    ],
)
def test_a_change_of_the_public_names_is_found(tmp_path, old, new, wrong):
    tree = made_tree(tmp_path, {"trainer/__init__.py": _PACKAGE.replace(old, new, 1)})
    assert list(api_problems(tree["trainer"], ["A", "B", "make"])) == wrong
