function __primus_complete
    set -l words (commandline -opc)
    set -l found (primus __complete (count $words) $words (commandline -ct) 2>/dev/null)
    if count $found >/dev/null
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c primus -f -a '(__primus_complete)'
complete -c primus-cli -f -a '(__primus_complete)'
