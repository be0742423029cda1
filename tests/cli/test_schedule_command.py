"""Schedules by the commands that people and scripts use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.shop import Ended, Shop
from tests.cli.terminal import Terminal
from underseal.testing import OWNER, TestClock
from underseal.wake.client import Claims

ANN = ("--principal", "ann")
NOON = datetime(2027, 3, 27, 12, tzinfo=UTC)


@pytest.fixture
def noon(clock: TestClock) -> TestClock:
    """The clock at noon before the clocks go forward in Berlin."""
    clock.set(NOON)
    return clock


def added(shop: Shop, *more: str, name: str = "nightly") -> Ended:
    """Add ann's schedule in Berlin."""
    return shop.run("schedule", "add", name, "backup", "30 2 * * *", "--zone", "Europe/Berlin", *ANN, *more)


def test_the_next_instants_are_shown_in_the_zone_and_in_utc(shop: Shop, noon: TestClock) -> None:
    done = added(shop, "--input", '{"full": true}')
    assert done.code == 0, done
    for words in ("Schedule nightly starts backup.", "2027-03-28 03:00:00 +02:00  2027-03-28 01:00:00 UTC", "in 13 h",
                  "2027-03-29 02:30:00 +02:00  2027-03-29 00:30:00 UTC", "2027-03-30"):  # fmt: skip
        assert words in done.out
    assert "2027-03-31" not in done.out

    again = added(shop, "--input", '{"full": true}', "--json").json
    assert again["outcome"] == "unchanged"
    assert again["upcoming"] == ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z", "2027-03-30T00:30:00Z"]


def test_a_list_tells_when_each_comes(shop: Shop, noon: TestClock) -> None:
    added(shop, "--input", '{"full": true}', "--missed", "all", "--flow-version", "2")
    added(shop, name="other")
    out = shop.run("schedule", "list", *ANN).out
    for words in (
        "nightly",
        "backup v2",
        "30 2 * * *",
        "Europe/Berlin",
        "all",
        "2027-03-28 03:00:00 +02:00",
        "UTC",
        "in 13 h",
    ):
        assert words in out
    listed = shop.run("schedule", "list", *ANN, "--json").json
    assert [(one["name"], one["input"], one["missed"], one["owner"]) for one in listed] == [
        ("nightly", {"full": True}, "all", "ann"), ("other", None, "latest", "ann"),
    ]  # fmt: skip
    assert listed[0]["upcoming"][0] == listed[0]["due_at"] == "2027-03-28T01:00:00Z"
    assert shop.run("schedule", "list", "--principal", "bob", "--json").json == []
    assert "no schedule" in shop.run("schedule", "list", "--principal", "bob").out


def test_what_it_has_started_last_is_shown(shop: Shop, noon: TestClock) -> None:
    added(shop)
    noon.advance(hours=13)
    with Claims(shop.database.conninfo_as(OWNER)) as claims:
        claims.fire_due_schedules("w1")
    assert "nightly@2027-03-28T01:00:00Z" in shop.run("schedule", "list", *ANN).out


def test_pause_resume_and_remove(shop: Shop, noon: TestClock) -> None:
    added(shop)
    paused = shop.run("schedule", "pause", "nightly", *ANN)
    assert (paused.code, "paused" in paused.out) == (0, True)
    assert "paused" in shop.run("schedule", "list", *ANN).out
    assert shop.run("schedule", "list", *ANN, "--json").json[0]["upcoming"] == []
    assert "paused: nothing is due" in added(shop).out
    noon.set(NOON + timedelta(days=5))
    resumed = shop.run("schedule", "resume", "nightly", *ANN)
    assert (resumed.code, "2027-04-02 02:30:00 +02:00" in resumed.out) == (0, True)
    assert shop.run("schedule", "remove", "nightly", *ANN, "--json").json["outcome"] == "removed"
    assert shop.run("schedule", "list", *ANN, "--json").json == []


