/* Files in memory: /tmp is a tmpfs on Linux, and tmpfsd's on Xok/ExOS. */
#define _GNU_SOURCE
#include "bench.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_PATH "/tmp/bench-file"
static char data[65536];
static int file = -1;

static const char *make_file(void)
{
    file = open(FILE_PATH, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0)
        return failed(FILE_PATH);
    memset(data, 7, sizeof data);
    return write(file, data, sizeof data) == (ssize_t)sizeof data ? NULL : failed("write");
}

static void remove_file(void)
{
    close(file);
    unlink(FILE_PATH);
}

static void read_bytes(unsigned operations, size_t bytes)
{
    for (unsigned round = 0; round < operations; round++)
        must(pread(file, data, bytes, 0) == (ssize_t)bytes, "pread");
}

static void read4k(unsigned operations)
{
    read_bytes(operations, 4096);
}

static void read64k(unsigned operations)
{
    read_bytes(operations, sizeof data);
}

static void write4k(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++)
        must(pwrite(file, data, 4096, 0) == 4096, "pwrite");
}

static void open_close(unsigned operations)
{
    for (unsigned round = 0; round < operations; round++) {
        int opened = open(FILE_PATH, O_RDONLY);
        must(opened >= 0 && close(opened) == 0, "open and close");
    }
}

static void stat_path(unsigned operations)
{
    struct stat about;
    for (unsigned round = 0; round < operations; round++)
        must(stat(FILE_PATH, &about) == 0, "stat");
}

/* ---- many files, names made outside of the sample ---- */

static char (*names)[32];

static void make_names(unsigned operations)
{
    names = malloc(operations * sizeof *names);
    must(names, "malloc");
    for (unsigned at = 0; at < operations; at++)
        snprintf(names[at], sizeof *names, "/tmp/bench-file-%u", at);
}

static void create_files(unsigned operations)
{
    for (unsigned at = 0; at < operations; at++) {
        int made = open(names[at], O_WRONLY | O_CREAT | O_EXCL, 0644);
        must(made >= 0 && close(made) == 0, "create");
    }
}

static void delete_files(unsigned operations)
{
    for (unsigned at = 0; at < operations; at++)
        must(unlink(names[at]) == 0, "unlink");
}

static void make_files(unsigned operations)
{
    make_names(operations);
    create_files(operations);
}

static void drop_names(unsigned operations)
{
    (void)operations;
    free(names);
}

static void delete_and_drop(unsigned operations)
{
    delete_files(operations);
    drop_names(operations);
}

const struct row FILE_ROWS[] = {
    {"read4k", ROUND_TRIP, "pread of 4 KiB of a cached file", 100, make_file, NULL, read4k, NULL,
     remove_file},
    {"read64k", ROUND_TRIP, "pread of 64 KiB of a cached file", 20, make_file, NULL, read64k, NULL,
     remove_file},
    {"write4k", ROUND_TRIP, "pwrite of 4 KiB in place", 100, make_file, NULL, write4k, NULL,
     remove_file},
    {"open_close", ROUND_TRIP, "open and close of a file", 100, make_file, NULL, open_close, NULL,
     remove_file},
    {"stat", ROUND_TRIP, "stat of a path", 100, make_file, NULL, stat_path, NULL, remove_file},
    {"create", ROUND_TRIP, "creating an empty file, with its close", 50, NULL, make_names,
     create_files, delete_and_drop, NULL},
    {"delete", ROUND_TRIP, "unlinking an empty file", 50, NULL, make_files, delete_files,
     drop_names, NULL},
    {0},
};
