/* What one process changes in names and files, the next look of another shows: nothing that a
   library keeps of earlier looks may be seen. Each look is made twice before the change, so that
   there is something to keep. */
#include "check.h"

static char place[64];

/* Runs a step in another process. */
static void other(void (*step)(void))
{
    pid_t child = fork_clean();
    if (child == 0) {
        step();
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void put(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text))
        printf("%s: not written\n", path);
    close(file);
}

static void look_once(const char *path, int print)
{
    struct stat about;
    char bytes[32] = "";
    if (stat(path, &about)) {
        if (print)
            printf("%s: %s\n", path, strerrorname_np(errno));
        return;
    }
    int file = open(path, O_RDONLY);
    ssize_t count = -1;
    if (file >= 0) {
        count = read(file, bytes, sizeof bytes - 1);
        bytes[count < 0 ? 0 : count] = 0;
        struct stat open_file;
        if (fstat(file, &open_file) || open_file.st_ino != about.st_ino)
            printf("%s: name and open file differ\n", path);
        close(file);
    }
    if (print)
        printf("%s: mode %o, %ld links, %ld bytes, %s %s\n", path, about.st_mode,
               S_ISDIR(about.st_mode) ? 0 : (long)about.st_nlink,
               S_ISDIR(about.st_mode) ? 0 : (long)about.st_size,
               file < 0 ? "not opened" : "reads", bytes);
}

static void look(const char *path)
{
    look_once(path, 1);
}

/* Looks at a path twice, lets another process do something, looks again. */
static void change(const char *path, const char *what, void (*step)(void))
{
    look_once(path, 0);
    look_once(path, 0);
    other(step);
    printf("%s: ", what);
    look(path);
}

static void set_mode(void) { chmod("f", 0600); }
static void grow(void)
{
    int file = open("f", O_WRONLY | O_APPEND);
    if (write(file, "-more", 5) != 5)
        puts("not grown");
    close(file);
}
static void overwrite(void)
{
    int file = open("f", O_WRONLY);
    if (pwrite(file, "NEW", 3, 0) != 3)
        puts("not written");
    close(file);
}
static void cut(void) { truncate("f", 2); }
static void empty(void) { close(open("f", O_WRONLY | O_TRUNC)); }
static void fill(void) { put("f", "filled"); }
static void one_more_name(void) { link("f", "second"); }
static void replace(void) { put("g", "another"); rename("g", "f"); }
static void remove_it(void) { unlink("f"); }
static void make_again(void) { put("f", "again"); }
static void move_directory(void) { rename("d", "e"); }
static void move_back(void) { rename("e", "d"); }
static void retarget(void) { unlink("l"); symlink("d/y", "l"); }
static void swap(void) { syscall(SYS_renameat2, AT_FDCWD, "d/x", AT_FDCWD, "d/y", 2); }
static void hide(void) { chmod("d", 0700); }
static void show_again(void) { chmod("d", 0755); }
static void hide_file(void) { chmod("d/x", 0600); }
static void give_away(void) { chown("d/x", 1000, 1000); }

static void names(void)
{
    put("f", "text");
    change("f", "mode", set_mode);
    change("f", "appended", grow);
    change("f", "overwritten", overwrite);
    change("f", "cut", cut);
    change("f", "emptied", empty);
    change("f", "filled", fill);
    change("f", "linked", one_more_name);
    change("f", "replaced", replace);
    change("f", "removed", remove_it);
    change("f", "made again", make_again);
    mkdir("d", 0755);
    put("d/x", "first");
    put("d/y", "second");
    change("d/x", "its directory moved", move_directory);
    look("e/x");
    change("d/x", "moved back", move_back);
    change("d/x", "swapped", swap);
    symlink("d/x", "l");
    change("l", "another target", retarget);
}

/* The same as somebody who is not the superuser. Whoever cannot become somebody else, on the
   machine compared with, says what there is to see; the guest always can. */
