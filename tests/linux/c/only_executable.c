/* Programs that may be executed and not read: they run, and neither the file nor the process shows
 * what is in them. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <sys/ptrace.h>
#include <sys/uio.h>

enum { ANN = 61000, BOB = 61001 };

static char place[] = "/tmp/only-executable-XXXXXX";

/* ---- what the program does ---- */

static void tell(void)
{
    unsigned r, e, s;
    getresuid(&r, &e, &s);
    printf("users %u %u %u secure %lu dumpable %d\n", r, e, s, getauxval(AT_SECURE),
           prctl(PR_GET_DUMPABLE));
    WORKS(open("/proc/self/exe", O_RDONLY));
    WORKS(open("/proc/self/environ", O_RDONLY));
    if (!prctl(PR_GET_DUMPABLE))
        WORKS(open("/proc/self/mem", O_RDONLY));
    WORKS(open("/proc/self/maps", O_RDONLY));
    WORKS(open("locked", O_RDONLY));
}

static int program(int argc, char **argv)
{
    tell();
    for (int i = 1; i < argc; i++)
        printf("argument %s, WORD=%s\n", argv[i], getenv("WORD"));
    if (!strcmp(argv[0], "wait")) {
        write(7, "r", 1);
        for (;;)
            pause();
    }
    if (!strcmp(argv[0], "again")) { /* what may be read shows itself again */
        char *arguments[] = {"it", NULL};
        execv("plain", arguments);
    }
    if (!strcmp(argv[0], "forks")) {
        int status;
        pid_t child = fork_clean();
        if (child == 0) {
            printf("child: dumpable %d\n", prctl(PR_GET_DUMPABLE));
            _exit(4);
        }
        waitpid(child, &status, 0);
        show_status("child", status);
    }
    fflush(stdout);
    _exit(3);
}

/* ---- who starts it, and looks ---- */

static pid_t start(unsigned user, const char *file, const char *what)
{
    char *arguments[] = {(char *)what, "one", NULL};
    char *environment[] = {"WORD=word", NULL};
    return execute(user, file, arguments, environment);
}

static void run(unsigned user, const char *file, const char *what)
{
    int status;
    printf("-- %u executes %s: %s\n", user, file, what);
    waitpid(start(user, file, what), &status, 0);
    show_status("it", status);
}

static pid_t seen;
static int shows;

static void look(const char *file)
{
    char path[64], bytes[64];
    snprintf(path, sizeof path, "/proc/%d/%s", seen, file);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        printf("%s: %s\n", file, strerrorname_np(errno));
    else if (read(fd, bytes, sizeof bytes) < 0)
        printf("%s: opened, %s\n", file, strerrorname_np(errno));
    else
        printf("%s: read\n", file);
    close(fd);
}

static void look_at_link(const char *file)
{
    char path[64], bytes[200];
    struct stat at;
    snprintf(path, sizeof path, "/proc/%d/%s", seen, file);
    ssize_t length = readlink(path, bytes, sizeof bytes);
    printf("%s: %s\n", file, length < 0 ? strerrorname_np(errno) : "there");
    if (length < 0 && errno == EINVAL && lstat(path, &at) == 0)
        printf("%s: of %u %u\n", file, at.st_uid, at.st_gid);
}

static void look_all(void)
{
    static const char *files[] = {"stat", "status", "cmdline", "comm", "environ", "mem", "maps", "exe", "fd"};
    static const char *links[] = {"cwd", "exe", "environ", "stat", ".", "root"};
    char byte;
    struct iovec own = {&byte, 1}, others = {&byte, 1};
    for (int i = 0; i < (shows ? 5 : 9); i++)
        look(files[i]);
    for (int i = 0; i < (shows ? 5 : 6); i++)
        look_at_link(links[i]);
    TRY(kill(seen, 0));
    if (shows)
        return;
    TRY(ptrace(PTRACE_ATTACH, seen, 0, 0));
    TRY(ptrace(PTRACE_SEIZE, seen, 0, 0));
    TRY(process_vm_readv(seen, &own, 1, &others, 1, 0));
    TRY(process_vm_writev(seen, &own, 1, &others, 1, 0));
}

static void look_at(unsigned user, const char *file, unsigned by)
{
    int ready[2], status;
    char byte;
    pipe(ready);
    dup2(ready[1], 7);
    close(ready[1]);
    shows = !strcmp(file, "plain") && user == by;
    printf("-- %u looks at %s of %u\n", by, file, user);
    seen = start(user, file, "wait");
    close(7);
    read(ready[0], &byte, 1);
    close(ready[0]);
    as(by, look_all);
    kill(seen, SIGTERM);
    waitpid(seen, &status, 0);
    show_status("it", status);
}

static void files(void)
{
    struct stat at;
    TRY(open("locked", O_RDONLY));
    TRY(open("locked", O_WRONLY));
    TRY(open("locked", O_PATH) >= 0);
    TRY(access("locked", R_OK));
    TRY(access("locked", X_OK));
    TRY(stat("locked", &at));
    TRY(open("groups", O_RDONLY));
    TRY(access("groups", X_OK));
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 1 || strchr(argv[0], '/') == NULL)
        return program(argc, argv);
    if (geteuid() != 0)
        return 77;
    umask(0);
    if (!mkdtemp(place) || chdir(place) || chmod(".", 0755))
        return 1;
    copy("plain", 0755, 0, 0);
    copy("locked", 0111, 0, 0);
    copy("own", 0311, BOB, BOB);
    copy("groups", 0101, ANN, ANN);
    copy("set-id", 04111, ANN, ANN);
    int fd = open("script", O_CREAT | O_WRONLY, 0755);
    dprintf(fd, "#!locked\n");
    close(fd);
    as(BOB, files);
    static const char *names[] = {"plain", "locked", "own", "groups", "set-id", "script"};
    for (int i = 0; i < 6; i++)
        run(BOB, names[i], "it");
    run(0, "locked", "it");
    run(ANN, "groups", "it");
    run(BOB, "locked", "again");
    run(BOB, "locked", "forks");
    look_at(BOB, "plain", BOB);
    look_at(BOB, "locked", BOB);
    look_at(BOB, "locked", ANN);
    look_at(BOB, "set-id", BOB);
    for (int i = 0; i < 6; i++)
        unlink(names[i]);
    chdir("/");
    rmdir(place);
    return 0;
}
