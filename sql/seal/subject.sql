-- Whose data a chain holds, and which keys are whose (X1). The registry holds no key material.
create or replace function underseal._subject_flaw(subject text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when coalesce(subject, '') !~ '^[^[:cntrl:]]+$' or length(subject) > 200 then 'malformed-subject'
    when exists (select from underseal.subject_fence f where f.subject = _subject_flaw.subject) then 'subject-erasing' end
$$;
comment on function underseal._subject_flaw(text) is 'What keeps anything from being started or sealed for a subject; null for nothing (X2).';

create or replace function underseal._subject_lock(subject text) returns bigint
language sql immutable
set search_path = pg_catalog, pg_temp
as $$ select hashtextextended('underseal.subject ' || subject, 0) $$;
comment on function underseal._subject_lock(text) is
  'The advisory lock under which keys of a subject are registered, shared, and it is fenced, alone. Two subjects that share it wait for each other and nothing else.';

create or replace function underseal._subject_message(reason text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case reason
    when 'malformed-subject' then 'Expected a subject of 1 to 200 characters without control characters, found another value.'
    when 'subject-erasing' then 'Expected a subject that is not being erased, found one that is or was. Nothing is sealed or started for it any more.'
    when 'other-subject' then 'Expected the subject of the chain, or none, found another. What belongs to another subject begins a chain of its own.'
    when 'malformed-key' then 'Expected the id of a key, 1 to 128 characters from ! to ~, found another value.'
    when 'malformed-epoch' then 'Expected an epoch from 1, found another.'
    when 'key-destroyed' then 'Expected a key that is there, found one that was destroyed. Seal under a newer one.'
    when 'foreign-key' then 'Expected a key of this subject, found one that is registered for another, or under another epoch. A key has one subject.'
    when 'epoch-taken' then 'Expected an epoch that no key of this subject has, found one that another has. Look the keys up again.'
    end
$$;
comment on function underseal._subject_message(text) is 'What was expected of a subject or a key of it, what was found and what to do.';

create or replace function underseal.register_subject_key(subject text, key_id text, epoch integer)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  known underseal.subject_key;
begin
  perform underseal._require_read_committed();
  outcome := 'refused';
  reason := coalesce(underseal._subject_flaw(register_subject_key.subject), case
    when coalesce(register_subject_key.key_id, '') !~ '^[!-~]+$' or length(register_subject_key.key_id) > 128 then 'malformed-key'
    when coalesce(register_subject_key.epoch, 0) < 1 then 'malformed-epoch' end);
  if reason is null then
    begin
      insert into underseal.subject_key (key_id, subject, epoch, registered_at)
      values (register_subject_key.key_id, register_subject_key.subject, register_subject_key.epoch, underseal.clock())
      on conflict do nothing;
      if found then
        outcome := 'registered';
      else
        select k.* into known from underseal.subject_key k where k.key_id = register_subject_key.key_id;
        reason := case
          when not found then 'epoch-taken'
          when known.subject <> register_subject_key.subject or known.epoch <> register_subject_key.epoch then 'foreign-key'
          when known.destroyed_at is not null then 'key-destroyed' end;
        outcome := case when reason is null then 'unchanged' when reason <> 'key-destroyed' then 'conflict' else 'refused' end;
      end if;
    exception when sqlstate 'US002' then
      reason := 'subject-erasing';  -- fenced while this waited
    end;
  end if;
  message := underseal._subject_message(reason);
  return next;
end
$$;
comment on function underseal.register_subject_key(text, text, integer) is
  'Says that a key is a subject''s, so that what is sealed under it is taken where that subject''s data is kept; the key itself never comes here. subject: 1 to 200 characters; key_id: as it will stand in envelopes; epoch: from 1. Outcomes: registered; unchanged (it was); conflict (foreign-key: it is another''s; epoch-taken: the subject has another key of this epoch); refused (subject-erasing, key-destroyed, malformed-subject, malformed-key, malformed-epoch). For sealers (X1, X2, X12).';

create or replace function underseal.get_subjects(execution_ids text[])
returns table (outcome text, reason text, message text, execution_id text, subject text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select case when s.subject is null then 'none' else 'subject' end, null::text, null::text, i.id, s.subject
  from unnest(get_subjects.execution_ids) with ordinality i (id, place)
  left join underseal.chain_subject s on s.chain_id = underseal._chain_of(i.id)
  order by i.place
$$;
comment on function underseal.get_subjects(text[]) is
  'Whose data the chains of these executions hold, for who seals for them: one row each, in their order. Outcomes: subject; none (it has no subject, or there is no such execution). For sealers (X1).';

create or replace function underseal._with_subject(data json, subject text) returns json
language sql immutable
set search_path = pg_catalog, pg_temp
as $$ select (left(data::text, -1) || ', "subject" : ' || to_json(subject)::text || '}')::json $$;
comment on function underseal._with_subject(json, text) is 'The data of EXECUTION_STARTED with the subject of the chain that it begins.';

create or replace function underseal._with_both(item json, subject json, sealed json) returns json
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select (left(item::text, -1) || ', "subject" : ' || coalesce(subject::text, 'null') || ', "sealed" : '
    || coalesce(sealed::text, 'null') || '}')::json
$$;
comment on function underseal._with_both(json, json, json) is 'An item of a batch with its subject and what is sealed in it.';

-- Inlined: what says nothing of seals is as it was, for the price of two comparisons.
create or replace function underseal._with_seals(item json, subject json, sealed json) returns json
language sql immutable
as $$
  select case when subject is null and sealed is null then item
    else underseal._with_both(item, subject, sealed) end
$$;
comment on function underseal._with_seals(json, json, json) is 'An item of a batch with its subject and what is sealed in it, where there are any.';

create or replace function underseal._set_subjects(writes underseal.log_write[], lost integer[]) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into underseal.chain_subject (chain_id, subject, set_at)
  select w.chain_id, w.subject, underseal.clock()
  from unnest(writes) w
  where w.verb = 'start' and w.member = '' and w.subject is not null and w.flaw is null and w.item <> all (lost)
  order by w.chain_id
$$;
comment on function underseal._set_subjects(underseal.log_write[], integer[]) is 'Says whose data the chains hold that a batch has begun with a subject.';

create or replace function underseal._subject_of(chain_id text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select s.subject from underseal.chain_subject s where s.chain_id = _subject_of.chain_id $$;
comment on function underseal._subject_of(text) is 'Whose data a chain holds; null for nobody''s.';
