#!/usr/bin/env bash
# The scripts that users run first, with programs in front of the real ones that play other machines: bootstrap asks for
# a package where a program would not link, whatever headers there are, and says so if that did not help; build shows
# what it does, with a terminal and without, and leaves CUDA code alone where there is no GPU; demo continues what
# was interrupted; test runs stages side by side; hooks hold back what git should not commit.
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
cat >/dev/null # or whoever writes to it is killed
[ -e "$WORK/repaired" ] || [[ " $* " != *" ${LACKS:-nothing} "* ]] # all else links, as it did when this was built
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

rm "$work/bin/sudo"
if ! command -v sudo >/dev/null; then
    program id <<<'echo 1000'
    ! LACKS=-lyaml scripts/bootstrap --minimal 2>"$work/err" || fail "bootstrap is content where it cannot install"
    expected='bootstrap: not installed: cmake libyaml-dev; installing needs root, and there is no sudo: run this as root'
    [ "$(cat "$work/err")" = "$expected" ] || fail "without root and sudo: $(cat "$work/err")"
    rm "$work/bin/id"
    echo "ok bootstrap says that it cannot install"
fi

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
        echo '[1/3] Building C object lib/CMakeFiles/adamod_objects.dir/optim/step.c.o'
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
tr '\r' '\n' <"$work/out" | grep -q 'build: step 1 of 3, lib/optim/step.c$' ||
    { cat "$work/out" && fail "no progress line"; }
[ "$(grep -c 'build:' "$work/out")" -eq 1 ] || fail "the progress line is not one line"
echo "ok build, on a terminal"

cuda_settings() { # cuda_settings GPUS: what is configured for --cuda gpu where nvidia-smi says that
    program nvidia-smi <<<"[ -n '$1' ] && echo '$1'"
    scripts/build --cuda gpu >"$work/out" 2>&1 || { cat "$work/out" && fail "build --cuda gpu"; }
    sed 's/--preset release -UADAMOD_CUDA_FAST_COMPILE //' "$work/configured"
}
[ "$(cuda_settings '')" = '-UADAMOD_CUDA_ARCHITECTURES -DADAMOD_CUDA=OFF' ] || fail "CUDA code without a GPU"
[ "$(cuda_settings 9.0)" = '-DADAMOD_CUDA=AUTO -DADAMOD_CUDA_ARCHITECTURES=90-real' ] || fail "CUDA code for a GPU"
[ "$(cuda_settings 12.0)" = '-UADAMOD_CUDA_ARCHITECTURES -DADAMOD_CUDA=AUTO' ] || fail "CUDA code for another GPU"
grep -q '^scripts/build --cuda gpu' scripts/demo || fail "the demo builds CUDA code without a GPU"
echo "ok build --cuda gpu"

# ---- demo ----

for script in bootstrap build; do
    mv scripts/$script "$work/$script" && printf '#!/bin/sh\n' >scripts/$script && chmod +x scripts/$script
done
mkdir -p build
printf '#!/bin/sh\necho "$@" >>"$WORK/compared"\n' >build/adamod
chmod +x build/adamod
scripts/demo --steps 7 && touch build/demo/kept
scripts/demo --steps 7 --resume && [ -e build/demo/kept ] || fail "demo --resume begins anew"
tail -n 1 "$work/compared" | grep -q -- '--resume --out build/demo .*train.steps=7' || fail "demo --resume: $(cat "$work/compared")"
scripts/demo && [ ! -e build/demo/kept ] || fail "a demo keeps what another one left"
! tail -n 1 "$work/compared" | grep -q -- --resume || fail "a new demo: $(cat "$work/compared")"
mkdir other
! scripts/demo --out other 2>"$work/err" || fail "a demo replaces a folder of others"
grep -qx "demo: other exists and is not a demo's: choose another --out" "$work/err" || fail "demo: $(cat "$work/err")"
for script in bootstrap build; do mv "$work/$script" scripts/$script; done
echo "ok demo"

# ---- test ----

program clang-format-14 <<'END'
for i in $(seq "${WAITS:-0}"); do # until the other stage has begun
    [ ! -e "$WORK/tidied" ] || exit 0
    sleep 0.1
