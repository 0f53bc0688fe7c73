#!/bin/sh
# The start of a container, with the environment and the arguments of the
# official postgres image: POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB,
# POSTGRES_INITDB_ARGS, POSTGRES_HOST_AUTH_METHOD, /docker-entrypoint-initdb.d.
set -eu

case ${1:-} in
'' | -*) set -- postgres "$@" ;;
esac
[ "$1" = postgres ] || exec "$@"
case ${2:-} in
--version | -V | --help | -'?') exec "$@" ;;
esac

if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA"
    chown postgres:postgres "$PGDATA"
    chmod 700 "$PGDATA"
    exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi

initialize() {
    user=${POSTGRES_USER:-postgres}
    database=${POSTGRES_DB:-$user}
    method=${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}
    if [ -z "${POSTGRES_PASSWORD:-}" ] && [ "$method" != trust ]; then
        echo 'set POSTGRES_PASSWORD, or POSTGRES_HOST_AUTH_METHOD=trust' >&2
        exit 1
    fi

    secret=$(mktemp)
    printf '%s\n' "${POSTGRES_PASSWORD:-unused}" >"$secret"
    # The arguments are a list of words, as in the official image.
    # shellcheck disable=SC2086
    initdb --username="$user" --pwfile="$secret" --auth-local=trust --auth-host="$method" \
        ${POSTGRES_INITDB_ARGS:-}
    rm "$secret"
    echo "host all all all $method" >>"$PGDATA/pg_hba.conf"

    # Reached through the socket alone: whoever waits for the port must not
    # meet this server, which stops again.
    pg_ctl -w -o "-c listen_addresses=''" start
    [ "$database" = postgres ] || createdb --username="$user" --maintenance-db=postgres "$database"
    for script in /docker-entrypoint-initdb.d/*; do
        case $script in
        *.sh) . "$script" ;;
        *.sql) psql -v ON_ERROR_STOP=1 --no-psqlrc --username="$user" --dbname="$database" --file="$script" ;;
        esac
    done
    pg_ctl -w -m fast stop
}

[ -s "$PGDATA/PG_VERSION" ] || initialize
exec "$@"
