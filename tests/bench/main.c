/* Runs the rows that are named, or all, and prints a line for each.
 *
 * The names are one word, as Linux gives its first process at most 32.
 *
 *   bench [--samples N] [--scale N] [ROW,ROW...]
 *   bench --list                                their names and what they are
 *   bench --ticks                               the time-stamp counter's rate
 *   bench --exit                                ends at once: what `fork_exec_libc` runs
 *
 *   start NAME
 *   row NAME operations N ticks T...    the ticks of each sample, the first one warming up
 *   dash NAME REASON                    the row cannot be measured here */
#include "bench.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES_MAX 1000

/* Processes are made before much memory has been touched: a small process is to be small. Threads are
 * made after all else. */
static const struct row *const GROUPS[] = {
    CALL_ROWS, PROCESS_ROWS, SIGNAL_ROWS, PIPE_ROWS, FILE_ROWS, MEMORY_ROWS, CONTROL_ROWS,
    NEAREST_ROWS, THREAD_ROWS,
};
#define GROUP_COUNT (sizeof GROUPS / sizeof *GROUPS)

static unsigned samples = 7, scale = 1;
static uint64_t ticks[SAMPLES_MAX];

static inline uint64_t read_ticks(void)
{
    return __builtin_ia32_rdtsc();
}

const char *failed(const char *what)
{
    static char reason[120];
    snprintf(reason, sizeof reason, "%s: %s", what, strerror(errno));
    return reason;
}

void must(bool held, const char *what)
{
    if (held)
        return;
    printf("fatal %s: %s\n", what, strerror(errno));
    fflush(stdout);
    if (getpid() == 1)
        power_off();
    _exit(1);
}

static void measure(const struct row *row)
{
    unsigned operations = row->operations * scale;
    printf("start %s\n", row->name);
    fflush(stdout);
    const char *reason = row->setup ? row->setup() : NULL;
    if (reason) {
        printf("dash %s %s\n", row->name, reason);
        fflush(stdout);
        return;
    }
    for (unsigned sample = 0; sample < samples; sample++) {
        if (row->before)
            row->before(operations);
        MARK(MARK_BEGIN);
        uint64_t begun = read_ticks();
        row->run(operations);
        ticks[sample] = read_ticks() - begun;
        MARK(MARK_END);
        if (row->after)
            row->after(operations);
    }
    if (row->teardown)
        row->teardown();
    printf("row %s operations %u ticks", row->name, operations);
    for (unsigned sample = 0; sample < samples; sample++)
        printf(" %llu", (unsigned long long)ticks[sample]);
    putchar('\n');
    fflush(stdout);
}

/* Whether `name` is between two commas of the list; every name is in no list. */
static bool is_wanted(const char *name, const char *list)
{
    size_t length = strlen(name);
    while (list && *list) {
        size_t part = strcspn(list, ",");
        if (part == length && !strncmp(list, name, length))
            return true;
        list += part + (list[part] == ',');
    }
    return !list;
}

static void run_rows(const char *list)
{
    for (size_t group = 0; group < GROUP_COUNT; group++)
        for (const struct row *row = GROUPS[group]; row->name; row++)
            if (is_wanted(row->name, list))
                measure(row);
}

static void list_rows(void)
{
    for (size_t group = 0; group < GROUP_COUNT; group++)
        for (const struct row *row = GROUPS[group]; row->name; row++)
            printf("%s\t%s\t%s\n", row->name, row->way, row->what);
}

/* Ticks in a second, by the system's clock over a tenth of one. */
static void print_rate(void)
{
    struct timespec begun, ended, pause = {0, 100000000};
    clock_gettime(CLOCK_MONOTONIC, &begun);
    uint64_t first = read_ticks();
    nanosleep(&pause, NULL);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    uint64_t passed = read_ticks() - first;
    double seconds = (double)(ended.tv_sec - begun.tv_sec) +
                     (double)(ended.tv_nsec - begun.tv_nsec) / 1e9;
    printf("%.0f\n", (double)passed / seconds);
}

int main(int count, char **words)
{
    int at = 1;
    MARK(MARK_PROGRAM);
    if (count > 1 && !strcmp(words[1], "--exit"))
        return 0;
    bool is_init = getpid() == 1;
    if (is_init)
        become_init();
    for (; at < count && !strncmp(words[at], "--", 2); at++) {
        if (!strcmp(words[at], "--list"))
            return list_rows(), 0;
        if (!strcmp(words[at], "--ticks"))
            return print_rate(), 0;
        if (!strcmp(words[at], "--samples") && at + 1 < count)
            samples = (unsigned)atoi(words[++at]);
        else if (!strcmp(words[at], "--scale") && at + 1 < count)
            scale = (unsigned)atoi(words[++at]);
    }
    must(samples >= 1 && samples <= SAMPLES_MAX && scale >= 1, "--samples or --scale");
    run_rows(at < count ? words[at] : NULL);
    puts("done");
    fflush(stdout);
    if (is_init)
        power_off();
    return 0;
}
