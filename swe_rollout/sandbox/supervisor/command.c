// Commands: process groups with a deadline, whose output is kept up to a cap; and file requests,
// which are processes of this program, so that no file can stop the supervisor.
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    QUIET_MS = 100,   // after so long without output, all that a command wrote has arrived
    SETTLE_MS = 1100, // longest wait for that
    GRACE_MS = 1000,  // between TERM and KILL
    KILLED = 137,
    MOST_WORDS = 1 << 18,
    WALK_BYTES = 1 << 20, // what a walk may say beside twice its delta: names, and its report
};

struct command *commands;
struct result *results;
uint64_t effects;
int drains[DRAINS]; // 0: none

// Inputs of requests that have not begun.
struct staged {
    struct staged *next;
    uint64_t number;
    struct bytes input, script;
    bool has_script, refused;
};
static struct staged *staged_inputs;

// Process groups that live on after their command's result.
static struct group {
    struct group *next;
    pid_t pid;
} *groups;

static struct staged *staged_of(uint64_t number) {
    struct staged *each = staged_inputs;
    while (each && each->number != number)
        each = each->next;
    return each;
}

static void unstage(uint64_t number) {
    for (struct staged **at = &staged_inputs; *at; at = &(*at)->next) {
        struct staged *each = *at;
        if (each->number == number) {
            *at = each->next;
            bytes_free(&each->input);
            bytes_free(&each->script);
            free(each);
            return;
        }
    }
}

void put_input(uint64_t number, bool is_script, const char *data, size_t size) {
    struct staged *staged = staged_of(number);
    if (!staged) {
        if (!(staged = calloc(1, sizeof *staged)))
            return;
        staged->number = number;
        staged->next = staged_inputs;
        staged_inputs = staged;
    }
    staged->has_script |= is_script;
    if (!bytes_add(is_script ? &staged->script : &staged->input, data, size))
        staged->refused = true;
}

void forget_inputs(void) {
    while (staged_inputs)
        unstage(staged_inputs->number);
}

// --- results ------------------------------------------------------------------------------------

void result_release(struct result *result) {
    if (!result->dropped || result->queued)
        return;
    bytes_free(&result->out);
    bytes_free(&result->err);
    free(result);
}

static struct result *result_of(uint64_t number) {
    struct result *each = results;
    while (each && each->number != number)
        each = each->next;
    return each;
}

static struct command *command_of(uint64_t number) {
    struct command *each = commands;
    while (each && each->number != number)
        each = each->next;
    return each;
}

static void store(struct result *result) {
    result->next = results;
    results = result;
    unstage(result->number);
    send_result(result);
}

void finish(uint64_t number, int code, const char *message) {
    struct result *result = calloc(1, sizeof *result);
    if (!result)
        return;
    result->number = number;
    result->code = (uint32_t)code;
    if (bytes_add(&result->err, message, strlen(message)))
        result->err_total = result->err.size;
    store(result);
}

void again(uint64_t number) {
    struct result *result = result_of(number);
    if (result)
        send_result(result);
}

void acknowledge(const char *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        for (struct result **at = &results; *at; at = &(*at)->next) {
            struct result *each = *at;
            if (each->number == get64(numbers + 8 * i)) {
                *at = each->next;
                each->dropped = true;
                result_release(each);
                break;
            }
        }
    }
}

void list_requests(uint64_t number) {
    struct bytes list = {0};
    char entry[9];
    bool ok = true;
    for (struct command *each = commands; each; each = each->next) {
        put64(entry, each->number);
        entry[8] = 0;
        ok &= bytes_add(&list, entry, sizeof entry);
    }
    for (struct result *each = results; each; each = each->next) {
        put64(entry, each->number);
        entry[8] = 1;
        ok &= bytes_add(&list, entry, sizeof entry);
    }
    if (ok)
        send_frame(number, STATES, list.data, list.size);
    bytes_free(&list);
}

// Says also how much the session has done, so that another process knows what state this is.
void pong(uint64_t number) {
    char state[12];
    uint32_t running = 0;
    for (struct command *each = commands; each; each = each->next)
        running++;
    put64(state, effects);
    put32(state + 8, running);
    send_frame(number, PONG, state, sizeof state);
}

// --- starting -----------------------------------------------------------------------------------

