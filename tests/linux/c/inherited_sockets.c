/* Sockets of this machine to itself, over fork and exec: who accepts, who serves, when the stream
   ends, who may die. Run with a word it is the program that is executed. */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>

static struct sockaddr_in here(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int port_of(int fd)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &length);
    return ntohs(address.sin_port);
}

static int listener(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in any = here(0);
    TRY(bind(fd, (struct sockaddr *)&any, sizeof any));
    TRY(listen(fd, 8));
    return fd;
}

static int connected(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = here(port);
    if (connect(fd, (struct sockaddr *)&to, sizeof to))
        printf("connect: %s\n", strerrorname_np(errno));
    return fd;
}

/* Reads to the end and shows it. */
static void show_all(const char *what, int fd)
{
    char text[4096];
    long total = 0, got;
    while ((got = read(fd, text + total, sizeof text - 1 - total)) > 0)
        total += got;
    text[total] = 0;
    printf("%s: \"%s\" then %s\n", what, text, got ? strerrorname_np(errno) : "end");
}

static void await(const char *what, pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    show_status(what, status);
}

/* The child serves and ends; the parent has closed its copy at once. */
static void serve_in_child(int door, const char *self)
{
    int client = connected(port_of(door));
    int served = accept(door, NULL, NULL);
    pid_t child = fork_clean();
    if (child == 0) {
        char word[20];
        long got = read(served, word, sizeof word);
        write(served, word, got);
        write(served, " served", 7);
        if (self) {
            dup2(served, 0);
            dup2(served, 1);
            execl(self, self, "program", NULL);
        }
        _exit(3);
    }
    close(served);
    write(client, "asked", 5);
    shutdown(client, SHUT_WR);
    show_all(self ? "from the program" : "from the child", client);
    await("server", child);
    close(client);
}

/* Whoever has a copy keeps the stream open; the last one ends it. */
static void end_with_the_last(int door)
{
    int client = connected(port_of(door));
    int served = accept(door, NULL, NULL);
    pid_t child = fork_clean();
    if (child == 0) {
        pause();
        _exit(0);
    }
    write(served, "parent", 6);
    close(served);
    char text[20];
    SHOW(read(client, text, sizeof text));
    struct pollfd one = { .fd = client, .events = POLLIN };
    SHOW(poll(&one, 1, 100));
    kill(child, SIGKILL);
    await("holder", child);
    SHOW(read(client, text, sizeof text));
    close(client);
}

/* Children that accept from one listener; each connection has one of them. */
static void accept_in_children(int door)
{
    pid_t children[3];
    for (int i = 0; i < 3; i++) {
        children[i] = fork_clean();
        if (children[i] == 0) {
            int served = accept(door, NULL, NULL);
            write(served, "one of us", 9);
            _exit(served < 0);
        }
    }
    for (int i = 0; i < 3; i++) {
        int client = connected(port_of(door));
        show_all("accepted", client);
        close(client);
    }
    for (int i = 0; i < 3; i++)
        await("acceptor", children[i]);
}

/* The parent is killed; its child goes on with the connection. */
static void outlive_the_parent(int door)
{
    int client = connected(port_of(door));
    pid_t parent = fork_clean();
    if (parent == 0) {
        int served = accept(door, NULL, NULL);
        if (fork_clean() == 0) {
            char word[20];
            write(served, "grandchild", 10);
            _exit(read(served, word, sizeof word) != 5);
        }
        pause();
    }
    char text[20];
    SHOW(read(client, text, sizeof text));
    kill(parent, SIGKILL);
    await("parent", parent);
    SHOW(write(client, "still", 5));
    SHOW(read(client, text, sizeof text));
    close(client);
}

/* A datagram socket that a child has, too. */
static void datagrams(void)
{
    int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in any = here(0), from;
    socklen_t length = sizeof from;
    char text[20];
    TRY(bind(server, (struct sockaddr *)&any, sizeof any));
    any = here(port_of(server));
    pid_t child = fork_clean();
    if (child == 0) {
        long got = recvfrom(server, text, sizeof text, 0, (struct sockaddr *)&from, &length);
        sendto(server, text, got, 0, (struct sockaddr *)&from, length);
        _exit(got != 5);
    }
    TRY(connect(client, (struct sockaddr *)&any, sizeof any));
    TRY(send(client, "there", 5, 0));
    TRY(recv(client, text, sizeof text, 0));
    await("server", child);
    TRY(send(client, "again", 5, 0));
    TRY(recv(server, text, 3, MSG_PEEK | MSG_TRUNC));
    int waiting = 0;
    TRY(ioctl(server, FIONREAD, &waiting));
    SHOW(waiting);
    TRY(recv(server, text, sizeof text, MSG_DONTWAIT));
    TRY(recv(server, text, sizeof text, MSG_DONTWAIT));
}

int main(int count, char **words)
{
    if (count > 1) {
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        int known = getpeername(1, (struct sockaddr *)&peer, &length) == 0;
        printf(" program %d", known && peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
        return 4;
    }
    signal(SIGPIPE, SIG_IGN);
    int door = listener();
    serve_in_child(door, NULL);
    serve_in_child(door, words[0]);
    end_with_the_last(door);
    accept_in_children(door);
    outlive_the_parent(door);
    datagrams();
    int port = port_of(door);
    close(door);
    int late = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in nobody = here(port);
    TRY(connect(late, (struct sockaddr *)&nobody, sizeof nobody));
    return 0;
}
