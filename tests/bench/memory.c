/* Page faults, protection, and the virtual memory exercises of Appel and Li (aegis95 Table 10). */
#define _GNU_SOURCE
#include "bench.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES 100
static char *area;
/* Pages in an order without a pattern, the same in each run. */
static unsigned order[PAGES];
static volatile char sink;

static const char *map_area(void)
{
    area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return failed("mmap");
    memset(area, 1, PAGES * PAGE);
    for (unsigned at = 0; at < PAGES; at++)
        order[at] = at;
    uint32_t state = 1;
    for (unsigned at = PAGES - 1; at > 0; at--) {
        state = state * 1664525 + 1013904223;
        unsigned other = (state >> 8) % (at + 1), kept = order[at];
        order[at] = order[other];
        order[other] = kept;
    }
    return NULL;
}

static void unmap_area(void)
{
    munmap(area, PAGES * PAGE);
}

static void protect(char *from, unsigned pages, int rights)
{
    must(raw_call(10 /* mprotect */, (long)from, (long)(pages * PAGE), rights) == 0, "mprotect");
}

static void all_writable(unsigned operations)
{
    (void)operations;
    protect(area, PAGES, PROT_READ | PROT_WRITE);
}

static void all_readable(unsigned operations)
{
    (void)operations;
    protect(area, PAGES, PROT_READ);
}

/* ---- first touches ---- */

static char *fresh;

static void map_fresh(unsigned operations)
{
    fresh = mmap(NULL, operations * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                 0);
    must(fresh != MAP_FAILED, "mmap");
}

static void unmap_fresh(unsigned operations)
{
    must(munmap(fresh, operations * PAGE) == 0, "munmap");
}

static void write_pages(unsigned operations)
{
    for (unsigned page = 0; page < operations; page++)
        *(volatile char *)(fresh + page * PAGE) = 1;
}

/* A child that shares the pages lives from before the sample until after it. */
static pid_t child;
static int release[2];

static void share_fresh(unsigned operations)
{
    char byte = 0;
    int shared[2];
    map_fresh(operations);
    write_pages(operations);
    must(pipe(release) == 0 && pipe(shared) == 0, "pipe");
    child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        must(write(shared[1], &byte, 1) == 1, "write");
        must(read(release[0], &byte, 1) == 1, "read");
        _exit(0);
    }
    must(read(shared[0], &byte, 1) == 1, "read");
    close(shared[0]);
    close(shared[1]);
}

static void unshare_fresh(unsigned operations)
{
    char byte = 0;
    must(write(release[1], &byte, 1) == 1, "write");
    must(waitpid(child, NULL, 0) == child, "waitpid");
    close(release[0]);
    close(release[1]);
    unmap_fresh(operations);
}

/* ---- protection ---- */

static void mprotect_pairs(unsigned operations, unsigned pages)
{
    for (unsigned round = 0; round < operations; round += 2) {
        protect(area, pages, PROT_READ);
        protect(area, pages, PROT_READ | PROT_WRITE);
    }
}

static void mprotect1(unsigned operations)
{
    mprotect_pairs(operations, 1);
}

static void mprotect100(unsigned operations)
{
    mprotect_pairs(operations, PAGES);
}

static void prot1(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++)
        protect(area + order[round % PAGES] * PAGE, 1, PROT_READ);
}

static void prot100(unsigned operations)
{
    (void)operations;
    protect(area, PAGES, PROT_READ);
}

static void unprot100(unsigned operations)
{
    (void)operations;
    protect(area, PAGES, PROT_READ | PROT_WRITE);
}

/* ---- traps ---- */

static volatile unsigned turn, traps;
static bool protects_another;

static void unprotect_faulting(int number, siginfo_t *info, void *context)
{
    char *page = (char *)((uintptr_t)info->si_addr & ~(PAGE - 1));
    (void)number;
    (void)context;
    traps++;
    /* Not the one that is touched next, which is protected already. */
    if (protects_another)
        protect(area + order[(turn + PAGES / 2) % PAGES] * PAGE, 1, PROT_READ);
    protect(page, 1, PROT_READ | PROT_WRITE);
}

