#!/usr/bin/env bash
# An installed adamod, moved to another place, serves programs outside: through pkg-config, shared and static, through
# find_package, and from C++. It exports its public functions and nothing else, and is hardened. As a part of another
# project's tree it brings its libraries and nothing else, compiled for speed.
# SPDX-License-Identifier: MIT
set -euo pipefail
source_dir=${SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
build_dir=${BUILD_DIR:-$source_dir/build}
header=$source_dir/lib/include/adamod.h
cc=${CC:-cc} cxx=${CXX:-c++}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL $*"
    exit 1
}
ok() { echo "ok $*"; }
expect_same() { # expect_same WHAT EXPECTED FOUND
    diff "$2" "$3" >&2 || fail "$1: < expected, > found"
    ok "$1"
}

# ---- install, then move ----

cmake --install "$build_dir" --prefix "$work/first" >"$work/log" 2>&1 || { cat "$work/log" && fail "cmake --install"; }
prefix=$work/prefix
mv "$work/first" "$prefix"
lib=$(dirname "$(find "$prefix" -name libadamod.a)")
version=$(awk '/^#define ADAMOD_VERSION_(MAJOR|MINOR|PATCH) / { v = v dot $3; dot = "." } END { print v }' "$header")

# ---- what was installed ----

for file in "$prefix/include/adamod.h" "$prefix/bin/adamod" "$lib/pkgconfig/adamod.pc" "$lib/cmake/adamod/adamodConfig.cmake" \
    "$lib/cmake/adamod/adamodConfigVersion.cmake" "$lib/libadamod.so.$version"; do
    [ -f "$file" ] || fail "not installed: ${file#"$prefix/"}"
done
cmp -s "$header" "$prefix/include/adamod.h" || fail "the installed header differs"
for section in 1 3; do
    for page in "$source_dir"/docs/*."$section"; do
        [ ! -e "$page" ] || [ -e "$prefix/share/man/man$section/$(basename "$page")" ] || fail "not installed: $page"
    done
done
[ "$(readlink "$lib/libadamod.so")" = libadamod.so.0 ] || fail "libadamod.so is no link to libadamod.so.0"
[ "$(readlink "$lib/libadamod.so.0")" = "libadamod.so.$version" ] || fail "libadamod.so.0 is no link to .so.$version"
readelf -d "$lib/libadamod.so" >"$work/dynamic"
grep -q 'SONAME.*\[libadamod\.so\.0\]' "$work/dynamic" || fail "the soname is not libadamod.so.0"
! sed -n '/NEEDED/p' "$work/dynamic" | grep -vE '\[(libc|libm|libpthread|ld-linux[-a-z0-9_]*)\.so\.[0-9]+\]' ||
    fail "the library needs more than libc, libm and threads"
! grep -rIl -e "$build_dir" -e "$work" "$prefix" || fail "an installed file knows where it was built"
[[ $("$prefix/bin/adamod" --version) == *"$version"* ]] || fail "adamod --version does not say $version"
if "$prefix/bin/adamod" help reproduce >/dev/null 2>&1; then # with the trainer: it finds its recipes
    (cd "$work" && "$prefix/bin/adamod" reproduce --dry-run table5 >"$work/log" 2>&1) || { cat "$work/log" && fail "reproduce"; }
fi
ok "installed tree"

# ---- two prefixes: a program looks for the CUDA libraries under its own, even if they are broken ----

mkdir "$work/two"
cp -r "$prefix/bin" "$lib" "$work/two"
for name in libadamod_cuda.so.0 libadamod_nn_cuda.so; do
    rm -f "$work/two/${lib##*/}/$name"
    echo "no library" >"$work/two/${lib##*/}/$name"
done
"$work/two/bin/adamod" info >"$work/log"
grep -q "^CUDA .*cannot be loaded: $work/two/bin/../${lib##*/}/libadamod_cuda.so.0: " "$work/log" ||
    fail "two prefixes: $(grep '^CUDA' "$work/log")"
ok "two prefixes"

# ---- hardening ----

