/* What a descriptor that stands for a place in the tree of files (O_PATH) is good for, and what
 * not. */
#include "check.h"
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>

/* Most of what is tried is refused alike: that is counted. */
#undef TRY
#define TRY(call)                                                              \
    do {                                                                       \
        errno = 0;                                                             \
        long result_ = (long)(call);                                           \
        if (result_ == -1 && errno == EBADF)                                   \
            refused++;                                                         \
        else                                                                   \
            printf("%s = %ld, %s\n", #call, result_, strerrorname_np(errno));  \
    } while (0)

static char bytes[64];
static int refused;

static void data(int fd, int other)
{
    struct iovec piece = {bytes, 4};
    off_t zero = 0;
    TRY(read(fd, bytes, 4));
    TRY(read(fd, bytes, 0));
    TRY(pread(fd, bytes, 4, 0));
    TRY(readv(fd, &piece, 1));
    TRY(preadv(fd, &piece, 1, 0));
    TRY(write(fd, bytes, 4));
    TRY(write(fd, bytes, 0));
    TRY(pwrite(fd, bytes, 4, 0));
    TRY(writev(fd, &piece, 1));
    TRY(pwritev(fd, &piece, 1, 0));
    TRY(lseek(fd, 0, SEEK_SET));
    TRY(lseek(fd, 0, SEEK_CUR));
    TRY(syscall(SYS_getdents64, fd, bytes, sizeof bytes));
    TRY(sendfile(other, fd, &zero, 4));
    TRY(sendfile(fd, other, &zero, 4));
    TRY(ftruncate(fd, 0));
    TRY(fallocate(fd, 0, 0, 10));
    TRY(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0);
    TRY(posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL));
    TRY(readahead(fd, 0, 10));
}

static void changes(int fd)
{
    TRY(fchmod(fd, 0600));
    TRY(fchown(fd, -1, -1));
    TRY(fchown(fd, geteuid(), getegid()));
    TRY(futimens(fd, NULL));
    TRY(fsync(fd));
    TRY(fdatasync(fd));
    TRY(syncfs(fd));
}

static void control(int fd)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int count;
    TRY(ioctl(fd, FIONREAD, &count));
    TRY(ioctl(fd, FIOCLEX));
    TRY(ioctl(fd, FIONBIO, &count));
    TRY(ioctl(fd, TCGETS, bytes));
    TRY(flock(fd, LOCK_SH));
    TRY(flock(fd, LOCK_UN));
    TRY(flock(fd, 77));
    TRY(fcntl(fd, F_SETLK, &lock));
    TRY(fcntl(fd, F_GETLK, &lock));
    TRY(fcntl(fd, F_SETFL, O_NONBLOCK));
    TRY(fcntl(fd, F_GETPIPE_SZ));
    TRY(fcntl(fd, F_SETPIPE_SZ, 4096));
    TRY(fcntl(fd, F_GETOWN));
    TRY(fcntl(fd, F_SETOWN, getpid()));
    TRY(fcntl(fd, F_GETSIG));
    TRY(fcntl(fd, F_GETLEASE));
    printf("%o\n", fcntl(fd, F_GETFL) & (O_PATH | O_NONBLOCK | O_DIRECTORY | O_ACCMODE));
    TRY(fcntl(fd, F_SETFD, FD_CLOEXEC));
    TRY(fcntl(fd, F_GETFD));
    TRY(fcntl(fd, F_SETFD, 0));
    TRY(accept(fd, NULL, NULL));
    TRY(listen(fd, 1));
    TRY(send(fd, bytes, 1, 0));
}

static void waits(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN | POLLOUT};
    struct epoll_event event = {.events = EPOLLIN};
    fd_set set;
    struct timeval none = {0};
    int watcher = epoll_create1(0);
    TRY(poll(&one, 1, 0));
    printf("%x\n", one.revents);
    FD_ZERO(&set);
    FD_SET(fd, &set);
    TRY(select(fd + 1, &set, NULL, NULL, &none));
    TRY(epoll_ctl(watcher, EPOLL_CTL_ADD, fd, &event));
    close(watcher);
}

static void allowed(int fd, const char *name)
{
    struct stat it;
    struct statfs space;
    int copy;
    TRY(fstat(fd, &it));
    printf("%o\n", it.st_mode & S_IFMT);
    TRY(fstatat(fd, "", &it, AT_EMPTY_PATH));
    TRY(fstatfs(fd, &space));
    TRY((copy = dup(fd)) >= 0);
    TRY(close(copy));
    TRY((copy = fcntl(fd, F_DUPFD, 20)) >= 20);
    TRY(read(copy, bytes, 1));
    TRY(close(copy));
    if (name[0] != '/') /* in /dev and /proc nothing is given away here */
        TRY(fchownat(fd, "", -1, -1, AT_EMPTY_PATH));
    TRY(fstatat(fd, "file", &it, 0));
    TRY(fchdir(fd));
    TRY(chdir("/tmp"));
    char way[64];
    snprintf(way, sizeof way, "/proc/self/fd/%d", fd);
    TRY((copy = open(way, O_RDONLY | O_NONBLOCK)) >= 0);
    close(copy);
}

static void all(const char *name, int flags, int other)
{
    int fd = open(name, O_PATH | flags);
    printf("%s: %s\n", name, fd < 0 ? strerrorname_np(errno) : "there");
    data(fd, other);
    changes(fd);
    control(fd);
    waits(fd);
    allowed(fd, name);
    TRY(close(fd));
    TRY(close(fd));
    printf("%d refused\n", refused);
}

int main(void)
{
    char place[] = "/tmp/paths-XXXXXX", name[64];
    if (!mkdtemp(place))
        return 1;
    snprintf(name, sizeof name, "%s/other", place);
    int other = open(name, O_CREAT | O_RDWR, 0600);
    write(other, "0123456789", 10);
    chdir(place);
    close(open("file", O_CREAT | O_RDWR, 0644));
    write(open("file", O_WRONLY), "content", 7);
    symlink("file", "link");
    mkfifo("pipe", 0600);
    mkdir("within", 0700);
    static const struct { const char *name; int flags; } what[] = {
        {"file", 0},          {"file", O_RDWR | O_TRUNC | O_APPEND}, {"link", O_NOFOLLOW},
        {"within", O_DIRECTORY}, {"pipe", O_NONBLOCK},               {"/dev/null", O_RDWR},
        {"/proc/self/status", 0}, {"/etc/passwd", 0},
    };
    for (unsigned at = 0; at < sizeof what / sizeof *what; at++) {
        chdir(place);
        all(what[at].name, what[at].flags, other);
    }
    chdir(place);
    struct stat it;
    stat("file", &it);
    printf("%o, %ld bytes\n", it.st_mode, (long)it.st_size);
    chdir("/");
    return 0;
}
