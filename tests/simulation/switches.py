"""Changes the text of a function in a stage: what a control switches off, or a scene makes short."""

from __future__ import annotations

from underseal.testing.simulation import Stage


def switch(stage: Stage, function: str, old: str, new: str) -> None:
    """Put something else in the place of a piece of a function, which must be there exactly once.

    Parameters:
        stage: where; it stays so.
        function: with its argument types.
        old: the piece.
        new: what stands in its place.
    """
    (row,) = stage.ask("select pg_get_functiondef(%s::regprocedure) as text", [function])
    text = str(row["text"])
    assert text.count(old) == 1, f"{function}: expected {old!r} once, found it {text.count(old)} times"
    stage.change(text.replace(old, new))
