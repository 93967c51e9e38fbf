"""Arms in front of small test doubles of prime-rl's `rl`, as real processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.records.model import KeyDifference
from harness.trainers.interface import Candidate, RunName, Verdict
from harness.trainers.prime_rl.validate import validate
from tests.harness.trainers.prime_rl.dry_run_double import RESOLVES, make_program, make_rl

IPO = {"type": "ipo", "eps": 0.3}
ICEPOP = {"type": "icepop", "ratio_low": 0.2, "ratio_high": 5.0}
KPOP = {"type": "kpop", "phi": 0.1}
SCRIPT = f"{RESOLVES}write('rl.sbatch', '#SBATCH --nodes=4\\n', '.')\n"
MULTI_NODE: dict[str, Any] = {
    "deployment": {"type": "multi_node", "num_train_nodes": 1, "num_infer_replicas": 3},
    "inference": {},
    "slurm": {},
}

CLASSES = """\
from typing import Any

from pydantic_config import BaseConfig


class Trainer(BaseConfig):
    loss: dict[str, Any]


class Orchestrator(BaseConfig):
    batch_size: int = 128


class RLConfig(BaseConfig):
    trainer: Trainer
    orchestrator: Orchestrator
    run: dict[str, Any]
    output_dir: str
    max_steps: int
