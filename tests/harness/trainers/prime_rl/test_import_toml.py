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
    folder = tmp_path / "ablation"
    folder.mkdir()
    base = base.rename(folder / "base.toml")
    imported = import_folder(base, [overlays[1].rename(tmp_path / "ipo-0.3.toml"), overlays[0]])
    head, _, rest = imported.text.partition("question:")
    assert " ".join(line.removeprefix("# ") for line in head.splitlines()) == (
        f"Made from {base} and one overlay per loss."
    )
    assert all(line.startswith("# ") for line in head.splitlines())
    assert f"question:{rest}" == (
        'question: "Which loss holds up on ablation?"\n'
        "# The arm that every other one is compared with.\n"
        "baseline: ipo-0.3\n"
        "# Reruns of the same recipe: prime-rl has no seed for everything. Each costs a whole run\n"
        "# of every arm, and a single run per arm decides nothing.\n"
        "seeds: [0, 1, 2]\n"
        "pairing: none\n"
        "common:\n"
        "  - trainer=prime_rl\n"
        "  - task=external\n"
        "  - model=external\n"
        f"  - \"trainer.base=['{base}']\"\n"
        "  - \"task.name='swe'\"\n"
        "  - \"model.name='org/model'\"\n"
        "  - max_steps=1200\n"
        "arms:\n"
        "  ipo-0.3: [loss=ipo, loss.eps=0.3]\n"
        "  icepop: [loss=icepop, loss.ratio_low=0.2, loss.ratio_high=5.0]\n"
        "may_differ: [loss]\n"
        "analysis:\n"
        "  primary: [solve_rate, mismatch_kl]\n"
        "  # `harness plan` shows the windows that runs are judged by; declare baseline_steps and\n"
        "  # last_steps of your own here before anything has run.\n"
    )
    assert imported.remarks == ()


def test_the_name_of_the_recipe_and_the_number_of_reruns_are_what_was_asked_for(
    tmp_path: Path,
) -> None:
    base, *overlays = _write(tmp_path, swe=_BASE, ipo=_IPO)
    assert 'question: "Which loss holds up on swe?"\n' in import_folder(base, overlays).text
    text = import_folder(base, overlays, name='a \n"b"', num_seeds=1).text
    assert 'question: "Which loss holds up on a \\"b\\"?"\n' in text
    assert "seeds: [0]\n" in text
    with pytest.raises(UsageError, match="1001 seeds"):
        import_folder(base, overlays, num_seeds=1001)


def test_the_sweep_is_one_that_the_harness_reads(tmp_path: Path) -> None:
    custom = (
        '[trainer.loss]\ntype = "custom"\nimport_path = "ablation_loss.compute"\n'
        '[trainer.loss.kwargs]\ntype = "kpop"\nphi = 0.1\n'
    )
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    base, *overlays = _write(folder, base=_BASE, on=_IPO, kpop=custom)
    path = tmp_path / "sweep.yaml"
    path.write_text(import_folder(base, overlays).text)
    sweep = load_sweep(path)
    assert [(arm.name, [o.text for o in arm.overrides]) for arm in sweep.arms] == [
        ("on", ["loss=ipo", "loss.eps=0.3"]),
        ("kpop", ["loss=kpop", "loss.phi=0.1"]),
    ]
    assert (sweep.baseline, sweep.pairing, sweep.may_differ) == ("on", "none", ("loss",))
    assert (sweep.seeds, sweep.analysis.primary) == ((0, 1, 2), ("solve_rate", "mismatch_kl"))
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
    imported = import_folder(base, overlays)
    assert imported.remarks == (
        "set by the harness instead of ipo.toml: monitors.wandb.name,"
        " orchestrator.train.source[0].env.agent.runtime.labels, slurm.job_name,"
        " slurm.pre_run_command",
    )
    assert (
        "# Set by the harness instead of ipo.toml: monitors.wandb.name,\n"
        "# orchestrator.train.source[0].env.agent.runtime.labels, slurm.job_name,"
        " slurm.pre_run_command.\n"
    ) in imported.text
    assert "  ipo: [loss=ipo, loss.eps=0.3]\n" in imported.text


def test_a_project_stays_the_bases_and_that_is_said(tmp_path: Path) -> None:
    project = '[monitors.wandb]\nproject = "{}"\n'
    bare, ipo = _write(tmp_path, bare=_BASE, ipo=_IPO + project.format("mine"))
    assert import_folder(bare, [ipo]).remarks == (
        "left out of ipo.toml: monitors.wandb.project; every arm gets the base's, none",
    )
    [base] = _write(tmp_path, base=_BASE + project.format("ours"))
    assert import_folder(base, [ipo]).remarks == (
        "left out of ipo.toml: monitors.wandb.project; every arm gets the base's, 'ours'",
    )


