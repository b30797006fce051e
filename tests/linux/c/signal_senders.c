/* Who has sent a signal: si_pid and si_uid of kill, tgkill, sigqueue and SIGCHLD, between users; and whom the real
 * user reaches. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include "check.h"
#include "users.h"

/* Numbers that no user of a host has. */
enum { ANN = 61000, BOB = 61001 };

static sigset_t meant;

static void block(void)
{
    sigemptyset(&meant);
    sigaddset(&meant, SIGUSR1);
    sigaddset(&meant, SIGCHLD);
    sigaddset(&meant, SIGPIPE);
    sigprocmask(SIG_BLOCK, &meant, NULL);
}

static void take(const char *what, pid_t from)
{
    siginfo_t info;
    struct timespec soon = {20, 0};
    int signal = sigtimedwait(&meant, &info, &soon);
    if (signal < 0)
        perror(what);
    else
        printf("%s: signal %d code %d %s uid %u\n", what, signal, info.si_code,
               info.si_pid == from ? "from there" : "from elsewhere", info.si_uid);
}

/* A child of these three users that sends when it is told to, and lives until it was heard. */
static void sent(const char *what, unsigned real, unsigned effective, unsigned saved, int how)
{
    int go[2], status;
    char byte;
    pid_t own = getpid();
    pipe(go);
    pid_t child = fork_clean();
    if (child == 0) {
        close(go[1]);
        if (setresuid(real, effective, saved))
            perror("setresuid");
        union sigval value = {.sival_int = 5};
        if (how == 0)
            kill(own, SIGUSR1);
        else if (how == 1)
            syscall(SYS_tgkill, own, own, SIGUSR1);
        else
            sigqueue(own, SIGUSR1, value);
        read(go[0], &byte, 1);
        _exit(0);
    }
    siginfo_t info = {0};
    struct timespec soon = {20, 0};
    int signal = sigtimedwait(&meant, &info, &soon);
    printf("%s: signal %d %s uid %u\n", what, signal,
           info.si_pid == child ? "from there" : "from elsewhere", info.si_uid);
    close(go[0]);
    close(go[1]);
    take("its end", child);
    waitpid(child, &status, 0);
}

static void to_root(void)
{
    sent("kill of root's", 0, 0, 0, 0);
    sent("kill by a real ann", ANN, 0, 0, 0);
    sent("kill by an effective ann", 0, ANN, 0, 0);
    sent("tgkill by a real bob", BOB, 0, BOB, 1);
    sent("sigqueue by a saved ann", 0, 0, ANN, 2);
    sent("sigqueue by a real ann", ANN, 0, 0, 2);
}

static void to_ann(void)
{
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        setresuid(ANN, ANN, ANN);
        sent("kill of one's own", ANN, ANN, ANN, 0);
        sent("sigqueue of one's own", ANN, ANN, ANN, 2);
        sent("tgkill of one's own", ANN, ANN, ANN, 1);
        raise(SIGUSR1);
        take("raise", getpid());
        kill(getpid(), SIGUSR1);
        take("to oneself", getpid());
        int broken[2];
        pipe(broken);
        close(broken[0]);
        write(broken[1], "x", 1);
        take("a broken pipe", getpid());
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status("ann", status);
    take("ann's end", child);
}

/* How a child of another user is waited for. */
static void waited_for(void)
{
    siginfo_t info;
    int status;
    for (int how = 0; how < 4; how++) {
        pid_t child = fork_clean();
        if (child == 0) {
            if (setresuid(how & 1 ? ANN : BOB, 0, 0))
                perror("setresuid");
            if (how == 3)
                kill(getpid(), SIGKILL);
            if (how == 2)
                pause();
            _exit(3);
        }
        if (how == 2) {
            usleep(300000); /* until it is bob's */
            TRY(kill(child, SIGSTOP));
            TRY(waitid(P_PID, child, &info, WSTOPPED));
            printf("stopped: code %d uid %u\n", info.si_code, info.si_uid);
            take("its stop", child);
            TRY(kill(child, SIGKILL));
        }
        take("its end", child);
        TRY(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
        printf("waited for: code %d status %d %s uid %u\n", info.si_code, info.si_status,
               info.si_pid == child ? "the child" : "another", info.si_uid);
        TRY(waitpid(child, &status, 0) == child);
        show_status("the same", status);
    }
}

/* May a sender of real user `real` and effective user `effective` signal one of these three? */
static void reaches(unsigned real, unsigned effective, const unsigned target[3])
{
    int ready[2], status;
    char byte;
    pipe(ready);
    pid_t child = fork_clean();
    if (child == 0) {
        if (setresuid(target[0], target[1], target[2]))
            perror("setresuid");
        write(ready[1], "r", 1);
        for (;;)
            pause();
    }
    read(ready[0], &byte, 1);
    pid_t sender = fork_clean();
    if (sender == 0) {
        setresuid(real, effective, effective);
        printf("%u/%u to %u/%u/%u: ", real, effective, target[0], target[1], target[2]);
        int first = kill(child, 0), second = kill(child, SIGTERM);
        printf("%s %s\n", first ? "refused" : "reached", second ? "refused" : "reached");
        fflush(stdout);
        _exit(0);
    }
    waitpid(sender, &status, 0);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(ready[0]);
    close(ready[1]);
}

static volatile pid_t told;

static void tell(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    if (told == 0)
        told = info->si_pid ? info->si_pid : -1;
}

/* Several children send the same signal before the process takes any: one of them is told. */
static void together(void)
{
    enum { CHILDREN = 3 };
    pid_t children[CHILDREN], own = getpid();
    volatile int *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO};
    TRY(sigaction(SIGUSR1, &action, NULL));
    for (int at = 0; at < CHILDREN; at++) {
        children[at] = fork_clean();
        if (children[at] == 0) {
            words[1 + at] = 1;
            while (words[0] == 0)
                ;
            kill(own, SIGUSR1);
            pause();
            _exit(0);
        }
    }
    for (int at = 0; at < CHILDREN; at++)
        while (words[1 + at] == 0)
            sched_yield();
    alarm(20);
    /* No call from here on: it takes the signals when it has the processor again. */
    words[0] = 1;
    while (told == 0)
        ;
    alarm(0);
    int is_one = 0, status;
    for (int at = 0; at < CHILDREN; at++)
        is_one |= told == children[at];
    printf("sent together: told %s\n", is_one ? "one of them" : "another");
    for (int at = 0; at < CHILDREN; at++) {
        kill(children[at], SIGKILL);
        waitpid(children[at], &status, 0);
    }
    signal(SIGUSR1, SIG_DFL);
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    if (geteuid() != 0)
        return 77;
    setgroups(0, NULL);
    block();
    to_root();
    to_ann();
    waited_for();
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &meant, NULL);
    together();
    const unsigned of[] = {0, ANN, BOB};
    for (int at = 0; at < 27; at++) {
        const unsigned target[] = {of[at % 3], of[at / 3 % 3], of[at / 9]};
        reaches(0, BOB, target);
        if (at % 4 == 0)
            reaches(ANN, BOB, target);
    }
    return 0;
}
