/* Extended attributes: of files that have none, with names that no file system knows. What copies
 * files asks for them and goes by the answers. */
#include "check.h"
#include <sys/xattr.h>

static char bytes[64];

static void by_name(const char *path)
{
    printf("%s\n", path);
    TRY(listxattr(path, bytes, sizeof bytes));
    TRY(llistxattr(path, NULL, 0));
    TRY(getxattr(path, "strange.name", bytes, sizeof bytes));
    TRY(lgetxattr(path, "strange.name", NULL, 0));
    TRY(setxattr(path, "strange.name", "1", 1, 0));
    TRY(lsetxattr(path, "strange.name", "1", 1, 0));
    TRY(removexattr(path, "strange.name"));
    TRY(lremovexattr(path, "strange.name"));
}

static void by_descriptor(int fd)
{
    TRY(flistxattr(fd, bytes, sizeof bytes));
    TRY(fgetxattr(fd, "strange.name", bytes, sizeof bytes));
    TRY(fsetxattr(fd, "strange.name", "1", 1, 0));
    TRY(fremovexattr(fd, "strange.name"));
}

int main(void)
{
    char template[] = "/tmp/extended-XXXXXX";
    if (!mkdtemp(template) || chdir(template))
        return 1;
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    if (symlink("missing", "dangling"))
        return 1;
    by_name("file");
    by_name(".");
    by_name("missing");
    by_name("dangling");
    by_name("file/below");
    by_name("");
    by_descriptor(fd);
    by_descriptor(open("file", O_PATH));
    by_descriptor(-1);
    unlink("file");
    unlink("dangling");
    return rmdir(template);
}
