/* Rules of files that programs seldom meet: opening to empty, without a new time of access, paths
 * out of closed directories, descriptors in place of directories, the largest size. Run as root,
 * which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"

enum { ANN = 1000, BOB = 1001 };

static void make(const char *name, unsigned mode, unsigned user)
{
    int fd = open(name, O_CREAT | O_RDWR, 0600);
    write(fd, "content", 7);
    close(fd);
    chown(name, user, user);
    chmod(name, mode);
}

static void show_size(const char *name)
{
    struct stat it;
    stat(name, &it);
    printf("%s: %ld bytes\n", name, (long)it.st_size);
}

/* Who opens a file to empty it writes it, whatever else he opens it for. */
static void empties(void)
{
    char byte;
    int fd;
    TRY(open("readable", O_RDONLY | O_TRUNC));
    show_size("readable");
    TRY((fd = open("both", O_RDONLY | O_TRUNC)) >= 0);
    show_size("both");
    TRY(write(fd, "x", 1));
    TRY(ftruncate(fd, 5));
    TRY(read(fd, &byte, 1));
    TRY(close(fd));
    TRY(open("writable", O_RDONLY | O_TRUNC));
    show_size("writable");
    TRY(open(".", O_RDONLY | O_TRUNC));
    TRY((fd = open("made", O_CREAT | O_RDONLY | O_TRUNC, 0)) >= 0);
    TRY(open("made", O_CREAT | O_RDONLY | O_TRUNC, 0));
    TRY(close(fd));
    TRY(unlink("made"));
    TRY(open("pipe", O_RDONLY | O_TRUNC | O_NONBLOCK));
    TRY(open("/proc/self/status", O_RDONLY | O_TRUNC));
    TRY((fd = open("/dev/null", O_RDONLY | O_TRUNC)) >= 0);
    TRY(close(fd));
}

/* That a file was read is seen by its owner, unless he likes. */
static void unseen(void)
{
    int fd;
    TRY(open("both", O_RDONLY | O_NOATIME));
    TRY(open("both", O_RDWR | O_NOATIME));
    TRY(open("both", O_RDWR | O_NOATIME | O_TRUNC));
    TRY(open("writable", O_RDONLY | O_NOATIME));
    TRY((fd = open("bobs", O_RDWR | O_NOATIME)) >= 0);
    TRY(fcntl(fd, F_SETFL, O_NOATIME | O_NONBLOCK));
    TRY((fcntl(fd, F_GETFL) & O_NOATIME) != 0);
    TRY(close(fd));
    TRY((fd = open("both", O_RDONLY | O_NOATIME | O_PATH)) >= 0);
    TRY(close(fd));
    TRY((fd = open("both", O_RDONLY)) >= 0);
    TRY(close(fd));
    TRY((fd = open("new", O_CREAT | O_RDWR | O_NOATIME, 0600)) >= 0);
    TRY(close(fd));
    TRY(unlink("new"));
}

/* Also `.` and `..` are looked up. */
static void ways_out(void)
{
    struct stat it;
    int fd;
    TRY(chdir("."));
    TRY(stat(".", &it));
    TRY(stat("..", &it));
    TRY(stat("../both", &it));
    TRY(open("../both", O_RDONLY));
    TRY(open("./within", O_RDONLY));
    TRY(stat("within", &it));
    TRY(mkdir("../below", 0700));
    TRY(rmdir("../below"));
    TRY(symlink("x", "./link"));
    TRY(chdir(".."));
    TRY(fchdir(open("/", O_RDONLY)));
    TRY((fd = open("tmp", O_RDONLY | O_DIRECTORY)) >= 0);
    TRY(fstatat(fd, "..", &it, 0));
    TRY(fstatat(fd, "./..", &it, 0));
}

static void from_a_closed_one(const char *name, unsigned mode, void (*body)(void))
{
    mkdir(name, 0700);
    make("closed/within", 0644, BOB);
    chown(name, BOB, BOB);
    chdir(name);
    chmod(".", mode);
    as(BOB, body);
    chdir("..");
}

/* A descriptor that a path begins at is one of a directory. */
static void no_directories(void)
{
    struct stat it;
    int ends[2], flat = open("both", O_RDONLY), null = open("/dev/null", O_RDWR), which;
    char text[8];
    pipe(ends);
    int fds[] = {flat, open("both", O_PATH), null, ends[0], socket(AF_UNIX, SOCK_STREAM, 0), 99};
    for (unsigned at = 0; at < sizeof fds / sizeof *fds; at++) {
        which = fds[at];
        TRY(openat(which, "name", O_RDONLY));
        TRY(openat(which, "name", O_CREAT | O_RDWR, 0600));
        TRY(openat(which, "name", O_CREAT | O_EXCL | O_RDWR, 0600));
        TRY(unlinkat(which, "name", 0));
        TRY(unlinkat(which, "name", AT_REMOVEDIR));
        TRY(mkdirat(which, "name", 0700));
        TRY(mknodat(which, "name", S_IFIFO | 0600, 0));
        TRY(symlinkat("name", which, "name"));
        TRY(renameat(which, "name", AT_FDCWD, "other"));
        TRY(renameat(AT_FDCWD, "both", which, "other"));
        TRY(linkat(which, "name", AT_FDCWD, "other", 0));
        TRY(linkat(AT_FDCWD, "both", which, "other", 0));
        TRY(fstatat(which, "name", &it, 0));
        TRY(faccessat(which, "name", F_OK, 0));
        TRY(fchmodat(which, "name", 0600, 0));
        TRY(fchownat(which, "name", -1, -1, 0));
        TRY(utimensat(which, "name", NULL, 0));
        TRY(readlinkat(which, "name", text, sizeof text));
        TRY(openat(which, ".", O_RDONLY));
        TRY(openat(which, "", O_RDONLY));
        TRY(fchdir(which));
        TRY(fstatat(which, "/", &it, 0));
    }
}

