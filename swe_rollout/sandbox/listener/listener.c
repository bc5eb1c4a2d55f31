/* A door from a sandbox's loopback to its worker, which has no other way in than commands.
 *
 *   listener serve SOCKET COMMAND   listens on 127.0.0.1, runs the command with $DOOR_PORT behind
 *   listener send SOCKET            takes frames on stdin and writes them to their connections
 *   listener wait SOCKET            prints the next frames: what connections sent, or that they ended
 *   listener take SOCKET            gives the door to another worker: what has no answer is sent again
 *   listener stop SOCKET            ends the command and the listener
 *
 * A frame is a connection's number and a length, 4 bytes each, little-endian, and that many bytes;
 * a length of 0 ends the connection. Number 0 is the command's end: its code, and what it printed
 * last. Everything is bounded, for a policy may be at both ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONNECTIONS = 256, CALLERS = 8, CHUNK = 1 << 16, MOST_IN = 1 << 20, MOST_OUT = 64 << 20, MOST_GIVEN = 4 << 20,
       MOST_KEPT = 48 << 20, TAIL = 4096, LAST_READS = 32 };

struct buffer {
    unsigned char *bytes;
    size_t length;
};

struct connection {
    int fd; /* -1: free */
    uint32_t number;
    struct buffer in, out;
    struct buffer kept; /* what the worker got since it last answered */
    int lost; /* there was more than is kept */
    int ended, told, closes;
};

struct caller {
    int fd; /* -1: free */
    char mode;
    struct buffer got;
};

struct program {
    pid_t pid; /* 0: it has ended */
    int printed, code, told;
    char tail[2 * TAIL];
    size_t length;
};

static struct program program;
static struct connection connections[CONNECTIONS];
static struct caller callers[CALLERS];
static uint32_t last_number;

static int append(struct buffer *buffer, const void *bytes, size_t length)
{
    unsigned char *grown = realloc(buffer->bytes, buffer->length + length + 1);
    if (!grown)
        return -1;
    memcpy(grown + buffer->length, bytes, length);
    buffer->bytes = grown;
    buffer->length += length;
    return 0;
}

static void drop(struct buffer *buffer, size_t length)
{
    buffer->length -= length;
    memmove(buffer->bytes, buffer->bytes + length, buffer->length);
    if (!buffer->length) {
        free(buffer->bytes);
        buffer->bytes = NULL;
    }
}

static void forget(struct connection *c)
{
    close(c->fd);
    drop(&c->in, c->in.length);
    drop(&c->out, c->out.length);
    drop(&c->kept, c->kept.length);
    memset(c, 0, sizeof *c);
    c->fd = -1;
}

static void hang_up(struct caller *c)
{
    close(c->fd);
    drop(&c->got, c->got.length);
    c->fd = -1;
    c->mode = 0;
}

