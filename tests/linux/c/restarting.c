/* Interrupted calls: with SA_RESTART they go on, without it they answer EINTR; sleeps tell. */
#include "check.h"

static volatile sig_atomic_t hits;

static void hit(int number)
{
    (void)number;
    hits++;
}

static void arm(int flags)
{
    struct sigaction action = {.sa_handler = hit, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval soon = {.it_value.tv_usec = 100000};
    setitimer(ITIMER_REAL, &soon, NULL);
}

/* A child that writes into the pipe after a while. */
static pid_t later(int descriptor)
{
    pid_t child = fork_clean();
    if (child == 0) {
        usleep(400000);
        _exit(write(descriptor, "x", 1) != 1);
    }
    return child;
}

int main(void)
{
    int ends[2];
    char byte;
    pid_t child;
    if (pipe(ends))
        return 1;
    arm(0);
    TRY(read(ends[0], &byte, 1));
    arm(SA_RESTART);
    child = later(ends[1]);
    TRY(read(ends[0], &byte, 1));
    waitpid(child, NULL, 0);
    SHOW(hits);

    struct pollfd waiting = {.fd = ends[0], .events = POLLIN};
    arm(SA_RESTART); /* poll is never restarted after a handler */
    TRY(poll(&waiting, 1, 5000));
    arm(SA_RESTART);
    TRY(select(0, NULL, NULL, NULL, &(struct timeval){.tv_sec = 5}));
    arm(SA_RESTART);
    TRY(pause());

    struct timespec wanted = {.tv_sec = 5}, left = {0};
    arm(SA_RESTART);
    TRY(nanosleep(&wanted, &left));
    SHOW(left.tv_sec >= 3);
    arm(0);
    SHOW(clock_nanosleep(CLOCK_MONOTONIC, 0, &wanted, &left) == EINTR);
    SHOW(left.tv_sec >= 3);

    child = fork_clean();
    if (child == 0) {
        usleep(400000);
        _exit(6);
    }
    int status = 0;
    arm(0);
    TRY(waitpid(child, &status, 0));
    arm(SA_RESTART);
    WORKS(waitpid(child, &status, 0));
    show_status("child", status);
    SHOW(hits);

    /* An ignored signal, and a stop with a continue, interrupt nothing. */
    signal(SIGUSR1, SIG_IGN);
    pid_t sleeper = fork_clean();
    if (sleeper == 0) {
        TRY(usleep(500000));
        fflush(stdout);
        _exit(0);
    }
    usleep(100000);
    kill(sleeper, SIGUSR1);
    kill(sleeper, SIGSTOP);
    waitpid(sleeper, &status, WUNTRACED);
    show_status("sleeper", status);
    kill(sleeper, SIGCONT);
    waitpid(sleeper, &status, WCONTINUED);
    show_status("sleeper", status);
    waitpid(sleeper, &status, 0);
    show_status("sleeper", status);
    return 0;
}
