/* Four threads cross call sites while these are being rewritten. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, TIMES = 40000 };

static int parent, wrong[THREADS];
static pthread_barrier_t start;

static void *cross(void *argument)
{
    long self = (long)argument;
    int tid = gettid();
    pthread_barrier_wait(&start);
    for (int i = 0; i < TIMES; i++) {
        wrong[self] += getppid() != parent;
        wrong[self] += gettid() != tid;
        if (i % 16 == 0)
            wrong[self] += close(-1) != -1 || errno != EBADF;
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    parent = getppid();
    pthread_barrier_init(&start, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        TRY(pthread_create(&threads[i], NULL, cross, (void *)i));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        SHOW(wrong[i]);
    return 0;
}
