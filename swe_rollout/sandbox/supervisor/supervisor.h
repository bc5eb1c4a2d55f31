// The supervisor: process 1 of a sandbox. It runs commands for one session and speaks the protocol
// of docs/reference/supervisor.md. What runs in the sandbox is hostile and has the same user: it can
// read no memory of this process, and every frame carries a code that needs a key kept only here.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    KEY_BYTES = 32,
    MAC_BYTES = 16,
    HEADER_BYTES = 32,
    CHUNK_BYTES = 1 << 20,      // longest body of a response
    FRAME_BYTES = 4 << 20,      // longest body of a request
    PIPE_BYTES = 1 << 16,
};

enum request_kind {
    HELLO = 1, PUT, SCRIPT, RUN, READ, WRITE, CANCEL, AGAIN, ACK, LIST, PING, BYE, CLEAR,
    TRACK, CHANGES, RESTORE,
};
enum response_kind { READY = 64, OUTPUT, RESULT, PONG, STATES };

// --- bytes.c: growing memory, and little-endian numbers ---------------------------------------

struct bytes {
    char *data;
    size_t size, room;
};
bool bytes_add(struct bytes *bytes, const void *data, size_t size); // false: no memory, unchanged
void bytes_drop(struct bytes *bytes, size_t count);                 // the first `count`
void bytes_free(struct bytes *bytes);
uint32_t get32(const char *from);
uint64_t get64(const char *from);
void put32(char *to, uint32_t value);
void put64(char *to, uint64_t value);

// --- blake2b.c --------------------------------------------------------------------------------

struct blake2b {
    uint64_t h[8], count;
    size_t filled;
    unsigned char block[128];
};
void blake2b_start(struct blake2b *state, const void *key, size_t key_bytes, size_t out_bytes);
void blake2b_add(struct blake2b *state, const void *data, size_t size);
void blake2b_end(struct blake2b *state, void *out, size_t out_bytes);

// --- stream.c: one connection to the session, authenticated frames ------------------------------

struct header {
    uint64_t number;
    uint32_t kind, length;
};
struct item; // something to send
struct stream {
    int in, out, relay;         // relay: its socket; -1 where this process owns the pipes
    pid_t relay_pid;
    uint64_t number;            // 0 until the session has said hello
    uint64_t received, sent;    // frames so far
    struct bytes input, output; // output: the frame being written
    size_t written;
    struct item *first, *last;
};
extern unsigned char session_key[KEY_BYTES];
extern bool has_key;
extern struct stream current;   // .in is -1 while there is none
struct result;

void stream_open(struct stream *stream, int in, int out, int relay, pid_t relay_pid);
void stream_close(struct stream *stream, unsigned char relay_code);
bool stream_fill(struct stream *stream);          // false at its end
int stream_take(struct stream *stream, struct header *header, char **body); // 1, 0: not yet, -1: bad
void stream_done(struct stream *stream, const struct header *header); // drop the frame taken
void send_frame(uint64_t number, uint32_t kind, const void *body, size_t length);
void send_result(struct result *result);
bool stream_pump(struct stream *stream);          // false when the other side is gone
bool stream_waits(const struct stream *stream);

// --- command.c: requests that have a result -----------------------------------------------------

struct result {
    struct result *next;
    uint64_t number, out_total, err_total;
    uint32_t code, late;
    struct bytes out, err;
    unsigned queued;            // times it waits in the queue of a stream
    bool dropped;               // acknowledged: freed once it is in no queue
};
struct capture {
    int fd;
    struct bytes kept;
    uint64_t cap, total;
};
enum state { RUNNING, STOPPING, SETTLING };
struct command {
    struct command *next;
    uint64_t number;
    pid_t pid;
    struct capture out, err;
    int stdin_fd;
    struct bytes input;
    size_t fed;
    enum state state;
    bool exited, late;
    int code;
    int64_t due, last;          // milliseconds of the monotonic clock
};
enum { DRAINS = 1024 };
extern int drains[DRAINS];      // pipes of ended commands, which background children still write to
extern struct command *commands;
extern struct result *results;
extern uint64_t effects;        // requests that have begun and could change something

void put_input(uint64_t number, bool is_script, const char *data, size_t size);
bool begin(const struct header *header, const char *body); // false: not a valid request
void cancel(uint64_t number);
void again(uint64_t number);
void acknowledge(const char *numbers, size_t count);
void list_requests(uint64_t number);
void pong(uint64_t number);
void forget_inputs(void);       // of requests that have not begun: they will be sent again
int64_t act(int64_t now);       // finish what is over; when to call again
void reap(void);
void capture_output(struct command *command, struct capture *capture);
void feed_input(struct command *command);
void drain(int at);
void kill_groups(void);
void finish(uint64_t number, int code, const char *message);
void result_release(struct result *result);

// --- child.c: what a new process does until it becomes the command ------------------------------

struct program {
    const char *cwd;
    char **env, **arguments; // ended by NULL; two more arguments would fit
};
_Noreturn void child_exec(const struct program *program, int script_fd);
_Noreturn void child_read(const char *path, uint64_t max_bytes);
_Noreturn void child_write(const char *path, mode_t mode, const struct bytes *content);
const char *find_program(const char *name, const char *path, char *room, size_t size);

// --- moments.c, snapshot.c, restore.c: the sandbox's files as deltas ----------------------------

struct walk {
    uint64_t number;            // of the moment that is recorded
    bool emits;                 // a delta since the moment `base`
    uint64_t most_file, most_delta;
    char **trees;               // pairs of words, ended by NULL
};
// The moment of a `track` or `changes` request is kept once its process has succeeded.
const char *moment_begin(const struct walk *walk, uint64_t request, int *code); // NULL, or why not
void moment_end(uint64_t request, bool succeeded);
_Noreturn void child_walk(const struct walk *walk);
_Noreturn void child_restore(const struct bytes *delta, char *const *trees);

// --- filter.c, main.c ---------------------------------------------------------------------------

void install_filter(void);
int64_t now_ms(void);
extern bool is_init;            // this is process 1 of a process namespace of its own
extern const char *shell;
void clear_sandbox(uint64_t number);
bool is_relay(pid_t pid);       // the process that has brought the stream
