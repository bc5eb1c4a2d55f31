// Moments of the sandbox's files. A moment is a table: for each path a hash of its name, and a hash
// of what the kernel says of it. Nothing else is remembered.
//
// The walk is a process of its own, so that no file can stop the supervisor. It fills a table that
// both share; the moment counts once the process has succeeded.
#include "tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct trace {
    uint64_t path, print;
};
struct moment {
    uint64_t number, count;
    struct trace traces[MOST_FILES];
};
static struct moment *kept[2], *made;  // `kept[0]` may be asked for again
static uint64_t made_by;               // the request that makes one
static const struct moment *base;      // of the delta that is made

// --- in the supervisor --------------------------------------------------------------------------

static void forget(struct moment **moment) {
    if (*moment)
        munmap(*moment, sizeof **moment);
    *moment = NULL;
}

static bool keep_only(uint64_t number) {
    for (int i = 0; i < 2; i++)
        if (kept[i] && kept[i]->number == number) {
            struct moment *found = kept[i];
            kept[i] = NULL;
            forget(&kept[!i]);
            kept[0] = found;
            return true;
        }
    return false;
}

const char *moment_begin(const struct walk *walk, uint64_t request, int *code) {
    *code = EBUSY;
    if (made)
        return "another walk is under way";
    *code = ESTALE;
    if (walk->emits && (!walk->number || !keep_only(walk->number - 1)))
        return "the moment it is to be compared with is not kept";
    if (!walk->emits) {
        forget(&kept[0]);
        forget(&kept[1]);
    }
    *code = ENOMEM;
    hash_start();
    // Pages are used as they are written.
    made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) {
        made = NULL;
        return "no memory for the names of its files";
    }
    made->number = walk->number;
    made_by = request;
    base = walk->emits ? kept[0] : NULL;
    return NULL;
}

void moment_end(uint64_t request, bool succeeded) {
    if (!made || made_by != request)
        return;
    if (!succeeded)
        forget(&made);
    else if (kept[0])
        kept[1] = made;
    else
        kept[0] = made;
    made = NULL;
}

// --- in the process that walks ------------------------------------------------------------------

_Noreturn void refuse(int code, const char *why) {
    ssize_t ignored = write(2, why, strlen(why));
    (void)ignored;
    _exit(code);
}

uint64_t ns(struct statx_timestamp at) { return (uint64_t)at.tv_sec * 1000000000 + at.tv_nsec; }

static uint32_t *slots; // of `base`: an index + 1 by hash
static uint64_t slot_mask, began_ns, found_again;

static void index_base(void) {
    uint64_t room = 1024;
    while (base && room < base->count * 2)
        room *= 2;
    slot_mask = room - 1;
    if (!(slots = calloc(room, sizeof *slots)))
        refuse(ENOMEM, "no memory to compare its files");
    for (uint64_t i = 0; base && i < base->count; i++) {
        uint64_t at = base->traces[i].path & slot_mask;
        while (slots[at])
            at = (at + 1) & slot_mask;
        slots[at] = (uint32_t)i + 1;
    }
}

static uint64_t print_before(uint64_t id) {
    for (uint64_t at = id & slot_mask; slots[at]; at = (at + 1) & slot_mask) {
        const struct trace *each = &base->traces[slots[at] - 1];
        if (each->path == id) {
            found_again++;
            return each->print;
        }
    }
    return 0;
}

// Never 0. The kernel sets ctime, no command can.
static uint64_t print_of(const struct statx *found) {
    uint64_t values[] = {
        found->stx_ino, found->stx_size * !S_ISDIR(found->stx_mode), ns(found->stx_ctime),
        ns(found->stx_mtime), (uint64_t)found->stx_mode << 32 | found->stx_uid,
        (uint64_t)found->stx_gid << 32 | found->stx_rdev_minor, found->stx_rdev_major,
    };
    return hash_of(1, values, sizeof values) | 1;
}

// Whether it differs from what it was, in a delta. What changes during the walk may change once more within a
// tick of the clock, which would not show: it differs the next time too.
bool moment_record(uint64_t id, const struct statx *found) {
    uint64_t print = print_of(found), before = print_before(id);
    if (made->count == MOST_FILES)
        refuse(EFBIG, "it has too many files");
    bool is_settled = ns(found->stx_ctime) < began_ns ||
                      ns(found->stx_ctime) > began_ns + 600000000000;
    made->traces[made->count++] = (struct trace){id, is_settled ? print : 0};
    return base && before != print;
}

// The path that was recorded last differs the next time, whatever happens to it.
void moment_unsettle(void) { made->traces[made->count - 1].print = 0; }

// Wait until every change of the past has an older time than any of the future: the clock of file
// systems goes by ticks, and lags behind the other.
static void await_tick(void) {
    struct timespec first, now;
    clock_gettime(CLOCK_REALTIME, &first);
    for (int tries = 0; tries < 200; tries++) {
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        if (now.tv_sec > first.tv_sec || (now.tv_sec == first.tv_sec && now.tv_nsec > first.tv_nsec))
            break;
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    began_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void moment_walk_begins(void) {
    index_base();
    await_tick();
}

uint64_t moment_paths(void) { return made->count; }

uint64_t moment_gone(void) { return base ? base->count - found_again : 0; }
