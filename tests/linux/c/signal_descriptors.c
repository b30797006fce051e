/* signalfd: what is read of a signal, sets that change, readiness, a child's own, what is refused. */
#include "check.h"
#include <sys/epoll.h>
#include <sys/signalfd.h>

static struct signalfd_siginfo told[4];

static void show_read(const char *what, int fd)
{
    errno = 0;
    long count = read(fd, told, sizeof told);
    printf("%s: %ld %s\n", what, count, count < 0 ? strerrorname_np(errno) : "");
    for (long at = 0; at < count / (long)sizeof told[0]; at++)
        printf("  signal %u code %d mine %d value %d\n", told[at].ssi_signo, told[at].ssi_code,
               told[at].ssi_pid == (unsigned)getpid(), told[at].ssi_int);
}

static short readiness(int fd, int timeout)
{
    struct pollfd one = {fd, POLLIN | POLLOUT, 0};
    poll(&one, 1, timeout);
    return one.revents;
}

static void on_signal(int signal)
{
    printf("handler %d\n", signal);
}

int main(int count, char **words)
{
    sigset_t set, other;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGRTMIN);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGKILL);
    if (count > 2) {
        /* Executed again: the descriptor and what waits are still there. */
        show_read("after exec", atoi(words[1]));
        return 0;
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    SHOW(fcntl(fd, F_GETFD));
    TRY(signalfd(-1, &set, 77));
    TRY(signalfd(99, &set, 0));
    TRY(signalfd(0, &set, 0));
    TRY(syscall(SYS_signalfd4, -1, &set, 4, 0));
    TRY(syscall(SYS_signalfd4, -1, NULL, 8, 0));
    TRY(read(fd, told, 127));
    TRY(write(fd, told, 128));
    show_read("nothing", fd);
    SHOW(readiness(fd, 0));
    raise(SIGUSR2);
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGUSR1);
    union sigval value = {.sival_int = 5};
    sigqueue(getpid(), SIGRTMIN, value);
    value.sival_int = 6;
    sigqueue(getpid(), SIGRTMIN, value);
    SHOW(readiness(fd, 0));
    show_read("several", fd);
    show_read("none left", fd);
    for (int round = 0; round < 6; round++)
        sigqueue(getpid(), SIGRTMIN, value);
    show_read("as many as fit", fd);
    show_read("the rest", fd);

    /* Only what the set names; the set can change. */
    sigemptyset(&other);
    sigaddset(&other, SIGUSR2);
    SHOW(signalfd(fd, &other, 0) == fd);
    kill(getpid(), SIGUSR1);
    SHOW(readiness(fd, 0));
    show_read("not in the set", fd);
    SHOW(signalfd(fd, &set, 0) == fd);
    show_read("in the set again", fd);

    /* Not blocked: the handler has it. */
    signal(SIGUSR1, on_signal);
    sigemptyset(&other);
    sigaddset(&other, SIGUSR1);
    sigprocmask(SIG_UNBLOCK, &other, NULL);
    raise(SIGUSR1);
    show_read("handled", fd);
    sigprocmask(SIG_BLOCK, &other, NULL);

    /* A child reads its own; its end is a signal. */
    fcntl(fd, F_SETFL, 0);
    pid_t parent = getpid();
    raise(SIGUSR2);
    pid_t child = fork_clean();
    if (child == 0) {
        raise(SIGUSR1);
        show_read("child", fd);
        kill(parent, SIGUSR1);
        exit(3);
    }
    int status;
    read(fd, told, sizeof told[0]);
    read(fd, told + 1, sizeof told[0]);
    SHOW(told[0].ssi_signo);
    told[0] = told[1];
    SHOW(told[0].ssi_signo);
    SHOW(told[0].ssi_pid == (unsigned)child);
    waitpid(child, &status, 0);
    show_status("child", status);
    read(fd, told, sizeof told[0]);
    SHOW(told[0].ssi_signo);

    /* Waited for by epoll, from another process. */
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 4};
    TRY(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    TRY(epoll_wait(epoll, &event, 1, 0));
    child = fork_clean();
    if (child == 0) {
        usleep(5000);
        kill(parent, SIGUSR2);
        _exit(0);
    }
    event.data.u64 = 0;
    TRY(epoll_wait(epoll, &event, 1, -1));
    SHOW(event.data.u64);
    while (read(fd, told, sizeof told[0]) > 0 && told[0].ssi_signo != SIGCHLD)
        SHOW(told[0].ssi_signo);
    waitpid(child, &status, 0);

    /* Through exec, with what waits. */
    fcntl(fd, F_SETFD, 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    raise(SIGUSR2);
    char number[12];
    sprintf(number, "%d", fd);
    fflush(stdout);
    execl("/proc/self/exe", words[0], number, "again", NULL);
    return 1;
}
