/* poll and select on pipes, files, terminals' absence, closed descriptors. */
#include "check.h"

static void look(const char *what, int descriptor, short events, int timeout)
{
    struct pollfd entry = {.fd = descriptor, .events = events, .revents = 0x55};
    int count = poll(&entry, 1, timeout);
    printf("%s: %d %s%s%s%s%s\n", what, count, entry.revents & POLLIN ? "in " : "",
           entry.revents & POLLOUT ? "out " : "", entry.revents & POLLHUP ? "hup " : "",
           entry.revents & POLLERR ? "err " : "", entry.revents & POLLNVAL ? "nval" : "");
}

int main(void)
{
    int ends[2];
    static char block[4096];
    if (pipe2(ends, O_NONBLOCK))
        return 1;
    look("empty", ends[0], POLLIN, 0);
    look("writable", ends[1], POLLOUT, 0);
    look("waits", ends[0], POLLIN, 20);
    SHOW(write(ends[1], "x", 1));
    look("readable", ends[0], POLLIN | POLLOUT, 1000);
    while (write(ends[1], block, sizeof block) > 0)
        continue;
    look("full", ends[1], POLLOUT, 0);
    SHOW(read(ends[0], block, 100));
    look("a little read", ends[1], POLLOUT, 0);
    SHOW(read(ends[0], block, 4096));
    look("a page read", ends[1], POLLOUT, 0);
    while (read(ends[0], block, sizeof block) > 0)
        continue;
    int other = dup(ends[1]);
    close(ends[1]);
    look("one writer left", ends[0], POLLIN, 0);
    SHOW(write(other, "y", 1));
    close(other);
    look("writers gone, a byte left", ends[0], POLLIN, 0);
    SHOW(read(ends[0], block, 10));
    look("writers gone", ends[0], POLLIN, 1000);
    look("no events asked", ends[0], 0, 1000);
    close(ends[0]);
    look("closed", ends[0], POLLIN, 1000);
    look("negative", -1, POLLIN, 0);
    if (pipe(ends))
        return 1;
    close(ends[0]);
    look("readers gone", ends[1], POLLOUT, 1000);
    close(ends[1]);
    int file = open("file", O_CREAT | O_RDWR, 0600);
    look("file", file, POLLIN | POLLOUT, 1000);
    look("null", open("/dev/null", O_RDWR), POLLIN | POLLOUT, 1000);

    if (pipe(ends))
        return 1;
    pid_t child = fork_clean();
    if (child == 0) {
        usleep(200000);
        _exit(write(ends[1], "z", 1) != 1);
    }
    look("woken by a child", ends[0], POLLIN, 10000);
    waitpid(child, NULL, 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    struct timeval none = {0};
    SHOW(select(ends[0] + 1, &set, NULL, NULL, &none));
    SHOW(FD_ISSET(ends[0], &set));
    SHOW(read(ends[0], block, 10));
    FD_SET(ends[0], &set);
    SHOW(select(ends[0] + 1, &set, NULL, NULL, &none));
    FD_SET(ends[0] + 50, &set);
    TRY(select(ends[0] + 60, &set, NULL, NULL, &none));
    /* A count of more descriptors than there are reads no more of a set than it has. */
    FD_ZERO(&set);
    FD_SET(ends[1], &set);
    TRY(select(100000, NULL, &set, NULL, &none));
    /* Descriptors behind FD_SETSIZE, in a set as long as the count says. */
    struct rlimit many = {2048, 2048};
    TRY(setrlimit(RLIMIT_NOFILE, &many));
    TRY(dup2(ends[0], 1500));
    unsigned long wide[32] = {[1500 / 64] = 1UL << 1500 % 64};
    TRY(select(1501, (fd_set *)wide, NULL, NULL, &none));
    SHOW(wide[1500 / 64] != 0);
    SHOW(write(ends[1], "w", 1));
    wide[1500 / 64] = 1UL << 1500 % 64;
    TRY(select(1501, (fd_set *)wide, NULL, NULL, &none));
    SHOW(wide[1500 / 64] != 0);
    SHOW(read(ends[0], block, 10));
    close(1500);
    TRY(poll(NULL, 0, 10));
    struct pollfd several[3] = {{ends[0], POLLIN, 0}, {ends[1], POLLOUT, 0}, {-5, POLLIN, 0}};
    SHOW(poll(several, 3, 1000));
    SHOW(several[1].revents == POLLOUT && several[0].revents == 0 && several[2].revents == 0);
    return 0;
}
