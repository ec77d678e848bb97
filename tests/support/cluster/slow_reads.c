/*
 * Preloaded into a broker: reads of segments (*.log) below TIDELOG_SLOW_DIR take as many
 * milliseconds as the file TIDELOG_SLOW_FLAG says, while it exists. Reads that must not wait get
 * EAGAIN, as from a page cache that holds nothing. Each slow read appends "b" to the file
 * <flag>.reads when it begins, and "e" when it ends. CPython reads with pread64 (os.pread) and
 * preadv64v2 (os.preadv).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static void note(const char *flag, const char *mark) {
    char path[4096];
    snprintf(path, sizeof path, "%s.reads", flag);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return;
    if (write(file, mark, 1) != 1) abort();
    close(file);
}

/* The time that a read of this file takes, in ms; 0 for a quick one. */
static long delay_ms(int fd) {
    const char *flag = getenv("TIDELOG_SLOW_FLAG");
    const char *directory = getenv("TIDELOG_SLOW_DIR");
    char link[64], path[4096], text[32];
    if (!flag || !directory) return 0;
    int file = open(flag, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return 0;
    text[size] = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 4) return 0;
    path[length] = 0;
    if (strncmp(path, directory, strlen(directory)) || strcmp(path + length - 4, ".log")) return 0;
    return atol(text);
}

static void take_time(long ms) {
    const char *flag = getenv("TIDELOG_SLOW_FLAG");
    struct timespec step = {0, 10000000};
    note(flag, "b");
    /* Whoever removes the flag ends the wait. */
    for (long waited = 0; waited < ms && !access(flag, F_OK); waited += 10) nanosleep(&step, NULL);
    note(flag, "e");
}

ssize_t pread64(int fd, void *bytes, size_t size, off64_t offset) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pread64");
    long ms = delay_ms(fd);
    if (ms) take_time(ms);
    return real(fd, bytes, size, offset);
}

ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    static ssize_t (*real)(int, const struct iovec *, int, off64_t, int);
    if (!real) real = dlsym(RTLD_NEXT, "preadv64v2");
    long ms = delay_ms(fd);
    if (ms && flags & RWF_NOWAIT) {
        errno = EAGAIN;
        return -1;
    }
    if (ms) take_time(ms);
    return real(fd, parts, count, offset, flags);
}
