"""No error, repr or traceback of sealing executions holds what is sealed, not in its frames nor in what it chains."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from underseal.errors import KeyUnavailableError
from underseal.seal import FIELD, SNAPSHOT, Key, SealError, seal
from underseal.seal.fields import open_fields, open_message, seal_fields, seal_message
from underseal.seal.lineage import Lineage
from underseal.seal.sensitive import SensitiveMap
from underseal.seal.state import open_state, seal_state

CANARY = "canary-7f3a"
SECRET = bytes(range(32))
KEY = Key("subject-1", "subject", SECRET)
MAP = SensitiveMap({"STEP_COMPLETED": ["output.a", "output.b"], "INBOX_MESSAGE": "payload"})
DEEP: Any = CANARY
for _ in range(600):
    DEEP = [DEEP]


class Broken:
    """A value whose repr gives it away, in which JSON fails."""

    def __repr__(self) -> str:
        return CANARY


def step(output: Any) -> dict[str, Any]:
    return {"op": 1, "output": output}


def seal_step(output: Any, key: Key = KEY, **change: Any) -> Any:
    return seal_fields("STEP_COMPLETED", step(output) | change, MAP, key, subject="s", execution_id="c")


def open_step(data: Any, marker: Any = None, lookup: Callable[[str], Key | None] = lambda _: KEY) -> Any:
    return open_fields("STEP_COMPLETED", data, marker, MAP, lookup, subject="s", lineage=Lineage("c"), seq=1)


def with_second(text: bytes | None) -> dict[str, Any]:
    """An event whose first value opens, and whose second does not, or says this."""
    data: dict[str, Any] = seal_step({"a": CANARY, "b": 1}).data
    place = ("s", "c", "STEP_COMPLETED", "[1]", "/output/b" if text is not None else "/output/c")
    data["output"]["b"] = seal(text or b"1", KEY, fmt=FIELD, place=place, origin="c")
    return data


def send(payload: Any) -> Any:
    return seal_message(payload, MAP, KEY, subject="s", execution_id="c", sender="ann", message_id="m")


def receive(payload: Any) -> Any:
    return open_message(
        payload,
        None,
        MAP,
        lambda _: KEY,
        subject="s",
        lineage=Lineage("c"),
        topic="t",
        sender="a",
        message_key="0" * 64,
    )


def no_key() -> None:
    data = with_second(None)
    data["output"]["b"]["kid"] = "subject-9"
    open_step(data, lookup=lambda key_id: KEY if key_id == KEY.id else None)


def broken_lookup() -> None:
    def away(key_id: str) -> Key:
        raise OSError("away")

    open_step(with_second(None), lookup=away)


ACTS: dict[str, Callable[[], Any]] = {
    "an envelope within": lambda: seal_step({"a": CANARY, "b": {"__loomEnc": CANARY}}),
    "no JSON": lambda: seal_step({"a": CANARY, "b": Broken()}),
    "no JSON in a key": lambda: seal_step({"a": CANARY, "b": {(CANARY,): 1}}),
    "not a number": lambda: seal_step({"a": CANARY, "b": [CANARY, float("nan")]}),
    "too deep": lambda: seal_step({"a": CANARY, "b": DEEP}),
    "too large": lambda: seal_step({"a": CANARY, "b": CANARY * 2**17}),
    "no key of the event": lambda: seal_step({"a": CANARY}, op=None),
    "half a surrogate in the key of the event": lambda: seal_fields(
        "PAYMENT", {"id": "\ud800", "card": CANARY}, SensitiveMap({"PAYMENT": "card"}, keys={"PAYMENT": "id"}), KEY,
        subject="s", execution_id="c",
    ),
    "a key for something else": lambda: seal_step({"a": CANARY}, key=Key("k", "payload", SECRET)),
    "a message as an event": lambda: seal_fields(
        "MESSAGE_CONSUMED", {"payload": CANARY}, MAP, KEY, subject="s", execution_id="c"
    ),
    "a message with an envelope": lambda: send({"x": CANARY, "__loomEnc": "x"}),
    "a message that is too large": lambda: send(CANARY * 2**17),
    "a second value from elsewhere": lambda: open_step(with_second(None)),
    "a second value that is no JSON": lambda: open_step(with_second(f'{{"{CANARY}'.encode())),
    "a second value that is too deep": lambda: open_step(with_second(b"[" * 100_000 + CANARY.encode())),
    "a second value with an envelope": lambda: open_step(with_second(f'{{"__loomEnc":"{CANARY}"}}'.encode())),
    "a second key that is not here": no_key,
    "a key store that is away": broken_lookup,
    "a message from elsewhere": lambda: receive(send(CANARY).data),
    "a state that is no JSON": lambda: seal_state([CANARY, {1}], KEY, execution_id="c", seq=1),
    "a state under another key": lambda: seal_state([CANARY], Key("k", "payload", SECRET), execution_id="c", seq=1),
    "a state from elsewhere": lambda: open_state(
        seal_state([CANARY], KEY, execution_id="c", seq=1), lambda _: KEY, execution_id="c", seq=2
    ),
    "a state that is damaged": lambda: open_state(
        seal(f"[{CANARY}".encode(), KEY, fmt=SNAPSHOT, place=("c", "1"), origin="c"), lambda _: KEY,
        execution_id="c", seq=1,
    ),
    "a readable state": lambda: open_state(
        [CANARY], lambda _: KEY, execution_id="c", seq=1, legacy_plaintext="refuse"
    ),
}  # fmt: skip


def chain(error: BaseException | None) -> list[BaseException]:
    return [] if error is None else [error, *chain(error.__cause__), *chain(error.__context__)]


@pytest.mark.clause("M19", "M14")
@pytest.mark.parametrize("name", ACTS)
def test_no_failure_says_anything_of_what_is_sealed(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises((SealError, ValueError, OSError)) as caught:
        ACTS[name]()
    shown: list[str] = [caplog.text]
    for error in chain(caught.value):
        shown += [str(error), repr(error), repr(error.args), repr(vars(error))]
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if "/underseal/" in frame.f_code.co_filename:
                shown += [repr(value) for value in frame.f_locals.values()]
    text = "\n".join(shown)
    assert CANARY not in text
    assert repr(SECRET) not in text
    if isinstance(caught.value, SealError):
        assert chain(caught.value) == [caught.value]


def test_a_key_that_is_missing_is_named() -> None:
    with pytest.raises(KeyUnavailableError, match="subject-9"):
        no_key()


def test_no_repr_shows_what_was_sealed_or_what_was_not() -> None:
    made = seal_step({"a": 1, "c": CANARY})
    assert CANARY not in repr(made)
    assert CANARY not in repr(send({"x": CANARY}))
    assert "ct" not in repr(made)
