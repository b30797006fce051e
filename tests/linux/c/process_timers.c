/* POSIX timers and interval timers: signals, values, overruns, threads, processor time, fork and exec; what is
   refused. */
#include "check.h"
#include <pthread.h>

static volatile sig_atomic_t count, code, value, signal_number, overruns;
static timer_t timer;

static void on_signal(int signal, siginfo_t *info, void *context)
{
    (void)context;
    count++;
    signal_number = signal;
    code = info->si_code;
    value = info->si_value.sival_int;
    overruns += info->si_overrun;
}

static void handle(int signal)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigaction(signal, &action, NULL);
}

/* Waits for `wanted` signals more than there were at the last look. */
static int seen;
static void await(int wanted)
{
    sigset_t all, none;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &none);
    while (count < seen + wanted)
        sigsuspend(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The signals so far do not count. */
static int look(void)
{
    return seen = count;
}

static struct itimerspec spec(long first, long interval)
{
    return (struct itimerspec){{0, interval * 1000}, {0, first * 1000}};
}

static void refused(void)
{
    struct itimerspec one = spec(1000, 0), wrong = {{0, 0}, {0, 1000000000}};
    struct sigevent event = {.sigev_notify = 99, .sigev_signo = SIGUSR1};
    int id;
    TRY(timer_create(99, NULL, &timer));
    TRY(timer_create(CLOCK_MONOTONIC_RAW, NULL, &timer));
    TRY(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &id));
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = 65;
    TRY(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &id));
    event.sigev_signo = 0;
    TRY(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &id));
    event = (struct sigevent){.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event._sigev_un._tid = 1;
    TRY(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &id));
    TRY(syscall(SYS_timer_create, CLOCK_MONOTONIC, 8, &id));
    TRY(syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, 8));
    TRY(syscall(SYS_timer_settime, 77, 0, &one, NULL));
    TRY(syscall(SYS_timer_gettime, 77, &one));
    TRY(syscall(SYS_timer_getoverrun, 77));
    TRY(syscall(SYS_timer_delete, 77));
    TRY(syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, &id));
    TRY(syscall(SYS_timer_settime, id, 0, NULL, NULL));
    TRY(syscall(SYS_timer_settime, id, 0, 8, NULL));
    TRY(syscall(SYS_timer_settime, id, 0, &wrong, NULL));
    TRY(syscall(SYS_timer_gettime, id, 8));
    TRY(syscall(SYS_timer_delete, id));
    TRY(syscall(SYS_timer_delete, id));
    struct itimerval interval = {{0, 0}, {0, 1000000}};
    TRY(setitimer(3, &interval, NULL));
    TRY(setitimer(ITIMER_PROF, &interval, NULL));
    TRY(getitimer(3, &interval));
    TRY(getitimer(ITIMER_VIRTUAL, &interval));
    SHOW(interval.it_value.tv_usec);
}

static void signals(void)
{
    struct itimerspec once = spec(3000, 0), often = spec(2000, 2000), old, never = spec(0, 0);
    struct itimerspec late = {{0, 0}, {500, 0}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
    event.sigev_value.sival_int = 42;
    handle(SIGRTMIN + 1);
    handle(SIGALRM);
    TRY(timer_create(CLOCK_MONOTONIC, &event, &timer));
    TRY(timer_gettime(timer, &old));
    SHOW(old.it_value.tv_nsec);
    look();
    TRY(timer_settime(timer, 0, &late, &old));
    TRY(timer_gettime(timer, &old));
    SHOW(old.it_value.tv_sec > 400 && old.it_value.tv_sec <= 500);
    TRY(timer_settime(timer, 0, &once, &old));
    await(1);
    SHOW(signal_number - SIGRTMIN);
    SHOW(code);
    SHOW(value);
    TRY(timer_gettime(timer, &old));
    SHOW(old.it_value.tv_nsec);
    look();
    TRY(timer_settime(timer, 0, &often, NULL));
    await(3);
    /* What is blocked is counted. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    usleep(21000);
    int before = count, missed = overruns;
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    /* Another one may come behind the one that waited. */
    SHOW(count - before >= 1 && overruns - missed + (count - before) >= 9);
    SHOW(timer_getoverrun(timer) >= 0);
    TRY(timer_settime(timer, 0, &never, &old));
    SHOW(old.it_interval.tv_nsec);
    SHOW(old.it_value.tv_nsec > 0 && old.it_value.tv_nsec <= 2000000);
    before = count;
    usleep(6000);
    SHOW(count - before);
    /* At a time, also one that has passed. */
    struct itimerspec at = {{0, 0}, {0, 1}};
    look();
    TRY(timer_settime(timer, TIMER_ABSTIME, &at, NULL));
    await(1);
    TRY(timer_delete(timer));
    TRY(timer_create(CLOCK_REALTIME, NULL, &timer));
    clock_gettime(CLOCK_REALTIME, &at.it_value);
    at.it_value.tv_nsec += 3000000;
    if (at.it_value.tv_nsec >= 1000000000) {
        at.it_value.tv_nsec -= 1000000000;
        at.it_value.tv_sec++;
    }
    look();
    TRY(timer_settime(timer, TIMER_ABSTIME, &at, NULL));
    await(1);
    SHOW(signal_number == SIGALRM);
    TRY(timer_delete(timer));
    /* Nobody is told. */
    event.sigev_notify = SIGEV_NONE;
    TRY(timer_create(CLOCK_MONOTONIC, &event, &timer));
    TRY(timer_settime(timer, 0, &often, NULL));
    usleep(5000);
    TRY(timer_gettime(timer, &old));
    SHOW(old.it_value.tv_nsec > 0 && old.it_value.tv_nsec <= 2000000);
    TRY(timer_getoverrun(timer));
    TRY(timer_delete(timer));
    /* Ignored, and then not. */
    signal(SIGUSR2, SIG_IGN);
    event = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    TRY(timer_create(CLOCK_MONOTONIC, &event, &timer));
    TRY(timer_settime(timer, 0, &often, NULL));
    usleep(5000);
    look();
    handle(SIGUSR2);
    await(2);
    SHOW(signal_number == SIGUSR2);
    TRY(timer_delete(timer));
}

static int ready[2];
static void *waiter(void *argument)
{
    int tid = gettid(), found;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    write(ready[1], &tid, sizeof tid);
    sigwait(&set, &found);
    *(int *)argument = found;
    return NULL;
}

static void notified(union sigval told)
{
    write(ready[1], &told.sival_int, sizeof told.sival_int);
}

static void threads(void)
{
    int tid, found = 0, told;
    struct itimerspec once = spec(2000, 0);
    pthread_t thread;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pipe(ready);
    pthread_create(&thread, NULL, waiter, &found);
    read(ready[0], &tid, sizeof tid);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event._sigev_un._tid = tid;
    TRY(timer_create(CLOCK_MONOTONIC, &event, &timer));
    TRY(timer_settime(timer, 0, &once, NULL));
    pthread_join(thread, NULL);
    SHOW(found == SIGUSR1);
    TRY(timer_delete(timer));
    event = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = notified};
    event.sigev_value.sival_int = 1234;
    TRY(timer_create(CLOCK_MONOTONIC, &event, &timer));
    TRY(timer_settime(timer, 0, &once, NULL));
    read(ready[0], &told, sizeof told);
    SHOW(told);
    TRY(timer_delete(timer));
}

