"""Compose, dispatch and record ablations of RL losses."""

__version__ = "0.1.0"
