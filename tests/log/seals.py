"""Sealed writes in terse calls, with envelopes that have the right shape and no content."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.held.sql.kernel import Kernel, Row
from tests.inbox.box import OWNER, Box
from underseal.testing import unique_name

OURS: Final = "underseal/aes-256-gcm-hkdf"
RECORDS: Final = "loom/aes-256-gcm"
FIELD: Final = "loom-field-v1"
MESSAGE: Final = "loom-message-v1"
STATE: Final = "loom-snap-v1"
REFUSALS: Final = (
    "not-sealer", "malformed-sealed", "not-sealed", "mixed-ciphers", "no-subject", "foreign-key", "key-destroyed",
    "subject-erasing", "malformed-subject", "other-subject",
)  # fmt: skip


def envelope(kid: str, fmt: str = FIELD, cipher: str = OURS, **changes: Any) -> dict[str, Any]:
    """Something of the shape of a seal that nobody can open; a change to None removes a member."""
    made = {
        "__loomEnc": cipher,
        "v": 1,
        "kid": kid,
        "fmt": fmt,
        "org": "o",
        "iv": "A" * 16,
        "ct": "abcd" * 10,
    }
    if cipher == OURS:
        made |= {"salt": "A" * 43, "kc": "A" * 43}
    elif fmt == STATE:
        made["aad"] = fmt
    return {name: value for name, value in {**made, **changes}.items() if value is not None}


def marker(*covers: str, cipher: str = OURS) -> dict[str, Any]:
    """The metadata that the kernel writes."""
    return {"seal": {"v": 1, "cipher": cipher, "covers": list(covers)}}


def sealed_event(kid: str, *pointers: str, kind: str = "NOTED", **data: Any) -> dict[str, Any]:
    """An event that says what of it is sealed; without pointers and data, its output."""
    return {
        "type": kind,
        "data": data or {"output": envelope(kid)},
        "sealed": list(pointers) or ["/output"],
    }


def subject(k: Kernel, *keys: str, name: str | None = None) -> str:
    """A subject with keys of these ids, or with one."""
    made = name or unique_name("subject")
    for epoch, key in enumerate(keys or (f"{made}-1",), 1):
        assert k.call("register_subject_key", made, key, epoch)["outcome"] == "registered"
    return made


def key_of(whose: str) -> str:
    """The id of the only key that `subject` gave."""
    return f"{whose}-1"


def sealing_box(k: Kernel, whose: str | None = None) -> tuple[Box, str]:
    """An execution whose chain holds a subject's data, and the id of a key of it."""
    name = whose or subject(k)
    b = Box(k, unique_name("s"))
    row = b.write("start", flow="f", flow_version=1, principal=OWNER, subject=name)
    assert row["outcome"] == "started", row
    return b, key_of(name)


def events(b: Box) -> list[Row]:
    """Its log: type, data and metadata."""
    return b.k.rows(
        "select seq, type, data, metadata from underseal.event where chain_id = %s and member = %s order by seq",
        *b.place,
    )


def last(b: Box) -> Row:
    """Its last event."""
    return events(b)[-1]


def refusal(b: Box, *told: dict[str, Any], verb: str = "append", **item: Any) -> str:
    """What a write is refused for, by `append_batch`, and by `append` alike; nothing is written."""
    before = events(b)
    row = b.write(verb, events=list(told), **item)
    assert row["outcome"] == "refused", row
    assert row["message"]
    assert row["message"].startswith("Expected ")
    if verb == "append" and not item:
        one = b.k.call("append", b.id, b.fence, json.dumps(list(told)))
        assert (one["outcome"], one["reason"], one["message"]) == ("refused", row["reason"], row["message"])
        seen = b.k.call("head", b.id)
        same = b.k.call(
            "append_if_unchanged",
            b.id,
            seen["head"],
            seen["fence"],
            seen["incarnation"],
            json.dumps(list(told)),
        )
        assert (same["outcome"], same["reason"]) == ("refused", row["reason"])
    assert events(b) == before
    reason: str = row["reason"]
    return reason
