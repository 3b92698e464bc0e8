"""Callbacks that are ready to be used; one file per idea."""
