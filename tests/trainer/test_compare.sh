#!/usr/bin/env bash
# adamod compare: several recipes, what there is to do before it is done, a limit of time, and two commands in one directory.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/support/shell_checks.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/shell_checks.sh"
"$ADAMOD" help train >/dev/null 2>&1 || exit 77 # built without the trainer

cat >tiny.yaml <<'END'
name: tiny
data: {task: numbers, train: 500, valid: 20, test: 20, sentences: 8}
model: {layers: 1, d: 16, ffn: 16, heads: 2}
optimizer: {rule: adamod, lr: 3e-3}
train: {steps: 6, evaluate_every: 3, checkpoint_every: 3, histogram_dense: 0, histogram_every: 0, threads: 1, progress_every: 0, backend: cpu}
decode: {beam: 1, max_length: 10}
END
sed 's/^name: tiny/name: Small One/; s/layers: 1/layers: 2/' tiny.yaml >small.yaml
compare() { "$ADAMOD" compare "$@"; }

# ---- many runs, and what there is to do ----

rates=$(seq -s, 1 207)
compare tiny.yaml --out many --vary "optimizer.lr=$rates" --seeds 4 --dry-run >said 2>err || fail "a dry run: $(cat err)"
grep -Eq '^ +828 +0 +0 +828 +not known +not known$' said || fail "828 runs are $(cat said)"
grep -q 'are free in many' said || fail "no word about the disk: $(cat said)"
[ ! -e many ] || fail "a dry run makes a directory"

# ---- several recipes ----

compare tiny.yaml small.yaml --out both --vary optimizer=adam,sgd --seeds 2 --no-report >said 2>err || fail "two recipes: $(cat err)"
for run in tiny/adam-seed-1 tiny/sgd-seed-2 small-one/adam-seed-2 small-one/sgd-seed-1; do
    grep -q finished both/$run/result.json || fail "no run both/$run"
done
grep -q '^small-one: sgd, seed 1: 6 updates' said || fail "a run is named otherwise: $(cat said)"
compare tiny.yaml small.yaml --vary optimizer=adam,sgd --dry-run >said 2>err || fail "no --out: $(cat err)"
grep -q ' are free in runs/compare$' said || fail "the default of --out is $(cat said)"
compare tiny.yaml small.yaml --set train.steps=2 >said 2>err || fail "two recipes without --out: $(cat err)"
grep -q 'report is runs/compare/report.html' said || fail "no report: $(cat said)"
refused 2 'another variant is in both/tiny/tiny too' "$ADAMOD" compare tiny.yaml tiny.yaml --out both
rm -r both/tiny/sgd-seed-2
compare tiny.yaml small.yaml --out both --vary optimizer=adam,sgd --seeds 2 --dry-run >said 2>err || fail "a dry run: $(cat err)"
grep -Eq '^tiny +4 +3 +0 +1 +[0-9]+s +[0-9.]+ [kM]B$' said || fail "what there is to do of tiny: $(cat said)"
grep -Eq '^small-one +4 +4 +0 +0 +0s +0 kB$' said || fail "what there is to do of small-one: $(cat said)"
grep -Eq '^in all +8 +7 +0 +1 +' said || fail "what there is to do in all: $(cat said)"
refused 1 'both/tiny/adam-seed-1 is a run of another recipe: train.steps is 8, but was 6' \
    "$ADAMOD" compare tiny.yaml small.yaml --out both --vary optimizer=adam,sgd --seeds 2 --resume --set train.steps=8
refused 1 'both/tiny/adam-seed-1 is a run of another recipe: ' \
    "$ADAMOD" compare tiny.yaml small.yaml --out both --vary optimizer=adam,sgd --seeds 2 --resume --set model.d=8
[ ! -e both/tiny/sgd-seed-2 ] || fail "a comparison that is refused makes a run"

# ---- a limit of time ----

