// The loop of the supervisor, and the relay that connects a new stream to it.
//
//   supervisor check                                 exit 0: it can be run from where it lies
//   supervisor serve pipes|relay ORPHAN_MS SOCKET    be the supervisor
//   supervisor attach SOCKET WAIT_MS                 hand this process's pipes to the supervisor
#include "supervisor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GONE = 71, BROKEN = 75, CANDIDATES = 8, POLLS = 4096, CLEAR_MS = 5000 };

bool is_init;
const char *shell = "/bin/sh";
static bool ending;
static int64_t orphan_ms, over_at = INT64_MAX;
static int listener = -1, signals = -1;
static struct stream candidates[CANDIDATES]; // streams that have not yet said hello
static int next_candidate;

int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// No other process may look into this one: neither its memory nor its files.
static void harden(void) {
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    prctl(PR_SET_NAME, "swe-rollout", 0, 0, 0);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    syscall(SYS_close_range, 3U, UINT_MAX, 0U);
    signal(SIGPIPE, SIG_IGN);
}

// --- the stream -----------------------------------------------------------------------------------

static void lose_stream(unsigned char relay_code) {
    if (current.in < 0)
        return;
    stream_close(&current, relay_code);
    forget_inputs();
    over_at = now_ms() + orphan_ms;
}

static void greet(void) { send_frame(current.number, READY, shell, strlen(shell)); }

static bool perform(const struct header *header, const char *body) {
    switch (header->kind) {
    case PUT: put_input(header->number, false, body, header->length); return true;
    case SCRIPT: put_input(header->number, true, body, header->length); return true;
    case RUN:
    case READ:
    case WRITE:
    case TRACK:
    case CHANGES:
    case RESTORE: return begin(header, body);
    case CANCEL: cancel(header->number); return true;
    case AGAIN: again(header->number); return true;
    case ACK: acknowledge(body, header->length / 8); return true;
    case LIST: list_requests(header->number); return true;
    case PING: pong(header->number); return true;
    case CLEAR: clear_sandbox(header->number); return true;
    case BYE: ending = true; return true;
    default: return false;
    }
}

static void take_frames(void) {
    struct header header;
    char *body;
    int taken = 0;
    while (!ending && current.in >= 0 && (taken = stream_take(&current, &header, &body)) > 0) {
        if (!perform(&header, body)) {
            taken = -1;
            break;
        }
        stream_done(&current, &header);
    }
    if (taken < 0)
        lose_stream(BROKEN);
}

static void adopt(struct stream *candidate, const struct header *header) {
    lose_stream(BROKEN);
    over_at = INT64_MAX;
    current = *candidate;
    *candidate = (struct stream){.in = -1, .out = -1, .relay = -1};
    stream_done(&current, header);
    greet();
    take_frames();
}

// A candidate becomes the stream when it shows that it knows the key, and is newer.
static void hear(struct stream *candidate) {
    struct header header;
    char *body;
    int taken = stream_fill(candidate) ? stream_take(candidate, &header, &body) : -1;
    if (taken > 0 && header.number > current.number)
        adopt(candidate, &header);
    else if (taken)
        stream_close(candidate, BROKEN);
}

// A relay has sent its two pipes over the socket.
static void receive_pipes(struct stream *candidate) {
    union {
        char room[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control;
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    int socket = candidate->relay;
    ssize_t count = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && errno == EAGAIN)
        return;
    struct cmsghdr *sent = count > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    int pipes[2] = {-1, -1};
    // Anyone in the sandbox may send fewer; of more, the kernel closes those without room.
    if (sent && sent->cmsg_type == SCM_RIGHTS)
        memcpy(pipes, CMSG_DATA(sent), sent->cmsg_len - CMSG_LEN(0));
    if (pipes[1] >= 0)
        stream_open(candidate, pipes[0], pipes[1], socket, candidate->relay_pid);
    else {
        if (pipes[0] >= 0)
            close(pipes[0]);
        close(socket);
        candidate->relay = -1;
    }
}

static void accept_relay(void) {
    int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0)
        return;
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    struct stream *candidate = &candidates[next_candidate++ % CANDIDATES];
    if (candidate->in >= 0)
        stream_close(candidate, BROKEN);
    else if (candidate->relay >= 0)
        close(candidate->relay);
    *candidate = (struct stream){.in = -1, .out = -1, .relay = socket, .relay_pid = peer.pid};
}

