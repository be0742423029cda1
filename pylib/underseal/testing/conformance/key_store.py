"""What every store of subject keys must do: one winner a mint, and an erasure that is one and is never guessed."""

from __future__ import annotations

import base64
import pickle
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

import pytest

from underseal.errors import SealError, SubjectErasingError
from underseal.seal import Destroyed
from underseal.seal.store import KeyStore, StoreRewrap, SubjectKey
from underseal.testing.conformance.promises import promise

T = TypeVar("T")

MANY = 8
SUBJECTS = ("a", "A", "user:7 Zoë/..", "日本𝄞" * 50, " ")


class KeyStoreHarness(Protocol):
    """A store that the suite may open several times, back up and break."""

    def open(self) -> KeyStore:
        """Open the store as another process would: nothing is shared with what was opened before but its place."""
        ...

    def elsewhere(self) -> KeyStore:
        """Make another store of this kind under the same masters, an empty one."""
        ...

    def unreachable(self) -> KeyStore:
        """Open the store where it cannot be reached: its place is not there."""
        ...

    def masterless(self) -> KeyStore:
        """Open the store with another master than those which wrapped its keys."""
        ...

    def rotate_master(self) -> None:
        """Let a new master key wrap from now on; the older ones open."""
        ...

    def forget_older_masters(self) -> None:
        """Let only the master key that wraps now open."""
        ...

    def backup(self) -> Callable[[], None]:
        """Back up the keys as an operator would, without what stays outside. Returns what restores it."""
        ...


def refusal(act: Callable[..., object], *given: Any, **named: Any) -> str:
    """The reason for which ``act`` was refused; nothing is chained to the error."""
    with pytest.raises(SealError) as caught:
        act(*given, **named)
    assert caught.value.__context__ is None
    return caught.value.reason


