// Replaces `fdatasync`: while the file `hold` is in the folder that PENSTOCK_SYNCS names, each call waits, and writes a byte into
// the pipe `waiting`; while the file `fail` is there, it fails with EIO. It takes 2 ms more than it waits.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *in_folder(char *path, const char *name) {
    const char *folder = getenv("PENSTOCK_SYNCS");
    snprintf(path, PATH_MAX, "%s/%s", folder ? folder : "/nonexistent", name);
    return path;
}

int fdatasync(int fd) {
    char hold[PATH_MAX], waiting[PATH_MAX], fail[PATH_MAX];
    in_folder(hold, "hold");
    if (access(hold, F_OK) == 0) {
        int pipe = open(in_folder(waiting, "waiting"), O_WRONLY | O_NONBLOCK);
        if (write(pipe, "", 1) != 1) {
            abort();
        }
        close(pipe);
        while (access(hold, F_OK) == 0) {
            usleep(1000);
        }
        usleep(2000);
    }
    if (access(in_folder(fail, "fail"), F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}
