"""The published prime-pydantic-config, which reads prime-rl's command line, against `merge`."""

from __future__ import annotations

import functools
import json
import operator
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from harness.trainers.prime_rl.documents import parse_document, read_document, write_document
from harness.trainers.prime_rl.loss_table import render_loss, replace_loss
from harness.trainers.prime_rl.merge import merge, with_nulls

authority = pytest.importorskip(
    "pydantic_config", reason="prime-pydantic-config[toml,yaml] is not installed"
)

_KEYS = st.sampled_from(["a", "b", "c"])
_VALUES = st.recursive(
    st.one_of(
        st.booleans(), st.integers(-9, 9), st.floats(-1, 1), st.sampled_from(["", "x", "${X}", "1"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(_KEYS, inner, max_size=3)),
    max_leaves=8,
)
_DOCUMENTS = st.dictionaries(_KEYS, _VALUES, max_size=3)


def _model(fields: dict[str, Any], defaults: dict[str, Any], **config: Any) -> Any:
    """Make a model of prime-pydantic-config; it is loaded dynamically, so it has no static type."""
    base = authority.BaseConfig
    body = {"__annotations__": fields, "__module__": __name__, "model_config": config, **defaults}
    return type(base)("Model", (base,), body)


def _resolve(model: Any, *files: Path) -> dict[str, Any]:
    arguments = [word for path in files for word in ("@", str(path))]
    resolved: dict[str, Any] = authority.cli(model, args=arguments).model_dump()
    return resolved


def _text(document: Any) -> str:
    return json.dumps(document, sort_keys=True)


@given(st.lists(_DOCUMENTS, min_size=1, max_size=3), st.sampled_from([".toml", ".json"]))
@settings(max_examples=60, deadline=None)
def test_files_are_merged_as_prime_rl_merges_them(
    documents: list[dict[str, Any]], suffix: str
) -> None:
    anything = _model({}, {}, extra="allow")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}{suffix}" for i in range(len(documents))]
        for path, document in zip(files, documents, strict=True):
            write_document(path, document)
        merged = merge([read_document(path) for path in files])
        whole = Path(folder) / f"whole{suffix}"
        write_document(whole, merged)
        # As text, since 1 == 1.0 == True in Python.
        assert _text(_resolve(anything, *files)) == _text(merged)
        assert _text(_resolve(anything, whole)) == _text(merged)


@pytest.mark.parametrize(
    "text",
    [
        "a: 1e-3\nb: 1_000\nc: ~\nd: &x {k: 1}\ne: {<<: *x, l: 2}\nf: True\ng: 0x10\nh: .inf\n",
        "a: [1, '2', 3.5, true, null]\nb: 'on'\nc: |\n  two\n  lines\n",
    ],
)
def test_yaml_is_read_as_prime_rl_reads_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "base.yaml"
    path.write_text(text)
    assert read_document(path) == _resolve(_model({}, {}, extra="allow"), path)


def _loss_model() -> Any:
    """Two losses and a custom one, as in prime-rl: a tagged union that refuses unknown keys."""
    ipo = _model(
        {
            "type": Literal["ipo"],
            "eps": float,
            "max_importance_ratio": float,
            "adv_tau": float,
            "score_centering": bool,
        },
        {
            "type": "ipo",
            "eps": 0.5,
            "max_importance_ratio": 7.0,
            "adv_tau": 7.0,
            "score_centering": True,
        },
        extra="forbid",
    )
    icepop = _model(
        {"type": Literal["icepop"], "ratio_low": float, "ratio_high": float, "adv_tau": float},
        {"type": "icepop", "ratio_low": 0.7, "ratio_high": 7.0, "adv_tau": 7.0},
        extra="forbid",
    )
    custom = _model(
        {"type": Literal["custom"], "import_path": str, "kwargs": dict[str, Any]},
        {"type": "custom"},
        extra="forbid",
    )
    union = functools.reduce(operator.or_, (ipo, icepop, custom))
    fields = {"loss": Annotated[union, Field(discriminator="type")]}
    trainer = _model(fields, {"loss": ipo()}, extra="forbid")
    return _model({"trainer": trainer, "time": str | None}, {"time": "1:00:00"}, extra="forbid")


def test_a_merge_across_loss_types_is_refused_by_prime_rl_and_a_replaced_table_is_not(
    tmp_path: Path,
) -> None:
    base = parse_document('[trainer.loss]\ntype = "ipo"\neps = 0.3\n', ".toml", "base")
    model = _loss_model()
    merged, replaced = tmp_path / "merged.toml", tmp_path / "replaced.toml"
    write_document(merged, merge([base, {"trainer": {"loss": {"type": "icepop"}}}]))
    with pytest.raises(authority.ConfigFileError):
        _resolve(model, merged)
    table = render_loss({"type": "icepop"}, version="newest")
    write_document(replaced, replace_loss(base, table)[0])
    assert _resolve(model, replaced)["trainer"]["loss"] == table


@pytest.mark.parametrize("suffix", [".toml", ".json"])
@pytest.mark.parametrize("kind", ["ipo", "icepop", "kpop", "none"])
def test_a_rendered_loss_survives_prime_rls_reading_knob_by_knob(
    tmp_path: Path, kind: str, suffix: str
) -> None:
    table = render_loss({"type": kind}, version="newest")
    path = tmp_path / f"resolved{suffix}"
    write_document(path, {"trainer": {"loss": table}, "time": None})
    assert _resolve(_loss_model(), path) == {"trainer": {"loss": table}, "time": None}


def test_the_text_none_is_null_in_prime_rls_tables_and_text_in_free_form_ones(
    tmp_path: Path,
) -> None:
    path = tmp_path / "base.toml"
    document = {
        "time": "None",
        "trainer": {"loss": {"type": "custom", "import_path": "a.b", "kwargs": {"c": "None"}}},
    }
    write_document(path, document)
    resolved = _resolve(_loss_model(), path)
    assert resolved["time"] is with_nulls(document)["time"] is None
    assert resolved["trainer"]["loss"]["kwargs"] == {"c": "None"}
