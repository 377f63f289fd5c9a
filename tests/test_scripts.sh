#!/usr/bin/env bash
# The scripts that users run first, with programs in front of the real ones that play other machines: bootstrap asks for
# a package where a program would not link, whatever headers there are, and says so if that did not help; build shows
# what it does, with a terminal and without, and leaves CUDA code alone where there is no GPU.
# SPDX-License-Identifier: MIT
set -euo pipefail
source_dir=${SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL $*"
    exit 1
}
mkdir "$work/bin" "$work/tree"
cp -r "$source_dir/scripts" "$source_dir/CMakeLists.txt" "$work/tree"
cd "$work/tree"
export PATH=$work/bin:$PATH WORK=$work
program() { # program NAME: a program of that name, from standard input
    { echo '#!/usr/bin/env bash' && cat; } >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}

# ---- bootstrap ----

program sudo <<<'exec "$@"'
program apt-get <<'END'
[[ " $* " != *" install "* ]] || echo "$*" >>"$WORK/installed"
[ -z "${REPAIRS-}" ] || touch "$WORK/repaired"
END
program cc <<'END'
[ -e "$WORK/repaired" ] || [[ " $* " != *" ${LACKS:-nothing} "* ]] || exit 1
exec /usr/bin/cc "$@"
END
asks_for() { # asks_for PACKAGE OPTION... : bootstrap wants the package, and is content if that helps
    rm -f "$work/installed" "$work/repaired"
    scripts/bootstrap "${@:2}" >"$work/out" 2>&1 && fail "bootstrap is content without $1"
    grep -q " $1\( \|\$\)" "$work/installed" || { cat "$work/out" && fail "bootstrap does not ask for $1"; }
    grep -q "^bootstrap: $1 is installed, and still this fails" "$work/out" ||
        { cat "$work/out" && fail "no word about $1"; }
}
LACKS=-lyaml asks_for libyaml-dev --minimal
LACKS=-ldnnl asks_for libdnnl-dev --minimal
LACKS=-lm asks_for build-essential --minimal
LACKS=-lopenblas asks_for libopenblas-dev
rm -f "$work/installed"
LACKS=-lyaml REPAIRS=1 scripts/bootstrap --minimal 2>"$work/out" || { cat "$work/out" && fail "bootstrap, repaired"; }
grep -q ' libyaml-dev$' "$work/installed" || fail "more than what is missing is installed: $(cat "$work/installed")"
echo "ok bootstrap asks for what does not link"

program cmake <<<'echo "cmake version 3.13.4"'
asks_for cmake --minimal
echo "ok bootstrap asks for a newer cmake"

# ---- build ----

program cmake <<'END'
case $1 in
    --version) echo "cmake version 3.99.0" ;;
    --preset)
        echo "$*" >"$WORK/configured"
        mkdir -p build
        touch build/build.ninja
        ;;
    --build)
        echo '[0/2] Re-checking globbed directories...'
        echo '[1/3] Building C object src/optim/CMakeFiles/adamod_optim_objects.dir/step.c.o'
        [ -z "${BREAKS-}" ] || { echo 'step.c:1: error: broken' && exit 1; }
        echo '[3/3] Linking C executable adamod'
        ;;
esac
END
scripts/build >"$work/out" 2>"$work/err" || { cat "$work/err" && fail "build"; }
[ "$(cat "$work/out")" = "$PWD/build/adamod" ] || fail "build prints: $(cat "$work/out")"
printf 'build: %s\n' configuring 'compiling and linking, 3 steps' | diff - "$work/err" || fail "build without a terminal"
grep -q -e '-DADAMOD_CUDA=AUTO' "$work/configured" || fail "build is to build CUDA code where there is an nvcc"
! BREAKS=1 scripts/build >"$work/out" 2>"$work/err" || fail "a build that breaks succeeds"
grep -q 'step.c:1: error: broken' "$work/err" || fail "a build that breaks does not show why"
echo "ok build, without a terminal"

TERM=xterm script -qec scripts/build /dev/null >"$work/out"
tr '\r' '\n' <"$work/out" | grep -q 'build: step 1 of 3, src/optim/step.c$' ||
    { cat "$work/out" && fail "no progress line"; }
[ "$(grep -c 'build:' "$work/out")" -eq 1 ] || fail "the progress line is not one line"
echo "ok build, on a terminal"

cuda_settings() { # cuda_settings GPUS: what is configured for --cuda gpu where nvidia-smi says that
    program nvidia-smi <<<"[ -n '$1' ] && echo '$1'"
    scripts/build --cuda gpu >"$work/out" 2>&1 || { cat "$work/out" && fail "build --cuda gpu"; }
    sed 's/--preset release //' "$work/configured"
}
[ "$(cuda_settings '')" = '-UADAMOD_CUDA_ARCHITECTURES -DADAMOD_CUDA=OFF' ] || fail "CUDA code without a GPU"
[ "$(cuda_settings 9.0)" = '-DADAMOD_CUDA=AUTO -DADAMOD_CUDA_ARCHITECTURES=90-real' ] || fail "CUDA code for a GPU"
[ "$(cuda_settings 12.0)" = '-UADAMOD_CUDA_ARCHITECTURES -DADAMOD_CUDA=AUTO' ] || fail "CUDA code for another GPU"
grep -q '^scripts/build --cuda gpu' scripts/demo || fail "the demo builds CUDA code without a GPU"
echo "ok build --cuda gpu"
