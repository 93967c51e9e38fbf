"""Real clusters, one of each kind per worker, that are whole and without jobs before each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, missing

NO_SLURM = "no SLURM"
"""How the reason of a skipped test begins; tests/conftest.py counts them."""
KINDS = ("plain_cluster", "accounting_cluster")
GROUPS = {
    "plain_cluster": "slurm_plain",
    "accounting_cluster": "slurm_accounting",
    "memory_cluster": "slurm_memory",
    "scene": "slurm_runner",
}
"""One worker has the tests of one kind of cluster, so that two run side by side."""
HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests by their cluster, where a test doesn't name its group by itself."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("xdist_group") is None:
            assert isinstance(item, pytest.Function)
            group = _group(item)
            if group is not None:
                item.add_marker(pytest.mark.xdist_group(group))


def _group(item: pytest.Function) -> str | None:
    callspec = getattr(item, "callspec", None)
    kind = callspec.params.get("cluster") if callspec else None
    names = [kind, *item.fixturenames]
    return next((GROUPS[name] for name in names if name in GROUPS), None)


def need_slurm(*, accounting: bool = False) -> None:
    """Skip the test where no cluster can be started; in CI that is a failure."""
    reason = missing(accounting=accounting)
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"{NO_SLURM}: {reason}", pytrace=False)
    pytest.skip(f"{NO_SLURM}: {reason}")


def cluster_name(kind: str, worker_id: str) -> str:
    """Name a cluster so that neither another worker nor another run of the tests has it."""
    return f"{kind}-{worker_id}-{os.getpid()}"


@pytest.fixture(scope="session")
def _plain_cluster(worker_id: str) -> Iterator[Cluster]:
    need_slurm()
    cluster = Cluster.start(cluster_name("plain", worker_id))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def _accounting_cluster(worker_id: str) -> Iterator[Cluster]:
    need_slurm(accounting=True)
    cluster = Cluster.start(cluster_name("acct", worker_id), "--accounting")
    yield cluster
    cluster.stop()


@pytest.fixture
def plain_cluster(_plain_cluster: Cluster) -> Cluster:
    """A cluster with `accounting_storage/none`: `sacct` only says that it is off."""
    _plain_cluster.reset()
    return _plain_cluster


@pytest.fixture
def accounting_cluster(_accounting_cluster: Cluster) -> Cluster:
    """A cluster with slurmdbd."""
    _accounting_cluster.reset()
    return _accounting_cluster


@pytest.fixture(scope="session")
def _memory_cluster(worker_id: str) -> Iterator[Cluster]:
    need_slurm()
    if not os.access("/sys/fs/cgroup/memory/memory.limit_in_bytes", os.R_OK):
        pytest.skip(f"{NO_SLURM}: no memory controller of cgroups v1")
    options = ("--memory-limits", "--nodes", "1")
    cluster = Cluster.start(cluster_name("mem", worker_id), *options)
    yield cluster
    cluster.stop()


@pytest.fixture
def memory_cluster(_memory_cluster: Cluster) -> Cluster:
    """A cluster of one node whose jobs the kernel holds to their memory."""
    _memory_cluster.reset()
    return _memory_cluster


@pytest.fixture(params=KINDS)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each kind of cluster in turn, for what must hold on both."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Cluster)
    return found
