"""Changes the text of a function in a stage: what a control switches off, or a scene makes short."""

from __future__ import annotations

from underseal.testing.simulation import Stage


def switch(stage: Stage, function: str, old: str, new: str, times: int = 1) -> None:
    """Put something else in the place of a piece of a function.

    Parameters:
        stage: where; it stays so.
        function: with its argument types.
        old: the piece.
        new: what stands in its place.
        times: how often the piece must be there, no more and no less.
    """
    (row,) = stage.ask("select pg_get_functiondef(%s::regprocedure) as text", [function])
    text = str(row["text"])
    assert text.count(old) == times, f"{function}: expected {old!r} {times} times, found it {text.count(old)}"
    stage.change(text.replace(old, new))
