/* socketpair: bytes, packets and datagrams between two ends; ends, shutdown, readiness, who is there; over
   fork and exec; what is refused. */
#include "check.h"
#include <sys/epoll.h>

static char bytes[70000];

static void show_receive(const char *what, int fd, int flags)
{
    char place[64] = "";
    errno = 0;
    long count = recv(fd, place, sizeof place - 1, flags);
    printf("%s: %ld '%s' %s\n", what, count, place, count < 0 ? strerrorname_np(errno) : "");
}

static int readiness(int fd)
{
    struct pollfd one = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    poll(&one, 1, 0);
    return one.revents;
}

static void on_pipe(int signal)
{
    printf("signal %d\n", signal);
}

static void streams(void)
{
    int ends[2], kind;
    socklen_t size = sizeof kind;
    struct sockaddr_storage address;
    struct ucred who = {0, 0, 0};
    TRY(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    SHOW(fcntl(ends[0], F_GETFD));
    TRY(getsockopt(ends[0], SOL_SOCKET, SO_TYPE, &kind, &size));
    SHOW(kind);
    TRY(getsockopt(ends[0], SOL_SOCKET, SO_DOMAIN, &kind, &size));
    SHOW(kind);
    size = sizeof who;
    TRY(getsockopt(ends[0], SOL_SOCKET, SO_PEERCRED, &who, &size));
    SHOW(who.pid == getpid() && who.uid == getuid() && who.gid == getgid());
    size = sizeof address;
    TRY(getsockname(ends[0], (void *)&address, &size));
    SHOW(size);
    SHOW(address.ss_family);
    size = sizeof address;
    TRY(getpeername(ends[0], (void *)&address, &size));
    SHOW(size);
    struct stat status;
    fstat(ends[0], &status);
    SHOW(S_ISSOCK(status.st_mode));
    TRY(lseek(ends[0], 0, SEEK_CUR));
    SHOW(readiness(ends[0]));
    show_receive("empty", ends[0], MSG_DONTWAIT);
    TRY(write(ends[0], "hello", 5));
    TRY(write(ends[0], " again", 6));
    SHOW(readiness(ends[1]));
    TRY(ioctl(ends[1], FIONREAD, &kind));
    SHOW(kind);
    show_receive("peeked", ends[1], MSG_PEEK);
    TRY(read(ends[1], bytes, 3));
    show_receive("rest", ends[1], 0);
    TRY(send(ends[1], "back", 4, MSG_NOSIGNAL));
    show_receive("back", ends[0], 0);
    TRY(sendto(ends[0], "x", 1, 0, (void *)&address, 2));
    TRY(connect(ends[0], (void *)&address, 2));
    TRY(listen(ends[0], 1));
    TRY(accept(ends[0], NULL, NULL));
    /* One direction ends. */
    TRY(write(ends[0], "last", 4));
    TRY(shutdown(ends[0], SHUT_WR));
    SHOW(readiness(ends[0]));
    SHOW(readiness(ends[1]));
    show_receive("last", ends[1], 0);
    show_receive("end", ends[1], 0);
    TRY(send(ends[0], "x", 1, MSG_NOSIGNAL));
    TRY(write(ends[0], "x", 1));
    TRY(write(ends[1], "other way", 9));
    show_receive("other way", ends[0], 0);
    TRY(shutdown(ends[0], 7));
    TRY(shutdown(ends[0], SHUT_RD));
    SHOW(readiness(ends[0]));
    TRY(send(ends[1], "x", 1, MSG_NOSIGNAL));
    close(ends[0]);
    SHOW(readiness(ends[1]));
    close(ends[1]);
    /* The other end goes with bytes unread, and without. */
    TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    TRY(write(ends[0], "unread", 6));
    TRY(write(ends[1], "sent", 4));
    close(ends[1]);
    SHOW(readiness(ends[0]));
    show_receive("sent", ends[0], 0);
    show_receive("reset", ends[0], 0);
    show_receive("reset no more", ends[0], 0);
    TRY(send(ends[0], "x", 1, MSG_NOSIGNAL));
    close(ends[0]);
    TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    close(ends[1]);
    show_receive("closed", ends[0], 0);
    SHOW(readiness(ends[0]));
    close(ends[0]);
}

static void full(void)
{
    int ends[2], status;
    long total = 0, got = 0, count;
    TRY(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends));
    while ((count = write(ends[0], bytes, sizeof bytes)) > 0)
        total += count;
    printf("full: %s\n", strerrorname_np(errno));
    SHOW(readiness(ends[0]) & POLLOUT);
    while ((count = read(ends[1], bytes, sizeof bytes)) > 0)
        got += count;
    printf("empty: %s %d\n", strerrorname_np(errno), got == total);
    SHOW(readiness(ends[0]) & POLLOUT);
    fcntl(ends[0], F_SETFL, 0);
    fcntl(ends[1], F_SETFL, 0);
    /* More than fits, to a child that checks it. */
    pid_t child = fork_clean();
    if (child == 0) {
        unsigned next = 0;
        int wrong = 0;
        close(ends[0]);
        while ((count = read(ends[1], bytes, 10007)) > 0)
            for (long at = 0; at < count; at++)
                wrong += (unsigned char)bytes[at] != (unsigned char)(next++ * 7);
        _exit(wrong != 0 || next != 300000);
    }
    close(ends[1]);
    unsigned next = 0;
    for (int round = 0; round < 5; round++) {
        for (int at = 0; at < 60000; at++)
            bytes[at] = (char)(next++ * 7);
        if (write(ends[0], bytes, 60000) != 60000)
            printf("short write\n");
    }
    TRY(shutdown(ends[0], SHUT_WR));
    waitpid(child, &status, 0);
    show_status("checked by the child", status);
    close(ends[0]);
    /* All of what is asked for. */
    TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    child = fork_clean();
    if (child == 0) {
        for (int round = 0; round < 3; round++) {
            usleep(2000);
            write(ends[1], "abc", 3);
        }
        _exit(0);
    }
    close(ends[1]);
    TRY(recv(ends[0], bytes, 9, MSG_WAITALL));
    waitpid(child, &status, 0);
    close(ends[0]);
}

