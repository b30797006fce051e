/* Small rules of set-id bits, of what hides a read, of limits and of what is told of a process. Run as root, which both
 * systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <sys/fsuid.h>

/* Numbers that no user of a host has. */
enum { ANN = 61000, BOB = 61001 };

static unsigned mode_of(const char *path)
{
    struct stat found;
    return stat(path, &found) ? 0 : found.st_mode;
}

/* What of the mode is left in a directory that gives its group, with this umask. */
static void make(unsigned mode, unsigned mask)
{
    umask(mask);
    close(open("shared/file", O_CREAT | O_EXCL | O_WRONLY, mode));
    close(open("shared/other", O_CREAT | O_WRONLY, mode));
    mknod("shared/node", S_IFREG | mode, 0);
    mkfifo("shared/pipe", mode);
    printf("%o less %o: %o %o %o %o\n", mode, mask, mode_of("shared/file"), mode_of("shared/other"),
           mode_of("shared/node"), mode_of("shared/pipe"));
    unlink("shared/file");
    unlink("shared/other");
    unlink("shared/node");
    unlink("shared/pipe");
    umask(0);
}

static void made(void)
{
    const unsigned modes[] = {07777, 02755, 02745, 02644, 06755, 06744}, masks[] = {0, 010, 022, 077, 02010};
    for (int at = 0; at < 30; at++)
        make(modes[at % 6], masks[at / 6]);
}

/* chown that gives nothing: by a stranger, its owner, root. */
static void give_nothing(void)
{
    static const char *const names[] = {"plain", "user", "group", "locked", "both", "directory"};
    for (int at = 0; at < 6; at++) {
        const char *name = names[at];
        printf("%s: ", name);
        TRY(chown(name, -1, -1));
        printf("%s is %o\n", name, mode_of(name));
    }
}

static void chowns(void)
{
    static const unsigned modes[] = {0777, 04777, 02777, 02707, 06777, 06777};
    static const char *const names[] = {"plain", "user", "group", "locked", "both", "directory"};
    const unsigned users[] = {BOB, ANN, 0};
    for (int round = 0; round < 3; round++) {
        for (int at = 0; at < 6; at++) {
            if (at == 5)
                mkdir(names[at], 0);
            else
                close(open(names[at], O_CREAT | O_WRONLY, 0));
            chown(names[at], ANN, ANN);
            chmod(names[at], modes[at]);
        }
        printf("by %u\n", users[round]);
        as(users[round], give_nothing);
    }
}

static void hide(void)
{
    int fd = open("read", O_RDONLY);
    TRY(fcntl(fd, F_SETFL, O_NOATIME));
    SHOW(fcntl(fd, F_GETFL) & (O_NOATIME | O_NONBLOCK));
    TRY(fcntl(fd, F_SETFL, O_NONBLOCK));
    SHOW(fcntl(fd, F_GETFL) & (O_NOATIME | O_NONBLOCK));
    TRY(fcntl(fd, F_SETFL, O_NOATIME | O_NONBLOCK));
    SHOW(fcntl(fd, F_GETFL) & (O_NOATIME | O_NONBLOCK));
    TRY(fcntl(fd, F_SETFL, 0));
    SHOW(fcntl(fd, F_GETFL) & (O_NOATIME | O_NONBLOCK));
    close(fd);
    fd = open("read", O_RDONLY | O_NOATIME);
    SHOW(fd >= 0 ? fcntl(fd, F_GETFL) & (O_NOATIME | O_NONBLOCK) : -1);
    int ends[2];
    pipe(ends);
    TRY(fcntl(ends[0], F_SETFL, O_NOATIME));
}

static void limits(void)
{
    struct rlimit less = {60, 70}, more = {60, 71}, within = {70, 70}, found;
    TRY(setrlimit(RLIMIT_NOFILE, &less));
    TRY(setrlimit(RLIMIT_NOFILE, &more));
    TRY(prlimit(0, RLIMIT_NOFILE, &more, NULL));
    TRY(setrlimit(RLIMIT_NOFILE, &within));
    TRY(getrlimit(RLIMIT_NOFILE, &found));
    printf("%ld %ld\n", (long)found.rlim_cur, (long)found.rlim_max);
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        TRY(setrlimit(RLIMIT_NOFILE, &more));
        _exit(0);
    }
    waitpid(child, &status, 0);
    TRY(sethostname("mine", 4));
    TRY(setdomainname("mine", 4));
}

/* Is it told to others of its user? */
static void told(const char *what)
{
    printf("%s: %s\n", what, prctl(PR_GET_DUMPABLE) == 1 ? "told" : "not told");
}

static void executed(const char *how)
{
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        if (strchr(how, 'f'))
            setfsuid(ANN);
        if (strchr(how, 'g'))
            setfsgid(ANN);
        if (strchr(how, 'b')) {
            setfsuid(ANN);
            setfsuid(0);
        }
        if (strchr(how, 'e'))
            seteuid(ANN);
        told(how);
        if (strchr(how, 'd')) {
            TRY(prctl(PR_SET_DUMPABLE, 1));
            told(how);
        }
        fflush(stdout);
        execl("/proc/self/exe", "self", how, NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    show_status(how, status);
}

int main(int count, char **arguments)
{
    if (count > 1) {
        told("after exec");
        int status;
        pid_t child = fork_clean();
        if (child == 0) {
            told("its child");
            fflush(stdout);
            if (count > 2)
                _exit(0);
            execl("/proc/self/exe", "self", arguments[1], "again", NULL);
            _exit(1);
        }
        waitpid(child, &status, 0);
        return 0;
    }
    int status = begin_in_place(0777);
    if (status)
        return status;
    setgroups(0, NULL);
    mkdir("shared", 0);
    chown("shared", 0, BOB);
    chmod("shared", 02777);
    as(ANN, made);
    as(BOB, made);
    as(0, made);
    chmod("shared", 0777);
    as(ANN, made);
    chowns();
    close(open("read", O_CREAT | O_WRONLY, 0));
    chown("read", ANN, ANN);
    chmod("read", 0666);
    as(ANN, hide);
    as(BOB, hide);
    as(0, hide);
    as(ANN, limits);
    executed("-");
    executed("f");
    executed("g");
    executed("b");
    executed("fd");
    executed("e");
    executed("ed");
    executed("d");
    return 0;
}
