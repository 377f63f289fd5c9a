#!/usr/bin/env bash
# That docs/adding-a-rule.md is true: the file it shows and one line in the list are all a rule needs in C.
# SPDX-License-Identifier: MIT
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source_dir=${SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
lib=$source_dir/lib rules=$work/rules
mkdir -p "$rules"

# The first block of C is the file; the second, the line.
block() { awk -v wanted="$1" '/^```c$/ { n++; next } /^```$/ { n += n == wanted } n == wanted' "$source_dir/docs/adding-a-rule.md"; }
block 1 >"$rules/adamax.inc.h"
grep -v '/adamax.inc.h"$' "$lib/rules/list.inc.h" >"$rules/list.inc.h"
block 2 >>"$rules/list.inc.h"
grep -q '^RULE(adamax)$' "$rules/adamax.inc.h"
grep -q '^#include "rules/adamax.inc.h"$' "$rules/list.inc.h"

# What the page shows is what was added.
cmp "$rules/adamax.inc.h" "$lib/rules/adamax.inc.h"

# Its own folder first, so that the list there is the one that is found.
for file in optim/rules.c kernels/cpu/plain.c; do
    cc -std=gnu11 -fsyntax-only -Wall -Wextra -Werror -I"$work" -I"$lib" -I"$lib/include" "$lib/$file"
done
cc -std=gnu11 -E -I"$work" -I"$lib" -I"$lib/include" "$lib/optim/rules.c" >"$work/rules.i"
grep -q '&adamod__rule_adamax,' "$work/rules.i"
echo "ok the rule of docs/adding-a-rule.md compiles"
