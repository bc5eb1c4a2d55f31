// The walk over the sandbox's files: records a moment, and sends what differs from the one before.
// Names are not remembered, so a folder whose names may have changed is sent with all of them.
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_UNSAVED = 256, MOST_PROCESSES = 64, SAID_BYTES = 1024, LINK_SLOTS = 1 << 16 };

static const char CHANGED[] = "it changed while it was read", TOO_LARGE[] = "it is too large",
                  FULL[] = "the delta is full";

// --- what is sent -------------------------------------------------------------------------------

static uint64_t most_file, most_delta, emitted_bytes, emitted_files;
static char buffer[PIPE_BYTES];
static size_t buffered;
static struct bytes unsaved;
static uint32_t unsaved_count;

static void write_out(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t count = write(fd, data, size);
        if (count < 0 && errno != EINTR)
            _exit(EPIPE);
        data += count > 0 ? count : 0;
        size -= count > 0 ? (size_t)count : 0;
    }
}

static void emit(const void *data, size_t size) {
    if (buffered + size > sizeof buffer) {
        write_out(1, buffer, buffered);
        buffered = 0;
    }
    if (size > sizeof buffer)
        write_out(1, data, size);
    else if (size)
        memcpy(buffer + buffered, data, size);
    buffered += size > sizeof buffer ? 0 : size;
    emitted_bytes += size;
}

static void emit8(char value) { emit(&value, 1); }
static void emit32(uint32_t value) { emit(&value, sizeof value); }
static void emit64(uint64_t value) { emit(&value, sizeof value); }

static void emit_name(enum record kind, const char *name, size_t length) {
    char prefix[3] = {(char)kind, (char)length, (char)(length >> 8)};
    emit(prefix, sizeof prefix);
    emit(name, length);
}

static void emit_meta(const struct statx *found) {
    emit32(found->stx_mode & 07777);
    emit32(found->stx_uid);
    emit32(found->stx_gid);
    emit32(found->stx_mtime.tv_nsec);
    emit64((uint64_t)found->stx_mtime.tv_sec);
}

// --- where the walk is --------------------------------------------------------------------------

static const struct tree *tree;
static char path[MOST_PATH + MOST_NAME + 2]; // in the tree, from its folder on
static size_t path_length, starts[MOST_DEPTH + 1];
static int depth, entered; // folders that are open, and how many of them the delta has entered

static void report(const char *name, const char *why) {
    unsaved_count++;
    if (unsaved_count > MOST_UNSAVED)
        return;
    char said[SAID_BYTES];
    const char *top = strcmp(tree->label, "/") ? tree->label : "";
    // A long path keeps its end.
    size_t skipped = path_length > SAID_BYTES / 2 ? path_length - SAID_BYTES / 2 : 0;
    int size = snprintf(said, sizeof said, "%s%s%.*s%s%s: %s", top, skipped ? "/..." : "",
                        (int)(path_length - skipped), path + skipped, *name ? "/" : "", name, why);
    size = size < (int)sizeof said ? size : (int)sizeof said - 1;
    bytes_add(&unsaved, said, (size_t)size + 1);
}

// The delta enters folders when there is something to say of what is in them.
static void enter(void) {
    if (entered < 0) {
        emit_name(TREE, tree->label, strlen(tree->label));
        entered = 0;
    }
    for (; entered < depth; entered++) {
        size_t end = entered + 1 < depth ? starts[entered + 1] : path_length;
        emit_name(ENTER, path + starts[entered] + 1, end - starts[entered] - 1);
    }
}

static void leave(void) {
    if (entered == depth) {
        emit8(LEAVE);
        entered--;
    }
    path_length = starts[--depth];
}

// --- one path -----------------------------------------------------------------------------------

// Files that have more than one name and were sent; in one tree.
static struct link {
    uint64_t device, inode;
    char *path;
    bool lost;
} *links;
static int link_count;

// The link of a file that has other names; `path` is NULL where this is the first one, or NULL.
static struct link *link_of(const struct statx *found) {
    if (found->stx_nlink < 2 || (!links && !(links = calloc(LINK_SLOTS, sizeof *links))))
        return NULL;
    uint64_t device = device_of(found);
    uint64_t at = hash_of(device, &found->stx_ino, sizeof found->stx_ino) % LINK_SLOTS;
    while (links[at].path && (links[at].inode != found->stx_ino || links[at].device != device))
        at = (at + 1) % LINK_SLOTS;
    return &links[at];
}

static void remember_link(struct link *link, const struct statx *found, const char *name, bool lost) {
    char *whole = NULL;
    if (link_count < LINK_SLOTS / 2 && asprintf(&whole, "%.*s/%s", (int)path_length, path, name) > 0) {
        *link = (struct link){device_of(found), found->stx_ino, whole, lost};
        link_count++;
    }
}

