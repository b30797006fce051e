/* Capabilities, as the users of a process say: capget, capset, prctl, /proc/PID/status. The set that a host's root has
 * may be bounded, so sets are told by what they hold of it. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <linux/capability.h>
#include <sys/fsuid.h>

/* Numbers that no user of a host has. */
enum { ANN = 61000, BOB = 61001 };

/* The capabilities about files (capabilities(7), setfsuid). */
static const unsigned long files = 0x1f | 1ul << 9 | 1ul << 27 | 1ul << 32;
static unsigned long all;

static const char *name(unsigned long set)
{
    if (set == 0)
        return "none";
    if (set == all)
        return "all";
    if (set == (all & files))
        return "those of files";
    return set == (all & ~files) ? "all but those of files" : "others";
}

static void show(const char *what, pid_t pid)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, pid};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data)) {
        printf("%s: %s\n", what, strerrorname_np(errno));
        return;
    }
    unsigned long effective = data[0].effective | (unsigned long)data[1].effective << 32;
    unsigned long permitted = data[0].permitted | (unsigned long)data[1].permitted << 32;
    printf("%s: permitted %s, effective %s, inherited %x\n", what, name(permitted), name(effective),
           data[0].inheritable | data[1].inheritable);
}

/* What /proc says of a process. */
static void status(const char *what, pid_t pid)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    unsigned long set;
    printf("%s:", what);
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "Cap", 3) && sscanf(line + 7, "%lx", &set) == 1)
            printf(" %.6s %s", line, name(set));
    printf("\n");
    if (file)
        fclose(file);
}

/* A child that has become these, and for files this one. */
static void of(const char *what, unsigned real, unsigned effective, unsigned saved, unsigned for_files)
{
    int state;
    pid_t child = fork_clean();
    if (child == 0) {
        if (setresuid(real, effective, saved))
            perror("setresuid");
        if (for_files != effective)
            setfsuid(for_files);
        show(what, 0);
        status("said", getpid());
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &state, 0);
}

static void set(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    TRY(syscall(SYS_capget, &header, data));
    TRY(syscall(SYS_capset, &header, data));
    header.pid = getpid();
    TRY(syscall(SYS_capset, &header, data));
    header.pid = getppid();
    TRY(syscall(SYS_capset, &header, data));
    header.pid = -1;
    TRY(syscall(SYS_capset, &header, data));
    TRY(syscall(SYS_capget, &header, data));
    header.pid = 0x3ffffff0;
    TRY(syscall(SYS_capget, &header, data));
    header.pid = 0;
    data[1].permitted |= 1u << 31;
    TRY(syscall(SYS_capset, &header, data));
    TRY(syscall(SYS_capset, &header, NULL));
    TRY(syscall(SYS_capget, NULL, data));
    TRY(syscall(SYS_capget, &header, NULL));
    header.version = 7;
    TRY(syscall(SYS_capget, &header, NULL));
    SHOW(header.version);
    header.version = 7;
    TRY(syscall(SYS_capget, &header, data));
    TRY(syscall(SYS_capset, &header, data));
    header.version = _LINUX_CAPABILITY_VERSION_1;
    TRY(syscall(SYS_capget, &header, data));
    header.version = _LINUX_CAPABILITY_VERSION_2;
    TRY(syscall(SYS_capget, &header, data));
}

static void anns(void)
{
    set();
    show("ann of root's", getppid());
    TRY(prctl(PR_CAPBSET_READ, 0));
    TRY(prctl(PR_CAPBSET_DROP, 0));
    TRY(prctl(PR_CAPBSET_READ, 41 + 100));
    TRY(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 0, 0, 0));
    TRY(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 0, 0, 0));
    TRY(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, 0, 0, 0));
    TRY(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
    TRY(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 200, 0, 0));
    TRY(prctl(PR_CAP_AMBIENT, 77, 0, 0, 0));
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{1, 1, 0}, {0, 0, 0}};
    TRY(syscall(SYS_capset, &header, data)); /* one more than it has */
}

static void others(void)
{
    int state;
    pid_t child = sleeper(BOB);
    show("root of bob's", child);
    status("said", child);
    kill(child, SIGKILL);
    waitpid(child, &state, 0);
}

int main(int count, char **arguments)
{
    for (int at = 0; at <= 40; at++)
        all |= (unsigned long)(prctl(PR_CAPBSET_READ, at) == 1) << at;
    if (count > 1) {
        show(arguments[1], 0);
        return 0;
    }
    if (geteuid() != 0)
        return 77;
    setgroups(0, NULL);
    SHOW((all & files) == files && all >> 40 == 1);
    TRY(prctl(PR_CAPBSET_READ, 40 + 100));
    show("root", 0);
    status("said", getpid());
    set();
    const unsigned users[] = {0, ANN, BOB};
    for (int at = 0; at < 27; at++) {
        unsigned real = users[at % 3], effective = users[at / 3 % 3], saved = users[at / 9];
        char what[64];
        snprintf(what, sizeof what, "%u %u %u", real, effective, saved);
        of(what, real, effective, saved, effective);
        snprintf(what, sizeof what, "%u %u %u, files by %u", real, effective, saved, real);
        of(what, real, effective, saved, real);
    }
    as(ANN, anns);
    others();
    for (int at = 0; at < 4; at++) {
        int state;
        pid_t child = fork_clean();
        if (child == 0) {
            setresuid(at & 1 ? ANN : 0, at & 2 ? ANN : 0, 0);
            execl("/proc/self/exe", "self", "executed", NULL);
            _exit(1);
        }
        waitpid(child, &state, 0);
    }
    return 0;
}
