/* Pseudo-terminals: made, unlocked, opened; lines, echo and raw bytes; window size; a session with its
   terminal, ^C, background and hang-up; ends on either side; what is refused. */
#include "check.h"
#include <termios.h>

static int master, slave;
static char name[64];

static void open_pair(void)
{
    master = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(master);
    unlockpt(master);
    ptsname_r(master, name, sizeof name);
    slave = open(name, O_RDWR | O_NOCTTY);
}

/* Shows what is read until `end` has come; control characters by their numbers. */
static void show_until(const char *what, int fd, const char *end)
{
    char bytes[256];
    size_t count = 0;
    while (count < sizeof bytes - 1) {
        bytes[count] = 0;
        if (strstr(bytes, end) != NULL)
            break;
        long got = read(fd, bytes + count, 1);
        if (got <= 0) {
            printf("(%s) ", got == 0 ? "end" : strerrorname_np(errno));
            break;
        }
        count += (size_t)got;
    }
    printf("%s: ", what);
    for (size_t at = 0; at < count; at++)
        printf(bytes[at] < ' ' ? "<%d>" : "%c", bytes[at]);
    printf("\n");
}

static int readiness(int fd, int timeout)
{
    struct pollfd one = {fd, POLLIN | POLLOUT, 0};
    poll(&one, 1, timeout);
    return one.revents;
}

/* `struct termios2`: the settings with the speeds as numbers, as newer C libraries ask. */
static void settings_with_speeds(int slave)
{
    struct {
        unsigned input, output, control, local;
        unsigned char line, characters[19];
        unsigned reads, writes, none;
    } its = {.none = 99};
    TRY(ioctl(slave, _IOR('T', 0x2a, char[44]), &its));
    printf("%u %u %u, interrupt %u\n", its.reads, its.writes, its.none, its.characters[VINTR]);
    its.characters[VINTR] = 5;
    its.control = (its.control & ~0x100fu) | B115200;
    TRY(ioctl(slave, _IOW('T', 0x2b, char[44]), &its));
    TRY(ioctl(slave, _IOR('T', 0x2a, char[44]), &its));
    printf("%u %u, interrupt %u\n", its.reads, its.writes, its.characters[VINTR]);
    its.control = (its.control & ~0x100fu) | 0x1000; /* BOTHER */
    its.reads = its.writes = 9600;
    TRY(ioctl(slave, _IOW('T', 0x2c, char[44]), &its));
    TRY(ioctl(slave, _IOR('T', 0x2a, char[44]), &its));
    printf("%u %u\n", its.reads, its.writes);
    its.characters[VINTR] = 3;
    its.control = (its.control & ~0x100fu) | B38400;
    TRY(ioctl(slave, _IOW('T', 0x2d, char[44]), &its));
    TRY(ioctl(slave, _IOR('T', 0x2a, char[44]), &its));
    printf("%u %u, interrupt %u\n", its.reads, its.writes, its.characters[VINTR]);
}

static void made(void)
{
    struct termios settings;
    struct stat status, link;
    int number = -1, locked = -1;
    char text[64];
    master = posix_openpt(O_RDWR | O_NOCTTY);
    SHOW(master >= 0);
    TRY(ioctl(master, TIOCGPTN, &number));
    SHOW(number >= 0);
    TRY(ioctl(master, TIOCGPTLCK, &locked));
    SHOW(locked);
    sprintf(name, "/dev/pts/%d", number);
    TRY(open(name, O_RDWR | O_NOCTTY));
    TRY(grantpt(master));
    TRY(unlockpt(master));
    TRY(ptsname_r(master, text, sizeof text));
    SHOW(strcmp(text, name));
    slave = open(name, O_RDWR | O_NOCTTY);
    SHOW(slave >= 0);
    SHOW(isatty(slave));
    SHOW(isatty(master));
    TRY(ttyname_r(slave, text, sizeof text));
    SHOW(strcmp(text, name));
    fstat(slave, &status);
    stat(name, &link);
    SHOW(S_ISCHR(status.st_mode) && status.st_rdev == link.st_rdev && status.st_ino == link.st_ino);
    SHOW(tcgetattr(slave, &settings));
    SHOW((settings.c_lflag & (ICANON | ECHO | ISIG)) == (ICANON | ECHO | ISIG));
    SHOW((settings.c_oflag & (OPOST | ONLCR)) == (OPOST | ONLCR));
    SHOW(settings.c_cc[VINTR]);
    settings_with_speeds(slave);
    TRY(open("/dev/pts/4294967295", O_RDWR));
    TRY(open("/dev/pts/x", O_RDWR));
    TRY(lseek(master, 0, SEEK_SET));
    TRY(ioctl(slave, TIOCGPTN, &number));
    TRY(ioctl(slave, TIOCSPTLCK, &number));
    int peer = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
    SHOW(peer >= 0);
    TRY(write(peer, "peer", 4));
    show_until("peer", master, "peer");
    close(peer);
}

