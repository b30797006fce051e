/* sendfile(2) that finds no room is followed by an edge when there is some again (epoll(7)); the
 * owner of a terminal may give it the group that it has (chown(2)). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char bytes[1 << 16];

static int next_edge(int watch)
{
    struct epoll_event event;
    return epoll_wait(watch, &event, 1, 2000);
}

static void fill_and_drain(int from_file)
{
    int ends[2];
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends);
    int file = open("sendfile_edges.tmp", O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(file, bytes, 30000);
    int watch = epoll_create1(0);
    struct epoll_event asked = {.events = EPOLLOUT | EPOLLET};
    epoll_ctl(watch, EPOLL_CTL_ADD, ends[1], &asked);
    printf("first %d\n", next_edge(watch));
    ssize_t done = 1;
    while (done > 0) {
        lseek(file, 0, SEEK_SET);
        done = from_file ? sendfile(ends[1], file, NULL, 30000) : write(ends[1], bytes, 30000);
    }
    printf("full: %s\n", strerror(errno));
    while (read(ends[0], bytes, sizeof bytes) > 0)
        ;
    printf("room again %d\n", next_edge(watch));
    off_t before = -1;
    ssize_t got = sendfile(ends[1], file, &before, 100);
    printf("before the file: %zd %s\n", got, got < 0 ? strerror(errno) : "");
    close(watch);
    close(file);
    close(ends[0]);
    close(ends[1]);
    unlink("sendfile_edges.tmp");
}

static void own_terminal(void)
{
    pid_t child = fork();
    if (child == 0) {
        setgroups(0, NULL);
        setgid(65534);
        setuid(65534);
        int master = posix_openpt(O_RDWR | O_NOCTTY);
        struct stat seen;
        stat(ptsname(master), &seen);
        int same = chown(ptsname(master), -1, seen.st_gid);
        printf("the group that it has: %d\n", same);
        int other = chown(ptsname(master), -1, 1234);
        printf("another one: %d %s\n", other, strerror(errno));
        exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    fill_and_drain(0);
    fill_and_drain(1);
    own_terminal();
    return 0;
}
