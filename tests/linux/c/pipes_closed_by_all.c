/* What lies in a named pipe when its last end is closed, or its last process ends: it is lost. */
#include "check.h"

static const char *const way = "/tmp/closed_by_all";

/* What a reader finds that waits for nothing. */
static void found(void)
{
    char bytes[8];
    int end = open(way, O_RDONLY | O_NONBLOCK);
    TRY(read(end, bytes, sizeof bytes));
    close(end);
}

static void closed(void)
{
    int end = open(way, O_RDWR);
    TRY(write(end, "lost", 4));
    close(end);
    found();
}

static void ended(void)
{
    pid_t child = fork_clean();
    if (child == 0) {
        int end = open(way, O_RDWR);
        _exit(write(end, "lost", 4) == 4 ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    show_status("the last process", status);
    found();
}

/* One end is left: what was written stays. */
static void left(void)
{
    char bytes[8];
    int reader = open(way, O_RDONLY | O_NONBLOCK), writer = open(way, O_WRONLY);
    TRY(write(writer, "kept", 4));
    close(writer);
    writer = open(way, O_WRONLY);
    TRY(read(reader, bytes, sizeof bytes));
    errno = 0;
    TRY(read(reader, bytes, sizeof bytes));
    TRY(write(writer, "anew", 4));
    TRY(read(reader, bytes, sizeof bytes));
    close(reader);
    close(writer);
}

int main(void)
{
    unlink(way);
    TRY(mkfifo(way, 0600));
    for (int round = 0; round < 3; round++) {
        closed();
        ended();
        left();
    }
    TRY(unlink(way));
    return 0;
}
