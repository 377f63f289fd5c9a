#!/usr/bin/env bash
# adamod reproduce: a study's runs are made once and go on after an interruption, its tables and figures say what there is and
# what lacks, and bad input gets one line.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/support/shell_checks.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/shell_checks.sh"
"$ADAMOD" help reproduce >/dev/null 2>&1 || exit 77 # built without the trainer
export ADAMOD_DATA=$work/no-data

cat >tiny.yaml <<'END'
name: tiny
data: {task: numbers, train: 200, valid: 10, test: 10, sentences: 4}
model: {kind: transformer, layers: 1, d: 16, ffn: 16, heads: 2}
optimizer: {rule: adamod, lr: 3e-3, beta3: 0.99}
train: {steps: 8, evaluate_every: 4, checkpoint_every: 4, histogram_dense: 3, threads: 1, backend: cpu, progress_every: 0}
decode: {max_length: 5}
END
cat >plan.yaml <<'END'
title: A tiny study
machine: a toaster
seeds: 2
quick: {seeds: 1, about: This is not the study.}
experiments:
  numbers:
    title: Number words
    recipe: tiny.yaml
    measure: exact
    minutes: 60
    gigabytes: 0.5
    samples: 200
    quick: {recipe: tiny.yaml, set: [train.steps=2]}
    methods:
      Adam: {set: [optimizer=adam], paper: 34.62}
      Bad: {set: [optimizer=sgd, optimizer.lr=1e15], quick: [optimizer.lr=1e14], paper: diverges, note: Too large.}
      AdaMod: {paper: {median: 34.81, mean: 34.9, std: 0.1}}
    sources: {paper: [optimizer.lr], ours: [train.steps]}
  sweep:
    title: Number words with other beta3
    recipe: tiny.yaml
    measure: exact
    seeds: 1
    quick: {recipe: tiny.yaml, set: [train.steps=2]}
    methods:
      beta3 0.9: {set: [optimizer.beta3=0.9]}
      beta3 0.99: {same: numbers/AdaMod}
  pictures:
    title: Pictures that are not here
    recipe: pictures.yaml
    measure: accuracy
    quick: {recipe: tiny.yaml, set: [train.steps=2], measure: exact}
    methods: {AdaMod: {paper: 94.3}}
tables:
  table1: {title: Exact translations, rows: [Adam, Bad, AdaMod], columns: [numbers, pictures]}
figures:
  figure1:
    title: Loss and learning rates
    panels:
      - {title: Loss, of: numbers, show: train loss, over: updates}
      - {title: Rates, of: numbers, show: rates, lines: [AdaMod]}
  figure2:
    title: Other beta3
    panels: [{title: Validation, of: sweep, show: valid loss, over: updates}]
  figure3:
    title: Pictures
    panels: [{title: Test, of: pictures, show: test accuracy, over: epochs}]
END
cat >pictures.yaml <<'END'
name: pictures
data: {task: images, set: cifar10}
model: {kind: resnet, blocks: '1', widths: '4'}
train: {steps: 2, backend: cpu}
END
reproduce() { "$ADAMOD" reproduce --plan plan.yaml "$@"; }
# has FILE TEXT...: it has each of the texts.
has() {
    local file=$1 text
    shift
    for text; do grep -qF -- "$text" "$file" || fail "$file lacks '$text': $(head -c 2000 "$file")"; done
}

# ---- what there is to do ----
reproduce --dry-run >out || fail "a dry run has status $?"
has out numbers 'data are missing' 'adamod data prepare cifar10' 'On a toaster'
[ ! -e runs ] || fail 'a dry run made a directory'
reproduce --dry-run figure2 >out || fail "a dry run of a figure has status $?"
grep -E '^in all +2 +0 +0 +2 ' out >/dev/null || fail "figure2 needs two runs: $(cat out)"
reproduce --dry-run numbers >out
grep -E '^numbers +6 +0 +0 +6 +.* 3 GB$' out >/dev/null || fail "six runs need 3 GB: $(cat out)"
! grep -q 'too little' out || fail "3 GB are said not to fit: $(cat out)"
sed 's/gigabytes: 0.5/gigabytes: 1e7/' plan.yaml >large.yaml
"$ADAMOD" reproduce --plan large.yaml --dry-run numbers >out
has out '6e+04 TB' ' are free in runs/large, too little for all of these runs'
reproduce --dry-run --drop-checkpoints numbers >out
grep -E '^numbers +6 +0 +0 +6 +.* not known$' out >/dev/null || fail "without checkpoints the disk is not known: $(cat out)"

