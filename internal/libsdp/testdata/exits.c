/* exits ADDRESS: writes, and ends without sdp_close, while a thread reads. A child exits before. */
#include "test.h"

#include <sys/wait.h>

static void *reads(void *arg) {
  char b;
  sdp_read((int)(long)arg, &b, 1);
  _exit(3);
}

int main(int argc, char **argv) {
  check(argc == 2);
  int c = must(sdp_dial("sdp", argv[1], SDP_NEVER));
  check(must(sdp_write(c, "before fork, ", 13)) == 13);
  pid_t child = fork();
  if (child == 0)
    exit(0);
  check(waitpid(child, NULL, 0) == child);
  check(must(sdp_write(c, "and behind", 10)) == 10);
  start(reads, (void *)(long)c);
  usleep(10000);
  return 0;
}
