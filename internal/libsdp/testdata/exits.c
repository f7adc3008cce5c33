/* exits ADDRESS: writes, and ends without sdp_close. A child exits before. */
#include "test.h"

#include <sys/wait.h>

int main(int argc, char **argv) {
  check(argc == 2);
  int c = must(sdp_dial("sdp", argv[1], SDP_NEVER));
  check(must(sdp_write(c, "before fork, ", 13)) == 13);
  pid_t child = fork();
  if (child == 0)
    exit(0);
  check(waitpid(child, NULL, 0) == child);
  check(must(sdp_write(c, "and behind", 10)) == 10);
  return 0;
}
