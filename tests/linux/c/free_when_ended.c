/* What a child had is free when its parent hears of its end: locks, pipes, ports (exit(2)). */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/file.h>

enum { ROUNDS = 10 };

static int second;

static struct sockaddr_in here(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* A socket bound to `port`, any if that is 0. */
static int bound(int port)
{
    struct sockaddr_in address = here(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&address, sizeof address)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int port_of(int fd)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &length);
    return ntohs(address.sin_port);
}

static void *compute(void *nothing)
{
    for (volatile int on = 1; on;)
        ;
    return nothing;
}

/* A child's life: it takes all that it can, says so, and ends by itself if no signal is to come. */
static void live(int files, int threads, int port, int said, int signal)
{
    for (int i = 0; i < files; i++) {
        char name[32];
        snprintf(name, sizeof name, "file-%d", i);
        open(name, O_CREAT | O_RDWR, 0600);
    }
    flock(open("lock", O_RDWR), LOCK_EX);
    int listener = bound(port);
    char is_there = listener >= 0 && !listen(listener, 5) ? 'y' : 'n';
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, compute, NULL);
    }
    (void)!write(said, &is_there, 1);
    while (signal)
        pause();
    _exit(0);
}

/* Lets children end in one way, `ROUNDS` of them; counts what was not free then. */
static void ends(const char *how, int files, int threads, int signal)
{
    int locked = 0, open_ends = 0, taken = 0, absent = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int held[2], said[2], status;
        char byte;
        if (pipe2(held, O_NONBLOCK) || pipe(said))
            _exit(1);
        int first = bound(0), port = port_of(first);
        close(first);
        pid_t child = fork();
        if (child == 0) {
            close(held[0]);
            live(files, threads, port, said[1], signal);
        }
        close(held[1]);
        (void)!read(said[0], &byte, 1);
        absent += byte != 'y';
        if (signal)
            kill(child, signal);
        waitpid(child, &status, 0);
        locked += flock(second, LOCK_EX | LOCK_NB) != 0;
        open_ends += read(held[0], &byte, 1) != 0;
        int again = bound(port);
        taken += again < 0;
        flock(second, LOCK_UN);
        close(again);
        close(held[0]);
        close(said[0]);
        close(said[1]);
    }
    printf("%s, %d files, %d threads: %d without a port, %d locks, %d pipes, %d ports held\n", how,
           files, threads, absent, locked, open_ends, taken);
}

static pid_t awaited;
static int told;

static void *hear(void *unused)
{
    if (waitpid(awaited, NULL, 0) == awaited)
        __atomic_add_fetch(&told, 1, __ATOMIC_SEQ_CST);
    return unused;
}

/* Of several threads that wait for a child one is told of its end. */
static void threads_hear(void)
{
    int said[2];
    char byte;
    pthread_t threads[8];
    if (pipe(said))
        return;
    awaited = fork();
    if (awaited == 0)
        live(100, 50, 0, said[1], SIGKILL);
    (void)!read(said[0], &byte, 1);
    for (int at = 0; at < 8; at++)
        pthread_create(&threads[at], NULL, hear, NULL);
    usleep(50000);
    kill(awaited, SIGKILL);
    for (int at = 0; at < 8; at++)
        pthread_join(threads[at], NULL);
    close(said[0]);
    close(said[1]);
}

static volatile sig_atomic_t reaped, was_locked;

/* Asks once, as many programs do. */
static void reap(int signal)
{
    int saved = errno;
    (void)signal;
    if (waitpid(-1, NULL, WNOHANG) > 0) {
        was_locked += flock(second, LOCK_EX | LOCK_NB) != 0;
        flock(second, LOCK_UN);
        reaped++;
    }
    errno = saved;
}

int main(void)
{
    second = open("lock", O_CREAT | O_RDWR, 0600);
    static const int files[] = {1, 40, 200};
    for (int i = 0; i < 3; i++) {
        ends("by itself", files[i], 0, 0);
        ends("by SIGTERM", files[i], 0, SIGTERM);
        ends("by SIGKILL", files[i], 0, SIGKILL);
        ends("by SIGKILL", files[i], 2, SIGKILL);
    }

    for (int round = 0; round < ROUNDS; round++)
        threads_hear();
    printf("eight threads: told of %d ends of %d\n", told, ROUNDS);

    /* A handler that asks with WNOHANG hears of each end, and finds the lock free. */
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = reap}, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        int said[2];
        char byte;
        if (pipe(said))
            return 1;
        pid_t child = fork();
        if (child == 0)
            live(100, 0, 0, said[1], SIGKILL);
        (void)!read(said[0], &byte, 1);
        kill(child, SIGKILL);
        while (reaped == round)
            sigsuspend(&before);
        close(said[0]);
        close(said[1]);
    }
    printf("the handler: %d ends, %d locks held\n", (int)reaped, (int)was_locked);
    return 0;
}
