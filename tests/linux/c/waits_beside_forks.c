/* A thread that waits at a socket goes on waiting when another one forks, and has what comes then. */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>

static int waiting_port, read_end, polled_end, served;

static int listener(struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof *address;
    *address = (struct sockaddr_in){ .sin_family = AF_INET };
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(fd, (struct sockaddr *)address, length);
    listen(fd, 8);
    getsockname(fd, (struct sockaddr *)address, &length);
    return fd;
}

static int connected(const struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (const struct sockaddr *)to, sizeof *to))
        printf("connect: %s\n", strerrorname_np(errno));
    return fd;
}

static void *accepts(void *result)
{
    *(int *)result = accept(waiting_port, NULL, NULL) >= 0;
    return NULL;
}

static void *reads(void *result)
{
    char byte;
    *(int *)result = read(read_end, &byte, 1);
    return NULL;
}

static void *polls(void *result)
{
    struct pollfd one = { .fd = polled_end, .events = POLLIN };
    *(int *)result = poll(&one, 1, -1);
    return NULL;
}

/* A server that forks for each client, which is a thread of its own. */
static void *serves(void *unused)
{
    for (int client, at = 0; at < 3 && (client = accept(waiting_port, NULL, NULL)) >= 0; at++) {
        pid_t child = fork();
        if (child == 0) {
            char bytes[8];
            _exit(write(client, bytes, read(client, bytes, sizeof bytes)) != 5);
        }
        close(client);
        int status;
        waitpid(child, &status, 0);
        served += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return unused;
}

int main(void)
{
    struct sockaddr_in address, other;
    alarm(30);
    waiting_port = listener(&address);
    int port = listener(&other);
    read_end = connected(&other);
    int to_reader = accept(port, NULL, NULL);
    polled_end = connected(&other);
    int to_poller = accept(port, NULL, NULL);

    pthread_t threads[3];
    int results[3] = { -2, -2, -2 };
    void *(*const bodies[])(void *) = { accepts, reads, polls };
    for (int at = 0; at < 3; at++)
        pthread_create(&threads[at], NULL, bodies[at], &results[at]);
    usleep(200000);
    pid_t child = fork_clean();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    SHOW(write(to_reader, "r", 1));
    SHOW(write(to_poller, "p", 1));
    int client = connected(&address);
    for (int at = 0; at < 3; at++) {
        pthread_join(threads[at], NULL);
        SHOW(results[at]);
    }
    close(client);

    pthread_t server;
    pthread_create(&server, NULL, serves, NULL);
    for (int at = 0; at < 3; at++) {
        char bytes[8];
        int fd = connected(&address);
        SHOW(write(fd, "hello", 5));
        SHOW(read(fd, bytes, sizeof bytes));
        SHOW(read(fd, bytes, sizeof bytes));
        close(fd);
    }
    pthread_join(server, NULL);
    SHOW(served);
    return 0;
}
