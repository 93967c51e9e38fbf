"""The `trainer` group when `trainer.type` is `prime_rl`, and what its types don't catch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.config.fields import choice, output
from harness.errors import UsageError, VariableError
from harness.trainers.command import check_env_name
from harness.trainers.prime_rl.loss_schema import LossSchema, find_schema, read_checkout
from harness.trainers.prime_rl.merge import check_key
from harness.trainers.prime_rl.needs import FIXED_PORTS, OWN_PORTS
from harness.trainers.prime_rl.owned import RUN_ID_ENV

CHECKOUT_ENV = "PRIME_RL_CHECKOUT"
"""Names the folder of prime-rl where `trainer.checkout` doesn't."""
SEED_KEYS = "trainer.seed_keys"

_OWN_ENV = (RUN_ID_ENV, "PRL_RUN_NAME", "WANDB_RUN_ID")
_BY_CHECKOUT = "checkout"


@dataclass(frozen=True, kw_only=True)
class PrimeRlConfig:
    """The `trainer` group when `trainer.type` is `prime_rl`.

    Attributes:
        checkout: folder of prime-rl, which runs start in; None: PRIME_RL_CHECKOUT says it.
        command: what starts its `rl` there, before the arguments.
        base: prime-rl's files, merged from left to right; a path from the current folder, or the
            name of a file in `conf/prime_rl`.
        native: prime-rl's own keys, merged over the files.
        patch: then single overrides of it: `a.b.0.c=1`, `~a.b`.
        seed_keys: keys of prime-rl that get the run's seed. Without, seeds are reruns.
        loss_version: which losses prime-rl has: `checkout` reads its declarations. Text, or a whole
            number, which means the same.
        validate: how arms are checked before anything is queued: by prime-rl's dry run, by its
            declarations alone, or `auto`: by the dry run where the checkout can run it.
        ports: of a single-node run: `own` gives each its own, `fixed` leaves prime-rl's.
        env: variables to set. Never secrets: the config is a file that others read.
        replaced: set by the harness: keys of the files that gave way, with their values.
        sources: set by the harness: what `native` was composed of.
    """

    type: str = choice("prime_rl", "prime_rl")
    checkout: str | None = output(None)
    command: tuple[str, ...] = output(("uv", "run", "--no-sync", "rl"))
    base: tuple[str, ...]
    native: dict[str, Any] = field(default_factory=dict)
    patch: tuple[str, ...] = ()
    seed_keys: tuple[str, ...] = ()
    loss_version: Any = _BY_CHECKOUT
    validate: str = choice("auto", "auto", "dry_run", "schema", is_output=True)
    ports: str = choice(OWN_PORTS, OWN_PORTS, FIXED_PORTS, is_output=True)
    env: dict[str, str] = output(default_factory=dict)
    replaced: dict[str, Any] = output(default_factory=dict)
    sources: tuple[str, ...] = output(())


def check_settings(config: Mapping[str, Any]) -> None:
    """Refuse what the types of the `trainer` group don't catch. No file of `base` is read.

    Raises:
        UsageError: names the key and the value.
    """
    trainer = config["trainer"]
    if not trainer["base"]:
        raise UsageError(
            "`trainer.base` is empty", "name prime-rl's files: trainer.base=[rl.toml,mine.toml]"
        )
    if not trainer["command"] or not trainer["command"][0]:
        raise UsageError("`trainer.command` is empty", "for example [uv, run, --no-sync, rl]")
    for key in ("replaced", "sources"):
        if trainer[key]:
            raise UsageError(f"`trainer.{key}` is set by the harness", "leave it out")
    _check_env(trainer["env"])
    texts = {f"trainer.command[{i}]": text for i, text in enumerate(trainer["command"])}
    texts |= {f"trainer.env.{name}": text for name, text in trainer["env"].items()}
    for key, text in texts.items():
        if "\0" in text:
            raise UsageError(
                f"`{key}` is {text!r}: no program can be given a zero byte", "leave it out"
            )
    for key in trainer["seed_keys"]:
        check_key(key, origin=f"`{SEED_KEYS}`")
    version = trainer["loss_version"]
    if not isinstance(version, (str, int)) or isinstance(version, bool):
        raise UsageError(
            f"`trainer.loss_version` is {version!r}, want text or a whole number",
            f"name a version, or `{_BY_CHECKOUT}`",
        )
    find_loss_schema(trainer, find_checkout(trainer))


def find_checkout(trainer: Mapping[str, Any]) -> Path:
    """Return the folder of prime-rl, as an absolute path.

    Raises:
        UsageError: none is given, or there is no such folder.
    """
    given = trainer["checkout"]
    text = os.environ.get(CHECKOUT_ENV, "") if given is None else given
    if not text:
        unset = "empty" if CHECKOUT_ENV in os.environ else "not set"
        what = f"null and {CHECKOUT_ENV} is {unset}" if given is None else "empty"
        raise UsageError(
            f"`trainer.checkout` is {what}, so there is no prime-rl to start",
            f"clone prime-rl and `uv sync` it, then `export {CHECKOUT_ENV}=<its folder>`",
        )
    try:
        folder = Path(text).expanduser().absolute()  # links stay: nodes know them
        is_folder = folder.is_dir()
    except (OSError, RuntimeError, ValueError):
        is_folder = False
    if not is_folder:
        raise checkout_error(
            trainer, f" is {text!r}, which is no folder", "give the folder of a prime-rl checkout"
        )
    return folder


def checkout_error(trainer: Mapping[str, Any], what: str, hint: str) -> UsageError:
    """Return the error about the checkout that begins with what names it, followed by `what`."""
    if trainer["checkout"] is None:
        return VariableError(f"{CHECKOUT_ENV}{what}", hint)
    return UsageError(f"`trainer.checkout`{what}", hint)


def find_loss_schema(trainer: Mapping[str, Any], checkout: Path) -> LossSchema:
    """Return which losses prime-rl has, by `trainer.loss_version`.

    Raises:
        UsageError: a version that is unknown, or a checkout without readable declarations.
    """
    version = str(trainer["loss_version"])
    if version != _BY_CHECKOUT:
        try:
            return find_schema(version)
        except UsageError as error:
            raise UsageError(f"`trainer.loss_version`: {error.message}", error.hint) from None
    try:
        return read_checkout(checkout)
    except UsageError as error:
        raise checkout_error(trainer, f": {error.message}", error.hint) from None


def _check_env(env: Mapping[str, str]) -> None:
    for name in env:
        check_env_name(name)
        if name in _OWN_ENV:
            raise UsageError(
                f"`trainer.env.{name}` names a run, and the harness names runs",
                "leave it out: each run gets its own, the same for all its attempts",
            )
