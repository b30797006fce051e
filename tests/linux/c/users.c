/* Two users beside each other: what each may do to the other's processes and files, and what a
 * process that gives its user up can get back. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { ANN = 1000, BOB = 1001, NOBODY = 65534, TEAM = 2000 };

static pid_t anns, bobs, roots;

static void signals(void)
{
    TRY(kill(anns, 0));
    TRY(kill(bobs, 0));
    TRY(kill(roots, 0));
    TRY(kill(bobs, SIGTERM));
    TRY(kill(roots, SIGKILL));
    TRY(kill(bobs, SIGSTOP));
    TRY(kill(1, SIGTERM));
    TRY(syscall(SYS_tkill, bobs, SIGUSR1));
    TRY(kill(anns, SIGKILL));
}

static void seteuids(void)
{
    TRY(seteuid(0));
    TRY(setuid(0));
    TRY(setresuid(-1, 0, -1));
    TRY(setreuid(-1, 0));
    TRY(setegid(0));
    TRY(setgid(0));
    TRY(setgroups(0, NULL));
    TRY(seteuid(ANN));
}

/* Down and up again while the saved user is root; then never again. */
static void to_and_fro(void)
{
    unsigned r, e, s;
    TRY(setresgid(TEAM, TEAM, 0));
    TRY(seteuid(ANN));
    SHOW(getresuid(&r, &e, &s) || r != 0 || e != ANN || s != 0);
    TRY(kill(bobs, 0)); /* by the real user */
    TRY(setresuid(ANN, -1, -1));
    TRY(kill(bobs, 0)); /* neither is root now */
    TRY(seteuid(0));
    TRY(kill(bobs, 0));
    TRY(setreuid(ANN, BOB));
    SHOW(getresuid(&r, &e, &s) || r != ANN || e != BOB || s != BOB);
    TRY(kill(bobs, 0));
    TRY(kill(roots, 0));
    TRY(seteuid(0));
    TRY(setegid(0)); /* the saved group is still there */
    TRY(setegid(7));
    TRY(seteuid(ANN));
    TRY(seteuid(BOB));
    TRY(setuid(ANN));
    TRY(setresuid(ANN, ANN, ANN));
    TRY(seteuid(BOB));
    TRY(kill(bobs, 0));
}

static void files(void)
{
    TRY(open("private", O_RDONLY));
    TRY(open("private", O_WRONLY));
    TRY(open("shared", O_RDONLY) >= 0);
    TRY(open("shared", O_WRONLY));
    TRY(open("team", O_RDWR));
    TRY(open("closed/within", O_RDONLY));
    TRY(opendir("passage") != NULL);
    TRY(open("passage/within", O_RDONLY) >= 0);
    TRY(access("private", R_OK));
    TRY(chmod("private", 0666));
    TRY(chown("private", getuid(), -1));
    TRY(unlink("private"));
    TRY(rename("private", "taken"));
    TRY(truncate("private", 0));
    TRY(link("private", "sticky/link"));
    TRY(unlink("sticky/anns"));
    TRY(mkdir("mine", 0755));
    TRY(symlink("private", "sticky/name"));
    TRY(open("sticky/name", O_RDONLY));
    TRY(unlink("sticky/name"));
}

static void own_files(void)
{
    TRY(open("private", O_RDWR) >= 0);
    TRY(open("team", O_RDWR));
    TRY(chmod("private", 0600));
    TRY(chown("private", BOB, -1));
    TRY(chown("private", -1, BOB));
    TRY(chown("private", ANN, ANN));
}

static void team_files(void)
{
    gid_t groups[3] = {5000, TEAM, 3000}, got[4] = {0};
    TRY(setgroups(3, groups));
    TRY(setresgid(BOB, BOB, BOB));
    TRY(setresuid(BOB, BOB, BOB));
    SHOW(getgroups(4, got));
    for (int i = 0; i < 3; i++)
        printf("group %u\n", got[i]);
    TRY(getgroups(0, NULL));
    TRY(getgroups(2, got));
    TRY(setgroups(1, groups));
    TRY(open("team", O_RDWR) >= 0);
    TRY(chmod("team", 0666));
    TRY(open("private", O_RDONLY));
}

static gid_t many[65537];

