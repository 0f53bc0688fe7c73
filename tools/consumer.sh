#!/usr/bin/env bash
# Builds a module that imports package idem alone, and fails when that brings
# along what belongs to other packages of this repository.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOWORK=off

cat >go.mod <<EOF
module consumer
go $(sed -n 's/^go //p' "$root/go.mod")
require github.com/idempg/idempg v0.0.0
replace github.com/idempg/idempg => $root
EOF
cat >main.go <<'EOF'
package main

import _ "github.com/idempg/idempg/idem"

func main() {}
EOF
cp "$root/go.sum" .
go build -mod=mod -o consumer .

# absent fails when a line of a file matches a pattern. An empty list would
# prove nothing, so the file must also hold what surely belongs there.
absent() {
    if ! grep -q 'github.com/jackc/pgx/v5' "$1"; then
        echo "consumer-check: the list of $3 is wrong: pgx is not in it" >&2
        exit 1
    fi
    if grep -E "$2" "$1" >&2; then
        echo "consumer-check: importing idem must not bring these $3" >&2
        exit 1
    fi
    echo "consumer of idem: $(wc -l <"$1") $3, none that matches $2"
}

containers='testcontainers|docker|moby|containerd|opencontainers'
go list -mod=mod -m -f '{{.Path}}' all >modules
absent modules "$containers" modules
go list -mod=mod -deps . >packages
absent packages "$containers|gofiber|fasthttp|pressly/goose|maypok86/otter" packages
