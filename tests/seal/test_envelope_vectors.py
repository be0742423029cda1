"""tests/vectors/envelopes.json: it is what this code does, and what Node makes of docs/formats.md."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from tests.seal import envelope_vectors
from underseal.seal import FIELD, MESSAGE, PLAIN, Key, MemoryKeyRing, SealError, open_seal
from underseal.seal.capability import opens
from underseal.seal.fields import open_fields
from underseal.seal.paths import dotted, parse_dotted, parse_pointer, pointer

FILE = envelope_vectors.PATH.read_text(encoding="ascii")
VECTORS: dict[str, Any] = json.loads(FILE)
RING = MemoryKeyRing(Key(k["id"], k["purpose"], bytes.fromhex(k["secret"])) for k in VECTORS["keys"])
VERIFIER = envelope_vectors.PATH.parent / "verify.mjs"

# Frozen: another language may have been proved against exactly these bytes.
DIGEST = "1cb3e3bc2014296d92f1b7efb398c0ff87941f395f6e36e1c95507e8cbac5c9a"


def named(part: str) -> Any:
    return [pytest.param(vector, id=vector["name"]) for vector in VECTORS[part]]


def opened(event: dict[str, Any]) -> dict[str, Any]:
    return open_fields(
        event["type"], event["data"], event["marker"], envelope_vectors.EVENTS, RING.find,
        subject=event["subject"], lineage=envelope_vectors.lineage_of(event), seq=event["seq"],
    )  # fmt: skip


@pytest.mark.clause("M19")
def test_the_file_of_envelopes_is_frozen() -> None:
    assert hashlib.sha256(FILE.encode()).hexdigest() == DIGEST


@pytest.mark.clause("M17", "M19")
def test_this_code_makes_the_file_of_envelopes() -> None:
    if os.environ.get("WRITE_VECTORS"):
        envelope_vectors.PATH.write_text(envelope_vectors.text(), encoding="ascii")
    assert envelope_vectors.build() == VECTORS


@pytest.mark.clause("M19", "S2")
@pytest.mark.parametrize("vector", named("seals"))
def test_associated_data_is_what_the_formats_say(vector: dict[str, Any]) -> None:
    envelope = vector["envelope"]
    covered = {name: envelope[name] for name in ("__loomEnc", "v", "kid", "fmt", "org")}
    expected = rfc8785.dumps(covered | {"purpose": "subject", "place": vector["place"]}).decode()
    if envelope["__loomEnc"] == PLAIN:
        expected = "" if vector["fmt"] in (FIELD, MESSAGE) else "|".join(["loom-snap-v1", *vector["place"]])
    assert vector["associated_data"] == expected


@pytest.mark.parametrize("vector", named("seals"))
def test_every_published_envelope_opens(vector: dict[str, Any]) -> None:
    text = open_seal(
        vector["envelope"],
        RING,
        purpose="subject",
        fmt=vector["fmt"],
        place=vector["place"],
        open_legacy=True,
    )
    assert text == vector["plaintext"].encode()


@pytest.mark.clause("M19")
@pytest.mark.parametrize("vector", named("refused"))
def test_every_published_envelope_out_of_place_is_refused(vector: dict[str, Any]) -> None:
    slot = {name: vector[name] for name in ("purpose", "fmt", "place", "open_legacy") if name in vector}
    with pytest.raises(SealError) as caught:
        open_seal(vector["envelope"], RING, **slot)
    assert caught.value.reason == vector["reason"]


@pytest.mark.clause("M1", "M19")
@pytest.mark.parametrize("event", named("events"))
def test_every_published_event_opens(event: dict[str, Any]) -> None:
    assert opened(event) == event["opened"]
    covers = [f"{event['type']}.{dotted(parse_pointer(one) or ())}" for one in event["pointers"]]
    assert event["marker"]["covers"] == sorted(covers)


@pytest.mark.clause("M19")
@pytest.mark.parametrize("event", named("moved"))
def test_every_published_event_that_was_moved_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(SealError) as caught:
        opened(event)
    assert caught.value.reason == "does-not-open"


def test_every_published_path_and_marker() -> None:
    for one in VECTORS["paths"]:
        path = parse_pointer(one["pointer"])
        assert path is not None
        assert (dotted(path), pointer(path), parse_dotted(one["dotted"])) == (
            one["dotted"],
            one["pointer"],
            path,
        )
    for one in VECTORS["markers"]:
        assert opens(one["marker"], one["capability"]) is one["opens"]


def node(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the verifier; without Node a failure where it must be there, in CI."""
    program = shutil.which("node")
    if program is None:
        reason = "Node is not installed, so no other language has proved itself against the vectors"
        if os.environ.get("UNDERSEAL_REQUIRE_NODE"):
            pytest.fail(f"{reason}, and UNDERSEAL_REQUIRE_NODE says it must")
        pytest.skip(reason)
    return subprocess.run(
        [program, VERIFIER, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.clause("M19", "S2")
def test_another_language_makes_and_opens_them_from_the_formats_alone() -> None:
    run = node()
    assert run.returncode == 0, run.stdout + run.stderr
    for part in ("seals", "refused", "events", "moved", "paths", "markers"):
        assert f"envelopes.json {part} {len(VECTORS[part])}\n" in run.stdout


@pytest.mark.clause("M19")
def test_what_another_language_makes_opens_here() -> None:
    run = node("make")
    assert run.returncode == 0, run.stderr
    made = json.loads(run.stdout)
    assert len(made) == len(VECTORS["seals"])
    for vector, envelope in zip(VECTORS["seals"], made, strict=True):
        assert envelope["iv"] != vector["envelope"]["iv"]
        text = open_seal(
            envelope, RING, purpose="subject", fmt=vector["fmt"], place=vector["place"], open_legacy=True
        )
        assert text == vector["plaintext"].encode()


@pytest.mark.parametrize("part", ["seals", "refused", "events", "moved", "paths", "markers"])
def test_the_other_language_sees_what_is_wrong(part: str, tmp_path: Path) -> None:
    wrong = json.loads(FILE)
    first = wrong[part][0]
    if part == "seals":
        first["plaintext"] += " "
    elif part == "refused":
        first["place"] = wrong["seals"][0]["place"]
        first["envelope"] = wrong["seals"][0]["envelope"]
    elif part == "events":
        first["opened"]["output"]["left"] = "other"
    elif part == "moved":
        wrong["moved"][0] = {k: v for k, v in wrong["events"][0].items() if k != "opened"}
    elif part == "paths":
        first["dotted"] += "x"
    else:
        first["opens"] = not first["opens"]
    changed = tmp_path / "envelopes.json"
    changed.write_text(json.dumps(wrong))
    run = node("verify", str(changed))
    assert run.returncode == 1
    assert f"{part}: " in run.stdout
