#!/bin/sh
# Builds Postgres images from Debian packages, for machines that reach a
# Debian mirror but no image registry.
#
#   build.sh [15|17|18]...     tags idempg/postgres:<version>; default 15
#
# An image that this recipe built before is kept. Needs root (or sudo) and a
# Docker engine. The mirror is the one apt uses here, or DEBIAN_MIRROR if set.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || exec sudo DEBIAN_MIRROR="${DEBIAN_MIRROR:-}" "$0" "$@"
[ $# -gt 0 ] || set -- 15

work=
clean_up() {
    [ -n "$work" ] || return 0
    # Interrupted package tools leave mounts behind: never delete through one.
    awk -v root="$work/" 'index($2, root) == 1 { print $2 }' /proc/mounts | sort -r |
        while read -r mount; do umount -l "$mount"; done
    rm -rf --one-file-system "$work"
    work=
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# quietly runs a step and shows the end of its log only when it fails.
quietly() {
    "$@" >>"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; echo "failed: $*" >&2; exit 1; }
}

install_debootstrap() {
    command -v debootstrap >/dev/null && return
    quietly apt-get -o DPkg::Lock::Timeout=120 update
    quietly apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends debootstrap
}

# mirror prints nothing on a machine whose apt knows no Debian mirror:
# debootstrap then uses its own default.
mirror() {
    apt-get indextargets --format '$(REPO_URI)' \
        'Created-By: Packages' 'Label: Debian' 'Component: main' | head -n 1
}

build() {
    version=$1 tag=idempg/postgres:$1
    case $version in
    15) suite=bookworm ;;
    17) suite=trixie ;;
    18) suite=forky ;;
    *) echo "build.sh: no Debian release with PostgreSQL $version is known here" >&2; exit 2 ;;
    esac

    recipe=$(cat "$here/build.sh" "$here/entrypoint.sh" | sha256sum | cut -d ' ' -f 1)
    if [ "$(docker image inspect -f '{{index .Config.Labels "idempg.recipe"}}' "$tag" 2>/dev/null)" = "$recipe" ]; then
        echo "$tag is up to date"
        return
    fi

    echo "building $tag from Debian $suite: a minute or two"
    work=$(mktemp -d "${TMPDIR:-/var/tmp}/idempg-image.XXXXXX")
    root=$work/root
    install_debootstrap
    # All releases since bookworm share the script of sid; the debootstrap of
    # an older release does not know the newer names.
    quietly debootstrap --variant=minbase "$suite" "$root" "${DEBIAN_MIRROR:-$(mirror)}" sid

    # No service starts inside the chroot, and no cluster is made in the image.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    # systemd-tmpfiles, which newer packages call, wants /proc.
    quietly mount -t proc proc "$root/proc"
    mkdir -p "$root/etc/postgresql-common"
    echo 'create_main_cluster = false' >"$root/etc/postgresql-common/createcluster.conf"
    quietly chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
        apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-confold "postgresql-$version"

    server=usr/lib/postgresql/$version
    sed -i "s/^#listen_addresses = .*/listen_addresses = '*'/" \
        "$root/usr/share/postgresql/$version/postgresql.conf.sample"
    install -m 755 "$here/entrypoint.sh" "$root/usr/local/bin/docker-entrypoint.sh"
    chroot "$root" install -d -o postgres -g postgres -m 2775 /run/postgresql
    chroot "$root" install -d -o postgres -g postgres -m 700 /var/lib/postgresql/data

    # The server runs without its JIT provider, and LLVM is half of the image.
    rm -rf "$root/$server/lib/bitcode" "$root/$server/lib/llvmjit.so" "$root"/usr/lib/*/libLLVM* \
        "$root"/usr/lib/llvm-* "$root"/usr/share/doc "$root"/usr/share/man "$root"/usr/share/locale \
        "$root"/usr/share/info "$root"/usr/share/i18n "$root"/var/cache/apt "$root"/var/lib/apt/lists "$root"/var/log \
        "$root/usr/sbin/policy-rc.d"
    mkdir -p "$root/var/log"

    tar -C "$root" --numeric-owner --one-file-system -c . | docker import \
        --change "LABEL idempg.recipe=$recipe" \
        --change "ENV PATH=/$server/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
        --change 'ENV LANG=C.UTF-8' \
        --change 'ENV PGDATA=/var/lib/postgresql/data' \
        --change 'VOLUME /var/lib/postgresql/data' \
        --change 'ENTRYPOINT ["docker-entrypoint.sh"]' \
        --change 'CMD ["postgres"]' \
        --change 'EXPOSE 5432' \
        - "$tag" >/dev/null
    clean_up
    # The image that this one replaces has lost its tag.
    docker image prune --force --filter label=idempg.recipe >/dev/null
    docker run --rm "$tag" postgres --version
}

for version in "$@"; do build "$version"; done
