-- +goose Up

-- Statements are cut by time. The posting statement writes the same time here
-- as in the transfer.
alter table ledger.entries add column created_at timestamptz not null default statement_timestamp();
alter table ledger.entries disable trigger entries_append_only;
update ledger.entries e set created_at = t.created_at
from ledger.transfers t where t.tenant = e.tenant and t.id = e.transfer_id;
alter table ledger.entries enable trigger entries_append_only;

create index entries_by_time on ledger.entries (tenant, account_id, created_at, version);

-- +goose Down

drop index ledger.entries_by_time;
alter table ledger.entries drop column created_at;
