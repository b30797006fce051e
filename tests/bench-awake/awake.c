/* A library for the emulator: who finds a lock taken waits awake for a while before it sleeps.
 *
 *   LD_PRELOAD=awake.so qemu-system-x86_64 ...
 *
 * QEMU takes one lock for all processors at every exception, and soon gives it back. Who sleeps
 * for that is woken when the host comes to it, and what is measured is the host. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

/* How often it is tried: far longer than an exception takes; what lasts longer is slept for. */
#define TRIALS 2000

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*sleeping)(pthread_mutex_t *);

    for (int trial = 0; trial < TRIALS; trial++) {
        /* Only a lock that looks free is tried, so that its owner keeps the line; the word is the
         * C library's own, and what it says is no more than advice. */
        if (mutex->__data.__lock == 0 && pthread_mutex_trylock(mutex) == 0)
            return 0;
        __builtin_ia32_pause();
    }
    /* Found anew by whoever comes at the same time: it is the same address. */
    if (!__atomic_load_n(&sleeping, __ATOMIC_RELAXED)) {
        void *found = dlsym(RTLD_NEXT, "pthread_mutex_lock");
        __atomic_store_n(&sleeping, (int (*)(pthread_mutex_t *))found, __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&sleeping, __ATOMIC_RELAXED)(mutex);
}
