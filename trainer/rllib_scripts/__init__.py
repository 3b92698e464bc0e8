"""Scripts written for RLlib: what becomes of them here, and how they run as they are.

Nothing is imported here: the hook alone belongs to every process of such a script.
"""
