package ntbtest

import "time"

// SetLimit shortens the waits that are to fail.
func SetLimit(d time.Duration) { limit = d }

// WholePages is what a device of a test gives back.
var WholePages = wholePages
