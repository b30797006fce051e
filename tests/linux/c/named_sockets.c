/* Local sockets with names: in the file system and abstract; connections and datagrams; a server that forks;
   who is there; what is refused. */
#include "check.h"
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/un.h>

static char bytes[70000];

/* An address; "@name" is abstract. */
static struct sockaddr_un address;
static socklen_t named(const char *name)
{
    size_t len = strlen(name);
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, name, len);
    if (name[0] != '@')
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
    address.sun_path[0] = 0;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
}

static int on(int (*call)(int, const struct sockaddr *, socklen_t), int fd, const char *name)
{
    socklen_t len = named(name);
    return call(fd, (struct sockaddr *)&address, len);
}

static void show_name(const char *what, int (*call)(int, struct sockaddr *, socklen_t *), int fd)
{
    struct sockaddr_un found;
    socklen_t len = sizeof found;
    memset(&found, 0, sizeof found);
    if (call(fd, (struct sockaddr *)&found, &len) != 0) {
        printf("%s: %s\n", what, strerrorname_np(errno));
        return;
    }
    printf("%s: %u bytes, %s%s\n", what, len, found.sun_path[0] ? "" : "@", found.sun_path + !found.sun_path[0]);
}

static void show_receive(const char *what, int fd)
{
    char place[64] = "";
    struct sockaddr_un from;
    socklen_t len = sizeof from;
    memset(&from, 0, sizeof from);
    errno = 0;
    long count = recvfrom(fd, place, sizeof place - 1, 0, (struct sockaddr *)&from, &len);
    printf("%s: %ld '%s' from %u '%s' %s\n", what, count, place, len, from.sun_path + !from.sun_path[0],
           count < 0 ? strerrorname_np(errno) : "");
}

static int readiness(int fd)
{
    struct pollfd one = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    poll(&one, 1, 0);
    return one.revents;
}

static void refused(void)
{
    int stream = socket(AF_UNIX, SOCK_STREAM, 0), other = socket(AF_UNIX, SOCK_STREAM, 0);
    int datagrams = socket(AF_UNIX, SOCK_DGRAM, 0);
    TRY(socket(AF_UNIX, 99, 0));
    TRY(socket(AF_UNIX, SOCK_STREAM, 2));
    SHOW(readiness(stream));
    SHOW(readiness(datagrams));
    show_name("none", getsockname, stream);
    show_name("no peer", getpeername, stream);
    TRY(recv(stream, bytes, 1, MSG_DONTWAIT));
    TRY(send(stream, bytes, 1, MSG_NOSIGNAL));
    TRY(sendto(stream, bytes, 1, 0, (void *)&address, named("nobody")));
    TRY(recv(datagrams, bytes, 1, MSG_DONTWAIT));
    TRY(send(datagrams, bytes, 1, 0));
    TRY(listen(stream, 1));
    TRY(listen(datagrams, 1));
    TRY(accept(stream, NULL, NULL));
    TRY(accept(datagrams, NULL, NULL));
    TRY(shutdown(stream, SHUT_WR));
    TRY(on(bind, stream, "no/such/directory"));
    TRY(on(connect, stream, "nobody"));
    TRY(on(connect, stream, "@nobody"));
    TRY(bind(stream, (void *)&address, 200));
    TRY(bind(stream, NULL, 20));
    address.sun_family = AF_INET;
    TRY(bind(stream, (void *)&address, 20));
    TRY(connect(stream, (void *)&address, 1));
    close(open("file", O_CREAT | O_WRONLY, 0600));
    TRY(on(bind, stream, "file"));
    TRY(on(connect, stream, "file"));
    TRY(on(connect, stream, "."));
    TRY(on(bind, stream, "taken"));
    TRY(on(bind, stream, "again"));
    TRY(access("again", F_OK));
    TRY(on(bind, other, "taken"));
    TRY(on(connect, other, "taken"));
    TRY(open("taken", O_RDWR));
    struct stat status;
    TRY(stat("taken", &status));
    SHOW(S_ISSOCK(status.st_mode));
    TRY(listen(stream, 0));
    TRY(on(connect, datagrams, "taken"));
    TRY(on(connect, stream, "taken"));
    SHOW(readiness(stream));
    SHOW(fcntl(stream, F_SETFL, O_NONBLOCK));
    TRY(accept(stream, NULL, NULL));
    SHOW(fcntl(other, F_SETFL, O_NONBLOCK));
    WORKS(on(connect, other, "taken"));
    TRY(on(connect, other, "taken"));
    int third = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    TRY(on(connect, third, "taken"));
    SHOW(readiness(stream));
    /* Nobody accepts it any more. */
    close(stream);
    struct pollfd one = {other, POLLIN, 0};
    SHOW(poll(&one, 1, -1));
    SHOW(readiness(other));
    TRY(recv(other, bytes, 1, 0));
    TRY(recv(other, bytes, 1, 0));
    TRY(on(connect, third, "taken"));
    TRY(unlink("taken"));
    TRY(on(connect, third, "taken"));
    close(other);
    close(third);
    close(datagrams);
}