static void close_fd(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

// Words end with NUL. The list ends with NULL; false when there are not that many.
static char **words(const char **at, const char *end, uint32_t count) {
    char **list = count > MOST_WORDS ? NULL : calloc(count + 3, sizeof *list);
    for (uint32_t i = 0; list && i < count; i++) {
        const char *stop = memchr(*at, 0, (size_t)(end - *at));
        if (!stop) {
            free(list);
            return NULL;
        }
        list[i] = (char *)*at;
        *at = stop + 1;
    }
    return list;
}

// A script that is too long for an argument, in a file that only has a number.
static int script_file(const struct bytes *script) {
    int fd = memfd_create("script", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t done = 0;
    while (fd >= 0 && done < script->size) {
        ssize_t count = write(fd, script->data + done, script->size - done);
        if (count <= 0)
            close_fd(&fd);
        else
            done += (size_t)count;
    }
    // What the script starts may change neither what it still reads nor what it has read.
    if (fd >= 0)
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

struct start {
    const struct header *header;
    uint64_t cap;
    int64_t timeout_ms;
    struct program program;     // of `run`
    const char *path;           // of `read` and `write`
    mode_t mode;
    struct walk walk;           // of `track` and `changes`; its trees also of `restore`
};

struct child {
    const struct start *start;
    const struct staged *staged;
    int in, out, err, script;
};

static void child(const struct child *child) {
    setsid();
    dup2(child->in, 0);
    dup2(child->out, 1);
    dup2(child->err, 2);
    switch (child->start->header->kind) {
    case READ: child_read(child->start->path, child->start->cap);
    case WRITE: {
        struct bytes none = {0};
        child_write(child->start->path, child->start->mode,
                    child->staged ? &child->staged->input : &none);
    }
    case TRACK:
    case CHANGES: child_walk(&child->start->walk);
    case RESTORE: {
        struct bytes none = {0};
        child_restore(child->staged ? &child->staged->input : &none, child->start->walk.trees);
    }
    default: child_exec(&child->start->program, child->script);
    }
}

// The child is a copy, without the key, so that no path it is given leads to the key. It never shares
// this process's memory, as after vfork: this process would wait for one that a command has stopped.
static pid_t start_child(struct child *each) {
    pid_t pid = fork();
    if (!pid) {
        memset(session_key, 0, sizeof session_key);
        __asm__ volatile("" ::: "memory");
        child(each);
    }
    return pid;
}

static const char *spawn(const struct start *start, struct command *command, struct staged *staged) {
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, script = -1;
    bool has_input = start->header->kind == RUN && staged && staged->input.size;
    bool ok = !pipe2(out, O_CLOEXEC) && !pipe2(err, O_CLOEXEC);
    if (ok && has_input)
        ok = !pipe2(in, O_CLOEXEC);
    else if (ok)
        ok = (in[0] = fcntl(0, F_DUPFD_CLOEXEC, 3)) >= 0; // ours is /dev/null
    if (ok && staged && staged->has_script)
        ok = (script = script_file(&staged->script)) >= 0;
    pid_t pid = ok ? start_child(&(struct child){start, staged, in[0], out[1], err[1], script}) : -1;
    const char *problem = pid < 0 ? strerror(errno) : NULL;
    close_fd(&in[0]);
    close_fd(&out[1]);
    close_fd(&err[1]);
    close_fd(&script);
    if (problem) {
        close_fd(&in[1]);
        close_fd(&out[0]);
        close_fd(&err[0]);
        return problem;
    }
    command->pid = pid;
    command->out.fd = out[0];
    command->err.fd = err[0];
    command->stdin_fd = in[1];
    if (has_input) {
        fcntl(in[1], F_SETFL, O_NONBLOCK);
        command->input = staged->input;
        staged->input = (struct bytes){0};
    }
    return NULL;
}

static bool has_name_of(const char *pair, const char *other) {
    size_t length = strcspn(other, "=");
    return !strncmp(pair, other, length) && pair[length] == '=';
}

// The container's environment with the command's; the last pair of a name counts.
static char **merged(char **own, const char *cwd) {
    static char pwd[PATH_MAX + 8];
    size_t most = 2, count = 0;
    for (char **each = environ; *each; each++)
        most++;
    for (char **each = own; *each; each++)
        most++;
    char **all = calloc(most, sizeof *all);
    snprintf(pwd, sizeof pwd, "PWD=%s", cwd);
    char *first[] = {pwd, NULL};
    char **lists[] = {environ, first, own};
    for (int list = 0; all && list < 3; list++) {
        for (char **each = lists[list]; *each; each++) {
            size_t at = 0;
            while (at < count && !has_name_of(all[at], *each))
                at++;
            all[at] = *each;
            count += at == count;
        }
    }
    return all;
}

// Number of the moment (8), longest file (8), longest delta (8), number of words (4), words.
static bool parse_walk(uint32_t kind, const char *at, const char *end, struct start *start) {
    if (end - at < 28)
        return false;
    struct walk *walk = &start->walk;
    *walk = (struct walk){get64(at), kind == CHANGES, get64(at + 8), get64(at + 16), NULL};
    uint32_t count = get32(at + 24);
    at += 28;
    walk->trees = words(&at, end, count);
    start->cap = walk->most_delta > UINT64_MAX / 2 ? UINT64_MAX : 2 * walk->most_delta + WALK_BYTES;
    return walk->trees && at == end;
}

static bool parse(const struct header *header, const char *body, struct start *start) {
    const char *at = body, *end = body + header->length;
    start->timeout_ms = 120000;
    start->cap = 4096;
    switch (header->kind) {
    case READ:
        if (header->length < 9 || end[-1])
            return false;
        start->cap = get64(at);
        start->path = at + 8;
        return true;
    case WRITE:
        if (header->length < 5 || end[-1])
            return false;
        start->mode = get32(at) & 07777;
        start->path = at + 4;
        return true;
    case TRACK:
    case CHANGES:
    case RESTORE:
        return parse_walk(header->kind, at, end, start);
    default:
        if (header->length < 21)
            return false;
        start->timeout_ms = get32(at);
        start->cap = get64(at + 4);
        uint32_t variables = get32(at + 12), arguments = get32(at + 16);
        at += 20;
        start->program.cwd = at;
        if (!(at = memchr(at, 0, (size_t)(end - at))) || !arguments)
            return false;
        at++;
        char **env = words(&at, end, variables);
        start->program.env = env ? merged(env, start->program.cwd) : NULL;
        free(env);
        start->program.arguments = start->program.env ? words(&at, end, arguments) : NULL;
        return start->program.arguments && at == end;
    }
}

bool begin(const struct header *header, const char *body) {
    struct result *known = result_of(header->number);
    if (known || command_of(header->number)) {
        if (known)
            send_result(known);
        return true;
    }
    struct start start = {.header = header};
    bool valid = parse(header, body, &start);
    struct staged *staged = staged_of(header->number);
    struct command *command = valid ? calloc(1, sizeof *command) : NULL;
    if (command) {
        int code = ENOMEM;
        bool walks = header->kind == TRACK || header->kind == CHANGES;
        effects += !walks;
        const char *problem = staged && staged->refused ? strerror(ENOMEM) : NULL;
        if (!problem && walks)
            problem = moment_begin(&start.walk, header->number, &code);
        if (!problem && (problem = spawn(&start, command, staged)))
            moment_end(header->number, false);
        if (problem) {
            free(command);
            finish(header->number, code, problem);
        } else {
            command->number = header->number;
            command->out.cap = command->err.cap = start.cap;
            command->due = now_ms() + start.timeout_ms;
            command->next = commands;
            commands = command;
            unstage(header->number);
        }
    }
    free(start.program.env);
    free(start.program.arguments);
    free(start.walk.trees);
    return valid;
}

// --- while it runs ------------------------------------------------------------------------------

// False when no process of the group is left.
static bool signal_group(pid_t pid, int number) { return !kill(-pid, number) || errno != ESRCH; }

// The same for a command, which has no group yet when it has only just been started.
static bool signal_command(const struct command *command, int number) {
    return signal_group(command->pid, number) ||
           (!command->exited && !kill(command->pid, number));
}

void cancel(uint64_t number) {
    struct command *command = command_of(number);
    if (!command)
        unstage(number);
    else if (command->state == RUNNING)
        command->due = 0;
}

static void settle(struct command *command, int64_t now) {
    command->state = SETTLING;
    command->last = now + SETTLE_MS;
    command->due = command->exited ? now + QUIET_MS : command->last;
}

void capture_output(struct command *command, struct capture *capture) {
    static char room[PIPE_BYTES];
    ssize_t count = read(capture->fd, room, sizeof room);
    if (count <= 0) {
        if (count < 0 && errno == EINTR)
            return;
        close_fd(&capture->fd);
        reap();
        return;
    }
    uint64_t space = capture->cap - capture->kept.size;
    size_t keep = space < (uint64_t)count ? (size_t)space : (size_t)count;
    if (keep && !bytes_add(&capture->kept, room, keep))
        capture->cap = capture->kept.size; // no memory: what comes is only counted
    capture->total += (uint64_t)count;
    if (command->state == SETTLING) {
        int64_t due = now_ms() + QUIET_MS;
        command->due = due < command->last ? due : command->last;
    }
}

void feed_input(struct command *command) {
    size_t left = command->input.size - command->fed;
    ssize_t count = write(command->stdin_fd, command->input.data + command->fed, left);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    command->fed += count > 0 ? (size_t)count : left;
    if (command->fed == command->input.size) {
        close_fd(&command->stdin_fd);
        bytes_free(&command->input);
    }
}

void reap(void) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (struct command *each = commands; each; each = each->next) {
            if (each->pid == pid && !each->exited) {
                each->exited = true;
                each->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
                if (each->state == RUNNING)
                    settle(each, now_ms());
                else if (each->state == SETTLING)
                    each->due = now_ms() + QUIET_MS;
            }
        }
    }
}

static bool is_over(struct command *command, int64_t now) {
    if (command->state == RUNNING && now >= command->due) {
        command->state = STOPPING;
        command->late = true;
        command->last = now + GRACE_MS;
        signal_command(command, SIGTERM);
    }
    if (command->state == STOPPING) {
        bool alive = signal_command(command, 0);
        command->due = now + QUIET_MS / 4;
        if (!alive || now >= command->last) {
            signal_command(command, SIGKILL);
            settle(command, now);
        }
    }
    if (command->state != SETTLING)
        return false;
    bool is_open = command->out.fd >= 0 || command->err.fd >= 0;
    return now >= command->last || (command->exited && (!is_open || now >= command->due));
}

static void remember_group(pid_t pid) {
    struct group **at = &groups;
    while (*at) {
        struct group *each = *at;
        if (signal_group(each->pid, 0)) {
            at = &each->next;
        } else {
            *at = each->next;
            free(each);
        }
    }
    if (signal_group(pid, 0) && (*at = calloc(1, sizeof **at)))
        (*at)->pid = pid;
}

// A child that outlives its command goes on writing, and must not end by SIGPIPE.
static void leave_open(int *fd) {
    static int next;
    if (*fd < 0)
        return;
    int *place = &drains[next++ % DRAINS];
    if (*place > 0)
        close(*place);
    *place = *fd;
    *fd = -1;
}

void drain(int at) {
    static char room[PIPE_BYTES];
    ssize_t count = read(drains[at], room, sizeof room);
    if (count > 0 || (count < 0 && errno == EINTR))
        return;
    close(drains[at]);
    drains[at] = 0;
}

static void finish_command(struct command *command) {
    moment_end(command->number, command->exited && !command->code && !command->late);
    if (!is_init)
        remember_group(command->pid);
    leave_open(&command->out.fd);
    leave_open(&command->err.fd);
    close_fd(&command->stdin_fd);
    bytes_free(&command->input);
    struct result *result = calloc(1, sizeof *result);
    if (result) {
        result->number = command->number;
        result->code = (uint32_t)(command->exited ? command->code : KILLED);
        result->late = command->late;
        result->out = command->out.kept;
        result->err = command->err.kept;
        result->out_total = command->out.total;
        result->err_total = command->err.total;
        store(result);
    }
    free(command);
}

int64_t act(int64_t now) {
    int64_t next = INT64_MAX;
    for (struct command **at = &commands; *at;) {
        struct command *each = *at;
        if (is_over(each, now)) {
            *at = each->next;
            finish_command(each);
        } else {
            next = each->due < next ? each->due : next;
            at = &each->next;
        }
    }
    return next;
}

void kill_groups(void) {
    for (struct command *each = commands; each; each = each->next)
        signal_command(each, SIGKILL);
    for (struct group *each = groups; each; each = each->next)
        signal_group(each->pid, SIGKILL);
}
