"""Random in a service, replayable in a test, and never the second in the first (M17)."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading

import pytest

from underseal.seal import HELD_PAYLOAD, MemoryKeyRing, entropy, open_seal, seal
from underseal.testing.entropy import FixedEntropy, SeededEntropy, deterministic

OPERATION = "0198c5f2-6a4e-7c1d-9b3a-5e2f8d7c6b1a"


@pytest.mark.clause("M17")
def test_without_a_source_the_bytes_are_the_operating_system_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_bytes", lambda size: b"s" * size)
    assert entropy.random_bytes(3) == b"sss"


@pytest.mark.clause("M17")
def test_one_seed_replays_one_run_byte_for_byte() -> None:
    def run(seed: int) -> dict[str, str | int]:
        with deterministic(SeededEntropy(seed)):
            ring = MemoryKeyRing.with_all()
            key = ring.active("payload")
            return seal(b"{}", key, fmt=HELD_PAYLOAD, place=(OPERATION,), origin=OPERATION)

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_a_draw_does_not_repeat_and_may_be_of_any_size() -> None:
    source = SeededEntropy("seed")
    draws = [source.take(size) for size in (0, 1, 31, 32, 33, 100)]
    assert [len(draw) for draw in draws] == [0, 1, 31, 32, 33, 100]
    assert len({draw[:16] for draw in draws[2:]}) == 4


def test_fixed_bytes_are_handed_out_once_each_and_only_as_asked_for() -> None:
    source = FixedEntropy([b"ab", b"c"])
    assert source.take(2) == b"ab"
    with pytest.raises(AssertionError, match="2 bytes were drawn, and the next draw has 1"):
        source.take(2)
    with pytest.raises(AssertionError, match="none are left"):
        source.take(1)


@pytest.mark.clause("M17")
@pytest.mark.parametrize("plain", [lambda size: b"0" * size, object(), None])
def test_a_plain_function_is_refused(plain: object) -> None:
    with pytest.raises(TypeError, match=r"must come from underseal\.testing"), deterministic(plain):  # type: ignore[arg-type]
        pass
    assert entropy.random_bytes(32) != entropy.random_bytes(32)


@pytest.mark.clause("M17")
def test_the_brand_is_for_classes_of_the_testing_package_alone() -> None:
    with pytest.raises(TypeError, match=r"deterministic sources exist in underseal\.testing alone"):

        class Mine(entropy.BrandedEntropy):
            def take(self, size: int) -> bytes:
                return b"0" * size


@pytest.mark.clause("M17")
@pytest.mark.parametrize("sign", ["variable", "module"])
def test_it_is_refused_outside_a_test_run(monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    if sign == "variable":
        monkeypatch.delenv("PYTEST_CURRENT_TEST")
    else:
        monkeypatch.delitem(sys.modules, "pytest")
    with pytest.raises(RuntimeError, match="outside a test run"), deterministic(SeededEntropy(1)):
        pass


@pytest.mark.clause("M17")
def test_a_source_that_outlives_its_test_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with deterministic(SeededEntropy(1)):
        assert len(entropy.random_bytes(4)) == 4
        with monkeypatch.context() as after:
            after.delenv("PYTEST_CURRENT_TEST")
            with pytest.raises(RuntimeError, match="outside a test run; nothing was drawn"):
                entropy.random_bytes(4)


@pytest.mark.clause("M17")
def test_a_process_that_is_no_test_cannot_install_one() -> None:
    program = (
        "from underseal.testing.entropy import SeededEntropy, deterministic\n"
        "with deterministic(SeededEntropy(1)): pass\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "outside a test run" in ended.stderr


def test_two_sources_at_once_are_refused_and_the_first_goes_on() -> None:
    with deterministic(FixedEntropy([b"a"])):
        with pytest.raises(RuntimeError, match="already installed"), deterministic(SeededEntropy(1)):
            pass
        assert entropy.random_bytes(1) == b"a"


def test_a_seeded_source_is_shared_between_threads_without_repeating() -> None:
    source = SeededEntropy(1)
    drawn: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: drawn.extend(source.take(32) for _ in range(200))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 800


def test_a_sealed_value_opens_whatever_the_source() -> None:
    ring = MemoryKeyRing.with_all()
    with deterministic(SeededEntropy(1)):
        sealed = seal(b"{}", ring.active("payload"), fmt=HELD_PAYLOAD, place=(OPERATION,), origin=OPERATION)
    assert open_seal(sealed, ring, purpose="payload", fmt=HELD_PAYLOAD, place=(OPERATION,)) == b"{}"