// --- ending other processes -----------------------------------------------------------------------

// Kill every process but this one and the relay; returns how many there were.
static int kill_others(void) {
    int found = 0;
    pid_t relay = current.relay >= 0 ? current.relay_pid : 0;
    kill(-1, SIGSTOP); // all at once: a stopped process can't fork
    DIR *folder = opendir("/proc");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        pid_t pid = atoi(entry->d_name);
        if (pid > 1 && pid != relay && !kill(pid, SIGKILL))
            found++;
    }
    if (folder)
        closedir(folder);
    if (relay)
        kill(relay, SIGCONT);
    return found;
}

bool is_relay(pid_t pid) { return current.relay >= 0 && pid == current.relay_pid; }

// End everything in the sandbox but the supervisor, so that nothing changes its files any more.
void clear_sandbox(uint64_t number) {
    int64_t until = now_ms() + CLEAR_MS;
    int left = 0;
    effects++;
    if (!is_init)
        kill_groups();
    while (is_init && (left = kill_others()) && now_ms() < until) {
        reap();
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    reap();
    finish(number, left ? EBUSY : 0, left ? "processes do not end" : "");
}

// --- the loop -------------------------------------------------------------------------------------

static struct pollfd polled[POLLS];
static int polls;

static int watch(int fd, short events) {
    if (fd < 0 || polls == POLLS)
        return -1;
    polled[polls] = (struct pollfd){fd, events, 0};
    return polls++;
}

static bool is_ready(int at) { return at >= 0 && polled[at].revents; }

static void wait_and_handle(int64_t due) {
    int in, out, relay, joined, signalled, each_candidate[CANDIDATES];
    int64_t wait = due == INT64_MAX ? -1 : due - now_ms() + 1;
    polls = 0;
    signalled = watch(signals, POLLIN);
    joined = watch(listener, POLLIN);
    in = watch(current.in, POLLIN);
    out = stream_waits(&current) ? watch(current.out, POLLOUT) : -1;
    relay = watch(current.in < 0 ? -1 : current.relay, POLLIN);
    for (int i = 0; i < CANDIDATES; i++) {
        struct stream *each = &candidates[i];
        each_candidate[i] = watch(each->in >= 0 ? each->in : each->relay, POLLIN);
    }
    int drained[DRAINS];
    for (int i = 0; i < DRAINS; i++)
        drained[i] = drains[i] ? watch(drains[i], POLLIN) : -1;
    int first = polls;
    for (struct command *each = commands; each; each = each->next) {
        watch(each->out.fd, POLLIN);
        watch(each->err.fd, POLLIN);
        watch(each->stdin_fd, POLLOUT);
    }
    if (poll(polled, (nfds_t)polls, wait > INT_MAX ? INT_MAX : wait < -1 ? 0 : (int)wait) <= 0)
        return;
    for (int i = 0; i < DRAINS; i++)
        if (is_ready(drained[i]))
            drain(i);
    // No command is freed, and no new one is started, before all its pipes are handled.
    for (struct command *each = commands; each; each = each->next) {
        struct capture *captures[] = {&each->out, &each->err};
        for (int i = 0; i < 2; i++) {
            if (captures[i]->fd >= 0 && first < polls && polled[first].fd == captures[i]->fd)
                if (is_ready(first++))
                    capture_output(each, captures[i]);
        }
        if (each->stdin_fd >= 0 && first < polls && polled[first].fd == each->stdin_fd)
            if (is_ready(first++))
                feed_input(each);
    }
    if (is_ready(signalled)) {
        struct signalfd_siginfo infos[16];
        ssize_t ignored = read(signals, infos, sizeof infos);
        (void)ignored;
        reap();
    }
    for (int i = 0; i < CANDIDATES; i++) {
        if (is_ready(each_candidate[i])) {
            if (candidates[i].in >= 0)
                hear(&candidates[i]);
            else
                receive_pipes(&candidates[i]);
        }
    }
    if (is_ready(joined))
        accept_relay();
    if ((in >= 0 && current.in >= 0 && polled[in].fd != current.in))
        return; // another stream has taken over
    if (is_ready(out) && !stream_pump(&current))
        lose_stream(BROKEN);
    if (is_ready(in) && current.in >= 0) {
        bool is_open = stream_fill(&current);
        take_frames();
        if (!is_open)
            lose_stream(BROKEN);
    }
    if (is_ready(relay) && current.in >= 0)
        lose_stream(BROKEN);
}

static int listen_at(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    if (!length || length >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path + 1, name, length);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 64))
        return -1;
    return fd;
}

