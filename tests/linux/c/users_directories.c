/* What becomes of directories that others move, and of set-id bits of files that others change. Run
 * as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"

enum { ANN = 1000, BOB = 1001, TEAM = 2000 };

static void make_directory(const char *name, unsigned mode, unsigned user)
{
    mkdir(name, 0700);
    chown(name, user, user);
    chmod(name, mode);
}

static void show_file(const char *name)
{
    struct stat it;
    if (lstat(name, &it))
        printf("%s: %s\n", name, strerrorname_np(errno));
    else
        printf("%s: %o of %u:%u, %ld bytes\n", name, it.st_mode, it.st_uid, it.st_gid,
               S_ISREG(it.st_mode) ? (long)it.st_size : 0);
}

/* A directory that is moved to another one is written: where its `..` leads changes. */
static void moves(void)
{
    TRY(rename("all/anns", "all/renamed")); /* its `..` stays */
    TRY(rename("all/renamed", "all/anns"));
    TRY(rename("all/anns", "more/anns"));
    TRY(rename("all/anns", "more/bobs")); /* over one of ours */
    TRY(rename("all/anns", "more/full")); /* over one with something in it */
    TRY(rename("all/anns", "more/file"));
    TRY(rename("all/anns", "all/anns/within"));
    TRY(renameat2(AT_FDCWD, "all/anns", AT_FDCWD, "more/bobs", RENAME_EXCHANGE));
    TRY(renameat2(AT_FDCWD, "more/bobs", AT_FDCWD, "all/anns", RENAME_EXCHANGE));
    TRY(renameat2(AT_FDCWD, "all/anns", AT_FDCWD, "more/file", RENAME_EXCHANGE));
    TRY(renameat2(AT_FDCWD, "more/file", AT_FDCWD, "all/anns", RENAME_EXCHANGE));
    TRY(renameat2(AT_FDCWD, "all/anns", AT_FDCWD, "all/beside", RENAME_EXCHANGE));
    TRY(renameat2(AT_FDCWD, "all/anns", AT_FDCWD, "all/beside", RENAME_EXCHANGE));
    TRY(rename("all/open", "more/open")); /* written by all */
    TRY(rename("more/bobs", "all/bobs"));
    TRY(rename("all/file", "more/moved")); /* ann's, and no directory */
    TRY(rename("all/beside/missing", "more"));
    TRY(renameat2(AT_FDCWD, "more/moved", AT_FDCWD, "more", RENAME_EXCHANGE));
    TRY(rename("more/moved", "more"));
}

enum { WRITE, EXTEND, NOTHING, CUT, STAY, LENGTHEN, OPEN, EMPTY, ALLOCATE, LESS, TOUCH, CHANGES };

static int change(int which)
{
    int fd = open("bits", which == EMPTY ? O_WRONLY | O_TRUNC : O_RDWR);
    switch (which) {
    case WRITE: return pwrite(fd, "x", 1, 0) == 1;
    case EXTEND: return pwrite(fd, "x", 1, 9000) == 1;
    case NOTHING: return write(fd, "", 0) == 0;
    case CUT: return ftruncate(fd, 10) == 0;
    case STAY: return ftruncate(fd, 10) == 0;
    case LENGTHEN: return truncate("bits", 20) == 0;
    case ALLOCATE: return fallocate(fd, 0, 0, 100) == 0;
    case LESS: return fallocate(fd, 0, 0, 10) == 0;
    case TOUCH: return futimens(fd, NULL) == 0;
    default: return fd >= 0;
    }
}

/* What ann's file has left of `mode` after each change by a user of a group. */
static void changed_by(unsigned user, unsigned group, unsigned mode)
{
    struct stat it;
    printf("%o by %u of %u:", mode, user, group);
    close(open("bits", O_CREAT | O_TRUNC | O_RDWR, 0600));
    chown("bits", ANN, TEAM);
    for (int which = 0; which < CHANGES; which++) {
        int status;
        chmod("bits", mode);
        pid_t child = fork_clean();
        if (child == 0) {
            setgroups(0, NULL);
            setresgid(group, group, group);
            setresuid(user, user, user);
            _exit(!change(which));
        }
        waitpid(child, &status, 0);
        stat("bits", &it);
        printf(" %s%o", status == 0 ? "" : "not ", it.st_mode & 07777);
    }
    printf("; %ld bytes\n", (long)it.st_size);
}

static void owner(const char *name, unsigned mode)
{
    close(open(name, O_CREAT | O_RDWR, 0600));
    chown(name, ANN, TEAM);
    chmod(name, mode);
    TRY(chown(name, ANN, TEAM));
    show_file(name);
    chmod(name, mode);
    TRY(chown(name, BOB, -1));
    show_file(name);
}

int main(void)
{
    int ended = begin_in_place(0755);
    if (ended)
        return ended;
    make_directory("all", 0777, ANN);
    make_directory("more", 0777, ANN);
    make_directory("all/anns", 0755, ANN);
    make_directory("all/beside", 0755, ANN);
    make_directory("all/open", 0777, ANN);
    make_directory("more/bobs", 0755, BOB);
    make_directory("more/full", 0755, BOB);
    make_directory("more/full/below", 0755, BOB);
    close(open("more/file", O_CREAT | O_RDWR, 0600));
    close(open("all/file", O_CREAT | O_RDWR, 0600));
    chown("all/file", ANN, ANN);
    as(BOB, moves);
    show_file("all/anns/../beside");
    static const unsigned modes[] = {06777, 04666, 02767, 02777, 02666, 06766, 0666};
    for (unsigned at = 0; at < sizeof modes / sizeof *modes; at++) {
        changed_by(BOB, BOB, modes[at]);
        changed_by(ANN, ANN, modes[at]);
        changed_by(ANN, TEAM, modes[at]);
        changed_by(0, 0, modes[at]);
    }
    owner("set", 06755);
    owner("unset", 06644);
    owner("plain", 0644);
    chdir("/");
    return 0;
}
