/* What one user may do to the processes of another beyond signals: priorities, limits, scheduling, memory,
 * sessions, and what only the superuser may do to the machine. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <linux/futex.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>

/* Numbers that no user of a host has: one of the cases signals all processes of ANN's. */
enum { ANN = 61000, BOB = 61001 };
/* No process's number, nor ever one. */
enum { NOBODYS = 0x3ffffff0 };

struct member {
    unsigned user;
    pid_t group;
};

static void join_and_become(const void *given)
{
    const struct member *member = given;
    setpgid(0, member->group);
    become(member->user);
}

/* A child of `user`, in a process group of its own or of `group`, that sleeps until it is killed. */
static pid_t sleeper_in(unsigned user, pid_t group)
{
    struct member member = {user, group};
    return sleeper_after(join_and_become, &member);
}

static void reap(const char *what, pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    show_status(what, status);
}

static pid_t anns, bobs, roots;

static void priorities(void)
{
    TRY(setpriority(PRIO_PROCESS, bobs, 5));
    TRY(setpriority(PRIO_PROCESS, roots, 5));
    TRY(setpriority(PRIO_PROCESS, 1, 5));
    TRY(setpriority(PRIO_PROCESS, NOBODYS, 5));
    TRY(setpriority(PRIO_USER, BOB, 5));
    TRY(setpriority(PRIO_PGRP, bobs, 5));
    TRY(setpriority(7, 0, 5));
    TRY(syscall(SYS_getpriority, PRIO_PROCESS, bobs));
    TRY(syscall(SYS_getpriority, PRIO_PROCESS, NOBODYS));
    TRY(setpriority(PRIO_PROCESS, 0, 5));
    TRY(syscall(SYS_getpriority, PRIO_PROCESS, 0));
    TRY(setpriority(PRIO_PROCESS, 0, 4)); /* back needs the superuser */
    TRY(setpriority(PRIO_PROCESS, 0, -1));
    TRY(setpriority(PRIO_PROCESS, getpid(), 9));
    TRY(syscall(SYS_getpriority, PRIO_PROCESS, getpid()));
    struct sched_param usual = {0}, real_time = {1};
    TRY(sched_setscheduler(bobs, SCHED_OTHER, &usual));
    TRY(sched_setscheduler(roots, SCHED_OTHER, &usual));
    TRY(sched_setscheduler(NOBODYS, SCHED_OTHER, &usual));
    TRY(sched_setscheduler(0, SCHED_FIFO, &real_time));
    TRY(sched_setscheduler(0, 77, &usual));
    TRY(sched_setscheduler(0, SCHED_OTHER, &usual));
    TRY(sched_setparam(bobs, &usual));
    TRY(sched_getscheduler(bobs));
    TRY(sched_getscheduler(NOBODYS));
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    TRY(sched_setaffinity(bobs, sizeof first, &first));
    TRY(sched_setaffinity(NOBODYS, sizeof first, &first));
    TRY(sched_setaffinity(0, sizeof first, &first));
}

static void limits(void)
{
    struct rlimit less = {7, 7}, more = {8, 8}, odd = {9, 8}, old;
    TRY(prlimit(bobs, RLIMIT_NOFILE, NULL, &old));
    TRY(prlimit(bobs, RLIMIT_NOFILE, &less, NULL));
    TRY(prlimit(roots, RLIMIT_CORE, &less, &old));
    TRY(prlimit(NOBODYS, RLIMIT_CORE, NULL, &old));
    TRY(setrlimit(RLIMIT_CORE, &odd));
    TRY(setrlimit(RLIMIT_CORE, &less));
    TRY(setrlimit(RLIMIT_CORE, &more));
    TRY(getrlimit(RLIMIT_CORE, &old));
    SHOW(old.rlim_cur);
    SHOW(old.rlim_max);
    TRY(getrlimit(99, &old));
}

/* May be read: 1; else the error of opening it, or of reading the first byte. */
static int readable(const char *file, pid_t pid)
{
    char path[64], byte;
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return -errno;
    int got = read(fd, &byte, 1);
    got = got < 0 ? -errno : 1;
    close(fd);
    return got;
}

static int link_of(const char *file, pid_t pid)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    return readlink(path, text, sizeof text) < 0 ? -errno : 1;
}

static int listed(const char *file, pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return -errno;
    close(fd);
    return 1;
}

#define OF(what, file)                                                      \
    do {                                                                    \
        int got_ = what(file, bobs);                                        \
        printf("%s of bob's: %s\n", file, got_ < 0 ? strerrorname_np(-got_) : "there"); \
        got_ = what(file, roots);                                           \
        printf("%s of root's: %s\n", file, got_ < 0 ? strerrorname_np(-got_) : "there"); \
    } while (0)

static void proc(void)
{
    OF(readable, "stat");
    OF(readable, "status");
    OF(readable, "cmdline");
    OF(readable, "comm");
    OF(readable, "mem");
    OF(readable, "maps");
    OF(readable, "environ");
    OF(link_of, "cwd");
    OF(link_of, "exe");
    OF(link_of, "root");
    OF(listed, "fd");
    OF(link_of, "fd/0");
}

