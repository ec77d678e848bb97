/*
 * Preloaded into a broker by tests: appends a line "<size> <path>" to the file TIDELOG_SYNC_LOG for
 * each regular file that fsync or fdatasync made durable, and for each file below TIDELOG_SYNC_DIR
 * after syncfs. The size is taken before the call: bytes written during it may not be durable. The
 * line is there before the broker learns that the call succeeded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void record(const char *path, long long size) {
    const char *log = getenv("TIDELOG_SYNC_LOG");
    char line[PATH_MAX + 32];
    if (!log) return;
    int length = snprintf(line, sizeof line, "%lld %s\n", size, path);
    int fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, line, length) != length) abort();
    close(fd);
}

static int synced(int fd, int (*real)(int)) {
    struct stat before;
    char link[64], path[PATH_MAX];
    int is_file = !fstat(fd, &before) && S_ISREG(before.st_mode);
    int result = real(fd);
    if (result || !is_file) return result;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return result;
    path[length] = 0;
    record(path, before.st_size);
    return result;
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    return synced(fd, real);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    return synced(fd, real);
}

static int found(const char *path, const struct stat *status, int kind, struct FTW *place) {
    if (kind == FTW_F) record(path, status->st_size);
    return 0;
}

int syncfs(int fd) {
    static int (*real)(int);
    const char *directory = getenv("TIDELOG_SYNC_DIR");
    if (!real) real = dlsym(RTLD_NEXT, "syncfs");
    int result = real(fd);
    /* Brokers call it before they serve and when they have stopped: nobody writes meanwhile. */
    if (!result && directory) nftw(directory, found, 16, FTW_PHYS);
    return result;
}