"""


class Bench:
    """A checkout with a program, and arms to be validated there."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
        self.command: Sequence[str] = ()
        self.mode = "auto"
        self.ports = "fixed"
        self.progress: list[tuple[int, int]] = []

    def rl(self, body: str = RESOLVES) -> None:
        self.command = make_rl(self.checkout, body)

    def classes(self) -> None:
        path = self.checkout / "packages/prime-rl-configs/src/prime_rl/configs/rl.py"
        path.parent.mkdir(parents=True)
        path.write_text(CLASSES)

    def candidate(
        self, arm: str, loss: Mapping[str, Any], native: Mapping[str, Any], max_steps: int = 4
    ) -> Candidate:
        trainer = {
            "type": "prime_rl",
            "checkout": str(self.checkout),
            "command": list(self.command),
            "native": native,
            "seed_keys": [],
            "loss_version": "newest",
            "validate": self.mode,
            "ports": self.ports,
            "env": {},
        }
        config = {"trainer": trainer, "loss": loss, "max_steps": max_steps}
        return Candidate(RunName("s", arm, 0, f"id-{arm}"), config, max_steps)

    def validate(self, *arms: Candidate, may_differ: Sequence[str] = ("loss",)) -> Verdict:
        return validate(
            arms, arms[0].name.arm, may_differ, lambda *pair: self.progress.append(pair)
        )

    def refuse(self, *arms: Candidate, may_differ: Sequence[str] = ("loss",)) -> tuple[str, str]:
        with pytest.raises(UsageError) as caught:
            self.validate(*arms, may_differ=may_differ)
        return caught.value.message, caught.value.hint

    def losses(self, native: Mapping[str, Any] | None = None) -> tuple[Candidate, Candidate]:
        return (
            self.candidate("ipo", IPO, native or {}),
            self.candidate("icepop", ICEPOP, native or {}),
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_arms_that_differ_in_their_loss_pass_with_what_differs_by_prime_rl_s_keys(
    bench: Bench,
) -> None:
    bench.rl()
    ipo = bench.candidate("ipo", IPO, {})
    wide = bench.candidate("wide", {"type": "ipo", "eps": 0.5}, {})
    kpop = bench.candidate("kpop", KPOP, {})

    verdict = bench.validate(ipo, wide, kpop)

    assert verdict.remarks == (
        "prime-rl's own dry run resolved every arm, and the arms are compared as resolved.",
    )
    assert verdict.differs["ipo"] == ()
    assert verdict.differs["wide"] == (KeyDifference("trainer.loss.eps", 0.3, 0.5),)
    assert KeyDifference("trainer.loss.kwargs.phi", None, 0.1) in verdict.differs["kpop"]
    assert all(d.key.startswith("trainer.loss.") for d in verdict.differs["kpop"])
    assert bench.progress == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_names_and_folders_of_runs_are_no_difference(bench: Bench) -> None:
    bench.rl()
    bench.ports = "own"
    native = {
        "inference": {},
        "monitors": {"wandb": {"project": "p"}},
        "ckpt": {"output_dir": str(bench.checkout / "real")},
        "orchestrator": {"train": {"source": [{"runtime": {"labels": ["swe"]}}]}},
    }

    verdict = bench.validate(*bench.losses(native))

    assert {d.key.partition(".loss.")[0] for d in verdict.differs["icepop"]} == {"trainer"}


def test_a_difference_that_only_prime_rl_makes_is_refused(bench: Bench) -> None:
    bench.rl(
        "size = 256 if document['trainer']['loss']['type'] == 'icepop' else 128\n"
        "write('trainer.json', document['trainer'])\n"
        "write('orchestrator.json', {'batch_size': size})\n"
    )

    assert bench.refuse(*bench.losses()) == (
        "arm `icepop` differs from the baseline `ipo` in more than `loss`:"
        " `orchestrator.batch_size`: 128 -> 256"
        " (prime-rl derived that: its files say no such thing)",
        "state `orchestrator.batch_size` in prime-rl's files or `trainer.native` for all arms, or"
        " add `trainer.native.orchestrator.batch_size` to `may_differ`",
    )


def test_a_difference_in_what_prime_rl_writes_no_part_for_is_refused(bench: Bench) -> None:
    bench.rl()
    one = bench.candidate("one", IPO, {"deployment": {"num_train_gpus": 1}})
    two = bench.candidate("two", ICEPOP, {"deployment": {"num_train_gpus": 2}})

    message, _ = bench.refuse(one, two)

    assert "`deployment.num_train_gpus`: 1 -> 2" in message


def test_an_item_of_a_list_of_tables_is_named(bench: Bench) -> None:
    bench.rl()
    arms = [
        bench.candidate(
            name, loss, {"orchestrator": {"train": {"source": [{"name": "a", "ratio": ratio}]}}}
        )
        for name, loss, ratio in (("one", IPO, 1.0), ("two", ICEPOP, 2.0))
    ]

    message, _ = bench.refuse(*arms)
    verdict = bench.validate(*arms, may_differ=("loss", "trainer.native.orchestrator.train.source"))

    assert "`orchestrator.train.source.0.ratio`: 1.0 -> 2.0" in message
    assert KeyDifference("orchestrator.train.source.0.ratio", 1.0, 2.0) in verdict.differs["two"]


@pytest.mark.parametrize(
    "may_differ",
    [
        ("trainer.native.orchestrator.batch_size",),
        ("trainer.native.orchestrator",),
        ("trainer.native",),
        ("trainer",),
    ],
)
def test_declared_keys_of_prime_rl_may_differ(may_differ: Sequence[str], bench: Bench) -> None:
    bench.rl()
    small = bench.candidate("small", IPO, {"orchestrator": {"batch_size": 64}})
    large = bench.candidate("large", IPO, {"orchestrator": {"batch_size": 512}})

    verdict = bench.validate(small, large, may_differ=may_differ)

    assert verdict.differs["large"] == (KeyDifference("orchestrator.batch_size", 64, 512),)


def test_a_declared_change_may_be_copied_to_other_parts_but_nothing_may_follow_from_it(
    bench: Bench,
) -> None:
    copies = (
        "name = document['model']['name']\n"
        "write('trainer.json', {**document['trainer'], 'model': {'name': name}})\n"
        "write('inference.json', {'vllm': {'model': name, 'dtype': 'auto'}})\n"
    )
    bench.rl(copies)
    small = bench.candidate("small", IPO, {"model": {"name": "m/small"}})
    large = bench.candidate("large", IPO, {"model": {"name": "m/large"}})

    verdict = bench.validate(small, large, may_differ=("trainer.native.model.name",))
    bench.rl(copies.replace("'auto'", "'fp8' if 'large' in name else 'auto'"))
    message, _ = bench.refuse(small, large, may_differ=("trainer.native.model.name",))

    assert [d.key for d in verdict.differs["large"]] == [
        "inference.vllm.model",
        "model.name",
        "trainer.model.name",
    ]
    assert "more than `trainer.native.model.name`: `inference.vllm.dtype`" in message


def test_a_loss_that_differs_undeclared_is_refused(bench: Bench) -> None:
    bench.rl()

    message, hint = bench.refuse(*bench.losses(), may_differ=("trainer.native",))

    assert "in more than `trainer.native`: `trainer.loss.eps`: 0.3 -> None" in message
    assert hint.endswith("or add `loss` to `may_differ`")


def test_declared_steps_may_differ(bench: Bench) -> None:
    bench.rl("write('trainer.json', {**document['trainer'], 'max_steps': document['max_steps']})\n")
    short = bench.candidate("short", IPO, {}, max_steps=4)
    long = bench.candidate("long", IPO, {}, max_steps=8)

    verdict = bench.validate(short, long, may_differ=("max_steps",))

    assert [d.key for d in verdict.differs["long"]] == ["max_steps", "trainer.max_steps"]
    assert "`max_steps`: 4 -> 8" in bench.refuse(short, long)[0]


def test_arms_that_are_the_same_once_resolved_are_refused(bench: Bench) -> None:
    bench.rl()
    given = bench.candidate("given", IPO, {"orchestrator": {"batch_size": 128}})
    other = bench.candidate("other", ICEPOP, {})
    default = bench.candidate("default", IPO, {})

    message, _ = bench.refuse(given, other, default)

    assert message == (
        "the arms `given` and `default` are the same once prime-rl has resolved them"
    )


def test_what_prime_rl_makes_up_anew_each_time_is_no_difference(bench: Bench) -> None:
    bench.rl(f"{RESOLVES}write('inference.json', {{'session': os.urandom(8).hex()}})\n")

    verdict = bench.validate(*bench.losses())
    message, _ = bench.refuse(bench.candidate("a", IPO, {}), bench.candidate("b", IPO, {}))

    assert all(d.key.startswith("trainer.loss.") for d in verdict.differs["icepop"])
    assert message.startswith("the arms `a` and `b` are the same")


def test_an_arm_that_prime_rl_refuses_is_named_with_the_key(bench: Bench) -> None:
    bench.rl(
        "if document['trainer']['loss']['type'] == 'icepop':\n"
        "    print('1 validation error for RLConfig\\ntrainer.loss.ratio_low\\n'\n"
        "          '  Extra inputs are not permitted [type=extra_forbidden, input_value=1]')\n"
        "    sys.exit(1)\n" + RESOLVES
    )

    message, hint = bench.refuse(*bench.losses())

    assert message == (
        "arm `icepop`: prime-rl refuses it: trainer.loss.ratio_low: Extra inputs are not permitted"
    )
    assert "renames keys" in hint


def test_a_script_for_the_planned_nodes_passes(bench: Bench) -> None:
    bench.rl(SCRIPT)

    verdict = bench.validate(*bench.losses(MULTI_NODE))

    assert all(d.key.startswith("trainer.loss.") for d in verdict.differs["icepop"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            RESOLVES,
            "arm `ipo`: this version of prime-rl renders no script for several nodes in its dry"
            " run",
        ),
        (
            SCRIPT.replace("=4", "=3"),
            "arm `ipo`: prime-rl's script is for 3 nodes, and the run would get 4",
        ),
    ],
    ids=["no script", "other nodes"],
)
def test_a_script_that_does_not_fit_is_refused(body: str, message: str, bench: Bench) -> None:
    bench.rl(body)

    assert bench.refuse(*bench.losses(MULTI_NODE))[0] == message


