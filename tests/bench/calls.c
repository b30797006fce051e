/* The smallest system calls. */
#include "bench.h"

#include <sys/syscall.h>
#include <time.h>

static void getppid_trapped(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++)
        raw_call(SYS_getppid, 0, 0, 0);
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
    {"getppid", ROUND_TRIP, "getppid by a `syscall` instruction", 1000, NULL, NULL,
     getppid_trapped, NULL, NULL},
    {"clock", ROUND_TRIP, "clock_gettime, without a call where the system offers that", 1000, NULL,
     NULL, clock_read, NULL, NULL},
    {"yield", ROUND_TRIP, "sched_yield with nobody else to run", 1000, NULL, NULL, yield, NULL,
     NULL},
    {0},
};
