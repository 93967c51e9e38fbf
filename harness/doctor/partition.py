"""A profile against its cluster: does what it asks for exist, and would SLURM take it?"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness.dispatch.interface import Order, load_dispatcher
from harness.dispatch.receipts import current_user
from harness.doctor.check import Check, failed, ok, warning
from harness.errors import HarnessError
from harness.near import did_you_mean
from harness.profile import Profile
from harness.records.layout import SweepPaths
from harness.records.model import PlannedRun
from harness.scheduler.commands import SlurmError, call
from harness.scheduler.jobs import parse_duration
from harness.slurm_profile import SlurmProfile
from harness.slurm_time import show_minutes

SWEEP = "doctor"
RUN = PlannedRun(arm="probe", seed=0, identity="", max_steps=1)
"""What the doctor pretends to run: no such sweep is ever written."""

_ANYTHING = ("ALL", "(null)", "")


def check_profile(profile: Profile, root: Path) -> list[Check]:
    """Check what `profile` asks of the cluster. The controller answers.

    Args:
        root: the folder of all sweeps.
    """
    settings: SlurmProfile = profile.settings
    where = f"profile `{profile.name}`"
    try:
        partitions = parse_partitions(call(["scontrol", "--oneliner", "show", "partition"]))
    except SlurmError as error:
        return [failed("partition", error.message, error.hint or "try again in a minute")]
    partition = settings.partition or _default_of(partitions)
    if partition is None:
        known = ", ".join(f"`{name}`" for name in sorted(partitions))
        return [
            failed(
                "partition",
                f"{where} sets no `partition`, and the cluster has no default",
                f"set one of {known}",
            )
        ]
    if partition not in partitions:
        return [
            failed(
                "partition",
                f"{where}: `partition` is `{partition}`, which the cluster doesn't have",
                did_you_mean(partition, partitions, what="partitions"),
            )
        ]
    checks = [judge_partition(settings, partition, partitions[partition])]
    checks.append(_check_time(settings, partition, partitions[partition]))
    checks += _check_account(settings)
    return [*checks, _check_script(profile, root)]


def parse_partitions(text: str) -> dict[str, dict[str, str]]:
    """Return name -> SLURM's keys, from `scontrol --oneliner show partition`."""
    found = {}
    for line in text.splitlines():
        pairs = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" in pairs:
            found[pairs["PartitionName"]] = pairs
    return found


def judge_partition(settings: SlurmProfile, name: str, partition: Mapping[str, str]) -> Check:
    """Whether the partition takes jobs, and those of the profile's account, qos and size."""
    state = partition.get("State", "UP")
    if state != "UP":
        return failed(
            "partition", f"`{name}` is {state}: its jobs don't start", "ask your site, or wait"
        )
    for key, allowed in (("account", "AllowAccounts"), ("qos", "AllowQos")):
        value, names = getattr(settings, key), partition.get(allowed, "ALL")
        if value is not None and names not in _ANYTHING and value not in names.split(","):
            return failed(
                "partition",
                f"`{name}` doesn't take the {key} `{value}`",
                did_you_mean(value, names.split(","), what=f"{key}s"),
            )
    most = partition.get("MaxNodes", "")
    if most.isdecimal() and settings.nodes > int(most):
        return failed(
            "partition",
            f"`{name}` gives a job at most {most} nodes, and `nodes` is {settings.nodes}",
            "lower `nodes`, or choose another partition",
        )
    preempts = partition.get("PreemptMode", "OFF")
    more = "" if preempts == "OFF" else f", its jobs may be preempted ({preempts.lower()})"
    return ok("partition", f"`{name}` is up, {partition.get('TotalNodes', '?')} nodes{more}")


def _check_time(settings: SlurmProfile, name: str, partition: Mapping[str, str]) -> Check:
    longest, usual = partition.get("MaxTime", ""), partition.get("DefaultTime", "")
    if settings.time is None:
        if parse_duration(usual) is None:
            usual = longest
        return warning(
            "time limit",
            f"`time` isn't set: runs get the partition's {usual}",
            "set `time`, or GPU-hours can't be planned",
        )
    limit_s = parse_duration(longest)
    if limit_s is not None and settings.time * 60 > limit_s:
        return failed(
            "time limit",
            f"`time` is {show_minutes(settings.time)}, and `{name}` allows {longest}",
            "lower `time`: a run goes on from its checkpoint after the limit",
        )
    return ok("time limit", f"{show_minutes(settings.time)} of {longest.lower() or 'any length'}")


def _check_account(settings: SlurmProfile) -> list[Check]:
    """Look for account and qos in accounting. Where that is off or silent, nothing is found."""
    if settings.account is None and settings.qos is None:
        return []
    command = ["sacctmgr", "--noheader", "--parsable2", "show", "associations"]
    try:
        text = call([*command, f"user={current_user()}", "format=account,qos"])
    except SlurmError:
        return []
    return judge_account(settings, text)


def judge_account(settings: SlurmProfile, associations: str) -> list[Check]:
    """Hold account and qos against lines of `ACCOUNT|QOS,QOS,…` of the user.

    A cluster may take an account that it doesn't know; who pays for the job is then unclear.
    """
    rows = [line.split("|") for line in associations.splitlines() if "|" in line]
    accounts = {row[0] for row in rows if row[0]}
    own = [row for row in rows if settings.account in (None, row[0])]
    qos = {name for row in own for name in row[1].split(",") if name}
    for key, value, known in (
        ("account", settings.account, accounts),
        ("qos", settings.qos, qos),
    ):
        if value is not None and known and value not in known:
            return [
                warning(
                    "account",
                    f"accounting doesn't know the {key} `{value}` of yours",
                    did_you_mean(value, known, what=f"{key}s" if key == "account" else key),
                )
            ]
    shown = [f"{key} `{v}`" for key in ("account", "qos") if (v := getattr(settings, key))]
    return [ok("account", f"{' and '.join(shown)}: known to accounting")] if accounts else []


def _check_script(profile: Profile, root: Path) -> Check:
    """Ask SLURM whether it would take the very script that `harness run` hands over."""
    order = Order(SweepPaths(root / SWEEP), (RUN,), profile, code_hash="")
    try:
        script = load_dispatcher(profile.type).preview(order).scripts[0]
    except HarnessError as error:
        return failed("submission", error.message, error.hint)
    with tempfile.TemporaryDirectory(prefix="harness-doctor-") as folder:
        path = Path(folder) / "script.sh"
        path.write_text(script.text, encoding="utf-8")
        try:
            call(["sbatch", "--test-only", str(path)])
        except SlurmError as error:
            return failed(
                "submission",
                f"SLURM would refuse a run of the profile `{profile.name}`: {error.message}",
                "`sacctmgr show associations user=$USER` lists your accounts and qos;"
                " `sinfo -o '%P %l %c %m %G'` what the nodes have",
            )
    return ok("submission", f"SLURM would take a run of the profile `{profile.name}`")


def _default_of(partitions: Mapping[str, Mapping[str, str]]) -> str | None:
    return next((name for name, p in partitions.items() if p.get("Default") == "YES"), None)
