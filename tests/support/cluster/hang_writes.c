/*
 * Preloaded into a broker by tests: writes to paths below TIDELOG_HANG_DIR hang for as long as the
 * file TIDELOG_HANG_FLAG exists. A disk that never answers, without a kernel's help.
 * CPython writes with pwritev64v2 (os.pwritev) and pwrite64 (os.pwrite).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static void hang_if_told(int fd) {
    const char *flag = getenv("TIDELOG_HANG_FLAG");
    const char *directory = getenv("TIDELOG_HANG_DIR");
    char link[64], path[4096];
    if (!flag || !directory || access(flag, F_OK)) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = 0;
    if (strncmp(path, directory, strlen(directory))) return;
    while (!access(flag, F_OK)) usleep(10000);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    static ssize_t (*real)(int, const struct iovec *, int, off64_t, int);
    if (!real) real = dlsym(RTLD_NEXT, "pwritev64v2");
    hang_if_told(fd);
    return real(fd, parts, count, offset, flags);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    hang_if_told(fd);
    return real(fd, bytes, size, offset);
}
