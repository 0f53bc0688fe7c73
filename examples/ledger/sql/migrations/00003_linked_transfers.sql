-- +goose Up

-- A transfer is between two accounts, or it is linked: any number of entries
-- that sum to zero in each currency. Either may reverse another one, once.
alter table ledger.transfers
    alter column from_account drop not null,
    alter column to_account drop not null,
    alter column amount drop not null,
    alter column currency drop not null,
    add column reverses uuid,
    add constraint transfers_pair_or_linked check (num_nulls(from_account, to_account, amount, currency) in (0, 4)),
    add foreign key (tenant, reverses) references ledger.transfers (tenant, id);

create unique index transfers_reversed_once on ledger.transfers (tenant, reverses) where reverses is not null;

-- +goose StatementBegin
create or replace function ledger.check_transfer() returns trigger language plpgsql as $$
declare
    checked_id uuid;
    checked    ledger.transfers;
    sound      boolean;
begin
    if tg_table_name = 'transfers' then checked_id := new.id; else checked_id := new.transfer_id; end if;
    select * into checked from ledger.transfers where tenant = new.tenant and id = checked_id;
    if checked.from_account is not null then
        select count(*) = 2
               and count(*) filter (where account_id = checked.from_account and amount = -checked.amount) = 1
               and count(*) filter (where account_id = checked.to_account and amount = checked.amount) = 1
        into sound from ledger.entries where tenant = new.tenant and transfer_id = checked_id;
    else
        select count(*) > 0 and bool_and(total = 0) into sound from (
            select sum(e.amount) as total
            from ledger.entries e
            join ledger.accounts a on a.tenant = e.tenant and a.id = e.account_id
            where e.tenant = new.tenant and e.transfer_id = checked_id
            group by a.currency
        ) as by_currency;
    end if;
    if not sound then
        raise exception 'transfer % is not balanced', checked_id
            using errcode = 'check_violation', constraint = 'transfers_balanced';
    end if;
    if checked.reverses is not null and (
        exists (select from ledger.transfers where tenant = new.tenant and id = checked.reverses and reverses is not null)
        or exists (
            select from (select * from ledger.entries where tenant = new.tenant and transfer_id = checked_id) as mine
            full join (select * from ledger.entries where tenant = new.tenant and transfer_id = checked.reverses) as theirs
                using (account_id)
            where mine.amount is distinct from -theirs.amount
        ))
    then
        raise exception 'transfer % is not the reverse of %', checked_id, checked.reverses
            using errcode = 'check_violation', constraint = 'transfers_reversal';
    end if;
    return null;
end
$$;
-- +goose StatementEnd

-- +goose Down

-- It fails where there are linked transfers, for which the older schema has no
-- words.
alter table ledger.transfers
    drop column reverses,
    drop constraint transfers_pair_or_linked,
    alter column from_account set not null,
    alter column to_account set not null,
    alter column amount set not null,
    alter column currency set not null;

-- +goose StatementBegin
create or replace function ledger.check_transfer() returns trigger language plpgsql as $$
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
