/* wait4 and waitid: what they take, leave and answer. */
#include "check.h"

static volatile sig_atomic_t children_told;

static void count_child(int number)
{
    (void)number;
    children_told++;
}

static volatile siginfo_t child_information;

static void look_at_child(int number, siginfo_t *information, void *context)
{
    (void)number;
    (void)context;
    child_information = *information;
}

/* Has SIGCHLD looked at with these flags more, and blocked: sigsuspend with the mask from before awaits it. */
static sigset_t look_at_children(int flags)
{
    struct sigaction action = {.sa_sigaction = look_at_child, .sa_flags = SA_SIGINFO | flags};
    sigset_t child_signal, before;
    sigemptyset(&child_signal);
    sigaddset(&child_signal, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_signal, &before);
    sigaction(SIGCHLD, &action, NULL);
    return before;
}

/* What SIGCHLD tells of the child that died, and of the next one while the first is a zombie. */
static void told_of_children(void)
{
    sigset_t before = look_at_children(0);
    pid_t exits = fork_clean();
    if (exits == 0)
        _exit(9);
    sigsuspend(&before);
    SHOW(child_information.si_pid == exits);
    SHOW(child_information.si_code == CLD_EXITED);
    SHOW(child_information.si_status);
    SHOW(child_information.si_uid == getuid());
    pid_t dies = fork_clean();
    if (dies == 0) {
        raise(SIGUSR1);
        _exit(1);
    }
    sigsuspend(&before);
    SHOW(child_information.si_pid == dies);
    SHOW(child_information.si_code == CLD_KILLED);
    SHOW(child_information.si_status == SIGUSR1);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    SHOW(waitpid(exits, NULL, 0) == exits);
    SHOW(waitpid(dies, NULL, 0) == dies);
}

static pid_t child_that(int exit_status)
{
    pid_t child = fork_clean();
    if (child == 0)
        _exit(exit_status);
    return child;
}

static int is_pending(void)
{
    sigset_t pending;
    usleep(30000); /* Nothing more comes. */
    sigpending(&pending);
    return sigismember(&pending, SIGCHLD);
}

