/* Whose a pipe is, named or not: stat, chmod and chown of it, by its owner and by another user who has it open. Run as
 * root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"

/* Numbers that no user of a host has. */
enum { ANN = 61000, BOB = 61001 };

static int ends[2];

static void show(const char *what, int fd)
{
    struct stat found;
    if (fstat(fd, &found))
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: mode %o of %u:%u\n", what, found.st_mode, found.st_uid, found.st_gid);
}

static void show_both(const char *what)
{
    struct stat first, second;
    show(what, ends[0]);
    show(what, ends[1]);
    fstat(ends[0], &first);
    fstat(ends[1], &second);
    SHOW(first.st_ino == second.st_ino && first.st_dev == second.st_dev);
}

static void with_anns(void)
{
    int mine[2];
    show("ann sees", ends[0]);
    TRY(fchmod(ends[0], 0666));
    TRY(fchown(ends[1], ANN, ANN));
    TRY(fchown(ends[1], -1, ANN));
    pipe(mine);
    show("ann's own", mine[0]);
    TRY(fchmod(mine[1], 02640));
    TRY(fchown(mine[1], ANN, -1));
    TRY(fchown(mine[1], -1, ANN));
    TRY(fchown(mine[1], -1, BOB));
    TRY(fchown(mine[1], BOB, -1));
    TRY(fchown(mine[1], 0, -1));
    show("ann's own", mine[0]);
    show("ann's own", mine[1]);
}

/* What a program sees that a child executes with the writing end. */
static void show_executed(void)
{
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        dup2(ends[1], 100);
        execl("/proc/self/exe", "self", "executed", NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    show_status("who was executed", status);
}

static void without_names(void)
{
    pipe(ends);
    show_both("root's");
    TRY(fchmod(ends[1], 06751));
    show_both("changed");
    TRY(fchown(ends[0], BOB, ANN));
    show_both("given away");
    as(ANN, with_anns);
    show_both("afterwards");
    char way[64];
    snprintf(way, sizeof way, "/proc/self/fd/%d", ends[0]);
    struct stat found;
    TRY(stat(way, &found));
    printf("by its way: mode %o of %u:%u\n", found.st_mode, found.st_uid, found.st_gid);
    TRY(chmod(way, 0620));
    TRY(chown(way, ANN, BOB));
    show("by its way", ends[1]);
    show_executed();
    close(ends[0]);
    close(ends[1]);
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        setegid(BOB);
        seteuid(ANN);
        pipe(ends);
        show("of the effective ones", ends[0]);
        _exit(0);
    }
    waitpid(child, &status, 0);
}

static void with_named(void)
{
    show("bob's child sees", ends[0]);
    TRY(fchmod(ends[0], 0666));
    TRY(fchown(ends[0], -1, BOB));
}

static void named(void)
{
    struct stat found;
    mkfifo("pipe", 0640);
    chown("pipe", ANN, BOB);
    ends[0] = open("pipe", O_RDONLY | O_NONBLOCK);
    ends[1] = open("pipe", O_WRONLY);
    show_both("named");
    as(BOB, with_named);
    TRY(fchmod(ends[1], 0604));
    TRY(stat("pipe", &found));
    printf("by its name: mode %o of %u:%u\n", found.st_mode, found.st_uid, found.st_gid);
    TRY(fchown(ends[0], BOB, 0));
    show_both("named");
    TRY(stat("pipe", &found));
    printf("by its name: mode %o of %u:%u\n", found.st_mode, found.st_uid, found.st_gid);
    as(BOB, with_named);
    show_both("named");
    show_executed();
    TRY(unlink("pipe"));
    show_both("without a name now");
    close(ends[0]);
    close(ends[1]);
}

int main(int count, char **arguments)
{
    if (count > 1 && !strcmp(arguments[1], "executed")) {
        show("after exec", 100);
        TRY(fchmod(100, 0611));
        show("after exec", 100);
        return 0;
    }
    int status = begin_in_place(0777);
    if (status)
        return status;
    setgroups(0, NULL);
    without_names();
    named();
    return 0;
}
