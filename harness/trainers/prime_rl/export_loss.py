"""Makes `ablation_loss.py`: this project's losses as one file for prime-rl's environment.

prime-rl imports a custom loss by path. Its environment has torch but not this package, and may have
another package of this name. So the definitions that `compute` of `loss_adapter` needs are copied,
text for text, from the modules of this project into one file that imports torch and the standard
library only. They are defined once, here; nobody edits the file.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

from harness import __version__
from harness.records.files import write_atomic
from harness.trainers.prime_rl.loss_knobs import KNOBS, Knob

LOSS_FILE = "ablation_loss.py"
"""The file's name; the folder that holds it goes on PYTHONPATH."""

LOSS_IMPORT_PATH = "ablation_loss.compute"
"""`import_path` of prime-rl's custom loss."""

_PACKAGE = "harness"
_ROOT = Path(__file__).parents[2]
_MODULES = (
    "losses/config.py",
    "losses/arrays.py",
    "losses/quantities.py",
    "losses/masks.py",
    "losses/policy.py",
    "trainers/prime_rl/loss_knobs.py",
    "trainers/prime_rl/loss_adapter.py",
)
"""In this order: a table stands after the functions that it names."""

_FORMULAS = "losses/policy.py"
_ENTRY = "compute"

_HEADER = '''\
"""RL losses for prime-rl's custom loss, in one file that needs torch alone. Generated: don't edit.

Made by ablation-harness {version} (code {code_hash}); SHA-256 of the definitions below:
{content_hash}.

    [trainer.loss]
    type = "custom"
    import_path = "{import_path}"

    [trainer.loss.kwargs]
    type = "kpop"
    phi = 0.1

with the folder of this file on PYTHONPATH. `compute` says what it takes and gives: a sum, which is
the loss below with an N of 1; prime-rl divides it.

{formulas}
"""
'''

_STAND_INS = '''\
__all__ = ["compute"]

LossConfig: TypeAlias = Any
"""A loss's name and knobs, as attributes."""


class UsageError(ValueError):
    """What the loss was given can't be used."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} ({hint})" if hint else message)'''
_STAND_IN_NAMES = frozenset({"LossConfig", "UsageError"})


@dataclass(frozen=True)
class _Definition:
    """A top-level function, class or constant.

    Attributes:
        text: its lines, with decorators, the comment above and the docstring below.
        names: every name that it mentions.
        imports: what its module imports from elsewhere: name -> (module, name or "").
        internal: what its module imports from this package.
    """

    name: str
    text: str
    names: frozenset[str]
    imports: dict[str, tuple[str, str]]
    internal: frozenset[str]


def export_source(code_hash: str = "") -> str:
    """Return the text of `ablation_loss.py`. Equal code and hash give equal text.

    Args:
        code_hash: names the code in the file's header (the hash or commit that a run records).

    Raises:
        ValueError: the losses use something that can't be copied: a fault of this program.
    """
    definitions: dict[str, _Definition] = {}
    for module in _MODULES:
        for definition in _read_definitions(_ROOT / module):
            if definition.name in definitions:
                raise ValueError(f"{module}: `{definition.name}` is defined in two modules")
            definitions[definition.name] = definition
    needed = _closure(definitions)
    chosen = [definition for name, definition in definitions.items() if name in needed]
    used = {name: d.imports[name] for d in chosen for name in d.names if name in d.imports}
    used |= {name: ("typing", name) for name in ("Any", "TypeAlias")}
    parts = [f"{_imports_text(set(used.values()))}\n\n{_STAND_INS}", *(d.text for d in chosen)]
    body = "\n\n\n".join(parts)
    formulas = ast.get_docstring(ast.parse((_ROOT / _FORMULAS).read_text("utf-8"))) or ""
    header = _HEADER.format(
        version=__version__,
        code_hash=code_hash or "not named",
        content_hash=hashlib.sha256(body.encode()).hexdigest(),
        import_path=LOSS_IMPORT_PATH,
        formulas=formulas,
    )
    return f"{header}\n{body}\n"


def write_loss_file(folder: Path, code_hash: str = "") -> Path:
    """Write `ablation_loss.py` into `folder`, which exists, and return its path.

    A file that already holds the same text is left alone: runs that go on may be reading it.
    """
    path = folder / LOSS_FILE
    text = export_source(code_hash)
    if not path.is_file() or path.read_text("utf-8") != text:
        write_atomic(path, text)
    return path


