-- name: Effects :many
-- Every transfer of a tenant whose clients write the key of a request into its
-- reference, so that the effects of each key can be counted.
select coalesce(reference, '')::text as key, id, from_account, to_account, amount
from ledger.transfers
where tenant = @tenant
order by created_at, id;
