/*
 * Preloaded into a broker by `python -m bench flush`: fsync and fdatasync take at least
 * TIDELOG_SYNC_US microseconds, as on a slow disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int slowly(int fd, int (*real)(int)) {
    const char *wanted = getenv("TIDELOG_SYNC_US");
    long least_us = wanted ? atol(wanted) : 0;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    int result = real(fd);
    clock_gettime(CLOCK_MONOTONIC, &end);
    long took_us = (end.tv_sec - begin.tv_sec) * 1000000 + (end.tv_nsec - begin.tv_nsec) / 1000;
    if (took_us < least_us) {
        long left_us = least_us - took_us;
        struct timespec rest = {left_us / 1000000, left_us % 1000000 * 1000};
        nanosleep(&rest, NULL);
    }
    return result;
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    return slowly(fd, real);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    return slowly(fd, real);
}
