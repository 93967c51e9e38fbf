"""The keys of prime-rl, read from small class files of this project's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.trainers.prime_rl.config_schema import ConfigSchema, check_document, read_schema

BASE = """\
from pydantic_config import BaseConfig as BaseConfig
"""

PARTS = """\
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import elsewhere as other
from pydantic import ConfigDict, Field, model_validator

from prime_rl.utils.config import BaseConfig


class Named(BaseConfig):
    name: str | None = None


class Ipo(BaseConfig):
    type: Literal["ipo"] = "ipo"
    eps: float = 0.3


class Icepop(BaseConfig):
    type: Literal["icepop"] = "icepop"
    ratio_low: float = 0.2


Loss: TypeAlias = Annotated[Ipo | Icepop, Field(discriminator="type")]


class Source(Named):
    ratio: float = 1.0
    env: other.EnvConfig = other.EnvConfig()
    extra: dict[str, Any] = {}
    pools: dict[str, Named] = {}


class Engine(BaseConfig):
    model_config = ConfigDict(extra="allow")

    tensor: int = 1
    nested: Named = Named()
"""

ROOT = """\
from typing import TYPE_CHECKING, Literal, Optional

from pydantic import AliasChoices, Field, field_validator, model_validator

from . import parts
from .parts import Engine, Loss, Source as TrainSource
from prime_rl.utils.config import BaseConfig

if TYPE_CHECKING:
    from .parts import Named as Typed


class Trainer(BaseConfig):
    loss: Loss = parts.Ipo()
    quoted: "Typed | None" = None
    group_size: int = Field(1, validation_alias=AliasChoices("group_size", "rollouts"))
    plain: parts.Ipo | parts.Icepop | None = None
    here: int | Literal["auto"] | parts.Named = 1


class RLConfig(BaseConfig):
    trainer: Trainer
    sources: list[TrainSource] = []
    engine: Optional[Engine] = None
    again: "RLConfig | None" = None
    max_steps: int | None = None

    @model_validator(mode="before")
    @classmethod
    def take_old_names(cls, data):
        if "old_steps" in data:
            data["max_steps"] = data.pop("old_steps")
        return move(data, "former")


def move(data, name):
    for old in ("ancient",):
        data.pop(old, None)
    return data