static const char *map_and_handle(bool another)
{
    struct sigaction action = {.sa_sigaction = unprotect_faulting, .sa_flags = SA_SIGINFO};
    protects_another = another;
    return sigaction(SIGSEGV, &action, NULL) ? failed("sigaction") : map_area();
}

static const char *map_appel1(void)
{
    return map_and_handle(true);
}

static const char *map_appel2(void)
{
    return map_and_handle(false);
}

static void unmap_appel(void)
{
    signal(SIGSEGV, SIG_DFL);
    unmap_area();
}

/* Before a sample every other page, in the random order, is protected: half of them. */
static void protect_half(unsigned operations)
{
    all_writable(operations);
    for (unsigned at = 0; at < PAGES / 2; at++)
        protect(area + order[at] * PAGE, 1, PROT_READ);
    traps = 0;
}

static void protect_none(unsigned operations)
{
    all_writable(operations);
    traps = 0;
}

static void check_traps(unsigned operations)
{
    must(traps == operations, "every touch traps once");
}

/* Touches a protected page; its handler protects one of the others, and unprotects it. */
static void appel1(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++) {
        turn = round % PAGES;
        *(volatile char *)(area + order[turn] * PAGE) = 1;
    }
}

/* Protects all, touches each in random order; its handler unprotects it. */
static void appel2(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++) {
        if (round % PAGES == 0)
            protect(area, PAGES, PROT_READ);
        *(volatile char *)(area + order[round % PAGES] * PAGE) = 1;
    }
}

/* ---- is a page dirty? Linux tells by bit 55 of /proc/self/pagemap ---- */

static int pagemap = -1;

static const char *open_pagemap(void)
{
    int clear = open("/proc/self/clear_refs", O_WRONLY);
    if (clear < 0)
        return failed("/proc/self/clear_refs");
    if (write(clear, "4", 1) != 1) {
        close(clear);
        return failed("clear_refs");
    }
    close(clear);
    pagemap = open("/proc/self/pagemap", O_RDONLY);
    return pagemap < 0 ? failed("/proc/self/pagemap") : map_area();
}

static void close_pagemap(void)
{
    close(pagemap);
    unmap_area();
}

static void dirty(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++) {
        uint64_t entry;
        uintptr_t page = (uintptr_t)area / PAGE + order[round % PAGES];
        must(pread(pagemap, &entry, 8, (off_t)(page * 8)) == 8, "pagemap");
        sink = entry >> 55 & 1;
    }
}

const struct row MEMORY_ROWS[] = {
    {"page_touch", ROUND_TRIP, "first write to a page of anonymous memory", 100, NULL, map_fresh,
     write_pages, unmap_fresh, NULL},
    {"page_cow", ROUND_TRIP, "first write to a page shared with a child", 100, NULL, share_fresh,
     write_pages, unshare_fresh, NULL},
    {"mprotect1", ROUND_TRIP, "mprotect of one page, to read-only and back in turn", 100, map_area,
     NULL, mprotect1, NULL, unmap_area},
    {"mprotect100", ROUND_TRIP, "mprotect of 100 pages, to read-only and back in turn", 20,
     map_area, NULL, mprotect100, NULL, unmap_area},
    {"prot1", ROUND_TRIP, "read-protect one page among others", PAGES, map_area, all_writable,
     prot1, NULL, unmap_area},
    {"prot100", ROUND_TRIP, "read-protect 100 pages in one call", 1, map_area, all_writable,
     prot100, NULL, unmap_area},
    {"unprot100", ROUND_TRIP, "unprotect 100 pages in one call", 1, map_area, all_readable,
     unprot100, NULL, unmap_area},
    {"appel1", ROUND_TRIP, "touch a protected page; handler protects another, unprotects it",
     PAGES, map_appel1, protect_half, appel1, check_traps, unmap_appel},
    {"appel2", ROUND_TRIP, "protect 100 pages, touch each, handler unprotects it; per page", PAGES,
     map_appel2, protect_none, appel2, check_traps, unmap_appel},
    {"dirty", ROUND_TRIP, "ask whether a page is dirty", PAGES, open_pagemap, NULL, dirty, NULL,
     close_pagemap},
    {0},
};
