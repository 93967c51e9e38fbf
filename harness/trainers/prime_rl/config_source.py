"""Finds classes and names in the source of a prime-rl checkout, as text: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Definition = ast.ClassDef | ast.FunctionDef | ast.expr


@dataclass(frozen=True)
class Module:
    """What one file defines and imports.

    Attributes:
        name: dotted, as other files import it.
        definitions: classes, functions, and what is assigned to a name (a type alias).
        imports: name -> (module, name there); a name of None is the module itself.
        stars: modules from which every name is imported.
    """

    name: str
    definitions: Mapping[str, Definition]
    imports: Mapping[str, tuple[str, str | None]]
    stars: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """A definition and the module that it stands in."""

    module: Module
    name: str
    node: Definition


@dataclass(frozen=True)
class External:
    """A name of another package, or one that could not be followed."""

    name: str


@dataclass
class Source:
    """The Python files below some folders, read when they are asked for.

    A file that is missing or no Python for this interpreter has no definitions: its names are
    external.
    """

    roots: Sequence[Path]
    _modules: dict[str, Module | None] = field(default_factory=dict)

    def module(self, name: str) -> Module | None:
        """Return the module called `name`; None where there is none that can be read."""
        if name not in self._modules:
            self._modules[name] = next(
                filter(None, map(_read, self._files(name), [name] * 9)), None
            )
        return self._modules[name]

    def _files(self, name: str) -> Iterator[Path]:
        for root in self.roots:
            path = root.joinpath(*name.split("."))
            yield path.with_name(f"{path.name}.py")
            yield path / "__init__.py"

    def find(self, module: Module, node: ast.expr) -> Found | External:
        """Return what a name (`LossConfig`) or a dotted name (`shared.LossConfig`) stands for."""
        if isinstance(node, ast.Name):
            return self._find(module, node.id, ())
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            head, _, rest = dotted.partition(".")
            target, name = module.imports.get(head, (head, None))
            place = target if name is None else f"{target}.{name}"
            middle, _, last = rest.rpartition(".")
            inner = self.module(f"{place}.{middle}" if middle else place)
            return External(f"{place}.{rest}") if inner is None else self._find(inner, last, ())
        return External(ast.unparse(node))

    def _find(self, module: Module, name: str, seen: tuple[str, ...]) -> Found | External:
        here = f"{module.name}.{name}"
        if here in seen:
            return External(here)
        if name in module.definitions:
            return Found(module, name, module.definitions[name])
        places = [module.imports[name]] if name in module.imports else []
        places += [(star, name) for star in module.stars]
        external = External(name)
        for target, inner_name in places:
            external = External(target if inner_name is None else f"{target}.{inner_name}")
            inner = self.module(target)
            if inner is None or inner_name is None:
                continue
            found = self._find(inner, inner_name, (*seen, here))
            if isinstance(found, Found) or found.name != inner_name:
                return found
        return external


def _read(path: Path, name: str) -> Module | None:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError, RecursionError):
        return None
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    definitions: dict[str, Definition] = {}
    imports: dict[str, tuple[str, str | None]] = {}
    stars: list[str] = []
    for node in _statements(tree.body):
        match node:
            case ast.ClassDef(name=defined) | ast.FunctionDef(name=defined):
                definitions[defined] = node
            case ast.Assign(targets=[ast.Name(id=defined)], value=value):
                definitions[defined] = value
            case ast.AnnAssign(target=ast.Name(id=defined), value=ast.expr() as value):
                definitions[defined] = value
            case ast.Import(names=aliases):
                for alias in aliases:
                    head = alias.name.partition(".")[0]
                    imports[alias.asname or head] = (alias.name if alias.asname else head, None)
            case ast.ImportFrom(module=written, names=aliases, level=level):
                target = _absolute(package, written, level)
                stars += [target for alias in aliases if alias.name == "*"]
                for alias in aliases:
                    imports[alias.asname or alias.name] = (target, alias.name)
    return Module(name, definitions, imports, tuple(stars))


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, also those under `if TYPE_CHECKING:` and `try:`."""
    for node in body:
        yield node
        for part in ("body", "orelse", "handlers", "finalbody"):
            inner = getattr(node, part, []) if isinstance(node, (ast.If, ast.Try)) else []
            for item in inner:
                yield from _statements(item.body if isinstance(item, ast.ExceptHandler) else [item])


def _absolute(package: str, written: str | None, level: int) -> str:
    if not level:
        return written or ""
    parts = package.split(".")
    kept = parts[: len(parts) - level + 1]
    return ".".join([*kept, *([written] if written else [])])
