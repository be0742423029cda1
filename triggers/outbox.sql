-- The end of the outbox and what consumers acknowledged only move forward.
create or replace function underseal._check_outbox_head() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' or new.last_position < old.last_position or new.purged_through < old.purged_through then
    raise exception using errcode = 'US004',
      message = format('underseal.outbox_head expected to move forward, found %s', tg_op),
      hint = 'Positions are never given twice.';
  end if;
  return new;
end
$$;
comment on function underseal._check_outbox_head() is 'The outbox''s end only moves forward (H3.7).';

create or replace trigger outbox_head_check
before update or delete on underseal.outbox_head
for each row execute function underseal._check_outbox_head();
alter table underseal.outbox_head enable always trigger outbox_head_check;
comment on trigger outbox_head_check on underseal.outbox_head is 'Forward only.';

create or replace trigger outbox_head_no_truncate
before truncate on underseal.outbox_head
for each statement execute function underseal._refuse_change();
alter table underseal.outbox_head enable always trigger outbox_head_no_truncate;
comment on trigger outbox_head_no_truncate on underseal.outbox_head is 'Never truncated.';