/* Writes all of it; a caller that does not read is given up. */
static int put(int fd, const void *bytes, size_t length)
{
    for (const char *at = bytes; length;) {
        ssize_t n = write(fd, at, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        length -= n;
    }
    return 0;
}

static int put_frame(int fd, uint32_t number, const void *bytes, uint32_t length)
{
    uint32_t head[2] = {number, length};
    return put(fd, head, sizeof head) || put(fd, bytes, length);
}

/* Gives the next of what a connection sent, and keeps it until there is an answer. */
static size_t give_in(struct caller *waiting, struct connection *c)
{
    size_t length = c->in.length < MOST_IN ? c->in.length : MOST_IN;
    put_frame(waiting->fd, c->number, c->in.bytes, length);
    if (c->lost || c->kept.length + length > MOST_KEPT || append(&c->kept, c->in.bytes, length)) {
        drop(&c->kept, c->kept.length);
        c->lost = 1;
    }
    drop(&c->in, length);
    return length;
}

static void give_end(struct caller *waiting)
{
    char text[16 + TAIL];
    size_t tail = program.length < TAIL ? program.length : TAIL;
    int head = sprintf(text, "%d\n", program.code);
    memcpy(text + head, program.tail + program.length - tail, tail);
    put_frame(waiting->fd, 0, text, head + tail);
    program.told = 1;
}

static void give(struct caller *waiting)
{
    int gave = !program.pid && !program.told;
    if (gave)
        give_end(waiting);
    size_t given = 0;
    for (struct connection *c = connections; c < connections + CONNECTIONS; c++) {
        if (c->fd < 0 || given > MOST_GIVEN)
            continue;
        if (c->in.length) {
            given += give_in(waiting, c);
            gave = 1;
        } else if (c->ended && !c->told) {
            put_frame(waiting->fd, c->number, "", 0);
            c->told = gave = 1;
            if (!c->out.length)
                forget(c);
        }
    }
    if (gave)
        hang_up(waiting);
}

static void deliver(uint32_t number, const unsigned char *bytes, uint32_t length)
{
    for (struct connection *c = connections; c < connections + CONNECTIONS; c++)
        if (c->fd >= 0 && c->number == number) {
            drop(&c->kept, c->kept.length);
            c->lost = 0;
            if (!length)
                c->closes = 1;
            else if (c->out.length + length > MOST_OUT || append(&c->out, bytes, length))
                forget(c);
            return;
        }
}

/* Takes the whole frames that a caller has sent. */
static void take(struct caller *c)
{
    size_t at = 0;
    while (c->got.length - at >= 8) {
        uint32_t head[2];
        memcpy(head, c->got.bytes + at, 8);
        if (c->got.length - at - 8 < head[1])
            break;
        deliver(head[0], c->got.bytes + at + 8, head[1]);
        at += 8 + head[1];
    }
    drop(&c->got, at);
}

/* Forgets the worker before: its callers, and the numbers that it knows. */
static void hand_over(struct caller *to)
{
    for (struct caller *c = callers; c < callers + CALLERS; c++)
        if (c != to && c->fd >= 0)
            hang_up(c);
    for (struct connection *c = connections; c < connections + CONNECTIONS; c++) {
        if (c->fd < 0)
            continue;
        /* Nothing tells an answer that broke off from one that is whole, and half a request is none. */
        if (c->lost || (!c->kept.length && !c->in.length)) {
            drop(&c->in, c->in.length);
            c->closes = 1;
        }
        if (c->kept.length && append(&c->kept, c->in.bytes, c->in.length)) {
            forget(c);
            continue;
        }
        if (c->kept.length) {
            drop(&c->in, c->in.length);
            c->in = c->kept;
            c->kept = (struct buffer){NULL, 0};
        }
        c->number = ++last_number;
        c->told = 0;
    }
    program.told = 0;
    hang_up(to);
}

static void stop(void)
{
    if (program.pid > 0)
        kill(-program.pid, SIGKILL);
    _exit(0);
}

static void hear(struct caller *c)
{
    unsigned char bytes[CHUNK];
    ssize_t n = read(c->fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0 && c->mode != 'w') {
        hang_up(c);
        return;
    }
    if (n <= 0) {
        /* Who waits sends nothing more: only a lost connection is readable for ever. */
        char none;
        if (recv(c->fd, &none, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno != EAGAIN)
            hang_up(c);
        return;
    }
    unsigned char *at = bytes;
    if (!c->mode) {
        c->mode = *at++;
        n--;
        if (c->mode == 't') {
            hand_over(c);
            return;
        }
        if (c->mode == 'q')
            stop();
    }
    if (c->got.length + n > MOST_OUT || append(&c->got, at, n)) {
        hang_up(c);
        return;
    }
    take(c);
}

static void admit(int listening)
{
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    for (struct connection *c = connections; c < connections + CONNECTIONS; c++)
        if (c->fd < 0) {
            c->fd = fd;
            c->number = ++last_number;
            return;
        }
    close(fd);
}

static void answer(int listening)
{
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct timeval patience = {.tv_sec = 30};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    for (struct caller *c = callers; c < callers + CALLERS; c++)
        if (c->fd < 0) {
            c->fd = fd;
            c->mode = 0;
            return;
        }
    close(fd);
}

static void listen_to(struct connection *c)
{
    unsigned char bytes[CHUNK];
    ssize_t n = read(c->fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || append(&c->in, bytes, n))
        c->ended = 1;
}

static void tell(struct connection *c)
{
    ssize_t n = send(c->fd, c->out.bytes, c->out.length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
        drop(&c->out, n);
    else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        drop(&c->out, c->out.length);
        c->ended = 1;
    }
}

/* Keeps the end of what the command prints. */
static int listen_to_program(void)
{
    char bytes[TAIL];
    ssize_t n = read(program.printed, bytes, sizeof bytes);
    if (n <= 0) {
        if (!n || (errno != EAGAIN && errno != EINTR)) {
            close(program.printed);
            program.printed = -1;
        }
        return 0;
    }
    if (program.length + n > sizeof program.tail) {
        memmove(program.tail, program.tail + program.length - TAIL, TAIL);
        program.length = TAIL;
    }
    memcpy(program.tail + program.length, bytes, n);
    program.length += n;
    return 1;
}

static void reap(void)
{
    int status;
    if (program.pid <= 0 || waitpid(program.pid, &status, WNOHANG) != program.pid)
        return;
    program.pid = 0;
    program.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    /* What it left behind may print for ever. */
    for (int reads = 0; reads < LAST_READS && program.printed >= 0 && listen_to_program(); reads++)
        ;
}

static void turn(int tcp, int local, const sigset_t *while_waiting)
{
    struct pollfd polled[3 + CONNECTIONS + CALLERS] = {{tcp, POLLIN, 0}, {local, POLLIN, 0}};
    struct pollfd *printed = &polled[2 + CONNECTIONS + CALLERS];
    *printed = (struct pollfd){program.printed, POLLIN, 0};
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &connections[i];
        int reads = !c->ended && c->in.length < MOST_IN;
        polled[2 + i] = (struct pollfd){c->fd, (reads ? POLLIN : 0) | (c->out.length ? POLLOUT : 0), 0};
        if (c->ended && !c->out.length)
            polled[2 + i].fd = -1;
    }
    for (int i = 0; i < CALLERS; i++)
        polled[2 + CONNECTIONS + i] =
            (struct pollfd){callers[i].fd, callers[i].mode == 'w' ? 0 : POLLIN, 0};
    int ready = ppoll(polled, 3 + CONNECTIONS + CALLERS, NULL, while_waiting);
    reap();
    if (ready < 0)
        memset(polled, 0, sizeof polled);
    if (ready > 0 && program.printed >= 0 && printed->revents)
        listen_to_program();
    if (polled[0].revents)
        admit(tcp);
    if (polled[1].revents)
        answer(local);
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &connections[i];
        int seen = polled[2 + i].revents;
        if (c->fd < 0 || polled[2 + i].fd != c->fd)
            continue;
        if (seen & (POLLIN | POLLHUP | POLLERR) && !c->ended)
            listen_to(c);
        if (seen & POLLOUT)
            tell(c);
    }
    for (int i = 0; i < CALLERS; i++) {
        int seen = polled[2 + CONNECTIONS + i].revents;
        if (callers[i].fd < 0 || polled[2 + CONNECTIONS + i].fd != callers[i].fd)
            continue;
        if (callers[i].mode == 'w' && seen & (POLLHUP | POLLERR))
            hang_up(&callers[i]);
        else if (seen & (POLLIN | POLLHUP | POLLERR))
            hear(&callers[i]);
    }
    for (struct connection *c = connections; c < connections + CONNECTIONS; c++)
        if (c->fd >= 0 && c->closes && !c->out.length)
            forget(c);
    for (struct caller *c = callers; c < callers + CALLERS; c++)
        if (c->fd >= 0 && c->mode == 'w')
            give(c);
}