status=0
compare tiny.yaml --out short --vary optimizer=adam,sgd --no-report --set train.steps=1000000 --minutes 0.03 >said 2>err || status=$?
[ $status -eq 0 ] || fail "a comparison whose time is up has status $status: $(cat err)"
grep -q '^adamod: the time is up: 0 of 2 runs are over; the same command and --resume goes on$' err || fail "its end: $(cat err)"
grep -q interrupted short/adam/result.json || fail "a run whose time is up has no result"
[ ! -e short/sgd ] || fail "a run begins after the end"
# One that took too long does not keep those that fit from their turn, which end first; then it goes on.
compare tiny.yaml --out turns --no-report --seeds 1 --variant 'quick: train.seed=1' >/dev/null 2>err || fail "one run: $(cat err)"
sed -i 's/"seconds":[^,}]*/"seconds":1000/' turns/quick/result.json
compare tiny.yaml --out turns --no-report --seeds 1 --variant 'quick: train.seed=1' --variant 'slow: train.threads=1' --resume --minutes 1 >said 2>err ||
    fail "a run that is expected to take long: $(cat err)"
grep -q finished turns/slow/result.json || fail "a run that no limit fits is never made: $(cat err)"
refused 2 "compare: --minutes is '0', expected a number above 0" "$ADAMOD" compare tiny.yaml --minutes 0

# ---- stopped, and two at once ----

"$ADAMOD" compare tiny.yaml --out shared --vary optimizer=adam,sgd --no-report --set train.steps=1000000 >said 2>first.err &
pid=$!
soon has_lines 1 shared/adam/metrics.jsonl || fail "the first does not begin"
refused 1 'shared is in use by another process' "$ADAMOD" compare tiny.yaml --out shared --vary train.seed=7,8 --no-report
[ ! -e shared/seed-7 ] || fail "a comparison in a directory in use makes a run"
kill -TERM $pid
status=0
wait $pid || status=$?
[ $status -eq 143 ] || fail "a stopped comparison has status $status"
grep -q '^adamod: interrupted: 0 of 2 runs are over; the same command and --resume goes on$' first.err || fail "its end: $(cat first.err)"
compare tiny.yaml --out shared --vary optimizer=adam,sgd --no-report --resume --jobs 2 >/dev/null 2>err || fail "it does not go on: $(cat err)"
grep -q finished shared/adam/result.json && grep -q finished shared/sgd/result.json || fail "it did not end"

# ---- a tuned key ----

tuned=(--out tuned --metric loss --split valid --started 3.2 --drop-checkpoints --seeds 2
    --variant 'Adam: optimizer=adam' --variant 'SGD: optimizer=sgd optimizer.lr=0.5,1e9' --tune optimizer.lr=1e-4,1e-2)
compare tiny.yaml "${tuned[@]}" --jobs 2 >said 2>err || fail "--tune: $(cat err)"
grep -q finished tuned/adam-lr-1e-4-seed-2/result.json || fail "no run of each value: $(ls tuned)"
grep -q diverged tuned/sgd-lr-1e9-seed-1/result.json || fail "a variant has no values of its own: $(ls tuned)"
[ ! -e tuned/adam-lr-1e-4-seed-2/checkpoints ] || fail "--drop-checkpoints keeps them"
grep -Eq '^Adam +1e-2 +[0-9.]+ \([0-9.]+ ± [0-9.]+\) +1 of 2, 2 of 4 +≥ 1e-2 +[0-9.]+$' said || fail "the table of best values: $(cat said)"
grep -Eq '^SGD +0.5 +' said || fail "a value with which a run diverged is best: $(cat said)"
grep -Eq '^validation loss: best is (Adam|SGD), (by more than|perhaps by) chance over (Adam|SGD) \(p [=<] 0\.[0-9]+\)$' said || fail "no test of the best values: $(cat said)"
grep -Eq '^,loss,valid,,(Adam|SGD),(Adam|SGD),2,2,-[0-9.e-]+,[0-9.e-]+.?$' tuned/report-tables/tests.csv || fail "the tests: $(cat tuned/report-tables/tests.csv)"
grep -Eq '^,Adam,,,sensitivity,valid,,,,[0-9.]+,' tuned/report-tables/results.csv || fail "no sensitivity: $(cat tuned/report-tables/results.csv)"
grep -q '^| SGD | 1e9 | diverged<sup>1</sup> |$' tuned/report-tables/values.md || fail "every value: $(cat tuned/report-tables/values.md)"
[ "$(grep -c ',loss,valid,' tuned/report-tables/results.csv)" -eq 4 ] || fail "the CSV: $(cat tuned/report-tables/results.csv)"
grep -q '^,Adam,1e-2,1,loss,valid,,2,0,' tuned/report-tables/results.csv || fail "the CSV: $(cat tuned/report-tables/results.csv)"
grep -q '\\toprule' tuned/report-tables/results.tex || fail "no LaTeX"
for file in report.html curves.html; do grep -q '</html>' tuned/$file || fail "no page tuned/$file"; done
if command -v gnuplot >/dev/null; then
    [ -s tuned/report-figures/tuned-1-1.svg ] || fail "no figure of values"
    grep -q 'aria-label="validation loss against lr' tuned/report.html || fail "the page has no figure"
