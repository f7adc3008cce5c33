//go:build libsdp && cgo && linux

/* The functions of sdp.h: what must not reach Go is refused here, and what Go returns becomes errno. */
#define _GNU_SOURCE
#include "front.h"
#include "_cgo_export.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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

static void at_exit(void) {
  if (!forked)
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

int sdp_dial(const char *network, const char *address, long long timeout) {
  return CALL(network != NULL && address != NULL, sdpDial((char *)network, (char *)address, timeout));
}

int sdp_listen(const char *network, const char *address, int backlog) {
  return CALL(network != NULL && address != NULL && backlog >= 0, sdpListen((char *)network, (char *)address, backlog));
}

int sdp_accept(int listener) { return CALL(1, sdpAccept(listener)); }

ssize_t sdp_read(int conn, void *buf, size_t n) { return CALL(is_buffer(buf, n), sdpRead(conn, buf, n)); }

ssize_t sdp_write(int conn, const void *buf, size_t n) { return CALL(is_buffer(buf, n), sdpWrite(conn, (void *)buf, n)); }

ssize_t sdp_readv(int conn, const struct iovec *iov, int count) {
  return CALL(is_vector(iov, count), sdpReadv(conn, (struct iovec *)iov, count));
}

ssize_t sdp_writev(int conn, const struct iovec *iov, int count) {
  return CALL(is_vector(iov, count), sdpWritev(conn, (struct iovec *)iov, count));
}

int sdp_shutdown(int conn, int which) {
  return CALL(which >= SDP_READ && which <= (SDP_READ | SDP_WRITE), sdpShutdown(conn, which));
}

int sdp_close(int handle) { return CALL(1, sdpClose(handle)); }

int sdp_deadline(int handle, int which, long long after) {
  return CALL(which >= SDP_READ && which <= (SDP_READ | SDP_WRITE), sdpDeadline(handle, which, after));
}

int sdp_name(int handle, int which, char *text, size_t size) {
  return CALL(is_buffer(text, size), sdpName(handle, which, text, size));
}

int sdp_peer(int conn, struct sdp_peer *peer) { return CALL(peer != NULL, sdpPeer(conn, peer)); }

int sdp_set(int handle, int option, long long value) { return CALL(1, sdpSet(handle, option, value)); }

long long sdp_get(int handle, int option) { return CALL(1, sdpGet(handle, option)); }

ssize_t sdp_peek(int conn, const void **data) { return CALL(data != NULL, sdpPeek(conn, (void **)data)); }

int sdp_discard(int conn, size_t n) { return CALL(1, sdpDiscard(conn, n)); }

ssize_t sdp_reserve(int conn, size_t n, void **room) {
  return CALL(room != NULL && n >= 1 && n <= SSIZE_MAX, sdpReserve(conn, n, room));
}

int sdp_commit(int conn, size_t n) { return CALL(1, sdpCommit(conn, n)); }

int sdp_fd(int handle) { return CALL(1, sdpFD(handle)); }

int sdp_arm(int handle, int events) { return CALL((events & ~(SDP_READ | SDP_WRITE)) == 0, sdpArm(handle, events)); }

int sdp_ready(int handle) { return CALL(1, sdpReady(handle)); }

const char *sdp_error(void) {
  if (last.error == ENOTRECOVERABLE && forked)
    return "sdp: the sockets are the parent's, which has forked this process";
  return last.error != 0 ? strerrordesc_np(last.error) : last.text;
}
