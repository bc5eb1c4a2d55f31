// Bring the sandbox's files to the state that a delta describes. The delta is as untrusted as the
// files it was made from: every length is checked, and no path is followed through a link, out of
// its tree or into another mount.
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char TEMPORARY[] = ".swe-rollout.restored";

struct meta {
    uint32_t mode, user, group;
    struct timespec mtime;
};
struct level {
    int fd;
    struct meta meta;       // as it is to be when it is left
    uint64_t device;
    char name[MOST_NAME + 1];
};

static const char *start, *at, *end;
static struct level levels[MOST_DEPTH + 1];
static int depth = -1;      // of the folder that is entered; 0 is the tree itself
static const struct tree *tree;

// --- errors: which path, and why ------------------------------------------------------------------

static void say(const char *text) {
    ssize_t ignored = write(2, text, strlen(text));
    (void)ignored;
}

_Noreturn static void fail(const char *name, int code) {
    say(tree ? tree->label : "");
    for (int i = 1; i <= depth; i++) {
        say("/");
        say(levels[i].name);
    }
    say(*name ? "/" : "");
    say(name);
    say(": ");
    say(strerror(code));
    _exit(code);
}

_Noreturn static void damaged(void) {
    char text[64];
    snprintf(text, sizeof text, "the delta is damaged at byte %zu", (size_t)(at - start));
    say(text);
    _exit(EBADMSG);
}

// --- reading the delta ----------------------------------------------------------------------------

static const char *take(size_t size) {
    if ((size_t)(end - at) < size)
        damaged();
    const char *taken = at;
    at += size;
    return taken;
}

static uint64_t take64(void) { return get64(take(8)); }
static uint32_t take32(void) { return get32(take(4)); }

// Text that ends with NUL; `most` is the longest, without it.
static size_t take_text(char *text, size_t length, size_t most) {
    if (length > most)
        damaged();
    const char *from = take(length);
    if (memchr(from, 0, length))
        damaged();
    memcpy(text, from, length);
    text[length] = 0;
    return length;
}

static size_t take_short(char *text, size_t most) {
    const unsigned char *size = (const unsigned char *)take(2);
    return take_text(text, size[0] | (size_t)size[1] << 8, most);
}

static bool is_name(const char *name, size_t length) {
    return length && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..") &&
           !is_own(name, length);
}

static void take_name(char *name) {
    if (!is_name(name, take_short(name, MOST_NAME)))
        damaged();
}

static struct meta take_meta(void) {
    struct meta meta = {0};
    meta.mode = take32();
    meta.user = take32();
    meta.group = take32();
    meta.mtime.tv_nsec = take32();
    meta.mtime.tv_sec = (int64_t)take64();
    if (meta.mode & ~07777u || meta.mtime.tv_nsec >= 1000000000)
        damaged();
    return meta;
}

static struct level *here(void) {
    if (depth < 0)
        damaged();
    return &levels[depth];
}

// --- files ----------------------------------------------------------------------------------------

static void remove_name(int folder, const char *name, int deep);

static void empty_folder(int fd, const uint64_t *wanted, int64_t count, int deep);

// The folder's own rights may be in the way; its owner may change them.
static int enter_folder(int parent, const char *name, const struct statx *found) {
    int fd = open_folder(parent, name);
    if (fd < 0 && errno == EACCES && !fchmodat(parent, name, (found->stx_mode & 07777) | 0700, 0))
        fd = open_folder(parent, name);
    else if (fd >= 0 && (found->stx_mode & 0700) != 0700)
        fchmod(fd, (found->stx_mode & 07777) | 0700);
    return fd;
}

static void remove_name(int folder, const char *name, int deep) {
    struct statx found, parent;
    if (look(folder, name, &found)) {
        if (errno == ENOENT)
            return;
        fail(name, errno);
    }
    if (look(folder, "", &parent))
        fail(name, errno);
    if (is_mount(&found, device_of(&parent)))
        fail(name, EXDEV);
    if (S_ISDIR(found.stx_mode)) {
        int fd = enter_folder(folder, name, &found);
        if (fd < 0 || deep > MOST_DEPTH)
            fail(name, fd < 0 ? errno : ELOOP);
        empty_folder(fd, NULL, 0, deep + 1);
        close(fd);
    }
    if (unlinkat(folder, name, S_ISDIR(found.stx_mode) ? AT_REMOVEDIR : 0) && errno != ENOENT)
        fail(name, errno);
}

