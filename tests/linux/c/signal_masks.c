/* Blocking, pending, waiting, flags of sigaction, and what fork and exec keep. */
#include "check.h"

static volatile sig_atomic_t seen[65];
static char log_text[65];
static volatile sig_atomic_t logged;

static void note(int number)
{
    seen[number]++;
    log_text[logged++] = number == SIGUSR1 ? '1' : number == SIGUSR2 ? '2' : 'o';
}

static sigset_t set_of(int number)
{
    sigset_t set;
    sigemptyset(&set);
    if (number)
        sigaddset(&set, number);
    return set;
}

int main(int words, char *[])
{
    sigset_t set, old;
    int status;
    if (words > 1) {
        struct sigaction action;
        sigaction(SIGUSR1, NULL, &action);
        SHOW(action.sa_handler == SIG_DFL);
        sigaction(SIGUSR2, NULL, &action);
        SHOW(action.sa_handler == SIG_IGN);
        sigprocmask(SIG_BLOCK, NULL, &old);
        SHOW(sigismember(&old, SIGTERM));
        sigpending(&set);
        SHOW(sigismember(&set, SIGTERM));
        return 0;
    }
    struct sigaction action = {.sa_handler = note};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);

    set = set_of(SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGUSR1);
    raise(SIGUSR1);
    SHOW(seen[SIGUSR1]);
    sigpending(&set);
    SHOW(sigismember(&set, SIGUSR1));
    sigprocmask(SIG_SETMASK, &old, NULL);
    SHOW(seen[SIGUSR1]);

    /* Standard signals don't queue; real-time ones do. */
    sigaction(SIGRTMIN, &action, NULL);
    set = set_of(SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 3; i++)
        raise(SIGRTMIN);
    sigprocmask(SIG_SETMASK, &old, NULL);
    SHOW(seen[SIGRTMIN]);

    /* Each with its value, in order; the lowest number first. */
    set = set_of(SIGRTMIN);
    sigaddset(&set, SIGRTMIN + 2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 4; i++)
        sigqueue(getpid(), SIGRTMIN + (i < 2 ? 2 : 0), (union sigval){.sival_int = i});
    for (int i = 0; i < 4; i++) {
        siginfo_t told;
        int number = sigwaitinfo(&set, &told);
        printf("%d: %d code %d\n", number - SIGRTMIN, told.si_value.sival_int, told.si_code);
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    TRY(sigqueue(0x3fffffff, SIGTERM, (union sigval){.sival_int = 0}));
    TRY(sigqueue(getpid(), 65, (union sigval){.sival_int = 0}));
    siginfo_t forged = {.si_code = SI_USER};
    TRY(syscall(SYS_rt_sigqueueinfo, getppid(), 0, &forged));

    /* sigsuspend */
    set = set_of(SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t parent = getpid();
    pid_t child = fork_clean();
    if (child == 0) {
        kill(parent, SIGUSR2);
        _exit(0);
    }
    set = set_of(0);
    TRY(sigsuspend(&set));
    SHOW(seen[SIGUSR2]);
    waitpid(child, NULL, 0);
    sigprocmask(SIG_SETMASK, &old, NULL);

    /* sigwaitinfo, sigtimedwait */
    set = set_of(SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGTERM);
    siginfo_t info;
    TRY(sigwaitinfo(&set, &info));
    SHOW(info.si_pid == getpid());
    struct timespec little = {.tv_nsec = 10000000};
    TRY(sigtimedwait(&set, &info, &little));
    child = fork_clean();
    if (child == 0) {
        usleep(20000);
        kill(parent, SIGTERM);
        _exit(0);
    }
    TRY(sigwaitinfo(&set, &info)); /* it comes while we wait: the default is not taken */
    SHOW(info.si_pid == child);
    waitpid(child, NULL, 0);
    sigprocmask(SIG_SETMASK, &old, NULL);

    /* Its own signal is blocked in a handler, sa_mask too; not with SA_NODEFER; SA_RESETHAND. */
    action.sa_flags = SA_RESETHAND;
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    struct sigaction now;
    sigaction(SIGUSR1, NULL, &now);
    SHOW(now.sa_handler == SIG_DFL);
    TRY(sigaction(SIGKILL, &action, NULL));
    TRY(sigaction(SIGSTOP, &action, NULL));
    TRY(sigaction(65, &action, NULL));
    TRY(kill(getpid(), 0));
    TRY(kill(getpid(), 65));
    TRY(kill(0x3fffffff, SIGTERM));
    TRY(raise(0));

    /* exec: handled becomes default, ignored stays, the mask and what is pending stay. */
    child = fork_clean();
    if (child == 0) {
        action.sa_flags = 0;
        sigaction(SIGUSR1, &action, NULL);
        signal(SIGUSR2, SIG_IGN);
        set = set_of(SIGTERM);
        sigprocmask(SIG_BLOCK, &set, NULL);
        raise(SIGTERM);
        char *arguments[] = {"x", "again", NULL};
        execv("/proc/self/exe", arguments);
        _exit(1);
    }
    waitpid(child, &status, 0);
    show_status("exec", status);

    /* fork: what is pending isn't inherited. */
    set = set_of(SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGTERM);
    child = fork_clean();
    if (child == 0) {
        sigpending(&set);
        _exit(sigismember(&set, SIGTERM));
    }
    waitpid(child, &status, 0);
    show_status("pending after fork", status);
    sigwaitinfo(&set, NULL);
    puts(log_text);
    return 0;
}
