#compdef primus primus-cli
_primus() {
    local -a found
    found=("${(@f)$("${words[1]}" __complete "$((CURRENT - 1))" "${words[@]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _primus primus primus-cli
