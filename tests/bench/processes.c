/* Making processes, and waiting for their end. */
#define _GNU_SOURCE
#include "bench.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char *ballast;
static size_t ballast_bytes;

static const char *load(size_t bytes)
{
    ballast_bytes = bytes;
    ballast = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ballast == MAP_FAILED)
        return failed("mmap");
    for (size_t at = 0; at < bytes; at += PAGE)
        ballast[at] = 1;
    return NULL;
}

static const char *load16(void)
{
    return load(16ul << 20);
}

static const char *load100(void)
{
    return load(100ul << 20);
}

static void unload(void)
{
    munmap(ballast, ballast_bytes);
}

static void expect_success(pid_t child)
{
    int status = -1;
    must(waitpid(child, &status, 0) == child && status == 0, "a child's status");
}

static void fork_wait(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0)
            _exit(0);
        expect_success(child);
    }
}

static void execute(unsigned operations, char *const words[])
{
    static char *const environment[] = {NULL};
    for (unsigned round = 0; round < operations; round++) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
            execve(words[0], words, environment);
            _exit(127);
        }
        expect_success(child);
    }
}

/* tests/bench-end: a page of text and no library. */
static void fork_exec(unsigned operations)
{
    static char *const words[] = {"/bench-end", NULL};
    execute(operations, words);
}

static void fork_exec_libc(unsigned operations)
{
    static char *const words[] = {"/bench", "--exit", NULL};
    execute(operations, words);
}

const struct row PROCESS_ROWS[] = {
    {"fork", ROUND_TRIP, "fork, _exit, waitpid of a small process", 10, NULL, NULL, fork_wait, NULL,
     NULL},
    {"fork16m", ROUND_TRIP, "the same with 16 MiB of written memory", 5, load16, NULL, fork_wait,
     NULL, unload},
    {"fork100m", ROUND_TRIP, "the same with 100 MiB of written memory", 2, load100, NULL, fork_wait,
     NULL, unload},
    {"fork_exec", ROUND_TRIP, "fork, execve of a small static program, its end, waitpid", 5, NULL,
     NULL, fork_exec, NULL, NULL},
    {"fork_exec_libc", ROUND_TRIP, "the same of a static program with glibc, this one", 5, NULL,
     NULL, fork_exec_libc, NULL, NULL},
    {0},
};