@pytest.mark.parametrize("verb", ["pause", "resume", "remove"])
def test_what_is_somebody_elses_is_not_found(shop: Shop, verb: str) -> None:
    added(shop)
    theirs = shop.run("schedule", verb, "nightly", "--principal", "bob")
    missing = shop.run("schedule", verb, "none", "--principal", "bob")
    assert (theirs.code, theirs.err) == (5, missing.err)
    operated = shop.run("schedule", verb, "nightly", "--principal", "oz", "--as-operator")
    assert operated.code == 0, operated
    assert shop.run("schedule", "list", "--principal", "oz", "--as-operator").code == 0


def test_a_name_that_is_taken_is_a_conflict(shop: Shop) -> None:
    added(shop)
    taken = shop.run("schedule", "add", "nightly", "backup", "0 3 * * *", "--principal", "bob", "--json")
    assert (taken.code, taken.json["reason"]) == (3, "name-taken")


@pytest.mark.parametrize(
    ("cron", "zone", "reason", "words"),
    [
        ("0 3 * *", "UTC", "malformed-cron", "five fields"),
        ("61 3 * * *", "UTC", "malformed-cron", "Bad minute"),
        ("0 0 30 2 *", "UTC", "malformed-cron", "30th of February"),
        ("0 3 * * *", "Berlin", "unknown-zone", "Europe/Berlin"),
    ],
)
def test_what_can_never_be_kept_is_wrong_usage(
    shop: Shop, cron: str, zone: str, reason: str, words: str
) -> None:
    done = shop.run("schedule", "add", "x", "backup", cron, "--zone", zone, *ANN)
    assert (done.code, reason in done.err, words in done.err) == (2, True, True), done
    assert (
        shop.run("schedule", "add", "x", "f", cron, "--zone", zone, *ANN, "--json").json["reason"] == reason
    )
    assert shop.run("schedule", "list", *ANN, "--json").json == []


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (["--missed", "some"], 2),
        (["--flow-version", "0"], 2),
        (["--input", "{"], 2),
        (["--input", '{"__loomEnc": "x"}'], 4),
    ],
)
def test_wrong_input_is_said_so(shop: Shop, more: list[str], code: int) -> None:
    assert shop.run("schedule", "add", "x", "backup", "0 3 * * *", *ANN, *more).code == code


def test_who_has_no_access_is_denied(shop: Shop) -> None:
    dsn = shop.database.conninfo_as(shop.stranger)
    assert shop.run("schedule", "list", *ANN, "--dsn", dsn).code == 5


@pytest.mark.parametrize("words", [["list"], ["pause", "x"], ["remove", "x"], ["add", "x", "f", "* * * * *"]])
def test_an_operator_is_told_of_the_option(shop: Shop, words: list[str]) -> None:
    login = shop.database.create_role("operator")
    shop.database.connect(OWNER).execute("select underseal.grant_access(%s, 'operator', 'asserted')", [login])
    dsn = shop.database.conninfo_as(login)
    denied = shop.run("schedule", *words, *ANN, "--dsn", dsn)
    assert (denied.code, "add --as-operator" in denied.err) == (5, True), denied
    assert "add --as-operator" not in shop.run("schedule", *words, *ANN, "--dsn", dsn, "--as-operator").err


def test_nothing_is_hidden(shop: Shop) -> None:
    added(shop, name="ni\u202eght\u200bly")
    out = shop.run("schedule", "list", *ANN).out
    assert "ni⟨U+202E⟩ght⟨U+200B⟩ly" in out
    assert shop.run("schedule", "list", *ANN, "--json").out.isascii()


def test_a_zone_that_is_unknown_here_hides_no_schedule(shop: Shop, noon: TestClock) -> None:
    added(shop)
    owner = shop.database.connect(OWNER)
    owner.execute("update underseal.schedule set time_zone = 'Mars/Olympus'")
    assert "2027-03-28 01:00:00 UTC" in shop.run("schedule", "list", *ANN).out
    assert shop.run("schedule", "list", *ANN, "--json").json[0]["upcoming"] == ["2027-03-28T01:00:00Z"]


def test_a_list_fits_a_narrow_terminal(shop: Shop, noon: TestClock) -> None:
    added(shop)
    terminal = Terminal(["schedule", "list", *ANN], shop.env, columns=80)
    code, screen = terminal.end()
    assert code == 0
    assert max(map(len, screen.splitlines())) <= 80
    for words in ("nightly", "30 2 * * *", "in 13 h"):
        assert words in screen
