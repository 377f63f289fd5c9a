#!/usr/bin/env bash
# scripts/release: two runs give the same bytes; sums hold; the tarball builds without git, in another folder, to the same bits
# as this build; the bill of materials is complete; a version, changes, templates and other scripts are treated as its help
# says; after a mistake or a failure there is one line and nothing is left.
# SPDX-License-Identifier: MIT
set -euo pipefail
source_dir=${SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
build_dir=${BUILD_DIR:-$source_dir/build}
git -C "$source_dir" rev-parse HEAD >/dev/null 2>&1 && [ -e "$source_dir/.git" ] || exit 77 # an unpacked release
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build_dir/CMakeCache.txt"; }
[ -z "$(cached ADAMOD_SANITIZE)" ] || exit 77

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL $*"
    exit 1
}
ok() { echo "ok $*"; }
export TMPDIR=$work/tmp GIT_CONFIG_GLOBAL=/dev/null SOURCE_DATE_EPOCH=1000000000
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c
ccache=${CMAKE_C_COMPILER_LAUNCHER-}
unset CMAKE_C_COMPILER_LAUNCHER CMAKE_GENERATOR
mkdir "$TMPDIR"
cd "$work"
header=$source_dir/lib/include/adamod.h
version=$(awk '/^#define ADAMOD_VERSION_(MAJOR|MINOR|PATCH) / { v = v dot $3; dot = "." } END { print v }' "$header")

# ---- twice the same ----

release() { "$source_dir/scripts/release" --dirty --build "$build_dir" --only source,amalgamation,sbom,packaging "$@"; }
release --out first >out 2>err || { cat err && fail "a release"; }
[ "$(cat out)" = "$work/first/SHA256SUMS" ] || fail "its last word is $(cat out)"
(umask 077 && TZ=Asia/Tokyo LC_ALL=C release --out second >out 2>err) || { cat err && fail "another release"; }
diff -r first second || fail "two runs differ"
(cd first && sha256sum --quiet --strict -c SHA256SUMS) || fail "SHA256SUMS does not hold"
[ "$(wc -l <first/SHA256SUMS)" -eq "$(find first -type f ! -name SHA256SUMS | wc -l)" ] || fail "SHA256SUMS lacks a file"
[ -z "$(ls -A "$TMPDIR")" ] || fail "it leaves $(ls -A "$TMPDIR")"
! tar --numeric-owner -tvzf "first/adamod-$version.tar.gz" --utc --full-time |
    grep -vE "^-rw(-r--r--|xr-xr-x) 0/0 +[0-9]+ 2001-09-09 01:46:40 adamod-$version/" ||
    fail "the tarball's owners, modes, times or names"
tar -tzf "first/adamod-$version.tar.gz" | LC_ALL=C sort -c || fail "the tarball is not sorted"
python3 - "first/adamod-$version-amalgamation" "$header" <<'END' || fail "the amalgamation"
import os, sys, zipfile
base = os.path.basename(sys.argv[1])
with zipfile.ZipFile(sys.argv[1] + ".zip") as archive:
    assert archive.namelist() == [f"{base}/{name}" for name in ("adamod.c", "adamod.h", "LICENSE", "README")], archive.namelist()
    assert archive.read(f"{base}/adamod.h") == open(sys.argv[2], "rb").read()
END
ok "the same bytes"

# ---- the bill of materials ----

program=
if [ -x "$build_dir/adamod" ]; then program=1; fi
python3 - "first/adamod-$version.spdx.json" "$version" "$program" <<'END' || fail "the bill of materials"
import json, re, sys
with open(sys.argv[1]) as file:
    document = json.load(file)
assert document["spdxVersion"] == "SPDX-2.3" and document["dataLicense"] == "CC0-1.0", document
assert document["SPDXID"] == "SPDXRef-DOCUMENT" and document["name"] and re.match("https://", document["documentNamespace"])
assert document["creationInfo"]["created"] == "2001-09-09T01:46:40Z" and document["creationInfo"]["creators"]
ids = [package["SPDXID"] for package in document["packages"]]
assert len(ids) == len(set(ids)) and all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one) for one in ids), ids
for package in document["packages"]:
    assert package["name"] and package["downloadLocation"] and package["filesAnalyzed"] is False, package
versions = {package["name"]: package.get("versionInfo") for package in document["packages"]}
for name in ("libadamod", "libadamod_cuda", "libadamod_nn_cuda", "adamod"):
    assert versions[name] == sys.argv[2], name
links = set()
for r in document["relationships"]:
    assert {r["spdxElementId"], r["relatedSpdxElement"]} <= set(ids) | {"SPDXRef-DOCUMENT"}, r
    links.add((r["spdxElementId"][8:], r["relationshipType"], r["relatedSpdxElement"][8:]))
