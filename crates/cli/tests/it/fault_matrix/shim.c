/* Faults of the system, switched by a file that a test writes: failing writes to some files, and a wall clock that is
 * set. Loaded with LD_PRELOAD. FAULT_CONTROL names the file, FAULT_FILES the beginning of the paths. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
  int64_t clock_offset; /* seconds */
  int64_t write_error;  /* an errno, or 0 */
};
static const volatile struct control *control;
static const char *files;

__attribute__((constructor)) static void start(void) {
  const char *name = getenv("FAULT_CONTROL");
  int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *map = mmap(NULL, sizeof *control, PROT_READ, MAP_SHARED, fd, 0);
  if (map != MAP_FAILED) control = map;
  files = getenv("FAULT_FILES");
  close(fd);
}

static int fails(int fd) {
  if (!control || !files || !control->write_error) return 0;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path);
  if (length < (ssize_t)strlen(files) || strncmp(path, files, strlen(files)) != 0) return 0;
  errno = (int)control->write_error;
  return 1;
}

#define FAILING(type, name, parameters, ...)                \
  type name parameters {                                    \
    static type(*real) parameters;                          \
    if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
    return fails(fd) ? -1 : real(__VA_ARGS__);              \
  }
FAILING(ssize_t, write, (int fd, const void *data, size_t size), fd, data, size)
FAILING(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), fd, data, size, at)
FAILING(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), fd, data, size, at)
FAILING(int, fsync, (int fd), fd)
FAILING(int, fdatasync, (int fd), fd)

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, now);
  if (!result && clock == CLOCK_REALTIME && control) now->tv_sec += control->clock_offset;
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec exact;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *into) {
  struct timespec exact;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
  if (into) *into = exact.tv_sec;
  return exact.tv_sec;
}
