/* What one user may do to the files, terminals, shared memory and sockets of another. Run as root,
 * which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { ANN = 1000, BOB = 1001, TEAM = 2000 };

static void show_file(const char *name)
{
    struct stat it;
    if (lstat(name, &it))
        printf("%s: %s\n", name, strerrorname_np(errno));
    else
        printf("%s: %o of %u:%u\n", name, it.st_mode, it.st_uid, it.st_gid);
}

static void make(const char *name, unsigned mode, unsigned user, unsigned group)
{
    int fd = open(name, O_CREAT | O_RDWR, 0600);
    write(fd, name, strlen(name));
    close(fd);
    chown(name, user, group);
    chmod(name, mode);
}

static void make_directory(const char *name, unsigned mode, unsigned user)
{
    mkdir(name, 0700);
    chown(name, user, user);
    chmod(name, mode);
}

/* 0600 is the owner's alone, by whatever call. */
static void private(void)
{
    struct stat it;
    struct timespec times[2] = {{1, 0}, {2, 0}};
    TRY(open("private", O_RDONLY));
    TRY(open("private", O_WRONLY | O_TRUNC));
    TRY(open("private", O_WRONLY | O_APPEND));
    TRY(open("private", O_CREAT | O_RDWR, 0666));
    TRY(open("private", O_CREAT | O_EXCL | O_RDWR, 0666));
    TRY(open("private", O_PATH) >= 0);
    TRY(stat("private", &it));
    TRY(access("private", F_OK));
    TRY(access("private", W_OK));
    TRY(chmod("private", 0600));
    TRY(utimensat(AT_FDCWD, "private", times, 0));
    TRY(utimensat(AT_FDCWD, "private", NULL, 0));
    TRY(truncate("private", 0));
    TRY(unlink("private"));
    TRY(execl("./private", "private", NULL));
    TRY(chdir("./private"));
    /* Written by all: its times may be set to now, not to others. */
    TRY(utimensat(AT_FDCWD, "open", NULL, 0));
    TRY(utimensat(AT_FDCWD, "open", times, 0));
    TRY(chmod("open", 0600));
}

/* A directory that may be passed through, not listed. */
static void passages(void)
{
    TRY(open("passage", O_RDONLY | O_DIRECTORY));
    TRY(opendir("passage") != NULL);
    TRY(chdir("passage"));
    TRY(open("within", O_RDONLY) >= 0);
    TRY(open("none", O_RDONLY));
    TRY(open("new", O_CREAT | O_RDWR, 0600));
    TRY(unlink("within"));
    TRY(mkdir("below", 0700));
    TRY(chdir(".."));
    TRY(open("listed", O_RDONLY | O_DIRECTORY) >= 0);
    TRY(access("listed/within", F_OK)); /* listed, not passed through */
    TRY(open("listed/within", O_RDONLY));
    TRY(chdir("listed"));
    TRY(open("drop", O_RDONLY | O_DIRECTORY));
    TRY(open("drop/mine", O_CREAT | O_RDWR, 0600) >= 0); /* to be put into, not listed */
    TRY(unlink("drop/mine"));
}

/* Who gives away, to what group, and what becomes of set-id bits. */
static void owners(void)
{
    TRY(chown("bobs", ANN, -1)); /* nobody gives away */
    TRY(chown("bobs", -1, TEAM)); /* no member */
    TRY(chown("bobs", -1, ANN));
    TRY(chown("bobs", BOB, BOB));
    TRY(chown("bobs", -1, -1));
    TRY(chown("private", BOB, -1)); /* nor takes */
    TRY(chown("private", -1, BOB));
    TRY(chown("private", -1, -1));
    TRY(lchown("name", BOB, BOB));
    TRY(chmod("bobs", 0640));
    show_file("bobs");
    int fd = open("common/made", O_CREAT | O_RDWR, 0666);
    TRY(fchown(fd, ANN, -1));
    TRY(fchmod(fd, 01604)); /* sticky on a file is the superuser's on some systems, here not */
    show_file("common/made");
    TRY(unlink("common/made"));
}

/* Of a group: a member gives to it, not the others. */
static void members(void)
{
    gid_t team = TEAM;
    setgroups(1, &team);
    setresgid(BOB, BOB, BOB);
    setresuid(BOB, BOB, BOB);
    TRY(chown("bobs", -1, TEAM));
    TRY(chown("bobs", -1, ANN));
    show_file("bobs");
    TRY(open("team", O_RDWR) >= 0);
    TRY(chown("team", -1, BOB)); /* a member is no owner */
    int fd = open("inherits/made", O_CREAT | O_RDWR, 0666);
    TRY(close(fd));
    show_file("inherits/made");
    TRY(mkdir("inherits/below", 0755));
    show_file("inherits/below");
    TRY(rmdir("inherits/below"));
    TRY(unlink("inherits/made"));
}

