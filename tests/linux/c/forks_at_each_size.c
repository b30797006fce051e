/* A child is forked at each size that its parent's tables of open files have on the way to many, and opens as
 * many again: whatever a system keeps for a process is copied as it is at one moment. */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 940, MORE = 60 };

/* Opens more, of several kinds, and closes them. */
static int opens(void)
{
    int opened[MORE], pair[2];
    for (int at = 0; at < MORE; at++)
        if ((opened[at] = open("/proc/self/status", O_RDONLY)) < 0)
            return 1;
    for (int at = 0; at < MORE; at++)
        close(opened[at]);
    return socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ? 2 : 0;
}

int main(void)
{
    int wrong = 0;
    for (int at = 0; at < FILES; at++) {
        if (open(at % 3 ? "/dev/null" : "/proc/self/cmdline", O_RDONLY) < 0)
            wrong++;
        pid_t child = fork();
        if (child == 0)
            _exit(opens());
        int status = -1;
        if (waitpid(child, &status, 0) != child || status)
            printf("child %d ended with %#x\n", at, status);
        wrong += status != 0;
    }
    printf("%d children, %d went wrong\n", FILES, wrong);
    return wrong != 0;
}
