/* What the first process of a Linux guest must do before a server can be reached.
 *
 * /modules holds the kernel's modules in the order of their names; `address=A.B.C.D` in the
 * environment, where the kernel puts words of its command line that it does not know, is eth0's. */
#include "linux.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void load_modules(void)
{
    char path[32];
    for (unsigned number = 0;; number++) {
        snprintf(path, sizeof path, "/modules/%02u.ko", number);
        int module = open(path, O_RDONLY);
        if (module < 0)
            return;
        if (syscall(SYS_finit_module, module, "", 0))
            perror(path);
        close(module);
    }
}

/* The card's driver may still be at it. */
static void set_address(const char *name, const char *text)
{
    struct ifreq request = {0};
    struct timespec pause = {0, 10000000};
    struct sockaddr_in address = {.sin_family = AF_INET};
    int any = socket(AF_INET, SOCK_DGRAM, 0);
    strcpy(request.ifr_name, name);
    while (ioctl(any, SIOCGIFINDEX, &request))
        nanosleep(&pause, NULL);
    inet_pton(AF_INET, text, &address.sin_addr);
    memcpy(&request.ifr_addr, &address, sizeof address);
    if (ioctl(any, SIOCSIFADDR, &request))
        perror("SIOCSIFADDR");
    inet_pton(AF_INET, "255.255.255.0", &address.sin_addr);
    memcpy(&request.ifr_netmask, &address, sizeof address);
    if (ioctl(any, SIOCSIFNETMASK, &request))
        perror("SIOCSIFNETMASK");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(any, SIOCSIFFLAGS, &request))
        perror("SIOCSIFFLAGS");
    close(any);
}

void become_init(void)
{
    mkdir("/proc", 0555);
    mkdir("/dev", 0755);
    mkdir("/tmp", 01777);
    mount("proc", "/proc", "proc", 0, "");
    mount("devtmpfs", "/dev", "devtmpfs", 0, "");
    mount("tmpfs", "/tmp", "tmpfs", 0, "");
    int console = open("/dev/ttyS0", O_RDWR);
    for (int standard = 0; console >= 0 && standard < 3; standard++)
        dup2(console, standard);
    load_modules();
    set_address("eth0", getenv("address"));
}
