/* What the two halves of the library share. */
#ifndef FRONT_H
#define FRONT_H

#include "include/sdp.h"

#include <errno.h>

#define SDPX_TEXT 512 /* bytes of sdp_error's text */

char *sdpx_text(void); /* of the calling thread */

#endif