/* Less than Linux has room for, written as far as it goes; the peer reads half and waits for the rest to be
   written. */
static void half_read(void)
{
    enum { ALL = 40000 };
    int ends[2], status;
    TRY(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends));
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
    int epoll = epoll_create1(0);
    TRY(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
    TRY(epoll_wait(epoll, &event, 1, 0));
    pid_t child = fork_clean();
    if (child == 0) {
        struct pollfd filled = {ends[1], POLLIN, 0};
        long got = 0;
        usleep(20000);
        while (got < ALL / 2 && poll(&filled, 1, 2000) == 1)
            got += read(ends[1], bytes, ALL / 2 - got);
        pause();
    }
    long done = write(ends[0], bytes, ALL);
    while (done < ALL && epoll_wait(epoll, &event, 1, 2000) == 1) {
        long count = write(ends[0], bytes, ALL - done);
        done += count > 0 ? count : 0;
    }
    SHOW(done);
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    show_status("half read", status);
    close(epoll);
    close(ends[0]);
    close(ends[1]);
}

static void packets(int kind)
{
    int ends[2];
    TRY(socketpair(AF_UNIX, kind, 0, ends));
    TRY(send(ends[0], "first", 5, 0));
    TRY(send(ends[0], "", 0, 0));
    TRY(send(ends[0], "second message", 14, 0));
    show_receive("peeked", ends[1], MSG_PEEK);
    show_receive("first", ends[1], 0);
    show_receive("empty one", ends[1], 0);
    TRY(recv(ends[1], bytes, 6, MSG_TRUNC));
    show_receive("nothing", ends[1], MSG_DONTWAIT);
    TRY(send(ends[0], "third", 5, 0));
    struct iovec parts[2] = {{bytes, 2}, {bytes + 10, 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_controllen = 0};
    TRY(recvmsg(ends[1], &message, 0));
    SHOW(message.msg_flags == MSG_TRUNC);
    printf("%.2s %.2s\n", bytes, bytes + 10);
    TRY(send(ends[0], bytes, 8 << 20, 0));
    /* Many, so that the ring goes round. */
    int wrong = 0;
    for (int round = 0; round <= 300; round++) {
        memset(bytes, round, 1000 + round);
        if (round < 300)
            wrong += send(ends[0], bytes, 1000 + round, 0) != 1000 + round;
        /* One is always there, so that the ring is never empty. */
        int last = round - 1;
        if (last < 0)
            continue;
        memset(bytes, 0, sizeof bytes);
        wrong += recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT) != 1000 + last;
        wrong += bytes[0] != (char)last || bytes[999 + last] != (char)last;
    }
    SHOW(wrong);
    SHOW(readiness(ends[0]));
    TRY(send(ends[0], "left", 4, 0));
    TRY(shutdown(ends[0], SHUT_WR));
    TRY(send(ends[0], "x", 1, 0));
    show_receive("left", ends[1], 0);
    show_receive("after the end", ends[1], MSG_DONTWAIT);
    SHOW(readiness(ends[1]));
    close(ends[0]);
    show_receive("closed", ends[1], MSG_DONTWAIT);
    TRY(send(ends[1], "x", 1, 0));
    SHOW(readiness(ends[1]));
    close(ends[1]);
}

