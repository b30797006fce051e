/* What setuid(2) and its kin take, whether the process is user 0's or not; who acts on files; and what
 * /proc tells of it and of its parent. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <sys/fsuid.h>

enum { ANN = 61000, BOB = 61001, CAY = 61002, DEE = 61003 };

static void show_status_of(pid_t pid)
{
    char path[64], line[1024];
    sprintf(path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (!strncmp(line, "Uid:", 4) || !strncmp(line, "Gid:", 4) || !strncmp(line, "Groups:", 7))
            printf("%s", line);
    if (file != NULL)
        fclose(file);
}

/* One call by its number, with these ids before it, in a child. */
static void one(const char *name, long number, int groups, const unsigned *ids, int root, const int *words)
{
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        if (groups)
            syscall(SYS_setresgid, ids[0], ids[1], ids[2]);
        if (!root)
            setresuid(groups ? DEE : ids[0], groups ? DEE : ids[1], groups ? DEE : ids[2]);
        errno = 0;
        long result = syscall(number, (unsigned)words[0], (unsigned)words[1], (unsigned)words[2]);
        unsigned now[3];
        if (groups)
            getresgid(&now[0], &now[1], &now[2]);
        else
            getresuid(&now[0], &now[1], &now[2]);
        printf("%s(%d, %d, %d) of %u %u %u%s: %s, %u %u %u\n", name, words[0], words[1], words[2], ids[0],
               ids[1], ids[2], root ? ", root" : "", result == -1 ? strerrorname_np(errno) : "0", now[0], now[1],
               now[2]);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (status != 0)
        show_status(name, status);
}

static void all(const char *name, long number, int groups, int count)
{
    static const unsigned before[][3] = {{ANN, BOB, CAY}, {ANN, ANN, CAY}};
    static const int choices[] = {-1, 0, ANN, BOB, CAY, DEE};
    for (int at = 0; at < 2; at++)
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < (count > 1 ? 6 : 1); j++) {
                /* Of three, the middle one stays. */
                int words[3] = {choices[i], count == 2 ? choices[j] : -1, count == 3 ? choices[j] : -1};
                one(name, number, groups, before[at], 0, words);
            }
    static const unsigned group_ids[] = {ANN, BOB, CAY}, zeros[] = {0, 0, 0};
    for (int i = 0; i < 6; i++) {
        int words[3] = {choices[i], count > 1 ? choices[5 - i] : -1, -1};
        one(name, number, groups, groups ? group_ids : zeros, 1, words);
    }
}

static void try_files(void)
{
    TRY(open("anns", O_RDONLY) >= 0);
    TRY(open("bobs", O_RDONLY) >= 0);
    TRY(open("carols", O_RDONLY) >= 0);
    TRY(access("anns", R_OK));
    int fd = open("new", O_CREAT | O_WRONLY, 0600);
    struct stat it;
    if (fd >= 0 && !fstat(fd, &it))
        printf("new: %u of %u\n", it.st_uid, it.st_gid);
    close(fd);
    unlink("new");
}

/* By which user files are opened: the one that setfsuid says, until the effective one is set. */
static void for_files(void)
{
    SHOW(setfsuid(ANN));
    SHOW(setfsuid(-1));
    SHOW(setfsgid(BOB));
    SHOW(setfsgid(-1));
    show_status_of(getpid());
    try_files();
    pid_t child = fork_clean();
    if (child == 0) {
        show_status_of(getpid());
        _exit(0);
    }
    waitpid(child, NULL, 0);
    TRY(seteuid(0)); /* the same as before, and yet */
    TRY(setegid(0));
    show_status_of(getpid());
    TRY(setresuid(ANN, BOB, CAY));
    SHOW(setfsuid(DEE));
    SHOW(setfsuid(0));
    SHOW(setfsuid(-1));
    SHOW(setfsuid(CAY));
    SHOW(setfsuid(BOB));
    SHOW(setfsuid(ANN));
    SHOW(setfsgid(ANN));
    SHOW(setfsgid(-1));
    try_files();
    TRY(setreuid(-1, -1));
    show_status_of(getpid());
    try_files();
}

