/* The foreground of a session whose terminal was hung up is told when the leader ends, whatever is
   typed meanwhile at a terminal that another user has made since, which may have the number of the
   former one. Run as root. */
#include "check.h"
#include "users.h"
#include <termios.h>

enum { ANN = 1000, BOB = 1001 };

static int told[2];

static void tell(void)
{
    write(told[1], "x", 1);
}

/* A process in the foreground that waits for two seconds at most to be told. */
static void foreground(int slave)
{
    sigset_t hang_up;
    struct timespec limit = {2, 0};
    sigemptyset(&hang_up);
    sigaddset(&hang_up, SIGHUP);
    setpgid(0, 0);
    tcsetpgrp(slave, getpid());
    setuid(ANN);
    tell();
    printf("the foreground is told: %d\n", sigtimedwait(&hang_up, NULL, &limit) == SIGHUP);
    tell();
    _exit(0);
}

/* Whoever has a shell's history to write ends a little later. */
static void end_later(int signal)
{
    (void)signal;
    usleep(300000);
    _exit(0);
}

static void session(const char *name)
{
    setsid();
    int slave = open(name, O_RDWR);
    ioctl(slave, TIOCSCTTY, 0);
    signal(SIGTTOU, SIG_IGN);
    signal(SIGHUP, end_later);
    if (fork_clean() == 0)
        foreground(slave);
    setuid(ANN);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (;;)
        pause();
}

/* Has a terminal, and a foreground there that takes no notice of what is typed. */
static void neighbour(const char *name)
{
    struct termios settings;
    setsid();
    int slave = open(name, O_RDWR);
    ioctl(slave, TIOCSCTTY, 0);
    tcgetattr(slave, &settings);
    settings.c_lflag &= ~ECHO;
    tcsetattr(slave, TCSANOW, &settings);
    signal(SIGINT, SIG_IGN);
    tell();
    for (;;)
        pause();
}

int main(void)
{
    char name[64], other[64], byte;
    sigset_t hang_up;
    if (geteuid() != 0)
        return 77;
    sigemptyset(&hang_up);
    sigaddset(&hang_up, SIGHUP);
    sigprocmask(SIG_BLOCK, &hang_up, NULL);
    pipe(told);
    int master = master_of(name, O_NONBLOCK | O_CLOEXEC);
    pid_t leader = fork_clean();
    if (leader == 0) {
        close(master);
        session(name);
    }
    read(told[0], &byte, 1);
    close(master);
    /* From here on it is another user's. */
    setresuid(BOB, BOB, 0);
    for (int tries = 0; tries < 100; tries++) {
        master = master_of(other, O_NONBLOCK | O_CLOEXEC);
        if (strcmp(name, other) == 0 || tries == 99)
            break;
        close(master);
        usleep(1000);
    }
    pid_t beside = fork_clean();
    if (beside == 0)
        neighbour(other);
    read(told[0], &byte, 1);
    struct pollfd answer = {told[0], POLLIN, 0};
    while (poll(&answer, 1, 0) == 0)
        write(master, "\003", 1);
    setresuid(0, 0, 0);
    kill(leader, SIGKILL);
    kill(beside, SIGKILL);
    waitpid(leader, NULL, 0);
    waitpid(beside, NULL, 0);
    return 0;
}
