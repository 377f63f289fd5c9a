#!/usr/bin/env bash
# That scripts/layers finds what it is there to find, and says why in one line.
# SPDX-License-Identifier: MIT
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 passed=0
layers=$SOURCE_DIR/scripts/layers

mkdir -p "$work"/src/{base,optim/kernels,nn,train,report,tasks,cli}
touch "$work"/src/base/text.h "$work"/src/optim/{internal,optim}.h "$work"/src/nn/{nn,plan}.h "$work"/src/train/recipe_parts.h \
    "$work"/src/tasks/tasks.h

# says FILE INCLUDE TEXT: one line that begins with the place and holds the text. An empty TEXT: nothing.
says() {
    local said expected="src/$1:1: includes \"$2\": $3"
    echo "#include \"$2\"" >"$work/src/$1"
    said=$("$layers" "$work") && [ -n "$3" ] && said='(nothing)'
    rm "$work/src/$1"
    if { [ -z "$3" ] && [ -z "$said" ]; } || { [ -n "$3" ] && [ "$said" = "$expected" ]; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1 with $2 says '$said', expected '$expected'"
    fi
}

says nn/graph.c nn/nn.h ''
says nn/graph.c base/text.h ''
says nn/graph.c optim/optim.h ''
says nn/graph.c adamod.h ''
says nn/graph.c optim/internal.h "optim/internal.h is optim's own: nn may include optim/optim.h"
says train/loop.c nn/plan.h "nn/plan.h is nn's own: train may include nn/nn.h, nn/profile.h"
says train/loop.c tasks/tasks.h 'train does not lie above tasks: it may include base, comm, data, models, nn, optim'
says tasks/images.c train/recipe_parts.h "train/recipe_parts.h is train's own"
says base/text.c optim/optim.h 'base does not lie above optim: it may include nothing'
says report/page.c nn/nn.h 'report does not lie above nn: it may include base'
says nn/graph.c plan.h 'there is no src/plan.h; an include is a path from src, as in "nn/nn.h"'

printf '#ifndef A_H\n#define A_H\n#endif\n' | tee "$work/src/nn/one.h" >"$work/src/train/two.h"
[ "$("$layers" "$work")" = 'src/train/two.h: its guard A_H is also that of src/nn/one.h' ] && passed=$((passed + 1)) ||
    { failed=$((failed + 1)) && echo "FAILED: guards: $("$layers" "$work")"; }
mv "$work/src/train/two.h" "$work/src/train/one.h" && sed -i 's/A_H/B_H/' "$work/src/train/one.h"
[ "$("$layers" "$work")" = 'src/train/one.h: src/nn/one.h has the same name' ] && passed=$((passed + 1)) ||
    { failed=$((failed + 1)) && echo "FAILED: names: $("$layers" "$work")"; }

rm "$work"/src/{nn,train}/one.h
mkdir "$work/src/optim/rules"
echo 'if (rule == RULE_adam) return 1; /* not RULE_COUNT */' | tee "$work/src/optim/rules/adam.inc.h" >"$work/src/optim/step.c"
echo 'launch<adam_rule_f32>();' | tee "$work/src/optim/kernels/adam.cu" >"$work/src/optim/kernels/update.cu"
said=$("$layers" "$work") || true
why='asks for the rule adam: what is special about a rule is a field of its record, in src/optim/rules'
expected=$(printf '%s\n' "src/optim/step.c:1: $why" "src/optim/kernels/update.cu:1: $why")
[ "$said" = "$expected" ] && passed=$((passed + 1)) || { failed=$((failed + 1)) && echo "FAILED: rules: $said"; }
rm "$work"/src/optim/step.c "$work"/src/optim/kernels/*.cu
mkdir "$work/tests"
echo 'set(without_trainer check test_listed)' >"$work/tests/CMakeLists.txt"
echo '#include "nn/nn.h"' | tee "$work/tests/net.h" >"$work/tests/test_net.c"
echo '#include "net.h"' >"$work/tests/test_more.c"
echo '#include "base/text.h"' | tee "$work/tests/check.c" "$work/tests/test_listed.c" >"$work/tests/test_forgotten.c"
said=$("$layers" "$work") || true
expected='tests/test_forgotten.c: needs no trainer: list it in tests/CMakeLists.txt, so that it runs where there is none'
[ "$said" = "$expected" ] && passed=$((passed + 1)) || { failed=$((failed + 1)) && echo "FAILED: tests: $said"; }

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
