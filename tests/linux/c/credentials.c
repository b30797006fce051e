/* Who is at the other end of a local socket: as it was when that connected, listened or was made; and what
 * a message may say of its sender. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <sys/socket.h>
#include <sys/un.h>

enum { ANN = 61000, BOB = 61001, TEAM = 61002, NOBODYS = 0x3ffffff0 };

static pid_t first;

static const char *name_of(pid_t pid)
{
    return pid == 0 ? "none" : pid == first ? "first" : pid == getpid() ? "own"
           : pid == getppid() ? "parent" : "other";
}

static void show_peer(const char *what, int fd)
{
    struct ucred who = {-2, -2, -2};
    socklen_t len = sizeof who;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len))
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %s, %d of %d\n", what, name_of(who.pid), who.uid, who.gid);
}

static void pairs(void)
{
    static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 3; i++) {
        int ends[2], status;
        printf("-- pair %d\n", kinds[i]);
        setresgid(-1, TEAM, -1);
        setresuid(-1, ANN, -1);
        socketpair(AF_UNIX, kinds[i], 0, ends);
        setresuid(-1, 0, -1);
        setresgid(-1, 0, -1);
        show_peer("one end", ends[0]);
        pid_t child = fork_clean();
        if (child == 0) {
            become(BOB);
            show_peer("the other end's child", ends[1]);
            _exit(0);
        }
        waitpid(child, &status, 0);
        show_peer("afterwards", ends[0]);
        close(ends[0]);
        close(ends[1]);
    }
}

static struct sockaddr_un place = {.sun_family = AF_UNIX, .sun_path = "/tmp/credentials-door"};

static void step(int fd)
{
    char byte = 's';
    write(fd, &byte, 1);
}

static void await(int fd)
{
    char byte;
    read(fd, &byte, 1);
}

/* Bound as one, listening as another, accepting as a third; a client that changes, too. */
static void connections(void)
{
    int to[2], from[2], status;
    pipe(to);
    pipe(from);
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    show_peer("a socket", server);
    bind(server, (void *)&place, sizeof place);
    chmod(place.sun_path, 0777);
    show_peer("bound", server);
    setresgid(-1, TEAM, -1);
    setresuid(-1, ANN, -1);
    TRY(listen(server, 4));
    setresuid(-1, 0, -1);
    setresgid(-1, 0, -1);
    show_peer("listening", server);
    pid_t child = fork_clean();
    if (child == 0) {
        setresgid(BOB, BOB, 0);
        setresuid(BOB, BOB, 0);
        int own = socket(AF_UNIX, SOCK_STREAM, 0);
        TRY(connect(own, (void *)&place, sizeof place));
        show_peer("the client sees", own);
        seteuid(0);
        setegid(0);
        show_peer("as root it sees", own);
        step(to[1]);
        await(from[0]);
        show_peer("accepted, it sees", own);
        close(own);
        own = socket(AF_UNIX, SOCK_STREAM, 0);
        TRY(connect(own, (void *)&place, sizeof place));
        show_peer("a later one sees", own);
        _exit(0);
    }
    await(to[0]);
    int client = accept(server, NULL, NULL);
    struct ucred who;
    socklen_t len = sizeof who;
    getsockopt(client, SOL_SOCKET, SO_PEERCRED, &who, &len);
    printf("the server sees %s, %d of %d\n", who.pid == child ? "it" : "another", who.uid, who.gid);
    setegid(BOB);
    TRY(listen(server, 4));
    setegid(0);
    step(from[1]);
    waitpid(child, &status, 0);
    show_status("the client", status);
    getsockopt(client, SOL_SOCKET, SO_PEERCRED, &who, &len);
    printf("after its end: %s, %d of %d\n", who.pid == child ? "it" : "another", who.uid, who.gid);
    close(client);
    close(server);
    unlink(place.sun_path);
}

static int ends[2];

/* Sends a byte with credentials, or without; `who` receives it itself and says what it is told. */
static void send_as(const char *what, struct ucred *who)
{
    char byte = 'c', control[CMSG_SPACE(sizeof *who)] = "", told[256] = "";
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (who) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_CREDENTIALS;
        head->cmsg_len = CMSG_LEN(sizeof *who);
        memcpy(CMSG_DATA(head), who, sizeof *who);
    }
    if (sendmsg(ends[1], &message, 0) < 0) {
        printf("%s: %s\n", what, strerrorname_np(errno));
        return;
    }
    message.msg_control = told;
    message.msg_controllen = sizeof told;
    recvmsg(ends[0], &message, 0);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head == NULL || head->cmsg_type != SCM_CREDENTIALS) {
        printf("%s: nothing is told\n", what);
        return;
    }
    struct ucred got;
    memcpy(&got, CMSG_DATA(head), sizeof got);
    printf("%s: %s, %d of %d\n", what, name_of(got.pid), got.uid, got.gid);
}

static void send_all(void)
{
    struct ucred own = {getpid(), getuid(), getgid()}, it = own;
    send_as("nothing said", NULL);
    send_as("the real ones", &own);
    it.uid = geteuid();
    it.gid = getegid();
    send_as("the effective ones", &it);
    it = own;
    it.pid = getppid();
    send_as("the parent's pid", &it);
    it.pid = NOBODYS;
    send_as("nobody's pid", &it);
    it = own;
    it.uid = 0;
    send_as("user 0", &it);
    it = own;
    it.gid = 0;
    send_as("group 0", &it);
    it = own;
    it.uid = BOB;
    send_as("user bob", &it);
    it = own;
    it.gid = TEAM;
    send_as("group team", &it);
}

static void three_ids(void)
{
    setresgid(ANN, BOB, TEAM);
    setresuid(ANN, BOB, TEAM);
    send_all();
    struct ucred saved = {getpid(), TEAM, TEAM};
    send_as("the saved ones", &saved);
}

int main(void)
{
    int on = 1;
    static const int kinds[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (geteuid() != 0)
        return 77;
    first = getpid();
    unlink(place.sun_path);
    pairs();
    connections();
    for (int i = 0; i < 2; i++) {
        socketpair(AF_UNIX, kinds[i], 0, ends);
        send_as("not asked for", NULL);
        setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
        printf("-- root's, kind %d\n", kinds[i]);
        send_all();
        printf("-- ann's\n");
        as(ANN, send_all);
        printf("-- of three users\n");
        as(0, three_ids);
        close(ends[0]);
        close(ends[1]);
    }
    return 0;
}
