/* What the two halves of the library share. */
#ifndef FRONT_H
#define FRONT_H

#include "include/sdp.h"

#include <errno.h>

#define SDPX_TEXT 512 /* bytes of sdp_error's text */

/* Calls that sdpDo makes: those of connections, and from SDPX_ANY on also those of listeners. */
enum {
  SDPX_SHUTDOWN,
  SDPX_PEER,
  SDPX_PEEK,
  SDPX_DISCARD,
  SDPX_RESERVE,
  SDPX_COMMIT,
  SDPX_ANY,
  SDPX_ACCEPT = SDPX_ANY,
  SDPX_DEADLINE,
  SDPX_NAME,
  SDPX_SET,
  SDPX_GET,
  SDPX_FD,
  SDPX_ARM,
  SDPX_READY,
  SDPX_CLOSE
};

char *sdpx_text(void); /* of the calling thread */

#endif
