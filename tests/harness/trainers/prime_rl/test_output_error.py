"""What prime-rl printed, as one line."""

from __future__ import annotations

import pytest

from harness.trainers.prime_rl.output_error import explain_output

BOX = """\
2026-08-21 10:00:00 some log line
╭─ Config file error ────────────────────────────────────────╮
│ Failed to validate config:                                 │
│ ────────────────────────────────────────────────────────── │
│ 4 validation errors for RLConfig                           │
│ --trainer.loss.ipo.epss                                    │
│ Extra inputs are not permitted (got 1)                     │
│ --trainer.max-steps                                        │
│ Input should be a valid integer, unable to parse string as │
│ an integer (got 'x')                                       │
│ --a                                                        │
│ Value error, no                                            │
│ --b                                                        │
│ Value error, no                                            │
╰────────────────────────────────────────────────────────────╯
"""

TRACEBACK = """\
Traceback (most recent call last):
  File "rl.py", line 1, in <module>
    RLConfig.model_validate(document)
pydantic_core._pydantic_core.ValidationError: 2 validation errors for RLConfig
trainer.loss.eps
  Extra inputs are not permitted [type=extra_forbidden, input_value={'a': [1]}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.14/v/extra_forbidden
orchestrator
  Value error, Batch size must be
divisible by it [type=value_error, input_value={'batch_size': 3}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.14/v/value_error
"""

OF_THE_WHOLE = """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for RLConfig
  Value error, [slurm] is needed [type=value_error, input_value={}, input_type=dict]
"""

UV = """\
warning: `VIRTUAL_ENV=/x` does not match the project environment path
error: Failed to spawn: `rl`
  Caused by: No such file or directory (os error 2)
"""

FILE = """\
╭─ Config file error ──────────────╮
│ Config file not found:           │
│ /tmp/rl.json                     │
╰──────────────────────────────────╯
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            BOX,
            "trainer.loss.ipo.epss: Extra inputs are not permitted (got 1); trainer.max_steps:"
            " Input should be a valid integer, unable to parse string as an integer (got 'x');"
            " a: Value error, no (and 1 more)",
        ),
        (
            TRACEBACK,
            "trainer.loss.eps: Extra inputs are not permitted; orchestrator: Value error, Batch"
            " size must be divisible by it",
        ),
        (OF_THE_WHOLE, "Value error, [slurm] is needed"),
        (UV, "Failed to spawn: `rl`: No such file or directory (os error 2)"),
        (FILE, "Config file not found: /tmp/rl.json"),
        (
            'Traceback (most recent call last):\n  File "a", line 1\nImportError: no libcuda\n',
            "ImportError: no libcuda",
        ),
        ("starting\nit broke\n---\n", "it broke"),
        ("", ""),
    ],
    ids=["box", "traceback", "whole", "uv", "file", "import", "plain", "silent"],
)
def test_the_line_that_explains_is_found(text: str, line: str) -> None:
    assert explain_output(text) == line


def test_a_long_message_is_cut() -> None:
    text = f"1 validation error for RLConfig\na\n  {'x' * 900}\n"

    assert explain_output(text) == f"a: {'x' * 496}…"
