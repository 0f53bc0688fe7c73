-- name: Effects :many
-- Every transfer of a tenant, with what its entries change, for an audit of
-- clients that write the key of each request into the reference.
select coalesce(t.reference, '')::text as reference, t.id,
       coalesce(jsonb_object_agg(e.account_id, e.amount) filter (where e.account_id is not null), '{}')::jsonb as changes
from ledger.transfers t
left join ledger.entries e on e.tenant = t.tenant and e.transfer_id = t.id
where t.tenant = @tenant
group by t.tenant, t.id;

-- name: HoldEffects :many
-- Every hold of a tenant.
select * from ledger.holds where tenant = @tenant;
