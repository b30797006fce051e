/* What is told of another process's limits and root directory, to its own user, to others and to root. Run as root,
 * which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"

/* Numbers that no user of a host has. */
enum { ANN = 61000, BOB = 61001, NOBODYS = 0x3ffffff0 };

static pid_t child;
static char place[256];

struct whose {
    unsigned real, effective, saved, group;
    const char *root;
};

static void limit_and_become(const void *given)
{
    const struct whose *whose = given;
    struct rlimit files = {77, 99}, stack = {1 << 20, RLIM_INFINITY}, none = {0, 0};
    setrlimit(RLIMIT_NOFILE, &files);
    setrlimit(RLIMIT_STACK, &stack);
    setrlimit(RLIMIT_CORE, &none);
    if (whose->root && chroot(whose->root))
        perror("chroot");
    if (setresgid(whose->group, whose->group, whose->group) ||
        setresuid(whose->real, whose->effective, whose->saved))
        perror("setresuid");
}

/* A child of these users with limits of its own, and a root directory. */
static void make(unsigned real, unsigned effective, unsigned saved, unsigned group, const char *root)
{
    struct whose whose = {real, effective, saved, group, root};
    child = sleeper_after(limit_and_become, &whose);
}

static void end(void)
{
    int status;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

static void asked(const char *what, pid_t pid, int resource)
{
    struct rlimit found = {1, 2};
    if (prlimit(pid, resource, NULL, &found))
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld %ld\n", what, (long)found.rlim_cur, (long)found.rlim_max);
}

/* The row of a limit in /proc/PID/limits. */
static void row(const char *name)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/limits", child);
    FILE *file = fopen(path, "r");
    if (!file)
        printf("%s: %s\n", name, strerrorname_np(errno));
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)))
            printf("%s", line);
    if (file)
        fclose(file);
}

static void link_of(void)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/root", child);
    ssize_t length = readlink(path, text, sizeof text - 1);
    if (length < 0) {
        printf("its root: %s\n", strerrorname_np(errno));
        return;
    }
    text[length] = 0;
    printf("its root: %s\n", strcmp(text, place) ? text : "the place");
}

static void all(void)
{
    asked("files", child, RLIMIT_NOFILE);
    asked("stack", child, RLIMIT_STACK);
    asked("core", child, RLIMIT_CORE);
    asked("none such", child, 99);
    asked("nobody's", NOBODYS, RLIMIT_NOFILE);
    row("Max open files");
    row("Max stack size");
    link_of();
}

static void set(void)
{
    struct rlimit more = {5, 5};
    TRY(prlimit(child, RLIMIT_NOFILE, &more, NULL));
}

int main(void)
{
    int status = begin_in_place(0777);
    if (status)
        return status;
    setgroups(0, NULL);
    if (!getcwd(place, sizeof place))
        return 1;
    make(ANN, ANN, ANN, ANN, NULL);
    as(ANN, all);
    as(BOB, all);
    as(BOB, set);
    row("Max open files");
    end();
    make(ANN, ANN, ANN, BOB, NULL);
    as(ANN, all);
    end();
    make(ANN, ANN, 0, ANN, NULL);
    as(ANN, all);
    end();
    make(0, ANN, ANN, ANN, NULL);
    as(ANN, all);
    end();
    make(ANN, ANN, ANN, ANN, ".");
    as(ANN, all);
    as(BOB, all);
    end();
    make(0, 0, 0, 0, ".");
    all();
    as(ANN, all);
    end();
    make(0, 0, 0, 0, NULL);
    all();
    end();
    return 0;
}
