-- +goose Up

-- What pending holds reserve of the balance. The trigger below keeps it.
alter table ledger.accounts
    add column held bigint not null default 0,
    drop constraint accounts_funds,
    add constraint accounts_funds check (balance - held >= min_balance),
    add constraint accounts_held check (held between 0 and 9007199254740992);

-- Two-phase transfers: a hold reserves an amount of from_account until it is
-- captured, voided, or its time is over.
create table ledger.holds (
    tenant       text        not null,
    id           uuid        not null,
    from_account text        not null,
    to_account   text        not null,
    amount       bigint      not null,
    currency     text        not null,
    state        text        not null default 'pending',
    captured     bigint, -- what was transferred; the rest was released
    transfer_id  uuid,
    created_at   timestamptz not null,
    expires_at   timestamptz not null,
    ended_at     timestamptz,

    primary key (tenant, id),
    foreign key (tenant, from_account, currency) references ledger.accounts (tenant, id, currency),
    foreign key (tenant, to_account, currency) references ledger.accounts (tenant, id, currency),
    -- The hold ends before its transfer is posted, for the transfer spends what it reserves.
    foreign key (tenant, transfer_id) references ledger.transfers (tenant, id) deferrable initially deferred,
    constraint holds_accounts check (from_account <> to_account),
    constraint holds_amount check (amount between 1 and 9007199254740992),
    constraint holds_state check (state in ('pending', 'captured', 'voided', 'expired')),
    constraint holds_ended check ((state = 'pending') = (ended_at is null)),
    constraint holds_captured check (
        (state = 'captured') = (captured is not null) and (state = 'captured') = (transfer_id is not null)
        and captured between 1 and amount),
    constraint holds_expiry check (expires_at > created_at)
);

create index holds_pending on ledger.holds (tenant, from_account, expires_at) where state = 'pending';

-- What holds of an account still count in held although their time is over.
create function ledger.held_beyond_time(tenant_of text, account text) returns bigint language sql volatile as $$
    select coalesce(sum(amount), 0)::bigint from ledger.holds
    where tenant = tenant_of and from_account = account and state = 'pending' and expires_at <= clock_timestamp()
$$;

-- Counts a hold in its account from its first moment, and no longer when it has
-- ended, which it does once. Nothing else of it ever changes.
-- +goose StatementBegin
create function ledger.keep_held() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        if new.state <> 'pending' then
            raise exception 'a hold begins pending' using errcode = 'check_violation', constraint = 'holds_pending_first';
        end if;
        update ledger.accounts set held = held + new.amount where tenant = new.tenant and id = new.from_account;
        return null;
    end if;
    if old.state <> 'pending' or new.state = 'pending'
        or (old.tenant, old.id, old.from_account, old.to_account, old.amount, old.currency, old.created_at, old.expires_at)
           is distinct from
           (new.tenant, new.id, new.from_account, new.to_account, new.amount, new.currency, new.created_at, new.expires_at)
    then
        raise exception 'a hold ends once, and nothing else of it changes'
            using errcode = 'check_violation', constraint = 'holds_end_once';
    end if;
    update ledger.accounts set held = held - old.amount where tenant = old.tenant and id = old.from_account;
    return null;
end
$$;
-- +goose StatementEnd

create trigger holds_keep_held after insert or update on ledger.holds
    for each row execute function ledger.keep_held();
create trigger holds_stay before delete or truncate on ledger.holds
    for each statement execute function ledger.refuse_change();

-- +goose Down

drop table ledger.holds;
drop function ledger.keep_held();
drop function ledger.held_beyond_time(text, text);
alter table ledger.accounts
    drop constraint accounts_funds,
    drop constraint accounts_held,
    drop column held,
    add constraint accounts_funds check (balance >= min_balance);
