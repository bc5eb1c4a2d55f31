# Standard input: lines that only the fix has. Prints what git keeps of later history: clones and
# bundles of this repository elsewhere, and unreachable objects of its own that hold such a line.
set -u
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' GIT_OPTIONAL_LOCKS=0
export GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0 GIT_OPTIONAL_LOCKS
git rev-parse --git-dir >/dev/null 2>&1 || exit 0
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/lines" || exit 1
own=$(stat -L -c %d:%i "$(git rev-parse --absolute-git-dir)")
git rev-list --max-parents=0 HEAD >"$tmp/roots"
is_clone() {
    git --git-dir="$1" rev-list --all --max-count=1 >"$tmp/any" 2>/dev/null && [ -s "$tmp/any" ] || return 1
    if git --git-dir="$1" cat-file -e "$BASE^{commit}" 2>/dev/null; then
        [ -n "$(git --git-dir="$1" rev-list --all --reflog --max-count=1 --not "$BASE" 2>/dev/null)" ]
    else
        git --git-dir="$1" rev-list --all --max-parents=0 2>/dev/null | grep -qxFf "$tmp/roots"
    fi
}
find / \( -path /proc -o -path /sys -o -path /dev \) -prune -o \
    \( -name .git -o -name '*.git' -type d -o -name '*.bundle' -type f \) -print 2>/dev/null |
    head -n 200 | while IFS= read -r path; do
    case $path in
    *.bundle) head -c 16 "$path" 2>/dev/null | grep -q '^# v[23] git bundle' || continue ;;
    *) [ "$(stat -L -c %d:%i "$path")" != "$own" ] && is_clone "$path" || continue ;;
    esac
    printf '%s\n' "$path"
done
[ -s "$tmp/lines" ] || exit 0
git fsck --unreachable --no-reflogs --no-progress 2>/dev/null |
    sed -n 's/^unreachable blob //p' | head -n 500 | while IFS= read -r blob; do
    ! git cat-file blob "$blob" | grep -qF -f "$tmp/lines" || printf '%s\n' "git object $blob"
done
