/* What a process of a session may do to a stopped group of it that is another user's: continue it, and
   nothing else (kill(2)). Run as root. */
#include "check.h"
#include "users.h"
#include <termios.h>

enum { ANN = 1000, BOB = 1001 };

static char name[64];

/* User `user`'s process in a group, 0: one of its own, that stops itself. */
static pid_t stopped(int user, pid_t group)
{
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        setpgid(0, group);
        setuid(user);
        raise(SIGSTOP);
        _exit(7);
    }
    waitpid(child, &status, WUNTRACED);
    show_status("  stops", status);
    return child;
}

static void wait_for_end(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    show_status("  ends", status);
}

/* Ann's shell: a job of user 0's and one of Bob's are stopped, and continued. */
static void shell(void)
{
    setsid();
    int slave = open(name, O_RDWR);
    ioctl(slave, TIOCSCTTY, 0);
    signal(SIGTTOU, SIG_IGN);
    static const int users[] = {0, BOB};
    pid_t jobs[2];
    for (int at = 0; at < 2; at++)
        jobs[at] = stopped(users[at], 0);
    pid_t first = stopped(0, 0), second = stopped(ANN, first);
    setuid(ANN);
    for (int at = 0; at < 2; at++) {
        printf("a job of user %d's\n", users[at]);
        TRY(kill(-jobs[at], SIGTERM));
        TRY(tcsetpgrp(slave, jobs[at]));
        TRY(kill(-jobs[at], SIGCONT));
        wait_for_end(jobs[at]);
        TRY(tcsetpgrp(slave, getpid()));
    }
    printf("a job of user 0's and Ann's\n");
    TRY(kill(-first, SIGCONT));
    wait_for_end(first);
    wait_for_end(second);
    exit(0);
}

int main(void)
{
    int status, master = master_of(name, 0);
    pid_t child = fork_clean();
    if (child == 0) {
        close(master);
        shell();
    }
    waitpid(child, &status, 0);
    show_status("the shell", status);
    /* Of another session it continues none. */
    pid_t job = stopped(0, 0);
    child = fork_clean();
    if (child == 0) {
        setsid();
        setuid(ANN);
        TRY(kill(-job, SIGCONT));
        exit(0);
    }
    waitpid(child, &status, 0);
    kill(job, SIGCONT);
    wait_for_end(job);
    return 0;
}