/* What SIGCHLD tells of a child that stops and goes on, once each time, and not to who does not want to know. */
static void told_of_stops(void)
{
    sigset_t before = look_at_children(0);
    pid_t child = fork_clean();
    for (; child == 0;)
        pause();
    for (int round = 0; round < 3; round++) {
        kill(child, SIGSTOP);
        sigsuspend(&before);
        SHOW(child_information.si_pid == child);
        SHOW(child_information.si_code == CLD_STOPPED);
        SHOW(child_information.si_status == SIGSTOP);
        SHOW(is_pending());
        kill(child, SIGCONT);
        sigsuspend(&before);
        SHOW(child_information.si_pid == child);
        SHOW(child_information.si_code == CLD_CONTINUED);
        SHOW(child_information.si_status == SIGCONT);
        SHOW(is_pending());
    }
    look_at_children(SA_NOCLDSTOP);
    kill(child, SIGSTOP);
    SHOW(waitpid(child, NULL, WUNTRACED) == child);
    kill(child, SIGCONT);
    SHOW(waitpid(child, NULL, WCONTINUED) == child);
    SHOW(is_pending());
    kill(child, SIGKILL);
    sigsuspend(&before);
    SHOW(child_information.si_code == CLD_KILLED);
    SHOW(waitpid(child, NULL, 0) == child);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Whoever does not ask for ends is told of none, and takes none. */
static void not_of_ends(void)
{
    siginfo_t info = {0};
    int status;
    pid_t child = fork_clean();
    if (child == 0)
        _exit(6);
    SHOW(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
    TRY(waitid(P_PID, child, &info, WSTOPPED));
    TRY(waitid(P_ALL, 0, &info, WSTOPPED | WCONTINUED | WNOHANG));
    pid_t living = fork_clean();
    if (living == 0) {
        pause();
        _exit(1);
    }
    info.si_pid = 1;
    TRY(waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG));
    SHOW(info.si_pid);
    kill(living, SIGSTOP);
    SHOW(waitid(P_ALL, 0, &info, WSTOPPED));
    SHOW(info.si_pid == living);
    kill(living, SIGKILL);
    SHOW(waitpid(living, &status, 0) == living);
    show_status("living", status);
    SHOW(waitpid(child, &status, 0) == child);
    show_status("child", status);
}

int main(void)
{
    int status = 0;
    siginfo_t info;
    TRY(wait(&status));
    TRY(waitpid(-1, &status, WNOHANG));
    TRY(waitpid(1, &status, 0));
    TRY(waitpid(getpid(), &status, 0));
    TRY(wait4(-1, &status, 0x1000, NULL));

    pid_t child = child_that(300);
    memset(&info, 0, sizeof info);
    SHOW(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
    SHOW(info.si_pid == child);
    SHOW(info.si_code == CLD_EXITED);
    SHOW(info.si_status);
    SHOW(info.si_signo == SIGCHLD);
    struct rusage usage;
    SHOW(wait4(child, &status, 0, &usage) == child);
    show_status("after WNOWAIT", status);
    TRY(waitpid(child, &status, 0));

    child = fork_clean();
    if (child == 0) {
        raise(SIGSTOP);
        pause();
    }
    SHOW(waitpid(child, &status, WUNTRACED) == child);
    show_status("child", status);
    SHOW(waitpid(child, &status, WUNTRACED | WNOHANG));
    kill(child, SIGCONT);
    memset(&info, 0, sizeof info);
    SHOW(waitid(P_ALL, 0, &info, WCONTINUED));
    SHOW(info.si_code == CLD_CONTINUED);
    memset(&info, 0, sizeof info);
    SHOW(waitid(P_PID, child, &info, WEXITED | WNOHANG));
    SHOW(info.si_pid);
    kill(child, SIGKILL);
    SHOW(waitid(P_PID, child, &info, WEXITED));
    SHOW(info.si_code == CLD_KILLED);
    SHOW(info.si_status);
    TRY(waitid(P_PID, child, &info, WEXITED));
    TRY(waitid(P_ALL, 0, &info, 0));

    /* By group. */
    child = fork_clean();
    if (child == 0) {
        setpgid(0, 0);
        _exit(4);
    }
    setpgid(child, child);
    pid_t own = child_that(5);
    SHOW(waitpid(-child, &status, 0) == child);
    show_status("other group", status);
    SHOW(waitpid(0, &status, 0) == own);
    show_status("own group", status);

    /* Children of a dead child go to the first process, not to us. */
    child = fork_clean();
    if (child == 0) {
        if (fork() == 0) {
            usleep(50000);
            _exit(0);
        }
        _exit(0);
    }
    waitpid(child, &status, 0);
    TRY(waitpid(-1, &status, 0));

    /* SIGCHLD: ignored, children vanish. */
    signal(SIGCHLD, SIG_IGN);
    child_that(1);
    TRY(waitpid(-1, &status, 0));
    signal(SIGCHLD, SIG_DFL);

    /* One that died before stays; SA_NOCLDWAIT drops those after, and tells of them. */
    child = child_that(6);
    waitid(P_PID, child, &info, WEXITED | WNOWAIT);
    signal(SIGCHLD, SIG_IGN);
    child_that(7);
    pid_t first = wait(&status);
    SHOW(first == child);
    show_status("died before", status);
    TRY(wait(&status));
    struct sigaction drop = {.sa_handler = count_child, .sa_flags = SA_NOCLDWAIT};
    sigaction(SIGCHLD, &drop, NULL);
    child = child_that(8);
    do
        TRY(waitpid(child, &status, 0));
    while (!children_told);
    TRY(kill(child, 0));

    /* The handler of the end itself does not interrupt the wait for it. */
    drop.sa_flags = 0;
    sigaction(SIGCHLD, &drop, NULL);
    child = fork_clean();
    if (child == 0) {
        usleep(20000);
        _exit(9);
    }
    SHOW(waitpid(child, &status, 0) == child);
    signal(SIGCHLD, SIG_DFL);

    pid_t many[20];
    int sum = 0;
    for (int i = 0; i < 20; i++)
        many[i] = child_that(i);
    while (wait(&status) > 0)
        sum += WEXITSTATUS(status);
    SHOW(sum);
    (void)many;

    child = fork_clean();
    if (child == 0) {
        TRY(getppid() == 1);
        SHOW(getpid() == syscall(SYS_gettid));
        SHOW(getpgid(0) == getpgid(getppid()));
        SHOW(getsid(0) == getsid(getppid()));
        TRY(setsid() == getpid());
        TRY(setsid());
        SHOW(getpgrp() == getpid());
        TRY(setpgid(0, 0));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status("identity", status);
    TRY(setpgid(0x3fffffff, 0));
    TRY(getpgid(0x3fffffff));
    told_of_children();
    told_of_stops();
    not_of_ends();
    return 0;
}