static void sticky(void)
{
    TRY(unlink("sticky/anns"));
    TRY(rename("sticky/anns", "sticky/bobs"));
    TRY(rename("sticky/anns", "anns"));
    TRY(rmdir("sticky/directory"));
    TRY(open("sticky/mine", O_CREAT | O_RDWR, 0600) >= 0);
    TRY(rename("sticky/mine", "sticky/anns")); /* over another's */
    TRY(rename("sticky/mine", "sticky/yours"));
    TRY(unlink("sticky/yours"));
    TRY(chmod("sticky", 0777));
    TRY(unlink("passage/directory")); /* not ours to change, before what it is */
    /* In a directory of all without that bit, anybody does. */
    TRY(rename("common/anns", "common/bobs"));
    TRY(unlink("common/bobs"));
}

static void sticky_owner(void)
{
    TRY(unlink("sticky/bobs")); /* the directory's owner */
    TRY(unlink("sticky/anns"));
}

static void shared_memory(void)
{
    TRY(open("/dev/shm/users-anns", O_RDWR));
    TRY(open("/dev/shm/users-anns", O_RDONLY));
    TRY(open("/dev/shm/users-shown", O_RDONLY) >= 0);
    TRY(open("/dev/shm/users-shown", O_RDWR));
    TRY(unlink("/dev/shm/users-anns"));
    TRY(rename("/dev/shm/users-anns", "/dev/shm/users-mine"));
    TRY(open("/dev/shm/users-anns", O_CREAT | O_EXCL | O_RDWR, 0600));
}

static void bind_to(const char *path, int kind, const char *what)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, kind, 0);
    strcpy(at.sun_path, path);
    int done = bind(fd, (void *)&at, sizeof at);
    printf("%s: %s\n", what, done ? strerrorname_np(errno) : "bound");
    close(fd);
}

static void connect_to(const char *path, int kind, const char *what)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, kind, 0);
    strcpy(at.sun_path, path);
    int done = connect(fd, (void *)&at, sizeof at);
    printf("%s: %s\n", what, done ? strerrorname_np(errno) : "connected");
    close(fd);
}

static void sockets(void)
{
    connect_to("door", SOCK_STREAM, "a door of 0600");
    connect_to("wide", SOCK_STREAM, "a door of 0666");
    connect_to("drain", SOCK_DGRAM, "a drain of 0600");
    connect_to("closed/door", SOCK_STREAM, "a door in a closed directory");
    connect_to("private", SOCK_STREAM, "a file of 0600");
    connect_to("open", SOCK_STREAM, "a file of 0666");
    bind_to("passage/mine", SOCK_STREAM, "in another's directory");
    bind_to("door", SOCK_STREAM, "a door that is there");
    TRY(chmod("door", 0666));
    TRY(unlink("door"));
    TRY(open("door", O_RDWR));
    TRY(open("wide", O_RDWR));
}

/* What a pair tells stays as it was when it was made, and what is sent is checked. */
static void credentials(void)
{
    int pair[2], on = 1, status;
    struct ucred who;
    socklen_t len = sizeof who;
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pid_t child = fork_clean();
    if (child == 0) {
        become(BOB);
        TRY(getsockopt(pair[1], SOL_SOCKET, SO_PEERCRED, &who, &len));
        printf("the pair is %u of %u\n", who.uid, who.gid);
        TRY(setsockopt(pair[1], SOL_SOCKET, SO_PEERCRED, &who, sizeof who));
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status("bob", status);
    setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    child = fork_clean();
    if (child == 0) {
        become(BOB);
        char space[CMSG_SPACE(sizeof who)] = {0};
        struct iovec byte = {"x", 1};
        struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = space,
                                 .msg_controllen = sizeof space};
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_CREDENTIALS;
        head->cmsg_len = CMSG_LEN(sizeof who);
        who = (struct ucred){getppid(), 0, 0};
        memcpy(CMSG_DATA(head), &who, sizeof who);
        TRY(sendmsg(pair[1], &message, 0)); /* as root */
        who = (struct ucred){getpid(), ANN, BOB};
        memcpy(CMSG_DATA(head), &who, sizeof who);
        TRY(sendmsg(pair[1], &message, 0)); /* as ann */
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status("the liar", status);
}

/* A host may leave low ports to everybody (ip(7)): there is nothing to compare then. */
static int low_ports_are_free(void)
{
    int first = 1024;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "r");
    if (file != NULL && fscanf(file, "%d", &first) != 1)
        first = 1024;
    if (file != NULL)
        fclose(file);
    return first < 1024;
}

/* Bob's, who has the network where that is a group's. */
static void ports(void)
{
    gid_t network = 3003;
    setgroups(1, &network);
    setresgid(BOB, BOB, BOB);
    setresuid(BOB, BOB, BOB);
    static const int numbers[] = {1, 80, 1023};
    int free_for_all = low_ports_are_free();
    for (unsigned at = 0; at < 6; at++) {
        struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(numbers[at / 2])};
        int fd = socket(AF_INET, at % 2 ? SOCK_STREAM : SOCK_DGRAM, 0);
        int refused = bind(fd, (void *)&where, sizeof where) && errno == EACCES;
        printf("port %d: %s\n", numbers[at / 2], refused || free_for_all ? "refused" : "bound");
        close(fd);
    }
}

static int master;
static char slave[64];