fi
compare tiny.yaml "${tuned[@]}" --show --no-report --metric bleu --split test >said 2>err || fail "--show: $(cat err)"
grep -q 'test BLEU' said || fail "another metric: $(cat said)"
refused 2 "--metric is 'blue', expected one of loss, " "$ADAMOD" compare tiny.yaml "${tuned[@]}" --show --metric blue
refused 2 "--metric is 'blue', expected one of loss, " "$ADAMOD" compare tiny.yaml --metric blue --out blue
[ ! -e blue ] || fail 'a metric that there is not is refused after the runs'
refused 2 "--tune 'optimizer.lr': expected KEY=A,B,.." "$ADAMOD" compare tiny.yaml --tune optimizer.lr
refused 2 'more than one --tune' "$ADAMOD" compare tiny.yaml --tune optimizer.lr=1 --tune optimizer.beta1=0.9
for x in x 5%% -5% 0% ''; do refused 2 "--started is '$x', expected a number, or a distance" "$ADAMOD" compare tiny.yaml --started "$x"; done
compare tiny.yaml "${tuned[@]}" --show --no-report --started 50% >said 2>err || fail "--started 50%: $(cat err)"
grep -q 'started if it ends within 50 % of the best mean' said || fail "no word about 50 %: $(cat said)"
compare tiny.yaml --out tuned --drop-checkpoints --variant 'Adam: optimizer=adam' --tune optimizer.lr=1e-4,1e-2 --seeds 2 \
    --metric loss --split valid --show >said 2>err || fail "one variant: $(cat err)"
grep -q '^validation loss: not tested: there is one variant, and its values are not rivals' said || fail "no word why there is no test: $(cat said)"
grep -q 'validation loss: not tested by Welch’s test: there is one variant' tuned/report.html || fail 'the page does not say why there is no test'
# A message names the flag that set a key, and what was expected.
refused 2 "--vary 'optimizer.lr=': value 1 is empty, expected KEY=A,B,.." "$ADAMOD" compare tiny.yaml --vary optimizer.lr=
refused 2 "--vary 'optimizer.lr=1,,2': value 2 is empty" "$ADAMOD" compare tiny.yaml --vary optimizer.lr=1,,2
refused 2 "--vary '=3': expected KEY=A,B,.." "$ADAMOD" compare tiny.yaml --vary =3
refused 2 "--tune 'optimizer.lr=1,': value 2 is empty" "$ADAMOD" compare tiny.yaml --tune optimizer.lr=1,
refused 2 '--vary: optimizer.lr: lr is '\''x'\'', expected a number' "$ADAMOD" compare tiny.yaml --vary optimizer.lr=x
refused 2 '--vary: optimizr.lr: no such key; did you mean optimizer.lr?' "$ADAMOD" compare tiny.yaml --vary optimizr.lr=1
refused 2 '--tune: optimizer.lr: lr is '\''x'\'', expected a number' "$ADAMOD" compare tiny.yaml --tune optimizer.lr=1,x
refused 2 'A: optimizer.lr: lr is '\''x'\'', expected a number' "$ADAMOD" compare tiny.yaml --variant 'A: optimizer.lr=x'
for flag in "--vary optimizer.lr=x" "--tune optimizer.lr=x"; do
    # shellcheck disable=SC2086
    ! "$ADAMOD" compare tiny.yaml $flag 2>&1 | grep -q -- --set || fail "$flag blames --set"
