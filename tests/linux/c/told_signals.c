/* /proc/self/status tells which signals wait, are blocked, ignored and handled. */
#include "check.h"

static void handle(int signal)
{
    (void)signal;
}

static void show(const char *when)
{
    char line[200];
    FILE *status = fopen("/proc/self/status", "r");
    printf("-- %s\n", when);
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "SigPnd", 6) || !strncmp(line, "ShdPnd", 6) || !strncmp(line, "SigBlk", 6)
            || !strncmp(line, "SigIgn", 6) || !strncmp(line, "SigCgt", 6))
            fputs(line, stdout);
    fclose(status);
}

int main(int count, char **words)
{
    if (count > 1) {
        show("executed");
        return 0;
    }
    /* The C library's own two, as well. */
    const uint64_t by_default[4] = { 0 };
    for (int number = 1; number <= 64; number++)
        syscall(SYS_rt_sigaction, number, by_default, NULL, 8);
    sigset_t set;
    sigemptyset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    show("begun");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGUSR1, handle);
    signal(SIGRTMIN, handle);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGRTMAX);
    sigprocmask(SIG_SETMASK, &set, NULL);
    show("set");
    kill(getpid(), SIGTERM);
    show("sent");
    raise(SIGRTMAX);
    show("raised");
    signal(SIGTERM, SIG_IGN);
    show("ignored");
    execl("/proc/self/exe", words[0], "executed", NULL);
    return 1;
}
