/* What a program finds on a machine: its processors, each of which runs a thread of ours; its
 * memory, a quarter of which is written and read again; randomness; vectors that keep their values
 * across switches; a word from the network. One line a fact; the host compares them with what it
 * has started.
 *
 *   machine PORT     PORT of 10.0.2.2 sends a word; 0: there is no network
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PROCESSORS = 64, THREADS_EACH = 3, PAGE = 4096, MOST_WRITTEN = 64 << 20 };

static long processors;
/* The processors that a thread has run on, a bit each. */
static _Atomic uint64_t seen;
static atomic_int wrong_vectors;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Runs until every processor has been seen, for half a minute at most. */
static void *spin(void *argument)
{
    double limit = now() + 30;
    do {
        seen |= 1ULL << (unsigned)sched_getcpu() % MOST_PROCESSORS;
        sched_yield();
    } while (__builtin_popcountll(seen) < processors && now() < limit);
    return argument;
}

/* Holds a value of its own in two vector registers through a stretch that is long enough for a
 * switch. */
static void *keep_vectors(void *argument)
{
    uint64_t mine = 0x9e3779b97f4a7c15ULL * ((uint64_t)(uintptr_t)argument + 1);
    uint64_t low, high;
    __asm__ volatile("movq %2, %%xmm6\n\t"
                     "movq %2, %%xmm15\n\t"
                     "mov $5000000, %%rcx\n"
                     "1:\n\t"
                     "dec %%rcx\n\t"
                     "jnz 1b\n\t"
                     "movq %%xmm6, %0\n\t"
                     "movq %%xmm15, %1"
                     : "=&r"(low), "=&r"(high)
                     : "r"(mine)
                     : "rcx", "xmm6", "xmm15");
    if (low != mine || high != mine)
        wrong_vectors++;
    return NULL;
}

static void run_threads(void *(*body)(void *))
{
    pthread_t threads[MOST_PROCESSORS * THREADS_EACH];
    long count = processors * THREADS_EACH;
    for (long index = 0; index < count; index++) {
        int error = pthread_create(&threads[index], NULL, body, (void *)index);
        if (error != 0) {
            printf("thread %ld: %s\n", index, strerror(error));
            exit(1);
        }
    }
    for (long index = 0; index < count; index++)
        pthread_join(threads[index], NULL);
}

/* Writes a number into each page of a quarter of what is free; answers whether all are there. */
static const char *write_memory(uint64_t available)
{
    size_t size = available / 4 < MOST_WRITTEN ? available / 4 : MOST_WRITTEN;
    size_t pages = size / PAGE;
    char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return strerror(errno);
    for (size_t page = 0; page < pages; page++) {
        if (*(size_t *)(memory + page * PAGE) != 0)
            return "a new page is not empty";
        *(size_t *)(memory + page * PAGE) = page + 1;
    }
    for (size_t page = 0; page < pages; page++)
        if (*(size_t *)(memory + page * PAGE) != page + 1)
            return "a page has another's number";
    return "kept";
}

static const char *fetch(int port)
{
    static char word[64];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, "10.0.2.2", &address.sin_addr);
    int socket_ = socket(AF_INET, SOCK_STREAM, 0);
    if (socket_ < 0 || connect(socket_, (struct sockaddr *)&address, sizeof address) < 0)
        return strerror(errno);
    ssize_t length = recv(socket_, word, sizeof word - 1, MSG_WAITALL);
    if (length < 0)
        return strerror(errno);
    close(socket_);
    return word;
}

int main(int count, char **words)
{
    int port = count > 1 ? atoi(words[1]) : 0;
    struct sysinfo info;
    unsigned char random[2][16];

    processors = sysconf(_SC_NPROCESSORS_ONLN);
    printf("processors %ld\n", processors);
    if (processors < 1 || processors > MOST_PROCESSORS)
        return 1;
    if (sysinfo(&info) != 0)
        return 1;
    printf("memory %lu\n", (unsigned long)(info.totalram * info.mem_unit >> 20));
    printf("pages %s\n", write_memory((uint64_t)info.freeram * info.mem_unit));
    run_threads(spin);
    printf("ran-on %d\n", __builtin_popcountll(seen));
    run_threads(keep_vectors);
    printf("vectors %s\n", wrong_vectors == 0 ? "kept" : "changed");
    if (getrandom(random[0], 16, 0) != 16 || getrandom(random[1], 16, 0) != 16)
        printf("random %s\n", strerror(errno));
    else
        printf("random %s\n", memcmp(random[0], random[1], 16) != 0 ? "differs" : "repeats");
    if (port != 0)
        printf("network %s\n", fetch(port));
    puts("end");
    return 0;
}
