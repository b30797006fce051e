/* Terminals that are exclusive or given up, and what a process group that nobody can continue gets
   from its own in the background. Run as root. */
#include "check.h"
#include "users.h"
#include <termios.h>

enum { ANN = 1000 };

static int master, slave;
static char name[64];

static void open_pair(void)
{
    master = posix_openpt(O_RDWR | O_NOCTTY);
    unlockpt(master);
    ptsname_r(master, name, sizeof name);
    slave = open(name, O_RDWR | O_NOCTTY);
    chmod(name, 0666);
}

static void opens(void)
{
    WORKS(open(name, O_RDWR | O_NOCTTY));
    WORKS(open(name, O_WRONLY | O_NOCTTY));
    WORKS(ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY));
}

static int is_exclusive(int fd)
{
    int is = -1;
    return ioctl(fd, TIOCGEXCL, &is) == 0 ? is : -errno;
}

/* Ann's, with the terminal as her session's: that is told by its name alone. */
static void own_session(void)
{
    WORKS(setsid());
    TRY(ioctl(slave, TIOCSCTTY, 0));
    WORKS(open("/dev/tty", O_RDWR));
    TRY(ioctl(slave, TIOCEXCL));
    WORKS(open("/dev/tty", O_RDWR));
    WORKS(open(name, O_RDWR));
    TRY(ioctl(slave, TIOCNXCL));
    WORKS(open("/dev/tty", O_RDWR));
}

static void exclusive(void)
{
    open_pair();
    SHOW(is_exclusive(slave));
    as(ANN, opens);
    TRY(ioctl(slave, TIOCEXCL));
    SHOW(is_exclusive(slave));
    as(ANN, opens);
    close(slave);
    as(ANN, opens); /* the master is there still */
    slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY); /* user 0 may */
    SHOW(slave >= 0);
    TRY(ioctl(slave, TIOCNXCL));
    SHOW(is_exclusive(slave));
    as(ANN, opens);
    TRY(ioctl(0x7777, TIOCEXCL));
    as(ANN, own_session);
    close(slave);
    close(master);
}

/* Says in the pipe what it gets, whose parent has ended by then. */
static void background(int said)
{
    struct termios settings;
    char byte;
    while (getppid() != 1)
        usleep(10000);
    dprintf(said, "read: %s\n", read(slave, &byte, 1) < 0 ? strerrorname_np(errno) : "works");
    int got = tcgetattr(slave, &settings) || tcsetattr(slave, TCSANOW, &settings);
    dprintf(said, "settings: %s\n", got ? strerrorname_np(errno) : "works");
    dprintf(said, "group: %s\n", tcsetpgrp(slave, getpgrp()) ? strerrorname_np(errno) : "works");
    dprintf(said, "write: %ld\n", (long)write(slave, "w", 1));
    signal(SIGTTOU, SIG_IGN);
    dprintf(said, "ignored: %d\n", tcsetattr(slave, TCSANOW, &settings));
    settings.c_lflag |= TOSTOP;
    tcsetattr(slave, TCSANOW, &settings);
    signal(SIGTTOU, SIG_DFL);
    dprintf(said, "held back: %s\n",
            write(slave, "w", 1) < 0 ? strerrorname_np(errno) : "works");
}

/* A session whose member is in a group of its own, which loses its only link. */
static void session(int said)
{
    close(master);
    setsid();
    ioctl(slave, TIOCSCTTY, 0);
    pid_t leader = fork();
    if (leader == 0) {
        setpgid(0, 0);
        if (fork() == 0)
            background(said);
        _exit(0);
    }
    close(said);
    waitpid(leader, NULL, 0);
    pause();
}

static void orphaned(void)
{
    char bytes[512];
    int said[2];
    ssize_t count;
    open_pair();
    (void)!pipe(said);
    pid_t child = fork_clean();
    if (child == 0)
        session(said[1]);
    close(said[1]);
    struct pollfd one = {said[0], POLLIN, 0};
    while (poll(&one, 1, 5000) == 1 && (count = read(said[0], bytes, sizeof bytes)) > 0)
        printf("%.*s", (int)count, bytes);
    SHOW(one.revents != 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static volatile sig_atomic_t hung_up, continued;

static void note(int signal)
{
    *(signal == SIGHUP ? &hung_up : &continued) = 1;
}

/* In the foreground of a terminal whose session's leader gives it up. */
static void foreground(int ready)
{
    signal(SIGHUP, note);
    signal(SIGCONT, note);
    signal(SIGTTOU, SIG_IGN);
    setpgid(0, 0);
    tcsetpgrp(slave, getpgrp());
    close(ready);
    for (int i = 0; i < 300 && !(hung_up && continued); i++)
        usleep(10000);
    SHOW(hung_up);
    SHOW(continued);
    TRY(tcgetpgrp(slave));
    TRY(open("/dev/tty", O_RDWR));
}

static void given_up(void)
{
    int ready[2];
    char byte;
    open_pair();
    (void)!pipe(ready);
    pid_t child = fork_clean();
    if (child == 0) {
        setsid();
        ioctl(slave, TIOCSCTTY, 0);
        pid_t job = fork_clean();
        if (job == 0) {
            foreground(ready[1]);
            exit(0);
        }
        close(ready[1]);
        (void)!read(ready[0], &byte, 1);
        int gave_up = ioctl(slave, TIOCNOTTY);
        waitpid(job, NULL, 0);
        SHOW(gave_up);
        exit(0);
    }
    close(ready[1]);
    waitpid(child, NULL, 0);
}

int main(void)
{
    int status = begin_in_place(0700);
    if (status)
        return status;
    exclusive();
    orphaned();
    given_up();
    return 0;
}
