/* What a second processor is worth to Linux: the same work on one and on two, as its first process.
 *
 *   bench-cpus MILLISECONDS
 *
 *   cpus WORK PROCESSORS OPERATIONS NANOSECONDS 0
 *
 * The kinds of work are those of tests/native-bench/src/cpus.rs, or what Linux has in their place. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096
#define WORKERS 2
/* Pages of the process that is forked. */
#define FORKED 100

/* A page for each worker's count, shared with who measures. */
static volatile uint64_t *counts;

static void must(int held, const char *what)
{
    if (held)
        return;
    printf("fatal %s: %s\n", what, strerror(errno));
    fflush(stdout);
    reboot(RB_POWER_OFF);
    _exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void rest(uint64_t ns)
{
    struct timespec pause = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    nanosleep(&pause, NULL);
}

static void control(void)
{
    for (unsigned step = 0; step < 1000; step++)
        __asm__ volatile("" : : "r"(step));
}

/* The load below has two bytes. */
static void skip(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

static void fault(void)
{
    uint64_t word;
    __asm__ volatile("movb (%%rax), %%al" : "=a"(word) : "a"((char *)PAGE) : "memory");
}

static void call(void)
{
    syscall(SYS_getppid);
}

static void page(void)
{
    char *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED, "mmap");
    *at = 1;
    munmap(at, PAGE);
}

/* To a process that stands for the server of a transfer, and back. */
static int to_server[2], from_server[2];

static void ask(void)
{
    char byte = 0;
    must(write(to_server[1], &byte, 1) == 1 && read(from_server[0], &byte, 1) == 1, "pipe");
}

static void start_server(void)
{
    char byte;
    must(!pipe(to_server) && !pipe(from_server), "pipe");
    if (fork())
        return;
    while (read(to_server[0], &byte, 1) == 1 && write(from_server[1], &byte, 1) == 1)
        ;
    _exit(0);
}

static void fork_once(void)
{
    pid_t child = fork();
    if (!child)
        _exit(0);
    must(waitpid(child, NULL, 0) == child, "waitpid");
}

static void prepare_fork(void)
{
    char *at = mmap(NULL, FORKED * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED, "mmap");
    memset(at, 1, FORKED * PAGE);
}

static void handle_faults(void)
{
    struct sigaction action = {.sa_sigaction = skip, .sa_flags = SA_SIGINFO};
    must(!sigaction(SIGSEGV, &action, NULL), "sigaction");
}

static const struct kind {
    const char *name;
    void (*prepare)(void);
    void (*once)(void);
} KINDS[] = {
    {"control", NULL, control},      {"call", NULL, call},
    {"fault", handle_faults, fault}, {"page", NULL, page},
    {"transfer", start_server, ask}, {"fork", prepare_fork, fork_once},
};

static pid_t start(const struct kind *kind, int worker, int processor)
{
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child)
        return child;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    setpgid(0, 0);
    must(!sched_setaffinity(0, sizeof set, &set), "sched_setaffinity");
    if (kind->prepare)
        kind->prepare();
    for (;;) {
        kind->once();
        counts[worker * (PAGE / sizeof *counts)]++;
    }
}

static uint64_t counted(void)
{
    return counts[0] + counts[PAGE / sizeof *counts];
}

static void measure(const struct kind *kind, int processors, uint64_t length)
{
    pid_t workers[WORKERS];
    for (int worker = 0; worker < processors; worker++)
        workers[worker] = start(kind, worker, processors == 1 ? 1 : worker);
    rest(length / 4);
    uint64_t began = now_ns(), before = counted();
    rest(length);
    uint64_t ended = now_ns(), after = counted();
    for (int worker = 0; worker < processors; worker++) {
        kill(-workers[worker], SIGKILL);
        waitpid(workers[worker], NULL, 0);
    }
    printf("cpus %s %d %llu %llu 0\n", kind->name, processors, (unsigned long long)(after - before),
           (unsigned long long)(ended - began));
    fflush(stdout);
}

int main(int count, char **words)
{
    mkdir("/dev", 0755);
    mount("devtmpfs", "/dev", "devtmpfs", 0, "");
    int console = open("/dev/ttyS0", O_RDWR);
    for (int standard = 0; console >= 0 && standard < 3; standard++)
        dup2(console, standard);
    uint64_t length = (count > 1 ? strtoull(words[1], NULL, 10) : 1000) * 1000000;
    counts = mmap(NULL, WORKERS * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(counts != MAP_FAILED, "mmap");
    for (size_t kind = 0; kind < sizeof KINDS / sizeof *KINDS; kind++)
        for (int processors = 1; processors <= WORKERS; processors++)
            measure(&KINDS[kind], processors, length);
    puts("done");
    fflush(stdout);
    reboot(RB_POWER_OFF);
    return 0;
}