def at_once(acts: list[Callable[[], T]]) -> list[T]:
    """Run all of them in threads that begin together; what each gave."""
    gate, given = threading.Barrier(len(acts)), dict[int, T]()

    def run(number: int) -> None:
        gate.wait()
        given[number] = acts[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [given[number] for number in range(len(acts))]


def key_of(store: KeyStore, subject: str) -> SubjectKey:
    """The subject's current key, which must be there."""
    found = store.current(subject)
    assert found is not None
    return found


def finished(store: KeyStore) -> StoreRewrap:
    """The end of a whole rewrap."""
    return list(store.rewrap())[-1]


def _minted(store: KeyStore, subject: str) -> list[str]:
    try:
        return [store.mint(subject, named=()).key_id]
    except SubjectErasingError:
        return []


def _destroyed(store: KeyStore, subject: str) -> list[str]:
    return list(store.destroy(subject).key_ids)


class KeyStoreConformance:
    """The suite. Inherit from it under a name that begins with Test, and give the fixture `store`: a fresh harness."""

    @promise("X10")
    def test_an_unknown_subject_has_no_key_and_was_not_destroyed(self, store: KeyStoreHarness) -> None:
        keys = store.open()
        assert keys.current("a") is None
        assert keys.find("subject-" + 32 * "0", "a") is None
        assert keys.find("anything else", "a") is None
        assert keys.was_destroyed("a") is False
        assert list(keys.subjects()) == []
        assert list(keys.rewrap()) == [StoreRewrap(0, 0, 0, ())]

    @promise("X11")
    def test_a_minted_key_is_the_subject_s_for_everybody(self, store: KeyStoreHarness) -> None:
        made = store.open().mint("a", named=())
        assert (made.subject, made.epoch, made.key.purpose) == ("a", 1, "subject")
        keys = store.open()
        assert keys.mint("a", named=()) == keys.current("a") == made
        assert keys.mint("a", named={made.key_id}) == made
        assert keys.find(made.key_id, "a") == made.key
        (listed,) = keys.subjects()
        assert (listed.subject, listed.state) == ("a", "live")
        assert [(one.epoch, one.key_id) for one in listed.keys] == [(1, made.key_id)]

    @promise("X11")
    def test_all_who_mint_at_once_get_one_key(self, store: KeyStoreHarness) -> None:
        for subject in ("a", "b", "c"):
            opened = [store.open() for _ in range(MANY)]
            got = at_once([partial(keys.mint, subject, named=()) for keys in opened])
            assert got == [key_of(store.open(), subject)] * MANY
            assert got[0].epoch == 1

    @promise("X11")
    def test_a_subject_that_envelopes_name_keys_of_gets_no_other(self, store: KeyStoreHarness) -> None:
        keys = store.open()
        assert refusal(keys.mint, "a", named=["subject-" + 32 * "0"]) == "key-unavailable"
        assert refusal(keys.mint, "a", named=lambda _: True) == "key-unavailable"
        assert keys.current("a") is None
        assert keys.mint("a", named=lambda _: False) == keys.current("a")

    @promise("X8")
    def test_a_rotation_makes_the_next_key_and_the_older_ones_open(self, store: KeyStoreHarness) -> None:
        first = store.open().mint("a", named=())
        second = store.open().rotate("a")
        third = store.open().rotate("a")
        keys = store.open()
        assert [first.epoch, second.epoch, third.epoch] == [1, 2, 3]
        assert len({first.key.secret, second.key.secret, third.key.secret}) == 3
        assert keys.current("a") == keys.mint("a", named=()) == third
        assert [keys.find(one.key_id, "a") for one in (first, second, third)] == [
            first.key,
            second.key,
            third.key,
        ]
        assert refusal(keys.rotate, "b") == "key-unavailable"
        assert keys.current("b") is None

    @promise("X8", "X11")
    def test_rotations_at_once_leave_one_order_of_keys(self, store: KeyStoreHarness) -> None:
        store.open().mint("a", named=())
        opened = [store.open() for _ in range(MANY)]
        got = at_once([partial(keys.rotate, "a") for keys in opened])
        (listed,) = store.open().subjects()
        by_epoch = {one.epoch: one.key_id for one in listed.keys}
        assert sorted(by_epoch) == list(range(1, len(by_epoch) + 1))
        assert all(by_epoch[one.epoch] == one.key_id and one.epoch > 1 for one in got)

    @promise("X10")
    def test_a_key_is_one_subject_s_alone(self, store: KeyStoreHarness) -> None:
        keys = store.open()
        made = [keys.mint(subject, named=()) for subject in SUBJECTS]
        assert len({one.key_id for one in made} | {one.key.secret for one in made}) == 2 * len(made)
        assert {one.subject for one in keys.subjects()} == set(SUBJECTS)
        again = store.open()
        for one in made:
            found = [again.find(one.key_id, subject) for subject in SUBJECTS]
            assert found == [one.key if subject == one.subject else None for subject in SUBJECTS]

    def test_what_is_no_subject_is_refused(self, store: KeyStoreHarness) -> None:
        keys = store.open()
        flawed: Any
        for flawed in ("", "a\nb", "\0", "\ud800", 201 * "x", None, b"a"):
            for act in (keys.current, keys.was_destroyed, keys.destroy, keys.rotate):
                assert refusal(act, flawed) == "malformed"
        assert list(keys.subjects()) == []

    @promise("X8")
    def test_a_rewrap_leaves_nothing_under_older_masters(self, store: KeyStoreHarness) -> None:
        keys = store.open()
        made = [keys.mint(subject, named=()) for subject in SUBJECTS] + [keys.rotate("a")]
        before = {one.master for subject in keys.subjects() for one in subject.keys}
        store.rotate_master()
        keys = store.open()
        told = list(keys.rewrap(2))
        assert [one.subjects for one in told] == [2, 4, 5]
        assert {one.of for one in told} == {5}
        assert told[-1].rewrapped == len(made)
        assert told[-1].unopened == ()
        after = {one.master for subject in keys.subjects() for one in subject.keys}
        assert (len(before), len(after), before & after) == (1, 1, set())
        assert finished(store.open()).rewrapped == 0
        store.forget_older_masters()
        assert [store.open().find(one.key_id, one.subject) for one in made] == [one.key for one in made]

    @promise("X8")
    def test_a_rewrap_that_was_stopped_goes_on_where_it_was(self, store: KeyStoreHarness) -> None:
        made = [store.open().mint(subject, named=()) for subject in SUBJECTS]
        store.rotate_master()
        stopped = store.open().rewrap(2)
        assert next(iter(stopped)).rewrapped == 2
        del stopped
        assert finished(store.open()).rewrapped == len(SUBJECTS) - 2
        assert [store.open().find(one.key_id, one.subject) for one in made] == [one.key for one in made]

    @promise("X8")
    def test_a_master_is_rotated_while_others_read(self, store: KeyStoreHarness) -> None:
        made = store.open().mint("a", named=())
        done = threading.Event()

        def read() -> set[object]:
            seen: set[object] = set()
            while True:
                last = done.is_set()
                seen.add(store.open().find(made.key_id, "a"))
                if last:
                    return seen

        def rewrap() -> set[object]:
            try:
                for _ in range(5):
                    store.rotate_master()
                    finished(store.open())
            finally:
                done.set()
            return {made.key}

        assert at_once([read, rewrap, read]) == [{made.key}] * 3

    @promise("X8", "X10")
    def test_a_rewrap_lists_what_does_not_open_and_leaves_it(self, store: KeyStoreHarness) -> None:
        made = store.open().mint("a", named=())
        end = finished(store.masterless())
        assert (end.rewrapped, end.unopened) == (0, (made.key_id,))
        assert store.open().find(made.key_id, "a") == made.key

    @promise("X10")
    def test_a_destroyed_subject_is_told_from_every_other(self, store: KeyStoreHarness) -> None:
        keys = store.open()
        other = keys.mint("b", named=())
        made = [keys.mint("a", named=()), keys.rotate("a"), keys.rotate("a")]
        receipt = keys.destroy("a")
        assert (receipt.subject, receipt.key_ids) == ("a", tuple(one.key_id for one in made))
        for there in (keys, store.open()):
            for one in made:
                assert there.find(one.key_id, "a") == Destroyed(one.key_id, "subject")
            assert there.find("subject-" + 32 * "0", "a") is None
            assert there.find(other.key_id, "a") is None
            assert there.was_destroyed("a") is True
            assert there.was_destroyed("b") is False
            assert there.current("b") == other
        states = {one.subject: (one.state, [key.master for key in one.keys]) for one in keys.subjects()}
        assert states["a"] == ("erased", [None, None, None])

    @promise("X12")
    def test_a_destroyed_subject_gets_no_key_again(self, store: KeyStoreHarness) -> None:
        keys = store.open()
        keys.mint("a", named=())
        keys.destroy("a")
        for there in (keys, store.open()):
            assert refusal(there.current, "a") == "subject-erasing"
            assert refusal(there.mint, "a", named=()) == "subject-erasing"
            assert refusal(there.rotate, "a") == "subject-erasing"

    def test_a_destruction_can_be_repeated(self, store: KeyStoreHarness) -> None:
        keys = store.open()
        keys.mint("a", named=())
        assert keys.destroy("a") == keys.destroy("a") == store.open().destroy("a")

    @promise("X10")
    def test_a_store_without_a_key_proves_no_erasure(self, store: KeyStoreHarness) -> None:
        keys = store.open()
        assert keys.destroy("a").key_ids == ()
        assert keys.was_destroyed("a") is False
        assert refusal(keys.mint, "a", named=()) == "subject-erasing"
        assert refusal(keys.current, "a") == "subject-erasing"

    @promise("X12")
    def test_a_destruction_counts_at_once_for_who_has_just_read(self, store: KeyStoreHarness) -> None:
        reader = store.open()
        made = reader.mint("a", named=())
        assert reader.find(made.key_id, "a") == made.key
        store.open().destroy("a")
        assert reader.find(made.key_id, "a") == Destroyed(made.key_id, "subject")
        assert refusal(reader.current, "a") == "subject-erasing"

    @promise("X11", "X12")
    def test_a_mint_and_a_destruction_at_once_leave_no_key(self, store: KeyStoreHarness) -> None:
        for number in range(10):
            subject = f"s{number}"

            mint = partial(_minted, store.open(), subject)
            destroy = partial(_destroyed, store.open(), subject)
            first, told, second = at_once([mint, destroy, mint])
            keys = store.open()
            assert refusal(keys.current, subject) == "subject-erasing"
            assert {*first, *second} <= {*told}
            assert all(keys.find(one, subject) == Destroyed(one, "subject") for one in told)

    @promise("X10")
    def test_another_store_knows_nothing(self, store: KeyStoreHarness) -> None:
        keys = store.open()
        kept, gone = keys.mint("a", named=()), keys.mint("b", named=())
        keys.destroy("b")
        other = store.elsewhere()
        assert [other.find(kept.key_id, "a"), other.find(gone.key_id, "b")] == [None, None]
        assert [other.was_destroyed("a"), other.was_destroyed("b")] == [False, False]
        assert refusal(other.mint, "a", named={kept.key_id}) == "key-unavailable"

    @promise("X10")
    def test_a_store_that_is_away_is_no_erasure(self, store: KeyStoreHarness) -> None:
        keys = store.open()
        kept, gone = keys.mint("a", named=()), keys.mint("b", named=())
        keys.destroy("b")
        away = store.unreachable()
        acts: list[Callable[[], object]] = [
            lambda: away.current("a"),
            lambda: away.find(kept.key_id, "a"),
            lambda: away.find(gone.key_id, "b"),
            lambda: away.mint("c", named=()),
            lambda: away.rotate("a"),
            lambda: away.destroy("a"),
            lambda: away.was_destroyed("b"),
            lambda: list(away.subjects()),
            lambda: list(away.rewrap()),
        ]
        assert {refusal(act) for act in acts} == {"key-unavailable"}
        assert store.open().find(kept.key_id, "a") == kept.key

    @promise("X10")
    def test_a_master_that_is_away_is_no_erasure(self, store: KeyStoreHarness) -> None:
        keys = store.open()
        kept, gone = keys.mint("a", named=()), keys.mint("b", named=())
        keys.destroy("b")
        there = store.masterless()
        assert refusal(there.find, kept.key_id, "a") == "key-unavailable"
        assert refusal(there.current, "a") == "key-unavailable"
        assert there.was_destroyed("a") is False
        assert there.find(gone.key_id, "b") == Destroyed(gone.key_id, "subject")
        assert keys.find(kept.key_id, "a") == kept.key

    @promise("X12")
    def test_a_restored_backup_brings_no_destroyed_key_back(self, store: KeyStoreHarness) -> None:
        running = store.open()
        kept = running.mint("b", named=())
        old = running.mint("a", named=())
        restore = store.backup()
        late = running.rotate("a")
        running.destroy("a")
        restore()
        for keys in (running, store.open()):
            for one in (old, late):
                assert keys.find(one.key_id, "a") == Destroyed(one.key_id, "subject")
            assert refusal(keys.current, "a") == "subject-erasing"
            assert refusal(keys.mint, "a", named=()) == "subject-erasing"
            assert keys.find(kept.key_id, "b") == kept.key
        assert store.open().was_destroyed("a") is True

    @promise("X10", "X11")
    def test_what_an_older_backup_does_not_know_is_unknown_and_not_minted_anew(
        self, store: KeyStoreHarness
    ) -> None:
        restore = store.backup()
        late = store.open().mint("a", named=())
        restore()
        keys = store.open()
        assert keys.find(late.key_id, "a") is None
        assert keys.was_destroyed("a") is False
        assert refusal(keys.mint, "a", named={late.key_id}) == "key-unavailable"

    def test_nothing_shows_a_key(self, store: KeyStoreHarness) -> None:
        keys = store.open()
        made = keys.mint("a", named=())
        shown = repr([keys, made, list(keys.subjects()), finished(keys)]) + repr(keys.destroy("a"))
        for secret in (
            made.key.secret.hex(),
            repr(made.key.secret),
            base64.b64encode(made.key.secret).decode(),
        ):
            assert secret not in shown
        for one in (keys, made, made.key):
            with pytest.raises(TypeError, match=r"pickled or copied|cannot pickle"):
                pickle.dumps(one)
