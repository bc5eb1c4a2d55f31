# Check out $BASE (empty: HEAD) in the repository of the current folder and remove later history.
# Prints the commit to work on. POSIX sh, git >= 2.20.
set -eu
command -v git >/dev/null 2>&1 || exit 61

# The folder may belong to another user. Git before 2.38 reads only the global safe.directory.
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
export GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0
# A replacement would make another history of the base's.
GIT_NO_REPLACE_OBJECTS=1
export GIT_NO_REPLACE_OBJECTS
git config --global --get-all safe.directory 2>/dev/null | grep -qxF "$PWD" ||
    git config --global --add safe.directory "$PWD" 2>/dev/null || true
dir=$(git rev-parse --git-dir 2>/dev/null) || exit 62
head=$(git rev-parse --verify --quiet 'HEAD^{commit}') || exit 63
# Where the history was squashed to one commit, that one is the base, under another id.
sha=$(git rev-parse --verify --quiet "${BASE:-HEAD}^{commit}") ||
    { ! git cat-file commit HEAD | sed '/^$/q' | grep -q '^parent ' && sha=$head; } || exit 63

# One commit of an image builder (SWE-bench's, or ours below) on top of the base belongs to it.
if [ "$head" != "$sha" ] && [ "$(git rev-parse --quiet --verify 'HEAD^' || true)" = "$sha" ]; then
    case $(git show -s --format=%ce HEAD) in
        setup@swebench.config | image@localhost) sha=$head ;;
    esac
fi
[ "$head" = "$sha" ] || git -c core.hooksPath=/dev/null checkout --quiet --force --detach "$sha"

# Remove later history: remotes, every ref outside the base's history, reflogs.
changed=
for remote in $(git remote); do
    git remote remove "$remote"
    changed=yes
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
git for-each-ref --format='%(refname)' >"$tmp/all"
git for-each-ref --merged="$sha" --format='%(refname)' >"$tmp/past"
grep -vxFf "$tmp/past" "$tmp/all" >"$tmp/future" || true
if [ -s "$tmp/future" ]; then
    sed 's/^/delete /' "$tmp/future" | git update-ref --no-deref --stdin
    changed=yes
fi
for name in FETCH_HEAD ORIG_HEAD MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD REBASE_HEAD AUTO_MERGE \
    BISECT_HEAD BISECT_LOG rebase-merge rebase-apply sequencer; do
    rm -rf "$dir/$name"
done
if [ -d "$dir/worktrees" ]; then
    # Other working folders of this repository, at commits of their own.
    rm -rf "$dir/worktrees"
    changed=yes
fi
if [ -s "$dir/objects/info/alternates" ]; then
    # A repository from which objects are borrowed has later ones, too.
    git repack -a -d --quiet
    rm -f "$dir/objects/info/alternates"
    changed=yes
fi
git reflog expire --expire=now --expire-unreachable=now --all

# Repacking is slow, so only where there are commits outside the base's history.
commits=$(git cat-file --batch-all-objects --batch-check='%(objecttype)' | grep -cx commit || true)
if [ -n "$changed" ] || [ "$commits" != "$(git rev-list --count "$sha")" ]; then
    git -c gc.autoDetach=false gc --quiet --prune=now
fi
[ -z "$(git rev-list --max-count=1 --all --reflog --not "$sha")" ] || exit 64

# The agent may commit; files that Python leaves behind are not changes.
git config user.name >/dev/null || git config user.name agent
git config user.email >/dev/null || git config user.email agent@localhost
mkdir -p "$dir/info"
grep -qsxF '__pycache__/' "$dir/info/exclude" ||
    printf '%s\n' '__pycache__/' '*.py[co]' '.pytest_cache/' >>"$dir/info/exclude"

# Uncommitted changes of the image's working tree belong to the base.
if [ -n "$(git status --porcelain --ignore-submodules=all | head -n 1)" ]; then
    GIT_AUTHOR_DATE=$(git show -s --format=%cI "$sha") && GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
    GIT_AUTHOR_NAME=image GIT_AUTHOR_EMAIL=image@localhost
    GIT_COMMITTER_NAME=image GIT_COMMITTER_EMAIL=image@localhost
    export GIT_AUTHOR_DATE GIT_COMMITTER_DATE GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL
    export GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL
    git add --all --ignore-errors 2>/dev/null || true
    git -c core.hooksPath=/dev/null -c commit.gpgSign=false commit --quiet --no-verify \
        --allow-empty --message='The state of the image'
    git reflog expire --expire=now --all
fi

# Loose objects that no commit needs: of a dropped stash, of a file that was staged once.
if [ -d "$dir/objects" ]; then
    (cd "$dir/objects" && find . -type f -path './??/*' | tr -d ./ | sort) >"$tmp/loose"
    if [ -s "$tmp/loose" ] && git rev-list --objects --unpacked HEAD >"$tmp/objects"; then
        cut -d' ' -f1 "$tmp/objects" | sort >"$tmp/needed"
        comm -23 "$tmp/loose" "$tmp/needed" | while IFS= read -r id; do
            rest=${id#??}
            rm -f "$dir/objects/${id%"$rest"}/$rest"
        done
    fi
fi
git rev-parse HEAD
