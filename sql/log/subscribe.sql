-- Following all executions at once, by differences of snapshots (docs/decisions/0010). A cursor is a text
--
--   1/<history>/<from>/<to>/<how>/<seq>/<member>/<chain>
--
-- history says which cluster's transaction numbers it speaks of. What `from` sees was given; what `to` sees besides is
-- being given, in the order of chain, member and number, up to the key at its end. Without `to` everything is given.
create or replace function underseal._history() returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when not pg_is_in_recovery() then
    left(encode(sha256(convert_to(concat_ws('/', s.system_identifier,
      -- the timeline: a standby that took over may have lost the last transactions and give their numbers again
      left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
      d.oid, 'underseal.event'::regclass::oid), 'UTF8')), 'hex'), 16) end
  from pg_control_system() s
  cross join pg_database d
  where d.datname = current_database()
$$;
comment on function underseal._history() is
  'Names the history that this log''s transaction numbers belong to: cluster, timeline, database and table. Null on a standby.';

create or replace function underseal._present_snapshot() returns pg_snapshot
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  -- This transaction does not count itself among those that run; what it has written is not committed all the same.
  select case
    when mine.txn < pg_snapshot_xmax(now.snapshot) then concat(
      least(mine.txn, pg_snapshot_xmin(now.snapshot)), ':', pg_snapshot_xmax(now.snapshot), ':',
      (select string_agg(r.txn::text, ',' order by r.txn)
       from (select mine.txn union select pg_snapshot_xip(now.snapshot)) r (txn)))::pg_snapshot
    else now.snapshot end
  from (select pg_current_snapshot() as snapshot) now
  cross join (select pg_current_xact_id_if_assigned() as txn) mine
$$;
comment on function underseal._present_snapshot() is 'What is committed now: the present snapshot, in which this transaction still runs.';

create or replace function underseal._cut_snapshot(snapshot pg_snapshot, txn xid8) returns pg_snapshot
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select concat(coalesce(min(r.txn::text::numeric), c.top::text::numeric), ':', c.top, ':',
    string_agg(r.txn::text, ',' order by r.txn))::pg_snapshot
  from (select least(pg_snapshot_xmax(snapshot), txn) as top) c
  left join lateral (select x.txn from pg_snapshot_xip(snapshot) x (txn) where x.txn < c.top) r on true
  group by c.top
$$;
comment on function underseal._cut_snapshot(pg_snapshot, xid8) is 'A snapshot as if no transaction from txn on had happened yet.';

create or replace function underseal._read_cursor(
  cursor text, out history text, out past pg_snapshot, out upto pg_snapshot, out how text, out seq bigint, out member text, out chain text)
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  part text[] := regexp_match(cursor,
    '^1/([0-9a-f]{16})/(|[0-9]+:[0-9]+:[0-9,]*)/(|[0-9]+:[0-9]+:[0-9,]*)/(|key|txn)/([0-9]{0,19})/([A-Za-z0-9_:.-]*)/([^~[:cntrl:]]*)$');
begin
  past := nullif(part[2], '')::pg_snapshot;
  upto := nullif(part[3], '')::pg_snapshot;
  how := nullif(part[4], '');
  seq := nullif(part[5], '')::bigint;
  member := part[6];
  chain := part[7];
  if (upto is null) <> (how is null) or (upto is null) <> (seq is null) or (upto is null) <> (concat(member, chain) = '')
    or chain = '' and member <> ''
    or (past is null and how is distinct from 'key')
    or pg_snapshot_xmax(past) > pg_snapshot_xmax(upto) then
    return;
  end if;
  history := part[1];
exception when invalid_text_representation or numeric_value_out_of_range then
  return;
end
$$;
comment on function underseal._read_cursor(text) is 'The parts of a cursor; history is null where it is malformed.';

create or replace function underseal._cut_size() returns integer
language sql immutable parallel safe
as $$ select 4096 $$;
comment on function underseal._cut_size() is 'How many events a difference has where it may be cut. A constant; tests replace it.';

-- A reader that was away for long has many events to read, and a page must not look at them all. So a difference is cut at
-- a transaction, into one of some 4096 events. It may only be cut where no execution is cut out of order: where what
-- comes before the cut does not follow, in its own log, what comes after. Where none of four cuts can be made, at 4096
-- to 32768 events, the difference is read along the primary key, once over the whole log.
create or replace function underseal._next_difference(
  past pg_snapshot, present pg_snapshot, out upto pg_snapshot, out how text, out is_empty boolean)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  running constant xid8[] := array(select pg_snapshot_xip(past));
  base constant xid8 := pg_snapshot_xmax(past);
  size integer := underseal._cut_size();
  most constant integer := 8 * size;
  first xid8;
  cut xid8;
  late integer;
