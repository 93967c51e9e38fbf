"""The development cluster: started, used, broken and ended as a user would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import COMMANDS_DIR, Cluster, devcluster, wait_until
from tests.slurm.conftest import cluster_name, need_slurm

ROOT = Path("/tmp") / f"ablation-devcluster-{os.getuid()}"


@pytest.fixture
def name(request: pytest.FixtureRequest, worker_id: str) -> Iterator[str]:
    """A name for a cluster of this test alone, which is stopped whatever the test does."""
    need_slurm()
    yield (mine := cluster_name("own", worker_id))
    devcluster("stop", "--name", mine)


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any cluster."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def processes_that_name(text: str) -> list[str]:
    """Return the command lines on this machine that hold a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text in line:
            found.append(line)
    return found


def daemon_pids(cluster: str) -> dict[str, int]:
    shown = devcluster("status", "--name", cluster, check=False).stdout
    rows = [line.split() for line in shown.splitlines() if "up, pid" in line]
    return {row[0]: int(row[-1]) for row in rows}


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


class TestStart:
    def test_prints_the_line_to_eval_and_jobs_run_on_every_node(self, name: str) -> None:
        started = devcluster("start", "--name", name)
        assert started.stdout == f"export SLURM_CONF={ROOT}/{name}/etc/slurm.conf\n"
        script = f"{started.stdout}srun -N4 --ntasks-per-node=1 uname -n"
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
        answer = subprocess.run(
            ["bash", "-c", script], env=env, capture_output=True, text=True, check=True
        )
        assert sorted(answer.stdout.split()) == ["gpu01", "gpu02", "gpu03", "gpu04"]

    def test_of_a_running_cluster_prints_the_same_line_and_mends_what_is_down(
        self, name: str
    ) -> None:
        first = devcluster("start", "--name", name)
        before = daemon_pids(name)
        devcluster("fault", "kill-node", "gpu03", "--name", name)
        devcluster("fault", "kill-controller", "--name", name)
        assert devcluster("status", "--name", name, check=False).returncode == 1
        again = devcluster("start", "--name", name)
        assert again.stdout == first.stdout
        assert again.stderr == f"cluster `{name}` is running; started slurmctld, gpu03\n"
        after = daemon_pids(name)
        assert {k for k, pid in before.items() if after[k] != pid} == {"slurmctld", "gpu03"}

    def test_twice_at_once_makes_one_cluster(self, name: str) -> None:
        argv = [str(COMMANDS_DIR / "start"), "--name", name]
        pair = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        said = {process.communicate(timeout=60)[0] for process in pair}
        assert said == {f"export SLURM_CONF={ROOT}/{name}/etc/slurm.conf\n"}
        slurmds = [c for c in processes_that_name(f"/{name}/") if c.startswith("slurmd ")]
        assert len(slurmds) == 4

    def test_with_other_options_is_refused(self, name: str) -> None:
        devcluster("start", "--name", name)
        refused = devcluster("start", "--name", name, "--nodes", "2", check=False)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.splitlines() == [
            f"error: cluster `{name}` runs with nodes `4`, not `2`",
            "hint: stop it first, or choose another --name",
        ]

    def test_that_fails_half_way_says_why_and_leaves_nothing(
        self, name: str, tmp_path: Path
    ) -> None:
        root = Path("/tmp") / f"open-{name}"
        root.mkdir()
        root.chmod(0o777)  # munged refuses a folder that everybody may change.
        try:
            failed = devcluster("start", "--name", name, "--state-dir", str(root), check=False)
            assert (failed.returncode, failed.stdout) == (1, "")
            assert failed.stderr.startswith("error: munged ended while it started")
            assert "insecure" in failed.stderr
            assert list(root.iterdir()) == []
            assert processes_that_name(str(root)) == []
        finally:
            root.rmdir()

    def test_killed_half_way_is_cleaned_up_by_the_next(self, name: str) -> None:
        argv = [str(COMMANDS_DIR / "start"), "--name", name]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
            wait_until((ROOT / name / "run" / "gpu01.pid").exists, "the first slurmd")
            process.kill()
        old = daemon_pids(name)
        assert "munged" in old
        again = devcluster("start", "--name", name)
        assert again.stderr == f"cleaning up what is left of an earlier cluster `{name}`\n"
        assert [daemon for daemon, pid in old.items() if is_alive(pid)] == []

    def test_interrupted_leaves_nothing(self, name: str) -> None:
        argv = [str(COMMANDS_DIR / "start"), "--name", name]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            wait_until((ROOT / name / "run" / "gpu01.pid").exists, "the first slurmd")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (130, b"error: interrupted\n")
        assert not (ROOT / name).exists()
        assert processes_that_name(f"/{name}/") == []

    @pytest.mark.parametrize(
        ("options", "complaint"),
        [
            (["--name", "Dev"], "--name `Dev` is no cluster name"),
            (["--name", "../x"], "--name `../x` is no cluster name"),
            (["--nodes", "0"], "--nodes `0` is not within 1 and 32"),
            (["--max-array-size", "1"], "--max-array-size `1` is not within 2 and 4000001"),
            (
                ["--state-dir", "/tmp/a b"],
                "--state-dir `/tmp/a b`: SLURM's files can't name this path",
            ),
            (["--state-dir", "/tmp/no-such-dir"], "--state-dir `/tmp/no-such-dir` is no folder"),
            (
                ["--state-dir", "/tmp/" + "x" * 90],
                f"the cluster's folder `/tmp/{'x' * 90}/dev` is too long for a Unix socket",
            ),
        ],
    )
    def test_refuses_what_no_cluster_could_live_with(
        self, options: list[str], complaint: str
    ) -> None:
        refused = devcluster("start", *options, check=False)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.splitlines()[0] == f"error: {complaint}"

    def test_and_stop_refuse_a_folder_that_is_no_clusters(self, name: str, tmp_path: Path) -> None:
        root = Path("/tmp") / f"mine-{name}"
        mine = root / "data" / "results.txt"
        mine.parent.mkdir(parents=True)
        mine.write_text("years of work")
        try:
            for command in ("start", "stop"):
                options = ("--name", "data", "--state-dir", str(root))
                refused = devcluster(command, *options, check=False)
                assert refused.returncode == 2
                assert f"`{root}/data` holds files that are no cluster's" in refused.stderr
            devcluster("stop", "--all", "--state-dir", str(root))
            assert mine.read_text() == "years of work"
        finally:
            mine.unlink()
            mine.parent.rmdir()
            root.rmdir()


