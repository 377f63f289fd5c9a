#!/usr/bin/env bash
# Checks packaging/ as far as possible without the package managers: filled templates have no token left and can be
# parsed; options that a recipe sets exist; images copy files that exist and install packages that exist.
# SPDX-License-Identifier: MIT
set -euo pipefail
source_dir=${SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source_dir"
fail() {
    echo "FAIL $*"
    exit 1
}

# ---- recipes ----

sha256=$(printf '1%.0s' {1..64}) sha512=$(printf '2%.0s' {1..128})
templates=$(cd packaging && find . -name '*.in' | sort)
[ "$(wc -l <<<"$templates")" -ge 5 ] || fail "templates: found $templates"
for template in $templates; do
    result=$work/${template%.in}
    mkdir -p "$(dirname "$result")"
    sed -e 's/@VERSION@/1.2.3/g' -e "s/@SHA256@/$sha256/g" -e "s/@SHA512@/$sha512/g" "packaging/$template" >"$result"
    ! grep -n '@[A-Z0-9_]*@' "$result" || fail "$template: a token that no release fills"
    grep -q '1\.2\.3' "$result" || fail "$template: no version"
    [[ $template == */vcpkg.json.in ]] || grep -q "$sha256\|$sha512" "$result" || fail "$template: no sum"
    [[ $template == */vcpkg.json.in ]] || grep -q 'https://adamod.invalid/releases/adamod-' "$result" ||
        fail "$template: the tarball is elsewhere than in the others"
    while read -r option; do
        grep -qE "^(option|set)\($option " CMakeLists.txt lib/cmake/settings.cmake || fail "$template: there is no $option"
    done < <(grep -o 'ADAMOD_[A-Z_]*' "$result" | sort -u)
done
echo "ok templates"

python3 - "$work" <<'PROGRAM' || fail "a recipe cannot be parsed"
import ast, json, re, sys

work = sys.argv[1]
tree = ast.parse(open(f"{work}/spack/package.py").read(), f"{work}/spack/package.py")
(cls,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
assert cls.name == "Adamod", cls.name
manifest = json.load(open(f"{work}/vcpkg/vcpkg.json"))
assert (manifest["name"], manifest["version"]) == ("adamod", "1.2.3"), manifest
text = open(f"{work}/conda-forge/recipe.yaml").read()
try:
    import yaml
except ImportError:
    print("   not checked, there is no python3-yaml: recipe.yaml")
else:
    recipe = yaml.safe_load(text)
    expected = {"schema_version", "context", "package", "source", "build", "requirements", "tests", "about", "extra"}
    assert set(recipe) == expected, set(recipe)
    assert re.fullmatch("1{64}", str(recipe["source"]["sha256"])), recipe["source"]
    assert recipe["context"]["version"] == "1.2.3", recipe["context"]
PROGRAM
cat >"$work/stubs.cmake" <<'PROGRAM'
foreach(name download_distfile extract_source_archive cmake_configure cmake_install cmake_config_fixup fixup_pkgconfig
        copy_pdbs install_copyright)
    function(vcpkg_${name})
    endfunction()
endforeach()
set(CURRENT_PACKAGES_DIR ${CMAKE_CURRENT_LIST_DIR}/packages)
include(${CMAKE_CURRENT_LIST_DIR}/vcpkg/portfile.cmake)
PROGRAM
cmake -P "$work/stubs.cmake" || fail "portfile.cmake"
if command -v ruby >/dev/null; then
    ruby -c "$work/homebrew/adamod.rb" >/dev/null || fail "adamod.rb"
else
    echo "   not checked, there is no ruby: adamod.rb"
fi
echo "ok recipes"

# ---- images ----

for script in packaging/docker/build packaging/docker/runtime; do
    [ -x "$script" ] || fail "$script cannot be executed"
    bash -n "$script" || fail "$script"
    if command -v shellcheck >/dev/null; then shellcheck "$script" || fail "$script"; fi
    status=0
    "$script" --help 2>"$work/usage" >&2 || status=$?
    [[ $status -eq 2 && $(cat "$work/usage") == usage:* ]] || fail "$script --help: status $status"
done
for file in packaging/docker/Dockerfile packaging/docker/Dockerfile.cuda; do
    copied=0
    while read -r sources; do
        for path in $sources; do
            [ -e "$path" ] || fail "$file copies $path, which is not there"
            copied=$((copied + 1))
        done
    done < <(sed -n 's/^COPY \([^-].*\) [^ ]*$/\1/p' "$file")
    [ $copied -gt 10 ] || fail "$file copies $copied files and folders"
    grep -q '^USER adamod$' "$file" || fail "$file: it runs as root"
    grep -qx 'ENTRYPOINT \["adamod"\]' "$file" || fail "$file: it does not run the program"
    grep -qx 'CMD \["--help"\]' "$file" || fail "$file: no help without arguments"
    # What is copied is all that the build reads: it can be configured, and what it compiles and installs is there.
    image=$work/${file##*/}
    while read -ra words; do # COPY PATH... FOLDER
        mkdir -p "$image${words[-1]}"
        for path in "${words[@]:1:${#words[@]}-2}"; do
            if [ -d "$path" ]; then path+=/.; fi
            cp -r "$path" "$image${words[-1]}"
        done
    done < <(grep '^COPY .* /source' "$file")
    cmake -S "$image/source" -B "$image/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DADAMOD_CUDA=OFF -DADAMOD_BUILD_TESTS=OFF \
        -DADAMOD_BUILD_EXAMPLES=OFF >"$work/log" 2>&1 || { cat "$work/log" && fail "$file: what it copies cannot be configured"; }
    ninja -C "$image/build" -n >"$work/log" 2>&1 || { tail -n 3 "$work/log" && fail "$file: what it copies cannot be built"; }
    find "$image/build" -name cmake_install.cmake -exec grep -ho "\"$image/source/[^\"]*" {} + | tr -d '"' | sort -u >"$work/installed"
    [ -s "$work/installed" ] || fail "$file: nothing is installed"
    while read -r path; do
        [ -e "$path" ] || fail "$file does not copy ${path#"$image/source/"}, which is installed"
    done <"$work/installed"
done
if command -v apt-cache >/dev/null && compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then
    for script in build runtime; do
        packages=$(sed -n 's/^.*install --no-install-recommends \([-a-z0-9 ]*\).*$/\1/p' "packaging/docker/$script")
        [ -n "$packages" ] || fail "$script installs nothing"
        for package in $packages; do
            [ -n "$(apt-cache show --no-all-versions "$package" 2>/dev/null)" ] || fail "$script: there is no package $package"
        done
    done
else
    echo "   not checked, there are no lists of packages: what the images install"
fi
echo "ok images"
