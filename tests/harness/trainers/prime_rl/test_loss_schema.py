from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.trainers.prime_rl.loss_schema import (
    SCHEMAS,
    SOURCE_FILES,
    find_schema,
    parse_schema,
    read_checkout,
)

_HEAD = "from typing import Annotated, Any, ClassVar, Literal\n"
_CUSTOM = (
    'class C(BaseConfig):\n    type: Literal["custom"] = "custom"\n'
    "    import_path: str\n    kwargs: dict[str, Any] = {}\n"
)
_OLD = (
    _HEAD
    + 'class D(BaseConfig):\n    type: Literal["default"] = "default"\n'
    + '    dppo_mask_low: float = 0.2\n    """Lower."""\n    dppo_mask_high: float = 0.2\n'
    + "    adv_tau: float = 1.0\n    kl_tau: float = 1e-3\n"
    + 'class I(BaseConfig):\n    type: Literal["ipo"] = "ipo"\n    ipo_threshold: float = 0.1\n'
    + "    adv_tau: float = 1.0\n    kl_tau: float = 1e-3\n"
    + _CUSTOM
    + 'LossConfig: TypeAlias = Annotated[D | I | C, Field(discriminator="type")]\n'
)


def test_a_version_is_recognised_by_what_its_source_declares() -> None:
    assert parse_schema(_OLD, "trainer.py") == SCHEMAS["2798"]


def test_an_unnamed_version_is_described_by_its_own_declarations() -> None:
    source = (
        _HEAD
        + "class Base(BaseConfig):\n    adv_tau: float = 1.0\n    note: ClassVar[str] = ''\n"
        + 'class I(Base):\n    type: Literal["ipo"] = "ipo"\n    eps: float = 0.1\n'
        + '    def check(self): ...\n\nclass Other:\n    type: Literal["x"]\n'
        + _CUSTOM
        + "LossConfig = I | C\n"
    )
    schema = parse_schema(source, "trainer.py")
    assert schema.name == "trainer.py"
    assert schema.knobs == {"ipo": ("adv_tau", "eps"), "custom": ("import_path", "kwargs")}


@pytest.mark.parametrize("name", SOURCE_FILES)
def test_a_checkout_is_read_in_each_layout_that_prime_rl_had(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(_OLD)
    assert read_checkout(tmp_path) == SCHEMAS["2798"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def", "t.py:1: not valid Python"),
        ("x = 1\n", "`t.py` has no union `LossConfig` of prime-rl's losses"),
        ("class I:\n    eps: float\nLossConfig = I\n", "`t.py`: the loss `I` has no literal"),
        (
            'class I:\n    type: Literal["ipo"]\nLossConfig = I\n',
            "`t.py` declares no loss `custom`",
        ),
    ],
)
def test_declarations_that_cannot_be_read_are_refused(source: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_schema(source, "t.py")
    assert caught.value.message.startswith(message)
    assert caught.value.hint


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match="declares no losses of prime-rl"):
            read_checkout(folder)


def test_an_unknown_version_is_refused_with_what_is_known() -> None:
    with pytest.raises(UsageError) as caught:
        find_schema("0.9")
    assert caught.value.message == "there is no known version '0.9' of prime-rl's losses"
    assert caught.value.hint == "versions: `2798`, `3418`, `3526`, `newest`"
