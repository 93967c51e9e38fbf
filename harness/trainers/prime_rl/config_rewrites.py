"""Which keys the validators of a class take beside its fields.

A validator that runs before the fields are read may take keys that are no fields (old names) or
rewrite the values of others. Its source says which: the keys that it looks up by name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.trainers.prime_rl.config_source import Found, Module, Source

_LOOKUPS = frozenset(("get", "pop", "setdefault"))
_MAX_CALLS = 3


@dataclass(frozen=True)
class Rewrites:
    """What a validator does to the keys of a table.

    Attributes:
        names: that it may take, whatever they hold.
        fields: that it looks up by name, and so may rewrite.
    """

    names: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()

    def __or__(self, other: Rewrites) -> Rewrites:
        return Rewrites(self.names | other.names, self.fields | other.fields)


def find_rewrites(
    source: Source, module: Module, nodes: Sequence[ast.AST], calls: int = 0
) -> Rewrites:
    """Return what the code in `nodes` does, with the functions of the same package that it calls.

    Code of other packages counts as doing nothing.
    """
    names: set[object] = set()
    fields: set[object] = set()
    deeper = Rewrites()
    for part in (part for node in nodes for part in ast.walk(node)):
        match part:
            case ast.Call(func=ast.Attribute(attr=lookup), args=[ast.Constant(value=key), *_]):
                if lookup in _LOOKUPS:
                    fields.add(key)
            case ast.Call(func=ast.Name(), args=arguments):
                names.update(a.value for a in arguments if isinstance(a, ast.Constant))
            case ast.Subscript(slice=ast.Constant(value=key)):
                fields.add(key)
            case ast.Compare(left=ast.Constant(value=key), ops=[ast.In() | ast.NotIn()]):
                fields.add(key)
            case ast.Tuple() | ast.List() | ast.Set() | ast.Dict():
                names.update(_keys(part))
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()) if calls < _MAX_CALLS:
                found = source.find(module, part)
                if not isinstance(found, Found):
                    continue
                if isinstance(
                    found.node, (ast.FunctionDef, ast.Dict, ast.Tuple, ast.List, ast.Set)
                ):
                    deeper |= find_rewrites(source, found.module, [found.node], calls + 1)
    return deeper | Rewrites(frozenset(_identifiers(names)), frozenset(_identifiers(fields)))


def _keys(node: ast.Tuple | ast.List | ast.Set | ast.Dict) -> Iterator[object]:
    for item in node.keys if isinstance(node, ast.Dict) else node.elts:
        if isinstance(item, ast.Constant):
            yield item.value


def _identifiers(keys: set[object]) -> Iterator[str]:
    return (key for key in keys if isinstance(key, str) and key.isidentifier())