static void lines(void)
{
    struct termios settings;
    char bytes[64];
    int count;
    SHOW(readiness(slave, 0));
    SHOW(readiness(master, 0));
    TRY(write(slave, "hello\n", 6));
    show_until("shown", master, "\n");
    TRY(write(master, "typed\177\177ing\r", 11));
    show_until("echoed", master, "\n");
    SHOW(readiness(slave, -1) & POLLIN);
    TRY(ioctl(slave, FIONREAD, &count));
    SHOW(count);
    TRY(read(slave, bytes, 3));
    show_until("the rest", slave, "\n");
    TRY(write(master, "\4", 1));
    TRY(read(slave, bytes, sizeof bytes));
    fcntl(slave, F_SETFL, O_NONBLOCK);
    fcntl(master, F_SETFL, O_NONBLOCK);
    TRY(read(slave, bytes, 1));
    TRY(read(master, bytes, 1));
    fcntl(slave, F_SETFL, 0);
    fcntl(master, F_SETFL, 0);
    tcgetattr(slave, &settings);
    cfmakeraw(&settings);
    TRY(tcsetattr(slave, TCSANOW, &settings));
    TRY(write(master, "\3raw\r", 5));
    show_until("raw", slave, "\r");
    TRY(write(slave, "a\nb", 3));
    show_until("not processed", master, "b");
    TRY(tcgetattr(master, &settings));
    SHOW((settings.c_lflag & ICANON) == 0);
    struct winsize size = {0, 0, 0, 0};
    TRY(ioctl(slave, TIOCGWINSZ, &size));
    SHOW(size.ws_row);
    size.ws_row = 33;
    size.ws_col = 44;
    TRY(ioctl(master, TIOCSWINSZ, &size));
    size.ws_row = 0;
    TRY(ioctl(slave, TIOCGWINSZ, &size));
    SHOW(size.ws_row);
    SHOW(size.ws_col);
    /* More than fits, through raw. */
    static char many[20000];
    pid_t child = fork_clean();
    if (child == 0) {
        close(master);
        for (int at = 0; at < (int)sizeof many; at++)
            many[at] = (char)(at % 251);
        _exit(write(slave, many, sizeof many) != sizeof many);
    }
    int wrong = 0, status;
    for (int at = 0; at < (int)sizeof many; at++) {
        char byte = 0;
        wrong += read(master, &byte, 1) != 1 || byte != (char)(at % 251);
    }
    SHOW(wrong);
    waitpid(child, &status, 0);
    show_status("wrote many", status);
}

static void ends(void)
{
    char bytes[64];
    open_pair();
    TRY(write(slave, "last", 4));
    close(slave);
    show_until("last", master, "last");
    SHOW(readiness(master, -1) & (POLLIN | POLLHUP));
    TRY(read(master, bytes, 1));
    slave = open(name, O_RDWR | O_NOCTTY);
    SHOW(slave >= 0);
    TRY(write(slave, "again", 5));
    show_until("again", master, "again");
    close(master);
    struct pollfd one = {slave, 0, 0};
    SHOW(poll(&one, 1, -1));
    SHOW(one.revents);
    TRY(read(slave, bytes, 1));
    TRY(write(slave, "x", 1));
    WORKS(open(name, O_RDWR | O_NOCTTY));
    close(slave);
}

/* A program that has the terminal stop its output, and ends, leaves its master no more to wait for. */
static void stopped(void)
{
    char bytes[64];
    struct termios settings;
    int status;
    long got;
    open_pair();
    tcgetattr(slave, &settings);
    settings.c_cc[VSTOP] = 'a';
    settings.c_lflag &= ~(tcflag_t)ECHO;
    tcsetattr(slave, TCSANOW, &settings);
    TRY(write(master, "a", 1));
    fcntl(slave, F_SETFL, O_NONBLOCK);
    pid_t child = fork_clean();
    if (child == 0) {
        struct pollfd room = {slave, POLLOUT, 0};
        close(master);
        for (int times = 0; times < 20 && poll(&room, 1, 0) > 0; times++)
            usleep(10000);
        write(slave, "held", 4);
        _exit(0);
    }
    close(slave);
    waitpid(child, &status, 0);
    show_status("stopped", status);
    fcntl(master, F_SETFL, O_NONBLOCK);
    struct pollfd one = {master, POLLIN, 0};
    do {
        poll(&one, 1, 5000);
        got = read(master, bytes, sizeof bytes);
    } while (got > 0);
    SHOW(errno == EIO);
    SHOW(one.revents & POLLHUP);
    close(master);
}

/* A master reads all that was shown before the end of the terminal's last user, however much of it
   is on its way then: as much as there is room for, `most` bytes of it. */
