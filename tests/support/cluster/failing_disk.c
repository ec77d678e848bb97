/*
 * Preloaded into a broker: file calls below TIDELOG_FAIL_DIR fail with EIO while the file
 * TIDELOG_FAIL_FLAG exists, as those of a device that has died do. CPython calls these functions;
 * readlink gives the path behind a descriptor.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* Whether a call on this path fails; sets errno then. */
static int has_died(const char *path) {
    const char *flag = getenv("TIDELOG_FAIL_FLAG");
    const char *directory = getenv("TIDELOG_FAIL_DIR");
    if (!flag || !directory || !path || strncmp(path, directory, strlen(directory))) return 0;
    int before = errno;
    int dead = !access(flag, F_OK);
    errno = dead ? EIO : before;
    return dead;
}

static int has_died_behind(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return has_died(path);
}

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = dlsym(RTLD_NEXT, #name)

int open64(const char *path, int flags, ...) {
    REAL(int, open64, const char *, int, ...);
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return has_died(path) ? -1 : real(path, flags, mode);
}

ssize_t pread64(int fd, void *bytes, size_t size, off64_t offset) {
    REAL(ssize_t, pread64, int, void *, size_t, off64_t);
    return has_died_behind(fd) ? -1 : real(fd, bytes, size, offset);
}

ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    REAL(ssize_t, preadv64v2, int, const struct iovec *, int, off64_t, int);
    return has_died_behind(fd) ? -1 : real(fd, parts, count, offset, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    REAL(ssize_t, pwritev64v2, int, const struct iovec *, int, off64_t, int);
    return has_died_behind(fd) ? -1 : real(fd, parts, count, offset, flags);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    REAL(ssize_t, pwritev64, int, const struct iovec *, int, off64_t);
    return has_died_behind(fd) ? -1 : real(fd, parts, count, offset);
}

ssize_t write(int fd, const void *bytes, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    return has_died_behind(fd) ? -1 : real(fd, bytes, size);
}

int fsync(int fd) {
    REAL(int, fsync, int);
    return has_died_behind(fd) ? -1 : real(fd);
}

int ftruncate64(int fd, off64_t size) {
    REAL(int, ftruncate64, int, off64_t);
    return has_died_behind(fd) ? -1 : real(fd, size);
}

int rename(const char *old, const char *new) {
    REAL(int, rename, const char *, const char *);
    return has_died(old) ? -1 : real(old, new);
}

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    return has_died(path) ? -1 : real(path);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    return has_died(path) ? -1 : real(path, mode);
}

DIR *opendir(const char *path) {
    REAL(DIR *, opendir, const char *);
    return has_died(path) ? NULL : real(path);
}
