/* errors NETWORK ADDRESS REFUSED: prints how calls fail, a line for each. The server at ADDRESS does what the first byte asks for: it
   closes (c), resets (r), closes with data unread (u), or does nothing (n). Nobody listens at REFUSED. */
#define _GNU_SOURCE
#include "test.h"
#include <poll.h>

static const char *network, *address;
static char b[1 << 20];

static const char *got(ssize_t r) {
  static char text[32];
  if (r < 0)
    return strerrorname_np(errno);
  snprintf(text, sizeof text, "%zd", r);
  return text;
}

#define say(what, call) printf("%s: %s\n", what, got(call))

static int dial(char ask) {
  int c = must(sdp_dial(network, address, SDP_NEVER));
  check(must(sdp_write(c, &ask, 1)) == 1);
  return c;
}

/* fill writes until that fails. */
static ssize_t fill(int c) {
  ssize_t r;
  while ((r = sdp_write(c, b, sizeof b)) > 0) {
  }
  return r;
}

static void *closes(void *arg) {
  usleep(50000);
  must(sdp_close((int)(long)arg));
  return NULL;
}

int main(int argc, char **argv) {
  check(argc == 4);
  network = argv[1], address = argv[2];
  say("dial: nobody listens", sdp_dial(network, argv[3], SDP_NEVER));
  say("dial: no port", sdp_dial(network, "localhost", SDP_NEVER));
  say("dial: a port that is too large", sdp_dial(network, "localhost:70000", SDP_NEVER));
  say("dial: no such network", sdp_dial("unix", address, SDP_NEVER));
  say("dial: no time", sdp_dial(network, address, 0));
  say("dial: NULL", sdp_dial(network, NULL, SDP_NEVER));
  say("listen: the port is used", sdp_listen(network, address, 0));
  int ln = must(sdp_listen(network, "localhost:0", 0));
  must(sdp_deadline(ln, SDP_READ, 1000000));
  say("accept: deadline", sdp_accept(ln));
  must(sdp_set(ln, SDP_NONBLOCK, 1));
  say("accept: would wait", sdp_accept(ln));
  say("read: a listener", sdp_read(ln, b, 1));
  must(sdp_close(ln));
  say("accept: closed", sdp_accept(ln));

  int c = dial('c');
  say("read: the end", sdp_read(c, b, 1));
  say("read: the end, again", sdp_read(c, b, 1));
  say("write: the peer has closed", sdp_write(c, b, 1));
  say("write: the peer has closed, again", fill(c));
  must(sdp_close(c));

  c = dial('r');
  say("read: reset", sdp_read(c, b, 1));
  say("read: reset, again", sdp_read(c, b, 1));
  say("write: reset", sdp_write(c, b, 1));
  say("shutdown: reset", sdp_shutdown(c, SDP_WRITE));
  must(sdp_close(c));

  c = dial('r');
  check(must(sdp_arm(c, SDP_READ)) == 0);
  check(poll(&(struct pollfd){must(sdp_fd(c)), POLLIN, 0}, 1, 60000) == 1);
  say("write: reset, first", sdp_write(c, b, 1));
  say("read: reset, behind a write", sdp_read(c, b, 1));
  must(sdp_close(c));

  c = dial('u');
  check(must(sdp_write(c, b, 1000)) == 1000);
  say("read: closed with data unread", sdp_read(c, b, 1));
  must(sdp_close(c));

  c = dial('n');
  must(sdp_deadline(c, SDP_READ, 1000000));
  say("read: deadline", sdp_read(c, b, 1));
  must(sdp_deadline(c, SDP_READ, SDP_NEVER));
  must(sdp_set(c, SDP_NONBLOCK, 1));
  say("read: would wait", sdp_read(c, b, 1));
  say("write: would wait", fill(c));
  must(sdp_set(c, SDP_NONBLOCK, 0));
  must(sdp_deadline(c, SDP_WRITE, 1000000));
  say("write: deadline", fill(c));
  say("read: nothing", sdp_read(c, b, 0));
  say("read: NULL", sdp_read(c, NULL, 1));
  say("name: no room", sdp_name(c, SDP_LOCAL, b, 3));
  say("set: no such option", sdp_set(c, 99, 1));
  say("accept: a connection", sdp_accept(c));
  say("discard: nothing lent", sdp_discard(c, 0));
  must(sdp_deadline(c, SDP_READ | SDP_WRITE, SDP_NEVER));
  must(sdp_shutdown(c, SDP_WRITE));
  say("write: after shutdown", sdp_write(c, b, 1));
  pthread_t t = start(closes, (void *)(long)c);
  say("read: closed meanwhile", sdp_read(c, b, 1));
  pthread_join(t, NULL);
  say("read: closed", sdp_read(c, b, 1));
  say("close: closed", sdp_close(c));
  say("read: no handle", sdp_read(-1, b, 1));
  say("fd: no handle", sdp_fd(0));
  return 0;
}