static void credentials(int kind)
{
    int ends[2], on = 1;
    char control[64], place[8];
    TRY(socketpair(AF_UNIX, kind, 0, ends));
    TRY(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    TRY(write(ends[0], "who", 3));
    struct iovec part = {place, sizeof place};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    TRY(recvmsg(ends[1], &message, 0));
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    struct ucred who;
    memcpy(&who, CMSG_DATA(head), sizeof who);
    SHOW(head->cmsg_type == SCM_CREDENTIALS && head->cmsg_len == CMSG_LEN(sizeof who));
    SHOW(who.pid == getpid() && who.uid == getuid());
    close(ends[0]);
    close(ends[1]);
}

static void waiting(void)
{
    int ends[2], status;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = 9};
    TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    int epoll = epoll_create1(0);
    TRY(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
    TRY(epoll_wait(epoll, &event, 1, 0));
    pid_t child = fork_clean();
    if (child == 0) {
        close(ends[0]);
        usleep(3000);
        write(ends[1], "now", 3);
        read(ends[1], bytes, 1);
        raise(SIGKILL);
    }
    close(ends[1]);
    TRY(epoll_wait(epoll, &event, 1, -1));
    SHOW(event.events);
    show_receive("woken", ends[0], 0);
    TRY(write(ends[0], "y", 1));
    waitpid(child, &status, 0);
    show_status("killed", status);
    TRY(epoll_wait(epoll, &event, 1, -1));
    SHOW(event.events);
    show_receive("the killed one's end", ends[0], 0);
    signal(SIGPIPE, on_pipe);
    TRY(write(ends[0], "x", 1));
    signal(SIGPIPE, SIG_DFL);
    close(ends[0]);
    close(epoll);
    child = fork_clean();
    if (child == 0) {
        socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
        close(ends[1]);
        write(ends[0], "x", 1);
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status("wrote to nobody", status);
}

int main(int count, char **words)
{
    int ends[2], status;
    if (count > 1) {
        int fd = atoi(words[1]);
        show_receive("after exec", fd, 0);
        TRY(write(fd, "from the next program", 21));
        return 0;
    }
    TRY(socketpair(AF_INET, SOCK_STREAM, 0, ends));
    TRY(socketpair(AF_UNIX, 77, 0, ends));
    TRY(socketpair(AF_UNIX, SOCK_STREAM, 99, ends));
    TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, NULL));
    TRY(socketpair(99, SOCK_STREAM, 0, ends));
    signal(SIGPIPE, on_pipe);
    streams();
    signal(SIGPIPE, SIG_DFL);
    full();
    half_read();
    printf("packets\n");
    packets(SOCK_SEQPACKET);
    printf("datagrams\n");
    packets(SOCK_DGRAM);
    credentials(SOCK_STREAM);
    credentials(SOCK_DGRAM);
    waiting();
    TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pid_t child = fork_clean();
    if (child == 0) {
        char number[12];
        sprintf(number, "%d", ends[1]);
        close(ends[0]);
        execl("/proc/self/exe", words[0], number, NULL);
        _exit(1);
    }
    close(ends[1]);
    write(ends[0], "from before", 11);
    waitpid(child, &status, 0);
    show_status("the next program", status);
    show_receive("answer", ends[0], 0);
    show_receive("its end", ends[0], 0);
    return 0;
}
