# fish completion for adamod
# SPDX-License-Identifier: MIT

# Commands and flags are those that the program's own help lists.
function __adamod_words # the words of the command line before the cursor, without flags: COMMAND [MEMBER] ...
    for word in (commandline -opc)[2..-1]
        string match -q -- '-*' $word; or echo $word
    end
end

function __adamod_commands # lines "optim list<tab>meaning"
    adamod --help 2>/dev/null | string match -r '^  [a-z].*' | string replace -r '^  (\S+( \S+)*?)  +(.*)$' '$1\t$3'
end

function __adamod_next # the next word of the commands that begin with the words so far
    set -l given (__adamod_words)
    set -l count (count $given)
    test "$given[1]" = help; and set -e given[1]; and set count (math $count - 1)
    for line in (__adamod_commands)
        set -l parts (string split \t -- $line)
        set -l words (string split ' ' -- $parts[1])
        test (count $words) -gt $count; or continue
        test $count -eq 0; or test "$words[1..$count]" = "$given"; or continue
        if test (count $words) -eq (math $count + 1)
            printf '%s\t%s\n' $words[-1] $parts[2]
        else
            echo $words[(math $count + 1)]
        end
    end | sort -u -t \t -k 1,1
end

function __adamod_command # the command that the words so far begin with: optim list
    set -l given (__adamod_words)
    for line in (__adamod_commands)
        set -l words (string split ' ' -- (string split \t -- $line)[1])
        set -l count (count $words)
        test (count $given) -ge $count; and test "$given[1..$count]" = "$words"; and echo $words; and return
    end
    return 1
end

function __adamod_flags # lines "--flag<tab>meaning"
    set -l command (__adamod_command); or return
    adamod help (string split ' ' -- $command) 2>/dev/null | string match -r '^  --.*' |
        string replace -r '^  (--[a-z0-9_-]+).*?  +(.*)$' '$1\t$2'
end

function __adamod_keys # the keys of recipes, each with its equals sign
    adamod train --keys 2>/dev/null | string match -r '^[a-z]\S+' | string match -v '*OPTION' | string match -v '*NAME*' | sort -u | string replace -r '$' '='
end

function __adamod_rules
    adamod optim list 2>/dev/null | string match -r '^[a-z]\S+(?= )' | string match -v -r '^(rule|bytes:)$'
end

function __adamod_sets
    adamod data list 2>/dev/null | string match -r '^\S+'
end

function __adamod_after # whether one of these flags is the word before the cursor
    contains -- (commandline -opc)[-1] $argv
end

complete -c adamod -n 'not __adamod_command >/dev/null' -f -a '(__adamod_next)'
complete -c adamod -n '__adamod_command >/dev/null; and string match -q -- "-*" (commandline -ct)' -f -a '(__adamod_flags)'
complete -c adamod -n '__adamod_after --set --vary' -f -a '(__adamod_keys)'
complete -c adamod -n '__adamod_after --device' -f -a 'auto cpu cuda'
complete -c adamod -n '__adamod_after --checkpoint' -f -a 'averaged best last'
complete -c adamod -n '__adamod_after --split' -f -a 'valid test'
complete -c adamod -n '__adamod_after --reset' -f -a 'optimizer options data'
complete -c adamod -n '__adamod_after --rule; or test "$(__adamod_command)" = "optim list"' -f -a '(__adamod_rules)'
complete -c adamod -n 'string match -q "data *" -- "$(__adamod_command)"' -f -a '(__adamod_sets)'
