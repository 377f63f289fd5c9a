#!/usr/bin/env bash
# The Debian packages: they build, lintian accepts them, and in a copy of this machine's system, which is thrown away, they
# install over an older version, pass debian/tests, and are removed without a trace. ADAMOD_TEST_BARE=1 takes a bare Debian
# 12 instead, made by debootstrap, and packages that are compiled as for users. Else what the build before the test compiled
# is taken from ccache; where there is none, nothing is optimized, which compiles sooner. Without root the packages are only
# unpacked, and debian/tests run from there.
# SPDX-License-Identifier: MIT
set -euo pipefail
source_dir=${SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
build_dir=${BUILD_DIR:-$source_dir/build}
bare=${ADAMOD_TEST_BARE:-0}
header=$source_dir/lib/include/adamod.h
cd "$source_dir"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL $*"
    exit 1
}
ok() { echo "ok $* ($SECONDS s)"; }
logged() { # logged WHAT COMMAND...
    local what=$1
    shift
    "$@" >"$work/log" 2>&1 </dev/null || { cat "$work/log" && fail "$what"; }
}

# ---- debian/ says what the header says ----

version=$(awk '/^#define ADAMOD_VERSION_(MAJOR|MINOR|PATCH) / { v = v dot $3; dot = "." } END { print v }' "$header")
packaged=$(sed -n '1s/^adamod (\(.*\)-[^-]*) .*/\1/p' debian/changelog)
[ "$packaged" = "$version" ] || fail "debian/changelog begins with version '$packaged', expected $version as in adamod.h"
sed -n 's/^ADAMOD_API .*[ *]\(adamod_[a-z0-9_]*\)(.*$/\1/p' "$header" | LC_ALL=C sort >"$work/declared"
sed -n 's/^ \(adamod_[a-z0-9_]*\)@ADAMOD_0 [0-9.]*$/\1/p' debian/libadamod0.symbols | LC_ALL=C sort >"$work/listed"
diff "$work/declared" "$work/listed" || fail "debian/libadamod0.symbols: < is in adamod.h, > in the list"
ok "debian/ is of version $version"

# ---- build ----

if ! command -v dpkg-checkbuilddeps >/dev/null; then
    echo "skipped: no dpkg-dev here"
    exit 77
fi
if ! missing=$(dpkg-checkbuilddeps 2>&1) && [ -z "${CI:-}" ]; then
    echo "skipped: ${missing#*error: }"
    exit 77
fi
export DEB_BUILD_OPTIONS='parallel=2'
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build_dir/CMakeCache.txt"; }
if [ "$bare" != 1 ]; then
    export DPKG_DEB_COMPRESSOR_LEVEL=1
    if [[ ${CMAKE_C_COMPILER_LAUNCHER-} == ccache && $(cached CMAKE_BUILD_TYPE) == Release ]]; then
        ADAMOD_CMAKE_ARGS=-DADAMOD_WERROR=$(cached ADAMOD_WERROR)
        export ADAMOD_CMAKE_ARGS DEB_CPPFLAGS_SET='' DEB_CFLAGS_SET=''
        export CMAKE_C_COMPILER_LAUNCHER=$work/launcher
        # The packages' tree is a copy of this one: the same compilation, named as the build before the test named it, in
        # the same language, which debhelper changes and ccache heeds.
        cat >"$work/launcher" <<END_LAUNCHER
#!/usr/bin/env bash
unset LC_ALL LC_CTYPE LC_MESSAGES LANG
$(declare -p LC_ALL LC_CTYPE LC_MESSAGES LANG 2>/dev/null)
copy=\${PWD%/build-deb*}
words=("\${@/"\$copy/lib"/$source_dir/lib}")
exec ccache "\${words[@]/"\$copy/trainer"/$source_dir/trainer}"
END_LAUNCHER
        chmod +x "$work/launcher"
    else
        DEB_BUILD_OPTIONS+=' noopt'
        export DEB_CFLAGS_APPEND=-g0
    fi
fi
logged scripts/deb scripts/deb --cuda off "$work/new"
ok build
if command -v lintian >/dev/null; then
    logged lintian env TMPDIR="$work" lintian --allow-root --fail-on error,warning "$work"/new/*.changes
    ok lintian
else
    echo "skipped: no lintian here"
fi

# An older version, of the same files.
names=()
mkdir "$work/old"
for package in "$work"/new/*.deb; do
    names+=("$(dpkg-deb -f "$package" Package)")
    dpkg-deb -R "$package" "$work/unpacked"
    sed -i "s/\(^Version: \|[(]= \)$version-[^ )]*/\10.0.1-1/" "$work/unpacked/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone -b "$work/unpacked" "$work/old" >"$work/log"
    rm -rf "$work/unpacked"
done
[ "${#names[@]}" -eq 4 ] || fail "packages: ${names[*]}"

# ---- in a system ----

# Runs in the system, in which the packages are in /tmp/new and /tmp/old.
cat >"$work/inside" <<'END_INSIDE'
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1 LC_ALL=C
fail() { echo "FAIL $*" && exit 1; }
apt() {
    apt-get -q -y --no-install-recommends "$@" >/tmp/log 2>&1 </dev/null || { cat /tmp/log && fail "apt-get $*"; }
}
files() {
    find /etc /opt /usr /var -xdev \( -path /var/cache -o -path /var/log -o -path /var/lib/apt -o -path /var/lib/dpkg \) -prune \
        -o -print | sort >"$1"
}
installed() { # installed VERSION: all packages are, in this version
    local name
    for name in $names; do
        [[ $(dpkg-query -W -f '${Version} ${Status}' "$name") == "$1"*' install ok installed' ]] || fail "$name is not installed"
    done
}
if [ "$bare" = 1 ]; then
    apt update
    # shellcheck disable=SC2046
    apt install $(sed -n 's/^Depends: //p' debian/tests/control | tr -d , | tr ' ' '\n' | grep -v adamod)
    files /tmp/before
    pattern=adamod # the packages that ours depend on stay
