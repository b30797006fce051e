/* eventfd, timerfd and epoll: counters, levels, edges, one shot, what closes, what is refused; from threads
   and from a child. */
#include "check.h"
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

static int epoll;

static void show_events(const char *what, int timeout)
{
    struct epoll_event events[8];
    int count = epoll_wait(epoll, events, 8, timeout);
    printf("%s: %d", what, count);
    for (int at = 0; at < count; at++)
        printf(" [%x %ld]", events[at].events, (long)events[at].data.u64);
    printf("\n");
}

static int watch(int operation, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(epoll, operation, fd, &event);
}

static void counters(void)
{
    uint64_t value = 3;
    int counter = eventfd(2, EFD_NONBLOCK), taken = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
    TRY(write(counter, &value, 8));
    TRY(read(counter, &value, 8));
    SHOW(value);
    TRY(read(counter, &value, 8));
    TRY(read(counter, &value, 4));
    value = -1;
    TRY(write(counter, &value, 8));
    value = -2;
    TRY(write(counter, &value, 8));
    value = 1;
    TRY(write(counter, &value, 8));
    TRY(write(counter, &value, 7));
    TRY(read(taken, &value, 8));
    SHOW(value);
    TRY(read(taken, &value, 8));
    TRY(read(taken, &value, 8));
    TRY(eventfd(0, 12345));
    struct pollfd poll_one = {taken, POLLIN | POLLOUT, 0};
    SHOW(poll(&poll_one, 1, 0));
    SHOW(poll_one.revents);
    int shared = eventfd(0, 0), status;
    pid_t child = fork_clean();
    if (child == 0) {
        value = 42;
        usleep(5000);
        _exit(write(shared, &value, 8) != 8);
    }
    TRY(read(shared, &value, 8));
    SHOW(value);
    waitpid(child, &status, 0);
    show_status("the child wrote", status);
    close(counter);
    close(taken);
    close(shared);
}

static void levels_and_edges(void)
{
    int ends[2], file = open("/proc/self/exe", O_RDONLY);
    char bytes[16];
    TRY(pipe2(ends, O_NONBLOCK));
    SHOW(watch(EPOLL_CTL_ADD, ends[0], EPOLLIN, 7));
    TRY(watch(EPOLL_CTL_ADD, ends[0], EPOLLIN, 7));
    TRY(watch(EPOLL_CTL_ADD, file, EPOLLIN, 7));
    TRY(watch(EPOLL_CTL_ADD, epoll, EPOLLIN, 7));
    TRY(watch(EPOLL_CTL_ADD, 99, EPOLLIN, 7));
    TRY(watch(EPOLL_CTL_MOD, ends[1], EPOLLIN, 7));
    TRY(watch(EPOLL_CTL_DEL, ends[1], EPOLLIN, 7));
    TRY(watch(9, ends[0], EPOLLIN, 7));
    TRY(epoll_ctl(ends[0], EPOLL_CTL_ADD, ends[1], &(struct epoll_event){0}));
    TRY(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], NULL));
    TRY(epoll_wait(epoll, NULL, 0, 0));
    TRY(epoll_wait(ends[0], (struct epoll_event *)bytes, 1, 0));
    TRY(epoll_create1(77));
    TRY(epoll_create(0));
    show_events("empty", 5);
    TRY(write(ends[1], "abc", 3));
    show_events("level", -1);
    show_events("level again", -1);
    TRY(read(ends[0], bytes, 2));
    show_events("level still", 0);
    TRY(watch(EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET, 8));
    show_events("edge", 0);
    show_events("edge again", 0);
    TRY(write(ends[1], "d", 1));
    show_events("edge, written", 0);
    TRY(read(ends[0], bytes, 16));
    show_events("edge, drained", 0);
    TRY(write(ends[1], "e", 1));
    show_events("edge, new", 0);
    TRY(watch(EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 9));
    show_events("one shot", 0);
    show_events("one shot again", 0);
    TRY(watch(EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 10));
    show_events("one shot, armed", 0);
    TRY(watch(EPOLL_CTL_ADD, ends[1], EPOLLOUT | EPOLLET, 11));
    show_events("writable edge", 0);
    show_events("writable edge again", 0);
    TRY(watch(EPOLL_CTL_MOD, ends[0], EPOLLIN, 12));
    close(ends[1]);
    show_events("data and end", 0);
    TRY(read(ends[0], bytes, 16));
    show_events("end", 0);
    close(ends[0]);
    show_events("closed", 0);
    close(file);
}

static void *writer(void *argument)
{
    uint64_t one = 1;
    usleep(5000);
    return (void *)write(*(int *)argument, &one, 8);
}

static void *adder(void *argument)
{
    usleep(5000);
    return (void *)(long)watch(EPOLL_CTL_ADD, *(int *)argument, EPOLLIN, 21);
}

static void threads(void)
{
    int counter = eventfd(0, EFD_NONBLOCK), ready = eventfd(1, EFD_NONBLOCK);
    pthread_t thread;
    TRY(watch(EPOLL_CTL_ADD, counter, EPOLLIN | EPOLLET, 20));
    for (int round = 0; round < 3; round++) {
        pthread_create(&thread, NULL, writer, &counter);
        show_events("written by a thread, never read", -1);
        pthread_join(thread, NULL);
    }
    pthread_create(&thread, NULL, adder, &ready);
    show_events("added by a thread", -1);
    pthread_join(thread, NULL);
    close(counter);
    close(ready);
}

