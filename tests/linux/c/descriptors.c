/* dup, dup2, dup3, fcntl; offsets shared by fork and dup; limits. */
#include "check.h"

int main(void)
{
    int file = open("file", O_CREAT | O_RDWR | O_TRUNC, 0600);
    SHOW(write(file, "0123456789", 10));
    int copy = dup(file);
    SHOW(copy > file);
    SHOW(lseek(copy, 3, SEEK_SET));
    char text[20] = "";
    SHOW(read(file, text, 2));
    puts(text);
    pid_t child = fork_clean();
    if (child == 0) {
        lseek(file, 7, SEEK_SET);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    SHOW(lseek(copy, 0, SEEK_CUR));
    SHOW(lseek(file, -1, SEEK_END));
    TRY(lseek(file, -100, SEEK_SET));
    TRY(lseek(file, 0, 99));
    SHOW(lseek(file, 100, SEEK_SET));
    SHOW(write(file, "x", 1));
    SHOW(pread(file, text, 5, 50));
    SHOW(text[0]);
    SHOW(pwrite(file, "PP", 2, 1));
    SHOW(lseek(file, 0, SEEK_CUR));

    TRY(dup2(file, 20));
    TRY(dup2(20, 20));
    TRY(dup2(99, 20));
    TRY(dup2(99, 99));
    TRY(dup2(file, -1));
    TRY(dup3(file, file, 0));
    TRY(dup3(file, 21, O_CLOEXEC));
    SHOW(fcntl(21, F_GETFD));
    SHOW(fcntl(20, F_GETFD));
    TRY(dup3(file, 22, O_APPEND));
    TRY(fcntl(file, F_DUPFD, 30));
    TRY(fcntl(file, F_DUPFD_CLOEXEC, 30));
    SHOW(fcntl(31, F_GETFD));
    TRY(fcntl(99, F_GETFD));
    TRY(fcntl(file, 9999));
    SHOW(fcntl(file, F_SETFL, O_APPEND));
    SHOW((fcntl(copy, F_GETFL) & O_APPEND) != 0);
    SHOW(lseek(file, 0, SEEK_SET));
    SHOW(write(copy, "end", 3));
    SHOW(lseek(file, 0, SEEK_CUR));
    TRY(close(99));
    TRY(close(-1));
    TRY(read(99, text, 1));
    TRY(write(file, text, 0));
    SHOW(open("other", O_CREAT | O_WRONLY, 0600));
    TRY(open("other", O_CREAT | O_EXCL | O_WRONLY, 0600));
    TRY(open("other", O_DIRECTORY));
    TRY(open(".", O_WRONLY));
    TRY(open("none", O_RDONLY));
    TRY(open("other/x", O_RDONLY));
    TRY(open("", O_RDONLY));
    struct stat status;
    SHOW(fstat(file, &status));
    SHOW(status.st_size);
    SHOW(status.st_nlink);
    SHOW(S_ISREG(status.st_mode));
    SHOW(unlink("file"));
    SHOW(fstat(file, &status));
    SHOW(status.st_nlink);
    SHOW(ftruncate(file, 4));
    SHOW(lseek(file, 0, SEEK_END));
    TRY(ftruncate(99, 0));

    struct rlimit limit = {40, RLIM_INFINITY};
    TRY(setrlimit(RLIMIT_NOFILE, &limit));
    limit = (struct rlimit){40, (1 << 20) + 1};
    TRY(setrlimit(RLIMIT_NOFILE, &limit));
    limit = (struct rlimit){40, 40};
    SHOW(setrlimit(RLIMIT_NOFILE, &limit));
    TRY(dup2(file, 40));
    TRY(fcntl(file, F_DUPFD, 40));
    int last = 0, next;
    while ((next = dup(file)) >= 0)
        last = next;
    SHOW(errno == EMFILE);
    SHOW(last);
    int ends[2];
    TRY(pipe(ends));
    SHOW(syscall(SYS_close_range, 3, ~0U, 0));
    SHOW(dup(1));
    return 0;
}
