//go:build libsdp && cgo && linux

/* The functions of sdp.h: what must not reach Go is refused here, and what Go returns becomes errno. */
#define _GNU_SOURCE
#include "front.h"
#include "_cgo_export.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __thread struct {
  char text[SDPX_TEXT];
  int said;  /* Go has stored text in this call */
  int error; /* of the last call that failed, if it has no text */
} last;

char *sdpx_text(void) {
  last.said = 1;
  return last.text;
}

/* A forked child has none of the threads of Go's runtime. */
static int forked;

static void in_child(void) { forked = 1; }

/* At exit the sockets are closed. Calls of other threads that this ends do not return, as with sockets. */
static int exiting;
static pthread_t exits;

static void at_exit(void) {
  if (forked)
    return;
  exits = pthread_self();
  __atomic_store_n(&exiting, 1, __ATOMIC_RELEASE);
  sdpExit();
}

__attribute__((constructor)) static void begin(void) {
  pthread_atfork(NULL, NULL, in_child);
  atexit(at_exit);
}

/* fail makes an error of the library's own. */
static long long fail(int error) {
  last.error = error;
  errno = error;
  return -1;
}

/* result returns what a call returns for what Go has returned. */
static long long result(long long r) {
  if (__builtin_expect(r >= 0, 1))
    return r;
  while (__atomic_load_n(&exiting, __ATOMIC_ACQUIRE) && !pthread_equal(exits, pthread_self()))
    pause();
  fail((int)-r);
  if (last.said)
    last.error = 0;
  last.said = 0;
  return -1;
}

/* CALL is a call of Go, if it may be made and its arguments can be used. */
#define CALL(ok, call) (__builtin_expect(forked, 0) ? fail(ENOTRECOVERABLE) : (ok) ? result(call) : fail(EINVAL))

static int is_buffer(const void *p, size_t n) { return n <= SSIZE_MAX && (p != NULL || n == 0); }

/* is_vector reports whether the buffers are as readv and writev take them. */
static int is_vector(const struct iovec *iov, int count) {
  size_t sum = 0;
  if (count < 0 || count > IOV_MAX || (iov == NULL && count > 0))
    return 0;
  for (int i = 0; i < count; i++)
    if (!is_buffer(iov[i].iov_base, iov[i].iov_len) || (sum += iov[i].iov_len) > SSIZE_MAX)
      return 0;
  return 1;
}

#define DO(ok, what, handle, a, b, p) CALL(ok, sdpDo(SDPX_##what, handle, (long long)(a), (long long)(b), (void *)(p)))

static int is_direction(int which) { return which >= SDP_READ && which <= (SDP_READ | SDP_WRITE); }

int sdp_dial(const char *network, const char *address, long long timeout) {
  return CALL(network != NULL && address != NULL, sdpOpen((char *)network, (char *)address, timeout, 0, 0));
}

int sdp_listen(const char *network, const char *address, int backlog) {
  return CALL(network != NULL && address != NULL && backlog >= 0, sdpOpen((char *)network, (char *)address, 0, 1, backlog));
}

int sdp_accept(int listener) { return DO(1, ACCEPT, listener, 0, 0, NULL); }

ssize_t sdp_read(int conn, void *buf, size_t n) { return CALL(is_buffer(buf, n), sdpRead(conn, buf, n, 0)); }

ssize_t sdp_write(int conn, const void *buf, size_t n) { return CALL(is_buffer(buf, n), sdpWrite(conn, (void *)buf, n)); }

/* Only the first read waits: then there is something to return. */
ssize_t sdp_readv(int conn, const struct iovec *iov, int count) {
  ssize_t sum = 0;
  if (!is_vector(iov, count))
    return fail(EINVAL);
  for (int i = 0; i < count; i++) {
    if (iov[i].iov_len == 0 && count > 1)
      continue;
    ssize_t n = CALL(1, sdpRead(conn, iov[i].iov_base, iov[i].iov_len, sum > 0));
    if (n < 0)
      return sum > 0 ? sum : -1;
    sum += n;
    if ((size_t)n < iov[i].iov_len)
      break;
  }
  return sum;
}

/* Without waits, the pieces are written one by one. */
ssize_t sdp_writev(int conn, const struct iovec *iov, int count) {
  ssize_t sum = 0;
  if (!is_vector(iov, count))
    return fail(EINVAL);
  if (DO(1, GET, conn, SDP_NONBLOCK, 0, NULL) != 1)
    return CALL(1, sdpWritev(conn, (struct iovec *)iov, count));
  for (int i = 0; i < count; i++) {
    ssize_t n = sdp_write(conn, iov[i].iov_base, iov[i].iov_len);
    if (n < 0)
      return sum > 0 ? sum : -1;
    sum += n;
    if ((size_t)n < iov[i].iov_len)
      break;
  }
  return sum;
}

int sdp_shutdown(int conn, int which) { return DO(is_direction(which), SHUTDOWN, conn, which, 0, NULL); }

int sdp_close(int handle) { return DO(1, CLOSE, handle, 0, 0, NULL); }

int sdp_deadline(int handle, int which, long long after) { return DO(is_direction(which), DEADLINE, handle, which, after, NULL); }

int sdp_name(int handle, int which, char *text, size_t size) { return DO(is_buffer(text, size), NAME, handle, which, size, text); }

int sdp_peer(int conn, struct sdp_peer *peer) { return DO(peer != NULL, PEER, conn, 0, 0, peer); }

int sdp_set(int handle, int option, long long value) {
  return DO(value >= INT_MIN && value <= INT_MAX, SET, handle, option, value, NULL);
}

long long sdp_get(int handle, int option) { return DO(1, GET, handle, option, 0, NULL); }

ssize_t sdp_peek(int conn, const void **data) { return DO(data != NULL, PEEK, conn, 0, 0, data); }

int sdp_discard(int conn, size_t n) { return DO(n <= SSIZE_MAX, DISCARD, conn, n, 0, NULL); }

ssize_t sdp_reserve(int conn, size_t n, void **room) { return DO(room != NULL && n >= 1 && n <= SSIZE_MAX, RESERVE, conn, n, 0, room); }

int sdp_commit(int conn, size_t n) { return DO(n <= SSIZE_MAX, COMMIT, conn, n, 0, NULL); }

int sdp_fd(int handle) { return DO(1, FD, handle, 0, 0, NULL); }

int sdp_arm(int handle, int events) { return DO((events & ~(SDP_READ | SDP_WRITE)) == 0, ARM, handle, events, 0, NULL); }

int sdp_ready(int handle) { return DO(1, READY, handle, 0, 0, NULL); }

const char *sdp_error(void) {
  if (last.error == ENOTRECOVERABLE && forked)
    return "sdp: the sockets are the parent's, which has forked this process";
  return last.error != 0 ? strerrordesc_np(last.error) : last.text;
}