/* Runs until a signal has come. */
static void run_until(int wanted)
{
    while (count < seen + wanted)
        ;
}

static long run_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void processor_time(void)
{
    struct itimerval interval = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}}, old;
    handle(SIGPROF);
    handle(SIGVTALRM);
    handle(SIGXCPU);
    long before = run_us();
    look();
    TRY(setitimer(ITIMER_PROF, &interval, NULL));
    run_until(2);
    SHOW(signal_number == SIGPROF);
    SHOW(run_us() - before >= 25000);
    TRY(setitimer(ITIMER_PROF, &never, &old));
    SHOW(old.it_interval.tv_usec);
    SHOW(old.it_value.tv_usec > 0 && old.it_value.tv_usec <= 30000);
    look();
    TRY(setitimer(ITIMER_VIRTUAL, &interval, NULL));
    run_until(1);
    SHOW(signal_number == SIGVTALRM);
    /* Who sleeps does not run: a signal comes for what has been run, which may be some where a machine
       of a busy host stands still, and for nothing else. */
    before = run_us();
    TRY(setitimer(ITIMER_VIRTUAL, &interval, NULL));
    int so_far = count;
    usleep(60000);
    int came = count - so_far;
    SHOW(came <= (run_us() - before) / 20000);
    TRY(setitimer(ITIMER_VIRTUAL, &never, NULL));
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGXCPU};
    struct itimerspec once = spec(15000, 0);
    TRY(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer));
    look();
    TRY(timer_settime(timer, 0, &once, NULL));
    run_until(1);
    SHOW(signal_number == SIGXCPU);
    TRY(timer_delete(timer));
    TRY(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer));
    look();
    TRY(timer_settime(timer, 0, &once, NULL));
    run_until(1);
    TRY(timer_delete(timer));
}

int main(int words, char **word)
{
    struct itimerval real = {{0, 0}, {500, 0}}, prof = {{0, 0}, {600, 0}}, left;
    struct itimerspec long_one = {{0, 0}, {700, 0}};
    int status;
    if (words > 1) {
        getitimer(ITIMER_REAL, &left);
        SHOW(left.it_value.tv_sec >= 400);
        getitimer(ITIMER_PROF, &left);
        SHOW(left.it_value.tv_sec >= 400);
        TRY(syscall(SYS_timer_delete, atoi(word[1])));
        return 0;
    }
    refused();
    signals();
    threads();
    processor_time();
    /* Not a child's; interval timers go through exec. */
    int id;
    TRY(syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, &id));
    TRY(syscall(SYS_timer_settime, id, 0, &long_one, NULL));
    setitimer(ITIMER_REAL, &real, NULL);
    setitimer(ITIMER_PROF, &prof, NULL);
    pid_t child = fork_clean();
    if (child == 0) {
        TRY(syscall(SYS_timer_delete, id));
        getitimer(ITIMER_REAL, &left);
        SHOW(left.it_value.tv_sec);
        getitimer(ITIMER_PROF, &left);
        SHOW(left.it_value.tv_sec);
        exit(0);
    }
    waitpid(child, &status, 0);
    char number[12];
    sprintf(number, "%d", id);
    fflush(stdout);
    execl("/proc/self/exe", word[0], number, NULL);
    return 1;
}
