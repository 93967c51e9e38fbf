from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.sweep.spec import load_sweep
from harness.trainers.prime_rl.import_toml import import_folder

_BASE = """\
max_steps = 1200
[model]
name = "org/model"
[slurm]
job_name = "base"
pre_run_command = "clear --label base-label || true"
[[orchestrator.train.source]]
name = "swe"
[orchestrator.train.source.env.agent.runtime]
labels = ["base-label"]
"""
_IPO = '[trainer.loss]\ntype = "ipo"\neps = 0.3\n'
_ICEPOP = '[trainer.loss]\ntype = "icepop"\nratio_low = 0.2\nratio_high = 5.0\n'
_SOURCE = """\
[[orchestrator.train.source]]
name = "swe"
[orchestrator.train.source.env.agent.runtime]
labels = ["ipo-label"]
"""


def _write(folder: Path, **files: str) -> list[Path]:
    paths = []
    for name, text in files.items():
        path = folder / f"{name}.toml"
        path.write_text(text)
        paths.append(path)
    return paths


def _refusal(folder: Path, **files: str) -> str:
    base, *overlays = _write(folder, **files)
    with pytest.raises(UsageError) as caught:
        import_folder(base, overlays)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value.message.replace(f"{folder}/", "")


def test_a_base_and_an_overlay_per_loss_become_a_sweep(tmp_path: Path) -> None:
    base, *overlays = _write(tmp_path, base=_BASE, icepop=_ICEPOP, ipo=_IPO)
    text = import_folder(base, [overlays[1].rename(tmp_path / "ipo-0.3.toml"), overlays[0]])
    assert text == (
        f"# Imported from {base} and one overlay per loss.\n"
        'question: "Which loss holds up on the recipe base?"\n'
        "baseline: ipo-0.3\n"
        "# prime-rl has no seed for everything: seeds are reruns.\n"
        "seeds: [0]\n"
        "pairing: none\n"
        "common:\n"
        "  - trainer=prime_rl\n"
        "  - task=external\n"
        "  - model=external\n"
        f"  - \"trainer.base=['{base}']\"\n"
        "  - \"model.name='org/model'\"\n"
        "  - max_steps=1200\n"
        "arms:\n"
        "  ipo-0.3: [loss=ipo, loss.eps=0.3]\n"
        "  icepop: [loss=icepop, loss.ratio_low=0.2, loss.ratio_high=5.0]\n"
        "may_differ: [loss]\n"
    )


def test_the_sweep_is_one_that_the_harness_reads(tmp_path: Path) -> None:
    custom = (
        '[trainer.loss]\ntype = "custom"\nimport_path = "ablation_loss.compute"\n'
        '[trainer.loss.kwargs]\ntype = "kpop"\nphi = 0.1\n'
    )
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    base, *overlays = _write(folder, base=_BASE, on=_IPO, kpop=custom)
    path = tmp_path / "sweep.yaml"
    path.write_text(import_folder(base, overlays))
    sweep = load_sweep(path)
    assert [(arm.name, [o.text for o in arm.overrides]) for arm in sweep.arms] == [
        ("on", ["loss=ipo", "loss.eps=0.3"]),
        ("kpop", ["loss=kpop", "loss.phi=0.1"]),
    ]
    assert (sweep.baseline, sweep.pairing, sweep.may_differ) == ("on", "none", ("loss",))
    assert f"trainer.base=['{str(base).replace(chr(39), chr(92) + chr(39))}']" in [
        override.text for override in sweep.common
    ]


def test_what_names_a_run_is_left_to_the_harness_and_said(tmp_path: Path) -> None:
    ipo = (
        _IPO
        + '[slurm]\njob_name = "ipo"\npre_run_command = "clear --label ipo-label || true"\n'
        + '[monitors.wandb]\nname = "ipo"\n'
        + _SOURCE
    )
    base, *overlays = _write(tmp_path, base=_BASE, ipo=ipo)
    text = import_folder(base, overlays)
    assert (
        "# Set by the harness instead of ipo.toml: monitors.wandb.name,"
        " orchestrator.train.source[0].env.agent.runtime.labels, slurm.job_name,"
        " slurm.pre_run_command\n"
    ) in text
    assert "  ipo: [loss=ipo, loss.eps=0.3]\n" in text


