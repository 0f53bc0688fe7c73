-- +goose Up

-- Money that leaves through a payment provider. A hold reserves it until the
-- provider has answered: paid captures the hold, failed voids it.
create table ledger.payouts (
    tenant      text        not null,
    id          uuid        not null,
    hold_id     uuid        not null,
    destination text        not null,
    reference   text,
    charge_key  uuid        not null, -- the idempotency key of every call to the provider
    state       text        not null default 'pending',
    charge_id   text, -- the provider's
    reason      text, -- why it failed
    created_at  timestamptz not null,
    ended_at    timestamptz,

    primary key (tenant, id),
    unique (tenant, hold_id),
    foreign key (tenant, hold_id) references ledger.holds (tenant, id),
    -- The provider would take a second payout with the key for the first.
    constraint payouts_charge_key unique (charge_key),
    constraint payouts_destination check (char_length(destination) between 1 and 140),
    constraint payouts_reference check (char_length(reference) <= 140),
    constraint payouts_state check (state in ('pending', 'paid', 'failed')),
    constraint payouts_ended check ((state = 'pending') = (ended_at is null)),
    constraint payouts_paid check ((state = 'paid') = (charge_id is not null)),
    constraint payouts_failed check ((state = 'failed') = (reason is not null))
);

-- A payout ends once, and nothing else of it ever changes.
-- +goose StatementBegin
create function ledger.end_payout_once() returns trigger language plpgsql as $$
begin
    if old.state <> 'pending' or new.state = 'pending'
        or (old.tenant, old.id, old.hold_id, old.destination, old.reference, old.charge_key, old.created_at)
           is distinct from
           (new.tenant, new.id, new.hold_id, new.destination, new.reference, new.charge_key, new.created_at)
    then
        raise exception 'a payout ends once, and nothing else of it changes'
            using errcode = 'check_violation', constraint = 'payouts_end_once';
    end if;
    return new;
end
$$;
-- +goose StatementEnd

create trigger payouts_end_once before update on ledger.payouts
    for each row execute function ledger.end_payout_once();
create trigger payouts_stay before delete or truncate on ledger.payouts
    for each statement execute function ledger.refuse_change();

-- What a payout reserves, nobody else may capture, void or let expire: the
-- payout ends first.
-- +goose StatementBegin
create function ledger.keep_hold_of_payout() returns trigger language plpgsql as $$
begin
    if exists (select from ledger.payouts where tenant = old.tenant and hold_id = old.id and state = 'pending') then
        raise exception 'the hold ends with its payout' using errcode = 'check_violation', constraint = 'holds_of_payouts';
    end if;
    return new;
end
$$;
-- +goose StatementEnd

create trigger holds_of_payouts before update on ledger.holds
    for each row execute function ledger.keep_hold_of_payout();

-- +goose Down

drop trigger holds_of_payouts on ledger.holds;
drop table ledger.payouts;
drop function ledger.keep_hold_of_payout();
drop function ledger.end_payout_once();