# ---- an interruption, then the rest ----
status=0
"$ADAMOD" reproduce --plan plan.yaml --set train.steps=3000 --out stopped figure2 >stopped.out 2>stopped.err &
pid=$!
soon has_lines 20 stopped/numbers/adamod-seed-1/metrics.jsonl || fail 'the first run does not begin'
refused 1 'in use by another process' "$ADAMOD" reproduce --plan plan.yaml --set train.steps=3000 --out stopped figure2
kill -TERM $pid
wait $pid || status=$?
[ $status -eq 143 ] || fail "an interrupted command has status $status: $(cat stopped.err)"
[ ! -e stopped/index.html ] || fail 'an interrupted command writes a page'
has stopped.err 'the same command goes on'
reproduce --set train.steps=3000 --out stopped --dry-run figure2 >out
grep -E '^numbers +1 +0 +1 ' out >/dev/null || fail "the run is not begun: $(cat out)"
reproduce --set train.steps=3000 --minutes 0.0001 --out stopped figure2 >out 2>err || fail "--minutes has status $?: $(cat err)"
has err 'the time is up'
has stopped/index.html 'A tiny study' 'id="figure2"'

# ---- all ----
reproduce --jobs 2 >out 2>err || fail "the study has status $?: $(cat err)"
has out 'The page is runs/plan/index.html'
has runs/plan/tables/table1.md '| Bad<sup>1</sup> | diverges | diverges |' '<sup>1</sup> Too large.' '34.81 (34.90 ± 0.10)' '| not run; data are missing<sup>' 'adamod data prepare cifar10'
has runs/plan/tables/table1.csv 'experiment,method,metric' 'numbers,Adam,exact,2,2,0,' 'numbers,Bad,exact,2,0,2,'
has runs/plan/tables/table1.tex 'toprule' 'diverges' 'Bad$^{1}$' 'Too large.'
has runs/plan/index.html '<h1>A tiny study</h1>' 'optimizer.beta3=0.9' 'Where its values come from' 'data are missing' \
    'Not run: Pictures that are not here: AdaMod (data are missing: adamod data prepare cifar10).'
[ ! -e runs/plan/sweep/beta3-0.99-seed-1 ] || fail 'a run of another experiment is made twice'
[ -e runs/plan/sweep/beta3-0.9-seed-1 ] && [ ! -e runs/plan/sweep/beta3-0.9-seed-2 ] || fail 'the sweep has not one seed'
if command -v gnuplot >/dev/null; then
    [ -s runs/plan/figures/figure1.svg ] && [ -s runs/plan/figures/figure2.svg ] || fail 'figures are missing'
    has runs/plan/index.html '<svg'
fi
before=$(stat -c %Y runs/plan/numbers/adam-seed-1/result.json)
reproduce >out 2>err || fail "a second time has status $?: $(cat err)"
[ "$(stat -c %Y runs/plan/numbers/adam-seed-1/result.json)" = "$before" ] || fail 'a run that is over is made again'
[ ! -s err ] || fail "nothing is to do, but it says $(cat err)"

# ---- seeds: only those that are asked for count, and others are named ----
cp -r runs/plan seeds
rm seeds/numbers/adam-seed-2/result.json
reproduce --seeds 1 --out seeds >out 2>err || fail "--seeds 1 has status $?: $(cat err)"
grep -Fq '| Adam | 0.0<sup>1</sup> |' seeds/tables/table1.md || fail "one seed: $(cat seeds/tables/table1.md)"
has seeds/tables/table1.md '1 run with a larger seed than asked for is there and does not count.'
has seeds/tables/table1.csv 'numbers,Adam,exact,1,1,0,'
! grep -q 'not over' seeds/tables/table1.md || fail "a seed that was not asked for is counted: $(cat seeds/tables/table1.md)"
has seeds/index.html '4 of 5 runs are over'
reproduce --from runs/plan --seeds 1 --out seeds >out 2>err || fail "--from with --seeds 1 has status $?: $(cat err)"
has seeds/tables/table1.csv 'numbers,Adam,exact,1,1,0,'
reproduce --from runs/plan --out seeds >out 2>err || fail "--from has status $?: $(cat err)"
has seeds/tables/table1.csv 'numbers,Adam,exact,2,2,0,'

