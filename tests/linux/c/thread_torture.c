/* 64 threads at once: mutexes, a condition, a barrier, the heap, pages, signals, short-lived
   threads, forks; then the process ends in the middle of it. Seconds may be given. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 64

static pthread_mutex_t mutexes[4] = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static long protected[4];
static atomic_long counted, wrong, taken, sent;
static pthread_barrier_t barrier;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static long generation;
static pthread_t all[THREADS];
static atomic_int stop;

static void on_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&taken, 1);
}

static void use_heap(unsigned *seed)
{
    size_t size = 1 + rand_r(seed) % 300000;
    unsigned char *bytes = malloc(size), mark = rand_r(seed);
    memset(bytes, mark, size);
    for (size_t at = 0; at < size; at += 509)
        if (bytes[at] != mark)
            atomic_fetch_add(&wrong, 1);
    free(bytes);
}

static void use_pages(unsigned *seed)
{
    size_t size = 4096 * (1 + rand_r(seed) % 8);
    char *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < size; at += 4096)
        if (page[at] != 0)
            atomic_fetch_add(&wrong, 1);
        else
            page[at] = 1;
    mprotect(page, 4096, PROT_READ);
    munmap(page, size);
}

static void *brief(void *argument)
{
    return argument;
}

static void use_thread(void)
{
    pthread_t thread;
    void *answer = NULL;
    if (pthread_create(&thread, NULL, brief, &answer) == 0) {
        pthread_join(thread, &answer);
        if (answer != &answer)
            atomic_fetch_add(&wrong, 1);
    }
}

static void use_fork(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(5);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (child > 0 && status != 5 << 8)
        atomic_fetch_add(&wrong, 1);
}

static void use_pipe(unsigned *seed)
{
    int ends[2];
    char out[64], in[64];
    memset(out, rand_r(seed), sizeof out);
    if (pipe(ends))
        return;
    if (write(ends[1], out, sizeof out) != sizeof out || read(ends[0], in, sizeof in) != sizeof in
        || memcmp(in, out, sizeof in))
        atomic_fetch_add(&wrong, 1);
    close(ends[0]);
    close(ends[1]);
}

static void *torture(void *argument)
{
    long number = (long)argument;
    unsigned seed = number + 1;
    for (long round = 0; !atomic_load(&stop); round++) {
        int which = rand_r(&seed) % 4;
        pthread_mutex_lock(&mutexes[which]);
        protected[which]++;
        pthread_mutex_unlock(&mutexes[which]);
        atomic_fetch_add(&counted, 1);
        switch (rand_r(&seed) % 16) {
        case 0: use_heap(&seed); break;
        case 1: use_pages(&seed); break;
        case 2: use_pipe(&seed); break;
        case 3:
            if (pthread_kill(all[rand_r(&seed) % THREADS], SIGUSR1) == 0)
                atomic_fetch_add(&sent, 1);
            break;
        case 4: sched_yield(); break;
        case 5: if (round % 8 == 0) use_thread(); break;
        case 6: if (number % 16 == 0 && round % 64 == 0) use_fork(); break;
        default: break;
        }
    }
    pthread_barrier_wait(&barrier);
    pthread_mutex_lock(&gate);
    long seen = generation;
    if (number == 0) {
        generation++;
        pthread_cond_broadcast(&opened);
    } else {
        while (generation == 0)
            pthread_cond_wait(&opened, &gate);
    }
    pthread_mutex_unlock(&gate);
    (void)seen;
    return argument;
}

static void *endless(void *argument)
{
    unsigned seed = (long)argument;
    for (;;) {
        use_heap(&seed);
        use_pages(&seed);
        use_pipe(&seed);
    }
    return NULL;
}

int main(int count, char **words)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct timespec wait = {count > 1 ? atoi(words[1]) : 1, 0};
    long sum = 0;
    int status;
    sigaction(SIGUSR1, &action, NULL);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long n = 0; n < THREADS; n++)
        all[n] = pthread_self();
    for (long n = 0; n < THREADS; n++)
        if (pthread_create(&all[n], NULL, torture, (void *)n))
            printf("pthread_create failed\n");
    while (nanosleep(&wait, &wait) && errno == EINTR)
        ;
    atomic_store(&stop, 1);
    for (long n = 0; n < THREADS; n++) {
        void *answer;
        pthread_join(all[n], &answer);
        sum += (long)answer;
    }
    SHOW(sum);
    SHOW(counted > 0);
    SHOW(protected[0] + protected[1] + protected[2] + protected[3] == counted);
    SHOW(wrong);
    SHOW((taken > 0) == (sent > 0));

    for (int round = 0; round < 8; round++) {
        pid_t child = fork_clean();
        if (child == 0) {
            pthread_t thread;
            for (long n = 0; n < 16; n++)
                pthread_create(&thread, NULL, endless, (void *)n);
            usleep(1000 * round);
            if (round % 2)
                _exit(round);
            raise(SIGTERM);
        }
        waitpid(child, &status, 0);
        show_status("ended in the middle", status);
    }
    return 0;
}
