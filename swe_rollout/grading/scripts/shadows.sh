# Standard input: a line for each new module: its folder (empty: the root), its name, 1 if the name
# is known to be imported from elsewhere, its path; with tabs between. Prints those paths which would
# be imported in place of another module: they are not in $BASE, their folder is there and is no
# package, and the name is known, installed, or that of a module beside them.
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
while IFS= read -r line; do
    folder=${line%%"$tab"*} rest=${line#*"$tab"}
    name=${rest%%"$tab"*} rest=${rest#*"$tab"}
    known=${rest%%"$tab"*} path=${rest#*"$tab"}
    has "$path" && continue
    if [ -n "$folder" ]; then
        has "$folder" && ! has "$folder/__init__.py" || continue
        beside=$folder/$name.py
    else
        beside=$name.py
    fi
    if [ "$known" = 1 ] || { [ "$beside" != "$path" ] && has "$beside"; } || is_installed "$name"
    then
        printf '%s\n' "$path"
    fi
done