static int by_value(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

// Remove all names but those whose hashes are wanted, and mounts.
static void empty_folder(int fd, const uint64_t *wanted, int64_t count, int deep) {
    struct bytes names = {0};
    if (folder_names(fd, &names) < 0)
        fail("", errno);
    for (size_t from = 0; from < names.size;) {
        char name[MOST_NAME + 1];
        const unsigned char *size = (const unsigned char *)names.data + from;
        size_t length = size[0] | (size_t)size[1] << 8;
        if (length > MOST_NAME)
            fail("", ENAMETOOLONG);
        memcpy(name, names.data + from + 2, length);
        name[length] = 0;
        from += 2 + length;
        uint64_t hash = hash_of(2, name, length);
        struct statx found;
        bool is_wanted = count && bsearch(&hash, wanted, (size_t)count, sizeof hash, by_value);
        if (!is_wanted && !(wanted && !look(fd, name, &found) && is_mount(&found, levels[0].device)))
            remove_name(fd, name, deep);
    }
    bytes_free(&names);
}

// The name under which a new file is made; what is there is gone only when the file is whole.
static void replace(const char *name) {
    int folder = here()->fd;
    if (!renameat(folder, TEMPORARY, folder, name)) {
        unlinkat(folder, TEMPORARY, 0); // still there where both are names of one file
        return;
    }
    if (errno != EISDIR && errno != ENOTEMPTY && errno != EEXIST)
        fail(name, errno);
    remove_name(folder, name, depth);
    if (renameat(folder, TEMPORARY, folder, name))
        fail(name, errno);
}

static bool belongs(const struct meta *meta, const struct statx *found) {
    return meta->user == found->stx_uid && meta->group == found->stx_gid;
}

// Of what has just been made under `TEMPORARY`.
static void set_meta(const char *name, const struct meta *meta, bool is_link) {
    int folder = here()->fd;
    struct statx found;
    struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, meta->mtime};
    if (look(folder, TEMPORARY, &found) ||
        (!belongs(meta, &found) &&
         fchownat(folder, TEMPORARY, meta->user, meta->group, AT_SYMLINK_NOFOLLOW)) ||
        (!is_link && fchmodat(folder, TEMPORARY, meta->mode, 0)) ||
        utimensat(folder, TEMPORARY, times, AT_SYMLINK_NOFOLLOW))
        fail(name, errno);
}

static void restore_file(const char *name) {
    struct meta meta = take_meta();
    uint64_t size = take64();
    int folder = here()->fd;
    int fd = openat(folder, TEMPORARY, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        fail(name, errno);
    if (size > INT64_MAX || ftruncate(fd, (off_t)size))
        fail(name, size > INT64_MAX ? EBADMSG : errno);
    for (;;) {
        uint64_t offset = take64();
        uint32_t length = take32();
        if (!length) {
            close(fd);
            if (offset > 1)
                damaged();
            if (offset) {
                unlinkat(folder, TEMPORARY, 0);
                remove_name(folder, name, depth);
                return;
            }
            break;
        }
        if (offset > size || length > size - offset)
            damaged();
        for (const char *from = take(length); length;) {
            ssize_t count = pwrite(fd, from, length, (off_t)offset);
            if (count < 0 && errno != EINTR)
                fail(name, errno);
            from += count > 0 ? count : 0;
            offset += count > 0 ? (uint64_t)count : 0;
            length -= count > 0 ? (uint32_t)count : 0;
        }
    }
    set_meta(name, &meta, false);
    replace(name);
}

static void restore_symlink(const char *name) {
    char target[MOST_TARGET + 1];
    struct meta meta = take_meta();
    if (!take_short(target, MOST_TARGET))
        damaged();
    if (symlinkat(target, here()->fd, TEMPORARY))
        fail(name, errno);
    set_meta(name, &meta, true);
    replace(name);
}

static void restore_fifo(const char *name) {
    struct meta meta = take_meta();
    if (mknodat(here()->fd, TEMPORARY, S_IFIFO | 0600, 0))
        fail(name, errno);
    set_meta(name, &meta, false);
    replace(name);
}

// The path of a name that came before, folder by folder.
static void restore_hard_link(const char *name) {
    static char path[MOST_PATH + 1];
    if (!take_text(path, take32(), MOST_PATH))
        damaged();
    int folder = dup(levels[0].fd);
    char *part = path, *slash;
    for (; (slash = strchr(part, '/')); part = slash + 1) {
        *slash = 0;
        struct statx found;
        if (!is_name(part, strlen(part)))
            damaged();
        int next = open_folder(folder, part);
        if (next < 0 || look(next, "", &found) || is_mount(&found, levels[0].device))
            fail(name, next < 0 ? errno : EXDEV);
        close(folder);
        folder = next;
    }
    if (!is_name(part, strlen(part)))
        damaged();
    if (linkat(folder, part, here()->fd, TEMPORARY, 0))
        fail(name, errno);
    close(folder);
    replace(name);
}

// --- folders --------------------------------------------------------------------------------------

static void push(int fd, const char *name, const struct statx *found) {
    struct level *level = &levels[++depth];
    level->fd = fd;
    level->device = device_of(found);
    level->meta = (struct meta){found->stx_mode & 07777, found->stx_uid, found->stx_gid,
                                {.tv_sec = found->stx_mtime.tv_sec,
                                 .tv_nsec = found->stx_mtime.tv_nsec}};
    strcpy(level->name, name);
    // A restoration that was ended has left it.
    unlinkat(fd, TEMPORARY, 0);
}

static void leave(void) {
    struct level *level = here();
    struct statx found;
    struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, level->meta.mtime};
    if (look(level->fd, "", &found) ||
        (!belongs(&level->meta, &found) &&
         fchown(level->fd, level->meta.user, level->meta.group)) ||
        look(level->fd, "", &found) ||
        ((found.stx_mode & 07777) != level->meta.mode && fchmod(level->fd, level->meta.mode)))
        fail("", errno);
    // Others may own a folder that one may write to; then its time can't be set.
    if (futimens(level->fd, times) && errno != EPERM)
        fail("", errno);
    close(level->fd);
    depth--;
}