static void permissions(void)
{
    static const struct {
        void (*step)(void);
        int error;
    } steps[] = {{hide, EACCES}, {show_again, 0}, {hide_file, 0}, {give_away, 0}};
    int report[2], answer[2];
    char byte, bytes[8];
    fflush(stdout);
    if (pipe(report) || pipe(answer))
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        close(report[1]);
        for (unsigned at = 0; at < 4 && read(report[0], &byte, 1) == 1; at++) {
            steps[at].step();
            if (write(answer[1], "d", 1) != 1)
                _exit(1);
        }
        _exit(0);
    }
    int is_super = geteuid() == 0;
    if (is_super && (setegid(1000) || seteuid(1000)))
        puts("still the superuser");
    for (unsigned at = 0; at < 4; at++) {
        look_once("d/x", 0);
        look_once("d/x", 0);
        int kept = open("d/x", O_RDONLY);
        if (write(report[1], "g", 1) != 1 || read(answer[0], &byte, 1) != 1)
            puts("nobody answers");
        struct stat about;
        int error = stat("d/x", &about) ? errno : 0;
        int file = open("d/x", O_RDONLY);
        /* From the third step on only the owner reads: root, then 1000. */
        int opens = at == 1 || at == 3;
        if (is_super && error != steps[at].error)
            printf("step %u: stat: error %d\n", at, error);
        if (is_super && (file >= 0) != opens)
            printf("step %u: open: %d\n", at, file);
        close(file);
        /* What was open stays so. */
        if (is_super && at != 1 && at != 3 && (kept < 0 || pread(kept, bytes, 5, 0) != 5))
            printf("step %u: the open file cannot be read\n", at);
        close(kept);
    }
    if (is_super && (seteuid(0) || setegid(0)))
        puts("not the superuser again");
    waitpid(child, NULL, 0);
    puts("permissions looked at");
}

static char block[8192];

static void many_others(void)
{
    memset(block, 'z', sizeof block);
    for (int at = 0; at < 20; at++) {
        char name[8];
        snprintf(name, sizeof name, "o%d", at);
        int file = open(name, O_WRONLY | O_CREAT, 0644);
        if (write(file, block, sizeof block) != sizeof block)
            puts("not written");
        close(file);
    }
}

static void without_others(void)
{
    for (int at = 0; at < 20; at++) {
        char name[8];
        snprintf(name, sizeof name, "o%d", at);
        unlink(name);
    }
}

static int tally(int file, char wanted)
{
    int count = 0;
    ssize_t got = pread(file, block, sizeof block, 0);
    for (ssize_t at = 0; at < got; at++)
        count += block[at] == wanted;
    return count;
}

/* A file that is open keeps what it has, by whatever others get its name or its memory. */
static void open_files(void)
{
    memset(block, 'a', sizeof block);
    int made = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SHOW(write(made, block, sizeof block) == sizeof block);
    close(made);
    int file = open("f", O_RDONLY), again = open("f", O_RDWR);
    SHOW(tally(file, 'a'));
    SHOW(tally(file, 'a'));
    other(remove_it);
    other(many_others);
    SHOW(tally(file, 'a'));
    struct stat about;
    SHOW(fstat(file, &about));
    SHOW(about.st_nlink);
    SHOW(ftruncate(again, 5000));
    other(without_others);
    other(many_others);
    SHOW(tally(file, 'a'));
    SHOW(ftruncate(again, 8192));
    SHOW(tally(file, 'a'));
    SHOW(tally(file, 0));
    SHOW(pwrite(again, "b", 1, 6000));
    SHOW(tally(file, 'b'));
    SHOW(tally(again, 'z'));
    SHOW(ftruncate(again, 0));
    SHOW(pread(file, block, 10, 0));
    close(file);
    close(again);
    other(without_others);
    int after = open("f", O_RDWR | O_CREAT | O_EXCL, 0644);
    SHOW(after >= 0);
    SHOW(ftruncate(after, 8192));
    SHOW(tally(after, 0));
    close(after);
}

static int warm;

/* Reads often enough that whoever keeps pages of the file keeps them by now. */
static void read_often(void)
{
    for (int at = 0; at < 8; at++)
        (void)!pread(warm, block, sizeof block, 0);
}

static void overwrite_far(void)
{
    int file = open("f", O_WRONLY);
    (void)!pwrite(file, "FAR", 3, 5000);
    close(file);
}
static void cut_far(void) { truncate("f", 5001); }
static void grow_far(void) { truncate("f", 8192); }
static void cut_near(void) { truncate("f", 100); }
static void fill_hole(void)
{
    int file = open("f", O_WRONLY);
    (void)!pwrite(file, "hole", 4, 8000);
    close(file);
}

