/* A port that is closed is free for other processes, though its process has a connection at another
   port (close(2), bind(2)). */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>

static int listening(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 5)) {
        close(fd);
        return -1;
    }
    return fd;
}

static struct sockaddr_in name_of(int fd)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &length);
    return address;
}

int main(void)
{
    int told[2], said[2], port;
    char bound = '?';
    if (pipe(told) || pipe(said))
        return 1;
    /* The other process is made before there are sockets, so that it shares none. */
    pid_t child = fork();
    if (child == 0) {
        (void)!read(told[0], &port, sizeof port);
        bound = listening(port) >= 0 ? 'y' : 'n';
        (void)!write(said[1], &bound, 1);
        _exit(0);
    }
    int stays = listening(0);
    struct sockaddr_in address = name_of(stays);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    int failed = connect(client, (struct sockaddr *)&address, sizeof address);
    int server = accept(stays, NULL, NULL);
    int closed = listening(0);
    address = name_of(closed);
    port = ntohs(address.sin_port);
    close(closed);
    (void)!write(told[1], &port, sizeof port);
    (void)!read(said[0], &bound, 1);
    waitpid(child, NULL, 0);
    printf("connected: %d %d; the closed port is free for another process: %c\n", failed,
           server >= 0, bound);
    return 0;
}
