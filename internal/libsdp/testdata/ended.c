/* ended ADDRESS: reads from a connection until it ends, and prints how. */
#define _GNU_SOURCE
#include "test.h"

int main(int argc, char **argv) {
  check(argc == 2);
  int c = must(sdp_dial("sdp", argv[1], SDP_NEVER));
  char b;
  check(must(sdp_write(c, "x", 1)) == 1 && must(sdp_read(c, &b, 1)) == 1);
  puts("reading");
  fflush(stdout);
  puts(sdp_read(c, &b, 1) < 0 ? strerrorname_np(errno) : "the end");
  must(sdp_close(c));
  return 0;
}
