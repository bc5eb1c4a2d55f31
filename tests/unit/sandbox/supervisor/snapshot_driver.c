// Runs the walk and the restoration of the supervisor outside of it, for the sanitizers.
//
//   driver walk DIR SCRIPT     the delta of DIR over SCRIPT, to stdout
//   driver restore DIR         restore each input of stdin (length (4), bytes) to DIR; prints the
//                              exit codes, and exits with 1 when one has crashed
#include "tree.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CRASHED = 99 }; // as the test sets it for the sanitizers

bool is_init;
bool is_relay(pid_t pid) { return pid < 0; }

static int ended(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : CRASHED;
}

static int walk(char **trees, const char *script) {
    for (uint64_t number = 0; number < 2; number++) {
        struct walk walk = {number, number > 0, 1 << 20, 8 << 20, trees};
        int code, done;
        const char *problem = moment_begin(&walk, number + 1, &code);
        if (problem) {
            fprintf(stderr, "%s\n", problem);
            return 1;
        }
        pid_t pid = fork();
        if (!pid) {
            if (!number) // what is there before is not reported
                dup2(open("/dev/null", O_WRONLY), 2);
            child_walk(&walk);
        }
        if ((done = ended(pid)))
            return done;
        moment_end(number + 1, true);
        if (!number && system(script))
            return 2;
    }
    return 0;
}

static int restore(char **trees) {
    char size[4];
    while (fread(size, 1, sizeof size, stdin) == sizeof size) {
        struct bytes delta = {0};
        // Of exactly its size, so that a read beyond its end is seen.
        delta.data = malloc(get32(size));
        delta.size = fread(delta.data, 1, get32(size), stdin);
        pid_t pid = fork();
        if (!pid)
            child_restore(&delta, trees);
        int code = ended(pid);
        printf("%d\n", code);
        free(delta.data);
        if (code == CRASHED)
            return 1;
    }
    return 0;
}

int main(int count, char **arguments) {
    if (count < 3)
        return 64;
    char *trees[] = {"tree", arguments[2], NULL};
    hash_start();
    return strcmp(arguments[1], "walk") ? restore(trees) : walk(trees, arguments[3]);
}
