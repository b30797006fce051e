/* Flags that a call does not know are an error, and an empty path may mean the descriptor. */
#include "check.h"
#include "users.h"

enum { ANN = 1000, UNKNOWN = 0x7000000 };

static struct stat status;
static struct statx extended;
static int pipes[2];

static int access_of(int fd, const char *path, int mode, int flags)
{
    return syscall(SYS_faccessat2, fd, path, mode, flags);
}

static int status_of(int fd, const char *path, int flags)
{
    return syscall(SYS_newfstatat, fd, path, &status, flags);
}

static int times_of(int fd, const char *path, const struct timespec *times, int flags)
{
    return syscall(SYS_utimensat, fd, path, times, flags);
}

static int extended_of(const char *path, int flags, unsigned mask)
{
    return syscall(SYS_statx, AT_FDCWD, path, flags, mask, &extended);
}

static void as_ann(void)
{
    int fd = open("roots", O_PATH);
    TRY(access_of(fd, "", R_OK, AT_EMPTY_PATH));
    TRY(access_of(fd, "", R_OK | W_OK, AT_EMPTY_PATH));
    TRY(access_of(fd, "", X_OK, AT_EMPTY_PATH | AT_EACCESS));
    TRY(access_of(AT_FDCWD, "", X_OK, AT_EMPTY_PATH));
    TRY(access_of(AT_FDCWD, "", W_OK, AT_EMPTY_PATH));
}

int main(void)
{
    int failed = begin_in_place(0755);
    if (failed)
        return failed;
    int file = open("roots", O_CREAT | O_RDWR, 0644);
    int place = open("roots", O_PATH);
    (void)!pipe(pipes);
    symlink("nowhere", "link");

    TRY(status_of(AT_FDCWD, "roots", UNKNOWN));
    TRY(status_of(AT_FDCWD, "roots", AT_SYMLINK_FOLLOW));
    TRY(status_of(AT_FDCWD, "roots", AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC));
    TRY(status_of(AT_FDCWD, "link", AT_SYMLINK_NOFOLLOW));
    TRY(status_of(place, "", AT_EMPTY_PATH));
    TRY(status_of(AT_FDCWD, "absent", UNKNOWN));

    TRY(extended_of("roots", UNKNOWN, STATX_BASIC_STATS));
    TRY(extended_of("roots", AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, STATX_BASIC_STATS));
    TRY(extended_of("roots", AT_STATX_FORCE_SYNC, STATX_BASIC_STATS));
    TRY(extended_of("roots", 0, 0x80000000));
    TRY(extended_of("roots", 0, 0x40000000));
    TRY(extended_of("link", AT_SYMLINK_NOFOLLOW, 0));

    TRY(fchownat(AT_FDCWD, "roots", 0, 0, 9999));
    TRY(fchownat(AT_FDCWD, "roots", 0, 0, AT_SYMLINK_FOLLOW));
    TRY(fchownat(AT_FDCWD, "link", 0, 0, AT_SYMLINK_NOFOLLOW));
    TRY(fchownat(file, "", 0, 0, AT_EMPTY_PATH));

    TRY(access_of(AT_FDCWD, "roots", R_OK, UNKNOWN));
    TRY(access_of(AT_FDCWD, "roots", R_OK, AT_SYMLINK_FOLLOW));
    TRY(access_of(AT_FDCWD, "link", F_OK, AT_SYMLINK_NOFOLLOW));
    TRY(access_of(AT_FDCWD, "link", F_OK, 0));
    TRY(access_of(place, "", R_OK, AT_EMPTY_PATH));
    TRY(access_of(place, "", X_OK, AT_EMPTY_PATH));
    TRY(access_of(file, "", W_OK, AT_EMPTY_PATH));
    TRY(access_of(pipes[0], "", R_OK, AT_EMPTY_PATH));
    TRY(access_of(99, "", R_OK, AT_EMPTY_PATH));
    TRY(access_of(place, "", R_OK, 0));
    as(ANN, as_ann);

    struct timespec omitted[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    TRY(times_of(AT_FDCWD, "roots", NULL, 0x8000000));
    TRY(times_of(AT_FDCWD, "roots", NULL, AT_SYMLINK_FOLLOW));
    TRY(times_of(AT_FDCWD, "roots", NULL, AT_SYMLINK_NOFOLLOW));
    TRY(times_of(file, "", NULL, AT_EMPTY_PATH));
    TRY(times_of(file, NULL, NULL, AT_EMPTY_PATH));
    TRY(times_of(file, NULL, NULL, 0));
    TRY(times_of(AT_FDCWD, NULL, NULL, 0));
    TRY(times_of(AT_FDCWD, "absent", omitted, 0x8000000));
    return 0;
}
