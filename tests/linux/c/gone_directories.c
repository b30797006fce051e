/* A working directory that was taken away: it has no path, nothing is made in it, and what has its name now is
 * something else. */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>

static void other_takes_away(const char *directory)
{
    pid_t child = fork_clean();
    if (child == 0)
        _exit(rmdir(directory) != 0);
    int status;
    waitpid(child, &status, 0);
    show_status("taken away", status);
}

static void look(void)
{
    char path[256] = "";
    struct stat it;
    TRY(getcwd(path, sizeof path) ? 0 : -1);
    TRY(syscall(SYS_getcwd, path, 1));
    TRY(stat(".", &it));
    SHOW(S_ISDIR(it.st_mode));
    TRY(open("new", O_CREAT | O_WRONLY, 0600) >= 0);
    TRY(mkdir("new", 0700));
    TRY(access("here", F_OK));
}

int main(void)
{
    char place[] = "/tmp/gone-XXXXXX", path[256];
    if (!mkdtemp(place) || chdir(place))
        return 1;
    mkdir("d", 0700);
    TRY(chdir("d"));
    TRY(getcwd(path, sizeof path) ? 0 : -1);
    SHOW(strcmp(path + strlen(place), "/d"));
    snprintf(path, sizeof path, "%s/d", place);
    DIR *open_before = opendir(".");
    other_takes_away(path);
    look();
    errno = 0;
    SHOW(readdir(open_before) == NULL);
    SHOW(syscall(SYS_getdents64, dirfd(open_before), path, sizeof path) == -1 && errno == ENOENT);
    closedir(open_before);
    snprintf(path, sizeof path, "%s/d", place);
    /* Another one of that name. */
    TRY(mkdir(path, 0700));
    strcat(path, "/here");
    close(open(path, O_CREAT | O_WRONLY, 0600));
    look();
    TRY(chdir(place));
    TRY(getcwd(path, sizeof path) ? 0 : -1);
    SHOW(strcmp(path, place));
    return 0;
}
