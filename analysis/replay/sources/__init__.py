"""Readers of token records: this project's, prime-rl's, and tables of any origin."""

from analysis.replay.sources.locate import open_tokens, runs_or_files

__all__ = ["open_tokens", "runs_or_files"]
