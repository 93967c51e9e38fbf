from __future__ import annotations

import json
import re
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest

from harness.config.yaml_file import load_yaml
from harness.errors import UsageError
from harness.profile import load_profile, profile_names
from harness.records.model import from_record, to_record
from harness.resources import SLURM_DIR
from harness.slurm_options import KNOWN, replacement_of
from harness.slurm_profile import SlurmProfile


def load(tmp_path: Path, text: str) -> SlurmProfile:
    path = tmp_path / "mine.yaml"
    path.write_text(f"type: slurm\n{text}\n")
    profile = load_profile(str(path))
    assert (profile.name, profile.type) == ("mine", "slurm")
    assert isinstance(profile.settings, SlurmProfile)
    return profile.settings


def refusal(tmp_path: Path, text: str) -> UsageError:
    with pytest.raises(UsageError) as raised:
        load(tmp_path, text)
    assert raised.value.message.startswith(f"`{tmp_path / 'mine.yaml'}`: ")
    assert "\n" not in raised.value.message + raised.value.hint
    return raised.value


def test_every_shipped_profile_loads() -> None:
    assert profile_names() == ["devcluster", "local", "slurm"]
    for name in profile_names():
        assert load_profile(name).name == name


def test_the_template_states_every_key_with_its_default_and_a_comment() -> None:
    path = SLURM_DIR / "profiles" / "slurm.yaml"
    assert list(load_yaml(path)) != []
    assert set(load_yaml(path)) == {spec.name for spec in fields(SlurmProfile)}
    assert load_profile("slurm").settings == SlurmProfile()
    groups = [group.splitlines() for group in path.read_text().split("\n\n")]
    for line, before in ((b, a) for group in groups for a, b in pairwise(group)):
        is_key = re.match(r"[a-z]", line) is not None
        together = re.match(r"[a-z]", before) is not None  # keys that share the comment above
        assert not is_key or before.startswith("#") or together, line