class TestStop:
    def test_ends_every_process_and_removes_every_file(self, name: str, tmp_path: Path) -> None:
        pids_file = tmp_path / "pids"
        cluster = Cluster.start(name)
        daemons = daemon_pids(name)
        cluster.sbatch(  # A step that ignores TERM, and a process that left its parent.
            script=f"""\
            trap '' TERM
            setsid sh -c 'trap "" TERM; echo $$ >>{pids_file}; sleep 1000' &
            srun sh -c 'trap "" TERM; echo $$ >>{pids_file}; sleep 1000'"""
        )
        wait_until(lambda: len(lines(pids_file)) == 2, "both processes of the job")
        stopped = devcluster("stop", "--name", name)
        assert stopped.stderr == f"cluster `{name}` is stopped\n"
        assert not cluster.dir.exists()
        pids = [*daemons.values(), *map(int, lines(pids_file))]
        assert [pid for pid in pids if is_alive(pid)] == []
        assert processes_that_name(f"/{name}/") == []

    def test_leaves_another_cluster_alone(self, name: str) -> None:
        one, two = Cluster.start(f"{name}-a"), Cluster.start(f"{name}-b", "--nodes", "2")
        try:
            jobs = [cluster.sbatch() for cluster in (one, two)]
            for cluster, job in zip((one, two), jobs, strict=True):
                cluster.wait_for_job_state(job, "RUNNING")
            one.stop()
            assert two.job_state(jobs[1]) == "RUNNING"
            assert two.run("srun", "--gres=gpu:1", "uname", "-n").stdout == "gpu01\n"
        finally:
            one.stop()
            two.stop()

    def test_of_what_does_not_run_says_so(self, name: str) -> None:
        stopped = devcluster("stop", "--name", name)
        assert (stopped.stdout, stopped.stderr) == ("", f"cluster `{name}` was not running\n")

    def test_and_faults_spare_a_process_that_has_the_pid_of_a_dead_daemon(
        self, name: str, bystander: subprocess.Popen[bytes]
    ) -> None:
        cluster = Cluster.start(name)
        pid_file = cluster.dir / "run" / "gpu02.pid"
        started = pid_file.read_text().split()[1]
        cluster.kill_node("gpu02")
        pid_file.write_text(f"{bystander.pid} {started}\n")
        killed = devcluster("fault", "kill-node", "gpu02", "--name", name)
        assert killed.stderr == "gpu02 was not running\n"
        pid_file.write_text(f"{bystander.pid} {started}\n")
        cluster.stop()
        assert bystander.poll() is None