static void machine(void)
{
    struct timespec now = {1000000000, 0};
    struct timeval then = {1000000000, 0};
    TRY(syscall(SYS_ptrace, PTRACE_ATTACH, bobs, 0, 0));
    TRY(syscall(SYS_ptrace, PTRACE_ATTACH, roots, 0, 0));
    TRY(syscall(SYS_ptrace, PTRACE_SEIZE, 1, 0, 0));
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)become, 1};
    TRY(process_vm_readv(bobs, &here, 1, &there, 1, 0));
    TRY(process_vm_writev(roots, &here, 1, &there, 1, 0));
    TRY(reboot(RB_AUTOBOOT));
    TRY(reboot(RB_POWER_OFF));
    TRY(mount("none", "/tmp", "tmpfs", 0, NULL));
    TRY(umount2("/tmp", 0));
    TRY(syscall(SYS_pivot_root, "/tmp", "/tmp"));
    TRY(chroot("/"));
    TRY(sethostname("mine", 4));
    TRY(setdomainname("mine", 4));
    TRY(clock_settime(CLOCK_REALTIME, &now));
    TRY(settimeofday(&then, NULL));
    TRY(vhangup());
    TRY(unshare(CLONE_NEWNS));
    TRY(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    TRY(socket(AF_INET, SOCK_RAW, IPPROTO_RAW));
    TRY(socket(AF_PACKET, SOCK_RAW, 0));
    TRY(socket(AF_PACKET, SOCK_DGRAM, 0));
}

static void groups_of_processes(void)
{
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        TRY(setpgid(0, bobs)); /* another user's group in the session: allowed */
        TRY(setpgid(bobs, 0)); /* no child of ours */
        TRY(setpgid(getppid(), 0));
        TRY(setpgid(0, NOBODYS));
        TRY(setpgid(0, 1));
        TRY(setpgid(0, 0));
        TRY(getpgid(0) == getpid());
        TRY(setsid());
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status("a member", status);
    TRY(getpgid(bobs) == bobs);
    TRY(getsid(bobs) == getsid(0));
    TRY(getpgid(NOBODYS));
    TRY(getsid(NOBODYS));
}

/* A group of two users hears of who may tell it. */
static void mixed_group(void)
{
    TRY(kill(-bobs, SIGTERM)); /* one of it is ann's */
    TRY(kill(-roots, SIGTERM));
    TRY(kill(-NOBODYS, SIGTERM));
}

static void continuing(void)
{
    TRY(kill(bobs, SIGSTOP));
    TRY(setsid() == getpid());
    TRY(kill(bobs, SIGCONT)); /* of another session */
    TRY(kill(roots, SIGCONT));
}

/* To all that one may reach: this user's alone. */
static void to_all(void)
{
    TRY(kill(-1, SIGTERM));
}

static void futexes(void)
{
    unsigned *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ready[2], status;
    char byte;
    pipe(ready);
    pid_t child = fork_clean();
    if (child == 0) {
        become(BOB);
        write(ready[1], "r", 1);
        while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0)
            syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
        _exit(3);
    }
    read(ready[0], &byte, 1);
    pid_t waker = fork_clean();
    if (waker == 0) {
        become(ANN);
        /* Until the sleeper has been woken or has seen the word: it wakes by nothing else. */
        usleep(100000);
        __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
        _exit(0);
    }
    waitpid(waker, &status, 0);
    show_status("who wakes", status);
    waitpid(child, &status, 0);
    show_status("who slept", status);
}

/* A child that has another user than its parent: the parent hears of its end all the same. */
static void children_of_others(void)
{
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        become(BOB);
        TRY(kill(getppid(), 0));
        _exit(5);
    }
    TRY(waitpid(child, &status, 0) == child);
    show_status("bob's child", status);
    int ready[2];
    char byte;
    pipe(ready);
    child = fork_clean();
    if (child == 0) {
        setresuid(BOB, BOB, ANN); /* ann's by the saved user */
        write(ready[1], "r", 1);
        for (;;)
            pause();
    }
    read(ready[0], &byte, 1);
    setresuid(ANN, ANN, ANN);
    TRY(kill(child, SIGKILL));
    TRY(waitpid(child, &status, 0) == child);
    show_status("the saved one's", status);
}

static void parent_of_another(void)
{
    setgroups(0, NULL);
    children_of_others();
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    if (geteuid() != 0)
        return 77;
    setpgid(0, 0);
    setpriority(PRIO_PROCESS, 0, 0); /* whatever who started us has */
    roots = sleeper_in(0, 0);
    bobs = sleeper_in(BOB, 0);
    as(ANN, priorities);
    as(ANN, limits);
    as(ANN, proc);
    as(ANN, machine);
    as(ANN, groups_of_processes);
    as(ANN, continuing);
    anns = sleeper_in(ANN, bobs);
    as(ANN, mixed_group);
    reap("ann's of the mixed group", anns);
    TRY(kill(bobs, 0));
    as(0, parent_of_another);
    futexes();
    anns = sleeper_in(ANN, 0);
    as(BOB, to_all);
    reap("bob's", bobs);
    as(BOB, to_all); /* now all that there are refuse */
    TRY(kill(anns, 0));
    TRY(kill(anns, SIGKILL));
    TRY(kill(roots, SIGKILL));
    reap("ann's", anns);
    reap("root's", roots);
    return 0;
}
