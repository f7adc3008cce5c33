/* epoll is echo.c's server with one thread, which waits for all connections by the kernel's epoll.
 *
 *   cc -o epoll epoll.c $(PKG_CONFIG_PATH=DIR/lib/pkgconfig pkg-config --cflags --libs libsdp)
 *   ./epoll sdp localhost:7000
 *
 * What cannot be written at once is kept, and no more is read meanwhile. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include <sdp.h>

static int must(const char *what, long long r) {
  if (r < 0) {
    fprintf(stderr, "%s: %s\n", what, sdp_error());
    exit(1);
  }
  return (int)r;
}

/* A connection, and what is to be sent back. */
struct client {
  int c;
  size_t from, to;
  char b[1 << 14];
};

static int queue;

/* watch has the queue return data for events of a handle. */
static void watch(int h, void *data) {
  must("set", sdp_set(h, SDP_NONBLOCK, 1));
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = data};
  if (epoll_ctl(queue, EPOLL_CTL_ADD, must("fd", sdp_fd(h)), &e) < 0) {
    perror("epoll_ctl");
    exit(1);
  }
}

/* serve goes on until it would wait, and arms for that, or closes the connection. */
static void serve(struct client *k) {
  for (;;) {
    ssize_t n;
    if (k->from < k->to) {
      if ((n = sdp_write(k->c, k->b + k->from, k->to - k->from)) > 0) {
        k->from += (size_t)n;
        continue;
      }
    } else if ((n = sdp_read(k->c, k->b, sizeof k->b)) > 0) {
      k->from = 0, k->to = (size_t)n;
      continue;
    }
    if (n < 0 && errno == EAGAIN) {
      must("arm", sdp_arm(k->c, k->from < k->to ? SDP_WRITE : SDP_READ));
      return;
    }
    if (n < 0)
      fprintf(stderr, "a client: %s\n", sdp_error());
    sdp_close(k->c);
    free(k);
    return;
  }
}

static void accept_all(int ln) {
  for (int c; (c = sdp_accept(ln)) >= 0;) {
    struct client *k = calloc(1, sizeof *k);
    if (k == NULL) {
      sdp_close(c);
      continue;
    }
    k->c = c;
    watch(c, k);
    serve(k);
  }
  if (errno != EAGAIN)
    must("accept", -1);
  must("arm", sdp_arm(ln, SDP_READ));
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: epoll sdp|tcp HOST:PORT\n");
    return 2;
  }
  queue = epoll_create1(EPOLL_CLOEXEC);
  int ln = must("listen", sdp_listen(argv[1], argv[2], 0));
  char name[128];
  must("name", sdp_name(ln, SDP_LOCAL, name, sizeof name));
  watch(ln, NULL);
  accept_all(ln);
  printf("%s\n", name);
  fflush(stdout);
  for (;;) {
    struct epoll_event all[64];
    int n = epoll_wait(queue, all, 64, -1);
    for (int i = 0; i < n; i++) {
      struct client *k = all[i].data.ptr;
      must("ready", sdp_ready(k == NULL ? ln : k->c));
      if (k == NULL)
        accept_all(ln);
      else
        serve(k);
    }
  }
}
