/* Writes at an offset to a file that is open for appending: Linux puts them behind its end (pwrite(2), BUGS). */
#include "check.h"

static void show_content(int fd)
{
    char content[64];
    ssize_t got = pread(fd, content, sizeof content - 1, 0);
    content[got > 0 ? got : 0] = 0;
    printf("content: %s\n", content);
}

int main(void)
{
    const char *name = "appending.tmp";
    struct iovec pieces[] = {{"gh", 2}, {"ij", 2}};
    int fd = open(name, O_CREAT | O_TRUNC | O_RDWR | O_APPEND, 0600);
    TRY(write(fd, "abc", 3));
    TRY(lseek(fd, 1, SEEK_SET));
    TRY(pwrite(fd, "def", 3, 0));
    SHOW(lseek(fd, 0, SEEK_CUR));
    TRY(pwritev(fd, pieces, 2, 1));
    TRY(pwrite(fd, "x", 1, -1));
    TRY(pwrite(fd, "", 0, 0));
    show_content(fd);
    TRY(fcntl(fd, F_SETFL, 0));
    TRY(pwrite(fd, "D", 1, 3));
    show_content(fd);
    TRY(fcntl(fd, F_SETFL, O_APPEND));
    TRY(pwrite(fd, "k", 1, 0));
    show_content(fd);
    TRY(close(fd));
    TRY(unlink(name));
    fd = open("/dev/null", O_WRONLY | O_APPEND);
    TRY(pwrite(fd, "null", 4, 9));
    return 0;
}