static void shown_last(size_t most)
{
    static char bytes[65536];
    struct termios settings;
    size_t shown = 0, count = 0, wrong = 0;
    int told[2], status;
    open_pair();
    tcgetattr(slave, &settings);
    cfmakeraw(&settings);
    tcsetattr(slave, TCSANOW, &settings);
    fcntl(slave, F_SETFL, O_NONBLOCK);
    pipe(told);
    pid_t child = fork_clean();
    if (child == 0) {
        struct pollfd room = {slave, POLLOUT, 0};
        close(master);
        while (shown < most && poll(&room, 1, 200) > 0) {
            for (size_t at = shown; at < most; at++)
                bytes[at] = (char)(at % 251);
            long put = write(slave, bytes + shown, most - shown);
            shown += put > 0 ? (size_t)put : 0;
        }
        write(told[1], &shown, sizeof shown);
        _exit(0);
    }
    close(slave);
    waitpid(child, &status, 0);
    show_status("showed", status);
    read(told[0], &shown, sizeof shown);
    /* One by one at first: who waits for each need not run at once any more. */
    for (; count < 400; count++)
        wrong += read(master, bytes, 1) != 1 || bytes[0] != (char)(count % 251);
    for (;;) {
        struct pollfd one = {master, POLLIN, 0};
        poll(&one, 1, -1);
        long got = read(master, bytes, sizeof bytes);
        if (got <= 0)
            break;
        wrong += !(one.revents & POLLIN);
        for (long at = 0; at < got; at++)
            wrong += bytes[at] != (char)((count + (size_t)at) % 251);
        count += (size_t)got;
    }
    SHOW(errno == EIO);
    SHOW(count == shown);
    SHOW(wrong);
    close(master);
    close(told[0]);
    close(told[1]);
}

static void on_signal(int signal)
{
    (void)signal;
}

/* What /proc tells of a process's terminal, and of the group in the foreground there. */
static void tell_terminal(const char *whose, pid_t pid)
{
    char path[64], line[512] = "";
    int terminal = -2, foreground = -2;
    struct stat its = {0};
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY);
    read(fd, line, sizeof line - 1);
    close(fd);
    char *rest = strrchr(line, ')');
    if (rest)
        sscanf(rest, ") %*c %*d %*d %*d %d %d", &terminal, &foreground);
    fstat(slave, &its);
    printf("%s: terminal %s, foreground %s\n", whose, terminal == 0 ? "none"
        : terminal == (int)its.st_rdev ? "this" : "another", foreground == -1 ? "none"
        : foreground == tcgetpgrp(slave) ? "this" : "another");
}

/* The leader of a session on the terminal; its child is in the foreground, then in the background. */
static void session(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    int status;
    char bytes[64];
    setvbuf(stdout, NULL, _IONBF, 0);
    close(master);
    TRY(setsid() == getpid());
    TRY(open("/dev/tty", O_RDWR));
    tell_terminal("before", getpid());
    TRY(ioctl(slave, TIOCSCTTY, 0));
    SHOW(tcgetpgrp(slave) == getpgrp());
    SHOW(tcgetsid(slave) == getpid());
    int own = open("/dev/tty", O_RDWR);
    SHOW(own >= 0);
    tell_terminal("leader", getpid());
    write(own, "ready\n", 6);
    /* ^C reaches the group in the foreground. */
    signal(SIGTTOU, SIG_IGN);
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        tcsetpgrp(own, getpid());
        signal(SIGTTOU, SIG_DFL);
        write(own, "go\n", 3);
        pause();
    }
    waitpid(child, &status, 0);
    show_status("interrupted", status);
    TRY(tcsetpgrp(own, getpgrp()));
    /* Who is in the background and reads is stopped. */
    child = fork();
    if (child == 0) {
        setpgid(0, 0);
        read(own, bytes, 1);
        _exit(7);
    }
    waitpid(child, &status, WUNTRACED);
    show_status("read in the background", status);
    tell_terminal("background", child);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    /* The window changes, and then the line is hung up. */
    sigaction(SIGWINCH, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &before);
    write(own, "window\n", 7);
    int found;
    sigwait(&set, &found);
    SHOW(found == SIGWINCH);
    write(own, "hang up\n", 8);
    sigwait(&set, &found);
    SHOW(found == SIGHUP);
    TRY(read(own, bytes, 1));
    TRY(write(own, "x", 1));
    tell_terminal("hung up", getpid());
    exit(5);
}

int main(void)
{
    int status;
    made();
    lines();
    close(slave);
    close(master);
    ends();
    stopped();
    for (int more = -1; more < 3000; more = 3 * more + 100)
        shown_last(32768 + (size_t)more);
    open_pair();
    pid_t child = fork_clean();
    if (child == 0)
        session();
    close(slave);
    show_until("session", master, "ready\r\n");
    show_until("foreground", master, "go\r\n");
    write(master, "\3", 1);
    show_until("interrupt", master, "window\r\n");
    struct winsize size = {10, 20, 0, 0};
    ioctl(master, TIOCSWINSZ, &size);
    show_until("window", master, "hang up\r\n");
    close(master);
    waitpid(child, &status, 0);
    show_status("session", status);
    return 0;
}
