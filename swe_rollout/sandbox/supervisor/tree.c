// What the walk over a sandbox's files and their restoration share: which trees belong to the
// sandbox, the names in a folder, and hashes.
#include "supervisor.h"

#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x2000
#endif

// --- hashes -------------------------------------------------------------------------------------

static uint64_t hash_key[2]; // the policy must not be able to choose names that collide

void hash_start(void) {
    while (!hash_key[0] && getrandom(hash_key, sizeof hash_key, 0) < 0 && errno == EINTR)
        ;
}

static uint64_t turned(uint64_t value, int by) { return value << by | value >> (64 - by); }

static void siphash_round(uint64_t v[4]) {
    v[0] += v[1], v[1] = turned(v[1], 13) ^ v[0], v[0] = turned(v[0], 32);
    v[2] += v[3], v[3] = turned(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = turned(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = turned(v[1], 17) ^ v[2], v[2] = turned(v[2], 32);
}

// SipHash-2-4.
uint64_t hash_of(uint64_t seed, const void *data, size_t size) {
    uint64_t low = hash_key[0] ^ seed, high = hash_key[1];
    uint64_t v[4] = {low ^ 0x736f6d6570736575, high ^ 0x646f72616e646f6d,
                     low ^ 0x6c7967656e657261, high ^ 0x7465646279746573};
    const char *at = data;
    for (size_t left = size;; left -= 8, at += 8) {
        uint64_t word = (uint64_t)size << 56;
        memcpy(&word, at, left < 8 ? left : 8);
        v[3] ^= word;
        siphash_round(v), siphash_round(v);
        v[0] ^= word;
        if (left < 8)
            break;
    }
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        siphash_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

// --- folders ------------------------------------------------------------------------------------

struct entry64 { // as the kernel writes it
    uint64_t ino, off;
    uint16_t length;
    unsigned char type;
    char name[];
};

// The names in a folder, each with its length (2) before it, and their number. Leaves out those of
// the supervisor itself. -1 with errno.
int64_t folder_names(int fd, struct bytes *names) {
    _Alignas(8) char room[1 << 15];
    int64_t count = 0;
    for (;;) {
        long size = syscall(SYS_getdents64, fd, room, sizeof room);
        if (size < 0 && errno == EINTR)
            continue;
        if (size <= 0)
            return size ? -1 : count;
        for (char *at = room; at < room + size; at += ((struct entry64 *)at)->length) {
            const char *name = ((struct entry64 *)at)->name;
            size_t length = strlen(name);
            if (!strcmp(name, ".") || !strcmp(name, "..") || is_own(name, length))
                continue;
            char prefix[2] = {(char)length, (char)(length >> 8)};
            if (count++ == MOST_FILES || !bytes_add(names, prefix, 2) ||
                !bytes_add(names, name, length)) {
                errno = EFBIG;
                return -1;
            }
        }
    }
}

bool is_own(const char *name, size_t length) {
    static const char OWN[] = ".swe-rollout";
    return length >= sizeof OWN - 1 && !memcmp(name, OWN, sizeof OWN - 1) &&
           (length == sizeof OWN - 1 || name[sizeof OWN - 1] == '.');
}

// Whether another file system, or another view of one, begins here.
bool is_mount(const struct statx *found, uint64_t parent_device) {
    if (found->stx_attributes_mask & STATX_ATTR_MOUNT_ROOT)
        return found->stx_attributes & STATX_ATTR_MOUNT_ROOT;
    return S_ISDIR(found->stx_mode) && device_of(found) != parent_device;
}

uint64_t device_of(const struct statx *found) {
    return (uint64_t)found->stx_dev_major << 32 | found->stx_dev_minor;
}

int look(int folder, const char *name, struct statx *found) {
    int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (*name ? 0 : AT_EMPTY_PATH);
    return statx(folder, name, flags, STATX_BASIC_STATS, found);
}

int open_folder(int parent, const char *name) {
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

// --- the trees of the sandbox -------------------------------------------------------------------

// Kernel interfaces, and file systems that other machines write too.
static bool is_foreign(const char *type) {
    static const char *const FOREIGN[] = {
        "proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "securityfs", "bpf",
        "debugfs", "tracefs", "configfs", "pstore", "hugetlbfs", "fusectl", "binfmt_misc", "autofs",
        "nsfs", "nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "iso9660",
        "squashfs", "efivarfs", "rpc_pipefs",
    };
    for (size_t i = 0; i < sizeof FOREIGN / sizeof *FOREIGN; i++)
        if (!strcmp(type, FOREIGN[i]))
            return true;
    return !strncmp(type, "fuse.", 5);
}

// Undo the octal escapes of mountinfo.
static void unescape(char *text) {
    char *to = text;
    for (const char *at = text; *at; at++) {
        bool is_escape = *at == '\\' && at[1] >= '0' && at[1] < '4' && at[2] && at[3];
        *to++ = is_escape ? (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + at[3] - '0') : *at;
        at += is_escape ? 3 : 0;
    }
    *to = 0;
}

static bool has_option(const char *options, const char *wanted) {
    size_t length = strlen(wanted);
    for (const char *at = options; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, wanted, length) && (at[length] == ',' || !at[length]))
            return true;
    }
    return false;
}

static char *next_word(char **line) {
    char *word = *line, *end = word + strcspn(word, " \n");
    *line = *end ? end + 1 : end;
    *end = 0;
    return word;
}

// ID, parent, device, root, PATH, OPTIONS, further fields, "-", TYPE, source, ALL OPTIONS
static void take_mount(struct trees *trees, char *line) {
    char *rest = strstr(line, " - ");
    if (!rest)
        return;
    rest += 3;
    for (int i = 0; i < 4; i++)
        next_word(&line);
    char *path = next_word(&line), *options = next_word(&line), *type = next_word(&rest);
    next_word(&rest);
    char *all = next_word(&rest);
    unescape(path);
    for (int i = 0; i < trees->count; i++) // what is mounted over another hides it
        if (!strcmp(trees->list[i].path, path)) {
            free(trees->list[i].path);
            trees->list[i] = trees->list[--trees->count];
            break;
        }
    bool is_device = !strcmp(path, "/dev") ||
                     (!strncmp(path, "/dev/", 5) && strcmp(path, "/dev/shm"));
    if (is_foreign(type) || is_device || has_option(options, "ro") || has_option(all, "ro") ||
        trees->count == MOST_TREES)
        return;
    char *kept = strdup(path);
    if (kept)
        trees->list[trees->count++] = (struct tree){.label = kept, .path = kept};
}

// Every writable mount but those of devices and kernel interfaces.
static void find_mounts(struct trees *trees) {
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char *line = NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0)
        take_mount(trees, line);
    free(line);
    if (file)
        fclose(file);
}

// From pairs of words; without any, from the mounts.
void find_trees(struct trees *trees, char *const *words) {
    *trees = (struct trees){0};
    if (!*words)
        find_mounts(trees);
    for (; words[0] && words[1] && trees->count < MOST_TREES; words += 2)
        trees->list[trees->count++] = (struct tree){.label = words[0], .path = words[1]};
}

// A folder, or -1: mounts of single files belong to whoever made them.
int open_tree(const struct tree *tree, struct statx *found) {
    int fd = open_folder(AT_FDCWD, tree->path);
    if (fd >= 0 && look(fd, "", found)) {
        close(fd);
        return -1;
    }
    return fd;
}
