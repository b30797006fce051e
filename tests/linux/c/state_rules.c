/* What programs ask of themselves and of terminals: prctl's questions, a second controlling
 * terminal, who holds a lock, flags of handlers and messages. Run as root, which both systems'
 * tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <termios.h>

enum { ANN = 1000 };

static void questions(void)
{
    int number = -1;
    char name[17] = "";
    TRY(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
    TRY(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
    TRY(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
    TRY(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
    TRY(prctl(PR_SET_NAME, "a name that is too long", 0, 0, 0));
    TRY(prctl(PR_GET_NAME, name, 0, 0, 0));
    printf("%s\n", name);
    TRY(prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0));
    TRY(prctl(PR_SET_KEEPCAPS, 2, 0, 0, 0));
    TRY(prctl(PR_GET_PDEATHSIG, &number, 0, 0, 0));
    printf("%d\n", number);
    TRY(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    TRY(prctl(PR_GET_NO_NEW_PRIVS, 1, 0, 0, 0));
    TRY(prctl(PR_GET_SECCOMP, 0, 0, 0, 0));
    TRY(prctl(PR_GET_SECUREBITS, 0, 0, 0, 0));
    number = -1;
    TRY(prctl(PR_GET_CHILD_SUBREAPER, &number, 0, 0, 0));
    printf("%d\n", number);
    number = -1;
    TRY(prctl(PR_GET_TSC, &number, 0, 0, 0));
    printf("%d\n", number);
    TRY(prctl(PR_GET_TIMING, 0, 0, 0, 0));
    TRY(prctl(PR_GET_PDEATHSIG, NULL, 0, 0, 0));
    TRY(prctl(PR_GET_ENDIAN, &number, 0, 0, 0));
    TRY(prctl(12345, 0, 0, 0, 0));
}

static void after_setuid(void)
{
    TRY(prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0));
    TRY(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0));
    TRY(prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0));
    TRY(sethostname("name", 4));
    TRY(setdomainname("name", 4));
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        TRY(prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0));
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status("child", status);
}

static int terminal(char *name, size_t room)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(master);
    unlockpt(master);
    ptsname_r(master, name, room);
    return master;
}

/* A session has one terminal. */
static void terminals(void)
{
    char one[64], other[64];
    int masters[2] = {terminal(one, sizeof one), terminal(other, sizeof other)}, status;
    pid_t child = fork_clean();
    if (child == 0) {
        setsid();
        int first = open(one, O_RDWR | O_NOCTTY), second = open(other, O_RDWR | O_NOCTTY);
        TRY(ioctl(first, TIOCSCTTY, 0));
        TRY(ioctl(first, TIOCSCTTY, 0));
        TRY(ioctl(second, TIOCSCTTY, 0));
        TRY(ioctl(second, TIOCSCTTY, 1));
        TRY(tcgetsid(second));
        TRY(tcgetsid(first) == getpid());
        close(open(other, O_RDWR));
        TRY(tcgetsid(second));
        signal(SIGHUP, SIG_IGN);
        TRY(ioctl(first, TIOCNOTTY));
        TRY(ioctl(second, TIOCSCTTY, 0));
        TRY(tcgetsid(second) == getpid());
        TRY(tcgetsid(first));
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status("ended", status);
    /* It is in the foreground itself. */
    child = fork_clean();
    if (child == 0) {
        setsid();
        ioctl(open(one, O_RDWR), TIOCNOTTY);
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status("gave it up", status);
    close(masters[0]);
    close(masters[1]);
}

/* One whose terminal was hung up may have another one. */
static void after_hangup(void)
{
    char one[64], other[64], byte;
    int masters[2] = {terminal(one, sizeof one), terminal(other, sizeof other)}, status;
    int ready[2], closed[2];
    pipe(ready);
    pipe(closed);
    pid_t child = fork_clean();
    if (child == 0) {
        sigset_t hangup;
        int which;
        sigemptyset(&hangup);
        sigaddset(&hangup, SIGHUP);
        sigprocmask(SIG_BLOCK, &hangup, NULL);
        setsid();
        close(masters[0]);
        int first = open(one, O_RDWR), second = open(other, O_RDWR | O_NOCTTY);
        write(ready[1], "r", 1);
        sigwait(&hangup, &which);
        TRY(ioctl(second, TIOCSCTTY, 0));
        TRY(tcgetsid(second) == getpid());
        TRY(close(first));
        _exit(0);
    }
    read(ready[0], &byte, 1);
    close(masters[0]);
    waitpid(child, &status, 0);
    show_status("ended", status);
}

static void lock(int fd, short type, off_t start, off_t length)
{
    struct flock it = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    TRY(fcntl(fd, F_SETLK, &it));
}

/* Of several locks in the way the first one in the file is told. */
static void conflicts(void)
{
    int fd = open("locked", O_CREAT | O_RDWR, 0666), status;
    lock(fd, F_WRLCK, 50, 10);
    lock(fd, F_RDLCK, 20, 10);
    lock(fd, F_WRLCK, 80, 0);
    lock(fd, F_RDLCK, 5, 5);
    pid_t parent = getpid(), child = fork_clean();
    if (child == 0) {
        static const struct { short type; off_t start, length; } asked[] = {
            {F_WRLCK, 0, 0}, {F_RDLCK, 0, 0}, {F_WRLCK, 25, 0}, {F_WRLCK, 10, 10}, {F_RDLCK, 60, 0},
        };
        for (unsigned at = 0; at < sizeof asked / sizeof *asked; at++) {
            struct flock it = {.l_type = asked[at].type, .l_whence = SEEK_SET,
                               .l_start = asked[at].start, .l_len = asked[at].length};
            TRY(fcntl(fd, F_GETLK, &it));
            printf("%d: %ld, %ld by %s\n", it.l_type, (long)it.l_start, (long)it.l_len,
                   it.l_pid == parent ? "the parent" : "nobody");
        }
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status("ended", status);
}

static volatile int runs;

static void handler(int number __attribute__((unused)), siginfo_t *info __attribute__((unused)),
                    void *context __attribute__((unused)))
{
    runs++;
}

/* What is left of an action that holds once. */
static void once(void)
{
    struct sigaction action = {.sa_sigaction = handler,
                               .sa_flags = SA_SIGINFO | SA_RESETHAND | SA_RESTART | SA_NODEFER};
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaction(SIGURG, &action, NULL);
    raise(SIGURG);
    TRY(runs);
    sigaction(SIGURG, NULL, &action);
    TRY(action.sa_handler == SIG_DFL);
    printf("%x\n", action.sa_flags & ~0x04000000);
    TRY(sigismember(&action.sa_mask, SIGUSR2));
    raise(SIGURG);
    TRY(runs);
}

/* Flags that concern what is not there do no harm. */
static void messages(void)
{
    int pair[2], kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int at = 0; at < 3; at++) {
        char bytes[8];
        struct iovec piece = {bytes, 2};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        TRY(socketpair(AF_UNIX, kinds[at], 0, pair));
        TRY(send(pair[0], "abcd", 4, 0));
        TRY(send(pair[0], "abcd", 4, MSG_CMSG_CLOEXEC));
        TRY(recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC | MSG_PEEK));
        printf("%x\n", message.msg_flags);
        TRY(recvmsg(pair[1], &message, 0));
        printf("%x\n", message.msg_flags);
        TRY(recv(pair[1], bytes, 8, MSG_CMSG_CLOEXEC));
        close(pair[0]);
        close(pair[1]);
    }
}

int main(void)
{
    int ended = begin_in_place(0777);
    if (ended)
        return ended;
    questions();
    as(ANN, after_setuid);
    terminals();
    after_hangup();
    conflicts();
    once();
    messages();
    chdir("/");
    return 0;
}
