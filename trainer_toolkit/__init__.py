"""What `trainer`, `callbacks` and `checkpoints` are all built with; private to them.

Checks of values, nearest names for errors, walks over nested values, files written whole, and what
an interrupt leaves whole. It imports none of the three, and offers users nothing: its names may
change with any version.
"""
