-- +goose Up

create schema ledger;

-- Amounts are integers in the minor unit of the currency (cents). No number
-- leaves ±2^53, so every one is exact in JSON and no sum here overflows.
create table ledger.accounts (
    tenant      text        not null,
    id          text        not null,
    currency    text        not null,
    balance     bigint      not null default 0,
    min_balance bigint, -- null: unbounded
    version     bigint      not null default 0, -- number of entries
    created_at  timestamptz not null default statement_timestamp(),

    primary key (tenant, id),
    constraint accounts_currency_of_id unique (tenant, id, currency), -- for the foreign keys of transfers
    constraint accounts_tenant check (octet_length(tenant) between 1 and 64),
    constraint accounts_id check (id ~ '^[A-Za-z0-9_.-]{1,64}$' and id not in ('.', '..')),
    constraint accounts_currency check (currency ~ '^[A-Z]{3}$'),
    constraint accounts_balance_range check (balance between -9007199254740992 and 9007199254740992),
    constraint accounts_min_balance_range check (min_balance between -9007199254740992 and 0),
    constraint accounts_funds check (balance >= min_balance),
    constraint accounts_version check (version >= 0)
) with (fillfactor = 80); -- balances change in place

create table ledger.transfers (
    tenant       text        not null,
    id           uuid        not null,
    from_account text        not null,
    to_account   text        not null,
    amount       bigint      not null,
    currency     text        not null,
    reference    text,
    metadata     json, -- not jsonb: it is answered as it was sent
    created_at   timestamptz not null,

    primary key (tenant, id),
    -- Both accounts belong to the tenant and hold the currency.
    foreign key (tenant, from_account, currency) references ledger.accounts (tenant, id, currency),
    foreign key (tenant, to_account, currency) references ledger.accounts (tenant, id, currency),
    constraint transfers_accounts check (from_account <> to_account),
    constraint transfers_amount check (amount between 1 and 9007199254740992),
    constraint transfers_reference check (char_length(reference) <= 140),
    constraint transfers_metadata check (json_typeof(metadata) = 'object' and octet_length(metadata::text) <= 4096)
);

-- One line of one account's statement: what changed, and the balance after it.
create table ledger.entries (
    tenant      text   not null,
    account_id  text   not null,
    version     bigint not null,
    transfer_id uuid   not null,
    amount      bigint not null,
    balance     bigint not null,

    primary key (tenant, account_id, version),
    unique (tenant, transfer_id, account_id),
    foreign key (tenant, account_id) references ledger.accounts (tenant, id),
    foreign key (tenant, transfer_id) references ledger.transfers (tenant, id),
    constraint entries_version check (version >= 1),
    constraint entries_amount check (amount <> 0)
);

-- Double entry: a transfer has two entries, minus the amount for the payer and
-- plus the amount for the payee, which sum to zero. Deferred to COMMIT, where
-- all of them are there.
-- +goose StatementBegin
create function ledger.check_transfer() returns trigger language plpgsql as $$
declare
    checked_id uuid;
begin
    if tg_table_name = 'transfers' then checked_id := new.id; else checked_id := new.transfer_id; end if;
    if (select count(*) <> 2 or sum(e.amount) <> 0
            or count(*) filter (where e.account_id = t.from_account and e.amount = -t.amount) <> 1
            or count(*) filter (where e.account_id = t.to_account and e.amount = t.amount) <> 1
        from ledger.transfers t
        left join ledger.entries e on e.tenant = t.tenant and e.transfer_id = t.id
        where t.tenant = new.tenant and t.id = checked_id
        group by t.tenant, t.id)
    then
        raise exception 'transfer % is not balanced', checked_id
            using errcode = 'check_violation', constraint = 'transfers_balanced';
    end if;
    return null;
end
$$;
-- +goose StatementEnd

create constraint trigger transfers_balanced after insert on ledger.transfers
    deferrable initially deferred for each row execute function ledger.check_transfer();
create constraint trigger entries_balanced after insert on ledger.entries
    deferrable initially deferred for each row execute function ledger.check_transfer();

-- Refuses what a query has found to break a rule, under the name of a constraint.
-- Those that are none of a table: transfers_accounts_found, transfers_currency.
-- +goose StatementBegin
create function ledger.refuse(rule text) returns void language plpgsql strict as $$
begin
    raise exception 'refused by %', rule using errcode = 'check_violation', constraint = rule;
end
$$;
-- +goose StatementEnd

-- What was posted stays: a mistake is corrected by another transfer.
-- +goose StatementBegin
create function ledger.refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% are append-only', tg_table_name using errcode = 'restrict_violation';
end
$$;
-- +goose StatementEnd

create trigger transfers_append_only before update or delete or truncate on ledger.transfers
    for each statement execute function ledger.refuse_change();
create trigger entries_append_only before update or delete or truncate on ledger.entries
    for each statement execute function ledger.refuse_change();

-- +goose Down

drop schema ledger cascade;