"""


def make_checkout(folder: Path, root: str = ROOT, *, is_old: bool = False) -> Path:
    package = folder / ("src/prime_rl" if is_old else "packages/prime-rl-configs/src/prime_rl")
    (package / "configs").mkdir(parents=True)
    (package / "utils").mkdir()
    (package / "utils/config.py").write_text(BASE)
    (package / "configs/parts.py").write_text(PARTS)
    (package / "configs/rl.py").write_text(root)
    return folder


@pytest.fixture
def schema(tmp_path: Path) -> ConfigSchema:
    return read_schema(make_checkout(tmp_path))


def refused(document: dict[str, Any], schema: ConfigSchema) -> tuple[str, str]:
    with pytest.raises(UsageError) as caught:
        check_document(document, schema)
    return caught.value.message, caught.value.hint


def test_a_document_with_known_keys_passes(schema: ConfigSchema) -> None:
    check_document(
        {
            "max_steps": 3,
            "trainer": {
                "loss": {"type": "icepop", "ratio_low": 0.2},
                "quoted": {"name": "x"},
                "plain": {"type": "ipo", "eps": 0.1},
                "here": {"name": "x"},
            },
            "sources": [{"name": "a", "ratio": 2.0}, {"name": "b"}],
            "engine": {"tensor": 8, "nested": {"name": "x"}},
            "again": {"trainer": {}, "again": None},
        },
        schema,
    )


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ({"max_stepz": 1}, "max_stepz"),
        ({"trainer": {"losss": {}}}, "trainer.losss"),
        ({"trainer": {"loss": {"type": "ipo", "epss": 1}}}, "trainer.loss.epss"),
        ({"trainer": {"loss": {"type": "icepop", "eps": 1}}}, "trainer.loss.eps"),
        ({"trainer": {"loss": {"epss": 1}}}, "trainer.loss.epss"),
        ({"trainer": {"quoted": {"nam": 1}}}, "trainer.quoted.nam"),
        ({"trainer": {"plain": {"type": "ipo", "epss": 1}}}, "trainer.plain.epss"),
        ({"trainer": {"here": {"nam": 1}}}, "trainer.here.nam"),
        ({"sources": [{"name": "a"}, {"nmae": "b"}]}, "sources.1.nmae"),
        ({"sources": [{"pools": {"easy": {"nmae": "b"}}}]}, "sources.0.pools.easy.nmae"),
        ({"engine": {"nested": {"nmae": 1}}}, "engine.nested.nmae"),
        ({"again": {"again": {"max_stepz": 1}}}, "again.again.max_stepz"),
    ],
)
def test_a_key_that_is_not_there_is_refused_at_every_depth(
    document: dict[str, Any], key: str, schema: ConfigSchema
) -> None:
    message, hint = refused(document, schema)

    assert message.startswith(f"`{key}` is no key of the prime-rl in `{schema.name}`")
    assert "renames keys" in hint


def test_the_error_names_the_near_miss_and_the_class(tmp_path: Path, schema: ConfigSchema) -> None:
    assert refused({"trainer": {"loss": {"type": "ipo", "ep": 1}}}, schema) == (
        f"`trainer.loss.ep` is no key of the prime-rl in `{tmp_path}` (`Ipo` has no `ep`)",
        "did you mean `trainer.loss.eps`? prime-rl renames keys without aliases: compare the file"
        " with that version",
    )


def test_keys_are_listed_where_none_is_near(schema: ConfigSchema) -> None:
    _, hint = refused({"trainer": {"quoted": {"colour": 1}}}, schema)

    assert hint.startswith("it has `name`; ")


def test_a_type_that_is_not_there_is_refused(tmp_path: Path, schema: ConfigSchema) -> None:
    assert refused({"trainer": {"loss": {"type": "icepopp"}}}, schema) == (
        f"`trainer.loss.type` is 'icepopp', which the prime-rl in `{tmp_path}` doesn't have",
        "did you mean `icepop`? it has `icepop`, `ipo`; another version may name it otherwise",
    )


def test_the_first_unknown_key_of_the_document_is_named(schema: ConfigSchema) -> None:
    message, _ = refused({"trainer": {"b": 1, "a": 1}, "z": 1}, schema)

    assert message.startswith("`trainer.b` ")


@pytest.mark.parametrize(
    "document",
    [
        {"sources": [{"env": {"whatever": {"deep": 1}}}]},
        {"sources": [{"extra": {"whatever": {"deep": 1}}}]},
        {"engine": {"whatever": 1}},
        {"trainer": {"rollouts": 8}},
        {"old_steps": 3},
        {"ancient": 3},
        {"former": 3},
        {"trainer": None, "engine": "None"},
    ],
    ids=["other package", "free table", "open class", "alias", "moved", "popped", "passed", "null"],
)
def test_what_prime_rl_may_accept_is_accepted(
    document: dict[str, Any], schema: ConfigSchema
) -> None:
    check_document(document, schema)


@pytest.mark.parametrize(
    "declared",
    [
        "class RLConfig(unknown.Base):\n    a: int = 1",
        "from pydantic import BaseModel\nclass RLConfig(BaseModel):\n    a: int = 1",
        "from prime_rl.utils.config import BaseConfig\nclass RLConfig(BaseConfig):\n"
        "    model_config = settings\n    a: int = 1",
        "from prime_rl.utils.config import BaseConfig\nclass RLConfig(BaseConfig, extra='allow'):\n"
        "    a: int = 1",
        "from prime_rl.utils.config import BaseConfig\nclass RLConfig(BaseConfig):\n"
        "    a: int = 1\n    def __init__(self, **data): ...",
        "RLConfig = make()",
    ],
)
def test_a_class_that_can_not_be_followed_holds_anything(declared: str, tmp_path: Path) -> None:
    schema = read_schema(make_checkout(tmp_path, declared))

    check_document({"anything": {"goes": 1}}, schema)


@pytest.mark.parametrize(
    "annotation",
    [
        "Annotated[parts.Ipo | parts.Named, Field(discriminator='type')]",
        "Annotated[parts.Ipo | parts.Icepop, Discriminator(choose)]",
        "parts.Ipo | parts.other.Thing",
        "parts.Missing",
        "some.call(1)",
        "'not valid ('",
        "Annotated[parts.Ipo, BeforeValidator(lambda table: table.pop('x'))]",
    ],
)
def test_an_annotation_that_can_not_be_followed_holds_anything(
    annotation: str, tmp_path: Path
) -> None:
    root = (
        "from typing import Annotated\n"
        "from pydantic import BeforeValidator, Discriminator, Field\n"
        "from prime_rl.configs import parts\n"
        "from prime_rl.utils.config import BaseConfig\n"
        f"class RLConfig(BaseConfig):\n    a: {annotation} = None\n"
    )
    schema = read_schema(make_checkout(tmp_path, root))

    check_document({"a": {"type": "other", "x": 1}}, schema)
    assert refused({"b": 1}, schema)[0].startswith("`b` ")


def test_inherited_fields_and_overridden_ones_count(tmp_path: Path) -> None:
    root = (
        "from prime_rl.configs.parts import *\n"
        "class Middle(Named):\n    name: Ipo = Ipo()\n    _hidden: int = 1\n"
        "    fixed: ClassVar[int] = 1\n"
        "class RLConfig(Middle):\n    mine: int = 1\n"
    )
    schema = read_schema(make_checkout(tmp_path, root))

    check_document({"mine": 1, "name": {"eps": 1}}, schema)
    assert refused({"name": {"eqs": 1}}, schema)[0].startswith("`name.eqs` ")
    assert refused({"_hidden": 1}, schema)[0].startswith("`_hidden` ")
    assert refused({"fixed": 1}, schema)[0].startswith("`fixed` ")


def test_the_older_layout_is_read(tmp_path: Path) -> None:
    schema = read_schema(make_checkout(tmp_path, is_old=True))

    assert refused({"trainer": {"x": 1}}, schema)[0].startswith("`trainer.x` ")


@pytest.mark.parametrize("root", ["class Other: ...", "class RLConfig(:"])
def test_a_folder_without_the_class_is_refused(root: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_schema(make_checkout(tmp_path, root))

    assert caught.value.message == (
        f"`{tmp_path}` declares no configuration of prime-rl (no class `RLConfig` in"
        " `packages/prime-rl-configs/src/prime_rl/configs/rl.py`)"
    )