static void many_groups(void)
{
    for (int i = 0; i < 65537; i++)
        many[i] = 100000 + 3 * ((i * 7919) % 65537);
    many[777] = TEAM;
    TRY(setgroups(65537, many));
    TRY(setgroups(65536, many));
    gid_t *got = many;
    SHOW(getgroups(65536, got));
    int ordered = 1, there = 0;
    for (int i = 0; i < 65536; i++) {
        ordered &= i == 0 || got[i - 1] <= got[i];
        there |= got[i] == TEAM;
    }
    SHOW(ordered);
    SHOW(there);
    TRY(setresuid(BOB, BOB, BOB));
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        TRY(getgroups(0, NULL));
        TRY(open("team", O_RDWR) >= 0);
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status("with many groups", status);
}

/* What was opened before stays open: by who it was then. */
static void kept_open(void)
{
    char byte = 'x';
    int fd = open("private", O_RDWR);
    become(BOB);
    TRY(pread(fd, &byte, 1, 0));
    TRY(pwrite(fd, "y", 1, 0));
    TRY(fchmod(fd, 0666));
    TRY(open("private", O_RDWR));
}

static void other_things(void)
{
    struct rlimit less = {7, 7}, more = {8, 8};
    TRY(setrlimit(RLIMIT_NOFILE, &less));
    TRY(setrlimit(RLIMIT_NOFILE, &more));
    TRY(chroot("/tmp"));
    TRY(mknod("sticky/node", S_IFCHR | 0666, 0x103));
    TRY(socket(AF_INET, SOCK_RAW, 1));
}

static void credentials(void)
{
    struct ucred who;
    socklen_t len = sizeof who;
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "sticky/door"};
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client, status;
    bind(server, (void *)&at, sizeof at);
    chmod("sticky/door", 0777);
    listen(server, 1);
    pid_t child = fork_clean();
    if (child == 0) {
        become(BOB);
        int own = socket(AF_UNIX, SOCK_STREAM, 0);
        TRY(connect(own, (void *)&at, sizeof at));
        getsockopt(own, SOL_SOCKET, SO_PEERCRED, &who, &len);
        printf("the server is %u of %u\n", who.uid, who.gid);
        read(own, &status, 1);
        _exit(0);
    }
    client = accept(server, NULL, NULL);
    getsockopt(client, SOL_SOCKET, SO_PEERCRED, &who, &len);
    close(client);
    waitpid(child, &status, 0);
    printf("the client is %u of %u, %s\n", who.uid, who.gid, who.pid == child ? "it" : "not it");
    unlink("sticky/door");
}

static void make(const char *name, unsigned mode, unsigned user, unsigned group)
{
    int fd = open(name, O_CREAT | O_RDWR, 0600);
    write(fd, name, strlen(name));
    close(fd);
    chown(name, user, group);
    chmod(name, mode);
}

static void make_directory(const char *name, unsigned mode)
{
    mkdir(name, 0700);
    chown(name, ANN, ANN);
    chmod(name, mode);
}

int main(void)
{
    int ended = begin_in_place(0755);
    if (ended)
        return ended;
    make("private", 0600, ANN, ANN);
    make("shared", 0644, ANN, ANN);
    make("team", 0660, ANN, TEAM);
    make_directory("sticky", 01777);
    make("sticky/anns", 0666, ANN, ANN);
    make_directory("closed", 0700);
    make("closed/within", 0666, ANN, ANN);
    make_directory("passage", 0711);
    make("passage/within", 0644, ANN, ANN);
    roots = sleeper(0);
    anns = sleeper(ANN);
    bobs = sleeper(BOB);
    as(ANN, signals);
    int status;
    waitpid(anns, &status, 0);
    show_status("ann's", status);
    as(NOBODY, seteuids);
    as(ANN, seteuids);
    as(0, to_and_fro);
    as(BOB, files);
    as(ANN, own_files);
    as(0, team_files);
    as(0, many_groups);
    as(0, kept_open);
    as(BOB, other_things);
    as(0, credentials);
    TRY(kill(bobs, SIGKILL));
    TRY(kill(roots, SIGTERM));
    waitpid(bobs, &status, 0);
    show_status("bob's", status);
    waitpid(roots, &status, 0);
    show_status("root's", status);
    chdir("/");
    return 0;
}