begin
  upto := present;
  how := 'key';
  is_empty := false;
  if past is null then
    return;
  end if;
  select count(*) into late
  from (
    select from underseal.event e
    where e.txn = any (running) and pg_visible_in_snapshot(e.txn, present)
    limit most) l;
  if late = most then
    return;
  end if;
  loop
    select e.txn into cut
    from underseal.event e
    where e.txn >= base and pg_visible_in_snapshot(e.txn, present)
    order by e.txn
    offset size
    limit 1;
    if cut is null then
      how := 'txn';
      is_empty := late = 0 and not exists (
        select from underseal.event e where e.txn >= base and pg_visible_in_snapshot(e.txn, present));
      return;
    end if;
    if first is null then
      select e.txn into first
      from underseal.event e
      where e.txn >= base and pg_visible_in_snapshot(e.txn, present)
      order by e.txn
      limit 1;
    end if;
    if (cut > first or late > 0) and not exists (
      with piece as materialized (
        select e.chain_id, e.member, e.seq from underseal.event e
        where e.txn >= base and e.txn < cut and pg_visible_in_snapshot(e.txn, present)
        union all
        select e.chain_id, e.member, e.seq from underseal.event e
        where e.txn = any (running) and pg_visible_in_snapshot(e.txn, present)),
      part as materialized (
        select p.chain_id, p.member, min(p.seq) as first, max(p.seq) as last from piece p
        group by p.chain_id, p.member)
      select
      from part p
      join underseal.event e on e.chain_id = p.chain_id and e.member = p.member
        and e.seq between p.first - 1 and p.last and e.txn >= cut)
    then
      upto := underseal._cut_snapshot(present, cut);
      how := 'txn';
      return;
    end if;
    size := size * 2;
    if size > most then
      return;
    end if;
  end loop;
end
$$;
comment on function underseal._next_difference(pg_snapshot, pg_snapshot) is
  'Up to where to read on from a snapshot, and how: txn, by the index on transaction numbers, or key, along the primary key.';

create or replace function underseal._read_difference(
  past pg_snapshot, upto pg_snapshot, how text, after_chain text, after_member text, after_seq bigint, max_events integer)
