# Apply the diff on standard input to the clean base $BASE, strictly first, then less so.
# Prints the paths that this has changed, each ended by a NUL: found in the tree, whatever the diff
# says. Exit 60: it does not apply. $LOOSE: empty where patch(1) may not be used.
set -u
cd "$(git rev-parse --show-toplevel)" || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/patch" || exit 1
attempt() {
    if "$@" "$tmp/patch" >"$tmp/log" 2>&1; then
        find . -path ./.git -prune -o ! -type d -newer "$tmp/before" -print0 || exit 1
        git -c core.quotePath=off diff --name-only --no-renames --diff-filter=D -z "$BASE" -- || exit 1
        exit 0
    fi
    { echo "$*:" && tail -n 20 "$tmp/log"; } >&2
    git reset --quiet --hard "$BASE" && git clean --force --quiet -d || exit 1
}
# Unlike git, patch(1) writes into git's own folder, which names programs that git runs. It reads names
# of files also where `touched_paths` does not, so it must not find that folder at all.
patch_loosely() {
    aside=$(mktemp -d ./.aside-XXXXXXXXXX) && mv .git "$aside/git" || exit 1
    patch --batch --forward --unified --fuzz=5 -p1 -i "$1" && [ ! -e .git ] && [ ! -L .git ]
    applied=$?
    rm -rf .git && mv "$aside/git" .git && rmdir "$aside" || exit 1
    return "$applied"
}
git update-index -q --refresh
: >"$tmp/before"
# This is longer than a tick of any file system's clock.
sleep 0.05 2>/dev/null || sleep 1
attempt git apply --verbose --whitespace=nowarn
attempt git apply --3way --whitespace=nowarn
if [ -n "$LOOSE" ] && command -v patch >/dev/null 2>&1; then
    attempt patch_loosely
fi
exit 60
