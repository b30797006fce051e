/* Programs that act for their file's owner: who they are, what they keep of their starter, and what
 * he may do to them. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <dirent.h>

enum { ANN = 1000, BOB = 1001, TEAM = 2000 };

static const char place_of[] = "/tmp/set-id-XXXXXX";
static char place[sizeof place_of];

/* ---- what the program does, once it is another user's ---- */

static void tell_ids(void)
{
    unsigned r, e, s;
    getresuid(&r, &e, &s);
    printf("users %u %u %u", r, e, s);
    getresgid(&r, &e, &s);
    printf(" groups %u %u %u secure %lu", r, e, s, getauxval(AT_SECURE));
    printf(" vector %lu %lu %lu %lu", getauxval(AT_UID), getauxval(AT_EUID), getauxval(AT_GID),
           getauxval(AT_EGID));
    printf(" dumpable %d more %d\n", prctl(PR_GET_DUMPABLE), getgroups(0, NULL));
}

static void tell_all(int argc, char **argv)
{
    char where[200] = "";
    sigset_t blocked;
    struct rlimit files;
    struct itimerval timer;
    tell_ids();
    for (int i = 1; i < argc; i++)
        printf("argument %s\n", argv[i]);
    printf("WORD=%s LD_PRELOAD=%s\n", getenv("WORD"), getenv("LD_PRELOAD"));
    printf("in the place: %d\n", getcwd(where, sizeof where) && strstr(where, "/set-id-") != NULL);
    mode_t mask = umask(0);
    printf("mask %o\n", mask);
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    printf("blocked %d ignored %d\n", sigismember(&blocked, SIGUSR1),
           signal(SIGUSR2, SIG_DFL) == SIG_IGN);
    getrlimit(RLIMIT_NOFILE, &files);
    printf("limit %ld of %ld\n", (long)files.rlim_cur, (long)files.rlim_max);
    getitimer(ITIMER_REAL, &timer);
    printf("timer %s\n", timer.it_value.tv_sec > 500 ? "runs" : "is off");
    printf("group is parent's: %d session too: %d\n", getpgrp() == getpgid(getppid()),
           getsid(0) == getsid(getppid()));
    char text[8] = "";
    printf("5 reads %zd", read(5, text, 4));
    printf(" %s, is at %ld\n", text, (long)lseek(5, 0, SEEK_CUR));
    printf("6 is %s\n", fcntl(6, F_GETFD) == -1 ? "closed" : "open");
    printf("7 is written: %zd\n", write(7, "pipe", 4));
    TRY(open("private", O_RDONLY) >= 0);
    TRY(setuid(getuid()));
    tell_ids();
    TRY(setreuid(geteuid(), getuid()));
    tell_ids();
}

static void tell_descriptors(void)
{
    int out = open("told", O_WRONLY | O_APPEND);
    for (int i = 0; i < 3; i++)
        dprintf(out, "%d is %s\n", i, fcntl(i, F_GETFD) == -1 ? "closed" : "open");
    dprintf(out, "the next is %d\n", out);
}

static void wait_for_signals(void)
{
    write(7, "r", 1);
    for (;;)
        pause();
}

/* A child in its parent's space becomes one user alone, as login's does: it forks, and executes a program, with
   a terminal open. */
static void lend(void)
{
    char *arguments[] = {"ids", NULL};
    unsigned user = geteuid() != 0 ? geteuid() : BOB;
    int status;
    pid_t child = vfork();
    if (child == 0) {
        if (syscall(SYS_setresuid, user, user, user) != 0)
            _exit(4);
        pid_t childs = fork();
        if (childs == 0) {
            int pair[2];
            pid_t last = fork();
            if (last == 0)
                _exit(0);
            _exit(100 * (last > 0) + 10 * (pipe(pair) == 0) + (open("text", O_RDONLY) >= 0));
        }
        waitpid(childs, &status, 0);
        write(1, WEXITSTATUS(status) == 111 ? "its child\n" : "no child!\n", 10);
        execv("plain", arguments);
        _exit(5);
    }
    waitpid(child, &status, 0);
    show_status("the child", status);
}

static int program(int argc, char **argv)
{
    const char *what = argv[0];
    if (!strcmp(what, "ids") || !strcmp(what, "plain"))
        tell_ids();
    if (!strcmp(what, "all"))
        tell_all(argc, argv);
    if (!strcmp(what, "descriptors"))
        tell_descriptors();
    if (!strcmp(what, "wait"))
        wait_for_signals();
    if (!strcmp(what, "lend"))
        lend();
    if (!strcmp(what, "again")) { /* a program executed by the set-id one */
        char *arguments[] = {"ids", NULL};
        tell_ids();
        fflush(stdout);
        execv("plain", arguments);
        perror("plain");
    }
    fflush(stdout);
    _exit(3);
}

/* ---- what its starter does ---- */

/* Executes `file` as `user`, which does `what`. */
static pid_t start(unsigned user, const char *file, const char *what)
{
    char *arguments[] = {(char *)what, "one", "two", NULL};
    char *environment[] = {"WORD=word", "LD_PRELOAD=/tmp/evil.so", "XOK_STRACE=1", NULL};
    return execute(user, file, arguments, environment);
}

static void run(unsigned user, const char *file, const char *what)
{
    int status;
    printf("-- %u executes %s: %s\n", user, file, what);
    waitpid(start(user, file, what), &status, 0);
    show_status("it", status);
}

static void put(const char *name, unsigned mode, unsigned user, unsigned group, const char *text)
{
    int fd = open(name, O_CREAT | O_RDWR, 0600);
    write(fd, text, strlen(text));
    close(fd);
    chown(name, user, group);
    chmod(name, mode);
}

