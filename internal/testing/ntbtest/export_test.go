package ntbtest

import "time"

// SetLimit shortens the waits that must fail.
func SetLimit(d time.Duration) { limit = d }

// WholePages exports wholePages for a test's device that reclaims.
var WholePages = wholePages