assert {one for one, kind, _ in links if kind == "DYNAMIC_LINK"} >= {"libadamod"}, links
expected = {("DOCUMENT", "DESCRIBES", "libadamod"), ("libadamod-cuda", "OPTIONAL_DEPENDENCY_OF", "libadamod"),
            ("libadamod-nn-cuda", "OPTIONAL_DEPENDENCY_OF", "adamod"), ("gnuplot", "OPTIONAL_DEPENDENCY_OF", "adamod"),
            ("libcudnn.so.9", "OPTIONAL_DEPENDENCY_OF", "libadamod-nn-cuda")}
for name in ("libmpi.so.40", "libnccl.so.2", "libcurl.so.4", "libarchive.so.13"):
    expected.add((name, "OPTIONAL_DEPENDENCY_OF", "adamod"))
if sys.argv[3]:
    expected.add(("adamod", "STATIC_LINK", "libadamod"))
assert expected <= links, expected - links
END
ok "the bill of materials"

# ---- the tarball, without git ----

mkdir other bin
tar -xzf "first/adamod-$version.tar.gz" -C other
tree=$work/other/adamod-$version
printf '#!/bin/sh\ntouch "%s"\nexit 1\n' "$work/asked" >bin/git && chmod +x bin/git
compiler=$(cached CMAKE_C_COMPILER)
# No path and no time is in the sources, so compiling shows whether flags bring any. The kernels, whose compilation takes most
# of the time and whose flags are those of the others, may come from ccache.
! grep -rnE '__(FILE|BASE_FILE|DATE|TIME|TIMESTAMP)__|__builtin_FILE|[^_a-z]assert *\(' "$tree/lib" --include='*.[ch]' ||
    fail "a source with a path or a time"
diff -r "$source_dir/lib" "$tree/lib" || fail "the tarball's sources: < here, > there"
launcher=()
if [ "$ccache" = ccache ]; then
    cat >bin/kernels <<END_LAUNCHER