/* What is read again and again changes as others change it. */
static void read_often_and_changed(void)
{
    void (*steps[])(void) = {overwrite_far, cut_far, grow_far, cut_near, many_others,
                             grow_far, fill_hole, without_others, empty, many_others, remove_it};
    memset(block, 'a', sizeof block);
    warm = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    (void)!write(warm, block, sizeof block);
    for (unsigned at = 0; at < sizeof steps / sizeof *steps; at++) {
        read_often();
        other(steps[at]);
        memset(block, 0x55, sizeof block);
        long count = pread(warm, block, sizeof block, 0);
        unsigned sum = 0;
        for (long byte = 0; byte < count; byte++)
            sum = sum * 31 + (unsigned char)block[byte];
        printf("after step %u: %ld bytes, sum %u, behind %d\n", at, count, sum,
               count < (long)sizeof block ? block[count] : 0);
        (void)!lseek(warm, 4998, SEEK_SET);
        char bytes[8] = "";
        count = read(warm, bytes, 5);
        printf("          %ld: %s, then at %ld\n", count, bytes, (long)lseek(warm, 0, SEEK_CUR));
    }
    close(warm);
    other(without_others);
}

/* A child goes on with what its parent opened and has closed, though it has no name any more. */
static void inherited_files(void)
{
    int go[2];
    char byte;
    int file = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (pipe(go) || write(file, "inherited", 9) != 9)
        puts("not made");
    close(file);
    file = open("f", O_RDONLY);
    pid_t child = fork_clean();
    if (child == 0) {
        char bytes[16] = "";
        (void)!read(go[0], &byte, 1);
        printf("child: %ld %s\n", (long)pread(file, bytes, 9, 0), bytes);
        fflush(stdout);
        _exit(0);
    }
    close(file);
    unlink("f");
    many_others();
    without_others();
    (void)!write(go[1], "g", 1);
    waitpid(child, NULL, 0);
    close(go[0]);
    close(go[1]);
}

/* More open files than a page lists. */
static void many_open_files(void)
{
    int files[40];
    char name[8], bytes[8];
    for (int at = 0; at < 40; at++) {
        snprintf(name, sizeof name, "m%d", at);
        files[at] = open(name, O_RDWR | O_CREAT, 0644);
        if (write(files[at], name, 4) != 4)
            puts("not written");
        unlink(name);
    }
    many_others();
    without_others();
    int right = 0;
    for (int at = 0; at < 40; at++) {
        snprintf(name, sizeof name, "m%d", at);
        right += pread(files[at], bytes, 4, 0) == 4 && !memcmp(bytes, name, 3);
        close(files[at]);
    }
    SHOW(right);
}

static void more_of_it(void)
{
    usleep(20000);
    int file = open("f", O_WRONLY);
    if (pwrite(file, "c", 1, 0) != 1)
        puts("not written");
    close(file);
}

static int later(struct timespec one, struct timespec other)
{
    return one.tv_sec > other.tv_sec ||
           (one.tv_sec == other.tv_sec && one.tv_nsec > other.tv_nsec);
}

/* Times: a read is noted if it is the first since a change; a write always. */
static void times(void)
{
    struct stat before, now;
    put("f", "abc");
    int file = open("f", O_RDONLY);
    usleep(20000);
    (void)!pread(file, block, 3, 0);
    fstat(file, &before);
    SHOW(later(before.st_atim, before.st_mtim));
    usleep(20000);
    (void)!pread(file, block, 3, 0);
    stat("f", &now);
    SHOW(later(now.st_atim, before.st_atim));
    other(more_of_it);
    stat("f", &now);
    SHOW(later(now.st_mtim, before.st_mtim));
    SHOW(later(now.st_ctim, before.st_ctim));
    SHOW(later(now.st_atim, before.st_atim));
    usleep(20000);
    (void)!pread(file, block, 3, 0);
    SHOW(block[0]);
    fstat(file, &now);
    SHOW(later(now.st_atim, now.st_mtim));
    close(file);
}

int main(void)
{
    snprintf(place, sizeof place, "/tmp/stale-%d", getpid());
    if (mkdir(place, 0755) || chdir(place)) {
        puts("no place");
        return 1;
    }
    umask(022);
    names();
    permissions();
    other(remove_it);
    open_files();
    read_often_and_changed();
    inherited_files();
    many_open_files();
    times();
    /* By its whole path, as before. */
    static char path[80];
    snprintf(path, sizeof path, "%s/f", place);
    struct stat about;
    SHOW(stat(path, &about));
    SHOW(stat(path, &about));
    other(remove_it);
    TRY(stat(path, &about));
    return 0;
}
