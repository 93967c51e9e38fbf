"""The reader of runs on a wandb server, against a STAND-IN (`wandb_server.py`), no real one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.sources.interface import SourceRun
from analysis.sources.wandb_online import list_wandb_runs, read_wandb_online
from harness.errors import HarnessError, UsageError
from tests.analysis.sources.wandb_server import (
    API_KEY,
    ENTITY,
    PROJECT,
    StandInRun,
    StandInServer,
    serve,
)

RUN = "abc123"
ADDRESS = f"{ENTITY}/{PROJECT}/{RUN}"
KL = "mismatch_kl/all/mean"
REWARD = "train/reverse/all/agent/reward/mean"

Row = dict[str, Any]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInServer]:
    with serve() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.base_url)
        monkeypatch.setenv("WANDB_API_KEY", API_KEY)
        monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
        monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
        yield server


def read(
    address: str = ADDRESS,
    wanted: Callable[[str], bool] = lambda key: True,
    waits: list[float] | None = None,
) -> SourceRun:
    return read_wandb_online(
        address, wanted=wanted, sleep=(waits if waits is not None else []).append
    )


def history(*cells: Row, first: int = 0) -> list[Row]:
    return [
        {"_step": first + i, "_timestamp": 1.0e9 + i, "_runtime": i, **row}
        for i, row in enumerate(cells)
    ]


def two_writers(num_steps: int) -> list[Row]:
    """Return rows of a trainer and an orchestrator, which never share one."""
    rows: list[Row] = []
    for step in range(num_steps):
        rows += [{"step": step, KL: step / 8}, {"step": step, REWARD: step / 4, "lr": 1e-6}]
    return history(*rows)


def test_keys_that_never_share_a_row_are_joined_by_step(server: StandInServer) -> None:
    server.runs.append(StandInRun(RUN, two_writers(10), {"loss": {"type": "ipo"}, "max_steps": 10}))
    run = read(wanted=lambda key: key in (KL, REWARD))
    [file] = run.files
    assert set(file.series) == {KL, REWARD}
    assert file.series[KL].steps.tolist() == list(range(10))
    assert file.series[KL].values.tolist() == [step / 8 for step in range(10)]
    assert file.series[REWARD].values.tolist() == [step / 4 for step in range(10)]
    assert file.series[KL].times.tolist() == [1.0e9 + 2 * step for step in range(10)]
    assert file.keys == {KL, REWARD, "lr", "step"}
    assert file.provenance.path == ADDRESS
    assert file.provenance.num_rows == 20
    assert run.config == {"loss": {"type": "ipo"}, "max_steps": 10}
    assert (run.label, run.framework, run.state, run.max_steps) == (
        "a name",
        "prime_rl",
        "finished",
        10,
    )
    assert run.problems == ()


@pytest.mark.parametrize("num_keys", [2, 60])
def test_a_run_of_many_pages_is_read_whole(server: StandInServer, num_keys: int) -> None:
    names = [f"key/{i}" for i in range(num_keys)]
    rows = history(*({"step": s, **dict.fromkeys(names, s / 2)} for s in range(3001)))
    server.runs.append(StandInRun(RUN, rows))
    [file] = read().files
    for name in names:
        assert file.series[name].steps.tolist() == list(range(3001))
        assert file.series[name].values.tolist() == [s / 2 for s in range(3001)]
    # One key at a time, or whole rows where that is cheaper.
    assert server.asked == ["Run"] + 4 * ["HistoryOfKeys" if num_keys == 2 else "HistoryPage"]


def test_a_spike_of_one_step_in_twenty_thousand_is_seen(server: StandInServer) -> None:
    rows = history(*({"step": s, KL: 99.0 if s == 12_345 else 0.001} for s in range(20_000)))
    server.runs.append(StandInRun(RUN, rows))
    series = read().files[0].series[KL]
    assert len(series.values) == 20_000
    assert series.steps[series.values == 99.0].tolist() == [12_345]


def test_a_run_that_continues_another_begins_where_it_begins(server: StandInServer) -> None:
    rows = history(*({"step": s, KL: 0.5} for s in (61_010, 61_011)), first=61_010)
    server.runs.append(StandInRun(RUN, rows))
    assert read().files[0].series[KL].steps.tolist() == [61_010, 61_011]


def test_a_run_that_would_take_endless_pages_is_refused(server: StandInServer) -> None:
    server.runs.append(StandInRun(RUN, history({KL: 0.5}, first=10**12)))
    with pytest.raises(HarnessError, match="counts `_step` up to 1000000000000: too many pages"):
        read()
    assert server.asked == ["Run"]


def test_a_row_that_comes_twice_counts_once_and_a_missing_step_is_named(
    server: StandInServer,
) -> None:
    rows = history(*({"step": s, KL: s / 2} for s in range(10)))
    server.runs.append(StandInRun(RUN, [*rows[:6], rows[5], *rows[7:]]))
    run = read()
    assert run.files[0].series[KL].steps.tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert run.problems == (
        f"wandb counts 10 values of `{KL}` and gave 9 (and 1 more keys)",
        "rows that wandb gave twice: 1; one of each was kept",
        "steps that have no row in wandb: 1",
    )


def test_values_that_the_server_loses_are_counted(server: StandInServer) -> None:
    class Losing(StandInRun):
        """A run of which the server gives fewer rows than it counts."""

        def describe(self) -> Row:
            told = super().describe()
            told["historyKeys"]["keys"][KL]["typeCounts"][0]["count"] += 3
            return told

    server.runs.append(Losing(RUN, history(*({"step": s, KL: 1.0} for s in range(4)))))
    assert read().problems == (f"wandb counts 7 values of `{KL}` and gave 4",)


def test_numbers_that_json_does_not_have_are_numbers(server: StandInServer) -> None:
    values = [1.0, "NaN", "Infinity", "-Infinity", None]
    rows = history(*({"step": s, KL: value} for s, value in enumerate(values)))
    server.runs.append(StandInRun(RUN, rows))
    found = read().files[0].series[KL].values.tolist()
    assert found[0] == 1.0
    assert math.isnan(found[1])
    assert found[2:4] == [math.inf, -math.inf]
    assert math.isnan(found[4])


def test_without_a_step_wandbs_own_is_taken_and_named(server: StandInServer) -> None:
    server.runs.append(StandInRun(RUN, history({"loss": 1.0}, {"loss": 2.0})))
    run = read()
    assert run.files[0].series["loss"].steps.tolist() == [0, 1]
    assert run.problems == (
        "no `step`: wandb's own `_step` is used, which counts calls, not updates",
    )


def test_rows_are_read_where_the_server_lists_no_keys(server: StandInServer) -> None:
    server.runs.append(StandInRun(RUN, two_writers(700), has_keys=False))
    [file] = read(wanted=lambda key: key == REWARD).files
    assert file.series[REWARD].values.tolist() == [step / 4 for step in range(700)]
    assert set(file.series) == {REWARD}


def test_a_run_without_rows_is_empty(server: StandInServer) -> None:
    server.runs.append(StandInRun(RUN, state="running"))
    run = read()
    assert (run.state, run.files[0].provenance.num_rows, run.problems) == ("running", 0, ())


def test_a_crashed_run_that_made_all_its_steps_stays_failed_and_says_so(
    server: StandInServer,
) -> None:
    server.runs.append(StandInRun(RUN, two_writers(10), {"max_steps": 10}, state="crashed"))
    run = read()
    assert run.state == "failed"
    assert run.problems == ("wandb says `crashed`, though step 9 was logged and the run makes 10",)


@pytest.mark.parametrize(
    ("said", "state"),
    [("killed", "failed"), ("preempting", "running"), ("running", "running"), ("new", "unknown")],
)
def test_the_state_is_as_the_server_says(server: StandInServer, said: str, state: str) -> None:
    server.runs.append(StandInRun(RUN, two_writers(2), {"max_steps": 10}, state=said))
    assert read().state == state


def test_an_unchanged_run_is_read_from_the_cache(server: StandInServer) -> None:
    server.runs.append(StandInRun(RUN, two_writers(5)))
    before = read()
    del server.asked[:]
    after = read()
    assert server.asked == ["Run"]
    assert after.files[0].provenance == before.files[0].provenance
    assert after.files[0].series[KL].values.tolist() == before.files[0].series[KL].values.tolist()


def test_a_run_that_went_on_is_read_again(server: StandInServer) -> None:
    run = StandInRun(RUN, two_writers(5))
    server.runs.append(run)
    read()
    run.rows, run.heartbeat = two_writers(6), "2026-11-01T01:00:00"
    assert read().files[0].series[KL].steps.tolist() == list(range(6))


def test_other_keys_are_read_anew(server: StandInServer) -> None:
    server.runs.append(StandInRun(RUN, two_writers(5)))
    read(wanted=lambda key: key == KL)
    assert set(read(wanted=lambda key: key == REWARD).files[0].series) == {REWARD}


def test_the_cache_can_be_off_and_a_damaged_one_does_no_harm(
    server: StandInServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.runs.append(StandInRun(RUN, two_writers(5)))
    read()
    [cached] = (tmp_path / "cache").iterdir()
    assert API_KEY not in cached.read_text()
    cached.write_text('{"rows": 3')
    assert read().files[0].series[KL].steps.tolist() == list(range(5))
    monkeypatch.setenv("HARNESS_CACHE_DIR", "off")
    del server.asked[:]
    read()
    assert "HistoryOfKeys" in server.asked


def test_a_cache_that_cannot_be_written_costs_no_result(
    server: StandInServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "file" / "cache"))
    server.runs.append(StandInRun(RUN, two_writers(5)))
    assert len(read().files[0].series[KL].steps) == 5


def test_a_busy_server_is_asked_again_when_it_says(server: StandInServer) -> None:
    server.runs.append(StandInRun(RUN, two_writers(5)))
    server.failures = [(429, {"Retry-After": "7"})] * 3
    waits: list[float] = []
    assert len(read(waits=waits).files[0].series[KL].steps) == 5
    assert waits == [7.0, 7.0, 7.0]


def test_waits_grow_where_the_server_names_none_and_are_bounded(server: StandInServer) -> None:
    server.runs.append(StandInRun(RUN, two_writers(5)))
    server.failures = [
        (503, {}),
        (500, {"Retry-After": "Wed, 21 Oct"}),
        (429, {"Retry-After": "9999"}),
    ]
    waits: list[float] = []
    read(waits=waits)
    assert waits == [1.0, 2.0, 60.0]


def test_a_run_that_always_fails_is_given_up(server: StandInServer) -> None:
    server.runs.append(StandInRun(RUN, two_writers(5), fails_with=502))
    waits: list[float] = []
    with pytest.raises(HarnessError) as error:
        read(waits=waits)
    assert not isinstance(error.value, UsageError)
    assert error.value.message == "wandb at `127.0.0.1` answered 502, after 5 tries"
    assert server.asked == ["Run"] + 5 * ["HistoryOfKeys"]
    assert waits == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "wandb at `127.0.0.1` does not accept the API key"),
        (403, "wandb at `127.0.0.1` does not let this API key read that"),
        (404, "wandb at `127.0.0.1` has no such thing"),
    ],
)
def test_a_refusal_is_not_tried_again(server: StandInServer, status: int, message: str) -> None:
    server.failures = [(status, {})]
    waits: list[float] = []
    with pytest.raises(UsageError) as error:
        read(waits=waits)
    assert error.value.message == message
    assert error.value.hint
    assert waits == []


def test_a_wrong_key_is_never_shown(server: StandInServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a-wrong-key")
    with pytest.raises(UsageError, match="does not accept the API key") as error:
        read()
    assert "a-wrong-key" not in f"{error.value.message} {error.value.hint}"


def test_what_a_server_repeats_of_the_key_is_not_shown(server: StandInServer) -> None:
    server.runs.append(StandInRun(RUN, two_writers(5), fails_with=400))
    with pytest.raises(HarnessError) as error:
        read()
    assert error.value.message == "wandb at `127.0.0.1` answered 400: poisoned, said …"


def test_errors_of_the_question_are_shown(server: StandInServer) -> None:
    server.body = b'{"errors": [{"message": "Cannot query\\nfield"}]}'
    with pytest.raises(HarnessError, match="wandb at `127.0.0.1` says: Cannot query field$"):
        read()


def test_a_redirect_is_not_followed_with_the_key(server: StandInServer) -> None:
    server.failures = [(302, {"Location": f"{server.base_url}/elsewhere"})]
    with pytest.raises(HarnessError, match="answered 302"):
        read()
    assert server.asked == ["Run"]


def test_something_else_than_wandb_says_so(server: StandInServer) -> None:
    server.body = b"<html>a proxy's page</html>"
    with pytest.raises(HarnessError, match="does not answer as a wandb server does"):
        read()


def test_a_server_that_is_not_there_is_an_error_in_bounded_tries(
    server: StandInServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    waits: list[float] = []
    with pytest.raises(HarnessError, match="can't be reached .*, after 5 tries"):
        read(waits=waits)
    assert len(waits) == 4


def test_without_a_key_nothing_is_asked(
    server: StandInServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    with pytest.raises(UsageError) as error:
        read()
    assert error.value.message == "there is no API key for wandb at `127.0.0.1`"
    assert error.value.hint.startswith("set WANDB_API_KEY, or run `wandb login`")
    assert server.asked == []


def test_the_key_may_stand_in_netrc(
    server: StandInServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    path = tmp_path / "netrc"
    path.write_text(f"machine 127.0.0.1 login user password {API_KEY}\n")
    path.chmod(0o600)
    monkeypatch.setenv("NETRC", str(path))
    server.runs.append(StandInRun(RUN, two_writers(2)))
    assert read().state == "finished"


@pytest.mark.parametrize("url", ["api.example.org", "ftp://x", "https://user:secret@example.org"])
def test_a_base_url_that_is_none_is_an_error(
    server: StandInServer, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", url)
    with pytest.raises(UsageError, match="^WANDB_BASE_URL is no address of a server$"):
        read()


@pytest.mark.parametrize("address", [f"{ENTITY}/{PROJECT}", "a/b/c/d", "", "a//b"])
def test_an_address_of_another_shape_is_an_error(server: StandInServer, address: str) -> None:
    with pytest.raises(UsageError, match="is no address of wandb"):
        read(address)


def test_the_address_of_a_web_page_is_one(server: StandInServer) -> None:
    server.runs.append(StandInRun(RUN, two_writers(2)))
    page = f"https://wandb.example.org/{ENTITY}/{PROJECT}/runs/{RUN}"
    assert read(page).files[0].provenance.path == ADDRESS


@pytest.mark.parametrize("address", [f"{ENTITY}/{PROJECT}/nope", f"nobody/{PROJECT}/{RUN}"])
def test_a_run_that_is_not_there_is_an_error(server: StandInServer, address: str) -> None:
    with pytest.raises(UsageError, match=f"has no run `{address}`"):
        read(address)


def make_runs(num_runs: int) -> list[StandInRun]:
    return [
        StandInRun(
            f"run{i}",
            config={
                "loss": {"type": ("ipo", "icepop")[i % 2], "eps": 0.5},
                "seed": i,
                "fast": True,
            },
            state="finished" if i < num_runs - 1 else "running",
            group=f"g{i // 2}",
            tags=("even",) if i % 2 == 0 else (),
            display_name=f"name {i}",
        )
        for i in range(num_runs)
    ]


def listed(filters: dict[str, str], address: str = f"{ENTITY}/{PROJECT}") -> list[str]:
    waits: list[float] = []
    found = list_wandb_runs(address, filters, sleep=waits.append)
    assert waits == []
    assert all(run.startswith(f"{ENTITY}/{PROJECT}/run") for run in found)
    return [run.removeprefix(f"{ENTITY}/{PROJECT}/run") for run in found]


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ({}, "0 1 2 3 4 5"),
        ({"config.loss.type": "ipo"}, "0 2 4"),
        ({"config.loss.type": "ipo", "state": "finished", "group": "g1"}, "2"),
        ({"config.seed": "3"}, "3"),
        ({"config.loss.eps": "0.50", "state": "running"}, "5"),
        ({"config.fast": "true", "config.seed": "1"}, "1"),
        ({"tag": "even"}, "0 2 4"),
        ({"display_name": "name 4"}, "4"),
    ],
)
def test_runs_that_pass_all_filters_are_listed(
    server: StandInServer, filters: dict[str, str], numbers: str
) -> None:
    server.runs += make_runs(6)
    assert listed(filters) == numbers.split()


def test_filters_may_stand_in_the_address(server: StandInServer) -> None:
    server.runs += make_runs(6)
    address = f"{ENTITY}/{PROJECT}?config.loss.type=icepop&display_name=name%203"
    assert listed({}, address) == ["3"]


def test_a_run_that_comes_on_two_pages_is_listed_once(server: StandInServer) -> None:
    server.runs += make_runs(120)
    assert listed({}) == [str(i) for i in range(120)]
    assert server.asked == ["Runs"] * 3


def test_filters_that_nothing_passes_are_an_error(server: StandInServer) -> None:
    server.runs += make_runs(6)
    with pytest.raises(UsageError) as error:
        listed({"config.loss.type": "gspo"})
    assert error.value.message == (f"no run of `{ENTITY}/{PROJECT}` passes `config.loss.type=gspo`")
    assert error.value.hint == "6 runs were looked at"


def test_a_project_without_runs_or_no_project_is_an_error(server: StandInServer) -> None:
    with pytest.raises(UsageError, match="has no runs$"):
        listed({})
    with pytest.raises(UsageError, match="has no project `nobody/losses`"):
        listed({}, "nobody/losses")


def test_a_filter_that_is_not_known_is_an_error_with_its_near_miss(server: StandInServer) -> None:
    with pytest.raises(UsageError) as error:
        listed({"tags": "x"})
    assert error.value.message == "no filter `tags` for runs of wandb"
    assert error.value.hint == "did you mean `tag`?"
    assert server.asked == []