# An interrupted run of a seed that is not asked for does not count either; of one that is, the cell says so.
rm -r seeds
cp -r runs/plan seeds
sed -i 's/"status":"finished"/"status":"interrupted"/' seeds/numbers/adam-seed-2/result.json
reproduce --from seeds --seeds 1 --out page-seeds >out 2>err || fail "--seeds 1 beside an interrupted run: $(cat err)"
grep -Fq '| Adam | 0.0<sup>1</sup> |' page-seeds/tables/table1.md || fail "an interrupted run counts: $(cat page-seeds/tables/table1.md)"
has page-seeds/tables/table1.csv 'numbers,Adam,exact,1,1,0,'
! grep -q 'not over' page-seeds/tables/table1.md || fail "it is shown: $(cat page-seeds/tables/table1.md)"
! grep -q 'begun' page-seeds/index.html || fail 'it is counted as begun'
reproduce --from seeds --seeds 2 --out page-seeds >out 2>err || fail "--seeds 2 beside an interrupted run: $(cat err)"
has page-seeds/tables/table1.md '| Adam | 0.0; 1 of 2 seeds<sup>1</sup> |' '1 of its runs is not over.'
has page-seeds/tables/table1.csv 'numbers,Adam,exact,2,1,0,'

# ---- two machines: each makes seeds of its own, and their directories are put together ----
reproduce --seeds 1 --out one numbers >out 2>err || fail "the first machine has status $?: $(cat err)"
reproduce --seeds 2-2 --out two --drop-checkpoints numbers >out 2>err || fail "the second machine has status $?: $(cat err)"
[ -e two/numbers/adam-seed-2/result.json ] && [ ! -e two/numbers/adam-seed-1 ] || fail "--seeds 2-2 makes: $(ls two/numbers)"
has two/tables/table1.md '1 of 2 seeds'
[ -z "$(find two -name checkpoints)" ] && [ -e one/numbers/adam-seed-1/checkpoints ] || fail '--drop-checkpoints'
reproduce --dry-run --out one numbers >out
grep -E '^numbers +6 +3 +0 +3 +.* [0-9.]+ kB$' out >/dev/null || fail "runs that are over say what is needed: $(cat out)"
sed -i 's/"version":"[^"]*"/"version":"0.0.7"/' two/numbers/*/machine.json
cp -r two/numbers one
before=$(stat -c %Y one/numbers/adam-seed-2/result.json)
reproduce --out one numbers >out 2>err || fail "the directories together have status $?: $(cat err)"
[ "$(stat -c %Y one/numbers/adam-seed-2/result.json)" = "$before" ] || fail 'a run of another machine is made again'
has one/tables/table1.csv 'numbers,Adam,exact,2,2,0,' 'numbers,AdaMod,exact,2,2,0,'
has one/index.html 'Number words: the runs are of 2 builds or machines' '<p>Made by adamod ' 'adamod 0.0.7'
! grep -q 'builds or machines' runs/plan/index.html || fail 'runs of one build are said to be of several'

# An interrupted run goes on where its directory is copied to.
cp -r stopped moved
sed -i 's/"version":"[^"]*"/"version":"0.0.7"/' moved/numbers/adamod-seed-1/machine.json
reproduce --set train.steps=3000 --out moved figure2 >out 2>err || fail "a run that was moved has status $?: $(cat err)"
has moved/index.html '1 run was begun by one of these and continued by another'
[ -s moved/numbers/adamod-seed-1/result.json ] || fail 'a run that was moved does not go on'

# A run under the name of another seed is not silently a second one.
mkdir -p misnamed/numbers
cp -r one/numbers/adam-seed-1 misnamed/numbers/adam-seed-1
cp -r one/numbers/adam-seed-1 misnamed/numbers/adam-seed-2
reproduce --from misnamed --out page-misnamed >out 2>err || fail "a misnamed run has status $?: $(cat err)"
has page-misnamed/tables/table1.md 'seed 1 in the directory of seed 2'
refused 1 'train.seed is 2, but was 1' "$ADAMOD" reproduce --plan plan.yaml --out misnamed numbers
refused 2 '--set train.seed=7: each run has a seed of its own, from --seeds' \
    "$ADAMOD" reproduce --plan plan.yaml --set train.seed=7 --dry-run
for seeds in 0 2-1 2- -2 x 1-x 101 1,2 ''; do
    refused 2 "--seeds is '$seeds', expected a number of seeds from 1 to 100" \
        "$ADAMOD" reproduce --plan plan.yaml "--seeds=$seeds" --dry-run
done

reproduce figure2 >out 2>err || fail "a part of it has status $?: $(cat err)"
has runs/plan/index.html 'id="table1"' 'id="figure1"' 'id="figure2"' # what was made before stays on the page

# ---- recorded runs ----
mkdir -p recorded/numbers
for run in adam-seed-1 adamod-seed-2; do
    cp -r runs/plan/numbers/$run recorded/numbers
    rm -rf recorded/numbers/$run/checkpoints
done
sed -i 's/^  steps: 8/  steps: 4/; s/^  train: 200/  train: 100/' recorded/numbers/adam-seed-1/recipe.yaml
sed -i 's/^  rule: adamod$/&\n  eps: 0.001/; /^  beta3: /d' recorded/numbers/adamod-seed-2/recipe.yaml
reproduce --from recorded --out page >out 2>err || fail "--from has status $?: $(cat err)"
has page/tables/table1.md '; 1 of 2 seeds; 4 of 8 updates; other data' 'data.train=100' '| Bad<sup>2</sup> | not run | diverges |'
has page/tables/table1.md 'These runs differ from the plan: optimizer.beta3=0.999, optimizer.eps=0.001'
has page/index.html '2 of 9 runs are over' 'Not run: Number words: Bad.' \
    'Not as planned: Number words (Adam): 1 of 2 seeds; 4 of 8 updates; other data (data.train=100, train.steps=4). ' \
    'Number words (AdaMod): 1 of 2 seeds (optimizer.beta3=0.999, optimizer.eps=0.001).'
! grep -q 'Not as planned' runs/plan/index.html || fail 'runs as planned are said not to be'
sed -i 's/"fingerprint":"[0-9a-f]*"/"fingerprint":"0123456789abcdef"/' recorded/numbers/adamod-seed-2/data.json
sed -i 's/train: 100/train: 200/' recorded/numbers/adam-seed-1/recipe.yaml
reproduce --from recorded --out page >out 2>err || fail "--from has status $?: $(cat err)"
has page/tables/table1.md '| AdaMod | 0.0; 1 of 2 seeds; other data' ', data of another content than those of Adam'
[ ! -e recorded/index.html ] || fail '--from writes into the recorded runs'


# ---- own files in the cache, and notes: in cells, footnotes, captions ----
cp -r runs/plan noted
for seed in 1 2; do
    sed -i 's/"parts":/"set":"ptb","published":false,"why":"no record","parts":/' noted/numbers/adam-seed-$seed/data.json
done
echo 'Half & half | a_b' >noted/numbers/adamod-seed-1/note.txt
cp noted/numbers/adamod-seed-1/note.txt noted/sweep/beta3-0.9-seed-1
echo 'of both' | tee noted/numbers/bad-seed-1/note.txt >noted/numbers/bad-seed-2/note.txt
reproduce --from noted --out page-noted >out 2>err || fail "--from noted runs has status $?: $(cat err)"
grep -Eq '^\| Adam \| [^|]*; own files<sup>1</sup> \|' page-noted/tables/table1.md || fail "own files: $(cat page-noted/tables/table1.md)"
has page-noted/tables/table1.md 'These runs differ from the plan: data set ptb not as published: no record.' \
    '</sup> 1 of 2 runs: Half &amp; half \| a_b' '</sup> of both'
has page-noted/tables/table1.csv ',notes' ',1 of 2 runs: Half & half | a_b' ',data set ptb not as published: no record,' ',of both'
has page-noted/tables/table1.tex '1 of 2 runs: Half \& half \textbar{} a\_b'
has page-noted/index.html '</sup> 1 of 2 runs: Half &amp; half | a_b</p>' \
    'Note on Number words (Bad): of both. Note on Number words (AdaMod): 1 of 2 runs: Half &amp; half | a_b.' \
    'Number words (Adam): own files (data set ptb not as published: no record)' \
    'Note on Number words with other beta3 (beta3 0.9): Half &amp; half | a_b.'
! grep -q 'own files' runs/plan/tables/table1.md || fail 'runs of which nothing is known are said to be on own files'
"$ADAMOD" report noted/numbers/{adam,adamod,bad}-seed-{1,2} -o noted.html >out 2>err || fail "a report of noted runs: $(cat err)"
has out 'AdaMod: 1 of 2 runs: Half & half | a_b' 'Adam: data set ptb not as published: no record' 'Bad: of both'
has noted-tables/results.md '| Adam; own files<sup>1</sup> | 2 |' '| AdaMod<sup>2</sup> | 2 |' '<sup>2</sup> 1 of 2 runs: Half &amp; half'
has noted.html '<sup>1</sup><small>own files</small></th>' '<p class="legend"><sup>2</sup> 1 of 2 runs: Half &amp; half | a_b</p>' \
    ' Note on AdaMod: 1 of 2 runs: Half &amp; half | a_b.'
"$ADAMOD" report noted/numbers/adamod-seed-2 --record kept --note 'Of another kind' >out 2>err || fail "--note: $(cat err)"
has kept/adamod-seed-2/note.txt 'Of another kind'
long=$(printf 'x%.0s' $(seq 301))
refused 2 "--note is empty, expected a line of text" "$ADAMOD" report noted/numbers --record kept-wrong --note ''
refused 2 "--note is empty, expected a line of text" "$ADAMOD" report noted/numbers --record kept-wrong --note '  '
refused 2 "--note has more than one line, expected one" "$ADAMOD" report noted/numbers --record kept-wrong --note $'a\nb'
refused 2 "--note is longer than 300 bytes" "$ADAMOD" report noted/numbers --record kept-wrong --note "$long"
refused 2 "--note is written with --record DIR" "$ADAMOD" report noted/numbers --note text
[ ! -e kept-wrong ] || fail 'a refused note records runs'
printf 'one\ntwo\n' >noted/numbers/adam-seed-1/note.txt
refused 1 'noted/numbers/adam-seed-1/note.txt: it has more than one line, expected one' \
    "$ADAMOD" reproduce --plan plan.yaml --from noted --out page-noted

# ---- fewer samples than the whole data have ----
rm -rf recorded/numbers/adamod-seed-2
sed 's/^    samples: 200/    samples: 800/' plan.yaml >more.yaml
"$ADAMOD" reproduce --plan more.yaml --from recorded --out page >out 2>err || fail "--from has status $?: $(cat err)"
has page/tables/table1.md '; 200 of 800 samples'
"$ADAMOD" report runs/plan/numbers --record kept-numbers >out 2>err || fail "report --record has status $?: $(cat err)"
has kept-numbers/adam-seed-1/data.json '"train_samples":200,'

# ---- directories that are not what --from expects ----
mkdir -p empty mixed/numbers mixed/other
refused 1 'nowhere: No such file or directory' "$ADAMOD" reproduce --plan plan.yaml --from nowhere --out none
refused 1 'empty has no runs of this study, expected directories such as numbers/adam-seed-1' \
    "$ADAMOD" reproduce --plan plan.yaml --from empty --out none
for flag in --dry-run --drop-checkpoints '--jobs 2' '--minutes 1' '--set train.steps=2' '--device cpu'; do
    # shellcheck disable=SC2086
    refused 2 "--from makes no runs, and ${flag%% *} is about making them" \
        "$ADAMOD" reproduce --plan plan.yaml --from recorded --out none $flag
done
refused 2 '--from makes no runs, and --seeds A-B is about making them' \
    "$ADAMOD" reproduce --plan plan.yaml --from recorded --out none --seeds 2-3
[ ! -e none ] || fail 'a refused command makes a directory'
cp -r runs/plan/numbers/adam-seed-1 mixed/numbers/adam-seed-1
cp -r runs/plan/numbers/adam-seed-2 mixed/numbers/Adam_2
cp -r runs/plan/numbers/adamod-seed-1 mixed/numbers/adamod-seed-1
cp -r runs/plan/numbers/adamod-seed-2 mixed/other/adamod-seed-2
: >mixed/numbers/adam-seed-1/recipe.yaml
rm mixed/numbers/adamod-seed-1/result.json
reproduce --from mixed --out page-mixed >out 2>err || fail "--from a mixed directory has status $?: $(cat err)"
has err '2 runs in mixed are of no method of this study and not shown: numbers/Adam_2 is the first'
has page-mixed/tables/table1.md '| Adam | 0.0; 1 of 2 seeds; recipe not known<sup>1</sup> |' 'recipe.yaml cannot be read' \
    '| AdaMod | not over<sup>3</sup> |' '1 of its runs is not over.'
sed -i 's/"exact"/"exactly"/g' mixed/numbers/adamod-seed-1/task.json
cp runs/plan/numbers/adamod-seed-1/result.json mixed/numbers/adamod-seed-1
reproduce --from mixed --out page-mixed >out 2>err || fail "--from a mixed directory has status $?: $(cat err)"
has page-mixed/tables/table1.md '| AdaMod | not measured; 1 of 2 seeds |'

rm -r mixed
mkdir -p mixed/numbers
cp -r runs/plan/numbers/adam-seed-* mixed/numbers
sed -i 's/steps: 8$/steps: 40/' mixed/numbers/adam-seed-1/recipe.yaml
sed -i 's/steps: 8$/steps: 4/' mixed/numbers/adam-seed-2/recipe.yaml
reproduce --from mixed --out page-mixed >out 2>err || fail "--from runs of several lengths has status $?: $(cat err)"
has page-mixed/tables/table1.md '; other lengths<sup>1</sup>' 'train.steps=40, train.steps=4.'

# ---- --quick says that it is not the study ----
reproduce --quick --jobs 1 table1 >out 2>err || fail "--quick has status $?: $(cat err)"
has runs/plan-quick/index.html 'This is not the study.' '<b>Loss and learning rates.</b> Made with --quick: other data and smaller models.'
has runs/plan-quick/tables/table1.md 'Exact translations. Made with --quick: other data and smaller models'
has runs/plan-quick/tables/table1.tex 'Made with '
has runs/plan-quick/tables/table1.md '| Pictures that are not here (exact %) | paper (accuracy) |' # each with what it measures
has runs/plan-quick/tables/table1.csv 'numbers,AdaMod,exact,1,1,0,'

# ---- a key that is tuned: its results against the values ----
cat >sweep.yaml <<'END'
title: A sweep
seeds: 2
experiments:
  rates:
    title: Rates
    recipe: tiny.yaml
    set: [train.histogram_dense=0]
    measure: loss
    tune: {key: optimizer.lr, values: [1e-3, 1e-2, 1e10], started: 50%}
    quick: {recipe: tiny.yaml, set: [train.steps=2], tune: {key: optimizer.lr, values: [0.5]}}
    methods:
      Adam: {set: [optimizer=adam]}
      Muon, too: {set: [optimizer=muon, 'optimizer.adamw_lr={value}'], factor: 0.1, label: Muon}
END
sweep() { "$ADAMOD" reproduce --plan sweep.yaml --out sweep "$@"; }
sweep --dry-run >out || fail "a dry run of a sweep has status $?"
grep -E '^rates +12 +0 +0 +12 ' out >/dev/null || fail "a sweep of 12 runs is $(cat out)"
sweep --jobs 2 >out 2>err || fail "a sweep has status $?: $(cat err)"
has out 'rates: Adam lr=1e-3, seed 2: 8 updates' 'rates: Muon, too lr=0.001, seed 1: 8 updates'
grep -q 'adamw_lr: 0.001' sweep/rates/muon-too-lr-0.001-seed-2/recipe.yaml || fail "no {value}: $(cat sweep/rates/muon-too-lr-0.001-seed-2/recipe.yaml)"
grep -Eq '^\| Adam \| 1e-2(<sup>1</sup>)? \| [0-9.]+ \([0-9.]+ ± [0-9.]+\) \| 2 of 3, 4 of 6 \| 1e-2 \| [0-9.]+ \|$' sweep/tables/rates.md || fail "its table: $(cat sweep/tables/rates.md)"
has sweep/tables/rates-values.md '| Adam | 1e10 | diverged<sup>1</sup> |' '2 of 2 runs diverged' '| Muon | 0.001 | '
has sweep/tables/rates.csv ',Muon,,,sensitivity,test,' ',Muon,1e+09,0,loss,test,,0,2,'
has sweep/tables/rates-tests.csv ',loss,test,,'
has sweep/index.html 'id="rates"' '12 of 12 runs are over, 4 of them diverged' 'Results against optimizer.lr' '; <code>optimizer.lr</code> is <code>1e-3</code>' 'optimizer.lr times 0.1'
if command -v gnuplot >/dev/null; then
    [ -s sweep/figures/rates-1.svg ] || fail 'no figure of a sweep'
    grep -q 'set logscale x' sweep/figures/rates-1.gp || fail 'its axis is not logarithmic'
fi
before=$(stat -c %Y sweep/rates/adam-lr-1e-3-seed-1/result.json)
sweep --seeds 1 >out 2>err || fail "a sweep with one seed has status $?: $(cat err)"
[ "$(stat -c %Y sweep/rates/adam-lr-1e-3-seed-1/result.json)" = "$before" ] || fail 'a run of a sweep is made again'
has sweep/index.html '6 of 6 runs are over' 'Adam: 3 with larger seeds than asked for do not count'
has sweep/tables/rates.csv ',Adam,1e-3,0,loss,test,,1,0,'
"$ADAMOD" reproduce --plan sweep.yaml --from sweep --out sweep-page >out 2>err || fail "--from a sweep has status $?: $(cat err)"
[ ! -s err ] || fail "runs of a sweep are strangers: $(cat err)"
has sweep-page/tables/rates.csv ',Adam,1e-3,0,loss,test,,2,0,' # without --seeds, all that is there
rm -r sweep/rates/adam-lr-1e-3-seed-2
"$ADAMOD" reproduce --plan sweep.yaml --from sweep --out sweep-page >out 2>err || fail "--from a sweep that lacks a run: $(cat err)"
has sweep-page/tables/rates-values.md '1 of 2 runs is not over'
sweep --quick --out sweep-quick >out 2>err || fail "a quick sweep has status $?: $(cat err)"
has sweep-quick/tables/rates-values.md '| Muon | 0.05 |'
has sweep-quick/index.html 'Made with --quick'
refused 2 '--set optimizer.lr=1: rates tunes this key' "$ADAMOD" reproduce --plan sweep.yaml --set optimizer.lr=1 --dry-run
sed 's/measure: loss/measure: blue/' sweep.yaml >broken.yaml
refused 1 "broken.yaml:4: rates: measure is 'blue', expected one of loss, " "$ADAMOD" reproduce --plan broken.yaml --from sweep --out none
sed 's/optimizer.lr, values: \[1e-3/optimizer.lr, values: [x/; s/factor: 0.1, //' sweep.yaml >broken.yaml
refused 2 "broken.yaml:12: Adam" "$ADAMOD" reproduce --plan broken.yaml --out none
[ ! -e none ] || fail 'a refused sweep makes a directory'
"$ADAMOD" reproduce --plan "$SOURCE_DIR/recipes/gpt-warmup.yaml" --dry-run >out || fail 'the study of warm-up is refused'
has out 'adamod data prepare fineweb-edu'
"$ADAMOD" reproduce --plan "$SOURCE_DIR/recipes/gpt-warmup.yaml" --quick --dry-run >out || fail 'the quick study of warm-up is refused'
grep -E '^gpt +168 ' out >/dev/null || fail "its runs: $(cat out)"

# ---- without gnuplot ----
mkdir bare
reproduce=$(command -v "$ADAMOD")
PATH=$work/bare "$reproduce" reproduce --plan plan.yaml --from recorded --out bare/page >out 2>err || fail "without gnuplot: $(cat err)"
has bare/page/index.html 'Not drawn'
has bare/page/tables/table1.md AdaMod

# ---- a full disk: one line, and the old page stays ----
cp page/index.html before.html
full() (ulimit -f 4 && exec "$ADAMOD" reproduce --plan plan.yaml --from recorded --out page)
refused 1 'page/' full
cmp -s page/index.html before.html || fail 'a disk that is full changes the page'

# ---- a disk that fills while runs are made: no other run begins, and the same command goes on once there is room ----
crowded() { # needs a file system of its own
    local status=0
    mkdir disk && mount -t tmpfs -o size=300k none disk || return 1
    reproduce --set train.steps=40 --out disk/out numbers >out 2>err || status=$?
    [ $status -eq 1 ] || fail "a full disk has status $status: $(cat err)"
    has err 'No space left on device' 'the disk is full: 2 of 6 runs are over' 'the same command goes on'
    [ "$(grep -c 'No space left' err)" -le 2 ] || fail "more than a run and the page say it: $(cat err)"
    mount -o remount,size=20m disk
    reproduce --set train.steps=40 --out disk/out numbers >out 2>err || fail "with room again: $(cat err)"
    has disk/out/tables/table1.csv 'numbers,Adam,exact,2,2,0,' 'numbers,AdaMod,exact,2,2,0,'
    return $failures
}
export -f crowded reproduce has fail
export failures
if unshare -m mount -t tmpfs none /mnt 2>/dev/null; then
    unshare -m bash -c crowded || fail 'a disk that fills while runs are made'
fi

# ---- bad input ----
refused 2 "did you mean 'table1'?" "$ADAMOD" reproduce --plan plan.yaml tabel1
refused 1 'No such file' "$ADAMOD" reproduce --plan nowhere.yaml
refused 1 'runs/plan/numbers/adam-seed-1 is a run of another recipe: model.d is 32, but was 16' \
    "$ADAMOD" reproduce --plan plan.yaml --set model.d=32 numbers
sed 's/measure: exact/mesure: exact/' plan.yaml >broken.yaml
refused 1 'broken.yaml:9: no such key: mesure; did you mean measure?' "$ADAMOD" reproduce --plan broken.yaml
sed 's/optimizer.beta3=0.9\]/optimizer.beta3=9]/' plan.yaml >broken.yaml
refused 2 'broken.yaml:26: beta3 0.9: ' "$ADAMOD" reproduce --plan broken.yaml --out other
[ ! -e other ] || fail 'a broken plan makes a directory'
touch file
refused 1 'file' "$ADAMOD" reproduce --plan plan.yaml --from recorded --out file/page

refused 1 '/dev/zero: it is larger than 1048576 bytes' "$ADAMOD" reproduce --plan /dev/zero
refused 2 "--device is 'gpu', expected auto, ref, cpu, cuda" "$ADAMOD" reproduce --plan plan.yaml --device gpu --dry-run
reproduce --device ref --out refs --dry-run figure2 >out 2>err || fail "--device ref is refused: $(cat err)"
sed 's/measure: exact/measure: blue/' plan.yaml >broken.yaml
refused 2 "broken.yaml:6: numbers: measure is 'blue', expected one of loss, " "$ADAMOD" reproduce --plan broken.yaml --out blue
[ ! -e blue ] || fail 'a measure that there is not is refused after the runs'
cp "$ADAMOD" adamod
chmod 755 . adamod
if setpriv --reuid=65534 --regid=65534 --clear-groups test -r plan.yaml 2>/dev/null; then
    mkdir hidden
    chmod 000 hidden
    refused 1 'hidden/numbers/adam-seed-1: Permission denied' setpriv --reuid=65534 --regid=65534 --clear-groups \
        ./adamod reproduce --plan plan.yaml --from hidden
    chmod 755 hidden
fi

# ---- the paper: every method passes the checks, in full and with --quick ----
"$ADAMOD" reproduce --plan "$SOURCE_DIR/recipes/paper.yaml" --dry-run >out || fail 'the paper is refused'
has out 'in all' 'adamod data prepare wmt14-en-de'
"$ADAMOD" reproduce --plan "$SOURCE_DIR/recipes/paper.yaml" --quick --dry-run >out || fail 'the quick paper is refused'

# ---- docs/results.md has the tables of the runs in results/ ----
"$ADAMOD" reproduce --plan "$SOURCE_DIR/recipes/paper.yaml" --from "$SOURCE_DIR/results" --out kept >out 2>err ||
    fail "the recorded runs are refused: $(cat err)"
while read -r line; do
    case $line in "|"* | "<sup>"*) grep -qxF -- "$line" "$SOURCE_DIR/docs/results.md" || fail "docs/results.md lacks: $line" ;; esac
done < <(cat kept/tables/*.md)
finish