static void links(void)
{
    char text[8];
    int fd;
    TRY(readlink("", text, sizeof text));
    TRY(readlinkat(AT_FDCWD, "", text, sizeof text));
    TRY((fd = open("name", O_PATH | O_NOFOLLOW)) >= 0);
    TRY(readlinkat(fd, "", text, sizeof text));
    TRY((fd = open("both", O_PATH)) >= 0);
    TRY(readlinkat(fd, "", text, sizeof text));
    TRY(readlinkat(99, "", text, sizeof text));
    TRY(readlink("both", text, sizeof text));
    TRY(readlink("name", text, 0));
    TRY(readlink("", text, 0));
}

static volatile int raised;

static void note(int number __attribute__((unused)))
{
    raised++;
}

/* No file grows beyond RLIMIT_FSIZE; one that is larger may shrink. */
static void sizes(void)
{
    struct rlimit limit = {100, 200};
    int fd = open("long", O_CREAT | O_RDWR, 0600), end;
    ftruncate(fd, 150);
    signal(SIGXFSZ, note);
    setrlimit(RLIMIT_FSIZE, &limit);
    TRY(ftruncate(fd, 151));
    TRY(raised);
    TRY(ftruncate(fd, 150));
    TRY(ftruncate(fd, 140));
    TRY(truncate("long", 141));
    TRY(raised);
    TRY(truncate("long", 90));
    TRY(truncate("long", 100));
    TRY(truncate("long", 101));
    TRY(raised);
    TRY(fallocate(fd, 0, 0, 101));
    TRY(fallocate(fd, 0, 50, 50));
    TRY(fallocate(fd, 0, 50, 51));
    TRY(raised);
    TRY(pwrite(fd, "0123456789", 10, 95));
    TRY(pwrite(fd, "0123456789", 10, 100));
    TRY(raised);
    end = open("long", O_WRONLY | O_APPEND);
    TRY(write(end, "x", 1));
    TRY(raised);
    ftruncate(fd, 98);
    TRY(write(end, "0123456789", 10));
    TRY(write(end, "0123456789", 10));
    TRY(raised);
    show_size("long");
    TRY(fallocate(fd, 0, 0, 0));
    TRY(fallocate(fd, 0, -1, 10));
    TRY(fallocate(fd, 0, 10, -1));
    TRY(fallocate(open("long", O_RDONLY), 0, 0, 10));
    TRY(ftruncate(open("long", O_RDONLY), 10));
    TRY(ftruncate(fd, -1));
    TRY(truncate("long", -1));
    signal(SIGXFSZ, SIG_DFL);
    fflush(stdout);
    ftruncate(fd, 1000);
}

/* The same told through a pipe: what this prints to may be a file, too. */
static void sizes_of_files(void)
{
    char text[512];
    ssize_t count;
    int ends[2], status;
    pipe(ends);
    pid_t child = fork_clean();
    if (child == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        sizes();
        _exit(0);
    }
    close(ends[1]);
    while ((count = read(ends[0], text, sizeof text)) > 0)
        write(1, text, count);
    waitpid(child, &status, 0);
    show_status("ended", status);
}

/* A directory is not made by `open`, also where its attributes have been looked at. */
static void directories_that_are_there(void)
{
    struct stat it;
    mkdir("there", 0755);
    for (int look = 0; look < 3; look++) {
        TRY(open("there", O_CREAT | O_RDONLY, 0644));
        TRY(stat("there", &it));
    }
    TRY(rmdir("there"));
}

/* utime(2), which old C libraries and Go's syscall package call. */
static void times_in_seconds(void)
{
    struct stat status;
    long pair[2] = {1000000000, 1100000000};
    close(open("timed", O_CREAT | O_WRONLY, 0600));
    TRY(syscall(SYS_utime, "timed", pair));
    stat("timed", &status);
    SHOW(status.st_atime);
    SHOW(status.st_mtime);
    TRY(syscall(SYS_utime, "timed", NULL));
    stat("timed", &status);
    SHOW(status.st_mtime > 1700000000);
    TRY(syscall(SYS_utime, "missing", pair));
}

int main(void)
{
    int ended = begin_in_place(0777);
    if (ended)
        return ended;
    make("readable", 0644, ANN);
    make("both", 0666, ANN);
    make("writable", 0622, ANN);
    make("bobs", 0600, BOB);
    mkfifo("pipe", 0644);
    symlink("both", "name");
    as(BOB, empties);
    make("readable", 0644, ANN);
    make("both", 0666, ANN);
    as(0, empties);
    as(BOB, unseen);
    from_a_closed_one("closed", 0, ways_out);
    from_a_closed_one("closed", 0600, ways_out);
    from_a_closed_one("closed", 0100, ways_out);
    chmod(".", 0777);
    as(BOB, no_directories);
    as(0, links);
    as(BOB, links);
    sizes_of_files();
    directories_that_are_there();
    times_in_seconds();
    chdir("/");
    return 0;
}
