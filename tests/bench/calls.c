/* The smallest system calls. */
#include "bench.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

/* The form in which compilers leave it: a system may rewrite a place that has trapped often. */
static void getppid_plain(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++)
        __asm__ volatile("movl %0, %%eax\n\tsyscall"
                         :
                         : "i"(SYS_getppid)
                         : "rax", "rcx", "r11", "memory");
}

static const char *trap_often(void)
{
    getppid_plain(10000);
    return NULL;
}

/* The same in memory that can be written, where code may change at any time: nobody rewrites it. */
static void (*trapping)(void);

static const char *write_code(void)
{
    static const unsigned char code[] = {0xb8, SYS_getppid, 0, 0, 0, 0x0f, 0x05, 0xc3};
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    if (page == MAP_FAILED)
        return failed("mmap of code");
    memcpy(page, code, sizeof code);
    memcpy(&trapping, &page, sizeof page);
    return NULL;
}

static void getppid_trapped(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++)
        trapping();
}

static void clock_read(unsigned operations)
{
    struct timespec now;
    for (unsigned round = 0; round < operations; round++)
        clock_gettime(CLOCK_MONOTONIC, &now);
}

static void yield(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++)
        raw_call(SYS_sched_yield, 0, 0, 0);
}

const struct row CALL_ROWS[] = {
    {"getppid", ROUND_TRIP, "getppid by `mov eax; syscall`, which may be rewritten", 1000,
     trap_often, NULL, getppid_plain, NULL, NULL},
    {"getppid_trap", ROUND_TRIP, "the same where nobody can rewrite it", 1000, write_code, NULL,
     getppid_trapped, NULL, NULL},
    {"clock", ROUND_TRIP, "clock_gettime, without a call where the system offers that", 1000, NULL,
     NULL, clock_read, NULL, NULL},
    {"yield", ROUND_TRIP, "sched_yield with nobody else to run", 1000, NULL, NULL, yield, NULL,
     NULL},
    {0},
};
