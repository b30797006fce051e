/* A datagram socket that has a peer: what others send to it is not there, for poll and select
   neither, so that who then reads does not wait for ever (connect(2), udp(7)). */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>

static int bound(struct sockaddr_in *name)
{
    socklen_t length = sizeof *name;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    *name = (struct sockaddr_in){.sin_family = AF_INET};
    name->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)name, length) ||
        getsockname(fd, (struct sockaddr *)name, &length))
        exit(1);
    return fd;
}

static void join(int fd, const struct sockaddr_in *peer)
{
    TRY(connect(fd, (const struct sockaddr *)peer, sizeof *peer));
}

/* What there is to read. */
static void look(int fd, int milliseconds)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    char bytes[32] = "";
    int waiting = -1;
    printf("poll: %d\n", poll(&entry, 1, milliseconds));
    TRY(ioctl(fd, FIONREAD, &waiting));
    SHOW(waiting);
    TRY(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
    puts(bytes);
}

/* A stranger that is connected would be told that nothing takes what it sends. */
static void send_to(int fd, const struct sockaddr_in *to)
{
    TRY(sendto(fd, "stranger", 8, 0, (const struct sockaddr *)to, sizeof *to));
}

int main(void)
{
    struct sockaddr_in own, peers, strangers;
    int fd = bound(&own), peer = bound(&peers), stranger = bound(&strangers);
    join(peer, &own);
    join(fd, &peers);
    send_to(stranger, &own);
    look(fd, 200);
    send_to(stranger, &own);
    TRY(send(peer, "peer", 4, 0));
    look(fd, 10000);
    look(fd, 0);
    /* The same of a socket that two processes have. */
    int told[2], said[2];
    char step;
    if (pipe(told) || pipe(said))
        return 1;
    pid_t child = fork_clean();
    if (child == 0) {
        look(fd, 0);
        (void)!write(said[1], "1", 1);
        (void)!read(told[0], &step, 1);
        look(fd, 200);
        (void)!write(said[1], "2", 1);
        (void)!read(told[0], &step, 1);
        look(fd, 10000);
        _exit(0);
    }
    (void)!read(said[0], &step, 1);
    send_to(stranger, &own);
    (void)!write(told[1], "1", 1);
    (void)!read(said[0], &step, 1);
    send_to(stranger, &own);
    TRY(send(peer, "peer", 4, 0));
    (void)!write(told[1], "2", 1);
    int status;
    waitpid(child, &status, 0);
    show_status("child", status);
    return 0;
}