static int local_socket(const char *path, struct sockaddr_un *at)
{
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at->sun_path)
        return -1;
    strcpy(at->sun_path, path);
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void wake(int signal)
{
    (void)signal;
}

static int start(const char *command, int port, const sigset_t *signals)
{
    int ends[2];
    char text[16];
    sprintf(text, "%d", port);
    if (setenv("DOOR_PORT", text, 1) || pipe2(ends, O_CLOEXEC) || (program.pid = fork()) < 0)
        return -1;
    if (!program.pid) {
        setsid();
        signal(SIGPIPE, SIG_DFL);
        sigprocmask(SIG_SETMASK, signals, NULL);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    program.printed = ends[0];
    return fcntl(ends[0], F_SETFL, O_NONBLOCK);
}

static int serve(const char *path, const char *command)
{
    struct sockaddr_un at;
    struct sockaddr_in door = {.sin_family = AF_INET};
    sigset_t child, before;
    socklen_t size = sizeof door;
    int yes = 1, local = local_socket(path, &at), tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    door.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (local < 0 || tcp < 0 || setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
        bind(tcp, (struct sockaddr *)&door, sizeof door) || listen(tcp, 64) ||
        getsockname(tcp, (struct sockaddr *)&door, &size) ||
        bind(local, (struct sockaddr *)&at, sizeof at) || listen(local, CALLERS)) {
        perror("listener");
        return 1;
    }
    printf("%d\n", ntohs(door.sin_port));
    fflush(stdout);
    if (fork())
        return 0;
    setsid();
    int none = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(none, fd);
    for (int i = 0; i < CONNECTIONS; i++)
        connections[i].fd = -1;
    for (int i = 0; i < CALLERS; i++)
        callers[i].fd = -1;
    /* A child that ends is only noticed while waiting, so none is missed. */
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    signal(SIGCHLD, wake);
    if (start(command, ntohs(door.sin_port), &before))
        program.pid = 0;
    for (;;)
        turn(tcp, local, &before);
}

static int copy(int from, int to)
{
    static unsigned char bytes[CHUNK];
    ssize_t n;
    while ((n = read(from, bytes, sizeof bytes)) > 0)
        if (put(to, bytes, n))
            return 1;
    return n < 0;
}

static int call(const char *path, const char *mode)
{
    struct sockaddr_un at;
    int fd = local_socket(path, &at);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) || put(fd, mode, 1)) {
        perror("listener");
        return 1;
    }
    if (*mode == 's')
        return copy(0, fd) || shutdown(fd, SHUT_WR) || copy(fd, 1);
    return copy(fd, 1);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 4 && !strcmp(argv[1], "serve"))
        return serve(argv[2], argv[3]);
    const char *modes[] = {"send", "wait", "take", "stop"};
    for (int i = 0; argc == 3 && i < 4; i++)
        if (!strcmp(argv[1], modes[i]))
            return call(argv[2], i == 3 ? "q" : modes[i]);
    fprintf(stderr, "usage: listener serve SOCKET COMMAND | send, wait, take or stop SOCKET\n");
    return 2;
}
