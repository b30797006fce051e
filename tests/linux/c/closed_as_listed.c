/* A program closes its descriptors, or deletes files, while it lists them by a small buffer: none is left out. */
#include "check.h"
#include <dirent.h>

enum { MANY = 60 };

/* Goes through `name` with room for few entries at a time, and does away with each that is one of ours. */
static int clear(const char *name, int (*away)(int directory, const char *entry))
{
    int directory = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char bytes[sizeof(struct dirent64)];
    int calls = 0;
    for (long got; (got = syscall(SYS_getdents64, directory, bytes, sizeof bytes)) > 0; calls++)
        for (long at = 0; at < got;) {
            struct dirent64 *entry = (void *)(bytes + at);
            at += entry->d_reclen;
            if (entry->d_name[0] != '.')
                away(directory, entry->d_name);
        }
    close(directory);
    return calls;
}

static int close_it(int directory, const char *entry)
{
    int fd = atoi(entry);
    return fd > 2 && fd != directory ? close(fd) : 0;
}

static int delete_it(int directory, const char *entry)
{
    return unlinkat(directory, entry, 0);
}

static int left_open(int from, int to)
{
    int open = 0;
    for (int fd = from; fd < to; fd++)
        open += fcntl(fd, F_GETFD) != -1;
    return open;
}

static int count_entries(const char *name)
{
    DIR *directory = opendir(name);
    int count = 0;
    while (readdir(directory))
        count++;
    closedir(directory);
    return count - 2;
}

int main(void)
{
    for (int fd = 10; fd < 10 + MANY; fd++)
        dup2(0, fd);
    SHOW(left_open(10, 10 + MANY));
    SHOW(clear("/proc/self/fd", close_it) > 1);
    SHOW(left_open(10, 10 + MANY));

    /* What a program executes finds what was left. */
    for (int fd = 10; fd < 10 + MANY; fd += 7)
        dup2(0, fd);
    closefrom(3);
    SHOW(left_open(3, 10 + MANY));

    /* A place in the list stays that descriptor's when another one goes. */
    for (int fd = 10; fd < 14; fd++)
        dup2(0, fd);
    DIR *list = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(list)) && strcmp(entry->d_name, "11");)
        ;
    long place = telldir(list);
    close(10);
    seekdir(list, place);
    printf("behind 11: %s\n", readdir(list)->d_name);
    closedir(list);

    mkdir("full", 0700);
    for (int at = 0; at < MANY; at++) {
        char name[20];
        sprintf(name, "full/%d", at);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    SHOW(count_entries("full"));
    SHOW(clear("full", delete_it) > 1);
    SHOW(count_entries("full"));
    TRY(rmdir("full"));
    return 0;
}
