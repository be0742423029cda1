"""The built-in sha256() gives what pgcrypto's digest() gives."""

from __future__ import annotations

import pytest

from underseal.testing import DictConnection


@pytest.mark.clause("H1.3a")
def test_the_hash_is_the_digest_that_pgcrypto_gives(admin: DictConnection) -> None:
    """By pgcrypto on a server that has it (the distribution's, in CI), by the built-in function elsewhere."""
    digest = "sha256(%s)"
    if admin.execute("select from pg_available_extensions where name = 'pgcrypto'").rowcount:
        admin.execute("create extension pgcrypto")
        digest = "public.digest(%s, 'sha256')"
    covered = "convert_to(v.type || e'\\n' || v.version || e'\\n' || v.canonical, 'UTF8')"
    salted = f"{covered} || decode('0a', 'hex') || v.salt"
    row = admin.execute(
        f"""
        select underseal.params_hash(v.type, v.version, v.canonical) = {digest % covered} as plain,
          underseal.params_hash(v.type, v.version, v.canonical, v.salt) = {digest % salted} as salted
        from (values ('payout.send', 1, '{{"cents":5,"to":"Zoë"}}', decode(repeat('07', 32), 'hex')))
          as v (type, version, canonical, salt)
        """.encode()
    ).fetchone()
    assert row == {"plain": True, "salted": True}
