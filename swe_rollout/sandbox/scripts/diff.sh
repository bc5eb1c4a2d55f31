# Print the diff of the working tree against $BASE. Standard input: further git attributes.
#
# An agent could edit the repository: its configuration, hooks, index, attributes and excludes are
# not used. A git directory of our own borrows its objects, and every file is read again.
set -eu
top=$PWD
while [ ! -e "$top/.git" ]; do
    [ "$top" != / ] || { echo 'the repository is gone: there is no .git' >&2; exit 1; }
    top=$(dirname "$top")
done
cd "$top"
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_EXTERNAL_DIFF GIT_DIFF_OPTS GIT_CONFIG_COUNT \
    GIT_CONFIG_PARAMETERS GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if [ -d .git ]; then
    objects=$top/.git/objects
else
    # A worktree or submodule. Git itself would read the configuration that lies there.
    [ -f .git ] && folder=$(sed -n 's/^gitdir: //p' .git | head -n 1) && cd "$folder" || exit 1
    if [ -f commondir ]; then cd "$(cat commondir)"; fi
    objects=$PWD/objects
    cd "$top"
fi
# Git waits for ever for a pipe that has no writer. Folders may be locked; they are ours to open.
remove_special() { find "$@" \( -type p -o -type s -o -type b -o -type c \) -exec rm -f -- {} +; }
remove_special "$top" 2>/dev/null || { chmod -R u+rwX "$top" && remove_special "$top"; } || true
remove_special -L "$objects" -maxdepth 2 || true
HOME=$tmp XDG_CONFIG_HOME=$tmp GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null LC_ALL=C
GIT_ATTR_NOSYSTEM=1 GIT_NO_REPLACE_OBJECTS=1
export HOME XDG_CONFIG_HOME GIT_CONFIG_NOSYSTEM GIT_CONFIG_GLOBAL LC_ALL
export GIT_ATTR_NOSYSTEM GIT_NO_REPLACE_OBJECTS

set --
[ ${#BASE} -ne 64 ] || set -- --object-format=sha256
git init --quiet --template= "$@" "$tmp/git"
GIT_DIR=$tmp/git/.git GIT_WORK_TREE=$top
export GIT_DIR GIT_WORK_TREE
mkdir -p "$GIT_DIR/info" "$GIT_DIR/objects/info"
# Objects alone are borrowed: what else lies there may name other folders, or never end.
mkdir -p "$tmp/objects"
ln -s "$objects"/?? "$objects/pack" "$tmp/objects"
printf '%s\n' "$tmp/objects" >"$GIT_DIR/objects/info/alternates"
git cat-file -e "$BASE^{tree}" 2>/dev/null || {
    echo 'the repository no longer has its base commit: .git was removed or made anew' >&2
    exit 1
}
printf '%s\n' '__pycache__/' '*.py[co]' '.pytest_cache/' >"$GIT_DIR/info/exclude"
{
    # Git decides from the content whether a file is binary, not attributes in the tree.
    echo '* !diff'
    cat
} >"$GIT_DIR/info/attributes"

git read-tree "$BASE"
# Files with holes cost nothing to make and hours to read.
find . -name .git -prune -o -type f -size "+$((MAX_BYTES / 512))" -exec sh -euc '
    for file; do
        if git check-ignore --quiet -- "$file"; then continue; fi
        was=$(git cat-file -s "$BASE:${file#./}" 2>/dev/null) || was=none
        [ "$(stat -c %s -- "$file")" = "$was" ] && continue
        echo "$file is larger than $((MAX_BYTES >> 20)) MiB" >&2
        exit 1
    done' sh {} +
if ! git -c advice.addEmbeddedRepo=false add --all . 2>"$tmp/error"; then
    # A nested repository without a commit stops git; leave such folders out.
    find . -mindepth 2 -name .git -prune -print | while IFS= read -r nested; do
        nested=$(dirname "${nested#.}")
        printf '%s/\n' "$nested" | sed 's/[][*?\\ ]/\\&/g'
    done >>"$GIT_DIR/info/exclude"
    git -c advice.addEmbeddedRepo=false add --all .
fi
git diff --cached --binary --full-index --find-renames --no-color --no-ext-diff --no-textconv \
    --ignore-submodules=all --src-prefix=a/ --dst-prefix=b/ --unified=3 "$BASE" --