def test_only_names_of_keys_are_checked_where_prime_rl_can_not_run(bench: Bench) -> None:
    bench.command = make_program(bench.checkout / "rl", "#!/bin/sh\nexit 3\n")
    bench.classes()

    verdict = bench.validate(*bench.losses({"orchestrator": {"batch_size": 3}}))
    message, hint = bench.refuse(*bench.losses({"orchestrator": {"batch_sise": 3}}))

    assert verdict.warnings == (
        f"prime-rl itself did not check the arms: `{bench.command[0]} --help` fails: exit code 3."
        f" Only the names of their keys were checked, against the classes in `{bench.checkout}`.",
    )
    assert verdict.differs["ipo"] == ()
    assert KeyDifference("trainer.loss.type", "ipo", "icepop") in verdict.differs["icepop"]
    assert bench.progress[-1] == (0, 2)
    assert message == (
        f"arm `ipo`: `orchestrator.batch_sise` is no key of the prime-rl in `{bench.checkout}`"
        " (`Orchestrator` has no `batch_sise`)"
    )
    assert hint.startswith("did you mean `orchestrator.batch_size`?")


def test_rendered_documents_are_compared_where_prime_rl_can_not_run(bench: Bench) -> None:
    bench.mode = "schema"
    bench.classes()
    small = bench.candidate("small", IPO, {"orchestrator": {"batch_size": 64}})
    large = bench.candidate("large", ICEPOP, {"orchestrator": {"batch_size": 512}})

    message, _ = bench.refuse(small, large)
    same, _ = bench.refuse(
        small, bench.candidate("twin", IPO, {"orchestrator": {"batch_size": 64}})
    )

    assert message == (
        "arm `large` differs from the baseline `small` in more than `loss`:"
        " `orchestrator.batch_size`: 64 -> 512"
    )
    assert same == "the arms `small` and `twin` are the same to prime-rl"


