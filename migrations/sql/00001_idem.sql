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

create table idem.records (
    id          uuid        primary key,
    created_at  timestamptz not null,
    expires_at  timestamptz not null,
    finished_at timestamptz,
    status      smallint,
    unfinished  smallint    default 1,
    state       text,
    scope       text        not null,
    key         text        not null,
    operation   text        not null,
    fingerprint bytea       not null,
    headers     jsonb,
    body        bytea,

    constraint records_a_claim_without_an_outcome_cannot_commit
        foreign key (unfinished) references idem.unfinished (claim)
        deferrable initially deferred,
    constraint records_scope_limit check (octet_length(scope) between 1 and 255),
    constraint records_key_limit check (octet_length(key) between 1 and 255),
    constraint records_operation_limit check (octet_length(operation) <= 2048),
    constraint records_fingerprint_length check (octet_length(fingerprint) = 33),
    constraint records_state check (state in ('completed', 'rejected')),
    constraint records_status check (status between 200 and 599),
    constraint records_headers_limit check (jsonb_typeof(headers) = 'object' and octet_length(headers::text) <= 262144),
    constraint records_body_limit check (octet_length(body) <= 67108864),
    constraint records_expiry check (expires_at > created_at),
    -- An outcome is there whole or not at all, and only a claim is unfinished.
    constraint records_outcome_whole check (
        num_nulls(state, status, finished_at) in (0, 3)
        and (unfinished is null) = (state is not null)
        and (state is not null or num_nonnulls(headers, body) = 0)
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
