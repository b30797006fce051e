/* Threads. Not before the other rows: who has ever made one has a C library that takes more
 * instructions for each call that waits (glibc 2.36: a locked one before and one after). */
#include "bench.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- one thread after the other ---- */

static void *return_at_once(void *argument)
{
    return argument;
}

static const char *try_thread(void)
{
    pthread_t thread;
    errno = pthread_create(&thread, NULL, return_at_once, NULL);
    if (errno)
        return failed("pthread_create");
    pthread_join(thread, NULL);
    return NULL;
}

static void thread_join(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++) {
        pthread_t thread;
        must(pthread_create(&thread, NULL, return_at_once, NULL) == 0, "pthread_create");
        must(pthread_join(thread, NULL) == 0, "pthread_join");
    }
}

/* ---- two threads and two futex words ---- */

static uint32_t words[2];
static pthread_t partner;
static volatile bool leaving;

static void wait_for(uint32_t *word)
{
    while (!__atomic_exchange_n(word, 0, __ATOMIC_ACQUIRE))
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void wake(uint32_t *word)
{
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *answer(void *argument)
{
    while (!leaving) {
        wait_for(&words[0]);
        wake(&words[1]);
    }
    return argument;
}

static const char *start_partner(void)
{
    leaving = false;
    errno = pthread_create(&partner, NULL, answer, NULL);
    return errno ? failed("pthread_create") : NULL;
}

static void futex_rounds(unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        wake(&words[0]);
        wait_for(&words[1]);
    }
}

static void end_partner(void)
{
    leaving = true;
    wake(&words[0]);
    pthread_join(partner, NULL);
}

const struct row THREAD_ROWS[] = {
    {"thread", ROUND_TRIP, "pthread_create, return, pthread_join", 10, try_thread, NULL,
     thread_join, NULL, NULL},
    {"futex", ROUND_TRIP, "wake another thread by a futex, and be woken", 100, start_partner, NULL,
     futex_rounds, NULL, end_partner},
    {0},
};
