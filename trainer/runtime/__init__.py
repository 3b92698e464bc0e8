"""Worker processes that may die: starting, asking, noticing, replacing.

Knows nothing of reinforcement learning.
"""
