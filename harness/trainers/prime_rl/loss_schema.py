"""Which losses and knobs a version of prime-rl has.

prime-rl renames knobs without aliases, so what can be rendered depends on the checkout. Its
declarations are read as text (nothing of prime-rl is imported): the classes joined in `LossConfig`,
each with a literal `type` and annotated fields.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.near import did_you_mean

SOURCE_FILES = (
    "packages/prime-rl-configs/src/prime_rl/configs/trainer.py",
    "src/prime_rl/configs/trainer.py",
    "src/prime_rl/trainer/rl/config.py",
)
"""Where a checkout declares its losses, newest layout first."""

_UNION = "LossConfig"
_TAG = "type"


@dataclass(frozen=True)
class LossSchema:
    """The losses of one version of prime-rl.

    Attributes:
        name: what messages call the version.
        knobs: `type` -> names of its knobs, without `type`.
    """

    name: str
    knobs: Mapping[str, tuple[str, ...]]


_CUSTOM = ("import_path", "kwargs")

SCHEMAS: Mapping[str, LossSchema] = {
    schema.name: schema
    for schema in (
        LossSchema(
            "2798",
            {
                "default": ("dppo_mask_low", "dppo_mask_high", "adv_tau", "kl_tau"),
                "ipo": ("ipo_threshold", "adv_tau", "kl_tau"),
                "custom": _CUSTOM,
            },
        ),
        LossSchema("3418", {"ipo": ("eps", "adv_tau", "kl_tau"), "custom": _CUSTOM}),
        LossSchema(
            "3526",
            {
                "ipo": ("eps", "adv_tau", "kl_tau"),
                "icepop": ("ratio_low", "ratio_high", "adv_tau"),
                "custom": _CUSTOM,
            },
        ),
        LossSchema(
            "newest",
            {
                "ipo": ("eps", "max_importance_ratio", "adv_tau", "score_centering"),
                "icepop": ("ratio_low", "ratio_high", "adv_tau"),
                "ppo": ("ratio_low", "ratio_high", "max_importance_ratio", "adv_tau"),
                "cispo": ("ratio_low", "ratio_high", "adv_tau"),
                "custom": _CUSTOM,
            },
        ),
    )
}
"""Versions by name: the pull request of prime-rl that gave the losses this shape (2798: 2026-06-13,
3418: 2026-08-27, 3526: 2026-09-10), and `newest`, the newest known."""


def find_schema(version: str) -> LossSchema:
    """Return the version called `version`. Raises UsageError with the near miss."""
    if version not in SCHEMAS:
        raise UsageError(
            f"there is no known version {version!r} of prime-rl's losses",
            did_you_mean(version, SCHEMAS, what="versions"),
        )
    return SCHEMAS[version]


def read_checkout(checkout: Path) -> LossSchema:
    """Return what the prime-rl checkout in `checkout` declares; named as in SCHEMAS where it fits.

    Raises:
        UsageError: no checkout of prime-rl, or declarations that this can't read.
    """
    for name in SOURCE_FILES:
        path = checkout / name
        try:
            text = path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"`{path}` can't be read: {error}", "check the checkout") from None
        return parse_schema(text, str(path))
    raise UsageError(
        f"`{checkout}` declares no losses of prime-rl (no `{SOURCE_FILES[0]}`)",
        "give the folder of a prime-rl checkout, or name its version",
    )


def parse_schema(source: str, where: str) -> LossSchema:
    """Return the losses that the Python text `source` declares.

    Raises:
        UsageError: naming `where`: no Python, no union `LossConfig`, a member without a literal
            `type`, or no loss `custom`.
    """
    hint = "name the version of its losses instead"
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise UsageError(f"{where}:{line or 1}: not valid Python", hint) from None
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    members = [name for name in _union_members(module) if name in classes]
    if not members:
        raise UsageError(f"`{where}` has no union `{_UNION}` of prime-rl's losses", hint)
    knobs: dict[str, tuple[str, ...]] = {}
    for member in members:
        fields = dict(_fields(classes, member))
        tag = _literal(fields.pop(_TAG, None))
        if tag is None:
            raise UsageError(f"`{where}`: the loss `{member}` has no literal `type`", hint)
        knobs[tag] = tuple(fields)
    if not set(_CUSTOM) <= set(knobs.get("custom", ())):
        raise UsageError(f"`{where}` declares no loss `custom` with {_CUSTOM}", hint)
    for schema in SCHEMAS.values():
        if {tag: set(names) for tag, names in schema.knobs.items()} == {
            tag: set(names) for tag, names in knobs.items()
        }:
            return schema
    return LossSchema(where, knobs)


def _union_members(module: ast.Module) -> list[str]:
    for node in module.body:
        if isinstance(node, ast.AnnAssign):
            targets: list[ast.expr] = [node.target]
        elif isinstance(node, ast.Assign):
            targets = node.targets
        else:
            continue
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if _UNION in names and node.value is not None:
            return [part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)]
    return []


def _fields(classes: Mapping[str, ast.ClassDef], name: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield the annotated fields of a class of this file, inherited ones first."""
    node = classes[name]
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes and base.id != name:
            yield from _fields(classes, base.id)
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=field), annotation=annotation):
                if not ast.unparse(annotation).startswith("ClassVar"):
                    yield field, annotation


def _literal(annotation: ast.expr | None) -> str | None:
    """Return x of `Literal["x"]`."""
    if not isinstance(annotation, ast.Subscript) or not isinstance(annotation.slice, ast.Constant):
        return None
    value = annotation.slice.value
    return value if isinstance(value, str) else None
