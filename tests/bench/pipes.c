/* Processes that hand something to each other. */
#define _GNU_SOURCE
#include "bench.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEERS_MAX 8
static pid_t peers[PEERS_MAX];
static unsigned peer_count;
/* pipes[n] leads to process n; process 0 is the parent. */
static int pipes[PEERS_MAX][2];
static size_t length;
static char data[8192];

static void read_all(int from)
{
    for (size_t got = 0; got < length;) {
        ssize_t part = read(from, data + got, length - got);
        must(part > 0, "read of a pipe");
        got += (size_t)part;
    }
}

static void write_all(int to)
{
    for (size_t put = 0; put < length;) {
        ssize_t part = write(to, data + put, length - put);
        must(part > 0, "write to a pipe");
        put += (size_t)part;
    }
}

static void pass_on_for_ever(unsigned self, unsigned count)
{
    for (;;) {
        read_all(pipes[self][0]);
        write_all(pipes[(self + 1) % count][1]);
    }
}

/* A ring of `count` processes, of which we are the first. */
static const char *make_ring(unsigned count, size_t bytes)
{
    length = bytes;
    for (unsigned at = 0; at < count; at++)
        if (pipe(pipes[at]))
            return failed("pipe");
    for (peer_count = 0; peer_count < count - 1; peer_count++) {
        peers[peer_count] = fork();
        if (peers[peer_count] < 0)
            return failed("fork");
        if (peers[peer_count] == 0)
            pass_on_for_ever(peer_count + 1, count);
    }
    return NULL;
}

static const char *ring_of_two_byte(void)
{
    return make_ring(2, 1);
}

static const char *ring_of_two_8k(void)
{
    return make_ring(2, sizeof data);
}

static const char *ring_of_eight(void)
{
    return make_ring(8, 1);
}

static void end_ring(void)
{
    for (unsigned at = 0; at < peer_count; at++) {
        kill(peers[at], SIGKILL);
        waitpid(peers[at], NULL, 0);
    }
    for (unsigned at = 0; at <= peer_count; at++) {
        close(pipes[at][0]);
        close(pipes[at][1]);
    }
}

static void rounds(unsigned count)
{
    for (unsigned round = 0; round < count; round++) {
        write_all(pipes[1][1]);
        read_all(pipes[0][0]);
    }
}

static void rounds_of_two(unsigned hops)
{
    rounds(hops / 2);
}

static void rounds_of_eight(unsigned hops)
{
    rounds(hops / 8);
}

/* ---- two processes that yield to each other, a counter in shared memory (aegis95's shm) ---- */

static volatile unsigned *counter;

/* Both on one processor, whatever the machine has: what is measured is the way from one to the
 * other. */
static bool stay_on_one(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

static const char *share_counter(void)
{
    if (!stay_on_one())
        return failed("sched_setaffinity");
    counter = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counter == MAP_FAILED)
        return failed("mmap of shared memory");
    *counter = 0;
    peers[0] = fork();
    if (peers[0] < 0)
        return failed("fork");
    while (peers[0] == 0) {
        while (*counter % 2 == 0)
            raw_call(SYS_sched_yield, 0, 0, 0);
        *counter += 1;
    }
    return NULL;
}

static void count_in_turn(unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        *counter += 1;
        while (*counter % 2 == 1)
            raw_call(SYS_sched_yield, 0, 0, 0);
    }
}

static void end_counter(void)
{
    kill(peers[0], SIGKILL);
    waitpid(peers[0], NULL, 0);
    munmap((void *)counter, PAGE);
}

const struct row PIPE_ROWS[] = {
    {"pipe1", ROUND_TRIP, "one byte through a pipe to another process, and back", 100,
     ring_of_two_byte, NULL, rounds, NULL, end_ring},
    {"pipe8k", ROUND_TRIP, "8 KiB through a pipe to another process, and back", 20, ring_of_two_8k,
     NULL, rounds, NULL, end_ring},
    {"ctx2", ONE_WAY, "one hop of a byte in a ring of 2 processes: write, switch, read", 200,
     ring_of_two_byte, NULL, rounds_of_two, NULL, end_ring},
    {"ctx8", ONE_WAY, "one hop of a byte in a ring of 8 processes: write, switch, read", 200,
     ring_of_eight, NULL, rounds_of_eight, NULL, end_ring},
    {"shm_yield", ROUND_TRIP, "a counter shared with another process on one cpu, sched_yield", 100,
     share_counter, NULL, count_in_turn, NULL, end_counter},
    {0},
};
