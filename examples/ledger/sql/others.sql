-- For sqlc alone: what others make, as far as the queries name it.

-- package migrations, before its first file
create schema idem;

-- River's own migrations
create schema river;
create type river.river_job_state as enum (
    'available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled'
);
create table river.river_queue (name text primary key);
create table river.river_job (
    id           bigint                primary key,
    queue        text                  not null,
    state        river.river_job_state not null,
    scheduled_at timestamptz           not null
);