#!/usr/bin/env bash
[[ "\$*" == */lib/kernels/cpu/*.c ]] || exec "\$@"
exec ccache "\${@/"$tree"/$source_dir}"
END_LAUNCHER
    chmod +x bin/kernels
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER="$work/bin/kernels")
fi
(
    export PATH=$work/bin:$PATH
    cmake -S "$tree" -B other/build -DCMAKE_C_COMPILER="$compiler" -DCMAKE_BUILD_TYPE="$(cached CMAKE_BUILD_TYPE)" -G "$(cached CMAKE_GENERATOR)" \
        -DCMAKE_C_FLAGS="$(cached CMAKE_C_FLAGS)" -DADAMOD_WERROR="$(cached ADAMOD_WERROR)" -DADAMOD_CUDA=OFF \
        -DADAMOD_BUILD_PROGRAM=OFF -DADAMOD_BUILD_TESTS=OFF -DADAMOD_BUILD_EXAMPLES=OFF "${launcher[@]}" &&
        cmake --build other/build --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-2}"
) >log 2>&1 || { cat log && fail "building the tarball"; }
[ ! -e asked ] || fail "the build asks git"
if [ "$(cached CMAKE_BUILD_TYPE)" = Release ]; then
    for file in libadamod.so libadamod.a; do
        cmp "$build_dir/$file" "other/build/$file" ||
            fail "$file has other bits than in $build_dir: the folder is in it, or that build is old"
        ! grep -qF -e "$work" -e "$source_dir" "other/build/$file" || fail "$file knows where it was built"
    done
fi
cat >use.c <<'END'
#include <adamod.h>
#include <stdio.h>
int main(void) {
    float p[2] = {1, 2}, g[2] = {1, 1};
    adamod_optimizer *opt;
    if (adamod_create(&opt, "adamod") || adamod_add(opt, "p", p, g, 1, (int64_t[]){2}) || adamod_step(opt)) return 1;
    adamod_free(opt);
    return printf("%s %d\n", adamod_version_string(), p[0] < 1 && p[1] < 2) < 0;
}
END
"$compiler" -I"$tree/lib/include" use.c other/build/libadamod.a -lm -pthread -ldl -o use
[ "$(./use)" = "$version 1" ] || fail "a program says $(./use)"
ok "the tarball builds, the same bits"

# ---- a tree of its own: versions, changes, templates, other scripts ----

mkdir -p tiny/lib/include tiny/scripts tiny/packaging/brew tiny/debian
cd tiny
cp "$source_dir/scripts/release" scripts/
printf '#define ADAMOD_VERSION_%s\n' 'MAJOR 0' 'MINOR 1' 'PATCH 0' >lib/include/adamod.h
printf '# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [0.0.9] - 2000-01-01\n' >CHANGELOG.md
printf 'adamod (0.1.0-1) unstable; urgency=medium\n' >debian/changelog
printf 'v @VERSION@\na @SHA256@\nb @SHA512@ c@d.e\n' >packaging/brew/adamod.rb.in
printf 'u https://adamod.invalid/releases/adamod-@VERSION@.tar.gz\n' >packaging/brew/url.in
printf '/dist/\n' >.gitignore
git init -q . && git add . && git commit -qm Begin
scripts/release --version 2.10.3 --only source,packaging,deb >../out 2>../err || { cat ../err && fail "a tree of its own"; }
! grep 'no tag' ../err || fail "it wants a tag of a version that the commit does not have"
grep -qx 'release: left out: deb: there is no scripts/deb' ../err || fail "it does not say what it leaves out: $(cat ../err)"
[ -z "$(git status --porcelain lib CHANGELOG.md debian)" ] || fail "the tree is changed"
tar -xzf dist/adamod-2.10.3.tar.gz -C "$work"
cd "$work/adamod-2.10.3"
[ "$(grep -o '[A-Z]* [0-9]*$' lib/include/adamod.h | tr '\n' ' ')" = 'MAJOR 2 MINOR 10 PATCH 3 ' ] ||
    fail "the header is $(cat lib/include/adamod.h)"
[ "$(grep '^## ' CHANGELOG.md)" = $'## [2.10.3] - 2001-09-09\n## [0.0.9] - 2000-01-01' ] ||
    fail "the changelog is $(cat CHANGELOG.md)"
grep -q '^adamod (2.10.3-1) ' debian/changelog || fail "Debian's changelog is $(cat debian/changelog)"
[ "$(cat .commit)" = "$(git -C "$work/tiny" rev-parse --short=12 HEAD)" ] || fail "the commit is $(cat .commit)"
cd "$work/tiny"
[ "$(cat dist/packaging/brew/url)" = 'u https://adamod.invalid/releases/adamod-2.10.3.tar.gz' ] || fail "the address"
grep -q '^release: packaging: the recipes name https://adamod.invalid/releases, .* ADAMOD_RELEASES=ADDRESS replaces it$' ../err ||
    fail "no word of the address: $(cat ../err)"
ADAMOD_RELEASES=https://example.org/v2/ scripts/release --version 2.10.3 --only packaging --out there >../out 2>../err ||
    { cat ../err && fail "an address"; }
[ "$(cat there/packaging/brew/url)" = 'u https://example.org/v2/adamod-2.10.3.tar.gz' ] || fail "the address: $(cat there/packaging/brew/url)"
! grep ADAMOD_RELEASES ../err || fail "it asks for an address that it has"
cmp there/packaging/brew/adamod.rb dist/packaging/brew/adamod.rb || fail "the address changes what has none"
rm -r there
sums=$(sha256sum dist/adamod-2.10.3.tar.gz | cut -d' ' -f1) longer=$(sha512sum dist/adamod-2.10.3.tar.gz | cut -d' ' -f1)
cmp dist/packaging/brew/adamod.rb <(printf 'v 2.10.3\na %s\nb %s c@d.e\n' "$sums" "$longer") ||
    fail "the template is $(cat dist/packaging/brew/adamod.rb)"
grep -q ' packaging/brew/adamod.rb$' dist/SHA256SUMS || fail "SHA256SUMS lacks what is in folders"
rm -r dist
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ -z "$CMAKE_C_COMPILER_LAUNCHER" ] || exit 1\nfor out; do :; done\ntouch "$out/a.deb" "$out/a.changes" "$out/a.buildinfo"\n' >scripts/deb && chmod +x scripts/deb
CMAKE_C_COMPILER_LAUNCHER=ccache scripts/release --dirty --only deb >../out 2>../err || { cat ../err && fail "packages"; }
[ "$(echo dist/*)" = 'dist/SHA256SUMS dist/a.deb' ] || fail "packages: $(echo dist/*)"
rm -r dist
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ "$1" != --needs ] || { echo "deb: not installed: zork" >&2; exit 1; }\n' >scripts/deb
status=0
scripts/release --dirty --only source,deb >../out 2>../err || status=$?
[ "$status $(grep -v '^release: ' ../err)" = $'1 deb: not installed: zork\nscripts/release: deb failed with status 1' ] ||
    fail "what is missing is not said first: status $status, $(cat ../err)"
[ ! -e dist ] || fail "something is missing, and dist is made"
rm scripts/deb
scripts/release --only source >../out 2>../err || { cat ../err && fail "a commit without a tag"; }
grep -qx "release: this commit has no tag yet: git tag -s v0.1.0 -m 'adamod 0.1.0'" ../err || fail "no word of the tag: $(cat ../err)"
git tag -m 'adamod 0.1.0' v0.1.0
scripts/release --only source >../out 2>../err || { cat ../err && fail "a commit with a tag"; }
! grep 'no tag' ../err || fail "it does not see the tag"
rm -r dist
ok "versions, tags and templates"

refused() { # refused STATUS TEXT ARGUMENT...: says one line with the text, and leaves nothing
    local status=0 expected=$1 text=$2
    shift 2
    "$@" >"$work/out" 2>"$work/err" || status=$?
    [ "$status" -eq "$expected" ] || fail "$*: status $status: $(cat "$work/err")"
    grep -qF -- "$text" "$work/err" || fail "$*: no '$text' in: $(cat "$work/err")"
    [ "$(grep -cv '^release: ' "$work/err")" -eq 1 ] || fail "$*: not one line: $(cat "$work/err")"
    [ ! -s "$work/out" ] || fail "$*: prints $(cat "$work/out")"
    [ ! -e dist ] || fail "$*: leaves dist with $(ls -A dist)"
    [ -z "$(ls -A "$TMPDIR")" ] || fail "$*: leaves $(ls -A "$TMPDIR")"
}
for bad in 1.0 01.0.0 1.0.0-rc1 v1.0.0 1.100.0 ''; do
    refused 2 "--version: is '$bad', expected a semantic version" scripts/release --version "$bad"
done
refused 2 "--only: there is no 'zork', expected some of source,amalgamation," scripts/release --only source,zork
refused 2 "no build directory of CMake" scripts/release --build lib
ADAMOD_RELEASES='a b' refused 1 "ADAMOD_RELEASES is 'a b', expected an address such as https://" scripts/release --only packaging
touch file
refused 1 "1 uncommitted changes, the first: ?? file; commit them, or give --dirty" scripts/release --only source
refused 1 "scripts/release: $PWD/file/below: Not a directory" scripts/release --dirty --only source --out file/below
rm file
git commit -q --allow-empty -m Next
refused 1 "the tag v0.1.0 is that of another commit, $(git rev-parse --short=12 v0.1.0^0): check it out, or raise the version" \
    scripts/release --only source
git tag -d v0.1.0 >../out
echo '@ZORK@' >packaging/bad.in
refused 1 "packaging/bad.in: @ZORK@, expected one of @VERSION@, @SHA256@" scripts/release --dirty --only source,packaging
rm packaging/bad.in
# shellcheck disable=SC2016
printf '#!/bin/sh\necho half >"$1/half.deb"\nexit 3\n' >scripts/deb && chmod +x scripts/deb
refused 1 "scripts/release: deb failed with status 3" scripts/release --dirty --only source,deb --out dist/below
# shellcheck disable=SC2016
printf '#!/bin/sh\nsleep 60 &\necho $! >"%s"\nwait\n' "$work/sleeper" >scripts/deb
interrupted() {
    scripts/release --dirty --only source,deb &
    for _ in $(seq 200); do [ -s "$work/sleeper" ] || sleep 0.1; done
    kill -TERM $!
    wait $! || return 1
}
status=0
interrupted >"$work/out" 2>"$work/err" || status=$?
if [ $status -ne 1 ] || [ ! -s "$work/sleeper" ]; then fail "an interruption: $status: $(cat "$work/err")"; fi
runs() { ps -o stat= -p "$(cat "$work/sleeper")" | grep -qv Z; } # one that ended may wait for its parent
for _ in $(seq 50); do ! runs || sleep 0.1; done
! runs || fail "after an interruption, what was started goes on"
[ ! -e dist ] || fail "an interruption leaves dist"
rm scripts/deb
head -c 300000 /dev/urandom >noise
full() (ulimit -f 200 && exec scripts/release --only source)
git add noise && git commit -qm Noise
refused 1 'File too large' full
mkdir locked
if [ "$(id -u)" -ne 0 ]; then
    chmod 555 locked
    refused 1 'locked' scripts/release --only source --out locked
elif unshare -m true 2>/dev/null; then # root may write to any folder, but for one that is mounted so
    locked() { unshare -m sh -c 'mount -t tmpfs -o ro none locked && exec scripts/release --only source --out locked'; }
    refused 1 'Read-only file system' locked
fi
[ -z "$(ls -A locked)" ] || fail "a locked folder has $(ls -A locked)"
sed -i 's/^## \[Unreleased\]/## Next/' CHANGELOG.md
refused 1 "CHANGELOG.md: expected a heading '## [Unreleased]' or '## [0.1.0] - DATE'" scripts/release --dirty --only source
ok "mistakes and failures"