def _read_definitions(path: Path) -> list[_Definition]:
    """Return what `path` defines, with references to other modules of this package made plain."""
    source = path.read_text("utf-8")
    imports, internal = _read_imports(ast.parse(source))
    source = _without_prefixes(source, internal & {Path(module).stem for module in _MODULES})
    lines = source.splitlines()
    nodes = ast.parse(source).body
    definitions = []
    for i, node in enumerate(nodes):
        name = _defined_name(node)
        if name is None or name == "__all__":
            continue
        text = _text_of(lines, node, nodes[i + 1] if i + 1 < len(nodes) else None)
        names = frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        if name == "KNOBS":
            text, names = _knobs_text(), frozenset({"Knob"})
        definitions.append(_Definition(name, text, names, imports, internal))
    return definitions


def _read_imports(tree: ast.Module) -> tuple[dict[str, tuple[str, str]], frozenset[str]]:
    """Return the imports from elsewhere, and the names imported from this package."""
    imports: dict[str, tuple[str, str]] = {}
    internal: set[str] = set()
    for node in tree.body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if any(alias.asname for alias in node.names):
            raise ValueError(f"line {node.lineno}: an import under another name can't be exported")
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.Import):
            imports |= {name: (name, "") for name in names}
        elif node.module is not None and node.module.partition(".")[0] == _PACKAGE:
            internal |= set(names)
        elif node.module is not None and node.module != "__future__":
            imports |= {name: (node.module, name) for name in names}
    return imports, frozenset(internal)


def _without_prefixes(source: str, aliases: frozenset[str]) -> str:
    """Return `source` with `masks.drop_mask` as `drop_mask`; text and comments stay."""
    lines = source.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for i in range(len(tokens) - 2, 0, -1):
        token, dot = tokens[i], tokens[i + 1]
        is_prefix = token.type == tokenize.NAME and token.string in aliases
        if is_prefix and dot.string == "." and tokens[i - 1].string != ".":
            row = token.start[0] - 1
            lines[row] = lines[row][: token.start[1]] + lines[row][dot.end[1] :]
    return "".join(lines)


def _defined_name(node: ast.stmt) -> str | None:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node.name
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _text_of(lines: list[str], node: ast.stmt, following: ast.stmt | None) -> str:
    """Return the lines of `node` with the comment right above it and the docstring below."""
    decorators = getattr(node, "decorator_list", [])
    start = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    while start and lines[start - 1].startswith("#"):
        start -= 1
    end = node.end_lineno
    if (
        not isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
    ):
        end = following.end_lineno
    return "\n".join(lines[start:end])


def _knobs_text() -> str:
    """Return the table of knobs as a literal: the dataclasses it is made from stay here."""
    lines = ["KNOBS: dict[str, dict[str, Knob]] = {"]
    for loss, knobs in KNOBS.items():
        lines.append(f'    "{loss}": {{')
        lines += [f'        "{name}": {_knob_text(knob)},' for name, knob in knobs.items()]
        lines.append("    },")
    return "\n".join([*lines, "}", '"""By `type`: the knobs of that loss."""'])


def _knob_text(knob: Knob) -> str:
    bounds = {name: getattr(knob, name) for name in ("ge", "gt", "le", "lt")}
    given = [f"{name}={bound!r}" for name, bound in bounds.items() if bound is not None]
    return f"Knob({', '.join([repr(knob.default), *given])})".replace("e+", "e")


def _closure(definitions: dict[str, _Definition]) -> set[str]:
    """Return the names that `compute` needs, directly or through others."""
    needed: set[str] = set()
    waiting = [_ENTRY]
    while waiting:
        name = waiting.pop()
        if name in needed or name in _STAND_IN_NAMES:
            continue
        needed.add(name)
        definition = definitions[name]
        lost = definition.names & definition.internal - set(definitions) - _STAND_IN_NAMES
        if lost:
            raise ValueError(f"`{name}` uses {', '.join(sorted(lost))}, which is not exported")
        waiting += [other for other in definition.names if other in definitions]
    return needed


def _imports_text(imports: set[tuple[str, str]]) -> str:
    """Return import statements in the order of this project: standard library, then the rest."""
    parts = ["from __future__ import annotations"]
    for is_standard in (True, False):
        mine = {
            (module, name)
            for module, name in imports
            if (module.partition(".")[0] in sys.stdlib_module_names) == is_standard
        }
        lines = sorted(f"import {module}" for module, name in mine if not name)
        for module in sorted({module for module, name in mine if name}):
            names = sorted(n for m, n in mine if m == module and n)
            names.sort(key=lambda name: not re.match("[A-Z]", name))
            lines.append(f"from {module} import {', '.join(names)}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
