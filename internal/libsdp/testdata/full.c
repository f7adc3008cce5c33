/* full ADDRESS: connects until that fails, and again when there is room. It prints how it failed. */
#define _GNU_SOURCE
#include "test.h"

int main(int argc, char **argv) {
  check(argc == 2);
  static int all[20000];
  int n = 0;
  while ((all[n] = sdp_dial("sdp", argv[1], SDP_NEVER)) >= 0)
    n++;
  puts(strerrorname_np(errno));
  check(n > 10);
  char b = 'x';
  for (int i = 0; i < n; i++) {
    check(must(sdp_write(all[i], &b, 1)) == 1 && must(sdp_read(all[i], &b, 1)) == 1);
    must(sdp_close(all[i]));
  }
  for (int i = 0; i < 10; i++)
    must(sdp_close(must(sdp_dial("sdp", argv[1], 60000000000LL))));
  return 0;
}
