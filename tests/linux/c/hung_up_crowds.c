/* A session whose terminal was hung up, and whose leader lives on, is left alone however many such
   sessions another user makes. Run as root. */
#include "check.h"
#include "users.h"

enum { ANN = 1000, BOB = 1001, CROWD = 70 };

static int told[2];

static void tell(void)
{
    write(told[1], "x", 1);
}

static void await(void)
{
    char byte;
    read(told[0], &byte, 1);
}

/* A session of this user's whose leader takes no notice of the end of its terminal. In the
   foreground is the leader, or a process that is told of nothing for three seconds. */
static pid_t session(unsigned user, int has_foreground)
{
    char name[64];
    int master = master_of(name, O_CLOEXEC);
    pid_t leader = fork_clean();
    if (leader == 0) {
        close(master);
        signal(SIGHUP, SIG_IGN);
        signal(SIGTTOU, SIG_IGN);
        setsid();
        int slave = open(name, O_RDWR);
        ioctl(slave, TIOCSCTTY, 0);
        if (has_foreground && fork_clean() == 0) {
            struct timespec limit = {3, 0};
            sigset_t hang_up;
            sigemptyset(&hang_up);
            sigaddset(&hang_up, SIGHUP);
            signal(SIGHUP, SIG_DFL);
            setpgid(0, 0);
            ioctl(slave, TIOCSPGRP, &(pid_t){getpid()});
            become(user);
            tell();
            printf("the foreground is told: %d\n", sigtimedwait(&hang_up, NULL, &limit) == SIGHUP);
            tell();
            _exit(0);
        }
        close(slave);
        become(user);
        tell();
        for (;;)
            pause();
    }
    await();
    if (has_foreground)
        await();
    close(master);
    return leader;
}

int main(void)
{
    pid_t crowd[CROWD];
    sigset_t hang_up;
    if (geteuid() != 0)
        return 77;
    sigemptyset(&hang_up);
    sigaddset(&hang_up, SIGHUP);
    sigprocmask(SIG_BLOCK, &hang_up, NULL);
    pipe(told);
    pid_t leader = session(ANN, 1);
    for (int at = 0; at < CROWD; at++) {
        crowd[at] = session(BOB, 0);
        usleep(2000);
    }
    await();
    kill(leader, SIGKILL);
    waitpid(leader, NULL, 0);
    for (int at = 0; at < CROWD; at++) {
        kill(crowd[at], SIGKILL);
        waitpid(crowd[at], NULL, 0);
    }
    return 0;
}
