/* A fault, the program's handler for it, and the way back: the same Linux binary on both. */
#define _GNU_SOURCE
#include "bench.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static volatile unsigned handled;
static char *forbidden;

/* Each faulting instruction below has two bytes. */
static void skip(int number, siginfo_t *info, void *context)
{
    ucontext_t *interrupted = context;
    (void)number;
    (void)info;
    interrupted->uc_mcontext.gregs[REG_RIP] += 2;
    handled++;
}

static void count_signal(int number)
{
    (void)number;
    handled++;
}

static const char *handle(int number)
{
    struct sigaction action = {.sa_sigaction = skip, .sa_flags = SA_SIGINFO};
    return sigaction(number, &action, NULL) ? failed("sigaction") : NULL;
}

static const char *handle_fpe(void)
{
    return handle(SIGFPE);
}

static const char *handle_ill(void)
{
    return handle(SIGILL);
}

static const char *handle_segv(void)
{
    forbidden = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return forbidden == MAP_FAILED ? failed("mmap") : handle(SIGSEGV);
}

static const char *handle_user(void)
{
    return signal(SIGUSR1, count_signal) == SIG_ERR ? failed("signal") : NULL;
}

static void restore(void)
{
    signal(SIGSEGV, SIG_DFL);
    signal(SIGFPE, SIG_DFL);
    signal(SIGILL, SIG_DFL);
}

static void begin_count(unsigned operations)
{
    (void)operations;
    handled = 0;
}

static void check_count(unsigned operations)
{
    must(handled == operations, "every signal handled once");
}

static void segv(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++)
        __asm__ volatile("movb (%%rdi), %%al" : : "D"(forbidden) : "rax", "memory");
}

static void fpe(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++)
        __asm__ volatile("divl %%ecx" : : "c"(0), "a"(1), "d"(0) : "cc", "memory");
}

static void ill(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++)
        __asm__ volatile("ud2" : : : "memory");
}

static void send(unsigned operations)
{
    pid_t own = getpid();
    for (unsigned round = 0; round < operations; round++)
        kill(own, SIGUSR1);
}

const struct row SIGNAL_ROWS[] = {
    {"sig_segv", ROUND_TRIP, "SIGSEGV of a read: fault, handler, return", 100, handle_segv,
     begin_count, segv, check_count, restore},
    {"sig_fpe", ROUND_TRIP, "SIGFPE of a division by zero: fault, handler, return", 100,
     handle_fpe, begin_count, fpe, check_count, restore},
    {"sig_ill", ROUND_TRIP, "SIGILL of ud2: fault, handler, return", 100, handle_ill, begin_count,
     ill, check_count, restore},
    {"sig_self", ROUND_TRIP, "kill of oneself, handler, return", 100, handle_user, begin_count,
     send, check_count, NULL},
    {0},
};