static int serve(const char *streams, const char *orphan, const char *socket_name) {
    static char room[PATH_MAX];
    const char *path = getenv("PATH"), *bash;
    is_init = getpid() == 1;
    orphan_ms = atoll(orphan);
    // A session keyring that no other process of the machine shares.
    syscall(SYS_keyctl, 1, NULL);
    if ((bash = find_program("bash", path ? path : "/usr/bin:/bin", room, sizeof room)))
        shell = bash;
    for (int i = 0; i < CANDIDATES; i++)
        candidates[i] = (struct stream){.in = -1, .out = -1, .relay = -1};
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_SETMASK, &child, NULL);
    signal(SIGCHLD, SIG_DFL);
    for (int i = 0; i < 4; i++)
        signal((int[]){SIGHUP, SIGINT, SIGQUIT, SIGTERM}[i], SIG_IGN);
    signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (*socket_name && (listener = listen_at(socket_name)) < 0)
        return GONE;
    bool has_pipes = !strcmp(streams, "pipes");
    int in = has_pipes ? fcntl(0, F_DUPFD_CLOEXEC, 3) : -1;
    int out = has_pipes ? fcntl(1, F_DUPFD_CLOEXEC, 3) : -1;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, 0);
    dup2(null, 1);
    close(null);
    if (chdir("/"))
        return GONE;
    over_at = now_ms() + 60000;
    if (has_pipes) {
        stream_open(&candidates[0], in, out, -1, 0);
        stream_pump(&candidates[0]);
    }
    while (!ending) {
        int64_t now = now_ms(), due = act(now);
        if (current.in >= 0 && !stream_pump(&current))
            lose_stream(BROKEN);
        for (int i = 0; i < CANDIDATES; i++)
            if (candidates[i].in >= 0 && !stream_pump(&candidates[i]))
                stream_close(&candidates[i], BROKEN);
        if (current.in < 0) {
            if (now >= over_at)
                break;
            due = over_at < due ? over_at : due;
        }
        wait_and_handle(due);
        // A supervisor without a way to reconnect ends with its stream.
        if (current.in < 0 && has_key && !orphan_ms)
            break;
        if (has_pipes && !has_key && candidates[0].in < 0)
            break;
    }
    kill_groups();
    if (is_init)
        kill(-1, SIGKILL);
    stream_close(&current, 0);
    return 0;
}

// --- the relay ------------------------------------------------------------------------------------

static int connect_to(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    if (length >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path + 1, name, length);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    if (fd >= 0 && !connect(fd, (struct sockaddr *)&address, size))
        return fd;
    close(fd);
    return -1;
}

static int attach(const char *name, int64_t wait_ms) {
    int64_t until = now_ms() + wait_ms;
    int fd;
    while ((fd = connect_to(name)) < 0) {
        if (now_ms() >= until)
            return GONE;
        // Process 1 becomes the supervisor on this signal; nothing before it is ready hears it.
        kill(1, SIGUSR1);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    union {
        char room[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {"p", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    struct cmsghdr *sent = CMSG_FIRSTHDR(&message);
    sent->cmsg_level = SOL_SOCKET;
    sent->cmsg_type = SCM_RIGHTS;
    sent->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(sent), (int[]){0, 1}, 2 * sizeof(int));
    if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
        return BROKEN;
    // From here on only the supervisor holds these pipes. It says when it lets go of them. Stderr
    // stays: some container runtimes end an exec with the first of its outputs that ends.
    close(0);
    close(1);
    unsigned char code;
    return recv(fd, &code, 1, 0) == 1 ? code : BROKEN;
}

int main(int count, char **arguments) {
    const char *verb = count > 1 ? arguments[1] : "";
    if (!strcmp(verb, "check"))
        return 0;
    harden();
    if (!strcmp(verb, "serve") && count == 5)
        return serve(arguments[2], arguments[3], arguments[4]);
    if (!strcmp(verb, "attach") && count == 4)
        return attach(arguments[2], atoll(arguments[3]));
    return 64;
}