def test_loss_knobs_of_the_base_count_as_prime_rl_counts_them_and_are_shown(
    tmp_path: Path,
) -> None:
    loss = '[trainer.loss]\ntype = "ipo"\nadv_tau = 0.5\n'
    base, *overlays = _write(tmp_path, base=loss, tight="[trainer.loss]\neps = 0.1\n")
    text = import_folder(base, overlays)
    assert (
        "# Replaced in the base by each arm's loss: trainer.loss.type='ipo',"
        " trainer.loss.adv_tau=0.5\n"
    ) in text
    assert "  tight: [loss=ipo, loss.adv_tau=0.5, loss.eps=0.1]\n" in text


def test_an_overlay_without_effect_is_refused(tmp_path: Path) -> None:
    assert _refusal(tmp_path, base=_BASE, same="max_steps = 1200\n") == (
        "`same.toml` changes nothing of `base.toml`"
    )
    assert _refusal(tmp_path, base=_IPO, same=_IPO) == "`same.toml` changes nothing of `base.toml`"
    assert _refusal(tmp_path, base=_BASE, empty="") == (
        "`empty.toml` changes nothing of `base.toml`"
    )


@pytest.mark.parametrize(
    ("overlay", "message"),
    [
        (_IPO + "[orchestrator]\nbatch_size = 8\n", "`x.toml`: `orchestrator.batch_size` differs"),
        ("max_steps = 5\n" + _IPO, "`x.toml`: `max_steps` differs from `base.toml`"),
        (
            _IPO + _SOURCE.replace('"swe"', '"other"'),
            "`x.toml`: `orchestrator.train.source[0].name` differs from `base.toml`",
        ),
        (
            _IPO + _SOURCE + _SOURCE,
            "`x.toml`: `orchestrator.train.source[1].name` differs",
        ),
        (
            _IPO + '[slurm]\npre_run_command = "rm -rf x"\n',
            "`x.toml`: `slurm.pre_run_command` differs from `base.toml`",
        ),
        ('[slurm]\njob_name = "x"\n', "`x.toml` states no loss"),
        ("[trainer]\nloss = 3\n", "`x.toml`: `trainer.loss` is 3, want a table"),
        ('[trainer.loss]\ntype = "sapo"\n', "`x.toml`: `trainer.loss.type` is 'sapo'"),
        ("[trainer.loss]\neps = 0.1\n", "`x.toml`: `trainer.loss` has no `type`"),
        (
            '[trainer.loss]\ntype = "ipo"\nipo_threshold = 0.1\n',
            "`x.toml`: `trainer.loss.ipo_threshold` is a key that prime-rl renamed or dropped",
        ),
        ("[trainer.loss\n", "x.toml:1: not valid TOML"),
    ],
)
def test_an_overlay_that_is_more_or_less_than_a_known_loss_is_refused_by_key(
    tmp_path: Path, overlay: str, message: str
) -> None:
    assert _refusal(tmp_path, base=_BASE, x=overlay).startswith(message)


def test_a_switch_of_type_over_the_bases_knobs_is_refused_as_prime_rl_refuses_it(
    tmp_path: Path,
) -> None:
    assert _refusal(tmp_path, base=_IPO, icepop=_ICEPOP) == (
        "`icepop.toml` with `base.toml`: loss `icepop` has no knob `loss.eps`"
    )


def test_overlays_with_one_loss_or_one_name_are_refused(tmp_path: Path) -> None:
    assert _refusal(tmp_path, base=_BASE, a=_IPO, b='[trainer.loss]\ntype = "ipo"\n') == (
        "`a.toml` and `b.toml` state the same loss"
    )
    assert _refusal(tmp_path, base=_BASE, ipo=_IPO, IPO=_ICEPOP) == (
        "`ipo.toml` and `IPO.toml` would both be the arm `IPO`"
    )


def test_a_file_name_that_no_arm_can_have_and_no_overlays_at_all_are_refused(
    tmp_path: Path,
) -> None:
    assert _refusal(tmp_path, **{"base": _BASE, "a b": _IPO}) == (
        "`a b.toml`: 'a b' can't be the name of an arm"
    )
    assert _refusal(tmp_path, base=_BASE) == "`base.toml`: no overlays given"
