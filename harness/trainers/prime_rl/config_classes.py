"""From pydantic classes in source text to the shapes of `config_shapes`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.trainers.prime_rl.config_rewrites import Rewrites, find_rewrites
from harness.trainers.prime_rl.config_shapes import (
    Anything,
    Items,
    OneOf,
    Shape,
    Table,
    TableRef,
    Tagged,
    Values,
)
from harness.trainers.prime_rl.config_source import Found, Module, Source

_TAG = "type"
_STRICT = {("pydantic_config", "BaseConfig"), ("pydantic_settings", "BaseSettings")}
"""Classes of other packages that refuse keys which they don't have."""
_LAX = {("pydantic", "BaseModel")}
"""Classes of other packages that ignore such keys, unless told otherwise."""
_NEUTRAL = frozenset(("ABC", "Generic", "Protocol", "object"))
_SCALARS = frozenset(
    ("bool", "bytes", "complex", "date", "datetime", "float", "int", "None", "Path", "str", "time")
)
_LISTS = frozenset(("frozenset", "list", "List", "Sequence", "set", "Set"))
_TABLES = frozenset(("dict", "Dict", "Mapping", "MutableMapping"))
_WRAPPERS = frozenset(("Final", "Required", "SerializeAsAny"))
_REWRITERS = frozenset(("BeforeValidator", "PlainValidator", "WrapValidator"))
_MAX_DEPTH = 40

_SCALAR = OneOf(())
"""What no table can be: it drops out of a union."""


@dataclass
class Builder:
    """Makes shapes, and the tables that they refer to."""

    source: Source
    tables: dict[str, Table] = field(default_factory=dict)

    def shape_of(self, found: Found, depth: int = 0) -> Shape:
        """Return the shape of a class or of a type alias."""
        if isinstance(found.node, ast.expr):
            return self._shape(found.module, found.node, depth)
        if not isinstance(found.node, ast.ClassDef):
            return Anything()
        key = f"{found.module.name}.{found.name}"
        if key not in self.tables:
            # A class that holds itself finds this while it is read.
            self.tables[key] = Table(found.name, {}, {}, is_open=True)
            self.tables[key] = self._table(found.module, found.node)
        return TableRef(key)

    # Annotations

    def _shape(self, module: Module, node: ast.expr, depth: int) -> Shape:
        if depth > _MAX_DEPTH:
            return Anything()
        match node:
            case ast.Constant(value=None):
                return _SCALAR
            case ast.Constant(value=str() as text):
                quoted = _parse(text)
                return Anything() if quoted is None else self._shape(module, quoted, depth + 1)
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                return self._union(module, [left, right], depth)
            case ast.Subscript(value=outer, slice=inner):
                given = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                return self._subscript(module, outer, given, depth)
            case ast.Name() | ast.Attribute():
                found = self.source.find(module, node)
                if isinstance(found, Found):
                    return self.shape_of(found, depth + 1)
                return _SCALAR if _last(found.name) in _SCALARS else Anything()
        return Anything()

    def _subscript(
        self, module: Module, outer: ast.expr, given: Sequence[ast.expr], depth: int
    ) -> Shape:
        found = self.source.find(module, outer)
        if isinstance(found, Found):
            return self.shape_of(found, depth + 1)
        name = _last(found.name)
        if name == "Literal":
            return _SCALAR
        if name in ("Optional", "Union"):
            return self._union(module, given, depth)
        if name == "Annotated":
            return self._annotated(module, given[0], given[1:], depth)
        if name in _WRAPPERS:
            return self._shape(module, given[0], depth + 1)
        if name in _LISTS or (name in ("tuple", "Tuple") and _is_any_length(given)):
            return Items(_settled(self._shape(module, given[0], depth + 1)))
        if name in _TABLES and len(given) == 2:
            return Values(_settled(self._shape(module, given[1], depth + 1)))
        return Anything()

    def _annotated(
        self, module: Module, node: ast.expr, extras: Sequence[ast.expr], depth: int
    ) -> Shape:
        """Return the shape of `node` as told apart or rewritten by what stands beside it."""
        shape = self._shape(module, node, depth + 1)
        for extra in extras:
            if not isinstance(extra, ast.Call):
                continue
            if _last(ast.unparse(extra.func)) in _REWRITERS:
                rewrites = find_rewrites(self.source, module, extra.args)
                if rewrites != Rewrites():
                    return Anything()
            for tag in _discriminators(extra):
                if not isinstance(tag, ast.Constant) or not isinstance(tag.value, str):
                    return Anything()
                shape = self._tagged(_options(shape), tag.value)
        return shape

    def _union(self, module: Module, members: Sequence[ast.expr], depth: int) -> Shape:
        shapes = [self._shape(module, member, depth + 1) for member in members]
        options = tuple(option for shape in shapes for option in _options(shape))
        if any(isinstance(option, Anything) for option in options):
            return Anything()
        if len(options) > 1 and all(isinstance(option, TableRef) for option in options):
            tagged = self._tagged(options, _TAG)
            if tagged.is_complete and len(tagged.options) == len(options):
                return tagged
        return options[0] if len(options) == 1 else OneOf(options)

    def _tagged(self, options: Sequence[Shape], tag: str) -> Tagged:
        by_tag: dict[str, Shape] = {}
        is_complete = True
        for option in options:
            texts = self.tables[option.name].tags.get(tag) if isinstance(option, TableRef) else None
            is_complete = is_complete and bool(texts)
            by_tag |= dict.fromkeys(texts or (), option)
        return Tagged(tag, by_tag, is_complete)

    # Classes

    def _table(self, module: Module, node: ast.ClassDef) -> Table:
        fields: dict[str, Shape] = {}
        tags: dict[str, tuple[str, ...]] = {}
        is_open: bool | None = None
        for base in node.bases:
            inherited = self._base(module, base)
            if inherited is not None:
                fields = {**inherited.fields, **fields}
                tags = {**inherited.tags, **tags}
                is_open = inherited.is_open
        rewrites = Rewrites()
        for statement in node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                    if name.startswith("_") or "ClassVar" in ast.unparse(annotation):
                        continue
                    default = [] if statement.value is None else [statement.value]
                    shape = _settled(self._annotated(module, annotation, default, 0))
                    names = (name, *_aliases([annotation, *default]))
                    fields |= dict.fromkeys(names, shape)
                    tags.pop(name, None)
                    texts = self._literal(module, annotation)
                    if texts:
                        tags[name] = texts
                case ast.Assign(targets=[ast.Name(id="model_config")], value=value):
                    said = _extra(value)
                    is_open = is_open if said is None else said
                case ast.FunctionDef(name="__init__" | "__get_pydantic_core_schema__"):
                    is_open = True
                case ast.FunctionDef():
                    rewrites |= self._rewrites(module, statement)
        for keyword in node.keywords:
            if keyword.arg == "extra":
                is_open = _is_open(keyword.value)
        for name in rewrites.names:
            fields.setdefault(name, Anything())
        fields |= dict.fromkeys(rewrites.fields, Anything())
        return Table(node.name, fields, tags, is_open=is_open is not False)

    def _base(self, module: Module, base: ast.expr) -> Table | None:
        """Return what a class inherits from `base`; None where that says nothing."""
        found = self.source.find(module, base.value if isinstance(base, ast.Subscript) else base)
        if isinstance(found, Found):
            shape = self.shape_of(found)
            return self.tables[shape.name] if isinstance(shape, TableRef) else _unknown(found.name)
        if _last(found.name) in _NEUTRAL:
            return None
        origin = (found.name.partition(".")[0], _last(found.name))
        return Table(origin[1], {}, {}, is_open=origin not in _STRICT)

    def _rewrites(self, module: Module, node: ast.FunctionDef) -> Rewrites:
        """Return which keys a validator of a class takes beside its fields, or rewrites."""
        found = Rewrites()
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call):
                continue
            name = _last(ast.unparse(decorator.func))
            mode = next((k.value for k in decorator.keywords if k.arg == "mode"), None)
            if isinstance(mode, ast.Constant) and mode.value == "after":
                continue
            inside = find_rewrites(self.source, module, [node])
            if name == "model_validator":
                found |= inside
            elif name == "field_validator" and mode is not None and inside != Rewrites():
                found |= Rewrites(fields=frozenset(_texts(decorator.args)))
        return found

    def _literal(self, module: Module, node: ast.expr) -> tuple[str, ...]:
        """Return the texts of `Literal["a", "b"]`, also behind an alias; () for anything else."""
        found = self.source.find(module, node)
        if isinstance(found, Found) and isinstance(found.node, ast.expr):
            module, node = found.module, found.node
        if isinstance(node, ast.Subscript) and _last(ast.unparse(node.value)) == "Literal":
            given = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            texts = tuple(_texts(given))
            return texts if len(texts) == len(given) else ()
        return ()


