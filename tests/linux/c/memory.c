/* mmap, munmap, mprotect, mremap, brk: what they answer and what the memory then does. */
#include "check.h"
#include <setjmp.h>

#define PAGE 4096UL

static sigjmp_buf back;

static void faulted(int number, siginfo_t *info, void *context)
{
    (void)context;
    siglongjmp(back, number * 100 + info->si_code);
}

/* 0 if the byte can be read; signal * 100 + code if not. */
static int probe_read(const volatile char *byte)
{
    int how = sigsetjmp(back, 1);
    if (how == 0)
        (void)*byte;
    return how;
}

static int probe_write(volatile char *byte)
{
    int how = sigsetjmp(back, 1);
    if (how == 0)
        *byte = 'w';
    return how;
}

static int probe_run(void *code)
{
    int how = sigsetjmp(back, 1);
    if (how == 0)
        ((void (*)(void))code)();
    return how;
}

static char *map(size_t length, int protection)
{
    return mmap(NULL, length, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void remapping(void)
{
    char *old = map(4 * PAGE, PROT_READ | PROT_WRITE);
    strcpy(old, "kept");
    strcpy(old + 3 * PAGE, "tail");
    char *grown = mremap(old, 4 * PAGE, 100 * PAGE, MREMAP_MAYMOVE);
    SHOW(grown != MAP_FAILED);
    printf("%s %s %d\n", grown, grown + 3 * PAGE, grown[99 * PAGE]);
    char *shrunk = mremap(grown, 100 * PAGE, PAGE, 0);
    SHOW(shrunk == grown);
    SHOW(probe_read(grown + PAGE));
    char *place = map(2 * PAGE, PROT_NONE);
    char *moved = mremap(shrunk, PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    SHOW(moved == place);
    puts(moved);
    SHOW(probe_read(shrunk));
    TRY(mremap(place, 0, PAGE, 0));
    TRY(mremap(place + 1, PAGE, PAGE, 0));
}

/* A file that is one long hole, longer than the machine's memory, is mapped: what nobody reads takes none. */
static void holes(void)
{
    size_t length = 300UL << 20;
    int file = open("hole", O_CREAT | O_RDWR | O_TRUNC, 0600);
    SHOW(pwrite(file, "end", 3, length - 3));
    char *hole = mmap(NULL, length, PROT_READ, MAP_PRIVATE, file, 0);
    SHOW(hole != MAP_FAILED);
    if (hole != MAP_FAILED) {
        SHOW(hole[length / 2]);
        printf("%.3s\n", hole + length - 3);
        SHOW(munmap(hole, length));
    }
    close(file);
    unlink("hole");
}

/* Who is told so relies on it that a child finds zeros, or nothing (random numbers are kept so): a system may say
 * that it knows no such advice. */
static int broken_promise(char *page, int advice)
{
    int status;
    *page = 7;
    int promised = madvise(page, PAGE, advice) == 0;
    pid_t child = fork_clean();
    if (child == 0) {
        unsigned char there;
        _exit(promised && mincore(page, PAGE, &there) == 0 && *page != 0);
    }
    waitpid(child, &status, 0);
    return status;
}

/* Who drops the pages of a file finds the file's content there again; a system may say that it drops none. */
static void drops_pages_of_files(void)
{
    int file = open("dropped", O_CREAT | O_RDWR, 0600);
    char bytes[2 * PAGE];
    memset(bytes, 'f', sizeof bytes);
    write(file, bytes, sizeof bytes);
    char *shown = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, file, 0);
    TRY(madvise(shown, 2 * PAGE, MADV_DONTNEED));
    printf("shown: %.2s %.2s\n", shown, shown + PAGE);
    char *own = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    own[PAGE] = 'o';
    int dropped = madvise(own, 2 * PAGE, MADV_DONTNEED) == 0;
    printf("own: %.2s, as promised: %d\n", own, own[PAGE] == (dropped ? 'f' : 'o'));
    SHOW(munmap(shown, 2 * PAGE));
    SHOW(munmap(own, 2 * PAGE));
    close(file);
    unlink("dropped");
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = faulted, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);

    char *area = map(8 * PAGE, PROT_READ | PROT_WRITE);
    SHOW(area[5 * PAGE]);
    SHOW(mprotect(area + 2 * PAGE, PAGE, PROT_READ));
    SHOW(probe_read(area + 2 * PAGE));
    SHOW(probe_write(area + 2 * PAGE));
    SHOW(mprotect(area + 3 * PAGE, PAGE, PROT_NONE));
    SHOW(probe_read(area + 3 * PAGE));
    SHOW(probe_write(area + 4 * PAGE));
    SHOW(munmap(area + 4 * PAGE, PAGE));
    SHOW(probe_read(area + 4 * PAGE));
    TRY(mprotect(area, 8 * PAGE, PROT_READ));
    TRY(munmap(area + 4 * PAGE, PAGE));
    TRY(munmap(area + 1, PAGE));
    TRY(munmap(area, 0));
    SHOW(probe_write(NULL));
    SHOW(probe_read((char *)0x7ffffffff000));
    SHOW(probe_read((char *)0xffffffff80000000));
    SHOW(probe_read((char *)0x8000000000000000));

    unsigned char *code = (unsigned char *)map(PAGE, PROT_READ | PROT_WRITE);
    code[0] = 0xc3;
    SHOW(probe_run(code));
    mprotect(code, PAGE, PROT_READ | PROT_EXEC);
    SHOW(probe_run(code));

    char *fixed = mmap(area, PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    SHOW(fixed == area);
    SHOW(area[0]);
    TRY(mmap(area, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    TRY(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    TRY(mmap(NULL, PAGE, PROT_READ, MAP_ANONYMOUS, -1, 0));
    TRY(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, 99, 0));
    TRY(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, 1, 1));
    TRY(mmap(NULL, 1UL << 60, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    remapping();

    int file = open("mapped", O_CREAT | O_RDWR, 0600);
    SHOW(write(file, "contents of the file", 20));
    char *text = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    printf("%.20s\n", text);
    SHOW(text[20]);
    text[0] = 'C';
    char again[8] = "";
    SHOW(pread(file, again, 7, 0));
    puts(again);
    SHOW(munmap(text, 2 * PAGE));

    /* What shows a file that was opened for reading is not made writable. */
    int reader = open("mapped", O_RDONLY);
    text = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, reader, 0);
    TRY(mprotect(text, PAGE, PROT_READ | PROT_WRITE));
    TRY(mprotect(text, PAGE, PROT_NONE));
    TRY(mprotect(text, 2 * PAGE, PROT_WRITE));
    TRY(mprotect(text, 2 * PAGE, PROT_READ));
    printf("%.8s\n", text);
    SHOW(munmap(text, 2 * PAGE));
    TRY(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, reader, 0));
    text = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, reader, 0);
    TRY(mprotect(text, PAGE, PROT_READ | PROT_WRITE));
    SHOW(munmap(text, PAGE));
    close(reader);

    holes();
    drops_pages_of_files();

    char *start = sbrk(0);
    SHOW(brk(start + 10 * PAGE));
    SHOW((char *)sbrk(0) - start);
    strcpy(start + 9 * PAGE, "heap");
    puts(start + 9 * PAGE);
    SHOW(brk(start));
    SHOW(brk(start + 10 * PAGE));
    SHOW(start[9 * PAGE]); /* given back and taken again: zero */
    SHOW(madvise(area, PAGE, MADV_DONTNEED));
    SHOW(area[0]);
    TRY(msync(area, PAGE, MS_SYNC));
    SHOW(broken_promise(map(PAGE, PROT_READ | PROT_WRITE), MADV_WIPEONFORK));
    SHOW(broken_promise(map(PAGE, PROT_READ | PROT_WRITE), MADV_DONTFORK));
    SHOW(broken_promise(map(PAGE, PROT_READ | PROT_WRITE), MADV_NORMAL));
    TRY(madvise(area, PAGE, 77));
    return 0;
}
