/* lend ADDRESS: bytes in place, with a server that sends all back, and a descriptor's events. */
#include "test.h"

#include <poll.h>

static int c;

static void *closes(void *arg) {
  (void)arg;
  usleep(50000);
  must(sdp_close(c));
  return NULL;
}

/* wait waits until the descriptor is readable, and returns the events. */
static int wait_for(int h, int events) {
  must(sdp_arm(h, events));
  struct pollfd p = {must(sdp_fd(h)), POLLIN, 0};
  check(poll(&p, 1, 60000) == 1 && p.revents == POLLIN);
  int came = must(sdp_ready(h));
  check(poll(&p, 1, 0) == 0);
  return came;
}

int main(int argc, char **argv) {
  check(argc == 2);
  c = must(sdp_dial("sdp", argv[1], SDP_NEVER));
  const char *data;
  char *room;
  for (int i = 0; i < 1000; i++) {
    ssize_t n = must(sdp_reserve(c, 1000, (void **)&room));
    check(n >= 1 && n <= 1000);
    memset(room, i, (size_t)n);
    check(sdp_commit(c, (size_t)n + 1) == -1 && errno == EINVAL);
    must(sdp_commit(c, (size_t)n));
    for (ssize_t left = n; left > 0;) {
      ssize_t k = must(sdp_peek(c, (const void **)&data));
      check(k >= 1 && k <= left && data[0] == (char)i && data[k - 1] == (char)i);
      check(sdp_close(c) == -1 && errno == EBUSY);
      check(sdp_discard(c, (size_t)k + 1) == -1 && errno == EINVAL);
      size_t take = k > 1 ? (size_t)k / 2 : 1;
      must(sdp_discard(c, take));
      left -= (ssize_t)take;
    }
  }
  struct sdp_peer p;
  must(sdp_peer(c, &p));
  check(p.pid != getpid() && p.uid == (int)getuid() && p.gid == (int)getgid());

  must(sdp_set(c, SDP_NONBLOCK, 1));
  check(must(sdp_get(c, SDP_NONBLOCK)) == 1);
  check(wait_for(c, SDP_WRITE) == SDP_WRITE);
  char b[8];
  check(sdp_read(c, b, sizeof b) == -1 && errno == EAGAIN);
  must(sdp_arm(c, SDP_READ));
  check(sdp_read(c, b, sizeof b) == -1 && errno == EAGAIN); /* beside what waits for it */
  check(must(sdp_write(c, "x", 1)) == 1);
  check(wait_for(c, SDP_READ) == SDP_READ);
  char x, y;
  struct iovec v[] = {{&x, 1}, {&y, 1}};
  check(must(sdp_readv(c, v, 2)) == 1 && x == 'x');
  must(sdp_deadline(c, SDP_READ, 1000000));
  check(wait_for(c, SDP_READ) == SDP_READ);
  check(sdp_read(c, b, sizeof b) == -1 && errno == ETIMEDOUT);
  must(sdp_deadline(c, SDP_READ | SDP_WRITE, SDP_NEVER));

  must(sdp_set(c, SDP_NONBLOCK, 0));
  pthread_t t = start(closes, NULL);
  check(sdp_peek(c, (const void **)&data) == -1 && errno == EBADF);
  pthread_join(t, NULL);

  int ln = must(sdp_listen("sdp", "localhost:0", 0));
  char name[128];
  must(sdp_name(ln, SDP_LOCAL, name, sizeof name));
  c = must(sdp_dial("sdp", name, SDP_NEVER));
  must(sdp_set(ln, SDP_NONBLOCK, 1));
  check(wait_for(ln, SDP_READ) == SDP_READ);
  int s = must(sdp_accept(ln));
  check(sdp_accept(ln) == -1 && errno == EAGAIN);
  must(sdp_set(c, SDP_LINGER, 0));
  must(sdp_close(c));
  must(sdp_set(s, SDP_NONBLOCK, 1));
  check(wait_for(s, SDP_READ) == SDP_READ);
  check(sdp_read(s, b, 1) == -1 && errno == ECONNRESET);
  must(sdp_close(s));
  must(sdp_arm(ln, SDP_READ)); /* which close ends */
  must(sdp_close(ln));
  puts("passed");
  return 0;
}