def test_settings_survive_an_intent(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
partition: gpu
time: 2-12:00:00
setup: [module load cuda]
srun_args: [--cpu-bind=none, '--export=ALL,A=1']
sbatch: {constraint: h100, nice: 5, exclusive: true, wckey: null}
notify: {webhook: $HOOK}
finish: {partition: cpu, time: 5, mem: null}
""",
    )
    assert settings == SlurmProfile(
        partition="gpu",
        time=3600,
        setup=("module load cuda",),
        srun_args=("--cpu-bind=none", "--export=ALL,A=1"),
        sbatch={"constraint": "h100", "nice": 5, "exclusive": True, "wckey": None},
        notify={"webhook": "$HOOK"},
        finish={"partition": "cpu", "time": 5, "mem": None},
    )
    stored = json.loads(json.dumps(to_record(settings)))
    assert from_record(SlurmProfile, stored, where="intent.json") == settings


@pytest.mark.parametrize(
    ("written", "minutes"),
    [
        ("24:00:00", 1440),
        ("'24:00:00'", 1440),
        ('"24:00:00"', 1440),
        ("3:59", 4),
        ("04:00:00", 240),
        ("1-00:00:00", 1440),
        ("00:30:00", 30),
        ("12:30", 13),
        ("1-12", 2160),
        ("90", 90),
        ("'90'", 90),
        ("null", None),
    ],
)
def test_times_are_text_quoted_or_not_and_integers_are_minutes(
    tmp_path: Path, written: str, minutes: int | None
) -> None:
    signal = "signal_delay_s: 60"
    assert load(tmp_path, f"time: {written}\n{signal}").time == minutes
    assert load(tmp_path, f"finish: {{time: {written}}}").finish == {"time": minutes}


@pytest.mark.parametrize(
    ("written", "mem"),
    [("64G", "64G"), ("500M", "500M"), ("4096", "4096"), ("0", "0"), ("'2t'", "2t")],
)
def test_memory_stays_as_written(tmp_path: Path, written: str, mem: str) -> None:
    assert load(tmp_path, f"mem: {written}").mem == mem
    assert load(tmp_path, f"mem_per_gpu: {written}").mem_per_gpu == mem


def test_lists_and_options_may_be_left_empty(tmp_path: Path) -> None:
    assert load(tmp_path, "setup:\nsrun_args:\nsbatch:") == SlurmProfile()


def test_an_option_may_be_written_with_underscores(tmp_path: Path) -> None:
    assert load(tmp_path, "sbatch: {job_name: null, gpu_bind: closest}").sbatch == {
        "job-name": None,
        "gpu-bind": "closest",
    }


@pytest.mark.parametrize(
    "option",
    [
        "comment",
        "error",
        "job-name",
        "nodes",
        "ntasks-per-node",
        "open-mode",
        "output",
        "requeue",
        "signal",
        "wckey",
    ],
)
def test_what_the_harness_writes_can_be_switched_off(tmp_path: Path, option: str) -> None:
    assert load(tmp_path, f"sbatch: {{{option}: null}}").sbatch == {option: None}


def test_an_option_of_a_plugin_is_taken_as_it_is(tmp_path: Path) -> None:
    text = "sbatch: {container-image: 'nvcr.io#nvidia/pytorch:26.01-py3'}"
    assert load(tmp_path, text).sbatch == {"container-image": "nvcr.io#nvidia/pytorch:26.01-py3"}


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        # keys: near misses, and what other tools call them
        ("partitions: gpu", "unknown key `partitions`", "did you mean `partition`?"),
        ("cpus-per-task: 4", "unknown key `cpus-per-task`", "write `cpus_per_task`"),
        ("slurm_partition: gpu", "unknown key `slurm_partition`", "write `partition`"),
        ("gres: gpu:8", "unknown key `gres`", "write `gpus_per_node: 8`, or `sbatch: {gres:"),
        ("gpus: 8", "unknown key `gpus`", "write `gpus_per_node`"),
        ("mem_gb: 64", "unknown key `mem_gb`", "write `mem`"),
        ("timeout_min: 60", "unknown key `timeout_min`", "write `time`"),
        ("array_parallelism: 8", "unknown key `array_parallelism`", "write `parallelism`"),
        ("constraint: h100", "unknown key `constraint`", "under `sbatch: {constraint: …}`"),
        ("constrain: h100", "unknown key `constrain`", "under `sbatch: {constraint: …}`"),
        ("job_name: x", "unknown key `job_name`", "an interrupted submission finds its jobs"),
        ("qzx: 1", "unknown key `qzx`", "keys: `account`"),
        ("1: 2", "unknown key `1`", "keys: "),
        ('"a\\nb": 1', "unknown key `a b`", "keys: "),
        # memory
        ("mem: 64G\nmem_per_cpu: 4G", "`mem` and `mem_per_cpu` are both set", "keep one"),
        ("mem_per_cpu: 4G\nmem_per_gpu: 4G", "`mem_per_cpu` and `mem_per_gpu` are both", ""),
        ("mem: 64GB", "`mem` is '64GB', want an amount of memory", "such as 64G"),
        ("mem: 1.5G", "`mem` is '1.5G'", "whole number"),
        ("mem: -4", "`mem` is -4", ""),
        ("mem: true", "`mem` is True", ""),
        ("mem: [64G]", "`mem` is ['64G']", ""),
        # numbers and words
        ("nodes: 0", "`nodes` is 0, want at least 1", ""),
        ("nodes: null", "`nodes` is null, want a whole number", "can't be null"),
        ("gpus_per_node: -1", "`gpus_per_node` is -1, want at least 0", ""),
        ("gpus_per_node: h100:8", "`gpus_per_node` is 'h100:8'", 'sbatch: {gres: "gpu:h100:8"}'),
        ("gpus_per_node: '8'", "`gpus_per_node` is the text '8'", "without quotes"),
        ("gpus_per_node: true", "`gpus_per_node` is true", ""),
        ("cpus_per_task: 1.5", "`cpus_per_task` is 1.5, want a whole number", ""),
        ("parallelism: 0", "`parallelism` is 0, want at least 1", ""),
        ("partition: 5", "`partition` is 5, want text", "quote"),
        ("partition: a b", "`partition` is 'a b'", "letters, digits"),
        ("partition: ''", "`partition` is empty", "null"),
        ("account: 'a;rm'", "`account` is 'a;rm'", ""),
        ('qos: "a\\nb"', "`qos` is 'a\\nb', want one line", ""),
        ("use_srun: 1", "`use_srun` is 1, want true or false", ""),
        ("requeue: maybe", "`requeue` is the text 'maybe'", ""),
        ("max_requeues: -1", "`max_requeues` is -1", ""),
        ("stall_action: requeu", "`stall_action` is the text 'requeu'", "`requeue`"),
        ("heartbeat_limit_s: 1", "`heartbeat_limit_s` is 1", "at least 5"),
        ("poll_s: 0", "`poll_s` is 0", ""),
        ("grace_s: .inf", "`grace_s` is inf", ""),
        ("grace_s: 300", "`grace_s` is 300, longer than `signal_delay_s` (120)", "lower `grace_s`"),
        ("time: 2\nsignal_delay_s: 120", "`time` is 0:02:00, no longer than the warning", "raise"),
        ("mail_type: END,FIAL", "`mail_type` holds 'FIAL'", "`FAIL`"),
        ("mail_type: end", "`mail_type` holds 'end'", "`END`"),
        # times
        ("time: 0", "`time` is 0, want at least 1", ""),
        ("time: -5", "`time` is -5, want at least 1", ""),
        ("time: 24h", "`time` is '24h', which is no time limit", "write 24:00:00"),
        ("time: 24:60:00", "`time` is '24:60:00', which is no time limit", ""),
        ("time: 1.5", "`time` is 1.5, which is no time limit", ""),
        ("time: true", "`time` is True, which is no time limit", ""),
        ("time: UNLIMITED", "`time` is 'UNLIMITED', which is no time limit", "leave it out"),
        # lines of shell
        ("setup: module load cuda", "`setup` is the text 'module load cuda', want a list", ""),
        ("setup: [3]", "`setup[0]` is 3, want text", ""),
        ('setup: [a, "b\\nc"]', "`setup[1]` is 'b\\nc', want one line", ""),
        ('setup: ["\\e[31m"]', "`setup[0]` is '\\x1b[31m', want one line", ""),
        ("setup: [' ']", "`setup[0]` is empty", ""),
        ("setup: ['#SBATCH --array=1']", "`setup[0]` is an option of sbatch", "under `sbatch:`"),
        ("python: ' '", "`python` is empty", "null"),
        ('python: "a\\nb"', "`python` is 'a\\nb'", "one line"),
        ("srun_args: --mpi=none", "want a list", ""),
        ("srun_args: [-l, --export=NONE]", "`srun_args[1]` is '--export=NONE'", "begin with `ALL`"),
        ("srun_args: [--export, NONE]", "`srun_args[0]` is '--export'", "begin with `ALL`"),
        ("srun_args: [--export-file=x]", "`srun_args[0]` is '--export-file=x'", ""),
        ("srun_args: [-o, x]", "`srun_args[0]` is '-o'", "harness logs"),
        ("srun_args: [--error=x]", "`srun_args[0]` is '--error=x'", "harness logs"),
        # options of sbatch
        ("sbatch: [hold]", "`sbatch` is ['hold'], want options of sbatch", ""),
        ("sbatch: {partition: gpu}", "`sbatch.partition` has a key of its own", "`partition`"),
        ("sbatch: {gpus-per-node: 8}", "`sbatch.gpus-per-node` has a key", "`gpus_per_node`"),
        ("sbatch: {mem: 64G}", "`sbatch.mem` has a key of its own", "write `mem` instead"),
        ("sbatch: {time: 24:00:00}", "`sbatch.time` has a key of its own", "`time`"),
        ("sbatch: {no-requeue: true}", "`sbatch.no-requeue` has a key", "`requeue`"),
        ("sbatch: {signal: USR1@60}", "`sbatch.signal` has a key", "`signal_delay_s`"),
        ("sbatch: {array: 0-3}", "`sbatch.array` has a key", "`parallelism`"),
        ("sbatch: {array: null}", "`sbatch.array` can't be switched off", "elements of an array"),
        ("sbatch: {time: null}", "`sbatch.time` is null", "set `time: null`"),
        ("sbatch: {constraint: null}", "does not write that option", ""),
        ("sbatch: {job_nme: null}", "`sbatch.job-nme` is null", "`job-name`"),
        ("sbatch: {job-name: x}", "`sbatch.job-name` is not for a profile", "null switches it off"),
        ("sbatch: {output: x}", "`sbatch.output` is not for a profile", "harness logs"),
        ("sbatch: {open-mode: truncate}", "`sbatch.open-mode` is not", "appends"),
        ("sbatch: {dependency: afterok:1}", "`sbatch.dependency` is not", "depend on each other"),
        ("sbatch: {dependency: null}", "`sbatch.dependency` is not", "depend on each other"),
        ("sbatch: {wrap: ls}", "`sbatch.wrap` is not", "writes the script"),
        ("sbatch: {wait: true}", "`sbatch.wait` is not", "follows"),
        ("sbatch: {parsable: true}", "`sbatch.parsable` is not", "sets it itself"),
        ("sbatch: {test-only: true}", "`sbatch.test-only` is not", "--dry-run"),
        ("sbatch: {export: NONE}", "`sbatch.export` is 'NONE'", "begin with `ALL`"),
        ("sbatch: {export: A=1}", "`sbatch.export` is 'A=1'", "begin with `ALL`"),
        ("sbatch: {export: true}", "`sbatch.export` is True", ""),
        ("sbatch: {export-file: /x}", "`sbatch.export-file` is not", "`setup`"),
        ("sbatch: {comment: null, job_name: null}", "are both null", "keep one"),
        ("sbatch: {job_name: null, job-name: null}", "names the option `job-name` twice", ""),
        ("sbatch: {--constraint: a}", "holds '--constraint'", "without dashes"),
        ("sbatch: {C: a}", "holds 'C', which can't be an option", "long name"),
        ("sbatch: {1: a}", "holds 1, which can't be an option", ""),
        ("sbatch: {a=b: c}", "holds 'a=b', which can't be an option", ""),
        ("sbatch: {exclusive: false}", "`sbatch.exclusive` is False", "leave the option out"),
        ("sbatch: {exclude: [a, b]}", "`sbatch.exclude` is ['a', 'b']", "`a,b`"),
        ("sbatch: {nice: .nan}", "`sbatch.nice` is nan", ""),
        ('sbatch: {constraint: "a\\n#SBATCH -p x"}', "`sbatch.constraint` is 'a\\n#", "one line"),
        ("gpus_per_node: 2\nsbatch: {gres: gpu:2}", "`sbatch.gres` both ask for GPUs", "one"),
        ("sbatch: {gpus: 4, gres: 'gpu:a:1'}", "`sbatch.gres` both ask for GPUs", ""),
        # the end of a submission
        ("notify: echo", "`notify` is 'echo', want a group of keys", ""),
        ("notify: {}", "`notify` has 0 keys, want one", ""),
        ("notify: {command: a, webhook: $B}", "`notify` has 2 keys, want one", ""),
        ("notify: {comand: a}", "unknown key `notify.comand`", "`command`"),
        ("notify: {command: 3}", "`notify.command` is 3, want text", ""),
        ('notify: {command: "a\\nb"}', "`notify.command` is 'a\\nb'", "one line"),
        ("notify: {webhook: ftp://x}", "`notify.webhook` is 'ftp://x', want a URL", "$NAME"),
        ("notify: {webhook: HOOK}", "`notify.webhook` is 'HOOK', want a URL", "$NAME"),
        ("notify: {webhook: $1}", "`notify.webhook` is '$1', want a URL", ""),
        ("finish: {setup: [a]}", "`finish.setup` can't be set here", "`partition`"),
        ("finish: {gpus_per_node: 1}", "`finish.gpus_per_node` can't be set here", ""),
        ("finish: {partitio: a}", "unknown key `finish.partitio`", "`partition`"),
        ("finish: {time: 0}", "`finish.time` is 0, want at least 1", ""),
        ("finish: {sbatch: {mem: 1G}}", "`finish.sbatch.mem` has a key", "`mem`"),
        ("finish: cpu", "`finish` is 'cpu', want a group of keys", ""),
    ],
)
def test_a_mistake_names_file_key_and_value(
    tmp_path: Path, text: str, error: str, hint: str
) -> None:
    refused = refusal(tmp_path, text)
    assert error in refused.message
    assert hint in refused.hint


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("setup: [a, 'export WANDB_API_KEY=0123456789abcdef']", "`setup[1]`"),
        ("python: 'HF_TOKEN=hunter2 python'", "`python`"),
        ("srun_args: ['--export=ALL,DB_PASSWORD=hunter2']", "`srun_args[0]`"),
        ("sbatch: {export: 'ALL,DB_PASSWORD=hunter2'}", "`sbatch.export`"),
        ("notify: {command: 'curl -H \"Authorization: Bearer hunter2\" x'}", "`notify.command`"),
        (
            "notify: {command: 'curl https://hooks.slack.com/services/T0/B0/hunter2hunter2hunt'}",
            "`notify.command`",
        ),
        (
            "notify: {webhook: 'https://hooks.slack.com/services/T0/B0/hunter2hunter2hunt'}",
            "`notify.webhook`",
        ),
        ("notify: {webhook: 'https://me:hunter2@lab.org/hook'}", "`notify.webhook`"),
        ("notify: {webhook: 'https://lab.org/hook?token=hunter2'}", "`notify.webhook`"),
    ],
)
def test_a_secret_is_refused_and_not_repeated(tmp_path: Path, text: str, key: str) -> None:
    refused = refusal(tmp_path, text)
    assert f"{key} looks like" in refused.message
    assert "hunter2" not in refused.message + refused.hint
    assert "0123456789abcdef" not in refused.message + refused.hint
    assert "environment" in refused.hint


@pytest.mark.parametrize("webhook", ["$MY_HOOK", "${MY_HOOK}", "https://lab.org/hooks/sweeps"])
def test_a_webhook_is_a_url_or_the_name_of_a_variable(tmp_path: Path, webhook: str) -> None:
    expected = "$MY_HOOK" if webhook.startswith("$") else webhook
    assert load(tmp_path, f"notify: {{webhook: '{webhook}'}}").notify == {"webhook": expected}


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("SBATCH_PARTITION", "`partition`"),
        ("SBATCH_TIMELIMIT", "`time`"),
        ("SBATCH_MEM_PER_NODE", "`mem`"),
        ("SBATCH_GPUS_PER_NODE", "`gpus_per_node`"),
        ("SBATCH_NO_REQUEUE", "`requeue: false`"),
        ("SBATCH_CONSTRAINT", "`sbatch: {constraint: …}`"),
        ("SBATCH_REQ_SWITCH", "`sbatch: {switches: …}`"),
        ("SBATCH_OUTPUT", ""),
    ],
)
def test_a_variable_of_sbatch_has_a_key_that_replaces_it(variable: str, key: str) -> None:
    assert replacement_of(variable) == key


def test_known_options_are_those_that_sbatch_documents() -> None:
    assert {"constraint", "hold", "wckey", "job-name", "exclusive"} <= KNOWN
    assert all(re.fullmatch(r"[a-z][a-z0-9-]*", name) for name in KNOWN)
