package ntbtest

import "time"

// SetLimit shortens the waits that are to fail.
func SetLimit(d time.Duration) { limit = d }
