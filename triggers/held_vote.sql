-- A vote belongs to the change of its operation that it made, and stays as it was cast.
create or replace function underseal._check_held_vote() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  op underseal.held_operation;
  probe underseal.held_vote;
begin
  if tg_op = 'INSERT' then
    select o.* into op from underseal.held_operation o where o.operation_id = new.operation_id for no key update;
    if op.state not in ('HELD', 'APPROVED', 'REJECTED')
      or (op.changed_by, op.changed_at) is distinct from (new.approver, new.cast_at) then
      raise exception using errcode = 'US002',
        message = 'underseal.held_vote expected a vote that its operation has just recorded, found another',
        hint = 'Call underseal.vote.';
    end if;
    if new.approver = op.requester then
      raise exception using errcode = 'US002',
        message = 'underseal.held_vote expected an approver who is not the requester, found the requester';
    end if;
    if (new.params_hash, new.row_version) is distinct from (op.params_hash, op.row_version) then
      raise exception using errcode = 'US002',
        message = 'underseal.held_vote expected the hash and version of its operation, found others';
    end if;
    if not underseal._is_envelope(new.sealed_decision, 'held-decision-v1') then
      raise exception using errcode = 'US013',
        message = 'underseal.held_vote expected sealed_decision to be an envelope of format held-decision-v1, found something else',
        hint = 'See docs/formats.md.';
    end if;
    return new;
  end if;

  select o.* into op from underseal.held_operation o where o.operation_id = old.operation_id;
  if tg_op = 'DELETE' then
    if not coalesce(underseal._may_be_purged(old.operation_id), false) then
      raise exception using errcode = 'US007',
        message = 'underseal.held_vote expected to keep a vote for 90 days after its operation ended, found a DELETE',
        hint = 'Call underseal.purge_operations.';
    end if;
    return old;
  end if;
  probe := new;
  probe.sealed_decision := old.sealed_decision;
  probe.decision_key_id := old.decision_key_id;
  if probe is distinct from old or op.ended_at is not null or old.decision_key_id = new.decision_key_id
    or not underseal._is_envelope(new.sealed_decision, 'held-decision-v1') then
    raise exception using errcode = 'US004',
      message = 'underseal.held_vote expected a vote to stay as it was cast, or its seal alone to be replaced under another key while the operation is open, found something else',
      hint = 'Call underseal.rewrap_vote.';
  end if;
  return new;
end
$$;
comment on function underseal._check_held_vote() is 'Votes are cast once, by somebody other than the requester, and kept (H4.3, H3.4).';

create or replace trigger held_vote_check
before insert or update or delete on underseal.held_vote
for each row execute function underseal._check_held_vote();
alter table underseal.held_vote enable always trigger held_vote_check;
comment on trigger held_vote_check on underseal.held_vote is 'A vote stays as it was cast.';

create or replace trigger held_vote_no_truncate
before truncate on underseal.held_vote
for each statement execute function underseal._refuse_change();
alter table underseal.held_vote enable always trigger held_vote_no_truncate;
comment on trigger held_vote_no_truncate on underseal.held_vote is 'Votes are never truncated.';
