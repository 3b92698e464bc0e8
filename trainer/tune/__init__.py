"""Tuning: searches settings with many trials, and survives every kill exactly."""
