/* A process that is stopped and continued at once goes on, whatever it did meanwhile. */
#include "check.h"
#include <poll.h>

enum { TIMES = 8 };
static const int stops[] = {SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
static int asked[2], answered[2];

static void ignored(int number)
{
    (void)number;
}

/* Answers each byte: as soon as it comes, or looks for it again and again. */
static void answer(int busy)
{
    char byte;
    setpgid(0, 0);
    signal(SIGCONT, ignored);
    for (;;) {
        struct pollfd input = {.fd = asked[0], .events = POLLIN};
        if (busy && poll(&input, 1, 0) != 1)
            continue;
        if (read(asked[0], &byte, 1) != 1 || write(answered[1], &byte, 1) != 1)
            _exit(0);
    }
}

static int answers(void)
{
    struct pollfd output = {.fd = answered[0], .events = POLLIN};
    char byte = 'x';
    return write(asked[1], &byte, 1) == 1 && poll(&output, 1, 2000) == 1 &&
           read(answered[0], &byte, 1) == 1;
}

static void show(const char *what, int busy, int group)
{
    pid_t child;
    int went_on = 0, status;
    if (pipe(asked) || pipe(answered))
        exit(1);
    child = fork_clean();
    if (child == 0)
        answer(busy);
    went_on = answers();
    for (unsigned at = 0; at < sizeof stops / sizeof *stops; at++)
        for (int i = 0; i < TIMES && went_on; i++) {
            kill(group ? -child : child, stops[at]);
            kill(group ? -child : child, SIGCONT);
            went_on = answers();
        }
    printf("%s: goes on %d\n", what, went_on);
    kill(child, SIGCONT);
    kill(child, SIGSTOP);
    printf("%s: stops %d\n", what, waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    kill(child, SIGKILL);
    SHOW(waitpid(child, &status, 0) == child);
    for (int i = 0; i < 2; i++) {
        close(asked[i]);
        close(answered[i]);
    }
}

/* As a shell's `(kill -STOP $$; kill -CONT $$)`: the parent waits for the child that does it. */
static void parent(int number)
{
    int status = -1;
    pid_t child = fork_clean();
    if (child == 0) {
        kill(getppid(), number);
        kill(getppid(), SIGCONT);
        _exit(3);
    }
    SHOW(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
}

int main(void)
{
    show("one that sleeps", 0, 0);
    show("one that computes", 1, 0);
    show("a group that sleeps", 0, 1);
    show("a group that computes", 1, 1);
    for (unsigned at = 0; at < sizeof stops / sizeof *stops; at++)
        parent(stops[at]);
    return 0;
}
