/* Whose groups decide: those of the set and the effective one, whatever else may be taken back. Group 0
 * is a group like others. Run as root, which both systems' tests are. */
#define _GNU_SOURCE
#include "check.h"
#include "users.h"

enum { ANN = 61000, BOB = 61001, TEAM = 61500, CREW = 61501 };

static void make(const char *name, unsigned mode, unsigned group)
{
    close(open(name, O_CREAT | O_WRONLY, 0600));
    chown(name, BOB, group);
    chmod(name, mode);
}

static void look(const char *what)
{
    printf("-- %s\n", what);
    TRY(open("teams", O_RDONLY) >= 0);
    TRY(open("crews", O_RDONLY) >= 0);
    TRY(open("zeros", O_RDONLY) >= 0);
    TRY(chdir("rooms") || chdir(".."));
    TRY(access("teams", R_OK)); /* by the real ids */
    TRY(faccessat(AT_FDCWD, "teams", R_OK, AT_EACCESS));
    TRY(chown("own", -1, TEAM));
    TRY(chown("own", -1, 0));
    TRY(chmod("own", 02755));
    struct stat it;
    stat("own", &it);
    printf("%o of %u\n", it.st_mode, it.st_gid);
}

static void try_to_execute(const char *file)
{
    int status;
    char *arguments[] = {(char *)file, "executed", NULL};
    pid_t child = fork_clean();
    if (child == 0) {
        execv(file, arguments);
        printf("%s: %s\n", file, strerrorname_np(errno));
        fflush(stdout);
        _exit(1);
    }
    waitpid(child, &status, 0);
    show_status(file, status);
}

/* What these ids and this set may do, in a child. */
static void with(const char *what, const gid_t *gids, const uid_t *uids, int count, const gid_t *set)
{
    int status;
    pid_t child = fork_clean();
    if (child == 0) {
        TRY(setgroups(count, set));
        TRY(setresgid(gids[0], gids[1], gids[2]));
        TRY(setresuid(uids[0], uids[1], uids[2]));
        close(open("own", O_CREAT | O_WRONLY, 0600));
        look(what);
        try_to_execute("./teams-set-id");
        unlink("own");
        _exit(0);
    }
    waitpid(child, &status, 0);
    show_status(what, status);
    unlink("own");
}

static void group_zero(void)
{
    static const uid_t ann[] = {ANN, ANN, ANN};
    static const gid_t own[] = {ANN, ANN, ANN}, zero[] = {0, 0, 0}, saved[] = {ANN, ANN, 0};
    static const gid_t none[] = {0}, team[] = {TEAM};
    with("no member", own, ann, 0, NULL);
    with("of group 0", zero, ann, 0, NULL);
    with("group 0 saved", saved, ann, 0, NULL);
    with("group 0 in the set", own, ann, 1, none);
    with("the team in the set", own, ann, 1, team);
    with("of group 0, the team in the set", zero, ann, 1, team);
    with("the team in the set, group 0 saved", saved, ann, 1, team);
}

static void dropped_for_a_while(void)
{
    static const uid_t saved[] = {ANN, ANN, 0}, real[] = {0, ANN, ANN}, both[] = {0, ANN, 0};
    static const gid_t own[] = {ANN, ANN, ANN}, team[] = {TEAM, TEAM, TEAM}, set[] = {TEAM};
    static const gid_t real_team[] = {TEAM, ANN, ANN}, saved_team[] = {ANN, ANN, TEAM};
    static const gid_t effective_team[] = {ANN, TEAM, ANN}, zero[] = {0, 0, 0};
    static const gid_t saved_zero[] = {0, ANN, 0};
    with("user 0 saved", own, saved, 0, NULL);
    with("user 0 real", own, real, 0, NULL);
    with("user 0 real and saved", saved_zero, both, 0, NULL);
    with("user 0 saved, its group", zero, saved, 0, NULL);
    with("user 0 saved, of the team", team, saved, 0, NULL);
    with("user 0 saved, the team in the set", own, saved, 1, set);
    with("user 0 saved, really of the team", real_team, saved, 0, NULL);
    with("user 0 saved, of the team later", saved_team, saved, 0, NULL);
    with("user 0 saved, of the team now", effective_team, saved, 0, NULL);
}

/* Without user 0 the same: a group counts while it is the effective one. */
static void groups_alone(void)
{
    static const uid_t ann[] = {ANN, ANN, ANN};
    static const gid_t real_team[] = {TEAM, ANN, ANN}, saved_team[] = {ANN, ANN, TEAM};
    static const gid_t effective_team[] = {ANN, TEAM, ANN};
    with("really of the team", real_team, ann, 0, NULL);
    with("of the team later", saved_team, ann, 0, NULL);
    with("of the team now", effective_team, ann, 0, NULL);
}

/* What group 0 gives of groups and ids: nothing. */
static void take(void)
{
    static const gid_t team[] = {TEAM};
    setgroups(0, NULL);
    setresgid(0, 0, 0);
    setresuid(ANN, ANN, ANN);
    TRY(setgid(TEAM));
    TRY(setegid(TEAM));
    TRY(setregid(TEAM, TEAM));
    TRY(setresgid(TEAM, TEAM, TEAM));
    TRY(setgroups(1, team));
    TRY(setgroups(0, NULL));
    TRY(setuid(0));
    TRY(setgid(0));
    SHOW(getegid());
}

/* And back: who saved user 0 becomes it again, with its groups. */
static void back(void)
{
    static const gid_t team[] = {TEAM};
    setgroups(0, NULL);
    TRY(setresgid(ANN, ANN, ANN));
    TRY(seteuid(ANN));
    TRY(open("teams", O_RDONLY) >= 0);
    TRY(setegid(TEAM));
    TRY(seteuid(0));
    TRY(open("teams", O_RDONLY) >= 0);
    TRY(setgroups(1, team));
    TRY(seteuid(ANN));
    TRY(open("teams", O_RDONLY) >= 0);
    TRY(seteuid(0));
    TRY(setegid(0));
    TRY(setgroups(0, NULL));
    TRY(setgid(TEAM));
    TRY(seteuid(ANN));
    TRY(open("teams", O_RDONLY) >= 0);
    TRY(open("crews", O_RDONLY) >= 0);
}

int main(int count, char **arguments)
{
    char place[] = "/tmp/members-XXXXXX";
    if (count > 1) {
        printf("%s: %d of %d\n", arguments[1], geteuid(), getegid());
        return 0;
    }
    if (geteuid() != 0)
        return 77;
    umask(0);
    if (!mkdtemp(place) || chdir(place) || chmod(".", 0777))
        return 1;
    make("teams", 0040, TEAM);
    make("crews", 0040, CREW);
    make("zeros", 0040, 0);
    copy("teams-set-id", 04510, BOB, TEAM);
    mkdir("rooms", 0700);
    chown("rooms", BOB, TEAM);
    chmod("rooms", 0010);
    group_zero();
    dropped_for_a_while();
    groups_alone();
    as(0, take);
    as(0, back);
    chdir("/");
    return 0;
}
