/* What is open stays open, for what it was opened for: whoever the process becomes, in its children,
   and in the programs that they execute. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <dirent.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/un.h>

enum { ANN = 61000, BOB = 61001, TEAM = 61002 };

/* Descriptors, each at its place. */
enum { BOTH = 40, READER, WRITER, APPENDER, FRESH, PLACE, GONE, SENDER, CLOSED, KEPT_END };

static int at(int fd, int number)
{
    dup2(fd, number);
    close(fd);
    return number;
}

static const char *answer(ssize_t result)
{
    return result < 0 ? strerrorname_np(errno) : "ok";
}

/* Reads, reads often enough that a library may find a shorter way, writes, cuts. */
static void bytes(const char *what, int fd)
{
    char text[16] = "";
    ssize_t count = pread(fd, text, 9, 0);
    printf(" %s %s %.3s,", what, answer(count), count > 0 ? text : "");
    for (int again = 0; again < 8; again++)
        count = pread(fd, text, 4, 0);
    printf("%s,", answer(count));
    printf("%s,", answer(pwrite(fd, "b", 1, 1)));
    printf("%s;", answer(ftruncate(fd, 9)));
}

/* All that there is to do with them, in a line. */
static void use(const char *who)
{
    struct stat it;
    printf("%s:", who);
    bytes("both", BOTH);
    bytes("reader", READER);
    bytes("writer", WRITER);
    bytes("appender", APPENDER);
    bytes("fresh", FRESH);
    bytes("gone", GONE);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, BOTH, 0);
    printf(" map %.3s", page == MAP_FAILED ? "not" : page);
    if (page != MAP_FAILED)
        munmap(page, 4096);
    printf(" lock %s,", answer(flock(WRITER, LOCK_EX | LOCK_NB)));
    printf("%s", answer(flock(WRITER, LOCK_UN)));
    struct flock lock = {.l_type = F_WRLCK};
    printf(",%s", answer(fcntl(BOTH, F_SETLK, &lock)));
    lock.l_type = F_UNLCK;
    fcntl(BOTH, F_SETLK, &lock);
    char entries[1024];
    lseek(PLACE, 0, SEEK_SET);
    printf(" place %s,", answer(syscall(SYS_getdents64, PLACE, entries, sizeof entries)));
    printf("%s", answer(fstat(PLACE, &it)));
    printf(" send %s,", answer(send(SENDER, "word", 4, MSG_DONTWAIT)));
    printf("%ld,", (long)recv(KEPT_END, entries, sizeof entries, MSG_DONTWAIT));
    struct sockaddr_un name;
    socklen_t len = sizeof name;
    printf("%s", answer(getpeername(SENDER, (struct sockaddr *)&name, &len)));
    printf(" closed %s", answer(fcntl(CLOSED, F_GETFL)));
    int again = open("closed/file", O_RDWR);
    printf(" again %s\n", answer(again));
    if (again >= 0)
        close(again);
}

static void put(const char *name, unsigned mode)
{
    int fd = open(name, O_CREAT | O_RDWR, 0600);
    write(fd, "a-content", 9);
    close(fd);
    chmod(name, mode);
}

static struct sockaddr_un address(const char *name)
{
    struct sockaddr_un it = {.sun_family = AF_UNIX};
    strcpy(it.sun_path, name);
    return it;
}

/* As user 0, in a directory that is closed to others. */
static void open_all(void)
{
    struct sockaddr_un name = address("closed/inbox");
    mkdir("closed", 0700);
    put("closed/file", 0600);
    put("closed/gone", 0600);
    int inbox = at(socket(AF_UNIX, SOCK_DGRAM, 0), KEPT_END);
    TRY(bind(inbox, (struct sockaddr *)&name, sizeof name));
    chmod("closed/inbox", 0600);
    /* Looked at before it is opened, as most programs do. */
    struct stat it;
    TRY(stat("closed/file", &it));
    at(open("closed/file", O_RDWR), BOTH);
    at(open("closed/file", O_RDONLY), READER);
    at(open("closed/file", O_WRONLY), WRITER);
    at(open("closed/file", O_RDWR | O_APPEND), APPENDER);
    at(open("closed/fresh", O_RDWR | O_CREAT | O_EXCL, 0), FRESH);
    write(FRESH, "a-content", 9);
    at(open("closed", O_RDONLY | O_DIRECTORY), PLACE);
    at(open("closed/gone", O_RDWR), GONE);
    unlink("closed/gone");
    at(socket(AF_UNIX, SOCK_DGRAM, 0), SENDER);
    TRY(connect(SENDER, (struct sockaddr *)&name, sizeof name));
    dup3(BOTH, CLOSED, O_CLOEXEC);
}

static void wait_for(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    show_status("ended", status);
}

static void in_a_child(const char *who)
{
    pid_t child = fork_clean();
    if (child == 0) {
        use(who);
        _exit(0);
    }
    wait_for(child);
}