done
# a table of recipes
compare tiny.yaml small.yaml --out both --vary optimizer=adam,sgd --seeds 2 --resume >said 2>err || fail "a table of recipes: $(cat err)"
grep -Eq '^variant +tiny: test exact % +small-one: test exact %$' said || fail "its heads: $(cat said)"
for file in both/report.html both/tiny/report.html both/small-one/report.html; do grep -q '</html>' $file || fail "no page $file"; done
grep -q 'href="small-one/report.html"' both/report.html || fail "no link to the page of a recipe"

# ---- what may not be read is no missing run ----

# Root may read everything, so it becomes somebody else, from a place that all can reach.
somebody() {
    if [ "$(id -u)" -ne 0 ]; then "$@"; else setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; fi
}
cp "$ADAMOD" adamod
chmod 755 . adamod
if somebody test -r tiny.yaml 2>/dev/null; then
    mkdir hidden half half/lost+found
    cp -r tuned/adam-lr-1e-4-seed-1 tuned/adam-lr-1e-4-seed-2 half
    chmod 000 hidden half/lost+found half/adam-lr-1e-4-seed-2
    refused 1 'hidden/tiny: Permission denied' somebody ./adamod compare tiny.yaml --out hidden
    refused 1 'half/adam-lr-1e-4-seed-2: Permission denied' somebody ./adamod report half -o half.html
    refused 1 'half/adam-lr-1e-4-seed-2: Permission denied' somebody ./adamod compare tiny.yaml --out half --show \
        --seeds 2 --variant 'Adam: optimizer=adam' --tune optimizer.lr=1e-4
    chmod 755 half/adam-lr-1e-4-seed-2
    chmod 777 .
    somebody ./adamod report half -o half.html >said 2>err || fail "a directory with lost+found: $(cat err)"
    chmod 755 hidden half/lost+found
fi

# ---- scripts/rivals ----

if command -v python3 >/dev/null; then
    rivals() { "$SOURCE_DIR/scripts/rivals" --program "$ADAMOD" --recipe tiny.yaml --out grid --warmup 0 --rules adam,lion --lr 1e-3,1e-2 --steps 4 "$@" >said 2>err; }
    rivals || fail "rivals: $(cat err)"
    [ "$(ls -d grid/*-seed-1 | wc -l)" -eq 6 ] || fail "its runs: $(ls grid)"
    grep -q 'lr: 0.0001' grid/lion-cold-lr-0.0001-seed-1/recipe.yaml || fail "the factor of lion"
    touch -d '2 days ago' grid/*/result.json
    rivals --seeds 2 --started 9 --full --jobs 2 || fail "rivals with another seed: $(cat err)"
    [ -z "$(find grid -path '*seed-1/result.json' -mtime -1)" ] || fail "what is there is made again"
    sed -E 's/[0-9]+\.[0-9]{2,}/N/g' said >tables
    diff - tables <<'END' || fail "the tables of rivals"
| rule | bound | lr | loss | started: rates, runs |
|---|---|---|---|---|
| `adam` | none | N | N ± N | 2/2, 4/4 |
| `adam` | momental | N | N ± N | 2/2, 4/4 |
| `lion` | – | N | N ± N | 2/2, 4/4 |

| rule | factor | bound | N | N |
|---|---|---|---|---|
| `adam` | 1 | none | **N** | **N** |
| `adam` | 1 | momental | **N** | **N** |
| `lion` | 0.1 | – | **N** | **N** |
END
    ! rivals --rules adm || fail "rivals takes a rule that there is not"
    ! rivals --steps 5 || fail "rivals takes the runs of another recipe"
    grep -q 'is a run of another recipe: train.steps is 5, but was 4' err || fail "no reason: $(cat err)"
fi

finish
