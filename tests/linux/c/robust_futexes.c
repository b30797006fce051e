/* A robust mutex in memory that is shared with other processes: who waits for it hears that its owner has ended,
 * whichever way a thread or its process does so, and as whichever user. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <pthread.h>

/* A number that no user of a host has. */
enum { ANN = 61000 };
/* Whoever waits longer has heard nothing. */
enum { PATIENCE_S = 5 };

static pthread_mutex_t *held;
static int taken[2];

static void end(void)
{
    exit(0);
}

static void end_one(void)
{
    pthread_exit(NULL);
}

static void die(void)
{
    raise(SIGKILL);
}

static void crash(void)
{
    *(volatile int *)8 = 1;
}

static void execute_another(void)
{
    char *words[] = {"robust_futexes", "sleeps", NULL};
    execv("/proc/self/exe", words);
}

static void *take(void *then)
{
    pthread_mutex_lock(held);
    write(taken[1], "t", 1);
    if (then)
        ((void (*)(void))then)();
    sleep(2 * PATIENCE_S);
    return NULL;
}

static void make(void)
{
    pthread_mutexattr_t attributes;
    held = mmap(NULL, sizeof *held, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(held, &attributes);
}

/* A child of `user` whose first thread, or `another`, takes the mutex; then `own` or its first thread does `then`. */
static void owned(const char *what, unsigned user, int another, int own, void (*then)(void))
{
    char byte;
    pthread_t thread;
    make();
    pipe(taken);
    pid_t child = fork_clean();
    if (child == 0) {
        if (user)
            become(user);
        if (!another)
            take(then);
        pthread_create(&thread, NULL, take, own ? then : NULL);
        while (own)
            pause();
        while (*(volatile int *)held == 0)
            usleep(1000);
        then();
    }
    read(taken[0], &byte, 1);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    int answer = pthread_mutex_timedlock(held, &until);
    printf("%s as %u: %s\n", what, user, answer ? strerrorname_np(answer) : "0");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    munmap(held, sizeof *held);
    close(taken[0]);
    close(taken[1]);
}

int main(int count, char **words)
{
    if (count > 1 && !strcmp(words[1], "sleeps"))
        return sleep(2 * PATIENCE_S);
    int status = begin_in_place(0755);
    if (status)
        return status;
    static const unsigned users[] = {0, ANN};
    for (int at = 0; at < 2; at++) {
        unsigned user = users[at];
        owned("a process that ends", user, 0, 1, end);
        owned("a process that is ended by itself", user, 0, 1, die);
        owned("a process that crashes", user, 0, 1, crash);
        owned("a process that executes a program", user, 0, 1, execute_another);
        owned("a thread that ends", user, 1, 1, end_one);
        owned("a thread whose process ends", user, 1, 0, end);
        owned("a thread whose process crashes", user, 1, 0, crash);
        owned("a thread whose process executes a program", user, 1, 0, execute_another);
    }
    return 0;
}
