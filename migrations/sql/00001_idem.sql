-- +goose Up

-- The schema exists: the version table is in it. Creating it here, even with
-- "if not exists", would ask for CREATE on the whole database.

-- Always empty. A claim points here through a deferred foreign key, so a
-- transaction that holds a claim without an outcome cannot commit, whoever
-- sends the COMMIT.
create table idem.unfinished (
    claim smallint primary key,
    constraint unfinished_is_always_empty check (false)
);
comment on table idem.unfinished is
    'Always empty: the target that lets no claim commit before it has an outcome.';

-- The limits of the columns are domains and not constraints of the table: those
-- are read and parsed anew by every statement that writes a row, at a fifth of
-- the cost of a whole mutation. See docs/internals.md.
create domain idem.scope as text
    constraint records_scope_limit check (octet_length(value) between 1 and 255);
create domain idem.key as text
    constraint records_key_limit check (octet_length(value) between 1 and 255);
create domain idem.operation as text
    constraint records_operation_limit check (octet_length(value) <= 2048);
create domain idem.fingerprint as bytea
    constraint records_fingerprint_length check (octet_length(value) = 33);
create domain idem.state as text
    constraint records_state check (value in ('completed', 'rejected'));
create domain idem.status as smallint
    constraint records_status check (value between 200 and 599);
create domain idem.headers as jsonb
    constraint records_headers_limit check (jsonb_typeof(value) = 'object' and octet_length(value::text) <= 262144);
create domain idem.body as bytea
    constraint records_body_limit check (octet_length(value) <= 67108864);

create table idem.records (
    id          uuid             primary key,
    created_at  timestamptz      not null,
    expires_at  timestamptz      not null,
    finished_at timestamptz,
    status      idem.status,
    unfinished  smallint         default 1,
    state       idem.state,
    scope       idem.scope       not null,
    key         idem.key         not null,
    operation   idem.operation   not null,
    fingerprint idem.fingerprint not null,
    headers     idem.headers,
    body        idem.body,

    constraint records_a_claim_without_an_outcome_cannot_commit
        foreign key (unfinished) references idem.unfinished (claim)
        deferrable initially deferred,
    -- What is not a claim has an outcome, and a life.
    constraint records_whole check (
        expires_at > created_at
        and (unfinished is null) = (num_nonnulls(state, status, finished_at) = 3)
    )
) with (
    -- Room on each page for the update that finishes a claim, which is then HOT.
    fillfactor = 70,
    -- Every mutation leaves one dead claim and every sweep many: clean up in
    -- small steps rather than when a fifth of a large table is dead.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1
);

create index records_expires_at on idem.records (expires_at);

comment on table idem.records is
    'One row per idempotency key: the answer that a retry gets, committed together with the effect.';
comment on column idem.records.id is 'First 16 bytes of SHA-256 over the length-prefixed (scope, key).';
comment on column idem.records.fingerprint is 'Version byte, then SHA-256 of what the request asks for.';
comment on column idem.records.unfinished is '1 while the claim has no outcome, null afterwards; 1 is never visible to another transaction.';
comment on column idem.records.headers is 'Response headers, {"Name": ["value", ...]}; each byte of a value is one character.';

-- lz4 costs a fraction of pglz, but a server may be built without it.
-- +goose StatementBegin
do $$
begin
    alter table idem.records alter column body set compression lz4;
exception
    when feature_not_supported or syntax_error or invalid_parameter_value then
        raise notice 'idem: this server has no lz4; stored bodies use its default compression';
end
$$;
-- +goose StatementEnd

-- +goose Down

-- The schema stays: the version table is in it.
drop table idem.records;
drop table idem.unfinished;
drop domain idem.scope, idem.key, idem.operation, idem.fingerprint, idem.state, idem.status, idem.headers, idem.body;
