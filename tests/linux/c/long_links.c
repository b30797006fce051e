/* Symbolic links that lead far: their longest targets are looked at, read, followed, moved and removed as short
 * ones are, also by who removes what another user has left. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <ftw.h>

/* A number that no user of a host has. */
enum { ANN = 61000 };

/* A path of so many bytes to the file "aim". */
static const char *target_of(int bytes)
{
    static char path[5000];
    memset(path, '/', bytes);
    for (int at = 0; at + 1 < bytes - 3; at += 2)
        path[at] = '.';
    memcpy(path + bytes - 3, "aim", 4);
    return path;
}

static void link_of(int bytes)
{
    char read_back[5000];
    struct stat it;
    printf("%d bytes\n", bytes);
    TRY(symlink(target_of(bytes), "places/link"));
    TRY(lstat("places/link", &it));
    SHOW(it.st_size);
    TRY(readlink("places/link", read_back, sizeof read_back));
    SHOW(strncmp(read_back, target_of(bytes), bytes));
    TRY(open("places/link", O_RDONLY) >= 0);
    TRY(open("places/link", O_RDONLY | O_NOFOLLOW));
    TRY(stat("places/link/more", &it));
    TRY(rename("places/link", "places/moved"));
    TRY(access("places/moved", F_OK));
    TRY(unlink("places/moved"));
}

static void links(void)
{
    static const int lengths[] = {3, 255, 3903, 3904, 3905, 4000, 4090, 4094, 4095, 4096};
    for (unsigned at = 0; at < sizeof lengths / sizeof *lengths; at++)
        link_of(lengths[at]);
}

static void leave(void)
{
    TRY(mkdir("places/anns", 0755));
    TRY(symlink(target_of(4095), "places/anns/long"));
}

static int take_away(const char *path, const struct stat *it, int kind, struct FTW *at)
{
    (void)it, (void)at;
    printf("%s: %s %s\n", path, kind == FTW_SL || kind == FTW_SLN ? "link" : "directory",
           remove(path) ? strerrorname_np(errno) : "removed");
    return 0;
}

int main(void)
{
    int status = begin_in_place(0755);
    if (status)
        return status;
    mkdir("places", 0777);
    close(open("aim", O_CREAT | O_RDWR, 0644));
    close(open("places/aim", O_CREAT | O_RDWR, 0644));
    as(ANN, links);
    as(ANN, leave);
    TRY(nftw("places/anns", take_away, 8, FTW_DEPTH | FTW_PHYS)); /* as `rm -r` does */
    TRY(rmdir("places/anns"));
    return 0;
}