class TestDeniedNamespaces:
    def test_leave_the_nodes_the_machines_name_and_a_dead_node_still_dies_whole(
        self, name: str, tmp_path: Path
    ) -> None:
        pids_file = tmp_path / "pids"
        denied = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]
        argv = [*denied, str(COMMANDS_DIR / "start"), "--name", name, "--nodes", "1"]
        started = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert started.stderr == (
            "namespaces are denied here: all nodes bear the machine's host name\n"
        )
        cluster = Cluster.start(name, "--nodes", "1")
        assert cluster.run("srun", "uname", "-n").stdout.strip() == os.uname().nodename
        cluster.sbatch(script=f"srun sh -c 'echo $$ >>{pids_file}; exec sleep 1000'")
        wait_until(lambda: lines(pids_file), "the step")
        cluster.kill_node("gpu01", with_jobs=True)
        assert not is_alive(int(lines(pids_file)[0]))


def run_without(
    programs: str, *argv: str, path: str = "", root: bool = True, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a program that finds /dev/null where the `programs` are; nothing else sees that.

    Args:
        path: folders to put before PATH.
        root: False: in a user namespace, where the program isn't root.
    """
    hide = f"for p in {programs}; do mount --bind /dev/null $(command -v $p) || exit 99; done"
    user = "" if root else "unshare --user"
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{hide}; PATH="$0$PATH" exec {user} "$@"', path, *argv],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


class TestMissingPackages:
    def test_are_named_to_a_user(self, name: str) -> None:
        start = (sys.executable, str(COMMANDS_DIR / "start"), "--name", name)
        refused = run_without("slurmctld squeue", *start, root=False)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.splitlines() == [
            "error: SLURM is not whole on this machine: no `slurmctld`, `slurm-client`",
            "hint: run `sudo apt-get install slurmctld slurm-client`, or this command as root,"
            " which installs them",
        ]
        assert not (ROOT / name).exists()

    def test_are_installed_for_root(self, name: str, tmp_path: Path) -> None:
        calls = tmp_path / "calls"
        shim = tmp_path / "apt-get"  # A shim: the real one would change this machine.
        shim.write_text(f'#!/bin/sh\necho "$DEBIAN_FRONTEND $*" >>{calls}\n')
        shim.chmod(0o755)
        failed = run_without(
            "slurmd", str(COMMANDS_DIR / "start"), "--name", name, path=f"{tmp_path}:"
        )
        assert lines(calls) == [
            "noninteractive -o DPkg::Lock::Timeout=300 update -qq",
            "noninteractive -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends"
            " slurmd",
        ]
        assert (failed.returncode, failed.stdout) == (1, "")
        assert failed.stderr.splitlines() == [
            "installing slurmd",
            "error: installed, but still without the programs of `slurmd`",
        ]

    def test_of_accounting_do_not_matter_without_it(self, name: str) -> None:
        start = (str(COMMANDS_DIR / "start"), "--name", name)
        assert run_without("slurmdbd mariadbd", *start).returncode == 0

    @pytest.mark.parametrize(
        ("ci", "exit_code", "line"),
        [
            ("", 0, "2 tests skipped: no SLURM: slurmctld not installed"),
            ("true", 1, "no SLURM: slurmctld not installed"),
        ],
    )
    def test_skip_the_tests_with_a_count_and_fail_them_in_ci(
        self, name: str, ci: str, exit_code: int, line: str
    ) -> None:
        tests = [f"{__file__}::TestJobs::test_{end}" for end in ("of_one_gpu_run_32_at_once",)]
        tests.append(f"{__file__}::TestStop::test_of_what_does_not_run_says_so")
        options = ("-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup")
        argv = (sys.executable, "-m", "pytest", *options, *tests)
        done = run_without("slurmctld", *argv, CI=ci)
        assert done.returncode == exit_code, done.stdout
        assert line in done.stdout
        assert ("2 errors" in done.stdout) == (ci == "true")


class TestJobs:
    def test_have_gpus_of_their_own(self, plain_cluster: Cluster, tmp_path: Path) -> None:
        out = tmp_path / "gpus"
        for _ in range(2):
            plain_cluster.sbatch(
                "-w", "gpu01", "--gres=gpu:4", script=f"echo $CUDA_VISIBLE_DEVICES >>{out}; sleep 9"
            )
        wait_until(lambda: len(lines(out)) == 2, "both jobs")
        assert sorted(lines(out)) == ["0,1,2,3", "4,5,6,7"]

    def test_of_one_gpu_run_32_at_once(self, plain_cluster: Cluster) -> None:
        options = ("--array=0-31", "--gres=gpu:1", "--cpus-per-task=8", "--mem=64000")
        plain_cluster.sbatch(*options)
        wait_until(lambda: _running(plain_cluster) == 32, "32 running elements")

    def test_of_an_array_are_throttled(self, plain_cluster: Cluster) -> None:
        array = plain_cluster.sbatch("--array=0-4%2")
        wait_until(lambda: _running(plain_cluster) == 2, "two running elements")
        assert plain_cluster.job_state(f"{array}_4") == "PENDING"
        plain_cluster.run("scontrol", "update", f"JobId={array}", "ArrayTaskThrottle=3")
        wait_until(lambda: _running(plain_cluster) == 3, "three running elements")

    def test_beyond_the_array_size_are_refused(self, plain_cluster: Cluster) -> None:
        refused = plain_cluster.run("sbatch", "--array=0-1001", "--wrap", "true", check=False)
        assert refused.returncode == 1
        assert "Invalid job array specification" in refused.stderr

    def test_are_preempted_at_once_without_grace(
        self, plain_cluster: Cluster, tmp_path: Path
    ) -> None:
        victim, log = _sbatch_that_logs(plain_cluster, tmp_path, "low")
        plain_cluster.sbatch("-p", "high", "-w", "gpu01", "--gres=gpu:8", script="sleep 1")
        wait_until(lambda: "TERM" in lines(log), "TERM")
        job = plain_cluster.job(victim)
        assert (job["JobState"], job["Restarts"]) == ("COMPLETING", "1")
        plain_cluster.wait_for_job_state(victim, "RUNNING")
        wait_until(lambda: lines(log)[-1] == "start 1", "the second attempt")
        assert "USR2" not in lines(log)

    def test_are_told_at_the_start_of_the_grace(
        self, plain_cluster: Cluster, tmp_path: Path
    ) -> None:
        victim, log = _sbatch_that_logs(plain_cluster, tmp_path, "low_grace")
        plain_cluster.sbatch("-p", "high", "-w", "gpu01", "--gres=gpu:8", script="sleep 1")
        wait_until(lambda: "TERM" in lines(log), "TERM")
        job = plain_cluster.job(victim)
        assert (job["JobState"], job["Restarts"]) == ("RUNNING", "0")
        assert job["PreemptTime"] != "None"

    def test_outlive_their_slurmd_but_not_their_machine(
        self, plain_cluster: Cluster, tmp_path: Path
    ) -> None:
        files = [tmp_path / "a", tmp_path / "b"]
        jobs = [
            plain_cluster.sbatch(
                "--exclusive", script=f"srun sh -c 'echo $$ $(uname -n) >>{file}; exec sleep 1000'"
            )
            for file in files
        ]
        wait_until(lambda: all(lines(file) for file in files), "both jobs")
        (pid_a, node_a), (pid_b, node_b) = (lines(file)[0].split() for file in files)
        plain_cluster.kill_node(node_a)
        plain_cluster.kill_node(node_b, with_jobs=True)
        assert not is_alive(int(pid_b))
        wait_until(lambda: all(len(lines(file)) == 2 for file in files), "both second attempts")
        assert is_alive(int(pid_a))
        assert {lines(file)[1].split()[1] for file in files}.isdisjoint({node_a, node_b})
        assert [plain_cluster.job(job)["Restarts"] for job in jobs] == ["1", "1"]
        plain_cluster.start_node(node_a)
        wait_until(lambda: not is_alive(int(pid_a)), "the end of the old step")

    def test_are_known_to_sacct_with_accounting(self, accounting_cluster: Cluster) -> None:
        job = accounting_cluster.sbatch(script="exit 3")
        wait_until(lambda: _sacct(accounting_cluster, job) == ["FAILED|3:0"], "FAILED in sacct")
        accounting_cluster.kill_dbd()
        unknown = accounting_cluster.sbatch(script="true")
        accounting_cluster.wait_for_job_state(unknown, "COMPLETED")
        asked = accounting_cluster.run("sacct", "-j", unknown, check=False)
        assert asked.returncode == 1
        assert "Unable to connect" in asked.stderr or "Connection refused" in asked.stderr
        accounting_cluster.start_dbd()
        wait_until(lambda: _sacct(accounting_cluster, unknown) == ["COMPLETED|0:0"], "COMPLETED")

    def test_are_unknown_to_sacct_without_accounting(self, plain_cluster: Cluster) -> None:
        asked = plain_cluster.run("sacct", check=False)
        assert asked.returncode == 1
        assert asked.stderr == "Slurm accounting storage is disabled\n"

    def test_beyond_their_memory_are_killed_by_the_kernel(self, memory_cluster: Cluster) -> None:
        hungry = f"exec {sys.executable} -c 'b\"x\" * 300_000_000'"
        job = memory_cluster.sbatch("--mem=100", script=hungry)
        ended = memory_cluster.wait_for_job_state(job, "OUT_OF_MEMORY", "FAILED", "COMPLETED")
        assert (ended["JobState"], ended["Reason"]) == ("OUT_OF_MEMORY", "OutOfMemory")


def _running(cluster: Cluster) -> int:
    return len(cluster.run("squeue", "-h", "-r", "-t", "RUNNING", "-o", "%i").stdout.split())


def _sacct(cluster: Cluster, job: str) -> list[str]:
    shown = cluster.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "State,ExitCode")
    return shown.stdout.splitlines()


def _sbatch_that_logs(cluster: Cluster, tmp_path: Path, partition: str) -> tuple[str, Path]:
    """Submit a step that fills gpu01 and writes the signals it gets; returns once it runs."""
    log = tmp_path / "signals"
    step = tmp_path / "step.sh"
    step.write_text(
        f"""\
for name in TERM CONT USR2; do trap "echo $name >>{log}" $name; done
echo start ${{SLURM_RESTART_COUNT:-0}} >>{log}
while :; do sleep 0.1; done
"""
    )
    options = ("-p", partition, "-w", "gpu01", "--gres=gpu:8", "--signal=USR2@30", "--time=5")
    job = cluster.sbatch(*options, script=f"srun bash {step}")
    wait_until(lambda: lines(log) == ["start 0"], "the first attempt")
    return job, log
