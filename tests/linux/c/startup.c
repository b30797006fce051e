/* What a program finds when it starts: stack, auxiliary vector, descriptors, identity. */
#include "check.h"
#include <elf.h>
#include <link.h>

extern char **environ;
static const ElfW(Phdr) *headers;

int main(int count, char **words)
{
    SHOW(count);
    SHOW(words[count] == NULL);
    unsigned long *at = (unsigned long *)(words - 1);
    SHOW((long)*at == count);
    SHOW((uintptr_t)at % 16);
    SHOW((char **)(words + count + 1) == environ);
    unsigned long *entry = (unsigned long *)environ;
    while (*entry)
        entry++;
    Elf64_auxv_t *vector = (Elf64_auxv_t *)(entry + 1);
    const int wanted[] = {AT_PHDR, AT_PHENT, AT_PHNUM, AT_PAGESZ, AT_ENTRY,  AT_UID,
                          AT_EUID, AT_GID,   AT_EGID,  AT_SECURE, AT_RANDOM, AT_EXECFN,
                          AT_HWCAP, AT_CLKTCK, AT_PLATFORM, AT_SYSINFO_EHDR, AT_BASE, AT_FLAGS};
    for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int found = 0;
        for (Elf64_auxv_t *one = vector; one->a_type != AT_NULL; one++)
            found |= one->a_type == (unsigned long)wanted[i];
        printf("entry %d: %d\n", wanted[i], found);
    }
    long entries = 1;
    for (Elf64_auxv_t *one = vector; one->a_type != AT_NULL; one++)
        entries++;
    Elf64_auxv_t told[64];
    struct stat attributes;
    int file = open("/proc/self/auxv", O_RDONLY);
    ssize_t length = read(file, told, sizeof told);
    SHOW(length >= (long)sizeof *vector && length % (long)sizeof *vector == 0);
    SHOW(length > 0 && memcmp(told, vector, entries * sizeof *vector) == 0);
    SHOW(fstat(file, &attributes));
    SHOW(attributes.st_mode);
    close(file);
    headers = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    SHOW(getauxval(AT_PHENT) == sizeof *headers);
    SHOW(getauxval(AT_PAGESZ));
    SHOW(getauxval(AT_CLKTCK));
    SHOW(getauxval(AT_BASE));
    SHOW(getauxval(AT_SECURE));
    SHOW(getauxval(AT_UID) == getuid());
    const char *platform = (char *)getauxval(AT_PLATFORM);
    puts(platform ? platform : "no platform");
    const char *name = (char *)getauxval(AT_EXECFN);
    SHOW(strcmp(name, words[0]));
    const unsigned char *random = (unsigned char *)getauxval(AT_RANDOM);
    int bits = 0;
    for (int i = 0; i < 16; i++)
        bits |= random[i];
    SHOW(bits != 0);
    int loads = 0, stacks = 0;
    for (unsigned long i = 0; i < getauxval(AT_PHNUM); i++) {
        loads += headers[i].p_type == PT_LOAD;
        stacks += headers[i].p_type == PT_GNU_STACK;
    }
    SHOW(loads > 1);
    SHOW(stacks);
    const Elf64_Ehdr *page = (Elf64_Ehdr *)getauxval(AT_SYSINFO_EHDR);
    SHOW(page ? memcmp(page->e_ident, ELFMAG, SELFMAG) : -1);

    for (int i = 0; i < 3; i++)
        SHOW(fcntl(i, F_GETFD));
    struct utsname system;
    SHOW(uname(&system));
    puts(system.sysname);
    puts(system.machine);
    struct timespec one, two;
    SHOW(clock_gettime(CLOCK_MONOTONIC, &one));
    SHOW(clock_gettime(CLOCK_MONOTONIC, &two));
    SHOW(two.tv_sec > one.tv_sec || (two.tv_sec == one.tv_sec && two.tv_nsec >= one.tv_nsec));
    SHOW(time(NULL) > 1700000000);
    struct timespec real;
    SHOW(clock_gettime(CLOCK_REALTIME, &real));
    SHOW(real.tv_sec - time(NULL) <= 1);
    SHOW(clock_getres(CLOCK_MONOTONIC, &one));
    SHOW(getrlimit(RLIMIT_STACK, &(struct rlimit){0}));
    SHOW(prctl(PR_SET_NAME, "another"));
    char own[16] = "";
    SHOW(prctl(PR_GET_NAME, own));
    puts(own);
    char *deep = __builtin_alloca(4 << 20); /* the stack grows by touching it */
    for (long i = (4 << 20) - 1; i >= 0; i -= 4096)
        deep[i] = 1;
    SHOW(deep[4095]);
    return 0;
}
