-- +goose Up

create schema receiver;

-- What went through each account of the ledger, as its events tell.
create table receiver.turnover (
    tenant    text   not null,
    account   text   not null,
    currency  text   not null,
    sent      bigint not null default 0,
    received  bigint not null default 0,
    transfers bigint not null default 0,

    primary key (tenant, account, currency)
) with (fillfactor = 80); -- sums change in place

-- +goose Down

drop schema receiver cascade;
