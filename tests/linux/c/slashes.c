/* Slashes behind a last name that is a link: what makes, moves or takes away a name goes where the path says, not
 * where another user's link leads. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <sys/un.h>

/* A number that no user of a host has. */
enum { ANN = 61000 };

/* Ann's links in a place where all make names; none of what they name is hers to change. */
static void leave(void)
{
    TRY(symlink("../roots/new", "shared/new"));
    TRY(symlink("../roots/held", "shared/held"));
    TRY(symlink("../roots/file", "shared/file"));
    TRY(symlink("round", "shared/round"));
}

static void look(void)
{
    SHOW(access("roots/new", F_OK));
    SHOW(access("roots/held", F_OK));
    SHOW(access("roots/file", F_OK));
}

static int bound(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, name);
    return bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&address, sizeof address);
}

static void makes(void)
{
    TRY(mkdir("shared/new/", 0755));
    TRY(mkdir("shared/new//", 0755));
    TRY(mkdir("shared/held/", 0755));
    TRY(mkdir("shared/round/", 0755));
    TRY(mkfifo("shared/new/", 0644));
    TRY(mknod("shared/new/", S_IFREG | 0644, 0));
    TRY(symlink("x", "shared/new/"));
    TRY(link("roots/file", "shared/new/"));
    TRY(bound("shared/new/"));
    TRY(open("shared/new/", O_CREAT | O_WRONLY, 0644));
    TRY(open("shared/new/", O_CREAT | O_EXCL | O_WRONLY, 0644));
    TRY(open("shared/held/", O_CREAT | O_RDONLY, 0644));
    TRY(open("shared/file/", O_CREAT | O_RDONLY, 0644));
    look();
}

static void takes_away(void)
{
    TRY(rmdir("shared/held/"));
    TRY(unlink("shared/held/"));
    TRY(unlink("shared/file/"));
    TRY(unlink("shared/new/"));
    TRY(rename("shared/held/", "shared/moved"));
    TRY(rename("shared/file/", "shared/moved"));
    TRY(rename("roots/held", "shared/new/"));
    TRY(rename("roots/held", "shared/held/"));
    TRY(rename("roots/file", "shared/new/"));
    look();
}

/* What is no link, or looks and does not change, is as without slashes. */
static void others(void)
{
    struct stat it;
    char target[64];
    TRY(mkdir("made/", 0755));
    TRY(rename("made/", "again/"));
    TRY(rmdir("again/"));
    TRY(mkfifo("made/", 0644));
    TRY(mknod("made/", S_IFREG | 0644, 0));
    TRY(bound("made/"));
    TRY(access("made", F_OK));
    TRY(lstat("shared/held/", &it));
    SHOW(it.st_mode & S_IFMT);
    TRY(lstat("shared/file/", &it));
    TRY(readlink("shared/held/", target, sizeof target));
    TRY(open("shared/held/", O_RDONLY | O_NOFOLLOW | O_DIRECTORY) >= 0);
    TRY(open("shared/held", O_RDONLY | O_NOFOLLOW | O_DIRECTORY));
    TRY(open("shared/held", O_RDONLY | O_NOFOLLOW));
    TRY(link("shared/file/", "made"));
}

int main(void)
{
    int status = begin_in_place(0755);
    if (status)
        return status;
    mkdir("shared", 01777);
    mkdir("roots", 0755);
    mkdir("roots/held", 0755);
    close(open("roots/file", O_CREAT | O_RDWR, 0644));
    as(ANN, leave);
    makes();
    takes_away();
    /* Where no name is protected, as not each host protects them. */
    chmod("shared", 0777);
    others();
    return 0;
}