static void begin_tree(const struct trees *trees) {
    char label[4096];
    struct statx found;
    take_short(label, sizeof label - 1);
    while (depth >= 0)
        leave();
    tree = NULL;
    for (int i = 0; i < trees->count; i++)
        if (!strcmp(trees->list[i].label, label))
            tree = &trees->list[i];
    int fd = tree ? open_tree(tree, &found) : -1;
    if (fd < 0) {
        say(label);
        say(": the sandbox has no such folder that it may write to");
        _exit(ENOENT);
    }
    push(fd, "", &found);
}

static void restore_folder(const char *name, bool may_make) {
    struct level *parent = here();
    struct statx found;
    if (depth == MOST_DEPTH)
        damaged();
    bool is_there = !look(parent->fd, name, &found);
    if (may_make && is_there && !S_ISDIR(found.stx_mode))
        remove_name(parent->fd, name, depth);
    if (may_make && (!is_there || !S_ISDIR(found.stx_mode)) &&
        (mkdirat(parent->fd, name, 0700) || look(parent->fd, name, &found)))
        fail(name, errno);
    if (!may_make && (!is_there || !S_ISDIR(found.stx_mode)))
        fail(name, is_there ? ENOTDIR : ENOENT);
    if (is_mount(&found, parent->device))
        fail(name, EXDEV);
    int fd = enter_folder(parent->fd, name, &found);
    if (fd < 0)
        fail(name, errno);
    push(fd, name, &found);
}

static void restore_listing(void) {
    struct level *level = here();
    char name[MOST_NAME + 1];
    level->meta = take_meta();
    uint32_t count = take32();
    if (count == (uint32_t)UNLISTED)
        return;
    if (count > MOST_FILES || (size_t)(end - at) / 2 < count)
        damaged();
    uint64_t *hashes = malloc((count + 1) * sizeof *hashes);
    if (!hashes)
        fail("", ENOMEM);
    for (uint32_t i = 0; i < count; i++) {
        size_t length = take_short(name, MOST_NAME);
        hashes[i] = hash_of(2, name, length);
    }
    qsort(hashes, count, sizeof *hashes, by_value);
    empty_folder(level->fd, hashes, count, depth);
    free(hashes);
}

void child_restore(const struct bytes *delta, char *const *words) {
    static struct trees trees;
    char name[MOST_NAME + 1];
    signal(SIGXFSZ, SIG_IGN);
    umask(0);
    hash_start();
    find_trees(&trees, words);
    start = at = delta->data;
    end = at + delta->size;
    for (;;) {
        enum record kind = (unsigned char)*take(1);
        switch (kind) {
        case ENTER:
        case FOLDER:
        case REGULAR:
        case SYMLINK:
        case FIFO:
        case HARD_LINK:
        case GONE: here(), take_name(name); break;
        default: break;
        }
        switch (kind) {
        case TREE: begin_tree(&trees); break;
        case ENTER: restore_folder(name, false); break;
        case FOLDER: restore_folder(name, true); break;
        case LISTING: restore_listing(); break;
        case LEAVE:
            if (depth < 1)
                damaged();
            leave();
            break;
        case REGULAR: restore_file(name); break;
        case SYMLINK: restore_symlink(name); break;
        case FIFO: restore_fifo(name); break;
        case HARD_LINK: restore_hard_link(name); break;
        case GONE: remove_name(here()->fd, name, depth); break;
        case END:
            while (depth >= 0)
                leave();
            if (at != end)
                damaged();
            _exit(0);
        default: at--, damaged();
        }
    }
}
