/* A pipe's end opened again by /proc/self/fd, in its own direction and in the other one, by its owner and by
 * another user. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"

/* Numbers that no user of a host has. */
enum { ANN = 61000, BOB = 61001 };

static int ends[2];

static int again(int fd, int flags)
{
    char way[64];
    snprintf(way, sizeof way, "/proc/self/fd/%d", fd);
    return open(way, flags);
}

/* What can be done with a descriptor that was opened so. */
static void tried(const char *what, int fd, int flags)
{
    char byte = '?';
    int got = again(fd, flags);
    printf("%s: %s\n", what, got < 0 ? strerrorname_np(errno) : "opened");
    if (got < 0)
        return;
    errno = 0;
    SHOW(fcntl(got, F_GETFL) & (O_ACCMODE | O_NONBLOCK));
    if ((flags & O_ACCMODE) != O_RDONLY) {
        TRY(write(got, "x", 1));
        TRY(read(ends[0], &byte, 1));
    } else {
        TRY(write(got, "y", 1));
        TRY(write(ends[1], "z", 1));
        TRY(read(got, &byte, 1));
    }
    printf("got %c\n", byte);
    close(got);
}

static void all_ways(void)
{
    tried("the reading end to read", ends[0], O_RDONLY);
    tried("the reading end to write", ends[0], O_WRONLY);
    tried("the reading end for both", ends[0], O_RDWR);
    tried("the writing end to read", ends[1], O_RDONLY);
    tried("the writing end to write", ends[1], O_WRONLY | O_NONBLOCK);
    tried("the writing end for both", ends[1], O_RDWR | O_NONBLOCK);
}

/* A writer is one as long as it is open: then the end is seen. */
static void ends_of_files(void)
{
    char byte;
    close(ends[1]);
    TRY(read(ends[0], &byte, 1));
    int writer = again(ends[0], O_WRONLY);
    TRY(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    TRY(read(ends[0], &byte, 1));
    TRY(write(writer, "w", 1));
    TRY(read(ends[0], &byte, 1));
    close(writer);
    TRY(read(ends[0], &byte, 1));
    close(ends[0]);
}

static void anns(void)
{
    pipe(ends);
    all_ways();
    ends_of_files();
}

static void refused(void)
{
    all_ways();
}

/* Only one end is inherited. */
static void one_end(void)
{
    char byte = '?';
    close(ends[1]);
    tried("root's reading end to read", ends[0], O_RDONLY);
    SHOW(again(ends[0], O_WRONLY));
    SHOW(errno == EACCES);
    (void)byte;
}

static void named(unsigned mode)
{
    mkfifo("pipe", 0);
    chmod("pipe", mode);
    ends[0] = open("pipe", O_RDONLY | O_NONBLOCK);
    ends[1] = open("pipe", O_WRONLY);
    fcntl(ends[0], F_SETFL, 0);
    printf("mode %o\n", mode);
    as(BOB, all_ways);
    as(0, all_ways);
    close(ends[0]);
    close(ends[1]);
    unlink("pipe");
}

int main(void)
{
    int status = begin_in_place(0777);
    if (status)
        return status;
    setgroups(0, NULL);
    signal(SIGPIPE, SIG_IGN);
    pipe(ends);
    all_ways();
    as(ANN, refused);
    as(ANN, one_end);
    fchmod(ends[0], 0644);
    as(ANN, refused);
    close(ends[0]);
    close(ends[1]);
    as(ANN, anns);
    anns();
    named(0600);
    named(0666);
    named(0622);
    return 0;
}