static void timers(void)
{
    struct itimerspec often = {{0, 2000000}, {0, 2000000}}, never = {{0, 0}, {0, 0}}, old;
    struct itimerspec wrong = {{0, 0}, {0, 1000000000}};
    uint64_t times;
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    SHOW(fcntl(timer, F_GETFD));
    TRY(timerfd_create(99, 0));
    TRY(timerfd_create(CLOCK_MONOTONIC, 77));
    TRY(read(timer, &times, 8));
    TRY(timerfd_settime(timer, 0, &wrong, NULL));
    TRY(timerfd_settime(epoll, 0, &often, NULL));
    TRY(timerfd_settime(timer, 99, &often, NULL));
    TRY(timerfd_settime(timer, 0, NULL, NULL));
    TRY(timerfd_settime(timer, 0, &often, NULL));
    TRY(watch(EPOLL_CTL_ADD, timer, EPOLLIN, 30));
    show_events("timer", -1);
    TRY(read(timer, &times, 4));
    TRY(read(timer, &times, 8));
    SHOW(times >= 1);
    usleep(20000);
    TRY(read(timer, &times, 8));
    SHOW(times >= 9);
    TRY(timerfd_gettime(timer, &old));
    SHOW(old.it_interval.tv_nsec);
    SHOW(old.it_value.tv_nsec > 0 && old.it_value.tv_nsec <= 2000000);
    TRY(timerfd_settime(timer, 0, &never, &old));
    SHOW(old.it_interval.tv_nsec);
    show_events("no timer", 5);
    TRY(timerfd_gettime(timer, &old));
    SHOW(old.it_value.tv_nsec);
    TRY(write(timer, &times, 8));
    close(timer);

    struct itimerspec once = {{0, 0}, {0, 0}};
    timer = timerfd_create(CLOCK_REALTIME, 0);
    clock_gettime(CLOCK_REALTIME, &once.it_value);
    once.it_value.tv_sec -= 5;
    TRY(timerfd_settime(timer, TFD_TIMER_ABSTIME, &once, NULL));
    TRY(read(timer, &times, 8));
    SHOW(times);
    once.it_value.tv_sec = 0;
    once.it_value.tv_nsec = 3000000;
    TRY(timerfd_settime(timer, 0, &once, NULL));
    pid_t child = fork_clean();
    if (child == 0)
        _exit(read(timer, &times, 8) == 8 && times == 1);
    int status;
    waitpid(child, &status, 0);
    show_status("the child read it", status);
    TRY(timerfd_gettime(timer, &once));
    SHOW(once.it_value.tv_nsec);
    close(timer);
}

static void on_alarm(int signal)
{
    (void)signal;
}

static void *naps(void *is_over)
{
    while (!*(volatile int *)is_over)
        usleep(20);
    return NULL;
}

/* Waits for an event; was there none until the very end? A look at the end may find what no edge
   told of. */
static int is_late(struct epoll_event *event)
{
    enum { LIMIT_MS = 5000 };
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    int count = epoll_wait(epoll, event, 1, LIMIT_MS);
    clock_gettime(CLOCK_MONOTONIC, &after);
    long ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    return count == 0 || ms >= LIMIT_MS - 100;
}

/* The last writer ends at any moment while the reader begins to wait for the next edge. */
static void ends_at_edges(void)
{
    enum { ROUNDS = 400 };
    volatile int is_over = 0;
    int late = 0, status;
    pthread_t thread;
    pthread_create(&thread, NULL, naps, (void *)&is_over);
    for (int round = 0; round < ROUNDS && late == 0; round++) {
        int ends[2], other[2];
        struct epoll_event event;
        char byte;
        pipe2(ends, O_CLOEXEC | O_NONBLOCK);
        pipe2(other, O_CLOEXEC);
        pid_t children[2];
        for (int at = 0; at < 2; at++) {
            children[at] = fork();
            if (children[at] == 0) {
                close(other[1]);
                if (at == 0)
                    read(other[0], &byte, 1);
                for (volatile int spin = 0; spin < at * (round * 7919 % 200000); spin++)
                    ;
                _exit(0);
            }
        }
        close(ends[1]);
        close(other[1]);
        watch(EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1);
        while (late == 0 && read(ends[0], &byte, 1) != 0)
            late += is_late(&event);
        waitpid(children[0], &status, 0);
        waitpid(children[1], &status, 0);
        close(ends[0]);
        close(other[0]);
    }
    is_over = 1;
    pthread_join(thread, NULL);
    printf("ends that no edge told: %d\n", late);
}

int main(void)
{
    epoll = epoll_create1(EPOLL_CLOEXEC);
    SHOW(fcntl(epoll, F_GETFD));
    counters();
    levels_and_edges();
    threads();
    ends_at_edges();
    timers();
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 0}, {0, 10000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    struct epoll_event event;
    TRY(epoll_wait(epoll, &event, 1, -1));
    return 0;
}