def test_a_program_that_crashes_on_import_is_why_prime_rl_did_not_check(bench: Bench) -> None:
    bench.classes()
    said = "Traceback (most recent call last):\n  File\nImportError: no torch"
    bench.command = make_program(
        bench.checkout / "rl", f"#!/bin/sh\ncat <<END\n{said}\nEND\nexit 1\n"
    )

    (remark,) = bench.validate(*bench.losses({"orchestrator": {}})).warnings

    assert f"`{bench.command[0]} --help` fails: ImportError: no torch." in remark


def test_the_dry_run_is_not_asked_for_where_the_schema_is_wanted(bench: Bench) -> None:
    bench.rl("sys.exit(1)\n")
    bench.classes()
    bench.mode = "schema"

    (remark,) = bench.validate(*bench.losses({"orchestrator": {}})).warnings

    assert remark.startswith("prime-rl itself did not check the arms: `trainer.validate` is")


@pytest.mark.parametrize("mode", ["auto", "dry_run"])
def test_a_program_that_is_not_there_is_refused_unless_only_names_are_to_be_checked(
    bench: Bench, mode: str
) -> None:
    bench.command = ("no-such-uv", "run", "rl")
    bench.classes()
    bench.mode = mode

    assert bench.refuse(*bench.losses()) == (
        "`trainer.command` starts `no-such-uv`, and there is no such program on this machine",
        "install it, or choose trainer.validate=schema where only the nodes have it",
    )
    bench.mode = "schema"
    assert len(bench.validate(*bench.losses({"orchestrator": {}})).warnings) == 1


def test_a_dry_run_that_is_wanted_and_impossible_is_refused(bench: Bench) -> None:
    bench.mode = "dry_run"
    bench.command = make_program(bench.checkout / "rl", "#!/bin/sh\nexit 3\n")

    assert bench.refuse(*bench.losses()) == (
        f"`trainer.validate` is `dry_run`, but `{bench.command[0]} --help` fails: exit code 3",
        f"`uv sync` in `{bench.checkout}`, set `trainer.command`, or choose trainer.validate=auto",
    )


def test_a_checkout_without_readable_classes_is_said_and_refused_where_they_are_asked_for(
    bench: Bench,
) -> None:
    bench.command = make_program(bench.checkout / "rl", "#!/bin/sh\nexit 3\n")

    (remark,) = bench.validate(*bench.losses()).warnings
    bench.mode = "schema"
    message, _ = bench.refuse(*bench.losses())

    assert remark.startswith("prime-rl did not check the arms, and nothing else did: ")
    assert message.startswith(f"`{bench.checkout}` declares no configuration of prime-rl")


def test_a_loss_that_the_version_can_not_hold_names_the_arm(bench: Bench) -> None:
    bench.rl()
    zero = bench.candidate("zero", {**ICEPOP, "ratio_low": 0.0}, {})

    message, _ = bench.refuse(bench.candidate("ipo", IPO, {}), zero)

    assert message.startswith("arm `zero`: `loss.ratio_low` is 0")
