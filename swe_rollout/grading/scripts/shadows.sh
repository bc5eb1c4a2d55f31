# Standard input: a line for each new module: its folder (empty: the root), its name, 1 if the name
# is known to be imported from elsewhere, 1 if its folder is surely searched for modules, 1 if $BASE has
# a plain module of this name beside it, its path; with tabs between; sorted by folders. Prints those
# paths which would be imported in place of another module: their folder is searched, and the name is
# known, installed, or that of a module beside them which is still there.
set -u
cd "$(git rev-parse --show-toplevel)" || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
tab=$(printf '\t')
# Programs are started for each folder, but not for each module: there may be very many.
IFS='
'
find_sites() {
    [ ! -e "$tmp/sites" ] || return 0
    {
        printf '%s\n' "${PYTHONPATH:-}" | tr : '\n' | grep '^/' | grep -v "^$PWD\(/\|$\)"
        find / \( -path /proc -o -path /sys -o -path /dev -o -path "$PWD" \) -prune -o \
            -type d \( -name site-packages -o -name dist-packages \) -print -prune
    } >"$tmp/sites" 2>/dev/null
    sites=$(cat "$tmp/sites")
}
is_installed() {
    find_sites
    for site in $sites; do
        [ ! -e "$site/$1" ] && [ ! -e "$site/$1.py" ] || return 0
    done
    return 1
}
# Collects what adds folders to the search: installations, and files of the base that name its path.
find_paths() {
    [ ! -e "$tmp/installed" ] || return 0
    find_sites
    for site in $sites; do
        cat "$site"/*.pth "$site"/*.egg-link "$site"/__editable__*
    done >"$tmp/installed" 2>/dev/null
    for named in sys.path pythonpath PYTHONPATH; do
        git grep -hF --all-match -e "$named" -e '' "$BASE" -- '*conftest.py' '*.ini' '*.cfg' \
            '*.toml' '*.sh' Makefile
    done >"$tmp/named" 2>/dev/null
}
# A folder that is no package may be part of one without __init__.py: only where Python searches it are
# its modules imported by their bare names.
is_searched() {
    for file in "$1"/conftest.py "$1"/test_*.py "$1"/*_test.py; do
        [ ! -e "$file" ] || return 0
    done
    case ":${PYTHONPATH:-}:" in *":$PWD/$1:"* | *":$1:"*) return 0 ;; esac
    find_paths
    grep -qF -e "$PWD/$1" "$tmp/installed" || grep -qF -e "${1##*/}" "$tmp/named"
}
last=
while IFS= read -r line; do
    folder=${line%%"$tab"*} rest=${line#*"$tab"}
    name=${rest%%"$tab"*} rest=${rest#*"$tab"}
    known=${rest%%"$tab"*} rest=${rest#*"$tab"}
    searched=${rest%%"$tab"*} rest=${rest#*"$tab"}
    has_beside=${rest%%"$tab"*} path=${rest#*"$tab"}
    if [ "$searched" != 1 ]; then
        if [ "$folder" != "$last" ]; then
            last=$folder last_searched=
            ! is_searched "$folder" || last_searched=1
        fi
        [ -n "$last_searched" ] || continue
    fi
    # What is a package now, and was this module, is the same module.
    beside=${folder:+$folder/}$name.py
    if [ "$known" = 1 ] || { [ "$has_beside" = 1 ] && [ "$beside" != "$path" ] && [ -e "$beside" ]; } ||
        { [ "$has_beside" = 0 ] && is_installed "$name"; }
    then
        printf '%s\n' "$path"
    fi
done