def test_a_threshold_that_no_file_states_is_said(tmp_path: Path) -> None:
    base, ipo = _write(tmp_path, base=_BASE, ipo='[trainer.loss]\ntype = "ipo"\n')
    assert import_folder(base, [ipo]).remarks == (
        "no file states loss.eps of ipo: it is 0.3, whatever the default of prime-rl's version is",
    )


def test_steps_are_found_where_prime_rl_takes_them_and_missing_ones_are_said(
    tmp_path: Path,
) -> None:
    steps, none, ipo = _write(
        tmp_path, steps="[orchestrator]\nmax_steps = 7\n", none="seq_len = 8\n", ipo=_IPO
    )
    assert "  - max_steps=7\n" in import_folder(steps, [ipo]).text
    imported = import_folder(none, [ipo])
    assert "max_steps=" not in imported.text
    assert imported.remarks == (
        f"no max_steps in {none}: add one to `common`, or the default of the harness holds",
    )


def test_a_relative_base_stands_as_it_was_given_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, base=_BASE, ipo=_IPO)
    monkeypatch.chdir(tmp_path)
    imported = import_folder(Path("base.toml"), [Path("ipo.toml")])
    assert "  - \"trainer.base=['base.toml']\"\n" in imported.text
    assert imported.remarks == (
        "the path base.toml is relative to the folder that harness is called in: keep to it,"
        " or make it absolute",
    )


def test_loss_knobs_of_the_base_count_as_prime_rl_counts_them_and_are_shown(
    tmp_path: Path,
) -> None:
    loss = '[trainer.loss]\ntype = "ipo"\nadv_tau = 0.5\n'
    base, *overlays = _write(tmp_path, base=loss, tight="[trainer.loss]\neps = 0.1\n")
    imported = import_folder(base, overlays)
    assert imported.remarks[0] == (
        f"loss knobs of {base}, replaced by each arm's loss: trainer.loss.type='ipo',"
        " trainer.loss.adv_tau=0.5"
    )
    assert "  tight: [loss=ipo, loss.adv_tau=0.5, loss.eps=0.1]\n" in imported.text


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


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ('type = "ipo"\neps = nan', "`trainer.loss.eps` is nan, want a finite number"),
        ('type = "ipo"\neps = inf', "`trainer.loss.eps` is inf, want a finite number"),
        ('type = "ipo"\neps = "0.1"', "`trainer.loss.eps` is the text '0.1', want a number"),
        ('type = "ipo"\neps = -1', "`trainer.loss.eps` is -1.0, want at least 0"),
        ('type = "ipo"\neps = true', "`trainer.loss.eps` is true, want a number"),
        ('type = "ipo"\neps = "None"', "`trainer.loss.eps` is null, want a number"),
        (
            'type = "icepop"\nratio_low = 0',
            "`trainer.loss.ratio_low` is 0, and prime-rl's `icepop` wants a number above 0",
        ),
        (
            'type = "icepop"\nratio_low = "0.1"\nratio_high = 5.0',
            "`trainer.loss.ratio_low` is the text '0.1', want a number",
        ),
        (
            'type = "cispo"\nratio_high = 0.5',
            "`trainer.loss.ratio_high` is 0.5, and prime-rl's `cispo` wants a number of at least 1",
        ),
        (
            'type = "custom"\nimport_path = "ablation_loss.compute"\n'
            'kwargs = {type = "kpop", phi = true}',
            "`trainer.loss.kwargs.phi` is true, want a number",
        ),
    ],
)
def test_a_value_that_no_sweep_could_be_planned_with_is_refused_by_file_and_key(
    tmp_path: Path, knobs: str, message: str
) -> None:
    assert _refusal(tmp_path, base=_BASE, x=f"[trainer.loss]\n{knobs}\n") == (
        f"`x.toml`: {message}"
    )


def test_a_switch_of_type_over_the_bases_knobs_is_refused_as_prime_rl_refuses_it(
    tmp_path: Path,
) -> None:
    assert _refusal(tmp_path, base=_IPO, icepop=_ICEPOP) == (
        "`icepop.toml` with `base.toml`: loss `icepop` has no knob `loss.eps`"
    )
    with pytest.raises(UsageError) as caught:
        import_folder(tmp_path / "base.toml", [tmp_path / "icepop.toml"])
    assert caught.value.hint.startswith("take `[trainer.loss]` out of the base; ")


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
