/* Two threads wait, each at a socket of its own, and send to each other: each has what is sent to
   it, whichever of them takes the packets in. */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/epoll.h>

enum { READS, POLLS, WAITS };

static int ends[2], how;
static struct sockaddr_in addresses[2];

static int made(struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t length = sizeof *address;
    *address = (struct sockaddr_in){ .sin_family = AF_INET };
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(fd, (struct sockaddr *)address, length);
    getsockname(fd, (struct sockaddr *)address, &length);
    return fd;
}

static int received(int fd)
{
    char bytes[16];
    if (how == POLLS) {
        struct pollfd watched = { fd, POLLIN, 0 };
        poll(&watched, 1, -1);
    } else if (how == WAITS) {
        struct epoll_event event = { .events = EPOLLIN };
        int queue = epoll_create1(0);
        epoll_ctl(queue, EPOLL_CTL_ADD, fd, &event);
        epoll_wait(queue, &event, 1, -1);
        close(queue);
    }
    return recv(fd, bytes, sizeof bytes, 0);
}

static void send_to(int from, int to)
{
    sendto(ends[from], "packet", 6, 0, (struct sockaddr *)&addresses[to], sizeof addresses[to]);
}

static void *answers(void *rounds)
{
    for (int left = *(int *)rounds; left > 0; left--) {
        if (received(ends[1]) != 6)
            return "lost";
        send_to(1, 0);
    }
    return NULL;
}

/* Sends so many packets to a thread that answers each; the first one when that one waits. */
static void ask(const char *what, int first, int rounds)
{
    ends[first] = made(&addresses[first]);
    ends[!first] = made(&addresses[!first]);
    pthread_t thread;
    pthread_create(&thread, NULL, answers, &rounds);
    usleep(50000);
    int answered = 0;
    for (int round = 0; round < rounds; round++) {
        send_to(0, 1);
        answered += received(ends[0]) == 6;
    }
    void *lost;
    pthread_join(thread, &lost);
    printf("%s, %d first: %d answers%s\n", what, first, answered, lost ? ", one lost" : "");
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    static const char *const names[] = { "recv", "poll", "epoll_wait" };
    alarm(60);
    for (how = READS; how <= WAITS; how++)
        for (int first = 0; first < 2; first++)
            ask(names[how], first, 20);
    return 0;
}
