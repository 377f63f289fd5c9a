# bash completion for adamod
# SPDX-License-Identifier: MIT

# The rules, and the options of a rule, as the program itself lists them.
_adamod_rules() { "$1" optim list 2>/dev/null | awk 'NF == 0 { exit } NR > 1 { print $1 }'; }
_adamod_options() { "$1" optim list "$2" 2>/dev/null | awk 'list { print "--" $1 } $1 == "option" { list = 1 }'; }
_adamod_choices() {
    "$1" optim list "$2" --json 2>/dev/null |
        sed -n "s/.*{\"name\": \"$3\", \"kind\": \"choice\"[^[]*\[\([^]]*\)\].*/\1/p" | tr -d '",'
}

# The data sets.
_adamod_sets() { "$1" data list 2>/dev/null | awk '{ print $1 }'; }

# The keys of recipes, each with its equals sign.
_adamod_keys() {
    "$1" train --keys 2>/dev/null | awk '$1 !~ /OPTION$|NAME|^#|^$/ && !seen[$1]++ { print $1 "=" }'
    _adamod_options "$1" adamod | sed 's/^--\(.*\)/optimizer.\1=/'
    echo optimizer.schedule.lr=
}

# The value of --rule on the command line, or adamod.
_adamod_rule() {
    local i rule=adamod
    for ((i = 1; i < ${#COMP_WORDS[@]} - 1; i++)); do
        [ "${COMP_WORDS[i]}" != --rule ] || rule=${COMP_WORDS[i + 1]}
        [ "$rule" != = ] || rule=${COMP_WORDS[i + 2]-}
    done
    echo "$rule"
}

# Completes a value; fails where the word before takes none.
_adamod_value() { # _adamod_value PROGRAM COMMAND FLAG WORD
    case "$2 $3" in
        'bench train --json' | 'bench train --dump' | 'bench train --python' | 'bench train --llmc' | 'bench decode --python')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$4")
            ;;
        'train --device' | 'compare --device' | 'reproduce --device' | 'evaluate --device' | 'translate --device' | 'predict --device' | 'generate --device' | 'export --device' | 'bench train --device')
            mapfile -t COMPREPLY < <(compgen -W 'auto cpu cuda' -- "$4")
            ;;
        'bench decode --device') mapfile -t COMPREPLY < <(compgen -W 'cpu cuda' -- "$4") ;;
        'bench decode --shape') mapfile -t COMPREPLY < <(compgen -W 'tiny small base' -- "$4") ;;
        'bench train --precision') mapfile -t COMPREPLY < <(compgen -W 'auto full tf32 mixed' -- "$4") ;;
        'bench decode --precision') mapfile -t COMPREPLY < <(compgen -W 'full tf32 mixed' -- "$4") ;;
        'bench train --shape') mapfile -t COMPREPLY < <(compgen -W 'small base big resnet34 densenet121 lstm gpt2' -- "$4") ;;
        *' --set' | 'compare --vary' | 'compare --tune')
            compopt -o nospace
            mapfile -t COMPREPLY < <(compgen -W "$(_adamod_keys "$1")" -- "$4")
            ;;
        *' --resume-from') mapfile -t COMPREPLY < <(compgen -W 'best last' -- "$4"; compgen -f -- "$4") ;;
        *' --reset') mapfile -t COMPREPLY < <(compgen -W 'optimizer options data' -- "$4") ;;
        *' --init-from' | *' --init') mapfile -t COMPREPLY < <(compgen -f -- "$4") ;;
        *' --checkpoint') mapfile -t COMPREPLY < <(compgen -W 'averaged best last' -- "$4") ;;
        'compare --split') mapfile -t COMPREPLY < <(compgen -W 'auto valid test' -- "$4") ;;
        'evaluate --split') mapfile -t COMPREPLY < <(compgen -W 'valid test' -- "$4") ;;
        'reproduce --seeds' | 'reproduce --jobs' | 'reproduce --minutes' | 'compare --variant' | 'compare --seeds' | 'compare --jobs' | 'compare --minutes' | 'compare --metric' | 'compare --started' | *' --beam' | *' --length-penalty' | 'translate --nbest' | 'translate --batch' | 'predict --top') ;;
        'reproduce --data' | 'reproduce --from' | 'reproduce --plan')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$4")
            ;;
        'generate --prompt' | 'generate --tokens' | 'generate --temperature' | 'generate --top-k' | 'generate --top-p' | 'generate --seed') ;;
        'bench decode --threads' | 'bench decode --sentences' | 'bench decode --batch' | 'bench decode --rounds' | 'bench train --threads' | 'bench train --steps' | 'bench train --seconds' | 'bench train --losses') ;;
        'data '*' --mirrors')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$4")
            ;;
        'data '*' --mirror' | 'data '*' --timeout' | 'data '*' --threads') ;;
        'data prepare --again') return 1 ;;
        'text '*' --lang') mapfile -t COMPREPLY < <(compgen -W 'ca cs da de el en es et fi fr ga hu is it lt lv nl no pl pt ro ru sk sl sv zh' -- "$4") ;;
        'text bpe '*' --codes' | 'text bpe '*' --vocabulary')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$4")
            ;;
        'text bpe '*' --merges' | 'text bpe '*' --min-frequency' | 'text bpe '*' --threshold' | 'text bpe '*' --separator') ;;
        'text bpe '*' --dropout' | 'text bpe '*' --seed') ;;
        'text tokens '*' --model') mapfile -t COMPREPLY < <(compgen -d -- "$4") ;;
        'text tokens pack --document') mapfile -t COMPREPLY < <(compgen -W 'file blank line' -- "$4") ;;
        'text tokens '*' --vocab' | 'text tokens '*' --min-frequency') ;;
        'text tokens '*' --special') return 1 ;;
        'text score --metric') mapfile -t COMPREPLY < <(compgen -W 'bleu chrf chrf++' -- "$4") ;;
        'text score --tokenize') mapfile -t COMPREPLY < <(compgen -W '13a none char' -- "$4") ;;
        'text score --smooth') mapfile -t COMPREPLY < <(compgen -W 'exp none' -- "$4") ;;
        'text score --samples' | 'text score --width') ;;
        'text score --lowercase' | 'text score --confidence') return 1 ;;
        'text '*' --threads' | 'text clean --min' | 'text clean --max' | 'text clean --ratio') ;;
        'text tokenize --no-escape' | 'text tokenize --split-hyphens' | 'text tokenize --split-last' | 'text detokenize --no-unescape') return 1 ;;
        *' --json' | *' --markdown' | *' --help' | 'translate --scores' | 'bench train --no-torch' | 'bench train --all' | 'bench decode --no-peer' | 'bench train --verbose' | 'optim bench --quick' | 'optim bench --no-torch' | 'optim trace --states') return 1 ;;
        *' --rule') mapfile -t COMPREPLY < <(compgen -W "$(_adamod_rules "$1")" -- "$4") ;;
        'optim trace --type') mapfile -t COMPREPLY < <(compgen -W 'f32 f64 bf16 f16' -- "$4") ;;
        *' --params' | *' --grads' | *' --out' | *' --load' | *' --save' | *' --python')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$4")
            ;;
        'optim bench --isa') mapfile -t COMPREPLY < <(compgen -W 'avx512 avx2 neon plain' -- "$4") ;;
        'optim bench --device' | 'optim trace --device') mapfile -t COMPREPLY < <(compgen -W 'cpu cuda' -- "$4") ;;
        'optim bench --cases') mapfile -t COMPREPLY < <(compgen -W 'flat resnet34 bf16 master layer small' -- "$4") ;;
        'optim bench --sizes' | 'optim bench --threads' | 'bench comm --mib' | 'bench comm --repeat') ;;
        'optim trace --'*)
            local option=${3#--}
            mapfile -t COMPREPLY < <(compgen -W "$(_adamod_choices "$1" "$(_adamod_rule)" "${option//-/_}")" -- "$4")
            ;;
        *) return 1 ;;
    esac
}

_adamod() {
    local program=$1 word=$2 previous=$3 command words
    COMPREPLY=()
    local first=1
    [ "${COMP_WORDS[1]}" != help ] || first=2
    if [ "$COMP_CWORD" -eq "$first" ]; then
        words='train compare reproduce report evaluate translate predict generate export bench data text info optim'
        [ "$first" -eq 2 ] || words+=' help --help --version'
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        return
    fi
    command=${COMP_WORDS[first]}
    if [ "$command" = optim ] || [ "$command" = bench ] || [ "$command" = text ] || [ "$command" = data ]; then
        if [ "$COMP_CWORD" -eq $((first + 1)) ]; then
            words='list trace bench'
            [ "$command" != bench ] || words='train comm decode'
            [ "$command" != data ] || words='list get prepare'
            [ "$command" != text ] || words='tokenize detokenize normalize lowercase bpe tokens score clean'
            mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
            return
        fi
        command+=" ${COMP_WORDS[first + 1]}"
        if [ "$command" = 'text bpe' ] || [ "$command" = 'text tokens' ]; then
            if [ "$COMP_CWORD" -eq $((first + 2)) ]; then
                words='learn apply vocab'
                [ "$command" = 'text bpe' ] || words='learn encode decode pack'
                mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
                return
            fi
            command+=" ${COMP_WORDS[first + 2]}"
        fi
    fi
    [ "$first" -eq 1 ] || return
    if [ "$word" = = ]; then
        word=
    elif [ "$previous" = = ]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    _adamod_value "$program" "$command" "$previous" "$word" && return
    case $command in
        train | compare | report | evaluate | translate | predict | generate | export | 'bench train' | 'text '*)
            # recipes, run directories and texts, and flags where one is begun
            compopt -o filenames
            [[ $word == -* ]] || mapfile -t COMPREPLY < <(compgen -f -- "$word")
            [[ $word == -* ]] || return
            compopt +o filenames
            ;;
    esac
    case $command in
        info) words='--json --help' ;;
        train) words='--set --out --device --init-from --init --resume --resume-from --reset --dry-run --keys --help' ;;
        compare) words='--vary --variant --tune --seeds --set --out --device --jobs --minutes --metric --split --started --drop-checkpoints --dry-run --resume --show --no-report --help' ;;
        reproduce) words="--seeds --quick --dry-run --out --data --device --set --jobs --minutes --drop-checkpoints --from --plan --help $(echo table{2..5} figure{1..9})" ;;
        report) words='--out --record --note --help' ;;
        evaluate) words='--device --checkpoint --beam --length-penalty --set --split --data --json --help' ;;
        translate) words='--nbest --scores --batch --device --checkpoint --beam --length-penalty --set --help' ;;
        'data list') words="--json --help $(_adamod_sets "$program")" ;;
        'data get') words="--mirror --mirrors --timeout --help $(_adamod_sets "$program")" ;;
        'data prepare') words="--mirror --mirrors --timeout --threads --again --help $(_adamod_sets "$program")" ;;
        'text tokenize') words='--lang --no-escape --split-hyphens --split-last --threads --help' ;;
        'text detokenize') words='--lang --no-unescape --threads --help' ;;
        'text normalize') words='--lang --threads --help' ;;
        'text lowercase') words='--threads --help' ;;
        'text bpe learn') words='--merges --min-frequency --out --help' ;;
        'text bpe apply') words='--codes --vocabulary --threshold --merges --separator --dropout --seed --threads --help' ;;
        'text bpe vocab') words='--out --help' ;;
        'text tokens learn') words='--model --vocab --min-frequency --threads --help' ;;
        'text tokens encode') words='--model --special --threads --help' ;;
        'text tokens decode') words='--model --help' ;;
        'text tokens pack') words='--model --out --document --special --help' ;;
        'text score') words='--metric --tokenize --smooth --lowercase --confidence --samples --width --json --help' ;;
        'text clean') words='--min --max --ratio --help' ;;
        predict) words='--top --json --device --checkpoint --set --help' ;;
        export) words='--out --device --checkpoint --set --help' ;;
        generate) words='--prompt --tokens --temperature --top-k --top-p --seed --ids --device --checkpoint --set --help' ;;
        'bench decode') words='--shape --device --precision --sentences --beam --batch --threads --rounds --python --no-peer --help' ;;
        'bench train') words='--set --shape --all --threads --steps --seconds --device --precision --python --no-torch --llmc --verbose --json --losses --dump --help' ;;
        'bench comm') words='--mib --repeat --json --help' ;;
        'optim list') words="--json --markdown --help $(_adamod_rules "$program")" ;;
        'optim trace')
            words='--rule --params --grads --out --states --schedule --type --shape --load --save --device --help '
            words+=$(_adamod_options "$program" "$(_adamod_rule)")
            ;;
        'optim bench') words='--rule --device --sizes --cases --threads --isa --python --no-torch --quick --json --help' ;;
        *) words= ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -F _adamod adamod