static void executes(const char *who, int times)
{
    char count[2] = {'0' + times, 0};
    pid_t child = fork_clean();
    if (child == 0) {
        execl("/proc/self/exe", "kept", who, count, NULL);
        printf("%s: %s\n", who, strerrorname_np(errno));
        fflush(stdout);
        _exit(1);
    }
    wait_for(child);
}

/* The program that is executed: it sees what is left, and goes on to others. */
static int next(const char *who, int times)
{
    use(who);
    in_a_child("its child");
    if (times > 0)
        executes("a program's program", times - 1);
    fflush(stdout);
    _exit(0);
}

/* For a while: seteuid(2), and back. */
static void for_a_while(void)
{
    TRY(setegid(ANN));
    TRY(seteuid(ANN));
    use("while ann");
    in_a_child("a child while ann");
    TRY(seteuid(0));
    use("user 0 again");
    TRY(setegid(0));
    setfsuid(ANN);
    use("files as ann");
    in_a_child("a child, files as ann");
    setfsuid(0);
    use("files as user 0 again");
}

/* For good. */
static void for_good(void)
{
    pid_t child = fork_clean();
    if (child == 0) {
        become(ANN);
        use("ann");
        in_a_child("her child");
        executes("her program", 1);
        fflush(stdout);
        _exit(0);
    }
    wait_for(child);
    use("user 0 beside her");
}

/* A child in its parent's space becomes ann, and executes a program; its parent goes on. */
static void by_vfork(void)
{
    char *arguments[] = {"kept", "program of a vfork child", "0", NULL};
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        syscall(SYS_setgroups, 0, NULL);
        syscall(SYS_setresgid, ANN, ANN, ANN);
        syscall(SYS_setresuid, ANN, ANN, ANN);
        pwrite(BOTH, "v", 1, 2);
        execve("/proc/self/exe", arguments, environ);
        _exit(1);
    }
    wait_for(child);
    use("user 0 behind a vfork");
}

/* What a group of its set gave stays when that is left. */
static void by_a_group(void)
{
    gid_t team = TEAM;
    put("teams", 0060);
    chown("teams", 0, TEAM);
    pid_t child = fork_clean();
    if (child == 0) {
        setgroups(1, &team);
        setresgid(ANN, ANN, ANN);
        setresuid(ANN, ANN, 0);
        struct stat it;
        TRY(stat("teams", &it));
        int fd = open("teams", O_RDWR);
        bytes("a member", fd);
        TRY(setresuid(0, 0, 0));
        TRY(setgroups(0, NULL));
        TRY(setresuid(ANN, ANN, ANN));
        bytes("a member once", fd);
        TRY(open("teams", O_RDWR));
        fflush(stdout);
        _exit(0);
    }
    wait_for(child);
}

/* Ann's private file in a program that bob's bit makes his, and behind a change of its mode. */
static void by_set_id(const char *program)
{
    put("anns", 0600);
    chown("anns", ANN, ANN);
    pid_t child = fork_clean();
    if (child == 0) {
        for (int fd = BOTH; fd <= KEPT_END; fd++)
            close(fd);
        become(ANN);
        at(open("anns", O_RDWR), BOTH);
        fchmod(BOTH, 0);
        bytes("ann", BOTH);
        TRY(open("anns", O_RDWR));
        execl(program, "kept", "set-id", NULL);
        _exit(1);
    }
    wait_for(child);
}

/* A file that a parent has looked at is opened by a child; then its mode changes. */
static void by_a_childs_open(void)
{
    int opened[2], changed[2];
    char byte;
    put("shared", 0644);
    if (pipe(opened) || pipe(changed))
        exit(1);
    pid_t child = fork_clean();
    if (child == 0) {
        struct stat it;
        become(ANN);
        stat("shared", &it);
        close(open("shared", O_RDONLY));
        pid_t other = fork_clean();
        if (other == 0) {
            int fd = open("shared", O_RDONLY);
            write(opened[1], "o", 1);
            read(changed[0], &byte, 1);
            bytes("opened before", fd);
            TRY(open("shared", O_RDONLY));
            fflush(stdout);
            _exit(0);
        }
        wait_for(other);
        fflush(stdout);
        _exit(0);
    }
    read(opened[0], &byte, 1);
    chmod("shared", 0600);
    write(changed[1], "c", 1);
    wait_for(child);
}

int main(int count, char **words)
{
    if (count == 3)
        return next(words[1], atoi(words[2]));
    if (count == 2) {
        bytes("bob's program", BOTH);
        TRY(open("anns", O_RDWR));
        pid_t child = fork_clean();
        if (child == 0) {
            TRY(setresuid(ANN, ANN, ANN));
            bytes("its child", BOTH);
            fflush(stdout);
            _exit(0);
        }
        wait_for(child);
        return 4;
    }
    int skipped = begin_in_place(0755);
    if (skipped)
        return skipped;
    open_all();
    use("user 0");
    in_a_child("a child");
    executes("a program", 1);
    for_a_while();
    for_good();
    by_vfork();
    by_a_group();
    by_a_childs_open();
    copy("bobs", 04755, BOB, BOB);
    by_set_id("./bobs");
    return 0;
}