static void groups(void)
{
    gid_t many[40];
    for (int at = 0; at < 40; at++)
        many[at] = 70000 - at;
    show_status_of(getpid());
    TRY(setgroups(40, many));
    show_status_of(getpid());
    TRY(setgroups(3, many));
    pid_t child = fork_clean();
    if (child == 0) {
        show_status_of(getppid());
        setresgid(BOB, CAY, DEE);
        setresuid(ANN, BOB, CAY);
        show_status_of(getpid());
        show_status_of(getppid());
        fflush(stdout);
        execl("/proc/self/exe", "identities", "status", NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    TRY(setgroups(0, many));
    show_status_of(getpid());
}

/* A process's name is bytes that it likes: no line of /proc/PID/status is its own word. */
static void own_names(void)
{
    static const char *const names[] = {"x\nUid:\t0\t0\t0", "back\\slash", "a tab\tand \x1b", "\n\\\n\\\n\\\n\\"};
    for (int at = 0; at < 4; at++) {
        pid_t child = fork_clean();
        if (child == 0) {
            char line[256];
            setresuid(ANN, ANN, ANN);
            prctl(PR_SET_NAME, names[at]);
            FILE *file = fopen("/proc/self/status", "r");
            for (int row = 0; row < 2 && file != NULL && fgets(line, sizeof line, file) != NULL; row++)
                printf("%s", line);
            show_status_of(getpid());
            fflush(stdout);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
}

/* What /proc says is the parent of a process. */
static long parent_of(pid_t pid)
{
    char path[64], line[1024] = "";
    long parent = -1;
    sprintf(path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file != NULL && fgets(line, sizeof line, file) != NULL)
        sscanf(strrchr(line, ')'), ") %*c %ld", &parent);
    if (file != NULL)
        fclose(file);
    return parent;
}

/* A process whose parent has ended is the child of the process that getppid(2) says. */
static void orphans(void)
{
    int ends[2];
    pid_t words[2] = {-1, -2};
    TRY(pipe(ends));
    pid_t child = fork_clean();
    if (child == 0) {
        pid_t parent = getpid(), orphan = fork_clean();
        if (orphan == 0) {
            printf("%d\n", parent_of(getpid()) == parent);
            fflush(stdout);
            while (getppid() == parent)
                usleep(1000);
            words[0] = getpid();
            words[1] = getppid();
            printf("its own %d\n", parent_of(getpid()) == getppid());
            fflush(stdout);
            write(ends[1], words, sizeof words);
            sleep(20);
            _exit(0);
        }
        usleep(200000);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    read(ends[0], words, sizeof words);
    printf("others %d\n", parent_of(words[0]) == words[1]);
    kill(words[0], SIGKILL);
    close(ends[0]);
    close(ends[1]);
}

int main(int count, char **arguments)
{
    char place[] = "/tmp/identities-XXXXXX";
    if (count > 1 && !strcmp(arguments[1], "status")) {
        show_status_of(getpid());
        return 0;
    }
    if (geteuid() != 0)
        return 77;
    setgroups(0, NULL);
    all("setuid", SYS_setuid, 0, 1);
    all("setgid", SYS_setgid, 1, 1);
    all("setreuid", SYS_setreuid, 0, 2);
    all("setregid", SYS_setregid, 1, 2);
    all("setresuid", SYS_setresuid, 0, 3);
    all("setresgid", SYS_setresgid, 1, 3);
    TRY(seteuid(-1));
    TRY(setegid(-1));
    if (!mkdtemp(place) || chdir(place) || chmod(".", 0777))
        return 1;
    umask(0);
    static const char *const names[] = {"anns", "bobs", "carols"};
    for (int at = 0; at < 3; at++) {
        close(open(names[at], O_CREAT | O_WRONLY, 0400));
        chown(names[at], ANN + at, 0);
    }
    pid_t child = fork_clean();
    if (child == 0) {
        for_files();
        _exit(0);
    }
    waitpid(child, NULL, 0);
    groups();
    own_names();
    orphans();
    return 0;
}
