"""The built-in sha256() gives what pgcrypto's digest() gives, where a server has pgcrypto."""

from __future__ import annotations

import pytest

from underseal.testing import DictConnection


@pytest.mark.clause("H1.3a")
def test_the_hash_is_pgcryptos(admin: DictConnection) -> None:
    available = admin.execute("select from pg_available_extensions where name = 'pgcrypto'").rowcount
    if not available:
        # The embedded server ships without it: then only the formula itself can be compared, and is, in test_hashing.
        pytest.skip("this server has no pgcrypto; the distribution's has")
    admin.execute("create extension pgcrypto")
    row = admin.execute(
        """
        select underseal.params_hash(v.type, v.version, v.canonical)
            = public.digest(convert_to(v.type || e'\\n' || v.version || e'\\n' || v.canonical, 'UTF8'), 'sha256')
            as plain,
          underseal.params_hash(v.type, v.version, v.canonical, decode(repeat('07', 32), 'hex'))
            = public.digest(convert_to(v.type || e'\\n' || v.version || e'\\n' || v.canonical || e'\\n', 'UTF8')
              || decode(repeat('07', 32), 'hex'), 'sha256') as salted
        from (values ('payout.send', 1, '{"cents":5,"to":"Zoë"}')) as v (type, version, canonical)
        """
    ).fetchone()
    assert row == {"plain": True, "salted": True}