static void echo(int fd)
{
    long count;
    while ((count = read(fd, bytes, sizeof bytes)) > 0)
        write(fd, bytes, (size_t)count);
}

static void server(const char *name, int kind)
{
    int listener = socket(AF_UNIX, kind | SOCK_CLOEXEC, 0), status, clients[3];
    TRY(on(bind, listener, name));
    TRY(listen(listener, 5));
    show_name("listener", getsockname, listener);
    int accepts, one_kind;
    socklen_t size = sizeof accepts;
    TRY(getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size));
    SHOW(accepts);
    pid_t parent = getpid(), child = fork_clean();
    if (child == 0) {
        /* Three connections, a child for each. */
        for (int at = 0; at < 3; at++) {
            int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            if (fork() == 0) {
                struct ucred who;
                size = sizeof who;
                getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
                close(listener);
                if (who.pid == parent)
                    echo(fd);
                _exit(0);
            }
            close(fd);
        }
        while (wait(NULL) > 0)
            ;
        _exit(0);
    }
    for (int at = 0; at < 3; at++) {
        clients[at] = socket(AF_UNIX, kind, 0);
        if (at == 2)
            TRY(on(bind, clients[at], "@a client's own"));
        TRY(on(connect, clients[at], name));
        show_name("client", getsockname, clients[at]);
        show_name("its peer", getpeername, clients[at]);
    }
    struct ucred who;
    size = sizeof who;
    TRY(getsockopt(clients[0], SOL_SOCKET, SO_PEERCRED, &who, &size));
    SHOW(who.pid == parent);
    TRY(getsockopt(clients[0], SOL_SOCKET, SO_TYPE, &one_kind, &size));
    SHOW(one_kind == kind);
    for (int at = 0; at < 3; at++) {
        char text[16];
        sprintf(text, "message %d", at);
        TRY(send(clients[at], text, 9, MSG_NOSIGNAL));
        show_receive("echo", clients[at]);
    }
    for (int at = 0; at < 3; at++)
        close(clients[at]);
    waitpid(child, &status, 0);
    show_status("server", status);
    close(listener);
    int late = socket(AF_UNIX, kind, 0);
    TRY(on(connect, late, name));
    close(late);
}

static void accepted(void)
{
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    TRY(on(bind, listener, "here"));
    TRY(listen(listener, 128));
    TRY(on(bind, client, "there"));
    SHOW(readiness(listener));
    TRY(on(connect, client, "./here"));
    TRY(write(client, "early", 5));
    SHOW(readiness(listener));
    int fd = accept(listener, NULL, NULL);
    show_name("accepted", getsockname, fd);
    show_name("its peer", getpeername, fd);
    show_name("client's peer", getpeername, client);
    SHOW(fcntl(fd, F_GETFL) == O_RDWR);
    show_receive("early", fd);
    close(client);
    show_receive("end", fd);
    close(fd);
    /* Waits until somebody connects. */
    pid_t child = fork_clean();
    if (child == 0) {
        usleep(3000);
        client = socket(AF_UNIX, SOCK_STREAM, 0);
        _exit(on(connect, client, "here") != 0 || write(client, "hi", 2) != 2);
    }
    struct pollfd one = {listener, POLLIN, 0};
    SHOW(poll(&one, 1, -1));
    fd = accept(listener, NULL, NULL);
    show_receive("from the child", fd);
    int status;
    waitpid(child, &status, 0);
    show_status("child", status);
    close(fd);
    close(listener);
    unlink("here");
    unlink("there");
}

