/* A mount whose set-id bits count for nothing. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

enum { ANN = 61000, BOB = 61001, TEAM = 61002 };

static const char mount_point[] = "/mnt";

static int program(void)
{
    unsigned r, e, s;
    getresuid(&r, &e, &s);
    printf("users %u %u %u", r, e, s);
    getresgid(&r, &e, &s);
    printf(" groups %u %u %u secure %lu dumpable %d\n", r, e, s, getauxval(AT_SECURE),
           prctl(PR_GET_DUMPABLE));
    fflush(stdout);
    _exit(3);
}

static void run(const char *file)
{
    int status;
    char *arguments[] = {"it", NULL};
    printf("-- %s\n", file);
    waitpid(execute(BOB, file, arguments, environ), &status, 0);
    show_status("it", status);
}

/* What the system says of the mount: its flag, and its line in the table. */
static void flags(void)
{
    struct statvfs by_path, by_descriptor;
    char line[256];
    int fd = open("/mnt/in/anns", O_PATH);
    statvfs(mount_point, &by_path);
    fstatvfs(fd, &by_descriptor);
    close(fd);
    printf("nosuid: %d %d\n", (by_path.f_flag & ST_NOSUID) != 0,
           (by_descriptor.f_flag & ST_NOSUID) != 0);
    FILE *table = fopen("/proc/self/mounts", "r");
    while (fgets(line, sizeof line, table))
        if (strstr(line, " /mnt tmpfs "))
            printf("table: %d\n", strstr(line, "nosuid") != NULL);
    fclose(table);
}

static void all(void)
{
    struct stat seen;
    flags();
    run("/mnt/in/anns");
    run("/mnt/in/teams");
    run("/mnt/in/both");
    run("/mnt/in/hidden");
    stat("/mnt/in/both", &seen);
    printf("mode %o\n", seen.st_mode);
}

static void others(void)
{
    TRY(mount(NULL, mount_point, NULL, MS_REMOUNT, NULL));
    TRY(mount(NULL, mount_point, NULL, MS_REMOUNT | MS_NOSUID, NULL));
    TRY(link("/mnt/in/both", "/tmp/nosuid-link"));
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 1 || strchr(argv[0], '/') == NULL)
        return program();
    if (geteuid() != 0)
        return 77;
    umask(0);
    /* On Linux a mount of the test's own. */
    if (access("/xok", F_OK) && (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)
                                 || mount("none", mount_point, "tmpfs", 0, NULL)))
        return 77;
    mkdir("/mnt/in", 0755);
    copy("/mnt/in/anns", 04755, ANN, ANN);
    copy("/mnt/in/teams", 02755, 0, TEAM);
    copy("/mnt/in/both", 06755, ANN, TEAM);
    copy("/mnt/in/hidden", 04711, ANN, TEAM);
    all();
    TRY(mount(NULL, mount_point, NULL, MS_REMOUNT | MS_NOSUID, NULL));
    all();
    as(BOB, others);
    TRY(mount(NULL, "/mnt/in", NULL, MS_REMOUNT | MS_NOSUID, NULL));
    TRY(mount(NULL, "/mnt/in/anns", NULL, MS_REMOUNT | MS_NOSUID, NULL));
    TRY(mount(NULL, "/mnt/none", NULL, MS_REMOUNT | MS_NOSUID, NULL));
    all();
    TRY(mount(NULL, mount_point, NULL, MS_REMOUNT, NULL));
    all();
    unlink("/mnt/in/anns");
    unlink("/mnt/in/teams");
    unlink("/mnt/in/both");
    unlink("/mnt/in/hidden");
    rmdir("/mnt/in");
    return 0;
}
