// What the walk over a sandbox's files and their restoration share.
#pragma once
#include "supervisor.h"

#include <sys/stat.h>

#ifndef MOST_FILES
#define MOST_FILES 2000000
#endif
enum {
    MOST_DEPTH = 256,
    MOST_TREES = 64,
    MOST_NAME = 255,
    MOST_TARGET = 4095,
    MOST_PATH = MOST_DEPTH * (MOST_NAME + 1),
    UNLISTED = -1,              // instead of the number of names: they could not be read
};

struct tree {
    char *label, *path;         // as deltas name it, and where it is
};
struct trees {
    struct tree list[MOST_TREES];
    int count;
};
void find_trees(struct trees *trees, char *const *words);
int open_tree(const struct tree *tree, struct statx *found);

void hash_start(void);          // chooses a key, once
uint64_t hash_of(uint64_t seed, const void *data, size_t size);

int look(int folder, const char *name, struct statx *found); // "": the folder itself
int open_folder(int parent, const char *name);
int64_t folder_names(int fd, struct bytes *names);
bool is_own(const char *name, size_t length);
bool is_mount(const struct statx *found, uint64_t parent_device);
uint64_t device_of(const struct statx *found);

// A delta is a sequence of records: a kind (1), and what the comment says; the sizes are in bytes.
// A name has its length (2) before it. Meta is mode (4), user (4), group (4), and the
// nanoseconds (4) and seconds (8) of mtime.
enum record {
    TREE = 'R',      // label: what follows is in this tree
    ENTER = 'C',     // name: a folder that was there
    FOLDER = 'D',    // name: a folder, made if it is none; it is entered
    LISTING = 'L',   // meta, number of names (4), names: of the folder entered last
    LEAVE = 'U',
    REGULAR = 'F',   // name, meta, size (8), pieces {offset (8), length (4), bytes}, then one
                     // of length 0 whose offset says whether the file is whole (0) or lost (1)
    SYMLINK = 'S',   // name, meta, target as a name
    FIFO = 'P',      // name, meta
    HARD_LINK = 'H', // name, length (4), path in the tree of a file that came before
    GONE = 'G',      // name
    END = 'E',
};

// --- moments.c, in the process that walks -------------------------------------------------------

void moment_walk_begins(void);
bool moment_record(uint64_t id, const struct statx *found);
void moment_unsettle(void);
uint64_t moment_paths(void);
uint64_t moment_gone(void);
_Noreturn void refuse(int code, const char *why);
uint64_t ns(struct statx_timestamp at);
