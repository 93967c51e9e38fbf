# mypy: ignore-errors
"""TEST DOUBLE of prime-rl: where its configs get their base class from."""

from pydantic_config import BaseConfig, cli

__all__ = ["BaseConfig", "cli", "dump"]


def dump(config, exclude=None):
    """Return a config as JSON holds it, nulls included."""
    return config.model_dump(exclude=exclude, mode="json")
