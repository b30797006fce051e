/* Signals to a child that has ended and was not waited for, and to threads of the wrong process. */
#include "check.h"

int main(void)
{
    siginfo_t info;
    int status;
    pid_t own = getpid();
    pid_t child = fork_clean();
    if (child == 0)
        _exit(5);
    SHOW(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
    TRY(kill(child, 0));
    TRY(kill(child, SIGTERM));
    TRY(kill(child, 99));
    TRY(syscall(SYS_tkill, child, 0));
    TRY(syscall(SYS_tgkill, child, child, 0));
    TRY(syscall(SYS_tgkill, child, child, SIGKILL));
    TRY(syscall(SYS_tgkill, own, child, 0));
    TRY(syscall(SYS_tgkill, child, own, SIGKILL));
    TRY(syscall(SYS_tgkill, getppid(), own, SIGKILL));
    TRY(syscall(SYS_tgkill, 0, own, 0));
    TRY(syscall(SYS_tgkill, -1, own, 0));
    TRY(syscall(SYS_tgkill, own, own, 0));
    TRY(syscall(SYS_tkill, 0, 0));
    waitpid(child, &status, 0);
    show_status("child", status);
    TRY(kill(child, 0));
    TRY(syscall(SYS_tkill, child, 0));
    return 0;
}
