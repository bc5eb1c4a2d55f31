// The system calls that commands do without: ways out of the sandbox's namespaces, ways to touch
// process 1, and the parts of the kernel that no test suite needs and attackers do.
#include "supervisor.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifndef __NR_io_uring_setup
#define __NR_io_uring_setup 425
#endif
#define X32_BIT 0x40000000

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOW(n) offsetof(struct seccomp_data, args[n])
#define LOAD_ARGUMENT(n) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LOW(n))
#define REFUSE(number) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (number))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
// When the value is `k`, go on with the next instruction; else skip `others`.
#define IF(k, others) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (k), 0, (others))
#define CALL(name, number) IF(__NR_##name, 1), REFUSE(number)
// Refuse it for process 1: with the lowest priority it could be starved.
#define NOT_OF_INIT(name)                                                                          \
    IF(__NR_##name, 4), LOAD_ARGUMENT(0), IF(1, 1), REFUSE(EPERM), ALLOW
// The same for calls that name processes by user too.
#define NOT_OF_INIT_OR_USER(name, user)                                                            \
    IF(__NR_##name, 6), LOAD_ARGUMENT(0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (user), 2, 0),       \
        LOAD_ARGUMENT(1), IF(1, 1), REFUSE(EPERM), ALLOW
#define IO_PRIORITY_OF_USER 3

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#else
#define NATIVE AUDIT_ARCH_AARCH64
#endif

static struct sock_filter program[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 1, 0),
    REFUSE(ENOSYS),
    LOAD(nr),
#if defined(__x86_64__)
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1),
    REFUSE(ENOSYS),
#endif
    // Keys are shared by all containers of a user on the machine.
    CALL(add_key, ENOSYS),
    CALL(request_key, ENOSYS),
    CALL(keyctl, ENOSYS),
    CALL(clone3, ENOSYS), // its flags are out of reach; the C library falls back to `clone`
    CALL(setns, EPERM),
    CALL(io_uring_setup, ENOSYS), // makes system calls that no filter sees
    CALL(bpf, EPERM),
    CALL(perf_event_open, EPERM),
    CALL(userfaultfd, EPERM),
    CALL(syslog, EPERM),
    CALL(pidfd_send_signal, ENOSYS),
    IF(__NR_unshare, 4),
    LOAD_ARGUMENT(0),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER, 0, 1),
    REFUSE(EPERM),
    ALLOW,
    IF(__NR_clone, 4),
    LOAD_ARGUMENT(0),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER, 0, 1),
    REFUSE(EPERM),
    ALLOW,
    IF(__NR_prlimit64, 4),
    LOAD_ARGUMENT(0),
    IF(0, 1),
    ALLOW,
    REFUSE(EPERM),
    NOT_OF_INIT_OR_USER(setpriority, PRIO_USER),
    NOT_OF_INIT_OR_USER(ioprio_set, IO_PRIORITY_OF_USER),
    NOT_OF_INIT(sched_setscheduler),
    NOT_OF_INIT(sched_setparam),
    NOT_OF_INIT(sched_setattr),
    NOT_OF_INIT(sched_setaffinity),
    IF(__NR_socket, 7),
    LOAD_ARGUMENT(0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 4, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 3, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 1, 0),
    REFUSE(EAFNOSUPPORT),
    ALLOW,
    ALLOW,
};

void install_filter(void) {
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    // Where programs may gain privileges (containers that are not ours), they go on doing so.
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        return;
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
}