def _options(shape: Shape) -> tuple[Shape, ...]:
    """Return what a union with `shape` in it is made of."""
    if isinstance(shape, OneOf):
        return shape.options
    if isinstance(shape, Tagged) and shape.is_complete:
        return tuple(dict.fromkeys(shape.options.values()))
    return (Anything(),) if isinstance(shape, Tagged) else (shape,)


def _settled(shape: Shape) -> Shape:
    return Anything() if shape == _SCALAR else shape


def _unknown(name: str) -> Table:
    return Table(name, {}, {}, is_open=True)


def _parse(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None


def _last(dotted: str) -> str:
    return dotted.rpartition(".")[2]


def _is_any_length(given: Sequence[ast.expr]) -> bool:
    return len(given) == 2 and isinstance(given[1], ast.Constant) and given[1].value is ...


def _discriminators(extra: ast.Call) -> Iterator[ast.expr]:
    yield from (k.value for k in extra.keywords if k.arg == "discriminator")
    if _last(ast.unparse(extra.func)) == "Discriminator":
        yield from extra.args[:1]


def _aliases(nodes: Sequence[ast.expr]) -> Iterator[str]:
    """Yield the other names that `Field(..., validation_alias=...)` gives a field."""
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.keyword) and part.arg in ("alias", "validation_alias"):
                yield from _texts(list(ast.walk(part.value)))


def _texts(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _extra(node: ast.expr) -> bool | None:
    """Return whether `ConfigDict(...)` or `{...}` lets other keys in; None where it doesn't say."""
    pairs: list[tuple[str | None, ast.expr]] = []
    if isinstance(node, ast.Call):
        pairs = [(keyword.arg, keyword.value) for keyword in node.keywords]
    elif isinstance(node, ast.Dict):
        pairs = [
            (next(_texts([key]), None) if key is not None else None, value)
            for key, value in zip(node.keys, node.values, strict=True)
        ]
    else:
        return True
    said = [True for name, _ in pairs if name in (None, "alias_generator")]
    said += [_is_open(value) for name, value in pairs if name == "extra"]
    return None if not said else any(said)


def _is_open(value: ast.expr) -> bool:
    return not (isinstance(value, ast.Constant) and value.value == "forbid")