expect() { # expect FILE WHAT PATTERN COMMAND...: a line of what the command says of the file
    local file=$1 what=$2 pattern=$3
    shift 3
    "$@" "$file" >"$work/says" 2>"$work/log" || { cat "$work/log" && fail "${file##*/}: $*"; }
    grep -qE "$pattern" "$work/says" || fail "${file##*/}: $what"
}
expect_none() { # the same, and there is none
    ! (expect "$@") >/dev/null || fail "${1##*/}: $2"
}
hardened() { # hardened FILE
    expect "$1" "no part of it becomes read-only" GNU_RELRO readelf -lW
    expect "$1" "not all symbols are bound at once" 'BIND_NOW|FLAGS_1.* NOW' readelf -dW
    expect "$1" "it says nothing of the stack" 'GNU_STACK.* RW  ' readelf -lW
    expect "$1" "it can be loaded at one address only" 'Type: *DYN' readelf -h
    expect "$1" "no stack protector" ' U __stack_chk_fail' nm -D
    expect "$1" "no _FORTIFY_SOURCE" ' U __[a-z]*_chk(@|$)' nm -D
    expect_none "$1" "it has a run path" 'RPATH|RUNPATH' readelf -dW
}
if ! grep -q '^CMAKE_BUILD_TYPE:STRING=Debug' "$build_dir/CMakeCache.txt"; then
    hardened "$prefix/bin/adamod"
    while read -r file; do hardened "$file"; done < <(find "$lib" -type f -name "*.so*")
    if [[ $(uname -m) == x86_64 ]]; then # a file that is linked also has what the C library's own objects lack
        readelf -n "$lib/libadamod.a" | grep -c 'x86 feature: IBT, SHSTK' >"$work/found" || true
        ar t "$lib/libadamod.a" | wc -l | cmp -s - "$work/found" ||
            fail "libadamod.a: $(cat "$work/found") objects of $(ar t "$lib/libadamod.a" | wc -l) have -fcf-protection"
    fi
    ok "hardened"
fi

# ---- symbols ----

sed -n 's/^ADAMOD_API .*[ *]\(adamod_[a-z0-9_]*\)(.*$/\1/p' "$header" | sort >"$work/declared"
[ -s "$work/declared" ] || fail "no ADAMOD_API functions found in the header"
nm -D --defined-only "$lib/libadamod.so" | awk '$2 != "A" { print $NF }' | sort >"$work/exported"
sed 's/$/@@ADAMOD_0/' "$work/declared" >"$work/versioned" # the node of the soname, which cmake/adamod.map gives
expect_same "libadamod.so exports what the header declares, versioned" "$work/versioned" "$work/exported"
nm -g --defined-only "$lib/libadamod.a" | awk 'NF == 3 { print $3 }' | grep -v '^adamod_' >"$work/foreign" || true
expect_same "libadamod.a defines only adamod_ names" /dev/null "$work/foreign"

# ---- programs outside ----

cat >"$work/program.c" <<'END'
#include <adamod.h>
#include <stdio.h>

int main(void) {
    float p[3] = {1, 2, 3};
    const float g[3] = {1, -1, 0.5f};
    const int64_t shape[1] = {3};
    adamod_optimizer *opt;
    int i;
    if (adamod_version() != ADAMOD_VERSION) return fprintf(stderr, "version %d\n", adamod_version()), 1;
    if (adamod_create(&opt, "adamod") || adamod_set(opt, "lr", 0.01) || adamod_add(opt, "p", p, g, 1, shape)) {
        return fprintf(stderr, "%s\n", adamod_last_error()), 1;
    }
    for (i = 0; i < 10; i++) {
        if (adamod_step(opt)) return fprintf(stderr, "%s\n", adamod_last_error()), 1;
    }
    adamod_free(opt);
    printf("%s %d %d\n", adamod_version_string(), p[0] < 1, p[1] > 2);
    return 0;
}
END
cp "$work/program.c" "$work/program.cpp"
echo "$version 1 1" >"$work/expected"
warnings=(-Wall -Wextra -pedantic -Werror)

export PKG_CONFIG_PATH=$lib/pkgconfig
[ "$(pkg-config --modversion adamod)" = "$version" ] || fail "pkg-config --modversion"
flags() { pkg-config --cflags --libs "$@" adamod; }

# shellcheck disable=SC2046
"$cc" -std=c99 "${warnings[@]}" -o "$work/shared" "$work/program.c" $(flags)
[[ $(readelf -d "$work/shared") == *'[libadamod.so.0]'* ]] || fail "the shared program does not need libadamod.so.0"
LD_LIBRARY_PATH=$lib "$work/shared" >"$work/found"
expect_same "pkg-config, shared" "$work/expected" "$work/found"

# shellcheck disable=SC2046
"$cc" -std=c99 "${warnings[@]}" -static -o "$work/static" "$work/program.c" $(flags --static)
"$work/static" >"$work/found"
expect_same "pkg-config, static" "$work/expected" "$work/found"

# shellcheck disable=SC2046
"$cxx" -std=c++11 "${warnings[@]}" -o "$work/cpp" "$work/program.cpp" $(flags)
LD_LIBRARY_PATH=$lib "$work/cpp" >"$work/found"
expect_same "pkg-config, C++" "$work/expected" "$work/found"

mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(outside C)
find_package(adamod ${version%.*} REQUIRED)
add_executable(with_shared ../program.c)
target_link_libraries(with_shared PRIVATE adamod::adamod)
add_executable(with_static ../program.c)
target_link_libraries(with_static PRIVATE adamod::static)
END
{
    cmake -S "$work/project" -B "$work/project/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release &&
        cmake --build "$work/project/build"
} >"$work/log" 2>&1 || { cat "$work/log" && fail "find_package"; }
"$work/project/build/with_shared" >"$work/found"
expect_same "find_package, adamod::adamod" "$work/expected" "$work/found"
[[ $(readelf -d "$work/project/build/with_static") != *libadamod* ]] || fail "adamod::static is not static"
"$work/project/build/with_static" >"$work/found"
expect_same "find_package, adamod::static" "$work/expected" "$work/found"

# ---- as a part of another project ----

mkdir "$work/tree"
cat >"$work/tree/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(tree C)
set(ADAMOD_CUDA OFF)
set(ADAMOD_INSTALL ON)
add_subdirectory($source_dir adamod)
add_executable(part ../program.c)
target_link_libraries(part PRIVATE adamod::static)
END
configure() { # configure BUILD TYPE OPTION...
    local build=$1 type=$2
    shift 2
    cmake -S "$work/tree" -B "$work/tree/$build" -DCMAKE_BUILD_TYPE="$type" "$@" >"$work/log" 2>&1 ||
        { cat "$work/log" && fail "add_subdirectory"; }
}
configure untyped '' -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
grep -e '_objects.dir' "$work/tree/untyped/compile_commands.json" >"$work/commands" || fail "no library sources"
! grep -v -e ' -O3 ' "$work/commands" || fail "without a build type, the library is not compiled with -O3"
# Built as scripts/abi builds it, which compiles the soonest, so that one of the two finds it done.
configure build Debug -DCMAKE_C_FLAGS_DEBUG='-O0 -g'
cmake --build "$work/tree/build" -j 2 >"$work/log" 2>&1 || { cat "$work/log" && fail "add_subdirectory"; }
"$work/tree/build/part" >"$work/found"
expect_same "add_subdirectory, adamod::static" "$work/expected" "$work/found"
! find "$work/tree/build" -name '*.o' | grep -v -e /lib/CMakeFiles/ -e program || fail "more than the library is built"
cmake --install "$work/tree/build" --prefix "$work/tree/prefix" >"$work/log" 2>&1 || { cat "$work/log" && fail "install"; }
[ -f "$work/tree/prefix/include/adamod.h" ] || fail "a part of another project is not installed"
! find "$work/tree/prefix/share" -type f -name '*adamod*' | grep . ||
    fail "pages and completions of a program that is not installed"
ok "add_subdirectory, what is built"

# ---- over an older version: its library goes, that of another soname stays ----

libs=$(dirname "$(find "$work/tree/prefix" -name libadamod.a)")
rm "$libs/libadamod.so.0"
touch "$libs/libadamod.so.0.9.3" "$libs/libadamod.so.9.0.0"
ln -s libadamod.so.0.9.3 "$libs/libadamod.so.0"
ln -s libadamod.so.9.0.0 "$libs/libadamod.so.8"
cmake --install "$work/tree/build" --prefix "$work/tree/prefix" >"$work/log" 2>&1 || { cat "$work/log" && fail "install"; }
(cd "$libs" && echo libadamod.so*) >"$work/found"
echo "libadamod.so libadamod.so.0 libadamod.so.$version libadamod.so.8 libadamod.so.9.0.0" | xargs -n 1 | LC_ALL=C sort |
    xargs >"$work/expected"
expect_same "installed over an older version" "$work/expected" "$work/found"
rm "$libs/libadamod.so.8" "$libs/libadamod.so.9.0.0"

# ---- uninstalled: nothing is left, what others have in the same folders stays ----

touch "$work/tree/prefix/include/other.h"
remove() { cmake -DMANIFEST="$work/tree/build/install_manifest.txt" -P "$source_dir/lib/cmake/uninstall.cmake" >"$work/log" 2>&1; }
remove || { cat "$work/log" && fail "uninstall"; }
[ "$(find "$work/tree/prefix" ! -type d)" = "$work/tree/prefix/include/other.h" ] ||
    fail "after uninstall: $(find "$work/tree/prefix" ! -type d)"
! find "$work/tree/prefix" -name '*adamod*' | grep . || fail "after uninstall: folders"
remove || fail "uninstall again"
grep -q 'Removed 0 files' "$work/log" || { cat "$work/log" && fail "uninstall again"; }
rm "$work/tree/build/install_manifest.txt"
! remove || fail "uninstall of nothing"
grep -q 'install_manifest.txt: nothing was installed' "$work/log" || { cat "$work/log" && fail "uninstall of nothing"; }
cmake --build "$build_dir" --target help >"$work/log" 2>&1 || { cat "$work/log" && fail "the build's targets"; }
grep -qE '^(\.\.\. )?uninstall' "$work/log" || fail "the build has no target uninstall"
ok "uninstalled"
