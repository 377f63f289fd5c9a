#!/usr/bin/env bash
# That scripts/layers finds what it is there to find, and says why in one line.
# SPDX-License-Identifier: MIT
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 passed=0
source_dir=${SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
layers=$source_dir/scripts/layers

mkdir -p "$work"/lib/{core,optim,rules,kernels/cuda} "$work"/trainer/{support,nn,train,report,tasks,cli}
touch "$work"/lib/core/file.h "$work"/lib/optim/{internal,optim}.h "$work"/trainer/support/text.h "$work"/trainer/nn/{nn,plan}.h \
    "$work"/trainer/train/recipe_parts.h "$work"/trainer/tasks/tasks.h

# says FILE INCLUDE TEXT: one line that begins with the place and holds the text. An empty TEXT: nothing.
says() {
    local said expected="$1:1: includes \"$2\": $3"
    echo "#include \"$2\"" >"$work/$1"
    said=$("$layers" "$work") && [ -n "$3" ] && said='(nothing)'
    rm "$work/$1"
    if { [ -z "$3" ] && [ -z "$said" ]; } || { [ -n "$3" ] && [ "$said" = "$expected" ]; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1 with $2 says '$said', expected '$expected'"
    fi
}

says trainer/nn/graph.c nn/nn.h ''
says trainer/nn/graph.c support/text.h ''
says trainer/nn/graph.c core/file.h ''
says trainer/nn/graph.c optim/optim.h ''
says trainer/nn/graph.c adamod.h ''
says lib/optim/step.c core/file.h ''
says trainer/nn/graph.c optim/internal.h "optim/internal.h is optim's own: nn may include optim/optim.h"
says trainer/train/loop.c nn/plan.h "nn/plan.h is nn's own: train may include nn/nn.h, nn/profile.h"
says trainer/train/loop.c tasks/tasks.h \
    'train does not lie above tasks: it may include comm, core, data, models, nn, optim, support'
says trainer/tasks/images.c train/recipe_parts.h "train/recipe_parts.h is train's own"
says trainer/support/text.c optim/optim.h 'support does not lie above optim: it may include core'
says lib/core/file.c optim/optim.h 'core does not lie above optim: it may include nothing'
says lib/optim/step.c support/text.h 'optim does not lie above support: it may include core, kernels, rules'
says trainer/report/page.c nn/nn.h 'report does not lie above nn: it may include core, support'
says trainer/nn/graph.c plan.h 'there is no plan.h in lib or trainer; an include is a path from there, as in "nn/nn.h"'

# finds WHAT LINE...: these are all it says.
finds() {
    local what=$1 said
    shift
    said=$("$layers" "$work") || true
    [ "$said" = "$(printf '%s\n' "$@")" ] && passed=$((passed + 1)) || { failed=$((failed + 1)) && echo "FAILED: $what: $said"; }
}

printf '#ifndef A_H\n#define A_H\n#endif\n' | tee "$work/lib/optim/one.h" >"$work/lib/rules/two.h"
finds guards 'lib/rules/two.h: its guard A_H is also that of lib/optim/one.h'
mv "$work/lib/rules/two.h" "$work/lib/rules/one.h" && sed -i 's/A_H/B_H/' "$work/lib/rules/one.h"
finds names 'lib/rules/one.h: lib/optim/one.h has the same name'
rm "$work/lib/rules/one.h" && mv "$work/lib/optim/one.h" "$work/trainer/nn/one.h"
finds 'a guard in the trainer' 'trainer/nn/one.h: has the guard A_H, expected #pragma once'
rm "$work/trainer/nn/one.h"

echo 'if (rule == RULE_adam) return 1; /* not RULE_COUNT */' | tee "$work/lib/rules/adam.inc.h" >"$work/lib/optim/step.c"
echo 'launch<adam_rule_f32>();' | tee "$work/lib/kernels/cuda/adam.cu" >"$work/lib/kernels/cuda/update.cu"
why='asks for the rule adam: what is special about a rule is a field of its record, in lib/rules'
finds rules "lib/kernels/cuda/update.cu:1: $why" "lib/optim/step.c:1: $why"
rm "$work"/lib/optim/step.c "$work"/lib/kernels/cuda/*.cu

mkdir -p "$work"/tests/{lib,support,trainer}
echo 'set(without_trainer support/check trainer/test_listed)' >"$work/tests/CMakeLists.txt"
echo '#include "nn/nn.h"' | tee "$work/tests/support/net.h" >"$work/tests/trainer/test_net.c"
echo '#include "net.h"' >"$work/tests/trainer/test_more.c"
echo '#include "core/file.h"' >"$work/tests/lib/test_file.c"
echo '#include "support/text.h"' | tee "$work/tests/support/check.c" "$work/tests/trainer/test_listed.c" \
    "$work/tests/trainer/test_forgotten.c" >"$work/tests/lib/test_misplaced.c"
finds tests 'tests/lib/test_misplaced.c: needs the trainer: it belongs to tests/trainer' \
    'tests/trainer/test_forgotten.c: needs no trainer: list it in tests/CMakeLists.txt, so that it runs where there is none'

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
