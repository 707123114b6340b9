/* A disk that keeps only what was synced, and may fail to sync: preloaded into a process.

   UNSYNCED_DIR     a folder: of every file written there, UNSYNCED_DIR/on-disk/NAME is what the disk
                    has, which is what a power cut leaves.
   on-disk/fail     while this file is there, the next fsync fails with EIO; the file is removed.
                    As on Linux, what was not synced by then is never written, and the next fsync
                    succeeds.
   FULL_DIR         a folder whose disk is full while there is a file of its name and ".full" beside
                    it: what is open there cannot be written to.

   Only write, pwrite, ftruncate, fsync, fdatasync and unlink matter: SQLite uses no others for the
   database and its log. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 64

struct range { off_t from; size_t size; };
struct file { char name[NAME_MAX + 1]; struct range *dirty; size_t number, room; };

static struct file files[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folder[PATH_MAX], full[PATH_MAX];
static __thread int inside;

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_unlink)(const char *);

__attribute__((constructor)) static void start(void) {
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    const char *at = getenv("UNSYNCED_DIR");
    if (at != NULL && realpath(at, folder) == NULL) folder[0] = 0;
    at = getenv("FULL_DIR");
    if (at != NULL && realpath(at, full) == NULL) full[0] = 0;
}

/* The name of a database's file in the folder, or NULL. */
static const char *name_in(const char *path) {
    size_t prefix = strlen(folder);
    if (strncmp(path, folder, prefix) || path[prefix] != '/') return NULL;
    const char *name = path + prefix + 1;
    size_t length = strlen(name);
    if (strchr(name, '/') || strstr(name, ".db") == NULL) return NULL;
    return length > 4 && !strcmp(name + length - 4, "-shm") ? NULL : name;
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    path[size > 0 ? size : 0] = 0;
    return size > 0;
}

static const char *name_of(int fd, char *path) {
    return folder[0] && !inside && path_of(fd, path) ? name_in(path) : NULL;
}

static struct file *file_of(const char *name) {
    for (int i = 0; i < FILES; i++) {
        if (!files[i].name[0]) strncpy(files[i].name, name, NAME_MAX);
        if (!strcmp(files[i].name, name)) return &files[i];
    }
    abort();
}

static void note(int fd, off_t from, ssize_t size) {
    char path[PATH_MAX];
    const char *name = size > 0 ? name_of(fd, path) : NULL;
    if (name == NULL) return;
    struct file *file = file_of(name);
    if (file->number == file->room) {
        file->room = file->room ? 2 * file->room : 1024;
        file->dirty = realloc(file->dirty, file->room * sizeof *file->dirty);
        if (file->dirty == NULL) abort();
    }
    file->dirty[file->number++] = (struct range){from, (size_t)size};
}

/* What was written since the last sync is on the disk now. */
static void keep(const char *path, struct file *file) {
    char kept[2 * PATH_MAX];
    snprintf(kept, sizeof kept, "%s/on-disk/%s", folder, file->name);
    int from = open(path, O_RDONLY | O_CLOEXEC);
    int to = open(kept, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (from < 0 || to < 0) abort();
    for (size_t i = 0; i < file->number; i++) {
        char *bytes = malloc(file->dirty[i].size);
        ssize_t size = pread(from, bytes, file->dirty[i].size, file->dirty[i].from);
        if (size > 0 && real_pwrite(to, bytes, (size_t)size, file->dirty[i].from) != size) abort();
        free(bytes);
    }
    struct stat now, then;
    if (!fstat(from, &now) && !fstat(to, &then) && now.st_size < then.st_size) {
        if (ftruncate(to, now.st_size)) abort();
    }
    close(from);
    close(to);
}

static int sync_file(int fd, int (*sync)(int)) {
    char path[PATH_MAX], fails[PATH_MAX + 16];
    const char *name = name_of(fd, path);
    if (name == NULL) return sync(fd);
    pthread_mutex_lock(&lock);
    inside = 1;
    struct file *file = file_of(name);
    snprintf(fails, sizeof fails, "%s/on-disk/fail", folder);
    int failed = real_unlink(fails) == 0;
    if (!failed) keep(path, file);
    file->number = 0;
    inside = 0;
    pthread_mutex_unlock(&lock);
    if (failed) {
        errno = EIO;
        return -1;
    }
    return 0; /* the real disk is not what is tried here */
}

int fsync(int fd) { return sync_file(fd, real_fsync); }
int fdatasync(int fd) { return sync_file(fd, real_fdatasync); }

ssize_t pwrite64(int fd, const void *bytes, size_t size, off_t from) {
    pthread_mutex_lock(&lock);
    ssize_t done = real_pwrite(fd, bytes, size, from);
    note(fd, from, done);
    pthread_mutex_unlock(&lock);
    return done;
}
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t from) {
    return pwrite64(fd, bytes, size, from);
}

ssize_t write(int fd, const void *bytes, size_t size) {
    char path[PATH_MAX];
    if (full[0] && path_of(fd, path) && !strncmp(path, full, strlen(full))) {
        char mark[PATH_MAX + 8];
        snprintf(mark, sizeof mark, "%s.full", full);
        if (access(mark, F_OK) == 0) {
            errno = ENOSPC;
            return -1;
        }
    }
    if (name_of(fd, path) == NULL) return real_write(fd, bytes, size);
    off_t from = lseek(fd, 0, SEEK_CUR);
    pthread_mutex_lock(&lock);
    ssize_t done = real_write(fd, bytes, size);
    note(fd, from, done);
    pthread_mutex_unlock(&lock);
    return done;
}

/* A log that is removed is gone from the disk too: SQLite has synced the database before. */
int unlink(const char *path) {
    char whole[PATH_MAX], kept[2 * PATH_MAX];
    const char *name = folder[0] && realpath(path, whole) ? name_in(whole) : NULL;
    if (name == NULL) return real_unlink(path);
    pthread_mutex_lock(&lock);
    file_of(name)->number = 0;
    snprintf(kept, sizeof kept, "%s/on-disk/%s", folder, name);
    real_unlink(kept);
    int done = real_unlink(path);
    pthread_mutex_unlock(&lock);
    return done;
}
