#!/usr/bin/env bash
# That docs/adding-a-rule.md is true: the files it names, eight at most, are all that a rule needs, and in C the file it shows
# and one line in the list.
# SPDX-License-Identifier: MIT
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source_dir=${SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
lib=$source_dir/lib rules=$work/rules page=$source_dir/docs/adding-a-rule.md
mkdir -p "$rules"

# The first block of C is the file; the second, the line.
block() { awk -v wanted="$1" '/^```c$/ { n++; next } /^```$/ { n += n == wanted } n == wanted' "$page"; }
block 1 >"$rules/laprop.inc.h"
grep -v '/laprop.inc.h"$' "$lib/rules/list.inc.h" >"$rules/list.inc.h"
block 2 >>"$rules/list.inc.h"
grep -q '^RULE(laprop)$' "$rules/laprop.inc.h"
grep -q '^#include "rules/laprop.inc.h"$' "$rules/list.inc.h"

# The page shows what was added.
cmp "$rules/laprop.inc.h" "$lib/rules/laprop.inc.h"
shows() { [[ $(<"$source_dir/$1") == *"$2"* ]] || { echo "FAIL docs/adding-a-rule.md shows what is not in $1" && exit 1; }; }
shows tests/support/reference.c "$(block 3)"
shows tests/support/rule_table.inc.h "$(block 4)"
shows python/libadamod/torch/rivals.py "$(sed -n '/^```python$/,/^```$/p' "$page" | grep -v '^```')"

# Its own folder first, so that the list there is the one that is found.
for file in optim/rules.c kernels/cpu/plain.c; do
    cc -std=gnu11 -fsyntax-only -Wall -Wextra -Werror -I"$work" -I"$lib" -I"$lib/include" "$lib/$file"
done
cc -std=gnu11 -E -I"$work" -I"$lib" -I"$lib/include" "$lib/optim/rules.c" >"$work/rules.i"
grep -q '&adamod__rule_laprop,' "$work/rules.i"
echo "ok the rule of docs/adding-a-rule.md compiles"

# The files of the page's first table, and those that name the rule. Left out: the page, this test, measurements, comparisons with
# other packages, recorded interfaces, and JAX, which may come later.
sed -n '/^| step |/,/^$/p' "$page" | grep -o '`[a-zA-Z_./-]*/[a-z_.-]*`\|`CHANGELOG.md`' | tr -d '`' | sort >"$work/told"
cd "$source_dir"
find . -name .git -prune -o -path './build*' -prune -o -path ./dist -prune -o -name __pycache__ -prune -o -type f -print0 |
    xargs -0 grep -liI laprop | sed 's#^\./##' |
    grep -v '^python/libadamod/jax/formulas\.py$\|^tests/python/\(names\|frameworks\)-.*\.json$\|^docs/\(adding-a-rule\|performance\|results\)\.md$\|^results/\|^tests/test_new_rule\.sh$\|^tests/python/test_\(loading\|timm\)\.py$' | sort >"$work/found"
diff "$work/told" "$work/found" || { echo "FAIL files that name the rule (>), and those that the page tells (<)" && exit 1; }
[ "$(wc -l <"$work/told")" -le 8 ] || { echo "FAIL a rule takes more than eight files" && exit 1; }
echo "ok a rule takes $(wc -l <"$work/told") files"
