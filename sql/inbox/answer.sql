create or replace function underseal._answer_waits(chain_id text, member text) returns integer language plpgsql as $$ begin return 0; end $$;
comment on function underseal._answer_waits(text, text) is 'tmp';
