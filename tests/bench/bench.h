/* The benchmark program: one static ELF file, the same on Linux and on Xok/ExOS.
 *
 * A row repeats one operation between two marker instructions, which a counting plugin of QEMU's
 * sees and which are NOPs everywhere else; beside it the time-stamp counter is read. */
#ifndef BENCH_H
#define BENCH_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The plugin's markers: see xtask/src/bench/plugin/count.c. */
#define MARK(number) __asm__ volatile("nopl %c0(%%rax)" : : "i"(0x584f0000 + (number)) : "memory")
enum { MARK_BEGIN, MARK_END, MARK_PROGRAM, MARK_COMMAND };

/* What a figure covers. */
#define ONE_WAY "one way"
#define ROUND_TRIP "round trip"

struct row {
    const char *name;
    /* Whether one operation is a round trip, and what it is. */
    const char *way;
    const char *what;
    /* Operations of one sample. */
    unsigned operations;
    /* Before the first sample; says why the row cannot be measured here, or nothing. */
    const char *(*setup)(void);
    /* Before each sample, outside of it. */
    void (*before)(unsigned operations);
    void (*run)(unsigned operations);
    /* After each sample, outside of it. */
    void (*after)(unsigned operations);
    void (*teardown)(void);
};

/* A call of Linux's without a library between; at most three arguments. */
static inline long raw_call(long number, long first, long second, long third)
{
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return answer;
}

/* `what: the reason in errno`, in a buffer of its own. */
const char *failed(const char *what);
/* Ends the program: the figures of this row cannot be trusted. */
void must(bool held, const char *what);

extern const struct row CONTROL_ROWS[], CALL_ROWS[], SIGNAL_ROWS[], MEMORY_ROWS[], PIPE_ROWS[],
    PROCESS_ROWS[], FILE_ROWS[], NEAREST_ROWS[], THREAD_ROWS[];

/* Linux as the first process: mounts what the rows need. */
void become_init(void);
/* Switches the machine off. */
void power_off(void);

#define PAGE 4096ul

#endif