returns table (chain_id text, member text, seq bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  if how = 'key' then
    return query
    select e.chain_id, e.member, e.seq
    from underseal.event e
    where (e.chain_id, e.member, e.seq) > (after_chain, after_member, after_seq)
      and pg_visible_in_snapshot(e.txn, upto) and (past is null or not pg_visible_in_snapshot(e.txn, past))
    order by e.chain_id, e.member, e.seq
    limit max_events;
  else
    return query
    with piece as materialized (
      select e.chain_id, e.member, e.seq from underseal.event e
      where e.txn >= pg_snapshot_xmax(past) and e.txn < pg_snapshot_xmax(upto) and pg_visible_in_snapshot(e.txn, upto)
      union all
      select e.chain_id, e.member, e.seq from underseal.event e
      where e.txn = any (array(select pg_snapshot_xip(past))) and pg_visible_in_snapshot(e.txn, upto))
    select p.chain_id, p.member, p.seq
    from piece p
    where (p.chain_id, p.member, p.seq) > (after_chain, after_member, after_seq)
    order by p.chain_id, p.member, p.seq
    limit max_events;
  end if;
end
$$;
comment on function underseal._read_difference(pg_snapshot, pg_snapshot, text, text, text, bigint, integer) is
  'The next events, by their keys, of those that one snapshot sees and an earlier one did not.';

create or replace function underseal._follow(after text, max_events integer, capability jsonb)
returns table (
  outcome text, reason text, message text, cursor text, execution_id text, seq bigint, recorded_at timestamptz,
  type text, data json, sealed boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  most constant integer := least(greatest(coalesce(max_events, 1000), 1), 10000);
  here constant text := underseal._history();
  present pg_snapshot;
  place record;
  next record;
  head text;
  rest text;
begin
  perform underseal._require_read_committed();
  reason := case
    when here is null then 'standby'
    when exists (
      select from underseal.event e
      where e.txn >= pg_snapshot_xmax(pg_current_snapshot()) and e.txn is distinct from pg_current_xact_id_if_assigned())
      then 'not-adopted' end;
  present := underseal._present_snapshot();
  select c.* into place from underseal._read_cursor(after) c;
  if reason is null and after <> 'now' then
    reason := case
      when place.history is null then 'malformed-cursor'
      when place.history <> here or pg_snapshot_xmax(coalesce(place.upto, place.past)) > pg_snapshot_xmax(present)
        then 'foreign-cursor' end;
  end if;
  if reason is not null then
    outcome := 'refused';
    message := case reason
      when 'standby' then 'Expected the primary, found a standby. Follow the primary.'
      when 'not-adopted' then 'Expected events that were written here, found some whose transaction numbers lie ahead, as a restore leaves them. The schema owner calls underseal.adopt_log().'
      when 'malformed-cursor' then 'Expected a cursor that a row of read_all gave, or now, found another text. Go on from the last cursor that was kept.'
      else 'Expected a cursor of this log''s own history, found one of another cluster, database or timeline. Begin again without a cursor; where nothing was lost on the way, underseal.adopt_cursor makes it this log''s.' end;
    return next;
    return;
  end if;
  if after = 'now' then
    outcome := 'end';
    cursor := concat_ws('/', 1, here, present, '', '', '', '', '');
    return next;
    return;
  end if;

  loop
    if place.upto is null then
      select d.* into next from underseal._next_difference(place.past, present) d;
      if next.is_empty then
        outcome := 'end';
        cursor := concat_ws('/', 1, here, present, '', '', '', '', '');
        return next;
        return;
      end if;
      place.upto := next.upto;
      place.how := next.how;
      place.chain := '';
      place.member := '';
      place.seq := -1;
    end if;
    head := concat_ws('/', 1, here, coalesce(place.past::text, ''), place.upto, place.how);
    rest := concat_ws('/', 1, here, place.upto, '', '', '', '', '');
    return query
    with k as materialized (
      select d.chain_id, d.member, d.seq, row_number() over (order by d.chain_id, d.member, d.seq) as turn, count(*) over () as turns
      from underseal._read_difference(place.past, place.upto, place.how, place.chain, place.member, place.seq, most) d)
    select 'event', null::text, null::text,
      case when k.turn = k.turns and k.turns < most then rest else concat_ws('/', head, k.seq, k.member, k.chain_id) end,
      underseal._execution_id(k.chain_id, k.member), k.seq, e.recorded_at, case when o.opens then e.type end,
      case when o.opens then e.data end, not o.opens
    from k
    join underseal.event e on e.chain_id = k.chain_id and e.member = k.member and e.seq = k.seq
    cross join lateral (select underseal.seal_opens(e.metadata -> 'seal', capability) as opens) o
    order by k.turn;
    if found then
      return;
    end if;
    place.past := place.upto;
    place.upto := null;
  end loop;
end
$$;
comment on function underseal._follow(text, integer, jsonb) is
  'The next events of all executions. Apart from read_all, whose argument has the name of a result.';

create or replace function underseal.read_all(cursor text default null, max_events integer default 1000, capability jsonb default null)
returns table (
  outcome text, reason text, message text, cursor text, execution_id text, seq bigint, recorded_at timestamptz,
  type text, data json, sealed boolean)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select * from underseal._follow(read_all.cursor, max_events, capability) $$;
comment on function underseal.read_all(text, integer, jsonb) is
  'The next events of all executions, at most max_events (10000), each once: no gap whatever order transactions commit in, each execution''s in its own order. cursor: where to go on, the cursor of the last row that was dealt with; null from the beginning, now for what happens from now on. A call may answer with fewer rows than there are; one row end, with nothing but a cursor, says that nothing is left. capability: {"ciphers", "covers"}, what the caller opens; an event it does not open comes as a stub: sealed, without type and data. Outcomes: event rows; end; refused (malformed-cursor; foreign-cursor: of another cluster, database or timeline; not-adopted: adopt_log was not called after a restore; standby). For workers and operators. Errors: US008 (E11).';

create or replace function underseal.adopt_cursor(cursor text)
returns table (outcome text, reason text, message text, cursor text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select case when c.reason is null then 'adopted' else 'refused' end, c.reason,
    case c.reason
      when 'standby' then 'Expected the primary, found a standby. Call the primary.'
      when 'malformed-cursor' then 'Expected a cursor that a row of read_all gave, found another text.' end,
    case when c.reason is null then overlay(adopt_cursor.cursor placing h.here from 3 for 16) end
  from (select underseal._history() as here) h
  cross join lateral (
    select case when h.here is null then 'standby' when r.history is null then 'malformed-cursor' end as reason
    from underseal._read_cursor(adopt_cursor.cursor) r) c
$$;
comment on function underseal.adopt_cursor(text) is
  'The same place in this log''s history, for a cursor that read_all refuses as foreign: after a switch to a standby that had everything, or pg_upgrade. Where transactions were lost, or the log was restored from a dump, events would be missed: begin again instead. For the schema owner. Outcomes: adopted; refused (malformed-cursor, standby).';

create or replace function underseal.adopt_log()
returns table (outcome text, reason text, message text, adopted bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform underseal._require_read_committed();
  update underseal.event e
  set txn = pg_current_xact_id()
  where e.txn >= pg_snapshot_xmax(pg_current_snapshot()) and e.txn <> pg_current_xact_id();
  get diagnostics adopted = row_count;
  return query select 'adopted', null::text, format('%s events have this cluster''s numbers now.', adopted), adopted;
end
$$;
comment on function underseal.adopt_log() is
  'After a log was restored from a dump into another cluster: gives events whose transaction numbers lie ahead of this cluster''s the present one, so that read_all can tell what is new. For the schema owner. Outcome: adopted. Errors: US008.';