else
    files /tmp/before
    pattern=.
fi
apt install --allow-downgrades /tmp/old/*.deb
installed 0.0.1-1
apt install /tmp/new/*.deb
installed "$version-"
echo "ok installed over an older version ($SECONDS s)"
[ "$(adamod --version)" = "adamod $version" ] || fail "adamod --version"
for name in train c python; do
    if [ $name = python ] && ! python3 -c 'import numpy' 2>/dev/null; then
        echo "skipped: no numpy here"
        continue
    fi
    mkdir "/tmp/$name"
    AUTOPKGTEST_TMP=/tmp/$name "debian/tests/$name" >/tmp/log 2>&1 || { cat /tmp/log && fail "debian/tests/$name"; }
    echo "ok debian/tests/$name ($SECONDS s)"
done
# shellcheck disable=SC2086
apt remove $names
! command -v adamod || fail "adamod is still there"
# shellcheck disable=SC2086
dpkg --purge $names >/tmp/log 2>&1 || { cat /tmp/log && fail "dpkg --purge"; }
files /tmp/after
! comm -13 /tmp/before /tmp/after | grep "$pattern" || fail "left after removal: the files above"
! dpkg-query -W -f '${Package} ${Status}\n' 2>/dev/null | grep adamod || fail "dpkg still knows the packages above"
echo "ok removed without a trace ($SECONDS s)"
END_INSIDE

# Mounts the system LOWER with a layer above that takes all changes, and runs $work/inside there. Mounts and layer end with
# the processes.
cat >"$work/outside" <<'END_OUTSIDE'
set -euo pipefail
lower=$1 layer=$2/layer
mkdir "$layer"
mount -t tmpfs tmpfs "$layer"
mkdir "$layer/upper" "$layer/work" "$layer/root"
root=$layer/root
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$layer/upper,workdir=$layer/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
[ $# -gt 2 ] || exit 0
cp -r "$2/new" "$2/old" "$2/inside" "$root/tmp"
mkdir "$root/tmp/source"
cp -r debian examples "$root/tmp/source"
chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin bare="$bare" version="$version" names="$names" \
    bash -c 'cd /tmp/source && exec bash /tmp/inside'
END_OUTSIDE
in_system() { # in_system LOWER [run]: without run, whether it could
    local status=0
    bare=$bare version=$version names="${names[*]}" \
        unshare --mount --pid --fork --kill-child bash "$work/outside" "$1" "$work" "${@:2}" || status=$?
    rm -rf "$work/layer"
    return $status
}

# A bare Debian 12 from where this machine has its packages, made once.
make_bare() {
    local base=$1 mirror
    # shellcheck disable=SC2016
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 'Component: main' |
        head -n 1)
    [ -n "$mirror" ] || fail "this machine has no packages of Debian 12: ADAMOD_TEST_BARE needs them"
    rm -rf "$base.tmp"
    mkdir -p "$base.tmp"
    logged debootstrap debootstrap --variant=minbase --include=ca-certificates bookworm "$base.tmp" "$mirror"
    rm -f "$base.tmp/etc/apt/sources.list"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/trusted.gpg.d /etc/apt/keyrings /etc/resolv.conf \
        /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e "$file" ] || cp -rL --remove-destination "$file" "$base.tmp${file%/*}/"
    done
    apt-config dump | grep -E '^Acquire::(https?|Retries)' >"$base.tmp/etc/apt/apt.conf.d/99network" || true
    mv "$base.tmp" "$base"
}

lower=/
if [ "$bare" = 1 ]; then
    [ "$(id -u)" -eq 0 ] || fail "ADAMOD_TEST_BARE needs root"
    command -v debootstrap >/dev/null || fail "ADAMOD_TEST_BARE needs debootstrap"
    lower=$build_dir/bare-bookworm
    [ -d "$lower" ] || make_bare "$lower"
    ok "bare Debian 12"
fi
if [ "$(id -u)" -eq 0 ] && in_system "$lower" 2>"$work/log"; then
    in_system "$lower" run
    exit
fi
[ "$bare" != 1 ] || { cat "$work/log" && fail "ADAMOD_TEST_BARE needs overlay mounts"; }

# ---- without a system ----

echo "skipped: install, upgrade and removal, which need root and overlay mounts"
tree=$work/tree/usr
for package in "$work"/new/*.deb; do dpkg-deb -x "$package" "$work/tree"; done
lib=$(dirname "$(find "$tree" -name libadamod.a)")
export PATH=$tree/bin:$PATH LD_LIBRARY_PATH=$lib PKG_CONFIG_PATH=$lib/pkgconfig CMAKE_PREFIX_PATH=$tree \
    PYTHONPATH=$tree/lib/python3/dist-packages PYTHONDONTWRITEBYTECODE=1
[ "$(adamod --version)" = "adamod $version" ] || fail "adamod --version"
for name in train c python; do
    if [ $name = python ] && ! /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
        echo "skipped: no numpy here"
        continue
    fi
    mkdir "$work/$name"
    AUTOPKGTEST_TMP=$work/$name logged "debian/tests/$name" "debian/tests/$name"
    ok "debian/tests/$name"
done
