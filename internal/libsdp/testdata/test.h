/* What the test programs share. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sdp.h>

/* must ends the program if a call has failed. */
#define must(call) \
  ({ \
    __typeof__(call) r_ = (call); \
    if (r_ < 0) \
      fail(#call, __LINE__); \
    r_; \
  })

#define check(cond) \
  do \
    if (!(cond)) \
      fail(#cond, __LINE__); \
  while (0)

static inline void fail(const char *what, int line) {
  fprintf(stderr, "%d: %s: errno %d, %s\n", line, what, errno, sdp_error());
  exit(1);
}

static inline void read_all(int c, char *b, size_t n) {
  for (size_t k; n > 0; b += k, n -= k) {
    k = (size_t)must(sdp_read(c, b, n));
    check(k > 0);
  }
}

static inline pthread_t start(void *(*f)(void *), void *arg) {
  pthread_t t;
  check(pthread_create(&t, NULL, f, arg) == 0);
  return t;
}
