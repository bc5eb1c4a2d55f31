# Standard input: a line for each new module: its folder (empty: the root), its name, 1 if the name
# is known to be imported from elsewhere, 1 if its folder is surely searched for modules, its path; with
# tabs between. Prints those paths which would be imported in place of another module: they are not in
# $BASE, their folder is there, is no package and is searched, and the name is known, installed, or that
# of a module beside them which is still there.
set -u
cd "$(git rev-parse --show-toplevel)" || exit 1
tab=$(printf '\t')
has() { git cat-file -e "$BASE:$1" 2>/dev/null; }
sites=
find_sites() {
    [ -z "$sites" ] || return 0
    sites=$({
        printf '%s\n' "${PYTHONPATH:-}" | tr : '\n' | grep '^/' | grep -v "^$PWD\(/\|$\)"
        find / \( -path /proc -o -path /sys -o -path /dev -o -path "$PWD" \) -prune -o \
            -type d \( -name site-packages -o -name dist-packages \) -print -prune
    } 2>/dev/null)
    sites=${sites:-/nowhere}
}
is_installed() {
    find_sites
    printf '%s\n' "$sites" | while IFS= read -r site; do
        [ ! -e "$site/$1" ] && [ ! -e "$site/$1.py" ] || { echo yes; break; }
    done | grep -q yes
}
# A folder that is no package may be part of one without __init__.py: only where Python searches it are
# its modules imported by their bare names. Tests, installations and paths in the base's code tell.
is_searched() {
    for file in "$1"/conftest.py "$1"/test_*.py "$1"/*_test.py; do
        [ ! -e "$file" ] || return 0
    done
    find_sites
    printf '%s\n' "$sites" | while IFS= read -r site; do
        grep -qsF -- "$PWD/$1" "$site"/*.pth "$site"/*.egg-link "$site"/__editable__* && echo yes
    done | grep -q yes && return 0
    case ":${PYTHONPATH:-}:" in *":$PWD/$1:"* | *":$1:"*) return 0 ;; esac
    for named in sys.path pythonpath PYTHONPATH; do
        git grep -qF --all-match -e "$named" -e "${1##*/}" "$BASE" -- '*conftest.py' '*.ini' '*.cfg' \
            '*.toml' '*.sh' Makefile 2>/dev/null && return 0
    done
    return 1
}
while IFS= read -r line; do
    folder=${line%%"$tab"*} rest=${line#*"$tab"}
    name=${rest%%"$tab"*} rest=${rest#*"$tab"}
    known=${rest%%"$tab"*} rest=${rest#*"$tab"}
    searched=${rest%%"$tab"*} path=${rest#*"$tab"}
    has "$path" && continue
    if [ -n "$folder" ]; then
        has "$folder" && ! has "$folder/__init__.py" || continue
        beside=$folder/$name.py
    else
        beside=$name.py
    fi
    [ "$searched" = 1 ] || is_searched "$folder" || continue
    # What is a package now, and was this module, is the same module.
    if [ "$known" = 1 ] || { [ "$beside" != "$path" ] && has "$beside" && [ -e "$beside" ]; } ||
        { ! has "$beside" && is_installed "$name"; }
    then
        printf '%s\n' "$path"
    fi
done
