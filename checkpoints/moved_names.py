"""Names that checkpoints of earlier versions hold, and what they are called now.

Data in checkpoints name the class of a module or of a callback with its dotted path, and pickled
code refers to our classes in the same way. Modules of ours move between versions: here is where
each went, so that what was saved before can still be read. It is no list of names for `import`.
"""

from __future__ import annotations

import functools
import io
import pickle
from typing import Any, Final

_MODULES: Final = """
callbacks.callback: callbacks.no_op callbacks.state
callbacks.chain: callbacks.object_state callbacks.state_matching
callbacks.packing: callbacks.culprit callbacks.importable
callbacks.ready_made.checkpoint_directory: callbacks.ready_made.directory_claims
    callbacks.ready_made.path_claims
callbacks.ready_made.metric_values: callbacks.ready_made.choices callbacks.ready_made.fault_counts
    callbacks.task_names
callbacks.ready_made.progress: callbacks.ready_made.line_output callbacks.ready_made.progress_lines
    callbacks.ready_made.progress_printer
callbacks.ready_made.recorders: callbacks.ready_made.episode_choice
    callbacks.ready_made.episode_file callbacks.ready_made.episode_recorder
    callbacks.ready_made.recording_files callbacks.ready_made.video_recorder
callbacks.ready_made.result_files: callbacks.ready_made.csv_results
    callbacks.ready_made.jsonl_results callbacks.ready_made.line_file callbacks.ready_made.png
    callbacks.ready_made.result_values callbacks.ready_made.tensorboard
    callbacks.ready_made.tensorboard_results
callbacks.ready_made.result_loggers: callbacks.ready_made.background_writer
    callbacks.ready_made.result_logging callbacks.ready_made.siblings
callbacks.ready_made.saving: callbacks.ready_made.best_checkpoint
    callbacks.ready_made.periodic_checkpoint callbacks.ready_made.saving_callback
callbacks.ready_made.stopping: callbacks.ready_made.counts callbacks.ready_made.early_stopping
    callbacks.ready_made.non_finite_guard callbacks.ready_made.stop_criteria
callbacks.rllib_names: callbacks.old_arguments
callbacks.spec: callbacks.making callbacks.naming callbacks.problems callbacks.signatures
checkpoints.checkpointable: checkpoints.live_arrays checkpoints.restoring
checkpoints.code: checkpoints.moved_paths
checkpoints.codec: checkpoints.array_files checkpoints.decoding checkpoints.encoding
    checkpoints.messages checkpoints.refusals checkpoints.wire
checkpoints.components: checkpoints.component_tree checkpoints.constructors checkpoints.inside
    checkpoints.tree_checks
checkpoints.directory: checkpoints.retention
checkpoints.file_system: checkpoints.hashing
checkpoints.listing: checkpoints.directory_lock checkpoints.leftovers
checkpoints.manifest: checkpoints.migrations checkpoints.versions
checkpoints.reader: checkpoints.run_directories
checkpoints.writer: checkpoints.background checkpoints.whole_file
trainer.actors.connection: trainer.runtime.actor_answer trainer.runtime.actor_end
    trainer.runtime.actor_link trainer.runtime.actor_room
trainer.actors.handles: trainer.actors.start trainer.runtime.actor_class trainer.runtime.actor_start
    trainer.runtime.actor_states
trainer.actors.process: trainer.runtime.actor_process
trainer.actors.registry: trainer.runtime.actor_address trainer.runtime.actor_registry
trainer.algorithms.building: trainer.algorithms.registry
trainer.algorithms.checkpointing: trainer.algorithms.model_difference
    trainer.algorithms.restored_config trainer.algorithms.state
trainer.algorithms.dqn.dqn: trainer.algorithms.dqn.algorithm trainer.algorithms.dqn.config
    trainer.algorithms.dqn.learner trainer.algorithms.dqn.loss
trainer.algorithms.on_and_off_policy: trainer.algorithms.off_policy.algorithm
    trainer.algorithms.off_policy.config trainer.algorithms.on_policy
trainer.algorithms.pg.pg: trainer.algorithms.pg.algorithm trainer.algorithms.pg.config
    trainer.algorithms.pg.learner trainer.algorithms.pg.loss trainer.algorithms.pg.postprocessing
trainer.algorithms.policy_export: trainer.algorithms.onnx_export
trainer.algorithms.policy_graph: trainer.algorithms.onnx_graph trainer.modules.acting_layers
trainer.algorithms.ppo.ppo: trainer.algorithms.ppo.algorithm trainer.algorithms.ppo.config
    trainer.algorithms.ppo.learner trainer.algorithms.ppo.loss trainer.algorithms.ppo.postprocessing
trainer.algorithms.sac.sac: trainer.algorithms.sac.algorithm trainer.algorithms.sac.config
    trainer.algorithms.sac.learner trainer.algorithms.sac.loss trainer.algorithms.sac.target_critics
trainer.algorithms.training_iteration: trainer.algorithms.counters
    trainer.algorithms.iteration_result trainer.algorithms.run_clock
    trainer.algorithms.sample_exploration
trainer.cli.checkpoint_commands: trainer.cli.checkpoint_paths trainer.cli.comparing
    trainer.cli.inspection
trainer.cli.commands: trainer.cli.replaying
trainer.cli.main: trainer.cli.arguments
trainer.cli.run_directory: trainer.cli.run_plan
trainer.config.algorithm_config: trainer.config.specs
trainer.config.config_values: trainer.config.description trainer.config.dictionary
    trainer.config.foreign_names
trainer.config.sections: trainer.config.acting_sections trainer.config.callbacks_section
    trainer.config.env_runners_section trainer.config.environment_section
    trainer.config.evaluation_section trainer.config.run_sections trainer.config.training_sections
trainer.config.settings: trainer.config.checks trainer.config.names trainer.config.problems
    trainer.config.read_only trainer.config.setting trainer.config.values
trainer.config.validation: trainer.config.evaluation_rules trainer.config.rule trainer.config.rules
    trainer.evaluation.same_spaces
trainer.connectors.encoding: trainer.connectors.actions trainer.connectors.normalization
    trainer.connectors.normalization_statistics trainer.connectors.observations
trainer.connectors.pieces: trainer.connectors.connected_env
trainer.env_runners.acting: trainer.env_runners.action_source trainer.env_runners.exploring
    trainer.env_runners.perturbed_modules
trainer.env_runners.env_runner: trainer.env_runners.direct_runners trainer.env_runners.global_worker
    trainer.env_runners.playing_env_runner
trainer.env_runners.env_slot: trainer.env_runners.misshapen_answers trainer.env_runners.replay
    trainer.env_runners.slot_env_state trainer.env_runners.slot_tasks
trainer.env_runners.episode_player: trainer.env_runners.chunks_until_told
    trainer.env_runners.endless_episodes trainer.env_runners.episode_events
    trainer.env_runners.finished_records
trainer.env_runners.messages: trainer.env_runners.env_restarts trainer.env_runners.runner_parts
    trainer.env_runners.shares trainer.env_runners.spec
    trainer.env_runners.trajectory_postprocessing trainer.env_runners.whereabouts
trainer.env_runners.sub_env_repair: trainer.env_runners.env_making
trainer.env_runners.trajectories: trainer.env_runners.sample_checks trainer.env_runners.sample_event
    trainer.env_runners.trajectory_event
trainer.env_runners.worker_service: trainer.env_runners.servant
trainer.envs.env_checks: trainer.envs.episode_checks
trainer.envs.env_factory: trainer.envs.env_context trainer.envs.registry trainer.envs.vector_env
trainer.envs.env_state: trainer.envs.wrapper_states
trainer.envs.tasks: trainer.curriculum.layers trainer.curriculum.task_function
    trainer.curriculum.task_settable_env trainer.curriculum.tasks
trainer.episodes.conversion: trainer.episodes.other_rewards
trainer.episodes.episode_columns: trainer.episodes.alignment trainer.episodes.episode_returns
    trainer.episodes.given_data
trainer.episodes.episode_state: trainer.episodes.parts
trainer.episodes.lookback_buffer: trainer.episodes.filling trainer.episodes.indexing
    trainer.episodes.overwriting
trainer.episodes.nested: trainer.env_runners.observations
trainer.episodes.single_agent_episode: trainer.episodes.stopwatch
trainer.evaluation.evaluations: trainer.algorithms.algorithm_evaluation
    trainer.algorithms.evaluations trainer.evaluation.evaluation_function
    trainer.evaluation.evaluator trainer.evaluation.state_shape trainer.evaluation.subject
trainer.exploration.exploration: trainer.exploration.action_choice
    trainer.exploration.explored_sample trainer.exploration.nearest_name
    trainer.exploration.noise_numbers trainer.exploration.schedules trainer.exploration.settings
    trainer.exploration.sub_exploration
trainer.exploration.intrinsic_rewards: trainer.exploration.curiosity
    trainer.exploration.feature_network trainer.exploration.re3
trainer.exploration.strategies: trainer.exploration.discrete trainer.exploration.epsilon_greedy
    trainer.exploration.gaussian_noise trainer.exploration.making trainer.exploration.noise
    trainer.exploration.ornstein_uhlenbeck_noise trainer.exploration.parameter_noise
    trainer.exploration.random_actions trainer.exploration.soft_q
    trainer.exploration.stochastic_sampling trainer.exploration.uniform_actions
trainer.importing: trainer.interrupted_import trainer.sibling_packages
trainer.learners.columns: trainer.learners.minibatches trainer.learners.train_batch
trainer.learners.learner: trainer.learners.episode_learner trainer.learners.replay_learner
    trainer.learners.settings trainer.learners.target_network
trainer.metrics.episode_statistics: trainer.metrics.task_statistics
trainer.metrics.logger: trainer.metrics.block_timer trainer.metrics.statistic_table
trainer.metrics.result: trainer.metrics.comparable trainer.metrics.keys trainer.metrics.options
    trainer.metrics.paths trainer.metrics.result_key trainer.metrics.summary
trainer.metrics.statistic: trainer.metrics.exact_sum trainer.metrics.kept_values
    trainer.metrics.moments trainer.metrics.values_by_index
trainer.modules.actor_critic: trainer.modules.policy_module trainer.modules.spec
trainer.modules.model_config: trainer.modules.networks
trainer.modules.rl_module: trainer.modules.space_records
trainer.modules.sac_module: trainer.modules.critics
trainer.modules.spaces: trainer.modules.action_masks
trainer.nn.convolution: trainer.nn.image_network
trainer.nn.distributions: trainer.nn.bernoulli trainer.nn.categorical trainer.nn.gaussian
    trainer.nn.noise trainer.nn.squashed_gaussian
trainer.nn.layers: trainer.nn.acting trainer.nn.activations trainer.nn.initializers trainer.nn.mlp
trainer.nn.optimizers: trainer.nn.parameters trainer.nn.schedules
trainer.old_names: trainer.config.offered trainer.rllib_names.config_names
    trainer.rllib_names.refused_overrides
trainer.replay.replay_buffer: trainer.replay.making trainer.replay.prioritized
    trainer.replay.reduce_tree trainer.replay.state_shape
trainer.replay.step_ring: trainer.replay.column_rooms trainer.replay.nesting
    trainer.replay.transitions
trainer.rllib_names.algorithm: trainer.rllib_names.algorithm_names
    trainer.rllib_names.algorithms_not_offered trainer.rllib_names.policy_arguments
    trainer.rllib_names.saved_checkpoint
trainer.rllib_names.config: trainer.config.stack_sections trainer.rllib_names.config_sections
    trainer.rllib_names.stack_sections
trainer.rllib_names.episodes: trainer.episodes.rllib_names trainer.rllib_names.sample_batch_names
trainer.rllib_names.metrics: trainer.metrics.rllib_keys trainer.metrics.rllib_names
    trainer.rllib_names.constants
trainer.rllib_names.modules: trainer.modules.rllib_names trainer.rllib_names.model_names
trainer.rllib_names.runners: trainer.env_runners.rollout_worker trainer.evaluation.collecting
    trainer.rllib_names.env_runner_group_names trainer.rllib_names.env_runner_names
trainer.runner_group.asking: trainer.env_runners.async_calls trainer.runner_group.user_calls
trainer.runner_group.crash_files: trainer.env_runners.crash_files
trainer.runner_group.group: trainer.env_runners.env_runner_group
trainer.runner_group.plays: trainer.env_runners.group_sample trainer.env_runners.ticket_play
trainer.runner_group.records: trainer.env_runners.group_state trainer.env_runners.position_shape
    trainer.env_runners.runner_place trainer.runner_group.slot_states
trainer.runner_group.rounds: trainer.env_runners.last_words trainer.env_runners.local_round
    trainer.env_runners.request_round trainer.env_runners.rounds trainer.env_runners.trouble
trainer.runtime.local_engine: trainer.runtime.oom_kills
trainer.runtime.messages: trainer.runtime.outcomes trainer.runtime.worker_slot
trainer.runtime.process_start: trainer.runtime.fork_server trainer.runtime.import_path
    trainer.runtime.process_groups trainer.runtime.semaphores
trainer.runtime.run_lock: trainer.cli.run_lock
trainer.runtime.signals: trainer.cli.orderly_end trainer.runtime.deferred_signals
    trainer.runtime.orderly_end
trainer.runtime.threads: trainer.runtime.blas_threads trainer.runtime.garbage
    trainer.runtime.side_by_side
trainer.runtime.worker: trainer.runtime.unpacking trainer.runtime.worker_main
    trainer.runtime.worker_output
trainer.testing.checks: trainer.testing.env_states trainer.testing.gradients trainer.testing.modules
trainer.testing.envs: trainer.testing.debug_envs trainer.testing.state_envs
    trainer.testing.task_envs
trainer.testing.faults: trainer.testing.fault_watch trainer.testing.faulty_callback
    trainer.testing.faulty_envs trainer.testing.faulty_module trainer.testing.parcels
trainer.testing.processes: trainer.testing.killer trainer.testing.leaks trainer.testing.waiting
trainer.tune.trial_handler: trainer.tune.trial_servant
"""
"""Per module of today those that it was made of, since 0.1.0."""


@functools.cache
def _moved() -> dict[str, str]:
    """{module of an earlier version: module of today}."""
    moved = {}
    today = ""
    for word in _MODULES.split():
        if word.endswith(":"):
            today = word[:-1]
        else:
            moved[word] = today
    return moved


def current_module(name: str) -> str:
    """The module of today that holds what this one held; itself if it did not move."""
    return _moved().get(name, name)


def current_class(dotted: str) -> str:
    """The dotted path of a class, `package.module.Class`, as it is today.

    Classes inside classes are found too: the longest module that moved counts.
    """
    module, _, rest = dotted.rpartition(".")
    while module:
        if module in _moved():
            return f"{_moved()[module]}.{rest}"
        module, _, last = module.rpartition(".")
        rest = f"{last}.{rest}"
    return dotted


def load_code(data: bytes) -> Any:
    """Unpickles code of ours or of a user; references to modules that moved are followed.

    It runs whatever the data say: for callers who were allowed to.
    """
    return _Unpickler(io.BytesIO(data)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return super().find_class(current_module(module_name), global_name)
