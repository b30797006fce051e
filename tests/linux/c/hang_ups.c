/* A session's leader that ends or gives its terminal up hangs up the foreground there, whose processes
   may be another user's; those in the background hear nothing. Run as root. */
#include "check.h"
#include "users.h"
#include <termios.h>

enum { ANN = 1000 };

/* What the leader does when the group in the foreground is ready, as Ann. */
enum ending { EXITS, IS_KILLED, GIVES_UP, MASTER_CLOSES, IGNORES };

static const char *const endings[] = {
    "the leader exits", "the leader is killed", "the leader gives the terminal up",
    "the master closes", "the master closes, and the leader goes on",
};

static int master;
static char name[64];
/* A byte for main from each that is ready or has ended; from main to those in the background, and to
   the leader. */
static int told[2], asked[2], begun[2];

static void tell(int fd)
{
    write(fd, "x", 1);
}

static void await(int fd)
{
    char byte;
    read(fd, &byte, 1);
}

/* Which of the two signals come; they are blocked. The second one comes soon or not at all. */
static void show_signals(void)
{
    struct timespec limit = {5, 0};
    int hang_up = 0, go_on = 0, signal;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCONT);
    while ((signal = sigtimedwait(&set, NULL, &limit)) > 0) {
        hang_up += signal == SIGHUP;
        go_on += signal == SIGCONT;
        limit = (struct timespec){0, 200000000};
    }
    printf("  in the foreground: SIGHUP %d, SIGCONT %d\n", hang_up, go_on);
}

static int is_pending(int signal)
{
    sigset_t set;
    sigpending(&set);
    return sigismember(&set, signal);
}

/* A member of a group of its own, in the foreground or not. */
static void member(int slave, int is_in_front, int user, enum ending ending)
{
    close(master);
    setpgid(0, 0);
    if (is_in_front)
        tcsetpgrp(slave, getpid());
    if (user != 0)
        setuid(user);
    tell(told[1]);
    if (ending == IGNORES && is_in_front) {
        char byte;
        read(slave, &byte, 1); /* until the master has closed */
        printf("  hung up before: %d\n", is_pending(SIGHUP));
        tell(told[1]);
    }
    if (is_in_front) {
        show_signals();
    } else {
        await(asked[0]);
        printf("  in the background: SIGHUP %d, SIGCONT %d\n", is_pending(SIGHUP),
               is_pending(SIGCONT));
    }
    fflush(stdout);
    tell(told[1]);
    _exit(0);
}

static void leader(int user, enum ending ending)
{
    close(asked[1]);
    setsid();
    int slave = open(name, O_RDWR);
    ioctl(slave, TIOCSCTTY, 0);
    signal(SIGTTOU, SIG_IGN);
    for (int is_in_front = 0; is_in_front < 2; is_in_front++)
        if (fork_clean() == 0)
            member(slave, is_in_front, user, ending);
    close(master);
    close(asked[0]);
    setuid(ANN);
    sigset_t none;
    sigemptyset(&none);
    if (ending == IGNORES)
        signal(SIGHUP, SIG_IGN);
    sigprocmask(SIG_SETMASK, &none, NULL);
    tell(told[1]);
    if (ending == EXITS || ending == GIVES_UP) {
        await(begun[0]); /* Not before main has heard of all three. */
        if (ending == GIVES_UP)
            TRY(ioctl(slave, TIOCNOTTY));
        else
            _exit(3);
    }
    for (;;)
        pause();
}

static void hang_up(enum ending ending, int user)
{
    printf("%s, the foreground is user %d's\n", endings[ending], user);
    master = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(master);
    unlockpt(master);
    ptsname_r(master, name, sizeof name);
    pipe(told);
    pipe(asked);
    pipe(begun);
    pid_t child = fork_clean();
    if (child == 0)
        leader(user, ending);
    close(asked[0]);
    for (int ready = 0; ready < 3; ready++)
        await(told[0]);
    int status;
    if (ending == EXITS || ending == GIVES_UP)
        tell(begun[1]);
    else if (ending == IS_KILLED)
        kill(child, SIGKILL);
    else
        close(master);
    if (ending == IGNORES) {
        await(told[0]);
        kill(child, SIGTERM);
    }
    await(told[0]);
    close(asked[1]); /* the background looks now */
    await(told[0]);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    show_status("  the leader", status);
    close(told[0]);
    close(told[1]);
    close(begun[0]);
    close(begun[1]);
    if (ending < MASTER_CLOSES)
        close(master);
}

int main(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCONT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (enum ending ending = EXITS; ending <= IGNORES; ending++)
        for (int user = 0; user <= ANN; user += ANN)
            if (ending != GIVES_UP || user == ANN) /* SIGCONT to another's: docs/caveats.md */
                hang_up(ending, user);
    return 0;
}
