package fabric

import "github.com/ntbnet/ntbnet/internal/hostdir"

// HandoverTime is how long a dial waits, at most, for the next holder of a port that was handed over.
const HandoverTime = hostdir.HandoverTime