static void datagrams(void)
{
    int server = socket(AF_UNIX, SOCK_DGRAM, 0), client = socket(AF_UNIX, SOCK_DGRAM, 0);
    int stranger = socket(AF_UNIX, SOCK_DGRAM, 0);
    TRY(on(bind, server, "inbox"));
    TRY(sendto(client, "anonymous", 9, 0, (void *)&address, named("inbox")));
    show_receive("anonymous", server);
    TRY(on(bind, client, "@client"));
    TRY(sendto(client, "named", 5, 0, (void *)&address, named("inbox")));
    show_receive("named", server);
    TRY(on(connect, client, "inbox"));
    show_name("connected to", getpeername, client);
    TRY(write(client, "connected", 9));
    show_receive("connected", server);
    TRY(sendto(server, "back", 4, 0, (void *)&address, named("@client")));
    show_receive("back", client);
    TRY(sendto(stranger, "no", 2, 0, (void *)&address, named("@client")));
    TRY(sendto(stranger, "no", 2, 0, (void *)&address, named("@nobody")));
    TRY(sendto(stranger, "no", 2, 0, (void *)&address, named("file")));
    TRY(sendto(stranger, "no", 2, 0, (void *)&address, named("missing")));
    pid_t child = fork_clean();
    if (child == 0) {
        usleep(3000);
        _exit(write(client, "child", 5) != 5);
    }
    show_receive("from the child", server);
    int status;
    waitpid(child, &status, 0);
    show_status("child", status);
    address.sun_family = AF_UNSPEC;
    TRY(connect(client, (void *)&address, sizeof address));
    TRY(write(client, "x", 1));
    TRY(on(connect, client, "inbox"));
    close(server);
    TRY(write(client, "x", 1));
    TRY(unlink("inbox"));
    /* A name that nobody chose. */
    address.sun_family = AF_UNIX;
    TRY(bind(stranger, (void *)&address, 2));
    socklen_t size = sizeof address;
    getsockname(stranger, (void *)&address, &size);
    SHOW(size);
    SHOW(address.sun_path[0]);
    close(stranger);
    close(client);
}

/* Who sends to an inbox that is full waits until something is read, and is told when. */
static void full(void)
{
    int server = socket(AF_UNIX, SOCK_DGRAM, 0), client = socket(AF_UNIX, SOCK_DGRAM, 0);
    TRY(on(bind, server, "@full"));
    TRY(on(connect, client, "@full"));
    SHOW(readiness(client) & POLLOUT);
    ssize_t sent;
    do
        sent = send(client, bytes, 3000, MSG_DONTWAIT);
    while (sent == 3000);
    SHOW(sent);
    SHOW(errno == EAGAIN);
    SHOW(readiness(client) & POLLOUT);
    TRY(send(client, bytes, 3000, MSG_DONTWAIT));
    pid_t child = fork_clean();
    if (child == 0) {
        usleep(20000);
        _exit(read(server, bytes, sizeof bytes) != 3000);
    }
    TRY(write(client, bytes, 3000));
    int status;
    waitpid(child, &status, 0);
    show_status("reader", status);
    while (recv(server, bytes, sizeof bytes, MSG_DONTWAIT) == 3000)
        ;
    SHOW(readiness(client) & POLLOUT);
    struct pollfd writable = {client, POLLOUT, 0};
    while (send(client, bytes, 3000, MSG_DONTWAIT) == 3000)
        ;
    child = fork_clean();
    if (child == 0) {
        usleep(20000);
        while (recv(server, bytes, sizeof bytes, MSG_DONTWAIT) == 3000)
            ;
        _exit(0);
    }
    TRY(poll(&writable, 1, -1));
    waitpid(child, &status, 0);
    show_status("emptied", status);
    close(server);
    TRY(write(client, bytes, 3000));
    close(client);
}

int main(void)
{
    char directory[] = "sockets.XXXXXX";
    if (mkdtemp(directory) == NULL || chdir(directory) != 0)
        return 1;
    refused();
    server("stream", SOCK_STREAM);
    server("@abstract stream", SOCK_STREAM);
    server("packets", SOCK_SEQPACKET);
    accepted();
    datagrams();
    full();
    return 0;
}