/* All that a program takes over from its starter. */
static void inheritance(void)
{
    int ends[2], status;
    char got[5] = "";
    pipe(ends);
    pid_t child = fork_clean();
    if (child == 0) {
        sigset_t set;
        struct rlimit files = {100, 200};
        struct itimerval timer = {.it_value = {1000, 0}};
        gid_t groups[] = {77, TEAM};
        umask(027);
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        signal(SIGUSR2, SIG_IGN);
        setrlimit(RLIMIT_NOFILE, &files);
        setitimer(ITIMER_REAL, &timer, NULL);
        int fd = open("text", O_RDONLY);
        read(fd, got, 2);
        dup2(fd, 5);
        dup3(fd, 6, O_CLOEXEC);
        dup2(ends[1], 7);
        setgroups(2, groups);
        setresgid(BOB, BOB, BOB);
        setresuid(BOB, BOB, BOB);
        char *arguments[] = {"all", "one", "", "three", NULL};
        char *environment[] = {"WORD=word", NULL};
        execve("anns", arguments, environment);
        perror("anns");
        _exit(1);
    }
    close(ends[1]);
    read(ends[0], got, 4);
    waitpid(child, &status, 0);
    show_status("it", status);
    printf("the pipe has %s\n", got);
}

static void without(int first, int last)
{
    int status;
    pid_t child = fork_clean();
    put("told", 0666, 0, 0, "");
    if (child == 0) {
        char *arguments[] = {"descriptors", NULL};
        become(BOB);
        for (int fd = first; fd <= last; fd++)
            close(fd);
        execv("anns", arguments);
        _exit(1);
    }
    waitpid(child, &status, 0);
    show_status("without descriptors", status);
    char text[200] = "";
    int fd = open("told", O_RDONLY);
    read(fd, text, sizeof text - 1);
    close(fd);
    printf("%s", text);
    unlink("told");
}

/* Who may signal it: by the starter's real user, and by the owner's. */
static void signals(const char *file, unsigned by)
{
    int ready[2], status;
    char byte;
    pipe(ready);
    dup2(ready[1], 7);
    pid_t child = start(BOB, file, "wait");
    close(ready[1]);
    close(7);
    read(ready[0], &byte, 1);
    close(ready[0]);
    pid_t sender = fork_clean();
    if (sender == 0) {
        become(by);
        printf("%u to %s: ", by, file);
        TRY(kill(child, 0));
        int refused = kill(child, SIGTERM);
        printf("SIGTERM: %s\n", refused ? strerrorname_np(errno) : "sent");
        fflush(stdout);
        _exit(refused != 0);
    }
    waitpid(sender, &status, 0);
    if (status != 0)
        kill(child, SIGKILL);
    waitpid(child, &status, 0);
    show_status("it", status);
}

/* What clears the bits. */
static void bits(void)
{
    struct stat seen;
    copy("bits", 06755, ANN, TEAM);
    TRY(chown("bits", ANN, TEAM));
    stat("bits", &seen);
    printf("after chown: %o\n", seen.st_mode);
    chmod("bits", 06766);
    pid_t child = fork_clean();
    if (child == 0) {
        become(BOB);
        int fd = open("bits", O_WRONLY);
        write(fd, "x", 1);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    stat("bits", &seen);
    printf("after a write: %o\n", seen.st_mode);
    child = fork_clean();
    if (child == 0) {
        become(BOB);
        TRY(chmod("anns", 04777));
        TRY(open("anns", O_WRONLY));
        _exit(0);
    }
    waitpid(child, NULL, 0);
    unlink("bits");
}

/* With a terminal open. */
static void lending(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    TRY(unlockpt(master));
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    run(ANN, "roots", "lend");
    run(BOB, "anns", "lend");
    close(slave);
    close(master);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 1 || strchr(argv[0], '/') == NULL)
        return program(argc, argv);
    if (geteuid() != 0)
        return 77;
    umask(0);
    strcpy(place, place_of);
    if (!mkdtemp(place) || chdir(place) || chmod(".", 0755))
        return 1;
    copy("plain", 0755, 0, 0);
    copy("anns", 04755, ANN, ANN);
    copy("roots", 04755, 0, 0);
    copy("teams", 02755, 0, TEAM);
    copy("teams-locked", 02745, 0, TEAM);
    copy("both", 06755, ANN, TEAM);
    copy("closed", 04750, ANN, TEAM);
    put("private", 0600, ANN, ANN, "private");
    put("text", 0644, 0, 0, "some text");
    put("script", 06755, ANN, TEAM, "#!plain\n");
    const char *files[] = {"plain", "anns", "roots", "teams", "teams-locked", "both", "closed",
                           "missing"};
    for (int i = 0; i < 8; i++)
        run(BOB, files[i], "ids");
    run(ANN, "anns", "ids");
    run(0, "anns", "ids");
    run(0, "roots", "ids");
    run(BOB, "both", "again");
    run(BOB, "script", "ids");
    inheritance();
    lending();
    without(0, 0);
    without(1, 2);
    without(0, 2);
    signals("anns", BOB);
    signals("anns", ANN);
    signals("anns", 1002);
    signals("roots", BOB);
    signals("teams", BOB);
    signals("teams", ANN);
    bits();
    for (int i = 0; i < 7; i++)
        unlink(files[i]);
    unlink("private");
    unlink("text");
    unlink("script");
    chdir("/");
    rmdir(place);
    return 0;
}
