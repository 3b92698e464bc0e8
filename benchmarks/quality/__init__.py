"""How well algorithms learn, ours and those of peers with the same settings.

    python -m benchmarks.quality                         every task, 5 seeds, ours and peers
    python -m benchmarks.quality "PPO Hopper-v5" --seeds 3 --jobs 2
    python -m benchmarks.quality --show                  the table of what was run

A run is one task, trainer and seed, in a process of its own; its results are one file below
`benchmarks/quality/results`, so that a campaign can be stopped, gone on with and shared out.

    tasks.py        the envs, with settings in the words of RL Baselines3 Zoo
    ours.py         those settings as a config of ours, and a run of it
    theirs.py       the same for Stable-Baselines3 and sb3-contrib
    runs.py         what is measured in a run, and its file
    statistics.py   interquartile means, intervals, probability of improvement
    __main__.py     the command
"""
