/* Baseline: a small web server of one process and poll, whose source is the same on Linux and on
 * Xok/ExOS. It serves its files from memory, answers GET, and keeps connections unless told not to.
 *
 *   baseline PORT DIRECTORY          serves the regular files of the directory
 *   baseline exec PROGRAM WORD...    executes another server: for the first process of Linux, whose
 *                                    file systems and network it sets up first (linux.c) */
#define _GNU_SOURCE
#include "linux.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONNECTIONS 64
#define REQUEST_MAX 2048
#define FILES_MAX 16
#define HEADER_MAX 256

/* A file with its headers in front, for connections that stay and for those that end. */
struct file {
    char name[64];
    char *answers[2];
    size_t lengths[2];
};

struct connection {
    char request[REQUEST_MAX];
    size_t received;
    const char *answer;
    size_t left;
    bool keeps;
};

static struct file files[FILES_MAX];
static unsigned file_count;
static const char NOT_FOUND[] =
    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

static struct pollfd polled[CONNECTIONS + 1];
static struct connection connections[CONNECTIONS + 1];

static void die(const char *what)
{
    fprintf(stderr, "baseline: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void load(const char *directory, const char *name)
{
    char path[512];
    struct stat about;
    struct file *file = &files[file_count];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int from = open(path, O_RDONLY);
    if (from < 0 || fstat(from, &about))
        die(path);
    if (!S_ISREG(about.st_mode) || strlen(name) >= sizeof file->name) {
        close(from);
        return;
    }
    size_t size = (size_t)about.st_size;
    char *body = malloc(size + 1);
    if (!body)
        die("malloc");
    for (size_t got = 0; got < size;) {
        ssize_t part = read(from, body + got, size - got);
        if (part <= 0)
            die(path);
        got += (size_t)part;
    }
    close(from);
    strcpy(file->name, name);
    for (unsigned keeps = 0; keeps < 2; keeps++) {
        char *answer = malloc(HEADER_MAX + size);
        if (!answer)
            die("malloc");
        int header = snprintf(answer, HEADER_MAX,
                              "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
                              "Content-Length: %zu\r\nConnection: %s\r\n\r\n",
                              size, keeps ? "keep-alive" : "close");
        memcpy(answer + header, body, size);
        file->answers[keeps] = answer;
        file->lengths[keeps] = (size_t)header + size;
    }
    free(body);
    file_count++;
}

static void load_all(const char *directory)
{
    DIR *listing = opendir(directory);
    if (!listing)
        die(directory);
    for (struct dirent *entry; (entry = readdir(listing)) && file_count < FILES_MAX;)
        if (entry->d_name[0] != '.')
            load(directory, entry->d_name);
    closedir(listing);
}

static void answer_request(struct connection *connection)
{
    char *name = connection->request + 5;
    connection->keeps = !strcasestr(connection->request, "\r\nConnection: close");
    connection->answer = NOT_FOUND;
    connection->left = sizeof NOT_FOUND - 1;
    if (strncmp(connection->request, "GET /", 5)) {
        connection->keeps = false;
        return;
    }
    size_t length = strcspn(name, " \r");
    for (unsigned at = 0; at < file_count; at++)
        if (strlen(files[at].name) == length && !memcmp(files[at].name, name, length)) {
            connection->answer = files[at].answers[connection->keeps];
            connection->left = files[at].lengths[connection->keeps];
            return;
        }
    connection->keeps = false;
}

static void drop(unsigned at)
{
    close(polled[at].fd);
    polled[at].fd = -1;
    polled[at].events = 0;
    connections[at].request[0] = 0;
    connections[at].received = 0;
    connections[at].left = 0;
}

/* Sends what there is to send; afterwards the connection reads again, or is over. */
static void send_answer(unsigned at)
{
    struct connection *connection = &connections[at];
    while (connection->left) {
        ssize_t sent = send(polled[at].fd, connection->answer, connection->left, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            polled[at].events = POLLOUT;
            return;
        }
        if (sent <= 0) {
            drop(at);
            return;
        }
        connection->answer += sent;
        connection->left -= (size_t)sent;
    }
    polled[at].events = POLLIN;
    if (!connection->keeps)
        drop(at);
}

/* Answers the requests that are whole, one after the other, until one's answer does not go out at
 * once or the connection is over. */
static void answer_requests(unsigned at)
{
    struct connection *connection = &connections[at];
    char *end;
    while (polled[at].fd >= 0 && !connection->left &&
           (end = strstr(connection->request, "\r\n\r\n"))) {
        *end = 0;
        answer_request(connection);
        connection->received -= (size_t)(end + 4 - connection->request);
        memmove(connection->request, end + 4, connection->received + 1);
        send_answer(at);
    }
    if (polled[at].fd >= 0 && connection->received == REQUEST_MAX - 1)
        drop(at);
}

static void receive_request(unsigned at)
{
    struct connection *connection = &connections[at];
    size_t room = REQUEST_MAX - 1 - connection->received;
    ssize_t got = recv(polled[at].fd, connection->request + connection->received, room, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        drop(at);
        return;
    }
    connection->received += (size_t)got;
    connection->request[connection->received] = 0;
    answer_requests(at);
}

static void accept_all(int listener)
{
    for (unsigned at = 1; at <= CONNECTIONS; at++) {
        if (polled[at].fd >= 0)
            continue;
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        if (fd < 0)
            return;
        polled[at].fd = fd;
        polled[at].events = POLLIN;
        /* The request often is there already. */
        receive_request(at);
    }
}

static int listen_on(unsigned short port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    if (listener < 0)
        die("socket");
    if (setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one))
        die("SO_REUSEADDR");
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64))
        die("bind and listen");
    return listener;
}

int main(int count, char **words)
{
    if (getpid() == 1)
        become_init();
    if (count >= 3 && !strcmp(words[1], "exec")) {
        execv(words[2], words + 2);
        die(words[2]);
    }
    if (count != 3) {
        fputs("baseline PORT DIRECTORY\n", stderr);
        return 2;
    }
    load_all(words[2]);
    for (unsigned at = 0; at <= CONNECTIONS; at++)
        polled[at].fd = -1;
    polled[0].fd = listen_on((unsigned short)atoi(words[1]));
    polled[0].events = POLLIN;
    puts("baseline: ready");
    fflush(stdout);
    for (;;) {
        if (poll(polled, CONNECTIONS + 1, -1) < 0 && errno != EINTR)
            die("poll");
        for (unsigned at = 1; at <= CONNECTIONS; at++) {
            if (polled[at].fd < 0 || !polled[at].revents)
                continue;
            if (connections[at].left) {
                send_answer(at);
                answer_requests(at);
            } else {
                receive_request(at);
            }
        }
        if (polled[0].revents)
            accept_all(polled[0].fd);
    }
}