static void terminals(void)
{
    TRY(open(slave, O_RDWR | O_NOCTTY));
    TRY(open(slave, O_RDONLY | O_NOCTTY));
    TRY(open(slave, O_WRONLY | O_NOCTTY));
    TRY(chmod(slave, 0666));
    TRY(chown(slave, BOB, -1));
}

static void own_terminal(void)
{
    int fd;
    struct stat it;
    TRY(stat(slave, &it));
    printf("%o of %u\n", it.st_mode, it.st_uid);
    TRY((fd = open(slave, O_RDWR | O_NOCTTY)) >= 0);
    SHOW(ioctl(fd, TIOCSTI, "x")); /* not its controlling terminal; EIO where nobody may type so */
    TRY(tcgetpgrp(fd));
    TRY(tcsetpgrp(fd, getpid()));
    TRY(ioctl(fd, TIOCSCTTY, 0)); /* no leader of a session */
}

/* Bob's keys reach the group in front of his terminal alone, be it ann's. */
static void keys(void)
{
    int pair, status;
    char byte, name[64];
    int ready[2];
    pipe(ready);
    pair = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(pair);
    unlockpt(pair);
    ptsname_r(pair, name, sizeof name);
    pid_t child = fork_clean();
    if (child == 0) {
        setsid();
        int fd = open(name, O_RDWR);
        TRY(tcgetpgrp(fd) == getpid());
        become(BOB);
        write(ready[1], "r", 1);
        for (;;)
            pause();
    }
    read(ready[0], &byte, 1);
    write(pair, "\003", 1); /* the terminal sends, whoever typed */
    TRY(waitpid(child, &status, 0) == child);
    show_status("in front", status);
}

static int listener(const char *path, int kind, unsigned mode, unsigned user)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, kind, 0);
    strcpy(at.sun_path, path);
    bind(fd, (void *)&at, sizeof at);
    chown(path, user, user);
    chmod(path, mode);
    if (kind == SOCK_STREAM)
        listen(fd, 4);
    return fd;
}

static void locks(void)
{
    int fd = open("open", O_RDWR);
    TRY(flock(fd, LOCK_EX | LOCK_NB)); /* ann's lock holds for bob */
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    TRY(fcntl(fd, F_SETLK, &whole));
    fd = open("shown", O_RDONLY);
    TRY(fcntl(fd, F_SETLK, &whole));
}

static void held_locks(void)
{
    int ready[2];
    char byte;
    pipe(ready);
    pid_t holder = fork_clean();
    if (holder == 0) {
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        become(ANN);
        int fd = open("open", O_RDWR);
        flock(fd, LOCK_EX);
        fcntl(fd, F_SETLK, &whole);
        write(ready[1], "r", 1);
        for (;;)
            pause();
    }
    read(ready[0], &byte, 1);
    as(BOB, locks);
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
}

static void make_all(void)
{
    make("private", 0600, ANN, ANN);
    make("open", 0666, ANN, ANN);
    make("shown", 0644, ANN, ANN);
    make("team", 0660, ANN, TEAM);
    make("bobs", 0644, BOB, BOB);
    symlink("private", "name");
    lchown("name", ANN, ANN);
    make_directory("passage", 0711, ANN);
    make("passage/within", 0644, ANN, ANN);
    make_directory("passage/directory", 0777, ANN);
    make_directory("listed", 0744, ANN);
    make("listed/within", 0644, ANN, ANN);
    make_directory("drop", 0733, ANN);
    make_directory("closed", 0700, ANN);
    make_directory("sticky", 01777, ANN);
    make("sticky/anns", 0666, ANN, ANN);
    make("sticky/bobs", 0666, BOB, BOB);
    make_directory("sticky/directory", 0777, ANN);
    make_directory("common", 0777, ANN);
    make("common/anns", 0600, ANN, ANN);
    mkdir("inherits", 0777);
    chown("inherits", ANN, TEAM);
    chmod("inherits", 02777);
    make("/dev/shm/users-anns", 0600, ANN, ANN);
    make("/dev/shm/users-shown", 0644, ANN, ANN);
}

int main(void)
{
    int ended = begin_in_place(0755);
    if (ended)
        return ended;
    make_all();
    as(BOB, private);
    as(BOB, passages);
    as(BOB, owners);
    as(0, members);
    as(BOB, sticky);
    as(ANN, sticky_owner);
    as(BOB, shared_memory);
    listener("door", SOCK_STREAM, 0600, ANN);
    listener("wide", SOCK_STREAM, 0666, ANN);
    listener("drain", SOCK_DGRAM, 0600, ANN);
    as(BOB, sockets);
    credentials();
    as(0, ports);
    held_locks();
    master = posix_openpt(O_RDWR | O_NOCTTY);
    unlockpt(master);
    ptsname_r(master, slave, sizeof slave);
    chown(slave, ANN, 5);
    chmod(slave, 0600);
    as(BOB, terminals);
    as(ANN, own_terminal);
    keys();
    unlink("/dev/shm/users-anns");
    unlink("/dev/shm/users-shown");
    chdir("/");
    return 0;
}