static void forget_links(void) {
    for (int i = 0; links && i < LINK_SLOTS; i++)
        free(links[i].path);
    free(links);
    links = NULL;
    link_count = 0;
}

static void lose(const char *name, size_t length, const char *why) {
    report(name, why);
    enter();
    emit_name(GONE, name, length);
}

// Send what a file holds, up to the size it had; returns why that failed.
static const char *emit_content(int fd, const struct statx *found) {
    static char room[PIPE_BYTES];
    bool is_sparse = found->stx_blocks * 512 < found->stx_size;
    uint64_t at = 0, end = found->stx_size, sent = 0;
    while (at < end) {
        off_t data = is_sparse ? lseek(fd, (off_t)at, SEEK_DATA) : (off_t)at;
        if (data < 0 && errno == ENXIO)
            return NULL;
        off_t hole = data >= 0 && is_sparse ? lseek(fd, data, SEEK_HOLE) : (off_t)end;
        if (data < (off_t)at || hole <= data)
            return CHANGED;
        uint64_t stop = (uint64_t)hole < end ? (uint64_t)hole : end;
        for (at = (uint64_t)data; at < stop;) {
            uint64_t wanted = stop - at < sizeof room ? stop - at : sizeof room;
            ssize_t count = pread(fd, room, (size_t)wanted, (off_t)at);
            if (count < 0 && errno == EINTR)
                continue;
            if (count < 0)
                return strerror(errno);
            if (!count)
                return NULL; // it has become shorter
            if ((sent += (uint64_t)count) > most_file)
                return TOO_LARGE;
            if (emitted_bytes + (uint64_t)count > most_delta)
                return FULL;
            emit64(at);
            emit32((uint32_t)count);
            emit(room, (size_t)count);
            at += (uint64_t)count;
        }
    }
    return NULL;
}

static void emit_file(int folder, const char *name, size_t length, const struct statx *found) {
    uint64_t blocks = found->stx_blocks * 512;
    uint64_t size = blocks && blocks < found->stx_size ? 0 : found->stx_size;
    struct link *link = link_of(found);
    if (link && link->path && !link->lost) {
        enter();
        emit_name(HARD_LINK, name, length);
        emit32((uint32_t)strlen(link->path) - 1);
        emit(link->path + 1, strlen(link->path) - 1);
        return;
    }
    if (size > most_file || emitted_bytes + size > most_delta || (link && link->path)) {
        lose(name, length, size > most_file ? TOO_LARGE : FULL);
        return;
    }
    // Never blocks, should a fifo have taken its place.
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct statx opened, after;
    bool is_file = fd >= 0 && !look(fd, "", &opened) && S_ISREG(opened.stx_mode);
    const char *problem = fd < 0 ? strerror(errno) : is_file ? NULL : CHANGED;
    if (problem) {
        lose(name, length, problem);
    } else {
        enter();
        emit_name(REGULAR, name, length);
        emit_meta(&opened);
        emit64(opened.stx_size);
        problem = emit_content(fd, &opened);
        emit64(problem != NULL);
        emit32(0);
        bool is_whole = !problem && !look(fd, "", &after) &&
                        ns(after.stx_ctime) == ns(found->stx_ctime);
        if (!is_whole)
            report(name, problem ? problem : CHANGED);
        if (!is_whole && !problem) // it is sent again the next time
            moment_unsettle();
    }
    if (problem == CHANGED)
        moment_unsettle();
    if (link)
        remember_link(link, found, name, problem != NULL);
    if (fd >= 0)
        close(fd);
}

static void emit_other(int folder, const char *name, size_t length, const struct statx *found) {
    char target[MOST_TARGET + 1];
    ssize_t size;
    switch (found->stx_mode & S_IFMT) {
    case S_IFLNK:
        if ((size = readlinkat(folder, name, target, MOST_TARGET)) < 0) {
            lose(name, length, strerror(errno));
            return;
        }
        enter();
        emit_name(SYMLINK, name, length);
        emit_meta(found);
        char prefix[2] = {(char)size, (char)(size >> 8)};
        emit(prefix, 2);
        emit(target, (size_t)size);
        return;
    case S_IFIFO:
        enter();
        emit_name(FIFO, name, length);
        emit_meta(found);
        return;
    case S_IFSOCK: lose(name, length, "it is a socket"); return;
    default: lose(name, length, "it is a device");
    }
}

// --- the walk -----------------------------------------------------------------------------------

static void walk_folder(int fd, uint64_t id, const struct statx *own, bool differs);

