/* A child that borrows its parent's memory executes a program of the file server: what the parent
   does with files works before and afterwards. */
#include "check.h"

extern char **environ;

static char *const arguments[] = {"twin", "end", NULL};

int main(int count, char **words)
{
    if (count > 1 && words[1])
        return 7;
    static char bytes[1 << 16];
    int from = open("/proc/self/exe", O_RDONLY), to = open("twin", O_CREAT | O_WRONLY, 0755);
    ssize_t got;
    /* In small pieces, which need no wide way to the file server. */
    while ((got = read(from, bytes, 1024)) > 0)
        if (write(to, bytes, got) != got)
            return 1;
    close(from);
    close(to);
    int file = open("file", O_CREAT | O_RDWR, 0600);
    for (int i = 0; i < 3; i++) {
        int status;
        pid_t child;
        if (i == 1) {
            child = vfork();
            if (child == 0) {
                _exit(read(open("twin", O_RDONLY), bytes, sizeof bytes) == sizeof bytes ? 9 : 8);
            }
        } else {
            SHOW(posix_spawn(&child, "./twin", NULL, NULL, arguments, environ));
        }
        TRY(write(file, "written", 7));
        TRY(lseek(file, 0, SEEK_SET));
        TRY(read(file, bytes, 20));
        TRY(mkdir("directory", 0700));
        TRY(rmdir("directory"));
        waitpid(child, &status, 0);
        show_status("child", status);
    }
    return 0;
}
