"""A writer with every right on the tables: triggers off, constraints gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg

from underseal.testing import DictConnection

TABLES = (
    "held_operation", "held_vote", "held_event", "held_event_pending", "held_event_position", "replay_ticket",
    "audit_entry", "operation_type",
)  # fmt: skip
OF_AN_OPERATION = TABLES[:6]


class Writer:
    """What such a writer can do.

    Parameters:
        admin: a superuser's connection.
    """

    def __init__(self, admin: DictConnection) -> None:
        self.admin = admin

    @contextmanager
    def unguarded(self) -> Iterator[None]:
        """No trigger fires within; afterwards they are as they were."""
        for table in TABLES:
            self.admin.execute(f"alter table underseal.{table} disable trigger user")
        yield
        for row in self.admin.execute(
            "select tgrelid::regclass::text as on_table, tgname from pg_trigger"
            " where tgrelid = any (%s::regclass[]) and not tgisinternal",
            [[f"underseal.{table}" for table in TABLES]],
        ).fetchall():
            self.admin.execute(f"alter table {row['on_table']} enable always trigger {row['tgname']}")

    def drop_constraints(self, table: str) -> None:
        """Let every value in that is of the column's type."""
        name = f"underseal.{table}"
        for row in self.admin.execute(
            "select conrelid::regclass::text as on_table, conname from pg_constraint"
            " where conrelid = %(name)s::regclass and contype = 'c' or confrelid = %(name)s::regclass"
            " or conrelid = %(name)s::regclass and contype = 'f'",
            {"name": name},
        ).fetchall():
            self.admin.execute(f"alter table {row['on_table']} drop constraint {row['conname']}")
        for row in self.admin.execute(
            "select attname from pg_attribute a where attrelid = %s::regclass and attnum > 0 and attnotnull"
            " and not exists (select from pg_index i where i.indrelid = a.attrelid and i.indisprimary"
            " and a.attnum = any (i.indkey))",
            [name],
        ).fetchall():
            self.admin.execute(f"alter table {name} alter column {row['attname']} drop not null")

    def rows(self, table: str, operation_id: UUID) -> list[dict[str, Any]]:
        """The rows of an operation, whole, with `ctid`."""
        return self.admin.execute(
            f"select ctid::text, t.* from underseal.{table} t where operation_id = %s order by ctid",
            [operation_id],
        ).fetchall()

    def columns(self, table: str) -> dict[str, str]:
        """The columns of a table and their types."""
        return {
            row["column_name"]: row["data_type"]
            for row in self.admin.execute(
                "select column_name, data_type from information_schema.columns where table_schema = 'underseal'"
                " and table_name = %s order by ordinal_position",
                [table],
            )
        }

    def write(self, table: str, column: str, value: Any, operation_id: UUID) -> int:
        """Write a value into a column of every row of an operation; how many rows took it."""
        return sum(self._took(table, column, value, row["ctid"]) for row in self.rows_at(table, operation_id))

    def rows_at(self, table: str, operation_id: UUID) -> list[dict[str, Any]]:
        """Where the rows of an operation are."""
        return self.admin.execute(
            f"select ctid::text from underseal.{table} where operation_id = %s order by ctid", [operation_id]
        ).fetchall()

    def _took(self, table: str, column: str, value: Any, ctid: str) -> bool:
        try:
            self.admin.execute(
                f"update underseal.{table} set {column} = %s where ctid = %s::tid", [value, ctid]
            )
        except psycopg.Error:
            return False  # a unique index, or a key
        return True

    def keep(self, operation_id: UUID) -> Callable[[], None]:
        """Copy all rows of an operation; the answer puts them back as they were."""
        kept = {
            table: [
                row["copy"]
                for row in self.admin.execute(
                    f"select to_jsonb(t)::text as copy from underseal.{table} t where operation_id = %s",
                    [operation_id],
                )
            ]
            for table in OF_AN_OPERATION
        }

        def put_back() -> None:
            with self.unguarded():
                for table in reversed(OF_AN_OPERATION):
                    self.admin.execute(
                        f"delete from underseal.{table} where operation_id = %s", [operation_id]
                    )
                for table in OF_AN_OPERATION:
                    for copy in kept[table]:
                        self.admin.execute(
                            f"insert into underseal.{table} overriding system value"
                            f" select * from jsonb_populate_record(null::underseal.{table}, %s)",
                            [copy],
                        )

        return put_back

    def set(self, operation_id: UUID, table: str = "held_operation", **columns: Any) -> None:
        """Write columns of the rows of an operation; every constraint must agree."""
        settings = ", ".join(f"{column} = %({column})s" for column in columns)
        with self.unguarded():
            self.admin.execute(
                f"update underseal.{table} set {settings} where operation_id = %(operation_id)s",
                {**columns, "operation_id": operation_id},
            )

    def copy_vote(self, from_id: UUID, to_id: UUID, approver: str | None = None) -> None:
        """Copy the votes of an operation to another, whose hash they then name; or to another approver."""
        with self.unguarded():
            self.admin.execute(
                "insert into underseal.held_vote select o.operation_id, coalesce(%(approver)s, v.approver), v.decision,"
                " v.reason, o.params_hash, v.row_version, v.cast_at, v.sealed_decision, v.decision_key_id"
                " from underseal.held_vote v, underseal.held_operation o"
                " where v.operation_id = %(from_id)s and o.operation_id = %(to_id)s",
                {"from_id": from_id, "to_id": to_id, "approver": approver},
            )

    def call_approved(self, operation_id: UUID) -> None:
        """Say that an operation is approved, now."""
        with self.unguarded():
            self.admin.execute(
                "update underseal.held_operation set state = 'APPROVED', approved_at = m,"
                " run_deadline = m + run_within, changed_at = m"
                " from (select underseal.clock()) c (m) where operation_id = %s",
                [operation_id],
            )

    def revive(self, operation_id: UUID, sealed_payload: Any, seal: dict[str, Any]) -> None:
        """Give an ended operation its seal back and make it held."""
        self.set(
            operation_id, state="HELD", ended_at=None, outcome_reason=None, outcome_detail=None,
            sealed_payload=json.dumps(sealed_payload), **seal,
        )  # fmt: skip