static void visit(int folder, uint64_t parent, uint64_t device, const char *name, size_t length) {
    struct statx found;
    uint64_t id = hash_of(parent, name, length);
    if (look(folder, name, &found)) {
        if (errno != ENOENT)
            report(name, strerror(errno));
        return;
    }
    if (is_mount(&found, device))
        return; // a tree of its own, or none of the sandbox
    bool differs = moment_record(id, &found);
    emitted_files += differs;
    if (!S_ISDIR(found.stx_mode)) {
        if (differs && S_ISREG(found.stx_mode))
            emit_file(folder, name, length, &found);
        else if (differs)
            emit_other(folder, name, length, &found);
        return;
    }
    int fd = -1;
    if (depth == MOST_DEPTH || (fd = open_folder(folder, name)) < 0) {
        const char *why = depth == MOST_DEPTH ? "it is too deep" : strerror(errno);
        if (differs)
            lose(name, length, why);
        return;
    }
    if (differs) {
        enter();
        emit_name(FOLDER, name, length);
    }
    starts[depth++] = path_length;
    path[path_length++] = '/';
    memcpy(path + path_length, name, length);
    path_length += length;
    if (differs)
        entered = depth;
    walk_folder(fd, id, &found, differs);
    leave();
    close(fd);
}

static void walk_folder(int fd, uint64_t id, const struct statx *own, bool differs) {
    struct bytes names = {0};
    int64_t count = folder_names(fd, &names);
    if (count < 0 && errno == EFBIG)
        refuse(EFBIG, "it has too many files");
    if (count < 0 && differs)
        report("", strerror(errno));
    if (differs) {
        enter();
        emit8(LISTING);
        emit_meta(own);
        emit32((uint32_t)(count < 0 ? UNLISTED : count));
        emit(names.data, count < 0 ? 0 : names.size);
    }
    for (size_t at = 0; count > 0 && at < names.size;) {
        char name[MOST_NAME + 1];
        size_t length = (unsigned char)names.data[at] | (size_t)(unsigned char)names.data[at + 1] << 8;
        length = length < sizeof name ? length : sizeof name - 1;
        memcpy(name, names.data + at + 2, length);
        name[length] = 0;
        at += 2 + length;
        visit(fd, id, device_of(own), name, length);
    }
    bytes_free(&names);
}

static void walk_tree(void) {
    struct statx found;
    int fd = open_tree(tree, &found);
    if (fd < 0)
        return;
    uint64_t id = hash_of(0, tree->label, strlen(tree->label));
    bool differs = moment_record(id, &found);
    emitted_files += differs;
    entered = -1;
    depth = 0;
    path_length = 0;
    walk_folder(fd, id, &found, differs);
    forget_links();
    close(fd);
}

// The command lines of all other processes, each as one word; bounded.
static void list_processes(struct bytes *list) {
    DIR *folder = is_init ? opendir("/proc") : NULL;
    int count = 0;
    for (struct dirent *entry; folder && count < MOST_PROCESSES && (entry = readdir(folder));) {
        char file[64], line[SAID_BYTES];
        pid_t pid = atoi(entry->d_name);
        if (pid <= 1 || pid == getpid() || is_relay(pid))
            continue;
        snprintf(file, sizeof file, "/proc/%d/cmdline", (int)pid);
        int fd = open(file, O_RDONLY | O_CLOEXEC);
        ssize_t size = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
        if (fd >= 0)
            close(fd);
        if (size <= 0)
            continue;
        for (ssize_t i = 0; i < size - 1; i++)
            line[i] = line[i] ? line[i] : ' ';
        line[size - (line[size - 1] == 0)] = 0;
        bytes_add(list, line, strlen(line) + 1);
        count++;
    }
    if (folder)
        closedir(folder);
}

// Stderr: numbers of paths that differ and are gone, of paths in all, of unsaved ones and how many
// of them are named (8 each); then these, and the processes, as words.
void child_walk(const struct walk *walk) {
    static struct trees trees;
    signal(SIGPIPE, SIG_DFL);
    most_file = walk->most_file;
    most_delta = walk->most_delta;
    find_trees(&trees, walk->trees);
    moment_walk_begins();
    for (int i = 0; i < trees.count; i++) {
        tree = &trees.list[i];
        walk_tree();
    }
    if (emitted_bytes) {
        emit8(END);
        write_out(1, buffer, buffered);
    }
    uint64_t named = unsaved_count < MOST_UNSAVED ? unsaved_count : MOST_UNSAVED;
    uint64_t values[] = {emitted_files, moment_gone(), moment_paths(), unsaved_count, named};
    write_out(2, (const char *)values, sizeof values);
    write_out(2, unsaved.data, unsaved.size);
    struct bytes processes = {0};
    list_processes(&processes);
    write_out(2, processes.data, processes.size);
    _exit(0);
}
