-- Large values are stored once a chain, under the hash of their text, and referred to from events by {"$content": "<hex>"}.
create or replace function underseal._content_limit() returns integer
language sql immutable parallel safe
as $$ select 16777216 $$;
comment on function underseal._content_limit() is 'The most bytes of JSON that one stored value may have: 16 MiB.';

create or replace function underseal._content_message(reason text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case reason
    when 'too-large' then 'Expected at most 16 MiB of JSON, found more. Store it in parts.'
    when 'none' then 'Expected a value stored under this hash in the execution''s chain, found none.'
    when 'sealed' then 'Expected a chain that can be looked through for references, found sealed events or snapshots in it. Nothing of it is swept.'
    when 'unreadable' then 'Expected values that can be looked through for references, found one that cannot. Nothing of its chain is swept.'
    when 'busy' then 'Expected a chain nobody writes to just now, found another. The next sweep looks at it.'
    else underseal._append_message(reason) end
$$;
comment on function underseal._content_message(text) is 'What was expected of stored content, what was found and what to do.';

create or replace function underseal._content_refs(value json) returns setof bytea
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  -- a key that is written with escapes is seen only where they are resolved
  if value::text !~ '[$]content|\\u' then
    return;
  end if;
  return query
  select distinct decode(r.ref #>> '{}', 'hex')
  from jsonb_path_query(value::jsonb, 'lax $.**."$content"') r (ref)
  where jsonb_typeof(r.ref) = 'string' and r.ref #>> '{}' ~ '^([0-9A-Fa-f][0-9A-Fa-f])+$';
exception when numeric_value_out_of_range or statement_too_complex then
  -- A number or a depth that jsonb has no room for. Whatever might be a hash counts as one, unless escapes could hide it.
  if value::text ~ '\\u' then
    raise;
  end if;
  return query
  select distinct decode(h.match[1], 'hex') from regexp_matches(value::text, '"([0-9A-Fa-f]{64})"', 'g') h (match);
end
$$;
comment on function underseal._content_refs(json) is 'The hashes of stored content that a value refers to, at any depth (E10).';

create or replace function underseal._is_referred_to(chain_id text) returns setof bytea
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select r.hash from underseal.event v cross join lateral underseal._content_refs(v.data) r (hash)
  where v.chain_id = _is_referred_to.chain_id
  union
  select r.hash from underseal.snapshot s cross join lateral underseal._content_refs(s.state) r (hash)
  where s.chain_id = _is_referred_to.chain_id
  union
  select r.hash from underseal.inbox_message m cross join lateral underseal._content_refs(m.payload) r (hash)
  where m.chain_id = _is_referred_to.chain_id
$$;
comment on function underseal._is_referred_to(text) is
  'The hashes of stored content that the logs, snapshots and waiting messages of a chain refer to (E10).';

create or replace function underseal.put_content(execution_id text, body json, fence bigint)
returns table (outcome text, reason text, message text, hash bytea)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  content json := coalesce(body, 'null');
  e underseal.execution;
  flaw text;
begin
  perform underseal._require_read_committed();
  perform from underseal.execution x where x.chain_id = chain and x.member = me for no key update;
  select x.* into e from underseal.execution x where x.chain_id = chain and x.member = me;
  flaw := case
    when not found then 'not-found'
    when e.fence is distinct from put_content.fence then 'stale-fence'
    when underseal._is_ended(e.status) then 'ended'
    when octet_length(content::text) > underseal._content_limit() then 'too-large'
    when content::text ~ '__loomEnc|[$]shredded|\\u' then underseal._reserved_in(content) end;
  if flaw is not null then
    return query select underseal._append_outcome('append', flaw, null), nullif(flaw, 'not-found'),
      underseal._content_message(flaw), null::bytea;
    return;
  end if;
  return query
  insert into underseal.content as c (chain_id, hash, body, stored_at)
  values (chain, sha256(convert_to(content::text, 'UTF8')), content, underseal.clock())
  on conflict on constraint content_pkey do update set stored_at = greatest(c.stored_at, excluded.stored_at)
  returning 'stored', null::text, null::text, c.hash;
end
$$;
comment on function underseal.put_content(text, json, bigint) is
  'Stores a value once for an execution''s chain, under the SHA-256 of its text in UTF-8, for the driver that holds the fence; an event refers to it by {"$content": "<hash in hex>"}, and what nothing refers to is swept an hour later. body: at most 16 MiB of JSON. Outcomes: stored, with its hash, also where it was there already; not-found; conflict (stale-fence, ended); refused (too-large, envelope, unreadable) (E10).';

create or replace function underseal.get_content(execution_id text, hash bytea, principal text, capability jsonb default null)
returns table (outcome text, reason text, message text, body json)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  judged record;
  found_body json;
begin
  select j.* into judged
  from underseal._judge_access('read', execution_id, get_content.principal, '{client,worker,operator}') j;
  if judged.cause is not null then
    perform underseal._record_denial('read', execution_id, judged.principal, judged.cause, judged.known);
    return query select d.*, null::json from underseal._execution_denied() d;
    return;
  end if;
  -- of the execution that was judged, and of no other that has its id by now
  select c.body into found_body
  from underseal.execution e
  join underseal.content c on c.chain_id = e.chain_id
  where e.chain_id = underseal._chain_of(execution_id) and e.member = underseal._member_of(execution_id)
    and e.incarnation = judged.incarnation and c.hash = get_content.hash;
  return query select case when found_body is null then 'none' else 'content' end, null::text,
    case when found_body is null then underseal._content_message('none') end, found_body;
end
$$;
comment on function underseal.get_content(text, bytea, text, jsonb) is
  'A value stored for an execution''s chain, by the SHA-256 of its text. principal: who reads; null for a worker''s own reading. capability: what the caller opens; no stored value is sealed as yet. Outcomes: content; none; denied (E10, E12).';

create or replace function underseal.sweep_content(max_chains integer default 100, grace interval default interval '1 hour')
returns table (outcome text, reason text, message text, chain_id text, removed integer)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  until timestamptz := underseal.clock() - grace;
  chain text;
  members bigint;
  kept bytea[];
begin
  perform underseal._require_read_committed();
  for chain in
    select c.chain_id from underseal.content c
    group by c.chain_id
    having min(c.stored_at) <= until
    order by min(c.stored_at)
    limit greatest(max_chains, 0)
  loop
    chain_id := chain;
    removed := 0;
    outcome := 'skipped';
    -- An event that refers to it may be on its way; whoever writes one holds its execution.
    select count(*) into members
    from (
      select from underseal.execution e where e.chain_id = chain order by e.member for no key update skip locked) e;
    reason := case
      when members < (select count(*) from underseal.execution e where e.chain_id = chain) then 'busy'
      when exists (select from underseal.execution e where e.chain_id = chain and e.sealed)
        or exists (select from underseal.snapshot s where s.chain_id = chain and s.metadata ? 'seal')
        or exists (select from underseal.inbox_message m where m.chain_id = chain and m.metadata ? 'seal') then 'sealed' end;
    if reason is null then
      begin
        kept := array(select r from underseal._is_referred_to(chain) r);
        outcome := 'swept';
      exception when numeric_value_out_of_range or statement_too_complex then
        reason := 'unreadable';
      end;
    end if;
    if reason is null then
      delete from underseal.content c
      where c.chain_id = chain and c.stored_at <= until and c.hash <> all (kept);
      get diagnostics removed = row_count;
    end if;
    if reason is distinct from 'busy' then
      -- what was looked at is looked at again when the grace has passed once more, after all others
      update underseal.content c set stored_at = underseal.clock() where c.chain_id = chain and c.stored_at <= until;
    end if;
    message := underseal._content_message(reason);
    return next;
  end loop;
end
$$;
comment on function underseal.sweep_content(integer, interval) is
  'Removes stored values that nothing in their chain refers to and that were not stored or looked at within the grace, in up to max_chains chains; those looked at longest ago come first. Outcomes: a row a chain: swept, with how many went; skipped (sealed: its references cannot be read here; unreadable; busy) (E10).';
