/* What Linux has that is nearest to what a kernel like ours offers its programs by itself. */
#define _GNU_SOURCE
#include "bench.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t peer;

static void end_peer(void)
{
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
}

/* ---- two processes that notify each other ---- */

static int notified[2];

static void notify(int of)
{
    uint64_t one = 1;
    must(write(of, &one, sizeof one) == sizeof one, "write to an eventfd");
}

static void wait_for(int of)
{
    uint64_t count;
    must(read(of, &count, sizeof count) == sizeof count, "read of an eventfd");
}

static const char *make_notified(void)
{
    for (unsigned at = 0; at < 2; at++)
        if ((notified[at] = eventfd(0, 0)) < 0)
            return failed("eventfd");
    peer = fork();
    if (peer < 0)
        return failed("fork");
    while (peer == 0) {
        wait_for(notified[0]);
        notify(notified[1]);
    }
    return NULL;
}

static void notify_in_turn(unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        notify(notified[0]);
        wait_for(notified[1]);
    }
}

static void end_notified(void)
{
    end_peer();
    close(notified[0]);
    close(notified[1]);
}

/* ---- a thread that fills missing pages ---- */

#define MISSING_PAGES 100
static int faults = -1;
static char *missing;
static char content[PAGE] __attribute__((aligned(PAGE)));
static pthread_t pager;

static void *fill(void *unused)
{
    struct uffd_msg message;
    while (read(faults, &message, sizeof message) == sizeof message) {
        struct uffdio_copy copy = {
            .dst = message.arg.pagefault.address & ~(PAGE - 1),
            .src = (uintptr_t)content,
            .len = PAGE,
        };
        must(message.event == UFFD_EVENT_PAGEFAULT && ioctl(faults, UFFDIO_COPY, &copy) == 0,
             "UFFDIO_COPY");
    }
    return unused;
}

static const char *watch_missing(void)
{
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (faults < 0)
        return failed("userfaultfd");
    struct uffdio_api api = {.api = UFFD_API};
    missing = mmap(NULL, MISSING_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (missing == MAP_FAILED || ioctl(faults, UFFDIO_API, &api))
        return failed("UFFDIO_API");
    struct uffdio_register range = {
        .range = {.start = (uintptr_t)missing, .len = MISSING_PAGES * PAGE},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    if (ioctl(faults, UFFDIO_REGISTER, &range))
        return failed("UFFDIO_REGISTER");
    errno = pthread_create(&pager, NULL, fill, NULL);
    return errno ? failed("pthread_create") : NULL;
}

static void discard(unsigned operations)
{
    (void)operations;
    must(madvise(missing, MISSING_PAGES * PAGE, MADV_DONTNEED) == 0, "madvise");
}

static void touch_missing(unsigned operations)
{
    for (unsigned page = 0; page < operations; page++)
        ((volatile char *)missing)[page % MISSING_PAGES * PAGE] = 1;
}

static void unwatch(void)
{
    pthread_cancel(pager);
    pthread_join(pager, NULL);
    close(faults);
    munmap(missing, MISSING_PAGES * PAGE);
}

/* ---- a call that downloaded code looks at: eight instructions ---- */

static int to_peer[2], from_peer[2];

static bool filter_calls(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1),
        BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 2),
        BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 3),
        BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xffffff, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    /* Looked at for each call, and not answered from what is known of a call by its number: an
     * argument decides. */
    code[0].k = offsetof(struct seccomp_data, args);
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static const char *make_filtered(void)
{
    unsigned calls = 0;
    if (pipe(to_peer) || pipe(from_peer))
        return failed("pipe");
    peer = fork();
    if (peer < 0)
        return failed("fork");
    if (peer == 0) {
        errno = 0;
        int status = filter_calls() ? 0 : errno ? errno : EINVAL;
        for (;;) {
            if (write(from_peer[1], &status, sizeof status) != sizeof status ||
                read(to_peer[0], &calls, sizeof calls) != sizeof calls)
                _exit(1);
            for (unsigned call = 0; call < calls; call++)
                raw_call(SYS_getppid, 0, 0, 0);
        }
    }
    must(read(from_peer[0], &errno, sizeof errno) == sizeof errno, "the filtered process");
    if (errno) {
        const char *reason = failed("seccomp");
        end_peer();
        return reason;
    }
    return NULL;
}

static void call_filtered(unsigned operations)
{
    int status;
    must(write(to_peer[1], &operations, sizeof operations) == sizeof operations &&
             read(from_peer[0], &status, sizeof status) == sizeof status && status == 0,
         "the filtered process");
}

static void end_filtered(void)
{
    end_peer();
    for (unsigned end = 0; end < 2; end++) {
        close(to_peer[end]);
        close(from_peer[end]);
    }
}

const struct row NEAREST_ROWS[] = {
    {"eventfd", ROUND_TRIP, "a notification to another process and one back, two eventfds", 100,
     make_notified, NULL, notify_in_turn, NULL, end_notified},
    {"seccomp", ROUND_TRIP, "getppid that a filter of eight instructions lets through", 1000,
     make_filtered, NULL, call_filtered, NULL, end_filtered},
    /* The last, as it makes a thread: see threads.c. */
    {"userfaultfd", ROUND_TRIP, "a missing page, filled by a thread of ours (UFFDIO_COPY)",
     MISSING_PAGES, watch_missing, discard, touch_missing, NULL, unwatch},
    {0},
};
