-- The folded state as one value, as the tables have it; docs/log.md says what is in it.
create or replace function underseal._fold(chain_id text, member text) returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object(
    'line', e.line, 'flow', e.flow, 'flow_version', e.flow_version, 'owner', e.owner, 'status', e.status, 'head', e.head,
    'sealed', e.sealed, 'cancel_requested', e.cancel_requested, 'recoveries', e.recoveries, 'waits', e.waits,
    'started_at', (extract(epoch from e.started_at) * 1000000)::bigint,
    'changed_at', (extract(epoch from e.changed_at) * 1000000)::bigint,
    'inbox', case when e.member = coalesce(f.current_member, f.member) then jsonb_build_object(
      'cursors', (select coalesce(jsonb_object_agg(c.topic, c.inbox_seq), '{}')
        from underseal.inbox_cursor c where c.chain_id = e.chain_id and c.line = e.line),
      'seen', (select coalesce(jsonb_agg(jsonb_build_array(encode(s.message_key, 'hex'), s.inbox_seq)
          order by s.turn), '[]')
        from underseal.inbox_seen s where s.chain_id = e.chain_id and s.line = e.line)) end)
  from underseal.execution e
  left join underseal.execution f on f.chain_id = e.chain_id and f.member = e.line
  where e.chain_id = _fold.chain_id and e.member = _fold.member
$$;
comment on function underseal._fold(text, text) is
  'What an execution''s log folds to, as the tables have it: one JSON object, described in docs/log.md (E4). No payload in it. Null where there is no such execution.';
