from __future__ import annotations

from pathlib import Path

import pytest

from harness.config.conf_dir import load_conf
from harness.errors import UsageError
from harness.records.files import to_json
from harness.records.model import CodeRecord, PlanRecord, from_record, to_record
from harness.resources import CONF_DIR
from harness.sweep.plan import build_plan
from harness.sweep.spec import SweepSpec, load_sweep

GOOD = """
question: does it fit?
baseline: ipo
seeds: [0, 1]
common: [trainer=command, task=external, model=external, "trainer.argv=[train]"]
arms:
  ipo: [loss=ipo]
  icepop: [loss=icepop]
grid:
  'wide_{eps}': {overrides: [loss=ipo], axes: {loss.eps: [0.5]}}
"""


def load(tmp_path: Path, resources: str) -> SweepSpec:
    path = tmp_path / "study.yaml"
    path.write_text(GOOD + resources)
    return load_sweep(path)


def plan(tmp_path: Path, resources: str) -> PlanRecord:
    code = CodeRecord(hash="abc", commit=None, is_dirty=None, versions={})
    return build_plan(load(tmp_path, resources), load_conf((CONF_DIR,)), [], code).record


def test_an_arm_overrides_resources_in_the_forms_of_a_profile(tmp_path: Path) -> None:
    spec = load(
        tmp_path,
        """
resources:
  wide_0.5: {gpus_per_node: 2, nodes: 2, time: 24:00:00, mem: 64G}
  ipo: {partition: null, time: 90, sbatch: {constraint: h100, exclusive: null}}
  icepop: {}
""",
    )
    assert spec.resources == {
        "wide_0.5": {"gpus_per_node": 2, "nodes": 2, "time": 1440, "mem": "64G"},
        "ipo": {
            "partition": None,
            "time": 90,
            "sbatch": {"constraint": "h100", "exclusive": None},
        },
    }


@pytest.mark.parametrize("resources", ["", "resources:\n", "resources: {}\n"])
def test_no_resources_are_none(tmp_path: Path, resources: str) -> None:
    assert load(tmp_path, resources).resources == {}


@pytest.mark.parametrize(
    ("resources", "message", "hint"),
    [
        ("resources: [ipo]", "`resources` is ['ipo'], want arms", "gpus_per_node: 2"),
        ("resources: {ipoo: {nodes: 2}}", "`ipoo`, which is not an arm", "`ipo`"),
        ("resources: {ipo: 2}", "`resources.ipo` is 2, want keys", "gpus_per_node: 2"),
        ("resources: {ipo: }", "`resources.ipo` is None, want keys", ""),
        ("resources: {ipo: {node: 2}}", "unknown key `resources.ipo.node`", "`nodes`"),
        ("resources: {ipo: {gpus: 2}}", "unknown key `resources.ipo.gpus`", "`gpus_per_node`"),
        ("resources: {ipo: {setup: [a]}}", "`resources.ipo.setup` can't be set here", "`nodes`"),
        ("resources: {ipo: {parallelism: 2}}", "`resources.ipo.parallelism` can't be", ""),
        ("resources: {ipo: {type: slurm}}", "`resources.ipo.type` can't be set here", ""),
        ("resources: {ipo: {nodes: 0}}", "`resources.ipo.nodes` is 0, want at least 1", ""),
        ("resources: {ipo: {time: 1h}}", "`resources.ipo.time` is '1h'", "24:00:00"),
        ("resources: {ipo: {mem: 1GB}}", "`resources.ipo.mem` is '1GB'", "64G"),
        (
            "resources: {ipo: {mem: 1G, mem_per_cpu: 1G}}",
            "`resources.ipo.mem` and `resources.ipo.mem_per_cpu` are both set",
            "keep one",
        ),
        (
            "resources: {ipo: {gpus_per_node: 1, sbatch: {gres: gpu:1}}}",
            "`resources.ipo.gpus_per_node` and `resources.ipo.sbatch.gres` both ask for GPUs",
            "",
        ),
        (
            "resources: {ipo: {sbatch: {mem: 1G}}}",
            "`resources.ipo.sbatch.mem` has a key of its own",
            "`mem`",
        ),
        ("resources: {ipo: {sbatch: {array: null}}}", "can't be switched off", ""),
        ("resource: {ipo: {nodes: 2}}", "unknown key `resource`", "`resources`"),
    ],
)
def test_a_mistake_names_file_key_and_value(
    tmp_path: Path, resources: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        load(tmp_path, resources)
    assert raised.value.message.startswith(f"`{tmp_path / 'study.yaml'}`: ")
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_resources_change_no_identity_and_no_difference(tmp_path: Path) -> None:
    without = plan(tmp_path, "")
    with_them = plan(tmp_path, "resources: {icepop: {gpus_per_node: 2, time: 4:00:00}}\n")
    assert without.resources == {}
    assert with_them.resources == {"icepop": {"gpus_per_node": 2, "time": 240}}
    assert [run.identity for run in with_them.runs] == [run.identity for run in without.runs]
    assert [arm.differs for arm in with_them.arms] == [arm.differs for arm in without.arms]
    assert from_record(PlanRecord, to_record(with_them), where="plan.json") == with_them


def test_a_plan_that_was_written_before_there_were_resources_reads_as_without(
    tmp_path: Path,
) -> None:
    record = plan(tmp_path, "")
    stored = to_record(record)
    del stored["resources"]
    assert from_record(PlanRecord, stored, where="plan.json") == record
    assert '"resources": {}' in to_json(to_record(record))