done
[ -z "${WAITS-}" ]
END
program cmake <<<'touch "$WORK/tidied"; [ -z "${KILLS-}" ] || kill -9 0 # all processes of the stage'
scripts/test --no-install format >"$work/out" || { cat "$work/out" && fail "test format"; }
[ "$(tail -n 1 "$work/out")" = '2 passed, 0 failed' ] && grep -qx '== format' "$work/out" || { cat "$work/out" && fail "its checks"; }
! WAITS=600 scripts/test --no-install format tidy >"$work/out" 2>&1 || fail "test is content where clang-tidy has no files"
[ "$(tail -n 1 "$work/out")" = '2 passed, 1 failed' ] || { cat "$work/out" && fail "two stages do not run side by side"; }
grep -qx '   FAILED: clang-tidy' "$work/out" || { cat "$work/out" && fail "no word of the check that failed"; }
rm "$work/tidied"
! WAITS=1 scripts/test --no-install --serial format tidy >"$work/out" 2>&1 || fail "a check fails and test is content"
[ "$(tail -n 1 "$work/out")" = '1 passed, 2 failed' ] || { cat "$work/out" && fail "two stages run side by side"; }
! KILLS=1 scripts/test --no-install format tidy >"$work/out" 2>&1 || fail "test is content with a stage that was killed"
[ "$(tail -n 1 "$work/out")" = '2 passed, 1 failed' ] || { cat "$work/out" && fail "a stage that was killed counts otherwise"; }
rm "$work/bin/clang-format-14"
echo "ok test runs two stages side by side"

# ---- examples/slurm.sh ----

program srun <<<'echo "$*" >>"$WORK/ran"; exit "${SRUN_STATUS-0}"'
program scontrol <<<'echo "$*" >>"$WORK/asked_of_slurm"'
slurm() { (cd "$work" && : >ran && : >asked_of_slurm && SLURM_JOB_ID=7 bash "$source_dir/examples/slurm.sh" "$@" 2>err); }
slurm a.yaml job || fail "slurm.sh: $(cat "$work/err")"
[ "$(cat "$work/ran")" = '--mpi=pmix --kill-on-bad-exit=1 adamod train a.yaml --out job --device cuda' ] || fail "it runs $(cat "$work/ran")"
[ ! -s "$work/asked_of_slurm" ] || fail "a job that is done is queued again"
mkdir "$work/job" && touch "$work/job/recipe.yaml"
status=0
SRUN_STATUS=143 ADAMOD_SLURM_MPI=pmi2 slurm a.yaml job || status=$?
[ $status -eq 143 ] || fail "its status is $status"
[ "$(cat "$work/ran")" = '--mpi=pmi2 --kill-on-bad-exit=1 adamod train --resume --out job --device cuda' ] || fail "it runs $(cat "$work/ran")"
[ "$(cat "$work/asked_of_slurm")" = 'requeue 7' ] || fail "a job that was interrupted asks $(cat "$work/asked_of_slurm")"
SRUN_STATUS=1 slurm a.yaml job && fail "a failure is a success" || [ ! -s "$work/asked_of_slurm" ] || fail "a failed job is queued again"
! slurm a.yaml || fail "it takes no directory"
echo "ok slurm.sh"

# ---- hooks ----

if command -v git >/dev/null && command -v clang-format-14 >/dev/null; then
    mkdir -p "$work/clone/scripts" "$work/clone/lib/core" && cd "$work/clone"
    cp "$source_dir"/scripts/{hooks,layers} scripts
    cp "$source_dir/.clang-format" .
    export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
    git init -q .
    commit() { git commit -q --allow-empty -m "$1" >"$work/out" 2>&1; }
    refuses() { ! commit "$1" || fail "a commit with $2"; grep -q "$2" "$work/out" || { cat "$work/out" && fail "no word of $2"; }; }
    git add . && scripts/hooks install >/dev/null && commit "Begin" || { cat "$work/out" && fail "hooks refuse a good commit"; }
    printf 'int  a;\n' >lib/core/a.c && git add . && echo 'int a;' >lib/core/a.c
    refuses "Add a" 'lib/core/a.c: to repair'
    git add . && echo 'int  a;' >lib/core/a.c && commit "Add a" || { cat "$work/out" && fail "what is not staged counts"; }
    printf '#include "optim/b.h"\n' >lib/core/a.c && mkdir lib/optim && touch lib/optim/b.h && git add .
    refuses "Add b" 'core does not lie above optim'
    git reset -q --hard
    subject=$(printf 'ü%.0s' {1..72})
    refuses "${subject}x" 'the subject has 73 characters'
    commit "$subject" || { cat "$work/out" && fail "a subject of 72 characters is refused"; }
    scripts/hooks install >/dev/null && scripts/hooks remove >/dev/null && commit "${subject}x" || fail "hooks stay"
    echo 'exit 0' >.git/hooks/pre-commit
    ! scripts/hooks install >"$work/out" 2>&1 || fail "another's hook is replaced"
    scripts/hooks remove && [ "$(cat .git/hooks/pre-commit)" = 'exit 0' ] && [ ! -e .git/hooks/commit-msg ] || fail "another's hook is gone"
    echo "ok hooks"
fi
