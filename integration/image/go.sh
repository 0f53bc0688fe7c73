#!/bin/sh
# Builds an image of Go from the Go of this machine, for machines that reach a
# module proxy but no image registry.
#
#   go.sh MODULE_DIR...     tags idempg/golang; its module cache holds what the
#                           modules in these folders need
#
# It needs a Docker engine. Nothing else is in it: no shell, no C compiler.
set -eu

work=$(mktemp -d "${TMPDIR:-/var/tmp}/idempg-golang.XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

mkdir -p "$work/usr/local" "$work/etc/ssl/certs" "$work/go/pkg/mod/cache" "$work/tmp"
cp -a "$(go env GOROOT)" "$work/usr/local/go"
cp -L /etc/ssl/certs/ca-certificates.crt "$work/etc/ssl/certs/"
proxy=file://$(go env GOMODCACHE)/cache/download
for module in "$@"; do
    (cd "$module" && GOWORK=off go mod download)
    (cd "$module" && GOWORK=off GOFLAGS=-modcacherw GOMODCACHE="$work/go/pkg/mod" GOPROXY=$proxy \
        go mod download)
done
tar -C "$work" --owner=0 --group=0 --numeric-owner -c . | docker import \
    --change 'ENV PATH=/usr/local/go/bin GOPATH=/go GOPROXY=off GOTOOLCHAIN=local' - idempg/golang
