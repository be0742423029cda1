-- Functions that lock first and judge after need to see what the holder of the lock committed.
create or replace function underseal._require_read_committed() returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using
      errcode = 'US008',
      message = format('underseal expected isolation level read committed, found %s',
        current_setting('transaction_isolation')),
      hint = 'Begin the transaction with ISOLATION LEVEL READ COMMITTED and call again.';
  end if;
end
$$;
comment on function underseal._require_read_committed() is
  'Raises US008 unless the transaction is at READ COMMITTED, where a statement after a lock sees what was committed before it.';

-- A claim that a crash forgets after its effect has happened would be made again.
create or replace function underseal._commit_durably() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'local', true);
  end if;
end
$$;
comment on function underseal._commit_durably() is
  'Makes this transaction wait until its commit is on disk, whatever the host''s synchronous_commit says: a claim, a vote and a cancellation must not be forgotten by a crash.';

create or replace function underseal._is_no_fault_of_a_row(code text) returns boolean
language sql immutable
set search_path = pg_catalog, pg_temp
as $$ select code ~ '^(25|40|42|53|55|57|58|XX000)' $$;
comment on function underseal._is_no_fault_of_a_row(text) is
  'Whether an SQLSTATE tells of the transaction, the schema or the server (a deadlock, a full disk, a lock not to be had, a shutdown, a missing right): then a batch must fail whole and be tried again, and no row be reported as damaged.';
