-- name: Audit :one
-- One statement is one snapshot: it may run beside traffic.
with account_sums as (
    select a.currency, a.balance, a.held, a.version, count(e.version) as entries,
           coalesce(sum(e.amount), 0) as total, coalesce(max(e.version), 0) as last_version,
           (select coalesce(sum(h.amount), 0) from ledger.holds h
            where h.tenant = a.tenant and h.from_account = a.id and h.state = 'pending') as pending
    from ledger.accounts a
    left join ledger.entries e on e.tenant = a.tenant and e.account_id = a.id
    where a.tenant = @tenant
    group by a.tenant, a.id
), transfer_currencies as (
    select t.id, t.from_account is null as linked, count(e.version) as entries, coalesce(sum(e.amount), 0) as total
    from ledger.transfers t
    left join ledger.entries e on e.tenant = t.tenant and e.transfer_id = t.id
    left join ledger.accounts a on a.tenant = e.tenant and a.id = e.account_id
    where t.tenant = @tenant
    group by t.tenant, t.id, a.currency
), transfer_sums as (
    select id, bool_and(total = 0) and sum(entries) >= 2 and (bool_and(linked) or sum(entries) = 2) as balanced
    from transfer_currencies
    group by id
), currency_sums as (
    select currency, sum(total) as total from account_sums group by currency
)
select (select count(*) from account_sums) as accounts,
       (select count(*) from transfer_sums) as transfers,
       (select coalesce(jsonb_object_agg(currency, total), '{}') from currency_sums)::jsonb as sum_by_currency,
       (select count(*) from account_sums
        where balance <> total or version <> entries or version <> last_version) as balance_mismatches,
       (select count(*) from account_sums where held <> pending) as held_mismatches,
       (select count(*) from transfer_sums where not balanced) as unbalanced_transfers;
