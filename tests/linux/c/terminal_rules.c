/* Terminals that are exclusive. Run as root. */
#include "check.h"
#include "users.h"

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

int main(void)
{
    int status = begin_in_place(0700);
    if (status)
        return status;
    exclusive();
    return 0;
}
