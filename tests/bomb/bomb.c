/* One user takes all it gets: processes without end, memory, descriptors. Another one runs a program;
 * user 0 ends all that the first one has. A static program for the guest.
 *
 *   bomb attack USER       forks without end, and has two children that take memory and descriptors
 *   bomb as USER PROGRAM   runs it as that user
 *   bomb end USER          ends all processes of the user's; "ended" when none is left
 *   bomb free [FRAMES]     the machine's free pages, once servers that start have what they take;
 *                          with FRAMES, waits until there are as many
 *   bomb count USER        how many processes the user has
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

/* Is there when there is no room for one more process. */
#define FULL "/tmp/full"
/* Its name before that, and one for a trial. */
#define NOT_FULL "/tmp/room"
#define TRIAL "/tmp/roo_"

enum { HOG_BYTES = 1 << 30, PAGE = 4096, PATIENCE_S = 60, SLACK_PAGES = 128, STILL = 50 };

static void become(unsigned user)
{
    if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user)) {
        perror("become");
        exit(1);
    }
}

/* A gibibyte, each page of it written, again and again. */
static void hog(void)
{
    volatile char *all = mmap(NULL, HOG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (unsigned char turn = 1;; turn++)
        for (size_t at = 0; all != MAP_FAILED && at < HOG_BYTES; at += PAGE)
            all[at] = turn;
}

/* All descriptors there are, of a kind that takes room elsewhere: pipes. */
static void descriptors(void)
{
    int ends[2];
    for (;;)
        if (pipe(ends) && errno != EMFILE && errno != ENFILE && errno != ENOMEM)
            perror("pipe");
}

static void or_die(int failed, const char *call)
{
    if (failed) {
        perror(call);
        exit(1);
    }
}

/* A process that gives the file its name at SIGUSR1. A process whose fork fails has no page left for a
 * request to the file server; this one has made the same request before there were others. */
static pid_t herald(void)
{
    int ready[2], signal;
    char byte = 0;
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGUSR1);
    or_die(sigprocmask(SIG_BLOCK, &awaited, NULL) || pipe(ready), "herald");
    pid_t self = fork();
    or_die(self < 0, "fork");
    if (self != 0) {
        or_die(read(ready[0], &byte, 1) != 1 || close(ready[0]) || close(ready[1]), "herald");
        return self;
    }
    or_die(close(open(NOT_FULL, O_WRONLY | O_CREAT, 0600)), "open");
    or_die(rename(NOT_FULL, TRIAL) || rename(TRIAL, NOT_FULL), "rename");
    or_die(write(ready[1], &byte, 1) != 1 || sigwait(&awaited, &signal), "herald");
    or_die(rename(NOT_FULL, FULL), "rename");
    exit(0);
}

static void attack(unsigned user)
{
    become(user);
    pid_t told = herald();
    if (fork() == 0)
        hog();
    if (fork() == 0)
        descriptors();
    for (;;)
        if (fork() < 0)
            kill(told, SIGUSR1);
}

/* The user's processes that have not ended, but for this one. */
static int processes(unsigned user)
{
    int count = 0;
    struct dirent *one;
    DIR *all = opendir("/proc");
    while (all && (one = readdir(all))) {
        char name[300], text[512];
        char state = 'Z';
        unsigned real = user + 1;
        if (atoi(one->d_name) <= 0 || atoi(one->d_name) == getpid())
            continue;
        snprintf(name, sizeof name, "/proc/%s/status", one->d_name);
        int file = open(name, O_RDONLY);
        ssize_t bytes = file < 0 ? -1 : read(file, text, sizeof text - 1);
        close(file);
        text[bytes < 0 ? 0 : bytes] = 0;
        char *line = strstr(text, "State:"), *uid = strstr(text, "Uid:");
        if (line && uid && sscanf(line, "State: %c", &state) == 1 && sscanf(uid, "Uid: %u", &real) == 1)
            count += real == user && state != 'Z';
    }
    closedir(all);
    return count;
}

/* As the user, whose processes alone it may signal then; user 0 still pays for it. */
static int end(unsigned user)
{
    int count = processes(user);
    if (setresuid(user, user, 0)) {
        perror("setresuid");
        return 1;
    }
    /* One that is being made is not there yet, and is there afterwards: none is seen three times. */
    struct timespec while_ = { .tv_nsec = 10 * 1000 * 1000 };
    for (int quiet = 0; quiet < 3; nanosleep(&while_, NULL)) {
        kill(-1, SIGKILL);
        quiet = processes(user) ? 0 : quiet + 1;
    }
    printf("ended\r\n%d processes\r\n", count);
    return count <= 0;
}

static unsigned long free_pages(void)
{
    struct sysinfo now;
    return sysinfo(&now) ? 0 : now.freeram * now.mem_unit / PAGE;
}

static int show_free(unsigned long least)
{
    struct timespec while_ = { .tv_nsec = 10 * 1000 * 1000 };
    time_t began = time(NULL);
    if (least == 0) {
        /* The first program runs while the last servers start: the figure is one that nothing has gone below
         * for a while. Servers take and give back a page now and then. */
        unsigned long lowest = ~0UL, now;
        for (int still = 0; still < STILL; nanosleep(&while_, NULL)) {
            now = free_pages();
            still = now < lowest ? 0 : still + 1;
            lowest = now < lowest ? now : lowest;
        }
        return printf("%lu\n", lowest) < 0;
    }
    while (free_pages() + SLACK_PAGES < least && time(NULL) < began + PATIENCE_S)
        nanosleep(&while_, NULL);
    printf("%lu\n", free_pages());
    return free_pages() + SLACK_PAGES < least;
}

int main(int count, char **words)
{
    if (count >= 3 && strcmp(words[1], "attack") == 0)
        attack(atoi(words[2]));
    if (count >= 4 && strcmp(words[1], "as") == 0) {
        become(atoi(words[2]));
        execv(words[3], words + 3);
        perror(words[3]);
        return 1;
    }
    if (count >= 3 && strcmp(words[1], "end") == 0)
        return end(atoi(words[2]));
    if (count >= 3 && strcmp(words[1], "count") == 0)
        return printf("%d left\r\n", processes(atoi(words[2]))) < 0;
    if (count >= 2 && strcmp(words[1], "free") == 0)
        return show_free(count > 2 ? strtoul(words[2], NULL, 10) : 0);
    fprintf(stderr, "bomb attack USER | as USER PROGRAM | end USER | free [PAGES] | count USER\n");
    return 2;
}
