/* What the programs of this directory share: each prints what it saw, one line a fact. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

/* Prints an expression's value. */
#define SHOW(expression) printf("%s = %ld\n", #expression, (long)(expression))

/* Prints a call's result; its error's name if it failed. */
#define TRY(call)                                                        \
    do {                                                                 \
        errno = 0;                                                       \
        long result_ = (long)(call);                                     \
        if (result_ == -1)                                               \
            printf("%s: %s\n", #call, strerrorname_np(errno));           \
        else                                                             \
            printf("%s = %ld\n", #call, result_);                        \
    } while (0)

/* Prints whether a call succeeded; for results that differ from run to run. */
#define WORKS(call)                                                      \
    do {                                                                 \
        errno = 0;                                                       \
        long result_ = (long)(call);                                     \
        printf("%s: %s\n", #call,                                        \
               result_ == -1 ? strerrorname_np(errno) : "works");        \
    } while (0)

/* Line by line, so that a program that dies early has said how far it came. */
__attribute__((constructor)) static void print_lines(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
}

/* Prints how a child ended. */
static inline void show_status(const char *what, int status)
{
    if (WIFEXITED(status))
        printf("%s: exit %d\n", what, WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
        printf("%s: signal %d\n", what, WTERMSIG(status));
    else if (WIFSTOPPED(status))
        printf("%s: stopped %d\n", what, WSTOPSIG(status));
    else if (WIFCONTINUED(status))
        printf("%s: continued\n", what);
}

/* Forks with nothing left in the output's buffer. */
static inline pid_t fork_clean(void)
{
    fflush(stdout);
    return fork();
}
